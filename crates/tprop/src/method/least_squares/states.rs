//! States in closed form: the quadratic model of the objective around the present ones, minimised exactly.

use rayon::prelude::*;

use super::cholesky::Cholesky;
use super::theta::{gates_of, rows_times, widen};
use crate::mat::{Mat, MatMut, Packed, Start, product_par};
use crate::model::Model;
use crate::params::Params;
use crate::real::Real;

/// Bytes of the factors that [`StateProblem::solve`] holds.
pub(super) fn bytes(blocks: usize, streams: usize, hidden: usize) -> u64 {
    (streams.min(rayon::current_num_threads()) * (blocks + 1) * hidden * hidden * size_of::<f64>()) as u64
}

/// The least-squares problem of a window's states. Row k·S + i is block k of stream i, as everywhere.
#[derive(Clone, Copy, Debug)]
pub struct StateProblem<'a> {
    /// Token that each row reads.
    pub inputs: &'a [u32],
    /// S
    pub streams: usize,
    /// λ
    pub lambda: f64,
    /// 1/η: weight of the proximal term.
    pub prox: f64,
    /// Whether the starts of the first blocks move too.
    pub first_moves: bool,
}

impl StateProblem<'_> {
    /// δ of all M + 1 states of every stream from the gradient of L in them (per block; both (M + 1)·S × hidden); 0 where a state does not
    /// move, not a number if the equations are not positive definite.
    pub fn solve<T: Real>(&self, model: &Model<T>, params: &Params<T>, gradient: &[T]) -> Vec<T> {
        let (e, h, s) = (model.config().embed, model.config().hidden, self.streams);
        let rows = self.inputs.len();
        assert_eq!(gradient.len(), (rows + s) * h);
        let (w_ih, w_hh, _) = model.layer_ids(0);
        let recurrent = widen(params.get(w_hh));
        let [a, b, _, _] = gates_of(model, params, 0..h);
        // diag J_k C⁻¹ = a ⊙ gx + b of every row.
        let table = params.get(model.embed_id());
        let x: Vec<f64> = self.inputs.iter().flat_map(|&t| widen(&table[t as usize * e..][..e])).collect();
        let mut factors = rows_times(&x, &widen(params.get(w_ih)), rows, h, e);
        for row in factors.chunks_exact_mut(h) {
            row.iter_mut().zip(&a).zip(&b).for_each(|((g, a), b)| *g = a * *g + b);
        }
        let solved: Vec<Vec<f64>> = (0..s)
            .into_par_iter()
            .map(|i| {
                let of = |k: usize| &factors[(k * s + i) * h..][..h];
                let right = |k: usize| widen(&gradient[(k * s + i) * h..][..h]);
                self.eliminate(&recurrent, rows / s, h, of, right).unwrap_or_else(|| vec![f64::NAN; (rows / s + 1) * h])
            })
            .collect();
        let mut delta = vec![T::ZERO; gradient.len()];
        for (slot, to) in delta.chunks_exact_mut(h).enumerate() {
            let from = &solved[slot % s][slot / s * h..][..h];
            to.iter_mut().zip(from).for_each(|(d, &f)| *d = T::of(f));
        }
        delta
    }

    /// One stream: block elimination forwards, substitution backwards. With P_k the pivots,
    ///
    /// ```text
    /// P_k = (1/η + λ) I + λ J_kᵀ J_k − λ² J_{k−1} P_{k−1}⁻¹ J_{k−1}ᵀ      y_k = −gradient_k + λ J_{k−1} P_{k−1}⁻¹ y_{k−1}
    /// δ_k = P_k⁻¹ (y_k + λ J_kᵀ δ_{k+1})
    /// ```
    fn eliminate<'a>(
        &self,
        c: &[f64],
        blocks: usize,
        h: usize,
        factors: impl Fn(usize) -> &'a [f64],
        gradient: impl Fn(usize) -> Vec<f64>,
    ) -> Option<Vec<f64>> {
        let lambda = self.lambda;
        let first = usize::from(!self.first_moves);
        let mut pivots: Vec<Cholesky> = Vec::with_capacity(blocks + 1 - first);
        let mut delta = vec![0.0; (blocks + 1) * h];
        let mut packed = Packed::default();
        for k in first..=blocks {
            let mut pivot = vec![0.0; h * h];
            if k < blocks {
                let d = factors(k);
                let j: Vec<f64> = c.iter().enumerate().map(|(at, c)| c * d[at / h]).collect();
                packed.pack(Mat::new(&j, h, h));
                product_par(MatMut::new(&mut pivot, h, h), Start::Zero, Mat::new(&j, h, h).t(), &packed);
                pivot.iter_mut().for_each(|p| *p *= lambda);
            }
            let tied = if k == 0 { 0.0 } else { lambda };
            pivot.iter_mut().step_by(h + 1).for_each(|p| *p += self.prox + tied);
            let mut y: Vec<f64> = gradient(k).iter().map(|g| -g).collect();
            if let Some(before) = pivots.last() {
                let d = factors(k - 1);
                // Rows of W are L⁻¹ C_i, so that W Wᵀ = C P⁻¹ Cᵀ.
                let mut w = c.to_vec();
                before.half_solve(&mut w);
                packed.pack(Mat::new(&w, h, h).t());
                let mut gram = vec![0.0; h * h];
                product_par(MatMut::new(&mut gram, h, h), Start::Zero, Mat::new(&w, h, h), &packed);
                for (at, (p, g)) in pivot.iter_mut().zip(&gram).enumerate() {
                    *p -= lambda * lambda * d[at / h] * d[at % h] * g;
                }
                let mut back = delta[(k - 1) * h..k * h].to_vec();
                before.solve(&mut back);
                for i in 0..h {
                    y[i] += lambda * d[i] * dot(&c[i * h..][..h], &back);
                }
            }
            delta[k * h..][..h].copy_from_slice(&y);
            pivots.push(Cholesky::new(h, pivot)?);
        }
        for k in (first..=blocks).rev() {
            let (head, after) = delta.split_at_mut((k + 1) * h);
            let own = &mut head[k * h..];
            if k < blocks {
                let d = factors(k);
                for i in 0..h {
                    let weight = lambda * d[i] * after[i];
                    own.iter_mut().zip(&c[i * h..][..h]).for_each(|(o, c)| *o += weight * c);
                }
            }
            pivots[k - first].solve(own);
        }
        Some(delta)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
