//! Protocol, recipes and comparison, without training: a made-up perplexity for each trial stands in for it.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use tprop::record::{End, Eval};
use tprop_report::record::Record;

use super::compare::compare;
use super::ledger::Ledger;
use super::progress::{Ended, Progress};
use super::recipe::{self, BUILT_IN, Scale};
use super::results::Results;
use super::study::{Next, Protocol, Sizes, Study, Verdict, Want};
use super::sweep_file;
use super::trial::Trial;
use tprop_run::settings::Typed;

fn eval(epoch: u64, ppl: f64) -> Eval {
    Eval {
        epoch,
        step: epoch,
        tokens: epoch,
        seconds: 1.0,
        train_ppl: ppl,
        window_ppl: ppl,
        valid_ppl: ppl,
        rate: 0.1,
        best: true,
        window_ppl_by_position: Vec::new(),
        coupling: None,
    }
}

fn finished(epochs: u64, ppl: f64) -> Progress {
    let end = End {
        reason: "epochs".into(),
        epoch: epochs,
        step: 1,
        tokens: 1,
        seconds: 1.0,
        best_epoch: epochs,
        best_valid_ppl: ppl,
        test_ppl: Some(ppl),
    };
    let evals = (1..=epochs).map(|e| eval(e, ppl)).collect();
    Progress::from(Record { evals, end: Some(end), ..Record::default() })
}

/// Trains everything that the cells want, by `ppl`; also in the wrong order. What each trial was trained for is noted.
fn simulate(
    study: &Study,
    backwards: bool,
    ppl: impl Fn(&Trial) -> Option<f64>,
) -> (HashMap<String, Progress>, Vec<Verdict>, Vec<Want>) {
    let mut known: HashMap<String, Progress> = HashMap::new();
    let mut order = Vec::new();
    loop {
        let mut wants: Vec<Want> = Vec::new();
        let mut verdicts = Vec::new();
        for cell in 0..study.entries.len() {
            match study.next(cell, &|id| known.get(id)) {
                Next::Trials(more) => wants.extend(more),
                Next::Done(verdict) => verdicts.push(verdict),
            }
        }
        let Some(want) = (if backwards { wants.pop() } else { wants.into_iter().next() }) else {
            assert_eq!(verdicts.len(), study.entries.len(), "cells that want nothing and have no verdict");
            return (known, verdicts, order);
        };
        let epochs = want.until.unwrap_or(u64::MAX).min(want.trial.epochs());
        let mut progress = match ppl(&want.trial) {
            Some(ppl) => finished(epochs, ppl),
            None => Progress::bad(Ended::Diverged("boom".into())),
        };
        if epochs < want.trial.epochs() && progress.finished() {
            progress.ended = None;
        }
        known.insert(want.trial.id.clone(), progress);
        order.push(want);
    }
}

fn real(trial: &Trial, name: &str) -> f64 {
    trial.settings.text(name).parse().unwrap()
}

#[test]
fn every_experiment_reads_at_both_scales() {
    for (name, text) in BUILT_IN {
        let path = format!("experiments/{name}.toml");
        let scales: &[Scale] = if name == "demo" { &[Scale::Quick] } else { &[Scale::Quick, Scale::Full] };
        for scale in scales {
            let study = recipe::read(text, Path::new(&path), *scale, Vec::new())
                .unwrap_or_else(|e| panic!("{name} {}: {e}", scale.name()));
            let names: HashSet<&String> = study.entries.iter().map(|c| &c.name).collect();
            assert_eq!(names.len(), study.entries.len(), "{name}: names of cells");
            assert!(!study.asks.is_empty(), "{name}: its question");
            for cell in 0..study.entries.len() {
                let forecast = study.forecast(cell);
                assert!(!forecast.is_empty(), "{name}: {}", study.entries[cell].name);
                for (_, trial) in forecast.iter().filter(|_| *scale == Scale::Quick) {
                    assert_eq!(trial.settings.text("data.source"), "built-in", "{name}: quick needs no files");
                }
            }
        }
    }
}

