//! Events of a run, one JSON line each. Tables, curves and pages are made from these lines alone.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Version of the record's format.
pub const FORMAT: u32 = 1;

/// One line of `record.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A run begins.
    Start(Start),
    /// Some updates were made.
    Step(Step),
    /// The validation split was read.
    Eval(Box<Eval>),
    /// A checkpoint was written.
    Checkpoint(Saved),
    /// A run goes on from a checkpoint.
    Resume(Resumed),
    /// The rate was changed by a schedule or a rollback.
    Rate(RateChange),
    /// The run is over.
    End(End),
}

/// First line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// [`FORMAT`]
    pub format: u32,
    /// Version of the program.
    pub version: String,
    /// Vector instructions in use.
    pub simd: String,
    /// Number type.
    pub real: String,
    /// Threads.
    pub threads: usize,
    /// Ranks.
    pub ranks: usize,
    /// Weights of the model.
    pub parameters: u64,
    /// Tokens of the training split.
    pub train_tokens: u64,
    /// Updates of one epoch.
    pub updates_per_epoch: u64,
    /// Size of the vocabulary.
    pub vocab: u64,
    /// Fingerprint of the corpus.
    pub corpus: String,
}

/// What a few updates looked like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Epoch, from 1.
    pub epoch: u64,
    /// Updates so far.
    pub step: u64,
    /// Tokens so far.
    pub tokens: u64,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Nats per token since the last such line.
    pub nats: f64,
    /// Norm of the gradient of the last update, before clipping.
    pub norm: f64,
    /// Rate of the last update.
    pub rate: f64,
    /// Tokens per second since the last such line.
    pub tokens_per_s: f64,
}

/// What an evaluation saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Eval {
    /// Epoch, from 1.
    pub epoch: u64,
    /// Updates so far.
    pub step: u64,
    /// Tokens so far.
    pub tokens: u64,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Perplexity of the beginning of the training split (as long as the validation split), read like it.
    pub train_ppl: f64,
    /// Perplexity of the training windows of this epoch as the objective sees them, each before its update.
    pub window_ppl: f64,
    /// Perplexity of the validation split.
    pub valid_ppl: f64,
    /// Rate of the next update.
    pub rate: f64,
    /// Whether this is the best so far.
    pub best: bool,
    /// `window_ppl` by position inside the block.
    pub window_ppl_by_position: Vec<f64>,
    /// Only under target propagation.
    #[serde(flatten)]
    pub coupling: Option<CouplingMeans>,
}

/// How well the states obey the recurrence: means over the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CouplingMeans {
    /// L
    pub objective: f64,
    /// Mean C_k.
    pub penalty: f64,
    /// Mean ‖r‖.
    pub residual_mean: f64,
    /// Largest ‖r‖.
    pub residual_max: f64,
    /// Mean ‖r‖ over mean ‖s‖.
    pub residual_relative: f64,
    /// Mean ‖u‖.
    pub dual_norm: f64,
    /// Mean movement of a state in its window.
    pub state_move: f64,
    /// λ
    pub lambda: f64,
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Updates so far.
    pub step: u64,
    /// Name of the file.
    pub file: String,
    /// Its size.
    pub bytes: u64,
}

/// Where a run went on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resumed {
    /// Updates so far.
    pub step: u64,
    /// The checkpoint's file.
    pub file: String,
    /// Threads now.
    pub threads: usize,
}

/// A change of the rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateChange {
    /// Updates so far.
    pub step: u64,
    /// The rate from here on.
    pub rate: f64,
    /// Why.
    pub reason: String,
}

/// Last line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Why it ended: `epochs`, `patience`, `stopped`, `diverged`.
    pub reason: String,
    /// Epochs begun.
    pub epoch: u64,
    /// Updates.
    pub step: u64,
    /// Tokens.
    pub tokens: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Epoch of the best validation perplexity.
    pub best_epoch: u64,
    /// The best validation perplexity; infinite before the first evaluation, which JSON writes as null.
    #[serde(deserialize_with = "null_is_infinite")]
    pub best_valid_ppl: f64,
    /// Perplexity of the test split with the best weights.
    pub test_ppl: Option<f64>,
}

fn null_is_infinite<'de, D: serde::Deserializer<'de>>(value: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(value)?.unwrap_or(f64::INFINITY))
}

/// Appends events to `record.jsonl`.
#[derive(Debug)]
pub struct Recorder {
    file: File,
    len: u64,
}

impl Recorder {
    /// A new, empty record.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().create_new(true).append(true).open(path)?, len: 0 })
    }

    /// An old record, cut to its first `len` bytes: what came after the checkpoint will be written again.
    pub fn resume(path: &Path, len: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).open(path)?;
        if file.metadata()?.len() < len {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the record is shorter than the checkpoint says"));
        }
        file.set_len(len)?;
        file.seek(SeekFrom::Start(len))?;
        Ok(Self { file, len })
    }

    /// Writes one line, whole.
    pub fn append(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event).map_err(io::Error::other)?;
        line.push(b'\n');
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

    /// Forces what was written onto the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Reads a record; a last line without an end (a run was killed while writing) is left out.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut events = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        reader.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            break;
        }
        let event = serde_json::from_slice(&line).map_err(|e| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: line {number}: {e}", path.display()))
        })?;
        events.push(event);
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stopped_before_its_first_evaluation_can_be_read() {
        let end = End {
            reason: "stopped".into(),
            epoch: 1,
            step: 3,
            tokens: 4,
            seconds: 0.5,
            best_epoch: 0,
            best_valid_ppl: f64::INFINITY,
            test_ppl: None,
        };
        let event = Event::End(end);
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event, "{text}");
    }
}
