//! Damaged checkpoints: found, named, and stepped over.

use std::path::{Path, PathBuf};

use tprop::checkpoint::{CheckpointError, Snapshot, Store, hex};
use tprop::rng::Draws;

use crate::bench::{left, place, row, same, times, train};
use crate::common::Place;

/// A run that was stopped in the middle: three checkpoints and the best.
fn stopped(place: &Place, run: &str) -> Vec<PathBuf> {
    let args = train(0, run, &[]);
    // Behind the checkpoints of updates 120, 160, 200, 200 (evaluated) and 240.
    let record = std::fs::read_to_string(place.join("whole/record.jsonl")).unwrap();
    let line = record.lines().position(|l| l.contains("step-0000000240")).unwrap() + 3;
    let fault = format!("record.append:{line}=kill,save.never=kill");
    assert_eq!(place.command(&args).env("TPROP_FAULT", fault).output().unwrap().status.code(), Some(137));
    let store = Store::open(place.join(run).join("checkpoints"));
    let steps = store.steps().unwrap();
    assert_eq!(steps.len(), 3, "{steps:?}");
    steps.iter().map(|name| store.dir().join(name)).collect()
}

/// Reading must refuse, in words that name the file.
#[track_caller]
fn refused(path: &Path, bytes: &[u8], what: &str) -> String {
    std::fs::write(path, bytes).unwrap();
    let store = Store::open(path.parent().unwrap());
    let name = path.file_name().unwrap().to_str().unwrap();
    match store.read(name) {
        Ok(_) => panic!("{what}: accepted"),
        Err(e) => {
            let message = e.to_string();
            assert!(message.contains(name) && message.len() > name.len() + 10, "{what}: {message}");
            message
        }
    }
}

#[test]
fn no_damage_is_accepted() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let path = stopped(&place, "run").remove(0);
    let good = std::fs::read(&path).unwrap();
    let draws = Draws::new(3, "damage");

    let n = times(400, 10_000);
    for i in 0..n {
        let bit = draws.below(i, good.len() as u64 * 8);
        let mut bad = good.clone();
        bad[bit as usize / 8] ^= 1 << (bit % 8);
        refused(&path, &bad, &format!("bit {bit}"));
    }
    row("one bit flipped", n, "0 accepted, 0 panics");

    let n = times(60, 1_000);
    for i in 0..n {
        let length = draws.below(20_000 + i, good.len() as u64) as usize;
        refused(&path, &good[..length], &format!("cut to {length}"));
    }
    row("truncated", n, "0 accepted, 0 panics");

    let n = times(60, 1_000);
    for i in 0..n {
        let at = draws.below(30_000 + i, good.len() as u64) as usize;
        let mut bad = good.clone();
        let end = good.len().min(at + 4096);
        bad[at..end].fill(0);
        if bad != good {
            refused(&path, &bad, &format!("4 KiB of zeros at {at}"));
        }
    }
    row("4 KiB zeroed", n, "0 accepted, 0 panics");

    assert!(refused(&path, b"", "empty").contains("empty"));
    let mut bad = good.clone();
    bad[..8].copy_from_slice(b"PK\x03\x04\x14\0\0\0");
    assert!(refused(&path, &bad, "wrong magic").contains("not a safetensors file"));
    let mut bad = good.clone();
    bad.extend_from_slice(b"more");
    refused(&path, &bad, "longer");
    let future = replaced(&good, "\"format\":\"1\"", "\"format\":\"2\"");
    assert!(refused(&path, &future, "future").contains("newer version"));
    row("empty, wrong magic, longer, future version", 4, "0 accepted, 0 panics");
}

/// The file with one text of its header replaced by another of the same length, and the hash that belongs to it.
fn replaced(good: &[u8], old: &str, new: &str) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    assert_eq!(old.len(), new.len());
    let find = |bytes: &[u8], what: &str| bytes.windows(what.len()).position(|w| w == what.as_bytes()).unwrap();
    let mut bytes = good.to_vec();
    let at = find(&bytes, old);
    bytes[at..at + old.len()].copy_from_slice(new.as_bytes());
    let hash = find(&bytes, "\"sha256\":\"") + 10;
    bytes[hash..hash + 64].fill(b'0');
    let digits = hex(&Sha256::digest(&bytes));
    bytes[hash..hash + 64].copy_from_slice(digits.as_bytes());
    bytes
}

