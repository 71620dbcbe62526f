//! Truncated back-propagation through time: windows of K steps, the end state carried to the next window, no slope across.
//!
//! With [`Batch::Full`] the gradients of all windows of a pass are added up before the one update. Ranks share the streams.

use std::ops::Range;
use std::time::Instant;

use super::pieces::Pieces;
use super::{Advance, Batch, BpttConfig, Learner, Method, Update};
use crate::clock::{Clock, Part};
use crate::comm::{share, sum_gradient};
use crate::model::Model;
use crate::params::{Grads, Params, Walk};
use crate::real::Real;
use crate::window::Streams;

/// Truncated BPTT.
#[derive(Debug)]
pub struct Bptt<T> {
    config: BpttConfig,
    /// Streams of this rank.
    streams: Range<usize>,
    windows: usize,
    pieces: Pieces<T>,
    /// The state at the beginning of the next window, one row a stream of this rank.
    carried: Vec<T>,
    ends: Vec<T>,
    grads: Grads<T>,
    /// Sum over windows when an update takes several.
    total: Option<Grads<T>>,
    /// Next window of this epoch.
    at: u64,
    /// Windows in `total`, and what they came to.
    held: u64,
    nats: f64,
    by_position: Vec<f64>,
    /// The last update's, over all ranks, and the sum of all positions behind them.
    told: Vec<f64>,
    clock: Clock,
}

impl<T: Real> Bptt<T> {
    /// Plans the windows of a training split.
    pub fn new(config: BpttConfig, learner: &Learner<T>) -> Result<Self, String> {
        let model = learner.model;
        let (tokens, needed) = (learner.tokens.len(), config.streams * config.window + 1);
        if tokens < needed {
            return Err(format!(
                "the training split has {tokens} tokens; train.streams={} × bptt.window={} needs at least {needed}",
                config.streams, config.window
            ));
        }
        if learner.comm.size() > config.streams {
            return Err(format!(
                "{} ranks share train.streams={}; use at least as many streams",
                learner.comm.size(),
                config.streams
            ));
        }
        let streams = share(config.streams, learner.comm.rank(), learner.comm.size());
        let windows = learner.streams(config.streams).length() / config.window;
        let width = model.state_width();
        let several = config.batch != Batch::Mini { accumulate: 1 };
        let pieces = Pieces::new(model, streams.len(), config.window);
        Ok(Self {
            windows,
            pieces,
            carried: vec![model.rest(); streams.len() * width],
            ends: vec![T::ZERO; streams.len() * width],
            grads: model.grads(),
            total: several.then(|| model.grads()),
            at: 0,
            held: 0,
            nats: 0.0,
            by_position: vec![0.0; config.window],
            told: vec![0.0; config.window + 1],
            clock: Clock::default(),
            streams,
            config,
        })
    }

    fn windows_per_update(&self) -> usize {
        match self.config.batch {
            Batch::Mini { accumulate } => accumulate,
            Batch::Full => self.windows,
        }
    }

    /// ∂(mean nats)/∂θ of one window into `self.grads`.
    fn gradient(&mut self, model: &Model<T>, params: &Params<T>, cut: &Streams) {
        let width = model.state_width();
        let scale = T::of(1.0 / (self.config.streams * self.config.window) as f64);
        self.grads.clear();
        for i in 0..self.pieces.count() {
            let (rows, tape) = self.pieces.get(i);
            let at = self.at as usize * self.config.window;
            // Block 0 of each stream, so that row = stream.
            let streams = self.streams.start + rows.start..self.streams.start + rows.end;
            cut.fill(&tape.layout(), at, streams, &mut tape.inputs, &mut tape.targets);
            let states = rows.start * width..rows.end * width;
            model.prepare(params, tape);
            model.recur(params, tape, &self.carried[states.clone()]);
            model.ends(tape, &mut self.ends[states]);
            self.nats += model.loss(params, tape, scale, None, Some(&mut self.grads));
            tape.nats_by_step(&mut self.by_position);
            model.backward(params, tape, true, None, None, Some(&mut self.grads));
        }
        self.grads.settle();
        std::mem::swap(&mut self.carried, &mut self.ends);
    }
}

impl<T: Real> Method<T> for Bptt<T> {
    fn begin_epoch(&mut self, learner: &Learner<T>, _epoch: usize) {
        self.at = 0;
        self.carried.fill(learner.model.rest());
    }

    fn advance(&mut self, learner: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Advance {
        let cut = learner.streams(self.config.streams);
        if self.at as usize == self.windows {
            return Advance::EpochEnd;
        }
        loop {
            self.gradient(learner.model, &learner.params, &cut);
            self.at += 1;
            self.held += 1;
            if let Some(total) = &mut self.total {
                total.add(&self.grads);
            }
            if self.held as usize == self.windows_per_update() || self.at as usize == self.windows {
                break;
            }
            if pause() {
                return Advance::Paused;
            }
        }
        let since = Instant::now();
        let window = self.config.window;
        self.told[..window].copy_from_slice(&self.by_position);
        self.told[window] = std::mem::take(&mut self.nats);
        self.by_position.fill(0.0);
        learner.comm.sum(&mut self.told);
        let nats = self.told[window];
        let tokens = self.held * (self.config.streams * self.config.window) as u64;
        let grads = self.total.as_mut().unwrap_or(&mut self.grads);
        sum_gradient(learner.comm, grads);
        let norm = learner.optimiser.update(&mut learner.params, grads, 1.0 / self.held as f64);
        if let Some(total) = &mut self.total {
            total.clear();
        }
        self.held = 0;
        self.clock.book(Part::Optimiser, since);
        if !norm.is_finite() || !nats.is_finite() {
            return Advance::Diverged { norm, nats_per_token: nats / tokens as f64 };
        }
        Advance::Update(Update { nats, tokens, norm, coupling: None })
    }

    fn nats_by_position(&self) -> &[f64] {
        &self.told[..self.config.window]
    }

    fn updates_per_epoch(&self) -> usize {
        self.windows.div_ceil(self.windows_per_update().max(1))
    }

    fn tokens_per_epoch(&self) -> u64 {
        (self.windows * self.config.streams * self.config.window) as u64
    }

    fn walk(&mut self, walk: &mut dyn Walk<T>) {
        walk.count("bptt.at", &mut self.at);
        walk.count("bptt.held", &mut self.held);
        walk.real("bptt.nats", &mut self.nats);
        for (i, nats) in self.by_position.iter_mut().enumerate() {
            walk.real(&format!("bptt.nats.{i}"), nats);
        }
        let rows = self.streams.len();
        walk.tensor("bptt.carried", rows, self.carried.len() / rows.max(1), &mut self.carried);
        if let Some(total) = &mut self.total {
            total.walk("bptt.total", walk);
        }
    }

    fn clock(&mut self) -> &mut Clock {
        self.pieces.take_clock(&mut self.clock);
        &mut self.clock
    }
}
