//! What the methods with free states share: everything beneath the algorithm box of a window.
//!
//! A window is S × M blocks (in batch mode the whole corpus). An [`Engine`] puts its states where they begin ([`init`]), computes the
//! objective and its gradients in states and θ ([`gradient`]), moves duals, and carries over what the next window begins with. How
//! states and θ move is the method's own business. Rows run in chunks, between which a window may be left ([`stages`]).

mod gradient;
mod init;
mod newton;
mod saved;
mod scan;
mod stages;
mod states;
mod statistics;

use std::time::Instant;

use super::error::{MethodError, Room};
use super::memory::{self, Keeps};
use super::tapes::{Found, Tapes, WindowText};
use super::{
    Advance, Batch, BtpropConfig, Coupling, Ignore, Init, LambdaSchedule, Last, Learner, LossOn, Method, Outline,
    Pulls, Solver, Starts, StateRule, StateScale, Update,
};
use crate::clock::{Clock, Part};
use crate::comm::{GradientSum, Shares, Span, Unit};
use crate::model::Tape;
use crate::objective::Coupler;
use crate::params::{Grads, Visit};
use crate::real::Real;
use crate::window::Layout;

pub(super) use stages::{Stage, Step};
use states::States;
use statistics::Statistics;

/// The machinery of a window.
#[derive(Debug)]
pub struct Engine<T> {
    pub(super) config: BtpropConfig,
    geometry: Geometry,
    tapes: Tapes<T>,
    /// One block of every stream, for the exact init.
    column: Option<Tape<T>>,
    pub(super) states: States<T>,
    coupler: Coupler<T>,
    found: Found<T>,
    buffers: Buffers<T>,
    /// ∂θ of one chunk, and the sum over chunks, shares and ranks.
    pub(super) grads: Grads<T>,
    pub(super) total: GradientSum<T>,
    carried: Carried<T>,
    lambda: Lambda,
    progress: Progress,
    statistics: Statistics,
    clock: Clock,
}

/// How the text is cut into windows, and a window among ranks.
#[derive(Debug)]
struct Geometry {
    /// S·M of a window, over all ranks.
    blocks: usize,
    /// Windows of an epoch.
    windows: usize,
    shares: Shares,
    /// Rows of this rank.
    span: Span,
    /// The token without weight in the loss.
    ignore: Option<u32>,
}

/// Work space of a pass.
#[derive(Debug)]
struct Buffers<T> {
    /// Gradient in the ends of one chunk.
    d_end: Vec<T>,
    /// Free states of one chunk that the loss looks at, and its gradient there.
    seen: Vec<T>,
    d_seen: Vec<T>,
}

/// What later windows begin with.
#[derive(Debug)]
struct Carried<T> {
    /// Where the window before ended, one row a stream.
    state: Vec<T>,
    /// What the last epoch left: states and duals of all windows.
    stored: Option<Vec<T>>,
    stored_duals: Option<Vec<T>>,
    /// Pulls of all windows; that of a window's last block is the next window's, sent back through its first block.
    pulls: Option<Vec<T>>,
}

/// λ, and the sums of this epoch that its schedule looks at.
#[derive(Debug)]
struct Lambda {
    value: f64,
    residual: f64,
    moved: f64,
}

/// Epoch, window of the epoch, stage of the window.
#[derive(Debug, Default)]
struct Progress {
    epoch: u64,
    window: u64,
    cursor: stages::Cursor,
}

