//! The definition: a naive twin of the methods and of the loop around them, written from docs/math.md with plain loops, against the
//! library, for every variant: the weights after each update and every recorded quantity, in f64.
//!
//! `net` is sections 2 and 3 of that page, `btprop` sections 4 to 8 and 13, `bptt` and `optim` what they are named after, `run` the outer loop
//! and its records; `library` runs the same case with the library, and this file has the cases and the comparison.

#[path = "../common/mod.rs"]
mod common;

mod bptt;
mod btprop;
mod library;
mod net;
mod optim;
mod run;

use std::collections::BTreeSet;

use common::{VOCAB, duals, plain, tokens};
use library::Case;
use run::{Epoch, Learner};
use tprop::cell::CellKind;
use tprop::method::*;
use tprop::model::ModelConfig;
use tprop::objective::{Constraint, Direction, Penalty};
use tprop::optim::{OptimConfig, Rule};
use tprop::train::TrainConfig;
use tprop::words::Words;

/// Whether the library's `state_move` is the mean over the states that may move. If not, it divides by the boundaries inside a window.
const STATE_MOVE_IS_A_MEAN_OVER_MOVABLE_STATES: bool = true;

const TOLERANCE: f64 = 1e-9;

// ---- the comparison

#[track_caller]
fn same(what: impl std::fmt::Display, ours: f64, theirs: f64) {
    let error = (ours - theirs).abs() / theirs.abs().max(1.0);
    assert!(error <= TOLERANCE, "{what}: {ours} in the library, {theirs} by definition (error {error:e})");
}

fn wide(text: &[u32]) -> Vec<usize> {
    text.iter().map(|&token| token as usize).collect()
}

/// The twin's side, with the library's initial weights.
fn learner(case: &Case) -> Learner {
    let theta = case.initial();
    Learner {
        net: case.net(),
        optimiser: optim::Optimiser::new(case.train.optim, &theta),
        theta,
        text: wide(&case.text),
        facts: BTreeSet::new(),
    }
}

/// Runs a case by definition and in the library. Returns what happened in it.
#[track_caller]
fn compare(case: &Case) -> BTreeSet<&'static str> {
    let (name, mut learner) = (&case.name, learner(case));
    let epochs = run::run(&mut learner, &wide(&case.valid), &case.train, &shards(case));
    for (rank, trace) in case.traces().iter().enumerate() {
        let updates: Vec<_> = epochs.iter().flat_map(|epoch| &epoch.updates).collect();
        assert_eq!(trace.updates.len(), updates.len(), "{name}: updates");
        let per_epoch = (epochs[0].updates.len(), epochs[0].updates.iter().map(|update| update.tokens).sum());
        assert_eq!(trace.per_epoch, per_epoch, "{name}: updates and tokens of an epoch");
        for (i, ((ours, weights), theirs)) in trace.updates.iter().zip(&updates).enumerate() {
            let at = format!("{name}, rank {rank}, update {}", i + 1);
            same(format!("{at}: nats"), ours.nats, theirs.nats);
            same(format!("{at}: norm"), ours.norm, theirs.norm);
            assert_eq!(ours.tokens, theirs.tokens, "{at}: tokens");
            assert_eq!(ours.coupling.is_some(), theirs.coupling.is_some(), "{at}: coupling");
            if let (Some(ours), Some(theirs)) = (&ours.coupling, &theirs.coupling) {
                assert_eq!((ours.windows, ours.sums.boundaries), (1.0, theirs.boundaries), "{at}: counts");
                same(format!("{at}: residual"), ours.sums.residual, theirs.residual);
                same(format!("{at}: residual_max"), ours.sums.residual_max, theirs.residual_max);
                same(format!("{at}: targets"), ours.sums.state, theirs.state);
                same(format!("{at}: duals"), ours.sums.dual, theirs.dual);
                same(format!("{at}: moved"), ours.moved, theirs.moved);
                assert_eq!(ours.sweeps, theirs.sweeps, "{at}: sweeps");
                same(format!("{at}: penalty"), ours.sums.penalty, theirs.penalty);
                same(format!("{at}: objective"), ours.objective, theirs.objective);
            }
            for (tensor, rows) in &theirs.theta {
                for (ours, theirs) in weights[tensor].iter().flatten().zip(rows.iter().flatten()) {
                    same(format!("{at}: {tensor}"), *ours, *theirs);
                }
            }
        }
        compare_records(&format!("{name}, rank {rank}"), trace, &epochs);
    }
    learner.facts
}

