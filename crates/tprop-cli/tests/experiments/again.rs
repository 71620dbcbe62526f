//! What is read again later: records are enough, and what is not what it was is refused in words.

use super::*;

#[test]
fn records_are_enough_to_know_what_has_been_done() {
    let place = Place::new();
    small_sweep(&place, "");
    place.run(&["sweep", "s.toml", "--out", "o", "--quiet"]).ok();
    let whole = figures(&place, "o");
    // What is kept for good: records and settings, no weights, of all but one trial, whose record lost its end.
    let runs: Vec<_> = events(&place.join("o")).into_keys().collect();
    for run in &runs {
        std::fs::remove_dir_all(place.join("o/runs").join(run).join("checkpoints")).unwrap();
    }
    let cut = place.join("o/runs").join(&runs[2]).join("record.jsonl");
    let text = std::fs::read_to_string(&cut).unwrap();
    let ended = text.trim_end().rfind('\n').unwrap() + 1;
    std::fs::write(&cut, &text[..ended]).unwrap();
    let again = place.run(&["sweep", "s.toml", "--out", "o"]).ok();
    assert!(again.err.contains("3 trials that have ended are taken up"), "{again:?}");
    assert_eq!(figures(&place, "o"), whole);
    let weights = |run: &String| place.join("o/runs").join(run).join("checkpoints").exists();
    assert_eq!(runs.iter().filter(|run| weights(run)).collect::<Vec<_>>(), [&runs[2]]);
    once(&place.join("o"), 4, 2);
}

#[test]
fn a_run_over_another_text_is_not_taken_up() {
    let place = Place::new();
    let text = "the cat sat on the mat and the dog sat on the log\n".repeat(60);
    place.write("book.txt", &text);
    let base = "[set]\ndata.source = \"book.txt\"\nmodel.hidden = 8\ntrain.streams = 4\neval.streams = 1\n";
    place.write("s.toml", format!("{base}train.epochs = 1\nbptt.window = 5\n[grid]\noptim.lr = [0.02, 0.1]\n"));
    place.run(&["sweep", "s.toml", "--out", "o", "--quiet"]).ok();
    place.write("book.txt", text.replace("cat", "cow") + "a line more\n");
    let ran = place.run(&["sweep", "s.toml", "--out", "o"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("this run read another text than the one that book.txt is now"), "{ran:?}");
    place.run(&["sweep", "s.toml", "--out", "o", "--retry", "--quiet"]).ok();
    once(&place.join("o"), 2, 1);
}

#[test]
fn damaged_runs_are_made_anew_and_a_lost_state_is_no_loss() {
    let place = Place::new();
    small_sweep(&place, "");
    place.run(&["sweep", "s.toml", "--out", "o", "--quiet"]).ok();
    let whole = figures(&place, "o");
    let runs: Vec<_> = events(&place.join("o")).into_keys().collect();
    let record = place.join("o/runs").join(&runs[1]).join("record.jsonl");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replacen('\n', "\ngarbage\n", 1)).unwrap();
    let ran = place.run(&["sweep", "s.toml", "--out", "o"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    place.run(&["sweep", "s.toml", "--out", "o", "--retry", "--quiet"]).ok();
    assert_eq!(figures(&place, "o"), whole);

    place.write("o/study.json", "{");
    place.run(&["sweep", "s.toml", "--out", "o"]).refused(2, "remove it to continue with the trials that are there");
    let old = r#"{"format":1,"name":"s","version":"0.1.0","hash":"00","cells":{}}"#;
    place.write("o/study.json", old);
    place.run(&["sweep", "s.toml", "--out", "o"]).refused(2, "scripts/migrate-trials");
    std::fs::remove_file(place.join("o/study.json")).unwrap();
    let ran = place.run(&["sweep", "s.toml", "--out", "o"]).ok();
    assert!(ran.err.contains("4 trials that have ended are taken up"), "{ran:?}");
    let ran = place.run(&["sweep", "s.toml", "--out", "o", "--dry-run", "--json"]).ok().json();
    assert_eq!((ran["trials"].as_u64(), ran["ended"].as_u64(), ran["tokens"].as_u64()), (Some(4), Some(4), Some(0)));
}

/// What is read again later is refused in words if it is not what it was.
#[test]
fn any_bytes_are_read_or_refused() {
    use proptest::prelude::*;
    let good = r#"{"format":2,"name":"s","version":"0.1.0","hash":"00","cells":{"a":["x"]}}"#;
    assert_eq!(tprop_cli::read_experiment(good.as_bytes()).0, Ok(()));
    let line = "{\"trial\":\"a\",\"outcome\":\"failed\",\"reason\":\"b\"}\n";
    assert_eq!(tprop_cli::read_experiment(line.as_bytes()).1, Ok(()));
    let sweep = format!("{BASE}[grid]\noptim.lr = [0.02, 0.1]\n[sweep]\nseeds = 2\n");
    assert_eq!(tprop_cli::read_sweep(&sweep), Ok(()));
    let deep = "[".repeat(100_000);
    let damaged = |text: String| {
        let at = 0..text.len();
        (at, any::<u8>(), 0..4usize).prop_map(move |(at, byte, kind)| {
            let mut bytes = text.clone().into_bytes();
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, byte),
                _ => bytes.extend_from_within(at..),
            }
            bytes
        })
    };
    let any = prop_oneof![
        damaged(good.to_owned()),
        damaged(line.to_owned()),
        damaged(sweep),
        Just(deep.into_bytes()),
        prop::collection::vec(any::<u8>(), 0..200),
    ];
    proptest!(ProptestConfig::with_cases(2_000), |(bytes in any)| {
        let (study, outcomes) = tprop_cli::read_experiment(&bytes);
        prop_assert!(study.is_ok() || study.is_err_and(|why| !why.is_empty()));
        prop_assert!(outcomes.is_ok() || outcomes.is_err_and(|why| why.starts_with("line ")));
        let read = std::str::from_utf8(&bytes).map_or(Ok(()), tprop_cli::read_sweep);
        prop_assert!(read.as_ref().is_ok_and(|()| true) || read.as_ref().is_err_and(|why| !why.contains('\n')), "{read:?}");
    });
}