impl<T: Real> Engine<T> {
    /// Plans the windows of a training split; `check` is asked after the split's length is known to do, with the blocks of a window.
    pub fn new(
        config: BtpropConfig,
        learner: &Learner<T>,
        check: impl FnOnce(usize) -> Result<(), MethodError>,
    ) -> Result<Self, MethodError> {
        let model = learner.model;
        let s = config.streams;
        let (per_window, windows) = config.windows(learner.streams(s).length());
        if learner.tokens.len() < config.least_tokens() {
            return Err(MethodError::TooShort {
                tokens: learner.tokens.len(),
                wanted: config.least_tokens(),
                window: config.least_window(),
            });
        }
        check(per_window)?;
        let shares = Shares::deal(learner.comm, per_window, Unit::Blocks)?;
        let span = shares.span(s);
        let room = Room::States { blocks: span.own * windows };
        MethodError::check_memory(room, memory::states(&config, model, span.own, windows))?;
        let parts: Vec<_> = shares.parts().iter().map(|part| part.start * s..part.end * s).collect();
        let tapes = Tapes::new(model, &parts, config.block);
        let keeps = Keeps::of(&config);
        let values = span.own * model.state_width();
        Ok(Self {
            column: (config.init == Init::Sequential).then(|| model.tape(Layout::new(s, config.block))),
            states: States::new(&config, model, &parts, span),
            coupler: Coupler::new(config.penalty),
            found: Found {
                ends: vec![T::ZERO; values],
                diagonals: keeps.diagonals.then(|| vec![T::ZERO; span.own * model.units().matrix_width()]),
            },
            buffers: Buffers { d_end: Vec::new(), seen: Vec::new(), d_seen: Vec::new() },
            grads: model.grads(),
            total: GradientSum::new(model, &shares, tapes.several_a_share()),
            carried: Carried {
                state: vec![model.initial_state(); s * model.state_width()],
                stored: keeps.states_of_all.then(|| vec![model.initial_state(); windows * values]),
                stored_duals: keeps.duals_of_all.then(|| vec![T::ZERO; windows * values]),
                pulls: keeps.pulls_of_all.then(|| vec![T::ZERO; windows * values]),
            },
            lambda: Lambda { value: config.lambda, residual: 0.0, moved: 0.0 },
            progress: Progress::default(),
            statistics: Statistics::new(parts.len(), config.block),
            clock: Clock::default(),
            geometry: Geometry {
                blocks: per_window * s,
                windows,
                shares,
                span,
                ignore: match config.ignore {
                    Ignore::None => None,
                    Ignore::First => learner.tokens.iter().next(),
                    Ignore::Token(token) => Some(token),
                },
            },
            tapes,
            config,
        })
    }

    /// S·M of a window.
    pub fn blocks(&self) -> usize {
        self.geometry.blocks
    }

    /// λ of the present epoch.
    pub fn lambda(&self) -> f64 {
        self.lambda.value
    }

    /// Whether the states had settled before this step.
    pub fn settled_before(&self, step: usize) -> bool {
        let settled = self.progress.cursor.settled;
        settled > 0 && settled <= step as u64
    }

