//! Reports: tables and plots as pure functions of run directories.
//!
//! ```text
//! read       run directories → RunData            what is broken is named, the rest kept
//! groups     what varies, which runs are seeds of one another, means and deviations
//! experiment table.json → an experiment's tables, and names for its runs
//! results, curves, grid → Document                tables, plots, commands
//! plot       → SVG;  html, markdown → files
//! ```
//!
//! Nothing is written before all input has been read, so that a mistyped path leaves no trace. The same runs give the same
//! files, byte for byte.

mod curves;
mod document;
mod experiment;
mod grid;
mod groups;
mod html;
mod markdown;
mod plot;
mod read;
mod results;
pub mod text;

use std::fs;
use std::path::{Path, PathBuf};

use crate::disk;
use crate::failure::{Failure, Outcome};

/// Plots and tables lie in this folder beside the page.
const FOLDER: &str = "report";
/// And this file in it names them, for the next report.
const LIST: &str = "files.txt";

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
    let mut problems = Vec::new();
    let found = read::find(paths, &mut problems).map_err(Failure::input)?;
    let experiments = experiment::find(&found, &mut problems);
    let mut runs: Vec<_> = found.iter().map(|(dir, name)| read::read(dir, name, &mut problems)).collect();
    let left_out = experiment::name(&mut runs, &experiments);
    let mut document = results::document(title, commands, &runs, &problems);
    document.sections.splice(0..0, experiment::section(&experiments, left_out));
    let folder = out.join(FOLDER);
    let mut files = vec![(out.join("report.html"), html::page(&document))];
    files.push((out.join("report.md"), markdown::text(&document, FOLDER)));
    files.extend(document.figures().iter().map(|f| (folder.join(format!("{}.svg", f.name)), f.plot.file())));
    files.extend(document.tables().iter().map(|t| (folder.join(format!("{}.csv", t.name)), markdown::csv(t))));
    check_ours(&files)?;
    fs::create_dir_all(&folder).map_err(|e| cannot(&folder, &e))?;
    let before = fs::read_to_string(folder.join(LIST)).unwrap_or_default();
    for (path, text) in &files {
        disk::write_shared(path, text.as_bytes()).map_err(|e| cannot(path, &e))?;
    }
    let files: Vec<PathBuf> = files.into_iter().map(|(path, _)| path).collect();
    // Plots and tables of the report before that are not in this one.
    let plain = |name: &&str| !name.is_empty() && !name.contains(['/', '\\']);
    for path in before.lines().filter(plain).map(|name| folder.join(name)).filter(|path| !files.contains(path)) {
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(cannot(&path, &e)),
            _ => {}
        }
    }
    let names = files[2..].iter().filter_map(|path| path.file_name()?.to_str()).map(|name| format!("{name}\n"));
    disk::write_shared(&folder.join(LIST), names.collect::<String>().as_bytes()).map_err(|e| cannot(&folder, &e))?;
    Ok(Written { html: files[0].clone(), files, runs: runs.len(), problems })
}

/// Refuses to replace what no report of ours has written: without our page, nothing there is ours.
fn check_ours(files: &[(PathBuf, String)]) -> Outcome {
    let page = fs::read_to_string(&files[0].0).unwrap_or_default();
    if page.contains(html::GENERATOR) {
        return Ok(());
    }
    match files.iter().find(|(path, _)| path.exists()) {
        Some((path, _)) => Err(Failure::input(format!(
            "{}: is there already, and no report of tprop has written it; --out chooses another place",
            path.display()
        ))),
        None => Ok(()),
    }
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    let mut failure = Failure::disk(path, error);
    failure.message += "; --out chooses another place";
    failure
}
