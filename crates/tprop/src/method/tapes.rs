//! Tapes for the rows of a window, and what each of them still holds. Rows run in chunks whose tapes stay small. A chunk lies in
//! one share; chunks depend on the model's shape and on the shares alone, so that sums over them do not depend on the ranks.
//!
//! If all chunks have tapes of their own, what a tape holds is used again until something it was computed from changes:
//! [`Tapes::tokens_changed`], [`Tapes::starts_moved`] and [`Tapes::theta_moved`] say so.

use std::ops::Range;

use super::Learner;
use crate::clock::Clock;
use crate::comm::gradient::ShareChunk;
use crate::model::{Model, Tape, Weight};
use crate::params::Grads;
use crate::real::Real;
use crate::window::{Layout, Streams};

/// Tapes for all rows of a window: one a chunk if that fits into memory, otherwise one for each number of rows.
#[derive(Debug)]
pub(super) struct Tapes<T> {
    chunks: Vec<Chunk>,
    tapes: Vec<Tape<T>>,
    /// Every chunk has a tape of its own.
    cached: bool,
}

#[derive(Clone, Debug)]
struct Chunk {
    rows: Range<usize>,
    tape: usize,
    first: bool,
    of: ShareChunk,
    holds: Holds,
}

/// What of the present window a chunk's tape holds.
#[derive(Clone, Copy, Debug, Default)]
struct Holds {
    tokens: bool,
    inputs: bool,
    recurrence: bool,
    loss: bool,
    /// The output layer's gradient was added to a sum, too.
    output_gradient: bool,
}

/// What the recurrence of a rank's blocks comes to.
#[derive(Debug)]
pub(super) struct Found<T> {
    /// F: where they end.
    pub ends: Vec<T>,
    /// d: their derivatives unit by unit, if the method looks at them.
    pub diagonals: Option<Vec<T>>,
}

/// The part of the text that a window reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowText<'a> {
    /// The split in streams.
    pub streams: Streams<'a>,
    /// Where the window begins in each of them.
    pub at: usize,
    /// This rank's first row among those of the window.
    pub first: usize,
}

impl WindowText<'_> {
    /// Inputs and targets of some of this rank's rows.
    pub fn fill<T: Real>(&self, rows: Range<usize>, tape: &mut Tape<T>) {
        let rows = self.first + rows.start..self.first + rows.end;
        self.streams.fill(&tape.layout(), self.at, rows, &mut tape.inputs, &mut tape.targets);
    }
}

impl<T: Real> Tapes<T> {
    /// For the rows of each of a rank's shares, of `steps` steps, in tapes of about `tape_mb` (see [`crate::model::ModelConfig`]).
    pub fn new(model: &Model<T>, shares: &[Range<usize>], steps: usize) -> Self {
        let at_once = Self::at_once(model, steps);
        let mut chunks = Vec::new();
        for (share, rows) in shares.iter().enumerate() {
            for from in rows.clone().step_by(at_once) {
                let rows = from..rows.end.min(from + at_once);
                let of = ShareChunk { share, last: rows.end == shares[share].end };
                chunks.push(Chunk { first: from == shares[share].start, rows, tape: 0, of, holds: Holds::default() });
            }
        }
        let all = shares.last().map_or(0, |rows| rows.end);
        let cached = all <= at_once || chunks.len() == 1;
        let mut tapes: Vec<Tape<T>> = Vec::new();
        for chunk in &mut chunks {
            let same = tapes.iter().position(|tape| !cached && tape.layout().rows == chunk.rows.len());
            chunk.tape = same.unwrap_or(tapes.len());
            if same.is_none() {
                tapes.push(model.tape(Layout::new(chunk.rows.len(), steps)));
            }
        }
        Self { chunks, tapes, cached }
    }

    /// Rows of a whole chunk.
    fn at_once(model: &Model<T>, steps: usize) -> usize {
        let fit = (model.config().tape_mb << 20) / model.tape_bytes_per_token().saturating_mul(steps);
        (fit / 32 * 32).max(32)
    }

    /// Bytes of the tapes for `rows` rows of one share: those of a whole chunk, and of one with the rest.
    pub fn bytes(model: &Model<T>, rows: usize, steps: usize) -> u64 {
        let at_once = Self::at_once(model, steps);
        let held = if rows <= at_once { rows } else { at_once + rows % at_once };
        (held as u64).saturating_mul(steps as u64).saturating_mul(model.tape_bytes_per_token() as u64)
    }

    /// Number of chunks.
    pub fn count(&self) -> usize {
        self.chunks.len()
    }

