//! One process at a time works on a run.
//!
//! The lock is the system's own (`flock`), taken back when its owner ends, however it ends: a dead owner never has to be told from
//! a live one. The file's text only says who the owner is. A loser that comes between locking and writing would find it empty,
//! or with the name of an owner that is dead; it asks again until a process of that number and start time lives.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tprop::file::{self, Output};

use crate::failure::{Code, Failure, Outcome};

/// Held while a process writes to a run.
#[derive(Debug)]
pub struct Lock {
    _file: Output,
}

/// How long a loser asks for the winner's name.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

impl Lock {
    /// Takes the lock file `path` of the directory `dir`.
    pub fn take(path: &Path, dir: &Path) -> Outcome<Self> {
        let disk = |e: &io::Error| Failure::disk(path, e);
        let mut file = Output::update(path).map_err(|e| disk(&e))?;
        let since = Instant::now();
        loop {
            match file.file().try_lock() {
                Ok(()) => break,
                Err(fs::TryLockError::Error(e)) => return Err(disk(&e)),
                // Someone may only be asking whether it is taken, for an instant: only a live owner counts.
                Err(fs::TryLockError::WouldBlock) if alive(path).is_none() && since.elapsed() < PATIENCE => {
                    std::thread::sleep(PAUSE);
                }
                Err(fs::TryLockError::WouldBlock) => return Err(in_use(path, dir)),
            }
        }
        let id = std::process::id();
        let name = format!("{id} {}\n", started(id).unwrap_or_default());
        let written = file.write_all(name.as_bytes()).and_then(|()| file.set_len(name.len() as u64));
        // On the disk before anything else is: what lies beside a lock is ours, also behind a power cut.
        let synced = written.and_then(|()| file.sync()).and_then(|()| file::sync_dir(file::parent(path)));
        synced.map_err(|e| disk(&e))?;
        Ok(Self { _file: file })
    }

    /// Whether a live process has it; leaves no trace.
    pub fn is_taken(path: &Path) -> bool {
        File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
    }

    /// Whether one of ours had it once: it has an owner's name in it, or is as blank as a power cut leaves what was just written.
    pub fn was_taken(path: &Path) -> bool {
        let blank = || file::read(path, 100).is_ok_and(|bytes| bytes.iter().all(|&byte| byte == 0));
        read(path).is_some() || blank()
    }
}

/// The refusal of a directory that another process works on.
pub fn in_use(path: &Path, dir: &Path) -> Failure {
    let since = Instant::now();
    let mut owner = alive(path);
    while owner.is_none() && since.elapsed() < PATIENCE && Lock::is_taken(path) {
        std::thread::sleep(PAUSE);
        owner = alive(path);
    }
    let owner = owner.map_or("another process".to_owned(), |id| format!("process {id}"));
    Failure::new(Code::InUse, format!("{}: in use by {owner}; wait for it, or stop it", dir.display()))
}

/// Number and start of the process that the file names.
fn read(path: &Path) -> Option<(u32, String)> {
    let mut text = String::new();
    File::open(path).ok()?.take(100).read_to_string(&mut text).ok()?;
    let (id, started) = text.strip_suffix('\n')?.split_once(' ').unwrap_or((text.trim_end(), ""));
    Some((id.parse().ok()?, started.to_owned()))
}

/// The process that the file names, if it lives (or if the system does not tell).
fn alive(path: &Path) -> Option<u32> {
    let (id, then) = read(path)?;
    let procfs = Path::new("/proc/self/stat").exists();
    (!procfs || then.is_empty() || started(id).as_deref() == Some(&then)).then_some(id)
}

/// When a process was started, in the system's own count; numbers of processes are used again, these pairs are not.
fn started(id: u32) -> Option<String> {
    let stat = fs::read_to_string(PathBuf::from(format!("/proc/{id}/stat"))).ok()?;
    // The name of the program stands in parentheses and may have spaces in it.
    let behind = stat.rsplit_once(')')?.1;
    behind.split_whitespace().nth(19).map(str::to_owned)
}
