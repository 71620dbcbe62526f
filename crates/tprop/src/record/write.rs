//! A record on the disk, growing line by line.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use super::Event;
use crate::fault;

/// Appends events to `record.jsonl`.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    len: u64,
}

impl Recorder {
    /// A new, empty record.
    ///
    /// # Errors
    /// If there is a file already, or none can be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().create_new(true).append(true).open(path)?, len: 0 })
    }

    /// An old record, cut to its first `len` bytes: what came after the checkpoint will be written again.
    ///
    /// # Errors
    /// If it cannot be written, or has fewer bytes.
    pub fn resume(path: &Path, len: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        let have = file.metadata()?.len();
        if have < len {
            let what = format!("the checkpoint was made when the record had {len} bytes, but it has only {have}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        file.set_len(len)?;
        file.seek(SeekFrom::Start(len))?;
        Ok(Self { file, len })
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
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}
