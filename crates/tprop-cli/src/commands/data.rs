//! `data`: list, get, inspect.

use std::path::{Path, PathBuf};

use tprop::corpus::{self, DATASETS, Dataset, Level};

use crate::args::{Data, LevelArg};
use crate::console::{self, bytes, grouped};
use crate::failure::{Failure, Outcome};

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

fn get(name: &str, _data_dir: Option<&Path>) -> Outcome {
    let Some(set) = DATASETS.iter().find(|set| set.name == name) else {
        let names: Vec<_> = DATASETS.iter().map(|set| set.name).collect();
        return Err(Failure::input(format!("there is no data set {name}; there are {}", names.join(", "))));
    };
    Err(Failure::new(crate::failure::Code::Failed, format!("put {} into the data directory", set.files)))
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
