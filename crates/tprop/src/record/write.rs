//! A record on the disk, growing line by line.

use std::io::{self, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::Event;
use crate::fault;
use crate::file::{self, Output, hex};

/// Appends events to `record.jsonl`.
#[derive(Debug)]
pub struct Recorder {
    file: Output,
    len: u64,
    /// Of all bytes so far.
    digest: Sha256,
}

impl Recorder {
    /// A new, empty record.
    ///
    /// # Errors
    /// If there is a file already, or none can be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: Output::create_new(path)?, len: 0, digest: Sha256::new() })
    }

    /// An old record, cut to its first `len` bytes: what came after the checkpoint will be written again.
    ///
    /// # Errors
    /// If it cannot be written, or has fewer bytes.
    pub fn resume(path: &Path, len: u64) -> io::Result<Self> {
        let mut file = Output::existing(path)?;
        let (digest, have, _) = beginning(&mut file, len)?;
        if have < len {
            let what = format!("the checkpoint was made when the record had {len} bytes, but it has only {have}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        file.set_len(len)?;
        Ok(Self { file, len, digest })
    }

    /// Writes one line, whole.
    ///
    /// # Errors
    /// If the file system fails; half a line may then stand at the end, which readers leave out.
    pub fn append(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event).map_err(io::Error::other)?;
        line.push(b'\n');
        if let Err(e) = fault::at("record.append") {
            self.file.write_all(&line[..line.len() / 2])?;
            return Err(e);
        }
        self.file.write_all(&line)?;
        self.len += line.len() as u64;
        self.digest.update(&line);
        Ok(())
    }

    /// Bytes so far.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True before the first event.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Another handle of the file, for whoever forces it onto the disk.
    ///
    /// # Errors
    /// If the system has no more handles.
    pub fn handle(&self) -> io::Result<Output> {
        self.file.handle()
    }

    /// SHA-256 of all bytes so far.
    pub fn hash(&self) -> String {
        hex(&self.digest.clone().finalize())
    }
}

/// Digest and number of the first `len` bytes, as far as they are there, and the last of them.
fn beginning(file: &mut impl Read, len: u64) -> io::Result<(Sha256, u64, Option<u8>)> {
    let (mut digest, mut have, mut last) = (Sha256::new(), 0, None);
    let mut buffer = vec![0; 1 << 16];
    while have < len {
        let most = (len - have).min(buffer.len() as u64) as usize;
        let n = file.read(&mut buffer[..most])?;
        if n == 0 {
            break;
        }
        digest.update(&buffer[..n]);
        (have, last) = (have + n as u64, Some(buffer[n - 1]));
    }
    Ok((digest, have, last))
}

/// Why a record is not the one that had `len` bytes and this `hash` (checkpoints of the first versions do not say it) when a
/// checkpoint was made, however it continued since; nothing if it is.
///
/// # Errors
/// If it cannot be read.
pub fn other_record(path: &Path, len: u64, hash: Option<&str>) -> io::Result<Option<String>> {
    let (digest, have, last) = beginning(&mut file::open(path)?, len)?;
    Ok(if have < len {
        Some(format!("made when the record had {len} bytes, but it has only {have}"))
    } else if last.is_some_and(|byte| byte != b'\n') {
        Some(format!("made when the record had {len} bytes, but no line ends there"))
    } else if hash.is_some_and(|hash| hash != hex(&digest.finalize())) {
        Some(format!("made with another record: the first {len} bytes of this one differ"))
    } else {
        None
    })
}
