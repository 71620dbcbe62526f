//! Every setting, one row each: its name, where it stands in the configuration and what it may be there, its frozen default, what it
//! means; behind that whatever is not usual about it. Parsing, checks, help, listings, `settings.toml`, names of trials and what may
//! change on resume are all made from this one table. The default itself is that of the configuration.

use std::ffi::OsStr;

use tprop::corpus::SynthConfig;
use tprop::method::Outline;
use tprop::words::WordError;

use super::config::usual_eps;
pub use super::row::{Kind, Setting};
use super::row::{
    LARGEST, Place, Resume, Shapes, at, count, count_or, dotted, either, real, real_or, row, text, word, words_of,
    words_of_option,
};

/// The name of the built-in language among data sources.
pub const BUILT_IN: &str = "built-in";

/// A setting of the built-in language.
const fn synth(name: &'static str, place: Place, frozen: &'static str, doc: &'static str) -> Setting {
    row(name, place, frozen, doc).beside("data.source", &[BUILT_IN])
}

/// A setting of BPTT.
const fn bptt(name: &'static str, place: Place, frozen: &'static str, doc: &'static str) -> Setting {
    row(name, place, frozen, doc).beside("method", &["bptt"])
}

/// A setting of BTPROP.
const fn btprop(name: &'static str, place: Place, frozen: &'static str, doc: &'static str) -> Setting {
    row(name, place, frozen, doc).beside("method", &["btprop"])
}

/// A setting that BTPROP and least squares share.
const fn coupled(name: &'static str, place: Place, frozen: &'static str, doc: &'static str) -> Setting {
    row(name, place, frozen, doc).beside("method", &["btprop", "least_squares"])
}

