//! `demo`: the newcomer's first look.

use std::path::Path;

use crate::args;
use crate::experiment::recipe::{self, BUILT_IN, Scale};
use crate::experiment::{self, Request};
use crate::failure::Outcome;

/// Trains the methods side by side on the built-in language.
pub fn demo(args: &args::Demo) -> Outcome {
    let (name, text) = BUILT_IN.iter().find(|(name, _)| *name == "demo").expect("it is built in");
    let path = format!("experiments/{name}.toml");
    let study = recipe::read(text, Path::new(&path), Scale::Quick, Vec::new())?;
    // The models are small: two with half of the cores each are faster than one after the other.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let request = Request {
        out: args.out.clone(),
        jobs: cores.clamp(1, 4),
        data_dir: None,
        retry: false,
        dry_run: false,
        json: args.json,
        quiet: args.quiet,
        only: Vec::new(),
        command: "tprop demo".to_owned(),
        lenient: false,
    };
    experiment::run(&study, &request)
}