#[test]
fn the_paper_s_figures_stand_in_their_cells() {
    let (name, text) = BUILT_IN[0];
    let study = recipe::read(text, Path::new(name), Scale::Full, Vec::new()).unwrap();
    let figure = |cell: &str| {
        let place = study.entries.iter().position(|c| c.name == cell).unwrap();
        study.layouts.iter().find_map(|t| {
            let i = t.entries.iter().position(|row| row.contains(&place))?;
            let j = t.entries[i].iter().position(|c| *c == place)?;
            t.paper[i][j]
        })
    };
    assert_eq!(study.entries.len(), 36);
    assert_eq!(figure("mini-ptb/bptt/b20"), Some(128.16));
    assert_eq!(figure("mini-text8/s5/b10"), Some(216.87));
    assert_eq!(figure("batch-ptb/s2/b5"), Some(204.14));
    // One budget for all methods: nine short trials and one in full, each short one a fifth of the text for three epochs.
    for (i, cell) in study.entries.iter().enumerate().filter(|(_, c)| c.name.starts_with("mini-ptb")) {
        let Protocol::Search(search) = &cell.protocol else { panic!("{} has no search", cell.name) };
        assert_eq!(search.points.len() * search.seeds.len(), 9, "{}", cell.name);
        for (_, trial) in study.forecast(i).iter().filter(|(key, _)| !key.contains('#')) {
            assert_eq!((real(trial, "data.max_tokens"), real(trial, "train.epochs")), (185_918.0, 3.0));
        }
    }
}

const RECIPE: &str = r#"
title = "t"
[set]
model.hidden = 4
[scale.quick]
trials = 4
short = { train.epochs = 1 }
set = { train.epochs = 3 }
[search.bptt.grid]
optim.lr = [0.5, 0.05]
[search.btprop]
draw = 3
[search.btprop.grid]
btprop.lambda = [1, 2, 3, 4, 5]
optim.lr = [0.1, 0.2, 0.3]
[[table]]
name = "a"
[[table.column]]
name = "x"
set = { btprop.block = 5 }
[[table.column]]
name = "y"
set = { btprop.block = 6 }
[[table.row]]
name = "bptt"
search = "bptt"
[[table.row]]
name = "bt"
search = "btprop"
set = { method = "btprop" }
"#;

#[test]
fn a_search_has_one_budget_and_learns_from_its_neighbour() {
    let study = recipe::read(RECIPE, Path::new("r.toml"), Scale::Quick, Vec::new()).unwrap();
    // A landscape whose optimum only the first cell of the row may have drawn.
    let ppl = |t: &Trial| match t.settings.text("method").as_str() {
        "bptt" => Some(100.0 * (real(t, "optim.lr") - 0.06).abs() + real(t, "train.seed")),
        _ => Some(real(t, "btprop.lambda") + 10.0 * real(t, "optim.lr")),
    };
    let (known, verdicts, order) = simulate(&study, false, ppl);
    let short = |t: &Trial| real(t, "train.epochs") == 1.0;
    for (cell, verdict) in study.entries.iter().zip(&verdicts) {
        assert_eq!(verdict.all.iter().filter(|t| short(t)).count(), 4, "{}", cell.name);
        assert_eq!(verdict.trials.len(), 1);
        assert!(!short(&verdict.trials[0]));
        // The winner of the short trials, and nothing else, ran in full.
        let best =
            verdict.all.iter().filter(|t| short(t)).map(|t| (ppl(t).unwrap(), t)).min_by(|a, b| a.0.total_cmp(&b.0));
        let best = best.unwrap().1;
        if real(best, "btprop.lambda") > 0.5 && best.settings.text("method") == "btprop" {
            assert_eq!(real(best, "btprop.lambda"), real(&verdict.trials[0], "btprop.lambda"));
        }
        assert_eq!(real(best, "optim.lr"), real(&verdict.trials[0], "optim.lr"));
    }
    // BPTT: two rates with two seeds, chosen by their mean.
    assert_eq!(super::grid::shown(verdicts[0].chosen.as_ref().unwrap()), "optim.lr=0.05");
    // The right cell of the row tried the left one's winner.
    let winner = super::grid::shown(verdicts[2].chosen.as_ref().unwrap());
    let tried: Vec<String> = verdicts[3]
        .all
        .iter()
        .filter(|t| short(t))
        .map(|t| format!("btprop.lambda={} optim.lr={}", real(t, "btprop.lambda"), t.settings.text("optim.lr")))
        .collect();
    assert!(tried.contains(&winner), "{winner} not in {tried:?}");
    // Nothing was trained twice, and another order comes to the same.
    assert_eq!(order.iter().map(|w| &w.trial.id).collect::<HashSet<_>>().len(), order.len());
    let (other, again, _) = simulate(&study, true, ppl);
    assert_eq!(known.keys().collect::<HashSet<_>>(), other.keys().collect::<HashSet<_>>());
    for (a, b) in verdicts.iter().zip(&again) {
        assert_eq!(a.chosen.as_ref().map(|p| super::grid::shown(p)), b.chosen.as_ref().map(|p| super::grid::shown(p)));
    }
}

