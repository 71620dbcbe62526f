//! Options of the commands that train many runs, or show them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::experiment::{Request, recipe};

/// How to run an experiment.
#[derive(Clone, Debug, Args)]
pub struct Driving {
    /// Where trials and tables go; the same command continues there
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

impl Driving {
    /// What to do with an experiment that is usually in `usual_out` and that `command` makes again.
    pub fn request(&self, usual_out: PathBuf, command: String) -> Request {
        Request {
            out: self.out.clone().unwrap_or(usual_out),
            jobs: usize::from(self.jobs),
            data_dir: self.data_dir.clone(),
            retry: self.retry,
            dry_run: self.dry_run,
            json: self.json,
            quiet: self.quiet,
            only: Vec::new(),
            command,
            lenient: false,
        }
    }
}

/// How much of an experiment.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Scale {
    /// Minutes: the built-in language, small models
    Quick,
    /// The paper's data and sizes
    Full,
}

impl From<Scale> for recipe::Scale {
    fn from(scale: Scale) -> Self {
        match scale {
            Scale::Quick => recipe::Scale::Quick,
            Scale::Full => recipe::Scale::Full,
        }
    }
}

const SWEEP_EXAMPLES: &str = "\
A file has [set] (settings of all trials), [grid] (setting = [values], or { from, to, steps, scale }) and
[sweep] (seeds, groups, prune); docs/experiments.md explains it.

Examples:
  tprop sweep rates.toml --dry-run             how many trials, how long
  tprop sweep rates.toml --jobs 2              runs them in sweeps/rates; killed, the same command continues
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
    /// table1, table2, table4, figure, grid, theorem, solvers, convergence, leastsquares, adapt, reach, parallel, ladder, duals,
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
