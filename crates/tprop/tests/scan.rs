//! Identities of the scan (docs/math.md, section 13), for every cell, in f64.

mod common;
use std::collections::HashMap;

use common::*;
use tprop::cell::CellKind;
use tprop::comm::Solo;
use tprop::method::*;
use tprop::model::Model;
use tprop::optim::{OptimConfig, Optimiser, Rule};
use tprop::params::Params;
use tprop::window::{Layout, Streams};

/// Streams, blocks, steps of the window.
const SHAPE: (usize, usize, usize) = (2, 5, 3);

fn text() -> Vec<u32> {
    tokens(2 * 5 * 3 + 1)
}

fn each_model(mut check: impl FnMut(&str, Model<f64>)) {
    for cell in CellKind::ALL {
        for layers in [1, 2] {
            check(&format!("{cell:?} × {layers}"), model(cell, layers));
        }
    }
}

/// Held starts and ηλ = 1 in the window of [`SHAPE`].
fn held(init: Init, steps: usize, scan: Scan) -> BtpropConfig {
    let (streams, blocks, block) = SHAPE;
    BtpropConfig { streams, blocks, block, init, scan, ..BtpropConfig::reach(steps) }
}

fn ours(config: BtpropConfig, model: &Model<f64>, params: &Params<f64>) -> Vec<f64> {
    gradient(&MethodConfig::Btprop(config), model, params, &text())
}

/// What a method keeps after its first update; in batch mode it shows its states.
fn kept(config: BtpropConfig, model: &Model<f64>, params: &Params<f64>) -> Peek {
    let text = text();
    let mut l = learner(model, params.clone(), &text, &Solo);
    let mut method = MethodConfig::Btprop(BtpropConfig { batch: Batch::Full, ..config }).build(&l).unwrap();
    method.begin_epoch(&l, 1);
    update(&mut *method, &mut l);
    let mut peek = Peek::default();
    method.visit(&mut peek);
    peek
}

/// Sets what is not on the diagonal of the recurrent matrices, or what is, to 0.
fn sparse_recurrence(model: &Model<f64>, params: &mut Params<f64>, keep_diagonal: bool) {
    let h = model.config().hidden;
    for l in 0..model.config().layers {
        let (_, w_hh, _) = model.layer_ids(l);
        for (at, w) in params.get_mut(w_hh).iter_mut().enumerate() {
            if ((at / h) % h == at % h) != keep_diagonal {
                *w = 0.0;
            }
        }
    }
}

/// F and d of blocks of `steps` steps from some starts.
fn blocks(model: &Model<f64>, params: &Params<f64>, steps: usize, starts: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let rows = starts.len() / model.state_width();
    let text = tokens(rows * steps + 1);
    let mut tape = model.tape(Layout::new(rows, steps));
    Streams::new(&text, rows).fill(&tape.layout(), 0, 0..rows, &mut tape.inputs, &mut tape.targets);
    model.prepare(params, &mut tape);
    model.recur(params, &mut tape, starts);
    let (mut ends, mut d) = (vec![0.0; starts.len()], vec![0.0; rows * model.units().matrix_width()]);
    model.ends(&tape, &mut ends);
    model.diagonals(params, &tape, &mut d);
    (ends, d)
}

