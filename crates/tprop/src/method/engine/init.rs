//! Where a window's states come from.

use std::ops::Range;

use super::{Batch, Engine, Init, Last, Learner, Pulls, Stage, Step, stages};
use crate::model::Tape;
use crate::real::Real;

/// Blocks of every stream that the exact init follows before it may be left.
const FOLLOWED: usize = 64;

impl<T: Real> Engine<T> {
    /// Where the window's states begin.
    pub fn init_states(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        let persists = stages::persists(&self.config, self.progress.epoch);
        self.once(Stage::BeginStates, |me| me.begin_states(l, persists))?;
        if !persists {
            match self.config.init {
                Init::Zero | Init::Parallel { .. } | Init::Stored { .. } | Init::Carried { .. } => {
                    for i in 0..self.config.init.sweeps() {
                        if self.swept_before(i) {
                            break;
                        }
                        self.sweep(l, pause, i)?;
                    }
                }
                Init::Sequential => self.follow(l, pause)?,
            }
        }
        self.once(Stage::SettleStates, |me| {
            if !persists {
                me.states.settle(&me.config, l.model);
            }
            // Targets that begin where the blocks end are set by the first pass.
            if !me.aims() {
                me.states.send_first(l.comm);
                me.states.receive_first(l.comm, 0);
            }
        })
    }

    /// Whether this window's targets begin where its blocks end. Those that persist do not, unless it is their pulls that are stored.
    fn aims(&self) -> bool {
        let persists = stages::persists(&self.config, self.progress.epoch);
        self.config.aims_at_ends() && (!persists || self.config.pulls == Pulls::Stored)
    }

    /// In the first pass of a window, targets that begin where chunk `i`'s blocks end: t_{k+1} = F_k + u_k − p_k/λ, with p = 0 unless
    /// it was stored.
    pub(super) fn aim(&mut self, l: &Learner<T>, stage: Stage, i: usize) {
        if !self.aims() || !self.progress.cursor.is_first_pass(stage) {
            return;
        }
        let all = self.config.pulls == Pulls::Stored || self.states.continues(&self.config);
        let last = self.geometry.span.own - if all { 0 } else { self.config.streams };
        let (rows, width) = (self.tapes.rows(i), self.states.width());
        let from = self.progress.window as usize * self.states.own().len();
        let pulls = self.carried.pulls.as_ref().map(|pulls| &pulls[from..]);
        for q in rows.start..rows.end.min(last) {
            let at = q * width..(q + 1) * width;
            let pull = pulls.map(|pulls| &pulls[at.clone()]);
            self.states.aim(q, &self.found.ends[at], pull, self.lambda.value, &self.config, l.model);
        }
        if i + 1 == self.tapes.count() {
            self.states.send_aims(&self.config, l.comm);
        }
    }

    fn begin_states(&mut self, l: &Learner<T>, persists: bool) {
        if matches!(self.config.init, Init::Carried { .. }) {
            self.states.exchange.share_carried(l.comm, &mut self.carried.state);
        }
        let full = self.config.batch == Batch::Full;
        let later = full && self.progress.epoch > 1;
        let (states, carried) = (&mut self.states, &self.carried);
        if !later {
            states.begin_window(full || carried.stored_duals.is_some());
        }
        if !persists {
            let own = states.own();
            let from = self.progress.window as usize * own.len();
            match &carried.stored {
                Some(stored) => {
                    states.starts[own.clone()].copy_from_slice(&stored[from..from + own.len()]);
                    // Nothing is stored of the slot behind the last block, and it must not inherit the window's before.
                    states.behind_mut().fill(l.model.initial_state());
                }
                None if later && matches!(self.config.init, Init::Stored { .. }) => {}
                None => states.starts.fill(l.model.initial_state()),
            }
            if matches!(self.config.init, Init::Carried { .. }) {
                states.starts[own.clone()]
                    .chunks_exact_mut(carried.state.len())
                    .for_each(|s| s.copy_from_slice(&carried.state));
            }
            if let (Some(duals), Some(stored)) = (&mut states.duals, &carried.stored_duals) {
                duals.copy_from_slice(&stored[from..from + own.len()]);
            }
            if self.config.last != Last::None {
                states.behind_mut().fill(T::ZERO);
            }
        }
        states.movement.path.fill(0.0);
        states.begin_at(&self.config, &carried.state, persists);
        self.tapes.tokens_changed();
    }

