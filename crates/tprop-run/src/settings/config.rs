//! What settings resolve to: the library's own configurations side by side, and the few values that only the program needs.
//!
//! Where the library has a choice that carries its own settings (a solver with its duals), the choice and what it carries stand side by
//! side here, so that each has a value whatever was chosen; the methods of [`Settings`] put them together.

use tprop::cell::Activation;
use tprop::corpus::{CorpusConfig, SynthConfig};
use tprop::kernel::Path as Simd;
use tprop::method::{
    Batch, BpttConfig, BtpropConfig, DualConfig, LeastSquaresConfig, LeastSquaresDuals, MethodConfig, Outline,
    ProximalConfig, Solver, StateConfig,
};
use tprop::model::ModelConfig;
use tprop::optim::{OptimConfig, Rule};
use tprop::train::TrainConfig;

use super::Settings;

/// A value for every setting. The names of its fields, dotted, are the `path` of a row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where the text comes from and how it is cut.
    pub corpus: CorpusConfig,
    /// The built-in language.
    pub synth: SynthConfig,
    /// The model; its vocabulary is the one of `bench`, which reads no text.
    pub model: ModelConfig,
    /// Of the Elman cell.
    pub activation: Activation,
    /// How to train; of the method and of the rule only which one.
    pub train: TrainConfig,
    /// ε of the update rule.
    pub eps: f64,
    /// Streams of the method.
    pub streams: usize,
    /// When θ is updated.
    pub batch: Batch,
    /// Windows per update.
    pub accumulate: usize,
    /// BPTT.
    pub bptt: BpttConfig,
    /// BTPROP; of its solvers only which one.
    pub btprop: BtpropConfig,
    /// The solver's duals.
    pub duals: DualConfig,
    /// The order of ADMM.
    pub before_theta: bool,
    /// Steps of ALM.
    pub joint_steps: usize,
    /// BTPROP by gradient steps, or the older spelling of least squares.
    pub theta_solver: ThetaSolver,
    /// Ridge of least squares.
    pub ridge: f64,
    /// Threads; none for all cores.
    pub threads: Option<usize>,
    /// The vector instructions to insist on.
    pub simd: Option<Simd>,
    /// What to do with a run that diverges.
    pub on_divergence: OnDivergence,
    /// When checkpoints are written.
    pub checkpoint: Checkpointing,
    /// Shares in which sums are made, if a number was asked for.
    pub shares: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            corpus: CorpusConfig::default(),
            synth: SynthConfig::default(),
            model: ModelConfig::default(),
            activation: Activation::default(),
            train: TrainConfig::default(),
            eps: usual_eps(Rule::default()),
            streams: MethodConfig::default().streams(),
            batch: Batch::default(),
            accumulate: 1,
            bptt: BpttConfig::default(),
            btprop: BtpropConfig::default(),
            duals: DualConfig::default(),
            before_theta: false,
            joint_steps: Solver::JOINT_STEPS,
            theta_solver: ThetaSolver::Gradient,
            ridge: LeastSquaresConfig::default().ridge,
            threads: None,
            simd: None,
            on_divergence: OnDivergence::Stop,
            checkpoint: Checkpointing { every_minutes: Some(5.0), every_steps: None, keep: 3 },
            shares: None,
        }
    }
}

/// The ε that a rule begins with; rules without one ignore it.
pub fn usual_eps(rule: Rule) -> f64 {
    rule.eps().unwrap_or(1e-8)
}

/// How BTPROP updates θ; only the first is a choice of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThetaSolver {
    /// By the optimiser.
    Gradient,
    /// `method=least_squares`, as it was once written.
    LeastSquares,
}

tprop::words! { ThetaSolver { "gradient" => Gradient, "least_squares" => LeastSquares } }

/// What to do with a run that diverges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDivergence {
    /// It ends.
    Stop,
    /// It goes back to its last checkpoint and continues with a smaller learning rate.
    Rollback,
}

tprop::words! { OnDivergence { "stop" => Stop, "rollback" => Rollback } }

/// When checkpoints are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checkpointing {
    /// Minutes between them; none if only evaluations count.
    pub every_minutes: Option<f64>,
    /// Updates between them.
    pub every_steps: Option<u64>,
    /// How many of the last are kept.
    pub keep: usize,
}

impl Settings {
    /// Where the text comes from and how it is cut.
    pub fn corpus(&self) -> CorpusConfig {
        self.config.corpus.clone()
    }

    /// The built-in language.
    pub fn synth(&self) -> SynthConfig {
        self.config.synth.clone()
    }

