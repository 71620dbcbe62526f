//! Recipes: searches, readings, parts of a table, and texts that are not there.

use super::*;

#[test]
fn an_experiment_without_its_text_still_shows_what_it_found() {
    let place = Place::new();
    place.write("book.txt", "the cat sat on the mat and the dog sat on the log\n".repeat(60));
    let set = "data.source = \"book.txt\"\nmodel.hidden = 8\ntrain.streams = 4\neval.streams = 1\nbptt.window = 5\ntrain.epochs = 1";
    let tables = "[[table]]\nname = \"a\"\nminus = \"x\"\n[[table.row]]\nname = \"x\"\n[[table.row]]\nname = \"y\"\nset = { optim.lr = 0.1 }\n";
    place.write("r.toml", format!("title = \"t\"\n[set]\n{set}\n[scale.quick]\nseeds = 2\n{tables}"));
    let only = place.run(&["reproduce", "r.toml", "--out", "o", "--only", "a/y"]).ok();
    assert!(only.out.contains("but “x”, from which it would differ, has no figure"), "{only:?}");
    let first = place.run(&["reproduce", "r.toml", "--out", "o"]).ok();
    assert!(first.out.contains(" ± ") && first.out.contains("| y "), "{first:?}");
    std::fs::remove_file(place.join("book.txt")).unwrap();
    assert_eq!(place.run(&["reproduce", "r.toml", "--out", "o"]).ok().out, first.out);
    place.run(&["reproduce", "r.toml", "--out", "p"]).refused(2, "nothing can be run");
    assert!(!place.join("p").exists());
}

const RECIPE: &str = r#"
title = "A small one"
asks = "Does it work?"
[set]
data.source = "built-in"
[scale.quick]
trials = 2
seeds = [1]
short = { train.epochs = 1 }
[scale.quick.set]
synth.tokens = 3000
synth.vocab = 60
model.hidden = 8
train.streams = 4
eval.streams = 4
train.epochs = 2
[search.rates.grid]
optim.lr = [0.02, 0.1]

[[table]]
name = "t"
[[table.row]]
name = "k20"
search = "rates"
paper = [30]
[[table.row]]
name = "k5"
search = "rates"
paper = [20]
set = { bptt.window = 5 }

[[table]]
name = "read"
[[table.column]]
name = "plain"
eval = ["--split", "valid"]
[[table.column]]
name = "steps"
eval = ["--split", "valid", "--adapt-states", "2", "--adapt-lr", "9", "--block", "2"]
[[table.row]]
name = "r"

[[table]]
name = "absent"
set = { data.source = "nowhere.txt" }
[[table.row]]
name = "r"
"#;

#[test]
fn an_experiment_searches_reads_and_compares() {
    let place = Place::new();
    place.write("small.toml", RECIPE);
    let dry = place.run(&["reproduce", "small.toml", "--dry-run", "--json"]).ok().json();
    // Two cells of two short trials and a long one, one run for two readings, and a text that is not there.
    assert_eq!(dry["trials"], 8, "{dry}");
    assert!(dry["seconds"].is_null() && dry["parts"][0]["seconds"].is_number(), "{dry}");
    assert_eq!(place.files(), ["small.toml"]);

    let part = place.run(&["reproduce", "small.toml", "--only", "t/k5", "--out", "o"]).ok();
    assert!(part.out.contains("t/k20 (not asked for)") && !part.out.contains("| k20"), "{part:?}");
    assert_eq!(events(&place.join("o")).len(), 3);
    let ran = place.run(&["reproduce", "small.toml", "--out", "o"]).ok();
    assert!(ran.err.contains("left out: absent/r (nowhere.txt"), "{ran:?}");
    assert!(ran.out.contains("absent/r (nowhere.txt"), "{ran:?}");
    assert!(ran.out.contains("Size: not comparable") && ran.out.contains("pairs in one row or column"), "{ran:?}");
    // The rate that won is 0.1 or not: the run in full has it, and the run of the readings has the usual one.
    assert_eq!(events(&place.join("o")).len(), 7);

    // A part of it again: the table keeps what it had.
    let part = place.run(&["reproduce", "small.toml", "--only", "t/k5", "--out", "o"]).ok();
    assert!(part.out.contains("\n| k20 ") && !part.out.contains("not asked for"), "{part:?}");

    let figures = figures(&place, "o");
    let figure = |cell: &str| {
        let all = figures["figures"].as_array().unwrap();
        all.iter().find(|f| f["cell"] == cell).unwrap_or_else(|| panic!("{cell}")).clone()
    };
    let run = format!("o/{}", figure("read/r/plain")["runs"][0].as_str().unwrap());
    let read = |more: &[&str]| {
        let args = [&["eval", &run, "--json", "--split", "valid"], more].concat();
        place.run(&args).ok().json()["perplexity"].as_f64().unwrap()
    };
    assert_eq!(figure("read/r/plain")["value"]["mean"], read(&[]));
    assert_eq!(
        figure("read/r/steps")["value"]["mean"],
        read(&["--adapt-states", "2", "--adapt-lr", "9", "--block", "2"])
    );
    assert_ne!(read(&[]), read(&["--adapt-states", "2", "--adapt-lr", "9", "--block", "2"]));
    let trials = figures["trials"].as_array().unwrap();
    let best = trials.iter().filter(|t| t["cell"] == "t/k20" && t["settings"]["train.epochs"] == "1");
    let best =
        best.min_by(|a, b| a["valid_ppl"].as_f64().unwrap().total_cmp(&b["valid_ppl"].as_f64().unwrap())).unwrap();
    // The report calls the runs as the table does, and has no search in it.
    let names = figures["names"].as_object().unwrap();
    assert_eq!(names.len(), 3, "{names:?}");
    let report = std::fs::read_to_string(place.join("o/report.md")).unwrap();
    assert!(
        report.contains("4 short trials") && names.values().all(|n| report.contains(n.as_str().unwrap())),
        "{report}"
    );
    let chosen = figure("t/k20")["chosen"].as_str().unwrap().to_owned();
    let rate: f64 = best["settings"]["optim.lr"].as_str().unwrap().parse().unwrap();
    assert_eq!(chosen, format!("optim.lr={rate}"));
}
