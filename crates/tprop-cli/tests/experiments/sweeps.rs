//! Sweeps: each point once, what diverges or fails, successive halving.

use super::*;

#[test]
fn a_sweep_runs_each_point_once_and_leaves_its_tables() {
    let place = Place::new();
    small_sweep(&place, "groups = [\"optim.lr\"]\ntitle = \"<b>|x\\u001b[31m\"\n");
    let ran = place.run(&["sweep", "s.toml", "--jobs", "2"]).ok();
    assert!(ran.out.starts_with("# ") && ran.out.contains("optim.lr=0.1") && ran.out.contains(" ± "), "{ran:?}");
    assert!(!ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'), "{ran:?}");
    assert_eq!(ran.err.matches("valid ppl").count(), 4, "{ran:?}");
    let out = place.join("sweeps/s");
    once(&out, 4, 2);
    // The report calls runs by their points.
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("| optim.lr=0.02 | 2 |"), "{report}");
    for file in ["table.md", "table.csv", "table.tex", "table.json", "trials.csv", "study.json"] {
        assert!(out.join(file).is_file(), "{file}");
    }
    assert_eq!(std::fs::read_to_string(out.join("table.md")).unwrap(), ran.out);
    assert_eq!(std::fs::read_to_string(out.join("trials.csv")).unwrap().lines().count(), 5);

    // Each trial is an ordinary run, and its figure is the one of the table.
    let figures = figures(&place, "sweeps/s");
    let best = &figures["figures"][1];
    assert_eq!(best["cell"], "optim.lr=0.1");
    let tests: Vec<f64> = (0..2)
        .map(|i| {
            let run = format!("sweeps/s/{}", best["runs"][i].as_str().unwrap());
            place.run(&["eval", &run, "--json"]).ok().json()["perplexity"].as_f64().unwrap()
        })
        .collect();
    let mean = (tests[0] + tests[1]) / 2.0;
    assert!((best["test_ppl"]["mean"].as_f64().unwrap() - mean).abs() < 1e-9);
    let deviation = (tests[0] - tests[1]).abs() / 2f64.sqrt();
    assert!((best["test_ppl"]["deviation"].as_f64().unwrap() - deviation).abs() < 1e-9);

    // Again: everything is there, nothing runs.
    let record = |id: &str| std::fs::read(out.join("runs").join(id).join("record.jsonl")).unwrap();
    let before: Vec<_> = events(&out).keys().map(|id| record(id)).collect();
    let again = place.run(&["sweep", "s.toml", "--json"]).ok();
    assert!(again.err.contains("4 trials that have ended are taken up"), "{again:?}");
    assert_eq!(again.json()["figures"], figures_of(&out)["figures"]);
    assert_eq!(events(&out).keys().map(|id| record(id)).collect::<Vec<_>>(), before);

    // Nor with another number of threads, which shapes nothing.
    let again = place.run(&["sweep", "s.toml", "train.threads=1"]).ok();
    assert!(again.err.contains("4 trials that have ended are taken up"), "{again:?}");

    // Another grid does not go into the same place.
    let files = place.files();
    let text = std::fs::read_to_string(place.join("s.toml")).unwrap();
    place.write("s.toml", text.replace("0.02", "0.03"));
    let ran = place.run(&["sweep", "s.toml"]);
    ran.refused(2, "optim.lr=0.02 is gone");
    place.write("s.toml", text.replace("model.hidden = 8", "model.hidden = 9"));
    place.run(&["sweep", "s.toml"]).refused(2, "[model.hidden=9] where it had [model.hidden=8]");
    place.write("s.toml", text);
    place.run(&["sweep", "s.toml", "optim.eps=0.1"]).refused(2, "[optim.eps=0.1] where it had []");
    assert_eq!(place.files(), files);
}

