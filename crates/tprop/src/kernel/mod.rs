//! Fused arithmetic. The only place besides [`crate::mat`] where `unsafe` is allowed.
//!
//! Contract of everything here: a result depends on the operands alone, never on the number of threads, on how
//! the work was cut into chunks, or on the SIMD path. Element-wise work rounds each element by itself; products sum
//! over `k` in one chain of fused multiply-adds per element; reductions run in a fixed number of lanes.

mod divergence;
pub mod math;
mod reduce;
mod simd;
pub mod softmax;
pub mod update;

pub use divergence::{divergence, log_softmax};
pub use reduce::{add, add_scaled, all_finite, scale, sum_squares};
#[cfg(test)]
pub(crate) use simd::on_each_path;
pub use simd::{Kernel, Lanes, Path, path, set_path, vectorize};
