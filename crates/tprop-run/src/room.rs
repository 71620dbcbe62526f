//! What the disk says about itself.

use std::path::{Path, PathBuf};

use tprop_report::numbers::bytes;

/// The nearest directory above `path`, or `path` itself, that is there.
pub fn existing(path: &Path) -> PathBuf {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    full.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/")).to_owned()
}

/// Whether files can be made in a directory that is there.
pub fn writable(dir: &Path) -> bool {
    system::writable(dir)
}

/// Bytes that can still be written where `path` is or would be, if the system tells.
pub fn free(path: &Path) -> Option<u64> {
    if let Some(planted) = tprop::fault::number("disk.free") {
        return Some(planted);
    }
    system::free(&existing(path))
}

/// Words for a message about a disk that is full.
pub fn words(path: &Path, needed: Option<u64>) -> String {
    if system::names(&existing(path)) == Some(0) {
        return "; there is room, but the file system has no name (inode) left for one more file: remove some files"
            .into();
    }
    let needed = needed.map(|n| format!("{n} bytes ({}) needed", bytes(n)));
    let free = free(path).map(|n| format!("{n} bytes ({}) free", bytes(n)));
    let words: Vec<String> = needed.into_iter().chain(free).collect();
    if words.is_empty() { String::new() } else { format!("; {}", words.join(", ")) }
}

#[cfg(unix)]
mod system {
    use std::path::Path;

    pub fn free(dir: &Path) -> Option<u64> {
        // What has no blocks at all is no disk.
        let volume = rustix::fs::statvfs(dir).ok().filter(|volume| volume.f_blocks > 0)?;
        volume.f_bavail.checked_mul(volume.f_frsize)
    }

    /// Files that can still be made, where the file system counts them.
    pub fn names(dir: &Path) -> Option<u64> {
        rustix::fs::statvfs(dir).ok().filter(|volume| volume.f_files > 0).map(|volume| volume.f_favail)
    }

    pub fn writable(dir: &Path) -> bool {
        use rustix::fs::Access;
        rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok()
    }
}

#[cfg(not(unix))]
mod system {
    pub fn free(_dir: &std::path::Path) -> Option<u64> {
        None
    }

    pub fn names(_dir: &std::path::Path) -> Option<u64> {
        None
    }

    pub fn writable(_dir: &std::path::Path) -> bool {
        true
    }
}
