//! Block target propagation: free states every B steps, tied to the recurrence by a penalty and perhaps duals.
//!
//! [`Btprop::window`] is the paper's algorithm box; what it is made of stands in [`super::engine`].

use std::time::Instant;

use super::engine::{Engine, Stage, Step, Windowed};
use super::error::{MethodError, Reason};
use super::{
    Batch, BtpropConfig, Init, Last, Learner, LossOn, Method, Outline, Passes, Pulls, Solver, Starts, StateRule, memory,
};
use crate::model::Model;
use crate::objective::{Constraint, Penalty};
use crate::real::Real;

/// Block target propagation.
#[derive(Debug)]
pub struct Btprop<T> {
    engine: Engine<T>,
}

impl Outline for BtpropConfig {
    fn streams(&self) -> usize {
        self.streams
    }
    fn block(&self) -> usize {
        self.block
    }
    fn batch(&self) -> Batch {
        self.batch
    }
    fn least_window(&self) -> Vec<(&'static str, usize)> {
        let blocks = if self.batch == Batch::Full { 2 } else { self.blocks };
        vec![("streams", self.streams), ("blocks", blocks), ("block", self.block)]
    }
    fn windows(&self, length: usize) -> (usize, usize) {
        match self.batch {
            Batch::Full => (length / self.block, 1),
            Batch::Mini { .. } => (self.blocks, length / self.block / self.blocks),
        }
    }
    fn passes(&self) -> Passes {
        // In batch mode moving states persist, so that only the first pass looks for them.
        let looks = self.batch != Batch::Full || self.starts == Starts::Held;
        let sweeps = if self.init == Init::Sequential { 1 } else { self.init.sweeps() };
        let (state_passes, theta_passes, state_moves) = match self.solver {
            Solver::Alm { joint_steps, .. } => (0, joint_steps, joint_steps),
            Solver::Penalty | Solver::Admm { .. } => (self.states.steps, self.theta_steps, self.states.steps),
        };
        Passes {
            blocks_are_dealt: true,
            sweeps: if looks { sweeps } else { 0 },
            sequential: looks && self.init == Init::Sequential,
            state_passes,
            starts_held: self.starts == Starts::Held,
            theta_passes,
            state_moves,
            moves_are_measured: self.states.tolerance > 0.0,
            dual_passes: usize::from(self.solver.duals().is_some()),
        }
    }
    fn without_turns(&self) -> Self {
        Self { init: if self.init == Init::Sequential { Init::Zero } else { self.init }, ..self.clone() }
    }
    fn bytes<T: Real>(&self, model: &Model<T>, tokens: usize, ranks: usize) -> u64 {
        memory::windowed(self, model, tokens, ranks)
    }
    fn build<T: Real>(&self, learner: &Learner<T>) -> Result<Box<dyn Method<T>>, MethodError> {
        Ok(Box::new(Btprop::new(self.clone(), learner)?))
    }
}

impl<T: Real> Btprop<T> {
    /// Plans the windows of a training split.
    ///
    /// # Errors
    /// If the split is too short, choices contradict each other, or there is no room for the states.
    pub fn new(config: BtpropConfig, learner: &Learner<T>) -> Result<Self, MethodError> {
        let engine = Engine::new(config.clone(), learner, |_| check(&config))?;
        Ok(Self { engine })
    }

    fn state_steps(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        for step in 0..self.engine.config.states.steps {
            if self.engine.settled_before(step) {
                break;
            }
            self.update_states(l, pause, step)?; // s ← s − η ∂L/∂s, θ held
        }
        Ok(())
    }

    fn theta_steps(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        for step in 0..self.engine.config.theta_steps {
            self.update_theta(l, pause, step)?; // θ ← θ − η ∂L/∂θ, s held
        }
        Ok(())
    }

    fn update_states(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, step: usize) -> Step {
        self.engine.state_gradient(l, pause, step)?;
        self.engine.once(Stage::MoveStates(step), |engine| engine.step_states(l, step))
    }

    fn update_theta(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, step: usize) -> Step {
        self.engine.theta_gradient(l, pause, step)?;
        self.engine.once(Stage::MoveTheta(step), |engine| move_theta(engine, l))
    }