    /// What the present window reads.
    fn text<'a>(&self, l: &Learner<'a, T>) -> WindowText<'a> {
        let at = self.progress.window as usize * self.config.blocks * self.config.block;
        WindowText { streams: l.streams(self.config.streams), at, first: self.geometry.span.first }
    }

    /// The first token of each of this rank's blocks.
    pub fn inputs(&self, l: &Learner<T>) -> Vec<u32> {
        let (text, s, b) = (self.text(l), self.config.streams, self.config.block);
        self.geometry.span.range().map(|row| text.streams.input(row % s, text.at + row / s * b)).collect()
    }

    /// Moves the states along their gradient, by the rule of the configuration.
    pub fn step_states(&mut self, l: &Learner<T>, step: usize) {
        self.states.receive_aims(&self.config, l.model, l.comm);
        self.states.receive_gradient(l.comm);
        let column = self.column(l.model);
        if self.config.states.rule == StateRule::Newton {
            self.newton_step(l, column);
        } else {
            let scale = self.state_scale();
            if self.config.scan.pulls() {
                self.states.fill_gradients(&self.config, scale);
                self.scan_pulls(l.comm, column);
            }
            self.states.step(&self.config, l.model, scale);
            self.store_first_pull(l);
        }
        self.states_moved(l, step);
    }

    /// What ∂L/∂s is multiplied with for the state rule.
    fn state_scale(&self) -> T {
        match self.config.states.scale {
            StateScale::Block => T::of(self.geometry.blocks as f64),
            StateScale::Mean => T::ONE,
        }
    }

    /// After each move of the states.
    pub fn states_moved(&mut self, l: &Learner<T>, step: usize) {
        self.states.send_first(l.comm);
        let tolerance = self.config.states.tolerance;
        if tolerance > 0.0 {
            let [squares, count] = self.statistics.sum(l.comm, &self.states.movement.last);
            if (squares / count.max(1.0)).sqrt() < tolerance {
                self.progress.cursor.settled = step as u64 + 1;
                self.progress.cursor.list_stages(&self.config, self.progress.epoch);
            }
        }
        if self.config.starts == Starts::Moving {
            self.tapes.starts_moved();
        }
    }

    /// After each move of θ, which began `since` and saw a gradient of this norm.
    pub fn theta_moved(&mut self, l: &Learner<T>, norm: f64, since: Instant) {
        self.statistics.norm = norm;
        // Where the last blocks of this pass ended begins the next window.
        let last = &self.found.ends[self.found.ends.len() - self.carried.state.len()..];
        self.states.exchange.carry(l.comm, last, &mut self.carried.state);
        self.tapes.theta_moved();
        self.clock.book(Part::Optimiser, since);
    }

    /// u ← u + α r at the present states and θ: only the recurrence runs.
    pub fn update_duals(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        let Some(duals) = self.config.solver.duals().copied() else { return Ok(()) };
        if !stages::duals_move(&self.config, self.progress.epoch) {
            return Ok(());
        }
        self.pass(Stage::Duals, pause, |me, i| {
            me.recur(l, i);
            me.aim(l, Stage::Duals, i);
            let rows = me.tapes.rows(i);
            let tied = rows.start..rows.end.min(me.tied_rows());
            me.await_targets(l, &rows);
            if !tied.is_empty() {
                let ends = &me.found.ends[tied.start * me.states.width()..tied.end * me.states.width()];
                me.states.raise_duals(tied, ends, &duals, me.lambda.value, me.geometry.blocks);
            }
        })
    }

    /// Stores what the next epoch will begin with.
    pub fn finish(&mut self, l: &Learner<T>) -> Step {
        self.once(Stage::Finish, |me| {
            // Boundary states lag within a window only.
            me.states.receive_first(l.comm, 0);
            let own = me.states.own();
            let at = me.progress.window as usize * own.len();
            if let Some(stored) = &mut me.carried.stored {
                stored[at..at + own.len()].copy_from_slice(&me.states.starts[own.clone()]);
            }
            if let (Some(stored), Some(duals)) = (&mut me.carried.stored_duals, &me.states.duals) {
                stored[at..at + own.len()].copy_from_slice(duals);
            }
        })
    }

    /// λ of the next epoch, and duals that mean the same with it.
    fn reschedule(&mut self) {
        let old = self.lambda.value;
        match self.config.lambda_schedule {
            LambdaSchedule::Constant => {}
            LambdaSchedule::Geometric(factor) => self.lambda.value *= factor,
            LambdaSchedule::Balance(factor) => {
                let (primal, dual) = (self.lambda.residual, old * self.lambda.moved);
                if primal > 10.0 * dual {
                    self.lambda.value *= factor;
                } else if dual > 10.0 * primal {
                    self.lambda.value /= factor;
                }
            }
        }
        // λu is the multiplier itself, which must not jump.
        if self.lambda.value != old {
            let keep = T::of(old / self.lambda.value);
            for duals in [&mut self.states.duals, &mut self.carried.stored_duals].into_iter().flatten() {
                duals.iter_mut().for_each(|u| *u *= keep);
            }
        }
    }

    /// The window is done: what it came to.
    fn end_window(&mut self, l: &Learner<T>) -> Advance {
        self.progress.window += 1;
        let sweeps = self.progress.cursor.sweeps(&self.config, self.progress.epoch);
        self.progress.cursor.reset();
        self.tapes.tokens_changed();
        let tokens = (self.geometry.blocks * self.config.block) as u64;
        let window = self.statistics.gather(l.comm, &self.states.movement.path);
        let (nats, norm, moved) = (window.nats, self.statistics.norm, window.moved);
        if !norm.is_finite() || !nats.is_finite() {
            return Advance::Diverged { norm, nats_per_token: nats / tokens as f64 };
        }
        let mut sums = window.coupling;
        sums.penalty /= self.geometry.blocks as f64;
        self.lambda.residual += sums.residual;
        self.lambda.moved += moved;
        let objective = nats / tokens as f64 + sums.penalty;
        let coupling = Coupling { windows: 1.0, objective, moved, sweeps: sweeps as f64, sums };
        Advance::Update(Update { nats, tokens, norm, coupling: Some(coupling) })
    }
}

