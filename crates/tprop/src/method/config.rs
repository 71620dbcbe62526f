//! What a user chooses of a method: one configuration each, choices as enums that carry their own settings.

use std::fmt;
use std::str::FromStr;

use crate::objective::{Constraint, Penalty};
use crate::words;
use crate::words::WordError;

/// When θ is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// After each window, or after each `accumulate` windows.
    Mini {
        /// Windows per update.
        accumulate: usize,
    },
    /// Once per pass over the corpus.
    Full,
}

words! { Batch { "mini" => Mini { accumulate: 1 }, "full" => Full } }

impl Default for Batch {
    fn default() -> Self {
        Batch::Mini { accumulate: 1 }
    }
}

/// Truncated BPTT.
#[derive(Clone, Debug, PartialEq)]
pub struct BpttConfig {
    /// K: steps of a window.
    pub window: usize,
    /// Streams side by side.
    pub streams: usize,
    /// Windows per update.
    pub batch: Batch,
}

impl Default for BpttConfig {
    fn default() -> Self {
        Self { window: 20, streams: 32, batch: Batch::default() }
    }
}

/// Block target propagation: free states every B steps, tied to the recurrence by a penalty and perhaps duals.
///
/// The default is ADMM with one step of states, θ and duals for each window.
///
/// ```
/// use tprop::method::{BtpropConfig, Init, Solver, StateConfig};
/// let penalty = BtpropConfig {
///     block: 10,
///     blocks: 8,
///     streams: 4,
///     solver: Solver::Penalty,
///     lambda: 0.5,
///     init: Init::Sequential,
///     states: StateConfig { steps: 3, ..StateConfig::default() },
///     ..BtpropConfig::default()
/// };
/// assert_ne!(penalty, BtpropConfig::default());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BtpropConfig {
    /// B: steps of a block; 1 is TPROP.
    pub block: usize,
    /// M: consecutive blocks of a window (in batch mode the whole corpus is one window).
    pub blocks: usize,
    /// S: streams side by side.
    pub streams: usize,
    /// Windows per update, or the whole corpus.
    pub batch: Batch,
    /// Order of updates and duals.
    pub solver: Solver,
    /// λ at the beginning.
    pub lambda: f64,
    /// How λ moves.
    pub lambda_schedule: LambdaSchedule,
    /// D_k
    pub penalty: Penalty,
    /// Where states may be.
    pub constraint: Constraint,
    /// Which state the loss looks at.
    pub loss: LossOn,
    /// Where a window's states come from.
    pub init: Init,
    /// Which recursions over blocks are solved with diagonals in place of Jacobians.
    pub scan: Scan,
    /// No further sweep once one has changed the starts by less than this, relatively; 0 is off.
    pub sweep_tolerance: f64,
    /// What the pulls of a window begin with.
    pub pulls: Pulls,
    /// Whether the first block's start may move.
    pub first: First,
    /// What the last block is tied to.
    pub last: Last,
    /// How states are updated.
    pub states: StateConfig,
    /// Whether starts move with the targets.
    pub starts: Starts,
    /// θ steps per window.
    pub theta_steps: usize,
    /// A vocabulary item without weight in the loss.
    pub ignore: Ignore,
    /// Exchanges by which boundary states of other ranks may lag.
    pub staleness: usize,
}

impl Default for BtpropConfig {
    fn default() -> Self {
        Self {
            block: 20,
            blocks: 32,
            streams: 1,
            batch: Batch::default(),
            solver: Solver::default(),
            lambda: 0.1,
            lambda_schedule: LambdaSchedule::Constant,
            penalty: Penalty::L2,
            constraint: Constraint::None,
            loss: LossOn::Predicted,
            init: Init::Parallel { sweeps: 1 },
            scan: Scan::None,
            sweep_tolerance: 0.0,
            pulls: Pulls::Reset,
            first: First::Fixed,
            last: Last::None,
            states: StateConfig::default(),
            starts: Starts::Moving,
            theta_steps: 1,
            ignore: Ignore::None,
            staleness: 0,
        }
    }
}

