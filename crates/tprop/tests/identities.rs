//! The identities of docs/math.md, each for every cell that it applies to, in f64.

mod common;
use common::*;
use tprop::cell::CellKind;
use tprop::comm::{Comm, Solo, Team};
use tprop::method::*;
use tprop::params::Params;
use tprop::window::{Layout, Streams};

fn each_model(mut check: impl FnMut(&str, tprop::model::Model<f64>)) {
    for cell in CellKind::ALL {
        for layers in [1, 2] {
            check(&format!("{cell:?} × {layers}"), model(cell, layers));
        }
    }
}

/// Identity 2: M chained blocks with the gradient in the start handed back = BPTT over M·B steps.
#[test]
fn chained_blocks_are_bptt_over_the_whole() {
    each_model(|name, model| {
        let (params, tokens) = (model.initial(1), tokens(61));
        let (s, m, b) = (2, 5, 6);
        let chained = reach_gradient(&model, &params, &tokens, (s, m, b), m - 1);
        let mut tape = model.tape(Layout::new(s, m * b));
        let cut = Streams::new(&tokens, s);
        cut.fill(&tape.layout(), 0, 0..s, &mut tape.inputs, &mut tape.targets);
        let starts = vec![model.initial_state(); s * model.state_width()];
        let mut grads = model.grads();
        model.prepare(&params, &mut tape);
        model.recur(&params, &mut tape, &starts);
        model.loss(&params, &mut tape, 1.0 / (s * m * b) as f64, None, Some(&mut grads));
        model.backward(&params, &mut tape, true, None, None, Some(&mut grads));
        grads.settle();
        assert_same(name, &chained, grads.values().all(), 1e-12);
    });
}

/// Identity 3: λ = 0, no state steps, exact starts = BPTT whose update averages M windows.
#[test]
fn without_coupling_it_is_truncated_bptt() {
    each_model(|name, model| {
        let (params, tokens) = (model.initial(1), tokens(61));
        let config = BtpropConfig { lambda: 0.0, ..plain(2, 5, 6) };
        let ours = gradient(&MethodConfig::Btprop(config), &model, &params, &tokens);
        let bptt = BpttConfig { window: 6, streams: 2, batch: Batch::Mini { accumulate: 5 } };
        let theirs = gradient(&MethodConfig::Bptt(bptt), &model, &params, &tokens);
        assert_same(name, &ours, &theirs, 1e-12);
    });
}

/// Identity 4: ADMM whose duals do not move = penalty; and on an exact trajectory the penalty adds nothing to ∂θ.
#[test]
fn resting_duals_and_exact_trajectories_change_nothing() {
    each_model(|name, model| {
        let (params, tokens) = (model.initial(1), tokens(61));
        let states = StateConfig { steps: 2, ..plain(2, 5, 6).states };
        let penalty = BtpropConfig { states, init: Init::Parallel { sweeps: 1 }, ..plain(2, 5, 6) };
        for before_theta in [false, true] {
            let solver = Solver::Admm { duals: duals(0.0), before_theta };
            let admm = BtpropConfig { solver, ..penalty.clone() };
            let a = gradient(&MethodConfig::Btprop(penalty.clone()), &model, &params, &tokens);
            let b = gradient(&MethodConfig::Btprop(admm), &model, &params, &tokens);
            assert_eq!(a, b, "{name}");
        }
        let with = gradient(&MethodConfig::Btprop(plain(2, 5, 6)), &model, &params, &tokens);
        let none = BtpropConfig { lambda: 0.0, ..plain(2, 5, 6) };
        assert_same(name, &with, &gradient(&MethodConfig::Btprop(none), &model, &params, &tokens), 1e-12);
    });
}

