//! The coupling between blocks: C_k = λ (D_k + u_k · r_k) with the residual r_k = F_k − t_{k+1} between where block k ends and its
//! target (the start of the next block). D_k is ½‖r_k‖² (L2), a KL divergence between what the output layer reads off
//! both states, or their sum. The KL sees only the top layer's h; under `kl` the rest of a state keeps its L2 term.

use std::fmt;
use std::str::FromStr;

use crate::kernel;
use crate::mat::{Mat, MatMut, Packed, Start, product_par};
use crate::model::Model;
use crate::params::{Grads, Params};
use crate::real::Real;
use crate::words;
use crate::words::WordError;

/// D_k
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Penalty {
    /// ½‖r‖²
    L2,
    /// KL alone on the top layer's h.
    Kl(Direction),
    /// Both.
    L2Kl(Direction),
}

words! { Penalty: "l2" | "kl" | "kl-reverse" | "l2+kl" | "l2+kl-reverse" }

impl FromStr for Penalty {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        Ok(match text {
            "l2" => Penalty::L2,
            "kl" => Penalty::Kl(Direction::Forward),
            "kl-reverse" => Penalty::Kl(Direction::Reverse),
            "l2+kl" => Penalty::L2Kl(Direction::Forward),
            "l2+kl-reverse" => Penalty::L2Kl(Direction::Reverse),
            _ => return Err(WordError::Unknown),
        })
    }
}

impl fmt::Display for Penalty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Penalty::L2 => "l2",
            Penalty::Kl(Direction::Forward) => "kl",
            Penalty::Kl(Direction::Reverse) => "kl-reverse",
            Penalty::L2Kl(Direction::Forward) => "l2+kl",
            Penalty::L2Kl(Direction::Reverse) => "l2+kl-reverse",
        })
    }
}

impl Penalty {
    /// The KL's direction, if there is a KL.
    pub fn kl(self) -> Option<Direction> {
        match self {
            Penalty::L2 => None,
            Penalty::Kl(d) | Penalty::L2Kl(d) => Some(d),
        }
    }
}

/// Which distribution the KL divergence weighs by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// KL(softmax(W F + b) ‖ softmax(W t + b)).
    Forward,
    /// KL(softmax(W t + b) ‖ softmax(W F + b)).
    Reverse,
}

/// Where free states may be; acts on h, not on c.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// Anywhere.
    None,
    /// s = tanh z, by reparametrisation.
    Tanh,
    /// −1 ≤ s ≤ 1, by projection.
    Box,
    /// s = sign z with z saved; gradients pass straight through.
    Binary,
    /// At most this many components of each h differ from 0, by projection.
    Sparse(usize),
}

words! { Constraint: "none" | "tanh" | "box" | "binary" | "sparse:K" }

impl FromStr for Constraint {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        Ok(match words::split(text) {
            ("none", None) => Constraint::None,
            ("tanh", None) => Constraint::Tanh,
            ("box", None) => Constraint::Box,
            ("binary", None) => Constraint::Binary,
            ("sparse", Some(k)) => Constraint::Sparse(words::number::<u32>(k, 1, 1_000_000)? as usize),
            _ => return Err(WordError::Unknown),
        })
    }
}

impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Constraint::None => f.write_str("none"),
            Constraint::Tanh => f.write_str("tanh"),
            Constraint::Box => f.write_str("box"),
            Constraint::Binary => f.write_str("binary"),
            Constraint::Sparse(k) => write!(f, "sparse:{k}"),
        }
    }
}

/// Sums over boundaries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CouplingSums {
    /// Σ C_k
    pub penalty: f64,
    /// Boundaries.
    pub boundaries: f64,
    /// Σ ‖r‖
    pub residual: f64,
    /// max ‖r‖
    pub residual_max: f64,
    /// Σ ‖t‖
    pub state: f64,
    /// Σ ‖u‖
    pub dual: f64,
}

impl CouplingSums {
    /// Adds another one's sums.
    pub fn add(&mut self, other: &Self) {
        self.penalty += other.penalty;
        self.boundaries += other.boundaries;
        self.residual += other.residual;
        self.residual_max = self.residual_max.max(other.residual_max);
        self.state += other.state;
        self.dual += other.dual;
    }
}

/// The two ends of some boundaries; all rows × state width.
#[derive(Clone, Copy, Debug)]
pub struct Boundary<'a, T> {
    /// F_k, where the blocks end.
    pub ends: &'a [T],
    /// t_{k+1}, where they should.
    pub targets: &'a [T],
    /// u_k, if there are duals.
    pub duals: Option<&'a [T]>,
}

/// How much the coupling of some boundaries counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CouplingWeight {
    /// λ
    pub lambda: f64,
    /// Gradients are multiplied with this.
    pub scale: f64,
    /// So many rows, the first ones, count as boundaries in the sums.
    pub counted: usize,
}

/// Where the gradients of some boundaries go.
#[derive(Debug)]
pub struct BoundaryGrads<'a, T> {
    /// In F_k, overwritten.
    pub ends: &'a mut [T],
    /// In t_{k+1}, overwritten.
    pub targets: &'a mut [T],
    /// In θ: the KL's output layer is added, if wanted.
    pub theta: Option<&'a mut Grads<T>>,
}

/// Computes coupling terms; holds the work space of the KL.
#[derive(Debug)]
pub struct Coupler<T> {
    penalty: Penalty,
    weights: Packed<T>,
    /// W and Wᵀ are packed anew when θ has changed.
    pack_t: Packed<T>,
    rows: Packed<T>,
    logits: [Vec<T>; 2],
    tops: [Vec<T>; 2],
    d_tops: Vec<T>,
    distances: Vec<T>,
    /// Floating-point operations in products so far.
    pub flops: u64,
}

