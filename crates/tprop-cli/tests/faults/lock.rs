//! Many programs, one run.

use std::process::Child;

use crate::bench::{ended, has_begun, place, row, signal, times, train, wait_for};

#[cfg(unix)]
#[test]
fn of_many_starts_exactly_one_wins() {
    let place = place();
    let n = times(8, 50);
    let args = train(0, "run", &[]);
    // Long enough to outlast all others; it is stopped below.
    let args: Vec<&str> = args
        .into_iter()
        .map(|a| if a == "train.epochs=3" { "train.epochs=1000000" } else { a })
        .chain(["train.patience=0"])
        .collect();
    let mut children: Vec<Child> = (0..n).map(|_| place.command(&args).spawn().unwrap()).collect();
    // All but one give up.
    let mut running = children.len();
    wait_for("the others", || {
        running = children.iter_mut().filter_map(|child| child.try_wait().unwrap().is_none().then_some(())).count();
        running <= 1
    });
    assert_eq!(running, 1);
    let at = children.iter_mut().position(|child| child.try_wait().unwrap().is_none()).unwrap();
    let mut winner = children.swap_remove(at);
    let name = format!("in use by process {}", winner.id());
    for child in children {
        let ran = child.wait_with_output().unwrap();
        let message = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(6), "{message}");
        assert!(message.contains(&name), "{message} instead of {name}");
    }
    wait_for("its first updates", || has_begun(&place.join("run")));
    place.run(&["resume", "run"]).refused(6, &name);
    place.run(&args).refused(6, &name);
    // A dead owner's lock is free.
    winner.kill().unwrap();
    winner.wait().unwrap();
    let mut next = place.command(&["resume", "run"]).spawn().unwrap();
    let lock = || std::fs::read_to_string(place.join("run/lock")).unwrap();
    wait_for("the next owner", || lock().starts_with(&format!("{} ", next.id())));
    wait_for("its session", || {
        std::fs::read_to_string(place.join("run/sessions.jsonl")).is_ok_and(|text| text.lines().count() == 2)
    });
    signal(next.id(), "TERM");
    assert_eq!(ended(&mut next, "the next owner").code(), Some(143));
    row("simultaneous starts", n, "1 won, the others exit 6 and name it; the dead owner's lock was taken over");
}

/// A folder that is just being made is in use, not "no run".
#[cfg(unix)]
#[test]
fn a_run_in_the_making_is_in_use() {
    let place = place();
    std::fs::create_dir(place.join("run")).unwrap();
    // This process takes the part of a program that has not yet written its settings, nor its name.
    let file = std::fs::File::create(place.join("run/lock")).unwrap();
    file.lock().unwrap();
    let me = std::process::id();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let started = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)).unwrap_or("").to_owned();
    let waiting = place.command(&["resume", "run"]).spawn().unwrap();
    std::fs::write(place.join("run/lock"), format!("{me} {started}\n")).unwrap();
    let ran = waiting.wait_with_output().unwrap();
    let message = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(6) && message.contains(&format!("in use by process {me}")), "{message}");
    place.run(&train(0, "run", &[])).refused(6, &format!("in use by process {me}"));
    drop(file);
    place.run(&["resume", "run"]).refused(2, "never begun");
}