/// One step: each unit's derivative in its own state, by central differences. A block of several steps with diagonal recurrent
/// matrices in one layer: the whole Jacobian.
#[test]
fn diagonals_are_derivatives() {
    each_model(|name, model| {
        let (width, h, v) = (model.state_width(), model.config().hidden, model.units().vectors());
        let draws = tprop::rng::Draws::new(3, "starts");
        let starts: Vec<f64> = (0..3 * width as u64).map(|i| draws.within(i, 0.8)).collect();
        let mut params = model.initial(1);
        for steps in [1, 4] {
            if steps > 1 {
                if model.config().layers > 1 {
                    continue;
                }
                sparse_recurrence(&model, &mut params, true);
            }
            let (_, d) = blocks(&model, &params, steps, &starts);
            for j in 0..width {
                let epsilon = 1e-6;
                let moved = |by: f64| {
                    let mut starts = starts.clone();
                    starts.chunks_exact_mut(width).for_each(|row| row[j] += by);
                    blocks(&model, &params, steps, &starts).0
                };
                let (up, down) = (moved(epsilon), moved(-epsilon));
                let (layer, from, unit) = (j / (v * h), j / h % v, j % h);
                for row in 0..3 {
                    for i in 0..width {
                        let derivative = (up[row * width + i] - down[row * width + i]) / (2.0 * epsilon);
                        if (i / (v * h), i % h) == (layer, unit) {
                            let at = ((layer * v + i / h % v) * v + from) * h + unit;
                            let found = d[row * model.units().matrix_width() + at];
                            let error = (found - derivative).abs();
                            assert!(error < 1e-8, "{name}, {steps} steps: {found} and by differences {derivative}");
                        } else if steps > 1 {
                            assert!(derivative.abs() < 1e-8, "{name}: the Jacobian is not diagonal");
                        }
                    }
                }
            }
        }
    });
}

/// With d = 0 there is nothing to scan: cells without a gate lose their diagonal with that of the recurrent matrix.
#[test]
fn without_diagonals_it_is_sweeps_and_reach() {
    each_model(|name, model| {
        if matches!(model.config().cell, CellKind::Gru | CellKind::Lstm) {
            return;
        }
        let mut params = model.initial(1);
        sparse_recurrence(&model, &mut params, false);
        for init in [Init::Parallel { sweeps: 2 }, Init::Stored { sweeps: 2 }, Init::Carried { sweeps: 2 }] {
            for scan in [Scan::Starts, Scan::Pulls, Scan::Both] {
                let plain = ours(held(init, 2, Scan::None), &model, &params);
                assert_eq!(ours(held(init, 2, scan), &model, &params), plain, "{name}, {init}, {scan}");
            }
        }
    });
}

/// After i sweeps the first starts are exact, whatever d is: i + 1 of them, i from `parallel`, whose first sweep is from the initial state.
#[test]
fn sweeps_make_starts_exact_one_by_one() {
    let (streams, m, _) = SHAPE;
    each_model(|name, model| {
        let params = model.initial(1);
        let slots = streams * model.state_width();
        let exact = kept(held(Init::Sequential, 0, Scan::None), &model, &params).got["btprop.starts"].clone();
        for scan in [Scan::None, Scan::Starts] {
            for sweeps in 1..=m {
                let inits = [Init::Parallel { sweeps }, Init::Stored { sweeps }, Init::Carried { sweeps }];
                for (init, right) in inits.into_iter().zip([sweeps, sweeps + 1, sweeps + 1]) {
                    let starts = kept(held(init, 0, scan), &model, &params).got["btprop.starts"].clone();
                    let right = right.min(m) * slots;
                    assert_same(&format!("{name}, {init}, {scan}"), &starts[..right], &exact[..right], 1e-12);
                    let (next, all) = (right + slots, m * slots);
                    // Batch mode begins in the initial state, so that the first sweep of `parallel` finds s_2 as well.
                    if next < all && !matches!(init, Init::Parallel { .. }) {
                        let error = relative(&starts[right..next], &exact[right..next]);
                        assert!(error > 1e-9, "{name}, {init}, {scan}: the next start is exact too");
                    }
                }
            }
        }
    });
}

/// M − 1 scanned pull sweeps give the gradient of the whole window; one does not.
#[test]
fn pull_sweeps_make_the_gradient_exact() {
    let (_, m, _) = SHAPE;
    each_model(|name, model| {
        let params = model.initial(1);
        let whole = reach_gradient(&model, &params, &text(), SHAPE, m - 1);
        for rate in [1.0, 2.0] {
            let mut config = held(Init::Sequential, m - 1, Scan::Pulls);
            (config.lambda, config.states.rate) = (1.0 / rate, rate);
            assert_same(name, &ours(config, &model, &params), &whole, 1e-10);
        }
        let all = held(Init::Carried { sweeps: m - 1 }, m - 1, Scan::Both);
        assert_same(name, &ours(all, &model, &params), &whole, 1e-10);
        let one = ours(held(Init::Sequential, 1, Scan::Pulls), &model, &params);
        assert!(relative(&one, &whole) > 1e-9, "{name}: one sweep was enough");
    });
}

