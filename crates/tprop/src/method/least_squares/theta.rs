//! θ in closed form: one factor of the cell after the other, unit by unit, by normal equations and a Cholesky factor.

use std::ops::Range;

use rayon::prelude::*;

use super::cholesky::Cholesky;
use crate::cell::Factor;
use crate::mat::{Mat, MatMut, Packed, Start, product, product_par};
use crate::method::Learner;
use crate::model::Model;
use crate::params::{Grads, Params};
use crate::real::Real;

/// Rows that are looked at together.
const CHUNK: usize = 512;

/// Normal matrices held at a time stay below this many values.
const GRAM_VALUES: usize = 8 << 20;

/// What the cell should fit: each row reads one token in one state and should end in another. All states are rows × hidden.
#[derive(Clone, Copy, Debug)]
pub struct Fit<'a, T> {
    /// Token that each row reads.
    pub inputs: &'a [u32],
    /// s_k
    pub starts: &'a [T],
    /// t_{k+1}
    pub targets: &'a [T],
    /// u_k, if there are duals.
    pub duals: Option<&'a [T]>,
}

/// θ ← the optimiser's step for the output layer and the embedding, then every factor of the cell in turn. Returns the norm of the
/// gradient that the optimiser saw (not finite if nothing good could be done).
pub(super) fn update<T: Real>(l: &mut Learner<T>, grads: &mut Grads<T>, fit: Fit<T>, ridge: f64) -> f64 {
    let (w_ih, w_hh, _) = l.model.layer_ids(0);
    for id in [w_ih, w_hh] {
        grads.values_mut().get_mut(id).fill(T::ZERO);
    }
    if let Some(gates) = gate_range(l.model) {
        grads.values_mut().all_mut()[gates].fill(T::ZERO);
    }
    let norm = l.optimiser.update(&mut l.params, grads, 1.0);
    if !norm.is_finite() {
        return norm;
    }
    let solved = l.model.config().cell.factors().iter().all(|&f| solve(l.model, &mut l.params, fit, f, ridge));
    if solved { norm } else { f64::NAN }
}

/// One factor of θ ← argmin Σ ‖F − (t − u)‖² + ridge ‖θ − θ_old‖², unit by unit. False, with that factor unchanged, if the normal
/// equations of some unit are not positive definite (values that are not finite).
pub fn solve<T: Real>(model: &Model<T>, params: &mut Params<T>, fit: Fit<T>, factor: Factor, ridge: f64) -> bool {
    let shape = model.config();
    assert!(shape.cell.factors().contains(&factor), "no such factor in this cell");
    let (rows, h) = (fit.inputs.len(), shape.hidden);
    assert!(fit.starts.len() == rows * h && fit.targets.len() == rows * h);
    let p = match factor {
        Factor::Input => shape.embed,
        Factor::Recurrent => h,
        Factor::Gates => 4,
    };
    let at_once = (GRAM_VALUES / (p * p)).clamp(1, h);
    let mut steps = Vec::with_capacity(h);
    for from in (0..h).step_by(at_once) {
        let units = from..h.min(from + at_once);
        let mut normal: Vec<Normal> = units.clone().map(|_| Normal::new(p, ridge)).collect();
        for start in (0..rows).step_by(CHUNK) {
            let chunk = Chunk::gather(model, params, fit, start..rows.min(start + CHUNK), units.clone());
            normal.par_iter_mut().enumerate().for_each(|(j, normal)| chunk.add_to(normal, j, factor));
        }
        let solved: Option<Vec<_>> = normal.into_par_iter().map(Normal::solve).collect();
        let Some(solved) = solved else { return false };
        steps.extend(solved);
    }
    let (w_ih, w_hh, _) = model.layer_ids(0);
    let move_to = |value: &mut T, delta: f64| *value = T::of(value.f64() + delta);
    match factor {
        Factor::Input | Factor::Recurrent => {
            let weights = params.get_mut(if factor == Factor::Input { w_ih } else { w_hh });
            weights.iter_mut().zip(steps.concat()).for_each(|(w, d)| move_to(w, d));
        }
        Factor::Gates => {
            let gates = &mut params.all_mut()[gate_range(model).expect("a gated cell")];
            for (i, step) in steps.iter().enumerate() {
                (0..4).for_each(|g| move_to(&mut gates[g * h + i], step[g]));
            }
        }
    }
    true
}

/// Where the gates stand among all parameters, if the cell has any.
fn gate_range<T: Real>(model: &Model<T>) -> Option<Range<usize>> {
    let start = model.shapes().entry(model.layer_ids(0).2?).range().start;
    Some(start..start + 4 * model.config().hidden)
}

