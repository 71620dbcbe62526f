//! The program's modules have an order: one uses only those above it in the list at the head of `lib.rs`.

use std::fs;
use std::path::{Path, PathBuf};

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

/// The modules behind `crate::` in a text.
fn used(text: &str) -> impl Iterator<Item = &str> {
    text.split("crate::")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""))
}

#[test]
fn modules_use_only_those_above_them() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let head = fs::read_to_string(src.join("lib.rs")).expect("readable");
    let order: Vec<&str> = head.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
    let (listed, _) = head.split_once("```text").and_then(|(_, rest)| rest.split_once("```")).expect("a list");
    let listed = listed.lines().filter_map(|line| line.strip_prefix("//! ")?.split("  ").next());
    let listed: Vec<&str> = listed.flat_map(|line| line.split(", ")).filter(|name| !name.is_empty()).collect();
    assert_eq!(listed, order, "the list in words and the modules");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut seen = 0;
    for file in files {
        let inside = file.strip_prefix(&src).expect("inside").to_str().expect("a name");
        let own = inside.split(['/', '.']).next().expect("a module");
        let Some(place) = order.iter().position(|name| *name == own) else { continue };
        let text = fs::read_to_string(&file).expect("readable");
        assert!(!text.contains("crate::{"), "{inside}: one `use` a line, so that this test can read it");
        for name in used(&text) {
            let Some(other) = order.iter().position(|known| *known == name) else { continue };
            assert!(other <= place, "{inside} uses {name}, which stands below {own}");
            seen += usize::from(other < place);
        }
    }
    assert!(seen > 50, "{seen} uses were seen");
}