/// A method whose update is one window: it has an engine and an algorithm box. (Public in name only: the module is not.)
pub trait Windowed: Send + std::fmt::Debug {
    /// Of the weights.
    type Number: Real;

    /// The algorithm box: one window, left when paused and then entered again from its beginning.
    fn window(&mut self, l: &mut Learner<Self::Number>, pause: &mut dyn FnMut() -> bool) -> Step;

    /// What lies beneath it.
    fn engine(&self) -> &Engine<Self::Number>;

    /// The same, to change.
    fn engine_mut(&mut self) -> &mut Engine<Self::Number>;
}

impl<M: Windowed> Method<M::Number> for M {
    fn begin_epoch(&mut self, learner: &Learner<M::Number>, epoch: usize) {
        let engine = self.engine_mut();
        let before = engine.progress.epoch;
        if before > 0 && epoch as u64 > before {
            engine.reschedule();
        }
        (engine.lambda.residual, engine.lambda.moved) = (0.0, 0.0);
        (engine.progress.epoch, engine.progress.window) = (epoch as u64, 0);
        engine.carried.state.fill(learner.model.initial_state());
    }

    fn advance(&mut self, learner: &mut Learner<M::Number>, pause: &mut dyn FnMut() -> bool) -> Advance {
        let engine = self.engine_mut();
        if engine.progress.window as usize == engine.geometry.windows {
            return Advance::EpochEnd;
        }
        engine.progress.cursor.list_stages(&engine.config, engine.progress.epoch);
        match self.window(learner, pause) {
            Ok(()) => self.engine_mut().end_window(learner),
            Err(stages::Paused) => Advance::Paused,
        }
    }

    fn nats_by_position(&self) -> &[f64] {
        self.engine().statistics.nats_by_position()
    }

    fn updates_per_epoch(&self) -> usize {
        self.engine().geometry.windows
    }

    fn tokens_per_epoch(&self) -> u64 {
        let Engine { geometry, config, .. } = self.engine();
        (geometry.windows * geometry.blocks * config.block) as u64
    }

    fn lambda(&self) -> Option<f64> {
        Some(self.engine().lambda())
    }

    fn sweeps_vary(&self) -> bool {
        self.engine().config.sweep_tolerance > 0.0
    }

    fn movable_states(&self) -> usize {
        let Engine { geometry, config, .. } = self.engine();
        let (first, behind) = states::outermost(config);
        geometry.blocks - config.streams + config.streams * (usize::from(first) + usize::from(behind))
    }

    fn visit(&mut self, visit: &mut dyn Visit<M::Number>) {
        self.engine_mut().show(visit);
    }

    fn check_restored(&mut self) -> Result<(), String> {
        let engine = self.engine_mut();
        engine.progress.cursor.list_stages(&engine.config, engine.progress.epoch);
        engine.progress.cursor.check()
    }

    fn clock(&mut self) -> &mut Clock {
        let engine = self.engine_mut();
        engine.tapes.take_clock(&mut engine.clock);
        if let Some(column) = &mut engine.column {
            engine.clock.take(&mut column.clock);
        }
        engine.clock.flops += std::mem::take(&mut engine.coupler.flops);
        &mut engine.clock
    }
}
