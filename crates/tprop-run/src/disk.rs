//! What the disk would refuse, asked before it matters; and files that are whole or not there.

use std::path::Path;

pub use tprop_report::files::{write_shared, write_whole};
use tprop_report::numbers::bytes;

use crate::failure::{Code, Failure, Outcome};
use crate::room::{existing, free, writable};

/// Refuses a place that cannot be written.
pub fn check_writable(path: &Path) -> Outcome {
    let dir = existing(path);
    if dir.is_dir() && !writable(&dir) {
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