/// ∂θ of the penalty alone after one state step of rate η, over cell and embedding, and the one-step BPTT gradient.
fn theorem(model: &tprop::model::Model<f64>, params: &Params<f64>, tokens: &[u32], starts: Starts) -> (f64, f64) {
    let (eta, lambda) = (0.01, 0.7);
    let states = StateConfig { steps: 1, rate: eta, ..plain(2, 12, 1).states };
    let config = BtpropConfig { loss: LossOn::Free, lambda, states, starts, ..plain(2, 12, 1) };
    let ours = gradient(&MethodConfig::Btprop(config), model, params, tokens);
    let bptt = BpttConfig { window: 1, streams: 2, batch: Batch::Mini { accumulate: 12 } };
    let theirs = gradient(&MethodConfig::Bptt(bptt), model, params, tokens);
    let out = model.shapes().entry(model.output_ids().0).range().start;
    let (a, b) = (&ours[..out], &theirs[..out]);
    (norm(a) / (eta * lambda * norm(b)), dot(a, b) / (norm(a) * norm(b)))
}

/// Identity 5: the paper's theorem holds with ĥ from the old states, and not with all states moved at once.
#[test]
fn the_papers_theorem() {
    each_model(|name, model| {
        let (params, tokens) = (model.initial(1), tokens(61));
        let (ratio, cosine) = theorem(&model, &params, &tokens, Starts::Held);
        if model.config().layers == 1 && model.state_width() == model.config().hidden {
            assert!((ratio - 1.0).abs() < 1e-10 && (cosine - 1.0).abs() < 1e-10, "{name}: {ratio} {cosine}");
            let (_, cosine) = theorem(&model, &params, &tokens, Starts::Moving);
            assert!(cosine < 0.999, "{name}: with all states moved the cosine is {cosine}");
        }
    });
}

/// Identity 5b: held exact starts, ηλ = 1, n state steps = BPTT that reaches n blocks back; n = M − 1 is the whole window.
#[test]
fn reach_is_bptt_with_a_long_window() {
    each_model(|name, model| {
        let (params, tokens) = (model.initial(1), tokens(61));
        for n in 0..5 {
            let states = StateConfig { steps: n, rate: 2.0, ..plain(2, 5, 6).states };
            let config = BtpropConfig { states, lambda: 0.5, starts: Starts::Held, ..plain(2, 5, 6) };
            let ours = gradient(&MethodConfig::Btprop(config), &model, &params, &tokens);
            let theirs = reach_gradient(&model, &params, &tokens, (2, 5, 6), n);
            assert_same(&format!("{name}, reach {n}"), &ours, &theirs, 1e-10);
            let ready = BtpropConfig { streams: 2, blocks: 5, block: 6, ..BtpropConfig::reach(n) };
            let ours = gradient(&MethodConfig::Btprop(ready), &model, &params, &tokens);
            assert_same(&format!("{name}, reach {n} as it comes"), &ours, &theirs, 1e-10);
        }
        // One step of any ηλ: the nearest block's part comes with that weight.
        let states = StateConfig { steps: 1, rate: 0.4, ..plain(2, 5, 6).states };
        let config = BtpropConfig { states, lambda: 0.5, starts: Starts::Held, ..plain(2, 5, 6) };
        let ours = gradient(&MethodConfig::Btprop(config), &model, &params, &tokens);
        let near = reach_gradient(&model, &params, &tokens, (2, 5, 6), 0);
        let far = reach_gradient(&model, &params, &tokens, (2, 5, 6), 1);
        let mixed: Vec<f64> = near.iter().zip(&far).map(|(n, f)| n + 0.2 * (f - n)).collect();
        assert_same(&format!("{name}, ηλ = 0.2"), &ours, &mixed, 1e-10);
    });
}

/// Identity 6: as many parallel sweeps as blocks = the exact trajectory.
#[test]
fn enough_sweeps_are_exact() {
    each_model(|name, model| {
        let (params, tokens) = (model.initial(1), tokens(61));
        let of = |init| {
            let config = BtpropConfig { init, ..plain(2, 5, 6) };
            gradient(&MethodConfig::Btprop(config), &model, &params, &tokens)
        };
        let exact = of(Init::Sequential);
        assert_eq!(of(Init::Parallel { sweeps: 5 }), exact, "{name}");
        assert_ne!(of(Init::Parallel { sweeps: 2 }), exact, "{name}: two sweeps cannot be exact");
    });
}

