//! Rows of a window, run in pieces whose tapes stay small. A piece lies in one share; the pieces depend on the model's shape and on
//! the shares alone, so that sums over them do not depend on the ranks.

use std::ops::Range;

use crate::clock::Clock;
use crate::comm::gradient::Place;
use crate::model::{Model, Tape};
use crate::real::Real;
use crate::window::Layout;

/// Tapes for all rows of a window: one a piece if that fits into memory, otherwise one for each number of rows.
#[derive(Debug)]
pub(super) struct Pieces<T> {
    pieces: Vec<Piece>,
    tapes: Vec<Tape<T>>,
    /// Every piece has a tape of its own, which keeps what it holds.
    pub kept: bool,
}

#[derive(Clone, Debug)]
struct Piece {
    rows: Range<usize>,
    tape: usize,
    first: bool,
    place: Place,
}

impl<T: Real> Pieces<T> {
    /// For the rows of each of a rank's shares, of `steps` steps, in tapes of about `tape_mb` (see [`crate::model::ModelConfig`]).
    pub fn new(model: &Model<T>, shares: &[Range<usize>], steps: usize) -> Self {
        let at_once = Self::at_once(model, steps);
        let mut pieces = Vec::new();
        for (share, rows) in shares.iter().enumerate() {
            for from in rows.clone().step_by(at_once) {
                let rows = from..rows.end.min(from + at_once);
                let place = Place { share, last: rows.end == shares[share].end };
                pieces.push(Piece { first: from == shares[share].start, rows, tape: 0, place });
            }
        }
        let all = shares.last().map_or(0, |rows| rows.end);
        let kept = all <= at_once || pieces.len() == 1;
        let mut tapes: Vec<Tape<T>> = Vec::new();
        for piece in &mut pieces {
            let same = tapes.iter().position(|tape| !kept && tape.layout().rows == piece.rows.len());
            piece.tape = same.unwrap_or(tapes.len());
            if same.is_none() {
                tapes.push(model.tape(Layout::new(piece.rows.len(), steps)));
            }
        }
        Self { pieces, tapes, kept }
    }

    /// Rows of a whole piece.
    fn at_once(model: &Model<T>, steps: usize) -> usize {
        let fit = (model.config().tape_mb << 20) / model.tape_bytes_per_token().saturating_mul(steps);
        (fit / 32 * 32).max(32)
    }

    /// Bytes of the tapes for `rows` rows of one share: those of a whole piece, and of one with the rest.
    pub fn bytes(model: &Model<T>, rows: usize, steps: usize) -> u64 {
        let at_once = Self::at_once(model, steps);
        let held = if rows <= at_once { rows } else { at_once + rows % at_once };
        (held as u64).saturating_mul(steps as u64).saturating_mul(model.tape_bytes_per_token() as u64)
    }

    /// Number of pieces.
    pub fn count(&self) -> usize {
        self.pieces.len()
    }

    /// The pieces of a share.
    pub fn of_share(&self, share: usize) -> Range<usize> {
        let at = |share| self.pieces.partition_point(|piece| piece.place.share < share);
        at(share)..at(share + 1)
    }

    /// Whether some share has several pieces.
    pub fn several_a_share(&self) -> bool {
        self.pieces.iter().any(|piece| !piece.place.last)
    }

    /// Rows of piece `i`, and its tape.
    pub fn get(&mut self, i: usize) -> (Range<usize>, &mut Tape<T>) {
        let piece = &self.pieces[i];
        (piece.rows.clone(), &mut self.tapes[piece.tape])
    }

    /// Rows of piece `i`.
    pub fn rows(&self, i: usize) -> Range<usize> {
        self.pieces[i].rows.clone()
    }

    /// Where piece `i` stands in its share.
    pub fn place(&self, i: usize) -> Place {
        self.pieces[i].place
    }

    /// Whether piece `i` begins a share.
    pub fn begins(&self, i: usize) -> bool {
        self.pieces[i].first
    }

    /// The piece with this row.
    pub fn holding(&self, row: usize) -> usize {
        self.pieces.partition_point(|piece| piece.rows.end <= row)
    }

    /// Moves the tapes' bookings.
    pub fn take_clock(&mut self, clock: &mut Clock) {
        self.tapes.iter_mut().for_each(|tape| clock.take(&mut tape.clock));
    }
}
