//! Experiments: grids of a user's own ([`sweep_file`]) and the paper's tables ([`recipe`]), both a [`study::Study`], driven by
//! the same engine ([`drive`]) as processes of this program, and shown beside the paper's figures ([`present`]).
//!
//! ```text
//! file ─ sweep_file | recipe ─→ Study ─ next(progress) ─→ trials ─ drive ─→ runs/ ─ results ─→ compare, present ─→ table.*
//! ```

mod child;
mod compare;
mod drive;
mod estimate;
mod grid;
mod ledger;
mod metric;
mod out;
mod present;
pub mod recipe;
mod results;
mod show;
pub mod study;
pub mod sweep_file;
mod toml;
mod trial;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::args::Driving;
use crate::console;
use crate::failure::{Code, Failure, Outcome};
use crate::report;
use crate::settings::{Settings, Typed};
use drive::{Driver, Options};
use estimate::Survey;
use ledger::Ledger;
use out::{Identity, Out};
use results::Results;
use study::Study;

/// Why a cell has no figure that nobody wanted this time.
const NOT_ASKED: &str = "not asked for";

/// What to do with an experiment.
#[derive(Debug)]
pub struct Request<'a> {
    /// How, as typed.
    pub driving: &'a Driving,
    /// Where, if not said.
    pub usual_out: PathBuf,
    /// Parts of cells' names; all cells if empty.
    pub only: &'a [String],
    /// The command that makes the same again.
    pub command: String,
    /// Whether cells whose text is not here are left out, and told, rather than refused.
    pub lenient: bool,
}

/// Runs an experiment, or says what it would take.
pub fn run(study: &Study, request: &Request<'_>) -> Outcome {
    let driving = request.driving;
    let cells = select(study, request.only)?;
    let data_dir = driving.data_dir.as_deref();
    let jobs = usize::from(driving.jobs);
    let dir = driving.out.clone().unwrap_or_else(|| request.usual_out.clone());
    let survey = Survey::of(study, &cells, data_dir, jobs, request.lenient, driving.dry_run)?;
    if driving.dry_run {
        return survey.tell(study, &cells, &dir, driving.json);
    }
    let mut absent: HashMap<usize, String> =
        (0..study.cells.len()).filter(|c| !cells.contains(c)).map(|c| (c, NOT_ASKED.to_owned())).collect();
    absent.extend(survey.absent.clone());
    let here: Vec<usize> = cells.iter().copied().filter(|c| !absent.contains_key(c)).collect();
    let nothing = || {
        let reason = survey.absent.values().next().cloned().unwrap_or_default();
        Failure::input(format!("nothing can be run: {reason}"))
    };
    // Trials that have ended can be shown without their text.
    if here.is_empty() && !dir.join("study.json").is_file() && !dir.join("runs").is_dir() {
        return Err(nothing());
    }
    if !driving.quiet {
        tell_absent(study, &survey.absent);
    }
    let out = Out::open(&dir, &Identity::of(study))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = study.forecast(cells[0])[0].1.settings.threads().unwrap_or(cores);
    let data_dir = data_dir.map(absolute);
    let options = Options { jobs, threads: (threads / jobs).max(1), data_dir, quiet: driving.quiet };
    let mut driver = Driver::new(study, here.clone(), &out, survey.fingerprints.clone(), options);
    if driving.retry {
        driver.retry()?;
    }
    let finished = driver.drive()?;
    if !cells.iter().any(|cell| finished.verdicts.contains_key(cell)) {
        return Err(nothing());
    }
    absent.retain(|cell, _| !finished.verdicts.contains_key(cell));
    let results = Results::of(study, &finished, &absent, request.command.clone());
    present::present(study, &results, &out, survey.best_possible(study, &here), driving.json)?;
    if results.trials.iter().any(|trial| trial.epochs > 0) {
        let written =
            report::write(std::slice::from_ref(&dir), &dir, &study.title, std::slice::from_ref(&request.command))?;
        if !driving.quiet {
            let shown = |path: &Path| tprop::vocab::printable(&path.to_string_lossy());
            console::note(format!("\nreport: {}\nfiles:  {}", shown(&written.html), shown(&dir)));
        }
    }
    ending(&results, &finished)
}

