//! Block target propagation: free states every B steps, tied to the recurrence by a penalty and perhaps duals.
//!
//! [`Btprop::window`] is the paper's algorithm box. A window is S × M blocks (in batch mode the whole corpus); its rows run in pieces
//! ([`super::pieces`]), and between two pieces a pass may be left and entered again: [`Script`] counts what of the box has
//! been done, so that the box itself stays a straight line.

use std::ops::Range;
use std::time::Instant;

use super::least_squares::{self, Fit, StateProblem};
use super::pieces::Pieces;
use super::states::States;
use super::{
    Advance, Batch, BtpropConfig, Coupling, First, Init, LambdaSchedule, Last, Learner, LossOn, Method, Solver, Starts,
    StateScale, ThetaSolver, Update,
};
use crate::clock::{Clock, Part};
use crate::comm::{Post, share, sum_gradient};
use crate::mat::{Mat, MatMut};
use crate::model::Tape;
use crate::objective::{Boundary, Coupler, CouplingSums};
use crate::params::{Grads, Walk};
use crate::real::Real;
use crate::window::Layout;

/// Block target propagation.
#[derive(Debug)]
pub struct Btprop<T> {
    config: BtpropConfig,
    /// M·S of the window, over all ranks.
    blocks: usize,
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
    grads: Grads<T>,
    /// Sum over pieces when there are several.
    total: Option<Grads<T>>,
    /// What the last epoch left: states and duals of all windows.
    stored: Option<Vec<T>>,
    stored_duals: Option<Vec<T>>,
    /// End state of the window before.
    carried: Vec<T>,
    lambda: f64,
    epoch: u64,
    at: u64,
    script: Script,
    known: Known,
    sums: Sums,
    /// The last window's sums over all ranks, then its nats by position.
    told: Vec<f64>,
    post: Post,
    /// Sums of this epoch, for the schedule of λ.
    epoch_residual: f64,
    epoch_moved: f64,
    exchanges: u64,
    clock: Clock,
}

/// How far the box has been worked through.
#[derive(Clone, Copy, Debug, Default)]
struct Script {
    /// Stages finished, and pieces of the next one.
    done: u64,
    piece: u64,
    /// The stage that the code has come to since it was entered.
    now: u64,
    /// State steps after which the states had settled, if they had (+1).
    settled: u64,
}

/// What the single piece's tape still holds; several pieces share tapes and so know nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    tokens: bool,
    inputs: bool,
    recurrence: bool,
    loss: bool,
    /// The output layer's gradient is already in `grads`.
    output_gradient: bool,
}

/// What the last θ pass saw.
#[derive(Clone, Debug, Default)]
struct Sums {
    nats: f64,
    by_position: Vec<f64>,
    coupling: CouplingSums,
    norm: f64,
}

impl Sums {
    fn clear(&mut self) {
        (self.nats, self.coupling, self.norm) = (0.0, CouplingSums::default(), 0.0);
        self.by_position.fill(0.0);
    }
}

/// Numbers in front of the positions in `told`.
const TOLD: usize = 7;

/// The watcher wants to look in.
struct Paused;

type Step = Result<(), Paused>;

/// What a pass should find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Want {
    states: bool,
    theta: bool,
}

