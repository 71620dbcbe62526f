//! Training methods. Each turns windows of tokens into updates of θ by the block pass of [`crate::model`] alone.
//!
//! To add one: a file here that implements [`Method`], a variant of [`MethodConfig`] with its configuration, its arms in `config.rs` and in
//! [`memory`], its settings in the program, its identity with a known method in `tests/identities.rs`.

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
    /// The rest; its penalty is the sum of the windows' mean C_k.
    pub sums: CouplingSums,
}

impl Coupling {
    /// Adds another one's sums.
    pub fn add(&mut self, other: &Self) {
        self.windows += other.windows;
        self.objective += other.objective;
        self.moved += other.moved;
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

    /// Shows or restores the whole state.
    fn visit(&mut self, visit: &mut dyn Visit<T>);

    /// Time and arithmetic so far.
    fn clock(&mut self) -> &mut crate::clock::Clock;
}
