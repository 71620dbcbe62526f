//! A small laboratory: one window under full control, in f64.
#![allow(dead_code)]

use std::collections::HashMap;

use tprop::cell::CellKind;
use tprop::comm::{Comm, Solo};
use tprop::method::*;
use tprop::model::{Model, ModelConfig, Tape};
use tprop::optim::{OptimConfig, Optimiser, Rule};
use tprop::params::{Params, Visit};
use tprop::rng::Draws;
use tprop::window::{Layout, Streams};

pub const VOCAB: usize = 7;

pub fn model(cell: CellKind, layers: usize) -> Model<f64> {
    Model::new(ModelConfig { cell, hidden: 5, embed: 4, layers, init: 0.5, ..ModelConfig::new(VOCAB) })
}

pub fn tokens(n: usize) -> Vec<u32> {
    let draws = Draws::new(11, "tokens");
    (0..n as u64).map(|i| draws.below(i, VOCAB as u64) as u32).collect()
}

/// Plain settings: penalty, exact starts, no state steps.
pub fn plain(streams: usize, blocks: usize, block: usize) -> BtpropConfig {
    BtpropConfig {
        block,
        blocks,
        streams,
        solver: Solver::Penalty,
        lambda: 0.3,
        init: Init::Sequential,
        states: StateConfig { steps: 0, rate: 0.1, ..StateConfig::default() },
        ..BtpropConfig::default()
    }
}

pub fn duals(rate: f64) -> DualConfig {
    DualConfig { rate, stored: true, ..DualConfig::default() }
}

/// Reads and writes what a method keeps.
#[derive(Default)]
pub struct Peek {
    pub set: HashMap<String, Vec<f64>>,
    pub got: HashMap<String, Vec<f64>>,
}

impl Visit<f64> for Peek {
    fn count(&mut self, _: &str, _: &mut u64) {}
    fn real(&mut self, _: &str, _: &mut f64) {}
    fn tensor(&mut self, name: &str, _: usize, _: usize, values: &mut [f64]) {
        if let Some(set) = self.set.get(name) {
            values.copy_from_slice(set);
        }
        self.got.insert(name.into(), values.to_vec());
    }
}

/// A learner whose plain updates of rate 1 show the gradient.
pub fn learner<'a>(
    model: &'a Model<f64>,
    params: Params<f64>,
    tokens: &'a [u32],
    comm: &'a dyn Comm,
) -> Learner<'a, f64> {
    let config = OptimConfig { rule: Rule::Sgd, rate: 1.0, clip: 0.0 };
    Learner { model, params, optimiser: Optimiser::new(config, model.shapes()), comm, tokens: tokens.into() }
}

pub fn update(method: &mut dyn Method<f64>, learner: &mut Learner<f64>) -> Update {
    loop {
        match method.advance(learner, &mut || false) {
            Advance::Update(update) => return update,
            Advance::Paused => {}
            other => panic!("{other:?}"),
        }
    }
}

/// ∂L/∂θ of a method's first update.
pub fn gradient(config: &MethodConfig, model: &Model<f64>, params: &Params<f64>, tokens: &[u32]) -> Vec<f64> {
    let mut l = learner(model, params.clone(), tokens, &Solo);
    let mut method = config.build(&l).unwrap();
    method.begin_epoch(&l, 1);
    update(&mut *method, &mut l);
    difference(params, &l.params)
}

pub fn difference(before: &Params<f64>, after: &Params<f64>) -> Vec<f64> {
    before.all().iter().zip(after.all()).map(|(a, b)| a - b).collect()
}

pub fn norm(v: &[f64]) -> f64 {
    v.iter().map(|x| x * x).sum::<f64>().sqrt()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn relative(a: &[f64], b: &[f64]) -> f64 {
    let d: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    norm(&d) / norm(b).max(1e-12)
}

#[track_caller]
pub fn assert_same(what: &str, a: &[f64], b: &[f64], tolerance: f64) {
    let error = relative(a, b);
    assert!(error <= tolerance, "{what}: relative error {error:e}");
}

/// The gradient of BPTT in which each block's loss flows back through the `reach` blocks before it, from the exact trajectory:
/// block by block, with the block pass alone. Mean over blocks and steps.
pub fn reach_gradient(
    model: &Model<f64>,
    params: &Params<f64>,
    tokens: &[u32],
    shape: (usize, usize, usize),
    reach: usize,
) -> Vec<f64> {
    let mut tapes = trajectory(model, params, tokens, shape, None);
    gradient_through(model, params, shape, &mut tapes, reach)
}

/// The same for s_{k+1} = F_k(s_k; θ) + c_k with fixed c_k, where `starts` are the s_k of all blocks.
pub fn reach_gradient_from(
    model: &Model<f64>,
    params: &Params<f64>,
    tokens: &[u32],
    shape: (usize, usize, usize),
    starts: &[f64],
    reach: usize,
) -> Vec<f64> {
    let mut tapes = trajectory(model, params, tokens, shape, Some(starts));
    gradient_through(model, params, shape, &mut tapes, reach)
}

/// The blocks' tapes, from given starts or block after block.
pub fn trajectory(
    model: &Model<f64>,
    params: &Params<f64>,
    tokens: &[u32],
    (streams, blocks, block): (usize, usize, usize),
    starts: Option<&[f64]>,
) -> Vec<Tape<f64>> {
    let cut = Streams::new(tokens, streams);
    let values = streams * model.state_width();
    let mut start = vec![model.initial_state(); values];
    let mut tapes = Vec::new();
    for k in 0..blocks {
        let mut tape = model.tape(Layout::new(streams, block));
        let rows = k * streams..(k + 1) * streams;
        cut.fill(&tape.layout(), 0, rows, &mut tape.inputs, &mut tape.targets);
        if let Some(starts) = starts {
            start.copy_from_slice(&starts[k * values..(k + 1) * values]);
        }
        model.prepare(params, &mut tape);
        model.recur(params, &mut tape, &start);
        model.ends(&tape, &mut start);
        tapes.push(tape);
    }
    tapes
}

fn gradient_through(
    model: &Model<f64>,
    params: &Params<f64>,
    (streams, blocks, block): (usize, usize, usize),
    tapes: &mut [Tape<f64>],
    reach: usize,
) -> Vec<f64> {
    let mut grads = model.grads();
    let scale = 1.0 / (streams * blocks * block) as f64;
    for k in 0..blocks {
        model.loss(params, &mut tapes[k], scale, None, Some(&mut grads));
        let mut pull = vec![0.0; streams * model.state_width()];
        model.backward(params, &mut tapes[k], true, None, Some(&mut pull), Some(&mut grads));
        for j in (k.saturating_sub(reach)..k).rev() {
            let d_end = pull.clone();
            model.backward(params, &mut tapes[j], false, Some(&d_end), Some(&mut pull), Some(&mut grads));
        }
    }
    grads.settle();
    grads.values().all().to_vec()
}
