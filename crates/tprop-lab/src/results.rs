//! What came out, as plain data: one [`Figure`] per entry, the trials behind it, and what is missing and why.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;
use tprop_report::numbers::Spread;

use super::grid::shown;
use super::ledger::{Ledger, reading_key};
use super::metric::Metric;
use super::progress::{Ended, Progress};
use super::study::{Protocol, Study};

/// Why an entry has no figure that nobody wanted this time.
pub const NOT_ASKED: &str = "not asked for";

/// What an entry came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figure {
    /// The entry's name.
    #[serde(rename = "cell")]
    pub entry: String,
    /// Which figure.
    pub metric: String,
    /// The figure over the seeds; none if the entry was not run or came to nothing.
    pub value: Option<Spread>,
    /// The same by seed, in the order of the entry's seeds; empty if one is missing.
    pub by_seed: Vec<f64>,
    /// The point that was chosen.
    pub chosen: Option<String>,
    /// Training perplexity at the best epoch.
    pub train_ppl: Option<Spread>,
    /// Validation perplexity at the best epoch.
    pub valid_ppl: Option<Spread>,
    /// Test perplexity with the best weights.
    pub test_ppl: Option<Spread>,
    /// Mean relative residual.
    pub residual: Option<Spread>,
    /// Speed of training, with whatever else the machine did.
    pub tokens_per_s: Option<Spread>,
    /// Directories of the runs that count, below the experiment's own.
    pub runs: Vec<String>,
    /// Points that successive halving left behind.
    pub pruned: Vec<String>,
    /// Why there is no figure; nothing also where a figure makes no sense, like the residual of BPTT.
    pub missing: Option<String>,
}

/// A trial, for the list of all of them.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub trial: String,
    /// The entry that wanted it first.
    #[serde(rename = "cell")]
    pub entry: String,
    /// `finished`, `diverged`, `failed` or `pruned`.
    pub outcome: &'static str,
    /// Why, unless it finished.
    pub reason: String,
    /// Settings in which the experiment's trials differ.
    pub settings: BTreeMap<String, String>,
    /// Epochs that were evaluated.
    pub epochs: usize,
    /// At the best epoch.
    pub valid_ppl: Option<f64>,
    /// At the best epoch.
    pub train_ppl: Option<f64>,
    /// With the best weights.
    pub test_ppl: Option<f64>,
    /// Of training.
    pub seconds: Option<f64>,
}

/// Everything that came out.
#[derive(Debug, Serialize)]
pub struct Results {
    /// The experiment's name.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// Its question.
    pub asks: String,
    /// Version of the program.
    pub version: String,
    /// The command that made it, and makes it again.
    pub command: String,
    /// By entry, in their order.
    pub figures: Vec<Figure>,
    /// All trials, in the order in which entries want them.
    pub trials: Vec<Line>,
}

impl Results {
    /// Of an experiment of which the entries in `absent` were left out, with the reason.
    pub fn of(study: &Study, finished: &Ledger, absent: &HashMap<usize, String>, command: String) -> Self {
        let figures = (0..study.entries.len()).map(|i| figure(study, i, finished, absent)).collect();
        Self {
            name: study.name.clone(),
            title: study.title.clone(),
            asks: study.asks.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command,
            figures,
            trials: lines(study, finished),
        }
    }

    /// Trials that ended like this: `failed`, `diverged`.
    pub fn ended<'a>(&'a self, outcome: &'a str) -> impl Iterator<Item = &'a Line> {
        self.trials.iter().filter(move |line| line.outcome == outcome)
    }
}