fn compare_records(name: &str, trace: &library::Trace, epochs: &[Epoch]) {
    let (mut step, mut tokens) = (0, 0);
    let mut steps = trace.steps.iter();
    let mut best = f64::INFINITY;
    assert_eq!(trace.evals.len(), epochs.len(), "{name}: evaluations");
    for (i, (ours, theirs)) in trace.evals.iter().zip(epochs).enumerate() {
        let at = format!("{name}, epoch {}", i + 1);
        for update in &theirs.updates {
            (step, tokens) = (step + 1, tokens + update.tokens);
            let ours = steps.next().expect("a line for each update");
            assert_eq!((ours.epoch, ours.step, ours.tokens), (i as u64 + 1, step, tokens), "{at}: counts of a step");
            same(format!("{at}: nats per token"), ours.nats, update.nats / update.tokens as f64);
            same(format!("{at}: norm"), ours.norm, update.norm);
        }
        assert_eq!((ours.epoch, ours.step, ours.tokens), (i as u64 + 1, step, tokens), "{at}: counts");
        same(format!("{at}: train_ppl"), ours.train_ppl, theirs.train_ppl);
        same(format!("{at}: valid_ppl"), ours.valid_ppl, theirs.valid_ppl);
        same(format!("{at}: window_ppl"), ours.window_ppl, theirs.window_ppl);
        assert_eq!(ours.best, theirs.valid_ppl < best, "{at}: best");
        best = best.min(theirs.valid_ppl);
        assert_eq!(ours.window_ppl_by_position.len(), theirs.window_ppl_by_position.len(), "{at}: positions");
        for (ours, theirs) in ours.window_ppl_by_position.iter().zip(&theirs.window_ppl_by_position) {
            same(format!("{at}: window_ppl_by_position"), *ours, *theirs);
        }
        assert_eq!(ours.coupling.is_some(), theirs.lambda.is_some(), "{at}: coupling");
        let (Some(ours), Some(lambda)) = (&ours.coupling, theirs.lambda) else { continue };
        let boundaries = theirs.sum(|c| c.boundaries).max(1.0);
        let movable =
            if STATE_MOVE_IS_A_MEAN_OVER_MOVABLE_STATES { theirs.sum(|c| c.movable).max(1.0) } else { boundaries };
        let state = theirs.sum(|c| c.state);
        let relative = if state > 0.0 { theirs.sum(|c| c.residual) / state } else { 0.0 };
        same(format!("{at}: objective"), ours.objective, theirs.mean(|c| c.objective));
        same(format!("{at}: penalty"), ours.penalty, theirs.mean(|c| c.penalty));
        same(format!("{at}: residual_mean"), ours.residual_mean, theirs.sum(|c| c.residual) / boundaries);
        same(format!("{at}: residual_max"), ours.residual_max, theirs.max(|c| c.residual_max));
        same(format!("{at}: residual_relative"), ours.residual_relative, relative);
        same(format!("{at}: dual_norm"), ours.dual_norm, theirs.sum(|c| c.dual) / boundaries);
        same(format!("{at}: state_move"), ours.state_move, theirs.sum(|c| c.moved) / movable);
        same(format!("{at}: lambda"), ours.lambda, lambda);
    }
    assert!(steps.next().is_none(), "{name}: more lines than updates");
}

/// Blocks with which the ranks but the first begin.
fn shards(case: &Case) -> Vec<usize> {
    let MethodConfig::Btprop(config) = &case.train.method else { return Vec::new() };
    let blocks = match config.batch {
        Batch::Mini { .. } => config.blocks,
        Batch::Full => (case.text.len() - 1) / config.streams / config.block,
    };
    assert_eq!(blocks % case.ranks, 0, "{}: ranks with as many blocks each", case.name);
    (1..case.ranks).map(|rank| rank * blocks / case.ranks).collect()
}

// ---- the cases

const SGD: OptimConfig = OptimConfig { rule: Rule::Sgd, rate: 0.5, clip: 0.4 };

fn model(cell: CellKind, layers: usize) -> ModelConfig {
    // Products of many factors leave all bounds unless these stay near 1.
    let (layers, init) = if cell == CellKind::Mult { (1, 0.1) } else { (layers, 0.5) };
    ModelConfig { cell, hidden: 4, embed: 3, layers, init, ..ModelConfig::new(VOCAB) }
}

/// Five windows over two epochs; in batch mode five passes. Some tokens are left over at the end of each stream.
fn case(name: impl Into<String>, model: ModelConfig, method: MethodConfig) -> Case {
    let (per_window, streams, full) = match &method {
        MethodConfig::Bptt(c) => (c.window, c.streams, c.batch == Batch::Full),
        MethodConfig::Btprop(c) => (c.block * c.blocks, c.streams, c.batch == Batch::Full),
        other => panic!("{} has no twin", other.name()),
    };
    let windows = if full { 2 } else { 5 };
    let left_over = usize::from(per_window > 1);
    Case {
        name: format!("{}, {:?} × {}", name.into(), model.cell, model.layers),
        train: TrainConfig {
            method,
            optim: OptimConfig { rate: if model.cell == CellKind::Mult { 0.05 } else { SGD.rate }, ..SGD },
            epochs: if full { 5 } else { 2 },
            patience: 0,
            eval_streams: 2,
            ..TrainConfig::default()
        },
        model,
        ranks: 1,
        text: tokens(streams * (windows * per_window + left_over) + 1),
        valid: tokens(80)[60..].to_vec(),
    }
}

fn btprop(name: impl Into<String>, model: ModelConfig, config: &BtpropConfig) -> Case {
    case(name, model, MethodConfig::Btprop(config.clone()))
}

/// Two streams, three blocks of two steps, two state steps from one sweep.
fn base() -> BtpropConfig {
    let states = StateConfig { steps: 2, rate: 0.4, ..plain(2, 3, 2).states };
    BtpropConfig { states, lambda: 0.7, init: Init::Parallel { sweeps: 1 }, ..plain(2, 3, 2) }
}

fn admm(duals: DualConfig, before_theta: bool) -> Solver {
    Solver::Admm { duals, before_theta }
}

/// Runs all cases and says what happened in any of them.
#[track_caller]
fn compare_all(cases: impl IntoIterator<Item = Case>) -> BTreeSet<&'static str> {
    cases.into_iter().flat_map(|case| compare(&case)).collect()
}

/// A list of variants for every cell, the second layer in turn.
#[track_caller]
fn for_every_cell(variants: &[(&str, BtpropConfig)], epochs: Option<usize>) -> BTreeSet<&'static str> {
    let mut facts = BTreeSet::new();
    for (i, (name, config)) in variants.iter().enumerate() {
        for (j, cell) in CellKind::ALL.into_iter().enumerate() {
            let mut case = btprop(*name, model(cell, 1 + (i + j) % 2), config);
            case.train.epochs = epochs.unwrap_or(case.train.epochs);
            if epochs.is_some() && cell == CellKind::Mult {
                case.train.optim.rate = 0.01;
            }
            facts.extend(compare(&case));
        }
    }
    facts
}

#[track_caller]
fn assert_seen(facts: &BTreeSet<&'static str>, wanted: &[&'static str]) {
    for fact in wanted {
        assert!(facts.contains(fact), "no case in which: {fact}; only {facts:?}");
    }
}

