//! What people see while an experiment runs: a live table on a terminal, plain lines elsewhere.

use std::io::Write;
use std::time::{Duration, Instant};

use tprop::record::Eval;

use super::trial::{Ended, Progress, Trial};
use crate::console::{self, duration, grouped, short};

/// The live table is drawn this often.
const EVERY: Duration = Duration::from_millis(200);

/// A trial at work.
#[derive(Debug)]
pub struct Working {
    cell: String,
    label: String,
    trial: Trial,
    epochs: u64,
    epoch: u64,
    ppl: Option<f64>,
    valid: Option<f64>,
    speed: f64,
}

impl Working {
    /// It has just been started.
    pub fn new(cell: &str, label: &str, trial: &Trial, until: Option<u64>) -> Self {
        Self {
            cell: tprop::vocab::printable(cell),
            label: tprop::vocab::printable(label),
            trial: trial.clone(),
            epochs: until.unwrap_or(u64::MAX).min(trial.epochs()),
            epoch: 0,
            ppl: None,
            valid: None,
            speed: 0.0,
        }
    }

    /// What is being trained.
    pub fn trial(&self) -> &Trial {
        &self.trial
    }

    /// It made some updates.
    pub fn step(&mut self, epoch: u64, nats: f64, speed: f64) {
        (self.epoch, self.ppl, self.speed) = (epoch, Some(nats.exp()), speed);
    }

    /// It read the validation split.
    pub fn eval(&mut self, eval: &Eval) {
        self.valid = Some(self.valid.map_or(eval.valid_ppl, |best: f64| best.min(eval.valid_ppl)));
    }

    /// The cell, the point and the seed. A sweep's cell is a group of points, named by what they share: said once.
    fn name(&self) -> String {
        let seed = self.trial.settings.text("train.seed");
        let cell = if self.label.starts_with(&self.cell) { "" } else { &self.cell };
        [cell, &self.label, &format!("seed {seed}")]
            .into_iter()
            .filter(|s| !s.is_empty())
            .collect::<Vec<_>>()
            .join("  ")
    }

    fn line(&self) -> String {
        let valid = self.valid.map_or(String::new(), |x| format!("  valid ppl {}", short(x)));
        let ppl = self.ppl.map_or(String::new(), |x| format!("  ppl {}", short(x)));
        let speed = if self.speed > 0.0 { format!("  {} tokens/s", grouped(self.speed as u64)) } else { String::new() };
        // Columns that stay under each other; what a narrow terminal cuts off is the speed.
        format!("  {:<30}  epoch {:>2}/{:<2}{valid:<18}{ppl:<13}{speed}", self.name(), self.epoch, self.epochs)
    }
}

/// Tells about progress on standard error.
#[derive(Debug)]
pub struct Show {
    quiet: bool,
    live: bool,
    name: String,
    total: usize,
    begun: Instant,
    /// Trials that had ended before this driver began.
    before: usize,
    ended: usize,
    drawn: Option<Instant>,
    /// Lines of the live table that stand on the terminal.
    lines: usize,
}

impl Show {
    /// For an experiment of at most so many trials.
    pub fn new(quiet: bool, name: &str, total: usize) -> Self {
        let name = tprop::vocab::printable(name);
        let (begun, live) = (Instant::now(), console::live());
        Self { quiet, live, name, total, begun, before: 0, ended: 0, drawn: None, lines: 0 }
    }

    /// So many trials had ended before.
    pub fn taken_up(&mut self, ended: usize) {
        (self.before, self.ended) = (ended, ended);
        if ended > 0 {
            self.line(&format!("{}: {ended} trials that have ended are taken up", self.name));
        }
    }

    /// Draws the live table, if there is a terminal and it is time.
    pub fn draw<'a>(&mut self, ended: usize, working: impl Iterator<Item = &'a Working>) {
        self.ended = ended;
        if self.quiet || !self.live || self.drawn.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        let width = console::columns().saturating_sub(1);
        let mut text = vec![self.header()];
        text.extend(working.map(Working::line));
        self.wipe();
        let mut err = std::io::stderr().lock();
        for line in &text {
            let line: String = line.chars().take(width).collect();
            let _ = writeln!(err, "{line}");
        }
        self.lines = text.len();
        self.drawn = Some(Instant::now());
    }

    fn header(&self) -> String {
        let gone = self.begun.elapsed().as_secs_f64();
        let mine = self.ended.saturating_sub(self.before);
        let left = if mine > 0 {
            let left = gone / mine as f64 * self.total.saturating_sub(self.ended) as f64;
            format!(", about {} left", duration(left))
        } else {
            String::new()
        };
        format!("{}: {} of at most {} trials, {} gone{left}", self.name, self.ended, self.total, duration(gone))
    }

    /// A trial begins, or goes on after so many evaluations.
    pub fn started(&mut self, working: &Working, after: Option<usize>) {
        if !self.live {
            let what = match after {
                None => "begins".to_owned(),
                Some(0) => "goes on in epoch 1".to_owned(),
                Some(evals) => format!("goes on after epoch {evals}"),
            };
            self.line(&format!("{what}: {}", working.name()));
        }
    }

    /// A trial came to its end.
    pub fn finished(&mut self, working: &Working, progress: &Progress) {
        if let (Some(Ended::Finished(end)), Some(best)) = (&progress.ended, progress.best(None)) {
            let figures = format!("valid ppl {:>7}  {:>7}", short(best.valid_ppl), duration(end.seconds));
            self.line(&format!("{figures}  {}", working.name()));
        }
    }

    /// A trial came to a bad end.
    pub fn failed(&mut self, working: &Working, reason: &str) {
        self.line(&format!("no result ({reason}): {}", working.name()));
    }

    /// Writes a line that stays.
    pub fn line(&mut self, text: &str) {
        self.wipe();
        if !self.quiet {
            console::note(text);
        }
    }

    /// Removes the live table.
    pub fn wipe(&mut self) {
        if self.lines > 0 {
            let _ = write!(std::io::stderr().lock(), "\x1b[{}A\x1b[J", std::mem::take(&mut self.lines));
        }
    }
}