impl<T: Real> Btprop<T> {
    /// Plans the windows of a training split. The text says what does not fit.
    pub fn new(config: BtpropConfig, learner: &Learner<T>) -> Result<Self, String> {
        let model = learner.model;
        let (s, b) = (config.streams, config.block);
        let length = learner.streams(s).length();
        let (per_window, windows) = match config.batch {
            Batch::Full => (length / b, 1),
            Batch::Mini { .. } => (config.blocks, length / (b * config.blocks)),
        };
        check(&config, model, learner, per_window, windows)?;
        let blocks = per_window * s;
        let owned = share(per_window, learner.comm.rank(), learner.comm.size());
        let mine = owned.start * s..owned.end * s;
        let rows = mine.len();
        let width = model.state_width();
        let full = config.batch == Batch::Full;
        let pieces = Pieces::new(model, rows, b);
        let keeps_states = !full && matches!(config.init, Init::Stored { .. });
        let keeps_duals = !full && config.solver.duals().is_some_and(|d| d.stored);
        let ranks = (mine.start == 0, mine.end == blocks);
        let piece_rows = if pieces.count() > 1 { 0 } else { rows };
        Ok(Self {
            lane: (config.init == Init::Sequential).then(|| model.tape(Layout::new(s, b))),
            states: States::new(&config, model, rows, s, ranks),
            coupler: Coupler::new(config.penalty),
            ends: vec![T::ZERO; rows * width],
            d_end: vec![T::ZERO; if piece_rows > 0 { rows * width } else { 0 }],
            seen: Vec::new(),
            d_seen: Vec::new(),
            grads: model.grads(),
            total: (pieces.count() > 1).then(|| model.grads()),
            stored: keeps_states.then(|| vec![model.rest(); windows * rows * width]),
            stored_duals: keeps_duals.then(|| vec![T::ZERO; windows * rows * width]),
            carried: vec![model.rest(); s * width],
            lambda: config.lambda,
            epoch: 0,
            at: 0,
            script: Script::default(),
            known: Known::default(),
            sums: Sums { by_position: vec![0.0; config.block], ..Sums::default() },
            told: Vec::new(),
            post: Post::default(),
            epoch_residual: 0.0,
            epoch_moved: 0.0,
            exchanges: 0,
            clock: Clock::default(),
            blocks,
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
                return self.finish();
            }
            Solver::Penalty | Solver::Admm { .. } => {
                self.state_steps(l, pause)?;
                self.theta_steps(l, pause)?;
            }
        }
        self.update_duals(l, pause)?; // u ← u + α r
        self.finish()
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
            if !tied.is_empty() {
                let ends = &me.ends[tied.start * me.states.width()..tied.end * me.states.width()];
                me.states.raise_duals(tied, ends, duals.rule, duals.rate, me.lambda, me.blocks);
            }
        })
    }

    /// Where the window's states begin: the init ladder.
    fn init_states(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        let (full, width) = (self.config.batch == Batch::Full, self.states.width());
        let slots = self.config.streams * width;
        // Held starts lie on the trajectory of the present θ, so they are found anew for every pass.
        let persists = full && self.epoch > 1 && self.config.starts == Starts::Moving;
        self.once(|me| {
            let keep_duals = full || me.stored_duals.is_some();
            if !persists {
                me.states.begin_window(keep_duals);
                let own = me.states.own();
                match &me.stored {
                    Some(stored) => {
                        let from = me.at as usize * own.len();
                        me.states.starts[own.clone()].copy_from_slice(&stored[from..from + own.len()]);
                    }
                    None => me.states.starts.fill(l.model.rest()),
                }
                if let (Some(duals), Some(stored)) = (&mut me.states.duals, &me.stored_duals) {
                    duals.copy_from_slice(&stored[me.at as usize * own.len()..][..own.len()]);
                }
                if me.config.last != Last::None {
                    me.states.behind_mut().fill(T::ZERO);
                }
            }
            me.states.moved = 0.0;
            if me.states.first_rank && (!persists || me.config.first == First::Fixed) {
                let carried = &me.carried;
                me.states.starts[..slots].copy_from_slice(carried);
            }
            me.known = Known::default();
        })?;
        if !persists {
            match self.config.init {
                Init::Zero => {}
                Init::Parallel { sweeps } => {
                    // The first sweep starts every block, the first one too, from the rest state.
                    for sweep in 0..sweeps {
                        self.sweep(l, pause, sweep == 0)?;
                    }
                }
                Init::Stored { sweeps } => {
                    for _ in 0..sweeps {
                        self.sweep(l, pause, false)?;
                    }
                }
                Init::Sequential => self.follow(l, pause)?,
            }
        }
        self.once(|me| {
            me.states.refresh(l.comm);
            if !persists {
                me.states.settle(&me.config, l.model);
            }
        })
    }

    /// s_{k+1} ← F_k(s_k), or F_k(rest), for all blocks at once.
    fn sweep(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, from_rest: bool) -> Step {
        self.pass(pause, |me, i| {
            if from_rest {
                me.prepare(l, i);
                let (rows, tape) = me.pieces.get(i);
                let at = rows.start * me.states.width()..rows.end * me.states.width();
                // `d_start` is free before the first slope.
                me.states.d_start[at.clone()].fill(l.model.rest());
                l.model.recur(&l.params, tape, &me.states.d_start[at.clone()]);
                l.model.ends(tape, &mut me.ends[at]);
            } else {
                me.recur(l, i);
            }
            me.known.recurrence = false;
        })?;
        self.once(|me| {
            let behind = me.config.loss == LossOn::Free;
            me.states.take_ends(&me.ends, l.comm, behind);
        })
    }

    /// s_{k+1} ← F_k(s_k), block after block: the exact trajectory, with every residual 0.
    fn follow(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        let (s, width) = (self.config.streams, self.states.width());
        let slots = s * width;
        for turn in 0..l.comm.size() {
            if turn == l.comm.rank() {
                let chunk = 64;
                let own = self.mine.len() / s;
                self.pass_over(own.div_ceil(chunk), pause, |me, i| {
                    let cut = l.streams(s);
                    let at = me.at as usize * me.config.blocks * me.config.block;
                    // A single piece's input products serve the later passes as well.
                    let alone = me.pieces.count() == 1;
                    if alone {
                        me.prepare(l, 0);
                    }
                    let lane = me.lane.as_mut().expect("made for this init");
                    lane.forget_weights();
                    for k in i * chunk..own.min((i + 1) * chunk) {
                        if alone {
                            let (_, tape) = me.pieces.get(0);
                            l.model.take_inputs(lane, tape, k * s);
                        } else {
                            let rows = me.mine.start + k * s..me.mine.start + (k + 1) * s;
                            cut.fill(&lane.layout(), at, rows, &mut lane.inputs, &mut lane.targets);
                            l.model.prepare(&l.params, lane);
                        }
                        let (here, next) = me.states.starts[k * slots..(k + 2) * slots].split_at_mut(slots);
                        l.model.recur(&l.params, lane, here);
                        // Behind the last block stands a target of its own unless the loss looks at it.
                        if k + 1 < own || !me.states.last_rank || me.config.loss == LossOn::Free {
                            l.model.ends(lane, next);
                        }
                    }
                })?;
            } else {
                self.pass_over(0, pause, |_, _| {})?;
            }
            self.once(|me| {
                let States { starts, d_start, .. } = &mut me.states;
                let (own, behind) = starts.split_at_mut(me.mine.len() * width);
                // `d_start` is free before the first slope.
                me.post.forward(l.comm, behind, &mut d_start[..slots]);
                if l.comm.rank() == turn + 1 {
                    own[..slots].copy_from_slice(&d_start[..slots]);
                }
            })?;
        }
        Ok(())
    }

    /// L and its slopes at the present states: in the states, in θ, or both.
    fn slopes(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, want: Want) -> Step {
        self.once(|me| {
            if want.theta {
                me.sums.clear();
                if !me.known.output_gradient {
                    me.grads.clear();
                }
                me.total.iter_mut().for_each(Grads::clear);
            }
        })?;
        self.pass(pause, |me, i| {
            if let (true, Some(_)) = (want.theta, &me.total) {
                me.grads.clear();
            }
            me.piece_slopes(l, i, want);
            if let (true, Some(total)) = (want.theta, &mut me.total) {
                me.grads.settle();
                total.add(&me.grads);
            }
        })
    }

    /// One piece of [`Self::slopes`].
    fn piece_slopes(&mut self, l: &mut Learner<T>, i: usize, want: Want) {
        self.recur(l, i);
        let (model, params) = (l.model, &l.params);
        let width = self.states.width();
        let tied = self.tied_rows();
        let counted = self.counted_rows();
        let (rows, tape) = self.pieces.get(i);
        let at = rows.start * width..rows.end * width;
        let scale = 1.0 / self.blocks as f64;
        let per_token = T::of(scale / self.config.block as f64);
        let held = self.config.starts == Starts::Held;
        let mut nats = None;
        if self.config.loss == LossOn::Predicted && !self.known.loss {
            // Held starts never move, so the output layer is done once for the window, its gradient included.
            let now = want.theta || (held && self.total.is_none());
            if now && !want.theta {
                self.grads.clear();
            }
            let grads = now.then_some(&mut self.grads);
            nats = Some(model.loss(params, tape, per_token, self.config.ignore, grads));
            self.known.loss = self.total.is_none();
            self.known.output_gradient = now && self.total.is_none();
        } else if self.config.loss == LossOn::Predicted && want.theta && !self.known.output_gradient {
            nats = Some(model.loss(params, tape, per_token, self.config.ignore, Some(&mut self.grads)));
        }
        // The pull of the coupling; rows that are tied to nothing feel none.
        self.d_end.resize(at.len(), T::ZERO);
        let some = rows.start..rows.end.min(tied).max(rows.start);
        let n = some.len() * width;
        self.d_end[n..].fill(T::ZERO);
        self.states.d_target[at.clone()][n..].fill(T::ZERO);
        let mut d_target = std::mem::take(&mut self.states.d_target);
        let boundary = Boundary {
            ends: &self.ends[at.start..at.start + n],
            targets: &self.states.targets()[at.start..at.start + n],
            duals: self.states.duals.as_ref().map(|u| &u[at.start..at.start + n]),
        };
        let theta = want.theta.then_some(&mut self.grads);
        let sums = self.coupler.pull(
            model,
            params,
            boundary,
            self.lambda,
            scale,
            &mut self.d_end[..n],
            &mut d_target[at.start..at.start + n],
            theta,
            some.end.min(counted).saturating_sub(some.start),
        );
        self.states.d_target = d_target;
        let predicted = self.config.loss == LossOn::Predicted;
        if !predicted {
            nats = Some(self.free_loss(l, i, want));
        }
        let (rows, tape) = self.pieces.get(i);
        let at = rows.start * width..rows.end * width;
        let d_start = want.states.then(|| &mut self.states.d_start[at]);
        let grads = want.theta.then_some(&mut self.grads);
        model.backward(params, tape, predicted, Some(&self.d_end), d_start, grads);
        if want.theta {
            self.sums.nats += nats.unwrap_or_else(|| tape.total_nats());
            tape.nats_by_step(&mut self.sums.by_position);
            add_sums(&mut self.sums.coupling, &sums);
        }
    }

    /// The loss of the free states s_{k+1} themselves; its slope joins that of the targets.
    fn free_loss(&mut self, l: &Learner<T>, i: usize, want: Want) -> f64 {
        let (width, h) = (self.states.width(), l.model.config().hidden);
        let top = l.model.top();
        let (rows, tape) = self.pieces.get(i);
        let layout = tape.layout();
        // B = 1, so a row is a token; tokens lie in the order of the layout.
        let (seen, slopes) = (&mut self.seen, &mut self.d_seen);
        seen.resize(rows.len() * h, T::ZERO);
        slopes.resize(rows.len() * h, T::ZERO);
        layout.each(|place, row, _| {
            let from = (rows.start + row) * width;
            seen[place * h..][..h].copy_from_slice(&self.states.targets()[from..][top.clone()]);
        });
        let scale = T::of(1.0 / self.blocks as f64);
        let grads = want.theta.then_some(&mut self.grads);
        let (softmax, nats, targets, clock) = tape.output_parts();
        let dh = MatMut::new(slopes, rows.len(), h);
        let states = Mat::new(seen, rows.len(), h);
        l.model.loss_at(&l.params, softmax, nats, dh, states, targets, scale, self.config.ignore, grads, clock);
        let total = tape.total_nats();
        layout.each(|place, row, _| {
            let to = (rows.start + row) * width;
            crate::kernel::add(&mut self.states.d_target[to..][top.clone()], &slopes[place * h..][..h]);
        });
        total
    }

    /// Tokens and input products of a piece, unless its tape still has them.
    fn prepare(&mut self, l: &Learner<T>, i: usize) {
        let alone = self.pieces.count() == 1;
        let (rows, tape) = self.pieces.get(i);
        if !(alone && self.known.tokens) {
            let at = self.at as usize * self.config.blocks * self.config.block;
            let rows = self.mine.start + rows.start..self.mine.start + rows.end;
            l.streams(self.config.streams).fill(&tape.layout(), at, rows, &mut tape.inputs, &mut tape.targets);
        }
        if !(alone && self.known.inputs) {
            l.model.prepare(&l.params, tape);
        }
        (self.known.tokens, self.known.inputs) = (alone, alone);
    }

    /// The recurrence of a piece from the present starts, unless its tape still has it; its ends into `self.ends`.
    fn recur(&mut self, l: &Learner<T>, i: usize) {
        let alone = self.pieces.count() == 1;
        if alone && self.known.recurrence {
            return;
        }
        self.prepare(l, i);
        let (rows, tape) = self.pieces.get(i);
        let at = rows.start * self.states.width()..rows.end * self.states.width();
        l.model.recur(&l.params, tape, &self.states.starts[at.clone()]);
        l.model.ends(tape, &mut self.ends[at]);
        self.known.recurrence = alone;
        self.known.loss = false;
    }

    /// Rows that are tied to a target: all but the last block's, unless `last` or the loss ties it.
    fn tied_rows(&self) -> usize {
        let all = self.config.last != Last::None || self.config.loss == LossOn::Free || !self.states.last_rank;
        self.mine.len() - if all { 0 } else { self.config.streams }
    }

    /// Rows whose residuals are counted: the slot behind the last block is left out.
    fn counted_rows(&self) -> usize {
        self.mine.len() - if self.states.last_rank { self.config.streams } else { 0 }
    }

    fn move_states(&mut self, l: &Learner<T>, step: usize) {
        let (squares, count) = match self.config.theta_solver {
            ThetaSolver::Gradient => self.states.step(&self.config, l.model, l.comm, self.blocks),
            ThetaSolver::LeastSquares { .. } => self.solve_states(l),
        };
        if self.exchanges.is_multiple_of(self.config.staleness as u64 + 1) {
            self.states.refresh(l.comm);
        }
        self.exchanges += 1;
        if self.config.states.tolerance > 0.0 {
            let mut sums = [squares, count];
            l.comm.sum(&mut sums);
            if (sums[0] / sums[1].max(1.0)).sqrt() < self.config.states.tolerance {
                self.script.settled = step as u64 + 1;
            }
        }
        if self.config.starts == Starts::Moving {
            (self.known.recurrence, self.known.loss) = (false, false);
        }
    }

    /// s ← argmin of the quadratic model; as [`States::step`].
    fn solve_states(&mut self, l: &Learner<T>) -> (f64, f64) {
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
        self.states.shift(&delta)
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
        let grads = self.total.as_mut().unwrap_or(&mut self.grads);
        grads.settle();
        sum_gradient(l.comm, grads);
        self.sums.norm = match self.config.theta_solver {
            ThetaSolver::Gradient => l.optimiser.update(&mut l.params, grads, 1.0),
            ThetaSolver::LeastSquares { ridge } => {
                let starts = &self.states.starts[self.states.own()];
                let (targets, duals) = (self.states.targets(), self.states.duals.as_deref());
                least_squares::update(l, grads, Fit { inputs: &inputs, starts, targets, duals }, ridge)
            }
        };
        self.keep_carried(l);
        self.known = Known { tokens: self.known.tokens, ..Known::default() };
        self.clock.book(Part::Optimiser, since);
    }

    /// F_M(s_M) of this pass begins the next window; every rank keeps it.
    fn keep_carried(&mut self, l: &Learner<T>) {
        let slots = self.carried.len();
        let last = &self.ends[self.ends.len() - slots..];
        if self.states.last_rank {
            self.carried.copy_from_slice(last);
        } else {
            self.carried.fill(T::ZERO);
        }
        self.post.sum(l.comm, &mut self.carried);
    }

    /// What the next epoch will begin with.
    fn finish(&mut self) -> Step {
        self.once(|me| {
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

    /// A stage without pieces: done once, also when the box is entered again.
    fn once(&mut self, work: impl FnOnce(&mut Self)) -> Step {
        let stage = self.script.now;
        self.script.now += 1;
        if stage >= self.script.done {
            work(self);
            self.script.done = stage + 1;
        }
        Ok(())
    }

    /// A stage over all pieces of this rank's rows.
    fn pass(&mut self, pause: &mut dyn FnMut() -> bool, work: impl FnMut(&mut Self, usize)) -> Step {
        self.pass_over(self.pieces.count(), pause, work)
    }

    /// A stage of `count` parts; between two of them it may be left, and entered again where it was left.
    fn pass_over(
        &mut self,
        count: usize,
        pause: &mut dyn FnMut() -> bool,
        mut work: impl FnMut(&mut Self, usize),
    ) -> Step {
        let stage = self.script.now;
        self.script.now += 1;
        if stage < self.script.done {
            return Ok(());
        }
        while (self.script.piece as usize) < count {
            work(self, self.script.piece as usize);
            self.script.piece += 1;
            if (self.script.piece as usize) < count && pause() {
                return Err(Paused);
            }
        }
        self.script.done = stage + 1;
        self.script.piece = 0;
        Ok(())
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

fn add_sums(a: &mut CouplingSums, b: &CouplingSums) {
    a.penalty += b.penalty;
    a.boundaries += b.boundaries;
    a.residual += b.residual;
    a.residual_max = a.residual_max.max(b.residual_max);
    a.state += b.state;
    a.dual += b.dual;
}

/// Refuses what cannot work, with the way out.
fn check<T: Real>(
    config: &BtpropConfig,
    model: &crate::model::Model<T>,
    learner: &Learner<T>,
    per_window: usize,
    windows: usize,
) -> Result<(), String> {
    let (s, b) = (config.streams, config.block);
    let wanted = if config.batch == Batch::Full { 2 } else { config.blocks };
    if windows == 0 || per_window < wanted {
        return Err(format!(
            "the training split has {} tokens; train.streams={s} × btprop.blocks={wanted} × btprop.block={b} needs at \
             least {}: use fewer streams or blocks, or a shorter block",
            learner.tokens.len(),
            s * wanted * b + 1
        ));
    }
    if per_window < learner.comm.size() {
        return Err(format!(
            "{} ranks share {per_window} blocks; use btprop.blocks of at least that",
            learner.comm.size()
        ));
    }
    if config.loss == LossOn::Free && b != 1 {
        return Err(format!("btprop.loss=free needs btprop.block=1, not {b}: use loss=predicted for longer blocks"));
    }
    if matches!(config.batch, Batch::Mini { accumulate } if accumulate != 1) {
        return Err("train.accumulate is for bptt; under btprop use more btprop.blocks or train.streams".into());
    }
    if let ThetaSolver::LeastSquares { ridge } = config.theta_solver {
        least_squares::check(config, model, learner, ridge)?;
        let bytes = least_squares::bytes(per_window, s, model.config().hidden);
        if let Some(free) = available_memory()
            && config.states.steps > 0
            && bytes > free / 10 * 9
        {
            return Err(format!(
                "the least-squares problem of the states needs {} MB and {} MB are free: use train.batch=mini, fewer \
                 btprop.blocks, a smaller model.hidden, or theta_solver=gradient",
                bytes >> 20,
                free >> 20
            ));
        }
    }
    let copies = 6 + usize::from(matches!(config.init, Init::Stored { .. })) * windows;
    let bytes = (copies * per_window * s * model.state_width() * T::BYTES) as u64;
    if let Some(free) = available_memory()
        && bytes > free / 10 * 9
    {
        return Err(format!(
            "the states of {} blocks need {} MB and {} MB are free: use a longer btprop.block, a smaller model.hidden, \
             or an init that stores nothing (btprop.init=sequential)",
            per_window * s * windows,
            bytes >> 20,
            free >> 20
        ));
    }
    Ok(())
}

/// Memory that could be had now, where the system tells.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb << 10)
}

impl<T: Real> Method<T> for Btprop<T> {
    fn begin_epoch(&mut self, learner: &Learner<T>, epoch: usize) {
        if self.epoch > 0 && epoch as u64 > self.epoch {
            self.reschedule();
        }
        (self.epoch_residual, self.epoch_moved) = (0.0, 0.0);
        self.epoch = epoch as u64;
        self.at = 0;
        self.carried.fill(learner.model.rest());
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
        self.known = Known::default();
        let tokens = (self.blocks * self.config.block) as u64;
        let sums = &mut self.sums;
        let c = sums.coupling;
        let all = &mut self.told;
        all.clear();
        all.extend([sums.nats, c.penalty, c.boundaries, c.residual, c.state, c.dual, self.states.moved]);
        debug_assert_eq!(all.len(), TOLD);
        all.extend(&sums.by_position);
        learner.comm.sum(all);
        let mut largest = [c.residual_max];
        learner.comm.max(&mut largest);
        let (nats, penalty) = (all[0], all[1] / self.blocks as f64);
        if !sums.norm.is_finite() || !nats.is_finite() {
            return Advance::Diverged { norm: sums.norm, nats_per_token: nats / tokens as f64 };
        }
        self.epoch_residual += all[3];
        self.epoch_moved += all[6];
        let coupling = Coupling {
            windows: 1.0,
            objective: nats / tokens as f64 + penalty,
            penalty,
            boundaries: all[2],
            residual: all[3],
            residual_max: largest[0],
            state: all[4],
            dual: all[5],
            moved: all[6],
        };
        Advance::Update(Update { nats, tokens, norm: sums.norm, coupling: Some(coupling) })
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
        let s = &mut self.script;
        for (name, value) in [
            ("epoch", &mut self.epoch),
            ("at", &mut self.at),
            ("exchanges", &mut self.exchanges),
            ("done", &mut s.done),
            ("piece", &mut s.piece),
            ("settled", &mut s.settled),
        ] {
            walk.count(&format!("btprop.{name}"), value);
        }
        // Known to a reader too, because the counters come first.
        let inside = s.done > 0 || s.piece > 0;
        let c = &mut self.sums.coupling;
        for (name, value) in [
            ("lambda", &mut self.lambda),
            ("epoch_residual", &mut self.epoch_residual),
            ("epoch_moved", &mut self.epoch_moved),
            ("nats", &mut self.sums.nats),
            ("norm", &mut self.sums.norm),
            ("penalty", &mut c.penalty),
            ("boundaries", &mut c.boundaries),
            ("residual", &mut c.residual),
            ("residual_max", &mut c.residual_max),
            ("state", &mut c.state),
            ("dual", &mut c.dual),
        ] {
            walk.real(&format!("btprop.{name}"), value);
        }
        for (i, nats) in self.sums.by_position.iter_mut().enumerate() {
            walk.real(&format!("btprop.nats.{i}"), nats);
        }
        let width = self.states.width();
        walk.tensor("btprop.carried", self.config.streams, width, &mut self.carried);
        let rows = self.windows * self.mine.len();
        for (name, values) in [("stored", &mut self.stored), ("stored_duals", &mut self.stored_duals)] {
            if let Some(values) = values {
                walk.tensor(&format!("btprop.{name}"), rows, width, values);
            }
        }
        // A minibatch begins anew with every window: between two of them nothing else shapes the future.
        if self.config.batch == Batch::Full || inside {
            self.states.walk(walk, true);
            walk.tensor("btprop.ends", self.mine.len(), width, &mut self.ends);
            if let Some(total) = &mut self.total {
                total.walk("btprop.total", walk);
            }
        }
        self.known = Known::default();
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
