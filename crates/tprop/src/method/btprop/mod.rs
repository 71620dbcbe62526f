//! Block target propagation: free states every B steps, tied to the recurrence by a penalty and perhaps duals.
//!
//! [`Btprop::window`] is the paper's algorithm box. A window is S × M blocks (in batch mode the whole corpus); its rows run in pieces
//! ([`super::pieces`]), and between two pieces a pass may be left and entered again: [`Script`] counts what of the box has
//! been done, so that the box itself stays a straight line.

mod check;
mod ladder;
mod script;
mod slopes;
mod state;

use std::ops::Range;
use std::time::Instant;

use check::{check, check_memory};
use script::{Script, Step};
use slopes::{Known, Want};

use super::least_squares::{self, Fit, StateProblem};
use super::memory::Keeps;
use super::pieces::Pieces;
use super::states::States;
use super::{
    Advance, Batch, BtpropConfig, Coupling, First, Ignore, Init, LambdaSchedule, Last, Learner, LossOn, Method, Solver,
    Starts, StateScale, ThetaSolver, Update,
};
use crate::clock::{Clock, Part};
use crate::comm::{GradientSum, Post, Shares, Topic, gather_numbers};
use crate::mat::{Mat, MatMut};
use crate::model::{Tape, ThetaGradient, Weight};
use crate::objective::{Boundary, BoundaryGrads, Coupler, CouplingSums, CouplingWeight};
use crate::params::{Grads, Rows, Walk};
use crate::real::Real;
use crate::window::Layout;

/// Block target propagation.
#[derive(Debug)]
pub struct Btprop<T> {
    config: BtpropConfig,
    /// The token without weight in the loss.
    ignore: Option<u32>,
    /// M·S of the window, over all ranks.
    blocks: usize,
    /// How the blocks are dealt.
    shares: Shares,
    /// Rows of this rank.
    mine: Range<usize>,
    windows: usize,
    pieces: Pieces<T>,
    /// One block of every stream, for the exact init.
    lane: Option<Tape<T>>,
    states: States<T>,
    coupler: Coupler<T>,
    /// Ends of one piece, or of all rows during an init sweep.
    ends: Vec<T>,
    d_end: Vec<T>,
    /// Free states that the loss looks at, and its slopes there.
    seen: Vec<T>,
    d_seen: Vec<T>,
    /// Of one piece, and the sum over pieces, shares and ranks.
    grads: Grads<T>,
    total: GradientSum<T>,
    /// What the last epoch left: states and duals of all windows.
    stored: Option<Vec<T>>,
    stored_duals: Option<Vec<T>>,
    /// End state of the window before.
    carried: Vec<T>,
    lambda: f64,
    epoch: u64,
    at: u64,
    script: Script,
    /// What each piece's tape still holds.
    known: Vec<Known>,
    /// By share.
    sums: Vec<Sums>,
    norm: f64,
    /// The last window's sums over all ranks, then its nats by position.
    told: Vec<f64>,
    /// Sums of this epoch, for the schedule of λ.
    epoch_residual: f64,
    epoch_moved: f64,
    clock: Clock,
}

/// What the last θ pass saw of a share.
#[derive(Clone, Debug, Default)]
struct Sums {
    nats: f64,
    by_position: Vec<f64>,
    coupling: CouplingSums,
}

impl Sums {
    fn clear(&mut self) {
        (self.nats, self.coupling) = (0.0, CouplingSums::default());
        self.by_position.fill(0.0);
    }
}

/// Numbers in front of the positions in `told`: the largest residual, then sums.
const TOLD: usize = 8;

