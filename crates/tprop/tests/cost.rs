//! What a pass costs, counted in floating-point operations of its products, not timed: a state step pays for no ∂θ, a dual step
//! for no softmax, nothing that θ leaves alone is computed twice, and reach is almost free.

mod common;
use common::{duals, plain, tokens};
use tprop::cell::CellKind;
use tprop::comm::Solo;
use tprop::method::*;
use tprop::model::{Model, ModelConfig};
use tprop::objective::{Constraint, Direction, Penalty};
use tprop::optim::{OptimConfig, Optimiser};
use tprop::real::Real;

/// Sizes of a case: S × M blocks of B tokens.
const STREAMS: usize = 2;
const BLOCKS: usize = 5;
const BLOCK: usize = 3;
const TOKENS: u64 = (STREAMS * BLOCKS * BLOCK) as u64;
const ROWS: u64 = (STREAMS * BLOCKS) as u64;

/// Operations of all updates of one epoch.
fn epoch<T: Real>(model: &Model<T>, config: &MethodConfig, text: &[u32]) -> u64 {
    let optimiser = Optimiser::new(OptimConfig::default(), model.shapes());
    let mut l = Learner { model, params: model.initial(1), optimiser, comm: &Solo, tokens: text.into() };
    let mut method = config.build(&l).unwrap();
    method.begin_epoch(&l, 1);
    method.clock().reset();
    while !matches!(method.advance(&mut l, &mut || false), Advance::EpochEnd) {}
    method.clock().flops
}

fn window(model: &Model<f64>, config: &BtpropConfig) -> u64 {
    epoch(model, &MethodConfig::Btprop(config.clone()), &tokens(TOKENS as usize + STREAMS))
}

fn model(layers: usize) -> Model<f64> {
    Model::new(ModelConfig { cell: CellKind::Gru, hidden: 5, embed: 4, layers, ..ModelConfig::new(common::VOCAB) })
}

/// Operations per window of each product, for all tokens.
struct Price {
    /// W_ih x of the first layer; above it the input product is part of the recurrence.
    input: u64,
    /// W_hh h of all layers, and the input products of those above the first. The way back through them costs the same.
    recurrence: u64,
    /// W_y h, or one of its two gradients.
    output: u64,
}

fn price(model: &Model<f64>) -> Price {
    let c = model.config();
    let (h, e, v, wide) = (c.hidden as u64, c.embed as u64, c.vocab as u64, 3 * c.hidden as u64);
    let layers = c.layers as u64;
    Price {
        input: 2 * TOKENS * wide * e,
        recurrence: 2 * TOKENS * wide * h * (2 * layers - 1),
        output: 2 * TOKENS * v * h,
    }
}

fn steps(n: usize, config: &BtpropConfig) -> BtpropConfig {
    BtpropConfig { states: StateConfig { steps: n, ..config.states }, ..config.clone() }
}

/// The whole price of a window, item by item.
#[test]
fn a_window_costs_what_the_mathematics_says() {
    for layers in [1, 2] {
        let model = model(layers);
        let p = price(&model);
        // Forward, output layer with both gradients, back, ∂θ of both products; the embedding needs the gradient in its rows.
        let theta = p.recurrence + 3 * p.output + p.recurrence + (p.recurrence + p.input) + p.input;
        let zero = BtpropConfig { init: Init::Zero, ..plain(STREAMS, BLOCKS, BLOCK) };
        assert_eq!(window(&model, &zero), p.input + theta);
        let bptt = BpttConfig { window: BLOCK, streams: STREAMS, batch: Batch::Full };
        let text = tokens(TOKENS as usize + STREAMS);
        assert_eq!(epoch(&model, &MethodConfig::Bptt(bptt), &text), p.input + theta, "as much as BPTT");
        // A further θ step begins with new input products.
        let twice = BtpropConfig { theta_steps: 2, ..zero.clone() };
        assert_eq!(window(&model, &twice), 2 * (p.input + theta));

        // Input products are made once: every init runs the recurrence alone.
        for (init, sweeps) in
            [(Init::Parallel { sweeps: 3 }, 3), (Init::Stored { sweeps: 2 }, 2), (Init::Sequential, 1)]
        {
            let config = BtpropConfig { init, ..zero.clone() };
            assert_eq!(window(&model, &config), p.input + sweeps * p.recurrence + theta, "{init:?}");
        }
    }
}

#[test]
fn a_state_step_pays_for_no_theta_gradient() {
    for layers in [1, 2] {
        let model = model(layers);
        let p = price(&model);
        for init in [Init::Zero, Init::Parallel { sweeps: 1 }, Init::Sequential] {
            let config = BtpropConfig { init, ..plain(STREAMS, BLOCKS, BLOCK) };
            let base = window(&model, &config);
            for n in 1..4 {
                // Forward, output layer with the gradient in h alone, and back.
                let step = p.recurrence + 2 * p.output + p.recurrence;
                assert_eq!(window(&model, &steps(n, &config)) - base, n as u64 * step, "{init:?}");
                // Held starts: only back.
                let held = BtpropConfig { starts: Starts::Held, ..config.clone() };
                assert_eq!(window(&model, &steps(n, &held)) - base, n as u64 * p.recurrence, "{init:?}");
            }
        }
    }
}

