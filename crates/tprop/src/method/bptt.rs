//! Truncated back-propagation through time: windows of K steps, the end state carried to the next window, no gradient across.
//!
//! With [`Batch::Full`] the gradients of all windows of a pass are added up before the one update. Ranks share the streams.

use std::ops::Range;
use std::time::Instant;

use super::error::MethodError;
use super::tapes::{Tapes, WindowText};
use super::{Advance, Batch, BpttConfig, Learner, Method, Outline, Passes, Update};
use crate::clock::{Clock, Part};
use crate::comm::gradient::ShareChunk;
use crate::comm::{Comm, GradientSum, Shares, Unit, gather_numbers};
use crate::model::{Model, ThetaGradient};
use crate::params::{Grads, Rows, Visit};
use crate::real::Real;

/// Truncated BPTT.
#[derive(Debug)]
pub struct Bptt<T> {
    config: BpttConfig,
    shares: Shares,
    /// Streams of this rank.
    streams: Range<usize>,
    windows: usize,
    tapes: Tapes<T>,
    /// The state at the beginning of the next window, one row a stream of this rank.
    carried: Vec<T>,
    /// Of one window, and the sum over windows (when an update takes several), shares and ranks.
    grads: Grads<T>,
    total: GradientSum<T>,
    /// Next window of this epoch.
    at: u64,
    /// Windows in `total`, and what they came to: by share, the nats of each position, then of all.
    held: u64,
    nats: Vec<f64>,
    /// The last update's, over all ranks.
    gathered: Vec<f64>,
    clock: Clock,
}

impl Outline for BpttConfig {
    fn streams(&self) -> usize {
        self.streams
    }
    fn block(&self) -> usize {
        self.window
    }
    fn batch(&self) -> Batch {
        self.batch
    }
    fn least_window(&self) -> Vec<(&'static str, usize)> {
        vec![("streams", self.streams), ("window", self.window)]
    }
    fn windows(&self, length: usize) -> (usize, usize) {
        (1, length / self.window)
    }
    fn passes(&self) -> Passes {
        Passes { theta_passes: 1, ..Passes::default() }
    }
    fn without_turns(&self) -> Self {
        self.clone()
    }
    fn bytes<T: Real>(&self, model: &Model<T>, _tokens: usize, ranks: usize) -> u64 {
        Tapes::bytes(model, self.streams.div_ceil(ranks), self.window)
    }
    fn build<T: Real>(&self, learner: &Learner<T>) -> Result<Box<dyn Method<T>>, MethodError> {
        Ok(Box::new(Bptt::new(self.clone(), learner)?))
    }
}