impl BtpropConfig {
    /// Block-parallel BPTT: exact starts that are held, and so many plain state steps with ηλ = 1. The gradient is that of BPTT in
    /// which each block's loss flows back through `steps` blocks before its own.
    ///
    /// ```
    /// use tprop::method::{BtpropConfig, Starts};
    /// let config = BtpropConfig { block: 5, blocks: 4, streams: 8, ..BtpropConfig::reach(2) };
    /// assert_eq!(config.states.rate * config.lambda, 1.0);
    /// assert_eq!((config.starts, config.states.steps), (Starts::Held, 2));
    /// ```
    pub fn reach(steps: usize) -> Self {
        Self {
            solver: Solver::Penalty,
            lambda: 1.0,
            init: Init::Sequential,
            first: First::Fixed,
            last: Last::None,
            starts: Starts::Held,
            states: StateConfig { steps, rate: 1.0, rule: StateRule::Sgd, ..StateConfig::default() },
            ..Self::default()
        }
    }

    /// The whole window's gradient with nothing sequential beyond a block: [`BtpropConfig::reach`] of so many steps whose starts and pulls
    /// are both scanned. Starts begin at the window's first and take sweeps until one changes them by less than 2 %, at most six.
    ///
    /// ```
    /// use tprop::method::{BtpropConfig, Init, Scan};
    /// let config = BtpropConfig { block: 20, blocks: 32, streams: 1, ..BtpropConfig::scan(1) };
    /// assert_eq!((config.scan, config.init), (Scan::Both, Init::Carried { sweeps: 6 }));
    /// ```
    pub fn scan(steps: usize) -> Self {
        Self { scan: Scan::Both, init: Init::Carried { sweeps: 6 }, sweep_tolerance: 0.02, ..Self::reach(steps) }
    }

    /// Whether blocks' diagonals are needed.
    pub(super) fn needs_diagonals(&self) -> bool {
        self.scan.starts() || self.scan.pulls() || self.states.rule == StateRule::Newton
    }

    /// Whether targets begin where the blocks end, so that the first pull is 0 or what was stored: held starts that are not exact would
    /// otherwise be trained on their own error.
    pub(super) fn aims_at_ends(&self) -> bool {
        self.starts == Starts::Held && (self.init != Init::Sequential || self.pulls == Pulls::Stored)
    }
}

/// Which recursions over blocks are solved with the blocks' diagonals in place of their Jacobians, in one scan, instead of by one block a
/// sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// None.
    None,
    /// The starts, after each sweep of the init.
    Starts,
    /// The pulls, in each state step.
    Pulls,
    /// Starts and pulls.
    Both,
}

words! { Scan { "none" => None, "starts" => Starts, "pulls" => Pulls, "both" => Both } }

impl Scan {
    /// Whether starts are scanned.
    pub fn starts(self) -> bool {
        matches!(self, Scan::Starts | Scan::Both)
    }

    /// Whether pulls are scanned.
    pub fn pulls(self) -> bool {
        matches!(self, Scan::Pulls | Scan::Both)
    }
}

/// What the pulls of a window begin with (held starts).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulls {
    /// 0.
    Reset,
    /// What the last epoch left, so that gradients cross windows.
    Stored,
}

words! { Pulls { "reset" => Reset, "stored" => Stored } }

/// A vocabulary item without weight in the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignore {
    /// None: every token counts.
    None,
    /// The one that the training text begins with, as in the release.
    First,
    /// This one.
    Token(u32),
}

words! { Ignore: "none" | "first" | "N" }

impl FromStr for Ignore {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        match text {
            "none" => Ok(Ignore::None),
            "first" => Ok(Ignore::First),
            n => n.parse().map(Ignore::Token).map_err(|_| WordError::Unknown),
        }
    }
}

impl fmt::Display for Ignore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ignore::None => f.write_str("none"),
            Ignore::First => f.write_str("first"),
            Ignore::Token(n) => write!(f, "{n}"),
        }
    }
}

