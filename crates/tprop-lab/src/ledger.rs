//! What is known about an experiment's trials and entries, and what is therefore to be done next.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use sha2::{Digest, Sha256};

use super::estimate::corpus_key;
use super::out::Out;
use super::progress::{Ended, Progress};
use super::study::{Next, Study, Verdict, Want};
use super::trial::{self, Trial};

/// What is known about an experiment.
#[derive(Debug, Default)]
pub struct Ledger {
    /// How far each trial came.
    pub known: HashMap<String, Progress>,
    /// Bad ends that were noted by earlier drivers, not yet looked at.
    pub noted: HashMap<String, Ended>,
    /// What each entry came to, by its number.
    pub verdicts: HashMap<usize, Verdict>,
    /// Perplexities that `tprop eval` printed, by name of the reading.
    pub readings: HashMap<String, Result<f64, String>>,
    /// Fingerprints of the texts as they are now, where they are known.
    pub texts: HashMap<String, String>,
    /// Whether runs that cannot be taken up are removed, and begun anew, rather than reported as failures.
    pub retry: bool,
}

/// A process to be run.
#[derive(Clone, Debug)]
pub struct Task {
    /// What it does.
    pub kind: Kind,
    /// Distinct among tasks: the trial's name or the reading's.
    pub key: String,
    /// Of which trial.
    pub trial: Rc<Trial>,
    /// For which entry.
    pub entry: usize,
    /// The point, as people read it.
    pub label: String,
    /// How far.
    pub until: Option<u64>,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Trains a trial.
    Train,
    /// `tprop eval` of a finished one.
    Read,
}

impl Ledger {
    /// What is to be done, in order. Trials that are met for the first time are looked up on the disk.
    pub fn tasks(&mut self, study: &Study, entries: &[usize], out: &Out) -> Vec<Task> {
        let mut tasks: Vec<Task> = Vec::new();
        for &entry in entries.iter() {
            if self.verdicts.contains_key(&entry) {
                continue;
            }
            tasks.extend(loop {
                match study.next(entry, &|id| self.known.get(id)) {
                    Next::Trials(wants) if self.meet(&wants, out) => {}
                    Next::Trials(wants) => break wants.into_iter().map(|want| train(want, entry)).collect(),
                    Next::Done(verdict) => {
                        let readings = self.open_readings(study, entry, &verdict, out);
                        if readings.is_empty() {
                            self.verdicts.insert(entry, verdict);
                        }
                        break readings;
                    }
                }
            });
        }
        let mut listed = HashSet::new();
        tasks.retain(|task| listed.insert(task.key.clone()));
        tasks
    }

    /// Looks up trials that nothing is known about; says whether something was found.
    fn meet(&mut self, wants: &[Want], out: &Out) -> bool {
        let mut news = false;
        for Want { trial, .. } in wants {
            if self.known.contains_key(&trial.id) {
                continue;
            }
            let found = self.found(trial, out).unwrap_or_else(|why| {
                let cleared = self.retry && matches!(trial::clear(&out.run(&trial.id)), Ok(true));
                if cleared { Progress::default() } else { Progress::bad(Ended::Failed(why)) }
            });
            news |= found.ended.is_some() || found.epochs() > 0;
            self.known.insert(trial.id.clone(), found);
        }
        news
    }

    /// What the disk knows about a trial; or why that cannot be used.
    fn found(&self, trial: &Trial, out: &Out) -> Result<Progress, String> {
        let dir = out.run(&trial.id);
        let found = match self.noted.get(&trial.id) {
            Some(ended) => trial::look_ended(&dir, trial, ended.clone()).map(Some),
            None => trial::look(&dir, trial),
        };
        let progress = found.map_err(|failure| failure.message)?.unwrap_or_default();
        let then = progress.record.start.as_ref().map(|start| &start.corpus);
        match (then, self.texts.get(&corpus_key(&trial.settings))) {
            (Some(then), Some(now)) if then != now => Err(format!(
                "{}: this run read another text than the one that {} is now",
                dir.display(),
                tprop::vocab::printable(&trial.settings.text("data.source"))
            )),
            _ => Ok(progress),
        }
    }

    /// The readings that an entry still needs, once its trials have ended.
    fn open_readings(&mut self, study: &Study, entry: usize, verdict: &Verdict, out: &Out) -> Vec<Task> {
        let args = &study.entries[entry].eval;
        let mut tasks = Vec::new();
        for trial in verdict.trials.iter().filter(|_| !args.is_empty()) {
            let key = reading_key(&trial.id, args);
            if self.readings.contains_key(&key) || !self.known.get(&trial.id).is_some_and(Progress::finished) {
                continue;
            }
            let path = out.dir.join(format!("evals/{key}.json"));
            match std::fs::read_to_string(&path).ok().and_then(|text| perplexity(&text)) {
                Some(figure) => drop(self.readings.insert(key, Ok(figure))),
                None => {
                    let (trial, label) = (trial.clone(), args.join(" "));
                    tasks.push(Task { kind: Kind::Read, key, trial, entry, label, until: None });
                }
            }
        }
        tasks
    }
}

fn train(want: Want, entry: usize) -> Task {
    let Want { trial, until, label } = want;
    Task { kind: Kind::Train, key: trial.id.clone(), trial, entry, label, until }
}

/// The name of what `tprop eval` says about a run with these arguments.
pub fn reading_key(id: &str, args: &[String]) -> String {
    let digits: String = Sha256::digest(args.join("\n")).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{id}-{digits}")
}

/// The perplexity in what `tprop eval --json` prints.
pub fn perplexity(text: &str) -> Option<f64> {
    serde_json::from_str::<serde_json::Value>(text).ok()?["perplexity"].as_f64()
}
