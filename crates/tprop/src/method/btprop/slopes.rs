//! The window objective and its slopes, piece by piece; what a lone piece's tape still holds is not computed again.

use super::*;

/// What a piece's tape still holds; pieces that share tapes know nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) tokens: bool,
    pub(super) inputs: bool,
    pub(super) recurrence: bool,
    pub(super) loss: bool,
    /// The output layer's gradient is already in `grads`, or summed up.
    pub(super) output_gradient: bool,
}

/// The output layer among [`crate::model::Model::groups`].
const OUTPUT: usize = 0;

/// What a pass should find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) states: bool,
    pub(super) theta: bool,
}

impl<T: Real> Btprop<T> {
    /// L and its slopes at the present states: in the states, in θ, or both.
    pub(super) fn slopes(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, want: Want) -> Step {
        self.pass(pause, |me, i| {
            if want.theta {
                if me.pieces.begins(i) {
                    me.sums[me.pieces.place(i).share].clear();
                    me.total.begin_share();
                }
                // A lone piece's output gradient may be there already; several pieces hand theirs on at once.
                if !(me.known[i].output_gradient && me.pieces.count() == 1) {
                    me.grads.clear();
                }
            }
            me.piece_slopes(l, i, want);
        })
    }

    /// One piece of [`Self::slopes`].
    pub(super) fn piece_slopes(&mut self, l: &mut Learner<T>, i: usize, want: Want) {
        self.recur(l, i);
        let predicted = self.config.loss == LossOn::Predicted;
        let (mut nats, summed) = if predicted { self.predicted_loss(l, i, want) } else { (None, false) };
        if self.aims_at_next_rank(&self.pieces.rows(i)) {
            self.states.arrive(l.comm, self.config.staleness);
        }
        let sums = self.pull(l, i, want);
        if !predicted {
            nats = Some(self.free_loss(l, i, want));
        }
        // Both travel while the recurrence runs backwards.
        if want.states && i + 1 == self.pieces.count() {
            self.states.send_slopes(l.comm);
        }
        let place = self.pieces.place(i);
        if want.theta && !summed {
            self.total.ready(l.comm, &mut self.grads, place, OUTPUT);
        }
        let (rows, tape) = self.pieces.get(i);
        let at = rows.start * self.states.width()..rows.end * self.states.width();
        let d_start = want.states.then(|| &mut self.states.d_start[at]);
        let grads = want.theta.then_some(&mut self.grads);
        let mut ready = |grads: &mut Grads<T>, group| self.total.ready(l.comm, grads, place, group);
        let theta = grads.map(|grads| ThetaGradient { grads, ready: &mut ready });
        l.model.backward_by_group(&l.params, tape, predicted, Some(&self.d_end), d_start, theta);
        if want.theta {
            let share = &mut self.sums[place.share];
            share.nats += nats.unwrap_or_else(|| tape.total_nats());
            tape.nats_by_step(&mut share.by_position);
            share.coupling.add(&sums);
        }
    }

    /// The output layer of a piece, unless its tape still has it: the nats, if they were counted now, and whether its gradient has
    /// been handed to the sum already.
    fn predicted_loss(&mut self, l: &Learner<T>, i: usize, want: Want) -> (Option<f64>, bool) {
        let (model, params) = (l.model, &l.params);
        let place = self.pieces.place(i);
        let (alone, kept) = (self.pieces.count() == 1, self.pieces.kept);
        let (_, tape) = self.pieces.get(i);
        let per_token = T::of(1.0 / self.blocks as f64 / self.config.block as f64);
        let known = &mut self.known[i];
        // Unless something is added to it later on, the output layer's gradient can be summed up as soon as it is there.
        let added_to = self.config.penalty.kl().is_some() || model.config().tied;
        let mut summed = known.output_gradient && !added_to;
        let mut nats = None;
        if !known.loss {
            // Held starts never move, so the output layer is done once for the window, its gradient included.
            let early = !want.theta && kept && self.config.starts == Starts::Held && (alone || !added_to);
            if early {
                self.grads.clear();
            }
            let grads = (want.theta || early).then_some(&mut self.grads);
            nats = Some(model.loss(params, tape, per_token, self.ignore, grads));
            known.loss = kept;
            known.output_gradient = (want.theta || early) && kept;
            if early && !added_to {
                self.total.ready(l.comm, &mut self.grads, place, OUTPUT);
                summed = true;
            }
        } else if want.theta && !known.output_gradient {
            nats = Some(model.loss(params, tape, per_token, self.ignore, Some(&mut self.grads)));
        }
        (nats, summed)
    }

