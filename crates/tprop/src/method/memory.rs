//! Memory that a method takes beside weights and gradients, known before any of it is taken.

use super::tapes::Tapes;
use super::{Batch, BtpropConfig, Init, Outline, Pulls, Starts, StateRule};
use crate::model::Model;
use crate::objective::Constraint;
use crate::real::Real;

/// Bytes of the tapes and states of windows of blocks, on the rank that has the most of them.
pub(super) fn windowed<T: Real>(c: &BtpropConfig, model: &Model<T>, tokens: usize, ranks: usize) -> u64 {
    let (blocks, windows) = c.windows(tokens.saturating_sub(1) / c.streams);
    let rows = blocks.div_ceil(ranks).saturating_mul(c.streams);
    let column = if c.init == Init::Sequential { Tapes::bytes(model, c.streams, c.block) } else { 0 };
    let tapes = Tapes::bytes(model, rows, c.block).saturating_add(column);
    tapes.saturating_add(states(c, model, rows, windows))
}

/// Which values a configuration keeps beside those that all have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeps {
    /// Targets of their own, because the starts are held.
    pub targets: bool,
    /// z of the constraints that keep one.
    pub latent: bool,
    /// Adagrad's sums of the states.
    pub sums: bool,
    /// Duals.
    pub duals: bool,
    /// Of every window, for the next epoch: its states, its duals. In batch mode the one window has them anyway.
    pub states_of_all: bool,
    pub duals_of_all: bool,
    /// Pulls of every window, in batch mode too.
    pub pulls_of_all: bool,
    /// Gradients of all states at once, because they are scanned or solved for.
    pub gradients: bool,
    /// Diagonals of the blocks.
    pub diagonals: bool,
}

impl Keeps {
    pub fn of(config: &BtpropConfig) -> Self {
        let (mini, duals) = (config.batch != Batch::Full, config.solver.duals());
        Self {
            targets: config.starts == Starts::Held,
            latent: matches!(config.constraint, Constraint::Tanh | Constraint::Binary),
            sums: config.states.rule == StateRule::Adagrad,
            duals: duals.is_some(),
            states_of_all: mini && matches!(config.init, Init::Stored { .. }),
            duals_of_all: mini && duals.is_some_and(|d| d.stored),
            pulls_of_all: config.pulls == Pulls::Stored,
            gradients: config.scan.pulls() || config.states.rule == StateRule::Newton,
            diagonals: config.needs_diagonals(),
        }
    }

    /// Values for each component of a state, in a text of so many windows.
    fn values(self, windows: usize) -> usize {
        let now = [self.targets, self.latent, self.sums, self.duals, self.gradients].map(usize::from);
        let of_all = [self.states_of_all, self.duals_of_all, self.pulls_of_all].map(usize::from);
        // All have starts, ends, and the gradients in starts, ends and targets.
        (5 + now.iter().sum::<usize>()).saturating_add(windows.saturating_mul(of_all.iter().sum()))
    }
}

/// Bytes of the states of `rows` blocks, and of what goes with them.
pub(super) fn states<T: Real>(config: &BtpropConfig, model: &Model<T>, rows: usize, windows: usize) -> u64 {
    let slots = rows.saturating_add(config.streams);
    let keeps = Keeps::of(config);
    let diagonals = if keeps.diagonals { model.units().matrix_width() } else { 0 };
    let values = keeps.values(windows).saturating_mul(model.state_width()).saturating_add(diagonals);
    slots.saturating_mul(values).saturating_mul(T::BYTES) as u64
}

/// Memory that could be had now without swapping, where the system says.
pub fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb << 10)
}
