//! Sums over flat slices, and the plainest updates. Sums run in a fixed number of lanes over fixed blocks, and blocks are added
//! along a fixed tree: the number of threads does not matter.

use super::update::CHUNK;
use super::{Kernel, vectorize};
use crate::real::Real;
use rayon::prelude::*;

/// Σ x², in double precision.
pub fn sum_squares<T: Real>(x: &[T]) -> f64 {
    if x.len() <= CHUNK {
        return vectorize(SumSquares(x));
    }
    // The tree depends on the length alone: the left half is a power of two of blocks.
    let half = (x.len().div_ceil(CHUNK).next_power_of_two() / 2) * CHUNK;
    let (left, right) = rayon::join(|| sum_squares(&x[..half]), || sum_squares(&x[half..]));
    left + right
}

struct SumSquares<'a, T>(&'a [T]);

impl<T: Real> Kernel for SumSquares<'_, T> {
    type Out = f64;
    #[inline(always)]
    fn run(self) -> f64 {
        let mut sums = [0.0f64; 32];
        let (rows, rest) = self.0.as_chunks::<32>();
        for row in rows {
            for (s, x) in sums.iter_mut().zip(row) {
                *s = x.f64().mul_add(x.f64(), *s);
            }
        }
        for (s, x) in sums.iter_mut().zip(rest) {
            *s = x.f64().mul_add(x.f64(), *s);
        }
        sums.iter().sum()
    }
}

/// Whether no value is infinite or NaN.
pub fn all_finite<T: Real>(x: &[T]) -> bool {
    x.par_chunks(CHUNK).all(|x| vectorize(AllFinite(x)))
}

struct AllFinite<'a, T>(&'a [T]);

impl<T: Real> Kernel for AllFinite<'_, T> {
    type Out = bool;
    #[inline(always)]
    fn run(self) -> bool {
        // x · 0 is 0 or NaN, and NaN survives every sum: no branch inside the loop.
        let mut sums = [T::ZERO; 32];
        let (rows, rest) = self.0.as_chunks::<32>();
        for row in rows {
            for (s, x) in sums.iter_mut().zip(row) {
                *s += *x * T::ZERO;
            }
        }
        for (s, x) in sums.iter_mut().zip(rest) {
            *s += *x * T::ZERO;
        }
        sums.iter().all(|&s| s == T::ZERO)
    }
}

/// out += x
pub fn add<T: Real>(out: &mut [T], x: &[T]) {
    add_scaled(out, x, T::ONE);
}

/// out += a · x, each sum rounded once.
pub fn add_scaled<T: Real>(out: &mut [T], x: &[T], a: T) {
    assert_eq!(out.len(), x.len());
    if out.len() <= CHUNK {
        return vectorize(AddScaled(out, x, a));
    }
    out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).for_each(|(out, x)| vectorize(AddScaled(out, x, a)));
}

struct AddScaled<'a, T>(&'a mut [T], &'a [T], T);

impl<T: Real> Kernel for AddScaled<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (o, x) in self.0.iter_mut().zip(self.1) {
            *o = x.mul_add(self.2, *o);
        }
    }
}

/// x ← a · x
pub fn scale<T: Real>(x: &mut [T], a: T) {
    if x.len() <= CHUNK {
        return vectorize(Scale(x, a));
    }
    x.par_chunks_mut(CHUNK).for_each(|x| vectorize(Scale(x, a)));
}

struct Scale<'a, T>(&'a mut [T], T);

impl<T: Real> Kernel for Scale<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for x in self.0 {
            *x *= self.1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::on_each_path;
    use crate::rng::Draws;

    fn noise(len: usize) -> Vec<f32> {
        let draws = Draws::new(3, "noise");
        (0..len as u64).map(|i| draws.within(i, 2.0) as f32).collect()
    }

    const ALL: [usize; 8] = [0, 1, 31, 33, 1000, CHUNK, 3 * CHUNK + 5, 8 * CHUNK + 1];
    /// Under Miri an instruction takes a thousand times as long.
    const LENGTHS: &[usize] = if cfg!(miri) { ALL.split_at(4).0 } else { &ALL };

    #[test]
    fn squares_add_up_alike_on_all_paths_and_threads() {
        for &len in LENGTHS {
            let x = noise(len);
            let plain: f64 = x.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
            let want = sum_squares(&x);
            assert!((want - plain).abs() <= 1e-11 * plain, "{len}: {want} {plain}");
            let wide: Vec<f64> = x.iter().map(|&x| x.into()).collect();
            assert_eq!(sum_squares(&wide), want);
            for threads in [1, 2, 3, 8] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                on_each_path(|_| assert_eq!(pool.install(|| sum_squares(&x)), want));
            }
        }
    }

    #[test]
    fn one_bad_value_is_found() {
        for &len in LENGTHS {
            let mut x = noise(len);
            assert!(all_finite(&x));
            for at in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|&at| at < len) {
                let old = x[at];
                for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    x[at] = bad;
                    on_each_path(|path| assert!(!all_finite(&x), "{len} {at} {path:?}"));
                }
                x[at] = old;
            }
        }
        assert!(all_finite(&[f32::MAX, f32::MIN, -0.0, f32::from_bits(1)]));
    }

    #[test]
    fn adding_and_scaling() {
        for &len in LENGTHS {
            let (x, y) = (noise(len), noise(len + 1)[1..].to_vec());
            on_each_path(|_| {
                let (mut sum, mut far) = (x.clone(), x.clone());
                add(&mut sum, &y);
                add_scaled(&mut far, &y, -0.3);
                scale(&mut sum, 1.7);
                for i in 0..len {
                    assert_eq!(sum[i], (x[i] + y[i]) * 1.7);
                    assert_eq!(far[i], y[i].mul_add(-0.3, x[i]));
                }
            });
        }
    }
}