/// Every init with every choice of starts, first, last and batch mode; cells, depth and solvers in turn.
#[test]
fn where_states_begin_and_which_of_them_move() {
    let inits = [
        Init::Zero,
        Init::Parallel { sweeps: 1 },
        Init::Parallel { sweeps: 2 },
        Init::Stored { sweeps: 0 },
        Init::Stored { sweeps: 1 },
        Init::Stored { sweeps: 2 },
        Init::Carried { sweeps: 1 },
        Init::Carried { sweeps: 3 },
        Init::Sequential,
    ];
    let solvers = [Solver::Penalty, admm(duals(0.5), false), Solver::Alm { duals: duals(0.5), joint_steps: 2 }];
    let mut i = 0;
    for init in inits {
        for starts in [Starts::Moving, Starts::Held] {
            for batch in [Batch::Mini { accumulate: 1 }, Batch::Full] {
                for first in [First::Fixed, First::Free] {
                    for last in [Last::None, Last::Zero, Last::Free0] {
                        // Refused: held starts that no sweep would ever find.
                        if batch != Batch::Full && starts == Starts::Held && init == (Init::Stored { sweeps: 0 }) {
                            continue;
                        }
                        i += 1;
                        let solver = solvers[i % 3];
                        let config = BtpropConfig { init, starts, batch, first, last, solver, ..base() };
                        let name = format!("{init:?}, {starts:?}, {batch:?}, {first:?}, {last:?}, {solver:?}");
                        compare(&btprop(name, model(CellKind::ALL[i % CellKind::ALL.len()], 1 + i / 6 % 2), &config));
                    }
                }
            }
        }
    }
}

#[test]
fn state_steps() {
    let base = base();
    let with = |states| BtpropConfig { states, ..base.clone() };
    let held = |states| BtpropConfig { states, starts: Starts::Held, init: Init::Sequential, ..base.clone() };
    let full = |states| BtpropConfig { states, batch: Batch::Full, ..base.clone() };
    let plain = base.states;
    let clip = StateConfig { clip: 0.15, ..plain };
    let adagrad = StateConfig { rule: StateRule::Adagrad, rate: 0.1, ..plain };
    let both = StateConfig { clip: 0.15, ..adagrad };
    let mean = StateConfig { scale: StateScale::Mean, rate: 2.0, ..plain };
    let settling = StateConfig { steps: 6, rate: 0.5, tolerance: 0.02, ..plain };
    let facts = for_every_cell(
        &[
            ("no state steps", with(StateConfig { steps: 0, ..plain })),
            ("four state steps", with(StateConfig { steps: 4, ..plain })),
            ("clip", with(clip)),
            ("clip, held", held(clip)),
            ("adagrad", with(adagrad)),
            ("adagrad, batch", full(adagrad)),
            ("adagrad, held, batch", BtpropConfig { batch: Batch::Full, ..held(adagrad) }),
            ("adagrad, clip", full(both)),
            ("mean", with(mean)),
            ("mean, clip", with(StateConfig { clip: 0.02, ..mean })),
            ("tolerance", with(settling)),
            ("tolerance, held", held(settling)),
            ("tolerance, batch", full(settling)),
            ("tolerance, adagrad", with(StateConfig { steps: 4, tolerance: 0.03, ..adagrad })),
            ("tolerance never met", with(StateConfig { tolerance: 1e-12, ..settling })),
            ("tolerance, nothing moves", BtpropConfig { blocks: 1, ..with(settling) }),
            ("a tolerance of joint steps", {
                let solver = Solver::Alm { duals: duals(0.3), joint_steps: 3 };
                BtpropConfig { solver, ..with(StateConfig { tolerance: 10.0, ..plain }) }
            }),
        ],
        None,
    );
    assert_seen(&facts, &["state gradient clipped", "state gradient not clipped", "settled early", "not settled"]);
}

#[test]
fn duals_and_their_order() {
    let base = base();
    let mut variants = Vec::new();
    let mut names = Vec::new();
    for rule in [DualRule::Scaled, DualRule::Gradient, DualRule::Mean] {
        for (start_epoch, stored) in [(1, true), (2, true), (1, false), (2, false)] {
            let duals = DualConfig { rate: 0.8, rule, start_epoch, stored };
            for solver in [admm(duals, false), admm(duals, true), Solver::Alm { duals, joint_steps: 1 }] {
                let batch = if variants.len() % 4 == 3 { Batch::Full } else { base.batch };
                let last = [Last::None, Last::Free0, Last::Zero][variants.len() % 3];
                names.push(format!("{solver:?}, {batch:?}, {last:?}"));
                variants.push(BtpropConfig { solver, batch, last, ..base.clone() });
            }
        }
    }
    let table: Vec<_> = names.iter().map(String::as_str).zip(variants).collect();
    let facts = for_every_cell(&table, Some(3));
    assert_seen(&facts, &["duals rest"]);
}

#[test]
fn steps_of_theta() {
    let base = base();
    let solver = admm(duals(0.5), false);
    let adagrad = StateConfig { rule: StateRule::Adagrad, ..base.states };
    let joint = |joint_steps| Solver::Alm { duals: duals(0.5), joint_steps };
    let facts = for_every_cell(
        &[
            ("two", BtpropConfig { theta_steps: 2, ..base.clone() }),
            ("three, admm", BtpropConfig { theta_steps: 3, solver, ..base.clone() }),
            ("two, before", BtpropConfig { theta_steps: 2, solver: admm(duals(0.5), true), ..base.clone() }),
            ("two, held", BtpropConfig { theta_steps: 2, starts: Starts::Held, ..base.clone() }),
            ("two, batch", BtpropConfig { theta_steps: 2, batch: Batch::Full, solver, ..base.clone() }),
            ("one joint", BtpropConfig { solver: joint(1), ..base.clone() }),
            ("three joint", BtpropConfig { solver: joint(3), states: adagrad, ..base.clone() }),
            ("joint, held", BtpropConfig { solver: joint(2), starts: Starts::Held, ..base.clone() }),
            ("joint, batch", BtpropConfig { solver: joint(2), batch: Batch::Full, ..base.clone() }),
        ],
        None,
    );
    assert_seen(&facts, &["gradient clipped", "gradient not clipped"]);
}

