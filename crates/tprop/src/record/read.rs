//! Records back from the disk, whatever stands in them, in little memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};

use super::{CouplingMeans, Eval, Event};
use crate::file;

/// A number as it is read. JSON has no word for infinity and writes `null`; a perplexity can become infinite without an error of
/// anybody's, because it is an exponential.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY)))
    }
}

/// For fields that are plain numbers.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Number::deserialize(deserializer).map(|x| x.0)
}

/// For fields that may be missing: `null` is not the same as missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    number(deserializer).map(Some)
}

/// An [`Eval`] as it is read: every field by its name, because a flattened one would take all others into memory first.
#[derive(Deserialize)]
pub(super) struct EvalRead {
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
    #[serde(default)]
    sweeps: Option<f64>,
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
                sweeps: r.sweeps,
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

/// Longest line that a record can have: an evaluation with a window of 100,000 positions.
const LONGEST: u64 = 4 << 20;

/// The events of a record, one by one, each with the place behind its line. A line that is no event is an error of the kind
/// `InvalidData`, behind which the next lines follow. A last line without an end (a run was killed while writing) is left out.
///
/// # Errors
/// If the file cannot be opened.
pub fn events(path: &Path) -> io::Result<impl Iterator<Item = io::Result<(Event, u64)>>> {
    let reader = BufReader::new(file::open(path)?);
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
        self.place += read;
        if self.line.last() != Some(&b'\n') {
            if read < LONGEST {
                return Ok(None);
            }
            self.place += self.reader.skip_until(b'\n')? as u64;
            return Err(self.bad("longer than any event"));
        }
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
        "meter" => Event::Meter(from_slice(line)?),
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
        self.over = match &next {
            Ok(event) => event.is_none(),
            Err(e) => e.kind() != io::ErrorKind::InvalidData,
        };
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
    let mut reader = BufReader::new(file::open(path)?);
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

/// Where a record, of which only the first `len` bytes count, ends if its last event is left out in case it reports the run's end; and whether it does.
///
/// # Errors
/// If it cannot be read.
pub fn before_end(path: &Path, len: u64) -> io::Result<(u64, bool)> {
    let (mut place, mut ended) = (0, None);
    let mut events = events(path)?;
    // Behind that there may be anything: a power cut leaves lengths without bytes.
    while place < len
        && let Some(next) = events.next()
    {
        let (event, behind) = next?;
        match event {
            Event::End(_) => ended = Some(place),
            // The first versions recorded one more checkpoint behind the end.
            Event::Checkpoint(_) => {}
            _ => ended = None,
        }
        place = behind;
    }
    Ok((ended.unwrap_or(len), ended.is_some()))
}

#[cfg(test)]
mod tests {
    use super::super::{End, Step};
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
    fn what_stands_behind_a_checkpoint_is_not_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.jsonl");
        let line = "{\"event\":\"checkpoint\",\"step\":0,\"file\":\"x\"}\n";
        std::fs::write(&path, [line.as_bytes(), &[0; 50], b"\n"].concat()).unwrap();
        let len = line.len() as u64;
        assert_eq!(before_end(&path, len).unwrap(), (len, false));
        assert!(before_end(&path, len + 51).is_err());
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
            sweeps: None,
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
        for event in [Event::Eval(Box::new(eval(Some(coupling)))), Event::Eval(Box::new(eval(None))), Event::Step(step)]
        {
            let line = serde_json::to_vec(&event).unwrap();
            assert_eq!(parse(&line).unwrap(), event);
        }
    }
}
