//! `import` killed, out of disk, or cut off from its power: the same command works again.

use std::time::Duration;

use tprop::fault;
use tprop::rng::Draws;

use crate::bench::{place, row, times, train};
use crate::common::Place;

fn exported() -> Place {
    let place = place();
    place.run(&train(0, "run", &[])).ok();
    place.run(&["export", "run", "--out", "out"]).ok();
    place
}

const IMPORT: [&str; 4] = ["import", "out", "--run", "in"];

/// The same command works, and what it made is whole.
#[track_caller]
fn again(place: &Place, what: &str) {
    if !place.join("in/settings.toml").is_file() {
        let ran = place.run(&IMPORT);
        assert_eq!(ran.code, 0, "{what}: {ran:?}");
    }
    place.run(&["generate", "in", "--tokens", "3"]).ok();
    std::fs::remove_dir_all(place.join("in")).unwrap();
}

#[test]
fn an_import_that_was_cut_off_can_be_made_again() {
    let place = exported();
    let mut n = 0;
    for point in &fault::SAVE[..7] {
        for action in ["kill", "full"] {
            let fault = format!("{point}={action}");
            let code = place.command(&IMPORT).env("TPROP_FAULT", &fault).output().unwrap().status.code();
            assert_eq!(code, Some(if action == "kill" { 137 } else { 5 }), "{fault}");
            again(&place, &fault);
            n += 1;
        }
    }
    row("import killed or out of disk at each point of its save", n, "the same command works again");
    // What someone trained is not cleared away.
    place.run(&IMPORT).ok();
    std::fs::rename(place.join("in/settings.toml"), place.join("away")).unwrap();
    std::fs::write(place.join("in/checkpoints/step-0000000005.safetensors"), "x").unwrap();
    place.run(&IMPORT).refused(2, "exists and is not empty");
    std::fs::remove_dir_all(place.join("in")).unwrap();

    #[cfg(unix)]
    {
        let draws = Draws::new(8, "imports");
        let n = times(5, 100);
        let mut hits = 0;
        for i in 0..n {
            let mut child = place.command(&IMPORT).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(draws.below(i, 30_000)));
            child.kill().unwrap();
            hits += u64::from(child.wait().unwrap().code().is_none());
            if place.join("in").exists() {
                again(&place, &format!("kill {i}"));
            }
        }
        row("import killed in its first 30 ms", n, &format!("{hits} hit; the same command works again"));
    }
}

/// What a power cut leaves of a lock that was just written: its name, and zeros or nothing for its bytes.
#[test]
fn a_blank_lock_stops_nobody() {
    let place = place();
    let args = train(0, "run", &[]);
    let mut n = 0;
    for lock in [&b""[..], &[0; 9], &[0; 20]] {
        for beside in [&[][..], &["tokenizer.json"], &["tokenizer.json.tmp", "record.jsonl", "sessions.jsonl"]] {
            std::fs::create_dir_all(place.join("run/checkpoints")).unwrap();
            std::fs::write(place.join("run/lock"), lock).unwrap();
            beside.iter().for_each(|name| std::fs::write(place.join("run").join(name), [0; 7]).unwrap());
            place.run(&["resume", "run"]).refused(2, "was never begun");
            place.run(&args).ok();
            std::fs::remove_dir_all(place.join("run")).unwrap();
            n += 1;
        }
    }
    // Another's folder, though, is another's.
    std::fs::create_dir(place.join("run")).unwrap();
    place.write("run/lock", "mine\n");
    place.write("run/tokenizer.json", "{}");
    place.run(&args).refused(2, "exists and is not empty");
    row("power cut before settings.toml", n, "the same command works again");
}