/// One layer with diagonal recurrent matrices: one pull sweep is exact for every cell; one start sweep for cells that are affine in
/// their state.
#[test]
fn diagonal_recurrences_need_one_sweep() {
    let (_, m, _) = SHAPE;
    for cell in CellKind::ALL {
        let (model, name) = (model(cell, 1), format!("{cell:?}"));
        let mut params = model.initial(1);
        sparse_recurrence(&model, &mut params, true);
        let whole = reach_gradient(&model, &params, &text(), SHAPE, m - 1);
        assert_same(&name, &ours(held(Init::Sequential, 1, Scan::Pulls), &model, &params), &whole, 1e-10);
        for init in [Init::Parallel { sweeps: 1 }, Init::Carried { sweeps: 1 }] {
            let error = relative(&ours(held(init, 1, Scan::Both), &model, &params), &whole);
            match cell {
                CellKind::Mult | CellKind::MultGated => assert!(error < 1e-10, "{name}, {init}: {error:e}"),
                CellKind::Gru | CellKind::Lstm | CellKind::Elman(_) => {
                    assert!(error > 1e-9, "{name}, {init}: {error:e}")
                }
            }
        }
    }
}

/// Epochs in batch mode, or of several windows, with plain steps of θ at this rate; before the last epoch some of what the method keeps
/// is set.
struct Run<'a> {
    config: BtpropConfig,
    text: &'a [u32],
    rate: f64,
    epochs: usize,
    set: Vec<(&'static str, Vec<f64>)>,
}

struct Outcome {
    updates: Vec<Update>,
    gradient: Vec<f64>,
    kept: HashMap<String, Vec<f64>>,
}

impl Run<'_> {
    fn outcome(&self, model: &Model<f64>, params: &Params<f64>) -> Outcome {
        let mut l = learner(model, params.clone(), self.text, &Solo);
        l.optimiser = Optimiser::new(OptimConfig { rule: Rule::Sgd, rate: self.rate, clip: 0.0 }, model.shapes());
        let mut method = MethodConfig::Btprop(self.config.clone()).build(&l).unwrap();
        let mut updates = Vec::new();
        for epoch in 1..=self.epochs {
            method.begin_epoch(&l, epoch);
            if epoch == self.epochs {
                let set = self.set.iter().map(|(name, values)| (format!("btprop.{name}"), values.clone())).collect();
                method.visit(&mut Peek { set, ..Peek::default() });
            }
            updates.extend((0..method.updates_per_epoch()).map(|_| update(&mut *method, &mut l)));
        }
        let mut peek = Peek::default();
        method.visit(&mut peek);
        Outcome { updates, gradient: difference(params, &l.params), kept: peek.got }
    }
}

fn drawn(n: usize, name: &str, within: f64) -> Vec<f64> {
    let draws = tprop::rng::Draws::new(5, name);
    (0..n as u64).map(|i| draws.within(i, within)).collect()
}

/// Rows × width of the window of [`SHAPE`].
fn values(model: &Model<f64>) -> usize {
    SHAPE.0 * SHAPE.1 * model.state_width()
}

