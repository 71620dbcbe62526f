//! What came out, as plain data: one [`Figure`] per cell, the trials behind it, and what is missing and why.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::grid::shown;
use super::ledger::{Ledger, reading_key};
use super::metric::Metric;
use super::study::{Plan, Study};
use super::trial::{Ended, Progress};
use crate::spread::Spread;

/// What a cell came to.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// The cell's name.
    pub cell: String,
    /// Which figure.
    pub metric: String,
    /// The figure over the seeds; none if the cell was not run or came to nothing.
    pub value: Option<Spread>,
    /// The same by seed, in the order of the cell's seeds; empty if one is missing.
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
    /// The cell that wanted it first.
    pub cell: String,
    /// `finished`, `diverged`, `failed` or `pruned`.
    pub outcome: String,
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
    /// By cell, in their order.
    pub figures: Vec<Figure>,
    /// All trials, in the order in which cells want them.
    pub trials: Vec<Line>,
}

impl Results {
    /// Of an experiment of which the cells in `absent` were left out, with the reason.
    pub fn of(study: &Study, finished: &Ledger, absent: &HashMap<usize, String>, command: String) -> Self {
        let figures = (0..study.cells.len()).map(|i| figure(study, i, finished, absent)).collect();
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

    /// Trials that could not be run.
    pub fn failures(&self) -> impl Iterator<Item = &Line> {
        self.trials.iter().filter(|line| line.outcome == "failed")
    }

    /// Trials that blew up.
    pub fn divergences(&self) -> impl Iterator<Item = &Line> {
        self.trials.iter().filter(|line| line.outcome == "diverged")
    }
}

fn figure(study: &Study, i: usize, finished: &Ledger, absent: &HashMap<usize, String>) -> Figure {
    let cell = &study.cells[i];
    let mut figure = Figure {
        cell: cell.name.clone(),
        metric: cell.metric.name(),
        value: None,
        by_seed: Vec::new(),
        chosen: None,
        train_ppl: None,
        valid_ppl: None,
        test_ppl: None,
        residual: None,
        tokens_per_s: None,
        runs: Vec::new(),
        pruned: Vec::new(),
        missing: absent.get(&i).cloned(),
    };
    let Some(verdict) = finished.verdicts.get(&i).filter(|_| figure.missing.is_none()) else {
        figure.missing.get_or_insert("not run".into());
        return figure;
    };
    figure.chosen = verdict.chosen.as_ref().map(|point| shown(point)).filter(|text| !text.is_empty());
    figure.runs = verdict.trials.iter().map(|t| format!("runs/{}", t.id)).collect();
    figure.pruned = verdict.pruned.iter().map(|(point, epoch)| format!("{} (epoch {epoch})", shown(point))).collect();
    let trials: Vec<&Progress> = verdict.trials.iter().filter_map(|t| finished.known.get(&t.id)).collect();
    let spread = |metric: Metric| {
        let figures: Vec<f64> = trials.iter().filter_map(|p| metric.of(p)).collect();
        Spread::of(&figures).filter(|s| s.n == trials.len())
    };
    let named = |name: &str| Metric::named(name).ok().and_then(spread);
    figure.train_ppl = named("train_ppl");
    figure.valid_ppl = named("valid_ppl");
    figure.test_ppl = named("test_ppl");
    figure.residual = named("residual");
    figure.tokens_per_s = named("tokens_per_s");
    let figures: Vec<f64> = if cell.eval.is_empty() {
        trials.iter().filter_map(|p| cell.metric.of(p)).collect()
    } else {
        let read = |id: &str| finished.readings.get(&reading_key(id, &cell.eval)).and_then(|r| r.clone().ok());
        verdict.trials.iter().filter_map(|t| read(&t.id)).collect()
    };
    if figures.len() == trials.len() {
        (figure.value, figure.by_seed) = (Spread::of(&figures), figures);
    }
    if figure.value.is_none() {
        figure.missing = why_none(study, i, finished, &trials);
    }
    figure
}

/// Why there is no figure; nothing if there cannot be one, like the residual of BPTT.
fn why_none(study: &Study, i: usize, finished: &Ledger, trials: &[&Progress]) -> Option<String> {
    let cell = &study.cells[i];
    let bad = trials.iter().find_map(|p| match &p.ended {
        // The reasons of bad ends are listed below the tables.
        Some(Ended::Diverged(_)) => Some("diverged".to_owned()),
        Some(Ended::Failed(_)) => Some("failed".to_owned()),
        _ => None,
    });
    let eval = finished.verdicts[&i]
        .trials
        .iter()
        .find_map(|t| finished.readings.get(&reading_key(&t.id, &cell.eval)).and_then(|r| r.clone().err()));
    let rest = || match trials.is_empty() {
        true => Some("no trial came to a good end".to_owned()),
        false if !cell.metric.applies(trials[0]) => None,
        false => Some(format!("the runs have no {}", cell.metric.name())),
    };
    bad.or(eval.map(|why| format!("eval failed: {why}"))).or_else(rest)
}

/// All trials with the settings in which they differ.
fn lines(study: &Study, finished: &Ledger) -> Vec<Line> {
    let mut trials = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for i in 0..study.cells.len() {
        let Some(verdict) = finished.verdicts.get(&i) else { continue };
        for trial in &verdict.all {
            if seen.insert(trial.id.clone()) {
                trials.push((study.cells[i].name.clone(), trial.clone()));
            }
        }
    }
    let mut differing: Vec<&'static str> = Vec::new();
    if let Some((_, first)) = trials.first() {
        for (_, trial) in &trials {
            for name in trial.settings.differences(&first.settings) {
                if !differing.contains(&name) {
                    differing.push(name);
                }
            }
        }
    }
    let prunes = |cell: &str| {
        study.cells.iter().any(|c| c.name == cell && matches!(c.plan, Plan::Contest { halving: Some(_), .. }))
    };
    let line = |(cell, trial): &(String, std::rc::Rc<super::trial::Trial>)| {
        let progress = finished.known.get(&trial.id).cloned().unwrap_or_default();
        let (outcome, reason) = match &progress.ended {
            Some(Ended::Finished(_)) => ("finished", String::new()),
            Some(Ended::Diverged(reason)) => ("diverged", reason.clone()),
            Some(Ended::Failed(reason)) => ("failed", reason.clone()),
            None if prunes(cell) => ("pruned", format!("after epoch {}", progress.evals.len())),
            None => ("open", String::new()),
        };
        let end = match &progress.ended {
            Some(Ended::Finished(end)) => Some(end),
            _ => None,
        };
        let best = progress.best(None);
        Line {
            trial: trial.id.clone(),
            cell: cell.clone(),
            outcome: outcome.to_owned(),
            reason,
            settings: differing.iter().map(|name| ((*name).to_owned(), trial.settings.text(name))).collect(),
            epochs: progress.evals.len(),
            valid_ppl: best.map(|e| e.valid_ppl),
            train_ppl: best.map(|e| e.train_ppl),
            test_ppl: end.and_then(|e| e.test_ppl),
            seconds: end.map(|e| e.seconds),
        }
    };
    trials.iter().map(line).collect()
}
