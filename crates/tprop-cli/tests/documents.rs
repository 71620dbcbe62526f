//! Tables and pictures of experiments in the README and in `docs/` are those that `tprop report` makes of the records kept in `results/`.
//!
//! In a document, a table stands between `<!-- results/NAME: TITLE -->` and `<!-- end -->`; a picture's line ends with
//! `<!-- results/NAME: PLOT.svg -->`. `WRITE_DOCUMENTS=1 cargo test --test documents` writes them anew.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::Place;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the project")
}

/// `<!-- results/NAME: WHAT -->` in a line, as the name and what.
fn mark(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("<!-- results/")?;
    rest.split_once(" -->")?.0.split_once(": ")
}

/// The report of `results/NAME`, made once.
fn report(place: &Place, name: &str) -> PathBuf {
    let out = place.join(name);
    if !out.is_dir() {
        let runs = root().join("results").join(name);
        place.run(&["report", runs.to_str().unwrap(), "--out", out.to_str().unwrap()]).ok();
    }
    out
}

/// The table that `report.md` calls `title`: its lines stand above that sentence.
fn table(markdown: &str, title: &str) -> String {
    let paragraphs: Vec<&str> = markdown.split("\n\n").collect();
    let at = paragraphs.windows(2).position(|two| two[0].starts_with('|') && two[1] == title);
    paragraphs[at.unwrap_or_else(|| panic!("no table {title:?}"))].to_owned()
}

/// The document with every table and picture as the reports have them; pictures that are not so yet, with their paths.
fn as_reported(place: &Place, path: &Path) -> (String, Vec<(PathBuf, String)>) {
    let text = fs::read_to_string(path).expect("readable");
    let (mut out, mut pictures, mut lines) = (String::new(), Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        out += &format!("{line}\n");
        let Some((name, what)) = mark(line) else { continue };
        let report = report(place, name);
        if what.ends_with(".svg") {
            let picture = line.split("](").nth(1).and_then(|rest| rest.split(')').next()).expect("a picture's line");
            let svg = fs::read_to_string(report.join("report").join(what)).unwrap_or_else(|e| panic!("{what}: {e}"));
            let picture = path.parent().unwrap().join(picture);
            if fs::read_to_string(&picture).ok().as_ref() != Some(&svg) {
                pictures.push((picture, svg));
            }
        } else {
            let markdown = fs::read_to_string(report.join("report.md")).expect("readable");
            out += &format!("\n{}\n\n<!-- end -->\n", table(&markdown, what));
            assert!(lines.any(|line| line == "<!-- end -->"), "{line} has no end");
        }
    }
    (out, pictures)
}

#[test]
fn documents_say_what_the_records_say() {
    let place = Place::new();
    let mut marks = 0;
    for name in ["README.md", "docs/results.md"] {
        let path = root().join(name);
        let before = fs::read_to_string(&path).expect("readable");
        let (after, pictures) = as_reported(&place, &path);
        marks += before.lines().filter(|line| mark(line).is_some()).count();
        if std::env::var_os("WRITE_DOCUMENTS").is_some() {
            fs::write(&path, after).expect("written");
            pictures.into_iter().for_each(|(path, svg)| fs::write(path, svg).expect("written"));
            continue;
        }
        let stale = "is not what the records say: WRITE_DOCUMENTS=1 cargo test --test documents";
        for (ours, reported) in before.lines().zip(after.lines()) {
            assert_eq!(ours, reported, "{name} {stale}");
        }
        assert_eq!(before.len(), after.len(), "{name} {stale}");
        assert!(pictures.is_empty(), "{} {stale}", pictures[0].0.display());
    }
    assert!(marks > 0);
}

/// The command that a kept experiment prints, given to nothing but its records, makes its table again: without any text, in a second.
#[test]
fn kept_records_give_the_kept_tables() {
    let place = Place::new();
    let mut kept = 0;
    let inside = |dir: &str| fs::read_dir(root().join(dir)).expect("readable").map(|e| e.expect("readable").path());
    for dir in inside("results").chain(inside("results/quick")) {
        let Ok(text) = fs::read_to_string(dir.join("table.json")) else { continue };
        let table: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let name = dir.strip_prefix(root().join("results")).unwrap().to_str().unwrap();
        copy(&dir.join("runs"), &place.join(name).join("runs"));
        for file in ["study.json", "outcomes.jsonl", "evals"] {
            let from = dir.join(file);
            match from.is_dir() {
                true => copy(&from, &place.join(name).join(file)),
                false => drop(fs::copy(&from, place.join(name).join(file))),
            }
        }
        let command = table["command"].as_str().expect("a command");
        let words: Vec<&str> = command.split(' ').skip(1).chain(["--out", name, "--quiet"]).collect();
        let ran = place.run(&words).ok();
        assert_eq!(ran.out, fs::read_to_string(dir.join("table.md")).expect("readable"), "{name}");
        kept += 1;
    }
    assert!(kept > 0);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("readable").map(|e| e.expect("readable")) {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).expect("copied")),
        }
    }
}
