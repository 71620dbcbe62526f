//! Looks on while a run trains: appends to the record, shows progress, keeps checkpoints, obeys signals.

use std::error::Error;
use std::time::Instant;

use tprop::checkpoint::{BEST, Snapshot, Store};
use tprop::record::{Event, RateChange, Recorder, Saved};
use tprop::train::{Watch, Why, Wish};

use crate::console;
use crate::failure::{Code, Failure};
use crate::progress::Progress;
use crate::run::Run;
use crate::settings::{Checkpointing, Settings};
use crate::signals::Signals;
use crate::tensorboard::Board;

/// Looks on while a run trains.
#[derive(Debug)]
pub struct Watcher {
    recorder: Recorder,
    record: std::path::PathBuf,
    /// The same for TensorBoard; none after it could not be written once.
    board: Option<Board>,
    store: Store,
    plan: Checkpointing,
    /// Goes into every checkpoint, so that a resumed run can tell whether it is still the same one.
    settings: String,
    corpus: String,
    progress: Progress,
    json: bool,
    signals: Signals,
    saved: Instant,
    saved_step: u64,
    /// Updates so far, as far as events tell.
    step: u64,
    rolls_back: bool,
    /// The rate after the last rollback; a second one from the same checkpoint must go lower still.
    lower: Option<f64>,
    /// Why it wished to stop.
    pub stopped: Option<Code>,
}

/// Where a checkpoint keeps the rate: its bits, then its digits.
const RATE: &str = "real.optim.rate";

fn rate_of(snapshot: &Snapshot) -> f64 {
    let bits = snapshot.meta.get(RATE).and_then(|text| text.split(' ').next()).unwrap_or_default();
    u64::from_str_radix(bits, 16).map_or(0.0, f64::from_bits)
}

/// A run is not worth losing for a file that can be made again, so trouble with it is only told.
fn board(run: &std::path::Path) -> Option<Board> {
    Board::rebuild(run).map_or_else(|e| no_board(&e), Some)
}

fn no_board(error: &std::io::Error) -> Option<Board> {
    console::note(format!(
        "tprop: warning: no event file for TensorBoard ({error}); record.jsonl has the same numbers"
    ));
    None
}

type Told = Result<(), Box<dyn Error + Send + Sync>>;

impl Watcher {
    /// For a run whose record is open.
    pub fn new(
        run: &Run,
        recorder: Recorder,
        settings: &Settings,
        corpus: &str,
        progress: Progress,
        json: bool,
    ) -> Self {
        Self {
            recorder,
            board: board(&run.path("")),
            record: run.path("record.jsonl"),
            store: run.store(),
            plan: settings.checkpointing(),
            settings: settings.to_toml(),
            corpus: corpus.to_owned(),
            progress,
            json,
            signals: Signals::listen(),
            saved: Instant::now(),
            saved_step: 0,
            step: 0,
            rolls_back: settings.rolls_back(),
            lower: None,
            stopped: None,
        }
    }

    /// Writes an event to the record and shows it.
    pub fn tell(&mut self, event: &Event) -> Result<(), Failure> {
        self.recorder.append(event).map_err(|e| Failure::disk(&self.record, &e))?;
        if let Some(Err(e)) = self.board.as_mut().map(|b| b.tell(event)) {
            self.board = no_board(&e);
        }
        self.progress.show(event);
        if let Event::Step(step) = event {
            self.step = step.step;
        }
        if self.json && self.stopped != Some(Code::Terminated) {
            let line = serde_json::to_string(event).expect("events are JSON");
            match console::line(line) {
                // Nobody reads any more: save and end, as after a signal.
                Err(failure) if failure.code == Code::Quiet => self.stopped = Some(Code::Terminated),
                other => other?,
            }
        }
        Ok(())
    }

    /// Whether a diverged run should go back.
    pub fn rolls_back(&self) -> bool {
        self.rolls_back
    }

    /// The newest checkpoint with a rate `factor` times smaller; the record forgets what came after it.
    pub fn roll_back(&mut self, factor: f64) -> Result<Snapshot, Failure> {
        let (file, mut snapshot, _) = self.store.newest()?;
        let number = |key: &str| snapshot.meta.get(key).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let (len, step) = (number("record"), number("count.train.step"));
        let rate = self.lower.unwrap_or_else(|| rate_of(&snapshot)) / factor;
        self.lower = Some(rate);
        snapshot.meta.insert(RATE.into(), format!("{:016x} {rate}", rate.to_bits()));
        self.recorder = Recorder::resume(&self.record, len).map_err(|e| Failure::disk(&self.record, &e))?;
        self.board = self.record.parent().and_then(board);
        let bytes = std::fs::metadata(self.store.dir().join(&file)).map_or(0, |m| m.len());
        self.tell(&Event::Checkpoint(Saved { step, file, bytes }))?;
        self.tell(&Event::Rate(RateChange { step, rate, reason: "diverged".into() }))?;
        Ok(snapshot)
    }

    /// What is shown.
    pub fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }

    fn keep(&mut self, mut snapshot: Snapshot, why: Why) -> Result<(), Failure> {
        self.recorder.sync().map_err(|e| Failure::disk(&self.record, &e))?;
        snapshot.meta.insert("settings".into(), self.settings.clone());
        snapshot.meta.insert("corpus".into(), self.corpus.clone());
        snapshot.meta.insert("record".into(), self.recorder.len().to_string());
        let step = snapshot.meta.get("count.train.step").and_then(|s| s.parse().ok()).unwrap_or(0);
        let file = Store::name(step);
        // The best first: a run that is killed in between comes back to this evaluation and writes the same again.
        if why == (Why::Evaluated { best: true }) {
            self.store.write(BEST, &snapshot)?;
        }
        let bytes = self.store.write(&file, &snapshot)?;
        self.store.prune(self.plan.keep)?;
        (self.saved, self.saved_step, self.step) = (Instant::now(), step, step);
        self.tell(&Event::Checkpoint(Saved { step, file, bytes }))
    }
}

impl Watch for Watcher {
    fn event(&mut self, event: &Event) -> Told {
        Ok(self.tell(event)?)
    }

    fn wish(&mut self) -> Wish {
        self.stopped = self.stopped.or(self.signals.code());
        if self.stopped.is_some() {
            return Wish::Stop;
        }
        let late = self.plan.every_seconds.is_some_and(|s| self.saved.elapsed().as_secs_f64() >= s);
        let far = self.plan.every_steps.is_some_and(|n| self.step >= self.saved_step + n);
        if late || far { Wish::Save } else { Wish::Go }
    }

    fn save(&mut self, snapshot: Snapshot, why: Why) -> Told {
        Ok(self.keep(snapshot, why)?)
    }
}
