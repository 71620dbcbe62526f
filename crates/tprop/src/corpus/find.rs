//! From what the user named to files.

use super::{CorpusError, Level, Split};
use std::path::{Path, PathBuf};

/// A data set with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dataset {
    /// What users type.
    pub name: &'static str,
    /// The set whose files it is made from; also the folder that they are looked for in.
    pub get: &'static str,
    /// One line for a list.
    pub about: &'static str,
    /// What its tokens are, unless the user says otherwise.
    pub level: Level,
    /// The files as a sentence would name them.
    pub files: &'static str,
    /// Names of the three files with `{}` for the split; none if it is one file named like the set.
    patterns: &'static [&'static str],
}

/// All data sets with a name.
pub const DATASETS: [Dataset; 6] = [
    Dataset {
        name: "ptb",
        get: "ptb",
        about: "Penn Treebank, 0.93 million words, vocabulary 10,000",
        level: Level::Word,
        files: "ptb.train.txt, ptb.valid.txt and ptb.test.txt",
        patterns: &["ptb.{}.txt", "{}.txt"],
    },
    Dataset {
        name: "ptb-char",
        get: "ptb",
        about: "the same in characters, 5.0 million",
        level: Level::Char,
        files: "ptb.train.txt, ptb.valid.txt and ptb.test.txt",
        patterns: &["ptb.{}.txt", "{}.txt"],
    },
    Dataset {
        name: "text8",
        get: "text8",
        about: "the first 100 MB of cleaned Wikipedia, 17 million words",
        level: Level::Word,
        files: "text8 (unpacked from text8.zip)",
        patterns: &[],
    },
    Dataset {
        name: "text8-char",
        get: "text8",
        about: "the same in characters, 100 million",
        level: Level::Char,
        files: "text8 (unpacked from text8.zip)",
        patterns: &[],
    },
    Dataset {
        name: "wikitext-2",
        get: "wikitext-2",
        about: "Wikipedia articles, 2.1 million words, vocabulary 33,278",
        level: Level::Word,
        files: "train.txt, valid.txt and test.txt (or wiki.train.tokens, …)",
        patterns: &["wiki.{}.tokens", "{}.txt"],
    },
    Dataset {
        name: "wikitext-103",
        get: "wikitext-103",
        about: "Wikipedia articles, 103 million words, vocabulary 267,735",
        level: Level::Word,
        files: "wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens",
        patterns: &["wiki.{}.tokens", "{}.txt"],
    },
];

/// Names of files in a directory that has none of its own; `{}` is the split.
const PATTERNS: [&str; 5] = ["ptb.{}.txt", "wiki.{}.tokens", "{}.txt", "{}.tokens", "{}"];

/// The files of a corpus.
#[derive(Debug)]
pub(super) enum Found {
    /// One for each split.
    Files { files: [PathBuf; 3], set: Option<&'static Dataset> },
    /// One that has to be divided.
    One { path: PathBuf, set: Option<&'static Dataset> },
}

impl Found {
    pub fn dataset(&self) -> Option<&'static Dataset> {
        match self {
            Found::Files { set, .. } | Found::One { set, .. } => *set,
        }
    }
}

/// The directories in which data sets are looked for, best first: the one given, `$TPROP_DATA`, the user's data directory.
pub fn places(data_dir: Option<&Path>) -> Vec<PathBuf> {
    let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = env("XDG_DATA_HOME").or_else(|| env("HOME").map(|home| home.join(".local/share")));
    let mut places: Vec<PathBuf> = data_dir.map(Path::to_owned).into_iter().collect();
    places.extend(env("TPROP_DATA"));
    places.extend(user.map(|dir| dir.join("tprop")));
    places
}

/// A name is looked up in the data directories first and then taken as a path, from here or, if there is nothing, from a data directory.
pub(super) fn find(source: &str, data_dir: Option<&Path>) -> Result<Found, CorpusError> {
    static KNOWN: [Dataset; 6] = DATASETS;
    let named = KNOWN.iter().find(|set| set.name == source);
    let places = places(data_dir);
    if let Some(set) = named {
        // The working directory counts too, but only with a folder or file of the set's name: its own `train.txt` may be anything.
        let here = Path::new("").join(set.get);
        let folders = places.iter().flat_map(|place| [place.join(set.get), place.clone()]).chain([here]);
        if let Some(found) = folders.into_iter().find_map(|folder| in_folder(set, &folder)) {
            return Ok(found);
        }
    }
    let mut path = PathBuf::from(source);
    if named.is_none() && !source.is_empty() && !path.exists() {
        path = places.iter().map(|place| place.join(source)).find(|path| path.exists()).unwrap_or(path);
    }
    match std::fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => directory(&path),
        Ok(_) => Ok(Found::One { path, set: None }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Err(match named {
            Some(set) => {
                CorpusError::NotHere { name: source.to_owned(), get: set.get, looked: places, files: set.files }
            }
            None => CorpusError::Missing(source.to_owned()),
        }),
        Err(e) => Err(CorpusError::Io { path, source: e }),
    }
}

fn in_folder(set: &'static Dataset, folder: &Path) -> Option<Found> {
    if set.patterns.is_empty() {
        // `folder` is both DIR/text8, which may be the file itself, and DIR.
        let inside = folder.join(set.get);
        let path = if inside.is_file() { inside } else { folder.to_owned() };
        let right_name = path.file_name().is_some_and(|name| name == set.get);
        return (right_name && path.is_file()).then_some(Found::One { path, set: Some(set) });
    }
    set.patterns.iter().find_map(|pattern| {
        let files = Split::ALL.map(|split| file_of(folder, pattern, split));
        match files {
            [Some(train), Some(valid), Some(test)] => {
                Some(Found::Files { files: [train, valid, test], set: Some(set) })
            }
            _ => None,
        }
    })
}

fn file_of(folder: &Path, pattern: &str, split: Split) -> Option<PathBuf> {
    let names: &[&str] = match split {
        Split::Train => &["train"],
        Split::Valid => &["valid", "validation", "val", "dev"],
        Split::Test => &["test"],
    };
    names.iter().map(|name| folder.join(pattern.replace("{}", name))).find(|path| path.is_file())
}

/// A directory with one file for each split; all three by the same pattern.
fn directory(folder: &Path) -> Result<Found, CorpusError> {
    let mut missing = Split::Train;
    for pattern in PATTERNS {
        let files = Split::ALL.map(|split| file_of(folder, pattern, split));
        match files {
            [Some(train), Some(valid), Some(test)] => {
                return Ok(Found::Files { files: [train, valid, test], set: None });
            }
            [Some(_), None, _] => missing = Split::Valid,
            [Some(_), _, None] => missing = Split::Test,
            _ => {}
        }
    }
    Err(CorpusError::NoSplit { path: folder.to_owned(), split: missing })
}
