//! Ctrl-C, `kill`, a closed terminal: saved, told by the exit code, and resumed as if nothing had been.
#![cfg(unix)]

use std::time::{Duration, Instant};

use tprop::checkpoint::Store;
use tprop::rng::Draws;

use crate::bench::{KINDS, ended, finish, has_begun, left, place, row, same, signal, times, train, wait_for};

/// Whether this process, and so its children, ignore a closed terminal (`nohup`).
fn nohup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim).unwrap_or("0");
    u64::from_str_radix(mask, 16).unwrap_or(0) & 1 == 1
}

#[test]
fn signals_save_and_stop() {
    let place = place();
    let n = times(4, 100);
    let draws = Draws::new(5, "signals");
    let wholes: Vec<_> = (0..KINDS.len())
        .map(|kind| {
            let run = format!("whole{kind}");
            place.run(&train(kind, &run, &[])).ok();
            left(&place.join(&run))
        })
        .collect();
    let (mut slowest, mut stopped) = (Duration::ZERO, 0);
    for i in 0..n {
        let kind = i as usize % KINDS.len();
        let args = train(kind, "run", &[]);
        let (name, code) = [("INT", 130), ("TERM", 143), ("HUP", 143)][draws.below(3 * i, 3) as usize];
        if name == "HUP" && nohup() {
            continue;
        }
        let mut child = place.command(&args).spawn().unwrap();
        wait_for("the first checkpoint", || place.join("run/settings.toml").is_file());
        std::thread::sleep(Duration::from_millis(draws.below(3 * i + 1, 150)));
        let sent = Instant::now();
        signal(child.id(), name);
        match ended(&mut child, name).code() {
            // It had come to its own end.
            Some(0) => {}
            found => {
                assert_eq!(found, Some(code), "{name}, {}", KINDS[kind].0);
                slowest = slowest.max(sent.elapsed());
                stopped += 1;
                // Saved where it stopped: the newest checkpoint and the record's end tell of the same update.
                let newest = Store::open(place.join("run/checkpoints")).newest().unwrap();
                let record = std::fs::read_to_string(place.join("run/record.jsonl")).unwrap();
                let end: serde_json::Value = serde_json::from_str(record.lines().last().unwrap()).unwrap();
                assert_eq!(end["reason"], "stopped", "{end}");
                assert_eq!(end["step"].as_u64(), newest.snapshot.count("train.step"));
            }
        }
        finish(&place, &args, "run");
        same(&wholes[kind], &place.join("run"), &format!("{name}, {}, run {i}", KINDS[kind].0));
        std::fs::remove_dir_all(place.join("run")).unwrap();
    }
    let slowest = slowest.as_millis();
    row(
        "SIGINT, SIGTERM, SIGHUP",
        n,
        &format!("{stopped} stopped, the slowest after {slowest} ms; all byte-identical"),
    );
}

/// Whoever reads the events hears of the end that a signal brings.
#[test]
fn a_signal_is_told_to_the_reader_of_events() {
    let place = place();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let args: Vec<&str> = train(0, name, &["train.patience=0", "--json"])
            .into_iter()
            .map(|a| if a == "train.epochs=3" { "train.epochs=1000" } else { a })
            .collect();
        let child = place.command(&args).spawn().unwrap();
        wait_for("the first updates", || has_begun(&place.join(name)));
        signal(child.id(), name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        let events = String::from_utf8(output.stdout).unwrap();
        let last = events.lines().last().unwrap();
        assert!(last.contains("\"event\":\"end\"") && last.contains("\"reason\":\"stopped\""), "{name}: {last}");
    }
}