#[test]
fn a_cell_alone_also_runs_the_search_of_its_neighbour() {
    let study = recipe::read(RECIPE, Path::new("r.toml"), Scale::Quick, Vec::new()).unwrap();
    let Next::Trials(wants) = study.next(3, &|_| None) else { panic!("nothing was known") };
    let blocks: HashSet<String> = wants.iter().map(|w| w.trial.settings.text("btprop.block")).collect();
    assert_eq!(blocks, HashSet::from(["5".to_owned(), "6".to_owned()]));
    // Its own last point waits for the neighbour's winner.
    assert_eq!(wants.iter().filter(|w| w.trial.settings.text("btprop.block") == "6").count(), 3);
}

#[test]
fn all_trials_diverging_is_a_verdict_too() {
    let study = recipe::read(RECIPE, Path::new("r.toml"), Scale::Quick, Vec::new()).unwrap();
    let bad = |t: &Trial| (t.settings.text("method") == "bptt").then_some(5.0);
    let (known, verdicts, _) = simulate(&study, false, bad);
    assert_eq!(verdicts[0].trials.len(), 1);
    assert!(verdicts[2].trials.is_empty() && verdicts[2].all.len() == 4);
    let finished = Ledger { known, verdicts: verdicts.into_iter().enumerate().collect(), ..Ledger::default() };
    let results = Results::of(&study, &finished, &HashMap::new(), "c".into());
    assert_eq!(results.figures[2].missing.as_deref(), Some("no trial came to a good end"));
    assert_eq!(results.ended("diverged").count(), 8);
    assert!(results.ended("diverged").all(|line| line.reason == "boom"));
}

const SWEEP: &str = r#"
[set]
train.epochs = 9
model.hidden = 4
[grid]
optim.lr = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
model.layers = [1, 2]
[sweep]
seeds = 2
groups = ["model.layers"]
prune = { first = 1, factor = 3 }
"#;