impl<T: Real> Btprop<T> {
    /// Plans the windows of a training split. The text says what does not fit.
    pub fn new(config: BtpropConfig, learner: &Learner<T>) -> Result<Self, String> {
        let model = learner.model;
        let (s, b) = (config.streams, config.block);
        let (per_window, windows) = config.windows(learner.streams(s).length());
        check(&config, model, learner, per_window, windows)?;
        let shares = Shares::deal(learner.comm, per_window, "blocks")?;
        let blocks = per_window * s;
        let owned = shares.owned();
        let mine = owned.start * s..owned.end * s;
        check_memory(&config, model, mine.len(), windows)?;
        let parts: Vec<_> = shares.parts().iter().map(|part| part.start * s..part.end * s).collect();
        let rows = mine.len();
        let width = model.state_width();
        let pieces = Pieces::new(model, &parts, b);
        let keeps = Keeps::of(&config);
        let ranks = (mine.start == 0, mine.end == blocks);
        Ok(Self {
            ignore: match config.ignore {
                Ignore::None => None,
                Ignore::First => learner.tokens.iter().next(),
                Ignore::Token(token) => Some(token),
            },
            lane: (config.init == Init::Sequential).then(|| model.tape(Layout::new(s, b))),
            states: States::new(&config, model, &parts, ranks),
            coupler: Coupler::new(config.penalty),
            ends: vec![T::ZERO; rows * width],
            d_end: vec![T::ZERO; if pieces.count() > 1 { 0 } else { rows * width }],
            seen: Vec::new(),
            d_seen: Vec::new(),
            grads: model.grads(),
            total: GradientSum::new(model, &shares, pieces.several_a_share()),
            stored: keeps.states_of_all.then(|| vec![model.initial_state(); windows * rows * width]),
            stored_duals: keeps.duals_of_all.then(|| vec![T::ZERO; windows * rows * width]),
            carried: vec![model.initial_state(); s * width],
            lambda: config.lambda,
            epoch: 0,
            at: 0,
            script: Script::default(),
            known: vec![Known::default(); pieces.count()],
            sums: vec![Sums { by_position: vec![0.0; config.block], ..Sums::default() }; parts.len()],
            norm: 0.0,
            told: Vec::new(),
            epoch_residual: 0.0,
            epoch_moved: 0.0,
            clock: Clock::default(),
            blocks,
            shares,
            mine,
            windows,
            pieces,
            config,
        })
    }

    /// One window: the paper's algorithm.
    fn window(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        self.init_states(l, pause)?;
        match self.config.solver {
            Solver::Alm { joint_steps, .. } => {
                for _ in 0..joint_steps {
                    self.update_states_and_theta(l, pause)?; // s, θ ← s, θ − η ∂L/∂(s, θ)
                }
            }
            Solver::Admm { before_theta: true, .. } => {
                self.state_steps(l, pause)?;
                self.update_duals(l, pause)?; // u ← u + α r
                self.theta_steps(l, pause)?;
                return self.finish(l);
            }
            Solver::Penalty | Solver::Admm { .. } => {
                self.state_steps(l, pause)?;
                self.theta_steps(l, pause)?;
            }
        }
        self.update_duals(l, pause)?; // u ← u + α r
        self.finish(l)
    }

    fn state_steps(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        for step in 0..self.config.states.steps {
            if self.script.settled > 0 && self.script.settled <= step as u64 {
                break;
            }
            self.update_states(l, pause, step)?; // s ← s − η ∂L/∂s, θ held
        }
        Ok(())
    }

    fn theta_steps(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        for _ in 0..self.config.theta_steps {
            self.update_theta(l, pause)?; // θ ← θ − η ∂L/∂θ, s held
        }
        Ok(())
    }

    fn update_states(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, step: usize) -> Step {
        self.slopes(l, pause, Want { states: true, theta: false })?;
        self.once(|me| me.move_states(l, step))
    }

    fn update_theta(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        self.slopes(l, pause, Want { states: false, theta: true })?;
        self.once(|me| me.move_theta(l))
    }

    fn update_states_and_theta(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        self.slopes(l, pause, Want { states: true, theta: true })?;
        self.once(|me| {
            me.move_states(l, 0);
            me.move_theta(l);
        })
    }

    /// r at the present states and θ: only the recurrence runs.
    fn update_duals(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        let Some(duals) = self.config.solver.duals().copied() else { return Ok(()) };
        if (self.epoch as usize) < duals.start_epoch {
            return Ok(());
        }
        self.pass(pause, |me, i| {
            me.recur(l, i);
            let (rows, _) = me.pieces.get(i);
            let tied = rows.start..rows.end.min(me.tied_rows());
            if me.aims_at_next_rank(&rows) {
                me.states.arrive(l.comm, me.config.staleness);
            }
            if !tied.is_empty() {
                let ends = &me.ends[tied.start * me.states.width()..tied.end * me.states.width()];
                me.states.raise_duals(tied, ends, duals.rule, duals.rate, me.lambda, me.blocks);
            }
        })
    }

