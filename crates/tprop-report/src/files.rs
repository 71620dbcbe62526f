//! Files that are whole or not there.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tprop::file::{self, Output};

/// Writes a file and forces it onto the disk. A reader, or whoever comes after a crash, sees the old file or the new one, never half of
/// one. For directories that a lock keeps for one process.
///
/// # Errors
/// If the file system fails; the old file is then as it was.
pub fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_by(".tmp", path, bytes)
}

/// As [`write_whole`], where other processes may be writing the same file.
///
/// # Errors
/// If the file system fails; the old file is then as it was.
pub fn write_shared(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_by(&format!(".{}.tmp", std::process::id()), path, bytes)
}

/// By way of a file whose name ends in `ending`.
fn write_by(ending: &str, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(ending);
    let aside = PathBuf::from(aside);
    let whole = || {
        let mut output = Output::create(&aside)?;
        output.write_all(bytes)?;
        output.sync()?;
        file::rename(&aside, path)?;
        file::sync_dir(file::parent(path))
    };
    whole().inspect_err(|_| drop(file::remove(&aside)))
}