#[test]
fn successive_halving_gives_epochs_to_the_best() {
    let study = sweep_file::read(SWEEP, Path::new("s.toml"), Vec::new()).unwrap();
    assert_eq!(study.entries.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["model.layers=1", "model.layers=2"]);
    let ppl = |t: &Trial| Some(real(t, "optim.lr") * 100.0 + real(t, "train.seed"));
    let (known, verdicts, order) = simulate(&study, false, ppl);
    for verdict in &verdicts {
        assert!(super::grid::shown(verdict.chosen.as_ref().unwrap()).starts_with("optim.lr=0.1 "));
        assert_eq!(verdict.trials.len(), 2);
        let epochs = verdict.all.iter().map(|t| known[&t.id].epochs());
        let mut counts: HashMap<usize, usize> = HashMap::new();
        epochs.for_each(|n| *counts.entry(n).or_default() += 1);
        assert_eq!(counts, HashMap::from([(1, 12), (3, 4), (9, 2)]));
        assert_eq!(verdict.pruned.iter().filter(|(_, epoch)| *epoch == 1).count(), 6);
        assert_eq!(verdict.pruned.iter().filter(|(_, epoch)| *epoch == 3).count(), 2);
    }
    assert_eq!(order.len(), 2 * (18 + 6 + 2));
}

#[test]
fn groups_hold_the_best_of_the_other_settings() {
    let text = SWEEP.replace("prune = { first = 1, factor = 3 }", "");
    let study = sweep_file::read(&text, Path::new("s.toml"), Vec::new()).unwrap();
    // One seed of the best rate diverges, so the second best wins.
    let ppl = |t: &Trial| match (real(t, "optim.lr"), real(t, "train.seed")) {
        (0.1, 2.0) => None,
        (rate, seed) => Some(rate * 100.0 + seed * real(t, "model.layers")),
    };
    let (known, verdicts, _) = simulate(&study, false, ppl);
    let finished = Ledger { known, verdicts: verdicts.into_iter().enumerate().collect(), ..Ledger::default() };
    let results = Results::of(&study, &finished, &HashMap::new(), "c".into());
    let spread = results.figures[1].valid_ppl.unwrap();
    assert_eq!(results.figures[1].chosen.as_deref(), Some("optim.lr=0.2 model.layers=2"));
    assert!((spread.mean - 23.0).abs() < 1e-9 && (spread.deviation.unwrap() - 2f64.sqrt()).abs() < 1e-9);
    assert_eq!(results.trials.len(), 36);
    assert_eq!(results.ended("diverged").count(), 2);
}

