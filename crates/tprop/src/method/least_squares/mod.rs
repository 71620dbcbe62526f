//! Least squares: target propagation with closed-form steps, for the multiplicative cells (the paper's footnote), with the loss on free states
//! and B = 1. `LeastSquares::window` is its algorithm box; what it shares with [`super::Btprop`] stands in `method/engine`.
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
//! Its normal equations are block-tridiagonal with −(gradient of L) on the right, and are solved exactly by block elimination. One such step
//! replaces one gradient step of the states. All of it runs in f64.

mod cholesky;
mod states;
mod theta;

use std::time::Instant;

pub use states::StateProblem;
pub use theta::{Fit, solve};

use super::btprop::check_batch;
use super::engine::{Engine, Stage, Step, Windowed};
use super::error::{MethodError, Reason, Room};
use super::{
    Batch, BtpropConfig, DualConfig, First, Ignore, Init, LambdaSchedule, Last, Learner, LossOn, Method, Outline,
    Passes, Solver, Starts, StateConfig, StateRule, StateScale,
};
use crate::comm::ensure_alone;
use crate::model::Model;
use crate::objective::{Constraint, Penalty};
use crate::real::Real;

/// Least squares. Blocks have one step, and the loss looks at the free states.
#[derive(Clone, Debug, PartialEq)]
pub struct LeastSquaresConfig {
    /// M: consecutive steps of a window (in batch mode the whole corpus is one window).
    pub blocks: usize,
    /// S: streams side by side.
    pub streams: usize,
    /// A window, or the whole corpus.
    pub batch: Batch,
    /// The duals, if there are any.
    pub duals: Option<LeastSquaresDuals>,
    /// λ at the beginning.
    pub lambda: f64,
    /// How λ moves.
    pub lambda_schedule: LambdaSchedule,
    /// Where a window's states come from.
    pub init: Init,
    /// Whether the first state of a window may move.
    pub first: First,
    /// Where the state behind the last step begins if no sweep finds it: at 0, or ([`Last::None`]) where the init puts it.
    pub last: Last,
    /// How states are updated.
    pub states: ProximalConfig,
    /// θ steps per window.
    pub theta_steps: usize,
    /// Weight of ‖θ − θ_old‖² beside Σ ‖F − (t − u)‖² over a window's rows; above 0.
    pub ridge: f64,
    /// A vocabulary item without weight in the loss.
    pub ignore: Ignore,
}

impl Default for LeastSquaresConfig {
    /// What gradient steps begin with, as far as it has a meaning here.
    fn default() -> Self {
        let c = BtpropConfig::default();
        Self {
            blocks: c.blocks,
            streams: c.streams,
            batch: c.batch,
            duals: Some(LeastSquaresDuals { duals: DualConfig::default(), before_theta: false }),
            lambda: c.lambda,
            lambda_schedule: c.lambda_schedule,
            init: c.init,
            first: c.first,
            last: c.last,
            states: ProximalConfig {
                steps: c.states.steps,
                rate: c.states.rate,
                scale: c.states.scale,
                tolerance: c.states.tolerance,
            },
            theta_steps: c.theta_steps,
            ridge: 1e-3,
            ignore: c.ignore,
        }
    }
}

/// Duals, and when they move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeastSquaresDuals {
    /// How.
    pub duals: DualConfig,
    /// Before θ does.
    pub before_theta: bool,
}

/// How states are updated: by the minimum of the quadratic model with a proximal term.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProximalConfig {
    /// Steps per window.
    pub steps: usize,
    /// η of the proximal term; above 0.
    pub rate: f64,
    /// Whether η is meant for S·M·L or for L.
    pub scale: StateScale,
    /// Stop the steps of a window once the states move less than this (root mean square); 0 is off.
    pub tolerance: f64,
}

impl Outline for LeastSquaresConfig {
    fn streams(&self) -> usize {
        self.streams
    }
    fn block(&self) -> usize {
        1
    }
    fn batch(&self) -> Batch {
        self.batch
    }
    fn least_window(&self) -> Vec<(&'static str, usize)> {
        self.as_btprop().least_window()
    }
    fn windows(&self, length: usize) -> (usize, usize) {
        self.as_btprop().windows(length)
    }
    fn passes(&self) -> Passes {
        self.as_btprop().passes()
    }
    fn without_turns(&self) -> Self {
        Self { init: self.as_btprop().without_turns().init, ..self.clone() }
    }
    fn bytes<T: Real>(&self, model: &Model<T>, tokens: usize, ranks: usize) -> u64 {
        self.as_btprop().bytes(model, tokens, ranks)
    }
    fn build<T: Real>(&self, learner: &Learner<T>) -> Result<Box<dyn Method<T>>, MethodError> {
        Ok(Box::new(LeastSquares::new(self, learner)?))
    }
}

