//! The loop around a method: step → record → evaluate → checkpoint → stop rule.

use std::time::Instant;

use crate::checkpoint::{Health, Snapshot, SnapshotReader, SnapshotWriter, walk_params};
use crate::comm::Comm;
use crate::comm::rows::{Collect, Deal};
use crate::eval::{Reader, Reading};
use crate::fault;
use crate::kernel;
use crate::method::{Advance, Coupling, Learner, Method, MethodConfig, Update};
use crate::model::Model;
use crate::optim::{OptimConfig, Optimiser};
use crate::params::{Params, Walk};
use crate::real::Real;
use crate::record::{CouplingMeans, End, Eval, Event, RateChange, Step};
use crate::tokens::Text;

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
}

/// Why training could not go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A split is too short for the settings.
    #[error("{0}")]
    Data(String),
    /// Loss, gradient or weights are not finite, or the loss is far above that of guessing.
    #[error(
        "diverged at step {step} (epoch {epoch}): {what}; rate {rate}, gradient norm {norm}. \
         Try a smaller optim.lr (a tenth of it) or a smaller optim.clip"
    )]
    Diverged {
        /// Update.
        step: u64,
        /// Epoch.
        epoch: u64,
        /// What was seen.
        what: String,
        /// η
        rate: f64,
        /// Norm of the gradient.
        norm: f64,
    },
    /// A checkpoint does not fit these settings.
    #[error("the checkpoint does not fit: {0}")]
    Checkpoint(String),
    /// The watcher failed (disk, closed pipe).
    #[error(transparent)]
    Watch(Box<dyn std::error::Error + Send + Sync>),
}

/// What a watcher would like to happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Go on.
    Go,
    /// Hand over a snapshot, then go on.
    Save,
    /// Hand over a snapshot, then stop.
    Stop,
}

/// Why a snapshot is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Before the first update.
    First,
    /// It was wished for.
    Wished,
    /// After an evaluation.
    Evaluated {
        /// It was the best so far.
        best: bool,
    },
    /// The run is over.
    End,
}

/// Looks on: writes records, shows progress, keeps checkpoints, says when to stop.
pub trait Watch {
    /// Something happened.
    fn event(&mut self, event: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// An update was made.
    fn updated(&mut self, step: u64) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let _ = step;
        Ok(())
    }

    /// Asked after every update, and between the pieces of a long one and of an evaluation.
    fn wish(&mut self) -> Wish {
        Wish::Go
    }

    /// Takes a copy of the whole state.
    fn save(&mut self, snapshot: Snapshot, why: Why) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let _ = (snapshot, why);
        Ok(())
    }
}

/// Lets any closure look on.
impl<F: FnMut(&Event)> Watch for F {
    fn event(&mut self, event: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self(event);
        Ok(())
    }
}