#[test]
fn sweeps_are_refused_with_the_place() {
    let refuse = |text: &str, last: &[&str]| {
        let last = last.iter().map(|text| Typed::argument(text).unwrap()).collect();
        sweep_file::read(text, Path::new("s.toml"), last).unwrap_err().to_string()
    };
    let ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
    let keys = ["synth.seed", "train.patience", "btprop.state_steps", "btprop.state_lr", "btprop.state_clip"];
    let more = ["btprop.state_tol", "btprop.dual_lr", "btprop.lambda", "optim.clip"];
    let huge: String = keys.iter().chain(&more).map(|key| format!("{key} = {ten}\n")).collect();
    for (text, last, expected) in [
        (format!("[grid]\n{huge}"), &[][..], "the grid has 1,000,000,000 trials, seeds included; at most 10,000"),
        ("[grid]\n".into(), &[], "s.toml: line 1, column 2: the grid is empty"),
        ("[set]\nmodel.hidden = 3\n".into(), &[], "there is no [grid]"),
        ("".into(), &[], "there is no [grid]"),
        ("[grid]\noptim.lr = []\n".into(), &[], "line 2, column 7: optim.lr has no value, so the grid is empty"),
        (
            "[grid]\nmodel.hiden = [1]\n".into(),
            &[],
            "line 2, column 16: there is no setting model.hiden; did you mean model.hidden?",
        ),
        (
            "[grid]\nmodel.hidden = [1, 0]\n".into(),
            &[],
            "line 2, column 20: model.hidden must be a whole number from 1",
        ),
        ("[grid]\noptim.lr = [1]\noptim.lr = [2]\n".into(), &[], "s.toml: line 3, column 7: duplicate key"),
        ("[grids]\noptim.lr = [1]\n".into(), &[], "line 1, column 2: the file has no key grids; did you mean grid?"),
        (
            "[grid]\noptim.lr = [1]\n[sweep]\nsede = 3\n".into(),
            &[],
            "line 4, column 1: [sweep] has no key sede; did you mean seeds?",
        ),
        ("[grid]\noptim.lr = [1]\n[sweep]\nseeds = 0\n".into(), &[], "line 4, column 1: seeds of [sweep] must be"),
        ("[grid]\noptim.lr = [1]\n[sweep]\nseeds = [1, 1]\n".into(), &[], "1 stands there twice"),
        ("[grid]\ntrain.seed = [1]\n".into(), &[], "give seeds in [sweep]"),
        (
            "[set]\noptim.lr = 1\n[grid]\noptim.lr = [1]\n".into(),
            &[],
            "optim.lr is in the grid and also set (s.toml: line 2, column 7)",
        ),
        ("[grid]\noptim.lr = [1]\n".into(), &["optim.lr=2"], "optim.lr is in the grid and also set (optim.lr=2)"),
        ("[grid]\noptim.lr = [1]\n".into(), &["optim.rl=2"], "there is no setting optim.rl"),
        (
            "[grid]\noptim.lr = [1]\n[sweep]\ngroups = [\"model.cell\"]\n".into(),
            &[],
            "groups has model.cell, which is not in the grid",
        ),
        (
            "[grid]\nbtprop.lambda = [1, 2]\n".into(),
            &[],
            "line 2, column 18: btprop.lambda means nothing for any of these trials",
        ),
        ("[grid]\ntrain.threads = [1, 2]\n".into(), &[], "train.threads changes no result"),
        (
            "[grid]\noptim.lr = { from = 1, to = 2, steps = 1000000 }\n".into(),
            &[],
            "steps of optim.lr must be a whole number from 1 to 10000",
        ),
        (
            "[set]\ntrain.epochs = 3\n[grid]\noptim.lr = [1, 2]\n[sweep]\nprune = { first = 3 }\n".into(),
            &[],
            "line 6, column 1: prune first cuts after 3 epochs, but trials have 3",
        ),
        ("[grid]\nmethod = [\"btprop\"]\nbtprop.loss = [\"free\"]\n".into(), &[], "btprop.block=1"),
    ] {
        let found = refuse(&text, last);
        assert!(found.contains(expected), "{text}: {found}");
    }
}

#[test]
fn recipes_are_refused_with_the_place() {
    let refuse = |from: &str, to: &str| {
        assert!(RECIPE.contains(from), "{from}");
        recipe::read(&RECIPE.replacen(from, to, 1), Path::new("r.toml"), Scale::Quick, Vec::new())
            .unwrap_err()
            .to_string()
    };
    for (from, to, expected) in [
        ("title = \"t\"", "titel = \"t\"", "r.toml: line 2, column 1: the file has no key titel; did you mean title?"),
        ("title = \"t\"", "", "needs a title"),
        ("name = \"a\"", "name = \"../../etc\"", "may only have letters, digits"),
        ("name = \"y\"", "name = \"x\"", "two columns are called x"),
        ("name = \"bt\"", "name = \"bptt\"", "two rows are called bptt"),
        ("search = \"btprop\"", "search = \"nothing\"", "there is no [search.nothing]"),
        ("trials = 4", "trials = 5", "not a multiple"),
        ("trials = 4", "trials = 100", "its search has 15 points, but trials = 100"),
        ("method = \"btprop\"", "method = \"btporp\"", "did you mean btprop?"),
        ("search = \"bptt\"", "paper = [1]", "paper has 1 figures, but there are 2 columns"),
        ("btprop.block = 6", "btprop.blok = 6", "there is no setting btprop.blok"),
        ("[scale.quick]", "[scale.full]", "there is no [scale.quick]"),
        ("name = \"a\"", "name = \"a\"\nmetric = \"ppl\"", "metric must be one of valid_ppl"),
        ("name = \"a\"", "name = \"a\"\nmetric = \"valid_ppl@99\"", "there is no epoch 99 for metric valid_ppl@99"),
        ("name = \"a\"", "name = \"a\"\ntolerance = -5", "tolerance must be above 0"),
        ("search = \"bptt\"", "paper = [1, 0]", "finite number other than 0"),
        ("name = \"a\"", "name = \"a\"\nat = \"full\"", "nothing to run at scale quick"),
    ] {
        let found = refuse(from, to);
        assert!(found.contains(expected), "{to}: {found}");
    }
}

