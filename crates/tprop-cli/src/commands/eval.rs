//! `eval`: perplexity of a split.

use tprop::adapt::{AdaptConfig, read_adapting};
use tprop::corpus::{self, Corpus, CorpusConfig, Division, Split, VocabFrom};
use tprop::eval::{Reader, Reading};
use tprop::method::Outline;
use tprop::tokens::Tokens;
use tprop::vocab::Vocab;

use super::reading;
use crate::args::{self, Part};
use crate::console::{self, grouped, short};
use crate::failure::{Failure, Outcome};
use crate::prepare;
use crate::run::Loaded;
use crate::settings::Settings;
use crate::settings::table::BUILT_IN;

/// Reads a split with a run's model.
pub fn eval(args: &args::Eval) -> Outcome {
    let loaded = Loaded::open(&args.weights.run, args.weights.checkpoint.as_deref())?;
    let settings = &loaded.settings;
    prepare::machine(settings.threads(), settings.simd())?;
    let corpus = corpus::load(&text_to_read(args, &loaded), &settings.synth())?;
    let whole_file = args.data.is_some() && matches!(corpus.division, Division::Lines | Division::Tokens);
    let part = args.split.unwrap_or(if whole_file { Part::All } else { Part::Test });
    let tokens = translate(pick(&corpus, part), &corpus, &loaded.vocab)?;
    let streams = if args.exact { 1 } else { args.streams.map_or(settings.eval_streams(), |n| n as usize) };
    if tokens.len() <= streams {
        return Err(Failure::input(format!(
            "the {} split has {} tokens, but {streams} streams need at least {}; --exact reads it in one stream",
            name(part),
            tokens.len(),
            streams + 1
        )));
    }
    let block = settings.method().block();
    // A block that is longer than its stream is the whole of it.
    let block = args.block.map_or(block, |b| b as usize).min(tokens.len() / streams).max(1);
    // Evaluations of training read in order, and this one must find their numbers.
    let way =
        if args.exact && args.adapt_states == 0 { reading::way(&loaded.model, streams, args.sequential) } else { None };
    let since = std::time::Instant::now();
    let reading = match adapting(args, settings, block)? {
        Some(adapt) => read_adapting(&loaded.model, &loaded.params, &tokens, streams, adapt),
        None => {
            let mut reader = Reader::new(if args.by_position { block } else { reading::STEPS }).in_parallel(way);
            reader.read(&loaded.model, &loaded.params, &tokens, streams)
        }
    };
    let seconds = since.elapsed().as_secs_f64();
    if args.json {
        let mut line = serde_json::json!({
            "split": name(part),
            "nats": reading.nats,
            "tokens": reading.tokens,
            "perplexity": reading.perplexity(),
            "bits_per_token": reading.bits(),
            "streams": streams,
            "data": corpus.name,
            "checkpoint": loaded.checkpoint,
            "adapt_states": args.adapt_states,
            "seconds": seconds,
        });
        reading::describe(&mut line, &reading, way);
        if args.by_position {
            line["perplexity_by_position"] = reading.perplexity_by_position().into();
        }
        return console::line(line);
    }
    let mut text = format!(
        "{}: perplexity {} ({:.4} bits per token) over {} tokens of {}, {}\n",
        name(part),
        short(reading.perplexity()),
        reading.bits(),
        grouped(reading.tokens),
        tprop::vocab::printable(&corpus.name),
        loaded.checkpoint,
    );
    if args.exact && args.adapt_states == 0 {
        text += &format!(
            "  {}; {} tokens/s\n",
            reading::sentence(&reading, way),
            grouped((reading.tokens as f64 / seconds) as u64)
        );
    }
    text += &beside(args, part, &corpus, &reading);
    console::data(&text)
}

/// The run's own text, or another one, of which every word is read, so that the run's own vocabulary decides what is unknown.
fn text_to_read(args: &args::Eval, loaded: &Loaded) -> CorpusConfig {
    let mut config = loaded.settings.corpus();
    if let Some(dir) = &args.data_dir {
        config.data_dir = Some(dir.into());
    }
    let Some(source) = &args.data else { return config };
    CorpusConfig {
        source: Some(source.clone()).filter(|s| s != BUILT_IN),
        level: loaded.vocab.level(),
        eos: Some(loaded.vocab.cutting().eos),
        underscores: Some(loaded.vocab.cutting().underscores),
        min_count: Some(1),
        max_vocab: None,
        vocab_from: VocabFrom::All,
        max_tokens: None,
        ..config
    }
}

/// What stands below the perplexity: the best possible ones, and those by position.
fn beside(args: &args::Eval, part: Part, corpus: &Corpus, reading: &Reading) -> String {
    let mut text = String::new();
    let reference = match part {
        Part::All => None,
        _ if args.data.is_some() => None,
        part => corpus.reference(split(part)),
    };
    if let Some(p) = reference {
        let best = |name: &str, x: f64| format!("  {name:<34} {:>8}\n", short(x));
        text += &best("best possible", p.best);
        text += &best("best that forgets every 20 tokens", p.forget_20);
        text += &best("best that forgets every 10 tokens", p.forget_10);
        text += &best("best that forgets every 5 tokens", p.forget_5);
    }
    if args.by_position {
        text += "position  perplexity\n";
        for (i, x) in reading.perplexity_by_position().iter().enumerate() {
            text += &format!("{:>8}  {:>10}\n", i + 1, short(*x));
        }
    }
    text
}

/// What `--adapt-states` and its relatives ask for.
fn adapting(args: &args::Eval, settings: &Settings, block: usize) -> Outcome<Option<AdaptConfig>> {
    let lambda = args.adapt_lambda.unwrap_or(settings.lambda());
    for (flag, value) in [("--adapt-lr", args.adapt_lr), ("--adapt-lambda", lambda)] {
        if !(value.is_finite() && value >= 0.0) {
            return Err(Failure::input(format!("{flag} is {value}; it must be a number from 0 up")));
        }
    }
    let (steps, blocks) = (args.adapt_states as usize, args.adapt_blocks as usize);
    Ok((steps > 0 && blocks > 0).then_some(AdaptConfig { block, steps, rate: args.adapt_lr, blocks, lambda }))
}

fn name(part: Part) -> &'static str {
    match part {
        Part::All => "all",
        part => split(part).name(),
    }
}

fn split(part: Part) -> Split {
    match part {
        Part::Train | Part::All => Split::Train,
        Part::Valid => Split::Valid,
        Part::Test => Split::Test,
    }
}

fn pick(corpus: &Corpus, part: Part) -> Tokens {
    match part {
        Part::All => Split::ALL.iter().flat_map(|s| corpus.tokens(*s).iter()).collect(),
        part => corpus.tokens(split(part)).clone(),
    }
}

/// The tokens of a corpus in the numbers of another vocabulary.
fn translate(tokens: Tokens, corpus: &Corpus, vocab: &Vocab) -> Outcome<Tokens> {
    if corpus.vocab.words() == vocab.words() {
        return Ok(tokens);
    }
    let table: Vec<Option<u32>> = corpus.vocab.words().iter().map(|word| vocab.encode_word(word)).collect();
    tokens
        .iter()
        .map(|token| {
            table[token as usize].ok_or_else(|| {
                let word = tprop::vocab::printable(corpus.vocab.word(token));
                Failure::input(format!(
                    "{}: the run's vocabulary has neither {word:?} nor <unk>, so this text has no probability under it",
                    tprop::vocab::printable(&corpus.name)
                ))
            })
        })
        .collect()
}
