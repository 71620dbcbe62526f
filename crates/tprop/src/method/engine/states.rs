//! The free states of a window, their duals, and how both move.
//!
//! A rank owns the states at the starts of its blocks; behind them stands one more slot per stream: the start of the next rank's
//! first block, or, behind the last block of all, the slot that `last` is about. Row q + S is the target of row q.

use std::ops::Range;

use super::super::memory::Keeps;
use super::super::{BtpropConfig, DualConfig, DualRule, First, Last, LossOn, Solver, Starts};
use crate::comm::{Comm, Exchange, Span};
use crate::model::Model;
use crate::objective::Constraint;
use crate::params::{Rows, Visit};
use crate::real::Real;

/// ε of the states' Adagrad, as in the release.
const EPS: f64 = 1e-5;

/// States, targets and duals of one rank's blocks.
#[derive(Debug)]
pub(in crate::method) struct States<T> {
    width: usize,
    streams: usize,
    /// This rank's rows; `streams` more slots stand behind them.
    span: Span,
    /// s: starts of the blocks.
    pub starts: Vec<T>,
    /// t, if the starts are held; otherwise targets are the starts of the next blocks.
    targets: Option<Vec<T>>,
    /// z of the constraints that have one.
    latent: Option<Vec<T>>,
    /// Adagrad's sums.
    sums: Option<Vec<T>>,
    /// u, if the solver has duals.
    pub duals: Option<Vec<T>>,
    /// ∂L/∂s through the blocks that start there.
    pub d_start: Vec<T>,
    /// ∂L/∂t of the blocks that end there.
    pub d_target: Vec<T>,
    /// The state rule's gradient of all slots, if it looks at them together.
    pub gradients: Option<Vec<T>>,
    /// ∂L/∂t of the blocks before the first row, whose targets are my first starts; 0 if there are none.
    d_first: Vec<T>,
    pub movement: Movement,
    pub exchange: Exchange,
    /// Where the targets of my last blocks begin, until it is sent.
    aims: Vec<T>,
    scratch: Scratch<T>,
}

/// How far states have moved, by share.
#[derive(Debug)]
pub(in crate::method) struct Movement {
    /// The row behind the last one of each share.
    ends: Vec<usize>,
    /// Σ ‖Δs‖ over this window's steps.
    pub path: Vec<f64>,
    /// Σ ‖Δs‖² of the last step and the number of values.
    pub last: Vec<[f64; 2]>,
}

/// Work space of one row.
#[derive(Debug)]
struct Scratch<T> {
    gradient: Vec<T>,
    old: Vec<T>,
    order: Vec<usize>,
}

/// Which of a stream's outermost states move, beside those between two blocks: the start of the first block, the target of the last.
pub(super) fn outermost(config: &BtpropConfig) -> (bool, bool) {
    let first = config.first == First::Free && config.starts == Starts::Moving;
    (first, config.last == Last::Free0 || config.loss == LossOn::Free)
}

impl<T: Real> States<T> {
    /// For the rows of this rank's shares.
    pub fn new(config: &BtpropConfig, model: &Model<T>, shares: &[Range<usize>], span: Span) -> Self {
        let (width, streams, rows) = (model.state_width(), config.streams, span.own);
        let all = || vec![T::ZERO; (rows + streams) * width];
        let keeps = Keeps::of(config);
        Self {
            width,
            streams,
            span,
            starts: all(),
            targets: keeps.targets.then(all),
            latent: keeps.latent.then(all),
            sums: keeps.sums.then(all),
            duals: keeps.duals.then(|| vec![T::ZERO; rows * width]),
            d_start: vec![T::ZERO; rows * width],
            d_target: vec![T::ZERO; rows * width],
            gradients: keeps.gradients.then(all),
            d_first: vec![T::ZERO; streams * width],
            movement: Movement {
                ends: shares.iter().map(|rows| rows.end).collect(),
                path: vec![0.0; shares.len()],
                last: vec![[0.0; 2]; shares.len()],
            },
            exchange: Exchange::default(),
            aims: Vec::new(),
            scratch: Scratch { gradient: vec![T::ZERO; width], old: vec![T::ZERO; width], order: Vec::new() },
        }
    }

    /// Values of one row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Where this rank's rows lie in `starts`.
    pub fn own(&self) -> Range<usize> {
        0..self.span.own * self.width
    }

