//! The directory of an experiment, taken by one driver at a time.
//!
//! ```text
//! study.json       what is being run, so that another experiment is refused here
//! outcomes.jsonl   trials that diverged or failed, with the reason; finished ones are known by their own records
//! trials/ID.toml   settings of each trial
//! runs/ID/         its run directory
//! evals/ID.json    what `tprop eval` printed about a run
//! table.md …       what came out
//! lock
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tprop::vocab::printable;

use super::grid::shown;
use super::progress::Ended;
use super::study::{Next, Protocol, Study};
use tprop_run::disk;
use tprop_run::failure::{Failure, Outcome};
use tprop_run::run::Lock;
use tprop_run::settings::Typed;
use tprop_run::settings::table::neutral;

/// Version of `study.json`; in 1 trials were named otherwise.
const FORMAT: u32 = 2;

/// What is being run, whatever part of it was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    format: u32,
    name: String,
    version: String,
    /// Over the entries and the names of all trials that are known beforehand, in which every default has a part.
    hash: String,
    /// Settings, seeds and points of each entry.
    #[serde(rename = "cells")]
    entries: BTreeMap<String, Vec<String>>,
}

impl Identity {
    /// Of an experiment.
    pub fn of(study: &Study) -> Self {
        let mut entries = BTreeMap::new();
        let mut hash = Sha256::new();
        for (i, entry) in study.entries.iter().enumerate() {
            // Threads and checkpoints may differ from one call to the next.
            let shapes = |one: &&Typed| !neutral(&one.name);
            let line = |what: &str, set: &[Typed]| format!("{what}: {}", shown(set));
            let set = entry.set.iter().chain(&study.last).filter(shapes);
            let mut lines: Vec<String> = set.map(|one| shown(std::slice::from_ref(one))).collect();
            lines.push(format!("seeds {:?}", entry.seeds));
            lines.extend((!entry.eval.is_empty()).then(|| format!("eval {:?}", entry.eval)));
            match &entry.protocol {
                Protocol::Contest { points, halving } => {
                    lines.extend(points.iter().filter(|p| !p.is_empty()).map(|p| line("point", p)));
                    lines.extend(halving.map(|h| format!("prune {h:?}")));
                }
                Protocol::Search(search) => {
                    lines.push(line("short", &search.short));
                    lines.extend(search.points.iter().map(|p| line("try", p)));
                    lines.push(format!("seeds of the search {:?}", search.seeds));
                    lines.extend(search.neighbour.map(|n| format!("neighbour {}", study.entries[n].name)));
                }
            }
            hash.update(format!("{} {lines:?}\n", entry.name));
            if let Next::Trials(wants) = study.next(i, &|_| None) {
                wants.iter().for_each(|want| hash.update(&want.trial.id));
            }
            entries.insert(entry.name.clone(), lines);
        }
        let hash = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: FORMAT, name: study.name.clone(), version, hash, entries }
    }

    /// From the text of `study.json`.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(text).map_err(|e| e.to_string())
    }

    /// How this differs from what `old` ran, in a few words.
    fn differs(&self, old: &Self) -> String {
        let names: BTreeSet<&String> = self.entries.keys().chain(old.entries.keys()).collect();
        let only = |a: &[String], b: &[String]| {
            a.iter().filter(|l| !b.contains(l)).take(3).cloned().collect::<Vec<_>>().join(", ")
        };
        let change = |name: &String| match (self.entries.get(name), old.entries.get(name)) {
            (_, None) => Some(format!("{name} is new")),
            (None, _) => Some(format!("{name} is gone")),
            (Some(now), Some(then)) => {
                let (new, gone) = (only(now, then), only(then, now));
                (new != gone).then(|| format!("{name} has [{new}] where it had [{gone}]"))
            }
        };
        let said: Vec<String> = names.into_iter().filter_map(change).collect();
        match said.len() {
            0 => format!("the defaults of tprop {} are not those of {}", self.version, old.version),
            1 | 2 => said.join("; "),
            n => format!("{}, and {} more", said[..2].join("; "), n - 2),
        }
    }
}

/// An experiment's directory, taken.
#[derive(Debug)]
pub struct Out {
    /// Where it is.
    pub dir: PathBuf,
    _lock: Lock,
}

/// A line of `outcomes.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    trial: String,
    #[serde(flatten)]
    ended: Ended,
}

