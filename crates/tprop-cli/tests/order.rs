//! Crates have an order and so have the modules of each: one uses only those above it in the lists at the heads of the `lib.rs`.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates beneath the program and the program itself, in their order.
const CRATES: [&str; 5] = ["tprop", "tprop-report", "tprop-run", "tprop-lab", "tprop-cli"];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// The Rust files of a folder and of those inside it.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("readable").map(|entry| entry.expect("readable").path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|ending| ending == "rs") {
            found.push(entry);
        }
    }
}

/// The names behind a word in a text: `crate::` or, in a file of the crate's own folder, `super::`.
fn behind<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    let name = |rest: &'a str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
    text.split(word).skip(1).map(name)
}

#[test]
fn crates_use_only_those_above_them() {
    for (place, name) in CRATES.iter().enumerate() {
        let manifest = read(&folder(name).join("Cargo.toml"));
        let below = CRATES[place..].iter().find(|other| manifest.contains(&format!("\n{other}.workspace")));
        assert_eq!(below, None, "{name} depends on a crate that stands below it");
    }
    let head = read(&folder("tprop-cli").join("src/lib.rs"));
    let listed = head.lines().filter_map(|line| line.strip_prefix("//! tprop")?.split(' ').next());
    let listed: Vec<String> = listed.map(|rest| format!("tprop{rest}")).collect();
    assert_eq!(listed, CRATES[..4], "the list in words and the crates");
}

#[test]
fn modules_use_only_those_above_them() {
    for name in &CRATES[1..] {
        let src = folder(name).join("src");
        let head = read(&src.join("lib.rs"));
        let modules =
            head.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
        let order: Vec<&str> = modules.filter(|module| *module != "tests").collect();
        // The last list in words is that of the modules.
        let listed = head.rsplit("```text").next().and_then(|rest| rest.split_once("```")).expect("a list").0;
        let listed = listed.lines().filter_map(|line| line.strip_prefix("//! ")?.split("  ").next());
        let listed: Vec<&str> = listed.flat_map(|line| line.split(", ")).filter(|name| !name.is_empty()).collect();
        assert_eq!(listed, order, "{name}: the list in words and the modules");
        let mut files = Vec::new();
        sources(&src, &mut files);
        let mut seen = 0;
        for file in files {
            let inside = file.strip_prefix(&src).expect("inside").to_str().expect("a name");
            let own = inside.split(['/', '.']).next().expect("a module");
            let Some(place) = order.iter().position(|module| *module == own) else { continue };
            let text = read(&file);
            assert!(!text.contains("crate::{"), "{inside}: one `use` a line, so that this test can read it");
            let beside = if inside.contains('/') { None } else { Some(behind(&text, "super::")) };
            for used in behind(&text, "crate::").chain(beside.into_iter().flatten()) {
                let Some(other) = order.iter().position(|module| *module == used) else { continue };
                assert!(other <= place, "{name}: {inside} uses {used}, which stands below {own}");
                seen += usize::from(other < place);
            }
        }
        assert!(seen > 10, "{name}: {seen} uses were seen");
    }
}
