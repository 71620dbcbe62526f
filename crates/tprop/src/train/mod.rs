//! A run from its first update to its end: the loop around a method, step → record → evaluate → checkpoint → stop rule.
//!
//! A [`Trainer`] makes a run out of a model, [`Data`] and a [`TrainConfig`]. Whoever looks on is a [`Watch`] (any closure over events will
//! do): it gets events and snapshots, and asks for more of them or for the end.

mod evaluate;
mod meter;
mod state;
mod watch;

use std::time::Instant;

use crate::comm::{Comm, ask_if_alone};
use crate::corpus::Split;
use crate::eval::Reader;
use crate::fault;
use crate::kernel;
use crate::method::{Advance, Coupling, Learner, Method, MethodConfig, MethodError, Outline, Update};
use crate::model::Model;
use crate::optim::{OptimConfig, Optimiser};
use crate::params::Params;
use crate::real::Real;
use crate::record::{End, Event, Step};
use crate::tokens::Text;

pub use state::{forget_best, is_best};
pub use watch::{Request, SaveReason, Watch};

/// Nats per token above those of guessing from which on a run counts as diverged.
const FAR: f64 = 10.0;

/// The three splits.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// Trained on.
    pub train: Text<'a>,
    /// Evaluated after each epoch.
    pub valid: Text<'a>,
    /// Evaluated once at the end, with the best weights.
    pub test: Text<'a>,
}

impl<'a> Data<'a> {
    /// Three texts; the last two may be empty.
    pub fn new(train: impl Into<Text<'a>>, valid: impl Into<Text<'a>>, test: impl Into<Text<'a>>) -> Self {
        Self { train: train.into(), valid: valid.into(), test: test.into() }
    }
}

/// How to train, whatever the method.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainConfig {
    /// The method with its settings.
    pub method: MethodConfig,
    /// How θ is updated.
    pub optim: OptimConfig,
    /// Divide the rate by this when validation does not improve; 0 is off.
    pub anneal: f64,
    /// At most this many passes over the training split.
    pub epochs: usize,
    /// Stop after this many epochs without a better validation perplexity; 0 is off.
    pub patience: usize,
    /// Seed of the initial weights.
    pub seed: u64,
    /// Streams of evaluations.
    pub eval_streams: usize,
    /// Every so many updates the gradient is compared with the exact one of its window ([`Event::Meter`]); 0 is off. Not in batch mode,
    /// nor for least squares.
    pub meter: usize,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            method: MethodConfig::default(),
            optim: OptimConfig::default(),
            anneal: 0.0,
            epochs: 10,
            patience: 5,
            seed: 1,
            eval_streams: 32,
            meter: 0,
        }
    }
}

/// Why training cannot begin or continue.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A split has tokens that the model does not know.
    #[error("the {0} split has tokens outside the vocabulary")]
    OutsideVocabulary(Split),
    /// A split is too short to be read in so many streams (`eval_streams`).
    #[error("the {split} split has {tokens} tokens; {streams} streams need at least {wanted}")]
    TooShort {
        /// Which one.
        split: Split,
        /// Its tokens.
        tokens: usize,
        /// Streams of evaluations.
        streams: usize,
        /// Tokens that would do.
        wanted: usize,
    },
    /// The method cannot be planned.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// Loss, gradient or weights are not finite, or the loss is far above that of guessing.
    #[error(
        "diverged at step {step} (epoch {epoch}): {what}; rate {rate}{}",
        norm.map_or(String::new(), |norm| format!(", gradient norm {norm}"))
    )]
    Diverged {
        /// Update; it may not have been made.
        step: u64,
        /// Epoch.
        epoch: u64,
        /// What was seen.
        what: String,
        /// η
        rate: f64,
        /// Norm of the gradient, where an update was the cause.
        norm: Option<f64>,
        /// Whether states move too, so that their steps may be the cause.
        free_states: bool,
    },
    /// A checkpoint does not fit these settings.
    #[error("the checkpoint does not fit: {0}")]
    Checkpoint(String),
    /// The watcher failed (disk, closed pipe).
    #[error(transparent)]
    Watch(Box<dyn std::error::Error + Send + Sync>),
}

