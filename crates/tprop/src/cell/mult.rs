//! Multiplicative cells without non-linearity, for which each factor is a linear least-squares problem (the paper's
//! footnote): `h = gx ⊙ gh`, and the gated form `h = a ⊙ gx ⊙ gh + b ⊙ gh + c ⊙ gx + d`; gx = A x, gh = C h₋, no biases.
//!
//! The plain form can neither leave the zero state nor survive factors far from 1, so its texts begin in the state 1
//! and its weights are drawn around values that give gx ≈ 1 and gh ≈ h₋.

use super::gru::{split, split_mut};
use super::{Before, Cell, CellGradients, Factor, Tensor};
use crate::kernel::{Kernel, vectorize};
use crate::real::Real;

/// h = gx ⊙ gh.
#[derive(Debug)]
pub struct Mult;

impl<T: Real> Cell<T> for Mult {
    fn factors(&self) -> &'static [Factor] {
        &[Factor::Input, Factor::Recurrent]
    }

    fn gates(&self) -> usize {
        1
    }

    /// gh
    fn cached(&self) -> usize {
        1
    }

    fn biased(&self) -> bool {
        false
    }

    fn split_gradients(&self) -> bool {
        true
    }

    fn initial_state(&self) -> T {
        T::ONE
    }

    /// A product of many factors must stay near 1.
    fn init_scale(&self) -> f64 {
        0.1
    }

    fn centre(&self, tensor: Tensor, row: usize, col: usize, cols: usize) -> f64 {
        match tensor {
            Tensor::Embedding => 1.0,
            Tensor::Input => 1.0 / cols as f64,
            Tensor::Recurrent => f64::from(u8::from(row == col)),
            Tensor::Extra(_) => 0.0,
        }
    }

    fn forward(&self, next: &mut [T], cached: &mut [T], before: Before<T>, gh: &[T]) {
        for (((h, cached), &x), &g) in next.iter_mut().zip(cached).zip(before.gx).zip(gh) {
            *h = x * g;
            *cached = g;
        }
    }

    fn backward(&self, grads: CellGradients<T>, dnext: &[T], _next: &[T], cached: &mut [T], before: Before<T>) {
        grads.state.fill(T::ZERO);
        let rows = grads.gx.iter_mut().zip(grads.gh).zip(dnext).zip(cached).zip(before.gx);
        for ((((dx, dg), &dh), &mut g), &x) in rows {
            *dx = dh * g;
            *dg = dh * x;
        }
    }

    /// gx w
    fn diagonal(&self, diagonal: &mut [T], weights: &[T], _next: &[T], _cached: &[T], before: Before<T>) {
        let all = diagonal.iter_mut().zip(before.gx).zip(weights.iter().cycle());
        all.for_each(|((d, &x), &w)| *d = x * w);
    }
}

/// h = a ⊙ gx ⊙ gh + b ⊙ gh + c ⊙ gx + d.
#[derive(Debug)]
pub struct MultGated;

impl<T: Real> Cell<T> for MultGated {
    fn factors(&self) -> &'static [Factor] {
        &[Factor::Input, Factor::Recurrent, Factor::Gates]
    }

    fn gates(&self) -> usize {
        1
    }

    /// gh, and in the backward dh.
    fn cached(&self) -> usize {
        2
    }

    fn biased(&self) -> bool {
        false
    }

    fn split_gradients(&self) -> bool {
        true
    }

    fn extras(&self) -> &'static [&'static str] {
        &["gate_a", "gate_b", "gate_c", "gate_d"]
    }

    /// All three products present, no constant.
    fn centre(&self, tensor: Tensor, _row: usize, _col: usize, _cols: usize) -> f64 {
        match tensor {
            Tensor::Extra(gate) if gate < 3 => 1.0,
            _ => 0.0,
        }
    }

    fn forward(&self, next: &mut [T], cached: &mut [T], before: Before<T>, gh: &[T]) {
        vectorize(GatedForward { next, cached, before, gh });
    }

    fn backward(&self, grads: CellGradients<T>, dnext: &[T], _next: &[T], cached: &mut [T], before: Before<T>) {
        vectorize(GatedBackward { grads, dnext, cached, before });
    }

    /// (a gx + b) w
    fn diagonal(&self, diagonal: &mut [T], weights: &[T], _next: &[T], _cached: &[T], before: Before<T>) {
        let n = before.hidden;
        let [a, b, _, _] = split(before.extras, n);
        for (d, x) in diagonal.chunks_exact_mut(n).zip(before.gx.chunks_exact(n)) {
            for i in 0..n {
                d[i] = (a[i] * x[i] + b[i]) * weights[i];
            }
        }
    }

    fn extras_back(&self, dextras: &mut [T], hidden: usize, cached: &[T], gx: &[T]) {
        let n = hidden;
        let [da, db, dc, dd] = split_mut(dextras, n);
        for (cached, x) in cached.chunks_exact(2 * n).zip(gx.chunks_exact(n)) {
            let [g, dh] = split(cached, n);
            for i in 0..n {
                da[i] += dh[i] * x[i] * g[i];
                db[i] += dh[i] * g[i];
                dc[i] += dh[i] * x[i];
                dd[i] += dh[i];
            }
        }
    }
}

struct GatedForward<'a, T> {
    next: &'a mut [T],
    cached: &'a mut [T],
    before: Before<'a, T>,
    gh: &'a [T],
}

impl<T: Real> Kernel for GatedForward<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let n = self.before.hidden;
        let [a, b, c, d] = split(self.before.extras, n);
        let rows = self.next.chunks_exact_mut(n).zip(self.cached.chunks_exact_mut(2 * n));
        for ((h, cached), (x, g)) in rows.zip(self.before.gx.chunks_exact(n).zip(self.gh.chunks_exact(n))) {
            for i in 0..n {
                h[i] = a[i] * x[i] * g[i] + b[i] * g[i] + c[i] * x[i] + d[i];
                cached[i] = g[i];
            }
        }
    }
}

struct GatedBackward<'a, T> {
    grads: CellGradients<'a, T>,
    dnext: &'a [T],
    cached: &'a mut [T],
    before: Before<'a, T>,
}

impl<T: Real> Kernel for GatedBackward<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let n = self.before.hidden;
        let [a, b, c, _] = split(self.before.extras, n);
        self.grads.state.fill(T::ZERO);
        let grads = self.grads.gx.chunks_exact_mut(n).zip(self.grads.gh.chunks_exact_mut(n));
        let rows = self.dnext.chunks_exact(n).zip(self.cached.chunks_exact_mut(2 * n));
        for (((dx, dg), (dh, cached)), x) in grads.zip(rows).zip(self.before.gx.chunks_exact(n)) {
            let [g, cached_dh] = split_mut(cached, n);
            for i in 0..n {
                dx[i] = dh[i] * (a[i] * g[i] + c[i]);
                dg[i] = dh[i] * (a[i] * x[i] + b[i]);
                cached_dh[i] = dh[i];
            }
        }
    }
}
