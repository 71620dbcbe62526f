//! A block's derivative, unit by unit: the product of its steps' diagonals ([`crate::cell::Cell::diagonal`]). It stands in for the
//! Jacobian ∂F/∂s, of which it is neither the diagonal (but for one step) nor a part: what passes through other units is left out.
//!
//! Of each unit it has a matrix of vectors × vectors values: one number for most cells, 2 × 2 for the `[h | c]` of LSTM. Entry (i, j)
//! of all units of a layer stands in one run, so that products of such matrices are element-wise.

use rayon::prelude::*;

use crate::cell::Before;
use crate::params::Params;
use crate::real::Real;

use super::{Model, Tape};

/// States and matrices unit by unit: layers, each of vectors · hidden values or vectors² · hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    layers: usize,
    vectors: usize,
    hidden: usize,
}

/// E or its transpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// E
    Plain,
    /// Eᵀ
    Transposed,
}

/// What one sweep over consecutive blocks of some streams found, block after block.
#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a, T> {
    /// s: where the blocks started.
    pub starts: &'a [T],
    /// F: where they ended.
    pub ends: &'a [T],
    /// d: their derivatives unit by unit.
    pub diagonals: &'a [T],
}

impl<T: Real> Model<T> {
    /// How a state falls into units.
    pub fn units(&self) -> Units {
        Units { layers: self.config.layers, vectors: self.cell.vectors(), hidden: self.config.hidden }
    }

    /// The product of the diagonals of all steps of the last [`Model::recur`], into `diagonals` (rows × [`Units::matrix_width`]).
    pub fn diagonals(&self, params: &Params<T>, tape: &Tape<T>, diagonals: &mut [T]) {
        let (layout, h, cell) = (tape.layout, self.config.hidden, &self.cell);
        let (steps, group, units) = (layout.steps, layout.group, self.units());
        let (wide, width, cached) = (cell.gates() * h, self.layer_width(), (cell.cached() * h).max(1));
        let (all, own) = (units.matrix_width(), units.matrix_width() / units.layers);
        let one = Units { layers: 1, ..units };
        assert_eq!(diagonals.len(), layout.rows * all);
        for (l, (ids, layer)) in self.layers.iter().zip(&tape.layers).enumerate() {
            let w = params.get(ids.w_hh);
            let weights: Vec<T> = (0..wide).map(|row| w[row * h + row % h]).collect();
            let extras = self.extras(params, ids);
            let groups = (
                diagonals.par_chunks_mut(group * all),
                layer.states.par_chunks(group * (steps + 1) * width),
                layer.cached.par_chunks(group * steps * cached),
                layer.gx.par_chunks(group * steps * wide),
            );
            groups.into_par_iter().for_each(|(diagonals, states, all_cached, gx)| {
                let rows = diagonals.len() / all;
                let mut step = vec![T::ZERO; rows * own];
                let mut scratch = vec![T::ZERO; own];
                for t in 0..steps {
                    let (state, next) = states[t * rows * width..].split_at(rows * width);
                    let gx = &gx[t * rows * wide..][..rows * wide];
                    let cached = &all_cached[t * rows * cached..][..rows * cached];
                    let before = Before { hidden: h, state, gx, extras };
                    cell.diagonal(&mut step, &weights, &next[..rows * width], cached, before);
                    for (product, e) in diagonals.chunks_exact_mut(all).zip(step.chunks_exact(own)) {
                        let product = &mut product[l * own..][..own];
                        if t == 0 {
                            product.copy_from_slice(e);
                        } else {
                            one.chain(product, e, Side::Plain, &mut scratch);
                        }
                    }
                }
            });
        }
    }
}

impl Units {
    /// Values of one row's matrices.
    pub fn matrix_width(self) -> usize {
        self.layers * self.vectors * self.vectors * self.hidden
    }

    /// Vectors of a unit: 1, or 2 with a c.
    pub fn vectors(self) -> usize {
        self.vectors
    }

    /// Units of all layers.
    pub fn count(self) -> usize {
        self.layers * self.hidden
    }

    /// Where entry `i` of a unit stands in a row with `each` entries a unit.
    fn place(self, unit: usize, i: usize, each: usize) -> usize {
        (unit / self.hidden * each + i) * self.hidden + unit % self.hidden
    }