/// A training run.
///
/// It calls back for every event, and may be stopped, saved and resumed between any two updates: the resumed run
/// makes the same weights as one that was never stopped.
///
/// ```
/// use tprop::prelude::*;
/// let text: Vec<u32> = (0..400).map(|i| i % 5).collect();
/// let data = Data::new(&text[..300], &text[300..350], &text[350..]);
/// let model = Model::<f32>::new(ModelConfig { hidden: 8, embed: 8, ..ModelConfig::new(5) });
/// let method = MethodConfig::Bptt(BpttConfig { window: 10, streams: 2, ..BpttConfig::default() });
/// let config = TrainConfig { method, epochs: 2, eval_streams: 2, ..TrainConfig::default() };
///
/// let mut first = Trainer::new(&model, data, config.clone(), &Solo)?;
/// first.advance(&mut || false); // one update
/// let snapshot = first.snapshot();
///
/// let mut second = Trainer::new(&model, data, config, &Solo)?;
/// second.restore(&snapshot, None)?;
/// let (end, resumed) = (first.run(&mut |_: &Event| {})?, second.run(&mut |_: &Event| {})?);
/// assert_eq!(end.best_valid_ppl, resumed.best_valid_ppl);
/// assert_eq!(first.params().all(), second.params().all());
/// # Ok::<(), tprop::train::TrainError>(())
/// ```
#[derive(Debug)]
pub struct Trainer<'a, T> {
    learner: Learner<'a, T>,
    method: Box<dyn Method<T>>,
    config: TrainConfig,
    data: Data<'a>,
    reader: Reader<T>,
    best: Option<Params<T>>,
    progress: Progress,
    started: Option<Instant>,
    /// It continues from a checkpoint.
    restored: bool,
}

/// Counters and sums; all of it is in the checkpoint.
#[derive(Clone, Debug, PartialEq)]
struct Progress {
    epoch: u64,
    begun: u64,
    step: u64,
    tokens: u64,
    seconds: f64,
    best_ppl: f64,
    best_epoch: u64,
    bad_epochs: u64,
    finished: u64,
    /// This epoch.
    nats: f64,
    epoch_tokens: u64,
    by_position: Vec<f64>,
    coupling: Coupling,
    /// Since the last step event.
    recent_nats: f64,
    recent_tokens: u64,
    recent_since: f64,
}

impl<'a, T: Real> Trainer<'a, T> {
    /// Checks the data against the settings and prepares everything.
    pub fn new(
        model: &'a Model<T>,
        data: Data<'a>,
        config: TrainConfig,
        comm: &'a dyn Comm,
    ) -> Result<Self, TrainError> {
        let splits = [(Split::Train, data.train), (Split::Valid, data.valid), (Split::Test, data.test)];
        for (split, text) in splits {
            if text.iter().any(|t| t as usize >= model.config().vocab) {
                return Err(TrainError::OutsideVocabulary(split));
            }
        }
        let (streams, wanted) = (config.eval_streams, config.eval_streams + 1);
        for (split, text) in [(Split::Valid, data.valid), (Split::Test, data.test)] {
            let tokens = text.len();
            if (1..wanted).contains(&tokens) {
                return Err(TrainError::TooShort { split, tokens, streams, wanted });
            }
        }
        let learner = Learner {
            model,
            params: model.initial(config.seed),
            optimiser: Optimiser::new(config.optim, model.shapes()),
            comm,
            tokens: data.train,
        };
        let method = config.method.build(&learner)?;
        let progress = Progress {
            epoch: 1,
            begun: 0,
            step: 0,
            tokens: 0,
            seconds: 0.0,
            best_ppl: f64::INFINITY,
            best_epoch: 0,
            bad_epochs: 0,
            finished: 0,
            nats: 0.0,
            epoch_tokens: 0,
            by_position: vec![0.0; config.method.block()],
            coupling: Coupling::default(),
            recent_nats: 0.0,
            recent_tokens: 0,
            recent_since: 0.0,
        };
        let reader = Reader::new(32);
        Ok(Self { learner, method, config, data, reader, best: None, progress, started: None, restored: false })
    }

