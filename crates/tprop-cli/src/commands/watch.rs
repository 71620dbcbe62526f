//! Looks on while a run trains: appends to the record, shows progress, keeps checkpoints, obeys signals.

use std::error::Error;
use std::time::Instant;

use tprop::checkpoint::{BEST, Snapshot, Store};
use tprop::record::{Event, Recorder, Saved};
use tprop::train::{Watch, Why, Wish};

use crate::console;
use crate::failure::{Code, Failure};
use crate::progress::Progress;
use crate::run::Run;
use crate::settings::{Checkpointing, Settings};
use crate::signals::Signals;

/// Looks on while a run trains.
#[derive(Debug)]
pub struct Watcher {
    recorder: Recorder,
    record: std::path::PathBuf,
    store: Store,
    plan: Checkpointing,
    /// Goes into every checkpoint, so that a resumed run can tell whether it is still the same one.
    settings: String,
    corpus: String,
    progress: Progress,
    json: bool,
    signals: Signals,
    saved: Instant,
    /// Why it wished to stop.
    pub stopped: Option<Code>,
}

type Told = Result<(), Box<dyn Error + Send + Sync>>;

impl Watcher {
    /// For a run whose record is open.
    pub fn new(run: &Run, recorder: Recorder, settings: &Settings, corpus: &str, progress: Progress, json: bool) -> Self {
        Self {
            recorder,
            record: run.path("record.jsonl"),
            store: run.store(),
            plan: settings.checkpointing(),
            settings: settings.to_toml(),
            corpus: corpus.to_owned(),
            progress,
            json,
            signals: Signals::listen(),
            saved: Instant::now(),
            stopped: None,
        }
    }

    /// Writes an event to the record and shows it.
    pub fn tell(&mut self, event: &Event) -> Result<(), Failure> {
        self.recorder.append(event).map_err(|e| Failure::disk(&self.record, &e))?;
        self.progress.show(event);
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
        self.saved = Instant::now();
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
        match self.plan.every_seconds {
            Some(seconds) if self.saved.elapsed().as_secs_f64() >= seconds => Wish::Save,
            _ => Wish::Go,
        }
    }

    fn save(&mut self, snapshot: Snapshot, why: Why) -> Told {
        Ok(self.keep(snapshot, why)?)
    }
}
