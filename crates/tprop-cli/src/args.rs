//! The command line, exactly as typed.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command as Clap, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::experiment::recipe::Scale;
use crate::failure::{Failure, Outcome};
use crate::settings::table::{self, Kind, TABLE};
use crate::settings::{Sources, Typed, presets, typed};

const EXAMPLES: &str = "\
Examples:
  tprop train                                  the built-in language, about a minute
  tprop train book.txt --hidden 200            one text file, split 90/5/5
  tprop train ptb model.cell=lstm --epochs 6   a known data set; any setting as key=value
  tprop train --preset reach --block 5 --state-steps 3
  tprop generate runs/NAME --prompt \"the cat\"
  tprop eval runs/NAME --split test --json

Exit codes: 0 done, 1 failed, 2 bad input or settings, 3 diverged, 4 no usable checkpoint, 5 disk,
6 run directory in use, 130 or 143 stopped by a signal after saving.";

/// Trains recurrent language models by back-propagation through time and by target propagation.
#[derive(Debug, Parser)]
#[command(name = "tprop", version, after_help = EXAMPLES, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
pub struct Line {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a model; without arguments on a built-in language
    Train(Box<Train>),
    /// Go on with a run that was stopped
    Resume(Resume),
    /// Perplexity of a run's model on a split
    Eval(Eval),
    /// Write text with a run's model
    Generate(Generate),
    /// Measure the speed of training steps on this machine
    Bench(Bench),
    /// Predict what a cluster would give
    Plan(Plan),
    /// BPTT and target propagation side by side, in about two minutes
    Demo(Demo),
    /// Train a grid of settings, with one table at the end
    Sweep(Sweep),
    /// Compute one of the paper's results afresh
    Reproduce(Reproduce),
    /// Log-probability of each line of a text, in nats
    Score(Score),
    /// Tables and plots of runs, as one page and as files
    Report(Report),
    /// Data sets: list, download, inspect
    #[command(subcommand)]
    Data(Data),
    /// Write a run's weights and vocabulary for PyTorch and the tokenizers library
    Export(Export),
    /// Make a run from exported weights
    Import(Import),
    /// Explain all settings, or those of a group
    Settings {
        /// Beginning of their names, for example `btprop` or `optim.lr`
        #[arg(default_value = "")]
        prefix: String,
    },
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Print the manual page, or write those of all commands into a directory
    Man {
        /// Write tprop.1, tprop-train.1, … here
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

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
    /// One stream, so that no token is dropped
    #[arg(long)]
    pub exact: bool,
    /// Also the perplexity by position in blocks of the run's length
    #[arg(long)]
    pub by_position: bool,
    /// Before each block, this many gradient steps on the states of the blocks just read (0: read plainly)
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
    /// Time until a short letter is there, microseconds
    #[arg(long, value_name = "US", default_value_t = 20.0, value_parser = positive)]
    pub latency: f64,
    /// Time that a letter costs a processor, microseconds
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

/// How to run an experiment.
#[derive(Clone, Debug, Args)]
pub struct Driving {
    /// Where trials and tables go; the same command goes on there
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Trials side by side; they share the threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: u16,
    /// Where names of data sets are looked up first
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Run trials again that failed
    #[arg(long)]
    pub retry: bool,
    /// Print the number of trials and the estimated time, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON line instead of Markdown
    #[arg(long)]
    pub json: bool,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

const SWEEP_EXAMPLES: &str = "\
A file has [set] (settings of all trials), [grid] (setting = [values], or { from, to, steps, scale }) and
[sweep] (seeds, groups, prune); docs/experiments.md explains it.

Examples:
  tprop sweep rates.toml --dry-run             how many trials, how long
  tprop sweep rates.toml --jobs 2              runs them in sweeps/rates; killed, the same command goes on
  tprop sweep rates.toml model.hidden=50 --out sweeps/rates-50";

/// Options of `sweep`.
#[derive(Debug, Args)]
#[command(after_help = SWEEP_EXAMPLES)]
pub struct Sweep {
    /// The grid's TOML file
    pub file: PathBuf,
    /// Settings of all trials
    #[arg(value_name = "KEY=VALUE")]
    pub words: Vec<String>,
    /// How.
    #[command(flatten)]
    pub driving: Driving,
}

/// Options of `reproduce`.
#[derive(Debug, Args)]
pub struct Reproduce {
    /// table1, table2, table4, figure, grid, theorem, solvers, convergence, leastsquares, adapt, reach, ladder, duals,
    /// geometry, or the TOML file of an experiment
    #[arg(value_name = "NAME")]
    pub what: String,
    /// Settings of all trials
    #[arg(value_name = "KEY=VALUE")]
    pub words: Vec<String>,
    /// How much of it
    #[arg(long, value_enum, default_value_t = Scale::Quick)]
    pub scale: Scale,
    /// Only these cells: parts of their names, for example mini-ptb, mini-ptb/bptt or b20
    #[arg(long, value_name = "CELL")]
    pub only: Vec<String>,
    /// Seed of the random model and text of `theorem`
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How.
    #[command(flatten)]
    pub driving: Driving,
}

/// Options of `demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// Where runs and tables go
    #[arg(long, value_name = "DIR", default_value = "demo")]
    pub out: PathBuf,
    /// Print one JSON line instead of Markdown
    #[arg(long)]
    pub json: bool,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
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
    /// Also the log-probability of each token
    #[arg(long)]
    pub tokens: bool,
    /// Print JSON lines
    #[arg(long)]
    pub json: bool,
}

/// Options of `report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Run directories, or folders that hold some
    #[arg(value_name = "RUN_OR_FOLDER", required = true)]
    pub runs: Vec<PathBuf>,
    /// Where to write report.html, report.md and report/; beside the runs if not given
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What the report is called
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Print one JSON line
    #[arg(long)]
    pub json: bool,
}

/// Options of `data`.
#[derive(Debug, Subcommand)]
pub enum Data {
    /// Names of known data sets, and which are here
    List {
        /// Where to look first
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
    },
    /// Download a data set
    Get {
        /// Its name
        name: String,
        /// Where to put it
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
    },
    /// Counts, vocabulary, coverage and a few lines of a text file
    Inspect {
        /// The file
        file: PathBuf,
        /// What a token is
        #[arg(long, value_enum, default_value_t = LevelArg::Word)]
        level: LevelArg,
        /// Print one JSON line
        #[arg(long)]
        json: bool,
    },
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LevelArg {
    /// Pieces between white space
    Word,
    /// Characters
    Char,
    /// Bytes
    Byte,
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

/// Flags that are other spellings of dotted names, made from the settings' table.
#[derive(Debug, Default)]
pub struct SettingFlags(Vec<Typed>);

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = TABLE.iter().filter_map(|s| Some((s.name, s.flag?))).chain([("preset", "preset")]);
        let typed = flags.filter_map(|(name, flag)| {
            let value = matches.get_one::<String>(name)?;
            Some(Typed::spelt(name, value, &format!("--{flag} {value}")))
        });
        Ok(Self(typed.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Clap) -> Clap {
        let mut command = command.next_help_heading("Everyday settings");
        for setting in TABLE {
            if let Some(flag) = setting.flag {
                let (value, words) = match setting.kind {
                    Kind::Count { .. } => ("N", ""),
                    Kind::Real { .. } => ("X", ""),
                    Kind::Choice(words) => ("WORD", &*words.join(", ")),
                    _ => ("TEXT", ""),
                };
                let words = if words.is_empty() { String::new() } else { format!(": {words}") };
                let help = match setting.default_text() {
                    text if text.is_empty() => format!("{}{words}", setting.doc),
                    text => format!("{}{words} [{}={text}]", setting.doc, setting.name),
                };
                let arg = Arg::new(setting.name).long(flag).value_name(value).help(help);
                command = command.arg(arg.allow_negative_numbers(true));
            }
        }
        let names: Vec<_> = presets::PRESETS.iter().map(|p| p.name).collect();
        let help = format!("Several settings at once: {}", names.join(", "));
        command = command.arg(Arg::new("preset").long("preset").value_name("WORD").help(help));
        command.next_help_heading(None)
    }

    fn augment_args_for_update(command: Clap) -> Clap {
        Self::augment_args(command)
    }
}

/// What was typed, by source: words with `=` are settings, one other word is the data source.
pub fn sources(words: &[String], flags: &SettingFlags, config: Option<&std::path::Path>) -> Outcome<Sources> {
    let mut arguments = Vec::new();
    let mut source: Option<&str> = None;
    for word in words {
        match Typed::argument(word) {
            // A file whose name happens to have an `=` is still a file.
            Some(typed) if table::find(&typed.name).is_some() || !std::path::Path::new(word).exists() => {
                arguments.push(typed);
            }
            _ => {
                if let Some(first) = source.replace(word) {
                    return Err(Failure::input(format!(
                        "two data sources, {first} and {word}; a corpus is one file, one directory or one name (settings are key=value)"
                    )));
                }
                arguments.push(Typed::spelt("data.source", word, word));
            }
        }
    }
    arguments.extend(flags.0.iter().cloned());
    let file = config.map(typed::read_file).transpose()?.unwrap_or_default();
    Ok(Sources { file, arguments })
}
