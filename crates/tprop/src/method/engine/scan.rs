//! One scan over the blocks in place of many sweeps. Starts and pulls are recursions over blocks, forward and backward:
//!
//! ```text
//! s_{k+1} = F_k(s_k)            a sweep has F at the old starts:  s⁺_{k+1} = F_k + d_k (s⁺_k − s_k)
//! p_k = ℓ'_{k+1} + J_{k+1}ᵀ p_{k+1}     a state step has the gradients g:  σ_k = g_k + d_kᵀ σ_{k+1},  t_k ← t_k − η σ_k
//! ```
//!
//! d is the block's derivative unit by unit ([`crate::model::Units`]), so a scan is element-wise. Blocks of a share follow each other; shares
//! are chained along their tree ([`crate::comm::scan`]), so that the bits do not depend on the ranks.

use std::ops::Range;

use super::Engine;
use crate::comm::Comm;
use crate::comm::scan::{Affine, Chain, Order, scan};
use crate::model::{Side, Sweep, Units};
use crate::real::Real;

/// The rows of one block of every stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub units: Units,
    pub streams: usize,
    pub width: usize,
}

impl Column {
    /// Values of the states, and of the matrices, of one block of every stream.
    fn values(self) -> usize {
        self.streams * self.width
    }

    /// The states of block `k`.
    fn states(self, k: usize) -> Range<usize> {
        k * self.values()..(k + 1) * self.values()
    }

    /// The matrices of block `k`.
    fn matrices(self, k: usize) -> Range<usize> {
        let all = self.streams * self.units.matrix_width();
        k * all..(k + 1) * all
    }

    /// The states of some blocks.
    fn states_of(self, blocks: &Range<usize>) -> Range<usize> {
        self.states(blocks.start).start..self.states(blocks.end).start
    }

    /// The matrices of some blocks.
    fn matrices_of(self, blocks: &Range<usize>) -> Range<usize> {
        self.matrices(blocks.start).start..self.matrices(blocks.end).start
    }

    /// y += E x for every stream.
    fn add_product<T: Real>(self, y: &mut [T], e: &[T], x: &[T], side: Side) {
        let rows = y.chunks_exact_mut(self.width).zip(x.chunks_exact(self.width));
        for ((y, x), e) in rows.zip(e.chunks_exact(self.units.matrix_width())) {
            self.units.add_product(y, e, x, side);
        }
    }

    /// The map x ↦ b + E x after another one.
    fn then<T: Real>(self, map: &mut Affine<T>, b: &[T], e: &[T], side: Side) {
        let (old_b, product) = map.values.split_at_mut(self.values());
        let mut next = b.to_vec();
        self.add_product(&mut next, e, old_b, side);
        old_b.copy_from_slice(&next);
        let each = self.units.matrix_width();
        let mut scratch = vec![T::ZERO; each];
        for (product, e) in product.chunks_exact_mut(each).zip(e.chunks_exact(each)) {
            self.units.chain(product, e, side, &mut scratch);
        }
    }
}

/// Maps of shares are matrices as they are, whatever made them.
impl<T: Real> Chain<T> for Column {
    fn lengths(&self) -> (usize, usize) {
        (self.values(), self.values() + self.matrices(0).len())
    }

    fn chain(&self, first: &Affine<T>, second: &Affine<T>) -> Affine<T> {
        let (b, e) = second.values.split_at(self.values());
        let mut map = first.clone();
        self.then(&mut map, b, e, Side::Plain);
        map
    }

    fn apply(&self, map: &Affine<T>, x: &[T]) -> Vec<T> {
        let (b, e) = map.values.split_at(self.values());
        let mut y = b.to_vec();
        self.add_product(&mut y, e, x, Side::Plain);
        y
    }
}

impl<T: Real> Engine<T> {
    pub(super) fn column(&self, model: &crate::model::Model<T>) -> Column {
        Column { units: model.units(), streams: self.config.streams, width: self.states.width() }
    }

    /// The starts after a sweep from `d_start`, where the starts before it stand: s⁺_{k+1} = F_k + d_k (s⁺_k − s_k).
    pub(super) fn scan_starts(&mut self, comm: &dyn Comm, column: Column) {
        let parts = self.geometry.shares.parts();
        let (used, ends) = (&self.states.d_start, &self.found.ends);
        let d = self.found.diagonals.as_ref().expect("a scan needs diagonals");
        // b_k = F_k − d_k s_k
        let mut map = |share: usize| {
            let mut blocks = parts[share].clone();
            let b = |k: usize| {
                let back: Vec<T> = used[column.states(k)].iter().map(|&s| -s).collect();
                let mut b = ends[column.states(k)].to_vec();
                column.add_product(&mut b, &d[column.matrices(k)], &back, Side::Plain);
                b
            };
            let first = blocks.next().expect("a share has a block");
            let mut map = Affine { values: [&b(first)[..], &d[column.matrices(first)]].concat() };
            blocks.for_each(|k| column.then(&mut map, &b(k), &d[column.matrices(k)], Side::Plain));
            map
        };
        let first = self.states.starts[column.states(0)].to_vec();
        let inputs = scan(comm, &self.geometry.shares, Order::Forward, &column, &mut map, &first);
        let mut behind = Vec::new();
        for (blocks, mut start) in parts.into_iter().zip(inputs) {
            let (states, matrices) = (column.states_of(&blocks), column.matrices_of(&blocks));
            let sweep = Sweep {
                starts: &self.states.d_start[states.clone()],
                ends: &self.found.ends[states.clone()],
                diagonals: &d[matrices],
            };
            column.units.scan_starts(sweep, &mut start, &mut self.states.starts[states]);
            behind = start;
        }
        // Another rank's first start reaches this one after the init.
        if self.geometry.span.has_last() && self.states.continues(&self.config) {
            self.states.behind_mut().copy_from_slice(&behind);
        }
    }

    /// σ in place of the gradients of all states: σ_k = g_k + d_kᵀ σ_{k+1}.
    pub(super) fn scan_pulls(&mut self, comm: &dyn Comm, column: Column) {
        let parts = self.geometry.shares.parts();
        let sigma = self.states.gradients.as_mut().expect("a scan needs all gradients");
        let d = self.found.diagonals.as_ref().expect("a scan needs diagonals");
        let transposed = |e: &[T]| column.units.transposed(e);
        let mut map = |share: usize| {
            let mut blocks = parts[share].clone().rev();
            let last = blocks.next().expect("a share has a block");
            let e = transposed(&d[column.matrices(last)]);
            let mut map = Affine { values: [&sigma[column.states(last)], &e].concat() };
            for k in blocks {
                column.then(&mut map, &sigma[column.states(k)], &d[column.matrices(k)], Side::Transposed);
            }
            map
        };
        // Behind the last block of all: 0 unless its target moves.
        let behind = sigma[sigma.len() - column.values()..].to_vec();
        let inputs = scan(comm, &self.geometry.shares, Order::Backward, &column, &mut map, &behind);
        for (blocks, mut after) in parts.into_iter().zip(inputs) {
            for k in blocks.rev() {
                let here = &mut sigma[column.states(k)];
                column.add_product(here, &d[column.matrices(k)], &after, Side::Transposed);
                after.copy_from_slice(here);
            }
        }
    }
}
