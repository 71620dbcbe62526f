//! Gated recurrent unit, PyTorch's form (the reset gate acts after the recurrent product; gates in the order r z n):
//!
//! ```text
//! r = σ(gx_r + gh_r)    z = σ(gx_z + gh_z)    n = tanh(gx_n + r ⊙ gh_n)    h = (1 − z) ⊙ n + z ⊙ h₋
//! ```

use super::{Before, Cell, CellGradients};
use crate::kernel::{Kernel, vectorize};
use crate::real::Real;

/// The GRU cell.
#[derive(Debug)]
pub struct Gru;

impl<T: Real> Cell<T> for Gru {
    fn gates(&self) -> usize {
        3
    }

    /// r, z, n and gh_n.
    fn cached(&self) -> usize {
        4
    }

    fn split_gradients(&self) -> bool {
        true
    }

    fn forward(&self, next: &mut [T], cached: &mut [T], before: Before<T>, gh: &[T]) {
        vectorize(Forward { next, cached, before, gh });
    }

    fn backward(&self, grads: CellGradients<T>, dnext: &[T], _next: &[T], cached: &mut [T], before: Before<T>) {
        vectorize(Backward { grads, dnext, cached, before });
    }

    fn diagonal(&self, diagonal: &mut [T], weights: &[T], _next: &[T], cached: &[T], before: Before<T>) {
        vectorize(Diagonal { diagonal, weights, cached, before });
    }
}

struct Forward<'a, T> {
    next: &'a mut [T],
    cached: &'a mut [T],
    before: Before<'a, T>,
    gh: &'a [T],
}

impl<T: Real> Kernel for Forward<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let n = self.before.hidden;
        let rows = self.next.chunks_exact_mut(n).zip(self.cached.chunks_exact_mut(4 * n));
        let rows = rows.zip(self.before.state.chunks_exact(n));
        let products = self.before.gx.chunks_exact(3 * n).zip(self.gh.chunks_exact(3 * n));
        for (((h, cached), h0), (gx, gh)) in rows.zip(products) {
            let [r, z, c, a] = split_mut(cached, n);
            let ([xr, xz, xn], [hr, hz, hn]) = (split(gx, n), split(gh, n));
            for i in 0..n {
                r[i] = (xr[i] + hr[i]).sigmoid();
                z[i] = (xz[i] + hz[i]).sigmoid();
                a[i] = hn[i];
                c[i] = (xn[i] + r[i] * hn[i]).tanh();
                h[i] = c[i] + z[i] * (h0[i] - c[i]);
            }
        }
    }
}

struct Backward<'a, T> {
    grads: CellGradients<'a, T>,
    dnext: &'a [T],
    cached: &'a [T],
    before: Before<'a, T>,
}

impl<T: Real> Kernel for Backward<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let n = self.before.hidden;
        let grads = self.grads.gx.chunks_exact_mut(3 * n).zip(self.grads.gh.chunks_exact_mut(3 * n));
        let grads = grads.zip(self.grads.state.chunks_exact_mut(n));
        let rows = self.dnext.chunks_exact(n).zip(self.cached.chunks_exact(4 * n));
        for ((((dgx, dgh), dh0), (dh, cached)), h0) in grads.zip(rows).zip(self.before.state.chunks_exact(n)) {
            let [r, z, c, a] = split(cached, n);
            let ([xr, xz, xn], [hr, hz, hn]) = (split_mut(dgx, n), split_mut(dgh, n));
            for i in 0..n {
                let dz = dh[i] * (h0[i] - c[i]) * z[i] * (T::ONE - z[i]);
                let dn = dh[i] * (T::ONE - z[i]) * (T::ONE - c[i] * c[i]);
                let dr = dn * a[i] * r[i] * (T::ONE - r[i]);
                xr[i] = dr;
                hr[i] = dr;
                xz[i] = dz;
                hz[i] = dz;
                xn[i] = dn;
                hn[i] = dn * r[i];
                dh0[i] = dh[i] * z[i];
            }
        }
    }
}

/// z + (1 − z)(1 − n²)[ r w_n + a r (1 − r) w_r ] + (h₋ − n) z (1 − z) w_z with a = gh_n.
struct Diagonal<'a, T> {
    diagonal: &'a mut [T],
    weights: &'a [T],
    cached: &'a [T],
    before: Before<'a, T>,
}

impl<T: Real> Kernel for Diagonal<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let n = self.before.hidden;
        let [wr, wz, wn] = split(self.weights, n);
        let rows = self.diagonal.chunks_exact_mut(n).zip(self.cached.chunks_exact(4 * n));
        for ((d, cached), h0) in rows.zip(self.before.state.chunks_exact(n)) {
            let [r, z, c, a] = split(cached, n);
            for i in 0..n {
                let through_n = r[i] * wn[i] + a[i] * r[i] * (T::ONE - r[i]) * wr[i];
                d[i] = z[i]
                    + (T::ONE - z[i]) * (T::ONE - c[i] * c[i]) * through_n
                    + (h0[i] - c[i]) * z[i] * (T::ONE - z[i]) * wz[i];
            }
        }
    }
}

/// The first N·n values as N slices of n.
#[inline(always)]
pub(super) fn split<T, const N: usize>(row: &[T], n: usize) -> [&[T]; N] {
    std::array::from_fn(|i| &row[i * n..][..n])
}

/// The first N·n values as N slices of n, to write.
#[inline(always)]
pub(super) fn split_mut<T, const N: usize>(row: &mut [T], n: usize) -> [&mut [T]; N] {
    let mut parts = row.chunks_exact_mut(n);
    std::array::from_fn(|_| parts.next().expect("a row of N·n values"))
}
