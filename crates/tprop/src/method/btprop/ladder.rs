//! Where a window's states come from.

use super::*;

impl<T: Real> Btprop<T> {
    /// Where the window's states begin: the init ladder.
    pub(super) fn init_states(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        let (full, width) = (self.config.batch == Batch::Full, self.states.width());
        let slots = self.config.streams * width;
        // In batch mode states persist from pass to pass. Held starts, though, lie on the trajectory of the present θ, so
        // they are found anew for every pass, unless they are to be taken as they are.
        let later = full && self.epoch > 1;
        let as_they_are = self.config.init == Init::Stored { sweeps: 0 };
        let persists = later && (self.config.starts == Starts::Moving || as_they_are);
        self.once(|me| {
            let keep_duals = full || me.stored_duals.is_some();
            if !later {
                me.states.begin_window(keep_duals);
            }
            if !persists {
                let own = me.states.own();
                match &me.stored {
                    Some(stored) => {
                        let from = me.at as usize * own.len();
                        me.states.starts[own.clone()].copy_from_slice(&stored[from..from + own.len()]);
                    }
                    None if later && matches!(me.config.init, Init::Stored { .. }) => {}
                    None => me.states.starts.fill(l.model.initial_state()),
                }
                if let (Some(duals), Some(stored)) = (&mut me.states.duals, &me.stored_duals) {
                    duals.copy_from_slice(&stored[me.at as usize * own.len()..][..own.len()]);
                }
                if me.config.last != Last::None {
                    me.states.behind_mut().fill(T::ZERO);
                }
            }
            me.states.moved.fill(0.0);
            if me.states.first_rank && (!persists || me.config.first == First::Fixed) {
                let carried = &me.carried;
                me.states.starts[..slots].copy_from_slice(carried);
            }
            me.known.fill(Known::default());
        })?;
        if !persists {
            match self.config.init {
                Init::Zero => {}
                Init::Parallel { sweeps } => {
                    // The first sweep starts every block, the first one too, from the initial state.
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
            if !persists {
                me.states.settle(&me.config, l.model);
            }
            me.states.refresh(l.comm);
            me.states.arrive(l.comm, 0);
        })
    }

    /// s_{k+1} ← F_k(s_k), or F_k(rest), for all blocks at once.
    pub(super) fn sweep(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool, from_rest: bool) -> Step {
        self.pass(pause, |me, i| {
            if from_rest {
                me.prepare(l, i);
                let (rows, tape) = me.pieces.get(i);
                let at = rows.start * me.states.width()..rows.end * me.states.width();
                // `d_start` is free before the first slope.
                me.states.d_start[at.clone()].fill(l.model.initial_state());
                l.model.recur(&l.params, tape, &me.states.d_start[at.clone()]);
                l.model.ends(tape, &mut me.ends[at]);
            } else {
                me.recur(l, i);
            }
            me.known[i].recurrence = false;
        })?;
        self.once(|me| {
            let behind = me.config.loss == LossOn::Free;
            me.states.take_ends(&me.ends, l.comm, behind);
        })
    }

    /// s_{k+1} ← F_k(s_k), block after block: the exact trajectory, with every residual 0. Ranks take turns.
    pub(super) fn follow(&mut self, l: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Step {
        let (s, width) = (self.config.streams, self.states.width());
        let (slots, chunk) = (s * width, 64);
        let own = self.mine.len() / s;
        self.once(|me| {
            if !me.states.first_rank {
                Post(l.comm).receive(l.comm.rank() - 1, Topic::ENDS, &mut me.states.starts[..slots]);
            }
        })?;
        self.pass_over(own.div_ceil(chunk), pause, |me, i| {
            let cut = l.streams(s);
            let at = me.at as usize * me.config.blocks * me.config.block;
            if let Some(lane) = &mut me.lane {
                lane.forget_weights();
            }
            for k in i * chunk..own.min((i + 1) * chunk) {
                // Input products of tapes that are kept serve the later passes as well.
                let piece = me.pieces.holding(k * s);
                if me.pieces.kept {
                    me.prepare(l, piece);
                }
                let lane = me.lane.as_mut().expect("made for this init");
                if me.pieces.kept {
                    let (rows, tape) = me.pieces.get(piece);
                    l.model.take_inputs(lane, tape, k * s - rows.start);
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
        self.once(|me| {
            if !me.states.last_rank {
                Post(l.comm).send(l.comm.rank() + 1, Topic::ENDS, &me.states.starts[own * slots..]);
            }
        })
    }
}
