//! One training run of an experiment: its settings, the name that follows from them, and what its directory tells.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tprop::checkpoint::store::Store;
use tprop_report::record::Record;

use super::progress::{Ended, Progress};
use tprop_run::failure::{Code, Failure, Outcome};
use tprop_run::run::{Lock, Run};
use tprop_run::settings::table::{TABLE, neutral};
use tprop_run::settings::typed;
use tprop_run::settings::{SettingError, Settings, Sources, Typed};

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
        let id = format!("{}-s{}-{}", settings.short_name(), settings.text("train.seed"), digits(&settings));
        Ok(Self { id, settings })
    }

    /// The settings that shape its numbers: trials that agree in them come to the same.
    pub fn shape(&self) -> String {
        key(&self.settings, |name| !neutral(name) && self.settings.applies(name))
    }

    /// Its settings as its process gets them: with data sets looked for in this directory first.
    pub fn located(&self, data_dir: Option<&str>) -> Settings {
        let mut settings = self.settings.clone();
        if let Some(dir) = data_dir {
            settings.replace_word("data.dir", dir.to_owned());
        }
        settings
    }

    /// The longest that it may train.
    pub fn epochs(&self) -> u64 {
        self.settings.train().epochs as u64
    }
}

/// What some of the settings say, as one text.
pub fn key(settings: &Settings, keep: impl Fn(&str) -> bool) -> String {
    TABLE.iter().filter(|s| keep(s.name)).map(|s| format!("{}={}\n", s.name, settings.text(s.name))).collect()
}

/// The end of a trial's name.
fn digits(settings: &Settings) -> String {
    let lines: String = settings.identity().iter().map(|(name, text)| format!("{name}={text}\n")).collect();
    Sha256::digest(lines).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
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

/// How far the run in a trial's directory is that can continue, or has ended; none where there is nothing, or what a run leaves that was
/// killed before its first checkpoint.
pub fn look(dir: &Path, trial: &Trial) -> Outcome<Option<Progress>> {
    // Settings are written last: without them the run was never begun.
    if !dir.join("settings.toml").is_file() {
        return Ok(None);
    }
    agree(dir, trial)?;
    // One that has ended is known by its record, even if its weights were removed; any other needs something to continue from.
    // The first checkpoint is written before the first update, and after everything else that a run consists of.
    let resumable = Store::open(dir.join("checkpoints")).steps().is_ok_and(|steps| !steps.is_empty());
    let path = dir.join("record.jsonl");
    if !resumable && !path.is_file() {
        return Ok(None);
    }
    let progress = match Record::read_whole(&path) {
        Ok(record) => Progress::from(record),
        // Behind the place of the newest checkpoint a power cut may leave anything; who resumes from there writes it again.
        Err(_) if Run::open(dir).is_ok_and(|run| run.newest(&run.store()).is_ok()) => {
            let known = Record::read(&path).map(|(record, _)| Progress::from(record)).unwrap_or_default();
            Progress { ended: None, ..known }
        }
        Err(e) => return Err(unusable(&path, &format!("cannot be read ({e})"))),
    };
    Ok(Some(progress).filter(|progress| resumable || progress.ended.is_some()))
}

/// A trial that came to a bad end which was noted elsewhere, with what its record tells, if there is one.
pub fn look_ended(dir: &Path, trial: &Trial, ended: Ended) -> Outcome<Progress> {
    if dir.join("settings.toml").is_file() {
        agree(dir, trial)?;
    }
    let known = Record::read_whole(&dir.join("record.jsonl")).map(Progress::from).unwrap_or_default();
    Ok(Progress { ended: Some(ended), ..known })
}

fn unusable(path: &Path, what: &str) -> Failure {
    Failure::input(format!("{}: {what}; --retry removes the run and makes it anew", path.display()))
}

/// Refuses a run that was made with other settings than the trial's: its name alone is no proof.
fn agree(dir: &Path, trial: &Trial) -> Outcome {
    let path = dir.join("settings.toml");
    let file = typed::read_file(&path)?;
    let theirs = Settings::recorded(file, Vec::new())?;
    // The source is part of the directory's name as it was typed; the run knows it by its full path, and writes down how many shares
    // `auto` was.
    let auto = trial.settings.shares().is_none();
    let shapes = |name: &&str| !neutral(name) && *name != "data.source" && !(auto && *name == "cluster.shares");
    let differ: Vec<_> = trial.settings.differences(&theirs).into_iter().filter(shapes).collect();
    match differ.is_empty() {
        true => Ok(()),
        false => Err(unusable(&path, &format!("this run was made with other settings ({})", differ.join(", ")))),
    }
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

    /// Under a trial's name only what was made with its settings is taken up, however it ended.
    #[test]
    fn runs_of_other_settings_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path();
        let one = trial(&["model.hidden=8", "synth.tokens=3000"]);
        let end = |dir: &Path| look_ended(dir, &one, Ended::Diverged("far".into())).map(|p| p.ended);
        let diverged = Some(Ended::Diverged("far".into()));
        assert_eq!(end(dir).unwrap(), diverged, "it may have ended before it wrote anything");
        let text = one.settings.to_toml();
        // What shapes no number may differ, and what came after the run is what it was then.
        let later = text.replace("keep = 3", "keep = 9").replace("staleness = 0\n", "");
        for text in [&text, &later] {
            fs::write(dir.join("settings.toml"), text).unwrap();
            assert!(matches!(look(dir, &one), Ok(None)));
            assert_eq!(end(dir).unwrap(), diverged);
        }
        for (from, to) in [("hidden = 8", "hidden = 9"), ("lr = 0.05", "lr = 0.06"), ("embed = 8\n", "")] {
            assert!(text.contains(from));
            fs::write(dir.join("settings.toml"), text.replace(from, to)).unwrap();
            for failure in [look(dir, &one).map(drop), end(dir).map(drop)].map(Result::unwrap_err) {
                assert!(failure.message.contains("made with other settings"), "{to}: {}", failure.message);
            }
        }
    }

    /// Every run that is kept has the name of the settings that it was made with.
    #[test]
    fn kept_runs_belong_to_their_settings() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
        let inside = |dir: &Path| fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>();
        let experiments = inside(&results).into_iter().chain(inside(&results.join("quick")));
        let runs: Vec<_> =
            experiments.map(|dir| dir.join("runs")).filter(|d| d.is_dir()).flat_map(|d| inside(&d)).collect();
        assert!(runs.len() > 600, "{}", runs.len());
        for run in runs {
            let file = typed::read_file(&run.join("settings.toml")).unwrap();
            let mut settings = Settings::recorded(file, Vec::new()).unwrap();
            // A trial leaves it to the program, which writes down its choice.
            settings.replace_word("cluster.shares", "auto".into());
            let name = run.file_name().unwrap().to_str().unwrap();
            let end = format!("-s{}-{}", settings.text("train.seed"), digits(&settings));
            assert!(name.ends_with(&end), "{}: its settings give {end}", run.display());
        }
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
