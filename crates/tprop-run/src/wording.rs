//! Errors of the library in the words that a user types: it knows the fields of its configurations, this file their settings.

use tprop::comm::{SharesError, Unit};
use tprop::corpus::{CorpusError, CorpusPart, Split};
use tprop::method::{MethodError, Reason, Room};
use tprop::train::TrainError;

/// Reason training cannot begin or continue, with the way out.
pub fn train_error(error: &TrainError) -> String {
    match error {
        TrainError::TooShort { split, tokens, streams, wanted } => {
            let split = long_name(*split);
            format!("the {split} split has {tokens} tokens; eval.streams={streams} needs at least {wanted}")
        }
        TrainError::OutsideVocabulary(split) => {
            format!("the {} split has tokens outside the vocabulary", long_name(*split))
        }
        TrainError::Method(error) => method_error(error),
        TrainError::Diverged { free_states, .. } => {
            let states = if *free_states { "; or a smaller btprop.state_lr or btprop.lambda" } else { "" };
            format!("{error}. Try a smaller optim.lr (a tenth of it) or a smaller optim.clip{states}")
        }
        TrainError::Checkpoint(_) | TrainError::Watch(_) => error.to_string(),
    }
}

fn long_name(split: Split) -> &'static str {
    match split {
        Split::Train => "training",
        Split::Valid => "validation",
        Split::Test => "test",
    }
}

/// Reason a corpus cannot be had, with the way out.
pub fn corpus_error(error: &CorpusError) -> String {
    let way = match error {
        CorpusError::Field { of: CorpusPart::Corpus, .. } => return format!("data.{error}"),
        CorpusError::Field { of: CorpusPart::Synth, .. } => return format!("synth.{error}"),
        CorpusError::NotHere { name, get, looked, files } => {
            let looked: Vec<_> = looked.iter().map(|path| path.display().to_string()).collect();
            let looked = looked.join(", ");
            return format!("{name}: not found in {looked}; `tprop data get {get}` downloads it, or put {files} there");
        }
        CorpusError::Missing(_) => " (`tprop data list` shows them)",
        CorpusError::NotUtf8 { .. } => "; data.level=byte reads any file, or convert it with iconv",
        CorpusError::Utf16(_) => {
            "; convert it first with `iconv -f UTF-16 -t UTF-8`, or set data.level=byte to read it as bytes"
        }
        CorpusError::Nul { .. } => "; data.level=byte reads any file",
        CorpusError::LongWord { .. } => "; data.level=char or data.level=byte reads text without spaces",
        CorpusError::ManyWords { .. } => "; data.level=char or data.level=byte needs far fewer tokens",
        CorpusError::NoSplit { .. }
        | CorpusError::Special { .. }
        | CorpusError::Io { .. }
        | CorpusError::Empty { .. }
        | CorpusError::Indivisible { .. }
        | CorpusError::Short { .. } => "",
    };
    format!("{error}{way}")
}

/// Reason a method cannot be planned, with the way out.
fn method_error(error: &MethodError) -> String {
    match error {
        MethodError::TooShort { tokens, wanted, window } => {
            let product: Vec<_> = window.iter().map(|(field, n)| format!("{}={n}", setting(field))).collect();
            let blocks = window.iter().any(|(field, _)| *field == "blocks");
            let way = if blocks { ": use fewer streams or blocks, or a shorter block" } else { "" };
            let product = product.join(" × ");
            format!("the training split has {tokens} tokens; {product} needs at least {wanted}{way}")
        }
        MethodError::Field { field, found, wanted, reason } => refused_field(field, found, wanted, *reason),
        MethodError::Memory { what, bytes, free } => {
            let (needed, free) = (bytes >> 20, free >> 20);
            match what {
                Room::States { blocks } => format!(
                    "the states of {blocks} blocks need {needed} MB and {free} MB are free: use a longer btprop.block, a \
                     smaller model.hidden, or what stores nothing (btprop.init=sequential, btprop.duals=reset)"
                ),
                Room::Factors => format!(
                    "the least-squares problem of the states needs {needed} MB and {free} MB are free: use \
                     train.batch=mini, fewer btprop.blocks, a smaller model.hidden, or method=btprop"
                ),
            }
        }
        MethodError::Shares(SharesError { ranks, unit, units, shares }) => {
            let unit = match unit {
                Unit::Blocks => "blocks",
                Unit::Streams => "streams",
            };
            format!(
                "{ranks} ranks have only {} shares of work ({units} {unit} in {shares} shares): use fewer ranks, or more \
                 {unit} and a larger cluster.shares",
                shares.min(units)
            )
        }
        MethodError::Feature(feature) => format!(
            "this build is without method=least_squares: build it with the feature {feature}, or use method=btprop"
        ),
    }
}

