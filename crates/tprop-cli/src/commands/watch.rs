//! Looks on while a run trains: appends to the record, shows progress, keeps checkpoints, obeys signals.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tprop::checkpoint::{Job, Newest, Saver, Snapshot, Store};
use tprop::kernel;
use tprop::record::{Event, RateChange, Recorder, Saved};
use tprop::train::{Request, SaveReason, Watch};

use crate::console;
use crate::failure::{Code, Failure, Outcome};
use crate::progress::Progress;
use crate::run::{RECORD_HASH, RECORD_LENGTH, Run, record_length};
use crate::settings::{Checkpointing, Settings};
use crate::signals::Signals;
use crate::tensorboard::Board;

/// Looks on while a run trains.
#[derive(Debug)]
pub struct Watcher {
    run: Run,
    recorder: Recorder,
    record: PathBuf,
    /// The same for TensorBoard.
    board: Following,
    store: Store,
    saver: Saver,
    plan: Checkpointing,
    /// Goes into every checkpoint, so that a resumed run can tell whether it is still the same one.
    settings: String,
    corpus: String,
    progress: Progress,
    json: bool,
    signals: Signals,
    saved: Instant,
    /// Updates so far.
    step: u64,
    /// The update whose checkpoint, due by the number of updates, has been announced.
    announced: u64,
    rolls_back: bool,
    /// Why it wished to stop.
    pub stopped: Option<Code>,
    /// Nobody reads the events of `--json` any more.
    unread: bool,
}

/// Where a checkpoint keeps the rate.
const RATE: &str = "optim.rate";

/// The event file beside the record. It is made with the first numbers, when the run has certainly begun.
#[derive(Debug)]
enum Following {
    NotYet,
    With(Board),
    /// It could not be written. A run is not worth losing for a file that can be made again, so that was only reported.
    No,
}

impl Following {
    /// Follows an event that the record has already.
    fn tell(&mut self, event: &Event, record: &Path) {
        let done = match self {
            Following::NotYet if matches!(event, Event::Step(_) | Event::Eval(_) | Event::End(_)) => {
                Board::rebuild(record.parent().unwrap_or(Path::new("."))).map(|board| *self = Following::With(board))
            }
            Following::With(board) => board.tell(event),
            Following::NotYet | Following::No => Ok(()),
        };
        if let Err(error) = done {
            console::note(format!(
                "tprop: warning: no event file for TensorBoard ({error}); record.jsonl has the same numbers"
            ));
            *self = Following::No;
        }
    }
}

type Watched = Result<(), Box<dyn Error + Send + Sync>>;

/// What a [`Watcher`] is made of.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The run.
    pub run: &'a Run,
    /// Its record, open.
    pub recorder: Recorder,
    /// Its checkpoints.
    pub store: Store,
    /// Its settings.
    pub settings: &'a Settings,
    /// Fingerprint of its corpus.
    pub corpus: &'a str,
    /// Shows how it goes.
    pub progress: Progress,
    /// Events also go to standard output.
    pub json: bool,
    /// Obeyed from now on.
    pub signals: Signals,
    /// Updates so far.
    pub step: u64,
}

impl Watcher {
    /// For a run whose record is open.
    ///
    /// # Errors
    /// If there is no room for the thread that saves.
    pub fn new(parts: Parts<'_>) -> Outcome<Self> {
        let plan = parts.settings.checkpointing();
        let saver = Saver::start(parts.store.clone(), plan.keep);
        let saver =
            saver.map_err(|e| Failure::new(Code::Failed, format!("no thread for checkpoints can be started ({e})")))?;
        Ok(Self {
            board: Following::NotYet,
            run: parts.run.clone(),
            recorder: parts.recorder,
            record: parts.run.path("record.jsonl"),
            saver,
            store: parts.store,
            plan,
            settings: parts.settings.to_toml(),
            corpus: parts.corpus.to_owned(),
            progress: parts.progress,
            json: parts.json,
            signals: parts.signals,
            saved: Instant::now(),
            step: parts.step,
            announced: parts.step,
            rolls_back: parts.settings.rolls_back(),
            stopped: None,
            unread: false,
        })
    }