    /// The model over a vocabulary of this size.
    pub fn model(&self, vocab: usize) -> ModelConfig {
        let cell = self.config.model.cell.with_activation(self.config.activation);
        ModelConfig { vocab, cell, ..self.config.model.clone() }
    }

    /// The method with its own settings.
    pub fn method(&self) -> MethodConfig {
        let c = &self.config;
        let streams = c.streams;
        let batch = match c.batch {
            Batch::Mini { .. } => Batch::Mini { accumulate: c.accumulate },
            Batch::Full => Batch::Full,
        };
        match (&c.train.method, c.theta_solver) {
            (MethodConfig::Bptt(_), _) => MethodConfig::Bptt(BpttConfig { streams, batch, ..c.bptt.clone() }),
            (MethodConfig::Btprop(_), ThetaSolver::Gradient) => {
                let solver = match c.btprop.solver {
                    Solver::Penalty => Solver::Penalty,
                    Solver::Admm { .. } => Solver::Admm { duals: c.duals, before_theta: c.before_theta },
                    Solver::Alm { .. } => Solver::Alm { duals: c.duals, joint_steps: c.joint_steps },
                };
                MethodConfig::Btprop(BtpropConfig { streams, batch, solver, ..c.btprop.clone() })
            }
            (MethodConfig::Btprop(_), ThetaSolver::LeastSquares) | (MethodConfig::LeastSquares(_), _) => {
                let StateConfig { steps, rate, scale, tolerance, .. } = c.btprop.states;
                MethodConfig::LeastSquares(LeastSquaresConfig {
                    blocks: c.btprop.blocks,
                    streams,
                    batch,
                    duals: match c.btprop.solver {
                        Solver::Penalty => None,
                        // The checks refuse joint steps.
                        Solver::Admm { .. } | Solver::Alm { .. } => {
                            Some(LeastSquaresDuals { duals: c.duals, before_theta: c.before_theta })
                        }
                    },
                    lambda: c.btprop.lambda,
                    lambda_schedule: c.btprop.lambda_schedule,
                    init: c.btprop.init,
                    first: c.btprop.first,
                    last: c.btprop.last,
                    states: ProximalConfig { steps, rate, scale, tolerance },
                    theta_steps: c.btprop.theta_steps,
                    ridge: c.ridge,
                    ignore: c.btprop.ignore,
                })
            }
        }
    }

    /// Whether least squares was asked for by its older name.
    pub fn old_least_squares(&self) -> bool {
        matches!(self.config.train.method, MethodConfig::Btprop(_))
            && self.config.theta_solver == ThetaSolver::LeastSquares
    }

    /// How the weights are updated.
    pub fn optim(&self) -> OptimConfig {
        let optim = self.config.train.optim;
        OptimConfig { rule: optim.rule.with_eps(self.config.eps), ..optim }
    }

    /// How to train.
    pub fn train(&self) -> TrainConfig {
        TrainConfig { method: self.method(), optim: self.optim(), ..self.config.train.clone() }
    }

    /// Shares in which sums are made, if a number was asked for.
    pub fn shares(&self) -> Option<usize> {
        self.config.shares
    }

    /// Vocabulary of the random text of `bench`.
    pub fn bench_vocab(&self) -> usize {
        self.config.model.vocab
    }

    /// λ, whether or not the method has one.
    pub fn lambda(&self) -> f64 {
        self.config.btprop.lambda
    }

    /// Streams of evaluations.
    pub fn eval_streams(&self) -> usize {
        self.config.train.eval_streams
    }

    /// Threads; none for all cores.
    pub fn threads(&self) -> Option<usize> {
        self.config.threads
    }

    /// The vector instructions to insist on.
    pub fn simd(&self) -> Option<Simd> {
        self.config.simd
    }

    /// Whether a diverged run goes back to its last checkpoint with a smaller learning rate.
    pub fn rolls_back(&self) -> bool {
        self.config.on_divergence == OnDivergence::Rollback
    }

    /// When checkpoints are written.
    pub fn checkpointing(&self) -> Checkpointing {
        self.config.checkpoint
    }

    /// A name for the run's directory: the cell, its size and the method.
    pub fn short_name(&self) -> String {
        let model = &self.config.model;
        let layers = match model.layers {
            1 => String::new(),
            n => format!("x{n}"),
        };
        let method = self.preset.unwrap_or(self.config.train.method.name());
        format!("{}{}{layers}-{method}", model.cell, model.hidden)
    }
}