    /// Whether an earlier sweep than this one was enough.
    fn swept_before(&self, number: usize) -> bool {
        let swept = self.progress.cursor.swept;
        swept > 0 && swept <= number as u64
    }

    /// s_{k+1} ← F_k(s_k) for all blocks at once, and a scan over them if the configuration has one. The first sweep of `parallel` runs
    /// every block, the first one too, from the initial state.
    fn sweep(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, number: usize) -> Step {
        let from_initial = number == 0 && matches!(self.config.init, Init::Parallel { .. });
        self.pass(Stage::Sweep(number), pause, |me, i| {
            if !from_initial {
                return me.recur(l, i);
            }
            let (rows, width, text) = (me.tapes.rows(i), me.states.width(), me.text(l));
            // `d_start` is free before the first gradient.
            let starts = &mut me.states.d_start;
            starts[rows.start * width..rows.end * width].fill(l.model.initial_state());
            me.tapes.recur(i, l, text, starts, &mut me.found);
        })?;
        self.once(Stage::TakeEnds(number), |me| {
            let own = me.states.own();
            let (scanned, tolerance) = (me.config.scan.starts(), me.config.sweep_tolerance);
            if !from_initial && (scanned || tolerance > 0.0) {
                me.states.d_start.copy_from_slice(&me.states.starts[own]);
            }
            if scanned {
                me.scan_starts(l.comm, me.column(l.model));
            } else {
                me.states.take_ends(&me.config, &me.found.ends, l.comm);
            }
            if tolerance > 0.0 && !from_initial {
                let [change, norm] = me.statistics.sum(l.comm, me.states.measure_starts());
                if change.sqrt() < tolerance * norm.sqrt() {
                    me.progress.cursor.swept = number as u64 + 1;
                    me.progress.cursor.list_stages(&me.config, me.progress.epoch);
                }
            }
            me.tapes.starts_moved();
        })
    }

    /// s_{k+1} ← F_k(s_k), block after block: the exact trajectory, with every residual 0. Ranks take turns.
    fn follow(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        let own = self.geometry.span.own / self.config.streams;
        self.once(Stage::ReceiveStart, |me| me.states.receive_start(l.comm))?;
        self.pass_over(Stage::Follow, own.div_ceil(FOLLOWED), pause, |me, i| {
            me.follow_blocks(l, i * FOLLOWED..own.min((i + 1) * FOLLOWED));
        })?;
        self.once(Stage::SendEnd, |me| me.states.send_end(l.comm))
    }

    /// Some of this rank's blocks of every stream.
    fn follow_blocks(&mut self, l: &Learner<T>, blocks: Range<usize>) {
        let (s, text) = (self.config.streams, self.text(l));
        let (slots, last) = (s * self.states.width(), self.geometry.span.own / s - 1);
        let continues = self.states.continues(&self.config);
        let column: &mut Tape<T> = self.column.as_mut().expect("made for this init");
        column.forget_weights();
        for k in blocks {
            // Input products of tapes that hold them serve the later passes as well.
            if self.tapes.cached() {
                let chunk = self.tapes.with_row(k * s);
                self.tapes.prepare(chunk, l, text);
                let (rows, tape) = self.tapes.get(chunk);
                l.model.take_inputs(column, tape, k * s - rows.start);
            } else {
                text.fill(k * s..(k + 1) * s, column);
                l.model.prepare(&l.params, column);
            }
            let (here, next) = self.states.starts[k * slots..(k + 2) * slots].split_at_mut(slots);
            l.model.recur(&l.params, column, here);
            if k < last || continues {
                l.model.ends(column, next);
            }
        }
    }
}
