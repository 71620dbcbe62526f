//! The window objective and its gradients, chunk by chunk; what a chunk's tape still holds is not computed again.

use std::ops::Range;

use super::{Engine, Last, Learner, LossOn, Pulls, Stage, Starts, Step};
use crate::mat::{Mat, MatMut};
use crate::model::{ThetaGradient, Weight};
use crate::objective::{Boundary, BoundaryGrads, CouplingSums, CouplingWeight};
use crate::params::Grads;
use crate::real::Real;

/// The output layer among [`crate::model::Model::groups`].
const OUTPUT: usize = 0;

/// With respect to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Want {
    states: bool,
    theta: bool,
}

impl<T: Real> Engine<T> {
    /// ∂L/∂s at the present states and θ.
    pub fn state_gradient(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, step: usize) -> Step {
        self.gradient(l, pause, Stage::StateGradient(step), Want { states: true, theta: false })
    }

    /// ∂L/∂θ at the present states and θ.
    pub fn theta_gradient(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, step: usize) -> Step {
        self.gradient(l, pause, Stage::ThetaGradient(step), Want { states: false, theta: true })
    }

    /// Both.
    pub fn joint_gradient(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, step: usize) -> Step {
        self.gradient(l, pause, Stage::JointGradient(step), Want { states: true, theta: true })
    }

    fn gradient(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, stage: Stage, want: Want) -> Step {
        self.pass(stage, pause, |me, i| {
            if want.theta {
                if me.tapes.begins_share(i) {
                    me.statistics.shares[me.tapes.of(i).share].clear();
                    me.total.begin_share();
                }
                // A lone chunk's output gradient may be there already; several chunks hand theirs on at once.
                if !(me.tapes.holds_output_gradient(i) && me.tapes.count() == 1) {
                    me.grads.clear();
                }
            }
            me.chunk_gradient(l, i, stage, want);
        })
    }

    fn chunk_gradient(&mut self, l: &mut Learner<T>, i: usize, stage: Stage, want: Want) {
        self.recur(l, i);
        self.aim(l, stage, i);
        let predicted = self.config.loss == LossOn::Predicted;
        let (mut nats, summed) = if predicted { self.predicted_loss(l, i, want) } else { (None, false) };
        self.await_targets(l, &self.tapes.rows(i));
        let sums = self.pull(l, i, want);
        if want.theta {
            self.store_pulls(i);
        }
        if !predicted {
            nats = Some(self.free_loss(l, i, want));
        }
        // Both travel while the recurrence runs backwards.
        if want.states && i + 1 == self.tapes.count() {
            self.states.send_gradient(l.comm);
        }
        let of = self.tapes.of(i);
        if want.theta && !summed {
            self.total.ready(l.comm, &mut self.grads, of, OUTPUT);
        }
        let (rows, tape) = self.tapes.get(i);
        let at = rows.start * self.states.width()..rows.end * self.states.width();
        let d_start = want.states.then(|| &mut self.states.d_start[at]);
        let mut ready = |grads: &mut Grads<T>, group| self.total.ready(l.comm, grads, of, group);
        let theta = want.theta.then_some(ThetaGradient { grads: &mut self.grads, ready: &mut ready });
        l.model.backward_by_group(&l.params, tape, predicted, Some(&self.buffers.d_end), d_start, theta);
        if want.theta {
            let share = &mut self.statistics.shares[of.share];
            share.nats += nats.unwrap_or_else(|| tape.total_nats());
            tape.nats_by_step(&mut share.by_position);
            share.coupling.add(&sums);
        }
    }

    /// The output layer of a chunk, unless its tape still has it: the nats, if they were counted now, and whether its gradient has
    /// been handed to the sum already.
    fn predicted_loss(&mut self, l: &Learner<T>, i: usize, want: Want) -> (Option<f64>, bool) {
        // Unless something is added to it later on, the output layer's gradient can be summed up as soon as it is there.
        let added_to = self.config.penalty.kl().is_some() || l.model.config().tied;
        let (has_loss, has_gradient) = (self.tapes.holds_loss(i), self.tapes.holds_output_gradient(i));
        if has_loss && (has_gradient || !want.theta) {
            return (None, has_gradient && !added_to);
        }
        // Held starts never move, so the output layer is done once for the window, its gradient included.
        let held = self.tapes.cached() && self.config.starts == Starts::Held;
        let early = !want.theta && held && (self.tapes.count() == 1 || !added_to);
        if early {
            self.grads.clear();
        }
        let per_token = T::of(1.0 / self.geometry.blocks as f64 / self.config.block as f64);
        let weight = Weight { scale: per_token, ignore: self.geometry.ignore };
        let grads = (want.theta || early).then_some(&mut self.grads);
        let nats = self.tapes.loss(i, l, weight, grads);
        let summed = early && !added_to;
        if summed {
            self.total.ready(l.comm, &mut self.grads, self.tapes.of(i), OUTPUT);
        }
        (Some(nats), summed)
    }