fn refused_field(field: &str, found: &str, wanted: &str, reason: Reason) -> String {
    let name = setting(field);
    match reason {
        Reason::FreeLoss => {
            format!("btprop.loss=free needs {name}={wanted}, not {found}: use loss=predicted for longer blocks")
        }
        Reason::NothingFound => format!(
            "btprop.starts=held keeps starts where they were found, so {name}=stored:{found} would never find any: use \
             stored:{wanted}, parallel:1, carried:1 or sequential"
        ),
        Reason::OneWindowPerUpdate => {
            format!("{name} is for bptt; under btprop use more btprop.blocks or train.streams")
        }
        Reason::NoClosedForm => {
            let (found, way) = match field {
                "ranks" => (format!("{found} ranks"), "one process".to_owned()),
                _ => (format!("{name}={found}"), format!("{name}={wanted}")),
            };
            format!("method=least_squares has no closed form for {found}: use {way}, or method=btprop")
        }
        Reason::NoScale if field == "states.rate" => format!(
            "{name}={found} leaves the least-squares step of the states without a scale: use one {wanted}, or \
             btprop.state_steps=0"
        ),
        Reason::ScannedPulls => format!(
            "a scan over pulls is for plain steps on the targets of held starts: use {name}={wanted} (it is {found}), or \
             btprop.scan=starts"
        ),
        Reason::StoredPulls => {
            format!("btprop.pulls=stored needs {name}={wanted} (it is {found}); use that, or btprop.pulls=reset")
        }
        Reason::Newton => format!(
            "btprop.state_optim=newton solves for moving starts under the l2 penalty: use {name}={wanted} (it is {found}), or \
             btprop.state_optim=sgd"
        ),
        Reason::NoScale => format!("the {field} of method=least_squares is {found}; it must be {wanted}"),
    }
}

