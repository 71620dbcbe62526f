//! What an experiment would take: its corpora are looked at, and one short measurement per kind of trial tells the time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use tprop::comm::Solo;
use tprop::corpus::{Corpus, Split};
use tprop::method::Advance;
use tprop::model::Model;
use tprop::train::{Data, Trainer};

use super::study::Study;
use super::trial::{self, Found, Trial};
use crate::console::{self, duration, grouped};
use crate::failure::{Failure, Outcome};
use crate::prepare::{self, Sizes};
use crate::settings::Settings;
use crate::settings::table::TABLE;

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
    /// Cells that cannot be run, with the reason.
    pub absent: HashMap<usize, String>,
}

/// What the settings of a group have to say, as one text.
fn key(settings: &Settings, keep: impl Fn(&str) -> bool) -> String {
    TABLE.iter().filter(|s| keep(s.name)).map(|s| format!("{}={}\n", s.name, settings.text(s.name))).collect()
}

/// Trials that agree in this read the same text.
pub fn corpus_key(settings: &Settings) -> String {
    key(settings, |name| name.starts_with("data.") || name.starts_with("synth."))
}

fn speed_key(settings: &Settings) -> String {
    key(settings, |name| !FREE.contains(&name) && !name.starts_with("checkpoint.") && !name.starts_with("eval."))
}