    /// Targets of all rows: the slots one block further.
    pub fn targets(&self) -> &[T] {
        &self.targets.as_ref().unwrap_or(&self.starts)[self.streams * self.width..]
    }

    /// The slots behind the last block.
    pub fn behind_mut(&mut self) -> &mut [T] {
        let from = self.own().end;
        &mut self.starts[from..]
    }

    /// Forgets what a minibatch must not inherit.
    pub fn begin_window(&mut self, keep_duals: bool) {
        self.movement.path.fill(0.0);
        if let Some(sums) = &mut self.sums {
            sums.fill(T::ZERO);
        }
        if let (Some(duals), false) = (&mut self.duals, keep_duals) {
            duals.fill(T::ZERO);
        }
    }

    /// The first blocks of all begin where the window before ended, unless they have moved since.
    pub fn begin_at(&mut self, config: &BtpropConfig, carried: &[T], persists: bool) {
        if self.span.has_first() && (!persists || config.first == First::Fixed) {
            self.starts[..carried.len()].copy_from_slice(carried);
        }
    }

    /// After the init: targets begin at the starts, and both where the constraint allows.
    pub fn settle(&mut self, config: &BtpropConfig, model: &Model<T>) {
        if let Some(targets) = &mut self.targets {
            targets.copy_from_slice(&self.starts);
        }
        if config.constraint == Constraint::None {
            return;
        }
        let (slots, moves) = (self.span.own + self.streams, self.movable(config));
        (0..slots).filter(|&q| moves(q)).for_each(|q| self.settle_slot(q, config.constraint, model));
    }

    /// Puts a state where the constraint allows, and its z with it.
    fn settle_slot(&mut self, q: usize, constraint: Constraint, model: &Model<T>) {
        let at = q * self.width..(q + 1) * self.width;
        let Self { targets, latent, starts, scratch, .. } = self;
        let row = &mut targets.as_mut().unwrap_or(starts)[at.clone()];
        let mut z = latent.as_mut().map(|z| &mut z[at]);
        if let Some(z) = &mut z {
            z.copy_from_slice(row);
            if constraint == Constraint::Tanh {
                z.iter_mut().enumerate().filter(|(j, _)| model.is_h(*j)).for_each(|(_, z)| *z = atanh(*z));
            }
        }
        confine(row, z.as_deref(), constraint, model, &mut scratch.order);
    }

    /// The target of row q begins at t = F + u − p/λ, so that the pull at the end of its block is p (0 if none).
    pub fn aim(
        &mut self,
        q: usize,
        end: &[T],
        pull: Option<&[T]>,
        lambda: f64,
        config: &BtpropConfig,
        model: &Model<T>,
    ) {
        let (at, slot) = (q * self.width, q + self.streams);
        let Some(targets) = &mut self.targets else { return };
        for (j, (t, &f)) in targets[slot * self.width..][..self.width].iter_mut().zip(end).enumerate() {
            let u = self.duals.as_ref().map_or(T::ZERO, |u| u[at + j]);
            *t = f + u - pull.map_or(T::ZERO, |p| p[j] / T::of(lambda));
        }
        if slot >= self.span.own && !self.span.has_last() {
            self.aims.extend_from_slice(&targets[slot * self.width..][..self.width]);
        }
        // Constraints are for what may move; what stands behind the last block of all may not.
        let moves = slot < self.span.own || !self.span.has_last() || outermost(config).1;
        if config.constraint != Constraint::None && moves {
            self.settle_slot(slot, config.constraint, model);
        }
    }

    /// Sends where the targets of my last blocks begin to the next rank, whose states they are, if they are to move.
    pub fn send_aims(&mut self, config: &BtpropConfig, comm: &dyn Comm) {
        let states_move = match config.solver {
            Solver::Alm { joint_steps, .. } => joint_steps > 0,
            Solver::Penalty | Solver::Admm { .. } => config.states.steps > 0,
        };
        if states_move {
            self.exchange.send_aims(comm, &self.aims);
        }
        self.aims.clear();
    }

    /// Waits for where my first targets begin, if the rank before sends it.
    pub fn receive_aims(&mut self, config: &BtpropConfig, model: &Model<T>, comm: &dyn Comm) {
        let slots = self.streams * self.width;
        let Some(targets) = &mut self.targets else { return };
        if self.exchange.receive_aims(comm, &mut targets[..slots]) && config.constraint != Constraint::None {
            (0..self.streams).for_each(|q| self.settle_slot(q, config.constraint, model));
        }
    }

