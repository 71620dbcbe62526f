//! Cholesky factors of symmetric positive definite matrices, in f64; the linear-algebra crate is hidden here.
//!
//! It is behind the feature `least-squares`. A build without it has no factors ([`AVAILABLE`] is false) and refuses the
//! solver that needs them before any training begins.

/// Whether this build can factorise.
pub(super) const AVAILABLE: bool = cfg!(feature = "least-squares");

pub(super) use factor::Cholesky;

#[cfg(feature = "least-squares")]
mod factor {
    use nalgebra::{Cholesky as Factor, DMatrix, DMatrixViewMut, Dyn};

    /// A = L Lᵀ.
    #[derive(Debug)]
    pub struct Cholesky(Factor<f64, Dyn>);

    impl Cholesky {
        /// Factorises the n × n matrix `a`; nothing if it is not positive definite.
        pub fn new(n: usize, a: Vec<f64>) -> Option<Self> {
            let factor = Factor::new(DMatrix::from_vec(n, n, a))?;
            // A NaN on the diagonal passes for a pivot.
            factor.l_dirty().diagonal().iter().all(|d| d.is_finite()).then_some(Self(factor))
        }

        /// b ← A⁻¹ b.
        pub fn solve(&self, b: &mut [f64]) {
            let n = b.len();
            self.0.solve_mut(&mut DMatrixViewMut::from_slice(b, n, 1));
        }

        /// Each run of n values of `w` ← L⁻¹ times it.
        pub fn half_solve(&self, w: &mut [f64]) {
            let n = self.0.l_dirty().nrows();
            let cols = w.len() / n;
            self.0.l_dirty().solve_lower_triangular_unchecked_mut(&mut DMatrixViewMut::from_slice(w, n, cols));
        }
    }
}

#[cfg(not(feature = "least-squares"))]
mod factor {
    /// There is none in this build.
    #[derive(Debug)]
    pub enum Cholesky {}

    impl Cholesky {
        pub fn new(_: usize, _: Vec<f64>) -> Option<Self> {
            None
        }

        pub fn solve(&self, _: &mut [f64]) {
            match *self {}
        }

        pub fn half_solve(&self, _: &mut [f64]) {
            match *self {}
        }
    }
}
