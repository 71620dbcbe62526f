//! Run directories → plain data. Whatever cannot be read is named, and the rest is kept.
//!
//! Records are read as loose JSON rather than as events of this version, so that older and newer ones can be shown too.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tprop::vocab::printable;

use crate::settings::{Settings, Sources, typed};

/// A line of a record that is longer than this is not one of ours.
const LONGEST_LINE: u64 = 16 << 20;
/// Of a text that a run wrote, so much is shown.
const SAMPLE: u64 = 20_000;
/// So many bad lines of a record are told one by one.
const TOLD: usize = 3;

/// Folders below a given one are searched so deep.
const DEPTH: usize = 16;

/// One line of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Row(Map<String, Value>);

impl Row {
    /// A finite number.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.0.get(key)?.as_f64().filter(|x| x.is_finite())
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    /// A list of numbers.
    pub fn numbers(&self, key: &str) -> Vec<f64> {
        let list = self.0.get(key).and_then(Value::as_array);
        list.map_or(Vec::new(), |l| l.iter().map_while(Value::as_f64).collect())
    }

    /// An object inside.
    pub fn inner(&self, key: &str) -> Option<Row> {
        self.0.get(key)?.as_object().cloned().map(Row)
    }
}

/// What a run directory holds.
#[derive(Clone, Debug)]
pub struct RunData {
    /// Short and distinct among the runs of a report; as it is on the disk, not escaped.
    pub name: String,
    /// What an experiment calls it: the row of a table that it belongs to, shared with its seeds.
    pub label: Option<String>,
    /// Where it lies.
    pub dir: PathBuf,
    /// Dotted names and values of `settings.toml`, in its order.
    pub settings: Vec<(String, String)>,
    /// The same as this program understands them.
    pub resolved: Option<Settings>,
    /// The first line.
    pub start: Option<Row>,
    /// Steps in order.
    pub steps: Vec<Row>,
    /// Evaluations in order.
    pub evals: Vec<Row>,
    /// The last line, if the run came to an end.
    pub end: Option<Row>,
    /// Text that the trained model wrote.
    pub sample: Option<String>,
}

