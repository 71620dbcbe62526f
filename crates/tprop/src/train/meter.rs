//! `meter`: every n updates, how near the update's gradient was to the exact one of its window. It looks on and changes no number.

use crate::comm::rows::Collect;
use crate::meter::{CELL_AND_EMBEDDING, groups};
use crate::method::{Batch, Outline, Update};
use crate::params::{Params, Visit};
use crate::probe::{Excerpt, Probe, cosine, relative_error, window};
use crate::real::Real;
use crate::record::{Event, Meter};

use super::{TrainError, Trainer, Watch};

/// What is known before an update that is measured.
#[derive(Debug)]
pub(super) struct Before<T> {
    params: Params<T>,
    /// The state in which the window begins, a row for each stream; on rank 0.
    state: Vec<T>,
    /// Where it begins in each of them.
    at: usize,
}

impl<T: Real> Trainer<'_, T> {
    /// Before the next update, if it is to be measured; all ranks ask together. An update in batch mode has no window, and one that
    /// continues after a pause has lost the state in which it began.
    pub(super) fn before_meter(&mut self) -> Option<Before<T>> {
        let (n, method) = (self.config.meter as u64, &self.config.method);
        if n == 0 || !(self.progress.step + 1).is_multiple_of(n) {
            return None;
        }
        if method.batch() == Batch::Full || window(method).is_none() {
            return None;
        }
        if self.progress.begun == 0 {
            self.begin_epoch();
        }
        let mut entering = Entering { state: Vec::new(), held: 0 };
        self.method.visit(&mut Collect { comm: self.learner.comm, visit: &mut entering });
        let at = self.progress.epoch_tokens as usize / self.config.method.streams();
        (entering.held == 0).then(|| {
            self.learner.optimiser.copy_next();
            Before { params: self.learner.params.clone(), state: entering.state, at }
        })
    }

    /// After that update: the exact gradient of the same tokens from the same state at the same weights, beside the update's own.
    pub(super) fn report_meter(
        &mut self,
        watch: &mut dyn Watch,
        before: &Before<T>,
        update: &Update,
    ) -> Result<(), TrainError> {
        let gradient = self.learner.optimiser.take_gradient();
        let (Some(ours), 0) = (gradient, self.learner.comm.rank()) else { return Ok(()) };
        let model = self.learner.model;
        let cut = self.learner.streams(self.config.method.streams());
        let excerpt = Excerpt::new(&cut, before.at, update.tokens as usize / cut.streams());
        // It fails where the gradient is not finite; then the update has failed as well.
        let Ok(exact) = (Probe { model, params: &before.params }).exact(&excerpt, &before.state) else { return Ok(()) };
        let inner = groups(model).into_iter().find(|(name, _)| name == CELL_AND_EMBEDDING).expect("a group").1;
        let event = Event::Meter(Meter {
            epoch: self.progress.epoch,
            step: self.progress.step,
            error: relative_error(&ours, &exact),
            cosine: cosine(&ours, &exact),
            inner_error: relative_error(&ours[inner.clone()], &exact[inner.clone()]),
            inner_cosine: cosine(&ours[inner.clone()], &exact[inner]),
        });
        watch.event(&event).map_err(TrainError::Watch)
    }
}

/// The state in which a method's next window begins, and whether it is in the middle of an update of several.
struct Entering<T> {
    state: Vec<T>,
    held: u64,
}

impl<T: Real> Visit<T> for Entering<T> {
    fn count(&mut self, name: &str, value: &mut u64) {
        if name.ends_with(".held") {
            self.held = *value;
        }
    }
    fn real(&mut self, _: &str, _: &mut f64) {}
    fn tensor(&mut self, name: &str, _: usize, _: usize, values: &mut [T]) {
        if name.ends_with(".carried") {
            self.state = values.to_vec();
        }
    }
}