#[test]
fn a_dual_step_runs_the_recurrence_alone() {
    for layers in [1, 2] {
        let model = model(layers);
        let p = price(&model);
        let admm = |before_theta| Solver::Admm { duals: duals(0.5), before_theta };
        for n in [0, 1] {
            let penalty = steps(n, &plain(STREAMS, BLOCKS, BLOCK));
            let cost = |config: &BtpropConfig| window(&model, config) - window(&model, &steps(n, &penalty));
            // θ has just moved.
            assert_eq!(cost(&BtpropConfig { solver: admm(false), ..penalty.clone() }), p.input + p.recurrence);
            // Before θ moves, the forward serves the dual step and the θ step.
            assert_eq!(cost(&BtpropConfig { solver: admm(true), ..penalty.clone() }), 0);
            let late = Solver::Admm { duals: DualConfig { start_epoch: 2, ..duals(0.5) }, before_theta: false };
            assert_eq!(cost(&BtpropConfig { solver: late, ..penalty.clone() }), 0, "duals rest in this epoch");
        }
    }
}

/// The KL reads both ends of the tied boundaries: two products forward, two back, and with θ two more.
#[test]
fn the_kl_is_counted() {
    let model = model(1);
    let l2 = BtpropConfig { init: Init::Zero, ..plain(STREAMS, BLOCKS, BLOCK) };
    let kl = BtpropConfig { penalty: Penalty::Kl(Direction::Forward), ..l2.clone() };
    let one = 2 * (ROWS - STREAMS as u64) * (common::VOCAB * 5) as u64;
    assert_eq!(window(&model, &kl) - window(&model, &l2), 6 * one);
    assert_eq!(window(&model, &steps(1, &kl)) - window(&model, &steps(1, &l2)), 10 * one);
}

#[test]
fn twice_the_corpus_costs_twice() {
    let model = model(1);
    let states = StateConfig { steps: 2, ..plain(STREAMS, BLOCKS, BLOCK).states };
    let solver = Solver::Admm { duals: duals(0.5), before_theta: false };
    let mini = BtpropConfig { solver, states, ..plain(STREAMS, BLOCKS, BLOCK) };
    let bptt = |batch| MethodConfig::Bptt(BpttConfig { window: BLOCK, streams: STREAMS, batch });
    let methods = [
        MethodConfig::Btprop(BtpropConfig { batch: Batch::Full, ..mini.clone() }),
        MethodConfig::Btprop(mini),
        bptt(Batch::Full),
        bptt(Batch::Mini { accumulate: 1 }),
        bptt(Batch::Mini { accumulate: 3 }),
    ];
    for config in &methods {
        let once = epoch(&model, config, &tokens(6 * TOKENS as usize + STREAMS));
        let twice = epoch(&model, config, &tokens(12 * TOKENS as usize + STREAMS));
        assert_eq!(twice, 2 * once, "{config:?}");
    }
}

/// Block-parallel BPTT with a reach of three blocks costs at most 1.15 times what it costs without reach.
#[test]
fn reach_is_almost_free() {
    let model = Model::<f32>::new(ModelConfig::new(10_000));
    let cost = |n| {
        let states = StateConfig { steps: n, rate: 2.0, ..plain(8, 4, 5).states };
        let config = BtpropConfig { lambda: 0.5, states, starts: Starts::Held, ..plain(8, 4, 5) };
        epoch(&model, &MethodConfig::Btprop(config), &tokens(161))
    };
    let ratio = cost(3) as f64 / cost(0) as f64;
    assert!(ratio <= 1.15, "three blocks of reach cost {ratio:.3} times as much");
}

/// A choice adds to the memory that a method announces what it makes the method keep.
#[test]
fn what_is_kept_is_announced() {
    let model = Model::<f32>::new(ModelConfig { hidden: 64, embed: 8, ..ModelConfig::new(7) });
    let room = |config: &BtpropConfig| config.bytes(&model, 2401, 1);
    let base = BtpropConfig { init: Init::Parallel { sweeps: 1 }, ..plain(4, 8, 3) };
    let with_duals = |stored| {
        let duals = DualConfig { stored, ..duals(0.1) };
        BtpropConfig { solver: Solver::Admm { duals, before_theta: false }, ..base.clone() }
    };
    let adagrad = StateConfig { rule: StateRule::Adagrad, ..base.states };
    let stored = BtpropConfig { init: Init::Stored { sweeps: 1 }, ..base.clone() };
    let full = |c: BtpropConfig| BtpropConfig { batch: Batch::Full, ..c };
    // 8 × 4 blocks and 4 slots behind them, 64 values of 4 bytes each; 25 windows.
    let one = 36 * 64 * 4;
    for (name, config, copies) in [
        ("held", BtpropConfig { starts: Starts::Held, ..base.clone() }, 1),
        ("tanh", BtpropConfig { constraint: Constraint::Tanh, ..base.clone() }, 1),
        ("box", BtpropConfig { constraint: Constraint::Box, ..base.clone() }, 0),
        ("adagrad", BtpropConfig { states: adagrad, ..base.clone() }, 1),
        ("duals", with_duals(false), 1),
        ("stored duals", with_duals(true), 1 + 25),
        ("stored states", stored.clone(), 25),
    ] {
        assert_eq!(room(&config) - room(&base), copies * one, "{name}");
    }
    assert_eq!(room(&full(stored)), room(&full(base.clone())), "in batch mode states are kept anyway");
    assert_eq!(room(&full(with_duals(true))), room(&full(with_duals(false))), "and so are duals");
}

/// In batch mode, chunks change memory, not work.
#[test]
fn chunks_cost_nothing_but_input_products() {
    let chunks = |tape_mb| {
        let config = ModelConfig { hidden: 5, embed: 4, tape_mb, ..ModelConfig::new(common::VOCAB) };
        let states = StateConfig { steps: 2, ..plain(1, 100, 2).states };
        let config_ = BtpropConfig { batch: Batch::Full, states, init: Init::Zero, ..plain(1, 100, 2) };
        epoch(&Model::<f64>::new(config), &MethodConfig::Btprop(config_), &tokens(201))
    };
    let input = 2 * 200 * 15 * 4;
    assert_eq!(chunks(0) - chunks(128), 2 * input);
}