#[test]
fn schedules_of_lambda() {
    let base = BtpropConfig { solver: admm(duals(0.5), false), ..base() };
    let full = BtpropConfig { batch: Batch::Full, ..base.clone() };
    let reset = admm(DualConfig { stored: false, ..duals(0.5) }, true);
    let (up, down) = (LambdaSchedule::Geometric(1.5), LambdaSchedule::Geometric(0.4));
    for_every_cell(
        &[
            ("up", BtpropConfig { lambda_schedule: up, ..base.clone() }),
            ("down", BtpropConfig { lambda_schedule: down, ..base.clone() }),
            ("up, reset", BtpropConfig { lambda_schedule: up, solver: reset, ..base.clone() }),
            ("up, batch", BtpropConfig { lambda_schedule: up, ..full.clone() }),
            ("down, batch", BtpropConfig { lambda_schedule: down, ..full.clone() }),
        ],
        Some(3),
    );
    let balance = LambdaSchedule::Balance(1.7);
    let slow = |rate| StateConfig { steps: 1, rate, ..base.states };
    // States that begin far off and hardly move, on to some that move more; states on the trajectory, tied more and more strongly.
    let mut facts = BTreeSet::new();
    for i in 0..20 {
        let grown = 1.3f64.powi(i);
        let far = BtpropConfig { init: Init::Zero, states: slow(0.01 * grown), ..base.clone() };
        let near = BtpropConfig { init: Init::Sequential, lambda: grown, states: slow(0.0005), ..base.clone() };
        for (name, config) in [("far", far), ("near", near)] {
            let batch = if i % 4 == 3 { Batch::Full } else { config.batch };
            let config = BtpropConfig { lambda_schedule: balance, batch, ..config };
            let mut case = btprop(format!("{name}, {i}"), model(CellKind::Gru, 1), &config);
            case.train.epochs = 3;
            facts.extend(compare(&case));
        }
    }
    assert_seen(&facts, &["λ raised", "λ just raised", "λ nearly raised", "λ in balance"]);
    assert_seen(&facts, &["λ lowered", "λ just lowered", "λ nearly lowered"]);
}

#[test]
fn other_distances() {
    let base = BtpropConfig { solver: admm(duals(0.3), false), ..base() };
    let mut variants = Vec::new();
    // The other tests are about l2.
    for &name in Penalty::WORDS.iter().filter(|word| **word != "l2") {
        let penalty = name.parse().unwrap();
        let held = BtpropConfig { penalty, starts: Starts::Held, init: Init::Sequential, ..base.clone() };
        variants.push((name, BtpropConfig { penalty, ..base.clone() }));
        variants.push((name, BtpropConfig { penalty, last: Last::Free0, first: First::Free, ..base.clone() }));
        variants.push((name, BtpropConfig { penalty, solver: Solver::Penalty, last: Last::Zero, ..base.clone() }));
        variants.push((name, BtpropConfig { theta_steps: 2, ..held }));
        variants.push((name, BtpropConfig { penalty, batch: Batch::Full, ..base.clone() }));
    }
    for_every_cell(&variants, None);
}

#[test]
fn constraints() {
    let base = BtpropConfig { solver: admm(duals(0.3), false), ..base() };
    let adagrad = StateConfig { rule: StateRule::Adagrad, clip: 0.3, ..base.states };
    let strong = StateConfig { rate: 0.8, ..base.states };
    let mut variants = Vec::new();
    for constraint in [Constraint::Tanh, Constraint::Box, Constraint::Binary, Constraint::Sparse(2)] {
        let name = "constraint";
        let plain = BtpropConfig { constraint, states: strong, ..base.clone() };
        variants.push((name, plain.clone()));
        variants.push((name, BtpropConfig { first: First::Free, last: Last::Free0, ..plain.clone() }));
        variants.push((name, BtpropConfig { init: Init::Stored { sweeps: 0 }, states: adagrad, ..plain.clone() }));
        variants.push((name, BtpropConfig { starts: Starts::Held, init: Init::Sequential, ..plain.clone() }));
        variants.push((name, BtpropConfig { batch: Batch::Full, first: First::Free, ..plain.clone() }));
        variants.push((name, BtpropConfig { batch: Batch::Full, starts: Starts::Held, states: adagrad, ..plain }));
    }
    for_every_cell(&variants, None);
}

#[test]
fn loss_on_free_states() {
    let base = BtpropConfig { loss: LossOn::Free, blocks: 4, block: 1, ..base() };
    let admm = admm(duals(0.3), false);
    let mut variants = Vec::new();
    let (parallel, stored, carried) =
        (Init::Parallel { sweeps: 2 }, Init::Stored { sweeps: 1 }, Init::Carried { sweeps: 2 });
    for init in [Init::Zero, parallel, stored, carried, Init::Sequential] {
        for last in [Last::None, Last::Zero, Last::Free0] {
            let config = BtpropConfig { init, last, ..base.clone() };
            variants.push(("free", config.clone()));
            variants.push(("free, held", BtpropConfig { starts: Starts::Held, solver: admm, ..config.clone() }));
            variants.push(("free, scanned", BtpropConfig { scan: Scan::Starts, ..config.clone() }));
            let held = BtpropConfig { scan: Scan::Starts, starts: Starts::Held, solver: admm, ..config.clone() };
            variants.push(("free, held, scanned", held));
            variants
                .push(("free, batch", BtpropConfig { batch: Batch::Full, solver: admm, first: First::Free, ..config }));
        }
    }
    let alm = Solver::Alm { duals: duals(0.3), joint_steps: 2 };
    let kl = Penalty::Kl(Direction::Forward);
    variants.push(("free, alm", BtpropConfig { solver: alm, ..base.clone() }));
    variants.push(("free, kl", BtpropConfig { penalty: kl, solver: admm, ..base.clone() }));
    variants.push(("free, tanh", BtpropConfig { constraint: Constraint::Tanh, ..base.clone() }));
    variants.push(("free, ignoring", BtpropConfig { ignore: Ignore::Token(3), ..base.clone() }));
    // Behind the last block a window begins at the initial state, whatever the window before left there.
    for last in [Last::None, Last::Zero] {
        variants.push((
            "free, stored as they are",
            BtpropConfig { init: Init::Stored { sweeps: 0 }, last, ..base.clone() },
        ));
    }
    for_every_cell(&variants, None);
}