/// Cells that cannot be run, those with one reason together.
fn tell_absent(study: &Study, absent: &HashMap<usize, String>) {
    let mut reasons: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    absent.iter().for_each(|(cell, reason)| reasons.entry(reason).or_default().push(*cell));
    for (reason, mut cells) in reasons {
        cells.sort_unstable();
        let names: Vec<&str> = cells.iter().map(|cell| study.cells[*cell].name.as_str()).collect();
        let names = if names.len() > 6 { format!("{} cells", names.len()) } else { names.join(", ") };
        console::note(format!("left out: {names} ({reason})"));
    }
}

/// The exit code that results deserve.
fn ending(results: &Results, finished: &Ledger) -> Outcome {
    let failed = results.failures().count();
    if failed > 0 {
        return Err(Failure::new(Code::Failed, format!("{failed} trials failed; --retry runs them again")));
    }
    if let Some(why) = finished.readings.values().find_map(|reading| reading.as_ref().err()) {
        let n = finished.readings.values().filter(|reading| reading.is_err()).count();
        return Err(Failure::new(
            Code::Failed,
            format!("{n} evaluations failed ({why}); the same command tries again"),
        ));
    }
    if results.figures.iter().any(|f| f.value.is_some()) {
        return Ok(());
    }
    match results.divergences().next() {
        Some(_) => Err(Failure::new(Code::Diverged, "no trial came to a good end")),
        None => {
            let why = results.figures.iter().find_map(|f| f.missing.clone()).filter(|why| why != NOT_ASKED);
            let why = why.unwrap_or_else(|| "the runs have nothing of what the table shows".into());
            Err(Failure::new(Code::Failed, format!("no figure came out: {why}")))
        }
    }
}

/// Whether bytes can be read as `study.json`, and as `outcomes.jsonl`.
pub fn read_state(bytes: &[u8]) -> (Result<(), String>, Result<(), String>) {
    let outcomes = out::read_outcomes(bytes).map(drop).map_err(|(line, why)| format!("line {line}: {why}"));
    (Identity::read(bytes).map(drop), outcomes)
}

/// Whether a text can be read as a sweep's file.
pub fn read_sweep(text: &str) -> Result<(), String> {
    sweep_file::read(text, Path::new("sweep.toml"), Vec::new()).map(drop).map_err(|e| e.to_string())
}

/// The cells that `--only` names: each word is some parts of a cell's name, in order.
fn select(study: &Study, only: &[String]) -> Outcome<Vec<usize>> {
    let matches = |cell: &str, word: &str| {
        let mut parts = cell.split('/');
        word.split('/').all(|wanted| parts.any(|part| part == wanted))
    };
    if let Some(word) = only.iter().find(|word| !study.cells.iter().any(|c| matches(&c.name, word))) {
        let names: Vec<&str> = study.cells.iter().map(|c| c.name.as_str()).take(40).collect();
        let shown = tprop::vocab::printable(word);
        return Err(Failure::input(format!("--only {shown}: there is no such cell; there are {}", names.join(", "))));
    }
    let wanted = |i: &usize| only.is_empty() || only.iter().any(|word| matches(&study.cells[*i].name, word));
    Ok((0..study.cells.len()).filter(wanted).collect())
}

/// A trial's settings with the data directory of the command line.
pub fn located(settings: &Settings, data_dir: Option<&str>) -> Settings {
    let mut settings = settings.clone();
    if let Some(dir) = data_dir {
        settings.replace_word("data.dir", absolute(dir));
    }
    settings
}

fn absolute(path: &str) -> String {
    let full = std::path::absolute(path).ok().and_then(|p| p.to_str().map(str::to_owned));
    full.unwrap_or_else(|| path.to_owned())
}

/// Settings behind the file on the command line.
pub fn words(words: &[String]) -> Outcome<Vec<Typed>> {
    let typed = words.iter().map(|word| {
        Typed::argument(word)
            .ok_or_else(|| Failure::input(format!("{}: not a setting; write key=value", tprop::vocab::printable(word))))
    });
    let typed = typed.collect::<Outcome<Vec<Typed>>>()?;
    for (i, one) in typed.iter().enumerate() {
        if typed[..i].iter().any(|other| other.name == one.name) {
            return Err(Failure::input(format!("{} is set twice; leave one out", tprop::vocab::printable(&one.name))));
        }
        if one.name == "train.seed" {
            return Err(Failure::input("train.seed: the experiment's file chooses the seeds"));
        }
    }
    Ok(typed)
}
