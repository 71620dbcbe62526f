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
            seconds: self.progress.seconds,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Solo;
    use crate::method::{BpttConfig, BtpropConfig, Init, MethodConfig, Pulls};
    use crate::model::{Model, ModelConfig};
    use crate::rng::Draws;
    use crate::train::{Data, Request, TrainConfig};

    fn text() -> Vec<u32> {
        let draws = Draws::new(11, "tokens");
        (0..500).map(|i| draws.below(i, 7) as u32).collect()
    }

    /// Looks on, and asks to stop after some update; until then, if it is restless, to save as often as it is asked.
    #[derive(Default)]
    struct Looker {
        events: Vec<Event>,
        step: u64,
        stop: u64,
        restless: bool,
    }

    impl Watch for Looker {
        fn event(&mut self, event: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            self.events.push(event.clone());
            Ok(())
        }
        fn updated(&mut self, step: u64) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            self.step = step;
            Ok(())
        }
        fn request(&mut self) -> Request {
            match self.stop {
                stop if stop > 0 && self.step >= stop => Request::Stop,
                _ if self.restless => Request::Save,
                _ => Request::Go,
            }
        }
    }

    fn methods() -> Vec<(&'static str, MethodConfig)> {
        let batch = Batch::Mini { accumulate: 3 };
        let shape = |config| BtpropConfig { block: 3, blocks: 4, streams: 2, ..config };
        let bptt = BpttConfig { window: 4, streams: 3, batch: Batch::default() };
        let stored = BtpropConfig { init: Init::Stored { sweeps: 1 }, pulls: Pulls::Stored, ..BtpropConfig::reach(1) };
        vec![
            ("exact", bptt.clone().into()),
            ("truncated", BpttConfig { batch, ..bptt }.into()),
            ("paper", shape(BtpropConfig::default()).into()),
            ("exact", shape(BtpropConfig::reach(3)).into()),
            ("stored", shape(stored).into()),
            ("scan", shape(BtpropConfig::scan(1)).into()),
        ]
    }

    /// Weights, evaluations' perplexities and what was measured; interrupted after update `stop`, if that is not 0.
    fn train(method: &MethodConfig, meter: usize, stop: u64) -> (Vec<f32>, Vec<f64>, Vec<Meter>) {
        let model = Model::<f32>::new(ModelConfig { hidden: 5, embed: 4, tape_mb: 0, ..ModelConfig::new(7) });
        let text = text();
        let data = Data::new(&text, &text[..60], &[]);
        let config =
            TrainConfig { method: method.clone(), epochs: 2, eval_streams: 2, meter, ..TrainConfig::default() };
        let mut trainer = Trainer::new(&model, data, config.clone(), &Solo).unwrap();
        let mut looker = Looker { stop, restless: stop > 0, ..Looker::default() };
        trainer.run(&mut looker).unwrap();
        if stop > 0 {
            let snapshot = trainer.snapshot();
            trainer = Trainer::new(&model, data, config, &Solo).unwrap();
            trainer.restore(&snapshot, None).unwrap();
            looker = Looker { stop: 0, ..looker };
            trainer.run(&mut looker).unwrap();
        }
        let (mut valid, mut meters) = (Vec::new(), Vec::new());
        for event in looker.events {
            match event {
                Event::Eval(eval) => valid.push(eval.valid_ppl),
                Event::Meter(meter) => meters.push(Meter { seconds: 0.0, ..meter }),
                _ => {}
            }
        }
        (trainer.params().all().to_vec(), valid, meters)
    }

    #[test]
    fn it_changes_no_bit() {
        for (name, method) in methods() {
            let (plain, metered) = (train(&method, 0, 0), train(&method, 3, 0));
            assert_eq!((&plain.0, &plain.1), (&metered.0, &metered.1), "{name}: {method:?}");
            assert!(plain.2.is_empty());
            let steps: Vec<u64> = metered.2.iter().map(|m| m.step).collect();
            assert!(steps.len() > 2 && steps.iter().enumerate().all(|(i, s)| *s == 3 * (i as u64 + 1)), "{steps:?}");
            assert_eq!(metered.2.last().map(|m| m.epoch), Some(2));
            for m in &metered.2 {
                let (error, inner) = (m.error, m.inner_error);
                match name {
                    "exact" => assert!(error < 1e-4 && inner < 1e-4 && m.cosine > 0.9999, "{m:?}"),
                    // The output layer sees exact states, so that the rest has all of the error.
                    "truncated" => assert!(inner > 1e-3 && inner < 1.0 && inner > error, "{m:?}"),
                    _ => assert!(inner > 1e-4 && m.inner_cosine < 1.0, "{name}: {m:?}"),
                }
            }
        }
    }

    #[test]
    fn interruptions_leave_the_same_lines() {
        for (name, method) in methods() {
            let (whole, resumed) = (train(&method, 3, 0), train(&method, 3, 4));
            assert_eq!(whole, resumed, "{name}");
        }
    }

    /// The same stretch, state and weights as the probe sees them.
    #[test]
    fn it_measures_the_first_update() {
        let model = Model::<f32>::new(ModelConfig { hidden: 5, embed: 4, ..ModelConfig::new(7) });
        let text = text();
        for (name, method) in methods().into_iter().filter(|(name, _)| *name != "exact") {
            let config = TrainConfig { method: method.clone(), epochs: 1, meter: 1, ..TrainConfig::default() };
            let mut trainer = Trainer::new(&model, Data::new(&text, &[], &[]), config, &Solo).unwrap();
            let params = trainer.params().clone();
            let mut looker = Looker { stop: 1, ..Looker::default() };
            trainer.run(&mut looker).unwrap();
            let Some(Event::Meter(found)) = looker.events.iter().find(|e| matches!(e, Event::Meter(_))) else {
                panic!("{name}: nothing was measured")
            };
            let probe = Probe { model: &model, params: &params };
            let cut = crate::window::Streams::new(&text, method.streams());
            let state = probe.initial_state(method.streams());
            let excerpt = Excerpt::new(&cut, 0, 12);
            let ours = probe.gradient(&method, &excerpt, &state).unwrap().gradient;
            let exact = probe.exact(&excerpt, &state).unwrap();
            let error = relative_error(&ours, &exact);
            assert!((found.error - error).abs() < 1e-5 * error, "{name}: {found:?}, but {error}");
        }
    }
}
