//! Sweeps and the paper's experiments, as whole processes: what they leave, what they refuse, and that a driver killed at any
//! moment loses nothing and does nothing twice.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

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

#[test]
fn a_sweep_runs_each_point_once_and_leaves_its_tables() {
    let place = Place::new();
    small_sweep(&place, "groups = [\"optim.lr\"]\ntitle = \"<b>|x\\u001b[31m\"\n");
    let ran = place.run(&["sweep", "s.toml", "--jobs", "2"]).ok();
    assert!(ran.out.starts_with("# ") && ran.out.contains("optim.lr=0.1") && ran.out.contains(" ± "), "{ran:?}");
    assert!(!ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'), "{ran:?}");
    assert_eq!(ran.err.matches("valid ppl").count(), 4, "{ran:?}");
    let out = place.join("sweeps/s");
    once(&out, 4, 2);
    // The report calls runs by their points.
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("| optim.lr=0.02 | 2 |"), "{report}");
    for file in ["table.md", "table.csv", "table.tex", "table.json", "trials.csv", "study.json"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    assert_eq!(std::fs::read_to_string(out.join("table.md")).unwrap(), ran.out);
    assert_eq!(std::fs::read_to_string(out.join("trials.csv")).unwrap().lines().count(), 5);

    // Each trial is an ordinary run, and its figure is the one of the table.
    let figures = figures(&place, "sweeps/s");
    let best = &figures["figures"][1];
    assert_eq!(best["cell"], "optim.lr=0.1");
    let tests: Vec<f64> = (0..2)
        .map(|i| {
            let run = format!("sweeps/s/{}", best["runs"][i].as_str().unwrap());
            place.run(&["eval", &run, "--json"]).ok().json()["perplexity"].as_f64().unwrap()
        })
        .collect();
    let mean = (tests[0] + tests[1]) / 2.0;
    assert!((best["test_ppl"]["mean"].as_f64().unwrap() - mean).abs() < 1e-9);
    let deviation = (tests[0] - tests[1]).abs() / 2f64.sqrt();
    assert!((best["test_ppl"]["deviation"].as_f64().unwrap() - deviation).abs() < 1e-9);

    // Again: everything is there, nothing runs.
    let record = |id: &str| std::fs::read(out.join("runs").join(id).join("record.jsonl")).unwrap();
    let before: Vec<_> = events(&out).keys().map(|id| record(id)).collect();
    let again = place.run(&["sweep", "s.toml", "--json"]).ok();
    assert!(again.err.contains("4 trials that have ended are taken up"), "{again:?}");
    assert_eq!(again.json()["figures"], figures_of(&out)["figures"]);
    assert_eq!(events(&out).keys().map(|id| record(id)).collect::<Vec<_>>(), before);

    // Nor with another number of threads, which shapes nothing.
    let again = place.run(&["sweep", "s.toml", "train.threads=1"]).ok();
    assert!(again.err.contains("4 trials that have ended are taken up"), "{again:?}");

    // Another grid does not go into the same place.
    let files = place.files();
    let text = std::fs::read_to_string(place.join("s.toml")).unwrap();
    place.write("s.toml", text.replace("0.02", "0.03"));
    let ran = place.run(&["sweep", "s.toml"]);
    ran.refused(2, "optim.lr=0.02 is gone");
    place.write("s.toml", text.replace("model.hidden = 8", "model.hidden = 9"));
    place.run(&["sweep", "s.toml"]).refused(2, "[model.hidden=9] where it had [model.hidden=8]");
    place.write("s.toml", text);
    place.run(&["sweep", "s.toml", "optim.eps=0.1"]).refused(2, "[optim.eps=0.1] where it had []");
    assert_eq!(place.files(), files);
}

#[test]
fn records_are_enough_to_know_what_has_been_done() {
    let place = Place::new();
    small_sweep(&place, "");
    place.run(&["sweep", "s.toml", "--out", "o", "--quiet"]).ok();
    let whole = figures(&place, "o");
    // What is kept for good: records and settings, no weights, of all but one trial, whose record lost its end.
    let runs: Vec<_> = events(&place.join("o")).into_keys().collect();
    for run in &runs {
        std::fs::remove_dir_all(place.join("o/runs").join(run).join("checkpoints")).unwrap();
    }
    let cut = place.join("o/runs").join(&runs[2]).join("record.jsonl");
    let text = std::fs::read_to_string(&cut).unwrap();
    let ended = text.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(&cut, &text[..ended]).unwrap();
    let again = place.run(&["sweep", "s.toml", "--out", "o"]).ok();
    assert!(again.err.contains("3 trials that have ended are taken up"), "{again:?}");
    assert_eq!(figures(&place, "o"), whole);
    let weights = |run: &String| place.join("o/runs").join(run).join("checkpoints").exists();
    assert_eq!(runs.iter().filter(|run| weights(run)).collect::<Vec<_>>(), [&runs[2]]);
    once(&place.join("o"), 4, 2);
}

#[test]
fn a_run_over_another_text_is_not_taken_up() {
    let place = Place::new();
    let text = "the cat sat on the mat and the dog sat on the log\n".repeat(60);
    place.write("book.txt", &text);
    let base = "[set]\ndata.source = \"book.txt\"\nmodel.hidden = 8\ntrain.streams = 4\neval.streams = 1\n";
    place.write("s.toml", format!("{base}train.epochs = 1\nbptt.window = 5\n[grid]\noptim.lr = [0.02, 0.1]\n"));
    place.run(&["sweep", "s.toml", "--out", "o", "--quiet"]).ok();
    place.write("book.txt", text.replace("cat", "cow") + "a line more\n");
    let ran = place.run(&["sweep", "s.toml", "--out", "o"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("this run read another text than the one that book.txt is now"), "{ran:?}");
    place.run(&["sweep", "s.toml", "--out", "o", "--retry", "--quiet"]).ok();
    once(&place.join("o"), 2, 1);
}

#[test]
fn damaged_runs_are_made_anew_and_a_lost_state_is_no_loss() {
    let place = Place::new();
    small_sweep(&place, "");
    place.run(&["sweep", "s.toml", "--out", "o", "--quiet"]).ok();
    let whole = figures(&place, "o");
    let runs: Vec<_> = events(&place.join("o")).into_keys().collect();
    let record = place.join("o/runs").join(&runs[1]).join("record.jsonl");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replacen('\n', "\ngarbage\n", 1)).unwrap();
    let ran = place.run(&["sweep", "s.toml", "--out", "o"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    place.run(&["sweep", "s.toml", "--out", "o", "--retry", "--quiet"]).ok();
    assert_eq!(figures(&place, "o"), whole);

    place.write("o/study.json", "{");
    place.run(&["sweep", "s.toml", "--out", "o"]).refused(2, "remove it to go on with the trials that are there");
    std::fs::remove_file(place.join("o/study.json")).unwrap();
    let ran = place.run(&["sweep", "s.toml", "--out", "o"]).ok();
    assert!(ran.err.contains("4 trials that have ended are taken up"), "{ran:?}");
    let ran = place.run(&["sweep", "s.toml", "--out", "o", "--dry-run", "--json"]).ok().json();
    assert_eq!((ran["trials"].as_u64(), ran["ended"].as_u64(), ran["tokens"].as_u64()), (Some(4), Some(4), Some(0)));
}

#[test]
fn an_experiment_without_its_text_still_shows_what_it_found() {
    let place = Place::new();
    place.write("book.txt", "the cat sat on the mat and the dog sat on the log\n".repeat(60));
    let set = "data.source = \"book.txt\"\nmodel.hidden = 8\ntrain.streams = 4\neval.streams = 1\nbptt.window = 5\ntrain.epochs = 1";
    let tables = "[[table]]\nname = \"a\"\nminus = \"x\"\n[[table.row]]\nname = \"x\"\n[[table.row]]\nname = \"y\"\nset = { optim.lr = 0.1 }\n";
    place.write("r.toml", format!("title = \"t\"\n[set]\n{set}\n[scale.quick]\nseeds = 2\n{tables}"));
    let only = place.run(&["reproduce", "r.toml", "--out", "o", "--only", "a/y"]).ok();
    assert!(only.out.contains("but “x”, from which it would differ, has no figure"), "{only:?}");
    let first = place.run(&["reproduce", "r.toml", "--out", "o"]).ok();
    assert!(first.out.contains(" ± ") && first.out.contains("| y "), "{first:?}");
    std::fs::remove_file(place.join("book.txt")).unwrap();
    assert_eq!(place.run(&["reproduce", "r.toml", "--out", "o"]).ok().out, first.out);
    place.run(&["reproduce", "r.toml", "--out", "p"]).refused(2, "nothing can be run");
    assert!(!place.join("p").exists());
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

#[test]
fn trials_that_diverge_or_fail_are_listed_and_failures_can_be_retried() {
    let place = Place::new();
    let text = format!(
        "{BASE}train.epochs = 2\noptim.clip = 0\n[grid]\noptim.lr = [0.1, 1e6]\n[sweep]\ngroups = [\"optim.lr\"]\n"
    );
    place.write("s.toml", text);
    let first = place.run(&["sweep", "s.toml", "--out", "o"]).ok();
    assert!(first.out.contains("Trials that diverged:") && first.out.contains("rate 1000000"), "{first:?}");
    assert!(first.out.contains("optim.lr=1e6: no figure (no trial came to a good end)"), "{first:?}");
    let figures = figures(&place, "o");
    let outcome = |i: usize| figures["trials"][i]["outcome"].as_str().unwrap().to_owned();
    assert_eq!((outcome(0), outcome(1)), ("finished".into(), "diverged".into()));
    // The run itself knows, and so does the report.
    let diverged = place.join("o/runs").join(figures["trials"][1]["trial"].as_str().unwrap());
    let record = std::fs::read_to_string(diverged.join("record.jsonl")).unwrap();
    assert!(record.lines().last().unwrap().contains("\"reason\":\"diverged\""), "{record}");
    let report = std::fs::read_to_string(place.join("o/report.md")).unwrap();
    assert!(report.contains("A trial of optim.lr=1e6 diverged") && !report.contains("not ended"), "{report}");

    // A run whose checkpoints are damaged before its end cannot go on.
    let id = figures["trials"][0]["trial"].as_str().unwrap().to_owned();
    let run = place.join("o/runs").join(&id);
    let record = std::fs::read_to_string(run.join("record.jsonl")).unwrap();
    let cut = record.find("{\"event\":\"end\"").unwrap();
    std::fs::write(run.join("record.jsonl"), &record[..cut]).unwrap();
    for entry in std::fs::read_dir(run.join("checkpoints")).unwrap() {
        std::fs::write(entry.unwrap().path(), "damaged").unwrap();
    }
    let ran = place.run(&["sweep", "s.toml", "--out", "o"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("Trials that failed") && ran.out.contains("no usable checkpoint"), "{ran:?}");
    assert!(ran.err.contains("1 trials failed; --retry runs them again"), "{ran:?}");
    // It stays failed until someone asks.
    assert_eq!(place.run(&["sweep", "s.toml", "--out", "o", "--quiet"]).code, 1);
    let ran = place.run(&["sweep", "s.toml", "--out", "o", "--retry"]).ok();
    assert_eq!(ran.out, first.out);
}

#[test]
fn what_a_diverged_trial_came_to_is_told_again() {
    let place = Place::new();
    place.write("s.toml", format!("{BASE}train.epochs = 3\n[grid]\noptim.lr = [0.1]\n"));
    let args = ["sweep", "s.toml", "--out", "o", "--quiet"];
    // In the second epoch.
    let steps = "nan.loss:60=nan";
    let first = place.command(&args).env("TPROP_FAULT", steps).output().unwrap();
    assert_eq!(first.status.code(), Some(3), "{first:?}");
    let lines = std::fs::read_to_string(place.join("o/trials.csv")).unwrap();
    let table = figures(&place, "o");
    assert!(table["trials"][0]["epochs"].as_u64().unwrap() > 0, "{lines}");
    assert_eq!(place.run(&args).code, 3);
    assert_eq!(std::fs::read_to_string(place.join("o/trials.csv")).unwrap(), lines);
}

#[test]
fn successive_halving_stops_what_is_behind() {
    let place = Place::new();
    let grid =
        "train.epochs = 4\n[grid]\noptim.lr = [0.1, 0.01, 0.001, 0.0001]\n[sweep]\nprune = { first = 2, factor = 4 }\n";
    place.write("s.toml", format!("{BASE}{grid}"));
    let ran = place.run(&["sweep", "s.toml", "--out", "o", "--jobs", "2"]).ok();
    assert!(ran.out.contains("3 points were left behind"), "{ran:?}");
    let figures = figures(&place, "o");
    assert_eq!(figures["figures"][0]["chosen"], "optim.lr=0.1");
    let trials = figures["trials"].as_array().unwrap();
    let outcomes: Vec<_> = trials.iter().map(|t| t["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["finished", "pruned", "pruned", "pruned"]);
    // They may have gone a little further before they heard of it, but not to their end.
    assert!(trials[1..].iter().all(|t| (2..4).contains(&t["epochs"].as_u64().unwrap())), "{trials:?}");
    assert_eq!(place.run(&["sweep", "s.toml", "--out", "o", "--quiet"]).ok().out, ran.out);
}

const RECIPE: &str = r#"
title = "A small one"
asks = "Does it work?"
[set]
data.source = "built-in"
[scale.quick]
trials = 2
seeds = [1]
short = { train.epochs = 1 }
[scale.quick.set]
synth.tokens = 3000
synth.vocab = 60
model.hidden = 8
train.streams = 4
eval.streams = 4
train.epochs = 2
[search.rates.grid]
optim.lr = [0.02, 0.1]

[[table]]
name = "t"
[[table.row]]
name = "k20"
search = "rates"
paper = [30]
[[table.row]]
name = "k5"
search = "rates"
paper = [20]
set = { bptt.window = 5 }

[[table]]
name = "read"
[[table.column]]
name = "plain"
eval = ["--split", "valid"]
[[table.column]]
name = "steps"
eval = ["--split", "valid", "--adapt-states", "2", "--adapt-lr", "9", "--block", "2"]
[[table.row]]
name = "r"

[[table]]
name = "absent"
set = { data.source = "nowhere.txt" }
[[table.row]]
name = "r"
"#;

#[test]
fn an_experiment_searches_reads_and_compares() {
    let place = Place::new();
    place.write("small.toml", RECIPE);
    let dry = place.run(&["reproduce", "small.toml", "--dry-run", "--json"]).ok().json();
    // Two cells of two short trials and a long one, one run for two readings, and a text that is not there.
    assert_eq!(dry["trials"], 8, "{dry}");
    assert!(dry["seconds"].is_null() && dry["parts"][0]["seconds"].is_number(), "{dry}");
    assert_eq!(place.files(), ["small.toml"]);

    let part = place.run(&["reproduce", "small.toml", "--only", "t/k5", "--out", "o"]).ok();
    assert!(part.out.contains("t/k20 (not asked for)") && !part.out.contains("| k20"), "{part:?}");
    assert_eq!(events(&place.join("o")).len(), 3);
    let ran = place.run(&["reproduce", "small.toml", "--out", "o"]).ok();
    assert!(ran.err.contains("left out: absent/r (nowhere.txt"), "{ran:?}");
    assert!(ran.out.contains("absent/r (nowhere.txt"), "{ran:?}");
    assert!(ran.out.contains("Size: not comparable") && ran.out.contains("pairs in one row or column"), "{ran:?}");
    // The rate that won is 0.1 or not: the run in full has it, and the run of the readings has the usual one.
    assert_eq!(events(&place.join("o")).len(), 7);

    // A part of it again: the table keeps what it had.
    let part = place.run(&["reproduce", "small.toml", "--only", "t/k5", "--out", "o"]).ok();
    assert!(part.out.contains("\n| k20 ") && !part.out.contains("not asked for"), "{part:?}");

    let figures = figures(&place, "o");
    let figure = |cell: &str| {
        let all = figures["figures"].as_array().unwrap();
        all.iter().find(|f| f["cell"] == cell).unwrap_or_else(|| panic!("{cell}")).clone()
    };
    let run = format!("o/{}", figure("read/r/plain")["runs"][0].as_str().unwrap());
    let read = |more: &[&str]| {
        let args = [&["eval", &run, "--json", "--split", "valid"], more].concat();
        place.run(&args).ok().json()["perplexity"].as_f64().unwrap()
    };
    assert_eq!(figure("read/r/plain")["value"]["mean"], read(&[]));
    assert_eq!(
        figure("read/r/steps")["value"]["mean"],
        read(&["--adapt-states", "2", "--adapt-lr", "9", "--block", "2"])
    );
    assert_ne!(read(&[]), read(&["--adapt-states", "2", "--adapt-lr", "9", "--block", "2"]));
    let trials = figures["trials"].as_array().unwrap();
    let best = trials.iter().filter(|t| t["cell"] == "t/k20" && t["settings"]["train.epochs"] == "1");
    let best =
        best.min_by(|a, b| a["valid_ppl"].as_f64().unwrap().total_cmp(&b["valid_ppl"].as_f64().unwrap())).unwrap();
    // The report calls the runs as the table does, and has no search in it.
    let names = figures["names"].as_object().unwrap();
    assert_eq!(names.len(), 3, "{names:?}");
    let report = std::fs::read_to_string(place.join("o/report.md")).unwrap();
    assert!(
        report.contains("4 short trials") && names.values().all(|n| report.contains(n.as_str().unwrap())),
        "{report}"
    );
    let chosen = figure("t/k20")["chosen"].as_str().unwrap().to_owned();
    let rate: f64 = best["settings"]["optim.lr"].as_str().unwrap().parse().unwrap();
    assert_eq!(chosen, format!("optim.lr={rate}"));
}

/// Kills of the driver, and how often an experiment is repeated for them.
fn kills() -> usize {
    if std::env::var("TPROP_FAULTS").is_ok_and(|v| v == "full") { 50 } else { 4 }
}

/// Waits until a condition holds; generous, because the machine may be busy.
fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(since.elapsed() < Duration::from_secs(120), "{what} never came");
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// A sweep of four trials that take a moment each.
fn long_sweep(place: &Place) {
    let grid = "train.epochs = 3\ncheckpoint.every_steps = 40\n[grid]\noptim.lr = [0.02, 0.1]\n[sweep]\nseeds = 2\ngroups = [\"optim.lr\"]\n";
    place.write("s.toml", format!("{}{grid}", BASE.replace("3000", "8000")));
}

#[cfg(unix)]
#[test]
fn a_killed_driver_loses_nothing_and_does_nothing_twice() {
    let place = Place::new();
    long_sweep(&place);
    place.run(&["sweep", "s.toml", "--out", "whole", "--quiet"]).ok();
    let whole = figures(&place, "whole");
    let (mut killed, mut round, mut resumed) = (0, 0, 0);
    while killed < kills() {
        round += 1;
        let out = format!("o{round}");
        // Events of each run so far, and whether it came to its own end.
        let runs = || -> Vec<(std::path::PathBuf, usize, bool)> {
            let runs = std::fs::read_dir(place.join(&out).join("runs")).into_iter().flatten().flatten();
            let of = |run: std::fs::DirEntry| {
                let text = std::fs::read_to_string(run.path().join("record.jsonl")).ok()?;
                let steps = text.matches("\"event\":\"step\"").count();
                Some((run.path(), steps, text.contains("\"reason\":\"epochs\"")))
            };
            runs.filter_map(of).collect()
        };
        // Several times in one experiment: while it begins, then further and further into the trials.
        let mut interrupted: BTreeSet<std::path::PathBuf> = BTreeSet::new();
        for part in 0..4 {
            let args = ["sweep", "s.toml", "--out", &out, "--jobs", "2", "--quiet"];
            let mut driver = Driver(place.command(&args).spawn().unwrap());
            let mut over = false;
            wait_for("the trials", || {
                over = driver.0.try_wait().unwrap().is_some();
                let begun = part == 0 && place.join(&out).join("runs").is_dir();
                over || begun || (part > 0 && runs().iter().map(|r| r.1).sum::<usize>() >= 40 * part * (1 + round % 5))
            });
            if over {
                break;
            }
            driver.0.kill().unwrap(); // SIGKILL
            driver.0.wait().unwrap();
            killed += 1;
            // Without a driver a run ends at its next event, so one that is in its middle will have to go on later.
            let middle = runs().into_iter().filter(|(_, steps, ended)| (1..120).contains(steps) && !ended);
            interrupted.extend(middle.map(|(run, ..)| run));
        }
        place.run(&["sweep", "s.toml", "--out", &out, "--jobs", "2", "--quiet"]).ok();
        once(&place.join(&out), 4, 3);
        assert_eq!(figures(&place, &out), whole, "round {round}");
        for run in &interrupted {
            let sessions = std::fs::read_to_string(run.join("sessions.jsonl")).unwrap();
            assert!(sessions.contains("\"from\":\"step-"), "{} began again instead of going on", run.display());
        }
        resumed += interrupted.len();
    }
    eprintln!("{killed} kills of the driver in {round} sweeps of 4 trials, {resumed} trials resumed, 0 failures");
}

/// A driver that does not outlive a failed test.
struct Driver(std::process::Child);

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
#[test]
fn a_second_driver_waits_outside_and_a_signal_ends_all_trials_in_order() {
    let place = Place::new();
    long_sweep(&place);
    let text = std::fs::read_to_string(place.join("s.toml")).unwrap();
    place.write("s.toml", text.replace("train.epochs = 3", "train.epochs = 1000\ntrain.patience = 0"));
    let mut driver = Driver(place.command(&["sweep", "s.toml", "--out", "o", "--jobs", "2"]).spawn().unwrap());
    let steps = || {
        let runs = std::fs::read_dir(place.join("o/runs")).into_iter().flatten().flatten();
        runs.filter(|r| {
            std::fs::read_to_string(r.path().join("record.jsonl")).is_ok_and(|t| t.contains("\"event\":\"step\""))
        })
        .count()
    };
    wait_for("both trials", || steps() == 2);
    place.run(&["sweep", "s.toml", "--out", "o"]).refused(6, &format!("in use by process {}", driver.0.id()));
    let signal = std::process::Command::new("kill").args(["-TERM", &driver.0.id().to_string()]).status().unwrap();
    assert!(signal.success());
    let mut said = String::new();
    driver.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(driver.0.wait().unwrap().code(), Some(143), "{said}");
    assert!(said.contains("the same command goes on"), "{said}");
    // Both have saved: their locks are free and their records end with a checkpoint after the signal.
    for run in std::fs::read_dir(place.join("o/runs")).unwrap() {
        let record = std::fs::read_to_string(run.unwrap().path().join("record.jsonl")).unwrap();
        assert!(record.contains("\"reason\":\"stopped\""), "{record}");
    }
}

/// What is read again later is refused in words if it is not what it was.
#[test]
fn any_bytes_are_read_or_refused() {
    use proptest::prelude::*;
    let good = r#"{"format":1,"name":"s","version":"0.1.0","hash":"00","cells":{"a":["x"]}}"#;
    assert_eq!(tprop_cli::read_experiment(good.as_bytes()).0, Ok(()));
    let line = "{\"trial\":\"a\",\"outcome\":\"failed\",\"reason\":\"b\"}\n";
    assert_eq!(tprop_cli::read_experiment(line.as_bytes()).1, Ok(()));
    let sweep = format!("{BASE}[grid]\noptim.lr = [0.02, 0.1]\n[sweep]\nseeds = 2\n");
    assert_eq!(tprop_cli::read_sweep(&sweep), Ok(()));
    let deep = "[".repeat(100_000);
    let damaged = |text: String| {
        let at = 0..text.len();
        (at, any::<u8>(), 0..4usize).prop_map(move |(at, byte, kind)| {
            let mut bytes = text.clone().into_bytes();
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, byte),
                _ => bytes.extend_from_within(at..),
            }
            bytes
        })
    };
    let any = prop_oneof![
        damaged(good.to_owned()),
        damaged(line.to_owned()),
        damaged(sweep),
        Just(deep.into_bytes()),
        prop::collection::vec(any::<u8>(), 0..200),
    ];
    proptest!(ProptestConfig::with_cases(2_000), |(bytes in any)| {
        let (study, outcomes) = tprop_cli::read_experiment(&bytes);
        prop_assert!(study.is_ok() || study.is_err_and(|why| !why.is_empty()));
        prop_assert!(outcomes.is_ok() || outcomes.is_err_and(|why| why.starts_with("line ")));
        let read = std::str::from_utf8(&bytes).map_or(Ok(()), tprop_cli::read_sweep);
        prop_assert!(read.as_ref().is_ok_and(|()| true) || read.as_ref().is_err_and(|why| !why.contains('\n')), "{read:?}");
    });
}
