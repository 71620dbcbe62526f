//! The `checkpoints/` folder of a run: in which order files appear and vanish.
//!
//! Writing: aside → sync → rename → sync the directory → read back and verify → only then prune older ones. At no moment is there
//! less than one whole checkpoint, once there has been one. There is no `latest` pointer: reading scans the directory and
//! verifies, newest first. A file that is whole but does not belong under its name (renamed, swapped, of another run) counts as bad.

use std::fs;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use super::{ReadError, Snapshot, hashes};
use crate::fault;
use crate::file::{self, Output, sync_dir};

/// The checkpoint with the best validation perplexity.
pub const BEST: &str = "best.safetensors";

/// In the metadata: which kind of file it is.
const KIND: &str = "kind";
/// In the metadata: which run it belongs to.
const RUN: &str = "run";

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
        /// Bytes that were to be written.
        needed: Option<u64>,
    },
    /// Not a checkpoint, or a damaged one.
    #[error("{path}: {reason}")]
    Bad {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Whole, but not of this place: of another run, under another's name, or of a history that this run has not had.
    #[error("{path}: {reason}")]
    Stranger {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It may be whole, but it cannot be read, so that nobody knows what would be lost without it.
    #[error("{path}: cannot be read ({source})")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// No file of the directory can be used.
    #[error("{dir}: no usable checkpoint{}", list(.tried))]
    None {
        /// The directory.
        dir: PathBuf,
        /// What was tried, and why each failed.
        tried: Vec<String>,
    },
}

fn list(tried: &[String]) -> String {
    tried.iter().map(|t| format!("\n  {t}")).collect()
}

impl CheckpointError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source, needed: None }
    }
}

/// What a checkpoint is saved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To resume from.
    Step,
    /// The best validation perplexity.
    Best,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Step => "step",
            Kind::Best => "best",
        }
    }
}

/// The newest usable checkpoint.
#[derive(Debug)]
pub struct Newest {
    /// Its file.
    pub name: String,
    /// What is in it.
    pub snapshot: Snapshot,
    /// Newer files that cannot be used, and why.
    pub bad: Vec<CheckpointError>,
}

/// The `checkpoints/` folder of a run.
///
/// ```
/// use tprop::checkpoint::{Kind, Snapshot, Store};
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let store = Store::open(folder);
/// for step in [10, 20] {
///     let mut snapshot = Snapshot::default();
///     snapshot.set_count("train.step", step);
///     store.write(Kind::Step, &mut snapshot)?;
/// }
/// let newest = store.newest()?;
/// assert_eq!(newest.snapshot.count("train.step"), Some(20));
/// store.prune(&newest.name, 1)?;
/// assert_eq!(store.steps()?, [Store::name(20)]);
/// # Ok::<(), tprop::checkpoint::CheckpointError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    run: Option<String>,
}

