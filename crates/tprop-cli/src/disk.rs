//! What the disk would say, asked before it matters.

use std::path::{Path, PathBuf};

pub use tprop_report::files::{write_shared, write_whole};
use tprop_report::numbers::bytes;

use crate::failure::{Code, Failure, Outcome};

/// The nearest directory above `path`, or `path` itself, that is there.
fn existing(path: &Path) -> PathBuf {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    full.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/")).to_owned()
}

/// Bytes that can still be written where `path` is or would be, if the system tells.
pub fn free(path: &Path) -> Option<u64> {
    if let Some(planted) = tprop::fault::number("disk.free") {
        return Some(planted);
    }
    system::free(&existing(path))
}

/// Refuses a place that cannot be written.
pub fn check_writable(path: &Path) -> Outcome {
    let dir = existing(path);
    if dir.is_dir() && !system::writable(&dir) {
        let message = format!("{}: cannot be written (no permission in {})", path.display(), dir.display());
        return Err(Failure::new(Code::Disk, message));
    }
    Ok(())
}

/// Refuses a disk on which the checkpoints of a run have no room: the last few, the best, and one on its way. `there` bytes of them are
/// on the disk already, and make room for others.
pub fn check_room(path: &Path, checkpoint: u64, keep: usize, there: u64) -> Outcome {
    let more = checkpoint.saturating_mul(keep as u64 + 2).saturating_sub(there).max(checkpoint);
    let needed = more.saturating_add(1 << 20);
    match free(path) {
        Some(free) if free < needed => Err(Failure::new(
            Code::Disk,
            format!(
                "{}: too little room on the disk: {needed} bytes ({}) needed for {} checkpoints, {free} bytes ({}) free; \
                 make room, choose another --run, or a smaller checkpoint.keep",
                path.display(),
                bytes(needed),
                keep + 2,
                bytes(free)
            ),
        )),
        _ => Ok(()),
    }
}

/// Words for a message about a disk that is full.
pub fn told(path: &Path, needed: Option<u64>) -> String {
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
        let told = rustix::fs::statvfs(dir).ok().filter(|told| told.f_blocks > 0)?;
        told.f_bavail.checked_mul(told.f_frsize)
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

    pub fn writable(_dir: &std::path::Path) -> bool {
        true
    }
}
