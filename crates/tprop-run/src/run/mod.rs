//! A run's directory: made once, owned by one process, read by many.
//!
//! ```text
//! settings.toml   record.jsonl   sessions.jsonl   tokenizer.json   checkpoints/   lock
//! ```
//!
//! `settings.toml` is written last, behind the checkpoint of update 0: what has it can be resumed; what does not was never
//! begun, and a new run may take its place.

mod lock;
pub mod sessions;

pub use lock::Lock;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tprop::checkpoint::{BEST, CheckpointError, Newest, Snapshot, Store};
use tprop::file;
use tprop::model::Model;
use tprop::params::Params;
use tprop::record;
use tprop::vocab::Vocab;

use crate::disk;
use crate::failure::{Code, Failure, Outcome};
use crate::settings::{Settings, Typed, typed};

/// A run's directory.
#[derive(Clone, Debug)]
pub struct Run {
    dir: PathBuf,
}

/// Where a checkpoint says how many bytes the record had when it was made, and their hash.
pub const RECORD_LENGTH: &str = "record";
/// The same for the hash.
pub const RECORD_HASH: &str = "record_sha256";

/// Bytes that the record had when a checkpoint was made.
pub fn record_length(snapshot: &Snapshot) -> u64 {
    snapshot.meta.get(RECORD_LENGTH).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The files of a run that was never begun.
const BEGINNING: [&str; 7] = [
    "lock",
    "checkpoints",
    "tokenizer.json",
    "tokenizer.json.tmp",
    "record.jsonl",
    "sessions.jsonl",
    "settings.toml.tmp",
];

impl Run {
    /// Refuses a place where no new run can be made, before any work is done.
    pub fn check_free(dir: &Path) -> Outcome {
        let run = Self { dir: dir.to_owned() };
        match fs::read_dir(dir) {
            Ok(_) if Lock::is_taken(&run.path("lock")) => Err(run.in_use()),
            Ok(_) if run.path("settings.toml").is_file() => Err(Failure::input(format!(
                "{0}: there is a run already; choose another --run, or continue it with `tprop resume {0}`",
                dir.display()
            ))),
            Ok(_) if !run.never_begun() => Err(run.not_empty()),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                Err(Failure::input(format!("{}: not a directory; choose another --run", dir.display())))
            }
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Failure::disk(dir, &e)),
            _ => disk::check_writable(dir),
        }
    }

    /// Whether all that is here was left by a program of ours that ended before its run began.
    fn never_begun(&self) -> bool {
        let names = |dir: &Path| -> Option<Vec<String>> {
            let entries: Result<Vec<_>, _> = fs::read_dir(dir).ok()?.collect();
            Some(entries.ok()?.iter().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
        };
        let Some(here) = names(&self.dir) else { return false };
        let checkpoints = self.path("checkpoints");
        let inside = if checkpoints.exists() { names(&checkpoints) } else { Some(Vec::new()) };
        // `train` begins with the state of update 0, `import` with the best one: a run that has come further has others beside them.
        let first = [Store::name(0), BEST.to_owned()];
        here.iter().all(|name| BEGINNING.contains(&name.as_str()))
            && (here.iter().all(|name| name == "lock") || Lock::was_taken(&self.path("lock")))
            && inside.is_some_and(|names| names.iter().all(|name| first.iter().any(|first| name.starts_with(first))))
    }

    /// Makes the directory `dir`, or a new one under `runs/`, and takes it.
    pub fn create(dir: Option<&Path>, short_name: &str) -> Outcome<(Self, Lock)> {
        let dir = match dir {
            Some(dir) => {
                file::create_dir_all(dir).map_err(|e| Failure::disk(dir, &e))?;
                dir.to_owned()
            }
            None => new_under(Path::new("runs"), short_name)?,
        };
        let run = Self { dir };
        // Where nothing of ours is, not even a lock may be left.
        if !run.path("lock").exists() && !run.never_begun() {
            return Err(run.not_empty());
        }
        let lock = run.lock()?;
        // Looked at again behind the lock: someone else may have been here in between.
        if !run.never_begun() {
            return Err(run.not_empty());
        }
        for name in BEGINNING.iter().filter(|name| **name != "lock" && **name != "checkpoints") {
            match file::remove(&run.path(name)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Failure::disk(&run.path(name), &e)),
                _ => {}
            }
        }
        let checkpoints = run.path("checkpoints");
        file::create_dir_all(&checkpoints).map_err(|e| Failure::disk(&checkpoints, &e))?;
        run.store().sweep(&[""])?;
        Ok((run, lock))
    }

    /// A run that is there.
    pub fn open(dir: &Path) -> Outcome<Self> {
        let run = Self { dir: dir.to_owned() };
        if !dir.is_dir() {
            return Err(Failure::input(format!("{}: there is no such run", dir.display())));
        }
        if !run.path("settings.toml").is_file() {
            if Lock::is_taken(&run.path("lock")) {
                return Err(run.in_use());
            }
            if run.path("lock").is_file() && run.never_begun() {
                return Err(Failure::input(format!(
                    "{0}: this run was never begun (its program ended before the first checkpoint was whole); \
                     train it again with --run {0}",
                    dir.display()
                )));
            }
            let message = format!("{}: not a run of this program (no settings.toml in it)", dir.display());
            return Err(Failure::input(message));
        }
        Ok(run)
    }

    /// Takes the directory for writing.
    pub fn lock(&self) -> Outcome<Lock> {
        Lock::take(&self.path("lock"), &self.dir)
    }

    fn in_use(&self) -> Failure {
        lock::in_use(&self.path("lock"), &self.dir)
    }

    fn not_empty(&self) -> Failure {
        Failure::input(format!("{}: exists and is not empty; choose another --run", self.dir.display()))
    }

    /// The directory as the user may type it.
    pub fn name(&self) -> String {
        self.dir.display().to_string()
    }

    /// A file of the run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Its checkpoints.
    pub fn store(&self) -> Store {
        Store::open(self.path("checkpoints"))
    }

    /// The newest of its checkpoints that is whole and was made with the record that is here, however that continued since.
    ///
    /// # Errors
    /// If there is none, or a newer one or the record cannot be read.
    pub fn newest(&self, store: &Store) -> Result<Newest, CheckpointError> {
        let path = self.path("record.jsonl");
        store.newest_unless(|snapshot| {
            let hash = snapshot.meta.get(RECORD_HASH).map(String::as_str);
            let other = record::other_record(&path, record_length(snapshot), hash);
            other.map_err(|source| CheckpointError::Unreadable { path: path.clone(), source })
        })
    }

    /// Writes one of its files; what stood there is replaced only by the whole new one.
    pub fn write(&self, name: &str, text: &str) -> Outcome {
        let path = self.path(name);
        disk::write_whole(&path, text.as_bytes()).map_err(|e| Failure::disk(&path, &e))
    }

    /// The settings that a checkpoint was made with, where it says.
    pub fn settings_of(&self, snapshot: &Snapshot) -> Outcome<Option<Settings>> {
        let Some(text) = snapshot.meta.get("settings") else { return Ok(None) };
        let file = typed::read_text(text, Path::new("the checkpoint's settings"))?;
        Ok(Some(Settings::recorded(file, Vec::new())?))
    }

    /// Its settings.
    pub fn settings(&self) -> Outcome<Settings> {
        self.settings_with(Vec::new())
    }

    /// Its settings, some of them changed.
    pub fn settings_with(&self, arguments: Vec<Typed>) -> Outcome<Settings> {
        let file = typed::read_file(&self.path("settings.toml"))?;
        Ok(Settings::recorded(file, arguments)?)
    }

    /// Its vocabulary.
    pub fn vocab(&self) -> Outcome<Vocab> {
        read_vocab(&self.path("tokenizer.json"))
    }

    /// A checkpoint by name, or the best one, or the newest if none was the best yet.
    pub fn checkpoint(&self, name: Option<&str>) -> Outcome<(String, Snapshot)> {
        let store = self.store();
        if let Some(name) = name {
            // Only names: a path would read files of somewhere else.
            let inside = Path::new(name).components().count() == 1 && !name.contains(['/', '\\']);
            let file = if name.ends_with(".safetensors") { name.to_owned() } else { format!("{name}.safetensors") };
            if !inside || !store.dir().join(&file).is_file() {
                let mut names = store.steps().unwrap_or_default();
                names.extend(store.dir().join(BEST).is_file().then(|| BEST.to_owned()));
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(Failure::new(
                    Code::NoCheckpoint,
                    format!(
                        "{}: no checkpoint {}; there are: {names}",
                        self.dir.display(),
                        tprop::vocab::printable(name)
                    ),
                ));
            }
            return Ok((file.clone(), store.read(&file)?));
        }
        if store.dir().join(BEST).is_file() {
            return Ok((BEST.to_owned(), store.read(BEST)?));
        }
        let newest = store.newest()?;
        Ok((newest.name, newest.snapshot))
    }
}

