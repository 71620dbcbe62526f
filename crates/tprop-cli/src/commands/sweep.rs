//! `sweep`: a grid of the user's own.

use std::path::Path;

use tprop_report::text::shell;

use crate::args;
use crate::experiment::{self, sweep_file};
use crate::failure::Outcome;
use crate::settings::typed;

/// Runs a grid.
pub fn sweep(args: &args::Sweep) -> Outcome {
    let text = typed::text_of(&args.file)?;
    let study = sweep_file::read(&text, &args.file, experiment::words(&args.words)?)?;
    let mut command = format!("tprop sweep {}", shell(&args.file.to_string_lossy()));
    command.extend(args.words.iter().map(|word| format!(" {}", shell(word))));
    let usual = Path::new("sweeps").join(args.file.file_stem().unwrap_or("sweep".as_ref()));
    experiment::run(&study, &args.driving.request(usual, command))
}
