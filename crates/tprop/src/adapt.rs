//! Reading with past states that may move (the paper's aside on optimising over past h at test time).
//!
//! The text is read in blocks of B tokens, θ frozen. Before block k is predicted, the starts s_j of the w blocks before it take n plain
//! gradient steps on the training objective of those blocks (L2, no duals), by the per-block gradient:
//!
//! ```text
//! Σ_{j=k−w}^{k−1}  (1/B) nats_j(s_j)  +  λ/2 ‖F_{j−1} − s_j‖²          F_j = F(s_j), where block j ends
//! ```
//!
//! The oldest of them is tied to where the last block that no longer moves ends; the first of the text to the initial state. Then block k is
//! predicted from F_{k−1}, run again from the states that were found. Every token in the sum is already known when block k begins:
//! the last target of block k − 1 is the first input of block k. Starts stay where they were moved to until they leave the window.

use crate::eval::Reading;
use crate::model::{Model, Tape};
use crate::params::Params;
use crate::real::Real;
use crate::tokens::Text;
use crate::window::{Layout, Streams};

/// How past states move while a text is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptConfig {
    /// B: tokens of a block.
    pub block: usize,
    /// n: gradient steps before each block; 0 is plain reading.
    pub steps: usize,
    /// η
    pub rate: f64,
    /// w: how many of the last blocks have free starts; 0 is plain reading.
    pub blocks: usize,
    /// λ, as in training.
    pub lambda: f64,
}

/// Cuts `text` into `streams` streams and reads each from the initial state, adapting as `config` says. With no steps or no blocks it
/// is [`crate::eval::Reader::read`] with steps of `config.block`, bit for bit.
///
/// ```
/// use tprop::adapt::{AdaptConfig, read_adapting};
/// use tprop::model::{Model, ModelConfig};
///
/// let model = Model::<f32>::new(ModelConfig { hidden: 8, embed: 8, ..ModelConfig::new(3) });
/// let text = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0];
/// let config = AdaptConfig { block: 4, steps: 2, rate: 0.5, blocks: 2, lambda: 0.1 };
/// let reading = read_adapting(&model, &model.initial(1), &text, 1, config);
/// assert_eq!(reading.tokens, 12);
/// ```
pub fn read_adapting<'a, T: Real>(
    model: &Model<T>,
    params: &Params<T>,
    text: impl Into<Text<'a>>,
    streams: usize,
    config: AdaptConfig,
) -> Reading {
    read_adapting_each(model, params, text, streams, config, |_, _, _| {})
}

/// The same, and shows every token's nats as `(stream, position, nats)`; positions count a stream's inputs from 0.
pub fn read_adapting_each<'a, T: Real>(
    model: &Model<T>,
    params: &Params<T>,
    text: impl Into<Text<'a>>,
    streams: usize,
    config: AdaptConfig,
    mut each: impl FnMut(usize, usize, T),
) -> Reading {
    assert!(config.block > 0);
    let cut = Streams::new(text, streams);
    let mut reading = Reading { by_position: vec![(0.0, 0); config.block], ..Reading::default() };
    let mut past = Past::new(model, streams, config);
    let mut tape: Option<Tape<T>> = None;
    for at in (0..cut.length()).step_by(config.block) {
        let state = past.adapted(model, params, &cut, at);
        let layout = Layout::new(streams, config.block.min(cut.length() - at));
        let tape = match &mut tape {
            Some(tape) if tape.layout() == layout => tape,
            other => other.insert(model.tape(layout)),
        };
        cut.fill(&layout, at, 0..streams, &mut tape.inputs, &mut tape.targets);
        model.prepare(params, tape);
        model.recur(params, tape, &state);
        model.nats(params, tape);
        reading.note(tape, streams, at, &mut each);
        past.push(model, tape, state);
    }
    reading
}

/// The last blocks' starts, oldest first, and what they are tied to.
struct Past<T> {
    config: AdaptConfig,
    slots: usize,
    /// s of at most w blocks, each streams × state width.
    starts: Vec<T>,
    /// F of the same blocks.
    ends: Vec<T>,
    /// Where the block before the oldest of them ends.
    anchor: Vec<T>,
    tape: Option<Tape<T>>,
}

impl<T: Real> Past<T> {
    fn new(model: &Model<T>, streams: usize, config: AdaptConfig) -> Self {
        let slots = streams * model.state_width();
        Self {
            config,
            slots,
            starts: Vec::new(),
            ends: Vec::new(),
            anchor: vec![model.initial_state(); slots],
            tape: None,
        }
    }

    /// Moves the starts and returns the state in which the block at `at` begins.
    fn adapted(&mut self, model: &Model<T>, params: &Params<T>, cut: &Streams, at: usize) -> Vec<T> {
        if self.config.steps > 0 && !self.starts.is_empty() {
            self.descend(model, params, cut, at);
        }
        let last = self.ends.len().checked_sub(self.slots);
        last.map_or(&self.anchor[..], |last| &self.ends[last..]).to_vec()
    }

    /// s ← s − η ∂/∂s, n times; then the ends once more.
    fn descend(&mut self, model: &Model<T>, params: &Params<T>, cut: &Streams, at: usize) {
        let (n, slots) = (self.starts.len(), self.slots);
        let rows = n / model.state_width();
        let layout = Layout::new(rows, self.config.block);
        let tape = match &mut self.tape {
            Some(tape) if tape.layout() == layout => tape,
            other => other.insert(model.tape(layout)),
        };
        let from = at - n / slots * self.config.block;
        cut.fill(&layout, from, 0..rows, &mut tape.inputs, &mut tape.targets);
        model.prepare(params, tape);
        let (lambda, rate) = (T::of(self.config.lambda), T::of(self.config.rate));
        let per_token = T::of(1.0 / self.config.block as f64);
        let (mut d_end, mut d_start) = (vec![T::ZERO; n], vec![T::ZERO; n]);
        for _ in 0..self.config.steps {
            model.recur(params, tape, &self.starts);
            model.ends(tape, &mut self.ends);
            model.loss(params, tape, per_token, None, None);
            // The last block ends where the next one begins, so nothing pulls at its end.
            for (j, d) in d_end[..n - slots].iter_mut().enumerate() {
                *d = lambda * (self.ends[j] - self.starts[j + slots]);
            }
            model.backward(params, tape, true, Some(&d_end), Some(&mut d_start), None);
            for (j, s) in self.starts.iter_mut().enumerate() {
                let before = if j < slots { self.anchor[j] } else { self.ends[j - slots] };
                *s -= rate * (d_start[j] - lambda * (before - *s));
            }
        }
        model.recur(params, tape, &self.starts);
        model.ends(tape, &mut self.ends);
    }

    /// A block that was just read from `start` joins; the oldest may leave and becomes the anchor.
    fn push(&mut self, model: &Model<T>, tape: &Tape<T>, start: Vec<T>) {
        let mut end = vec![T::ZERO; self.slots];
        model.ends(tape, &mut end);
        if self.config.blocks == 0 {
            self.anchor = end;
            return;
        }
        self.starts.extend(start);
        self.ends.extend(end);
        if self.starts.len() > self.config.blocks * self.slots {
            self.starts.drain(..self.slots);
            self.anchor = self.ends.drain(..self.slots).collect();
        }
    }
}
