//! Memory that a method takes beside weights and gradients, known before any of it is taken.

use super::pieces::Pieces;
use super::{Batch, BtpropConfig, Init, MethodConfig, Starts, StateRule};
use crate::model::Model;
use crate::objective::Constraint;
use crate::real::Real;

impl MethodConfig {
    /// Bytes of tapes and states for a training split of so many tokens, on the rank that has the most of them.
    pub fn bytes<T: Real>(&self, model: &Model<T>, tokens: usize, ranks: usize) -> u64 {
        match self {
            MethodConfig::Bptt(c) => Pieces::bytes(model, c.streams.div_ceil(ranks), c.window),
            MethodConfig::Btprop(c) => {
                let length = tokens.saturating_sub(1) / c.streams;
                let (blocks, windows) = match c.batch {
                    Batch::Full => (length / c.block, 1),
                    Batch::Mini { .. } => (c.blocks, length / c.block / c.blocks),
                };
                let rows = blocks.div_ceil(ranks).saturating_mul(c.streams);
                let lane = if c.init == Init::Sequential { Pieces::bytes(model, c.streams, c.block) } else { 0 };
                let tapes = Pieces::bytes(model, rows, c.block).saturating_add(lane);
                tapes.saturating_add(states(c, model, rows, windows))
            }
        }
    }
}

/// Bytes of the states of `rows` blocks, and of what goes with them.
pub(super) fn states<T: Real>(config: &BtpropConfig, model: &Model<T>, rows: usize, windows: usize) -> u64 {
    let duals = config.solver.duals();
    let beside = [
        config.starts == Starts::Held,
        matches!(config.constraint, Constraint::Tanh | Constraint::Binary),
        config.states.rule == StateRule::Adagrad,
        duals.is_some(),
    ];
    let stored = [matches!(config.init, Init::Stored { .. }), duals.is_some_and(|d| d.stored)];
    let count = |those: &[bool]| those.iter().filter(|there| **there).count();
    // Starts, ends, and the slopes of starts, ends and targets.
    let now = 5 + count(&beside);
    let kept = if config.batch == Batch::Full { 0 } else { count(&stored).saturating_mul(windows) };
    let slots = rows.saturating_add(config.streams);
    now.saturating_add(kept).saturating_mul(slots).saturating_mul(model.state_width() * T::BYTES) as u64
}

/// Memory that could be had now without swapping, where the system tells.
pub fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kb| kb << 10)
}