#[test]
fn shapes_and_the_ignored_token() {
    let base = base();
    for_every_cell(
        &[
            ("first token ignored", BtpropConfig { ignore: Ignore::First, ..base.clone() }),
            ("a token ignored, held", BtpropConfig { ignore: Ignore::Token(2), starts: Starts::Held, ..base.clone() }),
            ("one block", BtpropConfig { blocks: 1, solver: admm(duals(0.3), false), ..base.clone() }),
            ("one block, tied", BtpropConfig { blocks: 1, last: Last::Free0, ..base.clone() }),
            ("long blocks", BtpropConfig { streams: 1, blocks: 2, block: 5, ..base.clone() }),
            ("one stream", BtpropConfig { streams: 1, blocks: 5, block: 1, ..base.clone() }),
        ],
        None,
    );
    // 80 rows in tapes for 32.
    let many = BtpropConfig { streams: 10, blocks: 8, solver: admm(duals(0.3), false), ..base.clone() };
    for (i, (name, config)) in [
        ("chunks", many.clone()),
        ("chunks, held", BtpropConfig { starts: Starts::Held, ..many.clone() }),
        ("chunks, sequential", BtpropConfig { init: Init::Sequential, ..many.clone() }),
        (
            "chunks, kl",
            BtpropConfig { penalty: Penalty::L2Kl(Direction::Forward), starts: Starts::Held, ..many.clone() },
        ),
        ("chunks, free", BtpropConfig { loss: LossOn::Free, block: 1, ..many.clone() }),
        ("chunks, batch", BtpropConfig { batch: Batch::Full, last: Last::Free0, ..many }),
    ]
    .into_iter()
    .enumerate()
    {
        compare(&btprop(name, ModelConfig { tape_mb: 0, ..model(CellKind::ALL[i], 1) }, &config));
    }
}

#[test]
fn optimisers_and_tied_weights() {
    let bptt = |batch| MethodConfig::Bptt(BpttConfig { window: 3, streams: 2, batch });
    let base = BtpropConfig { solver: admm(duals(0.3), false), theta_steps: 2, ..base() };
    let kl = BtpropConfig { penalty: Penalty::Kl(Direction::Reverse), ..base.clone() };
    // Those whose states stay within bounds.
    let cells = &CellKind::ALL[..4];
    let mut facts = BTreeSet::new();
    for (i, &name) in Rule::WORDS.iter().enumerate() {
        for (j, method) in [
            bptt(Batch::Mini { accumulate: 1 }),
            bptt(Batch::Mini { accumulate: 2 }),
            MethodConfig::Btprop(base.clone()),
            MethodConfig::Btprop(kl.clone()),
        ]
        .into_iter()
        .enumerate()
        {
            for tied in [false, true] {
                let net = model(cells[(i + j) % cells.len()], 1 + j % 2);
                let net = ModelConfig { tied, embed: if tied { net.hidden } else { net.embed }, ..net };
                let mut case = case(format!("{name}, tied {tied}, {method:?}"), net, method.clone());
                let rate = if name == "sgd" { 0.5 } else { 0.05 };
                // Every second rule without clipping.
                let clip = if i % 2 == 0 { 0.3 } else { 0.0 };
                case.train.optim = OptimConfig { rule: name.parse().unwrap(), rate, clip };
                // A word that is seldom read: its row rests in between.
                case.text.iter_mut().skip(9).filter(|token| **token == 5).for_each(|token| *token = 4);
                facts.extend(compare(&case));
            }
        }
    }
    assert_seen(&facts, &["gradient clipped", "gradient not clipped"]);
}

#[test]
fn bptt_in_all_its_modes() {
    let mut cases = Vec::new();
    for cell in CellKind::ALL {
        for (layers, window, streams) in [(1, 3, 2), (2, 4, 1), (1, 1, 3)] {
            for batch in [
                Batch::Mini { accumulate: 1 },
                Batch::Mini { accumulate: 2 },
                Batch::Mini { accumulate: 7 },
                Batch::Full,
            ] {
                let method = MethodConfig::Bptt(BpttConfig { window, streams, batch });
                cases.push(case(format!("bptt, {method:?}"), model(cell, layers), method));
            }
        }
    }
    compare_all(cases);
}

/// Four blocks, so that a sweep of three has something left to do.
fn long() -> BtpropConfig {
    BtpropConfig { blocks: 4, ..base() }
}

fn alm(joint_steps: usize) -> Solver {
    Solver::Alm { duals: duals(0.5), joint_steps }
}

