//! Memory over many steps, and models that do not fit.

use crate::bench::{ended, full, place, row, signal, train, wait_for};
use crate::common::small;

/// Resident bytes of a process, where the system tells.
#[cfg(target_os = "linux")]
fn resident(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow() {
    let place = place();
    // The allocator settles slowly: some tens of kilobytes in the first thousands of steps, with two threads that hand memory over.
    let (warm, last) = if full() { (5_000, 15_000) } else { (500, 2_500) };
    let args = train(0, "run", &["train.patience=0"]);
    let args: Vec<&str> =
        args.into_iter().map(|a| if a == "train.epochs=3" { "train.epochs=1000000" } else { a }).collect();
    let mut child = place.command(&args).spawn().unwrap();
    let step = || {
        let record = std::fs::read_to_string(place.join("run/record.jsonl")).unwrap_or_default();
        let line = record.lines().rev().find(|line| line.starts_with("{\"event\":\"step\"") && line.ends_with('}'));
        line.and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok()?["step"].as_u64()).unwrap_or(0)
    };
    let mut at = Vec::new();
    for goal in [warm, last] {
        wait_for("that many steps", || step() >= goal);
        at.push(resident(child.id()));
    }
    signal(child.id(), "TERM");
    assert_eq!(ended(&mut child, "TERM").code(), Some(143));
    let growth = at[1] as f64 / at[0] as f64 - 1.0;
    // A few pages of the allocator's own come and go; over few steps they weigh more.
    assert!(at[0] > 0 && (growth < 0.01 || (!full() && at[1] < at[0] + (1 << 20))), "{at:?}");
    row(
        "steps",
        last - warm,
        &format!("resident memory {} → {} KB ({:+.2} %)", at[0] / 1024, at[1] / 1024, 100.0 * growth),
    );
}

#[test]
fn a_model_that_does_not_fit_is_refused_at_the_start() {
    let place = place();
    let before = place.files();
    let args = ["train", "--hidden", "32768", "--layers", "64", "synth.tokens=1000", "--run", "run"];
    place.run(&args).refused(2, "this needs about");
    // Nor windows whose tapes or states do not fit.
    let wide =
        ["train", "--hidden", "4096", "bptt.window=100000", "train.streams=64", "synth.tokens=1000", "--run", "run"];
    place.run(&wide).refused(2, "this needs about");
    let stored =
        ["method=btprop", "btprop.init=stored:1", "btprop.block=1", "btprop.blocks=100000", "train.streams=65536"];
    place.run(&[&["train", "synth.tokens=1000", "--run", "run"], &stored[..]].concat()).refused(2, "this needs about");
    assert_eq!(place.files(), before);
    let ran = place.run(&small(&["--run", "run"])).ok();
    assert!(ran.err.contains("of memory"), "{ran:?}");
    row("model too large for memory", 1, "refused with an estimate; the estimate is always printed");
}

/// `ulimit -v`: refused with an estimate, or done; never a panic or an abort.
#[cfg(target_os = "linux")]
#[test]
fn the_limit_of_a_shell_is_kept() {
    let place = place();
    let program = env!("CARGO_BIN_EXE_tprop");
    let limited = |megabytes: u64, args: &[&str]| {
        let line = format!("ulimit -v {}; exec {program} {}", megabytes << 10, args.join(" "));
        let output = std::process::Command::new("sh").args(["-c", &line]).current_dir(place.path()).output().unwrap();
        let _ = std::fs::remove_dir_all(place.join("run"));
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let large = ["train", "--hidden", "2048", "synth.tokens=3000", "eval.streams=2", "--run", "run", "--quiet"];
    let (mut n, sizes) = (0, if full() { 24 } else { 3 });
    for i in 0..sizes {
        let megabytes = 120 + i * 1200 / sizes;
        let (code, err) = limited(megabytes, &large);
        assert!(code == Some(2) && err.contains("this needs about"), "{megabytes} MB: {code:?}, {err}");
        let little = train(0, "run", &["--threads", "2"]);
        let little: Vec<&str> = little.into_iter().filter(|a| *a != "train.threads=1").collect();
        let (code, err) = limited(megabytes, &little);
        assert!([Some(0), Some(2)].contains(&code), "{megabytes} MB: {code:?}, {err}");
        assert!(!err.contains("made a mistake") && !err.contains("panicked"), "{megabytes} MB: {err}");
        n += 2;
    }
    row("memory limits of a shell (ulimit -v)", n, "refused at the start, or done");
}