#[test]
fn order_and_size_are_told_apart() {
    let with_paper = RECIPE
        .replace("search = \"bptt\"", "paper = [100, 90]")
        .replace("search = \"btprop\"", "paper = [110, 80]")
        .replace("[scale.quick]", "[scale.quick]\nsizes = true");
    let study = recipe::read(&with_paper, Path::new("r.toml"), Scale::Quick, Vec::new()).unwrap();
    // Ours: 103, 95 over 120, 96: sizes off by +3, +5.6, +9.1 and +20 %; the last pair (90 > 80) stands the other way round.
    let ppl = |t: &Trial| {
        let bptt = t.settings.text("method") == "bptt";
        Some(match (bptt, t.settings.text("btprop.block") == "5") {
            (true, true) => 103.0,
            (true, false) => 95.0,
            (false, true) => 120.0,
            (false, false) => 96.0,
        })
    };
    let (known, verdicts, _) = simulate(&study, false, ppl);
    let finished = Ledger { known, verdicts: verdicts.into_iter().enumerate().collect(), ..Ledger::default() };
    let results = Results::of(&study, &finished, &HashMap::new(), "c".into());
    let found = compare(&study.layouts[0], &results.figures).unwrap();
    assert_eq!(
        found.entries.iter().map(|c| c.agrees).collect::<Vec<_>>(),
        [Some(true), Some(false), Some(false), Some(false)]
    );
    assert_eq!((found.order.pairs, found.order.agree), (4, 3));
    assert_eq!(found.order.against, ["y: bt < bptt"]);
    let text = super::compare::table(&study, &study.layouts[0], &results.figures, Some(&found)).markdown_page();
    assert!(text.contains("+3.0 % ✓") && text.contains("+20.0 %"), "{text}");
    assert!(text.contains("Size: 1 of 4 figures are within 5 %"), "{text}");
    assert!(text.contains("Order: 3 of 4 pairs"), "{text}");
    // With a part of the text the same figures have nothing to do with the paper's sizes.
    let part = with_paper.replace("[[table]]", "[[table]]\nquick = { part = true }");
    for (recipe, last) in [(&part, vec![]), (&with_paper, vec![Typed::argument("data.max_tokens=9_000").unwrap()])] {
        let study = recipe::read(recipe, Path::new("r.toml"), Scale::Quick, last).unwrap();
        let found = compare(&study.layouts[0], &results.figures).unwrap();
        assert!(found.entries.iter().all(|c| c.agrees.is_none()), "{found:?}");
        let text = super::compare::table(&study, &study.layouts[0], &results.figures, Some(&found)).markdown_page();
        assert!(!text.contains("difference") && text.contains("a part of the text was read"), "{text}");
    }
    let whole = recipe::read(
        &with_paper,
        Path::new("r.toml"),
        Scale::Quick,
        vec![Typed::argument("data.max_tokens=0").unwrap()],
    );
    assert_eq!(whole.unwrap().layouts[0].sizes, Sizes::Comparable);
}

