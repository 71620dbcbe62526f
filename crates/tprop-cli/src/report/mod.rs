//! Reports: tables and plots as pure functions of run directories.
//!
//! ```text
//! read      run directories → RunData          what is broken is named, the rest kept
//! ```
//!
//! Nothing is written before all input has been read, so that a mistyped path leaves no trace.

mod read;

use std::path::{Path, PathBuf};

use crate::failure::{Failure, Outcome};

/// What [`write`] made.
#[derive(Debug)]
pub struct Written {
    /// The page.
    pub html: PathBuf,
    /// All files, the page among them.
    pub files: Vec<PathBuf>,
    /// How many runs it tells about.
    pub runs: usize,
    /// What could not be read, one sentence each.
    pub problems: Vec<String>,
}

/// Writes a report about the runs at or below `paths` into the folder `out`: `report.html`, `report.md` and, in `out/report/`,
/// each table as CSV and each plot as SVG. `commands` are shown as what made it all; they may be empty.
pub fn write(paths: &[PathBuf], out: &Path, title: &str, commands: &[String]) -> Outcome<Written> {
    let _ = (title, commands);
    let mut problems = Vec::new();
    let runs: Vec<_> = read::find(paths)
        .map_err(Failure::input)?
        .iter()
        .map(|(dir, name)| read::read(dir, name, &mut problems))
        .collect();
    Ok(Written { html: out.join("report.html"), files: Vec::new(), runs: runs.len(), problems })
}
