//! `reproduce`: the paper's results, computed afresh.

use serde_json::json;
use tprop::cell::{Activation, CellKind};
use tprop::theorem::{Theorem, theorem};

use crate::args::{self, Experiment};
use crate::console;
use crate::failure::Outcome;

/// Computes and prints a result.
pub fn reproduce(args: &args::Reproduce) -> Outcome {
    match args.what {
        Experiment::Theorem => show_theorem(args),
    }
}

fn show_theorem(args: &args::Reproduce) -> Outcome {
    let cells =
        [CellKind::Gru, CellKind::Lstm, CellKind::Elman(Activation::Tanh), CellKind::Elman(Activation::Sigmoid)];
    let results: Vec<(String, Theorem)> = cells.iter().map(|cell| (label(*cell), theorem(*cell, args.seed))).collect();
    if args.json {
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
