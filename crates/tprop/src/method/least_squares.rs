//! Closed-form steps for the multiplicative cells (the paper's footnote), with the loss on free states and B = 1.
//!
//! Without a non-linearity the end of a block is linear in each factor of θ while the others are held, and affine in its start:
//!
//! ```text
//! F_i = a_i gx_i gh_i + b_i gh_i + c_i gx_i + d_i      gx = A x,  gh = C s      (plain cell: a = 1, b = c = d = 0)
//!     = (a_i gh_i + c_i) · A_i x + (b_i gh_i + d_i)                              linear in the row A_i
//!     = (a_i gx_i + b_i) · C_i s + (c_i gx_i + d_i)                              linear in the row C_i, and in s
//! ```
//!
//! **θ.** A, C and the gates are solved in turn, unit by unit: each minimises Σ_k (F_i − (t − u)_i)² + ridge · ‖θ_i − θ_i,old‖² over
//! the rows k of the window, by normal equations and a Cholesky factor. The ridge pulls towards the *old* values and not towards 0, so
//! that directions which a minibatch says nothing about stay as they were: larger is a smaller step. No such step can raise the
//! penalty. The output layer and the embedding, which the footnote's trick does not cover, take the optimiser's gradient step first.
//!
//! **States.** Seen from the present states s the penalty is quadratic in their change δ; the loss is linearised and kept honest by a
//! proximal term of the state rate η:
//!
//! ```text
//! Σ_k [ λ/2 ‖r_k + u_k + J_k δ_k − δ_{k+1}‖² + ∂ℓ/∂s_{k+1} · δ_{k+1} ] + 1/(2η) Σ ‖δ_k‖²       J_k = diag(a gx_k + b) C
//! ```
//!
//! Its normal equations are block-tridiagonal with −(slope of L) on the right, and are solved exactly by block elimination. One such step
//! replaces one gradient step of the states; `state_optim` and `state_clip` have no meaning here. All of it runs in f64.

use std::ops::Range;

use rayon::prelude::*;

use super::cholesky::{self, Cholesky};
use super::{BtpropConfig, Learner, LossOn, Solver, Starts};
use crate::cell::CellKind;
use crate::mat::{Mat, MatMut, Packed, Start, product, product_par};
use crate::model::Model;
use crate::objective::{Constraint, Penalty};
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

/// A part of θ in which F is linear while the rest is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    /// A
    Input,
    /// C
    Recurrent,
    /// a, b, c and d.
    Gates,
}

impl Factor {
    /// Those of a cell, in the order in which they are solved.
    pub fn of(cell: CellKind) -> &'static [Factor] {
        match cell {
            CellKind::Mult => &[Factor::Input, Factor::Recurrent],
            CellKind::MultGated => &[Factor::Input, Factor::Recurrent, Factor::Gates],
            _ => &[],
        }
    }
}

/// Refuses what has no closed form, with the way out.
pub(super) fn check<T: Real>(
    config: &BtpropConfig,
    model: &Model<T>,
    learner: &Learner<T>,
    ridge: f64,
) -> Result<(), String> {
    let shape = model.config();
    let refuse = |found: &str, way: &str| {
        Err(format!(
            "btprop.theta_solver=least_squares has no closed form for {found}: use {way}, or theta_solver=gradient"
        ))
    };
    if !cholesky::AVAILABLE {
        return Err(
            "this build is without btprop.theta_solver=least_squares: build it with the feature least-squares, \
                    or use theta_solver=gradient"
                .into(),
        );
    }
    if Factor::of(shape.cell).is_empty() {
        return refuse(&format!("model.cell={}", shape.cell.name()), "model.cell=mult or mult_gated");
    }
    if config.block != 1 {
        return refuse(&format!("btprop.block={}", config.block), "btprop.block=1");
    }
    if config.loss != LossOn::Free {
        return refuse("btprop.loss=predicted", "btprop.loss=free");
    }
    if shape.layers != 1 {
        return refuse(&format!("model.layers={}", shape.layers), "model.layers=1");
    }
    if config.penalty != Penalty::L2 {
        return refuse("a KL penalty", "btprop.penalty=l2");
    }
    if config.constraint != Constraint::None {
        return refuse("constrained states", "btprop.constraint=none");
    }
    if config.starts != Starts::Moving {
        return refuse("btprop.starts=held", "btprop.starts=moving");
    }
    if matches!(config.solver, Solver::Alm { .. }) {
        return refuse("joint steps (btprop.solver=alm)", "btprop.solver=admm or penalty");
    }
    if learner.comm.size() != 1 {
        return refuse(&format!("{} ranks", learner.comm.size()), "one process");
    }
    if !(ridge > 0.0 && ridge.is_finite()) {
        return Err(format!("the ridge of btprop.theta_solver=least_squares is {ridge}; it must be above 0"));
    }
    if config.states.steps > 0 && !(config.states.rate > 0.0 && config.states.rate.is_finite()) {
        return Err(format!(
            "btprop.state_lr={} leaves the least-squares step of the states without a scale: use one above 0, or \
             btprop.state_steps=0",
            config.states.rate
        ));
    }
    Ok(())
}

