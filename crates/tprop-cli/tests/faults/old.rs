//! Runs of released versions must still load. One folder for each version of the format.

use std::path::Path;

use tprop::checkpoint::Store;
use tprop::record::{self, Event};

use crate::common::{Place, tensors_hash};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

/// Format 1, as the first version wrote it: no `kind`, no `run`, no sessions, sizes in the record, settings written first.
#[test]
fn format_1_still_loads() {
    let place = Place::new();
    let run = place.join("old");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/format-1"), &run);
    let newest = Store::open(run.join("checkpoints")).newest().unwrap();
    assert!(newest.bad.is_empty());
    assert_eq!(newest.snapshot.count("train.step"), Some(25));
    assert_eq!(newest.snapshot.tensor("rnn.weight_hh_l0").unwrap().dims, [12, 4]);
    assert_eq!(newest.snapshot.real("optim.rate"), Some(0.002));
    assert!(newest.snapshot.tensor("optim.1.embed.weight").is_some());
    let events = record::read(&run.join("record.jsonl")).unwrap();
    assert!(matches!(events.last(), Some(Event::Checkpoint(saved)) if saved.step == 50), "{:?}", events.last());
    // The model can be used, and the run continues to its end.
    let words = place.run(&["generate", "old", "--tokens", "20"]).ok().out;
    assert!(!words.trim().is_empty());
    place.run(&["resume", "old", "--quiet"]).ok();
    let events = record::read(&run.join("record.jsonl")).unwrap();
    let Some(Event::End(end)) = events.last() else { panic!("{:?}", events.last()) };
    assert_eq!((end.reason.as_str(), end.step), ("epochs", 50));
    assert!(events.iter().filter(|event| matches!(event, Event::Eval(_))).count() == 2);
}

/// Runs as version 0.1.0 left them when it was killed, and what it came to when it resumed them itself (`expected.json`): this version
/// must read, evaluate, resume and export them equally.
#[test]
fn runs_of_version_0_1_0_go_on_as_there() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/version-0.1.0");
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    for (name, expected) in expected.as_object().unwrap() {
        let place = Place::new();
        copy(&folder.join(name), &place.join(name));
        let close = |found: &serde_json::Value, wanted: &serde_json::Value| {
            let (found, wanted) = (found.as_f64().unwrap(), wanted.as_f64().unwrap());
            assert!((found - wanted).abs() <= 1e-10 * wanted, "{name}: {found} for {wanted}");
        };
        let read = place.run(&["eval", name, "--json"]).ok().json();
        close(&read["perplexity"], &expected["perplexity_before"]);
        place.run(&["resume", name, "--quiet"]).ok();
        let read = place.run(&["eval", name, "--json", "--split", "test"]).ok().json();
        close(&read["perplexity"], &expected["perplexity_after"]);
        place.run(&["export", name, "--out", "exported"]).ok();
        assert_eq!(
            tensors_hash(&place.join("exported/model.safetensors")),
            expected["weights"].as_str().unwrap(),
            "{name}"
        );
        let events = record::read(&place.join(name).join("record.jsonl")).unwrap();
        let evals = events.iter().filter(|event| matches!(event, Event::Eval(_))).count();
        assert_eq!(evals as u64, expected["evaluations"].as_u64().unwrap(), "{name}");
    }
}