    /// The pull of the coupling at a piece's ends and at their targets; rows that are tied to nothing feel none.
    fn pull(&mut self, l: &Learner<T>, i: usize, want: Want) -> CouplingSums {
        let width = self.states.width();
        let (tied, counted) = (self.tied_rows(), self.counted_rows());
        let rows = self.pieces.rows(i);
        let at = rows.start * width..rows.end * width;
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
        let counted = some.end.min(counted).saturating_sub(some.start);
        let weight = CouplingWeight { lambda: self.lambda, scale: 1.0 / self.blocks as f64, counted };
        let grads = BoundaryGrads { ends: &mut self.d_end[..n], targets: &mut d_target[at.start..at.start + n], theta };
        let sums = self.coupler.pull(l.model, &l.params, boundary, weight, grads);
        self.states.d_target = d_target;
        sums
    }

    /// The loss of the free states s_{k+1} themselves; its slope joins that of the targets.
    pub(super) fn free_loss(&mut self, l: &Learner<T>, i: usize, want: Want) -> f64 {
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
        let weight = Weight { scale, ignore: self.ignore };
        let (dh, states) = (MatMut::new(slopes, rows.len(), h), Mat::new(seen, rows.len(), h));
        l.model.loss_at(&l.params, tape.output(), dh, states, weight, grads);
        let total = tape.total_nats();
        layout.each(|place, row, _| {
            let to = (rows.start + row) * width;
            crate::kernel::add(&mut self.states.d_target[to..][top.clone()], &slopes[place * h..][..h]);
        });
        total
    }

    /// Tokens and input products of a piece, unless its tape still has them.
    pub(super) fn prepare(&mut self, l: &Learner<T>, i: usize) {
        let (known, kept) = (self.known[i], self.pieces.kept);
        let (rows, tape) = self.pieces.get(i);
        if !known.tokens {
            let at = self.at as usize * self.config.blocks * self.config.block;
            let rows = self.mine.start + rows.start..self.mine.start + rows.end;
            l.streams(self.config.streams).fill(&tape.layout(), at, rows, &mut tape.inputs, &mut tape.targets);
        }
        if !known.inputs {
            l.model.prepare(&l.params, tape);
        }
        (self.known[i].tokens, self.known[i].inputs) = (kept, kept);
    }

    /// The recurrence of a piece from the present starts, unless its tape still has it; its ends into `self.ends`.
    pub(super) fn recur(&mut self, l: &Learner<T>, i: usize) {
        if self.known[i].recurrence {
            return;
        }
        self.prepare(l, i);
        let (rows, tape) = self.pieces.get(i);
        let at = rows.start * self.states.width()..rows.end * self.states.width();
        l.model.recur(&l.params, tape, &self.states.starts[at.clone()]);
        l.model.ends(tape, &mut self.ends[at]);
        (self.known[i].recurrence, self.known[i].loss) = (self.pieces.kept, false);
    }

    /// Whether some of these rows aim at states of the next rank. Those are the last S rows, which several pieces may share.
    pub(super) fn aims_at_next_rank(&self, rows: &Range<usize>) -> bool {
        rows.end + self.config.streams > self.mine.len()
    }

    /// Rows that are tied to a target: all but the last block's, unless `last` or the loss ties it.
    pub(super) fn tied_rows(&self) -> usize {
        let all = self.config.last != Last::None || self.config.loss == LossOn::Free || !self.states.last_rank;
        self.mine.len() - if all { 0 } else { self.config.streams }
    }

    /// Rows whose residuals are counted: the slot behind the last block is left out.
    pub(super) fn counted_rows(&self) -> usize {
        self.mine.len() - if self.states.last_rank { self.config.streams } else { 0 }
    }
}