#[test]
fn points_that_mean_the_same_are_tried_once_and_seeds_keep_their_digits() {
    let text =
        "[grid]\nmethod = [\"bptt\", \"btprop\"]\nbtprop.lambda = [1, 2, 3]\n[sweep]\nseeds = [9007199254740993]\n";
    let study = sweep_file::read(text, Path::new("s.toml"), Vec::new()).unwrap();
    let trials: Vec<_> = study.forecast(0).into_iter().map(|(_, t)| t.settings.text("method")).collect();
    assert_eq!(trials, ["bptt", "btprop", "btprop", "btprop"]);
    assert_eq!(study.entries[0].seeds, [9007199254740993]);
    // What only the grid makes whole is no reason to refuse it.
    let text = "[set]\nmodel.tied = true\nmodel.embed = 16\n[grid]\nmodel.hidden = [16]\n";
    sweep_file::read(text, Path::new("s.toml"), Vec::new()).unwrap();
}

/// What a search would only come to later, its last point and its neighbour's, is resolved at the start as well.
#[test]
fn every_point_that_may_be_tried_is_checked_beforehand() {
    let recipe = |grid: &str, short: &str| {
        format!(
            "title = \"t\"\nasks = \"a\"\n[set]\nmethod = \"btprop\"\n[scale.quick]\nseeds = [1]\ntrials = 3\n{short}\n\
             [search.s]\ndraw = 1\n[search.s.grid]\n{grid}\n[[table]]\nname = \"t\"\ntitle = \"t\"\n\
             [[table.column]]\nname = \"x\"\nset = {{ btprop.block = 1 }}\n[[table.column]]\nname = \"y\"\nset = {{ btprop.block = 5 }}\n\
             [[table.row]]\nname = \"r\"\nsearch = \"s\"\nset = {{ btprop.lambda = 1 }}\n"
        )
    };
    let read = |text: &str| recipe::read(text, Path::new("r.toml"), Scale::Quick, Vec::new());
    // The loss on free states needs blocks of one step.
    let loss = recipe("btprop.loss = [\"predicted\", \"free\"]\nbtprop.state_lr = [1, 2, 3]", "");
    let why = read(&loss).unwrap_err().to_string();
    assert!(why.contains("btprop.loss=free"), "{why}");
    // Short trials may hide what the winner's run in full will not bear.
    let hidden = recipe("btprop.loss = [\"free\"]\nbtprop.state_lr = [1, 2, 3]", "short = { btprop.block = 1 }");
    let why = read(&hidden).unwrap_err().to_string();
    assert!(why.contains("btprop.loss=free"), "{why}");
    // What a cell does not draw itself may come from its neighbour.
    let mut study = read(&loss.replace("btprop.block = 5", "btprop.block = 1")).unwrap();
    let Protocol::Search(search) = &mut study.entries[1].protocol else { panic!("no search") };
    search.points.retain(|point| point.iter().all(|typed| typed.text != "free"));
    study.entries[1].set.push(Typed::argument("btprop.block=5").unwrap());
    assert!(study.check().unwrap_err().to_string().contains("btprop.loss=free"));
    let Protocol::Search(search) = &mut study.entries[1].protocol else { panic!("no search") };
    search.neighbour = None;
    study.check().unwrap();
}

#[test]
fn the_command_line_leaves_short_trials_short_and_searches_alone() {
    let read = |words: &[&str]| {
        let last = words.iter().map(|text| Typed::argument(text).unwrap()).collect();
        recipe::read(RECIPE, Path::new("r.toml"), Scale::Quick, last)
    };
    let epochs = |words: &[&str]| {
        let study = read(words).unwrap();
        let forecast = study.forecast(0);
        let of = |last: bool| forecast.iter().find(|(key, _)| key.contains('#') == last).map(|(_, t)| t.epochs());
        (of(false).unwrap(), of(true).unwrap())
    };
    let (short, full) = epochs(&[]);
    assert!(short < full);
    assert_eq!(epochs(&["train.epochs=40"]), (short, 40));
    assert_eq!(epochs(&["train.epochs=1"]), (1, 1));
    let why = read(&["optim.lr=0.5"]).unwrap_err().to_string();
    assert!(why.contains("optim.lr is what the short trials of a/bptt/x choose"), "{why}");
}
