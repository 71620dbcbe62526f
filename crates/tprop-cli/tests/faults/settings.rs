//! Resumed with other settings or another text.

use crate::bench::{left, place, row, same, text, train};
use crate::common::Place;

/// A run that was killed on its way.
fn killed(place: &Place, run: &str) {
    let ran = place.command(&train(0, run, &[])).env("TPROP_FAULT", "record.append:90=kill").output().unwrap();
    assert_eq!(ran.status.code(), Some(137));
}

#[test]
fn what_would_change_the_numbers_is_refused_by_name() {
    let place = place();
    killed(&place, "run");
    let before = place.files();
    let record = std::fs::read(place.join("run/record.jsonl")).unwrap();
    for (words, expected) in [
        (&["optim.lr=0.01"][..], "optim.lr from 0.05 to 0.01"),
        (&["optim.lr=0.01"], "say --allow-change optim.lr"),
        (&["optim.lr=0.01", "train.epochs=9", "--allow-change", "optim.lr"], "train.epochs from 3 to 9"),
        (&["model.hidden=17"], "model.hidden from 16 to 17"),
        (&["model.hidden=17"], "train a new run"),
        (&["train.seed=2", "bptt.window=11"], "bptt.window from 10 to 11, train.seed from 1 to 2"),
        (&["model.hidden=17", "--allow-change", "model.hidden"], "cannot change in the middle of a run"),
        (&["--allow-change", "optim.ls"], "did you mean optim.lr?"),
        (&["optim.ls=1"], "did you mean optim.lr?"),
        (&["optim.lr=-1"], "above 0"),
        (&["other.txt"], "only settings"),
        (&["data.source=nowhere.txt"], "no such file"),
    ] {
        place.run(&[&["resume", "run", "--quiet"], words].concat()).refused(2, expected);
    }
    // The text itself: one letter more.
    place.write("text.txt", text(4000) + "x");
    place.run(&["resume", "run", "--quiet"]).refused(2, "the corpus has changed");
    place.write("text.txt", text(4000));
    // Edited by hand instead of typed.
    let settings = std::fs::read_to_string(place.join("run/settings.toml")).unwrap();
    place.write("run/settings.toml", settings.replace("\nhidden = 16", "\nhidden = 17"));
    place.run(&["resume", "run", "--quiet"]).refused(2, "model.hidden from 16 to 17");
    place.write("run/settings.toml", settings);
    assert_eq!(place.files(), before);
    assert_eq!(std::fs::read(place.join("run/record.jsonl")).unwrap(), record);
    row("resumed with other settings or another text", 14, "all refused by name, nothing changed");
}

#[test]
fn what_does_not_change_the_numbers_is_free() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    killed(&place, "run");
    // The text has moved, threads and checkpoints are others: the same record and the same weights.
    std::fs::rename(place.join("text.txt"), place.join("moved.txt")).unwrap();
    let free = ["data.source=moved.txt", "train.threads=2", "checkpoint.every_minutes=0.001", "train.simd=scalar"];
    place.run(&[&["resume", "run", "--quiet"], &free[..]].concat()).ok();
    // A run may be resumed from elsewhere.
    let settings = std::fs::read_to_string(place.join("run/settings.toml")).unwrap();
    assert!(settings.contains(place.join("moved.txt").to_str().unwrap()), "{settings}");
    std::fs::rename(place.join("moved.txt"), place.join("text.txt")).unwrap();
    let parts = left(&place.join("run"));
    assert_eq!(parts.weights(), whole.weights());
    assert_eq!(parts.record, whole.record);
}

#[test]
fn what_fits_the_state_may_change_when_allowed() {
    let place = place();
    killed(&place, "run");
    let allow = ["optim.lr=0.01", "--allow-change", "optim.lr"];
    // Killed once more before any new checkpoint: what was allowed is allowed still, and takes effect again.
    let args = [&["resume", "run", "--quiet"], &allow[..]].concat();
    let ran = place.command(&args).env("TPROP_FAULT", "record.append:4=kill").output().unwrap();
    assert_eq!(ran.status.code(), Some(137), "{ran:?}");
    place.run(&["resume", "run", "--quiet"]).ok();
    let record = std::fs::read_to_string(place.join("run/record.jsonl")).unwrap();
    let events: Vec<serde_json::Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changes: Vec<_> = events.iter().filter(|e| e["event"] == "rate").collect();
    assert_eq!(changes.len(), 1, "{record}");
    assert_eq!((&changes[0]["rate"], &changes[0]["reason"]), (&0.01.into(), &"optim.lr was changed".into()));
    let end = events.iter().rfind(|e| e["event"] == "step").unwrap();
    assert_eq!(end["rate"], 0.01);
    assert!(std::fs::read_to_string(place.join("run/settings.toml")).unwrap().contains("\nlr = 0.01\n"));
    let sessions = std::fs::read_to_string(place.join("run/sessions.jsonl")).unwrap();
    assert!(sessions.contains("\"changed\":{\"optim.lr\":\"0.01\"}"), "{sessions}");

    // A run that has come to its end gets more epochs: as if it had had them from the beginning.
    place
        .run(
            &train(0, "whole", &[])
                .iter()
                .map(|a| a.replace("epochs=3", "epochs=5"))
                .collect::<Vec<_>>()
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>(),
        )
        .ok();
    place.run(&train(0, "longer", &[])).ok();
    place.run(&["resume", "longer", "--quiet", "train.epochs=5", "--allow-change", "train.epochs"]).ok();
    same(&left(&place.join("whole")), &place.join("longer"), "more epochs");
}