impl RunData {
    /// The text of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(n, _)| n == name).map(|(_, text)| text.as_str())
    }

    /// The evaluation with the lowest validation perplexity.
    pub fn best(&self) -> Option<&Row> {
        let known = self.evals.iter().filter(|e| e.number("valid_ppl").is_some());
        known.min_by(|a, b| a.number("valid_ppl").unwrap_or(0.0).total_cmp(&b.number("valid_ppl").unwrap_or(0.0)))
    }

    /// Its validation perplexity.
    pub fn best_ppl(&self) -> Option<f64> {
        self.best().and_then(|e| e.number("valid_ppl"))
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
            let name = if inside.is_empty() { last_name(root) } else { inside };
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

fn last_name(dir: &Path) -> String {
    let full = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let full = full.canonicalize().unwrap_or(full);
    full.file_name().map_or_else(|| "run".to_owned(), |n| n.to_string_lossy().into_owned())
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

/// Reads a run; what could not be read is added to `problems`, each with its file's name.
pub fn read(dir: &Path, name: &str, problems: &mut Vec<String>) -> RunData {
    let (settings, resolved) = read_settings(&dir.join("settings.toml"), problems);
    let mut run = RunData {
        name: name.to_owned(),
        label: None,
        dir: dir.to_owned(),
        settings,
        resolved,
        start: None,
        steps: Vec::new(),
        evals: Vec::new(),
        end: None,
        sample: None,
    };
    let record = dir.join("record.jsonl");
    if let Err(e) = read_record(&record, &mut run, problems) {
        problems.push(trouble(&record, &format!("cannot be read ({e}); the run is shown without results")));
    }
    let sample = dir.join("sample.txt");
    match open(&sample) {
        Ok(file) => {
            let mut bytes = Vec::new();
            match file.take(SAMPLE).read_to_end(&mut bytes) {
                Ok(_) => run.sample = Some(String::from_utf8_lossy(&bytes).into_owned()),
                Err(e) => problems.push(trouble(&sample, &format!("cannot be read ({e}); left out"))),
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => problems.push(trouble(&sample, &format!("cannot be read ({e}); left out"))),
    }
    run
}

/// An ordinary file; a pipe would keep us waiting.
fn open(path: &Path) -> io::Result<File> {
    if fs::metadata(path)?.is_file() { File::open(path) } else { Err(io::Error::other("not an ordinary file")) }
}

fn trouble(path: &Path, what: &str) -> String {
    format!("{}: {what}", printable(&path.display().to_string()))
}

fn read_settings(path: &Path, problems: &mut Vec<String>) -> (Vec<(String, String)>, Option<Settings>) {
    let file = match typed::read_file(path) {
        Ok(file) => file,
        Err(e) => {
            problems.push(printable(&format!("{e}; the run is shown without settings")));
            return (Vec::new(), None);
        }
    };
    let pairs = file.iter().map(|t| (t.name.clone(), t.text.clone())).collect();
    match Settings::resolve(&Sources { file, arguments: Vec::new() }) {
        Ok(settings) => (pairs, Some(settings)),
        Err(e) => {
            problems.push(printable(&format!("{e}; they are shown as they are, without a short command")));
            (pairs, None)
        }
    }
}

fn read_record(path: &Path, run: &mut RunData, problems: &mut Vec<String>) -> io::Result<()> {
    let mut reader = BufReader::new(open(path)?);
    let mut line = Vec::new();
    let mut bad = 0;
    let mut tell = |number: usize, what: &str, problems: &mut Vec<String>| {
        bad += 1;
        match bad.cmp(&(TOLD + 1)) {
            std::cmp::Ordering::Less => problems.push(trouble(path, &format!("line {number}: {what}; left out"))),
            std::cmp::Ordering::Equal => problems.push(trouble(path, "more such lines; left out")),
            std::cmp::Ordering::Greater => {}
        }
    };
    for number in 1.. {
        line.clear();
        let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? as u64;
        if read == 0 {
            break;
        }
        if line.last() != Some(&b'\n') {
            if read == LONGEST_LINE {
                tell(number, "too long to be an event", problems);
                skip_line(&mut reader)?;
                continue;
            }
            // A run that is being written, or was killed while writing: its last line has no end yet.
            break;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<Value>(&line) {
            Ok(Value::Object(map)) => {
                if let Err(what) = take(run, Row(map)) {
                    tell(number, what, problems);
                }
            }
            Ok(_) => tell(number, "not an object", problems),
            Err(e) => tell(number, &format!("not JSON ({e})"), problems),
        }
    }
    if run.start.is_none() {
        problems.push(trouble(path, "has no start event; is it a record of this program?"));
    }
    Ok(())
}

fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|b| *b == b'\n');
        let used = end.map_or(buffer.len(), |at| at + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

/// Puts an event where it belongs. What is repeated after a resume replaces what was told before.
fn take(run: &mut RunData, row: Row) -> Result<(), &'static str> {
    let back_to = |rows: &mut Vec<Row>, step: f64| {
        while rows.last().and_then(|r| r.number("step")).is_some_and(|last| last >= step) {
            rows.pop();
        }
    };
    match row.text("event") {
        Some("start") => run.start = Some(row),
        Some("step") => {
            let step = row.number("step").ok_or("a step without its number")?;
            row.number("nats").ok_or("a step without nats")?;
            back_to(&mut run.steps, step);
            run.steps.push(row);
        }
        Some("eval") => {
            let step = row.number("step").ok_or("an evaluation without its step")?;
            row.number("valid_ppl").ok_or("an evaluation without valid_ppl")?;
            row.number("epoch").ok_or("an evaluation without its epoch")?;
            back_to(&mut run.evals, step);
            run.evals.push(row);
        }
        Some("end") => run.end = Some(row),
        // The run went on after that end.
        Some("resume") => run.end = None,
        Some(_) => {}
        None => return Err("an object without event"),
    }
    Ok(())
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