/// The setting behind a field of a configuration.
fn setting(field: &str) -> &str {
    match field {
        "batch.accumulate" => "train.accumulate",
        "init.sweeps" => "btprop.init",
        _ => crate::settings::name_of_field(field).unwrap_or(field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_about_texts_name_settings_and_commands() {
        let path = || "a.txt".into();
        let field = |of, field| CorpusError::Field { of, field, value: "1".into(), wanted: "must be more".into() };
        let not_here =
            CorpusError::NotHere { name: "x".into(), get: "y", looked: vec!["a".into(), "b".into()], files: "z" };
        let cases = [
            (
                CorpusError::Missing("x".into()),
                "x: there is no such file or directory, and no data set of that name (`tprop data list` shows them)",
            ),
            (not_here, "x: not found in a, b; `tprop data get y` downloads it, or put z there"),
            (
                CorpusError::NotUtf8 { path: path(), line: 2, offset: 6, byte: 0xff },
                "a.txt: line 2, byte 6: not UTF-8 (0xff); data.level=byte reads any file, or convert it with iconv",
            ),
            (
                CorpusError::Utf16(path()),
                "a.txt: looks like UTF-16 or UTF-32; convert it first with `iconv -f UTF-16 -t UTF-8`, or set \
                 data.level=byte to read it as bytes",
            ),
            (
                CorpusError::Nul { path: path(), line: 2, offset: 6 },
                "a.txt: line 2, byte 6: a NUL byte, so this is not a text file; data.level=byte reads any file",
            ),
            (
                CorpusError::LongWord { path: path(), line: 2, offset: 6, limit: 9 },
                "a.txt: line 2, byte 6: a word of more than 9 bytes; data.level=char or data.level=byte reads text without \
                 spaces",
            ),
            (
                CorpusError::ManyWords { path: path(), line: 2, limit: 9 },
                "a.txt: line 2: more than 9 different words; data.level=char or data.level=byte needs far fewer tokens",
            ),
            (field(CorpusPart::Corpus, "max_vocab"), "data.max_vocab = 1: must be more"),
            (field(CorpusPart::Synth, "vocab"), "synth.vocab = 1: must be more"),
            (CorpusError::Empty { path: path(), bytes: 0 }, "a.txt: the file is empty; a corpus needs some text"),
        ];
        for (error, sentence) in cases {
            assert_eq!(corpus_error(&error), sentence);
        }
    }

    fn field(field: &'static str, found: &str, wanted: &'static str, reason: Reason) -> TrainError {
        TrainError::Method(MethodError::Field { field, found: found.into(), wanted, reason })
    }

    /// Every refusal names settings as a user types them, and the way out.
    #[test]
    fn sentences_name_settings() {
        let diverged = |free_states| TrainError::Diverged {
            step: 7,
            epoch: 1,
            what: "weights are not finite".into(),
            rate: 0.5,
            norm: Some(2.0),
            free_states,
        };
        let window = |fields: &[(&'static str, usize)]| {
            TrainError::Method(MethodError::TooShort { tokens: 9, wanted: 81, window: fields.to_vec() })
        };
        let memory = |what| TrainError::Method(MethodError::Memory { what, bytes: 5 << 20, free: 3 << 20 });
        let shares = SharesError { ranks: 4, unit: Unit::Streams, units: 3, shares: 12 };
        let cases = [
            (TrainError::OutsideVocabulary(Split::Train), "the training split has tokens outside the vocabulary"),
            (
                TrainError::TooShort { split: Split::Test, tokens: 3, streams: 4, wanted: 5 },
                "the test split has 3 tokens; eval.streams=4 needs at least 5",
            ),
            (
                window(&[("streams", 4), ("window", 20)]),
                "the training split has 9 tokens; train.streams=4 × bptt.window=20 needs at least 81",
            ),
            (
                window(&[("streams", 4), ("blocks", 4), ("block", 5)]),
                "the training split has 9 tokens; train.streams=4 × btprop.blocks=4 × btprop.block=5 needs at least 81: use \
                 fewer streams or blocks, or a shorter block",
            ),
            (
                diverged(false),
                "diverged at step 7 (epoch 1): weights are not finite; rate 0.5, gradient norm 2. Try a smaller optim.lr (a \
                 tenth of it) or a smaller optim.clip",
            ),
            (
                diverged(true),
                "diverged at step 7 (epoch 1): weights are not finite; rate 0.5, gradient norm 2. Try a smaller optim.lr (a \
                 tenth of it) or a smaller optim.clip; or a smaller btprop.state_lr or btprop.lambda",
            ),
            (
                TrainError::Method(shares.into()),
                "4 ranks have only 3 shares of work (3 streams in 12 shares): use fewer ranks, or more streams and a larger \
                 cluster.shares",
            ),
            (
                memory(Room::States { blocks: 8 }),
                "the states of 8 blocks need 5 MB and 3 MB are free: use a longer btprop.block, a smaller model.hidden, or \
                 what stores nothing (btprop.init=sequential, btprop.duals=reset)",
            ),
            (
                memory(Room::Factors),
                "the least-squares problem of the states needs 5 MB and 3 MB are free: use train.batch=mini, fewer \
                 btprop.blocks, a smaller model.hidden, or method=btprop",
            ),
            (
                field("block", "3", "1", Reason::FreeLoss),
                "btprop.loss=free needs btprop.block=1, not 3: use loss=predicted for longer blocks",
            ),
            (
                field("init.sweeps", "0", "1", Reason::NothingFound),
                "btprop.starts=held keeps starts where they were found, so btprop.init=stored:0 would never find any: use \
                 stored:1, parallel:1, carried:1 or sequential",
            ),
            (
                field("batch.accumulate", "2", "1", Reason::OneWindowPerUpdate),
                "train.accumulate is for bptt; under btprop use more btprop.blocks or train.streams",
            ),
            (
                field("cell", "gru", "mult or mult_gated", Reason::NoClosedForm),
                "method=least_squares has no closed form for model.cell=gru: use model.cell=mult or mult_gated, or method=btprop",
            ),
            (
                field("ranks", "3", "1", Reason::NoClosedForm),
                "method=least_squares has no closed form for 3 ranks: use one process, or method=btprop",
            ),
            (
                field("ridge", "0", "above 0", Reason::NoScale),
                "the ridge of method=least_squares is 0; it must be above 0",
            ),
            (
                field("states.rate", "0", "above 0", Reason::NoScale),
                "btprop.state_lr=0 leaves the least-squares step of the states without a scale: use one above 0, or \
                 btprop.state_steps=0",
            ),
        ];
        for (error, sentence) in cases {
            assert_eq!(train_error(&error), sentence);
        }
    }
}