#[test]
fn trials_that_diverge_or_fail_are_listed_and_failures_can_be_retried() {
    let place = Place::new();
    let text = format!(
        "{BASE}train.epochs = 2\noptim.clip = 0\n[grid]\noptim.lr = [0.1, 1e6]\n[sweep]\ngroups = [\"optim.lr\"]\n"
    );
    place.write("s.toml", text);
    let first = place.run(&["sweep", "s.toml", "--out", "o"]).ok();
    assert!(first.out.contains("Trials that diverged:") && first.out.contains("rate 1000000"), "{first:?}");
    assert!(first.out.contains("optim.lr=1e6: no figure (no trial came to a good end)"), "{first:?}");
    let figures = figures(&place, "o");
    let outcome = |i: usize| figures["trials"][i]["outcome"].as_str().unwrap().to_owned();
    assert_eq!((outcome(0), outcome(1)), ("finished".into(), "diverged".into()));
    // The run itself knows, and so does the report.
    let diverged = place.join("o/runs").join(figures["trials"][1]["trial"].as_str().unwrap());
    let record = std::fs::read_to_string(diverged.join("record.jsonl")).unwrap();
    assert!(record.lines().last().unwrap().contains("\"reason\":\"diverged\""), "{record}");
    let report = std::fs::read_to_string(place.join("o/report.md")).unwrap();
    assert!(report.contains("A trial of optim.lr=1e6 diverged") && !report.contains("not ended"), "{report}");

    // A run whose checkpoints are damaged before its end cannot continue.
    let id = figures["trials"][0]["trial"].as_str().unwrap().to_owned();
    let run = place.join("o/runs").join(&id);
    let record = std::fs::read_to_string(run.join("record.jsonl")).unwrap();
    let cut = record.find("{\"event\":\"end\"").unwrap();
    std::fs::write(run.join("record.jsonl"), &record[..cut]).unwrap();
    for entry in std::fs::read_dir(run.join("checkpoints")).unwrap() {
        std::fs::write(entry.unwrap().path(), "damaged").unwrap();
    }
    let ran = place.run(&["sweep", "s.toml", "--out", "o"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("Trials that failed") && ran.out.contains("no usable checkpoint"), "{ran:?}");
    assert!(ran.err.contains("1 trials failed; --retry runs them again"), "{ran:?}");
    // It stays failed until someone asks.
    assert_eq!(place.run(&["sweep", "s.toml", "--out", "o", "--quiet"]).code, 1);
    let ran = place.run(&["sweep", "s.toml", "--out", "o", "--retry"]).ok();
    assert_eq!(ran.out, first.out);
}

#[test]
fn what_a_diverged_trial_came_to_is_told_again() {
    let place = Place::new();
    place.write("s.toml", format!("{BASE}train.epochs = 3\n[grid]\noptim.lr = [0.1]\n"));
    let args = ["sweep", "s.toml", "--out", "o", "--quiet"];
    // In the second epoch.
    let steps = "nan.loss:60=nan";
    let first = place.command(&args).env("TPROP_FAULT", steps).output().unwrap();
    assert_eq!(first.status.code(), Some(3), "{first:?}");
    let lines = std::fs::read_to_string(place.join("o/trials.csv")).unwrap();
    let table = figures(&place, "o");
    assert!(table["trials"][0]["epochs"].as_u64().unwrap() > 0, "{lines}");
    assert_eq!(place.run(&args).code, 3);
    assert_eq!(std::fs::read_to_string(place.join("o/trials.csv")).unwrap(), lines);
}

#[test]
fn successive_halving_stops_what_is_behind() {
    let place = Place::new();
    // Long enough that a busy machine stops the others before they end by themselves.
    let grid = "train.epochs = 60\n[grid]\noptim.lr = [0.1, 0.01, 0.001, 0.0001]\n[sweep]\nprune = { first = 2, factor = 40 }\n";
    place.write("s.toml", format!("{BASE}{grid}"));
    let ran = place.run(&["sweep", "s.toml", "--out", "o", "--jobs", "2"]).ok();
    assert!(ran.out.contains("3 points were left behind"), "{ran:?}");
    let figures = figures(&place, "o");
    assert_eq!(figures["figures"][0]["chosen"], "optim.lr=0.1");
    let trials = figures["trials"].as_array().unwrap();
    let outcomes: Vec<_> = trials.iter().map(|t| t["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["finished", "pruned", "pruned", "pruned"]);
    // They may have gone a little further before they heard of it, but not to their end.
    assert!(trials[1..].iter().all(|t| (2..60).contains(&t["epochs"].as_u64().unwrap())), "{trials:?}");
    assert_eq!(place.run(&["sweep", "s.toml", "--out", "o", "--quiet"]).ok().out, ran.out);
}