impl Survey {
    /// Reads the corpora of some cells and checks that their trials fit text and memory; with `measure`, also how fast they are.
    /// A cell whose text is not here is left out if `lenient`, and a refusal otherwise.
    pub fn of(
        study: &Study,
        cells: &[usize],
        data_dir: Option<&str>,
        jobs: usize,
        lenient: bool,
        measure: bool,
    ) -> Outcome<Self> {
        let mut by_corpus: BTreeMap<String, Vec<(usize, Rc<Trial>)>> = BTreeMap::new();
        for &cell in cells {
            for (_, trial) in study.forecast(cell) {
                by_corpus.entry(corpus_key(&trial.settings)).or_default().push((cell, trial));
            }
        }
        let kinds: HashSet<String> = by_corpus.values().flatten().map(|(_, t)| speed_key(&t.settings)).collect();
        let each = (BUDGET / kinds.len().max(1) as f64).min(0.4);
        let mut survey = Self::default();
        for (key, trials) in by_corpus {
            let located = super::located(&trials[0].1.settings, data_dir);
            let corpus = match prepare::corpus(&located, true) {
                Ok(corpus) => corpus,
                Err(failure) if lenient => {
                    for (cell, _) in trials {
                        survey.absent.insert(cell, failure.message.clone());
                    }
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            survey.tokens.insert(key.clone(), corpus.train.len());
            survey.fingerprints.insert(key.clone(), corpus.fingerprint.clone());
            if let Some(reference) = corpus.reference(Split::Valid) {
                survey.best.insert(key.clone(), reference.best);
            }
            let mut seen: HashSet<String> = HashSet::new();
            for (cell, trial) in &trials {
                let kind = speed_key(&trial.settings);
                if !seen.insert(kind.clone()) {
                    continue;
                }
                check(study, *cell, &trial.settings, &corpus, jobs)?;
                if measure
                    && !survey.speeds.contains_key(&kind)
                    && let Some(speed) = speed(&trial.settings, &corpus, each)?
                {
                    survey.speeds.insert(kind, speed);
                }
            }
        }
        Ok(survey)
    }

    /// The best possible validation perplexity, if all trials of these cells read one text that has one.
    pub fn best_possible(&self, study: &Study, cells: &[usize]) -> Option<f64> {
        let trials = cells.iter().flat_map(|c| study.forecast(*c));
        // Short trials read a part of the text, but validate on the same.
        let keys: HashSet<String> = trials
            .map(|(_, t)| {
                key(&t.settings, |n| (n.starts_with("data.") && n != "data.max_tokens") || n.starts_with("synth."))
            })
            .collect();
        self.best.values().next().copied().filter(|_| keys.len() == 1)
    }

    /// Tokens that a trial reads at most, and seconds that this takes on all cores.
    fn cost(&self, trial: &Trial) -> Option<(u64, Option<f64>)> {
        let tokens = *self.tokens.get(&corpus_key(&trial.settings))? as u64 * trial.epochs();
        let seconds = self.speeds.get(&speed_key(&trial.settings)).map(|speed| tokens as f64 / speed);
        Some((tokens, seconds))
    }

    /// What a dry run prints.
    pub fn tell(&self, study: &Study, cells: &[usize], dir: &Path, json: bool) -> Outcome {
        let groups: Vec<(String, Vec<usize>)> = if study.sweep {
            vec![("all".to_owned(), cells.to_vec())]
        } else {
            let of =
                |t: &super::study::Table| t.cells.iter().flatten().copied().filter(|c| cells.contains(c)).collect();
            study.tables.iter().map(|t| (t.name.clone(), of(t))).filter(|(_, c): &(_, Vec<_>)| !c.is_empty()).collect()
        };
        let ended = |trial: &Trial| {
            let found = trial::look(&dir.join("runs").join(&trial.id), trial);
            matches!(found, Ok(Found::Run(progress)) if progress.ended.is_some())
        };
        let mut done = 0;
        let mut counted: HashSet<String> = HashSet::new();
        let mut rows = Vec::new();
        let (mut all_trials, mut all_tokens, mut all_seconds, mut known) = (0, 0u64, 0.0, true);
        for (name, cells) in groups {
            let (mut trials, mut tokens, mut seconds) = (0, 0, Some(0.0));
            for (key, trial) in cells.iter().flat_map(|c| study.forecast(*c)) {
                if !counted.insert(key.clone()) {
                    continue;
                }
                trials += 1;
                // Those behind a search have no name yet.
                if key == trial.id && ended(&trial) {
                    done += 1;
                    continue;
                }
                match self.cost(&trial) {
                    Some((n, time)) => {
                        tokens += n;
                        seconds = seconds.zip(time).map(|(a, b)| a + b);
                    }
                    None => seconds = None,
                }
            }
            all_trials += trials;
            all_tokens += tokens;
            all_seconds += seconds.unwrap_or(0.0);
            known &= seconds.is_some();
            rows.push((name, cells.len(), trials, tokens, seconds));
        }
        let time = known.then_some(all_seconds);
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        self.absent.values().for_each(|reason| *reasons.entry(reason).or_default() += 1);
        if json {
            let parts: Vec<_> = rows
                .iter()
                .map(|(name, cells, trials, tokens, seconds)| {
                    serde_json::json!({"name": name, "cells": cells, "trials": trials, "tokens": tokens, "seconds": seconds})
                })
                .collect();
            return console::line(serde_json::json!({
                "name": study.name, "trials": all_trials, "ended": done, "tokens": all_tokens, "seconds": time, "parts": parts, "cannot_run": reasons,
            }));
        }
        let shown = |seconds: Option<f64>| seconds.map_or("not known".to_owned(), |s| format!("about {}", duration(s)));
        let mut text = format!("{}\n", tprop::vocab::printable(&study.title));
        for (name, cells, trials, tokens, seconds) in &rows {
            text += &format!(
                "  {name:<20} {cells:>4} cells {trials:>6} trials {:>16} tokens   {}\n",
                grouped(*tokens),
                shown(*seconds)
            );
        }
        text += &format!(
            "at most {} trials, {} tokens, {} on all cores of this machine (short measurements; early stops not counted)\n",
            grouped(all_trials),
            grouped(all_tokens),
            shown(time)
        );
        if done > 0 {
            text += &format!("{} of them have ended and are not counted in tokens and time\n", grouped(done));
        }
        for (reason, n) in reasons {
            text += &format!("{n} cells cannot be run here: {reason}\n");
        }
        console::data(&text)
    }
}

fn check(study: &Study, cell: usize, settings: &Settings, corpus: &Corpus, jobs: usize) -> Outcome {
    let place = |failure: Failure| {
        let cell = tprop::vocab::printable(&study.cells[cell].name);
        Failure::new(failure.code, format!("{cell}: {}", failure.message))
    };
    prepare::check_lengths(settings, corpus).map_err(place)?;
    let model = Model::<f32>::new(settings.model(corpus.vocab.len()));
    let need = prepare::memory(settings, &model, Sizes::of(corpus, 1));
    prepare::check_memory(need.saturating_mul(jobs as u64)).map_err(place)
}

/// Tokens per second; none if an update takes too long to tell. A batch pass is measured by windows, whose arithmetic is the same.
fn speed(settings: &Settings, corpus: &Corpus, seconds: f64) -> Outcome<Option<f64>> {
    let mut settings = settings.clone();
    settings.replace_word("train.batch", "mini".into());
    if prepare::check_lengths(&settings, corpus).is_err() {
        return Ok(None);
    }
    let model = Model::<f32>::new(settings.model(corpus.vocab.len()));
    let data = Data::new(&corpus.train, &corpus.valid, &corpus.test);
    let mut trainer = Trainer::new(&model, data, settings.train(), &Solo)?;
    let (mut tokens, mut since) = (0, Instant::now());
    for update in 0..1000 {
        match trainer.advance(&mut || false) {
            Advance::Update(u) => tokens += u.tokens,
            _ => break,
        }
        if update == 0 {
            // The first update allocates and warms up.
            (tokens, since) = (0, Instant::now());
        } else if since.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    Ok((tokens > 0).then(|| tokens as f64 / since.elapsed().as_secs_f64()))
}
