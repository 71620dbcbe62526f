//! What people see while a run trains: one updating line on a terminal, plain lines elsewhere.

use std::io::Write;
use std::time::{Duration, Instant};

use tprop::record::{End, Eval, Event, Step};

use crate::console::{self, duration, grouped, short};

/// Without a terminal a line is written this often.
const PLAIN: Duration = Duration::from_secs(10);

/// Shows progress on standard error.
#[derive(Debug)]
pub struct Progress {
    quiet: bool,
    live: bool,
    coloured: bool,
    epochs: u64,
    updates_per_epoch: u64,
    last: Option<Instant>,
    /// A live line stands on the terminal and must be wiped before anything else is written.
    open: bool,
    rate: Smooth,
}

/// Tokens per second and updates per second, smoothed for the time that is left.
#[derive(Debug, Default)]
struct Smooth {
    since: Option<(f64, u64)>,
    updates_per_s: Option<f64>,
}

impl Progress {
    /// For a run of so many epochs.
    pub fn new(quiet: bool, epochs: usize, updates_per_epoch: usize) -> Self {
        Self {
            quiet,
            live: console::live(),
            coloured: console::coloured(),
            epochs: epochs as u64,
            updates_per_epoch: updates_per_epoch as u64,
            last: None,
            open: false,
            rate: Smooth::default(),
        }
    }

    /// Shows an event.
    pub fn show(&mut self, event: &Event) {
        if self.quiet {
            return;
        }
        match event {
            Event::Step(step) => self.step(step),
            Event::Eval(eval) => self.eval(eval),
            Event::Rate(change) => self.line(&format!("         rate {} from here on: {}", change.rate, change.reason)),
            Event::Start(_) | Event::Checkpoint(_) | Event::Resume(_) | Event::End(_) => {}
        }
    }

    fn step(&mut self, step: &Step) {
        self.rate.note(step);
        let due = self.live || self.last.is_none_or(|last| last.elapsed() >= PLAIN);
        if !due {
            return;
        }
        self.last = Some(Instant::now());
        let text = self.step_text(step);
        if self.live {
            let cut: String = text.chars().take(console::columns().saturating_sub(1)).collect();
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K{cut}");
            let _ = std::io::stderr().flush();
            self.open = true;
        } else {
            console::note(text);
        }
    }

    fn step_text(&self, step: &Step) -> String {
        let total = self.epochs.saturating_mul(self.updates_per_epoch);
        let left = self.rate.updates_per_s.map(|speed| total.saturating_sub(step.step) as f64 / speed);
        let left = left.map_or(String::new(), |s| format!("  {} left", duration(s)));
        format!(
            "epoch {}/{}  step {}/{}  loss {:.3}  ppl {}  |g| {:.3}  rate {}  {} tokens/s{left}",
            step.epoch,
            self.epochs,
            grouped(step.step),
            grouped(total),
            step.nats,
            short(step.nats.exp()),
            step.norm,
            step.rate,
            grouped(step.tokens_per_s as u64),
        )
    }

    fn eval(&mut self, eval: &Eval) {
        let (bold, plain) = if self.coloured { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let best = if eval.best { format!("  {bold}best{plain}") } else { String::new() };
        let residual =
            eval.coupling.map_or(String::new(), |c| format!("  residual {:.1} %", 100.0 * c.residual_relative));
        self.line(&format!(
            "epoch {:>2}  train ppl {:>8}  valid ppl {:>8}{residual}  {:>7}{best}",
            eval.epoch,
            short(eval.train_ppl),
            short(eval.valid_ppl),
            duration(eval.seconds),
        ));
        self.last = Some(Instant::now());
    }

    /// Writes a line that stays.
    pub fn line(&mut self, text: &str) {
        self.wipe();
        if !self.quiet {
            console::note(text);
        }
    }

    /// Removes the live line.
    pub fn wipe(&mut self) {
        if std::mem::take(&mut self.open) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }
}

impl Smooth {
    /// Evaluations count too, since they are part of what is left: time is that of the whole run, not of the steps alone.
    fn note(&mut self, step: &Step) {
        let (seconds, steps) = *self.since.get_or_insert((step.seconds, step.step));
        if step.seconds > seconds {
            self.updates_per_s = Some((step.step - steps) as f64 / (step.seconds - seconds));
        }
    }
}

/// One sentence about how a run ended.
pub fn ending(end: &End) -> String {
    let why = match end.reason.as_str() {
        "epochs" => "all epochs done",
        "patience" => "no better validation perplexity for a while",
        "stopped" => "stopped",
        other => other,
    };
    let speed = end.tokens as f64 / end.seconds.max(1e-9);
    let epochs = if end.epoch == 1 { "epoch" } else { "epochs" };
    format!(
        "{why}: {} {epochs}, {} updates, {} ({} tokens/s)",
        end.epoch,
        grouped(end.step),
        duration(end.seconds),
        grouped(speed as u64)
    )
}