/// Starts by scanned sweeps, for every init that sweeps, whatever moves; and sweeps that stop when they have settled, scanned or not.
#[test]
fn scanned_starts() {
    let solvers = [Solver::Penalty, admm(duals(0.5), false), alm(2), admm(duals(0.5), true)];
    let (mut names, mut variants) = (Vec::new(), Vec::new());
    for sweeps in [1, 2, 3] {
        for init in [Init::Parallel { sweeps }, Init::Stored { sweeps }, Init::Carried { sweeps }] {
            for starts in [Starts::Moving, Starts::Held] {
                for batch in [Batch::Mini { accumulate: 1 }, Batch::Full] {
                    let i = variants.len();
                    let (solver, last) = (solvers[i % 4], [Last::None, Last::Free0, Last::Zero][i % 3]);
                    let first = if i % 2 == 0 { First::Fixed } else { First::Free };
                    names.push(format!("{init:?}, {starts:?}, {batch:?}, {first:?}, {last:?}, {solver:?}"));
                    let config = BtpropConfig { init, starts, batch, first, last, solver, ..long() };
                    variants.push(BtpropConfig { scan: Scan::Starts, ..config });
                }
            }
        }
    }
    for (i, init) in [Init::Zero, Init::Sequential, Init::Stored { sweeps: 0 }].into_iter().enumerate() {
        names.push(format!("{init:?}"));
        let starts = if i == 1 { Starts::Held } else { Starts::Moving };
        variants.push(BtpropConfig { scan: Scan::Starts, init, starts, ..long() });
    }
    let table: Vec<_> = names.iter().map(String::as_str).zip(variants).collect();
    for_every_cell(&table, Some(3));
}

#[test]
fn sweeps_that_settle() {
    let (mut names, mut variants) = (Vec::new(), Vec::new());
    for (i, sweep_tolerance) in [1e-6, 0.01, 0.1, 0.5, 10.0].into_iter().enumerate() {
        for init in [Init::Parallel { sweeps: 4 }, Init::Stored { sweeps: 4 }, Init::Carried { sweeps: 4 }] {
            for scan in [Scan::None, Scan::Starts] {
                let solver = if i % 2 == 0 { Solver::Penalty } else { admm(duals(0.5), false) };
                let config = BtpropConfig { init, scan, sweep_tolerance, solver, ..long() };
                for (what, config) in [
                    ("moving", config.clone()),
                    ("held", BtpropConfig { starts: Starts::Held, ..config.clone() }),
                    ("held, batch", BtpropConfig { starts: Starts::Held, batch: Batch::Full, ..config.clone() }),
                    ("batch", BtpropConfig { batch: Batch::Full, ..config.clone() }),
                    ("free", BtpropConfig { loss: LossOn::Free, block: 1, ..config.clone() }),
                    ("one block", BtpropConfig { blocks: 1, ..config }),
                ] {
                    names.push(format!("{init:?}, {scan:?}, {sweep_tolerance}, {what}"));
                    variants.push(config);
                }
            }
        }
    }
    let table: Vec<_> = names.iter().map(String::as_str).zip(variants).collect();
    let facts = for_every_cell(&table, None);
    assert_seen(&facts, &["fewer sweeps", "enough sweeps", "all sweeps"]);
}

#[test]
fn scanned_pulls() {
    let solvers = [Solver::Penalty, admm(duals(0.5), false), alm(2), admm(duals(0.5), true), alm(1), Solver::Penalty];
    let held = BtpropConfig { starts: Starts::Held, ..long() };
    let (mut names, mut variants) = (Vec::new(), Vec::new());
    for scan in [Scan::Pulls, Scan::Both] {
        for init in [
            Init::Zero,
            Init::Parallel { sweeps: 2 },
            Init::Stored { sweeps: 1 },
            Init::Carried { sweeps: 2 },
            Init::Sequential,
        ] {
            for batch in [Batch::Mini { accumulate: 1 }, Batch::Full] {
                for last in [Last::None, Last::Zero, Last::Free0] {
                    let i = variants.len();
                    let (solver, theta_steps) = (solvers[(i + i / 6) % 6], 1 + i / 6 % 2);
                    let first = if i % 2 == 0 { First::Fixed } else { First::Free };
                    names.push(format!("{scan:?}, {init:?}, {batch:?}, {last:?}, {solver:?}, {theta_steps}"));
                    variants.push(BtpropConfig { scan, init, batch, last, first, solver, theta_steps, ..held.clone() });
                }
            }
        }
    }
    let states = held.states;
    let both = BtpropConfig { scan: Scan::Both, init: Init::Carried { sweeps: 2 }, ..held.clone() };
    let whole = |states| BtpropConfig { lambda: 1.25, states, ..both.clone() };
    for (name, config) in [
        ("ηλ = 1", whole(StateConfig { rate: 0.8, steps: 1, ..states })),
        ("ηλ = 1, admm", {
            let states = StateConfig { rate: 0.8, ..states };
            BtpropConfig { solver: admm(duals(0.4), false), ..whole(states) }
        }),
        ("mean", whole(StateConfig { scale: StateScale::Mean, rate: 4.0, ..states })),
        ("tolerance", whole(StateConfig { steps: 6, tolerance: 0.01, ..states })),
        ("no steps", whole(StateConfig { steps: 0, ..states })),
        ("one block", BtpropConfig { blocks: 1, ..both.clone() }),
        ("one block, free behind", BtpropConfig { blocks: 1, last: Last::Free0, ..both.clone() }),
        ("one stream", BtpropConfig { streams: 1, blocks: 6, block: 1, ..both.clone() }),
        ("an ignored token", BtpropConfig { ignore: Ignore::Token(2), ..both.clone() }),
        ("λ moves", {
            let lambda_schedule = LambdaSchedule::Geometric(1.5);
            BtpropConfig { lambda_schedule, solver: admm(duals(0.4), false), ..both.clone() }
        }),
    ] {
        names.push(name.into());
        variants.push(config);
    }
    let table: Vec<_> = names.iter().map(String::as_str).zip(variants).collect();
    let facts = for_every_cell(&table, None);
    assert_seen(&facts, &["settled early", "not settled"]);
    // 80 rows in tapes for 32.
    let many = BtpropConfig { streams: 10, blocks: 8, ..both };
    for cell in CellKind::ALL {
        for (name, config) in [
            ("chunks", many.clone()),
            ("chunks, free behind", BtpropConfig { last: Last::Free0, ..many.clone() }),
            ("chunks, stored", BtpropConfig { pulls: Pulls::Stored, init: Init::Stored { sweeps: 1 }, ..many.clone() }),
        ] {
            compare(&btprop(name, ModelConfig { tape_mb: 0, ..model(cell, 1) }, &config));
        }
    }
}

