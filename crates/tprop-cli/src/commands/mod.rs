//! What each command does.

mod bench;
mod data;
mod demo;
mod eval;
mod exchange;
mod generate;
mod meter;
mod plan;
mod reading;
mod report;
mod reproduce;
mod resume;
mod resume_settings;
mod sample;
mod score;
mod sweep;
mod train;
mod watch;

use clap::CommandFactory;

use crate::args::{Command, Line};
use crate::cluster::Cluster;
use crate::console;
use crate::failure::{Failure, Outcome};
use crate::settings;

/// Does what was asked for.
pub fn run(command: Command) -> Outcome {
    if !matches!(command, Command::Train(_) | Command::Resume(_) | Command::Plan(_)) {
        Cluster::refuse_launcher()?;
    }
    match command {
        Command::Train(args) => train::train(&args),
        Command::Resume(args) => resume::resume(&args),
        Command::Eval(args) => eval::eval(&args),
        Command::Meter(args) => meter::meter(&args),
        Command::Generate(args) => generate::generate(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Demo(args) => demo::demo(&args),
        Command::Sweep(args) => sweep::sweep(&args),
        Command::Reproduce(args) => reproduce::reproduce(&args),
        Command::Score(args) => score::score(&args),
        Command::Report(args) => report::report(&args),
        Command::Data(args) => data::data(&args),
        Command::Export(args) => exchange::export(&args),
        Command::Import(args) => exchange::import(&args),
        Command::Settings { prefix } => explain(&prefix),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Line::command(), "tprop", &mut text);
            console::data(&String::from_utf8_lossy(&text))
        }
        Command::Man { out } => manual(out.as_deref()),
    }
}

fn explain(prefix: &str) -> Outcome {
    let prefix = prefix.trim_end_matches('.');
    let presets = if prefix.is_empty() || "preset".starts_with(prefix) || prefix == "presets" {
        settings::list_presets()
    } else {
        String::new()
    };
    match (settings::list(prefix), presets) {
        (None, presets) if presets.is_empty() => {
            let near = settings::nearest_name(prefix).map_or(String::new(), |name| format!("; did you mean {name}?"));
            let shown = tprop::vocab::printable(prefix);
            Err(Failure::input(format!("no setting begins with {shown}{near}")))
        }
        (list, presets) => console::data(&[list.unwrap_or_default(), presets].join("\n")),
    }
}

fn manual(out: Option<&std::path::Path>) -> Outcome {
    let command = Line::command();
    if let Some(dir) = out {
        std::fs::create_dir_all(dir).map_err(|e| Failure::disk(dir, &e))?;
        return clap_mangen::generate_to(command, dir).map_err(|e| Failure::disk(dir, &e));
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text).map_err(|e| Failure::output(&e))?;
    console::data(&String::from_utf8_lossy(&text))
}
