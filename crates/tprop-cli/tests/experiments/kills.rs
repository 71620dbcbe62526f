//! A driver killed at any moment loses nothing and does nothing twice.

use std::collections::BTreeSet;
use std::io::{BufRead, Read};
use std::time::{Duration, Instant};

use super::*;

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
            // Without a driver a run ends at its next event, so one that is in its middle will have to continue later.
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
    assert!(said.contains("the same command continues"), "{said}");
    // Both have saved: their locks are free and their records end with a checkpoint after the signal.
    for run in std::fs::read_dir(place.join("o/runs")).unwrap() {
        let record = std::fs::read_to_string(run.unwrap().path().join("record.jsonl")).unwrap();
        assert!(record.contains("\"reason\":\"stopped\""), "{record}");
    }
    // The same command says that it takes up what is there.
    let mut driver = Driver(place.command(&["sweep", "s.toml", "--out", "o", "--jobs", "2"]).spawn().unwrap());
    let lines = std::io::BufReader::new(driver.0.stderr.take().unwrap()).lines();
    let told: Vec<String> = lines.map(Result::unwrap).filter(|l| l.contains("optim.lr")).take(2).collect();
    assert!(told.len() == 2 && told.iter().all(|l| l.starts_with("continues ")), "{told:?}");
    assert!(told.iter().all(|l| l.matches("optim.lr=0.02").count() == 1), "{told:?}");
}
