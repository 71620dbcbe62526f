//! `kill -9` at any moment, and at each named point of a save.

use std::time::Duration;

use tprop::fault;
use tprop::rng::Draws;

use crate::bench::{KINDS, finish, left, place, row, same, times, train};

/// At random times, also while it resumes. Whatever was there by then, the end is that of the uninterrupted run.
#[cfg(unix)]
#[test]
fn killed_at_random_times_and_resumed() {
    let place = place();
    let n = times(6, 200);
    let draws = Draws::new(1, "moments");
    let mut hits = 0;
    let wholes: Vec<_> = (0..KINDS.len())
        .map(|kind| {
            let run = format!("whole{kind}");
            let since = std::time::Instant::now();
            place.run(&train(kind, &run, &[])).ok();
            (left(&place.join(&run)), since.elapsed())
        })
        .collect();
    for i in 0..n {
        let kind = i as usize % KINDS.len();
        let run = format!("run{i}");
        let args = train(kind, &run, &[]);
        let (whole, duration) = &wholes[kind];
        let mut kill_after = |args: &[&str], moment: Duration| {
            let mut child = place.command(args).spawn().unwrap();
            std::thread::sleep(moment.min(Duration::from_secs(20)));
            child.kill().unwrap();
            let hit = child.wait().unwrap().code().is_none();
            hits += u64::from(hit);
            hit
        };
        // A kill that came too late does not count: once more, earlier.
        let mut moment = duration.mul_f64(draws.unit(2 * i));
        while !kill_after(&args, moment) {
            std::fs::remove_dir_all(place.join(&run)).unwrap();
            moment /= 2;
        }
        if place.join(&run).join("settings.toml").is_file() {
            kill_after(&["resume", &run, "--quiet"], duration.mul_f64(draws.unit(2 * i + 1)));
        }
        finish(&place, &args, &run);
        same(whole, &place.join(&run), &format!("{}, run {i}", KINDS[kind].0));
        std::fs::remove_dir_all(place.join(&run)).unwrap();
    }
    row("kill -9 at random times", n, &format!("all byte-identical; {hits} kills, each run hit at least once"));
}

/// At every line of the record, one after the other: nothing depends on the moment.
#[test]
fn killed_at_lines_of_the_record() {
    let place = place();
    let draws = Draws::new(2, "lines");
    for (kind, (name, _)) in KINDS.into_iter().enumerate() {
        place.run(&train(kind, "whole", &[])).ok();
        let whole = left(&place.join("whole"));
        let lines = std::fs::read_to_string(place.join("whole/record.jsonl")).unwrap().lines().count() as u64;
        let n = times(4, 30).min(lines);
        for i in 0..n {
            // The first, the last, and some in between.
            let line = match i {
                0 => 1,
                1 => lines,
                _ => 1 + draws.below(i, lines),
            };
            let args = train(kind, "run", &[]);
            let fault = format!("record.append:{line}=kill");
            let code = place.command(&args).env("TPROP_FAULT", &fault).output().unwrap().status.code();
            assert_eq!(code, Some(137), "{fault}");
            finish(&place, &args, "run");
            same(&whole, &place.join("run"), &format!("{name}: {fault}"));
            std::fs::remove_dir_all(place.join("run")).unwrap();
        }
        row("kill at a line of the record", n, name);
        std::fs::remove_dir_all(place.join("whole")).unwrap();
    }
}

/// Before and after writing, syncing, renaming, verifying, pruning.
#[test]
fn killed_at_each_point_of_a_save() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let mut n = 0;
    for point in fault::SAVE {
        // By default an early and a late one; the first save of all makes a run that was never begun.
        let passings: &[u64] = if crate::bench::full() { &[1, 2, 3, 5, 7] } else { &[2, 5] };
        for passing in passings {
            let args = train(0, "run", &[]);
            let fault = format!("{point}:{passing}=kill");
            let ran = place.command(&args).env("TPROP_FAULT", &fault).output().unwrap();
            assert_eq!(ran.status.code(), Some(137), "{fault}: {ran:?}");
            if *passing > 3 {
                assert!(place.join("run/settings.toml").is_file(), "{fault}: nothing to continue from");
            }
            finish(&place, &args, "run");
            same(&whole, &place.join("run"), &fault);
            std::fs::remove_dir_all(place.join("run")).unwrap();
            n += 1;
        }
    }
    row("kill at each point of a save", n, "all byte-identical, no leftovers");
}

/// What was killed before its first checkpoint was whole says so, and makes room for a new start.
#[test]
fn a_run_that_was_never_begun_makes_room() {
    let place = place();
    let args = train(0, "run", &[]);
    let killed = place.command(&args).env("TPROP_FAULT", "save.after_write=kill").output().unwrap();
    assert_eq!(killed.status.code(), Some(137));
    assert!(place.join("run/checkpoints/step-0000000000.safetensors.tmp").is_file());
    place.run(&["resume", "run"]).refused(2, "was never begun");
    place.run(&["eval", "run"]).refused(2, "was never begun");
    // With anything else in it, it is not ours to clear.
    place.write("run/notes.txt", "mine");
    place.run(&args).refused(2, "exists and is not empty");
    place.run(&["resume", "run"]).refused(2, "not a run");
    assert_eq!(std::fs::read_to_string(place.join("run/notes.txt")).unwrap(), "mine");
    std::fs::remove_file(place.join("run/notes.txt")).unwrap();
    place.run(&args).ok();
}

/// Killed between its last evaluation and its end, a run tells its end when it is resumed; and only once.
#[test]
fn a_run_that_lacked_only_its_end_gets_it() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let lines = std::fs::read_to_string(place.join("whole/record.jsonl")).unwrap().lines().count();
    // With a fault planned for a save, each one is waited for: the last evaluation's is on the disk.
    let fault = format!("record.append:{lines}=kill,save.never=kill");
    let args = train(0, "run", &[]);
    assert_eq!(place.command(&args).env("TPROP_FAULT", fault).output().unwrap().status.code(), Some(137));
    assert!(!std::fs::read_to_string(place.join("run/record.jsonl")).unwrap().contains("\"event\":\"end\""));
    place.run(&["resume", "run", "--quiet"]).ok();
    same(&whole, &place.join("run"), "end");
    let done = place.run(&["resume", "run"]).ok();
    assert!(done.err.contains("come to its end already"), "{done:?}");
    same(&whole, &place.join("run"), "resumed once more");
}

/// Resumed from update 0, a run does not write its first checkpoint, and its line, a second time.
#[test]
fn a_run_resumed_from_its_first_second() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let args = train(0, "run", &[]);
    // The third line is that of the first updates.
    let killed = place.command(&args).env("TPROP_FAULT", "record.append:3=kill").output().unwrap();
    assert_eq!(killed.status.code(), Some(137));
    let killed = place.command(&["resume", "run"]).env("TPROP_FAULT", "record.append:1=kill").output().unwrap();
    assert_eq!(killed.status.code(), Some(137));
    place.run(&["resume", "run", "--quiet"]).ok();
    same(&whole, &place.join("run"), "from update 0, twice");
    let sessions = std::fs::read_to_string(place.join("run/sessions.jsonl")).unwrap();
    let from: Vec<serde_json::Value> = sessions.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(from.len(), 3);
    assert!(from[0]["from"].is_null() && from[1]["step"] == 0, "{sessions}");
    assert!(from.iter().all(|session| session["run"] == from[0]["run"]));
}