    /// Sends on the gradient of my last blocks in the next rank's first states; [`Self::step`] there waits for it.
    pub fn send_gradient(&self, comm: &dyn Comm) {
        let from = (self.span.own - self.streams) * self.width;
        self.exchange.send_gradient(comm, &self.d_target[from..]);
    }

    /// Waits for the gradient of the rank before in my first states.
    pub fn receive_gradient(&mut self, comm: &dyn Comm) {
        self.exchange.receive_gradient(comm, &mut self.d_first);
    }

    /// ∂L/∂s of a slot: through the block that starts there, and as the target of the one before.
    fn gradient_of(&self, q: usize, j: usize) -> T {
        let (width, rows) = (self.width, self.span.own);
        let through = if q < rows { self.d_start[q * width + j] } else { T::ZERO };
        through
            + match q.checked_sub(self.streams) {
                Some(p) => self.d_target[p * width + j],
                None => self.d_first[q * width + j],
            }
    }

    /// scale · ∂L/∂s of all slots, into `gradients`; 0 behind the last row unless that state moves.
    pub fn fill_gradients(&mut self, config: &BtpropConfig, scale: T) {
        let (rows, moves) = (self.span.own, self.movable(config));
        let mut gradients = self.gradients.take().expect("the rule looks at all of them");
        for (q, row) in gradients.chunks_exact_mut(self.width).enumerate() {
            if q < rows || moves(q) {
                row.iter_mut().enumerate().for_each(|(j, g)| *g = self.gradient_of(q, j) * scale);
            } else {
                row.fill(T::ZERO);
            }
        }
        self.gradients = Some(gradients);
    }

    /// s ← s − η · scale · ∂L/∂s for every state that may move (targets, if the starts are held); along `gradients`, if they are there.
    pub fn step(&mut self, config: &BtpropConfig, model: &Model<T>, scale: T) {
        let (width, moves) = (self.width, self.movable(config));
        self.movement.begin_step();
        for q in (0..self.span.own + self.streams).filter(|&q| moves(q)) {
            let mut gradient = std::mem::take(&mut self.scratch.gradient);
            match &self.gradients {
                Some(gradients) => gradient.copy_from_slice(&gradients[q * width..][..width]),
                None => gradient.iter_mut().enumerate().for_each(|(j, g)| *g = self.gradient_of(q, j) * scale),
            }
            self.scratch.gradient = gradient;
            let moved = self.move_row(q, config, model);
            self.movement.add(q, moved, width);
        }
    }

    /// S·M·∂L/∂s of every slot of a lone rank.
    pub fn gradient(&self, blocks: usize) -> Vec<T> {
        let (own, scale) = (self.span.own + self.streams, T::of(blocks as f64));
        (0..own * self.width).map(|at| self.gradient_of(at / self.width, at % self.width) * scale).collect()
    }

    /// s ← s + δ for every slot, 0 where it does not move.
    pub fn shift(&mut self, delta: &[T]) {
        self.movement.begin_step();
        let rows = self.starts.chunks_exact_mut(self.width).zip(delta.chunks_exact(self.width));
        for (q, (row, delta)) in rows.enumerate() {
            row.iter_mut().zip(delta).for_each(|(s, &d)| *s += d);
            let moved = crate::kernel::sum_squares(delta);
            self.movement.add(q, moved, if moved == 0.0 { 0 } else { self.width });
        }
    }

    /// ‖s⁺ − s‖² and ‖s⁺‖² of all starts but the window's first ones, by share, in place of the last step's; s stands in `d_start`.
    pub fn measure_starts(&mut self) -> &[[f64; 2]] {
        let first = if self.span.has_first() { self.streams } else { 0 };
        self.movement.begin_step();
        for q in first..self.span.own {
            let at = q * self.width..(q + 1) * self.width;
            let share = self.movement.share(q);
            let sums = &mut self.movement.last[share];
            for (new, old) in self.starts[at.clone()].iter().zip(&self.d_start[at]) {
                sums[0] += (new.f64() - old.f64()).powi(2);
                sums[1] += new.f64().powi(2);
            }
        }
        &self.movement.last
    }