impl<T: Real> Bptt<T> {
    /// Plans the windows of a training split.
    ///
    /// # Errors
    /// If the split is too short, or some rank would have nothing to do.
    pub fn new(config: BpttConfig, learner: &Learner<T>) -> Result<Self, MethodError> {
        let model = learner.model;
        let (tokens, wanted) = (learner.tokens.len(), config.least_tokens());
        if tokens < wanted {
            let window = vec![("streams", config.streams), ("window", config.window)];
            return Err(MethodError::TooShort { tokens, wanted, window });
        }
        let shares = Shares::deal(learner.comm, config.streams, Unit::Streams)?;
        let streams = shares.owned();
        let windows = learner.streams(config.streams).length() / config.window;
        let width = model.state_width();
        let several = config.batch != Batch::Mini { accumulate: 1 };
        let parts = shares.parts();
        let tapes = Tapes::new(model, &parts, config.window);
        Ok(Self {
            windows,
            tapes,
            carried: vec![model.initial_state(); streams.len() * width],
            grads: model.grads(),
            total: GradientSum::new(model, &shares, several),
            at: 0,
            held: 0,
            nats: vec![0.0; parts.len() * (config.window + 1)],
            gathered: vec![0.0; config.window + 1],
            clock: Clock::default(),
            shares,
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

    /// The update's nats over all shares, in their order, into `gathered`.
    fn gather_nats(&mut self, comm: &dyn Comm) {
        let len = self.config.window + 1;
        self.gathered.clear();
        self.gathered.extend(&self.nats);
        self.nats.fill(0.0);
        gather_numbers(comm, &mut self.gathered);
        for from in (len..self.gathered.len()).step_by(len) {
            let (sums, share) = self.gathered.split_at_mut(from);
            sums[..len].iter_mut().zip(&*share).for_each(|(sum, x)| *sum += x);
        }
        self.gathered.truncate(len);
    }

    /// Adds ∂(mean nats)/∂θ of window `at` of one share to the sums; `last`: of this update.
    fn gradient(&mut self, l: &Learner<T>, share: usize, at: usize, last: bool) {
        let (model, params) = (l.model, &l.params);
        let (width, window) = (model.state_width(), self.config.window);
        // Block 0 of each stream, so that row = stream.
        let text = WindowText { streams: l.streams(self.config.streams), at: at * window, first: self.streams.start };
        let scale = T::of(1.0 / (self.config.streams * window) as f64);
        self.grads.clear();
        let nats = &mut self.nats[share * (window + 1)..][..window + 1];
        for i in self.tapes.of_share(share) {
            let of = ShareChunk { share, last };
            let last_chunk = self.tapes.of(i).last;
            let (rows, tape) = self.tapes.get(i);
            let states = rows.start * width..rows.end * width;
            text.fill(rows, tape);
            model.prepare(params, tape);
            model.recur(params, tape, &self.carried[states.clone()]);
            model.ends(tape, &mut self.carried[states]);
            nats[window] += model.loss(params, tape, scale, None, Some(&mut self.grads));
            tape.nats_by_step(&mut nats[..window]);
            let mut ready = |grads: &mut Grads<T>, group| {
                if last_chunk {
                    self.total.ready(l.comm, grads, of, group);
                }
            };
            ready(&mut self.grads, 0);
            let theta = ThetaGradient { grads: &mut self.grads, ready: &mut ready };
            model.backward_by_group(params, tape, true, None, None, Some(theta));
        }
    }
}

impl<T: Real> Method<T> for Bptt<T> {
    fn begin_epoch(&mut self, learner: &Learner<T>, _epoch: usize) {
        self.at = 0;
        self.carried.fill(learner.model.initial_state());
    }

    fn advance(&mut self, learner: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Advance {
        if self.at as usize == self.windows {
            return Advance::EpochEnd;
        }
        let first = self.at as usize;
        let last = self.windows.min(first + self.windows_per_update() - self.held as usize);
        // A share's windows come one after the other, so that its sum over them is made before shares are added up.
        for share in 0..self.shares.mine().len() {
            if share > 0 {
                self.total.begin_share();
            }
            for at in first..last {
                self.gradient(learner, share, at, at + 1 == last);
                if self.shares.may_pause() {
                    (self.at, self.held) = (self.at + 1, self.held + 1);
                    if at + 1 < last && pause() {
                        return Advance::Paused;
                    }
                }
            }
        }
        if !self.shares.may_pause() {
            (self.at, self.held) = (last as u64, (last - first) as u64);
        }
        let since = Instant::now();
        self.gather_nats(learner.comm);
        let nats = self.gathered[self.config.window];
        let tokens = self.held * (self.config.streams * self.config.window) as u64;
        let grads = self.total.finish(learner.comm, &mut self.grads);
        let norm = learner.optimiser.update(&mut learner.params, grads, 1.0 / self.held as f64);
        self.total.begin_share();
        self.held = 0;
        self.clock.book(Part::Optimiser, since);
        if !norm.is_finite() || !nats.is_finite() {
            return Advance::Diverged { norm, nats_per_token: nats / tokens as f64 };
        }
        Advance::Update(Update { nats, tokens, norm, coupling: None })
    }

    fn nats_by_position(&self) -> &[f64] {
        &self.gathered[..self.config.window]
    }

    fn updates_per_epoch(&self) -> usize {
        self.windows.div_ceil(self.windows_per_update().max(1))
    }

    fn tokens_per_epoch(&self) -> u64 {
        (self.windows * self.config.streams * self.config.window) as u64
    }

    fn visit(&mut self, visit: &mut dyn Visit<T>) {
        visit.count("bptt.at", &mut self.at);
        visit.count("bptt.held", &mut self.held);
        // Between two updates these are spent, so it does not matter that there may be more shares.
        let (positions, all) = self.nats.split_at_mut(self.config.window);
        visit.real("bptt.nats", &mut all[0]);
        for (i, nats) in positions.iter_mut().enumerate() {
            visit.real(&format!("bptt.nats.{i}"), nats);
        }
        let own = self.streams.len();
        let rows = Rows { repeat: 1, first: self.streams.start, own, all: self.config.streams };
        visit.rows("bptt.carried", rows, self.carried.len() / own, &mut self.carried);
        // Otherwise nobody looks in between two windows.
        if self.shares.may_pause()
            && let Some(total) = self.total.whole_mut()
        {
            total.visit("bptt.total", visit);
        }
    }

    fn clock(&mut self) -> &mut Clock {
        self.tapes.take_clock(&mut self.clock);
        &mut self.clock
    }
}