/// All settings, in the order of listings and files.
#[rustfmt::skip] // one setting, two lines: read as a table
pub static TABLE: &[Setting] = &[
    row("data.source", text!(corpus.source or BUILT_IN), "built-in",
        "A text file, a directory with train/valid/test files, the name of a known data set, or `built-in`").flag("data").resume(Resume::Freely),
    row("data.dir", text!(corpus.data_dir or ""), "",
        "Where names of data sets, and paths that are not here, are looked up first (then $TPROP_DATA and the user's data directory)").flag("data-dir").shapes(Shapes::Nothing),
    row("data.level", word!(corpus.level), "word",
        "What a token is").flag("level"),
    row("data.eos", at!(corpus.eos or "auto", Kind::Words { none: Some("auto"), words: &["true", "false"] }), "auto",
        "Whether a line end is a token; auto: yes, except in text8"),
    row("data.min_count", at!(corpus.min_count or "auto", Kind::AutoCount { most: u32::MAX as u64 }), "auto",
        "Rarer words become <unk>; auto: 1, for text8 11"),
    row("data.max_vocab", at!(corpus.max_vocab or "0", count_or(3, 100_000_000, "no limit")), "0",
        "Largest vocabulary, <unk> and <eos> included"),
    row("data.vocab_from", word!(corpus.vocab_from), "train",
        "Which splits the vocabulary is made from; the paper took all"),
    row("data.max_tokens", at!(corpus.max_tokens or "0", count_or(2, LARGEST, "all")), "0",
        "Trains on only so many tokens"),
    row("data.vocab", at!(model.vocab, count(2, 10_000_000)), "10000",
        "Size of the made-up vocabulary of `bench`").shapes(Shapes::Nothing),

    synth("synth.vocab", at!(synth.vocab, count(*SynthConfig::VOCAB.start() as u64, *SynthConfig::VOCAB.end() as u64)), "1000",
        "Vocabulary of the built-in language"),
    synth("synth.tokens", at!(synth.tokens, count(*SynthConfig::TOKENS.start() as u64, *SynthConfig::TOKENS.end() as u64)), "1000000",
        "Length of its training split"),
    synth("synth.seed", at!(synth.seed, count(0, LARGEST)), "1",
        "Chooses the text, not the language"),

    row("model.cell", word!(model.cell), "gru",
        "The recurrent cell").flag("cell"),
    row("model.activation", word!(activation), "tanh",
        "Non-linearity of the Elman cell").beside("model.cell", &["elman"]),
    row("model.hidden", at!(model.hidden, count(1, 32_768)), "100",
        "Units of each layer").flag("hidden"),
    row("model.embed", at!(model.embed, count(1, 32_768)), "100",
        "Size of the embedding").follows("model.hidden", |c| c.model.embed = c.model.hidden),
    row("model.layers", at!(model.layers, count(1, 64)), "1",
        "Recurrent layers").flag("layers"),
    row("model.tied", at!(model.tied, Kind::Flag), "false",
        "Output weights are the embedding"),
    row("model.init", at!(model.init, real(10.0)), "0.1",
        "Embedding and output weights start within ± this"),

    row("method", word!(train.method), "bptt",
        "Back-propagation through time, target propagation, or target propagation with closed-form steps (multiplicative cells)").flag("method"),

    bptt("bptt.window", at!(bptt.window, count(1, 100_000)), "20",
        "K: steps that the gradient flows back").flag("window"),

    coupled("btprop.solver", word!(btprop.solver), "admm",
        "Order of updates and duals"),
    btprop("btprop.block", at!(btprop.block, count(1, 100_000)), "20",
        "B: steps of a block; 1 is TPROP").flag("block"),
    coupled("btprop.blocks", at!(btprop.blocks, count(1, 1_000_000)), "32",
        "M: consecutive blocks of a window").flag("blocks"),
    coupled("btprop.lambda", at!(btprop.lambda, real_or(0.0, 1e9, "no coupling")), "0.1",
        "Weight of the coupling between blocks").flag("lambda"),
    coupled("btprop.lambda_schedule", word!(btprop.lambda_schedule), "constant",
        "How lambda moves after each epoch"),
    btprop("btprop.penalty", word!(btprop.penalty), "l2",
        "Distance between where a block ends and its target"),
    btprop("btprop.constraint", word!(btprop.constraint), "none",
        "Where free states may be"),
    btprop("btprop.loss", word!(btprop.loss), "predicted",
        "Which state the loss looks at; free needs btprop.block=1"),
    coupled("btprop.ignore", word!(btprop.ignore), "none",
        "A token without weight in the loss; first: the one that the training text begins with"),
    coupled("btprop.init", word!(btprop.init), "parallel:1",
        "Where a window's states come from; N sweeps"),
    btprop("btprop.scan", word!(btprop.scan), "none",
        "One scan over the blocks does the work of many sweeps: of the starts, of the pulls (held starts), or of both"),
    btprop("btprop.sweep_tol", at!(btprop.sweep_tolerance, real_or(0.0, 1e9, "off")), "0.0",
        "Ends the sweeps once one changes the starts by less than this, relatively"),
    btprop("btprop.pulls", word!(btprop.pulls), "reset",
        "Whether pulls begin at 0 in each window or where the last epoch left them, so that gradients cross windows (held starts)"),
    coupled("btprop.first", word!(btprop.first), "fixed",
        "Whether the first block's start may move"),
    coupled("btprop.last", word!(btprop.last), "none",
        "What the last block of a window is tied to"),
    coupled("btprop.state_steps", at!(btprop.states.steps, count(0, 10_000)), "1",
        "Steps on the states per window").flag("state-steps"),
    coupled("btprop.state_lr", at!(btprop.states.rate, real_or(0.0, 1e6, "states stay")), "0.1",
        "Learning rate of the state steps"),
    btprop("btprop.state_optim", word!(btprop.states.rule), "sgd",
        "Rule of the state steps"),
    coupled("btprop.state_scale", word!(btprop.states.scale), "block",
        "Gradient per block, or the mean over the window (as the release does)"),
    btprop("btprop.state_clip", at!(btprop.states.clip, real_or(0.0, 1e9, "off")), "0.0",
        "Largest norm of a block's gradient"),
    coupled("btprop.state_tol", at!(btprop.states.tolerance, real_or(0.0, 1e9, "off")), "0.0",
        "Ends a window's state steps once states move less than this"),
    btprop("btprop.starts", word!(btprop.starts), "moving",
        "Starts move with the targets, or stay on the trajectory"),
    coupled("btprop.theta_steps", at!(btprop.theta_steps, count(1, 10_000)), "1",
        "Steps on the weights per window"),
    btprop("btprop.theta_solver", word!(theta_solver), "gradient",
        "least_squares: the older spelling of method=least_squares"),
    coupled("btprop.ridge", at!(ridge, real(1e9)), "0.001",
        "Ridge of least squares"),
    btprop("btprop.joint_steps", at!(joint_steps, count(1, 10_000)), "1",
        "Joint steps of alm per window"),
    coupled("btprop.dual_lr", at!(duals.rate, real_or(0.0, 1e6, "duals stay 0")), "0.1",
        "Learning rate of the duals"),
    coupled("btprop.dual_rule", word!(duals.rule), "scaled",
        "How a dual follows its residual"),
    coupled("btprop.dual_start", at!(duals.start_epoch, count(1, 1_000_000)), "1",
        "First epoch in which duals move"),
    coupled("btprop.dual_order", either!(before_theta, "after_theta", "before_theta"), "after_theta",
        "When the duals of admm move"),
    coupled("btprop.duals", either!(duals.stored, "reset", "stored"), "reset",
        "Whether duals begin at 0 in each window or are kept (in batch mode they always are)"),
    btprop("btprop.staleness", at!(btprop.staleness, count(0, 1_000)), "0",
        "Exchanges by which boundary states of other ranks may lag"),

    row("train.streams", at!(streams, count(1, 65_536)), "32",
        "Parallel streams").flag("streams").follows("32; 1 for btprop and least_squares", |c| c.streams = c.train.method.streams()),
    row("train.epochs", at!(train.epochs, count(1, 1_000_000)), "10",
        "Passes over the corpus").flag("epochs").resume(Resume::Allowed),
    row("train.batch", word!(batch), "mini",
        "An update after each window, or one after each pass"),
    row("train.accumulate", at!(accumulate, count(1, 1_000_000)), "1",
        "Windows per update"),
    row("train.patience", at!(train.patience, count_or(1, 1_000_000, "never")), "5",
        "Stops after so many epochs without a better validation perplexity").resume(Resume::Allowed),
    row("train.seed", at!(train.seed, count(0, LARGEST)), "1",
        "Chooses the initial weights").flag("seed"),
    row("train.threads", at!(threads or "0", count_or(1, 1_024, "all cores")), "0",
        "Threads; the result does not depend on them").flag("threads").shapes(Shapes::Nothing),
    row("train.simd", word!(simd or "auto"), "auto",
        "Vector instructions; auto: the best of this machine").shapes(Shapes::Nothing),
    row("train.on_divergence", word!(on_divergence), "stop",
        "What to do when the loss or the gradient is not finite").shapes(Shapes::Divergence),
    row("train.meter", at!(train.meter, count_or(1, LARGEST, "off")), "0",
        "Every so many updates, records how far the gradient is from the exact one of its window; changes no number").shapes(Shapes::Nothing),

    row("optim.name", word!(train.optim.rule), "adagrad",
        "Update rule of the weights"),
    row("optim.lr", at!(train.optim.rate, real(1e9)), "0.05",
        "Learning rate").flag("lr").resume(Resume::Allowed)
        .follows("0.05 for adagrad; the usual one of each rule", |c| c.train.optim.rate = c.train.optim.rule.usual_rate()),
    row("optim.eps", at!(eps, real(1.0)), "1e-5",
        "Keeps divisions finite; rules without it ignore it").resume(Resume::Allowed)
        .follows("1e-5 for adagrad; the usual one of each rule", |c| c.eps = usual_eps(c.train.optim.rule)),
    row("optim.clip", at!(train.optim.clip, real_or(0.0, 1e9, "off")), "0.5",
        "Largest global norm of the gradient").resume(Resume::Allowed),
    row("optim.anneal", at!(train.anneal, real_or(1.0, 1e6, "off")), "0.0",
        "The learning rate is divided by this when validation does not improve").resume(Resume::Allowed),

    row("eval.streams", at!(train.eval_streams, count(1, 65_536)), "32",
        "Streams into which evaluation cuts a split"),

    row("checkpoint.every_minutes", at!(checkpoint.every_minutes or "0.0", real_or(0.0, 1e6, "only at evaluations")), "5.0",
        "Minutes between checkpoints").shapes(Shapes::Nothing),
    row("checkpoint.every_steps", at!(checkpoint.every_steps or "0", count_or(1, LARGEST, "by time only")), "0",
        "Updates between checkpoints").shapes(Shapes::Nothing),
    row("checkpoint.keep", at!(checkpoint.keep, count(1, 10_000)), "3",
        "How many of the last checkpoints are kept, beside the best").shapes(Shapes::Nothing),

    row("cluster.shares", at!(shares or "auto", Kind::AutoCount { most: u32::MAX as u64 }), "auto",
        "Shares of a window in which sums are made, whatever the ranks; auto: 1, under MPI 12 or one a rank"),
];

