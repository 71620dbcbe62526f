//! stand-in
use crate::real::Real;
/// Constants of Adam and the number of this update (from 1).
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// Weight of the old mean of g.
    pub beta1: f64,
    /// Weight of the old mean of g².
    pub beta2: f64,
    /// ε
    pub eps: f64,
    /// This update, counted from 1.
    pub step: u64,
}
/// p −= η g
pub fn sgd<T: Real>(p: &mut [T], g: &[T], rate: T, scale: T) {
    for (p, &g) in p.iter_mut().zip(g) {
        *p -= rate * (g * scale);
    }
}
/// Nesterov
pub fn nag<T: Real>(p: &mut [T], b: &mut [T], g: &[T], rate: T, mu: T, first: bool, scale: T) {
    for ((p, b), &g) in p.iter_mut().zip(b).zip(g) {
        let g = g * scale;
        *b = if first { g } else { mu * *b + g };
        *p -= rate * (g + mu * *b);
    }
}
/// Adagrad
pub fn adagrad<T: Real>(p: &mut [T], s: &mut [T], g: &[T], rate: T, eps: T, scale: T) {
    for ((p, s), &g) in p.iter_mut().zip(s).zip(g) {
        let g = g * scale;
        *s += g * g;
        *p -= rate * g / (s.sqrt() + eps);
    }
}
/// RMSprop
pub fn rmsprop<T: Real>(p: &mut [T], s: &mut [T], g: &[T], rate: T, alpha: T, eps: T, scale: T) {
    for ((p, s), &g) in p.iter_mut().zip(s).zip(g) {
        let g = g * scale;
        *s = alpha * *s + (T::ONE - alpha) * g * g;
        *p -= rate * g / (s.sqrt() + eps);
    }
}
/// Adadelta
#[allow(clippy::too_many_arguments)]
pub fn adadelta<T: Real>(p: &mut [T], s: &mut [T], d: &mut [T], g: &[T], rate: T, rho: T, eps: T, scale: T) {
    for (((p, s), d), &g) in p.iter_mut().zip(s).zip(d).zip(g) {
        let g = g * scale;
        *s = rho * *s + (T::ONE - rho) * g * g;
        let step = (*d + eps).sqrt() / (*s + eps).sqrt() * g;
        *d = rho * *d + (T::ONE - rho) * step * step;
        *p -= rate * step;
    }
}
/// Adam
pub fn adam<T: Real>(p: &mut [T], m: &mut [T], v: &mut [T], g: &[T], rate: T, a: Adam, scale: T) {
    let (b1, b2) = (T::of(a.beta1), T::of(a.beta2));
    let c1 = T::of(1.0 - a.beta1.powi(a.step as i32));
    let c2 = T::of((1.0 - a.beta2.powi(a.step as i32)).sqrt());
    for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g) {
        let g = g * scale;
        *m = b1 * *m + (T::ONE - b1) * g;
        *v = b2 * *v + (T::ONE - b2) * g * g;
        *p -= rate / c1 * *m / (v.sqrt() / c2 + T::of(a.eps));
    }
}