/// a, b, c and d of a run of units.
pub(super) fn gates_of<T: Real>(model: &Model<T>, params: &Params<T>, units: Range<usize>) -> [Vec<f64>; 4] {
    let h = model.config().hidden;
    std::array::from_fn(|g| match gate_range(model) {
        Some(all) => widen(&params.all()[all.start + g * h..][units.clone()]),
        None => vec![if g == 0 { 1.0 } else { 0.0 }; units.len()],
    })
}

pub(super) fn widen<T: Real>(values: &[T]) -> Vec<f64> {
    values.iter().map(|v| v.f64()).collect()
}

/// Normal equations of one unit: (ridge · I + Σ w² z zᵀ) δ = Σ w e z.
struct Normal {
    gram: Vec<f64>,
    right: Vec<f64>,
}

impl Normal {
    fn new(p: usize, ridge: f64) -> Self {
        let mut gram = vec![0.0; p * p];
        gram.iter_mut().step_by(p + 1).for_each(|d| *d = ridge);
        Self { gram, right: vec![0.0; p] }
    }

    /// Adds rows z (n × p, weight included) with what is missing, e.
    fn add(&mut self, z: &[f64], e: &[f64]) {
        let (n, p) = (e.len(), self.right.len());
        let mut packed = Packed::default();
        packed.pack(Mat::new(z, n, p));
        product(MatMut::new(&mut self.gram, p, p), Start::Keep, Mat::new(z, n, p).t(), &packed);
        for (z, e) in z.chunks_exact(p).zip(e) {
            self.right.iter_mut().zip(z).for_each(|(r, z)| *r += e * z);
        }
    }

    fn solve(mut self) -> Option<Vec<f64>> {
        Cholesky::new(self.right.len(), self.gram)?.solve(&mut self.right);
        self.right.iter().all(|d| d.is_finite()).then_some(self.right)
    }
}

/// Some rows as some units see them.
struct Chunk {
    units: usize,
    /// x and s of every row.
    x: Vec<f64>,
    s: Vec<f64>,
    /// A x, C s and t − u, rows × units.
    gx: Vec<f64>,
    gh: Vec<f64>,
    wanted: Vec<f64>,
    gates: [Vec<f64>; 4],
}

impl Chunk {
    fn gather<T: Real>(
        model: &Model<T>,
        params: &Params<T>,
        fit: Fit<T>,
        rows: Range<usize>,
        units: Range<usize>,
    ) -> Self {
        let (e, h) = (model.config().embed, model.config().hidden);
        let (w_ih, w_hh, _) = model.layer_ids(0);
        let table = params.get(model.embed_id());
        let x: Vec<f64> = fit.inputs[rows.clone()].iter().flat_map(|&t| widen(&table[t as usize * e..][..e])).collect();
        let s = widen(&fit.starts[rows.start * h..rows.end * h]);
        let times = |rows_of: &[f64], weights: &[T], cols: usize| {
            let weights = widen(&weights[units.start * cols..units.end * cols]);
            rows_times(rows_of, &weights, rows.len(), units.len(), cols)
        };
        let (gx, gh) = (times(&x, params.get(w_ih), e), times(&s, params.get(w_hh), h));
        let mut wanted = Vec::with_capacity(rows.len() * units.len());
        for q in rows {
            for j in units.clone() {
                let u = fit.duals.map_or(0.0, |u| u[q * h + j].f64());
                wanted.push(fit.targets[q * h + j].f64() - u);
            }
        }
        Self { units: units.len(), x, s, gx, gh, wanted, gates: gates_of(model, params, units) }
    }

    /// Adds these rows to the equations of the `j`-th unit.
    fn add_to(&self, normal: &mut Normal, j: usize, factor: Factor) {
        let [a, b, c, d] = [0, 1, 2, 3].map(|g| self.gates[g][j]);
        let p = normal.right.len();
        let n = self.wanted.len() / self.units;
        let (mut z, mut e) = (Vec::with_capacity(n * p), Vec::with_capacity(n));
        for q in 0..n {
            let at = q * self.units + j;
            let (gx, gh) = (self.gx[at], self.gh[at]);
            e.push(self.wanted[at] - (a * gx * gh + b * gh + c * gx + d));
            match factor {
                Factor::Input => z.extend(self.x[q * p..][..p].iter().map(|x| (a * gh + c) * x)),
                Factor::Recurrent => z.extend(self.s[q * p..][..p].iter().map(|s| (a * gx + b) * s)),
                Factor::Gates => z.extend([gx * gh, gh, gx, 1.0]),
            }
        }
        normal.add(&z, &e);
    }
}

/// rows (n × cols) · weightsᵀ (units × cols) = n × units.
pub(super) fn rows_times(rows: &[f64], weights: &[f64], n: usize, units: usize, cols: usize) -> Vec<f64> {
    let mut packed = Packed::default();
    packed.pack(Mat::new(weights, units, cols).t());
    let mut out = vec![0.0; n * units];
    product_par(MatMut::new(&mut out, n, units), Start::Zero, Mat::new(rows, n, cols), &packed);
    out
}