/// Everything that is needed to use a trained model.
#[derive(Debug)]
pub struct Loaded {
    /// Where it comes from.
    pub settings: Settings,
    /// Words and tokens.
    pub vocab: Vocab,
    /// Shape.
    pub model: Model<f32>,
    /// θ
    pub params: Params<f32>,
    /// The checkpoint's file.
    pub checkpoint: String,
}

impl Loaded {
    /// The model of a run.
    pub fn open(dir: &Path, checkpoint: Option<&str>) -> Outcome<Self> {
        let run = Run::open(dir)?;
        let settings = run.settings()?;
        let vocab = run.vocab()?;
        let model = Model::<f32>::new(settings.model(vocab.len()));
        let (checkpoint, snapshot) = run.checkpoint(checkpoint)?;
        let params = snapshot.params(model.shapes()).map_err(|e| {
            let run = dir.display();
            Failure::new(Code::NoCheckpoint, format!("{run}: {checkpoint} does not fit the run's settings.toml: {e}"))
        })?;
        Ok(Self { settings, vocab, model, params, checkpoint })
    }
}

/// Reads a `tokenizer.json`.
pub fn read_vocab(path: &Path) -> Outcome<Vocab> {
    let file = file::open(path).map_err(|e| Failure::input(format!("{}: cannot be read ({e})", path.display())))?;
    Vocab::read_tokenizer_json(file).map_err(|e| Failure::input(format!("{}: {e}", path.display())))
}