/// A training run.
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
    /// It goes on from a checkpoint.
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
        for (name, split) in [("training", data.train), ("validation", data.valid), ("test", data.test)] {
            if split.iter().any(|t| t as usize >= model.config().vocab) {
                return Err(TrainError::Data(format!("the {name} split has tokens outside the vocabulary")));
            }
        }
        for (name, split) in [("validation", data.valid), ("test", data.test)] {
            let need = config.eval_streams + 1;
            if !split.is_empty() && split.len() < need {
                let n = split.len();
                return Err(TrainError::Data(format!(
                    "the {name} split has {n} tokens; eval.streams={} needs at least {need}",
                    config.eval_streams
                )));
            }
        }
        let learner = Learner {
            model,
            params: model.initial(config.seed),
            optimiser: Optimiser::new(config.optim, model.plan()),
            comm,
            tokens: data.train,
        };
        let method = config.method.build(&learner).map_err(TrainError::Data)?;
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
            by_position: vec![0.0; config.method.positions()],
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
        p.best_epoch > 0 && p.begun == 0 && p.epoch == p.best_epoch + 1 && p.epoch_tokens == 0
    }

    /// Forgets which evaluation was the best, because its weights are lost: the next one will be.
    pub fn forget_best(&mut self) {
        (self.progress.best_ppl, self.progress.best_epoch) = (f64::INFINITY, 0);
        self.best = None;
    }

    /// Where the time of the steps went.
    pub fn clock(&mut self) -> &mut crate::clock::Clock {
        self.method.clock()
    }

    /// Makes one update (or pauses, or ends an epoch without evaluation): for benchmarks and tests.
    pub fn advance(&mut self, pause: &mut dyn FnMut() -> bool) -> Advance {
        if self.progress.begun == 0 {
            self.progress.begun = 1;
            self.method.begin_epoch(&self.learner, self.progress.epoch as usize);
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

    /// Trains to the end, or until the watcher wishes to stop.
    ///
    /// # Errors
    /// If training diverges, or the watcher fails.
    pub fn run(&mut self, watch: &mut dyn Watch) -> Result<End, TrainError> {
        self.started = Some(Instant::now());
        let before = self.progress.seconds;
        if self.progress.step == 0 && self.progress.begun == 0 && !self.restored {
            self.save(watch, Why::First)?;
        }
        // Ranks pause together or not at all, and between two pieces they could not agree.
        let alone = self.learner.comm.size() == 1;
        let every = (self.method.updates_per_epoch() as u64 / 50).max(1);
        while !self.finished() {
            // An evaluation that was given up is made before anything else.
            let advance = if self.unevaluated() {
                Advance::EpochEnd
            } else {
                self.advance(&mut || alone && watch.wish() != Wish::Go)
            };
            self.progress.seconds = before + self.started.map_or(0.0, |s| s.elapsed().as_secs_f64());
            match advance {
                Advance::Update(update) => {
                    self.check(&update)?;
                    watch.updated(self.progress.step).map_err(TrainError::Watch)?;
                    if self.progress.step.is_multiple_of(every) {
                        self.tell_step(watch, &update)?;
                    }
                }
                Advance::EpochEnd => self.end_epoch(watch)?,
                Advance::Paused => {}
                Advance::Diverged { norm, nats_per_token } => {
                    let what = format!("the gradient is not finite ({nats_per_token} nats per token)");
                    // This update was not made.
                    self.progress.step += 1;
                    return Err(self.diverged(what, norm));
                }
            }
            match self.agree(watch.wish()) {
                Wish::Go => {}
                Wish::Save => self.save(watch, Why::Wished)?,
                Wish::Stop if self.finished() => {}
                Wish::Stop => return self.stop(watch),
            }
        }
        let reason = if self.progress.epoch > self.config.epochs as u64 { "epochs" } else { "patience" };
        let Some(test_ppl) = self.read_test(watch) else { return self.stop(watch) };
        let end = self.tell_end(watch, reason, test_ppl)?;
        self.save(watch, Why::End)?;
        Ok(end)
    }

    /// The epoch's windows are used up, but the validation split was not read to its end.
    fn unevaluated(&self) -> bool {
        self.progress.begun == 0 && self.progress.epoch_tokens > 0
    }

    fn stop(&mut self, watch: &mut dyn Watch) -> Result<End, TrainError> {
        self.save(watch, Why::Wished)?;
        self.tell_end(watch, "stopped", None)
    }

    /// What any rank wishes, all do.
    fn agree(&self, wish: Wish) -> Wish {
        let wish = match wish {
            Wish::Go => 0.0,
            Wish::Save => 1.0,
            Wish::Stop => 2.0,
        };
        match crate::comm::largest(self.learner.comm, wish) {
            0.0 => Wish::Go,
            1.0 => Wish::Save,
            _ => Wish::Stop,
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
            return Err(
                self.diverged(format!("{nats:.1} nats per token, where guessing costs {guess:.1}"), update.norm)
            );
        }
        if let Some(bad) = fault::poison("nan.weights") {
            self.learner.params.all_mut()[0] = T::of(bad);
        }
        if !kernel::all_finite(self.learner.params.all()) {
            return Err(self.diverged("weights are not finite".into(), update.norm));
        }
        Ok(())
    }

    fn diverged(&self, what: String, norm: f64) -> TrainError {
        let p = &self.progress;
        TrainError::Diverged { step: p.step, epoch: p.epoch, what, rate: self.learner.optimiser.rate, norm }
    }

    fn tell_step(&mut self, watch: &mut dyn Watch, update: &Update) -> Result<(), TrainError> {
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

    /// Reads a split the way that evaluations do; nothing if a single process is asked to stop meanwhile.
    fn read_split(&mut self, text: Text<'_>, best: bool, watch: &mut dyn Watch) -> Option<Reading> {
        let (alone, streams) = (self.learner.comm.size() == 1, self.config.eval_streams);
        let params = self.best.as_ref().filter(|_| best).unwrap_or(&self.learner.params);
        let streams = streams.min(text.len().saturating_sub(1)).max(1);
        let mut stop = || alone && watch.wish() == Wish::Stop;
        self.reader.read_unless(self.learner.model, params, text, streams, &mut stop)
    }

    fn read_test(&mut self, watch: &mut dyn Watch) -> Option<Option<f64>> {
        if self.data.test.is_empty() {
            return Some(None);
        }
        self.read_split(self.data.test, true, watch).map(|reading| Some(reading.perplexity()))
    }

    fn end_epoch(&mut self, watch: &mut dyn Watch) -> Result<(), TrainError> {
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
            return Err(self.diverged(what, f64::NAN));
        }
        let lambda = self.method.lambda();
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
        let c = p.coupling;
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
                penalty: c.penalty / c.windows,
                residual_mean: c.residual / c.boundaries.max(1.0),
                residual_max: c.residual_max,
                residual_relative: if c.state > 0.0 { c.residual / c.state } else { 0.0 },
                dual_norm: c.dual / c.boundaries.max(1.0),
                state_move: c.moved / c.boundaries.max(1.0),
                lambda,
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
        self.save(watch, Why::Evaluated { best })
    }

    /// The stop rule.
    fn finish_if_due(&mut self) {
        let p = &mut self.progress;
        let out_of_patience = self.config.patience > 0 && p.bad_epochs >= self.config.patience as u64;
        let out_of_epochs = p.epoch > self.config.epochs as u64;
        p.finished = u64::from(p.begun == 0 && p.epoch_tokens == 0 && (out_of_epochs || out_of_patience));
    }

    fn tell_end(&mut self, watch: &mut dyn Watch, reason: &str, test_ppl: Option<f64>) -> Result<End, TrainError> {
        let p = &self.progress;
        let end = End {
            reason: reason.into(),
            epoch: p.epoch - u64::from(p.begun == 0),
            step: p.step,
            tokens: p.tokens,
            seconds: p.seconds,
            best_epoch: p.best_epoch,
            best_valid_ppl: p.best_ppl,
            test_ppl,
        };
        watch.event(&Event::End(end.clone())).map_err(TrainError::Watch)?;
        Ok(end)
    }

    fn save(&mut self, watch: &mut dyn Watch, why: Why) -> Result<(), TrainError> {
        let mut health = Health::default();
        self.walk(&mut health);
        // States may be sick on one rank alone, but all ranks save, or none.
        let sick = if health.sick.is_some() { 1.0 } else { 0.0 };
        if crate::comm::largest(self.learner.comm, sick) > 0.0 {
            let name = health.sick.unwrap_or_else(|| "a tensor of another rank".into());
            return Err(self.diverged(format!("{name} is not finite"), f64::NAN));
        }
        watch.save(self.snapshot(), why).map_err(TrainError::Watch)
    }

    /// A copy of the whole state, on rank 0; all ranks ask for it together.
    pub fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let mut writer = SnapshotWriter(&mut snapshot);
        self.walk(&mut Collect { comm: self.learner.comm, walk: &mut writer });
        snapshot
    }

    /// Bytes that a file of [`Trainer::snapshot`] will take, within a few kilobytes; asks no other rank.
    pub fn snapshot_bytes(&mut self) -> u64 {
        let mut weigh = Weigh(0);
        self.walk(&mut weigh);
        weigh.0 + 4096
    }

    /// Puts a snapshot of a run back. `best` is the snapshot with the best validation perplexity; not needed if `snapshot`
    /// itself is that one.
    ///
    /// # Errors
    /// If the settings are others than the run's, so that something does not fit or is missing.
    pub fn restore(&mut self, snapshot: &Snapshot, best: Option<&Snapshot>) -> Result<(), TrainError> {
        let mut reader = SnapshotReader::new(snapshot);
        self.walk(&mut Deal { comm: self.learner.comm, walk: &mut reader });
        reader.finish().map_err(TrainError::Checkpoint)?;
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

    fn walk(&mut self, walk: &mut dyn Walk<T>) {
        walk_params("", &mut self.learner.params, walk);
        for (i, slot) in self.learner.optimiser.slots_mut().iter_mut().enumerate() {
            walk_params(&format!("optim.{i}."), slot, walk);
        }
        walk.count("optim.steps", &mut self.learner.optimiser.steps);
        walk.real("optim.rate", &mut self.learner.optimiser.rate);
        self.method.walk(walk);
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
            walk.count(&format!("train.{name}"), value);
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
            ("penalty", &mut c.penalty),
            ("boundaries", &mut c.boundaries),
            ("residual", &mut c.residual),
            ("residual_max", &mut c.residual_max),
            ("state", &mut c.state),
            ("dual", &mut c.dual),
            ("moved", &mut c.moved),
        ] {
            walk.real(&format!("train.{name}"), value);
        }
        for (i, nats) in p.by_position.iter_mut().enumerate() {
            walk.real(&format!("train.nats.{i}"), nats);
        }
    }
}

/// Counts the bytes of what it is shown, rows of other ranks included.
struct Weigh(u64);

impl<T: Real> Walk<T> for Weigh {
    fn count(&mut self, name: &str, _: &mut u64) {
        self.0 += name.len() as u64 + 40;
    }
    fn real(&mut self, name: &str, _: &mut f64) {
        self.0 += name.len() as u64 + 60;
    }
    fn tensor(&mut self, name: &str, rows: usize, cols: usize, _: &mut [T]) {
        self.0 += name.len() as u64 + 80 + (rows * cols * T::BYTES) as u64;
    }
}
