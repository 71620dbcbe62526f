//! The whole state of a run: into a checkpoint and out of it.

use crate::checkpoint::{Health, Snapshot, SnapshotReader, SnapshotWriter, visit_params};
use crate::comm::rows::{Collect, Deal};
use crate::method::{Batch, Outline};
use crate::params::Visit;
use crate::real::Real;

use super::{SaveReason, TrainError, Trainer, Watch};

impl<T: Real> Trainer<'_, T> {
    pub(super) fn save(&mut self, watch: &mut dyn Watch, why: SaveReason) -> Result<(), TrainError> {
        let mut health = Health::default();
        self.visit(&mut health);
        // States may be sick on one rank alone, but all ranks save, or none.
        let sick = if health.sick.is_some() { 1.0 } else { 0.0 };
        if crate::comm::largest(self.learner.comm, sick) > 0.0 {
            let name = health.sick.unwrap_or_else(|| "a tensor of another rank".into());
            return Err(self.diverged(self.progress.step, format!("{name} is not finite"), None));
        }
        watch.make_room();
        watch.save(self.snapshot(), why).map_err(TrainError::Watch)
    }

    /// A copy of the whole state, on rank 0; all ranks ask for it together.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut writer = SnapshotWriter(&mut snapshot);
        self.visit(&mut Collect { comm: self.learner.comm, visit: &mut writer });
        snapshot
    }

    /// Bytes that a file of [`Trainer::snapshot`] will take, within a few kilobytes; asks no other rank.
    pub fn snapshot_bytes(&mut self) -> u64 {
        let mut weigh = Weigh(0);
        self.visit(&mut weigh);
        weigh.0 + 4096
    }

    /// Puts a snapshot of a run back. `best` is the snapshot with the best validation perplexity; not needed if `snapshot`
    /// itself is that one.
    ///
    /// # Errors
    /// If the settings are others than the run's, so that something does not fit or is missing.
    pub fn restore(&mut self, snapshot: &Snapshot, best: Option<&Snapshot>) -> Result<(), TrainError> {
        let mut reader = SnapshotReader::new(snapshot);
        self.visit(&mut Deal { comm: self.learner.comm, visit: &mut reader });
        reader.finish().map_err(TrainError::Checkpoint)?;
        self.check_numbers(snapshot).map_err(TrainError::Checkpoint)?;
        self.method.check_restored().map_err(TrainError::Checkpoint)?;
        self.restored = true;
        self.best = None;
        // The settings of the stop rule may have changed.
        self.finish_if_due();
        if self.at_best() {
            self.best = Some(self.learner.params.clone());
        } else if self.progress.best_epoch > 0 {
            let best = best.ok_or_else(|| TrainError::Checkpoint("the best weights are missing".into()))?;
            let mut params = self.learner.params.clone();
            best.restore_params("", &mut params).map_err(TrainError::Checkpoint)?;
            self.best = Some(params);
        }
        Ok(())
    }

    /// Refuses counters that no run of these settings can have. A right hash says that a file is as it was written, not by whom.
    fn check_numbers(&self, snapshot: &Snapshot) -> Result<(), String> {
        let method = &self.config.method;
        let (_, windows) = method.windows(self.data.train.len().saturating_sub(1) / method.streams());
        let each = match method.batch() {
            Batch::Mini { accumulate } => accumulate,
            Batch::Full => windows,
        } as u64;
        // Of all ranks: a checkpoint is the same whoever resumes it.
        let (windows, text, p) = (windows as u64, self.data.train.len() as u64, &self.progress);
        let count = |name: &str| snapshot.count(name).unwrap_or(0);
        let at = count("bptt.at");
        for (name, most) in [
            // So that nobody who adds or multiplies them overflows.
            ("train.step", 1 << 48),
            ("train.tokens", 1 << 56),
            ("train.epoch", p.step.saturating_add(1)),
            ("train.begun", 1),
            ("train.finished", 1),
            ("train.best_epoch", p.epoch),
            ("train.bad_epochs", p.epoch),
            ("train.epoch_tokens", p.tokens),
            ("train.recent_tokens", p.tokens),
            ("optim.steps", 1 << 56),
            ("bptt.at", windows),
            ("bptt.held", at.min(each.saturating_sub(1))),
            ("btprop.at", windows),
            ("btprop.epoch", p.epoch),
            ("btprop.settled", 1 << 32),
            ("btprop.piece", text),
        ] {
            let found = count(name);
            if found > most {
                return Err(format!("the counter {name} is {found}; it can be {most} at most"));
            }
        }
        // Sums and perplexities begin at 0 or infinity, and only grow or come down to a number.
        for (name, text) in snapshot.meta.iter().filter(|(name, _)| name.starts_with("real.train.")) {
            let value = snapshot.real(&name["real.".len()..]).unwrap_or(f64::NAN);
            if value.is_nan() || value == f64::NEG_INFINITY {
                return Err(format!("the number {name} is {}", crate::vocab::printable(text)));
            }
        }
        let rate = self.learner.optimiser.rate;
        if p.epoch == 0 || !rate.is_finite() {
            return Err(format!("epoch {} at a learning rate of {rate} cannot be", p.epoch));
        }
        Ok(())
    }

    fn visit(&mut self, visit: &mut dyn Visit<T>) {
        visit_params("", &mut self.learner.params, visit);
        for (i, slot) in self.learner.optimiser.slots_mut().iter_mut().enumerate() {
            visit_params(&format!("optim.{i}."), slot, visit);
        }
        visit.count("optim.steps", &mut self.learner.optimiser.steps);
        visit.real("optim.rate", &mut self.learner.optimiser.rate);
        self.method.visit(visit);
        let p = &mut self.progress;
        for (name, value) in [
            ("epoch", &mut p.epoch),
            ("begun", &mut p.begun),
            ("step", &mut p.step),
            ("tokens", &mut p.tokens),
            ("best_epoch", &mut p.best_epoch),
            ("bad_epochs", &mut p.bad_epochs),
            ("finished", &mut p.finished),
            ("epoch_tokens", &mut p.epoch_tokens),
            ("recent_tokens", &mut p.recent_tokens),
        ] {
            visit.count(&format!("train.{name}"), value);
        }
        let c = &mut p.coupling;
        for (name, value) in [
            ("seconds", &mut p.seconds),
            ("best_ppl", &mut p.best_ppl),
            ("nats", &mut p.nats),
            ("recent_nats", &mut p.recent_nats),
            ("recent_since", &mut p.recent_since),
            ("windows", &mut c.windows),
            ("objective", &mut c.objective),
            ("penalty", &mut c.sums.penalty),
            ("boundaries", &mut c.sums.boundaries),
            ("residual", &mut c.sums.residual),
            ("residual_max", &mut c.sums.residual_max),
            ("state", &mut c.sums.state),
            ("dual", &mut c.sums.dual),
            ("moved", &mut c.moved),
        ] {
            visit.real(&format!("train.{name}"), value);
        }
        for (i, nats) in p.by_position.iter_mut().enumerate() {
            visit.real(&format!("train.nats.{i}"), nats);
        }
        if self.method.sweeps_vary() {
            visit.real("train.sweeps", &mut p.coupling.sweeps);
        }
    }
}

