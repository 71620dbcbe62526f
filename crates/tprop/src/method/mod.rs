//! Training methods. Each turns windows of tokens into updates of θ by the block pass of [`crate::model`] alone.
//!
//! To add one: a file here with its configuration ([`Outline`]) and the method itself ([`Method`]); here a variant of [`MethodConfig`], its
//! word and its arm; in the program its configuration and its settings; its identity with a known method in `tests/identities.rs`.

mod bptt;
mod btprop;
mod config;
mod engine;
mod error;
pub mod least_squares;
pub mod memory;
mod tapes;

pub use bptt::Bptt;
pub use btprop::Btprop;
pub use config::*;
pub use error::{MethodError, Reason, Room};
pub use least_squares::{LeastSquares, LeastSquaresConfig, LeastSquaresDuals, ProximalConfig};

use crate::comm::Comm;
use crate::model::Model;
use crate::objective::CouplingSums;
use crate::optim::Optimiser;
use crate::params::{Params, Visit};
use crate::real::Real;
use crate::tokens::Text;
use crate::window::Streams;
use crate::words;

/// Which method, with its own settings.
///
/// ```
/// use tprop::prelude::*;
/// let bptt = MethodConfig::Bptt(BpttConfig { window: 35, streams: 20, ..BpttConfig::default() });
/// assert_eq!(bptt.least_tokens(), 35 * 20 + 1);
/// // Each method has a word, and begins with its defaults.
/// assert_eq!("btprop".parse(), Ok(MethodConfig::Btprop(BtpropConfig::default())));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum MethodConfig {
    /// Truncated back-propagation through time.
    Bptt(BpttConfig),
    /// Block target propagation.
    Btprop(BtpropConfig),
    /// Target propagation with closed-form steps.
    LeastSquares(LeastSquaresConfig),
}

words! {
    MethodConfig {
        "bptt" => Bptt(BpttConfig::default()),
        "btprop" => Btprop(BtpropConfig::default()),
        "least_squares" => LeastSquares(LeastSquaresConfig::default()),
    }
}

impl Default for MethodConfig {
    fn default() -> Self {
        MethodConfig::Bptt(BpttConfig::default())
    }
}

/// What is known of a method before it is built. Each method implements it for its configuration, in its own file; the program's
/// checks, estimates and plans ask nothing else.
pub trait Outline {
    /// Streams side by side.
    fn streams(&self) -> usize;

    /// B: steps of a block.
    fn block(&self) -> usize;

    /// When θ is updated.
    fn batch(&self) -> Batch;

    /// The smallest window that can be worked on: fields of the configuration, whose product is its length in tokens.
    fn least_window(&self) -> Vec<(&'static str, usize)>;

    /// Blocks of a window and windows of an epoch, in streams of so many tokens.
    fn windows(&self, length: usize) -> (usize, usize);

    /// The passes of one window.
    fn passes(&self) -> Passes;

    /// The same without what ranks do in turn ([`Passes::sequential`]).
    fn without_turns(&self) -> Self
    where
        Self: Sized;

    /// Bytes of tapes and states for a training split of so many tokens, on the rank that has the most of them.
    fn bytes<T: Real>(&self, model: &Model<T>, tokens: usize, ranks: usize) -> u64;

    /// The method, planned for a training split.
    ///
    /// # Errors
    /// If something does not fit.
    fn build<T: Real>(&self, learner: &Learner<T>) -> Result<Box<dyn Method<T>>, MethodError>;

    /// Tokens of the shortest training split that can be worked on: one window, and the token behind it.
    fn least_tokens(&self) -> usize {
        self.least_window().iter().fold(1, |n: usize, (_, part)| n.saturating_mul(*part)).saturating_add(1)
    }
}

/// How often the parts of the block pass run in a window; arithmetic and messages follow from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    /// Blocks, not streams, are dealt to ranks.
    pub blocks_are_dealt: bool,
    /// Forward through the recurrence alone, to find the starts.
    pub sweeps: usize,
    /// The starts are found block after block, so that ranks take turns.
    pub sequential: bool,
    /// Passes for the states alone.
    pub state_passes: usize,
    /// They run back through the recurrence alone, because no start moves.
    pub starts_held: bool,
    /// Passes for θ, perhaps with the states.
    pub theta_passes: usize,
    /// How often states move; ranks exchange boundaries each time.
    pub state_moves: usize,
    /// The size of each move is asked from all ranks.
    pub moves_are_measured: bool,
    /// Forward through the recurrence alone, to find the residuals.
    pub dual_passes: usize,
}

impl From<BpttConfig> for MethodConfig {
    fn from(config: BpttConfig) -> Self {
        MethodConfig::Bptt(config)
    }
}

impl From<BtpropConfig> for MethodConfig {
    fn from(config: BtpropConfig) -> Self {
        MethodConfig::Btprop(config)
    }
}

impl From<LeastSquaresConfig> for MethodConfig {
    fn from(config: LeastSquaresConfig) -> Self {
        MethodConfig::LeastSquares(config)
    }
}