/// From starts that are not exact, n steps give the gradient of s_{k+1} = F_k(s_k; θ) + c_k with the jumps c_k as they are, each
/// loss flowing back n blocks; whatever the duals are.
#[test]
fn jumps_between_blocks_are_not_trained_on() {
    let (_, m, _) = SHAPE;
    each_model(|name, model| {
        let (params, text) = (model.initial(1), text());
        let u = drawn(values(&model), "duals", 0.3);
        let resting = Solver::Admm { duals: duals(0.0), before_theta: false };
        for init in [
            Init::Zero,
            Init::Parallel { sweeps: 1 },
            Init::Parallel { sweeps: 2 },
            Init::Stored { sweeps: 1 },
            Init::Carried { sweeps: 1 },
        ] {
            for scan in [Scan::None, Scan::Starts] {
                for steps in [0, 1, 2, m - 1] {
                    for (solver, set) in [(Solver::Penalty, vec![]), (resting, vec![("duals", u.clone())])] {
                        let mut config = BtpropConfig { batch: Batch::Full, solver, ..held(init, steps, scan) };
                        (config.lambda, config.states.rate) = (0.5, 2.0);
                        let run = Run { config, text: &text, rate: 1.0, epochs: 1, set };
                        let outcome = run.outcome(&model, &params);
                        let starts = &outcome.kept["btprop.starts"];
                        let want = reach_gradient_from(&model, &params, &text, SHAPE, starts, steps);
                        let name = format!("{name}, {init}, {scan}, {steps} steps, {solver:?}");
                        assert_same(&name, &outcome.gradient, &want, 1e-10);
                        let exact = reach_gradient(&model, &params, &text, SHAPE, steps);
                        let error = relative(&want, &exact);
                        assert!(init != Init::Zero || error > 1e-3, "{name}: the starts are exact");
                    }
                }
            }
        }
    });
}

/// The losses (per step) of the next `reach` blocks, sent back to the end of each block along the exact trajectory.
fn costates(
    model: &Model<f64>,
    params: &Params<f64>,
    text: &[u32],
    shape: (usize, usize, usize),
    reach: usize,
) -> Vec<f64> {
    let (streams, blocks, block) = shape;
    let values = streams * model.state_width();
    let mut tapes = trajectory(model, params, text, shape, None);
    let mut p = vec![0.0; blocks * values];
    for m in 1..blocks {
        let mut pull = vec![0.0; values];
        model.loss(params, &mut tapes[m], 1.0 / block as f64, None, None);
        model.backward(params, &mut tapes[m], true, None, Some(&mut pull), None);
        for k in (m.saturating_sub(reach)..m).rev() {
            p[k * values..(k + 1) * values].iter_mut().zip(&pull).for_each(|(p, d)| *p += d);
            let d_end = pull.clone();
            model.backward(params, &mut tapes[k], false, Some(&d_end), Some(&mut pull), None);
        }
    }
    p
}

/// Pulls that are stored reach n blocks further with each epoch, in batch mode; with one step a window, across windows too.
#[test]
fn stored_pulls_reach_further_with_each_epoch() {
    let (streams, n, block) = SHAPE;
    each_model(|name, model| {
        let params = model.initial(1);
        let stored = |steps| BtpropConfig { pulls: Pulls::Stored, ..held(Init::Sequential, steps, Scan::None) };
        let whole = text();
        for steps in [1, 2] {
            for epochs in 1..=n {
                let config = BtpropConfig { batch: Batch::Full, ..stored(steps) };
                let outcome = Run { config, text: &whole, rate: 0.0, epochs, set: vec![] }.outcome(&model, &params);
                let name = format!("{name}, {steps} steps, {epochs} epochs");
                let want = costates(&model, &params, &whole, SHAPE, epochs * steps);
                assert_same(&name, &outcome.kept["btprop.pulls"], &want, 1e-10);
                let gradient = reach_gradient(&model, &params, &whole, SHAPE, epochs * steps);
                let seen = outcome.updates[epochs - 1].norm;
                assert!((seen - norm(&gradient)).abs() < 1e-10, "{name}: {seen} and {}", norm(&gradient));
            }
        }
        // Three windows of two blocks. What is stored behind a window's last block is for the next epoch.
        let text = tokens(streams * 6 * block + 1);
        for (scan, exact) in [(Scan::None, true), (Scan::Pulls, false)] {
            for epochs in 1..=6 {
                let config = BtpropConfig { blocks: 2, scan, ..stored(1) };
                let outcome = Run { config, text: &text, rate: 0.0, epochs, set: vec![] }.outcome(&model, &params);
                let want = costates(&model, &params, &text, (streams, 6, block), epochs);
                let got = &outcome.kept["btprop.pulls"];
                if exact || epochs == 6 {
                    assert_same(&format!("{name}, {scan}, {epochs} epochs, windows"), got, &want, 1e-10);
                }
            }
        }
    });
}

