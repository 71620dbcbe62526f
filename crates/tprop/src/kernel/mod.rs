//! Fused arithmetic. The only place besides [`crate::mat`] where `unsafe` is allowed.
//!
//! Contract of everything here: a result depends on the operands alone, never on the number of threads, on how
//! the work was cut into pieces, or on the SIMD path. Element-wise work rounds each element by itself; products sum
//! over `k` in one chain of fused multiply-adds per element; reductions run in a fixed number of lanes.

pub mod math;
mod simd;
pub mod softmax;
pub mod update;

#[cfg(test)]
pub(crate) use simd::on_each_path;
pub use simd::{Kernel, Lanes, Path, path, set_path, vectorize};

/// out += x
pub fn add<T: crate::real::Real>(out: &mut [T], x: &[T]) {
    assert_eq!(out.len(), x.len());
    for (o, &x) in out.iter_mut().zip(x) {
        *o += x;
    }
}

/// Σ x², in f64.
pub fn sum_squares<T: crate::real::Real>(x: &[T]) -> f64 {
    x.iter().map(|x| x.f64() * x.f64()).sum()
}

/// No NaN, no infinity.
pub fn all_finite<T: crate::real::Real>(x: &[T]) -> bool {
    x.iter().all(|x| x.is_finite())
}