/// The first free `parent/DATE-NAME-N`.
fn new_under(parent: &Path, name: &str) -> Outcome<PathBuf> {
    file::create_dir_all(parent).map_err(|e| Failure::disk(parent, &e))?;
    let date = today();
    for n in 1..100_000 {
        let dir = parent.join(format!("{date}-{name}-{n}"));
        match file::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Failure::disk(&dir, &e)),
        }
    }
    Err(Failure::input(format!("{}: too many runs of today; name one with --run", parent.display())))
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

fn today() -> String {
    let (year, month, day) = civil(seconds() / 86_400);
    format!("{year}-{month:02}-{day:02}")
}

/// Now, in UTC.
pub fn now() -> String {
    let s = seconds() % 86_400;
    format!("{}T{:02}:{:02}:{:02}Z", today(), s / 3600, s / 60 % 60, s % 60)
}

/// A name that no other run has: the moment and the process that made it.
pub fn new_id() -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    format!("{nanos:x}-{:x}", std::process::id())
}

/// Year, month and day (UTC) of a number of days since 1970-01-01; years begin in March, so that leap days come last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153; // from March
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year_of_era + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::civil;

    #[test]
    fn dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(10_956), (1999, 12, 31));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_772), (2026, 11, 15));
        assert_eq!(civil(47_540), (2100, 2, 28));
        assert_eq!(civil(47_541), (2100, 3, 1));
    }
}
