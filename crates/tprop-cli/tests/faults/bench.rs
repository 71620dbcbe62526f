//! What all fault tests stand on: small runs of several kinds, and what "identical" means.

use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use tprop::checkpoint::{self, Snapshot, Store, Tensor};
use tprop::rng::Draws;

use crate::common::Place;

/// Whether the numbers of the table are asked for.
pub fn full() -> bool {
    std::env::var("TPROP_FAULTS").is_ok_and(|value| value == "full")
}

/// How often a fault strikes: by default, and for the table.
pub fn times(few: u64, many: u64) -> u64 {
    if full() { many } else { few }
}

/// A line for the table (`--nocapture` shows it).
pub fn row(fault: &str, n: u64, what: &str) {
    println!("fault | {fault} | N = {n} | {what}");
}

/// A text of a few thousand words with some order in it, and 40 different ones.
pub fn text(words: u64) -> String {
    let draws = Draws::new(7, "text of the fault tests");
    let mut text = String::new();
    for i in 0..words {
        let word = (i % 3) * 13 + draws.below(i, 13);
        text += &format!("w{word}{}", if i % 9 == 8 { "\n" } else { " " });
    }
    text
}

/// Small runs: minibatches, whole passes with states and duals, two layers.
pub const KINDS: [(&str, &[&str]); 3] = [
    ("bptt", &["model.hidden=16", "train.streams=4", "bptt.window=10"]),
    (
        "batch admm",
        &[
            "method=btprop",
            "train.batch=full",
            "model.hidden=8",
            "train.streams=40",
            "btprop.block=5",
            "btprop.state_optim=adagrad",
            "btprop.state_steps=2",
            "optim.lr=0.5",
        ],
    ),
    ("lstm adam", &["model.cell=lstm", "model.layers=2", "model.hidden=6", "optim.name=adam", "train.streams=3"]),
];

/// A place with the text in it.
pub fn place() -> Place {
    let place = Place::new();
    place.write("text.txt", text(4000));
    place
}

/// `train` of a small run.
pub fn train<'a>(kind: usize, run: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["train", "text.txt", "--run", run, "--quiet", "train.epochs=3", "eval.streams=4"];
    args.extend(["checkpoint.every_steps=40", "train.threads=1"]);
    args.extend(KINDS[kind % KINDS.len()].1);
    args.extend(more);
    args
}

/// Trains or, where there is something to continue from, resumes to the end.
#[track_caller]
pub fn finish(place: &Place, train: &[&str], run: &str) {
    let resumable = place.join(run).join("settings.toml").is_file();
    let args: Vec<&str> = if resumable { vec!["resume", run, "--quiet"] } else { train.to_vec() };
    place.run(&args).ok();
}

/// Everything that two runs must have in common, with times left out.
#[derive(Debug, PartialEq)]
pub struct Left {
    /// Names in `checkpoints/`, without the older states: which ones a newer one overtook depends on the disk.
    files: Vec<String>,
    newest: Snapshot,
    best: Snapshot,
    pub record: String,
}

impl Left {
    /// Weights, optimiser and best, without any numbers about the run.
    pub fn weights(&self) -> (&[Tensor], &[Tensor]) {
        (&self.newest.tensors, &self.best.tensors)
    }
}

/// What a run left.
#[track_caller]
pub fn left(run: &Path) -> Left {
    let store = Store::open(run.join("checkpoints"));
    let timeless = |mut snapshot: Snapshot| {
        for name in ["real.train.seconds", "real.train.recent_since", "record", "record_sha256", "run"] {
            snapshot.meta.remove(name);
        }
        snapshot
    };
    let mut files: Vec<String> = std::fs::read_dir(store.dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let steps = store.steps().unwrap();
    assert!(steps.len() <= 3, "{steps:?}");
    files.retain(|name| !steps[1..].contains(name));
    Left {
        files,
        newest: timeless(store.newest().unwrap().snapshot),
        best: timeless(store.read(checkpoint::BEST).unwrap()),
        record: timeless_record(run),
    }
}

/// The record byte by byte, but for the times.
pub fn timeless_record(run: &Path) -> String {
    let mut text = std::fs::read_to_string(run.join("record.jsonl")).unwrap();
    for key in ["\"seconds\":", "\"tokens_per_s\":"] {
        let mut rest = text.as_str();
        let mut cut = String::new();
        while let Some(at) = rest.find(key) {
            let (before, behind) = rest.split_at(at + key.len());
            cut += before;
            rest = behind.trim_start_matches(|c: char| c.is_ascii_digit() || ".eE+-".contains(c));
        }
        text = cut + rest;
    }
    text
}

/// The same as the uninterrupted run.
#[track_caller]
pub fn same(whole: &Left, run: &Path, what: &str) {
    let parts = left(run);
    for (i, (a, b)) in parts.record.lines().zip(whole.record.lines()).enumerate() {
        assert_eq!(a, b, "{what}: line {} of the record", i + 1);
    }
    assert_eq!(parts.record.len(), whole.record.len(), "{what}: another length of the record");
    assert_eq!(parts.files, whole.files, "{what}: other files");
    assert_eq!(parts.newest.meta, whole.newest.meta, "{what}: other numbers");
    assert!(parts.newest == whole.newest, "{what}: other weights or optimiser state");
    assert!(parts.best == whole.best, "{what}: another best");
}

/// Waits for something that must come; a loaded machine may take its time.
#[track_caller]
pub fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(since.elapsed() < Duration::from_secs(300), "{what}: it never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for the end of a process, not for ever.
#[track_caller]
pub fn ended(child: &mut Child, what: &str) -> ExitStatus {
    let mut status = None;
    wait_for(what, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Whether the record of a run tells of an update already.
pub fn has_begun(run: &Path) -> bool {
    std::fs::read_to_string(run.join("record.jsonl")).is_ok_and(|record| record.contains("\"event\":\"step\""))
}

/// Sends a signal.
#[cfg(unix)]
pub fn signal(id: u32, name: &str) {
    // The process may have ended by itself.
    let _ = std::process::Command::new("kill").arg(format!("-{name}")).arg(id.to_string()).output().unwrap();
}

/// The program as someone whom permissions keep out: `root`, which tests in containers often are, reads everything.
#[cfg(unix)]
pub fn ordinary(place: &Place, args: &[&str]) -> std::process::Command {
    use std::os::unix::{fs, process::CommandExt};
    const NOBODY: u32 = 65_534;
    let mut command = place.command(args);
    let probe = place.write("probe", "");
    close(&probe, true);
    if std::fs::File::open(&probe).is_ok() {
        fn give(path: &Path) {
            fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            if path.is_dir() {
                std::fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path()));
            }
        }
        give(place.path());
        command.uid(NOBODY).gid(NOBODY);
    }
    std::fs::remove_file(&probe).unwrap();
    command
}

/// Takes all permissions of a file away, or gives them back.
#[cfg(unix)]
pub fn close(path: &Path, closed: bool) {
    use std::os::unix::fs::PermissionsExt;
    let mode = if closed { 0 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
