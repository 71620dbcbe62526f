//! Every setting: its name, what it means, what it may be and its default. Parsing, checks, help, listings and
//! `settings.toml` are all made from this one table.

use tprop::corpus::SynthConfig;
use tprop::optim::Rule;

use super::form;
use super::values::{Value, Values};

/// One setting.
pub struct Setting {
    /// Dotted name, the same on the command line, in files and in records.
    pub name: &'static str,
    /// A flag that is another spelling of the name.
    pub flag: Option<&'static str>,
    /// One sentence for people.
    pub doc: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is unless someone says otherwise.
    pub default: Usual,
}

/// What a setting may be.
#[derive(Clone, Copy)]
pub enum Kind {
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number from `least` to `most`, or 0 where that has a meaning of its own.
    Count { least: u64, most: u64, zero: Option<&'static str> },
    /// A number above `above`, up to `most`, or 0 where that has a meaning of its own.
    Real { above: f64, most: f64, zero: Option<&'static str> },
    /// Any text.
    Text,
    /// A word with a grammar of its own, for example `parallel:2`.
    Form { grammar: &'static str, check: fn(&str) -> Result<(), String> },
}

/// Where a default comes from.
#[derive(Clone, Copy)]
pub enum Usual {
    /// This text, read as if it had been typed.
    Is(&'static str),
    /// It follows from other settings or from the library; the text says how.
    Follows(&'static str, fn(&Values) -> Value),
}

use Kind::{Choice, Flag, Form, Text};
use Usual::{Follows, Is};

const fn count(least: u64, most: u64) -> Kind {
    Kind::Count { least, most, zero: None }
}

const fn count_or(least: u64, most: u64, zero: &'static str) -> Kind {
    Kind::Count { least, most, zero: Some(zero) }
}

const fn real(most: f64) -> Kind {
    Kind::Real { above: 0.0, most, zero: None }
}

const fn real_or(above: f64, most: f64, zero: &'static str) -> Kind {
    Kind::Real { above, most, zero: Some(zero) }
}

const fn plain(name: &'static str, doc: &'static str, kind: Kind, default: Usual) -> Setting {
    Setting { name, flag: None, doc, kind, default }
}

const fn flagged(name: &'static str, flag: &'static str, doc: &'static str, kind: Kind, default: Usual) -> Setting {
    Setting { name, flag: Some(flag), doc, kind, default }
}

/// The name of the built-in language among data sources.
pub const BUILT_IN: &str = "built-in";

/// Settings that shape no number of a run, whatever happens: two trials that differ only in these are one.
pub const NEUTRAL: [&str; 7] = [
    "data.dir",
    "data.vocab",
    "train.threads",
    "train.simd",
    "checkpoint.every_minutes",
    "checkpoint.every_steps",
    "checkpoint.keep",
];

/// Of [`NEUTRAL`], or decisive only once a run diverges.
pub fn harmless(name: &str) -> bool {
    NEUTRAL.contains(&name) || name == "train.on_divergence"
}

/// TOML's whole numbers end here.
const LARGEST: u64 = i64::MAX as u64;

/// The update rule that `optim.name` chooses.
fn rule(values: &Values) -> Rule {
    Rule::named(values.word("optim.name"), None).expect("the choices are the library's names")
}

/// All settings, in the order of listings and files.
#[rustfmt::skip] // one setting, one or two lines: read as a table
pub static TABLE: &[Setting] = &[
    flagged("data.source", "data", "A text file, a directory with train/valid/test files, the name of a known data set, or `built-in`",
        Text, Is(BUILT_IN)),
    flagged("data.dir", "data-dir", "Where names of data sets, and paths that are not here, are looked up first (then $TPROP_DATA and the user's data directory)",
        Text, Is("")),
    flagged("data.level", "level", "What a token is",
        Choice(&["word", "char", "byte"]), Is("word")),
    plain("data.eos", "Whether a line end is a token; auto: yes, except in text8",
        Choice(&["auto", "true", "false"]), Is("auto")),
    plain("data.min_count", "Rarer words become <unk>; auto: 1, for text8 11",
        Form { grammar: "auto|N", check: form::auto_or_count }, Is("auto")),
    plain("data.max_vocab", "Largest vocabulary, <unk> and <eos> included",
        count_or(3, 100_000_000, "no limit"), Is("0")),
    plain("data.vocab_from", "Which splits the vocabulary is made from; the paper took all",
        Choice(&["train", "all"]), Is("train")),
    plain("data.max_tokens", "Trains on only so many tokens",
        count_or(2, LARGEST, "all"), Is("0")),
    plain("data.vocab", "Size of the made-up vocabulary of `bench`",
        count(2, 10_000_000), Is("10000")),

    plain("synth.vocab", "Vocabulary of the built-in language",
        count(*SynthConfig::VOCAB.start() as u64, *SynthConfig::VOCAB.end() as u64),
        Follows("", |_| Value::Count(SynthConfig::default().vocab as u64))),
    plain("synth.tokens", "Length of its training split",
        count(*SynthConfig::TOKENS.start() as u64, *SynthConfig::TOKENS.end() as u64),
        Follows("", |_| Value::Count(SynthConfig::default().tokens as u64))),
    plain("synth.seed", "Chooses the text, not the language",
        count(0, LARGEST), Follows("", |_| Value::Count(SynthConfig::default().seed))),

    flagged("model.cell", "cell", "The recurrent cell",
        Choice(&["gru", "lstm", "elman", "mult", "mult_gated"]), Is("gru")),
    plain("model.activation", "Non-linearity of the Elman cell",
        Choice(&["tanh", "sigmoid"]), Is("tanh")),
    flagged("model.hidden", "hidden", "Units of each layer",
        count(1, 32_768), Is("100")),
    plain("model.embed", "Size of the embedding",
        count(1, 32_768), Follows("model.hidden", |v| Value::Count(v.count("model.hidden")))),
    flagged("model.layers", "layers", "Recurrent layers",
        count(1, 64), Is("1")),
    plain("model.tied", "Output weights are the embedding",
        Flag, Is("false")),
    plain("model.init", "Embedding and output weights start within ± this",
        real(10.0), Is("0.1")),

    flagged("method", "method", "Back-propagation through time, or target propagation",
        Choice(&["bptt", "btprop"]), Is("bptt")),

    flagged("bptt.window", "window", "K: steps that the gradient flows back",
        count(1, 100_000), Is("20")),

    plain("btprop.solver", "Order of updates and duals",
        Choice(&["admm", "penalty", "alm"]), Is("admm")),
    flagged("btprop.block", "block", "B: steps of a block; 1 is TPROP",
        count(1, 100_000), Is("20")),
    flagged("btprop.blocks", "blocks", "M: consecutive blocks of a window",
        count(1, 1_000_000), Is("32")),
    flagged("btprop.lambda", "lambda", "Weight of the coupling between blocks",
        real_or(0.0, 1e9, "no coupling"), Is("0.1")),
    plain("btprop.lambda_schedule", "How lambda moves after each epoch",
        Form { grammar: "constant|geometric:F|balance|balance:F", check: |s| form::lambda_schedule(s).map(drop) }, Is("constant")),
    plain("btprop.penalty", "Distance between where a block ends and its target",
        Choice(&["l2", "kl", "kl-reverse", "l2+kl", "l2+kl-reverse"]), Is("l2")),
    plain("btprop.constraint", "Where free states may be",
        Form { grammar: "none|tanh|box|binary|sparse:K", check: |s| form::constraint(s).map(drop) }, Is("none")),
    plain("btprop.loss", "Which state the loss looks at; free needs btprop.block=1",
        Choice(&["predicted", "free"]), Is("predicted")),
    plain("btprop.ignore", "A token without weight in the loss; first: the one that the training text begins with",
        Form { grammar: "none|first|N", check: |s| form::ignore(s).map(drop) }, Is("none")),
    plain("btprop.init", "Where a window's states come from; N sweeps",
        Form { grammar: "zero|parallel:N|stored:N|sequential", check: |s| form::init(s).map(drop) }, Is("parallel:1")),
    plain("btprop.first", "Whether the first block's start may move",
        Choice(&["fixed", "free"]), Is("fixed")),
    plain("btprop.last", "What the last block of a window is tied to",
        Choice(&["none", "zero", "free0"]), Is("none")),
    flagged("btprop.state_steps", "state-steps", "Steps on the states per window",
        count(0, 10_000), Is("1")),
    plain("btprop.state_lr", "Rate of the state steps",
        real_or(0.0, 1e6, "states stay"), Is("0.1")),
    plain("btprop.state_optim", "Rule of the state steps",
        Choice(&["sgd", "adagrad"]), Is("sgd")),
    plain("btprop.state_scale", "Slope per block, or the mean over the window (as the release does)",
        Choice(&["block", "mean"]), Is("block")),
    plain("btprop.state_clip", "Largest norm of a block's slope",
        real_or(0.0, 1e9, "off"), Is("0")),
    plain("btprop.state_tol", "Ends a window's state steps once states move less than this",
        real_or(0.0, 1e9, "off"), Is("0")),
    plain("btprop.starts", "Starts move with the targets, or stay on the trajectory",
        Choice(&["moving", "held"]), Is("moving")),
    plain("btprop.theta_steps", "Steps on the weights per window",
        count(1, 10_000), Is("1")),
    plain("btprop.theta_solver", "How the weights are updated; least squares is for multiplicative cells",
        Choice(&["gradient", "least_squares"]), Is("gradient")),
    plain("btprop.ridge", "Ridge of least squares",
        real(1e9), Is("0.001")),
    plain("btprop.joint_steps", "Joint steps of alm per window",
        count(1, 10_000), Is("1")),
    plain("btprop.dual_lr", "Rate of the duals",
        real_or(0.0, 1e6, "duals stay 0"), Is("0.1")),
    plain("btprop.dual_rule", "How a dual follows its residual",
        Choice(&["scaled", "gradient", "mean"]), Is("scaled")),
    plain("btprop.dual_start", "First epoch in which duals move",
        count(1, 1_000_000), Is("1")),
    plain("btprop.dual_order", "When the duals of admm move",
        Choice(&["after_theta", "before_theta"]), Is("after_theta")),
    plain("btprop.duals", "Whether duals begin at 0 in each window or are kept (in batch mode they always are)",
        Choice(&["reset", "stored"]), Is("reset")),
    plain("btprop.staleness", "Exchanges by which boundary states of other ranks may lag",
        count(0, 1_000), Is("0")),

    flagged("train.streams", "streams", "Parallel streams",
        count(1, 65_536), Follows("32; 1 for btprop", |v| Value::Count(if v.word("method") == "btprop" { 1 } else { 32 }))),
    flagged("train.epochs", "epochs", "Passes over the corpus",
        count(1, 1_000_000), Is("10")),
    plain("train.batch", "An update after each window, or one after each pass",
        Choice(&["mini", "full"]), Is("mini")),
    plain("train.accumulate", "Windows per update",
        count(1, 1_000_000), Is("1")),
    plain("train.patience", "Stops after so many epochs without a better validation perplexity",
        count_or(1, 1_000_000, "never"), Is("5")),
    flagged("train.seed", "seed", "Chooses the initial weights",
        count(0, LARGEST), Is("1")),
    flagged("train.threads", "threads", "Threads; the result does not depend on them",
        count_or(1, 1_024, "all cores"), Is("0")),
    plain("train.simd", "Vector instructions; auto: the best of this machine",
        Choice(&["auto", "scalar", "avx2", "avx512", "neon"]), Is("auto")),
    plain("train.on_divergence", "What to do when the loss or the gradient is not finite",
        Choice(&["stop", "rollback"]), Is("stop")),

    plain("optim.name", "Update rule of the weights",
        Choice(&Rule::NAMES), Is("adagrad")),
    flagged("optim.lr", "lr", "Rate",
        real(1e9), Follows("0.05 for adagrad; the usual one of each rule", |v| Value::Real(rule(v).usual_rate()))),
    plain("optim.eps", "Keeps divisions finite; rules without it ignore it",
        real(1.0), Follows("1e-5 for adagrad; the usual one of each rule", |v| Value::Real(rule(v).eps().unwrap_or(1e-8)))),
    plain("optim.clip", "Largest global norm of the gradient",
        real_or(0.0, 1e9, "off"), Is("0.5")),
    plain("optim.anneal", "The rate is divided by this when validation does not improve",
        real_or(1.0, 1e6, "off"), Is("0")),

    plain("eval.streams", "Streams into which evaluation cuts a split",
        count(1, 65_536), Is("32")),

    plain("checkpoint.every_minutes", "Minutes between checkpoints",
        real_or(0.0, 1e6, "only at evaluations"), Is("5")),
    plain("checkpoint.every_steps", "Updates between checkpoints",
        count_or(1, LARGEST, "by time only"), Is("0")),
    plain("checkpoint.keep", "How many of the last checkpoints are kept, beside the best",
        count(1, 10_000), Is("3")),

    plain("cluster.shares", "Shares of a window in which sums are made, whatever the ranks; auto: 1, under MPI 12 or one a rank",
        Form { grammar: "auto|N", check: form::auto_or_count }, Is("auto")),
];

/// The setting of a name.
pub fn find(name: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|s| s.name == name)
}

/// Whether a setting means something beside the others: those of a method that is not in use do not, for one. `is` tells whether
/// one of them has a value, or may have it.
pub fn applies(name: &str, is: impl Fn(&str, &str) -> bool) -> bool {
    match name.split('.').next().unwrap_or_default() {
        "bptt" => is("method", "bptt"),
        "btprop" => is("method", "btprop"),
        "synth" => is("data.source", BUILT_IN),
        _ => name != "model.activation" || is("model.cell", "elman"),
    }
}

impl Setting {
    /// The part before the dot.
    pub fn group(&self) -> &'static str {
        self.name.split('.').next().unwrap_or_default()
    }

    /// The default as people read it.
    pub fn default_text(&self) -> String {
        match self.default {
            Is(text) => text.to_owned(),
            Follows("", of) => of(&Values::empty()).to_string(),
            Follows(how, _) => how.to_owned(),
        }
    }
}

impl Kind {
    /// What is allowed, as it stands behind "must be" in messages.
    pub fn allowed(&self) -> String {
        let or_zero = |zero: Option<&str>| zero.map_or(String::new(), |what| format!(" (or 0: {what})"));
        match *self {
            Choice(words) => format!("one of {}", words.join(", ")),
            Flag => "true or false".to_owned(),
            Kind::Count { least, most: LARGEST, zero } => format!("a whole number from {least}{}", or_zero(zero)),
            Kind::Count { least, most, zero } => format!("a whole number from {least} to {most}{}", or_zero(zero)),
            Kind::Real { above, most, zero } => {
                // 1e9 reads better than a row of zeros.
                let most = if most >= 1e5 { format!("{most:e}") } else { most.to_string() };
                format!("a number above {above}, up to {most}{}", or_zero(zero))
            }
            Text => "a text".to_owned(),
            Form { grammar, .. } => format!("one of {}", grammar.replace('|', ", ")),
        }
    }
}
