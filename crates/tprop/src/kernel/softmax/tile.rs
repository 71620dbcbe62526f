//! What happens to one tile of logits: [word][token], tokens side by side in the vector lanes, so that maximum and sum over
//! words are plain vertical operations.

#![allow(clippy::needless_range_loop)] // lanes read best by index

use crate::kernel::{Kernel, Path, vectorize};
use crate::mat::{First, Panel};
use crate::real::Real;

/// Words of a tile. A tile, its weights and its hidden states stay in the second-level cache.
pub const ROWS: usize = 128;

/// Maxima, sums and factors of the tokens of one panel.
pub struct Columns<'a, T> {
    /// Largest logit so far; grows.
    pub top: &'a mut [T],
    /// Σ exp(logit − top) so far.
    pub sum: &'a mut [T],
    /// What sums and gradients made with the old maximum have to be multiplied with.
    pub shrink: &'a mut [T],
}

/// logits → exp(logits − top), where `top` is the maximum of this tile and all before it.
pub fn fold<T: Real>(tile: &mut [T], columns: Columns<T>) {
    match columns.top.len() {
        32 => vectorize(Fold::<T, 32> { tile, columns }),
        16 => vectorize(Fold::<T, 16> { tile, columns }),
        8 => vectorize(Fold::<T, 8> { tile, columns }),
        _ => vectorize(Fold::<T, 4> { tile, columns }),
    }
}

struct Fold<'a, T, const W: usize> {
    tile: &'a mut [T],
    columns: Columns<'a, T>,
}

impl<T: Real, const W: usize> Kernel for Fold<'_, T, W> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let top: &mut [T; W] = self.columns.top.try_into().expect("a panel");
        let sum: &mut [T; W] = self.columns.sum.try_into().expect("a panel");
        let shrink: &mut [T; W] = self.columns.shrink.try_into().expect("a panel");
        let (rows, _) = self.tile.as_chunks_mut::<W>();
        let mut m = *top;
        for row in rows.iter() {
            for j in 0..W {
                m[j] = m[j].max(row[j]);
            }
        }
        // Two chains hide the latency of the addition and halve the rounding error of the longest one.
        let mut s = [[T::ZERO; W]; 2];
        let (pairs, odd) = rows.as_chunks_mut::<2>();
        for pair in pairs {
            for (row, s) in pair.iter_mut().zip(&mut s) {
                for j in 0..W {
                    row[j] = (row[j] - m[j]).exp();
                    s[j] += row[j];
                }
            }
        }
        for row in odd {
            for j in 0..W {
                row[j] = (row[j] - m[j]).exp();
                s[0][j] += row[j];
            }
        }
        for j in 0..W {
            shrink[j] = (top[j] - m[j]).exp();
            sum[j] = sum[j].mul_add(shrink[j], s[0][j] + s[1][j]);
            top[j] = m[j];
        }
    }
}

/// factors[i] = exp(factors[i] − tops[i]) · shares[i]: from the maximum that exponentials refer to, to what turns them into
/// probabilities times a scale.
pub fn factors<T: Real>(factors: &mut [T], tops: &[T], shares: &[T]) {
    vectorize(Factors { factors, tops, shares });
}

struct Factors<'a, T> {
    factors: &'a mut [T],
    tops: &'a [T],
    shares: &'a [T],
}

impl<T: Real> Kernel for Factors<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for ((f, t), s) in self.factors.iter_mut().zip(self.tops).zip(self.shares) {
            *f = (*f - *t).exp() * *s;
        }
    }
}

/// Each row of the tile times the factors of its columns: a product with nothing, whose sums begin at the scaled tile.
/// (LLVM would vectorise a plain loop across the rows, with gathers.)
pub fn scale<T: Real>(path: Path, tile: &mut [T], factors: &[T]) {
    let width = factors.len();
    assert!(width == T::panel_width(path) && tile.len().is_multiple_of(width));
    let panel = Panel {
        c: tile.as_mut_ptr(),
        c_stride: width,
        a: std::ptr::null(),
        a_row: 0,
        a_col: 1,
        b: std::ptr::null(),
        rows: tile.len() / width,
        cols: width,
        k: 0,
        segment: 1,
        jump: 0,
        first: First::Scaled(factors.as_ptr()),
        ahead: std::ptr::null(),
        ahead_lines: 0,
    };
    // SAFETY: with k = 0 neither A nor B is read; the tile has whole rows of a panel's width.
    unsafe { T::panel(path, &panel) };
}
