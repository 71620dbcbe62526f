//! Kullback–Leibler divergence between rows of logits, with its gradients. Rows run on all threads, each in a fixed number of lanes.

use super::{Kernel, vectorize};
use crate::real::Real;
use rayon::prelude::*;

const LANES: usize = 32;

/// In place, for each row of `width` logits: row − log Σ exp(row).
pub fn log_softmax<T: Real>(logits: &mut [T], width: usize) {
    logits.par_chunks_exact_mut(width).for_each(|row| vectorize(LogSoftmax(row)));
}

/// For each row D = KL(p ‖ q), from log p and log q, which are replaced by weight · ∂D/∂(logits of p) = p (log p − log q − D)
/// and weight · ∂D/∂(logits of q) = q − p; `distances` gets the D.
pub fn divergence<T: Real>(log_p: &mut [T], log_q: &mut [T], width: usize, weight: T, distances: &mut [T]) {
    let rows = log_p.par_chunks_exact_mut(width).zip(log_q.par_chunks_exact_mut(width)).zip(distances.par_iter_mut());
    rows.for_each(|((log_p, log_q), distance)| *distance = vectorize(Divergence { log_p, log_q, weight }));
}

struct LogSoftmax<'a, T>(&'a mut [T]);

impl<T: Real> Kernel for LogSoftmax<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let mut tops = [T::NEG_INFINITY; LANES];
        each(self.0, |lane, l| tops[lane] = if *l > tops[lane] { *l } else { tops[lane] });
        let top = tops.into_iter().fold(T::NEG_INFINITY, |a, b| if b > a { b } else { a });
        let mut sums = [T::ZERO; LANES];
        each(self.0, |lane, l| sums[lane] += (*l - top).exp());
        let log_z = top + sums.into_iter().fold(T::ZERO, |a, b| a + b).ln();
        each(self.0, |_, l| *l -= log_z);
    }
}

struct Divergence<'a, T> {
    log_p: &'a mut [T],
    log_q: &'a mut [T],
    weight: T,
}

impl<T: Real> Kernel for Divergence<'_, T> {
    type Out = T;
    #[inline(always)]
    fn run(self) -> T {
        let Self { log_p, log_q, weight } = self;
        let mut sums = [T::ZERO; LANES];
        each_pair(log_p, log_q, |lane, a, b| sums[lane] = a.exp().mul_add(*a - *b, sums[lane]));
        let d = sums.into_iter().fold(T::ZERO, |a, b| a + b);
        each_pair(log_p, log_q, |_, a, b| {
            let (p, q) = (a.exp(), b.exp());
            *a = weight * p * (*a - *b - d);
            *b = weight * (q - p);
        });
        d
    }
}

/// Visits all elements, in rows of [`LANES`], with the number of the lane.
#[inline(always)]
fn each<T>(x: &mut [T], mut visit: impl FnMut(usize, &mut T)) {
    let (rows, rest) = x.as_chunks_mut::<LANES>();
    for row in rows {
        for (lane, x) in row.iter_mut().enumerate() {
            visit(lane, x);
        }
    }
    for (lane, x) in rest.iter_mut().enumerate() {
        visit(lane, x);
    }
}

/// The same with pairs.
#[inline(always)]
fn each_pair<T>(x: &mut [T], y: &mut [T], mut visit: impl FnMut(usize, &mut T, &mut T)) {
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks_mut::<LANES>(), y.as_chunks_mut::<LANES>());
    for (x, y) in xs.iter_mut().zip(ys) {
        for (lane, (x, y)) in x.iter_mut().zip(y).enumerate() {
            visit(lane, x, y);
        }
    }
    for (lane, (x, y)) in x_rest.iter_mut().zip(y_rest).enumerate() {
        visit(lane, x, y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::on_each_path;
    use crate::rng::Draws;

    fn logits(name: &str, n: usize, width: usize) -> Vec<f32> {
        let draws = Draws::new(3, name);
        (0..(n * width) as u64).map(|i| draws.below(i, 2000) as f32 / 100.0 - 10.0).collect()
    }

    /// The definition, in f64, term by term.
    fn slow(p: &[f32], q: &[f32], weight: f64) -> (f64, Vec<f64>, Vec<f64>) {
        let soft = |x: &[f32]| {
            let z: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
            x.iter().map(|&x| f64::from(x).exp() / z).collect::<Vec<f64>>()
        };
        let (p, q) = (soft(p), soft(q));
        let d: f64 = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum();
        let dp = p.iter().zip(&q).map(|(p, q)| weight * p * ((p / q).ln() - d)).collect();
        (d, dp, p.iter().zip(&q).map(|(p, q)| weight * (q - p)).collect())
    }

    #[test]
    fn like_the_definition_and_the_same_bits_on_every_path() {
        for &width in if cfg!(miri) { [1, 33].as_slice() } else { &[1, 7, 32, 33, 500] } {
            let (p, q) = (logits("p", 5, width), logits("q", 5, width));
            let mut first: Option<Vec<u32>> = None;
            on_each_path(|path| {
                let (mut a, mut b, mut d) = (p.clone(), q.clone(), vec![0.0; 5]);
                log_softmax(&mut a, width);
                log_softmax(&mut b, width);
                divergence(&mut a, &mut b, width, 0.5, &mut d);
                for (row, d) in d.iter().enumerate() {
                    let at = row * width..(row + 1) * width;
                    let (distance, dp, dq) = slow(&p[at.clone()], &q[at.clone()], 0.5);
                    assert!((f64::from(*d) - distance).abs() < 1e-5 * (1.0 + distance), "{path:?}, width {width}");
                    for (fast, slow) in a[at.clone()].iter().zip(&dp).chain(b[at].iter().zip(&dq)) {
                        assert!((f64::from(*fast) - slow).abs() < 2e-5, "{path:?}, width {width}: {fast} {slow}");
                    }
                }
                let bits: Vec<u32> = a.iter().chain(&b).chain(&d).map(|x| x.to_bits()).collect();
                assert_eq!(first.get_or_insert_with(|| bits.clone()), &bits, "{path:?}");
            });
        }
    }
}
