//! Whole runs: what they leave, and what the other commands make of it.

mod common;

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use common::{Place, small};

#[test]
fn a_run_leaves_what_it_should() {
    let place = Place::new();
    let ran = place.run(&small(&[])).ok();
    assert!(ran.out.contains("best possible") && ran.out.contains("this model"), "{ran:?}");
    assert!(ran.err.contains("rnn.weight_hh_l0") && ran.err.contains("tprop generate runs/"), "{ran:?}");
    let run = std::fs::read_dir(place.join("runs")).unwrap().next().unwrap().unwrap().path();
    let name = run.file_name().unwrap().to_str().unwrap();
    assert!(name.ends_with("-gru8-bptt-1"), "{name}");
    for file in ["settings.toml", "record.jsonl", "tokenizer.json", "checkpoints/best.safetensors"] {
        assert!(run.join(file).is_file(), "{file}");
    }
    let record = std::fs::read_to_string(run.join("record.jsonl")).unwrap();
    let events: Vec<serde_json::Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["event"], "start");
    let evals: Vec<_> = events.iter().filter(|e| e["event"] == "eval").collect();
    assert_eq!(evals.len(), 2);
    for key in ["epoch", "step", "tokens", "seconds", "train_ppl", "valid_ppl"] {
        assert!(evals[0][key].is_number(), "{key}");
    }
    assert!(events.iter().any(|e| e["event"] == "end" && e["reason"] == "epochs"));

    // A second one beside it, and none in its place.
    place.run(&small(&["--quiet"])).ok();
    assert_eq!(std::fs::read_dir(place.join("runs")).unwrap().count(), 2);
    let before = place.files();
    place.run(&small(&["--run", run.to_str().unwrap()])).refused(2, "there is a run already");
    place.write("file", "x");
    place.run(&small(&["--run", "file"])).refused(2, "not a directory");
    place.run(&small(&["--run", "file/run"])).refused(2, "not a directory");
    std::fs::remove_file(place.join("file")).unwrap();
    assert_eq!(place.files(), before);
}

#[test]
fn dry_runs_and_refusals_leave_nothing() {
    let place = Place::new();
    let ran = place.run(&small(&["--dry-run", "--json"])).ok();
    let json = ran.json();
    for key in ["parameters", "memory_bytes", "tokens_per_epoch", "tokens_per_s"] {
        assert!(json[key].as_f64().unwrap() > 0.0, "{json}");
    }
    assert!(place.run(&small(&["--dry-run"])).ok().out.contains("per epoch"));
    place.run(&["train", "--hidden", "32768", "synth.tokens=1000", "--layers", "64"]).refused(2, "of memory are free");
    place.run(&small(&["--from", "nowhere"])).refused(2, "there is no such run");
    assert!(place.files().is_empty());
}