impl Store {
    /// A folder that exists.
    pub fn open(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), run: None }
    }

    /// The same for one run alone: files that name another one are refused.
    #[must_use]
    pub fn of_run(mut self, run: Option<String>) -> Self {
        self.run = run;
        self
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes of all checkpoints that are there.
    pub fn bytes(&self) -> u64 {
        let files = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let ours = files.filter(|file| file.path().extension().is_some_and(|end| end == "safetensors"));
        ours.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
    }

    /// Name of the checkpoint of an update.
    pub fn name(step: u64) -> String {
        format!("step-{step:010}.safetensors")
    }

    /// Marks a snapshot as one of this folder's.
    fn mark(&self, snapshot: &mut Snapshot, kind: Kind) {
        snapshot.meta.insert(KIND.into(), kind.name().into());
        if let Some(run) = &self.run {
            snapshot.meta.insert(RUN.into(), run.clone());
        }
    }

    /// Writes a checkpoint under the name of its kind; what stood there is replaced only by a whole new file. Returns its size.
    ///
    /// # Errors
    /// If the file system fails; older checkpoints are then as they were.
    pub fn write(&self, kind: Kind, snapshot: &mut Snapshot) -> Result<u64, CheckpointError> {
        self.mark(snapshot, kind);
        let name = match kind {
            Kind::Step => Self::name(snapshot.count("train.step").unwrap_or(0)),
            Kind::Best => BEST.to_owned(),
        };
        let (path, aside) = (self.dir.join(&name), self.dir.join(format!("{name}.tmp")));
        let size = snapshot.size();
        let hash = write_aside(&aside, snapshot, size).map_err(|source| {
            let _ = file::remove(&aside);
            CheckpointError::Io { path: aside.clone(), source, needed: Some(size) }
        })?;
        file::rename(&aside, &path)
            .and_then(|()| fault::at("save.after_rename"))
            .map_err(CheckpointError::io(&path))?;
        let synced = sync_dir(&self.dir).and_then(|()| fault::at("save.after_dir_sync"));
        synced.map_err(CheckpointError::io(&self.dir))?;
        let mut file = file::open(&path).map_err(CheckpointError::io(&path))?;
        match hashes(&mut file, size) {
            Ok((found, stated)) if found == hash && stated == hash => {}
            Err(ReadError::Io(source)) => return Err(CheckpointError::io(&path)(source)),
            _ => {
                let reason = "what was read back is not what was written: the disk is not to be trusted".into();
                return Err(CheckpointError::Bad { path, reason });
            }
        }
        fault::at("save.after_verify").map_err(CheckpointError::io(&path))?;
        Ok(size)
    }

    /// Reads and verifies one checkpoint; it must be what its name says.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or belongs elsewhere.
    pub fn read(&self, name: &str) -> Result<Snapshot, CheckpointError> {
        let path = self.dir.join(name);
        let snapshot = read(&path)?;
        match self.stranger(name, &snapshot) {
            Some(reason) => Err(CheckpointError::Stranger { path, reason }),
            None => Ok(snapshot),
        }
    }

    /// Why a whole checkpoint does not belong under this name.
    fn stranger(&self, name: &str, snapshot: &Snapshot) -> Option<String> {
        let (kind, step) = (snapshot.meta.get(KIND).map(String::as_str), snapshot.count("train.step"));
        let best = name == BEST;
        let step = step.map_or("no update".to_owned(), |step| format!("update {step}"));
        match (&self.run, snapshot.meta.get(RUN)) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                return Some(format!("a checkpoint of another run ({})", crate::vocab::printable(theirs)));
            }
            _ => {}
        }
        // Files of the first versions do not say their kind.
        if kind.is_some_and(|kind| kind != if best { "best" } else { "step" }) {
            let other = if best { "one to resume from" } else { "the best" };
            return Some(format!("a checkpoint of {step} that was saved as {other}; it has been renamed or swapped"));
        }
        if !best && name.starts_with("step-") && Some(name) != snapshot.count("train.step").map(Self::name).as_deref() {
            return Some(format!("a checkpoint of {step}; it has been renamed or swapped"));
        }
        None
    }

    /// Names of the step checkpoints, newest first.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn steps(&self) -> Result<Vec<String>, CheckpointError> {
        let mut names: Vec<String> = self.names()?;
        names.retain(|name| name.starts_with("step-") && name.ends_with(".safetensors"));
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(names)
    }

    fn names(&self) -> Result<Vec<String>, CheckpointError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(CheckpointError::io(&self.dir))? {
            let entry = entry.map_err(CheckpointError::io(&self.dir))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }

    /// The newest checkpoint that is whole, and what was wrong with newer ones.
    ///
    /// # Errors
    /// If there is none; the error lists what was tried. If a newer one cannot be read: it may be whole.
    pub fn newest(&self) -> Result<Newest, CheckpointError> {
        self.newest_unless(|_| Ok(None))
    }

    /// The same of those against which `unfit` has no reason.
    ///
    /// # Errors
    /// As [`Store::newest`], and what `unfit` fails with.
    pub fn newest_unless(
        &self,
        unfit: impl Fn(&Snapshot) -> Result<Option<String>, CheckpointError>,
    ) -> Result<Newest, CheckpointError> {
        let mut bad = Vec::new();
        for name in self.steps()? {
            match self.read(&name) {
                Ok(snapshot) => match unfit(&snapshot)? {
                    None => return Ok(Newest { name, snapshot, bad }),
                    Some(reason) => bad.push(CheckpointError::Stranger { path: self.dir.join(&name), reason }),
                },
                Err(e @ CheckpointError::Unreadable { .. }) => return Err(e),
                Err(e) => bad.push(e),
            }
        }
        let tried = bad.iter().map(ToString::to_string).collect();
        Err(CheckpointError::None { dir: self.dir.clone(), tried })
    }

    /// Renames files that cannot be used, so that nobody takes them for the newest again: damaged ones to `….bad`, which are removed
    /// in time; whole ones to `….aside`, which stay. The new names are on the disk when this returns.
    ///
    /// # Errors
    /// If the file system fails.
    pub fn set_aside(&self, bad: &[CheckpointError]) -> Result<(), CheckpointError> {
        for error in bad {
            let (path, ending) = match error {
                CheckpointError::Bad { path, .. } => (path, ".bad"),
                CheckpointError::Stranger { path, .. } => (path, ".aside"),
                _ => continue,
            };
            let mut aside = path.clone().into_os_string();
            aside.push(ending);
            file::rename(path, aside.as_ref()).map_err(CheckpointError::io(path))?;
        }
        if bad.is_empty() { Ok(()) } else { sync_dir(&self.dir).map_err(CheckpointError::io(&self.dir)) }
    }

    /// Of the step checkpoints up to `newest`, which this process wrote or verified last, removes all but the last `keep`; and what
    /// interrupted writes left. What has a later number is not counted: it is none of this run, or was not read.
    ///
    /// # Errors
    /// If the file system fails.
    pub fn prune(&self, newest: &str, keep: usize) -> Result<(), CheckpointError> {
        for name in self.steps()?.iter().filter(|name| name.as_str() <= newest).skip(keep.max(1)) {
            let path = self.dir.join(name);
            let removed = file::remove(&path).and_then(|()| fault::at("save.mid_prune"));
            removed.map_err(CheckpointError::io(&path))?;
        }
        self.sweep(&[".tmp", ".bad"])?;
        fault::at("save.after_prune").map_err(CheckpointError::io(&self.dir))
    }

    /// Removes files (not directories, which are not ours) whose names end so.
    ///
    /// # Errors
    /// If the file system fails.
    pub fn sweep(&self, ends: &[&str]) -> Result<(), CheckpointError> {
        for name in self.names()? {
            if ends.iter().any(|end| name.ends_with(end)) {
                let path = self.dir.join(name);
                if !path.is_dir() {
                    file::remove(&path).map_err(CheckpointError::io(&path))?;
                }
            }
        }
        Ok(())
    }
}