    /// The chunks of a share.
    pub fn of_share(&self, share: usize) -> Range<usize> {
        let at = |share| self.chunks.partition_point(|chunk| chunk.of.share < share);
        at(share)..at(share + 1)
    }

    /// Whether some share has several chunks.
    pub fn several_a_share(&self) -> bool {
        self.chunks.iter().any(|chunk| !chunk.of.last)
    }

    /// Whether tapes hold what was computed until something changes.
    pub fn cached(&self) -> bool {
        self.cached
    }

    /// Rows of chunk `i`, and its tape.
    pub fn get(&mut self, i: usize) -> (Range<usize>, &mut Tape<T>) {
        let chunk = &self.chunks[i];
        (chunk.rows.clone(), &mut self.tapes[chunk.tape])
    }

    /// Rows of chunk `i`.
    pub fn rows(&self, i: usize) -> Range<usize> {
        self.chunks[i].rows.clone()
    }

    /// Which chunk of its share chunk `i` is.
    pub fn of(&self, i: usize) -> ShareChunk {
        self.chunks[i].of
    }

    /// Whether chunk `i` begins a share.
    pub fn begins_share(&self, i: usize) -> bool {
        self.chunks[i].first
    }

    /// The chunk with this row.
    pub fn with_row(&self, row: usize) -> usize {
        self.chunks.partition_point(|chunk| chunk.rows.end <= row)
    }

    /// Another window, or another place in time: tapes hold nothing of it.
    pub fn tokens_changed(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.holds = Holds::default());
    }

    /// The blocks start from other states.
    pub fn starts_moved(&mut self) {
        for Chunk { holds, .. } in &mut self.chunks {
            *holds = Holds { tokens: holds.tokens, inputs: holds.inputs, ..Holds::default() };
        }
    }

    /// θ is another.
    pub fn theta_moved(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.holds = Holds { tokens: chunk.holds.tokens, ..Holds::default() });
    }

    /// Tokens and input products of chunk `i`.
    pub fn prepare(&mut self, i: usize, l: &Learner<T>, text: WindowText) {
        let Chunk { rows, tape, holds, .. } = &mut self.chunks[i];
        let tape = &mut self.tapes[*tape];
        if !holds.tokens {
            text.fill(rows.clone(), tape);
        }
        if !holds.inputs {
            l.model.prepare(&l.params, tape);
        }
        (holds.tokens, holds.inputs) = (self.cached, self.cached);
    }

    /// The recurrence of chunk `i` from its rows of `starts`; where it ends, and if wanted its diagonals, into its rows of `found`.
    pub fn recur(&mut self, i: usize, l: &Learner<T>, text: WindowText, starts: &[T], found: &mut Found<T>) {
        if self.chunks[i].holds.recurrence {
            return;
        }
        self.prepare(i, l, text);
        let cached = self.cached;
        let (rows, tape) = self.get(i);
        let width = l.model.state_width();
        let at = rows.start * width..rows.end * width;
        l.model.recur(&l.params, tape, &starts[at.clone()]);
        l.model.ends(tape, &mut found.ends[at]);
        if let Some(diagonals) = &mut found.diagonals {
            let width = l.model.units().matrix_width();
            l.model.diagonals(&l.params, tape, &mut diagonals[rows.start * width..rows.end * width]);
        }
        let holds = &mut self.chunks[i].holds;
        (holds.recurrence, holds.loss) = (cached, false);
    }

    /// The output layer of chunk `i` ([`Model::loss`]).
    pub fn loss(&mut self, i: usize, l: &Learner<T>, weight: Weight<T>, grads: Option<&mut Grads<T>>) -> f64 {
        let cached = self.cached;
        let (_, tape) = self.get(i);
        let with_gradient = grads.is_some();
        let nats = l.model.loss(&l.params, tape, weight.scale, weight.ignore, grads);
        let holds = &mut self.chunks[i].holds;
        (holds.loss, holds.output_gradient) = (cached, with_gradient && cached);
        nats
    }

    /// Whether the gradient of chunk `i`'s loss in its states is there.
    pub fn holds_loss(&self, i: usize) -> bool {
        self.chunks[i].holds.loss
    }

    /// Whether the gradient of chunk `i`'s output layer was added to a sum already.
    pub fn holds_output_gradient(&self, i: usize) -> bool {
        self.chunks[i].holds.output_gradient
    }

    /// Moves the tapes' bookings.
    pub fn take_clock(&mut self, clock: &mut Clock) {
        self.tapes.iter_mut().for_each(|tape| clock.take(&mut tape.clock));
    }
}
