//! h = φ(gx + gh), φ = tanh or the logistic function.

use super::{Activation, Before, Cell, CellGradients};
use crate::kernel::{Kernel, vectorize};
use crate::real::Real;

/// The Elman cell.
#[derive(Debug)]
pub struct Elman(pub Activation);

impl<T: Real> Cell<T> for Elman {
    fn gates(&self) -> usize {
        1
    }

    fn cached(&self) -> usize {
        0
    }

    fn forward(&self, next: &mut [T], _kept: &mut [T], before: Before<T>, gh: &[T]) {
        vectorize(Forward { h: next, gx: before.gx, gh, activation: self.0 });
    }

    fn backward(&self, grads: CellGradients<T>, dnext: &[T], next: &[T], _kept: &mut [T], _before: Before<T>) {
        grads.state.fill(T::ZERO);
        vectorize(Backward { da: grads.gh, dh: dnext, h: next, activation: self.0 });
    }

    /// φ′ w: the backward of w.
    fn diagonal(&self, diagonal: &mut [T], weights: &[T], next: &[T], _kept: &[T], _before: Before<T>) {
        for (d, h) in diagonal.chunks_exact_mut(weights.len()).zip(next.chunks_exact(weights.len())) {
            vectorize(Backward { da: d, dh: weights, h, activation: self.0 });
        }
    }
}

struct Forward<'a, T> {
    h: &'a mut [T],
    gx: &'a [T],
    gh: &'a [T],
    activation: Activation,
}

impl<T: Real> Kernel for Forward<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let pre = self.gx.iter().zip(self.gh).map(|(&x, &h)| x + h);
        match self.activation {
            Activation::Tanh => self.h.iter_mut().zip(pre).for_each(|(h, a)| *h = a.tanh()),
            Activation::Sigmoid => self.h.iter_mut().zip(pre).for_each(|(h, a)| *h = a.sigmoid()),
        }
    }
}

/// da = dh ⊙ φ′, written with the output: 1 − h² or h (1 − h).
struct Backward<'a, T> {
    da: &'a mut [T],
    dh: &'a [T],
    h: &'a [T],
    activation: Activation,
}

impl<T: Real> Kernel for Backward<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let pairs = self.dh.iter().zip(self.h);
        match self.activation {
            Activation::Tanh => self.da.iter_mut().zip(pairs).for_each(|(da, (&dh, &h))| *da = dh * (T::ONE - h * h)),
            Activation::Sigmoid => {
                self.da.iter_mut().zip(pairs).for_each(|(da, (&dh, &h))| *da = dh * h * (T::ONE - h));
            }
        }
    }
}
