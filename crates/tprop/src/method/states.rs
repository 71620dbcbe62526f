//! The free states of a window, their duals, and how both move.
//!
//! A rank owns the states at the starts of its blocks; behind them stands one more slot per stream: the start of the next rank's
//! first block, or, behind the last block of all, the slot that `last` speaks of. Row q + S is the target of row q.

use super::{BtpropConfig, DualRule, First, Last, LossOn, Starts, StateRule, StateScale};
use crate::comm::{Comm, Post};
use crate::model::Model;
use crate::objective::Constraint;
use crate::params::Walk;
use crate::real::Real;

/// ε of the states' Adagrad, as in the release.
const EPS: f64 = 1e-5;

/// States, targets and duals of one rank's blocks.
#[derive(Debug)]
pub(super) struct States<T> {
    width: usize,
    streams: usize,
    /// Rows of this rank; `streams` more slots stand behind them.
    rows: usize,
    /// Whether this rank has the first, the last blocks.
    pub first_rank: bool,
    pub last_rank: bool,
    /// s: starts of the blocks.
    pub starts: Vec<T>,
    /// t, if the starts are held; otherwise targets are the starts of the next blocks.
    targets: Option<Vec<T>>,
    /// z of the constraints that keep one.
    latent: Option<Vec<T>>,
    /// Adagrad's sums.
    sums: Option<Vec<T>>,
    /// u, if the solver has duals.
    pub duals: Option<Vec<T>>,
    /// ∂L/∂s through the blocks that start there.
    pub d_start: Vec<T>,
    /// ∂L/∂t of the blocks that end there.
    pub d_target: Vec<T>,
    /// Σ of ‖Δs‖ over this window's steps.
    pub moved: f64,
    /// What the rank before pulls at my first starts; 0 if there is none.
    before: Vec<T>,
    scratch: Scratch<T>,
    post: Post,
}

/// Work space of one row.
#[derive(Debug)]
struct Scratch<T> {
    slope: Vec<T>,
    old: Vec<T>,
    order: Vec<usize>,
}

impl<T: Real> States<T> {
    pub fn new(config: &BtpropConfig, model: &Model<T>, rows: usize, streams: usize, ranks: (bool, bool)) -> Self {
        let width = model.state_width();
        let all = || vec![T::ZERO; (rows + streams) * width];
        let keeps_latent = matches!(config.constraint, Constraint::Tanh | Constraint::Binary);
        Self {
            width,
            streams,
            rows,
            first_rank: ranks.0,
            last_rank: ranks.1,
            starts: all(),
            targets: (config.starts == Starts::Held).then(all),
            latent: keeps_latent.then(all),
            sums: (config.states.rule == StateRule::Adagrad).then(all),
            duals: config.solver.duals().map(|_| vec![T::ZERO; rows * width]),
            d_start: vec![T::ZERO; rows * width],
            d_target: vec![T::ZERO; rows * width],
            moved: 0.0,
            before: vec![T::ZERO; streams * width],
            scratch: Scratch { slope: vec![T::ZERO; width], old: vec![T::ZERO; width], order: Vec::new() },
            post: Post::default(),
        }
    }

    /// Values of one row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Where this rank's rows lie in `starts`.
    pub fn own(&self) -> std::ops::Range<usize> {
        0..self.rows * self.width
    }

    /// Targets of all rows: the slots one block further.
    pub fn targets(&self) -> &[T] {
        &self.targets.as_ref().unwrap_or(&self.starts)[self.streams * self.width..]
    }

    /// The slots behind the last block.
    pub fn behind_mut(&mut self) -> &mut [T] {
        let from = self.rows * self.width;
        &mut self.starts[from..]
    }

    /// Forgets what a minibatch must not inherit.
    pub fn begin_window(&mut self, keep_duals: bool) {
        self.moved = 0.0;
        if let Some(sums) = &mut self.sums {
            sums.fill(T::ZERO);
        }
        if let (Some(duals), false) = (&mut self.duals, keep_duals) {
            duals.fill(T::ZERO);
        }
    }

    /// After the init: targets begin at the starts, and both where the constraint allows.
    pub fn settle(&mut self, config: &BtpropConfig, model: &Model<T>) {
        let constraint = config.constraint;
        if let Some(targets) = &mut self.targets {
            targets.copy_from_slice(&self.starts);
        }
        if constraint == Constraint::None {
            return;
        }
        let (width, slots, moves) = (self.width, self.rows + self.streams, self.movable(config));
        let Self { targets, latent, starts, scratch, .. } = self;
        let variable = targets.as_mut().unwrap_or(starts);
        for q in (0..slots).filter(|&q| moves(q)) {
            let row = &mut variable[q * width..][..width];
            let mut z = latent.as_mut().map(|z| &mut z[q * width..][..width]);
            if let Some(z) = &mut z {
                z.copy_from_slice(row);
                if constraint == Constraint::Tanh {
                    z.iter_mut().enumerate().filter(|(j, _)| model.is_h(*j)).for_each(|(_, z)| *z = atanh(*z));
                }
            }
            confine(row, z.as_deref(), constraint, model, &mut scratch.order);
        }
    }

