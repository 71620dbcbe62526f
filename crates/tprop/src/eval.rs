//! What a text costs a model: sums of nats and tokens over a split. Perplexity is made at the edge.

use crate::model::{Model, Tape};
use crate::params::Params;
use crate::real::Real;
use crate::tokens::Text;
use crate::window::{Layout, Streams};

/// What reading a text came to. Sums; means are made by the methods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Σ −log p of all tokens that were predicted.
    pub nats: f64,
    /// Their number.
    pub tokens: u64,
    /// Σ nats and tokens by position in blocks of a given length; a last block may be shorter.
    pub by_position: Vec<(f64, u64)>,
}

impl Reading {
    /// Adds the nats that a tape holds.
    pub fn note<T: Real>(&mut self, tape: &Tape<T>) {
        let layout = tape.layout();
        self.nats += tape.total_nats();
        self.tokens += layout.tokens() as u64;
        layout.each(|place, _, step| {
            if let Some((nats, tokens)) = self.by_position.get_mut(step) {
                *nats += tape.nats[place].f64();
                *tokens += 1;
            }
        });
    }

    /// exp(nats per token)
    pub fn perplexity(&self) -> f64 {
        (self.nats / self.tokens as f64).exp()
    }

    /// Bits per token (per character at character level).
    pub fn bits(&self) -> f64 {
        self.nats / self.tokens as f64 / std::f64::consts::LN_2
    }

    /// Perplexity of each position in the block.
    pub fn perplexity_by_position(&self) -> Vec<f64> {
        self.by_position.iter().filter(|p| p.1 > 0).map(|(nats, tokens)| (nats / *tokens as f64).exp()).collect()
    }
}

/// Reads splits and sums up what they cost; its buffers are reused.
///
/// ```
/// use tprop::prelude::*;
/// let model = Model::<f32>::new(ModelConfig { hidden: 8, embed: 8, init: 0.0, ..ModelConfig::new(10) });
/// let text: Vec<u32> = (0..100).map(|i| i * i % 10).collect();
/// let reading = Reader::new(32).read(&model, &model.initial(1), &text, 4);
/// assert_eq!(reading.tokens, 96); // 4 streams of 24
/// assert!((reading.perplexity() - 10.0).abs() < 1e-4); // output weights of 0 guess
/// ```
#[derive(Debug)]
pub struct Reader<T> {
    steps: usize,
    whole: Option<Tape<T>>,
    rest: Option<Tape<T>>,
    state: Vec<T>,
    ends: Vec<T>,
}

impl<T: Real> Reader<T> {
    /// Runs `steps` steps at a time. The result does not depend on it, but positions are counted in blocks of it.
    pub fn new(steps: usize) -> Self {
        assert!(steps > 0);
        Self { steps, whole: None, rest: None, state: Vec::new(), ends: Vec::new() }
    }

    /// Cuts `text` into `streams` streams, begins each in the initial state and carries it to the end.
    pub fn read<'a>(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        text: impl Into<Text<'a>>,
        streams: usize,
    ) -> Reading {
        self.read_unless(model, params, text, streams, &mut || false).expect("nobody asked to stop")
    }

    /// The same, given up as soon as `stop` (asked between chunks of work) returns true.
    pub fn read_unless<'a>(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        text: impl Into<Text<'a>>,
        streams: usize,
        stop: &mut dyn FnMut() -> bool,
    ) -> Option<Reading> {
        let cut = Streams::new(text, streams);
        let mut reading = Reading { by_position: vec![(0.0, 0); self.steps], ..Reading::default() };
        self.state.clear();
        self.state.resize(streams * model.state_width(), model.initial_state());
        self.ends.resize(self.state.len(), T::ZERO);
        let mut at = 0;
        while at < cut.length() {
            if stop() {
                return None;
            }
            let steps = self.steps.min(cut.length() - at);
            let slot = if steps == self.steps { &mut self.whole } else { &mut self.rest };
            let layout = Layout::new(streams, steps);
            if slot.as_ref().is_none_or(|tape| tape.layout() != layout) {
                *slot = Some(model.tape(layout));
            }
            let tape = slot.as_mut().expect("just made");
            cut.fill(&layout, at, 0..streams, &mut tape.inputs, &mut tape.targets);
            model.prepare(params, tape);
            model.recur(params, tape, &self.state);
            model.nats(params, tape);
            reading.note(tape);
            model.ends(tape, &mut self.ends);
            std::mem::swap(&mut self.state, &mut self.ends);
            at += steps;
        }
        Some(reading)
    }
}