impl<T: Real> Coupler<T> {
    /// For one kind of penalty.
    pub fn new(penalty: Penalty) -> Self {
        let empty = || [Vec::new(), Vec::new()];
        Self {
            penalty,
            weights: Packed::default(),
            pack_t: Packed::default(),
            rows: Packed::default(),
            logits: empty(),
            tops: empty(),
            d_tops: Vec::new(),
            distances: Vec::new(),
            flops: 0,
        }
    }

    /// scale · ∂(Σ C)/∂(F, t, θ) into `grads`. Returns the sums.
    pub fn pull(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        boundary: Boundary<T>,
        weight: CouplingWeight,
        mut grads: BoundaryGrads<T>,
    ) -> CouplingSums {
        let width = model.state_width();
        let Boundary { ends, targets, duals } = boundary;
        let CouplingWeight { lambda, scale, counted } = weight;
        let (d_end, d_target) = (&mut *grads.ends, &mut *grads.targets);
        assert!(ends.len() == targets.len() && ends.len() == d_end.len() && ends.len() == d_target.len());
        let weight = T::of(lambda * scale);
        let top = model.top();
        let mut sums = CouplingSums::default();
        for (row, (f, t)) in ends.chunks_exact(width).zip(targets.chunks_exact(width)).enumerate() {
            let (de, dt) = (&mut d_end[row * width..][..width], &mut d_target[row * width..][..width]);
            let u = duals.map(|u| &u[row * width..][..width]);
            let (mut r2, mut rr, mut ur, mut s2, mut u2) = (0.0, 0.0, 0.0, 0.0, 0.0);
            for j in 0..width {
                let r = f[j] - t[j];
                let u = u.map_or(T::ZERO, |u| u[j]);
                // Under `kl` alone, L2 leaves out what the KL sees.
                let l2 = if matches!(self.penalty, Penalty::Kl(_)) && top.contains(&j) { T::ZERO } else { r };
                de[j] = weight * (l2 + u); // λ(r + u)/(S·M)
                dt[j] = -de[j];
                rr += (r * r).f64();
                r2 += (l2 * l2).f64();
                ur += (u * r).f64();
                s2 += (t[j] * t[j]).f64();
                u2 += (u * u).f64();
            }
            if row < counted {
                sums.penalty += lambda * (0.5 * r2 + ur);
                sums.boundaries += 1.0;
                sums.residual += rr.sqrt();
                sums.residual_max = sums.residual_max.max(rr.sqrt());
                sums.state += s2.sqrt();
                sums.dual += u2.sqrt();
            } else {
                sums.penalty += lambda * (0.5 * r2 + ur);
            }
        }
        if let Some(direction) = self.penalty.kl() {
            let kl = self.kl(model, params, direction, boundary, weight, &mut grads);
            sums.penalty += lambda * kl;
        }
        sums
    }

    /// Adds weight · the gradients of Σ KL; returns Σ KL. Runs in chunks of rows that keep the logits small.
    fn kl(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        direction: Direction,
        boundary: Boundary<T>,
        weight: T,
        grads: &mut BoundaryGrads<T>,
    ) -> f64 {
        let (width, top) = (model.state_width(), model.top());
        let (v, h) = (model.config().vocab, model.config().hidden);
        let (w_id, b_id) = model.output_ids();
        let (w, b) = (Mat::new(params.get(w_id), v, h), params.get(b_id));
        self.pack_t.pack(w.t());
        self.weights.pack(w);
        let chunk = (model.config().logits_mb * (1 << 20) / (2 * v * T::BYTES)).clamp(1, 256);
        let mut total = 0.0;
        let rows = boundary.ends.len() / width;
        for from in (0..rows).step_by(chunk) {
            let n = chunk.min(rows - from);
            let sides = [boundary.ends, boundary.targets];
            for (side, states) in sides.into_iter().enumerate() {
                let tops = &mut self.tops[side];
                tops.clear();
                for row in states[from * width..].chunks_exact(width).take(n) {
                    tops.extend_from_slice(&row[top.clone()]);
                }
                let logits = &mut self.logits[side];
                logits.resize(n * v, T::ZERO);
                product_par(MatMut::new(logits, n, v), Start::Bias(b), Mat::new(tops, n, h), &self.pack_t);
                kernel::log_softmax(logits, v);
            }
            let [lp, lq] = &mut self.logits;
            let (p, q) = match direction {
                Direction::Forward => (lp, lq),
                Direction::Reverse => (lq, lp),
            };
            self.distances.resize(n, T::ZERO);
            kernel::divergence(p, q, v, weight, &mut self.distances);
            total += self.distances.iter().map(|d| d.f64()).sum::<f64>();
            let BoundaryGrads { ends, targets, theta } = &mut *grads;
            for (side, states) in [ends, targets].into_iter().enumerate() {
                let dl = Mat::new(&self.logits[side], n, v);
                self.d_tops.resize(n * h, T::ZERO);
                product_par(MatMut::new(&mut self.d_tops, n, h), Start::Zero, dl, &self.weights);
                let rows = states[from * width..].chunks_exact_mut(width);
                for (row, add) in rows.zip(self.d_tops.chunks_exact(h)) {
                    kernel::add(&mut row[top.clone()], add);
                }
                if let Some(grads) = theta {
                    self.rows.pack(Mat::new(&self.tops[side], n, h));
                    product_par(MatMut::new(grads.sum_into(w_id), v, h), Start::Keep, dl.t(), &self.rows);
                    let db = grads.sum_into(b_id);
                    self.logits[side].chunks_exact(v).for_each(|row| kernel::add(db, row));
                }
            }
            self.flops += (2 * n * v * h * if theta.is_some() { 6 } else { 4 }) as u64;
        }
        total
    }
}