fn figure(study: &Study, i: usize, finished: &Ledger, absent: &HashMap<usize, String>) -> Figure {
    let entry = &study.entries[i];
    let empty = Figure { entry: entry.name.clone(), metric: entry.metric.name(), ..Figure::default() };
    let verdict = match (absent.get(&i), finished.verdicts.get(&i)) {
        (None, Some(verdict)) => verdict,
        (why, _) => return Figure { missing: Some(why.map_or("not run".into(), String::clone)), ..empty },
    };
    let trials: Vec<&Progress> = verdict.trials.iter().filter_map(|t| finished.known.get(&t.id)).collect();
    let of = |metric: Metric| trials.iter().filter_map(|p| metric.of(p)).collect::<Vec<f64>>();
    let spread = |figures: &[f64]| Spread::of(figures).filter(|s| s.n == trials.len());
    let named = |name: &str| spread(&of(Metric::named(name).ok()?));
    let mut by_seed = of(entry.metric);
    if !entry.eval.is_empty() {
        let read = |id: &str| finished.readings.get(&reading_key(id, &entry.eval))?.clone().ok();
        by_seed = verdict.trials.iter().filter_map(|t| read(&t.id)).collect();
    }
    let value = spread(&by_seed);
    if by_seed.len() != trials.len() {
        by_seed.clear();
    }
    Figure {
        value,
        by_seed,
        chosen: verdict.chosen.as_ref().map(|point| shown(point)).filter(|text| !text.is_empty()),
        train_ppl: named("train_ppl"),
        valid_ppl: named("valid_ppl"),
        test_ppl: named("test_ppl"),
        residual: named("residual"),
        tokens_per_s: named("tokens_per_s"),
        runs: verdict.trials.iter().map(|t| format!("runs/{}", t.id)).collect(),
        pruned: verdict.pruned.iter().map(|(point, epoch)| format!("{} (epoch {epoch})", shown(point))).collect(),
        missing: if value.is_none() { why_none(study, i, finished, &trials) } else { None },
        ..empty
    }
}

/// Why there is no figure; nothing if there cannot be one, like the residual of BPTT.
fn why_none(study: &Study, i: usize, finished: &Ledger, trials: &[&Progress]) -> Option<String> {
    let entry = &study.entries[i];
    // The reasons of bad ends are listed below the tables.
    let bad = trials.iter().filter_map(|p| p.ended.as_ref()).find(|ended| **ended != Ended::Finished);
    let reading = |id: &str| finished.readings.get(&reading_key(id, &entry.eval))?.clone().err();
    match (bad, finished.verdicts[&i].trials.iter().find_map(|t| reading(&t.id))) {
        (Some(ended), _) => Some(ended.words().0.to_owned()),
        (None, Some(why)) => Some(format!("eval failed: {why}")),
        _ if trials.is_empty() => Some("no trial came to a good end".to_owned()),
        _ if !entry.metric.applies(trials[0]) => None,
        _ => Some(format!("the runs have no {}", entry.metric.name())),
    }
}

/// All trials with the settings in which they differ.
fn lines(study: &Study, finished: &Ledger) -> Vec<Line> {
    let mut seen = HashSet::new();
    let verdicts = study.entries.iter().enumerate().filter_map(|(i, e)| Some((e, finished.verdicts.get(&i)?)));
    let trials = verdicts.flat_map(|(entry, verdict)| verdict.all.iter().map(move |trial| (entry, trial)));
    let trials: Vec<_> = trials.filter(|(_, trial)| seen.insert(&trial.id)).collect();
    let differing = trials.iter().flat_map(|(_, trial)| trial.settings.differences(&trials[0].1.settings));
    let differing: BTreeSet<&str> = differing.collect();
    let line = |(entry, trial): &(&super::study::Entry, &std::rc::Rc<super::trial::Trial>)| {
        let progress = finished.known.get(&trial.id).cloned().unwrap_or_default();
        let prunes = matches!(entry.protocol, Protocol::Contest { halving: Some(_), .. });
        let (outcome, reason) = match &progress.ended {
            Some(ended) => (ended.words().0, ended.words().1.to_owned()),
            None if prunes => ("pruned", format!("after epoch {}", progress.epochs())),
            None => ("open", String::new()),
        };
        let end = progress.record.end.as_ref().filter(|_| progress.finished());
        let best = progress.record.best(None);
        Line {
            trial: trial.id.clone(),
            entry: entry.name.clone(),
            outcome,
            reason,
            settings: differing.iter().map(|name| ((*name).to_owned(), trial.settings.text(name))).collect(),
            epochs: progress.epochs(),
            valid_ppl: best.map(|e| e.valid_ppl),
            train_ppl: best.map(|e| e.train_ppl),
            test_ppl: end.and_then(|e| e.test_ppl),
            seconds: end.map(|e| e.seconds),
        }
    };
    trials.iter().map(line).collect()
}
