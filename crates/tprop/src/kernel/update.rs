//! One step of each optimiser over flat slices, the clip factor applied on the way: one pass over memory.
//!
//! The rules and the order of operations are PyTorch's. Every element is rounded by itself, so long slices are cut
//! and given to all threads of the current pool without changing a bit.

use super::{Kernel, vectorize};
use crate::real::Real;

/// Elements that one task takes: 64 K, a multiple of every vector.
pub(crate) const CHUNK: usize = 1 << 16;

/// An optimiser's rule for one element; `state` holds as many values as the rule keeps.
trait Rule<T: Real, const N: usize>: Copy + Sync {
    /// The new parameter, from the old one and the clipped gradient.
    fn step(self, p: T, state: [&mut T; N], g: T) -> T;
}

struct Chunk<'a, T, R, const N: usize> {
    p: &'a mut [T],
    state: [&'a mut [T]; N],
    g: &'a [T],
    clip: T,
    rule: R,
}

impl<T: Real, R: Rule<T, N>, const N: usize> Kernel for Chunk<'_, T, R, N> {
    type Out = ();
    #[inline(always)]
    fn run(mut self) {
        // Slices of one length, so that the loop has no bounds to check.
        let n = self.p.len();
        let g = &self.g[..n];
        self.state = self.state.map(|s| &mut s[..n]);
        for i in 0..n {
            let state = self.state.each_mut().map(|s| &mut s[i]);
            self.p[i] = self.rule.step(self.p[i], state, g[i] * self.clip);
        }
    }
}

fn run<T: Real, R: Rule<T, N>, const N: usize>(p: &mut [T], state: [&mut [T]; N], g: &[T], clip: T, rule: R) {
    assert!(g.len() == p.len() && state.iter().all(|s| s.len() == p.len()), "lengths of an update");
    if p.len() <= CHUNK {
        return vectorize(Chunk { p, state, g, clip, rule });
    }
    // Halves of whole chunks, down to one chunk each.
    let half = (p.len().div_ceil(CHUNK) / 2) * CHUNK;
    let (p0, p1) = p.split_at_mut(half);
    let (g0, g1) = g.split_at(half);
    let (mut lower, mut upper) = ([(); N].map(|()| &mut [][..]), [(); N].map(|()| &mut [][..]));
    for (i, s) in state.into_iter().enumerate() {
        (lower[i], upper[i]) = s.split_at_mut(half);
    }
    rayon::join(|| run(p0, lower, g0, clip, rule), || run(p1, upper, g1, clip, rule));
}

#[derive(Clone, Copy)]
struct Sgd<T> {
    lr: T,
}

impl<T: Real> Rule<T, 0> for Sgd<T> {
    #[inline(always)]
    fn step(self, p: T, []: [&mut T; 0], g: T) -> T {
        p - self.lr * g
    }
}

/// Plain descent: p ← p − lr · g, where g is the gradient times `clip`, here and in all that follow.
pub fn sgd<T: Real>(p: &mut [T], g: &[T], lr: T, clip: T) {
    run(p, [], g, clip, Sgd { lr });
}

#[derive(Clone, Copy)]
struct Nag<T> {
    lr: T,
    momentum: T,
    first: bool,
}

impl<T: Real> Rule<T, 1> for Nag<T> {
    #[inline(always)]
    fn step(self, p: T, [b]: [&mut T; 1], g: T) -> T {
        *b = if self.first { g } else { self.momentum * *b + g };
        p - self.lr * (g + self.momentum * *b)
    }
}

/// Nesterov's momentum: b ← μ b + g (b ← g in the first step), p ← p − lr · (g + μ b).
pub fn nag<T: Real>(p: &mut [T], b: &mut [T], g: &[T], lr: T, momentum: T, first: bool, clip: T) {
    run(p, [b], g, clip, Nag { lr, momentum, first });
}

#[derive(Clone, Copy)]
struct Adagrad<T> {
    lr: T,
    eps: T,
}

impl<T: Real> Rule<T, 1> for Adagrad<T> {
    #[inline(always)]
    fn step(self, p: T, [s]: [&mut T; 1], g: T) -> T {
        *s += g * g;
        p - self.lr * g / (s.sqrt() + self.eps)
    }
}