impl LeastSquaresConfig {
    /// Target propagation by gradient steps with the same objective, order and init.
    pub fn as_btprop(&self) -> BtpropConfig {
        let ProximalConfig { steps, rate, scale, tolerance } = self.states;
        BtpropConfig {
            block: 1,
            blocks: self.blocks,
            streams: self.streams,
            batch: self.batch,
            solver: match self.duals {
                None => Solver::Penalty,
                Some(LeastSquaresDuals { duals, before_theta }) => Solver::Admm { duals, before_theta },
            },
            lambda: self.lambda,
            lambda_schedule: self.lambda_schedule,
            penalty: Penalty::L2,
            constraint: Constraint::None,
            loss: LossOn::Free,
            init: self.init,
            first: self.first,
            last: self.last,
            states: StateConfig { steps, rate, rule: StateRule::Sgd, scale, tolerance, ..StateConfig::default() },
            starts: Starts::Moving,
            theta_steps: self.theta_steps,
            ignore: self.ignore,
            ..BtpropConfig::default()
        }
    }
}

/// Target propagation with closed-form steps.
#[derive(Debug)]
pub struct LeastSquares<T> {
    engine: Engine<T>,
    ridge: f64,
}

impl<T: Real> LeastSquares<T> {
    /// Plans the windows of a training split.
    ///
    /// # Errors
    /// If the split is too short, something has no closed form, or there is no room.
    pub fn new(config: &LeastSquaresConfig, learner: &Learner<T>) -> Result<Self, MethodError> {
        let engine = Engine::new(config.as_btprop(), learner, |blocks| check(config, learner, blocks))?;
        Ok(Self { engine, ridge: config.ridge })
    }

    fn state_steps(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        for step in 0..self.engine.config.states.steps {
            if self.engine.settled_before(step) {
                break;
            }
            self.engine.state_gradient(l, pause, step)?;
            self.engine.once(Stage::MoveStates(step), |engine| solve_states(engine, l, step))?; // s ← argmin, θ held
        }
        Ok(())
    }

    fn theta_steps(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        let ridge = self.ridge;
        for step in 0..self.engine.config.theta_steps {
            self.engine.theta_gradient(l, pause, step)?;
            self.engine.once(Stage::MoveTheta(step), |engine| solve_theta(engine, l, ridge))?; // θ ← argmin, s held
        }
        Ok(())
    }
}

impl<T: Real> Windowed for LeastSquares<T> {
    type Number = T;

    /// One window: states, θ and duals in turn.
    fn window(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        let duals_first = matches!(self.engine.config.solver, Solver::Admm { before_theta: true, .. });
        self.engine.init_states(l, pause)?;
        self.state_steps(l, pause)?;
        if duals_first {
            self.engine.update_duals(l, pause)?; // u ← u + α r
            self.theta_steps(l, pause)?;
        } else {
            self.theta_steps(l, pause)?;
            self.engine.update_duals(l, pause)?; // u ← u + α r
        }
        self.engine.finish(l)
    }

    fn engine(&self) -> &Engine<T> {
        &self.engine
    }

    fn engine_mut(&mut self) -> &mut Engine<T> {
        &mut self.engine
    }
}

fn solve_states<T: Real>(engine: &mut Engine<T>, l: &Learner<T>, step: usize) {
    let (config, blocks) = (&engine.config, engine.blocks());
    let weight = match config.states.scale {
        StateScale::Block => 1.0,
        StateScale::Mean => blocks as f64,
    };
    let problem = StateProblem {
        inputs: &engine.inputs(l),
        streams: config.streams,
        lambda: engine.lambda(),
        prox: weight / config.states.rate,
        first_moves: config.first == First::Free,
    };
    let delta = problem.solve(l.model, &l.params, &engine.states.gradient(blocks));
    engine.states.shift(&delta);
    engine.states_moved(l, step);
}

fn solve_theta<T: Real>(engine: &mut Engine<T>, l: &mut Learner<T>, ridge: f64) {
    let since = Instant::now();
    let inputs = engine.inputs(l);
    let Engine { states, total, grads, .. } = engine;
    let grads = total.finish(l.comm, grads);
    let fit = Fit {
        inputs: &inputs,
        starts: &states.starts[states.own()],
        targets: states.targets(),
        duals: states.duals.as_deref(),
    };
    let norm = theta::update(l, grads, fit, ridge);
    engine.theta_moved(l, norm, since);
}

/// Refuses what has no closed form.
fn check<T: Real>(config: &LeastSquaresConfig, learner: &Learner<T>, blocks: usize) -> Result<(), MethodError> {
    let (shape, states) = (learner.model.config(), config.states);
    let positive = |value: f64| value > 0.0 && value.is_finite();
    let no_closed_form = |field, found: &dyn ToString, wanted| {
        Err(MethodError::field(field, found.to_string(), wanted, Reason::NoClosedForm))
    };
    check_batch(config.batch)?;
    if !cholesky::AVAILABLE {
        return Err(MethodError::Feature("least-squares"));
    }
    if shape.cell.factors().is_empty() {
        return no_closed_form("cell", &shape.cell.name(), "mult or mult_gated");
    }
    if shape.layers != 1 {
        return no_closed_form("layers", &shape.layers, "1");
    }
    if let Err(ranks) = ensure_alone(learner.comm) {
        return no_closed_form("ranks", &ranks, "1");
    }
    if !positive(config.ridge) {
        return Err(MethodError::field("ridge", config.ridge, "above 0", Reason::NoScale));
    }
    if states.steps > 0 {
        if !positive(states.rate) {
            return Err(MethodError::field("states.rate", states.rate, "above 0", Reason::NoScale));
        }
        MethodError::check_memory(Room::Factors, states::bytes(blocks, config.streams, shape.hidden))?;
    }
    Ok(())
}
