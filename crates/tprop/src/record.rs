//! Events of a run, one JSON line each. Tables, curves and pages are made from these lines alone.
//!
//! A record tells what was computed, not how often the program was started: a run that was interrupted and resumed any number of
//! times leaves the same lines, times aside, as one that was not. So a checkpoint has a line when it is due by the settings
//! (at the beginning, by updates, at an evaluation, at the end), but not when a clock or a signal asked for it. Starts and
//! resumptions stand in `sessions.jsonl`.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};

use crate::fault;

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
    /// The state was handed over to be written.
    Checkpoint(Saved),
    /// A run goes on from a checkpoint. Written by the first versions only; now in `sessions.jsonl`.
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
    /// The run whose weights this one began with, as it was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Only of the built-in language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_possible: Option<BestPossible>,
}

/// Perplexities that no model of the language can beat, but by chance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestPossible {
    /// Of the validation split.
    pub valid: f64,
    /// Of the test split.
    pub test: f64,
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
    #[serde(deserialize_with = "number")]
    pub nats: f64,
    /// Norm of the gradient of the last update, before clipping.
    #[serde(deserialize_with = "number")]
    pub norm: f64,
    /// Rate of the last update.
    pub rate: f64,
    /// Tokens per second since the last such line.
    #[serde(deserialize_with = "number")]
    pub tokens_per_s: f64,
}

/// What an evaluation saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "EvalRead")]
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

/// A number as it is read. JSON has no word for infinity and writes `null`; a perplexity can become infinite without an error of
/// anybody's, because it is an exponential.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY)))
    }
}

/// For fields that are plain numbers.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Number::deserialize(deserializer).map(|x| x.0)
}

/// For fields that may be missing: `null` is not the same as missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    number(deserializer).map(Some)
}

/// An [`Eval`] as it is read: every field by its name, because a flattened one would take all others into memory first.
#[derive(Deserialize)]
struct EvalRead {
    epoch: u64,
    step: u64,
    tokens: u64,
    seconds: f64,
    #[serde(deserialize_with = "number")]
    train_ppl: f64,
    #[serde(deserialize_with = "number")]
    window_ppl: f64,
    #[serde(deserialize_with = "number")]
    valid_ppl: f64,
    rate: f64,
    best: bool,
    window_ppl_by_position: Vec<Number>,
    #[serde(default, deserialize_with = "present")]
    objective: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    penalty: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    residual_mean: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    residual_max: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    residual_relative: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    dual_norm: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    state_move: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    lambda: Option<f64>,
}

impl From<EvalRead> for Eval {
    fn from(r: EvalRead) -> Self {
        let coupling = || {
            Some(CouplingMeans {
                objective: r.objective?,
                penalty: r.penalty?,
                residual_mean: r.residual_mean?,
                residual_max: r.residual_max?,
                residual_relative: r.residual_relative?,
                dual_norm: r.dual_norm?,
                state_move: r.state_move?,
                lambda: r.lambda?,
            })
        };
        Self {
            epoch: r.epoch,
            step: r.step,
            tokens: r.tokens,
            seconds: r.seconds,
            train_ppl: r.train_ppl,
            window_ppl: r.window_ppl,
            valid_ppl: r.valid_ppl,
            rate: r.rate,
            best: r.best,
            coupling: coupling(),
            window_ppl_by_position: r.window_ppl_by_position.into_iter().map(|x| x.0).collect(),
        }
    }
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

/// A checkpoint. (Its size is not told: it depends on how many digits the time has.)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Updates so far.
    pub step: u64,
    /// Name of the file. It may be gone by now, pruned or overtaken by a newer one.
    pub file: String,
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
    /// The best validation perplexity; infinite (`null` in JSON) before the first evaluation.
    #[serde(deserialize_with = "number")]
    pub best_valid_ppl: f64,
    /// Perplexity of the test split with the best weights.
    pub test_ppl: Option<f64>,
}

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

/// Longest line that a record can have: an evaluation with a window of 100,000 positions.
const LONGEST: u64 = 4 << 20;

/// The events of a record, one by one, each with the place behind its line. A last line without an end (a run was killed
/// while writing) is left out.
///
/// # Errors
/// If the file cannot be opened.
pub fn events(path: &Path) -> io::Result<impl Iterator<Item = io::Result<(Event, u64)>>> {
    let reader = BufReader::new(File::open(path)?);
    Ok(Events { path: path.to_owned(), reader, line: Vec::new(), number: 0, place: 0, over: false })
}

struct Events {
    path: PathBuf,
    reader: BufReader<File>,
    line: Vec<u8>,
    number: u64,
    place: u64,
    over: bool,
}

