//! The state step of second order: the minimum of the quadratic model of L in the moving states, with the blocks' derivatives unit by unit
//! in place of their Jacobians, and the exact gradient on the right, so that a fixed point is stationary. Of each unit,
//!
//! ```text
//! (1/η + λ [k−1 tied] + λ EᵀE_k [k tied]) δ_k − λ E_{k−1} δ_{k−1} [k−1 tied] − λ E_kᵀ δ_{k+1} [k tied] = −S·M·∂L/∂s_k
//! ```
//!
//! a tridiagonal system of numbers, or of 2 × 2 matrices where a unit has h and c, positive definite for η > 0. Elimination runs forward
//! over all blocks, substitution back; both cost next to nothing, so ranks take turns, and their number changes no bit.

use super::scan::Column;
use super::{Engine, Learner, StateScale};
use crate::comm::Comm;
use crate::real::Real;

/// A matrix or vector of one unit with V vectors.
type Matrix<const V: usize> = [[f64; V]; V];
type Vector<const V: usize> = [f64; V];

/// What is left of a slot after elimination: δ_k = y − W δ_{k+1}.
#[derive(Clone, Copy, Debug)]
struct Row<const V: usize> {
    w: Matrix<V>,
    y: Vector<V>,
}

/// One unit of a slot that moves.
struct Unit<const V: usize> {
    /// Of the identity: 1/η, and λ if a block aims at the slot.
    weight: f64,
    /// λ, and E of the block that starts here, if that one is tied.
    lambda: f64,
    e: Option<Matrix<V>>,
    gradient: Vector<V>,
}

impl<T: Real> Engine<T> {
    /// s ← s + δ.
    pub(super) fn newton_step(&mut self, l: &Learner<T>, column: Column) {
        let blocks = self.geometry.blocks as f64;
        self.states.fill_gradients(&self.config, T::of(blocks));
        let prior = match self.config.states.scale {
            StateScale::Block => 1.0 / self.config.states.rate,
            StateScale::Mean => blocks / self.config.states.rate,
        };
        match column.units.vectors() {
            1 => self.solve_units::<1>(l.comm, column, prior),
            2 => self.solve_units::<2>(l.comm, column, prior),
            v => unreachable!("a cell with {v} vectors a unit"),
        }
        let delta = self.states.gradients.take().expect("solved in place");
        self.states.shift(&delta);
        self.states.gradients = Some(delta);
    }

    /// Puts δ in place of the gradients of all slots.
    fn solve_units<const V: usize>(&mut self, comm: &dyn Comm, column: Column, prior: f64) {
        let (rows, streams, lambda) = (self.geometry.span.own, self.config.streams, self.lambda.value);
        let (tied, first) = (self.tied_rows(), self.geometry.span.has_first());
        // The slots behind belong to the next rank, if there is one.
        let slots = if self.geometry.span.has_last() { rows + streams } else { rows };
        let (moves, units, matrix) = (self.states.movable(&self.config), column.units, column.units.matrix_width());
        let d = self.found.diagonals.as_ref().expect("newton needs diagonals");
        let values = self.states.gradients.as_mut().expect("newton needs all gradients");
        let is_target = |q: usize| q.checked_sub(streams).map_or(!first, |before| before < tied);

        // λE W and λE y of the slot before, for every stream and unit.
        let mut handed: Vec<f64> = vec![0.0; streams * units.count() * (V * V + V)];
        self.states.exchange.receive_turn(comm, &mut handed);
        let mut eliminated: Vec<Row<V>> = Vec::with_capacity(slots * units.count());
        for q in 0..slots {
            let handed = handed.chunks_exact_mut(V * V + V).skip(q % streams * units.count());
            for (u, handed) in (0..units.count()).zip(handed) {
                let unit = moves(q).then(|| Unit::<V> {
                    weight: prior + if is_target(q) { lambda } else { 0.0 },
                    lambda,
                    e: (q < tied).then(|| units.matrix(&d[q * matrix..], u)),
                    gradient: units.vector(&values[q * column.width..], u),
                });
                eliminated.push(Unit::eliminate(unit, handed));
            }
        }
        self.states.exchange.send_turn(comm, &handed);

        let mut after: Vec<f64> = vec![0.0; streams * units.count() * V];
        self.states.exchange.receive_turn_back(comm, &mut after);
        for q in (0..slots).rev() {
            let after = after.chunks_exact_mut(V).skip(q % streams * units.count());
            for (u, after) in (0..units.count()).zip(after) {
                let Row { w, y } = eliminated[q * units.count() + u];
                let delta: Vector<V> = std::array::from_fn(|i| y[i] - (0..V).map(|j| w[i][j] * after[j]).sum::<f64>());
                after.copy_from_slice(&delta);
                units.put_vector(&mut values[q * column.width..], u, delta);
            }
        }
        self.states.exchange.send_turn_back(comm, &after);
        values[slots * column.width..].fill(T::ZERO);
    }
}

impl<const V: usize> Unit<V> {
    /// Eliminates a slot; one that does not move (None) has δ = 0. `handed` is what the slot before leaves, and then what this one does.
    fn eliminate(unit: Option<Self>, handed: &mut [f64]) -> Row<V> {
        let Some(Unit { weight, lambda, e, gradient }) = unit else {
            handed.fill(0.0);
            return Row { w: [[0.0; V]; V], y: [0.0; V] };
        };
        let e = e.unwrap_or([[0.0; V]; V]);
        let (before_w, before_y) = handed.split_at_mut(V * V);
        let a: Matrix<V> = matrix(|i, j| {
            let own = if i == j { weight } else { 0.0 };
            own + lambda * (0..V).map(|k| e[k][i] * e[k][j]).sum::<f64>() + before_w[i * V + j]
        });
        let inverse = inverse(a);
        let w: Matrix<V> = matrix(|i, j| -lambda * (0..V).map(|k| inverse[i][k] * e[j][k]).sum::<f64>());
        let y: Vector<V> = std::array::from_fn(|i| (0..V).map(|k| inverse[i][k] * (before_y[k] - gradient[k])).sum());
        for i in 0..V {
            (0..V).for_each(|j| before_w[i * V + j] = lambda * (0..V).map(|k| e[i][k] * w[k][j]).sum::<f64>());
        }
        let product: Vector<V> = std::array::from_fn(|i| lambda * (0..V).map(|k| e[i][k] * y[k]).sum::<f64>());
        before_y.copy_from_slice(&product);
        Row { w, y }
    }
}

fn matrix<const V: usize>(entry: impl Fn(usize, usize) -> f64) -> Matrix<V> {
    std::array::from_fn(|i| std::array::from_fn(|j| entry(i, j)))
}

/// Of a positive definite matrix, by Gauss and Jordan.
fn inverse<const V: usize>(mut a: Matrix<V>) -> Matrix<V> {
    let mut b: Matrix<V> = matrix(|i, j| f64::from(u8::from(i == j)));
    for k in 0..V {
        let pivot = a[k][k];
        (0..V).for_each(|j| (a[k][j], b[k][j]) = (a[k][j] / pivot, b[k][j] / pivot));
        for i in (0..V).filter(|&i| i != k) {
            let factor = a[i][k];
            (0..V).for_each(|j| (a[i][j], b[i][j]) = (a[i][j] - factor * a[k][j], b[i][j] - factor * b[k][j]));
        }
    }
    b
}
