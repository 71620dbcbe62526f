//! Identities of the scan (docs/math.md, section 13), for every cell, in f64.

mod common;
use common::*;
use tprop::cell::CellKind;
use tprop::comm::Solo;
use tprop::method::*;
use tprop::model::Model;
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
