//! Truncated back-propagation through time: windows of K steps, the end state carried to the next window, no slope across.
//!
//! With [`Batch::Full`] the gradients of all windows of a pass are added up before the one update. Ranks share the streams.

use std::ops::Range;
use std::time::Instant;

use super::{Advance, Batch, BpttConfig, Learner, Method, Update};
use crate::clock::{Clock, Part};
use crate::comm::{share, sum_gradient};
use crate::model::{Model, Tape};
use crate::params::{Grads, Params, Walk};
use crate::real::Real;
use crate::window::{Layout, Streams};

/// Truncated BPTT.
#[derive(Debug)]
pub struct Bptt<T> {
    config: BpttConfig,
    /// Streams of this rank.
    streams: Range<usize>,
    windows: usize,
    tapes: Vec<Piece<T>>,
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
    clock: Clock,
}

/// A tape and how many pieces share it: only the first and a shorter last one differ in shape.
#[derive(Debug)]
struct Piece<T> {
    tape: Tape<T>,
    rows: usize,
}

impl<T: Real> Bptt<T> {
    /// Plans the windows of a training split. `rows_at_once` bounds the memory of a pass.
    pub fn new(config: BpttConfig, learner: &Learner<T>) -> Self {
        let model = learner.model;
        let streams = share(config.streams, learner.comm.rank(), learner.comm.size());
        let windows = learner.streams(config.streams).length() / config.window;
        let width = model.state_width();
        let several = config.batch != Batch::Mini { accumulate: 1 };
        let tapes = pieces(model, streams.len(), config.window);
        Self {
            windows,
            tapes,
            carried: vec![model.rest(); streams.len() * width],
            ends: vec![T::ZERO; streams.len() * width],
            grads: model.grads(),
            total: several.then(|| model.grads()),
            at: 0,
            held: 0,
            nats: 0.0,
            by_position: vec![0.0; config.window],
            clock: Clock::default(),
            streams,
            config,
        }
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
        let mut row = 0;
        let mut piece = 0;
        while row < self.streams.len() {
            let Piece { tape, rows } = &mut self.tapes[piece];
            let here = row..row + *rows;
            let layout = tape.layout();
            let at = self.at as usize * self.config.window;
            // Block 0 of each stream, so that row = stream.
            let streams = self.streams.start + here.start..self.streams.start + here.end;
            cut.fill(&layout, at, streams, &mut tape.inputs, &mut tape.targets);
            model.prepare(params, tape);
            let states = here.start * width..here.end * width;
            model.recur(params, tape, &self.carried[states.clone()]);
            model.ends(tape, &mut self.ends[states]);
            self.nats += model.loss(params, tape, scale, None, Some(&mut self.grads));
            tape.nats_by_step(&mut self.by_position);
            model.backward(params, tape, true, None, None, Some(&mut self.grads));
            row = here.end;
            if self.tapes.get(piece + 1).is_some_and(|next| row + next.rows == self.streams.len()) {
                piece += 1;
            }
        }
        self.grads.settle();
        std::mem::swap(&mut self.carried, &mut self.ends);
    }
}

/// Rows of a pass are run in pieces whose tapes stay below about this.
const TAPE_BYTES: usize = 256 << 20;

/// One tape for the whole, or one for full pieces and one for what is left over.
fn pieces<T: Real>(model: &Model<T>, rows: usize, steps: usize) -> Vec<Piece<T>> {
    let at_once = rows_at_once(model, steps).min(rows.max(1));
    let mut tapes = Vec::new();
    if rows >= at_once {
        tapes.push(Piece { tape: model.tape(Layout::new(at_once, steps)), rows: at_once });
    }
    if rows % at_once > 0 {
        tapes.push(Piece { tape: model.tape(Layout::new(rows % at_once, steps)), rows: rows % at_once });
    }
    tapes
}

/// How many rows of `steps` steps a tape of a fixed size holds: a function of the model's shape alone.
pub(super) fn rows_at_once<T: Real>(model: &Model<T>, steps: usize) -> usize {
    let row = model.tape_bytes_per_token() * steps;
    (TAPE_BYTES / row.max(1)).max(32) / 32 * 32
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
        let mut sums = std::mem::take(&mut self.by_position);
        sums.push(std::mem::take(&mut self.nats));
        learner.comm.sum(&mut sums);
        let nats = sums.pop().expect("pushed above");
        let tokens = self.held * (self.config.streams * self.config.window) as u64;
        let grads = self.total.as_mut().unwrap_or(&mut self.grads);
        sum_gradient(learner.comm, grads);
        let norm = learner.optimiser.update(&mut learner.params, grads, 1.0 / self.held as f64);
        if let Some(total) = &mut self.total {
            total.clear();
        }
        self.held = 0;
        self.by_position = vec![0.0; self.config.window];
        self.clock.book(Part::Optimiser, since);
        if !norm.is_finite() || !nats.is_finite() {
            return Advance::Diverged { norm, nats_per_token: nats / tokens as f64 };
        }
        Advance::Update(Update { nats, tokens, norm, by_position: sums, coupling: None })
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
        for piece in &mut self.tapes {
            self.clock.take(&mut piece.tape.clock);
        }
        &mut self.clock
    }
}