impl Out {
    /// Makes or finds the directory and takes it; refuses one that belongs to something else.
    pub fn open(dir: &Path, identity: &Identity) -> Outcome<Self> {
        let state = dir.join("study.json");
        let disk = |e: io::Error| Failure::disk(dir, &e);
        let refuse = |path: &Path, why: &str| Err(Failure::input(format!("{}: {why}", path.display())));
        match fs::read_dir(dir) {
            Ok(mut entries) if !state.is_file() => {
                let leftover = |e: &fs::DirEntry| e.file_name() == "lock" || e.file_name() == "study.json.tmp";
                // Whoever lost the file alone continues: trials are known by their settings.
                let lost = ["runs", "trials"].iter().all(|folder| dir.join(folder).is_dir());
                if !lost && entries.any(|e| e.is_ok_and(|e| !leftover(&e))) {
                    return refuse(dir, "exists and is no experiment of this program; choose another --out");
                }
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => tprop::file::create_dir_all(dir).map_err(disk)?,
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return refuse(dir, "not a directory; choose another --out");
            }
            Err(e) => return Err(disk(e)),
        }
        let lock = Lock::take(&dir.join("lock"), dir)?;
        if state.is_file() {
            let old = match Identity::read(&fs::read(&state).map_err(disk)?) {
                Ok(old) => old,
                Err(e) => {
                    let advice = "remove it to continue with the trials that are there, or choose another --out";
                    return refuse(&state, &format!("not readable ({e}); {advice}"));
                }
            };
            if old.format != FORMAT {
                let version = printable(&old.version);
                let advice = "`scripts/migrate-trials` of the source renames them, or choose another --out";
                return refuse(dir, &format!("its trials have the names that tprop {version} gave them; {advice}"));
            }
            if old.hash != identity.hash {
                let (name, change) = (printable(&old.name), printable(&identity.differs(&old)));
                let what = format!("holds another experiment, {name}, from before a change: {change}");
                return refuse(dir, &format!("{what}; choose another --out, or undo the change"));
            }
        }
        let out = Self { dir: dir.to_owned(), _lock: lock };
        // First of all, so that whatever is found here later can be told from a stranger's.
        if !state.is_file() {
            let text = serde_json::to_string_pretty(identity).expect("plain data");
            out.write("study.json", &text)?;
        }
        for folder in ["trials", "runs"] {
            tprop::file::create_dir_all(&dir.join(folder)).map_err(disk)?;
        }
        Ok(out)
    }

    /// The run directory of a trial.
    pub fn run(&self, id: &str) -> PathBuf {
        self.dir.join("runs").join(id)
    }

    /// A file, whole or not at all.
    pub fn write(&self, name: &str, text: &str) -> Outcome {
        let path = self.dir.join(name);
        disk::write_whole(&path, text.as_bytes()).map_err(|e| Failure::disk(&path, &e))
    }

    /// Trials that came to a bad end; a last line without an end is cut off.
    pub fn outcomes(&self) -> Outcome<Vec<(String, Ended)>> {
        let path = self.dir.join("outcomes.jsonl");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Failure::disk(&path, &e)),
        };
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            let cut = OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(whole as u64));
            cut.map_err(|e| Failure::disk(&path, &e))?;
        }
        read_outcomes(&bytes[..whole]).map_err(|(line, e)| {
            Failure::input(format!("{}: line {line}: not readable ({e}); remove the file", path.display()))
        })
    }

    /// Remembers a bad end.
    pub fn note(&self, trial: &str, ended: &Ended) -> Outcome {
        let path = self.dir.join("outcomes.jsonl");
        let line = line(trial, ended);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let noted = file.and_then(|mut file| file.write_all(line.as_bytes()).and_then(|()| file.sync_data()));
        noted.map_err(|e| Failure::disk(&path, &e))
    }

    /// Forgets the trials that failed, so that they are run again; says which.
    pub fn forget_failures(&self) -> Outcome<Vec<String>> {
        let (kept, forgotten): (Vec<_>, Vec<_>) =
            self.outcomes()?.into_iter().partition(|(_, ended)| matches!(ended, Ended::Diverged(_)));
        let text: String = kept.iter().map(|(trial, ended)| line(trial, ended)).collect();
        self.write("outcomes.jsonl", &text)?;
        Ok(forgotten.into_iter().map(|(trial, _)| trial).collect())
    }
}

/// From the text of `outcomes.jsonl`; or the number of the line that is none, and why.
pub fn read_outcomes(text: &[u8]) -> Result<Vec<(String, Ended)>, (usize, String)> {
    let lines = text.split(|b| *b == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    let outcome = |(i, line): (usize, &[u8])| {
        let note: Note = serde_json::from_slice(line).map_err(|e| (i + 1, e.to_string()))?;
        Ok((note.trial, note.ended))
    };
    lines.map(outcome).collect()
}

fn line(trial: &str, ended: &Ended) -> String {
    let note = Note { trial: trial.to_owned(), ended: ended.clone() };
    serde_json::to_string(&note).expect("plain data") + "\n"
}
