//! What an experiment's `table.json` adds to a report: its tables, the names of its runs, and which trials only served to choose
//! hyper-parameters.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tprop::vocab::printable;

use crate::document::{Block, Section};
use crate::run::RunData;
use crate::table::Table;

/// A file that is longer than this is not one of ours.
const LONGEST: u64 = 64 << 20;

/// A finished or half-finished experiment.
#[derive(Debug, Deserialize)]
pub struct Experiment {
    title: String,
    #[serde(default)]
    asks: String,
    #[serde(default)]
    command: String,
    #[serde(default)]
    tables: Vec<Table>,
    /// Names of the runs behind the figures, by their directories; empty if every run is one.
    #[serde(default)]
    names: HashMap<String, String>,
    #[serde(default)]
    trials: Vec<Trial>,
}

#[derive(Debug, Deserialize)]
struct Trial {
    cell: String,
    outcome: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    settings: BTreeMap<String, String>,
}

/// The experiments whose runs are among `found`, each once and in that order, with their directories; what cannot be read is named.
pub fn find(found: &[(PathBuf, String)], problems: &mut Vec<String>) -> Vec<(PathBuf, Experiment)> {
    let mut experiments = Vec::new();
    let mut looked = HashSet::new();
    let homes = found.iter().filter_map(|(run, _)| home(run)).filter(|dir| looked.insert(*dir));
    for (dir, path) in homes.map(|dir| (dir, dir.join("table.json"))).filter(|(_, path)| path.is_file()) {
        match read(&path) {
            Ok(experiment) => experiments.push((dir.to_owned(), experiment)),
            Err(why) => problems
                .push(format!("{}: {why}; its runs are shown without its table", printable(&path.to_string_lossy()))),
        }
    }
    experiments
}

/// The directory of the experiment that a run may belong to.
fn home(run: &Path) -> Option<&Path> {
    run.parent().filter(|p| p.file_name().is_some_and(|n| n == "runs")).and_then(Path::parent)
}

fn read(path: &Path) -> Result<Experiment, String> {
    let length = fs::metadata(path).map_err(|e| format!("cannot be read ({e})"))?.len();
    if length > LONGEST {
        return Err(format!("{length} bytes are too many"));
    }
    let bytes = fs::read(path).map_err(|e| format!("cannot be read ({e})"))?;
    serde_json::from_slice(&bytes).map_err(|e| format!("not readable ({e})"))
}

/// Gives runs the names of their figures, and leaves out trials that only served to choose; says how many.
pub fn name(runs: &mut Vec<RunData>, experiments: &[(PathBuf, Experiment)]) -> usize {
    let before = runs.len();
    runs.retain_mut(|run| {
        let of = |(dir, _): &&(PathBuf, Experiment)| home(&run.dir) == Some(dir);
        let Some((_, experiment)) = experiments.iter().find(of) else { return true };
        let id = run.dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        run.label = experiment.names.get(&id).cloned();
        experiment.names.is_empty() || run.label.is_some()
    });
    before - runs.len()
}

/// The tables.
pub fn section(experiments: &[(PathBuf, Experiment)], left_out: usize) -> Option<Section> {
    let mut blocks = Vec::new();
    let mut number = 0;
    for (_, experiment) in experiments {
        if experiments.len() > 1 {
            blocks.push(Block::Heading(experiment.title.clone()));
        }
        if !experiment.asks.is_empty() {
            blocks.push(Block::Text(experiment.asks.clone()));
        }
        for table in &experiment.tables {
            number += 1;
            blocks.push(Block::Table(Table { name: format!("table-{number}"), ..table.clone() }));
            blocks.extend(table.notes.iter().cloned().map(Block::Text));
        }
        for trial in experiment.trials.iter().filter(|t| ["diverged", "failed"].contains(&t.outcome.as_str())) {
            let set: Vec<String> = trial.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let (outcome, cell, set, reason) = (&trial.outcome, &trial.cell, set.join(" "), &trial.reason);
            blocks.push(Block::Text(format!("A trial of {cell} {outcome} ({set}): {reason}")));
        }
        blocks.push(Block::Code("Made by".into(), experiment.command.clone()));
    }
    if left_out > 0 {
        let text =
            format!("{left_out} short trials that chose hyper-parameters are not shown below; trials.csv lists them.");
        blocks.push(Block::Text(text));
    }
    (!blocks.is_empty()).then(|| Section { id: "tables", title: "Tables".into(), blocks })
}
