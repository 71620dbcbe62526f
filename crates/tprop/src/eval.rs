//! What a text costs a model: sums of nats and tokens over a split. Perplexity is made at the edge.

use std::ops::Range;

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
        self.nats += self.note_part(tape, 0.0);
    }

    /// Adds what a tape of some of the streams holds, all but its nats: these are added, one by one, to `sum`.
    fn note_part<T: Real>(&mut self, tape: &Tape<T>, sum: f64) -> f64 {
        let layout = tape.layout();
        self.tokens += layout.tokens() as u64;
        layout.each(|place, _, step| {
            if let Some((nats, tokens)) = self.by_position.get_mut(step) {
                *nats += tape.nats[place].f64();
                *tokens += 1;
            }
        });
        tape.nats.iter().fold(sum, |sum, nats| sum + nats.f64())
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
    /// One for each layout that was met.
    tapes: Vec<Tape<T>>,
    state: Vec<T>,
    ends: Vec<T>,
}

impl<T: Real> Reader<T> {
    /// Runs `steps` steps at a time. The result does not depend on it, but positions are counted in blocks of it.
    pub fn new(steps: usize) -> Self {
        assert!(steps > 0);
        Self { steps, tapes: Vec::new(), state: Vec::new(), ends: Vec::new() }
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
        let width = model.state_width();
        while at < cut.length() {
            let steps = self.steps.min(cut.length() - at);
            let mut nats = 0.0;
            for rows in at_once(streams, steps, model.shapes().len()) {
                if stop() {
                    return None;
                }
                let layout = Layout::new(rows.len(), steps);
                let there = self.tapes.iter().position(|tape| tape.layout() == layout);
                let place = there.unwrap_or_else(|| {
                    if self.tapes.len() == MOST_TAPES {
                        self.tapes.remove(0);
                    }
                    self.tapes.push(model.tape(layout));
                    self.tapes.len() - 1
                });
                let tape = &mut self.tapes[place];
                let states = rows.start * width..rows.end * width;
                cut.fill(&layout, at, rows, &mut tape.inputs, &mut tape.targets);
                model.prepare(params, tape);
                model.recur(params, tape, &self.state[states.clone()]);
                model.nats(params, tape);
                nats = reading.note_part(tape, nats);
                model.ends(tape, &mut self.ends[states]);
            }
            reading.nats += nats;
            std::mem::swap(&mut self.state, &mut self.ends);
            at += steps;
        }
        Some(reading)
    }
}

/// Splits of several lengths have so many layouts: whole blocks and last ones, of most streams and of the last few.
const MOST_TAPES: usize = 8;

/// Streams that are read together: all of them, unless that would take so long that a stop is not obeyed within seconds. Tokens lie in
/// memory by groups of 32 streams where there are 64 or more, so that the sum has the same order either way.
fn at_once(streams: usize, steps: usize, parameters: usize) -> impl Iterator<Item = Range<usize>> {
    // About what a slow machine multiplies in a second.
    const PRODUCTS: usize = 5_000_000_000;
    const WHOLE: usize = 64;
    let most = PRODUCTS / steps.saturating_mul(parameters).max(1);
    let each = (most / WHOLE * WHOLE).max(WHOLE);
    // What would be less than a whole one at the end goes with the one before.
    let count = (streams / each).max(1);
    (0..count).map(move |i| i * each..if i + 1 == count { streams } else { (i + 1) * each })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelConfig;

    /// The same numbers to the bit, however many streams are read together; and a stop is asked for in between.
    #[test]
    fn many_streams_are_read_by_and_by() {
        let model = Model::<f32>::new(ModelConfig { hidden: 8, embed: 8, ..ModelConfig::new(11) });
        let (params, text): (_, Vec<u32>) = (model.initial(1), (0..5000u32).map(|i| i * i % 11).collect());
        for streams in [1, 63, 64, 127, 128, 200] {
            let mut asked = 0;
            let mut reader = Reader::new(32);
            let whole = reader.read_unless(&model, &params, &text, streams, &mut || {
                asked += 1;
                false
            });
            let mut parts = Reading { by_position: vec![(0.0, 0); 32], ..Reading::default() };
            // The same by hand, in the smallest parts.
            let cut = Streams::new(&text, streams);
            let mut state = vec![model.initial_state(); streams * model.state_width()];
            for at in (0..cut.length()).step_by(32) {
                let (steps, mut nats) = (32.min(cut.length() - at), 0.0);
                for rows in at_once(streams, steps, usize::MAX) {
                    let layout = Layout::new(rows.len(), steps);
                    let mut tape = model.tape(layout);
                    let states = rows.start * model.state_width()..rows.end * model.state_width();
                    cut.fill(&layout, at, rows, &mut tape.inputs, &mut tape.targets);
                    model.prepare(&params, &mut tape);
                    model.recur(&params, &mut tape, &state[states.clone()]);
                    model.nats(&params, &mut tape);
                    nats = parts.note_part(&tape, nats);
                    model.ends(&tape, &mut state[states]);
                }
                parts.nats += nats;
            }
            assert_eq!(whole.unwrap(), parts, "{streams} streams");
            assert_eq!(asked, cut.length().div_ceil(32), "a small model reads all of them together");
        }
        // A large one in parts of 64 or more that are whole together.
        let parts: Vec<_> = at_once(1000, 32, 60_000_000).collect();
        assert!(parts.len() == 15 && parts[0] == (0..64) && parts[14] == (896..1000), "{parts:?}");
        assert!(at_once(50, 32, usize::MAX).eq(std::iter::once(0..50)));
    }
}