    /// Writes an event to the record and shows it.
    pub fn tell(&mut self, event: &Event) -> Outcome {
        self.recorder.append(event).map_err(|e| Failure::disk(&self.record, &e))?;
        self.board.tell(event, &self.record);
        self.progress.show(event);
        if self.json && !self.unread {
            let line = serde_json::to_string(event).expect("events are JSON");
            match console::line(line) {
                // Nobody reads any more: save and end, as after a signal.
                Err(failure) if failure.code == Code::Quiet => {
                    (self.unread, self.stopped) = (true, Some(Code::Terminated))
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Whether a diverged run should go back.
    pub fn rolls_back(&self) -> bool {
        self.rolls_back
    }

    /// The newest checkpoint with a rate `factor` times smaller; the record forgets what came after it and says so. From now on
    /// that is the newest checkpoint.
    pub fn roll_back(&mut self, factor: f64) -> Outcome<Snapshot> {
        self.saver.finish()?;
        let Newest { mut snapshot, bad, .. } = self.run.newest(&self.store)?;
        self.store.set_aside(&bad)?;
        let step = snapshot.count("train.step").unwrap_or(0);
        let rate = snapshot.real(RATE).unwrap_or(0.0) / factor;
        snapshot.set_real(RATE, rate);
        let len = record_length(&snapshot);
        self.recorder = Recorder::resume(&self.record, len).map_err(|e| Failure::disk(&self.record, &e))?;
        self.board = Following::NotYet; // made anew from what is left of the record
        (self.step, self.announced) = (step, step);
        self.tell(&Event::Rate(RateChange { step, rate, reason: "diverged".into() }))?;
        self.hand_over(snapshot.clone(), false)?;
        self.saver.finish()?;
        Ok(snapshot)
    }

    /// Waits until everything is on the disk.
    pub fn finish(&self) -> Outcome {
        Ok(self.saver.finish()?)
    }

    /// What is shown.
    pub fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }

    /// A checkpoint is due after this update, by the settings.
    fn due(&self) -> bool {
        self.step > 0
            && self.announced != self.step
            && self.plan.every_steps.is_some_and(|n| self.step.is_multiple_of(n))
    }

    fn keep(&mut self, snapshot: Snapshot, why: SaveReason) -> Outcome {
        let step = snapshot.count("train.step").unwrap_or(0);
        self.step = step;
        let due = self.due();
        self.announced = step;
        // What a clock or a signal asked for leaves no line, and the end has its own.
        if due || matches!(why, SaveReason::First | SaveReason::Evaluated { .. }) {
            self.tell(&Event::Checkpoint(Saved { step, file: Store::name(step) }))?;
        }
        self.hand_over(snapshot, why == (SaveReason::Evaluated { best: true }))?;
        if why == SaveReason::First {
            self.saver.finish()?;
            self.run.write("settings.toml", &self.settings)?;
        }
        if why == SaveReason::End || self.stopped.is_some() {
            self.saver.finish()?;
        }
        Ok(())
    }

    fn hand_over(&mut self, mut snapshot: Snapshot, best: bool) -> Outcome {
        for (name, text) in [
            ("settings", self.settings.clone()),
            ("corpus", self.corpus.clone()),
            ("simd", kernel::path().name().to_owned()),
            (RECORD_LENGTH, self.recorder.len().to_string()),
            (RECORD_HASH, self.recorder.hash()),
        ] {
            snapshot.meta.insert(name.into(), text);
        }
        let first = self.recorder.handle().map_err(|e| Failure::disk(&self.record, &e))?;
        self.saver.hand_over(Job { snapshot, best, first: Some(first) })?;
        self.saved = Instant::now();
        Ok(())
    }
}

impl Watch for Watcher {
    fn event(&mut self, event: &Event) -> Watched {
        Ok(self.tell(event)?)
    }

    fn updated(&mut self, step: u64) -> Watched {
        self.step = step;
        Ok(self.saver.check().map_err(Failure::from)?)
    }

    fn request(&mut self) -> Request {
        self.stopped = self.stopped.or(self.signals.code());
        if self.stopped.is_some() {
            return Request::Stop;
        }
        let late = self.plan.every_minutes.is_some_and(|minutes| self.saved.elapsed().as_secs_f64() >= minutes * 60.0);
        if late || self.due() { Request::Save } else { Request::Go }
    }

    fn make_room(&mut self) {
        self.saver.make_room();
    }

    fn save(&mut self, snapshot: Snapshot, why: SaveReason) -> Watched {
        Ok(self.keep(snapshot, why)?)
    }
}