    fn move_states(&mut self, l: &Learner<T>, step: usize) {
        match self.config.theta_solver {
            ThetaSolver::Gradient => self.states.step(&self.config, l.model, l.comm, self.blocks),
            ThetaSolver::LeastSquares { .. } => self.solve_states(l),
        }
        self.states.refresh(l.comm);
        if self.config.states.tolerance > 0.0 {
            let shifts = &mut self.told;
            shifts.clear();
            shifts.extend(self.states.shifts.as_flattened());
            gather_numbers(l.comm, shifts);
            let [squares, count] = shifts.as_chunks::<2>().0.iter().fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
            if (squares / count.max(1.0)).sqrt() < self.config.states.tolerance {
                self.script.settled = step as u64 + 1;
            }
        }
        if self.config.starts == Starts::Moving {
            self.known.iter_mut().for_each(|known| (known.recurrence, known.loss) = (false, false));
        }
    }

    /// s ← argmin of the quadratic model; as [`States::step`].
    fn solve_states(&mut self, l: &Learner<T>) {
        let weight = match self.config.states.scale {
            StateScale::Block => 1.0,
            StateScale::Mean => self.blocks as f64,
        };
        let problem = StateProblem {
            inputs: &self.inputs(l),
            streams: self.config.streams,
            lambda: self.lambda,
            prox: weight / self.config.states.rate,
            first_moves: self.config.first == First::Free,
        };
        let delta = problem.solve(l.model, &l.params, &self.states.slopes(self.blocks));
        self.states.shift(&delta);
    }

    /// Tokens of the rows, if θ or the states are solved for (B = 1).
    fn inputs(&self, l: &Learner<T>) -> Vec<u32> {
        if self.config.theta_solver == ThetaSolver::Gradient {
            return Vec::new();
        }
        let (s, at) = (self.config.streams, self.at as usize * self.config.blocks);
        self.mine.clone().map(|q| l.streams(s).input(q % s, at + q / s)).collect()
    }

    fn move_theta(&mut self, l: &mut Learner<T>) {
        let since = Instant::now();
        let inputs = self.inputs(l);
        let grads = self.total.finish(l.comm, &mut self.grads);
        self.norm = match self.config.theta_solver {
            ThetaSolver::Gradient => l.optimiser.update(&mut l.params, grads, 1.0),
            ThetaSolver::LeastSquares { ridge } => {
                let starts = &self.states.starts[self.states.own()];
                let (targets, duals) = (self.states.targets(), self.states.duals.as_deref());
                least_squares::update(l, grads, Fit { inputs: &inputs, starts, targets, duals }, ridge)
            }
        };
        self.keep_carried(l);
        self.known.iter_mut().for_each(|known| *known = Known { tokens: known.tokens, ..Known::default() });
        self.clock.book(Part::Optimiser, since);
    }

    /// F_M(s_M) of this pass begins the next window; the rank with the first blocks keeps it.
    fn keep_carried(&mut self, l: &Learner<T>) {
        let last = &self.ends[self.ends.len() - self.carried.len()..];
        match (self.states.first_rank, self.states.last_rank) {
            (true, true) => self.carried.copy_from_slice(last),
            (true, false) => Post(l.comm).receive(l.comm.size() - 1, Topic::CARRIED, &mut self.carried),
            (false, true) => Post(l.comm).send(0, Topic::CARRIED, last),
            (false, false) => {}
        }
    }

    /// What the next epoch will begin with.
    fn finish(&mut self, l: &Learner<T>) -> Step {
        self.once(|me| {
            // Boundary states lag within a window only.
            me.states.arrive(l.comm, 0);
            let own = me.states.own();
            let at = me.at as usize * own.len();
            if let Some(stored) = &mut me.stored {
                stored[at..at + own.len()].copy_from_slice(&me.states.starts[own.clone()]);
            }
            if let (Some(stored), Some(duals)) = (&mut me.stored_duals, &me.states.duals) {
                stored[at..at + own.len()].copy_from_slice(duals);
            }
        })
    }