    /// The pull of the coupling at a chunk's ends and at their targets; rows that are tied to nothing feel none.
    fn pull(&mut self, l: &Learner<T>, i: usize, want: Want) -> CouplingSums {
        let width = self.states.width();
        let (tied, counted) = (self.tied_rows(), self.counted_rows());
        let rows = self.tapes.rows(i);
        let at = rows.start * width..rows.end * width;
        let d_end = &mut self.buffers.d_end;
        d_end.resize(at.len(), T::ZERO);
        let some = rows.start..rows.end.min(tied).max(rows.start);
        let n = some.len() * width;
        d_end[n..].fill(T::ZERO);
        self.states.d_target[at.clone()][n..].fill(T::ZERO);
        let mut d_target = std::mem::take(&mut self.states.d_target);
        let here = at.start..at.start + n;
        let boundary = Boundary {
            ends: &self.found.ends[here.clone()],
            targets: &self.states.targets()[here.clone()],
            duals: self.states.duals.as_ref().map(|u| &u[here.clone()]),
        };
        let theta = want.theta.then_some(&mut self.grads);
        let counted = some.end.min(counted).saturating_sub(some.start);
        let weight = CouplingWeight { lambda: self.lambda.value, scale: 1.0 / self.geometry.blocks as f64, counted };
        let grads = BoundaryGrads { ends: &mut d_end[..n], targets: &mut d_target[here.clone()], theta };
        let sums = self.coupler.pull(l.model, &l.params, boundary, weight, grads);
        self.states.d_target = d_target;
        sums
    }

    /// p of a chunk's blocks as θ sees it, for the next epoch. That of a window's last block comes from the next window.
    fn store_pulls(&mut self, i: usize) {
        let counted = self.counted_rows();
        let Some(pulls) = &mut self.carried.pulls else { return };
        let (rows, width, own) = (self.tapes.rows(i), self.states.width(), self.states.own().len());
        let rows = rows.start..rows.end.min(counted).max(rows.start);
        let from = self.progress.window as usize * own + rows.start * width;
        let blocks = T::of(self.geometry.blocks as f64);
        let stored = &mut pulls[from..from + rows.len() * width];
        stored.iter_mut().zip(&self.buffers.d_end).for_each(|(p, &d)| *p = d * blocks);
    }

    /// The pull behind the window before, in the next epoch: p_0 = g_1 + d_1ᵀ (p⁺_1 − p_1), after a state step.
    pub(super) fn store_first_pull(&mut self, l: &Learner<T>) {
        let window = self.progress.window as usize;
        if self.carried.pulls.is_none() || window == 0 {
            return;
        }
        let (own, slots) = (self.states.own().len(), self.config.streams * self.states.width());
        let scale = self.state_scale();
        // A buffer of the free loss, which is over.
        let pull = &mut self.buffers.seen;
        if self.geometry.span.has_first() {
            let blocks = T::of(self.geometry.blocks as f64);
            let moved = T::of(self.lambda.value * self.config.states.rate);
            let sigma = self.states.gradients.as_ref().filter(|_| self.config.scan.pulls());
            pull.clear();
            for (j, &d) in self.states.d_start[..slots].iter().enumerate() {
                // σ_1 = g_1 + d_1ᵀ σ_2, and p⁺_1 − p_1 = ηλ σ_2.
                pull.push(blocks * d + sigma.map_or(T::ZERO, |sigma| moved * (sigma[j] - scale * d)));
            }
        }
        if let Some(pulls) = &mut self.carried.pulls {
            let behind = &mut pulls[window * own - slots..window * own];
            let pull = self.geometry.span.has_first().then_some(&pull[..]);
            self.states.exchange.carry_back(l.comm, pull, behind);
        }
    }

    /// The loss of the free states s_{k+1} themselves; its gradient joins that of the targets.
    fn free_loss(&mut self, l: &Learner<T>, i: usize, want: Want) -> f64 {
        let (width, h) = (self.states.width(), l.model.config().hidden);
        let top = l.model.top();
        let (rows, tape) = self.tapes.get(i);
        let layout = tape.layout();
        // B = 1, so a row is a token; tokens lie in the order of the layout.
        let (seen, d_seen) = (&mut self.buffers.seen, &mut self.buffers.d_seen);
        seen.resize(rows.len() * h, T::ZERO);
        d_seen.resize(rows.len() * h, T::ZERO);
        layout.each(|place, row, _| {
            let from = (rows.start + row) * width;
            seen[place * h..][..h].copy_from_slice(&self.states.targets()[from..][top.clone()]);
        });
        let weight = Weight { scale: T::of(1.0 / self.geometry.blocks as f64), ignore: self.geometry.ignore };
        let grads = want.theta.then_some(&mut self.grads);
        let (dh, states) = (MatMut::new(d_seen, rows.len(), h), Mat::new(seen, rows.len(), h));
        l.model.loss_at(&l.params, tape.output(), dh, states, weight, grads);
        let total = tape.total_nats();
        layout.each(|place, row, _| {
            let to = (rows.start + row) * width;
            crate::kernel::add(&mut self.states.d_target[to..][top.clone()], &d_seen[place * h..][..h]);
        });
        total
    }

    /// The recurrence of a chunk from the present starts.
    pub(super) fn recur(&mut self, l: &Learner<T>, i: usize) {
        let text = self.text(l);
        self.tapes.recur(i, l, text, &self.states.starts, &mut self.found);
    }

    /// Waits for the targets of these rows if they are another rank's: those of the last S rows, which several chunks may share.
    pub(super) fn await_targets(&mut self, l: &Learner<T>, rows: &Range<usize>) {
        if rows.end + self.config.streams > self.geometry.span.own {
            self.states.receive_first(l.comm, self.config.staleness);
        }
    }

    /// Rows that are tied to a target: all but the last block's, unless `last` or the loss ties it.
    pub(super) fn tied_rows(&self) -> usize {
        let all =
            self.config.last != Last::None || self.config.pulls == Pulls::Stored || self.states.continues(&self.config);
        self.geometry.span.own - if all { 0 } else { self.config.streams }
    }

    /// Rows whose residuals are counted: the slot behind the last block is left out.
    fn counted_rows(&self) -> usize {
        self.geometry.span.own - if self.geometry.span.has_last() { self.config.streams } else { 0 }
    }
}
