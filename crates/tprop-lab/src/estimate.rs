//! What an experiment would take: its corpora are looked at, and one short measurement per kind of trial tells the time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use serde::Serialize;
use serde_json::json;
use tprop::comm::Solo;
use tprop::corpus::{Corpus, Split};
use tprop::model::Model;
use tprop::train::{Data, Trainer};
use tprop_report::numbers::{duration, grouped};

use super::request::Request;
use super::study::Study;
use super::trial::{self, Trial, key};
use tprop_run::console;
use tprop_run::failure::{Failure, Outcome};
use tprop_run::measure::{Until, measure, update};
use tprop_run::prepare::{self, Sizes};
use tprop_run::settings::Settings;

/// Settings that do not change how long a token takes.
const FREE: [&str; 16] = [
    "data.dir",
    "data.vocab",
    "data.max_tokens",
    "btprop.lambda",
    "btprop.state_lr",
    "btprop.dual_lr",
    "btprop.dual_start",
    "btprop.ridge",
    "model.init",
    "train.seed",
    "train.epochs",
    "train.patience",
    "train.threads",
    "optim.lr",
    "optim.eps",
    "optim.clip",
];

/// Seconds that all measurements together may take.
const BUDGET: f64 = 12.0;

/// What the corpora tell.
#[derive(Debug, Default)]
pub struct Survey {
    /// Tokens of the training split of each corpus, by its key.
    tokens: HashMap<String, usize>,
    /// Fingerprints of the corpora, by the same key.
    pub fingerprints: HashMap<String, String>,
    /// Tokens per second of each kind of trial.
    speeds: HashMap<String, f64>,
    /// The best possible validation perplexity of each corpus that has one.
    best: HashMap<String, f64>,
    /// Entries that cannot be run, with the reason.
    pub absent: HashMap<usize, String>,
}

/// Trials that agree in this read the same text.
pub fn corpus_key(settings: &Settings) -> String {
    key(settings, |name| name.starts_with("data.") || name.starts_with("synth."))
}

fn speed_key(settings: &Settings) -> String {
    key(settings, |name| !FREE.contains(&name) && !name.starts_with("checkpoint.") && !name.starts_with("eval."))
}

