//! Sweeps and the paper's experiments, as whole processes: what they leave, what they refuse, and that a driver killed at any
//! moment loses nothing and does nothing twice.

mod again;
#[path = "../common/mod.rs"]
mod common;
mod kills;
mod recipes;
mod sweeps;

use std::collections::BTreeMap;
use std::path::Path;

use common::Place;

const BASE: &str =
    "[set]\nsynth.tokens = 3000\nsynth.vocab = 60\nmodel.hidden = 8\ntrain.streams = 4\neval.streams = 4\n";

/// Two rates with two seeds.
fn small_sweep(place: &Place, more: &str) {
    let grid = "train.epochs = 2\n[grid]\noptim.lr = [0.02, 0.1]\n[sweep]\nseeds = 2\n";
    place.write("s.toml", format!("{BASE}{grid}{more}"));
}

/// Events of each run of an experiment, by kind.
fn events(out: &Path) -> BTreeMap<String, BTreeMap<String, usize>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(out.join("runs")).unwrap() {
        let path = entry.unwrap().path();
        let record = std::fs::read_to_string(path.join("record.jsonl")).unwrap();
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for line in record.lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            *kinds.entry(event["event"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        all.insert(path.file_name().unwrap().to_str().unwrap().to_owned(), kinds);
    }
    all
}

/// Every run began once, has one end, and one evaluation per epoch.
#[track_caller]
fn once(out: &Path, runs: usize, epochs: usize) {
    let events = events(out);
    assert_eq!(events.len(), runs);
    for (run, kinds) in events {
        for (kind, n) in [("start", 1), ("eval", epochs), ("end", 1)] {
            assert_eq!(kinds.get(kind), Some(&n), "{run}: {kind} in {kinds:?}");
        }
    }
}

/// Figures of a table, without times and speeds.
fn figures(place: &Place, out: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(place.join(out).join("table.json")).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    for figure in value["figures"].as_array_mut().unwrap() {
        figure.as_object_mut().unwrap().remove("tokens_per_s");
    }
    for trial in value["trials"].as_array_mut().unwrap() {
        trial.as_object_mut().unwrap().remove("seconds");
    }
    value
}

fn figures_of(out: &Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(out.join("table.json")).unwrap()).unwrap()
}

#[test]
fn refusals_leave_nothing() {
    let place = Place::new();
    let ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
    let keys = ["synth.seed", "train.patience", "btprop.state_steps", "btprop.state_lr", "btprop.state_clip"];
    let more = ["btprop.state_tol", "btprop.dual_lr", "btprop.lambda", "optim.clip"];
    let huge: String = keys.iter().chain(&more).map(|key| format!("{key} = {ten}\n")).collect();
    place.write("huge.toml", format!("[grid]\n{huge}"));
    place.write("empty.toml", "[grid]\n");
    place.write("unknown.toml", "[grid]\nmodel.hiden = [1]\n");
    place.write("short.toml", "[set]\nsynth.tokens = 1000\ntrain.streams = 500\n[grid]\noptim.lr = [1]\n");
    place.write("good.toml", format!("{BASE}[grid]\noptim.lr = [0.1]\n"));
    let row = "[[table.row]]\nname = \"r\"\neval = [\"--split\", \"nonsense\"]\n";
    place.write("eval.toml", format!("title = \"t\"\n[scale.quick]\nseeds = 1\n[[table]]\nname = \"a\"\n{row}"));
    place.write("latin.toml", b"[grid]\noptim.lr = [0.1] # caf\xe9\n");
    std::fs::create_dir(place.join("full")).unwrap();
    place.write("full/x", "x");
    let before = place.files();
    for (args, expected) in [
        (&["sweep", "huge.toml"][..], "1,000,000,000 trials"),
        (&["sweep", "empty.toml"], "the grid is empty"),
        (&["sweep", "unknown.toml"], "unknown.toml: line 2, column 16: there is no setting model.hiden"),
        (&["sweep", "short.toml"], "set train.streams=50 or less"),
        (&["sweep", "nowhere.toml"], "cannot be read"),
        (&["sweep", "."], "not an ordinary file"),
        (&["sweep", "latin.toml"], "line 2, column 23: not UTF-8"),
        (&["sweep", "good.toml", "train.seed=3"], "the experiment's file chooses the seeds"),
        (&["sweep", "good.toml", "hidden"], "write key=value"),
        (&["sweep", "good.toml", "optim.lr=3"], "in the grid and also set"),
        (&["sweep", "good.toml", "--out", "full"], "is no experiment of this program"),
        (&["sweep", "good.toml", "--out", "full/x"], "not a directory"),
        (&["reproduce", "tabel1"], "did you mean table1?"),
        (&["reproduce", "\u{1b}[31m"], "neither an experiment"),
        (&["reproduce", "table1", "--only", "mini-ptb/bptt/b7"], "there is no such cell"),
        (&["reproduce", "good.toml"], "the file has no key grid"),
        (&["reproduce", "eval.toml"], "eval.toml: a/r: eval: invalid value 'nonsense'"),
    ] {
        let ran = place.run(args);
        ran.refused(2, expected);
        assert!(!ran.err.contains('\u{1b}'), "{ran:?}");
    }
    // The good one, were it not for a launcher that starts many copies.
    for args in [&["sweep", "good.toml"][..], &["reproduce", "table2"], &["demo"]] {
        let launched = [("OMPI_COMM_WORLD_SIZE", "3"), ("OMPI_COMM_WORLD_RANK", "0")];
        let ran = place.command(args).envs(launched).output().unwrap();
        assert_eq!(ran.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&ran.stderr).contains("the launcher started 3 processes"));
    }
    assert_eq!(place.files(), before);
}