#[test]
fn files_under_the_wrong_name_are_found_out() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let paths = stopped(&place, "run");
    let best = paths[0].with_file_name("best.safetensors");
    let read = |path: &Path| std::fs::read(path).unwrap();

    // Renamed, swapped, the best as one to continue from and the reverse.
    let (newest, older) = (read(&paths[0]), read(&paths[2]));
    assert!(refused(&paths[0], &older, "renamed").contains("renamed or swapped"));
    assert!(refused(&paths[2], &newest, "swapped").contains("renamed or swapped"));
    assert!(refused(&paths[1], &read(&best), "the best").contains("renamed or swapped"));
    let good_best = read(&best);
    assert!(refused(&best, &newest, "a step as the best").contains("renamed or swapped"));
    // Of another run with the same settings.
    let other = stopped(&place, "other");
    std::fs::write(&best, &good_best).unwrap();
    for (path, theirs) in paths.iter().zip(&other) {
        std::fs::copy(theirs, path).unwrap();
    }
    let ran = place.run(&["resume", "run"]);
    assert!(ran.code == 4 && ran.err.matches("a checkpoint of another run").count() == 3, "{ran:?}");
    // Put back, all is well.
    std::fs::write(&paths[0], newest).unwrap();
    place.run(&["resume", "run", "--quiet"]).ok();
    same(&whole, &place.join("run"), "put back");
    row("renamed, swapped, of another run", 6, "0 accepted");
}

#[test]
fn a_bad_newest_checkpoint_is_stepped_over_with_one_warning() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    for (run, bad, keep) in [("one", 1, "3"), ("two", 2, "3"), ("keep1", 2, "1")] {
        let paths = stopped(&place, run);
        for path in &paths[..bad] {
            std::fs::write(path, "damaged, and not in a small way").unwrap();
        }
        let keep = format!("checkpoint.keep={keep}");
        if run == "keep1" {
            // The bad files must not count among those that are kept, or the good ones would be pruned.
            let args = ["resume", run, &keep, "checkpoint.every_steps=1"];
            let fault = "record.append:5=kill,save.never=kill";
            let killed = place.command(&args).env("TPROP_FAULT", fault).output().unwrap();
            assert_eq!(killed.status.code(), Some(137), "{killed:?}");
            place.run(&["resume", run, "--quiet"]).ok();
            continue;
        }
        let ran = place.run(&["resume", run, &keep]).ok();
        assert_eq!(ran.err.matches("warning").count(), 1, "{ran:?}");
        for path in &paths[..bad] {
            assert!(ran.err.contains(path.file_name().unwrap().to_str().unwrap()), "{ran:?}");
        }
        // The record, the weights and the best are those of the whole run; only the settings of checkpoints differ.
        let names = std::fs::read_dir(place.join(run).join("checkpoints")).unwrap();
        for entry in names {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(name.ends_with(".safetensors"), "{name} was left");
        }
        if keep.ends_with('3') {
            same(&whole, &place.join(run), run);
        }
    }
    // None is good: a list with reasons, and nothing changes.
    let paths = stopped(&place, "none");
    for path in &paths {
        std::fs::write(path, "damaged, and not in a small way").unwrap();
    }
    let before = place.files();
    let ran = place.run(&["resume", "none"]);
    assert_eq!(ran.code, 4, "{ran:?}");
    for path in &paths {
        assert!(
            ran.err.contains(&format!("{}: not a safetensors file", path.file_name().unwrap().to_str().unwrap())),
            "{ran:?}"
        );
    }
    assert_eq!(place.files(), before);
    row("newest checkpoint bad", 4, "3 fell back with one warning, 1 refused with a list");
}

/// The best is bad or gone: the run continues, with a warning, and finds a new best.
#[test]
fn a_lost_best_is_forgotten_aloud() {
    let place = place();
    place.run(&train(0, "whole", &[])).ok();
    let whole = left(&place.join("whole"));
    let best = stopped(&place, "run")[0].with_file_name("best.safetensors");
    std::fs::write(&best, "damaged").unwrap();
    place.run(&["eval", "run"]).refused(4, "best.safetensors");
    let ran = place.run(&["resume", "run"]).ok();
    assert!(
        ran.err.contains("best.safetensors") && ran.err.contains("next evaluation will count as the best"),
        "{ran:?}"
    );
    // Here the last epoch is the best in any case.
    same(&whole, &place.join("run"), "a new best");
}

/// A whole checkpoint with values that are not finite is never written; see also `numbers.rs`.
#[track_caller]
pub fn all_finite(run: &Path) {
    let dir = run.join("checkpoints");
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        let snapshot: Result<Snapshot, CheckpointError> = tprop::checkpoint::read(&path);
        for tensor in snapshot.unwrap().tensors {
            let finite = tensor.bytes.as_chunks::<4>().0.iter().all(|b| f32::from_le_bytes(*b).is_finite());
            assert!(tensor.kind == "F32" && finite, "{}: {}", path.display(), tensor.name);
        }
    }
}