/// Bytes of the factors that [`StateProblem::solve`] keeps.
pub(super) fn bytes(blocks: usize, streams: usize, hidden: usize) -> u64 {
    (streams.min(rayon::current_num_threads()) * (blocks + 1) * hidden * hidden * size_of::<f64>()) as u64
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
    let solved = Factor::of(l.model.config().cell).iter().all(|&f| solve(l.model, &mut l.params, fit, f, ridge));
    if solved { norm } else { f64::NAN }
}

/// One factor of θ ← argmin Σ ‖F − (t − u)‖² + ridge ‖θ − θ_old‖², unit by unit. False, with that factor unchanged, if the normal
/// equations of some unit are not positive definite (values that are not finite).
pub fn solve<T: Real>(model: &Model<T>, params: &mut Params<T>, fit: Fit<T>, factor: Factor, ridge: f64) -> bool {
    let shape = model.config();
    assert!(Factor::of(shape.cell).contains(&factor), "no such factor in this cell");
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
    let start = model.plan().entry(model.layer_ids(0).2?).range().start;
    Some(start..start + 4 * model.config().hidden)
}

/// a, b, c and d of a run of units.
fn gates_of<T: Real>(model: &Model<T>, params: &Params<T>, units: Range<usize>) -> [Vec<f64>; 4] {
    let h = model.config().hidden;
    std::array::from_fn(|g| match gate_range(model) {
        Some(all) => widen(&params.all()[all.start + g * h..][units.clone()]),
        None => vec![if g == 0 { 1.0 } else { 0.0 }; units.len()],
    })
}

fn widen<T: Real>(values: &[T]) -> Vec<f64> {
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
fn rows_times(rows: &[f64], weights: &[f64], n: usize, units: usize, cols: usize) -> Vec<f64> {
    let mut packed = Packed::default();
    packed.pack(Mat::new(weights, units, cols).t());
    let mut out = vec![0.0; n * units];
    product_par(MatMut::new(&mut out, n, units), Start::Zero, Mat::new(rows, n, cols), &packed);
    out
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
    /// δ of all M + 1 states of every stream from the slope of L in them (per block; both (M + 1)·S × hidden); 0 where a state does not
    /// move, not a number if the equations are not positive definite.
    pub fn solve<T: Real>(&self, model: &Model<T>, params: &Params<T>, slopes: &[T]) -> Vec<T> {
        let (e, h, s) = (model.config().embed, model.config().hidden, self.streams);
        let rows = self.inputs.len();
        assert_eq!(slopes.len(), (rows + s) * h);
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
                let slope = |k: usize| widen(&slopes[(k * s + i) * h..][..h]);
                self.eliminate(&recurrent, rows / s, h, of, slope).unwrap_or_else(|| vec![f64::NAN; (rows / s + 1) * h])
            })
            .collect();
        let mut delta = vec![T::ZERO; slopes.len()];
        for (slot, to) in delta.chunks_exact_mut(h).enumerate() {
            let from = &solved[slot % s][slot / s * h..][..h];
            to.iter_mut().zip(from).for_each(|(d, &f)| *d = T::of(f));
        }
        delta
    }

    /// One stream: block elimination forwards, substitution backwards. With P_k the pivots,
    ///
    /// ```text
    /// P_k = (1/η + λ) I + λ J_kᵀ J_k − λ² J_{k−1} P_{k−1}⁻¹ J_{k−1}ᵀ      y_k = −slope_k + λ J_{k−1} P_{k−1}⁻¹ y_{k−1}
    /// δ_k = P_k⁻¹ (y_k + λ J_kᵀ δ_{k+1})
    /// ```
    fn eliminate<'a>(
        &self,
        c: &[f64],
        blocks: usize,
        h: usize,
        factors: impl Fn(usize) -> &'a [f64],
        slope: impl Fn(usize) -> Vec<f64>,
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
            let mut y: Vec<f64> = slope(k).iter().map(|g| -g).collect();
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
