//! What people see while an experiment runs: a live table on a terminal, plain lines elsewhere.

use std::time::{Duration, Instant};

use tprop::vocab::printable;
use tprop_report::numbers::{duration, grouped, short};

use super::ledger::Task;
use super::progress::Progress;
use tprop_run::console::Live;

/// The live table is drawn this often.
const EVERY: Duration = Duration::from_millis(200);

/// A task as people read it: the entry, the point and the seed. A sweep's entry is a group of points, named by what they share: said
/// once.
pub fn name(entry: &str, task: &Task) -> String {
    let seed = format!("seed {}", task.trial.settings.text("train.seed"));
    let (entry, label) = (printable(entry), printable(&task.label));
    let entry = if label.starts_with(&entry) { String::new() } else { entry };
    [entry, label, seed].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join("  ")
}

/// A line of the live table: how far a task is.
pub fn line(name: &str, task: &Task, progress: Option<&Progress>) -> String {
    let epochs = task.until.unwrap_or(u64::MAX).min(task.trial.epochs());
    let record = progress.map(|p| &p.record);
    let step = record.and_then(|r| r.steps.last());
    let epoch = step.map_or(0, |s| s.epoch);
    let valid =
        record.and_then(|r| r.best(None)).map_or(String::new(), |e| format!("  valid ppl {}", short(e.valid_ppl)));
    let ppl = step.map_or(String::new(), |s| format!("  ppl {}", short(s.nats.exp())));
    let speed = step.map_or(String::new(), |s| format!("  {} tokens/s", grouped(s.tokens_per_s as u64)));
    // Columns that stay under each other; what a narrow terminal cuts off is the speed.
    format!("  {name:<30}  epoch {epoch:>2}/{epochs:<2}{valid:<18}{ppl:<13}{speed}")
}

/// Shows progress on standard error.
#[derive(Debug)]
pub struct Show {
    live: Live,
    name: String,
    total: usize,
    begun: Instant,
    /// Trials that had ended before this driver began.
    before: usize,
    drawn: Option<Instant>,
}

impl Show {
    /// For an experiment of at most so many trials.
    pub fn new(quiet: bool, name: &str, total: usize) -> Self {
        let (live, name, begun) = (Live::new(quiet), printable(name), Instant::now());
        Self { live, name, total, begun, before: 0, drawn: None }
    }

    /// So many trials had ended before.
    pub fn taken_up(&mut self, ended: usize) {
        self.before = ended;
        if ended > 0 {
            self.live.line(&format!("{}: {ended} trials that have ended are taken up", self.name));
        }
    }

    /// Draws the live table, if there is a terminal and it is time.
    pub fn draw(&mut self, ended: usize, working: impl Iterator<Item = String>) {
        if self.live.draws() && self.drawn.is_none_or(|at| at.elapsed() >= EVERY) {
            self.live.draw(&std::iter::once(self.header(ended)).chain(working).collect::<Vec<_>>());
            self.drawn = Some(Instant::now());
        }
    }

    fn header(&self, ended: usize) -> String {
        let gone = self.begun.elapsed().as_secs_f64();
        let left = match ended.saturating_sub(self.before) {
            0 => String::new(),
            mine => format!(", about {} left", duration(gone / mine as f64 * self.total.saturating_sub(ended) as f64)),
        };
        format!("{}: {ended} of at most {} trials, {} gone{left}", self.name, self.total, duration(gone))
    }

    /// A task begins, or a trial continues after so many evaluations.
    pub fn started(&mut self, name: &str, after: Option<usize>) {
        let what = match after {
            None => "begins".to_owned(),
            Some(0) => "continues in epoch 1".to_owned(),
            Some(evals) => format!("continues after epoch {evals}"),
        };
        if !self.live.draws() {
            self.live.line(&format!("{what}: {name}"));
        }
    }

    /// A trial came to its end.
    pub fn finished(&mut self, name: &str, progress: &Progress) {
        if let (true, Some(end), Some(best)) = (progress.finished(), &progress.record.end, progress.record.best(None)) {
            self.live.line(&format!("valid ppl {:>7}  {:>7}  {name}", short(best.valid_ppl), duration(end.seconds)));
        }
    }

    /// A trial came to a bad end.
    pub fn failed(&mut self, name: &str, reason: &str) {
        self.live.line(&format!("no result ({reason}): {name}"));
    }

    /// Another process is at work on a trial.
    pub fn waits(&mut self, id: &str) {
        self.live.line(&format!("{id}: another process is at work on it; waiting"));
    }

    /// Removes the live table.
    pub fn wipe(&mut self) {
        self.live.wipe();
    }
}
