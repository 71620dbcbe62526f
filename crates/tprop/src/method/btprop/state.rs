//! Everything that shapes the future, for checkpoints.

use super::*;

impl<T: Real> Btprop<T> {
    pub(super) fn show(&mut self, walk: &mut dyn Walk<T>) {
        let s = &mut self.script;
        for (name, value) in [
            ("epoch", &mut self.epoch),
            ("at", &mut self.at),
            ("done", &mut s.done),
            ("piece", &mut s.piece),
            ("settled", &mut s.settled),
        ] {
            walk.count(&format!("btprop.{name}"), value);
        }
        // Known to a reader too, because the counters come first.
        let inside = s.done > 0 || s.piece > 0;
        // Between two windows these are spent, so it does not matter that there may be more shares.
        let sums = &mut self.sums[0];
        let c = &mut sums.coupling;
        for (name, value) in [
            ("lambda", &mut self.lambda),
            ("epoch_residual", &mut self.epoch_residual),
            ("epoch_moved", &mut self.epoch_moved),
            ("nats", &mut sums.nats),
            ("norm", &mut self.norm),
            ("penalty", &mut c.penalty),
            ("boundaries", &mut c.boundaries),
            ("residual", &mut c.residual),
            ("residual_max", &mut c.residual_max),
            ("state", &mut c.state),
            ("dual", &mut c.dual),
        ] {
            walk.real(&format!("btprop.{name}"), value);
        }
        for (i, nats) in sums.by_position.iter_mut().enumerate() {
            walk.real(&format!("btprop.nats.{i}"), nats);
        }
        let width = self.states.width();
        walk.tensor("btprop.carried", self.config.streams, width, &mut self.carried);
        let own = Rows { repeat: 1, first: self.mine.start, own: self.mine.len(), all: self.blocks };
        let stored = Rows { repeat: self.windows, ..own };
        for (name, values) in [("stored", &mut self.stored), ("stored_duals", &mut self.stored_duals)] {
            if let Some(values) = values {
                walk.rows(&format!("btprop.{name}"), stored, width, values);
            }
        }
        // A minibatch begins anew with every window: between two of them nothing else shapes the future.
        if self.config.batch == Batch::Full || inside {
            self.states.walk(walk, self.mine.start, self.blocks);
            walk.rows("btprop.ends", own, width, &mut self.ends);
            // With several shares nobody looks in between two pieces.
            if let (Some(total), 1) = (self.total.whole_mut(), self.shares.count()) {
                total.walk("btprop.total", walk);
            }
        }
        self.known.fill(Known::default());
    }
}