#[test]
fn the_model_of_a_run_can_be_used() {
    let place = Place::new();
    place.run(&small(&["--run", "r", "--quiet"])).ok();

    // The figure in the record and that of eval are the same.
    let record = std::fs::read_to_string(place.join("r/record.jsonl")).unwrap();
    let end = record.lines().rev().find(|l| l.contains("\"event\":\"end\"")).unwrap();
    let end: serde_json::Value = serde_json::from_str(end).unwrap();
    let eval = place.run(&["eval", "r", "--json"]).ok().json();
    assert_eq!(eval["split"], "test");
    assert_eq!(eval["perplexity"], end["test_ppl"]);
    for key in ["nats", "tokens", "bits_per_token"] {
        assert!(eval[key].is_number());
    }
    let exact = place.run(&["eval", "r", "--json", "--exact", "--split", "valid", "--by-position"]).ok().json();
    assert_eq!(exact["streams"], 1);
    assert_eq!(exact["perplexity_by_position"].as_array().unwrap().len(), 20);
    assert!(place.run(&["eval", "r"]).ok().out.contains("best possible"));
    place.run(&["eval", "r", "--checkpoint", "nope"]).refused(4, "no checkpoint nope; there are: step-");
    place.run(&["eval", "r", "--checkpoint", "../../etc/passwd"]).refused(4, "no checkpoint");
    place.run(&["eval", "nowhere"]).refused(2, "no such run");
    place.run(&["eval", "."]).refused(2, "not a run");

    // Another text in the run's own words; of one without <unk> only those.
    let words = place.run(&["generate", "r", "--tokens", "50", "--seed", "3"]).ok().out;
    assert_eq!(words, place.run(&["generate", "r", "--tokens", "50", "--seed", "3"]).ok().out);
    assert_ne!(words, place.run(&["generate", "r", "--tokens", "50", "--seed", "4"]).ok().out);
    place.write("again.txt", words.repeat(3));
    let again = place.run(&["eval", "r", "--data", "again.txt", "--json", "--exact"]).ok().json();
    assert_eq!(again["split"], "all");
    place.write("strange.txt", "zyx wvu\n".repeat(40));
    place.run(&["eval", "r", "--data", "strange.txt"]).refused(2, "neither");
    let greedy = place.run(&["generate", "r", "--tokens", "9", "--temperature", "0", "--prompt", "zyx the"]).ok();
    assert!(greedy.err.contains("not in the vocabulary, left out: zyx"), "{greedy:?}");
    assert!(greedy.out.starts_with("the"), "{greedy:?}");
    assert_eq!(place.run(&["generate", "r", "--temperature", "-1"]).code, 2);

    // Scores of a line and of its tokens agree, and with perplexity.
    let line = words.lines().find(|line| !line.is_empty()).unwrap();
    let score = place.run_with(&["score", "r", "--json", "--tokens"], format!("{line}\n\n").as_bytes()).ok();
    let scores: Vec<serde_json::Value> = score.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(scores.len(), 2);
    let by_token = scores[0]["by_token"].as_array().unwrap();
    assert_eq!(by_token.len(), line.split(' ').count() + 1);
    let sum: f64 = by_token.iter().map(|pair| pair[1].as_f64().unwrap()).sum();
    assert!((sum - scores[0]["logprob"].as_f64().unwrap()).abs() < 1e-9);
    place.write("line.txt", format!("{line}\n"));
    let plain = place.run(&["score", "r", "line.txt"]).ok().out;
    assert!(plain.starts_with(&format!("{:.6}\t", sum)) && plain.ends_with(&format!("\t{line}\n")), "{plain}");
    place.run_with(&["score", "r"], b"caf\xe9\n").refused(2, "line 1, byte 3 of the line: not UTF-8");
}

