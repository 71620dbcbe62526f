//! What a record says, as plain data. This is the only place where `record.jsonl` is read as a whole: reports, experiments and
//! TensorBoard's files are functions of a [`Record`].

use std::fs;
use std::io;
use std::path::Path;

use tprop::record::{CouplingMeans, End, Eval, Event, Meter, Start, Step, events};
use tprop::vocab::printable;

/// So many bad lines of a record are named one by one.
const NAMED: usize = 3;

/// The events of a run, in order. What a resumed run says again replaces what it said before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The first line.
    pub start: Option<Box<Start>>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Evaluations in order.
    pub evals: Vec<Eval>,
    /// Gradients that were compared with exact ones, in order.
    pub meters: Vec<Meter>,
    /// The last line, if the run came to an end.
    pub end: Option<End>,
}

impl Record {
    /// Reads a record. Lines that are no events are left out and named, one sentence each.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: &Path) -> io::Result<(Self, Vec<String>)> {
        // A pipe would keep us waiting.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not an ordinary file"));
        }
        let (mut record, mut bad) = (Self::default(), Vec::new());
        for next in events(path)? {
            match next {
                Ok((event, _)) => record.note(event),
                Err(e) if e.kind() == io::ErrorKind::InvalidData => match bad.len() {
                    0..NAMED => bad.push(format!("{}; left out", printable(&e.to_string()))),
                    NAMED => bad.push(format!("{}: more such lines; left out", printable(&path.to_string_lossy()))),
                    _ => {}
                },
                Err(e) => return Err(e),
            }
        }
        Ok((record, bad))
    }

    /// Reads a record of which every line must be an event.
    ///
    /// # Errors
    /// If it cannot be read, or a line is no event; the message says which.
    pub fn read_whole(path: &Path) -> io::Result<Self> {
        match Self::read(path)? {
            (record, bad) if bad.is_empty() => Ok(record),
            (_, bad) => {
                let first = bad[0].trim_end_matches("; left out").to_owned();
                Err(io::Error::new(io::ErrorKind::InvalidData, first))
            }
        }
    }

    /// One more event.
    pub fn note(&mut self, event: Event) {
        match event {
            Event::Start(start) => self.start = Some(Box::new(start)),
            Event::Step(step) => {
                self.steps.truncate(self.steps.partition_point(|old| old.step < step.step));
                self.steps.push(step);
            }
            Event::Eval(eval) => {
                self.evals.truncate(self.evals.partition_point(|old| old.step < eval.step));
                self.evals.push(*eval);
            }
            Event::Meter(meter) => {
                self.meters.truncate(self.meters.partition_point(|old| old.step < meter.step));
                self.meters.push(meter);
            }
            Event::End(end) => self.end = Some(end),
            // The run continued after that end.
            Event::Resume(_) => self.end = None,
            Event::Checkpoint(_) | Event::Rate(_) => {}
        }
    }

    /// Steps, evaluations, measurements and the end as they were recorded, one after the other.
    pub fn events(&self) -> Vec<Event> {
        let steps = self.steps.iter().map(|step| (step.step, Event::Step(step.clone())));
        let evals = self.evals.iter().map(|eval| (eval.step, Event::Eval(Box::new(eval.clone()))));
        let meters = self.meters.iter().map(|meter| (meter.step, Event::Meter(*meter)));
        let mut events: Vec<(u64, Event)> = meters.chain(steps).chain(evals).collect();
        events.sort_by_key(|(step, _)| *step);
        events.into_iter().map(|(_, event)| event).chain(self.end.clone().map(Event::End)).collect()
    }

    /// The evaluation with the lowest validation perplexity of the first `until` epochs.
    pub fn best(&self, until: Option<u64>) -> Option<&Eval> {
        let evals = self.evals.iter().filter(|e| until.is_none_or(|n| e.epoch <= n));
        evals.min_by(|a, b| a.valid_ppl.total_cmp(&b.valid_ppl))
    }

    /// Tokens per second over the whole run, as far as it is recorded.
    pub fn speed(&self) -> Option<f64> {
        let end = self.end.as_ref().map(|e| (e.tokens, e.seconds));
        let eval = self.evals.last().map(|e| (e.tokens, e.seconds));
        let step = self.steps.last().map(|e| (e.tokens, e.seconds));
        let known = [end, eval, step].into_iter().flatten().find(|(_, seconds)| *seconds > 0.0);
        known.map(|(tokens, seconds)| tokens as f64 / seconds)
    }
}

/// An event as numbers under the names that they have in the record.
pub trait Numbers {
    /// All of them; NaN where this event has none.
    fn numbers(&self) -> Vec<(&'static str, f64)>;

    /// One of them, if it is there and finite.
    fn number(&self, name: &str) -> Option<f64> {
        self.numbers().into_iter().find(|(n, _)| *n == name).map(|(_, x)| x).filter(|x| x.is_finite())
    }
}

impl Numbers for Step {
    fn numbers(&self) -> Vec<(&'static str, f64)> {
        vec![
            ("epoch", self.epoch as f64),
            ("step", self.step as f64),
            ("tokens", self.tokens as f64),
            ("seconds", self.seconds),
            ("nats", self.nats),
            ("norm", self.norm),
            ("rate", self.rate),
            ("tokens_per_s", self.tokens_per_s),
        ]
    }
}

impl Numbers for Eval {
    fn numbers(&self) -> Vec<(&'static str, f64)> {
        let coupling = |of: fn(&CouplingMeans) -> f64| self.coupling.as_ref().map_or(f64::NAN, of);
        vec![
            ("epoch", self.epoch as f64),
            ("step", self.step as f64),
            ("tokens", self.tokens as f64),
            ("seconds", self.seconds),
            ("train_ppl", self.train_ppl),
            ("window_ppl", self.window_ppl),
            ("valid_ppl", self.valid_ppl),
            ("rate", self.rate),
            ("objective", coupling(|c| c.objective)),
            ("penalty", coupling(|c| c.penalty)),
            ("residual_mean", coupling(|c| c.residual_mean)),
            ("residual_max", coupling(|c| c.residual_max)),
            ("residual_relative", coupling(|c| c.residual_relative)),
            ("dual_norm", coupling(|c| c.dual_norm)),
            ("state_move", coupling(|c| c.state_move)),
            ("lambda", coupling(|c| c.lambda)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: &str = r#"{"event":"step","epoch":1,"step":2,"tokens":30,"seconds":0.5,"nats":1.5,"norm":0.5,"rate":0.05,"tokens_per_s":1.5}"#;

    #[test]
    fn what_is_repeated_replaces_and_what_is_broken_is_named() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("record.jsonl");
        let again = STEP.replace("1.5", "2.5");
        let later = STEP.replace("\"step\":2", "\"step\":3");
        fs::write(&path, format!("{STEP}\n{later}\nnonsense\n{again}\n{{\"event\":\"step\"")).unwrap();
        let (record, bad) = Record::read(&path).unwrap();
        assert_eq!(record.steps.iter().map(|s| (s.step, s.nats)).collect::<Vec<_>>(), [(2, 2.5)]);
        assert_eq!((bad.len(), record.speed(), record.best(None)), (1, Some(60.0), None));
        assert!(bad[0].contains("record.jsonl: line 3: "), "{bad:?}");
        assert!(Record::read_whole(&path).unwrap_err().to_string().contains("line 3"));
        assert_eq!((record.steps[0].number("nats"), record.steps[0].number("loss")), (Some(2.5), None));
        assert!(Record::read(place.path()).is_err());
        assert_eq!(record.events(), [Event::Step(record.steps[0].clone())]);
    }
}
