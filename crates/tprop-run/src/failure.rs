//! How a command ends when it does not succeed: one sentence and an exit code.

use std::fmt::Display;
use std::io;

use tprop::checkpoint::CheckpointError;
use tprop::corpus::CorpusError;
use tprop::train::TrainError;
use tprop_report::ReportError;

use crate::room;
use crate::settings::SettingError;
use crate::wording;

/// Exit codes, as documented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The reader of our output went away; nobody is left to tell.
    Quiet = 0,
    /// Something failed.
    Failed = 1,
    /// Bad input or settings.
    Input = 2,
    /// Training diverged.
    Diverged = 3,
    /// No usable checkpoint.
    NoCheckpoint = 4,
    /// The disk is full or cannot be written.
    Disk = 5,
    /// The run directory is in use.
    InUse = 6,
    /// Stopped by Ctrl-C after saving.
    Interrupted = 130,
    /// Stopped by another signal, or because nobody reads our output any more, after saving.
    Terminated = 143,
}

/// Why a command did not succeed.
#[derive(Debug)]
pub struct Failure {
    /// For the shell.
    pub code: Code,
    /// For people; printed once, by `main`.
    pub message: String,
}

/// What a command comes to.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// With a code of its own.
    pub fn new(code: Code, message: impl Display) -> Self {
        Self { code, message: message.to_string() }
    }

    /// Bad input or settings.
    pub fn input(message: impl Display) -> Self {
        Self::new(Code::Input, message)
    }

    /// A file could not be written.
    pub fn disk(path: &std::path::Path, error: &io::Error) -> Self {
        Self::unwritten(path, error, None)
    }

    fn unwritten(path: &std::path::Path, error: &io::Error, needed: Option<u64>) -> Self {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let room = if full { room::words(path, needed) } else { String::new() };
        Self::new(Code::Disk, format!("{}: cannot be written ({error}){room}", path.display()))
    }

    /// Output could not be written: a reader that went away is no error, a full disk is.
    pub fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(Code::Quiet, ""),
            _ => Self::new(Code::Disk, format!("standard output cannot be written ({error})")),
        }
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::input(error)
    }
}

impl From<CorpusError> for Failure {
    fn from(error: CorpusError) -> Self {
        Self::input(wording::corpus_error(&error))
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::Disk { path, source } => {
                let failure = Self::disk(&path, &source);
                Self::new(failure.code, format!("{}; --out chooses another place", failure.message))
            }
            ReportError::NoRuns(_) | ReportError::NotOurs(_) => Self::input(error),
        }
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        match &error {
            CheckpointError::Io { path, source, needed: Some(needed) } => Self::unwritten(path, source, Some(*needed)),
            CheckpointError::Unreadable { source, .. } => {
                let expected = matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidInput);
                let code = if expected { Code::Input } else { Code::Disk };
                let way = "make it readable, or move it out of the run if it is lost, and try again";
                Self::new(code, format!("{error}; {way}"))
            }
            CheckpointError::Io { source, .. } if source.kind() != io::ErrorKind::NotFound => {
                Self::new(Code::Disk, error)
            }
            _ => Self::new(Code::NoCheckpoint, error),
        }
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        let sentence = wording::train_error(&error);
        match error {
            TrainError::OutsideVocabulary(_) | TrainError::TooShort { .. } | TrainError::Method(_) => {
                Self::input(sentence)
            }
            TrainError::Diverged { .. } => Self::new(Code::Diverged, sentence),
            TrainError::Checkpoint(_) => Self::new(Code::NoCheckpoint, sentence),
            TrainError::Watch(inner) => match inner.downcast::<Failure>() {
                Ok(failure) => *failure,
                Err(other) => Self::new(Code::Failed, other),
            },
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