/// Order of updates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Solver {
    /// States, then θ; no duals.
    Penalty,
    /// States, θ, duals (or duals before θ).
    Admm {
        /// The duals.
        duals: DualConfig,
        /// The release's order: states, duals, θ.
        before_theta: bool,
    },
    /// States and θ together, then duals.
    Alm {
        /// The duals.
        duals: DualConfig,
        /// Joint steps per window.
        joint_steps: usize,
    },
}

words! {
    Solver {
        "admm" => Admm { duals: DualConfig::default(), before_theta: false },
        "penalty" => Penalty,
        "alm" => Alm { duals: DualConfig::default(), joint_steps: Self::JOINT_STEPS },
    }
}

impl Default for Solver {
    fn default() -> Self {
        Solver::Admm { duals: DualConfig::default(), before_theta: false }
    }
}

impl Solver {
    /// Joint steps that [`Solver::Alm`] begins with.
    pub const JOINT_STEPS: usize = 1;

    /// The duals, if the solver has any.
    pub fn duals(&self) -> Option<&DualConfig> {
        match self {
            Solver::Penalty => None,
            Solver::Admm { duals, .. } | Solver::Alm { duals, .. } => Some(duals),
        }
    }
}

/// How duals move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DualConfig {
    /// α
    pub rate: f64,
    /// The rule.
    pub rule: DualRule,
    /// First epoch (from 1) in which they move.
    pub start_epoch: usize,
    /// Kept from epoch to epoch (always so in batch mode), or 0 at the beginning of each window.
    pub stored: bool,
}

impl Default for DualConfig {
    fn default() -> Self {
        Self { rate: 0.1, rule: DualRule::Scaled, start_epoch: 1, stored: false }
    }
}

/// How a dual follows its residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DualRule {
    /// u ← u + α r
    Scaled,
    /// u ← u + α λ (r + u)
    Gradient,
    /// u ← u + α λ r / (S·M), as the release does.
    Mean,
}

words! { DualRule { "scaled" => Scaled, "gradient" => Gradient, "mean" => Mean } }

/// How λ moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LambdaSchedule {
    /// Not at all.
    Constant,
    /// Times this factor after each epoch.
    Geometric(f64),
    /// After each epoch, up or down by the factor when the residual and the movement of the states differ more than
    /// tenfold (residual balancing); scaled duals are rescaled with it.
    Balance(f64),
}

words! { LambdaSchedule: "constant" | "geometric:F" | "balance" | "balance:F" }

/// Factor of `balance` without one of its own.
const BALANCE: f64 = 2.0;

impl FromStr for LambdaSchedule {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        Ok(match words::split(text) {
            ("constant", None) => LambdaSchedule::Constant,
            ("geometric", Some(f)) => LambdaSchedule::Geometric(words::number(f, 1e-3, 1e3)?),
            ("balance", None) => LambdaSchedule::Balance(BALANCE),
            ("balance", Some(f)) => LambdaSchedule::Balance(words::number(f, 1.0001, 1e3)?),
            _ => return Err(WordError::Unknown),
        })
    }
}

impl fmt::Display for LambdaSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LambdaSchedule::Constant => f.write_str("constant"),
            LambdaSchedule::Geometric(factor) => write!(f, "geometric:{factor}"),
            LambdaSchedule::Balance(BALANCE) => f.write_str("balance"),
            LambdaSchedule::Balance(factor) => write!(f, "balance:{factor}"),
        }
    }
}

/// Which state the loss looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossOn {
    /// ĥ, what the recurrence predicts.
    Predicted,
    /// The free state itself (B = 1 only).
    Free,
}

words! { LossOn { "predicted" => Predicted, "free" => Free } }

