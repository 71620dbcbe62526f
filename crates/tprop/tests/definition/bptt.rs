//! Truncated back-propagation through time: one block a stream, nothing pulls at its end, the end is carried on.

use std::collections::BTreeSet;

use tprop::method::{Batch, BpttConfig};

use super::net::{Matrix, zeros_like};
use super::run::{Learner, Update};

pub struct Bptt {
    config: BpttConfig,
    carried: Matrix,
}

impl Bptt {
    pub fn new(config: BpttConfig, l: &Learner) -> Self {
        Self { carried: vec![l.net.initial_state(); config.streams], config }
    }

    /// One pass over the text, cut into windows of K steps.
    pub fn epoch(&mut self, l: &mut Learner) -> Vec<Update> {
        let BpttConfig { window, streams, batch } = self.config;
        self.carried.fill(l.net.initial_state());
        let windows: Vec<usize> = (0..l.length(streams) / window).collect();
        let at_once = match batch {
            Batch::Mini { accumulate } => accumulate,
            Batch::Full => windows.len(),
        };
        windows.chunks(at_once).map(|windows| self.update(l, windows)).collect()
    }

    /// θ moves along the mean gradient of the windows.
    fn update(&mut self, l: &mut Learner, windows: &[usize]) -> Update {
        let BpttConfig { window, streams, .. } = self.config;
        let tokens = windows.len() * streams * window;
        let (mut gradient, mut read) = (zeros_like(&l.theta), BTreeSet::new());
        let mut by_position = vec![0.0; window];
        for &at in windows {
            for i in 0..streams {
                let (inputs, targets) = l.tokens(streams, i, at * window, window);
                let states = l.net.run(&l.theta, &inputs, &self.carried[i]);
                let mut d_tops = Vec::new();
                for t in 0..window {
                    let (h, scale) = (l.net.top(&states[t + 1]), 1.0 / tokens as f64);
                    let (nats, d_top) = l.net.nats(&l.theta, h, targets[t], None, scale, &mut gradient);
                    by_position[t] += nats;
                    d_tops.push(d_top);
                }
                let d_end = vec![0.0; l.net.width()];
                l.net.back(&l.theta, &inputs, &states, &d_tops, &d_end, &mut gradient);
                self.carried[i] = states[window].clone();
                read.extend(inputs);
            }
        }
        let (norm, clipped) = l.optimiser.step(&mut l.theta, &gradient, &read, l.net.tied);
        if clipped {
            l.facts.insert("gradient clipped");
        }
        let nats = by_position.iter().sum();
        Update { nats, tokens: tokens as u64, norm, by_position, coupling: None, theta: l.theta.clone() }
    }
}
