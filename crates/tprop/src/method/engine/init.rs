//! Where a window's states come from.

use std::ops::Range;

use super::{Batch, Engine, Init, Last, Learner, Stage, Step, stages};
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
                Init::Zero => {}
                Init::Parallel { sweeps } => {
                    // The first sweep starts every block, the first one too, from the initial state.
                    for i in 0..sweeps {
                        self.sweep(l, pause, i, i == 0)?;
                    }
                }
                Init::Stored { sweeps } => {
                    for i in 0..sweeps {
                        self.sweep(l, pause, i, false)?;
                    }
                }
                Init::Sequential => self.follow(l, pause)?,
            }
        }
        self.once(Stage::SettleStates, |me| {
            if !persists {
                me.states.settle(&me.config, l.model);
            }
            me.states.send_first(l.comm);
            me.states.receive_first(l.comm, 0);
        })
    }

    fn begin_states(&mut self, l: &Learner<T>, persists: bool) {
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

    /// s_{k+1} ← F_k(s_k), or F_k of the initial state, for all blocks at once.
    fn sweep(
        &mut self,
        l: &mut Learner<T>,
        pause: &mut dyn FnMut() -> bool,
        number: usize,
        from_initial: bool,
    ) -> Step {
        self.pass(Stage::Sweep(number), pause, |me, i| {
            if !from_initial {
                return me.recur(l, i);
            }
            let (rows, width, text) = (me.tapes.rows(i), me.states.width(), me.text(l));
            // `d_start` is free before the first gradient.
            let starts = &mut me.states.d_start;
            starts[rows.start * width..rows.end * width].fill(l.model.initial_state());
            me.tapes.recur(i, l, text, starts, &mut me.buffers.ends);
        })?;
        self.once(Stage::TakeEnds(number), |me| {
            me.states.take_ends(&me.config, &me.buffers.ends, l.comm);
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
