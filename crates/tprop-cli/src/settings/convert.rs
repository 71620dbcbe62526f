//! From settings to what the library takes.

use std::path::PathBuf;

use tprop::cell::{Activation, CellKind};
use tprop::corpus::{CorpusConfig, Level, SynthConfig, VocabFrom};
use tprop::kernel::Path as Simd;
use tprop::method::{
    Batch, BpttConfig, BtpropConfig, DualConfig, DualRule, First, Last, LeastSquaresConfig, LeastSquaresDuals, LossOn,
    MethodConfig, ProximalConfig, Solver, Starts, StateConfig, StateRule, StateScale,
};
use tprop::model::ModelConfig;
use tprop::objective::{Direction, Penalty};
use tprop::optim::{OptimConfig, Rule};
use tprop::train::TrainConfig;

use super::Settings;
use super::form;
use super::table::BUILT_IN;

/// A word that the table let through but no arm below knows is a mistake of ours.
fn stray(name: &str, word: &str) -> ! {
    panic!("{name} = {word} is in the table but means nothing")
}

/// When checkpoints are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checkpointing {
    /// Seconds between them; none if only evaluations count.
    pub every_seconds: Option<f64>,
    /// Updates between them.
    pub every_steps: Option<u64>,
    /// How many of the last are kept.
    pub keep: usize,
}

impl Settings {
    /// Where the text comes from and how it is cut.
    pub fn corpus(&self) -> CorpusConfig {
        let v = &self.values;
        let or_none = |n: usize| (n > 0).then_some(n);
        let text = |name| Some(v.word(name)).filter(|word| !word.is_empty()).map(str::to_owned);
        CorpusConfig {
            source: text("data.source").filter(|source| source != BUILT_IN),
            data_dir: text("data.dir").map(PathBuf::from),
            level: match v.word("data.level") {
                "word" => Level::Word,
                "char" => Level::Char,
                "byte" => Level::Byte,
                other => stray("data.level", other),
            },
            eos: match v.word("data.eos") {
                "auto" => None,
                word => Some(word == "true"),
            },
            underscores: None,
            min_count: form::count_unless(v.word("data.min_count"), "auto").expect("checked by the table"),
            max_vocab: or_none(v.size("data.max_vocab")),
            vocab_from: if v.word("data.vocab_from") == "all" { VocabFrom::All } else { VocabFrom::Train },
            max_tokens: or_none(v.size("data.max_tokens")),
        }
    }

    /// The built-in language.
    pub fn synth(&self) -> SynthConfig {
        let v = &self.values;
        SynthConfig { vocab: v.size("synth.vocab"), tokens: v.size("synth.tokens"), seed: v.count("synth.seed") }
    }

    /// The model over a vocabulary of this size.
    pub fn model(&self, vocab: usize) -> ModelConfig {
        let v = &self.values;
        let activation = if v.word("model.activation") == "sigmoid" { Activation::Sigmoid } else { Activation::Tanh };
        ModelConfig {
            cell: cell(v.word("model.cell"), activation).unwrap_or_else(|| stray("model.cell", v.word("model.cell"))),
            hidden: v.size("model.hidden"),
            embed: v.size("model.embed"),
            layers: v.size("model.layers"),
            tied: v.flag("model.tied"),
            init: v.real("model.init"),
            ..ModelConfig::new(vocab)
        }
    }

    /// The method with its own settings.
    pub fn method(&self) -> MethodConfig {
        let v = &self.values;
        let streams = v.size("train.streams");
        let batch = match v.word("train.batch") {
            "full" => Batch::Full,
            _ => Batch::Mini { accumulate: v.size("train.accumulate") },
        };
        match v.word("method") {
            "bptt" => MethodConfig::Bptt(BpttConfig { window: v.size("bptt.window"), streams, batch }),
            _ => self.btprop_or_least_squares(self.btprop(streams, batch)),
        }
    }

    /// The older spelling of a method of its own; what that one cannot honour is refused by the checks.
    fn btprop_or_least_squares(&self, c: BtpropConfig) -> MethodConfig {
        if self.values.word("btprop.theta_solver") != "least_squares" {
            return MethodConfig::Btprop(c);
        }
        let StateConfig { steps, rate, scale, tolerance, .. } = c.states;
        MethodConfig::LeastSquares(LeastSquaresConfig {
            blocks: c.blocks,
            streams: c.streams,
            batch: c.batch,
            duals: match c.solver {
                Solver::Admm { duals, before_theta } => Some(LeastSquaresDuals { duals, before_theta }),
                Solver::Penalty | Solver::Alm { .. } => None,
            },
            lambda: c.lambda,
            lambda_schedule: c.lambda_schedule,
            init: c.init,
            first: c.first,
            last: c.last,
            states: ProximalConfig { steps, rate, scale, tolerance },
            theta_steps: c.theta_steps,
            ridge: self.values.real("btprop.ridge"),
            ignore: c.ignore,
        })
    }

