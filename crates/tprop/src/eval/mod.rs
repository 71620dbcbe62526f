//! What a text costs a model: sums of nats and tokens over a split. Perplexity is made at the edge.

mod parallel;

use std::ops::Range;

use crate::model::{Model, Tape};
use crate::params::Params;
use crate::real::Real;
use crate::tokens::Text;
use crate::window::{Layout, Streams};

use parallel::Window;
pub use parallel::{ParallelConfig, Sweeps};

/// What reading a text came to. Sums; means are made by the methods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Σ −log p of all tokens that were predicted.
    pub nats: f64,
    /// Their number.
    pub tokens: u64,
    /// Σ nats and tokens by position in blocks of a given length; a last block may be shorter.
    pub by_position: Vec<(f64, u64)>,
    /// What reading in parallel took, if that was asked for.
    pub sweeps: Option<Sweeps>,
}

impl Reading {
    /// Adds the nats of a tape whose blocks of `streams` streams begin at `at`, and shows each as `(stream, position, nats)`.
    pub fn note<T: Real>(&mut self, tape: &Tape<T>, streams: usize, at: usize, each: &mut dyn FnMut(usize, usize, T)) {
        self.nats += self.note_part(tape, 0..streams, at, 0.0, each);
    }

    /// Adds what a tape of some of the streams holds, all but its nats: these are added, one by one, to `sum`.
    fn note_part<T: Real>(
        &mut self,
        tape: &Tape<T>,
        streams: Range<usize>,
        at: usize,
        sum: f64,
        each: &mut dyn FnMut(usize, usize, T),
    ) -> f64 {
        let layout = tape.layout();
        self.tokens += layout.tokens() as u64;
        let positions = self.by_position.len();
        layout.each(|place, row, step| {
            let (at, nats) = (at + row / streams.len() * layout.steps + step, tape.nats[place]);
            if positions > 0 {
                let sums = &mut self.by_position[at % positions];
                *sums = (sums.0 + nats.f64(), sums.1 + 1);
            }
            each(streams.start + row % streams.len(), at, nats);
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
    parallel: Option<ParallelConfig>,
    /// One for each layout that was met.
    tapes: Vec<Tape<T>>,
    window: Option<Window<T>>,
    state: Vec<T>,
    ends: Vec<T>,
}

impl<T: Real> Reader<T> {
    /// Runs `steps` steps at a time. The result does not depend on it, but positions are counted in blocks of it.
    pub fn new(steps: usize) -> Self {
        assert!(steps > 0);
        Self { steps, parallel: None, tapes: Vec::new(), window: None, state: Vec::new(), ends: Vec::new() }
    }

    /// Reads blocks in parallel, or all in order if `parallel` is none.
    #[must_use]
    pub fn in_parallel(self, parallel: Option<ParallelConfig>) -> Self {
        assert!(parallel.is_none_or(|p| p.block > 0 && p.blocks > 0));
        Self { parallel, window: None, ..self }
    }

    /// Cuts `text` into `streams` streams, begins each in the initial state and carries it to the end.
    pub fn read<'a>(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        text: impl Into<Text<'a>>,
        streams: usize,
    ) -> Reading {
        self.read_each(model, params, text, streams, |_, _, _| {})
    }

    /// The same, and shows every token's nats as `(stream, position, nats)`, in no particular order; positions count a stream's inputs
    /// from 0.
    pub fn read_each<'a>(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        text: impl Into<Text<'a>>,
        streams: usize,
        mut each: impl FnMut(usize, usize, T),
    ) -> Reading {
        let cut = Streams::new(text, streams);
        self.read_streams(model, params, cut, &mut || false, &mut each).expect("nobody asked to stop")
    }

    /// [`Reader::read`], given up as soon as `stop` (asked between chunks of work) returns true.
    pub fn read_unless<'a>(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        text: impl Into<Text<'a>>,
        streams: usize,
        stop: &mut dyn FnMut() -> bool,
    ) -> Option<Reading> {
        self.read_streams(model, params, Streams::new(text, streams), stop, &mut |_, _, _| {})
    }

    fn read_streams(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        cut: Streams,
        stop: &mut dyn FnMut() -> bool,
        each: &mut dyn FnMut(usize, usize, T),
    ) -> Option<Reading> {
        let streams = cut.streams();
        let mut reading = Reading { by_position: vec![(0.0, 0); self.steps], ..Reading::default() };
        let mut took = Sweeps::default();
        self.state.clear();
        self.state.resize(streams * model.state_width(), model.initial_state());
        self.ends.resize(self.state.len(), T::ZERO);
        // In order: the first block, and behind a window that did not settle twice as much as the time before.
        let (mut patience, mut resume) = (1, self.parallel.map_or(0, |config| config.block));
        let mut at = 0;
        while at < cut.length() {
            let left = cut.length() - at;
            let whole = self.parallel.map(|config| (config, config.blocks.min(left / config.block)));
            match whole {
                Some((config, blocks)) if blocks > 1 && at >= resume => {
                    if stop() {
                        return None;
                    }
                    let before = took.unsettled;
                    let steps = blocks * config.block;
                    self.run_window(model, params, (&cut, at), blocks, config, &mut took);
                    reading.note(&self.window.as_ref().expect("just run").tape, streams, at, each);
                    at += steps;
                    if took.unsettled > before {
                        resume = at + patience * steps;
                        patience *= 2;
                    }
                }
                _ => {
                    let steps = self.steps.min(left);
                    let mut nats = 0.0;
                    for rows in at_once(streams, steps, model.shapes().len()) {
                        if stop() {
                            return None;
                        }
                        let tape = self.run_in_order(model, params, (&cut, at), rows.clone(), steps);
                        nats = reading.note_part(tape, rows, at, nats, each);
                    }
                    reading.nats += nats;
                    std::mem::swap(&mut self.state, &mut self.ends);
                    took.in_order += (streams * steps) as u64;
                    at += steps;
                }
            }
        }
        reading.sweeps = self.parallel.map(|_| took);
        Some(reading)
    }

    /// Some blocks of every stream at once.
    fn run_window(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        place: (&Streams, usize),
        blocks: usize,
        config: ParallelConfig,
        took: &mut Sweeps,
    ) {
        let streams = place.0.streams();
        let layout = Layout::new(streams * blocks, config.block);
        let window = match &mut self.window {
            Some(window) if window.tape.layout() == layout => window,
            other => other.insert(Window::new(model, streams, blocks, config.block)),
        };
        window.run(model, params, place, &mut self.state, config, took);
        model.nats(params, &mut window.tape);
    }

    /// The next steps of some streams, one after the other.
    fn run_in_order(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        (cut, at): (&Streams, usize),
        rows: Range<usize>,
        steps: usize,
    ) -> &Tape<T> {
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
        let states = rows.start * model.state_width()..rows.end * model.state_width();
        cut.fill(&layout, at, rows, &mut tape.inputs, &mut tape.targets);
        model.prepare(params, tape);
        model.recur(params, tape, &self.state[states.clone()]);
        model.nats(params, tape);
        model.ends(tape, &mut self.ends[states]);
        tape
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
                    cut.fill(&layout, at, rows.clone(), &mut tape.inputs, &mut tape.targets);
                    model.prepare(&params, &mut tape);
                    model.recur(&params, &mut tape, &state[states.clone()]);
                    model.nats(&params, &mut tape);
                    nats = parts.note_part(&tape, rows, at, nats, &mut |_, _, _| {});
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
