//! Options of the commands that train, or tell what training would take.

use std::path::PathBuf;

use clap::Args;

use super::SettingFlags;

const TRAIN_EXAMPLES: &str = "\
Examples:
  tprop train                                   the built-in language
  tprop train book.txt                          one text file, split 90/5/5
  tprop train corpus/                           train.txt, valid.txt, test.txt
  tprop train ptb --hidden 200 optim.lr=0.1     a data set by name (`tprop data list`)
  tprop train --config a.toml train.seed=2      a file of settings, one of them changed
  tprop train ptb --dry-run                     what it would take
  tprop train --print-settings > a.toml         all settings, to edit

Later sources win: defaults, then --preset, then --config, then flags and key=value.
`tprop settings` explains all of them.";

/// Options of `train`.
#[derive(Debug, Args)]
#[command(after_help = TRAIN_EXAMPLES)]
pub struct Train {
    /// A text file, a directory, a data set's name, or settings as key=value
    #[arg(value_name = "SOURCE|KEY=VALUE")]
    pub words: Vec<String>,
    /// The settings that have flags.
    #[command(flatten)]
    pub settings: SettingFlags,
    /// Read settings from a TOML file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to put the run; runs/DATE-MODEL-METHOD-N if not given
    #[arg(long, value_name = "DIR")]
    pub run: Option<PathBuf>,
    /// Begin with the weights of another run instead of random ones
    #[arg(long, value_name = "RUN")]
    pub from: Option<PathBuf>,
    /// Print all settings as TOML and stop
    #[arg(long)]
    pub print_settings: bool,
    /// Print parameters, memory, tokens per epoch and estimated time, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// How to tell about it.
    #[command(flatten)]
    pub telling: Telling,
}

/// How a command tells about its progress.
#[derive(Clone, Copy, Debug, Args)]
pub struct Telling {
    /// Print events as JSON lines on standard output
    #[arg(long)]
    pub json: bool,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

const RESUME_EXAMPLES: &str = "\
Examples:
  tprop resume runs/NAME                                            exactly as if it had never stopped
  tprop resume runs/NAME train.threads=4 checkpoint.every_minutes=1
  tprop resume runs/NAME train.epochs=20 --allow-change train.epochs
  tprop resume runs/NAME optim.lr=0.01 --allow-change optim.lr

Threads, vector instructions, checkpoints and the place of the data may change freely: results do not depend on them.
Settings that shape the numbers but fit the saved state may change with --allow-change: optim.lr, optim.clip, optim.eps,
optim.anneal, train.epochs, train.patience. All others need a new run (`tprop train --from RUN` begins with its weights).";

/// Options of `resume`.
#[derive(Debug, Args)]
#[command(after_help = RESUME_EXAMPLES)]
pub struct Resume {
    /// The run's directory
    pub run: PathBuf,
    /// Settings as key=value that differ from the run's
    #[arg(value_name = "KEY=VALUE")]
    pub words: Vec<String>,
    /// A setting that may differ although it changes the numbers; may be repeated
    #[arg(long, value_name = "KEY")]
    pub allow_change: Vec<String>,
    /// Threads; the result does not depend on them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// How to tell about it.
    #[command(flatten)]
    pub telling: Telling,
}

/// Options of `bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Settings as key=value; data.vocab is the size of the random text's vocabulary
    #[arg(value_name = "KEY=VALUE")]
    pub words: Vec<String>,
    /// The settings that have flags.
    #[command(flatten)]
    pub settings: SettingFlags,
    /// A command that prints a JSON line with tokens_per_s_best (and gemm_gflops); it takes turns with ours
    #[arg(long, value_name = "COMMAND")]
    pub peer: Option<String>,
    /// Steps measured in each round
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Rounds; with a peer both run in each
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub rounds: u32,
    /// A few steps only
    #[arg(long)]
    pub quick: bool,
    /// Also where the time of a step goes
    #[arg(long)]
    pub profile: bool,
    /// Print one JSON line
    #[arg(long)]
    pub json: bool,
}

const PLAN_EXAMPLES: &str = "\
Examples:
  tprop plan ptb --method btprop train.batch=full --ranks 1,2,4,8
  tprop plan --tokens 1000000000 data.vocab=50000 --hidden 512 --bandwidth 100 --latency 2
  mpirun -n 2 tprop plan --tokens 50000 --measure 5      times passes instead (needs --features mpi)

docs/cluster.md has the formula.";

/// Options of `plan`.
#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub struct Plan {
    /// A data source, or settings as key=value
    #[arg(value_name = "SOURCE|KEY=VALUE")]
    pub words: Vec<String>,
    /// The settings that have flags.
    #[command(flatten)]
    pub settings: SettingFlags,
    /// Numbers of ranks to plan for
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256,512,1024",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub ranks: Vec<u32>,
    /// Bandwidth of the network, gigabits a second each way
    #[arg(long, value_name = "GBIT/S", default_value_t = 10.0, value_parser = positive)]
    pub bandwidth: f64,
    /// Time until a short message is there, microseconds
    #[arg(long, value_name = "US", default_value_t = 20.0, value_parser = positive)]
    pub latency: f64,
    /// Time that a message costs a processor, microseconds
    #[arg(long, value_name = "US", default_value_t = 5.0, value_parser = positive)]
    pub overhead: f64,
    /// Plan for a made-up text of so many tokens and data.vocab words instead of reading one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000_000_000_000))]
    pub tokens: Option<u64>,
    /// Tokens a second of one rank, instead of measuring them
    #[arg(long, value_name = "TOKENS/S", value_parser = positive)]
    pub rate: Option<f64>,
    /// With --rate: tokens a second of the init that ranks do in turn
    #[arg(long, value_name = "TOKENS/S", value_parser = positive, requires = "rate")]
    pub serial_rate: Option<f64>,
    /// With --rate: milliseconds of an update of the weights
    #[arg(long, value_name = "MS", default_value_t = 0.0, value_parser = not_negative, requires = "rate")]
    pub update: f64,
    /// Time so many passes over a random text, on all ranks of a launcher if there are any
    #[arg(long, value_name = "PASSES", default_value_t = 0, requires = "tokens")]
    pub measure: u32,
    /// Print one JSON line
    #[arg(long)]
    pub json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x: &f64| x.is_finite() && *x > 0.0).ok_or_else(|| "must be a number above 0".to_owned())
}

fn not_negative(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|x: &f64| x.is_finite() && *x >= 0.0).ok_or_else(|| "must be a number from 0".to_owned())
}