#[test]
fn stored_pulls() {
    let solvers = [Solver::Penalty, admm(duals(0.5), false), alm(2), admm(duals(0.5), true), alm(1), Solver::Penalty];
    let held = BtpropConfig { starts: Starts::Held, pulls: Pulls::Stored, ..long() };
    let (mut names, mut variants) = (Vec::new(), Vec::new());
    for scan in [Scan::None, Scan::Pulls, Scan::Both] {
        for init in [
            Init::Zero,
            Init::Parallel { sweeps: 2 },
            Init::Stored { sweeps: 1 },
            Init::Carried { sweeps: 2 },
            Init::Sequential,
        ] {
            for batch in [Batch::Mini { accumulate: 1 }, Batch::Full] {
                let i = variants.len();
                let (solver, theta_steps) = (solvers[(i + i / 6) % 6], 1 + i / 6 % 2);
                let steps = [1, 2, 3][i % 3];
                names.push(format!("{scan:?}, {init:?}, {batch:?}, {solver:?}, {steps}, {theta_steps}"));
                let states = StateConfig { steps, ..held.states };
                variants.push(BtpropConfig { scan, init, batch, solver, theta_steps, states, ..held.clone() });
            }
        }
    }
    let states = held.states;
    let scanned = BtpropConfig { scan: Scan::Pulls, init: Init::Sequential, ..held.clone() };
    let with = |states| BtpropConfig { states, ..scanned.clone() };
    let reset = admm(DualConfig { stored: false, ..duals(0.5) }, true);
    let up = LambdaSchedule::Geometric(1.5);
    for (name, config) in [
        ("ηλ = 1", BtpropConfig { lambda: 1.25, ..with(StateConfig { rate: 0.8, steps: 1, ..states }) }),
        ("mean", with(StateConfig { scale: StateScale::Mean, rate: 4.0, ..states })),
        ("tolerance", with(StateConfig { steps: 6, tolerance: 0.01, ..states })),
        ("clip", BtpropConfig { states: StateConfig { clip: 0.1, ..states }, ..held.clone() }),
        ("adagrad", {
            let states = StateConfig { rule: StateRule::Adagrad, rate: 0.1, ..states };
            BtpropConfig { states, ..held.clone() }
        }),
        ("one block", BtpropConfig { blocks: 1, ..scanned.clone() }),
        ("one block, admm", BtpropConfig { blocks: 1, solver: admm(duals(0.5), false), ..held.clone() }),
        ("two blocks", BtpropConfig { blocks: 2, ..scanned.clone() }),
        ("first free", BtpropConfig { first: First::Free, ..scanned.clone() }),
        ("duals reset", BtpropConfig { solver: reset, ..scanned.clone() }),
        ("λ moves", BtpropConfig { lambda_schedule: up, ..scanned.clone() }),
        ("λ moves, admm", BtpropConfig { lambda_schedule: up, solver: admm(duals(0.4), false), ..held.clone() }),
        ("λ moves, batch", BtpropConfig { lambda_schedule: up, batch: Batch::Full, ..scanned.clone() }),
        ("no steps", BtpropConfig { states: StateConfig { steps: 0, ..states }, ..scanned.clone() }),
        ("as they are", BtpropConfig { init: Init::Stored { sweeps: 0 }, batch: Batch::Full, ..held.clone() }),
        ("free", BtpropConfig { loss: LossOn::Free, block: 1, solver: admm(duals(0.5), false), ..held.clone() }),
        ("kl", BtpropConfig { penalty: Penalty::Kl(Direction::Forward), ..held.clone() }),
        ("box", BtpropConfig { constraint: Constraint::Box, ..held.clone() }),
        ("tanh", BtpropConfig { constraint: Constraint::Tanh, ..held.clone() }),
    ] {
        names.push(name.into());
        variants.push(config);
    }
    let table: Vec<_> = names.iter().map(String::as_str).zip(variants).collect();
    for_every_cell(&table, Some(4));
}

#[test]
fn newton() {
    let solvers = [Solver::Penalty, admm(duals(0.5), false), alm(2), admm(duals(0.5), true)];
    let states = StateConfig { rule: StateRule::Newton, ..long().states };
    let base = BtpropConfig { states, ..long() };
    let (mut names, mut variants) = (Vec::new(), Vec::new());
    for loss in [LossOn::Predicted, LossOn::Free] {
        for batch in [Batch::Mini { accumulate: 1 }, Batch::Full] {
            for first in [First::Fixed, First::Free] {
                for last in [Last::None, Last::Zero, Last::Free0] {
                    let i = variants.len();
                    let solver = solvers[(i + i / 4) % 4];
                    let init = [Init::Zero, Init::Sequential, Init::Stored { sweeps: 1 }][(i + i / 3) % 3];
                    let block = if loss == LossOn::Free { 1 } else { base.block };
                    names.push(format!("{loss:?}, {batch:?}, {first:?}, {last:?}, {solver:?}, {init:?}"));
                    variants.push(BtpropConfig { loss, batch, first, last, solver, init, block, ..base.clone() });
                }
            }
        }
    }
    let with = |states| BtpropConfig { states, ..base.clone() };
    for (name, config) in [
        ("mean", with(StateConfig { scale: StateScale::Mean, rate: 4.0, ..states })),
        ("long steps", BtpropConfig { last: Last::Free0, lambda: 3.0, ..with(StateConfig { rate: 50.0, ..states }) }),
        ("tolerance", with(StateConfig { steps: 6, tolerance: 0.02, ..states })),
        ("no coupling", BtpropConfig { lambda: 0.0, ..base.clone() }),
        ("one block", BtpropConfig { blocks: 1, ..base.clone() }),
        ("one block, free", BtpropConfig { blocks: 1, last: Last::Free0, first: First::Free, ..base.clone() }),
        ("two blocks", BtpropConfig { blocks: 2, ..base.clone() }),
        ("from a scan", { BtpropConfig { scan: Scan::Starts, init: Init::Carried { sweeps: 2 }, ..base.clone() } }),
        ("λ in balance", {
            let lambda_schedule = LambdaSchedule::Balance(1.7);
            BtpropConfig { lambda_schedule, solver: admm(duals(0.5), false), ..base.clone() }
        }),
    ] {
        names.push(name.into());
        variants.push(config);
    }
    let table: Vec<_> = names.iter().map(String::as_str).zip(variants).collect();
    let facts = for_every_cell(&table, None);
    assert_seen(&facts, &["settled early", "not settled"]);
}

