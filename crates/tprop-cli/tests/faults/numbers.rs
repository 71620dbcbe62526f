//! Numbers that are not finite, rates that blow up, and threads that must not matter.

use crate::bench::{has_begun, left, place, row, same, train};
use crate::damage::all_finite;

#[test]
fn numbers_that_are_not_finite_stop_the_run_at_their_step() {
    let place = place();
    let mut n = 0;
    for kind in 0..3 {
        for what in ["gradient", "loss", "weights"] {
            for bad in ["nan", "inf"] {
                // A pass of the second kind is one update.
                let at = if kind == 1 { 2 } else { 150 };
                let fault = format!("nan.{what}:{at}={bad}");
                let ran = place.command(&train(kind, "run", &[])).env("TPROP_FAULT", &fault).output().unwrap();
                let message = String::from_utf8(ran.stderr).unwrap();
                assert_eq!(ran.status.code(), Some(3), "{fault}: {message}");
                assert!(message.contains(&format!("diverged at step {at} ")), "{fault}: {message}");
                for word in ["; rate 0.", "gradient norm ", "smaller optim.lr"] {
                    assert!(message.contains(word), "{fault}: {word} not in {message}");
                }
                assert!(has_begun(&place.join("run")), "{fault}");
                all_finite(&place.join("run"));
                std::fs::remove_dir_all(place.join("run")).unwrap();
                n += 1;
            }
        }
    }
    // A rate that is far too large, with and without clipping.
    for more in [&["optim.lr=1e6", "optim.name=sgd", "optim.clip=0"][..], &["optim.lr=1e6", "optim.name=sgd"]] {
        let ran = place.run(&train(0, "run", more));
        ran.refused(3, "rate 1000000");
        all_finite(&place.join("run"));
        std::fs::remove_dir_all(place.join("run")).unwrap();
        n += 1;
    }
    // Where states move too, their steps may be the cause; where an evaluation finds it, no gradient is blamed.
    let moving = place.run(&train(0, "run", &["method=btprop", "btprop.block=2", "optim.lr=1e6", "optim.clip=0"]));
    moving.refused(3, "or a smaller btprop.state_lr or btprop.lambda");
    row(
        "NaN or Inf in gradient, loss or weights; lr = 1e6",
        n,
        "all found at their step, exit 3, no NaN in a checkpoint",
    );
}

/// Back to the last good checkpoint with a smaller rate; the record says so, and a kill behind it changes nothing.
#[test]
fn a_diverged_run_may_go_back_with_a_smaller_rate() {
    let place = place();
    let more = ["train.on_divergence=rollback"];
    let fault = "nan.gradient:150=nan,save.never=kill";
    let run = |name: &str, fault: &str| {
        let ran = place.command(&train(0, name, &more)).env("TPROP_FAULT", fault).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    assert_eq!(run("whole", fault), (Some(0), String::new()));
    let record = std::fs::read_to_string(place.join("whole/record.jsonl")).unwrap();
    let at = record.lines().position(|line| line.contains("\"reason\":\"diverged\"")).unwrap();
    let line: serde_json::Value = serde_json::from_str(record.lines().nth(at).unwrap()).unwrap();
    // The checkpoint of update 120 is the last before update 150.
    assert_eq!((line["step"].as_u64(), line["rate"].as_f64()), (Some(120), Some(0.005)));
    assert!(record.lines().skip(at + 1).all(|line| !line.contains("\"rate\":0.05,")), "{record}");
    all_finite(&place.join("whole"));
    // Killed behind the rollback and before the next checkpoint (the lines of updates 121 to 149 were written in vain): it continues
    // from there with the smaller rate.
    let lines = at as u64 + 29 + 15;
    assert_eq!(run("run", &format!("{fault},record.append:{lines}=kill")).0, Some(137));
    place.run(&["resume", "run", "--quiet"]).ok();
    same(&left(&place.join("whole")), &place.join("run"), "behind a rollback");
    row("rollback after divergence", 2, "rate divided by 10, told in the record, resumed byte-identical");
}

/// Any number of threads, also changed on the way.
#[test]
fn threads_change_nothing() {
    let place = place();
    // The number itself is a setting and the record's first line tells it.
    let words = |run: &'static str, threads: &'static str| -> Vec<&'static str> {
        let mut args = train(0, run, &[threads]);
        args.retain(|a| *a != "train.threads=1");
        args.extend(["train.streams=70"]);
        args.retain(|a| *a != "train.streams=4");
        args
    };
    let weights = |run: &str| {
        let out = format!("{run}-out");
        place.run(&["export", run, "--out", &out]).ok();
        std::fs::read(place.join(&out).join("model.safetensors")).unwrap()
    };
    place.run(&words("one", "train.threads=1")).ok();
    let one = weights("one");
    let all: &[(&str, &str)] = &[
        ("two", "train.threads=2"),
        ("three", "train.threads=3"),
        ("four", "train.threads=4"),
        ("eight", "train.threads=8"),
    ];
    let tried = if crate::bench::full() { all } else { &all[1..2] };
    for (run, threads) in tried {
        place.run(&words(run, threads)).ok();
        assert!(weights(run) == one, "{threads}");
    }
    let killed =
        place.command(&words("changed", "train.threads=3")).env("TPROP_FAULT", "record.append:9=kill").output();
    assert_eq!(killed.unwrap().status.code(), Some(137));
    place.run(&["resume", "changed", "--quiet", "--threads", "2"]).ok();
    assert!(weights("changed") == one);
    row("threads, also changed on resume", tried.len() as u64 + 2, "byte-identical weights");
}