/// Where a window's states come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// The initial state everywhere.
    Zero,
    /// Sweeps over all blocks at once, the first from the initial state.
    Parallel {
        /// Number of sweeps.
        sweeps: usize,
    },
    /// Sweeps from the states that the last epoch left.
    Stored {
        /// Number of sweeps; 0 takes the states as they are.
        sweeps: usize,
    },
    /// Sweeps from the state in which the window begins, for every block.
    Carried {
        /// Number of sweeps.
        sweeps: usize,
    },
    /// Block after block: exact.
    Sequential,
}

impl Init {
    /// Sweeps over all blocks at once.
    pub fn sweeps(self) -> usize {
        match self {
            Init::Zero | Init::Sequential => 0,
            Init::Parallel { sweeps } | Init::Stored { sweeps } | Init::Carried { sweeps } => sweeps,
        }
    }
}

words! { Init: "zero" | "parallel:N" | "stored:N" | "carried:N" | "sequential" }

impl FromStr for Init {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let sweeps = |n, least| words::number::<u32>(n, least, 1_000_000).map(|n| n as usize);
        Ok(match words::split(text) {
            ("zero", None) => Init::Zero,
            ("parallel", Some(n)) => Init::Parallel { sweeps: sweeps(n, 1)? },
            ("stored", Some(n)) => Init::Stored { sweeps: sweeps(n, 0)? },
            ("carried", Some(n)) => Init::Carried { sweeps: sweeps(n, 1)? },
            ("sequential", None) => Init::Sequential,
            _ => return Err(WordError::Unknown),
        })
    }
}

impl fmt::Display for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Init::Zero => f.write_str("zero"),
            Init::Parallel { sweeps } => write!(f, "parallel:{sweeps}"),
            Init::Stored { sweeps } => write!(f, "stored:{sweeps}"),
            Init::Carried { sweeps } => write!(f, "carried:{sweeps}"),
            Init::Sequential => f.write_str("sequential"),
        }
    }
}

/// Whether the first block's start may move in the state steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// It stays the end state carried from the window before.
    Fixed,
    /// It moves, as in the release.
    Free,
}

words! { First { "fixed" => Fixed, "free" => Free } }

/// What the last block of a window is tied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// Nothing.
    None,
    /// 0.
    Zero,
    /// A target that begins at 0 and moves, as in the release.
    Free0,
}

words! { Last { "none" => None, "zero" => Zero, "free0" => Free0 } }

/// Whether starts move with the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// One variable is both (the paper).
    Moving,
    /// Starts stay where the init put them; only targets move. With `sequential` and ηλ = 1, n state steps make the
    /// gradient that of BPTT reaching n blocks back.
    Held,
}

words! { Starts { "moving" => Moving, "held" => Held } }

/// How states are updated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateConfig {
    /// Steps per window.
    pub steps: usize,
    /// η
    pub rate: f64,
    /// The rule.
    pub rule: StateRule,
    /// Gradient per block, S·M·∂L/∂s, or ∂L/∂s as it is.
    pub scale: StateScale,
    /// Largest norm of a block's gradient; 0 is off.
    pub clip: f64,
    /// Stop the steps of a window once the states move less than this (root mean square); 0 is off.
    pub tolerance: f64,
}

impl Default for StateConfig {
    fn default() -> Self {
        Self { steps: 1, rate: 0.1, rule: StateRule::Sgd, scale: StateScale::Block, clip: 0.0, tolerance: 0.0 }
    }
}

/// Update rule of the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateRule {
    /// Plain gradient steps.
    Sgd,
    /// Adagrad; its accumulator is fresh in each minibatch and carried over in batch mode.
    Adagrad,
    /// The minimum of the quadratic model with the blocks' diagonals in place of their Jacobians, and the exact gradient: one
    /// tridiagonal system a unit.
    Newton,
}

words! { StateRule { "sgd" => Sgd, "adagrad" => Adagrad, "newton" => Newton } }

/// Which gradient the state rule sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateScale {
    /// S·M·∂L/∂s: a step does not shrink with the number of blocks.
    Block,
    /// ∂L/∂s
    Mean,
}

words! { StateScale { "block" => Block, "mean" => Mean } }
