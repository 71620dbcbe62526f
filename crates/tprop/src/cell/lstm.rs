//! Long short-term memory, PyTorch's form (gates in the order i f g o); the state is `[h | c]`:
//!
//! ```text
//! c = σ(f) ⊙ c₋ + σ(i) ⊙ tanh(g)    h = σ(o) ⊙ tanh(c)
//! ```

use super::gru::{split, split_mut};
use super::{Before, Cell, CellGradients};
use crate::kernel::{Kernel, vectorize};
use crate::real::Real;

/// The LSTM cell.
#[derive(Debug)]
pub struct Lstm;

impl<T: Real> Cell<T> for Lstm {
    fn gates(&self) -> usize {
        4
    }

    fn vectors(&self) -> usize {
        2
    }

    /// i, f, g, o and tanh(c).
    fn cached(&self) -> usize {
        5
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
        let rows = self.next.chunks_exact_mut(2 * n).zip(self.cached.chunks_exact_mut(5 * n));
        let rows = rows.zip(self.before.state.chunks_exact(2 * n));
        let products = self.before.gx.chunks_exact(4 * n).zip(self.gh.chunks_exact(4 * n));
        for (((next, cached), state), (gx, gh)) in rows.zip(products) {
            let [h, c] = split_mut(next, n);
            let [i, f, g, o, tc] = split_mut(cached, n);
            let [_, c0] = split(state, n);
            let ([xi, xf, xg, xo], [hi, hf, hg, ho]) = (split(gx, n), split(gh, n));
            for j in 0..n {
                i[j] = (xi[j] + hi[j]).sigmoid();
                f[j] = (xf[j] + hf[j]).sigmoid();
                g[j] = (xg[j] + hg[j]).tanh();
                o[j] = (xo[j] + ho[j]).sigmoid();
                c[j] = f[j] * c0[j] + i[j] * g[j];
                tc[j] = c[j].tanh();
                h[j] = o[j] * tc[j];
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
        let grads = self.grads.gh.chunks_exact_mut(4 * n).zip(self.grads.state.chunks_exact_mut(2 * n));
        let rows = self.dnext.chunks_exact(2 * n).zip(self.cached.chunks_exact(5 * n));
        for (((dg, dstate), (dnext, cached)), state) in grads.zip(rows).zip(self.before.state.chunks_exact(2 * n)) {
            let [di, df, dg, do_] = split_mut(dg, n);
            let [dh0, dc0] = split_mut(dstate, n);
            let [dh, dc] = split(dnext, n);
            let [i, f, g, o, tc] = split(cached, n);
            let [_, c0] = split(state, n);
            for j in 0..n {
                let dc = dc[j] + dh[j] * o[j] * (T::ONE - tc[j] * tc[j]);
                di[j] = dc * g[j] * i[j] * (T::ONE - i[j]);
                df[j] = dc * c0[j] * f[j] * (T::ONE - f[j]);
                dg[j] = dc * i[j] * (T::ONE - g[j] * g[j]);
                do_[j] = dh[j] * tc[j] * o[j] * (T::ONE - o[j]);
                dh0[j] = T::ZERO;
                dc0[j] = dc * f[j];
            }
        }
    }
}

/// A 2 × 2 matrix a unit. ∂c/∂c₋ = f; ∂c/∂h₋ = c₋ f (1 − f) w_f + g i (1 − i) w_i + i (1 − g²) w_g; h depends on both through c, and
/// on h₋ through o too.
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
        let [wi, wf, wg, wo] = split(self.weights, n);
        let rows = self.diagonal.chunks_exact_mut(4 * n).zip(self.cached.chunks_exact(5 * n));
        for ((d, cached), state) in rows.zip(self.before.state.chunks_exact(2 * n)) {
            let [hh, hc, ch, cc] = split_mut(d, n);
            let [i, f, g, o, tc] = split(cached, n);
            let [_, c0] = split(state, n);
            for j in 0..n {
                let c_in_h = c0[j] * f[j] * (T::ONE - f[j]) * wf[j]
                    + g[j] * i[j] * (T::ONE - i[j]) * wi[j]
                    + i[j] * (T::ONE - g[j] * g[j]) * wg[j];
                let h_in_c = o[j] * (T::ONE - tc[j] * tc[j]);
                cc[j] = f[j];
                ch[j] = c_in_h;
                hc[j] = h_in_c * f[j];
                hh[j] = o[j] * (T::ONE - o[j]) * tc[j] * wo[j] + h_in_c * c_in_h;
            }
        }
    }
}