/// Whether the weights are still those of the evaluation that ended epoch `best`, in the midst of nothing else.
pub(super) fn just_evaluated(best: u64, epoch: u64, begun: u64, epoch_tokens: u64) -> bool {
    best > 0 && begun == 0 && best.checked_add(1) == Some(epoch) && epoch_tokens == 0
}

/// Whether a snapshot's weights are themselves the best that it knows of.
pub fn is_best(snapshot: &Snapshot) -> bool {
    let count = |name: &str| snapshot.count(&format!("train.{name}"));
    match (count("best_epoch"), count("epoch"), count("begun"), count("epoch_tokens")) {
        (Some(best), Some(epoch), Some(begun), Some(tokens)) => just_evaluated(best, epoch, begun, tokens),
        _ => false,
    }
}

/// Lets a snapshot forget which evaluation was the best, because its weights are lost: the next one will be.
pub fn forget_best(snapshot: &mut Snapshot) {
    snapshot.set_count("train.best_epoch", 0);
    snapshot.set_real("train.best_ppl", f64::INFINITY);
}

/// Counts the bytes of what it is shown, rows of other ranks included.
struct Weigh(u64);

impl<T: Real> Visit<T> for Weigh {
    fn count(&mut self, name: &str, _: &mut u64) {
        self.0 += name.len() as u64 + 40;
    }
    fn real(&mut self, name: &str, _: &mut f64) {
        self.0 += name.len() as u64 + 60;
    }
    fn tensor(&mut self, name: &str, rows: usize, cols: usize, _: &mut [T]) {
        // A tensor of 0 rows is a vector.
        self.0 += name.len() as u64 + 80 + (rows.max(1) * cols * T::BYTES) as u64;
    }
}