    /// A unit's matrix in a row of matrices.
    pub fn matrix<T: Real, const V: usize>(self, row: &[T], unit: usize) -> [[f64; V]; V] {
        std::array::from_fn(|i| std::array::from_fn(|j| row[self.place(unit, i * V + j, V * V)].f64()))
    }

    /// A unit's state in a row.
    pub fn vector<T: Real, const V: usize>(self, row: &[T], unit: usize) -> [f64; V] {
        std::array::from_fn(|i| row[self.place(unit, i, V)].f64())
    }

    /// Puts a unit's state into a row.
    pub fn put_vector<T: Real, const V: usize>(self, row: &mut [T], unit: usize, values: [f64; V]) {
        (0..V).for_each(|i| row[self.place(unit, i, V)] = T::of(values[i]));
    }

    /// y += E x, or Eᵀ x, for any number of rows.
    pub fn add_product<T: Real>(self, y: &mut [T], e: &[T], x: &[T], side: Side) {
        let Self { vectors: v, hidden: n, .. } = self;
        for ((y, x), e) in y.chunks_exact_mut(v * n).zip(x.chunks_exact(v * n)).zip(e.chunks_exact(v * v * n)) {
            for (i, y) in y.chunks_exact_mut(n).enumerate() {
                for (j, x) in x.chunks_exact(n).enumerate() {
                    let e = self.entry(e, i, j, side);
                    y.iter_mut().zip(e).zip(x).for_each(|((y, &e), &x)| *y += e * x);
                }
            }
        }
    }

    /// The blocks' starts after a sweep: s⁺_{k+1} = F_k + d_k (s⁺_k − s_k). `start` (one row a stream) is s⁺ of the first block and becomes
    /// that of the block behind the last one.
    pub fn scan_starts<T: Real>(self, sweep: Sweep<T>, start: &mut [T], starts: &mut [T]) {
        let row = self.count() * self.vectors;
        let matrices = start.len() / row * self.matrix_width();
        let blocks = starts.chunks_exact_mut(start.len()).zip(sweep.starts.chunks_exact(start.len()));
        let found = sweep.ends.chunks_exact(start.len()).zip(sweep.diagonals.chunks_exact(matrices));
        let mut change = vec![T::ZERO; start.len()];
        for ((new, old), (end, d)) in blocks.zip(found) {
            new.copy_from_slice(start);
            change.iter_mut().zip(&*new).zip(old).for_each(|((change, &new), &old)| *change = new - old);
            start.copy_from_slice(end);
            self.add_product(start, d, &change, Side::Plain);
        }
    }

    /// P ← E P, or Eᵀ P, for one row; `scratch` has the size of P.
    pub fn chain<T: Real>(self, product: &mut [T], e: &[T], side: Side, scratch: &mut [T]) {
        let Self { vectors: v, hidden: n, .. } = self;
        if v == 1 {
            return product.iter_mut().zip(e).for_each(|(p, &e)| *p *= e);
        }
        scratch.copy_from_slice(product);
        let layers = product.chunks_exact_mut(v * v * n).zip(scratch.chunks_exact(v * v * n));
        for ((new, old), e) in layers.zip(e.chunks_exact(v * v * n)) {
            for i in 0..v {
                for k in 0..v {
                    let new = &mut new[(i * v + k) * n..][..n];
                    new.fill(T::ZERO);
                    for j in 0..v {
                        let (e, old) = (self.entry(e, i, j, side), &old[(j * v + k) * n..][..n]);
                        new.iter_mut().zip(e).zip(old).for_each(|((new, &e), &old)| *new += e * old);
                    }
                }
            }
        }
    }

    /// Eᵀ of some rows.
    pub fn transposed<T: Real>(self, e: &[T]) -> Vec<T> {
        let Self { vectors: v, hidden: n, .. } = self;
        let layers = e.chunks_exact(v * v * n);
        let entries = (0..v * v).map(|at| (at / v, at % v));
        layers
            .flat_map(|e| entries.clone().flat_map(move |(i, j)| self.entry(e, i, j, Side::Transposed)))
            .copied()
            .collect()
    }

    /// Entry (i, j) of all units of a layer.
    fn entry<T>(self, e: &[T], i: usize, j: usize, side: Side) -> &[T] {
        let at = match side {
            Side::Plain => i * self.vectors + j,
            Side::Transposed => j * self.vectors + i,
        };
        &e[at * self.hidden..][..self.hidden]
    }
}
