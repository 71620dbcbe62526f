//! Experiments: grids of a user's own ([`sweep_file`]) and the paper's tables ([`recipe`]), both a [`Study`], driven by
//! the same engine as processes of this program, and shown beside the paper's figures.
//!
//! ```text
//! file ─ sweep_file | recipe ─→ Study ─ next(progress) ─→ trials ─ drive ─→ runs/ ─ results ─→ compare, present ─→ table.*
//! ```
//!
//! A module uses only those above it:
//!
//! ```text
//! toml, grid                            what files of experiments consist of
//! progress, metric, trial               how far a run is, which of its figures counts, where it lies
//! study, sweep_file, recipe             what an experiment wants, and the files that say so
//! request, out, estimate, ledger        what a command asks for, its directory, what it would take, what is known and to be done
//! show, child, drive                    what people see of it, its processes, the loop that runs them
//! results, compare, present             what came out, beside the paper's figures, as files
//! ```

mod toml;
mod grid;
mod progress;
mod metric;
mod trial;
mod study;
pub mod sweep_file;
pub mod recipe;
mod request;
mod out;
mod estimate;
mod ledger;
mod show;
mod child;
mod drive;
mod results;
mod compare;
mod present;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use drive::Driver;
use estimate::Survey;
use ledger::Ledger;
use out::{Identity, Out};
pub use request::Request;
use results::{NOT_ASKED, Results};
pub use study::Study;
use tprop_run::console;
use tprop_run::describe::describe;
use tprop_run::failure::{Code, Failure, Outcome};
use tprop_run::settings::Typed;

/// Runs an experiment, or says what it would take.
pub fn run(study: &Study, request: &Request) -> Outcome {
    let entries = select(study, &request.only)?;
    let request = &Request { data_dir: request.data_dir.as_deref().map(absolute), ..request.clone() };
    let Request { out: dir, quiet, .. } = request;
    let survey = Survey::of(study, &entries, request)?;
    if request.dry_run {
        return survey.tell(study, &entries, dir, request.json);
    }
    let unasked = (0..study.entries.len()).filter(|e| !entries.contains(e));
    let mut absent: HashMap<usize, String> = unasked.map(|e| (e, NOT_ASKED.to_owned())).collect();
    absent.extend(survey.absent.clone());
    let here: Vec<usize> = entries.iter().copied().filter(|e| !absent.contains_key(e)).collect();
    let nothing = || {
        let reason = survey.absent.values().next().cloned().unwrap_or_default();
        Failure::input(format!("nothing can be run: {reason}"))
    };
    // Trials that have ended can be shown without their text.
    if here.is_empty() && !dir.join("study.json").is_file() && !dir.join("runs").is_dir() {
        return Err(nothing());
    }
    if !quiet {
        tell_absent(study, &survey.absent);
    }
    let out = Out::open(dir, &Identity::of(study))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = study.forecast(entries[0])[0].1.settings.threads().unwrap_or(cores);
    let mut driver = Driver::new(study, here.clone(), &out, survey.fingerprints.clone(), request, threads);
    if request.retry {
        driver.retry()?;
    }
    let finished = driver.drive()?;
    if !entries.iter().any(|entry| finished.verdicts.contains_key(entry)) {
        return Err(nothing());
    }
    absent.retain(|entry, _| !finished.verdicts.contains_key(entry));
    let results = Results::of(study, &finished, &absent, request.command.clone());
    present::present(study, &results, &out, survey.best_possible(study, &here), request.json)?;
    if results.trials.iter().any(|trial| trial.epochs > 0) {
        let (dirs, commands) = (std::slice::from_ref(dir), std::slice::from_ref(&request.command));
        let written = tprop_report::write(dirs, dir, &study.title, commands, &describe)?;
        if !quiet {
            let shown = |path: &Path| tprop::vocab::printable(&path.to_string_lossy());
            console::note(format!("\nreport: {}\nfiles:  {}", shown(&written.html), shown(dir)));
        }
    }
    ending(&results, &finished)
}

/// Entries that cannot be run, those with one reason together.
fn tell_absent(study: &Study, absent: &HashMap<usize, String>) {
    let mut reasons: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for (entry, reason) in absent {
        reasons.entry(reason).or_default().insert(*entry);
    }
    for (reason, entries) in reasons {
        let names: Vec<&str> = entries.iter().map(|entry| study.entries[*entry].name.as_str()).collect();
        let names = if names.len() > 6 { format!("{} cells", names.len()) } else { names.join(", ") };
        console::note(format!("left out: {names} ({reason})"));
    }
}

/// The exit code that results deserve.
fn ending(results: &Results, finished: &Ledger) -> Outcome {
    let failed = |what: String| Err(Failure::new(Code::Failed, what));
    let trials = results.ended("failed").count();
    if trials > 0 {
        return failed(format!("{trials} trials failed; --retry runs them again"));
    }
    let unread: Vec<&String> = finished.readings.values().filter_map(|reading| reading.as_ref().err()).collect();
    if let Some(why) = unread.first() {
        return failed(format!("{} evaluations failed ({why}); the same command tries again", unread.len()));
    }
    if results.figures.iter().any(|f| f.value.is_some()) {
        return Ok(());
    }
    if results.ended("diverged").next().is_some() {
        return Err(Failure::new(Code::Diverged, "no trial came to a good end"));
    }
    let why = results.figures.iter().find_map(|f| f.missing.clone()).filter(|why| why != NOT_ASKED);
    let why = why.unwrap_or_else(|| "the runs have nothing of what the table shows".into());
    failed(format!("no figure came out: {why}"))
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

/// The entries that `--only` names: each word is some parts of an entry's name, in order.
fn select(study: &Study, only: &[String]) -> Outcome<Vec<usize>> {
    let matches = |entry: &str, word: &str| {
        let mut parts = entry.split('/');
        word.split('/').all(|wanted| parts.any(|part| part == wanted))
    };
    let names: Vec<&str> = study.entries.iter().map(|e| e.name.as_str()).collect();
    if let Some(word) = only.iter().find(|word| !names.iter().any(|name| matches(name, word))) {
        let (shown, names) = (tprop::vocab::printable(word), names[..names.len().min(40)].join(", "));
        return Err(Failure::input(format!("--only {shown}: there is no such cell; there are {names}")));
    }
    let wanted = |i: &usize| only.is_empty() || only.iter().any(|word| matches(names[*i], word));
    Ok((0..names.len()).filter(wanted).collect())
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
