//! Files as the disk has them. Reading: ordinary files only, so that a pipe or a device in the place of one is refused instead of
//! waited for. Writing: all that a run writes goes through here, because what a power cut leaves depends on the order of writes, syncs
//! and renames, and a test records that order (`TPROP_TRACE=FILE`, only in builds with debug assertions) to replay it with everything
//! lost that was not synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Opens an ordinary file for reading.
///
/// # Errors
/// If there is none, it is something else (a directory, a pipe, a device), or it may not be read.
pub fn open(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not an ordinary file"));
    }
    File::open(path)
}

/// The bytes of an ordinary file of at most `limit` bytes.
///
/// # Errors
/// As [`open`]; and if it is longer.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("longer than {limit} bytes")));
    }
    Ok(bytes)
}

/// A file that is being written.
#[derive(Debug)]
pub struct Output {
    file: File,
    path: PathBuf,
    /// Where the next byte goes.
    at: u64,
}

impl Output {
    fn open(path: &Path, options: &mut OpenOptions) -> io::Result<Self> {
        let made = !path.exists();
        let file = options.write(true).open(path)?;
        if made {
            trace("create", path, "");
        }
        Ok(Self { file, path: path.to_owned(), at: 0 })
    }

    /// An empty file; what stood there is gone.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = Self::open(path, OpenOptions::new().create(true).truncate(false))?;
        file.set_len(0)?;
        Ok(file)
    }

    /// An empty file where there was none.
    ///
    /// # Errors
    /// If there is one already, or none can be made.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        Self::open(path, OpenOptions::new().create_new(true))
    }

    /// A file that may be there, to read and to write, at its beginning.
    ///
    /// # Errors
    /// If it cannot be opened or made.
    pub fn update(path: &Path) -> io::Result<Self> {
        Self::open(path, OpenOptions::new().read(true).create(true).truncate(false))
    }

    /// A file that is there, to read and to write, at its beginning.
    ///
    /// # Errors
    /// If it is not there or cannot be opened.
    pub fn existing(path: &Path) -> io::Result<Self> {
        Self::open(path, OpenOptions::new().read(true))
    }

    /// The system's file, for what is no writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Cuts the file, or makes it longer by zeros.
    ///
    /// # Errors
    /// If the file system fails.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        trace("cut", &self.path, &len);
        Ok(())
    }

    /// Forces what was written onto the disk.
    ///
    /// # Errors
    /// If the file system fails.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()?;
        trace("sync", &self.path, "");
        Ok(())
    }

    /// Another handle of the same file, for whoever forces it onto the disk.
    ///
    /// # Errors
    /// If the system has no more handles.
    pub fn handle(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, path: self.path.clone(), at: self.at })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        traced(|| trace("write", &self.path, &format_args!("{}\t{}", self.at, hex(&bytes[..n]))));
        self.at += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Read for Output {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(bytes)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for Output {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.file.seek(to)?;
        Ok(self.at)
    }
}

/// Gives a file another name; what had it is gone.
///
/// # Errors
/// If the file system fails.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    traced(|| trace("rename", from, &std::path::absolute(to).unwrap_or_default().display()));
    Ok(())
}

/// Removes a file.
///
/// # Errors
/// If the file system fails.
pub fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    trace("remove", path, "");
    Ok(())
}

/// Makes a directory where there is nothing, and forces its name onto the disk.
///
/// # Errors
/// If there is something, or none can be made.
pub fn create_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    trace("mkdir", dir, "");
    // The directory above may be another's, who lets us make names in it but not read them.
    let _ = sync_dir(parent(dir));
    Ok(())
}

/// Makes a directory, and those above it that are missing, and forces their names onto the disk.
///
/// # Errors
/// If one of them cannot be made.
pub fn create_dir_all(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = dir.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.is_dir()).collect();
    for dir in missing.into_iter().rev() {
        match create_dir(dir) {
            // Another process was faster.
            Err(_) if dir.is_dir() => {}
            made => made?,
        }
    }
    Ok(())
}

/// Forces a directory's names onto the disk.
///
/// # Errors
/// If the file system fails.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    // Elsewhere directories cannot be opened, and names need no such care.
    if cfg!(unix) {
        File::open(dir)?.sync_all()?;
    }
    trace("sync", dir, "");
    Ok(())
}

/// The directory that a name stands in.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Does what only a recorded run needs.
fn traced(what: impl FnOnce()) {
    #[cfg(debug_assertions)]
    if record::file().is_some() {
        what();
    }
    #[cfg(not(debug_assertions))]
    let _ = what;
}

/// Notes an operation that has been done.
fn trace(operation: &str, path: &Path, more: &(impl std::fmt::Display + ?Sized)) {
    #[cfg(debug_assertions)]
    record::line(operation, path, more);
    #[cfg(not(debug_assertions))]
    let _ = (operation, path, more);
}

#[cfg(debug_assertions)]
mod record {
    use std::fmt::Display;
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::path::Path;
    use std::sync::OnceLock;

    /// Where operations are noted. Several processes may append to it: a line is one write.
    pub fn file() -> Option<&'static File> {
        static FILE: OnceLock<Option<File>> = OnceLock::new();
        let open = || {
            let path = std::env::var_os("TPROP_TRACE")?;
            Some(OpenOptions::new().append(true).create(true).open(path).expect("TPROP_TRACE names a file"))
        };
        FILE.get_or_init(open).as_ref()
    }

    pub fn line(operation: &str, path: &Path, more: &(impl Display + ?Sized)) {
        if let Some(mut file) = file() {
            let path = std::path::absolute(path).expect("a path");
            let line = format!("{operation}\t{}\t{more}\n", path.display());
            file.write_all(line.as_bytes()).expect("the trace can be written");
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Nobody waits for a pipe that nobody writes to.
    #[test]
    fn only_ordinary_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&pipe, dir.path(), Path::new("/dev/zero")] {
            assert_eq!(open(path).unwrap_err().to_string(), "not an ordinary file", "{}", path.display());
        }
        let file = dir.path().join("file");
        fs::write(&file, "1234").unwrap();
        assert_eq!(read(&file, 4).unwrap(), b"1234");
        assert!(read(&file, 3).unwrap_err().to_string().contains("longer than 3 bytes"));
    }
}
