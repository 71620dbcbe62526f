//! What people see while a run trains: one updating line on a terminal, plain lines elsewhere.

use std::time::{Duration, Instant};

use tprop::record::{End, Eval, Event, Step};

use crate::console::{self, Live, duration, grouped, short};

/// Without a terminal a line is written this often.
const PLAIN: Duration = Duration::from_secs(10);

/// Shows progress on standard error.
#[derive(Debug)]
pub struct Progress {
    live: Live,
    epochs: u64,
    updates_per_epoch: u64,
    last: Option<Instant>,
    /// Seconds and updates of the first step that was shown, for the time that is left.
    since: Option<(f64, u64)>,
}

impl Progress {
    /// For a run of so many epochs.
    pub fn new(quiet: bool, epochs: usize, updates_per_epoch: usize) -> Self {
        let (epochs, updates_per_epoch) = (epochs as u64, updates_per_epoch as u64);
        Self { live: Live::new(quiet), epochs, updates_per_epoch, last: None, since: None }
    }

    /// Shows an event.
    pub fn show(&mut self, event: &Event) {
        match event {
            Event::Step(step) => self.step(step),
            Event::Eval(eval) => self.eval(eval),
            Event::Rate(change) => self.line(&format!("         rate {} from here on: {}", change.rate, change.reason)),
            Event::Start(_) | Event::Checkpoint(_) | Event::Resume(_) | Event::Meter(_) | Event::End(_) => {}
        }
    }

    fn step(&mut self, step: &Step) {
        let since = *self.since.get_or_insert((step.seconds, step.step));
        if !self.live.draws() && self.last.is_some_and(|last| last.elapsed() < PLAIN) {
            return;
        }
        self.last = Some(Instant::now());
        let parts = self.step_parts(step, since);
        match self.live.draws() {
            true => self.live.draw(&[fit(parts, console::columns().saturating_sub(1))]),
            false => self.line(&fit(parts, usize::MAX)),
        }
    }

    fn step_parts(&self, step: &Step, (seconds, steps): (f64, u64)) -> Vec<String> {
        let total = self.epochs.saturating_mul(self.updates_per_epoch);
        let mut parts = vec![
            format!("epoch {}/{}", step.epoch, self.epochs),
            format!("step {}/{}", grouped(step.step), grouped(total)),
            format!("loss {:.3}", step.nats),
            format!("ppl {}", short(step.nats.exp())),
            format!("|g| {:.3}", step.norm),
            format!("rate {}", step.rate),
            format!("{} tokens/s", grouped(step.tokens_per_s as u64)),
        ];
        // Evaluations count too, since they are part of what is left: time is that of the whole run, not of the steps alone.
        if step.seconds > seconds {
            let speed = (step.step - steps) as f64 / (step.seconds - seconds);
            parts.push(format!("{} left", duration(total.saturating_sub(step.step) as f64 / speed)));
        }
        parts
    }

    fn eval(&mut self, eval: &Eval) {
        let (bold, plain) = if console::coloured() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
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
        self.live.line(text);
    }

    /// Removes the live line.
    pub fn wipe(&mut self) {
        self.live.wipe();
    }
}

/// The parts in one line of at most `width` characters; what matters least goes first.
fn fit(mut parts: Vec<String>, width: usize) -> String {
    let length = |text: &String| text.chars().count();
    let wide = parts.join("  ");
    if length(&wide) <= width {
        return wide;
    }
    for least in ["", "loss", "|g|", "rate", "step"] {
        parts.retain(|part| least.is_empty() || !part.starts_with(least));
        let line = parts.join(" ");
        if length(&line) <= width {
            return line;
        }
    }
    parts.join(" ").chars().take(width).collect()
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

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn lines_fit_the_terminal() {
        let parts: Vec<String> =
            ["epoch 1/9", "step 5/90", "loss 4.9", "ppl 135", "1:05 left"].map(str::to_owned).into();
        assert_eq!(fit(parts.clone(), 80), "epoch 1/9  step 5/90  loss 4.9  ppl 135  1:05 left");
        assert_eq!(fit(parts.clone(), 47), "epoch 1/9 step 5/90 loss 4.9 ppl 135 1:05 left");
        assert_eq!(fit(parts.clone(), 40), "epoch 1/9 step 5/90 ppl 135 1:05 left");
        assert_eq!(fit(parts, 5), "epoch");
    }
}
