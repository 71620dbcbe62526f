//! What is known about an experiment's trials and cells, and what is therefore to be done next.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use sha2::{Digest, Sha256};

use super::estimate::corpus_key;
use super::out::Out;
use super::study::{Next, Study, Verdict, Want};
use super::trial::{self, Ended, Found, Progress, Trial};

/// What is known about an experiment.
#[derive(Debug, Default)]
pub struct Ledger {
    /// How far each trial came.
    pub known: HashMap<String, Progress>,
    /// Bad ends that were noted by earlier drivers, not yet looked at.
    pub noted: HashMap<String, Ended>,
    /// What each cell came to, by its number.
    pub verdicts: HashMap<usize, Verdict>,
    /// Perplexities that `tprop eval` printed, by name of the reading.
    pub readings: HashMap<String, Result<f64, String>>,
    /// Fingerprints of the texts as they are now, where they are known.
    pub texts: HashMap<String, String>,
    /// Whether runs that cannot be taken up are removed, and begun anew, rather than told as failures.
    pub retry: bool,
}

/// What a process is at work on.
#[derive(Clone, Debug)]
pub enum Task {
    /// A trial; `fresh` if its directory was empty.
    Train { id: String, fresh: bool },
    /// `tprop eval` of a finished one.
    Read { key: String },
}

/// A thing to be done.
#[derive(Debug)]
pub struct Job {
    /// What.
    pub task: Task,
    /// Of which trial.
    pub trial: Rc<Trial>,
    /// For which cell.
    pub cell: usize,
    /// The point, as people read it.
    pub label: String,
    /// How far.
    pub until: Option<u64>,
}

impl Ledger {
    /// What is to be done, in order. Trials that are met for the first time are looked up on the disk.
    pub fn jobs(&mut self, study: &Study, cells: &[usize], out: &Out) -> Vec<Job> {
        let mut jobs: Vec<Job> = Vec::new();
        let mut listed: HashSet<String> = HashSet::new();
        for &cell in cells {
            if self.verdicts.contains_key(&cell) {
                continue;
            }
            loop {
                let next = study.next(cell, &|id| self.known.get(id));
                match next {
                    Next::Done(verdict) => {
                        let readings = self.open_readings(study, cell, &verdict, out);
                        if readings.is_empty() {
                            self.verdicts.insert(cell, verdict);
                        }
                        jobs.extend(readings.into_iter().filter(|job| listed.insert(job.task.name().to_owned())));
                        break;
                    }
                    Next::Trials(wants) => {
                        if !self.meet(&wants, out) {
                            let wants = wants.into_iter().filter(|want| listed.insert(want.trial.id.clone()));
                            jobs.extend(wants.map(|want| Job {
                                task: Task::Train { id: want.trial.id.clone(), fresh: false },
                                trial: want.trial,
                                cell,
                                label: want.label,
                                until: want.until,
                            }));
                            break;
                        }
                    }
                }
            }
        }
        jobs
    }

    /// Looks up trials that nothing is known about; says whether something was found.
    fn meet(&mut self, wants: &[Want], out: &Out) -> bool {
        let mut news = false;
        for want in wants {
            let id = &want.trial.id;
            if !self.known.contains_key(id) {
                let found = self.found(&want.trial, out).unwrap_or_else(|why| {
                    let cleared = self.retry && matches!(trial::clear(&out.run(id)), Ok(true));
                    let ended = (!cleared).then_some(Ended::Failed(why));
                    Progress { ended, ..Progress::default() }
                });
                news |= found.ended.is_some() || !found.evals.is_empty();
                self.known.insert(id.clone(), found);
            }
        }
        news
    }

    /// What the disk knows about a trial; or why that cannot be used.
    fn found(&self, trial: &Trial, out: &Out) -> Result<Progress, String> {
        let dir = out.run(&trial.id);
        let found = match self.noted.get(&trial.id) {
            Some(ended) => trial::look_ended(&dir, trial, ended.clone()).map(Found::Run),
            None => trial::look(&dir, trial),
        };
        let progress = match found.map_err(|failure| failure.message)? {
            Found::Nothing => Progress::default(),
            Found::Run(progress) => progress,
        };
        let now = self.texts.get(&corpus_key(&trial.settings));
        match (&progress.corpus, now) {
            (Some(then), Some(now)) if then != now => Err(format!(
                "{}: this run read another text than the one that {} is now",
                dir.display(),
                tprop::vocab::printable(&trial.settings.text("data.source"))
            )),
            _ => Ok(progress),
        }
    }

    /// The readings that a cell still needs, once its trials have ended.
    fn open_readings(&mut self, study: &Study, cell: usize, verdict: &Verdict, out: &Out) -> Vec<Job> {
        let args = &study.cells[cell].eval;
        let mut jobs = Vec::new();
        if args.is_empty() {
            return jobs;
        }
        for trial in &verdict.trials {
            let finished = self.known.get(&trial.id).is_some_and(|p| matches!(p.ended, Some(Ended::Finished(_))));
            let key = reading_key(&trial.id, args);
            if !finished || self.readings.contains_key(&key) {
                continue;
            }
            let path = out.dir().join(format!("evals/{key}.json"));
            match std::fs::read_to_string(&path).ok().and_then(|text| perplexity(&text)) {
                Some(figure) => {
                    self.readings.insert(key, Ok(figure));
                }
                None => jobs.push(Job {
                    task: Task::Read { key },
                    trial: trial.clone(),
                    cell,
                    label: args.join(" "),
                    until: None,
                }),
            }
        }
        jobs
    }
}

impl Task {
    /// Its name: the trial's or the reading's.
    pub fn name(&self) -> &str {
        match self {
            Task::Train { id, .. } => id,
            Task::Read { key } => key,
        }
    }
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