/// The setting of a name.
pub fn find(name: &str) -> Option<&'static Setting> {
    TABLE.iter().find(|s| s.name == name)
}

/// Whether a setting shapes no number of a run, whatever happens.
pub fn neutral(name: &str) -> bool {
    find(name).is_some_and(|s| s.shapes == Shapes::Nothing)
}

/// Neutral, or decisive only once a run diverges.
pub fn harmless(name: &str) -> bool {
    find(name).is_some_and(|s| s.shapes != Shapes::Numbers)
}

/// Whether a setting means something beside the others: those of a method that is not in use do not, for one. `is` tells whether
/// one of them has a value, or may have it. A setting of another version goes with its group.
pub fn applies(name: &str, is: impl Fn(&str, &str) -> bool) -> bool {
    let group = name.split('.').next();
    let row = find(name).or_else(|| TABLE.iter().find(|s| Some(s.group()) == group));
    row.and_then(|s| s.beside).is_none_or(|(other, values)| values.iter().any(|value| is(other, value)))
}

/// The setting behind a field of the library's configurations, for errors that name the field: by its path in
/// `config::Config`, or by the end of it where that is enough (a method's own fields come first).
pub fn name_of_field(path: &str) -> Option<&'static str> {
    let named = |whole: &str| TABLE.iter().find(|s| s.path == whole).map(|s| s.name);
    let of_method = ["", "btprop.", "bptt."].iter().find_map(|part| named(&format!("{part}{path}")));
    of_method.or_else(|| {
        let mut ends = TABLE.iter().filter(|s| s.path.strip_suffix(path).is_some_and(|rest| rest.ends_with('.')));
        ends.next().filter(|_| ends.next().is_none()).map(|s| s.name)
    })
}