/// Writes and syncs a file that nobody looks at yet. Returns its hash.
fn write_aside(path: &Path, snapshot: &Snapshot, size: u64) -> io::Result<String> {
    fault::at("save.before_write")?;
    let mut out = BufWriter::new(Output::create(path)?);
    if let Err(e) = fault::at("save.mid_write") {
        // A disk that is full takes the first half.
        out.write_all(&vec![0; size as usize / 2])?;
        out.flush()?;
        return Err(e);
    }
    let hash = snapshot.write_to(&mut out)?;
    out.seek(io::SeekFrom::End(0))?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    fault::at("save.after_write")?;
    file.sync()?;
    fault::at("save.after_sync")?;
    Ok(hash)
}

/// Reads and verifies a checkpoint file.
///
/// # Errors
/// If it cannot be read or is damaged.
pub fn read(path: &Path) -> Result<Snapshot, CheckpointError> {
    let open = || -> Result<Snapshot, ReadError> {
        let meta = fs::metadata(path)?;
        if !meta.is_file() {
            return Err(ReadError::Bad("not an ordinary file".into()));
        }
        Snapshot::read_from(&mut file::open(path)?, meta.len())
    };
    open().map_err(|error| match error {
        ReadError::Io(source) if source.kind() == io::ErrorKind::NotFound => CheckpointError::io(path)(source),
        ReadError::Io(source) => CheckpointError::Unreadable { path: path.to_owned(), source },
        ReadError::Bad(reason) => CheckpointError::Bad { path: path.to_owned(), reason },
    })
}