/// `eval --exact` and `score --carry` by blocks in parallel and in order: the same numbers, and both say how they were read.
#[test]
fn one_stream_is_read_in_parallel_and_says_so() {
    let place = Place::new();
    let small = ["synth.tokens=3000", "synth.vocab=60", "train.streams=4", "train.epochs=1", "eval.streams=4"];
    place.run(&[&["train", "--run", "r", "--quiet", "model.hidden=256"], &small[..]].concat()).ok();
    let words = place.run(&["generate", "r", "--tokens", "3000"]).ok().out;
    place.write("long.txt", &words);
    let exact = ["eval", "r", "--data", "long.txt", "--exact", "--by-position"];
    let parallel = place.run(&[&exact[..], &["--json"]].concat()).ok().json();
    let ordered = place.run(&[&exact[..], &["--json", "--sequential"]].concat()).ok().json();
    let plain = place.run(&["eval", "r", "--data", "long.txt", "--json", "--streams", "1"]).ok().json();
    assert_eq!(
        (&parallel["way"], &ordered["way"], &plain["way"]),
        (&"parallel".into(), &"sequential".into(), &"sequential".into())
    );
    // In order, one stream is one stream.
    assert_eq!(ordered["nats"], plain["nats"]);
    let nats = |line: &serde_json::Value| line["nats"].as_f64().unwrap();
    assert!((nats(&parallel) / nats(&ordered) - 1.0).abs() < 1e-6, "{parallel} {ordered}");
    assert_eq!(parallel["tokens"], ordered["tokens"]);
    let took = &parallel["parallel"];
    assert!(took["windows"].as_u64().unwrap() > 0, "{took}");
    assert!(took["sweeps_most"].as_u64().unwrap() >= 1 && took["sweeps_mean"].as_f64().unwrap() >= 1.0, "{took}");
    assert!(took["largest_residual"].as_f64().unwrap() <= took["tolerance"].as_f64().unwrap(), "{took}");
    assert_eq!((&took["unsettled_windows"], ordered.get("parallel")), (&0.into(), None));
    let positions = |line: &serde_json::Value| -> Vec<f64> {
        line["perplexity_by_position"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    for (a, b) in positions(&parallel).iter().zip(positions(&ordered)) {
        assert!((a / b - 1.0).abs() < 1e-4);
    }
    assert!(place.run(&exact).ok().out.contains("read in parallel: "));
    assert!(place.run(&[&exact[..], &["--sequential"]].concat()).ok().out.contains("read in order"));
    assert_eq!(place.run(&["eval", "r", "--sequential"]).code, 2, "only with --exact");
    // Adapted states are found block after block.
    let adapted = place.run(&[&exact[..], &["--json", "--adapt-states", "1"]].concat()).ok().json();
    assert_eq!(adapted["way"], "sequential");

    // The lines of a document, each after all before it.
    let score = |more: &[&str]| -> Vec<serde_json::Value> {
        let out = place.run(&[&["score", "r", "long.txt", "--json"], more].concat()).ok().out;
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (alone, carried, ordered) = (score(&[]), score(&["--carry"]), score(&["--carry", "--sequential"]));
    assert_eq!((alone.len() + 1, carried.len()), (carried.len(), ordered.len()));
    let last = carried.last().unwrap();
    assert_eq!((&last["way"], &ordered.last().unwrap()["way"]), (&"parallel".into(), &"sequential".into()));
    let logprob = |line: &serde_json::Value| line["logprob"].as_f64().unwrap();
    assert_eq!(logprob(&alone[0]), logprob(&ordered[0]), "the first line begins in the initial state either way");
    for ((carried, ordered), alone) in carried.iter().zip(&ordered).zip(&alone) {
        assert!((logprob(carried) - logprob(ordered)).abs() < 1e-4, "{carried} {ordered}");
        assert_eq!(carried["tokens"], alone["tokens"]);
    }
    assert!((logprob(last) / logprob(ordered.last().unwrap()) - 1.0).abs() < 1e-6);
    // Its words are those that eval reads, but for the first of all, which eval does not predict and score opens with a line end.
    assert_eq!(last["tokens"].as_u64().unwrap(), parallel["tokens"].as_u64().unwrap() + 1);
    assert!(place.run(&["score", "r", "long.txt", "--carry"]).ok().err.contains("read in parallel: "));
    assert_eq!(place.run(&["score", "r", "long.txt", "--sequential"]).code, 2, "only with --carry");
}

#[test]
fn exported_weights_come_back_the_same() {
    let place = Place::new();
    for (name, more) in [
        ("lstm", &["model.cell=lstm", "model.layers=2", "model.embed=5"][..]),
        ("tied", &["model.tied=true"]),
        ("elman", &["model.cell=elman", "model.activation=sigmoid"]),
        ("chars", &["data.level=char", "model.cell=mult_gated"]),
    ] {
        let (out, back) = (format!("{name}-out"), format!("{name}-back"));
        place.run(&small(&[&["--run", name, "--quiet"], more].concat())).ok();
        place.run(&["export", name, "--out", &out]).ok();
        for file in ["model.safetensors", "tokenizer.json", "config.json"] {
            assert!(place.join(&out).join(file).is_file());
        }
        let synth = ["synth.tokens=3000", "synth.vocab=60", "eval.streams=4"];
        place.run(&[&["import", &out, "--run", &back], &synth[..]].concat()).ok();
        let eval = |run: &str| place.run(&["eval", run, "--json"]).ok().json()["nats"].clone();
        assert_eq!(eval(name), eval(&back), "{name}");
        // torch.nn.Linear wants a copy of its own.
        if name == "tied" {
            let bytes = std::fs::read(place.join("tied-out/model.safetensors")).unwrap();
            assert!(String::from_utf8_lossy(&bytes[..2000]).contains("out.weight"));
        }
    }
    place.run(&["import", "lstm-out", "--run", "x", "--hidden", "9"]).refused(2, "is wanted");
    place.run(&["import", "lstm-out", "--run", "x", "--cell", "gru"]).refused(2, "is wanted");
    place.run(&["import", "lstm-out", "--run", "lstm"]).refused(2, "there is a run already");
    place.run(&["import", "nowhere", "--run", "x"]).refused(2, "cannot be read");
    let mut bytes = std::fs::read(place.join("lstm-out/model.safetensors")).unwrap();
    bytes.truncate(bytes.len() - 5);
    place.write("lstm-out/model.safetensors", bytes);
    place.run(&["import", "lstm-out", "--run", "x"]).refused(2, "not a safetensors file, or a damaged one");
    assert!(!place.join("x").exists());
}

#[test]
fn other_runs_can_be_the_beginning() {
    let place = Place::new();
    place.run(&small(&["--run", "a", "--quiet"])).ok();
    place.run(&small(&["--run", "b", "--quiet", "--from", "a"])).ok();
    let first = |run: &str| {
        let record = std::fs::read_to_string(place.join(run).join("record.jsonl")).unwrap();
        let line = record.lines().find(|l| l.contains("\"event\":\"step\"")).unwrap().to_owned();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["nats"].as_f64().unwrap()
    };
    assert!(first("b") < first("a") - 0.5);
    place.run(&small(&["--from", "a", "--hidden", "9"])).refused(2, "is set twice");
    let mut args = small(&["--from", "a", "--run", "c"]);
    args[3] = "model.hidden=9";
    place.run(&args).refused(2, "another shape");
    args[3] = "model.hidden=8";
    args[2] = "synth.vocab=61";
    place.run(&args).refused(2, "vocabulary");
    assert!(!place.join("c").exists());
}

#[test]
fn threads_do_not_change_the_weights() {
    let place = Place::new();
    let hash = |threads: &str| {
        let run = format!("t{threads}");
        place.run(&small(&["--quiet", "--threads", threads, "--run", &run])).ok();
        place.run(&["export", &run, "--out", &run]).ok();
        std::fs::read(place.join(&run).join("model.safetensors")).unwrap()
    };
    let one = hash("1");
    assert!(one == hash("2") && one == hash("3"));
}

#[test]
fn target_propagation_trains_and_records_its_coupling() {
    let place = Place::new();
    for (name, more) in [
        ("reach", &["--preset", "reach", "--blocks", "4", "--block", "5", "--state-steps", "2"][..]),
        ("admm", &["--method", "btprop", "--blocks", "4", "--block", "5"]),
    ] {
        place.run(&small(&[&["--run", name, "--quiet"], more].concat())).ok();
        let record = std::fs::read_to_string(place.join(name).join("record.jsonl")).unwrap();
        let line = record.lines().find(|l| l.contains("\"event\":\"eval\"")).unwrap();
        let eval: serde_json::Value = serde_json::from_str(line).unwrap();
        for key in
            ["objective", "penalty", "residual_mean", "residual_max", "residual_relative", "dual_norm", "state_move"]
        {
            assert!(eval[key].is_number(), "{name}: {key}");
        }
    }
}

#[test]
fn divergence_has_its_own_code_and_may_be_rolled_back() {
    let place = Place::new();
    let wild = ["--quiet", "--lr", "1e6", "optim.clip=0"];
    let ran = place.run(&small(&[&wild[..], &["--run", "a"]].concat()));
    ran.refused(3, "rate 1000000");
    place.run(&small(&[&wild[..], &["--run", "b", "train.on_divergence=rollback"]].concat())).ok();
    let record = std::fs::read_to_string(place.join("b/record.jsonl")).unwrap();
    assert!(record.contains("\"reason\":\"diverged\""), "{record}");
}

#[cfg(unix)]
#[test]
fn a_stopped_run_goes_on_as_if_nothing_had_been() {
    let place = Place::new();
    let long = ["train.epochs=6", "synth.tokens=20000"];
    let args = |run: &'static str| {
        let mut args = small(&["--run", run]);
        args.retain(|a| !a.starts_with("train.epochs") && !a.starts_with("synth.tokens"));
        args.extend(long);
        args
    };
    place.run(&args("whole")).ok();
    let mut child = place.command(&args("parts")).spawn().unwrap();
    // Both while it runs: the directory is taken, and a signal stops it.
    wait_for(|| std::fs::read_to_string(place.join("parts/record.jsonl")).is_ok_and(|r| r.contains("\"step\":")));
    place.run(&["resume", "parts"]).refused(6, &format!("in use by process {}", child.id()));
    place.run(&args("parts")).refused(6, "in use by process");
    signal(child.id(), "INT");
    let code = child.wait().unwrap().code();
    assert_eq!(code, Some(130));
    place.run(&["resume", "parts", "--threads", "1"]).ok();
    let best = |run: &str| {
        let out = format!("{run}-out");
        place.run(&["export", run, "--out", &out]).ok();
        std::fs::read(place.join(&out).join("model.safetensors")).unwrap()
    };
    assert!(best("whole") == best("parts"));
    // It went on, rather than beginning again: every evaluation stands once in the record, with the same figure.
    let evals = |run: &str| -> Vec<(u64, f64)> {
        let record = std::fs::read_to_string(place.join(run).join("record.jsonl")).unwrap();
        let events = record.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let evals = events.filter(|e| e["event"] == "eval");
        evals.map(|e| (e["epoch"].as_u64().unwrap(), e["valid_ppl"].as_f64().unwrap())).collect()
    };
    assert_eq!(evals("whole"), evals("parts"));
    let done = place.run(&["resume", "parts"]).ok();
    assert!(done.err.contains("come to its end already"), "{done:?}");

    // Settings and checkpoints are looked at again.
    let settings = std::fs::read_to_string(place.join("parts/settings.toml")).unwrap();
    place.write("parts/settings.toml", settings.replace("lr = 0.05", "lr = 0.06"));
    place
        .run(&["resume", "parts"])
        .refused(2, "settings have changed since the run began (optim.lr from 0.05 to 0.06)");
    place.write("parts/settings.toml", settings);
    for entry in std::fs::read_dir(place.join("parts/checkpoints")).unwrap() {
        std::fs::write(entry.unwrap().path(), "damaged").unwrap();
    }
    let ran = place.run(&["resume", "parts"]);
    assert!(ran.code == 4 && ran.err.contains("no usable checkpoint"), "{ran:?}");
    place.run(&["eval", "parts"]).refused(4, "best.safetensors");
}

#[cfg(unix)]
#[test]
fn a_reader_that_goes_away_ends_the_run_in_order() {
    let place = Place::new();
    let mut args = small(&["--run", "r", "--json", "--quiet"]);
    args.retain(|a| !a.starts_with("train.epochs"));
    args.push("train.epochs=100000");
    let mut child = place.command(&args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let start: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(start["event"], "start");
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(place.join("r/checkpoints").read_dir().unwrap().count() > 0);

    let mut child = place.command(&["generate", "r", "--tokens", "100000000"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut child = place.command(&["train", "--print-settings"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[cfg(unix)]
fn signal(id: u32, name: &str) {
    let done = std::process::Command::new("kill").arg(format!("-{name}")).arg(id.to_string()).status().unwrap();
    assert!(done.success());
}

fn wait_for(mut ready: impl FnMut() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(since.elapsed() < Duration::from_secs(120), "it never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}
