//! How far a trial is: its record, and how it ended.

use serde::{Deserialize, Serialize};
use tprop::record::Event;
use tprop_report::record::Record;

/// How far a trial is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What was recorded.
    pub record: Record,
    /// How it ended, if it has.
    pub ended: Option<Ended>,
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "lowercase")]
pub enum Ended {
    /// By itself.
    Finished,
    /// Its numbers blew up.
    Diverged(String),
    /// It could not be run.
    Failed(String),
}

impl Ended {
    /// As files name it, with the reason.
    pub fn words(&self) -> (&'static str, &str) {
        match self {
            Ended::Finished => ("finished", ""),
            Ended::Diverged(reason) => ("diverged", reason),
            Ended::Failed(reason) => ("failed", reason),
        }
    }
}

impl From<Record> for Progress {
    fn from(record: Record) -> Self {
        let mut progress = Self { record, ended: None };
        progress.look_at_end();
        progress
    }
}

impl Progress {
    /// Of a trial that came to a bad end.
    pub fn bad(ended: Ended) -> Self {
        Self { ended: Some(ended), ..Self::default() }
    }

    /// One more event.
    pub fn note(&mut self, event: Event) {
        self.record.note(event);
        self.look_at_end();
    }

    /// A run that was stopped has an end, but has not come to it.
    fn look_at_end(&mut self) {
        match &self.record.end {
            Some(end) if end.reason == "epochs" || end.reason == "patience" => self.ended = Some(Ended::Finished),
            Some(end) if end.reason == "diverged" => {
                self.ended = Some(Ended::Diverged(format!("diverged in epoch {}", end.epoch)));
            }
            _ => {}
        }
    }

    /// Whether it came to its own end.
    pub fn finished(&self) -> bool {
        self.ended == Some(Ended::Finished)
    }

    /// Epochs that were evaluated.
    pub fn epochs(&self) -> usize {
        self.record.evals.len()
    }

    /// Whether it has come to `until` epochs, or to its end.
    pub fn reached(&self, until: Option<u64>) -> bool {
        self.ended.is_some() || until.is_some_and(|n| self.record.evals.last().is_some_and(|e| e.epoch >= n))
    }

    /// The best validation perplexity of the first `until` epochs; none for a trial that came to a bad end.
    pub fn score(&self, until: Option<u64>) -> Option<f64> {
        let good = self.ended.as_ref().is_none_or(|ended| *ended == Ended::Finished);
        self.record.best(until).map(|e| e.valid_ppl).filter(|_| good)
    }
}
