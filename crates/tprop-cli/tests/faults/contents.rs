//! Checkpoints with a right hash and wrong contents: somebody else's program, or somebody's own idea.

use std::path::Path;

use tprop::checkpoint::{self, Snapshot};
use tprop::rng::Draws;

use crate::bench::{left, place, row, times, train};
use crate::common::{Place, Ran};

/// A run of each kind, killed in the middle, in folders of these names.
fn runs(place: &Place) -> [&'static str; 3] {
    let names = ["bptt", "admm", "lstm"];
    for (kind, name) in names.into_iter().enumerate() {
        let args = train(kind, name, &["checkpoint.keep=1"]);
        let fault = format!("record.append:{}=kill,save.never=kill", [20, 6, 20][kind]);
        assert_eq!(place.command(&args).env("TPROP_FAULT", fault).output().unwrap().status.code(), Some(137));
    }
    names
}

/// The one checkpoint to resume from.
fn newest(run: &Path) -> std::path::PathBuf {
    let store = checkpoint::Store::open(run.join("checkpoints"));
    store.dir().join(&store.steps().unwrap()[0])
}

/// Refused in words, or done; never a panic, an abort or a number that is none.
#[track_caller]
fn sober(ran: &Ran, what: &str) {
    assert!([0, 2, 3, 4].contains(&ran.code), "{what}: {ran:?}");
    for word in ["made a mistake", "panicked", "memory allocation", "RUST_BACKTRACE"] {
        assert!(!ran.err.contains(word), "{what}: {ran:?}");
    }
    let out = ran.out.to_lowercase();
    assert!(!out.contains("nan") && !out.contains("inf"), "{what}: {ran:?}");
}

/// Changes one thing in a snapshot. Which, the text says.
fn forge(snapshot: &mut Snapshot, draws: &Draws, i: u64) -> String {
    let draw = |k: u64, below: usize| draws.below(16 * i + k, below as u64) as usize;
    match draw(0, 4) {
        0 => {
            let counters: Vec<String> = snapshot.meta.keys().filter(|k| k.starts_with("count.")).cloned().collect();
            let name = counters[draw(1, counters.len())].clone();
            let values = ["18446744073709551615", "9223372036854775808", "4294967296", "1000000", "-1", "", "0"];
            let value = values[draw(2, values.len())];
            snapshot.meta.insert(name.clone(), value.into());
            format!("{name} = {value}")
        }
        1 => {
            let at = draw(1, snapshot.tensors.len());
            let tensor = &mut snapshot.tensors[at];
            let value = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][draw(2, 3)];
            let place = 4 * draw(3, tensor.bytes.len() / 4);
            tensor.bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
            format!("{}[{}] = {value}", tensor.name, place / 4)
        }
        2 => {
            let at = draw(1, snapshot.tensors.len());
            let tensor = &mut snapshot.tensors[at];
            match draw(2, 4) {
                0 => tensor.dims.reverse(),
                1 => tensor.dims = vec![tensor.bytes.len() / 4],
                2 => tensor.name.push('x'),
                _ => {
                    tensor.bytes.truncate(4);
                    tensor.dims = vec![1, 1];
                }
            }
            format!("{} is {:?}", tensor.name, tensor.dims)
        }
        _ => {
            let reals: Vec<String> = snapshot.meta.keys().filter(|k| k.starts_with("real.")).cloned().collect();
            let others = ["settings", "corpus", "simd", "record", "record_sha256", "kind", "run"].map(str::to_owned);
            let names: Vec<String> = [reals, others.to_vec()].concat();
            let name = names[draw(1, names.len())].clone();
            let values = ["", "7ff8000000000000 NaN", "fff0000000000000 -inf", "x", "[model]\nhidden = 32768\n"];
            let value = values[draw(2, values.len())];
            snapshot.meta.insert(name.clone(), value.into());
            format!("{name} = {value:?}")
        }
    }
}