    fn update_states_and_theta(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, step: usize) -> Step {
        self.engine.joint_gradient(l, pause, step)?;
        self.engine.once(Stage::MoveBoth(step), |engine| {
            engine.step_states(l, 0);
            move_theta(engine, l);
        })
    }
}

impl<T: Real> Windowed for Btprop<T> {
    type Number = T;

    /// One window: the paper's algorithm.
    fn window(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        self.engine.init_states(l, pause)?;
        match self.engine.config.solver {
            Solver::Alm { joint_steps, .. } => {
                for step in 0..joint_steps {
                    self.update_states_and_theta(l, pause, step)?; // s, θ ← s, θ − η ∂L/∂(s, θ)
                }
                self.engine.update_duals(l, pause)?; // u ← u + α r
            }
            Solver::Admm { before_theta: true, .. } => {
                self.state_steps(l, pause)?;
                self.engine.update_duals(l, pause)?; // u ← u + α r
                self.theta_steps(l, pause)?;
            }
            Solver::Penalty | Solver::Admm { before_theta: false, .. } => {
                self.state_steps(l, pause)?;
                self.theta_steps(l, pause)?;
                self.engine.update_duals(l, pause)?; // u ← u + α r
            }
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

fn move_theta<T: Real>(engine: &mut Engine<T>, l: &mut Learner<T>) {
    let since = Instant::now();
    let grads = engine.total.finish(l.comm, &mut engine.grads);
    let norm = l.optimiser.update(&mut l.params, grads, 1.0);
    engine.theta_moved(l, norm, since);
}

/// Refuses choices that contradict each other.
fn check(config: &BtpropConfig) -> Result<(), MethodError> {
    let refuse =
        |field, found: &dyn ToString, wanted, reason| Err(MethodError::field(field, found.to_string(), wanted, reason));
    if config.loss == LossOn::Free && config.block != 1 {
        return refuse("block", &config.block, "1", Reason::FreeLoss);
    }
    let mini = config.batch != Batch::Full;
    if mini && config.starts == Starts::Held && config.init == (Init::Stored { sweeps: 0 }) {
        return refuse("init.sweeps", &0, "1", Reason::NothingFound);
    }
    let newton = config.states.rule == StateRule::Newton;
    for (applies, reason, starts) in [
        (config.scan.pulls(), Reason::ScannedPulls, Starts::Held),
        (newton, Reason::Newton, Starts::Moving),
        (config.pulls == Pulls::Stored, Reason::StoredPulls, Starts::Held),
    ] {
        if applies && config.starts != starts {
            return refuse("starts", &config.starts, starts.name(), reason);
        }
    }
    if config.scan.pulls() || newton {
        let reason = if newton { Reason::Newton } else { Reason::ScannedPulls };
        if config.penalty != Penalty::L2 {
            return refuse("penalty", &config.penalty, "l2", reason);
        }
        if config.constraint != Constraint::None {
            return refuse("constraint", &config.constraint, "none", reason);
        }
        if config.states.clip > 0.0 {
            return refuse("states.clip", &config.states.clip, "0", reason);
        }
    }
    if newton && config.states.rate <= 0.0 {
        return refuse("states.rate", &config.states.rate, "more than 0", Reason::Newton);
    }
    if config.scan.pulls() {
        if config.loss != LossOn::Predicted {
            return refuse("loss", &config.loss, "predicted", Reason::ScannedPulls);
        }
        if config.states.rule != StateRule::Sgd {
            return refuse("states.rule", &config.states.rule, "sgd", Reason::ScannedPulls);
        }
    }
    if config.pulls == Pulls::Stored {
        if config.last != Last::None {
            return refuse("last", &config.last, "none", Reason::StoredPulls);
        }
        if config.lambda == 0.0 {
            return refuse("lambda", &config.lambda, "more than 0", Reason::StoredPulls);
        }
    }
    check_batch(config.batch)
}

/// Refuses several windows per update.
pub(super) fn check_batch(batch: Batch) -> Result<(), MethodError> {
    match batch {
        Batch::Full | Batch::Mini { accumulate: 1 } => Ok(()),
        Batch::Mini { accumulate } => {
            Err(MethodError::field("batch.accumulate", accumulate, "1", Reason::OneWindowPerUpdate))
        }
    }
}
