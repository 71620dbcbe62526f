//! `sessions.jsonl`: when a run was started and resumed, by which program, and which settings changed on the way.
//!
//! The record does not tell this, so that it is the same however often a run was interrupted.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tprop::file::{self, Output};

use crate::failure::{Failure, Outcome};

/// One start of the program on a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// When, in UTC.
    pub time: String,
    /// A name that no other run has; checkpoints carry it.
    pub run: String,
    /// Version of the program.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// Threads.
    pub threads: usize,
    /// Vector instructions.
    pub simd: String,
    /// The checkpoint that it went on from; none for the first.
    pub from: Option<String>,
    /// Updates by then.
    pub step: u64,
    /// Settings that were changed, with their new values.
    #[serde(default)]
    pub changed: BTreeMap<String, String>,
}

/// Longest line.
const LONGEST: u64 = 1 << 20;

/// All sessions of a file; none if there is no file. A last line without an end is left out.
pub fn read(path: &Path) -> Outcome<Vec<Session>> {
    let file = match file::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Failure::input(format!("{}: cannot be read ({e})", path.display()))),
    };
    let refuse = |number: usize, what: &dyn std::fmt::Display| {
        let way = "remove the file to continue without it";
        Failure::input(format!("{}: line {number}: {what}; {way}", path.display()))
    };
    let mut reader = BufReader::new(file);
    let mut sessions = Vec::new();
    for number in 1.. {
        let mut line = Vec::new();
        reader.by_ref().take(LONGEST).read_until(b'\n', &mut line).map_err(|e| refuse(number, &e))?;
        if line.last() != Some(&b'\n') {
            break;
        }
        sessions.push(serde_json::from_slice(&line).map_err(|e| refuse(number, &e))?);
    }
    Ok(sessions)
}

/// Adds a session and forces it onto the disk; half a line that a killed program left is removed.
pub fn append(path: &Path, session: &Session) -> Outcome {
    let disk = |e: io::Error| Failure::disk(path, &e);
    let mut line = serde_json::to_vec(session).map_err(|e| disk(e.into()))?;
    line.push(b'\n');
    let mut file = Output::update(path).map_err(disk)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(disk)?;
    let whole = text.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1) as u64;
    file.set_len(whole).and_then(|()| file.seek(SeekFrom::Start(whole))).map_err(disk)?;
    file.write_all(&line).and_then(|()| file.sync()).map_err(disk)
}
