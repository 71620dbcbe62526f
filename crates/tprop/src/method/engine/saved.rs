//! Everything that shapes the future, for checkpoints. Names and order are those of the format: they stay.

use super::{Batch, Engine};
use crate::comm::Span;
use crate::params::{Rows, Visit};
use crate::real::Real;

impl<T: Real> Engine<T> {
    pub(super) fn show(&mut self, visit: &mut dyn Visit<T>) {
        let (progress, lambda) = (&mut self.progress, &mut self.lambda);
        let cursor = &mut progress.cursor;
        for (name, value) in [
            ("epoch", &mut progress.epoch),
            ("at", &mut progress.window),
            ("done", &mut cursor.done),
            ("piece", &mut cursor.chunk),
            ("settled", &mut cursor.settled),
        ] {
            visit.count(&format!("btprop.{name}"), value);
        }
        if self.config.sweep_tolerance > 0.0 {
            visit.count("btprop.swept", &mut cursor.swept);
        }
        // Known to a reader too, because the counters come first.
        let inside = cursor.inside();
        // Between two windows these are spent, so it does not matter that there may be more shares.
        let sums = &mut self.statistics.shares[0];
        let c = &mut sums.coupling;
        for (name, value) in [
            ("lambda", &mut lambda.value),
            ("epoch_residual", &mut lambda.residual),
            ("epoch_moved", &mut lambda.moved),
            ("nats", &mut sums.nats),
            ("norm", &mut self.statistics.norm),
            ("penalty", &mut c.penalty),
            ("boundaries", &mut c.boundaries),
            ("residual", &mut c.residual),
            ("residual_max", &mut c.residual_max),
            ("state", &mut c.state),
            ("dual", &mut c.dual),
        ] {
            visit.real(&format!("btprop.{name}"), value);
        }
        for (i, nats) in sums.by_position.iter_mut().enumerate() {
            visit.real(&format!("btprop.nats.{i}"), nats);
        }
        let width = self.states.width();
        visit.tensor("btprop.carried", self.config.streams, width, &mut self.carried.state);
        let Span { first, own, all } = self.geometry.span;
        let own = Rows { repeat: 1, first, own, all };
        let stored = Rows { repeat: self.geometry.windows, ..own };
        let carried = &mut self.carried;
        for (name, values) in [
            ("stored", &mut carried.stored),
            ("stored_duals", &mut carried.stored_duals),
            ("pulls", &mut carried.pulls),
        ] {
            if let Some(values) = values {
                visit.rows(&format!("btprop.{name}"), stored, width, values);
            }
        }
        // A minibatch begins anew with every window: between two of them nothing else shapes the future.
        if self.config.batch == Batch::Full || inside {
            self.states.visit(visit);
            visit.rows("btprop.ends", own, width, &mut self.found.ends);
            if let Some(diagonals) = &mut self.found.diagonals {
                let width = diagonals.len() / own.own;
                visit.rows("btprop.diagonals", own, width, diagonals);
            }
            // Otherwise nobody looks in between two chunks.
            if self.geometry.shares.may_pause()
                && let Some(total) = self.total.whole_mut()
            {
                total.visit("btprop.total", visit);
            }
        }
        self.tapes.tokens_changed();
    }
}