    /// s ← s − η · slope for every state that may move (targets, if the starts are held). Returns Σ ‖Δ‖² and the number of values.
    pub fn step(&mut self, config: &BtpropConfig, model: &Model<T>, comm: &dyn Comm, blocks: usize) -> (f64, f64) {
        let (width, streams) = (self.width, self.streams);
        self.post.forward(comm, &self.d_target[(self.rows - streams) * width..], &mut self.before);
        let scale = match config.states.scale {
            StateScale::Block => T::of(blocks as f64),
            StateScale::Mean => T::ONE,
        };
        let moves = self.movable(config);
        let (mut squares, mut count) = (0.0, 0.0);
        for q in (0..self.rows + streams).filter(|&q| moves(q)) {
            for (j, g) in self.scratch.slope.iter_mut().enumerate() {
                let mut sum = if q < self.rows { self.d_start[q * width + j] } else { T::ZERO };
                sum += match q.checked_sub(streams) {
                    Some(p) => self.d_target[p * width + j],
                    None => self.before[q * width + j],
                };
                *g = sum * scale;
            }
            let moved = self.move_row(q, config, model);
            self.moved += moved.sqrt();
            squares += moved;
            count += width as f64;
        }
        (squares, count)
    }

    /// Which slots may move.
    fn movable(&self, config: &BtpropConfig) -> impl Fn(usize) -> bool + use<T> {
        let first = !self.first_rank || (config.first == First::Free && config.starts == Starts::Moving);
        // Behind the last block of all; elsewhere the next rank moves it.
        let behind = self.last_rank && (config.last == Last::Free0 || config.loss == LossOn::Free);
        let (streams, rows) = (self.streams, self.rows);
        move |q| if q < streams { first } else { q < rows || behind }
    }

    /// One row along the slope in `scratch`; returns ‖Δ‖².
    fn move_row(&mut self, q: usize, config: &BtpropConfig, model: &Model<T>) -> f64 {
        let Self { width, targets, latent, sums, starts, scratch, .. } = self;
        let Scratch { slope, old, order } = scratch;
        let at = q * *width..(q + 1) * *width;
        let row = &mut targets.as_mut().unwrap_or(starts)[at.clone()];
        let mut z = latent.as_mut().map(|z| &mut z[at.clone()]);
        if config.constraint == Constraint::Tanh {
            for j in (0..row.len()).filter(|&j| model.is_h(j)) {
                slope[j] *= T::ONE - row[j] * row[j];
            }
        }
        let norm = slope.iter().map(|g| g.f64() * g.f64()).sum::<f64>().sqrt();
        if config.states.clip > 0.0 && norm > config.states.clip {
            let shrink = T::of(config.states.clip / norm);
            slope.iter_mut().for_each(|g| *g *= shrink);
        }
        let rate = T::of(config.states.rate);
        old.copy_from_slice(row);
        let variable: &mut [T] = z.as_deref_mut().unwrap_or(row);
        match sums {
            None => variable.iter_mut().zip(&*slope).for_each(|(s, &g)| *s -= rate * g),
            Some(sums) => {
                for ((s, &g), sum) in variable.iter_mut().zip(&*slope).zip(&mut sums[at]) {
                    *sum += g * g;
                    *s -= rate * g / (sum.sqrt() + T::of(EPS));
                }
            }
        }
        confine(row, z.as_deref(), config.constraint, model, order);
        row.iter().zip(&*old).map(|(a, b)| (a.f64() - b.f64()).powi(2)).sum()
    }

    /// Sends my first states to the rank before, whose last blocks aim at them.
    pub fn refresh(&mut self, comm: &dyn Comm) {
        let slots = self.streams * self.width;
        let from = self.rows * self.width;
        for variable in [Some(&mut self.starts), self.targets.as_mut()].into_iter().flatten() {
            let (own, behind) = variable.split_at_mut(from);
            self.post.back(comm, &own[..slots], behind);
        }
    }

    /// The starts become the end states of the blocks before them; `ends` has one row for each of this rank's.
    pub fn take_ends(&mut self, ends: &[T], comm: &dyn Comm, behind_too: bool) {
        let slots = self.streams * self.width;
        self.post.forward(comm, &ends[ends.len() - slots..], &mut self.starts[..slots]);
        self.starts[slots..ends.len()].copy_from_slice(&ends[..ends.len() - slots]);
        if behind_too && self.last_rank {
            self.starts[ends.len()..].copy_from_slice(&ends[ends.len() - slots..]);
        }
        self.refresh(comm);
    }

    /// u ← u + α r and its relatives, for the given rows.
    pub fn raise_duals(
        &mut self,
        rows: std::ops::Range<usize>,
        ends: &[T],
        rule: DualRule,
        rate: f64,
        lambda: f64,
        blocks: usize,
    ) {
        let at = rows.start * self.width..rows.end * self.width;
        let (streams, width) = (self.streams, self.width);
        let all = self.targets.as_ref().unwrap_or(&self.starts);
        let targets = &all[at.start + streams * width..at.end + streams * width];
        let Some(duals) = &mut self.duals else { return };
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
    pub fn walk(&mut self, walk: &mut dyn Walk<T>, pass: bool) {
        let (width, slots) = (self.width, self.rows + self.streams);
        walk.tensor("btprop.starts", slots, width, &mut self.starts);
        let optional = [("targets", &mut self.targets), ("latent", &mut self.latent), ("sums", &mut self.sums)];
        for (name, values) in optional {
            if let Some(values) = values {
                walk.tensor(&format!("btprop.{name}"), slots, width, values);
            }
        }
        if let Some(duals) = &mut self.duals {
            walk.tensor("btprop.duals", self.rows, width, duals);
        }
        if pass {
            walk.tensor("btprop.d_start", self.rows, width, &mut self.d_start);
            walk.tensor("btprop.d_target", self.rows, width, &mut self.d_target);
        }
        walk.real("btprop.moved", &mut self.moved);
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
