//! The loop around the methods, and what it records.

use std::collections::BTreeSet;

use tprop::method::MethodConfig;
use tprop::train::TrainConfig;

use super::bptt::Bptt;
use super::btprop::Btprop;
use super::net::{Net, Theta};
use super::optim::Optimiser;

/// What methods work on.
pub struct Learner {
    pub net: Net,
    pub theta: Theta,
    pub optimiser: Optimiser,
    pub text: Vec<usize>,
    /// What has happened, so that a test can see that its cases reach what they are for.
    pub facts: BTreeSet<&'static str>,
}

impl Learner {
    /// Inputs and their successors: `steps` of stream `i` of `streams`, from `at` on.
    pub fn tokens(&self, streams: usize, i: usize, at: usize, steps: usize) -> (Vec<usize>, Vec<usize>) {
        let from = i * self.length(streams) + at;
        (self.text[from..from + steps].to_vec(), self.text[from + 1..from + steps + 1].to_vec())
    }

    /// Inputs of one of so many streams.
    pub fn length(&self, streams: usize) -> usize {
        (self.text.len() - 1) / streams
    }
}

/// What one update saw, and the weights after it.
pub struct Update {
    pub nats: f64,
    pub tokens: u64,
    pub norm: f64,
    pub by_position: Vec<f64>,
    pub coupling: Option<Coupling>,
    pub theta: Theta,
}

/// What the last θ pass of a window saw of its boundaries, and the way that its states went.
#[derive(Clone, Debug, Default)]
pub struct Coupling {
    /// L
    pub objective: f64,
    /// Mean C_k over all blocks.
    pub penalty: f64,
    /// Boundaries inside the window, with Σ ‖r‖, max ‖r‖, Σ ‖t‖ and Σ ‖u‖ over them.
    pub boundaries: f64,
    pub residual: f64,
    pub residual_max: f64,
    pub state: f64,
    pub dual: f64,
    /// Σ ‖Δs‖ over all state steps, and the number of states that may move.
    pub moved: f64,
    pub movable: f64,
    /// Sweeps that found the starts.
    pub sweeps: f64,
}

/// What is recorded of an epoch.
pub struct Epoch {
    pub updates: Vec<Update>,
    pub train_ppl: f64,
    pub valid_ppl: f64,
    pub window_ppl: f64,
    pub window_ppl_by_position: Vec<f64>,
    /// Of the method's present epoch.
    pub lambda: Option<f64>,
}

impl Epoch {
    /// Mean over the epoch's windows.
    pub fn mean(&self, of: impl Fn(&Coupling) -> f64) -> f64 {
        self.sum(of) / self.updates.len() as f64
    }

    pub fn sum(&self, of: impl Fn(&Coupling) -> f64) -> f64 {
        self.updates.iter().map(|u| of(u.coupling.as_ref().unwrap())).sum()
    }

    pub fn max(&self, of: impl Fn(&Coupling) -> f64) -> f64 {
        self.updates.iter().map(|u| of(u.coupling.as_ref().unwrap())).fold(0.0, f64::max)
    }
}

/// All epochs of a run. `shards` are the blocks with which ranks but the first begin.
pub fn run(learner: &mut Learner, valid: &[usize], config: &TrainConfig, shards: &[usize]) -> Vec<Epoch> {
    let mut method = match &config.method {
        MethodConfig::Bptt(config) => Method::Bptt(Bptt::new(config.clone(), learner)),
        MethodConfig::Btprop(config) => Method::Btprop(Box::new(Btprop::new(config.clone(), learner, shards))),
        other => panic!("{} has no twin", other.name()),
    };
    let mut epochs = Vec::new();
    for epoch in 1..=config.epochs {
        let updates = match &mut method {
            Method::Bptt(bptt) => bptt.epoch(learner),
            Method::Btprop(btprop) => btprop.epoch(learner, epoch),
        };
        let lambda = match &method {
            Method::Bptt(_) => None,
            Method::Btprop(btprop) => Some(btprop.lambda),
        };
        let tokens: u64 = updates.iter().map(|u| u.tokens).sum();
        let positions = updates[0].by_position.len();
        let at = |j: usize| updates.iter().map(|u| u.by_position[j]).sum::<f64>();
        let by_position = (0..positions).map(|j| (at(j) / (tokens as f64 / positions as f64)).exp());
        epochs.push(Epoch {
            train_ppl: learner.net.perplexity(&learner.theta, &learner.text, config.eval_streams),
            valid_ppl: learner.net.perplexity(&learner.theta, valid, config.eval_streams),
            window_ppl: (updates.iter().map(|u| u.nats).sum::<f64>() / tokens as f64).exp(),
            window_ppl_by_position: by_position.collect(),
            lambda,
            updates,
        });
    }
    epochs
}

enum Method {
    Bptt(Bptt),
    Btprop(Box<Btprop>),
}
