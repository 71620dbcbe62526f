//! `reproduce`: the paper's results, computed afresh.

use std::path::{Path, PathBuf};

use serde_json::json;
use tprop::cell::{Activation, CellKind};
use tprop::theorem::{Theorem, theorem};

use tprop_report::text::shell;

use crate::args;
use crate::console;
use crate::experiment::recipe::{self, BUILT_IN};
use crate::experiment::{self, Request};
use crate::failure::{Failure, Outcome};
use crate::settings::{nearest, typed};

/// Computes and prints a result.
pub fn reproduce(args: &args::Reproduce) -> Outcome {
    if args.what == "theorem" {
        let driving = &args.driving;
        if !args.words.is_empty() || !args.only.is_empty() || driving.dry_run || driving.retry || driving.out.is_some()
        {
            return Err(Failure::input("theorem trains nothing and writes nothing; it takes --seed and --json only"));
        }
        return show_theorem(args);
    }
    let built_in = BUILT_IN.iter().find(|(name, _)| *name == args.what);
    let path = match built_in {
        Some((name, _)) => PathBuf::from(format!("experiments/{name}.toml")),
        None if args.what.ends_with(".toml") || Path::new(&args.what).is_file() => PathBuf::from(&args.what),
        None => return Err(unknown(&args.what)),
    };
    let text = match built_in {
        Some((_, text)) => (*text).to_owned(),
        None => typed::text_of(&path)?,
    };
    let scale = args.scale.into();
    let study = recipe::read(&text, &path, scale, experiment::words(&args.words)?)?;
    for entry in study.entries.iter().filter(|entry| !entry.eval.is_empty()) {
        let place = || format!("{}: {}", path.display(), entry.name);
        args::check_eval(&entry.eval).map_err(|why| Failure::input(format!("{}: eval: {why}", place())))?;
    }
    let mut command = format!("tprop reproduce {} --scale {}", shell(&args.what), scale.name());
    command.extend(args.only.iter().map(|entry| format!(" --only {}", shell(entry))));
    command.extend(args.words.iter().map(|word| format!(" {}", shell(word))));
    let usual = Path::new("reproduce").join(format!("{}-{}", study.name, scale.name()));
    let request = args.driving.request(usual, command);
    experiment::run(&study, &Request { only: args.only.clone(), lenient: true, ..request })
}

fn unknown(name: &str) -> Failure {
    let names = || BUILT_IN.iter().map(|(name, _)| *name).chain(["theorem"]);
    let near = nearest(name, names()).map_or(String::new(), |n| format!("; did you mean {n}?"));
    let all: Vec<&str> = names().collect();
    let shown = tprop::vocab::printable(name);
    Failure::input(format!("{shown}: neither an experiment ({}) nor a TOML file{near}", all.join(", ")))
}

fn show_theorem(args: &args::Reproduce) -> Outcome {
    let cells =
        [CellKind::Gru, CellKind::Lstm, CellKind::Elman(Activation::Tanh), CellKind::Elman(Activation::Sigmoid)];
    let results: Vec<(String, Theorem)> = cells.iter().map(|cell| (label(*cell), theorem(*cell, args.seed))).collect();
    if args.driving.json {
        // The GRU's figures stand at the top, because it is the paper's cell.
        let gru = &results[0].1;
        let all: serde_json::Map<_, _> = results.iter().map(|(name, t)| (name.clone(), json!(t))).collect();
        return console::line(
            json!({"seed": args.seed, "old": gru.old, "moved": gru.moved, "reach": gru.reach, "cells": all}),
        );
    }
    let mut text = String::from(
        "The paper's theorem: after one plain state step of rate \u{3b7} from an exact trajectory, the gradient of the penalty in the cell's\n\
         and the embedding's weights is \u{3b7}\u{3bb} times the one-step BPTT gradient (B = 1, loss on the free states; f64, random model and text).\n\n\
         cell             from the old states        all states moved at once\n\
         \u{20}                ratio      cosine          ratio      cosine\n",
    );
    for (name, t) in &results {
        text += &format!(
            "{name:<14} {:>9.6} {:>11.6} {:>14.6} {:>11.6}\n",
            t.old.ratio, t.old.cosine, t.moved.ratio, t.moved.cosine
        );
    }
    text += "\nIt holds when the predictions come from the old states, and does not when all states have moved.\n\n\
             Reach: starts held on the exact trajectory, \u{3b7}\u{3bb} = 1, n state steps (loss on the predicted states, any block length).\n\
             The gradient is that of BPTT in which each block's loss flows back through the n blocks before it:\n\n\
             cell            n   difference from that BPTT   cosine with BPTT over the whole window\n";
    for (name, t) in &results {
        for reach in &t.reach {
            text +=
                &format!("{name:<14} {:>2} {:>20.1e} {:>28.6}\n", reach.n, reach.relative_error, reach.of_whole.cosine);
        }
    }
    console::data(&text)
}

fn label(cell: CellKind) -> String {
    match cell {
        CellKind::Elman(Activation::Tanh) => "elman tanh".into(),
        CellKind::Elman(Activation::Sigmoid) => "elman logistic".into(),
        cell => cell.name().into(),
    }
}
