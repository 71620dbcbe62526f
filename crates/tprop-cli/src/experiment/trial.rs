//! One training run of an experiment: its settings, the name that follows from them, and what its directory tells.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tprop_report::record::Record;

use super::progress::Progress;
use crate::failure::{Code, Failure, Outcome};
use crate::run::Lock;
use crate::settings::table::{NEUTRAL, TABLE};
use crate::settings::typed;
use crate::settings::{SettingError, Settings, Sources, Typed};

/// A training run that an experiment wants.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Its directory's name, a function of its settings alone, so that one point has one place.
    pub id: String,
    /// Resolved.
    pub settings: Settings,
}

impl Trial {
    /// The run of these settings.
    pub fn new(set: Vec<Typed>) -> Result<Self, SettingError> {
        let settings = Settings::resolve(&Sources { file: set, arguments: Vec::new() })?;
        let mut hash = Sha256::new();
        for setting in TABLE.iter().filter(|s| !NEUTRAL.contains(&s.name)) {
            hash.update(format!("{}={}\n", setting.name, settings.text(setting.name)));
        }
        let digits: String = hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let id = format!("{}-s{}-{digits}", settings.short_name(), settings.text("train.seed"));
        Ok(Self { id, settings })
    }

    /// The settings that shape its numbers: trials that agree in them come to the same.
    pub fn shape(&self) -> String {
        let shapes = |name: &str| !NEUTRAL.contains(&name) && self.settings.applies(name);
        let pairs =
            TABLE.iter().filter(|s| shapes(s.name)).map(|s| format!("{}={}\n", s.name, self.settings.text(s.name)));
        pairs.collect()
    }

    /// The longest that it may train.
    pub fn epochs(&self) -> u64 {
        self.settings.train().epochs as u64
    }
}

/// Several layers of settings as one; the later ones win.
pub fn merge(layers: &[&[Typed]]) -> Vec<Typed> {
    let mut merged: Vec<Typed> = Vec::new();
    for layer in layers {
        for one in *layer {
            match merged.iter_mut().find(|old| old.name == one.name) {
                Some(old) => *old = one.clone(),
                None => merged.push(one.clone()),
            }
        }
    }
    merged
}

/// What a trial's directory holds.
#[derive(Debug)]
pub enum Found {
    /// Nothing, or what a run leaves that was killed before its first checkpoint.
    Nothing,
    /// A run that can go on, or has ended.
    Run(Progress),
}

/// Looks into a trial's directory.
pub fn look(dir: &Path, trial: &Trial) -> Outcome<Found> {
    // Settings are written last: without them the run was never begun.
    if !dir.join("settings.toml").is_file() {
        return Ok(Found::Nothing);
    }
    // One that has ended is known by its record, even if its weights were removed; any other needs something to go on from.
    let resumable = has_checkpoint(dir);
    let unreadable = |path: &Path, what: String| {
        Failure::input(format!("{}: {what}; --retry removes the run and makes it anew", path.display()))
    };
    let path = dir.join("settings.toml");
    let file = typed::read_file(&path)?;
    let theirs = Settings::resolve(&Sources { file, arguments: Vec::new() })?;
    // The source is part of the directory's name as it was typed; the run knows it by its full path, and writes down how many shares
    // `auto` was.
    let auto = trial.settings.shares().is_none();
    let shapes =
        |name: &&str| !NEUTRAL.contains(name) && *name != "data.source" && !(auto && *name == "cluster.shares");
    let differ: Vec<_> = trial.settings.differences(&theirs).into_iter().filter(shapes).collect();
    if !differ.is_empty() {
        let what = format!("this run was made with other settings ({})", differ.join(", "));
        return Err(unreadable(&path, what));
    }
    let path = dir.join("record.jsonl");
    if !resumable && !path.is_file() {
        return Ok(Found::Nothing);
    }
    match Record::read_whole(&path).map(Progress::from) {
        Ok(progress) if !resumable && progress.ended.is_none() => Ok(Found::Nothing),
        Ok(progress) => Ok(Found::Run(progress)),
        Err(e) => Err(unreadable(&path, format!("cannot be read ({e})"))),
    }
}

/// What a run's record tells, as far as it can be read; for runs whose end is known from elsewhere.
pub fn evaluated(dir: &Path) -> Progress {
    Record::read_whole(&dir.join("record.jsonl")).map(Progress::from).unwrap_or_default()
}

/// The first checkpoint is written before the first update, and after everything else that a run consists of.
fn has_checkpoint(dir: &Path) -> bool {
    let entries = fs::read_dir(dir.join("checkpoints"));
    entries.is_ok_and(|entries| {
        entries.flatten().any(|e| {
            let name = e.file_name();
            let name = name.to_string_lossy();
            name.starts_with("step-") && name.ends_with(".safetensors")
        })
    })
}

/// Removes what a run left, unless a process is at work on it; says whether it could.
///
/// The lock's file stays: whoever waits for it must wait for the same one.
pub fn clear(dir: &Path) -> Outcome<bool> {
    if !dir.exists() {
        return Ok(true);
    }
    let _lock = match Lock::take(&dir.join("lock"), dir) {
        Ok(lock) => lock,
        Err(failure) if failure.code == Code::InUse => return Ok(false),
        Err(failure) => return Err(failure),
    };
    let trouble = |e: io::Error| Failure::disk(dir, &e);
    for entry in fs::read_dir(dir).map_err(trouble)? {
        let entry = entry.map_err(trouble)?;
        let path: PathBuf = entry.path();
        if entry.file_name() == "lock" {
            continue;
        }
        let is_dir = entry.file_type().map_err(trouble)?.is_dir();
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|e| Failure::disk(&path, &e))?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(list: &[&str]) -> Trial {
        Trial::new(list.iter().map(|text| Typed::argument(text).unwrap()).collect()).unwrap()
    }

    #[test]
    fn a_trial_is_its_settings() {
        let one = trial(&["model.hidden=8", "optim.lr=0.05"]);
        assert!(one.id.starts_with("gru8-bptt-s1-"), "{}", one.id);
        // The default said aloud, and what does not matter.
        assert_eq!(one.id, trial(&["model.hidden=8", "train.threads=3", "data.dir=/x", "checkpoint.keep=1"]).id);
        assert_ne!(one.id, trial(&["model.hidden=8", "optim.lr=0.06"]).id);
        assert_ne!(one.id, trial(&["model.hidden=8", "train.seed=2"]).id);
    }

    #[test]
    fn later_layers_win() {
        let typed = |text: &str| Typed::argument(text).unwrap();
        let (a, b) = ([typed("optim.lr=1"), typed("model.hidden=2")], [typed("optim.lr=3")]);
        let merged = merge(&[&a, &b]);
        assert_eq!(
            merged.iter().map(|t| (t.name.as_str(), t.text.as_str())).collect::<Vec<_>>(),
            [("optim.lr", "3"), ("model.hidden", "2")]
        );
    }
}