/// λu is the costate: on the exact trajectory such duals leave every residual and every state where it is.
#[test]
fn duals_at_rest_are_costates() {
    let (streams, m, _) = SHAPE;
    each_model(|name, model| {
        let (params, text, lambda) = (model.initial(1), text(), 0.7);
        let p = costates(&model, &params, &text, SHAPE, m - 1);
        let u: Vec<f64> = p.iter().map(|p| p / lambda).collect();
        for (rule, rate) in [(StateRule::Sgd, 0.3), (StateRule::Newton, 3.0)] {
            let solver = Solver::Admm { duals: duals(1.0), before_theta: false };
            let mut config =
                BtpropConfig { starts: Starts::Moving, solver, lambda, ..held(Init::Sequential, 3, Scan::None) };
            (config.batch, config.states.rule, config.states.rate) = (Batch::Full, rule, rate);
            for (set, moves) in [(vec![("duals", u.clone())], false), (vec![], true)] {
                let outcome =
                    Run { config: config.clone(), text: &text, rate: 0.0, epochs: 1, set }.outcome(&model, &params);
                let coupling = outcome.updates[0].coupling.unwrap();
                let rests = coupling.moved < 1e-10 && coupling.sums.residual < 1e-10;
                assert!(rests != moves, "{name}, {rule:?}: moved by {:e}", coupling.moved);
                if !moves {
                    assert_same(name, &outcome.kept["btprop.duals"], &u, 1e-12);
                }
            }
        }
        assert!(norm(&u[..streams * model.state_width()]) > 1e-3);
    });
}

/// One layer with diagonal recurrent matrices: one pull sweep is exact from any pulls, which the epoch before may have left.
#[test]
fn diagonal_recurrences_need_one_pull_sweep_from_anywhere() {
    let (streams, m, _) = SHAPE;
    for cell in CellKind::ALL {
        let (model, text) = (model(cell, 1), text());
        let mut params = model.initial(1);
        sparse_recurrence(&model, &mut params, true);
        let mut pulls = drawn(values(&model), "pulls", 0.5);
        let last = values(&model) - streams * model.state_width();
        pulls[last..].fill(0.0);
        let whole = reach_gradient(&model, &params, &text, SHAPE, m - 1);
        for (scan, exact) in [(Scan::Pulls, true), (Scan::None, false)] {
            let mut config = BtpropConfig { pulls: Pulls::Stored, ..held(Init::Sequential, 1, scan) };
            (config.batch, config.lambda, config.states.rate) = (Batch::Full, 0.5, 2.0);
            let set = vec![("pulls", pulls.clone())];
            let outcome = Run { config, text: &text, rate: 1.0, epochs: 1, set }.outcome(&model, &params);
            let error = relative(&outcome.gradient, &whole);
            assert!((error < 1e-10) == exact, "{cell:?}, {scan}: {error:e}");
        }
    }
}

/// S·M·∂L/∂s of all slots at these starts and duals, by the block pass, and the blocks' diagonals.
fn state_gradients(
    model: &Model<f64>,
    params: &Params<f64>,
    text: &[u32],
    starts: &[f64],
    u: &[f64],
    lambda: f64,
    last_is_tied: bool,
) -> (Vec<f64>, Vec<f64>) {
    let (streams, blocks, block) = SHAPE;
    let values = streams * model.state_width();
    let mut gradients = vec![0.0; (blocks + 1) * values];
    let mut diagonals = Vec::new();
    for (k, tape) in trajectory(model, params, text, SHAPE, Some(starts)).iter_mut().enumerate() {
        let (mut d_end, mut d_start) = (vec![0.0; values], vec![0.0; values]);
        if k + 1 < blocks || last_is_tied {
            model.ends(tape, &mut d_end);
            for (j, d) in d_end.iter_mut().enumerate() {
                *d = lambda * (*d - starts[(k + 1) * values + j] + u[k * values + j]);
                gradients[(k + 1) * values + j] -= *d;
            }
        }
        model.loss(params, tape, 1.0 / block as f64, None, None);
        model.backward(params, tape, true, Some(&d_end), Some(&mut d_start), None);
        gradients[k * values..(k + 1) * values].iter_mut().zip(&d_start).for_each(|(g, d)| *g += d);
        let mut d = vec![0.0; streams * model.units().matrix_width()];
        model.diagonals(params, tape, &mut d);
        diagonals.extend(d);
    }
    (gradients, diagonals)
}