/// In batch mode held starts lie on the trajectory of the present θ, pass after pass.
#[test]
fn held_starts_follow_theta() {
    each_model(|name, model| {
        let tokens = tokens(61);
        let states = StateConfig { steps: 1, ..plain(2, 5, 6).states };
        let config = BtpropConfig { states, batch: Batch::Full, starts: Starts::Held, ..plain(2, 5, 6) };
        let config = MethodConfig::Btprop(config);
        let starts = |params: Params<f64>, epochs: usize| {
            let mut l = learner(&model, params, &tokens, &Solo);
            l.optimiser.rate = 0.05;
            let mut method = config.build(&l).unwrap();
            let mut before = l.params.clone();
            for epoch in 1..=epochs {
                before = l.params.clone();
                method.begin_epoch(&l, epoch);
                update(&mut *method, &mut l);
            }
            let mut peek = Peek::default();
            method.visit(&mut peek);
            (before, peek.got["btprop.starts"].clone())
        };
        let (theta, second) = starts(model.initial(1), 2);
        let (_, fresh) = starts(theta, 1);
        assert_eq!(second, fresh, "{name}");
    });
}

/// A few updates of several epochs; returns θ.
fn trained(config: &MethodConfig, comm: &dyn Comm) -> Vec<f64> {
    let model = model(CellKind::Lstm, 2);
    let tokens = tokens(300);
    let mut l = learner(&model, model.initial(1), &tokens, comm);
    l.optimiser.rate = 0.3;
    let mut method = config.build(&l).unwrap();
    for epoch in 1..=3 {
        method.begin_epoch(&l, epoch);
        while !matches!(method.advance(&mut l, &mut || false), Advance::EpochEnd) {}
    }
    l.params.all().to_vec()
}

fn many_methods() -> Vec<(String, MethodConfig)> {
    let states = StateConfig { steps: 2, rate: 0.2, ..plain(3, 6, 4).states };
    let base = BtpropConfig { states, ..plain(3, 6, 4) };
    let admm = Solver::Admm { duals: duals(0.5), before_theta: false };
    let alm = Solver::Alm { duals: duals(0.5), joint_steps: 2 };
    let adagrad = StateConfig { rule: StateRule::Adagrad, tolerance: 1e-3, ..states };
    let balance = LambdaSchedule::Balance(2.0);
    let list = [
        ("penalty", base.clone()),
        ("admm", BtpropConfig { solver: admm, init: Init::Parallel { sweeps: 2 }, ..base.clone() }),
        ("alm", BtpropConfig { solver: alm, init: Init::Stored { sweeps: 1 }, last: Last::Free0, ..base.clone() }),
        (
            "batch",
            BtpropConfig {
                solver: admm,
                batch: Batch::Full,
                states: adagrad,
                lambda_schedule: balance,
                ..base.clone()
            },
        ),
        ("held", BtpropConfig { starts: Starts::Held, first: First::Fixed, ..base.clone() }),
        ("free", BtpropConfig { loss: LossOn::Free, block: 1, first: First::Free, last: Last::Zero, ..base.clone() }),
    ];
    let mut all: Vec<_> = list.into_iter().map(|(n, c)| (n.to_string(), MethodConfig::Btprop(c))).collect();
    let bptt = BpttConfig { window: 5, streams: 4, batch: Batch::Mini { accumulate: 2 } };
    all.push(("bptt".into(), MethodConfig::Bptt(bptt)));
    all
}

/// Identity 7: the same with any number of threads, bit for bit, and with 1, 2 and 3 ranks.
#[test]
fn threads_and_ranks_change_nothing() {
    for (name, config) in many_methods() {
        let alone = trained(&config, &Solo);
        for threads in [1, 2, 3, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| trained(&config, &Solo)), alone, "{name}: {threads} threads");
        }
        for ranks in [1, 2, 3] {
            let together: Vec<Vec<f64>> = std::thread::scope(|scope| {
                let team = Team::new(ranks).into_iter();
                let threads: Vec<_> = team
                    .map(|comm| {
                        scope.spawn({
                            let config = &config;
                            move || trained(config, &comm)
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            for theta in &together {
                assert_eq!(theta, &together[0], "{name}: ranks differ among themselves");
                assert_same(&format!("{name}: {ranks} ranks"), theta, &alone, 1e-10);
            }
        }
    }
}
