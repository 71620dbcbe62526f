//! What to do with an experiment, as a command asks for it.

use std::path::PathBuf;

/// What to do with an experiment.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Where its directory is.
    pub out: PathBuf,
    /// Trials side by side.
    pub jobs: usize,
    /// Where data sets are looked for first.
    pub data_dir: Option<String>,
    /// Run trials again that failed.
    pub retry: bool,
    /// Only say what it would take.
    pub dry_run: bool,
    /// Print JSON instead of Markdown.
    pub json: bool,
    /// No progress.
    pub quiet: bool,
    /// Parts of entries' names; all entries if empty.
    pub only: Vec<String>,
    /// The command that makes the same again.
    pub command: String,
    /// Whether entries whose text is not here are left out, and named, rather than refused.
    pub lenient: bool,
}