/// y += factor · E x (or Eᵀ x) of one row, unit by unit.
fn add_diagonal(model: &Model<f64>, y: &mut [f64], e: &[f64], x: &[f64], factor: f64, transposed: bool) {
    let (h, v) = (model.config().hidden, model.units().vectors());
    for layer in 0..model.config().layers {
        for to in 0..v {
            for from in 0..v {
                for unit in 0..h {
                    let e = e[((layer * v + to) * v + from) * h + unit];
                    let (a, b) = ((layer * v + to) * h + unit, (layer * v + from) * h + unit);
                    let (a, b) = if transposed { (b, a) } else { (a, b) };
                    y[a] += factor * e * x[b];
                }
            }
        }
    }
}

fn newton(last: Last, first: First, steps: usize, rate: f64) -> BtpropConfig {
    let solver = Solver::Admm { duals: duals(0.0), before_theta: false };
    let mut config =
        BtpropConfig { starts: Starts::Moving, lambda: 0.7, ..held(Init::Stored { sweeps: 0 }, steps, Scan::None) };
    (config.last, config.first, config.batch, config.solver) = (last, first, Batch::Full, solver);
    (config.states.rule, config.states.rate) = (StateRule::Newton, rate);
    config
}

/// From any states and duals, δ is where the gradient of the quadratic model
/// Σ_k [ λ/2 ‖r_k + u_k + d_k δ_k − δ_{k+1}‖² + ∂ℓ/∂s_k · δ_k … ] + 1/(2η) ‖δ‖², with the exact gradient at 0, vanishes.
#[test]
fn newton_minimises_its_model() {
    let (streams, m, _) = SHAPE;
    each_model(|name, model| {
        let (params, text) = (model.initial(1), text());
        let (width, matrix) = (model.state_width(), model.units().matrix_width());
        let slots = (m + 1) * streams;
        let (s, u) = (drawn(slots * width, "states", 0.6), drawn(values(&model), "duals", 0.3));
        for last in [Last::None, Last::Zero, Last::Free0] {
            for first in [First::Fixed, First::Free] {
                for (scale, rate) in [(StateScale::Block, 2.0), (StateScale::Mean, 20.0)] {
                    let mut config = newton(last, first, 1, rate);
                    config.states.scale = scale;
                    let mut old = s.clone();
                    if first == First::Fixed {
                        old[..streams * width].fill(model.initial_state());
                    }
                    if last == Last::Zero {
                        old[values(&model)..].fill(0.0);
                    }
                    let lambda = config.lambda;
                    // Epoch 1 would begin with an init; the second takes up what it finds.
                    let set = vec![("starts", old.clone()), ("duals", u.clone())];
                    let outcome = Run { config, text: &text, rate: 0.0, epochs: 2, set }.outcome(&model, &params);
                    let tied = last != Last::None;
                    let (mut left, d) = state_gradients(&model, &params, &text, &old, &u, lambda, tied);
                    let new = &outcome.kept["btprop.starts"];
                    let delta: Vec<f64> = new.iter().zip(&old).map(|(a, b)| a - b).collect();
                    let prior = if scale == StateScale::Block { 1.0 } else { (streams * m) as f64 } / rate;
                    for (g, x) in left.iter_mut().zip(&delta) {
                        *g += prior * x;
                    }
                    for q in 0..if tied { m * streams } else { (m - 1) * streams } {
                        // What the block's residual gains: d_k δ_k − δ_{k+1}.
                        let (here, behind) =
                            (q * width..(q + 1) * width, (q + streams) * width..(q + streams + 1) * width);
                        let mut gain: Vec<f64> = delta[behind.clone()].iter().map(|x| -x).collect();
                        let e = &d[q * matrix..(q + 1) * matrix];
                        add_diagonal(&model, &mut gain, e, &delta[here.clone()], 1.0, false);
                        add_diagonal(&model, &mut left[here], e, &gain, lambda, true);
                        left[behind].iter_mut().zip(&gain).for_each(|(g, x)| *g -= lambda * x);
                    }
                    let from = if first == First::Fixed { streams * width } else { 0 };
                    let to = if last == Last::Free0 { slots * width } else { values(&model) };
                    let name = format!("{name}, {last}, {first}, {scale:?}");
                    assert!(norm(&left[from..to]) < 1e-10, "{name}: {:e} left", norm(&left[from..to]));
                    assert!(norm(&delta[from..to]) > 1e-2, "{name}: nothing moved");
                    assert!(delta[..from].iter().chain(&delta[to..]).all(|x| *x == 0.0), "{name}: what is fixed moved");
                }
            }
        }
    });
}