impl Survey {
    /// Reads the corpora and checks that the trials fit text and memory; for a dry run, also how fast they are.
    pub fn of(study: &Study, entries: &[usize], request: &Request) -> Outcome<Self> {
        let mut by_corpus: BTreeMap<String, Vec<(usize, Rc<Trial>)>> = BTreeMap::new();
        for &entry in entries {
            for (_, trial) in study.forecast(entry) {
                by_corpus.entry(corpus_key(&trial.settings)).or_default().push((entry, trial));
            }
        }
        let kinds: HashSet<String> = by_corpus.values().flatten().map(|(_, t)| speed_key(&t.settings)).collect();
        let seconds = (BUDGET / kinds.len().max(1) as f64).min(0.4);
        let mut survey = Self::default();
        for (key, trials) in by_corpus {
            let corpus = match prepare::corpus(&trials[0].1.located(request.data_dir.as_deref()), true) {
                Ok(corpus) => corpus,
                Err(failure) if request.lenient => {
                    survey.absent.extend(trials.iter().map(|(entry, _)| (*entry, failure.message.clone())));
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            survey.tokens.insert(key.clone(), corpus.train.len());
            survey.fingerprints.insert(key.clone(), corpus.fingerprint.clone());
            survey.best.extend(corpus.reference(Split::Valid).map(|reference| (key, reference.best)));
            let mut seen = HashSet::new();
            for (entry, trial) in &trials {
                let kind = speed_key(&trial.settings);
                if !seen.insert(kind.clone()) {
                    continue;
                }
                check(&trial.settings, &corpus, request.jobs).map_err(|failure| {
                    let entry = tprop::vocab::printable(&study.entries[*entry].name);
                    Failure::new(failure.code, format!("{entry}: {}", failure.message))
                })?;
                if request.dry_run && !survey.speeds.contains_key(&kind) {
                    survey.speeds.extend(speed(&trial.settings, &corpus, seconds)?.map(|speed| (kind, speed)));
                }
            }
        }
        Ok(survey)
    }

    /// The best possible validation perplexity, if all trials of these entries read one text that has one.
    pub fn best_possible(&self, study: &Study, entries: &[usize]) -> Option<f64> {
        // Short trials read a part of the text, but validate on the same.
        let shapes = |n: &str| (n.starts_with("data.") && n != "data.max_tokens") || n.starts_with("synth.");
        let trials = entries.iter().flat_map(|e| study.forecast(*e));
        let keys: HashSet<String> = trials.map(|(_, t)| key(&t.settings, shapes)).collect();
        self.best.values().next().copied().filter(|_| keys.len() == 1)
    }

    /// Tokens that a trial reads at most, and seconds that this takes on all cores.
    fn cost(&self, trial: &Trial) -> Option<(u64, Option<f64>)> {
        let tokens = *self.tokens.get(&corpus_key(&trial.settings))? as u64 * trial.epochs();
        let seconds = self.speeds.get(&speed_key(&trial.settings)).map(|speed| tokens as f64 / speed);
        Some((tokens, seconds))
    }

    /// What a dry run prints about an experiment in `dir`.
    pub fn tell(&self, study: &Study, entries: &[usize], dir: &Path, json: bool) -> Outcome {
        let groups: Vec<(&str, Vec<usize>)> = if study.sweep {
            vec![("all", entries.to_vec())]
        } else {
            let asked = |list: &[Vec<usize>]| list.iter().flatten().copied().filter(|e| entries.contains(e)).collect();
            study.layouts.iter().map(|l| (l.name.as_str(), asked(&l.entries))).collect()
        };
        let ended = |trial: &Trial| {
            let found = trial::look(&dir.join("runs").join(&trial.id), trial);
            matches!(found, Ok(Some(progress)) if progress.ended.is_some())
        };
        let (mut done, mut counted, mut parts) = (0, HashSet::new(), Vec::new());
        let mut all = Part { seconds: Some(0.0), ..Part::default() };
        for (name, entries) in groups.into_iter().filter(|(_, entries)| !entries.is_empty()) {
            let mut part = Part { name, entries: entries.len(), seconds: Some(0.0), ..Part::default() };
            for (key, trial) in entries.iter().flat_map(|e| study.forecast(*e)) {
                if !counted.insert(key.clone()) {
                    continue;
                }
                part.trials += 1;
                // Those behind a search have no name yet.
                if key == trial.id && ended(&trial) {
                    done += 1;
                    continue;
                }
                let (tokens, seconds) = self.cost(&trial).unwrap_or((0, None));
                part.add(0, tokens, seconds);
            }
            all.add(part.trials, part.tokens, part.seconds);
            parts.push(part);
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        self.absent.values().for_each(|reason| *reasons.entry(reason).or_default() += 1);
        if json {
            return console::line(json!({
                "name": study.name, "trials": all.trials, "ended": done, "tokens": all.tokens, "seconds": all.seconds,
                "parts": parts, "cannot_run": reasons,
            }));
        }
        let mut text = format!("{}\n", tprop::vocab::printable(&study.title));
        for part in &parts {
            let Part { name, entries, trials, tokens, .. } = part;
            let (tokens, time) = (grouped(*tokens), part.time());
            text += &format!("  {name:<20} {entries:>4} cells {trials:>6} trials {tokens:>16} tokens   {time}\n");
        }
        let (trials, tokens, time) = (grouped(all.trials), grouped(all.tokens), all.time());
        text += &format!(
            "at most {trials} trials, {tokens} tokens, {time} on all cores of this machine (short measurements; early stops not counted)\n"
        );
        if done > 0 {
            text += &format!("{} of them have ended and are not counted in tokens and time\n", grouped(done));
        }
        text.extend(reasons.iter().map(|(reason, n)| format!("{n} cells cannot be run here: {reason}\n")));
        console::data(&text)
    }
}

/// What a table of an experiment, or all of it, would take.
#[derive(Debug, Default, Serialize)]
struct Part<'a> {
    name: &'a str,
    #[serde(rename = "cells")]
    entries: usize,
    trials: u64,
    tokens: u64,
    /// None if it cannot be told.
    seconds: Option<f64>,
}

impl Part<'_> {
    fn add(&mut self, trials: u64, tokens: u64, seconds: Option<f64>) {
        self.trials += trials;
        self.tokens += tokens;
        self.seconds = self.seconds.zip(seconds).map(|(a, b)| a + b);
    }

    fn time(&self) -> String {
        self.seconds.map_or("not known".to_owned(), |s| format!("about {}", duration(s)))
    }
}

fn check(settings: &Settings, corpus: &Corpus, jobs: usize) -> Outcome {
    prepare::check_lengths(settings, corpus)?;
    let model = Model::<f32>::new(settings.model(corpus.vocab.len()));
    let need = prepare::memory(settings, &model, Sizes::of(corpus, 1));
    prepare::check_memory(need.saturating_mul(jobs as u64))
}

/// Tokens per second; none if the text is too short to tell or the steps diverge. A batch pass is measured by windows, whose
/// arithmetic is the same.
fn speed(settings: &Settings, corpus: &Corpus, seconds: f64) -> Outcome<Option<f64>> {
    let mut settings = settings.clone();
    settings.replace_word("train.batch", "mini".into());
    if prepare::check_lengths(&settings, corpus).is_err() {
        return Ok(None);
    }
    let model = Model::<f32>::new(settings.model(corpus.vocab.len()));
    let data = Data::new(&corpus.train, &corpus.valid, &corpus.test);
    let mut trainer = Trainer::new(&model, data, settings.train(), &Solo)?;
    let measured = measure(1, Until::Seconds(seconds), || update(&mut trainer));
    Ok(measured.ok().map(|m| m.tokens as f64 / m.total()))
}
