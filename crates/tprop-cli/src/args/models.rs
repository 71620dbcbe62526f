//! Options of the commands that use a trained model.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Line, SettingFlags};

/// Which weights of a run.
#[derive(Debug, Args)]
pub struct Weights {
    /// The run's directory
    pub run: PathBuf,
    /// A file of the run's checkpoints/; the best weights if not given
    #[arg(long, value_name = "NAME")]
    pub checkpoint: Option<String>,
}

/// Which part of a corpus to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The training split
    Train,
    /// The validation split
    Valid,
    /// The test split
    Test,
    /// All three, one after the other
    All,
}

/// Options of `eval`.
#[derive(Debug, Args)]
pub struct Eval {
    /// Which weights.
    #[command(flatten)]
    pub weights: Weights,
    /// Another text to read: file, directory or name
    #[arg(long, value_name = "SOURCE")]
    pub data: Option<String>,
    /// Where names of data sets are looked up first
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Which split; test if not given, all of a file given by --data
    #[arg(long)]
    pub split: Option<Part>,
    /// Streams into which the split is cut; the run's eval.streams if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536), conflicts_with = "exact")]
    pub streams: Option<u32>,
    /// One stream, so that no token is dropped; read by blocks in parallel where that is faster
    #[arg(long)]
    pub exact: bool,
    /// With --exact, read in order; otherwise blocks are read in parallel where that is faster, with the same nats to 1e-6
    #[arg(long, requires = "exact")]
    pub sequential: bool,
    /// Also the perplexity by position in blocks of the run's length
    #[arg(long)]
    pub by_position: bool,
    /// Before each block, this many gradient steps on the states of the blocks just read, always in order (0: read plainly)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub adapt_states: u32,
    /// Rate of those steps
    #[arg(long, value_name = "RATE", default_value_t = 0.1)]
    pub adapt_lr: f64,
    /// How many blocks back the states are free
    #[arg(long, value_name = "W", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub adapt_blocks: u32,
    /// λ of those steps (the run's btprop.lambda unless given)
    #[arg(long, value_name = "LAMBDA")]
    pub adapt_lambda: Option<f64>,
    /// Steps of a block, for positions and adapted states (the run's own unless given)
    #[arg(long, value_name = "B", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub block: Option<u32>,
    /// Print one JSON line
    #[arg(long)]
    pub json: bool,
}

const METER_HELP: &str = "\
Nothing is trained. Some windows of the training text are entered in the state that reading the text before them leaves. The exact
gradient of a window is that of back-propagation through all of it. The method's is what its updates would see: with windows shorter
than that, the mean over several at the same weights.

  error        |g - g*| / |g*|, mean over windows; 0 is exact
  cosine       1 is the same direction
  pull sweeps  state steps of target propagation: how often what blocks send back is passed on
  starts       what a sweep changes of the states in which blocks begin, and how far they then are from the true ones
  exponent     largest Lyapunov exponent per step: near 0 the network hardly forgets, and long gradients matter
  lag          how much of a loss's gradient arrives so many tokens before its block

Examples:
  tprop meter runs/NAME                                       the run's own method over its own window
  tprop meter runs/NAME train.streams=1 preset=scan
  tprop meter runs/NAME train.streams=1 preset=reach btprop.block=10 btprop.blocks=64
  tprop meter runs/NAME train.streams=1 method=bptt bptt.window=70 --window 640

All passes are in f64. Every token counts in the exact gradient, whatever btprop.ignore says; nothing is stored yet, so stored starts
begin in the initial state.";

/// Options of `meter`.
#[derive(Debug, Args)]
#[command(after_help = METER_HELP)]
pub struct Meter {
    /// Which weights.
    #[command(flatten)]
    pub weights: Weights,
    /// Settings of the method as key=value where they differ from the run's, or preset=NAME
    #[arg(value_name = "KEY=VALUE")]
    pub words: Vec<String>,
    /// Tokens of each stream over which the gradient is exact; the method's own window if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub window: Option<u32>,
    /// How many windows, spread over the text
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub windows: u32,
    /// Pull sweeps up to which target propagation is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub sweeps: u32,
    /// Print one JSON line
    #[arg(long)]
    pub json: bool,
}

/// Whether `tprop eval RUN --json` takes these arguments; if not, why.
pub fn check_eval(arguments: &[String]) -> Result<(), String> {
    let words = ["tprop", "eval", "RUN", "--json"].into_iter().chain(arguments.iter().map(String::as_str));
    let parsed = <Line as clap::Parser>::try_parse_from(words);
    parsed.map(drop).map_err(|e| {
        let text = e.to_string();
        let first = text.lines().next().unwrap_or_default();
        tprop::vocab::printable(first.strip_prefix("error: ").unwrap_or(first))
    })
}

/// Options of `generate`.
#[derive(Debug, Args)]
pub struct Generate {
    /// Which weights.
    #[command(flatten)]
    pub weights: Weights,
    /// Text to begin with
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prompt: String,
    /// How many tokens to write
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub tokens: u64,
    /// Below 1 more likely words, above 1 more surprising ones, 0 always the likeliest
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = temperature, allow_negative_numbers = true)]
    pub temperature: f64,
    /// Only among the K likeliest tokens (0: among all)
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub top_k: usize,
    /// Chooses the text
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(t) if (0.0..=1000.0).contains(&t) => Ok(t),
        _ => Err("must be a number from 0 to 1000".to_owned()),
    }
}

/// Options of `score`.
#[derive(Debug, Args)]
pub struct Score {
    /// Which weights.
    #[command(flatten)]
    pub weights: Weights,
    /// The text; standard input if not given
    pub file: Option<PathBuf>,
    /// The lines are one text: each is read after all before it, by blocks in parallel where that is faster (in memory as a whole)
    #[arg(long)]
    pub carry: bool,
    /// With --carry, read in order; otherwise blocks are read in parallel where that is faster, with the same scores to 1e-6
    #[arg(long, requires = "carry")]
    pub sequential: bool,
    /// Also the log-probability of each token
    #[arg(long)]
    pub tokens: bool,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

/// Options of `export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Which weights.
    #[command(flatten)]
    pub weights: Weights,
    /// Where to write model.safetensors, tokenizer.json and config.json
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Options of `import`.
#[derive(Debug, Args)]
pub struct Import {
    /// A directory with model.safetensors and tokenizer.json
    pub dir: PathBuf,
    /// Settings as key=value, for example data.source=ptb
    #[arg(value_name = "KEY=VALUE")]
    pub words: Vec<String>,
    /// Where to put the run
    #[arg(long, value_name = "DIR")]
    pub run: PathBuf,
    /// The settings that have flags.
    #[command(flatten)]
    pub settings: SettingFlags,
}