    /// Which slots may move.
    pub(super) fn movable(&self, config: &BtpropConfig) -> impl Fn(usize) -> bool + use<T> {
        let (first, behind) = outermost(config);
        let first = first || !self.span.has_first();
        // Elsewhere the next rank moves it.
        let behind = behind && self.span.has_last();
        let (streams, rows) = (self.streams, self.span.own);
        move |q| if q < streams { first } else { q < rows || behind }
    }

    /// One row along the gradient in `scratch`; returns ‖Δ‖².
    fn move_row(&mut self, q: usize, config: &BtpropConfig, model: &Model<T>) -> f64 {
        let Self { width, targets, latent, sums, starts, scratch, .. } = self;
        let Scratch { gradient, old, order } = scratch;
        let at = q * *width..(q + 1) * *width;
        let row = &mut targets.as_mut().unwrap_or(starts)[at.clone()];
        let mut z = latent.as_mut().map(|z| &mut z[at.clone()]);
        if config.constraint == Constraint::Tanh {
            for j in (0..row.len()).filter(|&j| model.is_h(j)) {
                gradient[j] *= T::ONE - row[j] * row[j];
            }
        }
        let norm = gradient.iter().map(|g| g.f64() * g.f64()).sum::<f64>().sqrt();
        if config.states.clip > 0.0 && norm > config.states.clip {
            let shrink = T::of(config.states.clip / norm);
            gradient.iter_mut().for_each(|g| *g *= shrink);
        }
        let rate = T::of(config.states.rate);
        old.copy_from_slice(row);
        let variable: &mut [T] = z.as_deref_mut().unwrap_or(row);
        match sums {
            None => variable.iter_mut().zip(&*gradient).for_each(|(s, &g)| *s -= rate * g),
            Some(sums) => {
                for ((s, &g), sum) in variable.iter_mut().zip(&*gradient).zip(&mut sums[at]) {
                    *sum += g * g;
                    *s -= rate * g / (sum.sqrt() + T::of(EPS));
                }
            }
        }
        confine(row, z.as_deref(), config.constraint, model, order);
        row.iter().zip(&*old).map(|(a, b)| (a.f64() - b.f64()).powi(2)).sum()
    }

    /// Sends my first states (targets, if the starts are held) to the rank before, whose last blocks aim at them.
    pub fn send_first(&mut self, comm: &dyn Comm) {
        let slots = self.streams * self.width;
        let variable = self.targets.as_ref().unwrap_or(&self.starts);
        self.exchange.send_first_states(comm, &variable[..slots]);
    }

    /// Waits for the next rank's first states until at most `late` messages are still on their way.
    pub fn receive_first(&mut self, comm: &dyn Comm, late: usize) {
        let from = self.own().end;
        let variable = self.targets.as_mut().unwrap_or(&mut self.starts);
        self.exchange.receive_first_states(comm, late, &mut variable[from..]);
    }

    /// Whether what stands behind my last blocks is where they end until states move: not a target of its own that the loss does not see.
    pub fn continues(&self, config: &BtpropConfig) -> bool {
        !self.span.has_last() || config.loss == LossOn::Free
    }

    /// The starts become the end states of the blocks before them; `ends` has one row for each of this rank's.
    pub fn take_ends(&mut self, config: &BtpropConfig, ends: &[T], comm: &dyn Comm) {
        let slots = self.streams * self.width;
        let (inside, last) = ends.split_at(ends.len() - slots);
        self.exchange.send_ends(comm, last);
        self.exchange.receive_ends(comm, &mut self.starts[..slots]);
        self.starts[slots..ends.len()].copy_from_slice(inside);
        if self.continues(config) {
            self.behind_mut().copy_from_slice(last);
        }
    }

    /// Waits for where the blocks of the rank before end.
    pub fn receive_start(&mut self, comm: &dyn Comm) {
        let slots = self.streams * self.width;
        self.exchange.receive_ends(comm, &mut self.starts[..slots]);
    }

    /// Sends where my last blocks end, which stands behind them.
    pub fn send_end(&self, comm: &dyn Comm) {
        self.exchange.send_ends(comm, &self.starts[self.own().end..]);
    }