impl Events {
    fn next_event(&mut self) -> io::Result<Option<(Event, u64)>> {
        self.number += 1;
        self.line.clear();
        let read = self.reader.by_ref().take(LONGEST).read_until(b'\n', &mut self.line)? as u64;
        if self.line.last() != Some(&b'\n') {
            return if read < LONGEST { Ok(None) } else { Err(self.bad("longer than any event")) };
        }
        self.place += read;
        let event = parse(&self.line).map_err(|e| self.bad(&e.to_string()))?;
        Ok(Some((event, self.place)))
    }

    fn bad(&self, what: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: line {}: {what}", self.path.display(), self.number))
    }
}

/// One event. The tag is read first, by itself: a tagged enum would take the whole line into memory to find it.
fn parse(line: &[u8]) -> serde_json::Result<Event> {
    use serde_json::from_slice;
    #[derive(Deserialize)]
    struct Tag {
        event: String,
    }
    let Tag { event } = from_slice(line)?;
    Ok(match event.as_str() {
        "start" => Event::Start(from_slice(line)?),
        "step" => Event::Step(from_slice(line)?),
        "eval" => Event::Eval(from_slice(line)?),
        "checkpoint" => Event::Checkpoint(from_slice(line)?),
        "resume" => Event::Resume(from_slice(line)?),
        "rate" => Event::Rate(from_slice(line)?),
        "end" => Event::End(from_slice(line)?),
        other => {
            let shown: String = crate::vocab::printable(other).chars().take(40).collect();
            return Err(serde::de::Error::custom(format!("{shown} is no event")));
        }
    })
}

impl Iterator for Events {
    type Item = io::Result<(Event, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.next_event();
        self.over = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

/// Memory that reading may take beside twice the file.
const BESIDE: u64 = 16 << 20;

/// Reads a whole record; a last line without an end is left out. Takes at most about twice the file in memory.
///
/// # Errors
/// If it cannot be read, or a line is no event; the message says which.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    let mut lines = 0;
    let mut reader = BufReader::new(File::open(path)?);
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            break;
        }
        lines += buffer.iter().filter(|&&b| b == b'\n').count() as u64;
        let length = buffer.len();
        reader.consume(length);
    }
    let most = 2 * std::fs::metadata(path)?.len() + BESIDE;
    let dense = |number: u64| {
        let what = format!("{}: line {number}: more events than its bytes can hold", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    };
    let mut taken = lines * size_of::<Event>() as u64;
    if taken > most {
        return Err(dense(1));
    }
    let mut list = Vec::with_capacity(lines as usize);
    for next in events(path)? {
        let (mut event, _) = next?;
        if let Event::Eval(eval) = &mut event {
            eval.window_ppl_by_position.shrink_to_fit();
            taken += (size_of::<Eval>() + eval.window_ppl_by_position.len() * size_of::<f64>()) as u64;
        }
        if taken > most {
            return Err(dense(list.len() as u64 + 1));
        }
        list.push(event);
    }
    Ok(list)
}

/// Where a record of `len` bytes ends if its last event is left out in case it tells the run's end; and whether it does.
///
/// # Errors
/// If it cannot be read.
pub fn before_end(path: &Path, len: u64) -> io::Result<(u64, bool)> {
    let (mut place, mut ended) = (0, None);
    for next in events(path)? {
        let (event, behind) = next?;
        if behind > len {
            break;
        }
        match event {
            Event::End(_) => ended = Some(place),
            // The first versions told of one more checkpoint behind the end.
            Event::Checkpoint(_) => {}
            _ => ended = None,
        }
        place = behind;
    }
    Ok((ended.unwrap_or(len), ended.is_some()))
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

    #[test]
    fn what_became_infinite_can_be_read() {
        let infinite = f64::INFINITY;
        let coupling = CouplingMeans {
            objective: infinite,
            penalty: infinite,
            residual_mean: infinite,
            residual_max: infinite,
            residual_relative: infinite,
            dual_norm: infinite,
            state_move: infinite,
            lambda: infinite,
        };
        let eval = |coupling| Eval {
            epoch: 1,
            step: 2,
            tokens: 3,
            seconds: 0.5,
            train_ppl: infinite,
            window_ppl: infinite,
            valid_ppl: infinite,
            rate: 0.1,
            best: false,
            window_ppl_by_position: vec![3.0, infinite],
            coupling,
        };
        let step = Step {
            epoch: 1,
            step: 2,
            tokens: 3,
            seconds: 0.5,
            nats: infinite,
            norm: infinite,
            rate: 0.1,
            tokens_per_s: infinite,
        };
        for event in [Event::Eval(Box::new(eval(Some(coupling)))), Event::Eval(Box::new(eval(None))), Event::Step(step)] {
            let line = serde_json::to_vec(&event).unwrap();
            assert_eq!(parse(&line).unwrap(), event);
        }
    }
}
