//! The command line, exactly as typed.

mod experiments;
mod flags;
mod models;
mod training;

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub use experiments::{Demo, Report, Reproduce, Sweep};
pub use flags::{SettingFlags, sources};
pub use models::{Eval, Export, Generate, Import, Meter, Part, Score, check_eval};
pub use training::{Bench, Plan, Resume, Telling, Train};

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
    /// Continue a run that was stopped
    Resume(Resume),
    /// Perplexity of a run's model on a split
    Eval(Eval),
    /// How far a method's gradient is from the exact one, on a run's weights and text
    Meter(Meter),
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
    /// Words between white space
    Word,
    /// Characters
    Char,
    /// Bytes
    Byte,
}
