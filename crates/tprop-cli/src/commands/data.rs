//! `data`: list, get, inspect.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tprop::corpus::{self, DATASETS, Dataset, Level};

use crate::args::{Data, LevelArg};
use crate::console::{self, bytes, grouped};
use crate::failure::{Code, Failure, Outcome};
use crate::fetch::{self, FetchError};

/// Does what was asked for.
pub fn data(args: &Data) -> Outcome {
    match args {
        Data::List { data_dir } => list(data_dir.as_deref()),
        Data::Get { name, data_dir } => get(name, data_dir.as_deref()),
        Data::Inspect { file, level, json } => inspect(file, *level, *json),
    }
}

fn list(data_dir: Option<&Path>) -> Outcome {
    let places = corpus::places(data_dir);
    let mut text = String::new();
    for set in DATASETS {
        let state = if is_here(&set, &places) { "here" } else { "-" };
        text += &format!("{:<14} {state:<6} {}\n", set.name, set.about);
    }
    console::data(&text)?;
    let places: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
    console::note(format!("looked for in {}; `tprop data get NAME` downloads one", places.join(", ")));
    Ok(())
}

/// Whether something of the data set's name is in one of the places; `train` looks closer.
fn is_here(set: &Dataset, places: &[PathBuf]) -> bool {
    let names = [set.get.to_owned(), format!("{}.train.txt", set.get)];
    places.iter().any(|place| names.iter().any(|name| place.join(name).exists()))
}

fn get(name: &str, data_dir: Option<&Path>) -> Outcome {
    let Some(place) = corpus::places(data_dir).into_iter().next() else {
        return Err(Failure::input("there is no home directory to put data into; say where with --data-dir"));
    };
    let mut shown = Instant::now();
    let live = console::live();
    let fetched = fetch::get(name, &place, fetch::mirror().as_deref(), &mut |file, so_far, all| {
        if live && shown.elapsed() > Duration::from_millis(100) {
            shown = Instant::now();
            let of = all.map_or(String::new(), |all| format!(" of {}", bytes(all)));
            eprint_over(&format!("{file}: {}{of}", bytes(so_far)));
        }
    });
    if live {
        eprint_over("");
    }
    let fetched = fetched.map_err(|e| {
        let code = match &e {
            FetchError::Unknown(_) => Code::Input,
            FetchError::Io { .. } => Code::Disk,
            _ => Code::Failed,
        };
        Failure::new(code, e)
    })?;
    for file in fetched {
        console::line(file.path.display())?;
        match (file.downloaded, file.known) {
            (false, _) => console::note("  was there already"),
            (true, true) => console::note("  its checksum is right"),
            (true, false) => console::note(format!("  no checksum is known for it; remembered {}", file.sha256)),
        }
    }
    console::note(format!("try `tprop train {name}`"));
    Ok(())
}

/// Replaces the line on the terminal.
fn eprint_over(text: &str) {
    let _ = write!(std::io::stderr().lock(), "\r\x1b[2K{text}");
}

fn inspect(file: &Path, level: LevelArg, json: bool) -> Outcome {
    let level = match level {
        LevelArg::Word => Level::Word,
        LevelArg::Char => Level::Char,
        LevelArg::Byte => Level::Byte,
    };
    let found = corpus::inspect(file, level)?;
    if json {
        return console::line(serde_json::to_string(&found).map_err(Failure::input)?);
    }
    let mut text = format!(
        "{}: {}, {} lines, {} {level} tokens, {} different ones ({} of them once)\n",
        file.display(),
        bytes(found.bytes),
        grouped(found.lines),
        grouped(found.tokens),
        grouped(found.distinct as u64),
        grouped(found.once as u64),
    );
    if !found.coverage.is_empty() {
        text += "\nshare of the text made up by the most frequent tokens\n";
        for (n, share) in &found.coverage {
            text += &format!("  {:>10} {:>6.2} %\n", grouped(*n as u64), 100.0 * share);
        }
        text += "\nmost frequent\n";
        for (word, count) in &found.head {
            text += &format!("  {:>10} {word}\n", grouped(*count));
        }
        text += "\nfirst lines\n";
        for line in &found.samples {
            text += &format!("  {line}\n");
        }
    }
    console::data(&text)
}
