//! Reports: tables and plots as pure functions of run directories. Knows nothing of the program that trains; what it must know about
//! settings it is told by a function ([`run::Described`]).
//!
//! A module uses only those above it:
//!
//! ```text
//! numbers, text, files                  how things are written; nothing here knows of runs
//! table, plot, document                 tables, plots, and pages of both
//! html, markdown                        a document as a page or as text
//! record, run                           run directories as plain data; what is broken is named, the rest kept
//! groups                                what varies, which runs are seeds of one another, means and deviations
//! comparison, curves, results           what a document says about runs
//! experiment                            what an experiment's own table adds, and names for its runs
//! ```
//!
//! Nothing is written before all input has been read, so that a mistyped path leaves no trace. The same runs give the same
//! files, byte for byte.

pub mod numbers;
pub mod text;
pub mod files;
pub mod table;
mod plot;
mod document;
mod html;
mod markdown;
pub mod record;
pub mod run;
mod groups;
mod comparison;
mod curves;
mod results;
mod experiment;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use run::Described;

/// Plots and tables lie in this folder beside the page.
const FOLDER: &str = "report";
/// And this file in it names them, for the next report.
const LIST: &str = "files.txt";

/// What [`write()`] made.
#[derive(Debug)]
pub struct Written {
    /// The page.
    pub html: PathBuf,
    /// All files, the page among them.
    pub files: Vec<PathBuf>,
    /// How many runs it is about.
    pub runs: usize,
    /// What could not be read, one sentence each.
    pub problems: Vec<String>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// There is nothing to report about.
    #[error("{0}")]
    NoRuns(String),
    /// Something else stands where the report would be.
    #[error("{}: is there already, and no report of tprop has written it; --out chooses another place", .0.display())]
    NotOurs(PathBuf),
    /// A file could not be written.
    #[error("{}: cannot be written ({source})", .path.display())]
    Disk {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Writes a report about the runs at or below `paths` into the folder `out`: `report.html`, `report.md` and, in `out/report/`,
/// each table as CSV and each plot as SVG. `commands` are shown as what made it all; they may be empty. `describe` says what the
/// program knows about a `settings.toml`.
///
/// # Errors
/// If there are no runs, or if the report cannot be written there.
pub fn write(
    paths: &[PathBuf],
    out: &Path,
    title: &str,
    commands: &[String],
    describe: &dyn Fn(&Path) -> Described,
) -> Result<Written, ReportError> {
    let mut problems = Vec::new();
    let found = run::find(paths, &mut problems).map_err(ReportError::NoRuns)?;
    let experiments = experiment::find(&found, &mut problems);
    let mut runs: Vec<_> = found.iter().map(|(dir, name)| run::read(dir, name, describe, &mut problems)).collect();
    let left_out = experiment::name(&mut runs, &experiments);
    let mut document = results::document(title, commands, &runs, &problems);
    document.sections.splice(0..0, experiment::section(&experiments, left_out));
    let folder = out.join(FOLDER);
    let mut files = vec![(out.join("report.html"), html::page(&document))];
    files.push((out.join("report.md"), markdown::text(&document, FOLDER)));
    files.extend(document.figures().map(|f| (folder.join(format!("{}.svg", f.name)), f.plot.file())));
    files.extend(document.tables().map(|t| (folder.join(format!("{}.csv", t.name)), t.csv("\n"))));
    check_ours(&files)?;
    replace(&folder, &files)?;
    let files: Vec<PathBuf> = files.into_iter().map(|(path, _)| path).collect();
    Ok(Written { html: files[0].clone(), files, runs: runs.len(), problems })
}

/// Writes the files and removes plots and tables of the report before that are not in this one.
fn replace(folder: &Path, files: &[(PathBuf, String)]) -> Result<(), ReportError> {
    let disk = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError::Disk { path, source }
    };
    fs::create_dir_all(folder).map_err(disk(folder))?;
    let list = folder.join(LIST);
    let before = fs::read_to_string(&list).unwrap_or_default();
    for (path, text) in files {
        files::write_shared(path, text.as_bytes()).map_err(disk(path))?;
    }
    let plain = |name: &&str| !name.is_empty() && !name.contains(['/', '\\']);
    let ours = |path: &PathBuf| files.iter().any(|(ours, _)| ours == path);
    for path in before.lines().filter(plain).map(|name| folder.join(name)).filter(|path| !ours(path)) {
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(disk(&path)(e)),
            _ => {}
        }
    }
    let inside = files.iter().filter(|(path, _)| path.parent() == Some(folder));
    let names: String = inside.filter_map(|(path, _)| Some(format!("{}\n", path.file_name()?.to_str()?))).collect();
    files::write_shared(&list, names.as_bytes()).map_err(disk(folder))
}

/// Refuses to replace what no report of ours has written: without our page, nothing there is ours.
fn check_ours(files: &[(PathBuf, String)]) -> Result<(), ReportError> {
    let page = fs::read_to_string(&files[0].0).unwrap_or_default();
    match files.iter().find(|(path, _)| path.exists()) {
        Some((path, _)) if !page.contains(html::GENERATOR) => Err(ReportError::NotOurs(path.clone())),
        _ => Ok(()),
    }
}
