//! Checkpoints that are whole but cannot be read for a while: permissions, a network disk that is away.
#![cfg(unix)]

use std::path::PathBuf;

use tprop::checkpoint::{BEST, Store};

use crate::bench::{close, finish, left, ordinary, place, row, same, signal, times, train};
use crate::common::Place;

/// A run that was killed when its newest checkpoint was the one of update 240; paths newest first.
fn killed(place: &Place, run: &str) -> Vec<PathBuf> {
    let args = train(0, run, &[]);
    let record = std::fs::read_to_string(place.join("whole/record.jsonl")).unwrap();
    let line = record.lines().position(|l| l.contains("step-0000000240")).unwrap() + 3;
    let fault = format!("record.append:{line}=kill,save.never=kill");
    assert_eq!(place.command(&args).env("TPROP_FAULT", fault).output().unwrap().status.code(), Some(137));
    let store = Store::open(place.join(run).join("checkpoints"));
    store.steps().unwrap().iter().map(|name| store.dir().join(name)).collect()
}

/// Nobody knows what an unreadable file holds, so nothing is done without it: exit 5, nothing changed, and as soon as it can be read
/// the run continues as if nothing had been. Also when someone insists, with a run that is stopped or killed before its next save.
#[test]
fn an_unreadable_newest_checkpoint_is_neither_passed_over_nor_pruned() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let n = times(4, 60);
    for i in 0..n {
        let keep = if i % 2 == 0 { "checkpoint.keep=1" } else { "checkpoint.keep=3" };
        let run = format!("run{i}");
        let paths = killed(&place, &run);
        close(&paths[0], true);
        let before = place.files();
        let mut child = ordinary(&place, &["resume", &run, keep]).spawn().unwrap();
        // What a program that passes over the file does next: it goes on, and is stopped or killed.
        if i % 4 < 2 {
            signal(child.id(), "TERM");
        } else if i % 8 == 2 {
            child.kill().unwrap();
        }
        let ran = child.wait_with_output().unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        // A signal may have come before there was anyone to obey it.
        if ran.status.code().is_some_and(|code| code != 143) {
            assert_eq!(ran.status.code(), Some(5), "{err}");
            assert!(err.contains("step-0000000240.safetensors: cannot be read"), "{err}");
        }
        assert_eq!(place.files(), before, "run {i}");
        close(&paths[0], false);
        ordinary(&place, &["resume", &run, "--quiet"]).output().unwrap();
        same(&whole, &place.join(&run), &format!("run {i}, {keep}"));
        std::fs::remove_dir_all(place.join(&run)).unwrap();
    }
    row("newest checkpoint unreadable, then readable again", n, "exit 5, nothing changed; then byte-identical");
}

/// Whoever moves the file away gets the run from the one before. Put back, it is of a history that the run has not had, and is
/// neither the newest nor pruned.
#[test]
fn a_checkpoint_of_another_history_is_set_aside() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let n = times(4, 60);
    for i in 0..n {
        let run = format!("run{i}");
        let keep = if i % 2 == 0 { "checkpoint.keep=1" } else { "checkpoint.keep=3" };
        let paths = killed(&place, &run);
        let away = place.join("away");
        std::fs::rename(&paths[0], &away).unwrap();
        // It continues from update 200; the file is back before it comes to 240 again.
        let begun = std::fs::read_to_string(place.join(&run).join("sessions.jsonl")).unwrap().lines().count();
        let line = 1 + i % 9;
        let fault = format!("record.append:{line}=kill,save.never=kill");
        let resume = ["resume", &run, "--quiet", keep, "checkpoint.every_steps=7"];
        let stopped = place.command(&resume).env("TPROP_FAULT", &fault).output().unwrap();
        assert_eq!(stopped.status.code(), Some(137), "{stopped:?}");
        let after = std::fs::read_to_string(place.join(&run).join("sessions.jsonl")).unwrap().lines().count();
        assert_eq!(after, begun + 1);
        std::fs::rename(&away, &paths[0]).unwrap();
        let ran = place.run(&["resume", &run, "checkpoint.keep=3", "checkpoint.every_steps=40"]).ok();
        let warned = ran.err.contains("step-0000000240.safetensors: made ");
        assert!(warned, "{ran:?}");
        let aside = paths[0].with_extension("safetensors.aside");
        assert!(aside.is_file(), "whole, so it stays");
        std::fs::remove_file(aside).unwrap();
        // The lines of checkpoints differ, because others were due; all else is the same.
        let parts = left(&place.join(&run));
        assert_eq!(parts.weights(), whole.weights(), "run {i}");
        let steps = |record: &str| -> Vec<String> {
            record.lines().filter(|line| !line.contains("\"event\":\"checkpoint\"")).map(str::to_owned).collect()
        };
        assert_eq!(steps(&parts.record), steps(&whole.record), "run {i}");
        std::fs::remove_dir_all(place.join(&run)).unwrap();
    }
    row("a newer checkpoint put back", n, "set aside with a warning; same weights, no gap in the record");
}

/// The best weights are not replaced by worse ones because they cannot be read.
#[test]
fn an_unreadable_best_is_not_replaced() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let n = times(2, 20);
    for i in 0..n {
        let run = format!("run{i}");
        killed(&place, &run);
        let best = place.join(&run).join("checkpoints").join(BEST);
        let before = std::fs::read(&best).unwrap();
        close(&best, true);
        let ran = ordinary(&place, &["resume", &run]).output().unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(5), "{err}");
        assert!(err.contains("best.safetensors: cannot be read") && err.lines().count() == 1, "{err}");
        close(&best, false);
        assert_eq!(std::fs::read(&best).unwrap(), before);
        finish(&place, &[], &run);
        same(&whole, &place.join(&run), &run);
    }
    row("best weights unreadable at resume", n, "exit 5, not replaced; then byte-identical");
}
