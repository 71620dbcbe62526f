//! What stands between settings and training: machine, corpus, model, and whether all of it fits.

use std::sync::mpsc;
use std::time::Duration;

use tprop::corpus::{self, Corpus, Split};
use tprop::kernel;
use tprop::method::{Batch, Outline};
use tprop::model::Model;

use crate::console::{self, bytes, grouped};
use crate::failure::{Failure, Outcome};
use crate::launcher;
use crate::settings::{Settings, name_of_field};

/// Chooses threads and vector instructions for the whole process.
pub fn machine(threads: Option<usize>, simd: Option<kernel::Path>) -> Outcome {
    if let Some(path) = simd
        && !kernel::set_path(path)
    {
        let have: Vec<_> = kernel::Path::available().iter().map(|p| p.name()).collect();
        let message = format!("train.simd={}: this machine has {}; auto takes the best", path.name(), have.join(", "));
        return Err(Failure::input(message));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build_global();
    pool.map_err(|e| Failure::input(format!("{} threads cannot be started ({e})", threads.unwrap_or(0))))
}

/// A corpus that takes longer to read is announced.
const PATIENCE: Duration = Duration::from_millis(700);

/// Reads the corpus that the settings name.
pub fn corpus(settings: &Settings, quiet: bool) -> Outcome<Corpus> {
    let (config, synth) = (settings.corpus(), settings.synth());
    let (done, wait) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let source = config.source.as_deref().unwrap_or("the built-in language");
        let _ = std::thread::Builder::new().spawn_scoped(scope, move || {
            // Most texts are read before anyone wonders.
            if !quiet && wait.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                console::note(format!("reading {} …", tprop::vocab::printable(source)));
            }
        });
        let corpus = corpus::load(&config, &synth);
        drop(done);
        Ok(corpus?)
    })
}

/// Refuses a text that is too short for a window or for evaluation, with settings that would fit.
pub fn check_lengths(settings: &Settings, corpus: &Corpus) -> Outcome {
    let method = settings.method();
    let window = method.least_window();
    let streams = method.streams();
    // In batch mode the number of blocks is not a user's.
    let parts = window
        .iter()
        .filter(|(field, _)| *field != "streams" && !(*field == "blocks" && method.batch() == Batch::Full));
    let names: Vec<&str> = parts.filter_map(|(field, _)| name_of_field(field)).collect();
    let (name, steps) = (names.join(" × "), (method.least_tokens() - 1) / streams);
    let (have, need) = (corpus.train.len(), method.least_tokens());
    if have < need {
        let way = if have > steps {
            format!("set train.streams={} or less", (have - 1) / steps)
        } else {
            format!("use a longer text, or train.streams=1 and a smaller {name}")
        };
        return Err(Failure::input(format!(
            "{}: the training split has {have} tokens, but a window of train.streams={streams} and {name}={steps} needs {need}; {way}",
            tprop::vocab::printable(&corpus.name)
        )));
    }
    let streams = settings.eval_streams();
    for split in [Split::Valid, Split::Test] {
        let have = corpus.tokens(split).len();
        if have <= streams {
            return Err(Failure::input(format!(
                "{}: the {split} split has {have} tokens, but eval.streams={streams} needs {}; set eval.streams={} or less",
                tprop::vocab::printable(&corpus.name),
                streams + 1,
                have.saturating_sub(1).clamp(1, 4)
            )));
        }
    }
    Ok(())
}

/// Bytes that training will need, about.
pub fn memory(settings: &Settings, model: &Model<f32>, text: Sizes) -> u64 {
    let weights = model.shapes().len() as u64 * 4;
    let optim = settings.optim();
    let method = settings.method();
    // Sums of gradients: over chunks or windows, and, where sums are made in shares, one for each level of their tree.
    let shares = settings.shares().unwrap_or(1) as u64;
    let several =
        u64::from(method.batch() != Batch::Mini { accumulate: 1 }) + u64::from(shares.next_power_of_two().ilog2());
    // θ, the best θ, gradients (and their sum), what the optimiser keeps; a checkpoint on its way to the disk and one that waits.
    let copies = 3 + several + optim.rule.slots() as u64 + 2 * (1 + optim.rule.slots() as u64);
    let logits = model.config().logits_mb as u64 * 1_000_000;
    let window = method.bytes(model, text.tokens, text.ranks);
    let one = (weights * copies).saturating_add(logits).saturating_add(text.bytes as u64).saturating_add(window);
    // Ranks on one machine share its memory.
    let here = if text.ranks > 1 { launcher::ranks_here() } else { 1 };
    one.saturating_mul(here as u64)
}

/// What of a text decides about memory.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Tokens to train on.
    pub tokens: usize,
    /// All splits in memory.
    pub bytes: usize,
    /// Ranks that share the states.
    pub ranks: usize,
}

impl Sizes {
    /// Of a text that so many ranks read.
    pub fn of(corpus: &Corpus, ranks: usize) -> Self {
        Self { tokens: corpus.train.len(), bytes: corpus.bytes(), ranks }
    }
}

/// Refuses what cannot fit into this machine.
pub fn check_memory(need: u64) -> Outcome {
    match tprop::method::memory::available() {
        Some(have) if need > have => Err(Failure::input(format!(
            "this needs about {}, but only {} of memory are free; try a smaller model.hidden, data.max_vocab or train.streams",
            bytes(need),
            bytes(have)
        ))),
        _ => Ok(()),
    }
}

/// A few lines about data, model and method.
pub fn summary(settings: &Settings, corpus: &Corpus, model: &Model<f32>, updates: usize, need: u64) -> String {
    let count = |n: usize| grouped(n as u64);
    let config = model.config();
    let mut text = format!(
        "data     {}: {} tokens to train on, {} to validate, {} to test; vocabulary {}\n",
        tprop::vocab::printable(&corpus.name),
        count(corpus.train.len()),
        count(corpus.valid.len()),
        count(corpus.test.len()),
        count(corpus.vocab.len()),
    );
    let unknown = corpus.unknown.iter().sum::<usize>();
    if unknown > 0 {
        let all = corpus.train.len() + corpus.valid.len() + corpus.test.len();
        text += &format!("         {:.2} % of them are <unk>\n", 100.0 * unknown as f64 / all as f64);
    }
    text += &format!("model    {} parameters\n", count(model.shapes().len()));
    for entry in model.shapes().entries() {
        let dims: Vec<_> = entry.dims().iter().map(ToString::to_string).collect();
        text += &format!("           {:<18} {:>14} {:>12}\n", entry.name, dims.join(" × "), count(entry.range().len()));
    }
    if config.tied {
        text += "           out.weight is embed.weight\n";
    }
    let method = settings.method();
    let sizes = method.least_window().into_iter().filter_map(|(field, _)| {
        let of = match field {
            "streams" => "streams",
            "blocks" => "blocks",
            _ => "steps",
        };
        Some(format!("{} {of}", settings.text(name_of_field(field)?)))
    });
    let mut method = format!("{}, {}", method.name(), sizes.collect::<Vec<_>>().join(" × "));
    if settings.applies("btprop.lambda") {
        let steps = settings.text("btprop.state_steps");
        method += &format!(", lambda {}, {steps} state steps", settings.lambda());
    }
    let optim = settings.optim();
    text += &format!(
        "method   {method}; {} {}, clip {}; {} updates per epoch\n",
        optim.rule.name(),
        optim.rate,
        optim.clip,
        count(updates)
    );
    text += &format!(
        "machine  {} threads, {}; about {} of memory",
        rayon::current_num_threads(),
        kernel::path().name(),
        bytes(need)
    );
    text
}
