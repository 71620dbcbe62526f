//! Run directories → plain data. Whatever cannot be read is named, and the rest is kept.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tprop::vocab::printable;

use crate::record::Record;

/// Of a text that a run wrote, so much is shown.
const SAMPLE: u64 = 20_000;

/// Folders below a given one are searched so deep.
const DEPTH: usize = 16;

/// One setting of a run, with what the program knows about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Dotted name.
    pub name: String,
    /// Its value, as it is written.
    pub text: String,
    /// Its place among all settings that the program knows; the largest number for one that it does not know.
    pub rank: usize,
    /// Whether it can change a number of the run.
    pub shapes: bool,
    /// Whether it means something beside the run's other settings.
    pub applies: bool,
    /// Whether its values are numbers.
    pub number: bool,
}

/// What the program says about a `settings.toml`.
#[derive(Clone, Debug, Default)]
pub struct Described {
    /// Its settings, in its order.
    pub settings: Vec<Setting>,
    /// The fewest `name=value` that make the run again, if the program understands them all.
    pub words: Option<Vec<String>>,
    /// What is wrong with it, in a sentence.
    pub problem: Option<String>,
}

/// What a run directory holds.
#[derive(Clone, Debug, Default)]
pub struct RunData {
    /// Short and distinct among the runs of a report; as it is on the disk, not escaped.
    pub name: String,
    /// What an experiment calls it: the row of a table that it belongs to, shared with its seeds.
    pub label: Option<String>,
    /// Where it lies.
    pub dir: PathBuf,
    /// Its settings, in their file's order.
    pub settings: Vec<Setting>,
    /// The fewest `name=value` that make it again.
    pub words: Option<Vec<String>>,
    /// What was recorded.
    pub record: Record,
    /// Text that the trained model wrote.
    pub sample: Option<String>,
}

impl RunData {
    /// The text of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|s| s.name == name).map(|s| s.text.as_str())
    }

    /// The text of a setting that means something for this run; those of a method that is not in use do not.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|s| s.name == name && s.applies).map(|s| s.text.as_str())
    }

    /// The lowest validation perplexity.
    pub fn best_ppl(&self) -> Option<f64> {
        self.record.best(None).map(|e| e.valid_ppl).filter(|x| x.is_finite())
    }
}

/// The run directories at or below `roots`, each once, with the name that it has seen from its root.
///
/// # Errors
/// If one of them does not exist or holds no run.
pub fn find(roots: &[PathBuf], problems: &mut Vec<String>) -> Result<Vec<(PathBuf, String)>, String> {
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    let mut seen = HashSet::new();
    for root in roots {
        let shown = printable(&root.display().to_string());
        if !root.is_dir() {
            let what = if root.exists() { "not a directory" } else { "there is no such run or folder" };
            return Err(format!("{shown}: {what}; give run directories, or folders that hold some"));
        }
        let mut dirs = Vec::new();
        search(root, DEPTH, &mut dirs, problems).map_err(|e| format!("{shown}: cannot be read ({e})"))?;
        if dirs.is_empty() {
            return Err(format!("{shown}: no run in it (a run directory has settings.toml and record.jsonl)"));
        }
        for dir in dirs {
            let inside = dir.strip_prefix(root).unwrap_or(&dir).to_string_lossy().into_owned();
            let own = || folder_name(root).unwrap_or_else(|| "run".to_owned());
            let name = if inside.is_empty() { own() } else { inside };
            if seen.insert(dir.canonicalize().unwrap_or_else(|_| dir.clone())) {
                found.push((dir, name));
            }
        }
    }
    // Names that collide are told apart by the whole path.
    let mut names: HashMap<String, usize> = HashMap::new();
    found.iter().for_each(|(_, name)| *names.entry(name.clone()).or_default() += 1);
    for (dir, name) in &mut found {
        if names[name] > 1 {
            *name = dir.to_string_lossy().into_owned();
        }
    }
    found.sort_by_cached_key(|(_, name)| natural(name));
    Ok(found)
}

/// The name of a folder, also of one that was given as `.`.
pub fn folder_name(dir: &Path) -> Option<String> {
    let full = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let full = full.canonicalize().unwrap_or(full);
    full.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// Adds the run directories at or below `dir`; does not follow links, so that it always ends.
fn search(dir: &Path, depth: usize, found: &mut Vec<PathBuf>, problems: &mut Vec<String>) -> io::Result<()> {
    if dir.join("record.jsonl").is_file() || is_run_without_record(dir) {
        found.push(dir.to_owned());
        return Ok(());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if entry.file_type()?.is_dir() && !hidden {
            let inner = entry.path();
            if let Err(e) = search(&inner, depth - 1, found, problems) {
                problems.push(trouble(&inner, &format!("cannot be read ({e}); runs in it are left out")));
            }
        }
    }
    Ok(())
}

/// A run that was killed before its first line has settings and a place for checkpoints.
fn is_run_without_record(dir: &Path) -> bool {
    dir.join("settings.toml").is_file() && dir.join("checkpoints").is_dir()
}

/// Numbers inside names count as numbers: n2 comes before n10, and 0.05 before 0.1.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let word: String = rest.chars().take_while(|c| !c.is_ascii_digit()).collect();
        rest = &rest[word.len()..];
        let length = |text: &str| text.chars().take_while(char::is_ascii_digit).count();
        let mut end = length(rest);
        if let Some(fraction) = rest[end..].strip_prefix('.').map(length).filter(|n| *n > 0) {
            end += 1 + fraction;
        }
        // The bits of numbers from 0 up are in the order of the numbers.
        parts.push((word, rest[..end].parse().map_or(0, f64::to_bits)));
        rest = &rest[end..];
    }
    parts
}

/// Reads a run; what could not be read is added to `problems`, each with its file's name. `describe` tells about its settings.
pub fn read(dir: &Path, name: &str, describe: &dyn Fn(&Path) -> Described, problems: &mut Vec<String>) -> RunData {
    let described = describe(&dir.join("settings.toml"));
    problems.extend(described.problem.map(|what| printable(&what)));
    let path = dir.join("record.jsonl");
    let record = match Record::read(&path) {
        Ok((record, bad)) => {
            problems.extend(bad);
            if record.start.is_none() {
                problems.push(trouble(&path, "has no start event; is it a record of this program?"));
            }
            record
        }
        Err(e) => {
            problems.push(trouble(&path, &format!("cannot be read ({e}); the run is shown without results")));
            Record::default()
        }
    };
    let path = dir.join("sample.txt");
    let sample = match sample(&path) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => {
            problems.push(trouble(&path, &format!("cannot be read ({e}); left out")));
            None
        }
    };
    let (name, dir, (settings, words)) = (name.to_owned(), dir.to_owned(), (described.settings, described.words));
    RunData { name, label: None, dir, settings, words, record, sample }
}

fn sample(path: &Path) -> io::Result<String> {
    // A pipe would keep us waiting.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not an ordinary file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(SAMPLE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn trouble(path: &Path, what: &str) -> String {
    format!("{}: {what}", printable(&path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::natural;

    #[test]
    fn names_are_ordered_as_people_do() {
        let mut names = ["n10", "n2", "lr-0.1", "lr-0.05", "a", "n2-s10", "n2-s9", "0.5", "v1.", "é3"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["0.5", "a", "lr-0.05", "lr-0.1", "n2", "n2-s9", "n2-s10", "n10", "v1.", "é3"]);
    }
}