    /// u ← u + α r and its relatives, for the given rows.
    pub fn raise_duals(&mut self, rows: Range<usize>, ends: &[T], config: &DualConfig, lambda: f64, blocks: usize) {
        let at = rows.start * self.width..rows.end * self.width;
        let (streams, width) = (self.streams, self.width);
        let all = self.targets.as_ref().unwrap_or(&self.starts);
        let targets = &all[at.start + streams * width..at.end + streams * width];
        let Some(duals) = &mut self.duals else { return };
        let (rule, rate) = (config.rule, config.rate);
        let step = match rule {
            DualRule::Scaled => rate,
            DualRule::Gradient => rate * lambda,
            DualRule::Mean => rate * lambda / blocks as f64,
        };
        let (step, own) = (T::of(step), rule == DualRule::Gradient);
        for ((u, &f), &t) in duals[at].iter_mut().zip(ends).zip(targets) {
            let r = f - t;
            *u += step * if own { r + *u } else { r };
        }
    }

    /// Everything that persists over the run, for batch mode.
    pub fn visit(&mut self, visit: &mut dyn Visit<T>) {
        let (width, streams) = (self.width, self.streams);
        let Span { first, own, all } = self.span;
        // The slots behind the last row are the next rank's, unless there is none.
        let behind = if self.span.has_last() { streams } else { 0 };
        let slots = Rows { repeat: 1, first, own: own + behind, all: all + streams };
        let blocks = Rows { repeat: 1, first, own, all };
        visit.rows("btprop.starts", slots, width, &mut self.starts);
        let optional = [("targets", &mut self.targets), ("latent", &mut self.latent), ("sums", &mut self.sums)];
        for (name, values) in optional {
            if let Some(values) = values {
                visit.rows(&format!("btprop.{name}"), slots, width, values);
            }
        }
        if let Some(duals) = &mut self.duals {
            visit.rows("btprop.duals", blocks, width, duals);
        }
        visit.rows("btprop.d_start", blocks, width, &mut self.d_start);
        visit.rows("btprop.d_target", blocks, width, &mut self.d_target);
        visit.real("btprop.moved", &mut self.movement.path[0]);
    }
}

impl Movement {
    fn begin_step(&mut self) {
        self.last.fill([0.0; 2]);
    }

    /// The share of a slot; what stands behind the last row belongs to the last one.
    fn share(&self, q: usize) -> usize {
        self.ends.partition_point(|&end| end <= q).min(self.ends.len() - 1)
    }

    /// Slot q of `values` values has moved by the root of `squares`.
    fn add(&mut self, q: usize, squares: f64, values: usize) {
        let share = self.share(q);
        self.path[share] += squares.sqrt();
        self.last[share][0] += squares;
        self.last[share][1] += values as f64;
    }
}

/// Puts a row where the constraint allows it (from its z, if the constraint keeps one).
fn confine<T: Real>(row: &mut [T], z: Option<&[T]>, constraint: Constraint, model: &Model<T>, order: &mut Vec<usize>) {
    let h = (0..row.len()).filter(|&j| model.is_h(j));
    match (constraint, z) {
        (Constraint::None, _) => {}
        (Constraint::Box, _) => h.for_each(|j| row[j] = row[j].max(-T::ONE).min(T::ONE)),
        (Constraint::Sparse(k), _) => {
            for layer in row.chunks_exact_mut(model.layer_width()) {
                keep_largest(&mut layer[..model.config().hidden], k, order);
            }
        }
        (Constraint::Tanh | Constraint::Binary, Some(z)) => {
            row.copy_from_slice(z);
            for j in h {
                row[j] = match constraint {
                    Constraint::Tanh => z[j].tanh(),
                    _ if z[j] < T::ZERO => -T::ONE,
                    _ => T::ONE,
                };
            }
        }
        (Constraint::Tanh | Constraint::Binary, None) => unreachable!("these keep a latent state"),
    }
}

/// Zeroes all but the k components of largest magnitude; of equal ones the first stay.
fn keep_largest<T: Real>(values: &mut [T], k: usize, order: &mut Vec<usize>) {
    order.clear();
    order.extend(0..values.len());
    let size = |j: usize| values[j].abs().f64();
    order.sort_unstable_by(|&a, &b| size(b).total_cmp(&size(a)).then(a.cmp(&b)));
    order.iter().skip(k).for_each(|&j| values[j] = T::ZERO);
}

/// Inverse of tanh, with values at the rim pulled inside.
fn atanh<T: Real>(s: T) -> T {
    let rim = 1.0 - 1e-6;
    T::of(s.f64().clamp(-rim, rim).atanh())
}
