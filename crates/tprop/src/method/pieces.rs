//! Rows of a window, run in pieces whose tapes stay small. The pieces depend on the model's shape alone.

use std::ops::Range;

use crate::clock::Clock;
use crate::model::{Model, Tape};
use crate::real::Real;
use crate::window::Layout;

/// Tapes for all rows of a window: one for full pieces and one for what is left over.
#[derive(Debug)]
pub(super) struct Pieces<T> {
    tapes: Vec<Tape<T>>,
    at_once: usize,
    rows: usize,
}

impl<T: Real> Pieces<T> {
    /// For `rows` rows of `steps` steps, in tapes of about `tape_mb` (see [`crate::model::ModelConfig`]).
    pub fn new(model: &Model<T>, rows: usize, steps: usize) -> Self {
        let fit = (model.config().tape_mb << 20) / (model.tape_bytes_per_token() * steps);
        Self::of(model, rows, steps, (fit / 32 * 32).max(32))
    }

    /// The same with at most `at_once` rows a piece.
    pub fn of(model: &Model<T>, rows: usize, steps: usize, at_once: usize) -> Self {
        let at_once = at_once.min(rows.max(1));
        let left = rows % at_once;
        let shapes = [at_once, left].into_iter().filter(|&n| n > 0 && n <= rows);
        let tapes = shapes.map(|n| model.tape(Layout::new(n, steps))).collect();
        Self { tapes, at_once, rows }
    }

    /// Number of pieces.
    pub fn count(&self) -> usize {
        self.rows.div_ceil(self.at_once)
    }

    /// Rows of piece `i`, and its tape.
    pub fn get(&mut self, i: usize) -> (Range<usize>, &mut Tape<T>) {
        let rows = i * self.at_once..self.rows.min((i + 1) * self.at_once);
        let which = usize::from(rows.len() < self.at_once);
        (rows, &mut self.tapes[which])
    }

    /// Moves the tapes' bookings.
    pub fn take_clock(&mut self, clock: &mut Clock) {
        self.tapes.iter_mut().for_each(|tape| clock.take(&mut tape.clock));
    }
}