/// The same question to whatever configuration it is.
macro_rules! outline {
    ($method:expr, $config:ident => $answer:expr) => {
        match $method {
            MethodConfig::Bptt($config) => $answer,
            MethodConfig::Btprop($config) => $answer,
            MethodConfig::LeastSquares($config) => $answer,
        }
    };
}

impl Outline for MethodConfig {
    fn streams(&self) -> usize {
        outline!(self, c => c.streams())
    }
    fn block(&self) -> usize {
        outline!(self, c => c.block())
    }
    fn batch(&self) -> Batch {
        outline!(self, c => c.batch())
    }
    fn least_window(&self) -> Vec<(&'static str, usize)> {
        outline!(self, c => c.least_window())
    }
    fn windows(&self, length: usize) -> (usize, usize) {
        outline!(self, c => c.windows(length))
    }
    fn passes(&self) -> Passes {
        outline!(self, c => c.passes())
    }
    fn without_turns(&self) -> Self {
        outline!(self, c => c.without_turns().into())
    }
    fn bytes<T: Real>(&self, model: &Model<T>, tokens: usize, ranks: usize) -> u64 {
        outline!(self, c => c.bytes(model, tokens, ranks))
    }
    fn build<T: Real>(&self, learner: &Learner<T>) -> Result<Box<dyn Method<T>>, MethodError> {
        outline!(self, c => c.build(learner))
    }
}

/// What all methods work on.
#[derive(Debug)]
pub struct Learner<'a, T> {
    /// Shape.
    pub model: &'a Model<T>,
    /// θ
    pub params: Params<T>,
    /// Updates θ.
    pub optimiser: Optimiser<T>,
    /// Other ranks.
    pub comm: &'a dyn Comm,
    /// The training split.
    pub tokens: Text<'a>,
}

impl<'a, T: Real> Learner<'a, T> {
    /// The training split in streams.
    pub fn streams(&self, n: usize) -> Streams<'a> {
        Streams::new(self.tokens, n)
    }
}

/// What one θ update saw. Sums; means are made at the edge.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Update {
    /// Nats of all tokens, at the weights before the update.
    pub nats: f64,
    /// Number of tokens.
    pub tokens: u64,
    /// Global norm of the gradient before clipping.
    pub norm: f64,
    /// The coupling between blocks.
    pub coupling: Option<Coupling>,
}

/// Sums about the coupling of one or more windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coupling {
    /// Windows summed up.
    pub windows: f64,
    /// Σ L over windows.
    pub objective: f64,
    /// Σ ‖Δs‖ over states and the state steps of the windows.
    pub moved: f64,
    /// Sweeps that found the starts.
    pub sweeps: f64,
    /// The rest; its penalty is the sum of the windows' mean C_k.
    pub sums: CouplingSums,
}

impl Coupling {
    /// Adds another one's sums.
    pub fn add(&mut self, other: &Self) {
        self.windows += other.windows;
        self.objective += other.objective;
        self.moved += other.moved;
        self.sweeps += other.sweeps;
        self.sums.add(&other.sums);
    }
}

/// What [`Method::advance`] came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advance {
    /// θ was updated.
    Update(Update),
    /// The epoch's windows are used up.
    EpochEnd,
    /// Asked to pause in the middle of an update; call again to continue from there.
    Paused,
    /// The gradient is not finite. The last step of θ was not made; with several of them per update, earlier ones were.
    Diverged {
        /// What was seen.
        norm: f64,
        /// Nats per token of the window.
        nats_per_token: f64,
    },
}

/// A training method. It holds everything that shapes its future and shows it to a [`Visit`].
pub trait Method<T: Real>: Send + std::fmt::Debug {
    /// A new epoch (from 1): the text begins again.
    fn begin_epoch(&mut self, learner: &Learner<T>, epoch: usize);

    /// Works until one update is done, the epoch ends, or `pause` (asked between chunks of work) returns true.
    fn advance(&mut self, learner: &mut Learner<T>, pause: &mut dyn FnMut() -> bool) -> Advance;

    /// Nats of the last update by position in the block.
    fn nats_by_position(&self) -> &[f64];

    /// Updates of one epoch.
    fn updates_per_epoch(&self) -> usize;

    /// Tokens of one epoch.
    fn tokens_per_epoch(&self) -> u64;

    /// λ of the present epoch, if the method has one.
    fn lambda(&self) -> Option<f64> {
        None
    }

    /// States of a window, of all streams and ranks, that state steps may move.
    fn movable_states(&self) -> usize {
        0
    }

    /// Whether the number of sweeps that find a window's starts depends on the window, so that it is worth recording.
    fn sweeps_vary(&self) -> bool {
        false
    }

    /// Shows or restores the whole state.
    fn visit(&mut self, visit: &mut dyn Visit<T>);

    /// Whether a restored state is one that the method can be in; its numbers by themselves are known to be in range.
    ///
    /// # Errors
    /// What cannot be.
    fn check_restored(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Time and arithmetic so far.
    fn clock(&mut self) -> &mut crate::clock::Clock;
}
