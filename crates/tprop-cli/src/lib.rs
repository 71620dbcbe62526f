//! The program: its command line and its commands. All mathematics is in the library `tprop`.
//!
//! A library of its own, so that tests, fuzz targets and other front ends reach its readers; the binary only calls [`program`].
//!
//! Crates and modules use only those above them; `tests/order.rs` checks it.
//!
//! ```text
//! tprop                                 models, methods, training, records
//! tprop-report                          tables, plots and pages of runs
//! tprop-run                             settings, a run's directory, failures, the console
//! tprop-lab                             experiments: grids and the paper's tables
//! ```
//!
//! ```text
//! lines, progress, tensorboard          what is shown of a run and of texts
//! plan, cluster, fetch                  what a cluster would give, the ranks of one, downloads
//! args, commands                        the command line, and what it asks for
//! ```

mod lines;
mod progress;
mod tensorboard;
mod plan;
mod cluster;
mod fetch;
mod args;
mod commands;

use tprop_lab as experiment;
use tprop_run::{console, describe, disk, failure, launcher, measure, prepare, run, settings, signals, wording};

use std::process::ExitCode;

use clap::Parser;

/// Reads the text of a settings file as `--config` does: the resolved settings as TOML, or the sentence of the refusal.
/// For property tests and fuzz targets.
///
/// # Errors
/// If `--config` would refuse it.
pub fn read_settings(text: &str) -> Result<String, String> {
    let refuse = |error: settings::SettingError| error.to_string();
    let file = settings::typed::read_text(text, std::path::Path::new("settings.toml")).map_err(refuse)?;
    let settings = settings::Settings::resolve(&settings::Sources { file, arguments: Vec::new() }).map_err(refuse)?;
    Ok(settings.to_toml())
}

/// Reads what an experiment remembers, `study.json` and `outcomes.jsonl`, from any bytes: whether each was readable.
/// For property tests and fuzz targets.
pub fn read_experiment(bytes: &[u8]) -> (Result<(), String>, Result<(), String>) {
    experiment::read_state(bytes)
}

/// Reads a sweep's file, as `tprop sweep` does: nothing, or the sentence of the refusal. For property tests and fuzz targets.
///
/// # Errors
/// If `tprop sweep` would refuse it.
pub fn read_sweep(text: &str) -> Result<(), String> {
    experiment::read_sweep(text)
}

/// Reads the command line, does what it asks for, and says how that ended.
pub fn program() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or(String::new(), |at| format!(" at {}:{}", at.file(), at.line()));
        let what = panic.payload();
        let what = what.downcast_ref::<&str>().copied().or(what.downcast_ref::<String>().map(String::as_str));
        let what = what.unwrap_or("no message");
        let version = env!("CARGO_PKG_VERSION");
        console::note(format!(
            "tprop {version} made a mistake{place} ({what}); please report it with the command that you typed"
        ));
        // A worker's panic must not leave the others waiting.
        std::process::exit(failure::Code::Failed as i32);
    }));
    let line = match args::Line::try_parse() {
        Ok(line) => line,
        // It repeats what was typed, whatever that is.
        Err(error) if error.use_stderr() => {
            console::note(error.render().to_string().trim_end());
            return ExitCode::from(failure::Code::Input as u8);
        }
        Err(help) => help.exit(),
    };
    match commands::run(line.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                console::note(format!("tprop: {}", failure.message));
            }
            ExitCode::from(failure.code as u8)
        }
    }
}