/// s ← s + g², p ← p − lr · g / (√s + eps).
pub fn adagrad<T: Real>(p: &mut [T], s: &mut [T], g: &[T], lr: T, eps: T, clip: T) {
    run(p, [s], g, clip, Adagrad { lr, eps });
}

#[derive(Clone, Copy)]
struct RmsProp<T> {
    lr: T,
    alpha: T,
    eps: T,
}

impl<T: Real> Rule<T, 1> for RmsProp<T> {
    #[inline(always)]
    fn step(self, p: T, [s]: [&mut T; 1], g: T) -> T {
        *s = self.alpha * *s + (T::ONE - self.alpha) * g * g;
        p - self.lr * g / (s.sqrt() + self.eps)
    }
}

/// s ← α s + (1 − α) g², p ← p − lr · g / (√s + eps).
pub fn rmsprop<T: Real>(p: &mut [T], s: &mut [T], g: &[T], lr: T, alpha: T, eps: T, clip: T) {
    run(p, [s], g, clip, RmsProp { lr, alpha, eps });
}

#[derive(Clone, Copy)]
struct AdaDelta<T> {
    lr: T,
    rho: T,
    eps: T,
}

impl<T: Real> Rule<T, 2> for AdaDelta<T> {
    #[inline(always)]
    fn step(self, p: T, [s, d]: [&mut T; 2], g: T) -> T {
        *s = self.rho * *s + (T::ONE - self.rho) * g * g;
        let delta = (*d + self.eps).sqrt() / (*s + self.eps).sqrt() * g;
        *d = self.rho * *d + (T::ONE - self.rho) * delta * delta;
        p - self.lr * delta
    }
}

/// s ← ρ s + (1 − ρ) g², δ = √(d + eps) / √(s + eps) · g, d ← ρ d + (1 − ρ) δ², p ← p − lr · δ.
#[allow(clippy::too_many_arguments)]
pub fn adadelta<T: Real>(p: &mut [T], s: &mut [T], d: &mut [T], g: &[T], lr: T, rho: T, eps: T, clip: T) {
    run(p, [s, d], g, clip, AdaDelta { lr, rho, eps });
}

#[derive(Clone, Copy)]
struct Adam<T> {
    rate: T,
    beta1: T,
    beta2: T,
    correction: T,
    eps: T,
}

impl<T: Real> Rule<T, 2> for Adam<T> {
    #[inline(always)]
    fn step(self, p: T, [m, v]: [&mut T; 2], g: T) -> T {
        *m += (T::ONE - self.beta1) * (g - *m);
        *v = self.beta2 * *v + (T::ONE - self.beta2) * g * g;
        p - self.rate * *m / (v.sqrt() / self.correction + self.eps)
    }
}