/// Scans and systems that cross ranks.
#[test]
fn scans_on_ranks() {
    let states = StateConfig { steps: 3, ..base().states };
    let base = BtpropConfig { states, streams: 2, blocks: 6, block: 1, ..base() };
    let admm = admm(duals(0.5), false);
    let carried = Init::Carried { sweeps: 3 };
    let both = BtpropConfig { scan: Scan::Both, init: carried, starts: Starts::Held, ..base.clone() };
    let newton = StateConfig { rule: StateRule::Newton, ..states };
    let newton = BtpropConfig { states: newton, ..base.clone() };
    let full = Batch::Full;
    let mut cases = Vec::new();
    for (i, (name, config)) in [
        ("both", both.clone()),
        ("both, batch, alm", BtpropConfig { batch: full, solver: alm(2), ..both.clone() }),
        ("both, free behind", BtpropConfig { last: Last::Free0, solver: admm, ..both.clone() }),
        ("settling", BtpropConfig { sweep_tolerance: 0.1, ..both.clone() }),
        ("parallel", BtpropConfig { scan: Scan::Starts, init: Init::Parallel { sweeps: 2 }, ..base.clone() }),
        ("parallel, held", {
            let init = Init::Parallel { sweeps: 2 };
            BtpropConfig { scan: Scan::Starts, starts: Starts::Held, solver: admm, init, ..base.clone() }
        }),
        ("free, parallel", {
            let init = Init::Parallel { sweeps: 2 };
            BtpropConfig { scan: Scan::Starts, loss: LossOn::Free, starts: Starts::Held, init, ..base.clone() }
        }),
        ("stored", BtpropConfig { pulls: Pulls::Stored, scan: Scan::Pulls, init: Init::Sequential, ..both.clone() }),
        ("stored, not scanned", BtpropConfig { pulls: Pulls::Stored, scan: Scan::None, solver: admm, ..both.clone() }),
        ("stored, batch", BtpropConfig { pulls: Pulls::Stored, batch: full, ..both.clone() }),
        ("newton", newton.clone()),
        ("newton, admm", BtpropConfig { last: Last::Free0, first: First::Free, solver: admm, ..newton.clone() }),
        ("newton, batch", BtpropConfig { last: Last::Zero, batch: full, solver: alm(2), ..newton.clone() }),
        ("newton, free", BtpropConfig { loss: LossOn::Free, ..newton }),
    ]
    .into_iter()
    .enumerate()
    {
        for ranks in [2, 3] {
            for staleness in [0, 1] {
                for turn in 0..2 {
                    let config = BtpropConfig { staleness, ..config.clone() };
                    let name = format!("{name}, {ranks} ranks, staleness {staleness}");
                    let cell = CellKind::ALL[(i + 3 * turn + ranks) % CellKind::ALL.len()];
                    let mut case = btprop(name, model(cell, 1 + (i + ranks) % 2), &config);
                    case.ranks = ranks;
                    case.text = tokens(config.streams * (if config.batch == full { 2 } else { 5 }) * 6 + 1);
                    cases.push(case);
                }
            }
        }
    }
    compare_all(cases);
}

/// Boundary states of other ranks lag by exactly so many state steps, within a window only.
#[test]
fn staleness() {
    let states = StateConfig { steps: 3, ..base().states };
    let base = BtpropConfig { states, streams: 2, blocks: 6, block: 1, ..base() };
    let admm = admm(duals(0.5), false);
    let alm = Solver::Alm { duals: duals(0.5), joint_steps: 3 };
    let mut cases = Vec::new();
    for (i, (name, config)) in [
        ("penalty", base.clone()),
        ("admm", BtpropConfig { solver: admm, ..base.clone() }),
        ("alm", BtpropConfig { solver: alm, ..base.clone() }),
        ("held", BtpropConfig { starts: Starts::Held, init: Init::Sequential, ..base.clone() }),
        ("held, not exact", BtpropConfig { starts: Starts::Held, solver: admm, ..base.clone() }),
        ("held, not exact, no steps", {
            let states = StateConfig { steps: 0, ..states };
            BtpropConfig { starts: Starts::Held, states, solver: admm, ..base.clone() }
        }),
        ("held, tanh", BtpropConfig { starts: Starts::Held, constraint: Constraint::Tanh, ..base.clone() }),
        ("free", BtpropConfig { loss: LossOn::Free, ..base.clone() }),
        ("batch", BtpropConfig { batch: Batch::Full, solver: admm, ..base.clone() }),
    ]
    .into_iter()
    .enumerate()
    {
        for ranks in [2, 3] {
            for staleness in [0, 1, 2, 5] {
                let config = BtpropConfig { staleness, ..config.clone() };
                let name = format!("{name}, {ranks} ranks, staleness {staleness}");
                let mut case = btprop(name, model(CellKind::ALL[(i + ranks) % CellKind::ALL.len()], 1), &config);
                case.ranks = ranks;
                case.text = tokens(config.streams * (if config.batch == Batch::Full { 2 } else { 5 }) * 6 + 1);
                cases.push(case);
            }
        }
    }
    compare_all(cases);
}
