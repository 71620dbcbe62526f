//! The end of an epoch: evaluation, best weights, rate, stop rule.

use crate::comm::ask_if_alone;
use crate::eval::Reading;
use crate::method::Coupling;
use crate::real::Real;
use crate::record::{CouplingMeans, Eval, Event, RateChange};
use crate::tokens::Text;

use super::{FAR, Request, SaveReason, TrainError, Trainer, Watch};

impl<T: Real> Trainer<'_, T> {
    /// Reads a split the way that evaluations do; nothing if a single process is asked to stop meanwhile.
    fn read_split(&mut self, text: Text<'_>, best: bool, watch: &mut dyn Watch) -> Option<Reading> {
        let (comm, streams) = (self.learner.comm, self.config.eval_streams);
        let params = self.best.as_ref().filter(|_| best).unwrap_or(&self.learner.params);
        let streams = streams.min(text.len().saturating_sub(1)).max(1);
        let mut stop = || ask_if_alone(comm, || watch.request() == Request::Stop);
        self.reader.read_unless(self.learner.model, params, text, streams, &mut stop)
    }

    pub(super) fn read_test(&mut self, watch: &mut dyn Watch) -> Option<Option<f64>> {
        if self.data.test.is_empty() {
            return Some(None);
        }
        self.read_split(self.data.test, true, watch).map(|reading| Some(reading.perplexity()))
    }

    pub(super) fn end_epoch(&mut self, watch: &mut dyn Watch) -> Result<(), TrainError> {
        let Some(valid) = self.read_split(self.data.valid, false, watch) else { return Ok(()) };
        // The training text read the same way: its beginning, as long as the validation split.
        let (text, limit) = (self.data.train, self.data.valid.len().max(10_000));
        let text = text.part(0..text.len().min(limit));
        let Some(train) = self.read_split(text, false, watch) else { return Ok(()) };
        let train_ppl = train.perplexity();
        let window_ppl = (self.progress.nats / self.progress.epoch_tokens as f64).exp();
        // Without a validation split the training text decides.
        let valid_ppl = if valid.tokens > 0 { valid.perplexity() } else { train_ppl };
        let guess = (self.learner.model.config().vocab as f64).ln();
        if !valid_ppl.is_finite() || valid_ppl.ln() > guess + FAR {
            let what = format!("validation perplexity is {valid_ppl:.3e}, where guessing has {:.0}", guess.exp());
            return Err(self.diverged(self.progress.step, what, None));
        }
        let (lambda, movable) = (self.method.lambda(), self.method.movable_states() as f64);
        let sweeps_vary = self.method.sweeps_vary();
        let p = &mut self.progress;
        let ended = p.epoch - 1;
        let best = valid_ppl < p.best_ppl;
        let old_rate = self.learner.optimiser.rate;
        if best {
            (p.best_ppl, p.best_epoch, p.bad_epochs) = (valid_ppl, ended, 0);
            match &mut self.best {
                Some(params) => params.all_mut().copy_from_slice(self.learner.params.all()),
                none => *none = Some(self.learner.params.clone()),
            }
        } else {
            p.bad_epochs += 1;
            if self.config.anneal > 0.0 {
                self.learner.optimiser.rate /= self.config.anneal;
            }
        }
        let each = p.epoch_tokens as f64 / p.by_position.len() as f64;
        let (c, sums) = (p.coupling, p.coupling.sums);
        let boundaries = sums.boundaries.max(1.0);
        let event = Event::Eval(Box::new(Eval {
            epoch: ended,
            step: p.step,
            tokens: p.tokens,
            seconds: p.seconds,
            train_ppl,
            window_ppl,
            valid_ppl,
            rate: self.learner.optimiser.rate,
            best,
            window_ppl_by_position: p.by_position.iter().map(|nats| (nats / each).exp()).collect(),
            coupling: lambda.map(|lambda| CouplingMeans {
                objective: c.objective / c.windows,
                penalty: sums.penalty / c.windows,
                residual_mean: sums.residual / boundaries,
                residual_max: sums.residual_max,
                residual_relative: if sums.state > 0.0 { sums.residual / sums.state } else { 0.0 },
                dual_norm: sums.dual / boundaries,
                state_move: c.moved / (c.windows * movable).max(1.0),
                lambda,
                sweeps: sweeps_vary.then(|| c.sweeps / c.windows),
            }),
        }));
        p.nats = 0.0;
        p.epoch_tokens = 0;
        p.by_position.fill(0.0);
        p.coupling = Coupling::default();
        let step = p.step;
        self.finish_if_due();
        watch.event(&event).map_err(TrainError::Watch)?;
        let rate = self.learner.optimiser.rate;
        if rate != old_rate {
            let reason = "validation did not improve".to_string();
            watch.event(&Event::Rate(RateChange { step, rate, reason })).map_err(TrainError::Watch)?;
        }
        self.save(watch, SaveReason::Evaluated { best })
    }

    /// The stop rule.
    pub(super) fn finish_if_due(&mut self) {
        let p = &mut self.progress;
        let out_of_patience = self.config.patience > 0 && p.bad_epochs >= self.config.patience as u64;
        let out_of_epochs = p.epoch > self.config.epochs as u64;
        p.finished = u64::from(p.begun == 0 && p.epoch_tokens == 0 && (out_of_epochs || out_of_patience));
    }
}