/// m ← β₁ m + (1 − β₁) g, v ← β₂ v + (1 − β₂) g², p ← p − lr · m̂ / (√v̂ + eps), both corrected for their start at 0;
/// `step` counts from 1.
#[allow(clippy::too_many_arguments)]
pub fn adam<T: Real>(p: &mut [T], m: &mut [T], v: &mut [T], g: &[T], lr: T, betas: (T, T), eps: T, step: u64, clip: T) {
    assert!(step > 0, "steps count from 1");
    let missing = |beta: T| 1.0 - beta.f64().powf(step as f64);
    let rate = T::of(lr.f64() / missing(betas.0));
    let correction = T::of(missing(betas.1).sqrt());
    run(p, [m, v], g, clip, Adam { rate, beta1: betas.0, beta2: betas.1, correction, eps });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::on_each_path;
    use crate::rng::Draws;

    fn noise(len: usize, purpose: &str) -> Vec<f64> {
        let draws = Draws::new(5, purpose);
        (0..len as u64).map(|i| draws.within(i, 1.0)).collect()
    }

    /// Three steps of an update against its twin, element by element, in f64; then in f32 with every path and several
    /// threads against one thread, bit for bit.
    fn compare(
        name: &str,
        fast64: impl Fn(&mut [f64], &mut [f64], &mut [f64], &[f64], u64),
        fast32: impl Fn(&mut [f32], &mut [f32], &mut [f32], &[f32], u64) + Sync,
        twin: impl Fn(&mut f64, &mut f64, &mut f64, f64, u64),
    ) {
        let n = if cfg!(miri) { 67 } else { 1003 };
        let (mut p, mut s, mut d) = (noise(n, "p"), vec![0.0; n], vec![0.0; n]);
        let (mut p1, mut s1, mut d1) = (p.clone(), s.clone(), d.clone());
        for step in 1..=3 {
            let g = noise(n, &format!("g{step}"));
            fast64(&mut p, &mut s, &mut d, &g, step);
            for i in 0..n {
                twin(&mut p1[i], &mut s1[i], &mut d1[i], g[i] * 0.5, step);
                assert!((p[i] - p1[i]).abs() < 1e-13, "{name}: {} and {} in step {step}", p[i], p1[i]);
            }
        }
        let narrow = |x: Vec<f64>| -> Vec<f32> { x.into_iter().map(|x| x as f32).collect() };
        let n = if cfg!(miri) { 35 } else { 3 * CHUNK + 7 };
        let (p0, g) = (narrow(noise(n, "p")), narrow(noise(n, "g")));
        let work = || {
            let (mut p, mut s, mut d) = (p0.clone(), vec![0.0; n], vec![0.0; n]);
            fast32(&mut p, &mut s, &mut d, &g, 1);
            fast32(&mut p, &mut s, &mut d, &g, 2);
            p
        };
        let want = work();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        on_each_path(|path| assert!(pool.install(work) == want, "{name} {path:?}"));
    }

    /// Calls `compare` with the same fast call in both types.
    macro_rules! case {
        ($name:ident, |$p:ident, $s:ident, $d:ident, $g:ident, $step:ident| $fast:expr, $twin:expr) => {
            #[test]
            fn $name() {
                compare(
                    stringify!($name),
                    |$p, $s, $d, $g, $step| {
                        let _ = (&$s, &$d, $step);
                        $fast
                    },
                    |$p, $s, $d, $g, $step| {
                        let _ = (&$s, &$d, $step);
                        $fast
                    },
                    $twin,
                );
            }
        };
    }

    case!(sgd_is_plain_descent, |p, s, d, g, step| sgd(p, g, 0.1, 0.5), |p, _, _, g, _| *p -= 0.1 * g);
    case!(nag_as_in_pytorch, |p, b, d, g, step| nag(p, b, g, 0.1, 0.9, step == 1, 0.5), |p, b, _, g, step| {
        *b = if step == 1 { g } else { 0.9 * *b + g };
        *p -= 0.1 * (g + 0.9 * *b);
    });
    case!(adagrad_as_in_pytorch, |p, s, d, g, step| adagrad(p, s, g, 0.1, 1e-5, 0.5), |p, s, _, g, _| {
        *s += g * g;
        *p -= 0.1 * g / (s.sqrt() + 1e-5);
    });
    case!(rmsprop_as_in_pytorch, |p, s, d, g, step| rmsprop(p, s, g, 0.1, 0.99, 1e-8, 0.5), |p, s, _, g, _| {
        *s = 0.99 * *s + 0.01 * g * g;
        *p -= 0.1 * g / (s.sqrt() + 1e-8);
    });
    case!(adadelta_as_in_pytorch, |p, s, d, g, step| adadelta(p, s, d, g, 0.7, 0.9, 1e-6, 0.5), |p, s, d, g, _| {
        *s = 0.9 * *s + 0.1 * g * g;
        let delta = ((*d + 1e-6) / (*s + 1e-6)).sqrt() * g;
        *d = 0.9 * *d + 0.1 * delta * delta;
        *p -= 0.7 * delta;
    });
    case!(
        adam_as_in_pytorch,
        |p, m, v, g, step| adam(p, m, v, g, 0.1, (0.9, 0.999), 1e-8, step, 0.5),
        |p, m, v, g, step| {
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.999 * *v + 0.001 * g * g;
            let (mh, vh) = (*m / (1.0 - 0.9f64.powi(step as i32)), *v / (1.0 - 0.999f64.powi(step as i32)));
            *p -= 0.1 * mh / (vh.sqrt() + 1e-8);
        }
    );
}