    /// The window's sums over all shares, in their order, into `told`.
    fn gather_sums(&mut self, l: &Learner<T>) {
        let all = &mut self.told;
        all.clear();
        for (sums, &moved) in self.sums.iter().zip(&self.states.moved) {
            let c = sums.coupling;
            all.extend([c.residual_max, sums.nats, c.penalty, c.boundaries, c.residual, c.state, c.dual, moved]);
            all.extend(&sums.by_position);
        }
        gather_numbers(l.comm, all);
        let len = TOLD + self.config.block;
        for from in (len..all.len()).step_by(len) {
            let (sums, share) = all.split_at_mut(from);
            sums[0] = sums[0].max(share[0]);
            sums[1..len].iter_mut().zip(&share[1..len]).for_each(|(sum, x)| *sum += x);
        }
        all.truncate(len);
    }

    /// λ of the next epoch, and duals that mean the same with it.
    fn reschedule(&mut self) {
        let old = self.lambda;
        match self.config.lambda_schedule {
            LambdaSchedule::Constant => {}
            LambdaSchedule::Geometric(factor) => self.lambda *= factor,
            LambdaSchedule::Balance(factor) => {
                let (primal, dual) = (self.epoch_residual, old * self.epoch_moved);
                if primal > 10.0 * dual {
                    self.lambda *= factor;
                } else if dual > 10.0 * primal {
                    self.lambda /= factor;
                }
            }
        }
        // λu is the multiplier itself, which must not jump.
        if self.lambda != old {
            let keep = T::of(old / self.lambda);
            for duals in [&mut self.states.duals, &mut self.stored_duals].into_iter().flatten() {
                duals.iter_mut().for_each(|u| *u *= keep);
            }
        }
    }
}

impl<T: Real> Method<T> for Btprop<T> {
    fn begin_epoch(&mut self, learner: &Learner<T>, epoch: usize) {
        if self.epoch > 0 && epoch as u64 > self.epoch {
            self.reschedule();
        }
        (self.epoch_residual, self.epoch_moved) = (0.0, 0.0);
        self.epoch = epoch as u64;
        self.at = 0;
        self.carried.fill(learner.model.initial_state());
    }

    fn advance(&mut self, learner: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Advance {
        if self.at as usize == self.windows {
            return Advance::EpochEnd;
        }
        self.script.now = 0;
        if self.window(learner, pause).is_err() {
            return Advance::Paused;
        }
        self.at += 1;
        self.script = Script::default();
        self.known.fill(Known::default());
        let tokens = (self.blocks * self.config.block) as u64;
        self.gather_sums(learner);
        let &[residual_max, nats, penalty, boundaries, residual, state, dual, moved] =
            self.told.first_chunk::<TOLD>().expect("gathered");
        let (norm, penalty) = (self.norm, penalty / self.blocks as f64);
        if !norm.is_finite() || !nats.is_finite() {
            return Advance::Diverged { norm, nats_per_token: nats / tokens as f64 };
        }
        self.epoch_residual += residual;
        self.epoch_moved += moved;
        let objective = nats / tokens as f64 + penalty;
        let sums = CouplingSums { penalty, boundaries, residual, residual_max, state, dual };
        let coupling = Coupling { windows: 1.0, objective, moved, sums };
        Advance::Update(Update { nats, tokens, norm, coupling: Some(coupling) })
    }

    fn nats_by_position(&self) -> &[f64] {
        self.told.get(TOLD..).unwrap_or_default()
    }

    fn updates_per_epoch(&self) -> usize {
        self.windows
    }

    fn tokens_per_epoch(&self) -> u64 {
        (self.windows * self.blocks * self.config.block) as u64
    }

    fn lambda(&self) -> Option<f64> {
        Some(self.lambda)
    }

    fn walk(&mut self, walk: &mut dyn Walk<T>) {
        self.show(walk);
    }

    fn clock(&mut self) -> &mut Clock {
        self.pieces.take_clock(&mut self.clock);
        if let Some(lane) = &mut self.lane {
            self.clock.take(&mut lane.clock);
        }
        self.clock.flops += std::mem::take(&mut self.coupler.flops);
        &mut self.clock
    }
}