#[test]
fn forged_checkpoints_are_refused_in_words() {
    let place = place();
    let names = runs(&place);
    place.write("lines.txt", "w1 w2\n");
    let draws = Draws::new(9, "forged");
    let n = times(40, 2_000);
    let mut refused = 0;
    for i in 0..n {
        let run = names[i as usize % 3];
        let path = newest(&place.join(run));
        let good = std::fs::read(&path).unwrap();
        let mut snapshot = Snapshot::decode(&good).unwrap();
        let what = format!("{run}: {}", forge(&mut snapshot, &draws, i));
        let bytes = snapshot.encode();
        assert_eq!(Snapshot::decode(&bytes).map(|_| ()), Ok(()), "{what}: the hash is right");
        let ran = if i % 2 == 0 {
            // In a copy: where it is taken, the run continues.
            let copy = place.join("copy");
            copy_run(&place.join(run), &copy);
            std::fs::write(newest(&copy), bytes).unwrap();
            let ran = place.run(&["resume", "copy", "--quiet"]);
            std::fs::remove_dir_all(copy).unwrap();
            ran
        } else {
            std::fs::write(&path, bytes).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let commands: [&[&str]; 5] = [
                &["eval", run, "--checkpoint", &name],
                &["generate", run, "--checkpoint", &name, "--tokens", "5"],
                &["score", run, "lines.txt", "--checkpoint", &name],
                &["export", run, "--checkpoint", &name, "--out", "out"],
                &["train", "text.txt", "--from", run, "--run", "out", "train.epochs=1"],
            ];
            let ran = place.run(commands[(i / 6) as usize % 5]);
            let _ = std::fs::remove_dir_all(place.join("out"));
            ran
        };
        std::fs::write(&path, good).unwrap();
        sober(&ran, &what);
        refused += u64::from(ran.code != 0);
    }
    row("forged checkpoints with a right hash", n, &format!("{refused} refused in words, the others harmless"));
}

fn copy_run(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_run(&entry.path(), &target)
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The examples of the class: each is refused by its name.
#[test]
fn each_kind_of_wrong_contents_is_named() {
    let place = place();
    let [run, ..] = runs(&place);
    let path = newest(&place.join(run));
    let good = std::fs::read(&path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let forged = |change: &dyn Fn(&mut Snapshot)| {
        let mut snapshot = Snapshot::decode(&good).unwrap();
        change(&mut snapshot);
        std::fs::write(&path, snapshot.encode()).unwrap();
    };
    forged(&|s| s.set_count("bptt.at", 1_000_000));
    place.run(&["resume", run]).refused(4, "the counter bptt.at is 1000000; it can be");
    forged(&|s| s.set_count("train.epoch", 0));
    place.run(&["resume", run]).refused(4, "epoch 0");
    forged(&|s| s.tensors[0].bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
    let (eval, export) = (["eval", run, "--checkpoint", &name], ["export", run, "--checkpoint", &name, "--out", "out"]);
    for args in [&["resume", run][..], &eval, &export, &["generate", run, "--checkpoint", &name]] {
        place.run(args).refused(4, "the tensor embed.weight has values that are not finite");
    }
    assert!(!place.join("out").exists());
    std::fs::write(&path, &good).unwrap();
    // Sizes that no machine has, in settings.toml alone.
    let settings = std::fs::read_to_string(place.join(run).join("settings.toml")).unwrap();
    let absurd = settings.replace("hidden = 16", "hidden = 32768").replace("layers = 1", "layers = 64");
    assert_ne!(absurd, settings);
    place.write(&format!("{run}/settings.toml"), absurd);
    for args in [&eval[..], &export, &["generate", run, "--checkpoint", &name]] {
        place.run(args).refused(4, "does not fit the run's settings.toml");
    }
    place.write(&format!("{run}/settings.toml"), settings);
    place.run(&["resume", run, "--quiet"]).ok();
    left(&place.join(run));
}