/// `timeout` and shells send the same signal twice, to the process and to its group: that is one request.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let n = times(4, 100);
    let draws = Draws::new(6, "twice");
    let mut stopped = 0;
    for i in 0..n {
        let args = train(0, "run", &[]);
        let (name, code) = [("TERM", 143), ("INT", 130)][i as usize % 2];
        // A save that takes its time, so that the second signal comes in the middle of it.
        let mut child = place.command(&args).env("TPROP_FAULT", "save.before_write:2=slow").spawn().unwrap();
        wait_for("the first updates", || has_begun(&place.join("run")));
        signal(child.id(), name);
        std::thread::sleep(Duration::from_millis(draws.below(i, 300)));
        signal(child.id(), name);
        let found = ended(&mut child, "two signals").code();
        if found == Some(code) {
            stopped += 1;
            let newest = Store::open(place.join("run/checkpoints")).newest().unwrap();
            let record = std::fs::read_to_string(place.join("run/record.jsonl")).unwrap();
            let end: serde_json::Value = serde_json::from_str(record.lines().last().unwrap()).unwrap();
            assert_eq!(end["reason"], "stopped", "run {i} ended unsaved");
            assert_eq!(end["step"].as_u64(), newest.snapshot.count("train.step"));
        } else {
            assert_eq!(found, Some(0), "it had come to its own end");
        }
        finish(&place, &args, "run");
        same(&whole, &place.join("run"), &format!("twice, run {i}"));
        std::fs::remove_dir_all(place.join("run")).unwrap();
    }
    row("signal twice within a second", n, &format!("{stopped} stopped, all of them saved; all byte-identical"));
}

/// A second signal, a second or more after the first, does not wait for anything, and loses nothing that was saved.
#[test]
fn a_later_signal_ends_at_once() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let args = train(0, "run", &[]);
    // The save that the first signal asks for never ends.
    let mut child = place.command(&args).env("TPROP_FAULT", "save.before_write:2=wait").spawn().unwrap();
    wait_for("the first updates", || has_begun(&place.join("run")));
    signal(child.id(), "TERM");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "it did not wait for its save");
    let sent = Instant::now();
    signal(child.id(), "TERM");
    assert_eq!(ended(&mut child, "a later signal").code(), Some(143));
    assert!(sent.elapsed() < Duration::from_secs(5));
    finish(&place, &args, "run");
    same(&whole, &place.join("run"), "a later signal");
    row("a second signal after 1.5 s", 1, "ended at once; byte-identical");
}

/// One pass over the text is one update here: the signal is obeyed inside it, and the pass continues where it was.
#[test]
fn a_signal_is_obeyed_in_the_middle_of_a_pass() {
    let place = place();
    place.write("text.txt", crate::bench::text(60_000));
    // So large a model that the pass has several pieces.
    let train = |run: &'static str| -> Vec<&str> {
        let other = |a| match a {
            "model.hidden=8" => "model.hidden=96",
            "optim.lr=0.5" => "optim.lr=0.05",
            same => same,
        };
        train(1, run, &[]).into_iter().map(other).collect()
    };
    place.run(&train("whole")).ok();
    let whole = left(&place.join("whole"));
    // Whether a stop falls between two passes is chance; one in the middle must come before long.
    let mut inside = false;
    for i in 0..20u64 {
        let args = train("run");
        let mut child = place.command(&args).spawn().unwrap();
        wait_for("the first checkpoint", || place.join("run/settings.toml").is_file());
        std::thread::sleep(Duration::from_millis(10 * i));
        signal(child.id(), "INT");
        let code = ended(&mut child, "INT").code();
        assert!(code == Some(130) || code == Some(0), "{code:?}");
        let newest = Store::open(place.join("run/checkpoints")).newest().unwrap().snapshot;
        inside |= newest.count("btprop.done") > Some(0) || newest.count("btprop.piece") > Some(0);
        finish(&place, &args, "run");
        same(&whole, &place.join("run"), &format!("run {i}"));
        std::fs::remove_dir_all(place.join("run")).unwrap();
        if inside {
            row("signal inside a batch pass", i + 1, "stopped inside the pass, byte-identical");
            return;
        }
    }
    panic!("no signal was obeyed inside a pass");
}
