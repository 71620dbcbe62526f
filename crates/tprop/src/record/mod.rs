//! Events of a run, one JSON line each. Tables, curves and pages are made from these lines alone.
//!
//! A record says what was computed, not how often the program was started: a run that was interrupted and resumed any number of
//! times leaves the same lines, times aside, as one that was not. So a checkpoint has a line when it is due by the settings
//! (at the beginning, by updates, at an evaluation, at the end), but not when a clock or a signal asked for it. Starts and
//! resumptions stand in `sessions.jsonl`.

mod read;
mod write;

use serde::{Deserialize, Serialize};

pub use read::{before_end, events, read};
pub use write::{Recorder, other_record};

use read::{EvalRead, number};

/// Version of the record's format.
pub const FORMAT: u32 = 1;

/// One line of `record.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A run begins.
    Start(Start),
    /// Some updates were made.
    Step(Step),
    /// The validation split was read.
    Eval(Box<Eval>),
    /// The state was handed over to be written.
    Checkpoint(Saved),
    /// A run resumes from a checkpoint. Written by the first versions only; now in `sessions.jsonl`.
    Resume(Resumed),
    /// The rate was changed by a schedule or a rollback.
    Rate(RateChange),
    /// The gradient was compared with the exact one.
    Meter(Meter),
    /// The run is over.
    End(End),
}

/// First line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// [`FORMAT`]
    pub format: u32,
    /// Version of the program.
    pub version: String,
    /// Vector instructions in use.
    pub simd: String,
    /// Number type.
    pub real: String,
    /// Threads.
    pub threads: usize,
    /// Ranks.
    pub ranks: usize,
    /// Weights of the model.
    pub parameters: u64,
    /// Tokens of the training split.
    pub train_tokens: u64,
    /// Updates of one epoch.
    pub updates_per_epoch: u64,
    /// Size of the vocabulary.
    pub vocab: u64,
    /// Fingerprint of the corpus.
    pub corpus: String,
    /// The run whose weights this one began with, as it was typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Only of the built-in language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_possible: Option<BestPossible>,
}

/// Perplexities that no model of the language can beat, but by chance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestPossible {
    /// Of the validation split.
    pub valid: f64,
    /// Of the test split.
    pub test: f64,
}

/// What a few updates looked like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Epoch, from 1.
    pub epoch: u64,
    /// Updates so far.
    pub step: u64,
    /// Tokens so far.
    pub tokens: u64,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Nats per token since the last such line.
    #[serde(deserialize_with = "number")]
    pub nats: f64,
    /// Norm of the gradient of the last update, before clipping.
    #[serde(deserialize_with = "number")]
    pub norm: f64,
    /// Rate of the last update.
    pub rate: f64,
    /// Tokens per second since the last such line.
    #[serde(deserialize_with = "number")]
    pub tokens_per_s: f64,
}

/// What an evaluation saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "EvalRead")]
pub struct Eval {
    /// Epoch, from 1.
    pub epoch: u64,
    /// Updates so far.
    pub step: u64,
    /// Tokens so far.
    pub tokens: u64,
    /// Seconds of training so far.
    pub seconds: f64,
    /// Perplexity of the beginning of the training split, read like the validation split and as long (at least 10,000 tokens).
    pub train_ppl: f64,
    /// Perplexity of the training windows of this epoch as the objective sees them, each before its update.
    pub window_ppl: f64,
    /// Perplexity of the validation split.
    pub valid_ppl: f64,
    /// Rate of the next update.
    pub rate: f64,
    /// Whether this is the best so far.
    pub best: bool,
    /// `window_ppl` by position inside the block.
    pub window_ppl_by_position: Vec<f64>,
    /// Only under target propagation.
    #[serde(flatten)]
    pub coupling: Option<CouplingMeans>,
}

/// How well the states obey the recurrence: means over the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CouplingMeans {
    /// L
    pub objective: f64,
    /// Mean C_k.
    pub penalty: f64,
    /// Mean ‖r‖.
    pub residual_mean: f64,
    /// Largest ‖r‖.
    pub residual_max: f64,
    /// Mean ‖r‖ over mean ‖s‖.
    pub residual_relative: f64,
    /// Mean ‖u‖.
    pub dual_norm: f64,
    /// Mean movement of a state in its window.
    pub state_move: f64,
    /// λ
    pub lambda: f64,
    /// Mean sweeps that found the starts of a window, where a tolerance ends them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sweeps: Option<f64>,
}

/// A checkpoint. (Its size is not recorded: it depends on how many digits the time has.)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Updates so far.
    pub step: u64,
    /// Name of the file. It may be gone by now, pruned.
    pub file: String,
}

/// Where a run resumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resumed {
    /// Updates so far.
    pub step: u64,
    /// The checkpoint's file.
    pub file: String,
    /// Threads now.
    pub threads: usize,
}

/// A change of the rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateChange {
    /// Updates so far.
    pub step: u64,
    /// The rate from here on.
    pub rate: f64,
    /// Why.
    pub reason: String,
}

/// The gradient of an update against the exact one of its window, from the same carried state at the same weights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Meter {
    /// Epoch, from 1.
    pub epoch: u64,
    /// The update.
    pub step: u64,
    /// Seconds of training so far.
    pub seconds: f64,
    /// ‖g − g*‖ / ‖g*‖, all weights.
    #[serde(deserialize_with = "number")]
    pub error: f64,
    /// Cosine of the angle between them.
    #[serde(deserialize_with = "number")]
    pub cosine: f64,
    /// The same for cells and embedding, to which a gradient comes through states alone.
    #[serde(deserialize_with = "number")]
    pub inner_error: f64,
    /// Their cosine.
    #[serde(deserialize_with = "number")]
    pub inner_cosine: f64,
}

/// Last line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Why it ended: `epochs`, `patience`, `stopped`, `diverged`.
    pub reason: String,
    /// Epochs begun.
    pub epoch: u64,
    /// Updates.
    pub step: u64,
    /// Tokens.
    pub tokens: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Epoch of the best validation perplexity.
    pub best_epoch: u64,
    /// The best validation perplexity; infinite (`null` in JSON) before the first evaluation.
    #[serde(deserialize_with = "number")]
    pub best_valid_ppl: f64,
    /// Perplexity of the test split with the best weights.
    pub test_ppl: Option<f64>,
}