    /// Shape.
    pub fn model(&self) -> &'a Model<T> {
        self.learner.model
    }

    /// θ
    pub fn params(&self) -> &Params<T> {
        &self.learner.params
    }

    /// θ, to replace (by another program's initial weights, say) before the first update.
    pub fn params_mut(&mut self) -> &mut Params<T> {
        &mut self.learner.params
    }

    /// The weights with the best validation perplexity so far, or the present ones before the first evaluation.
    pub fn best_params(&self) -> &Params<T> {
        self.best.as_ref().unwrap_or(&self.learner.params)
    }

    /// Updates of one epoch.
    pub fn updates_per_epoch(&self) -> usize {
        self.method.updates_per_epoch()
    }

    /// Tokens of one epoch.
    pub fn tokens_per_epoch(&self) -> u64 {
        self.method.tokens_per_epoch()
    }

    /// Updates so far.
    pub fn step(&self) -> u64 {
        self.progress.step
    }

    /// Whether the run came to its own end.
    pub fn finished(&self) -> bool {
        self.progress.finished != 0
    }

    /// η
    pub fn rate(&self) -> f64 {
        self.learner.optimiser.rate
    }

    /// Changes η from the next update on.
    pub fn set_rate(&mut self, rate: f64) {
        self.learner.optimiser.rate = rate;
    }

    /// The epoch whose weights are the best so far; none before the first evaluation.
    pub fn best_epoch(&self) -> Option<u64> {
        Some(self.progress.best_epoch).filter(|&epoch| epoch > 0)
    }

    /// Whether the present weights are those that were the best, just evaluated.
    pub fn at_best(&self) -> bool {
        let p = &self.progress;
        state::just_evaluated(p.best_epoch, p.epoch, p.begun, p.epoch_tokens)
    }

    /// Where the time of the steps went.
    pub fn clock(&mut self) -> &mut crate::clock::Clock {
        self.method.clock()
    }

    /// Makes one update (or pauses, or ends an epoch without evaluation): for benchmarks and tests.
    pub fn advance(&mut self, pause: &mut dyn FnMut() -> bool) -> Advance {
        if self.progress.begun == 0 {
            self.begin_epoch();
        }
        let advance = self.method.advance(&mut self.learner, pause);
        match &advance {
            Advance::Update(update) => self.note(update),
            Advance::EpochEnd => {
                self.progress.begun = 0;
                self.progress.epoch += 1;
            }
            _ => {}
        }
        advance
    }

    fn begin_epoch(&mut self) {
        self.progress.begun = 1;
        self.method.begin_epoch(&self.learner, self.progress.epoch as usize);
    }

    /// Trains to the end, or until the watcher asks to stop.
    ///
    /// # Errors
    /// If training diverges, or the watcher fails.
    pub fn run(&mut self, watch: &mut dyn Watch) -> Result<End, TrainError> {
        self.started = Some(Instant::now());
        let before = self.progress.seconds;
        if self.progress.step == 0 && self.progress.begun == 0 && !self.restored {
            self.save(watch, SaveReason::First)?;
        }
        let comm = self.learner.comm;
        let every = (self.method.updates_per_epoch() as u64 / 50).max(1);
        while !self.finished() {
            // An evaluation that was given up is made before anything else.
            let unevaluated = self.unevaluated();
            let metered = if unevaluated { None } else { self.before_meter() };
            let advance = if unevaluated {
                Advance::EpochEnd
            } else {
                // Ranks pause together or not at all, and between two chunks they could not agree. An update that is measured is not left.
                let measured = metered.is_some();
                self.advance(&mut || !measured && ask_if_alone(comm, || watch.request() != Request::Go))
            };
            self.progress.seconds = before + self.started.map_or(0.0, |s| s.elapsed().as_secs_f64());
            match advance {
                Advance::Update(update) => {
                    self.check(&update)?;
                    watch.updated(self.progress.step).map_err(TrainError::Watch)?;
                    if let Some(before) = metered {
                        self.report_meter(watch, &before, &update)?;
                    }
                    if self.progress.step.is_multiple_of(every) {
                        self.report_step(watch, &update)?;
                    }
                }
                Advance::EpochEnd => self.end_epoch(watch)?,
                Advance::Paused => {}
                Advance::Diverged { norm, nats_per_token } => {
                    let what = format!("the gradient is not finite ({nats_per_token} nats per token)");
                    return Err(self.diverged(self.progress.step + 1, what, Some(norm)));
                }
            }
            match self.agree(watch.request()) {
                Request::Go => {}
                Request::Save => self.save(watch, SaveReason::Requested)?,
                Request::Stop if self.finished() => {}
                Request::Stop => return self.stop(watch),
            }
        }
        let reason = if self.progress.epoch > self.config.epochs as u64 { "epochs" } else { "patience" };
        let Some(test_ppl) = self.read_test(watch) else { return self.stop(watch) };
        let end = self.report_end(watch, reason, test_ppl)?;
        self.save(watch, SaveReason::End)?;
        Ok(end)
    }

    /// The epoch's windows are used up, but the validation split was not read to its end.
    fn unevaluated(&self) -> bool {
        self.progress.begun == 0 && self.progress.epoch_tokens > 0
    }

    fn stop(&mut self, watch: &mut dyn Watch) -> Result<End, TrainError> {
        self.save(watch, SaveReason::Requested)?;
        self.report_end(watch, "stopped", None)
    }

    /// What any rank asks for, all do.
    fn agree(&self, request: Request) -> Request {
        let request = match request {
            Request::Go => 0.0,
            Request::Save => 1.0,
            Request::Stop => 2.0,
        };
        match crate::comm::largest(self.learner.comm, request) {
            0.0 => Request::Go,
            1.0 => Request::Save,
            _ => Request::Stop,
        }
    }

    fn note(&mut self, update: &Update) {
        let p = &mut self.progress;
        p.step += 1;
        p.tokens += update.tokens;
        p.nats += update.nats;
        p.epoch_tokens += update.tokens;
        p.by_position.iter_mut().zip(self.method.nats_by_position()).for_each(|(sum, n)| *sum += n);
        p.recent_nats += update.nats;
        p.recent_tokens += update.tokens;
        if let Some(coupling) = &update.coupling {
            p.coupling.add(coupling);
        }
    }

    /// A loss far above that of guessing means that the rate has blown the weights up, even if all is still finite.
    fn check(&mut self, update: &Update) -> Result<(), TrainError> {
        let nats = fault::poison("nan.loss").unwrap_or(update.nats / update.tokens as f64);
        let guess = (self.learner.model.config().vocab as f64).ln();
        if !nats.is_finite() || nats >= guess + FAR {
            let what = format!("{nats:.1} nats per token, where guessing costs {guess:.1}");
            return Err(self.diverged(self.progress.step, what, Some(update.norm)));
        }
        if let Some(bad) = fault::poison("nan.weights") {
            self.learner.params.all_mut()[0] = T::of(bad);
        }
        if !kernel::all_finite(self.learner.params.all()) {
            return Err(self.diverged(self.progress.step, "weights are not finite".into(), Some(update.norm)));
        }
        Ok(())
    }

    fn diverged(&self, step: u64, what: String, norm: Option<f64>) -> TrainError {
        let (rate, free_states) = (self.learner.optimiser.rate, self.method.lambda().is_some());
        TrainError::Diverged { step, epoch: self.epoch(), what, rate, norm, free_states }
    }

    /// The epoch that was begun last.
    fn epoch(&self) -> u64 {
        self.progress.epoch - u64::from(self.progress.begun == 0)
    }

    fn report_step(&mut self, watch: &mut dyn Watch, update: &Update) -> Result<(), TrainError> {
        let p = &mut self.progress;
        let event = Event::Step(Step {
            epoch: p.epoch,
            step: p.step,
            tokens: p.tokens,
            seconds: p.seconds,
            nats: p.recent_nats / p.recent_tokens as f64,
            norm: update.norm,
            rate: self.learner.optimiser.rate,
            tokens_per_s: p.recent_tokens as f64 / (p.seconds - p.recent_since).max(1e-9),
        });
        (p.recent_nats, p.recent_tokens, p.recent_since) = (0.0, 0, p.seconds);
        watch.event(&event).map_err(TrainError::Watch)
    }

    fn report_end(&mut self, watch: &mut dyn Watch, reason: &str, test_ppl: Option<f64>) -> Result<End, TrainError> {
        let end = End { test_ppl, ..self.end(reason) };
        watch.event(&Event::End(end.clone())).map_err(TrainError::Watch)?;
        Ok(end)
    }

    /// How far the run has come, as an end for this reason.
    pub fn end(&self, reason: &str) -> End {
        let p = &self.progress;
        End {
            reason: reason.into(),
            epoch: self.epoch(),
            step: p.step,
            tokens: p.tokens,
            seconds: p.seconds,
            best_epoch: p.best_epoch,
            best_valid_ppl: p.best_ppl,
            test_ppl: None,
        }
    }
}