/// Where newton stops, the exact gradient is 0.
#[test]
fn where_newton_rests_is_stationary() {
    each_model(|name, model| {
        let (params, text) = (model.initial(1), text());
        let u = drawn(values(&model), "duals", 0.05);
        for last in [Last::None, Last::Free0] {
            let mut config = newton(last, First::Fixed, 20_000, 0.5);
            config.states.tolerance = 1e-12;
            let lambda = config.lambda;
            let set = vec![("duals", u.clone())];
            let outcome = Run { config, text: &text, rate: 0.0, epochs: 1, set }.outcome(&model, &params);
            let starts = &outcome.kept["btprop.starts"];
            let (gradients, _) = state_gradients(&model, &params, &text, starts, &u, lambda, last == Last::Free0);
            let from = SHAPE.0 * model.state_width();
            let to = if last == Last::Free0 { gradients.len() } else { values(&model) };
            let left = norm(&gradients[from..to]);
            let moved = outcome.updates[0].coupling.unwrap().moved;
            assert!(left < 1e-8 && moved > 0.1, "{name}, {last}: {left:e} left after a way of {moved}");
        }
    });
}

/// With a tolerance, sweeps end after the first that changes the starts by less; its starts stay, and its number is recorded.
#[test]
fn sweeps_end_when_they_have_settled() {
    let (streams, m, _) = SHAPE;
    each_model(|name, model| {
        let (params, text) = (model.initial(1), text());
        let all = values(&model);
        let from = streams * model.state_width();
        for of in
            [|sweeps| Init::Parallel { sweeps }, |sweeps| Init::Stored { sweeps }, |sweeps| Init::Carried { sweeps }]
        {
            for scan in [Scan::None, Scan::Starts] {
                let after = |sweeps: usize, sweep_tolerance: f64| {
                    let config = BtpropConfig { batch: Batch::Full, sweep_tolerance, ..held(of(sweeps), 0, scan) };
                    let outcome =
                        Run { config, text: &text, rate: 0.0, epochs: 1, set: vec![] }.outcome(&model, &params);
                    let used = outcome.updates[0].coupling.unwrap().sweeps as usize;
                    (outcome.kept["btprop.starts"][..all].to_vec(), used)
                };
                let mut before = 0;
                for tolerance in [0.5, 0.05, 1e-3, 1e-9] {
                    let (starts, used) = after(m + 4, tolerance);
                    let name = format!("{name}, {}, {scan}, {tolerance}", of(m + 4));
                    // One more than are needed to be exact: the last one changes nothing.
                    assert!((1..=m + 1).contains(&used) && used >= before, "{name}: {used} sweeps");
                    before = used;
                    assert!(starts == after(used, 0.0).0, "{name}: {used} sweeps leave other starts");
                    let change = |i: usize| {
                        let (old, new) = (after(i - 1, 0.0).0, after(i, 0.0).0);
                        relative(&old[from..], &new[from..])
                    };
                    // The starts before a first sweep are not shown.
                    if used > 1 {
                        assert!(change(used) < tolerance, "{name}: ended with {:e}", change(used));
                    }
                    if used > 2 {
                        assert!(change(used - 1) >= tolerance, "{name}: {:e} before", change(used - 1));
                    }
                }
                assert_eq!(after(3, 0.0).1, 3, "{name}: without a tolerance");
            }
        }
    });
}