    fn btprop(&self, streams: usize, batch: Batch) -> BtpropConfig {
        let v = &self.values;
        BtpropConfig {
            block: v.size("btprop.block"),
            blocks: v.size("btprop.blocks"),
            streams,
            batch,
            solver: self.solver(),
            lambda: v.real("btprop.lambda"),
            lambda_schedule: form::lambda_schedule(v.word("btprop.lambda_schedule")).expect("checked by the table"),
            penalty: match v.word("btprop.penalty") {
                "l2" => Penalty::L2,
                "kl" => Penalty::Kl(Direction::Forward),
                "kl-reverse" => Penalty::Kl(Direction::Reverse),
                "l2+kl" => Penalty::L2Kl(Direction::Forward),
                "l2+kl-reverse" => Penalty::L2Kl(Direction::Reverse),
                other => stray("btprop.penalty", other),
            },
            constraint: form::constraint(v.word("btprop.constraint")).expect("checked by the table"),
            loss: if v.word("btprop.loss") == "free" { LossOn::Free } else { LossOn::Predicted },
            init: form::init(v.word("btprop.init")).expect("checked by the table"),
            first: if v.word("btprop.first") == "free" { First::Free } else { First::Fixed },
            last: match v.word("btprop.last") {
                "none" => Last::None,
                "zero" => Last::Zero,
                "free0" => Last::Free0,
                other => stray("btprop.last", other),
            },
            states: StateConfig {
                steps: v.size("btprop.state_steps"),
                rate: v.real("btprop.state_lr"),
                rule: if v.word("btprop.state_optim") == "adagrad" { StateRule::Adagrad } else { StateRule::Sgd },
                scale: if v.word("btprop.state_scale") == "mean" { StateScale::Mean } else { StateScale::Block },
                clip: v.real("btprop.state_clip"),
                tolerance: v.real("btprop.state_tol"),
            },
            starts: if v.word("btprop.starts") == "held" { Starts::Held } else { Starts::Moving },
            theta_steps: v.size("btprop.theta_steps"),
            ignore: form::ignore(v.word("btprop.ignore")).expect("checked by the table"),
            staleness: v.size("btprop.staleness"),
        }
    }

    fn solver(&self) -> Solver {
        let v = &self.values;
        let duals = DualConfig {
            rate: v.real("btprop.dual_lr"),
            rule: match v.word("btprop.dual_rule") {
                "scaled" => DualRule::Scaled,
                "gradient" => DualRule::Gradient,
                "mean" => DualRule::Mean,
                other => stray("btprop.dual_rule", other),
            },
            start_epoch: v.size("btprop.dual_start"),
            stored: v.word("btprop.duals") == "stored",
        };
        match v.word("btprop.solver") {
            "penalty" => Solver::Penalty,
            "admm" => Solver::Admm { duals, before_theta: v.word("btprop.dual_order") == "before_theta" },
            "alm" => Solver::Alm { duals, joint_steps: v.size("btprop.joint_steps") },
            other => stray("btprop.solver", other),
        }
    }

    /// Shares in which sums are made, if a number was asked for.
    pub fn shares(&self) -> Option<usize> {
        form::count_unless(self.values.word("cluster.shares"), "auto").expect("checked by the table")
    }

    /// How the weights are updated.
    pub fn optim(&self) -> OptimConfig {
        let v = &self.values;
        let rule = Rule::named(v.word("optim.name"), Some(v.real("optim.eps")));
        let rule = rule.unwrap_or_else(|| stray("optim.name", v.word("optim.name")));
        OptimConfig { rule, rate: v.real("optim.lr"), clip: v.real("optim.clip") }
    }

    /// How to train.
    pub fn train(&self) -> TrainConfig {
        let v = &self.values;
        TrainConfig {
            method: self.method(),
            optim: self.optim(),
            anneal: v.real("optim.anneal"),
            epochs: v.size("train.epochs"),
            patience: v.size("train.patience"),
            seed: v.count("train.seed"),
            eval_streams: self.eval_streams(),
        }
    }

    /// Vocabulary of the random text of `bench`.
    pub fn bench_vocab(&self) -> usize {
        self.values.size("data.vocab")
    }

    /// λ, whether or not the method has one.
    pub fn lambda(&self) -> f64 {
        self.values.real("btprop.lambda")
    }

    /// Streams of evaluations.
    pub fn eval_streams(&self) -> usize {
        self.values.size("eval.streams")
    }

    /// Threads; none for all cores.
    pub fn threads(&self) -> Option<usize> {
        Some(self.values.size("train.threads")).filter(|n| *n > 0)
    }

    /// The vector instructions to insist on.
    pub fn simd(&self) -> Option<Simd> {
        match self.values.word("train.simd") {
            "auto" => None,
            "scalar" => Some(Simd::Scalar),
            "avx2" => Some(Simd::Avx2),
            "avx512" => Some(Simd::Avx512),
            "neon" => Some(Simd::Neon),
            other => stray("train.simd", other),
        }
    }

    /// Whether a diverged run goes back to its last checkpoint with a smaller rate.
    pub fn rolls_back(&self) -> bool {
        self.values.word("train.on_divergence") == "rollback"
    }

    /// When checkpoints are written.
    pub fn checkpointing(&self) -> Checkpointing {
        let v = &self.values;
        Checkpointing {
            every_seconds: Some(v.real("checkpoint.every_minutes") * 60.0).filter(|s| *s > 0.0),
            every_steps: Some(v.count("checkpoint.every_steps")).filter(|n| *n > 0),
            keep: v.size("checkpoint.keep"),
        }
    }

    /// A name for the run's directory: the cell, its size and the method.
    pub fn short_name(&self) -> String {
        let v = &self.values;
        let layers = match v.count("model.layers") {
            1 => String::new(),
            n => format!("x{n}"),
        };
        let method = self.preset.unwrap_or(v.word("method"));
        format!("{}{}{layers}-{method}", v.word("model.cell"), v.count("model.hidden"))
    }
}

/// The cell of a name.
pub fn cell(name: &str, activation: Activation) -> Option<CellKind> {
    Some(match name {
        "gru" => CellKind::Gru,
        "lstm" => CellKind::Lstm,
        "elman" => CellKind::Elman(activation),
        "mult" => CellKind::Mult,
        "mult_gated" => CellKind::MultGated,
        _ => return None,
    })
}
