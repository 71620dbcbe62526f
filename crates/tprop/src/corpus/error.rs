//! What can be wrong with a corpus.

use super::Split;
use std::path::PathBuf;

/// Why a corpus could not be had. Each message names the place; the program adds the way out.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// Neither a path nor a known name.
    #[error("{0}: there is no such file or directory, and no data set of that name")]
    Missing(String),
    /// A known data set that is not on this machine.
    #[error("{name}: not found in {}; it consists of {files}", list(.looked))]
    NotHere {
        /// The data set.
        name: String,
        /// The name to download it under.
        get: &'static str,
        /// Directories in which it was looked for.
        looked: Vec<PathBuf>,
        /// Files that it consists of.
        files: &'static str,
    },
    /// A directory in which a split is missing.
    #[error("{}: a directory without {} (accepted names are ptb.{split}.txt, wiki.{split}.tokens, {split}.txt and {split})", .path.display(), .split)]
    NoSplit {
        /// The directory.
        path: PathBuf,
        /// The split without a file.
        split: Split,
    },
    /// Something that cannot be read twice, or never ends.
    #[error("{}: {kind}, but a corpus must be an ordinary file, since a resumed run reads it again; save the text to a file first", .path.display())]
    Special {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The operating system says no.
    #[error("{}: cannot be read ({source}); check the path, its permissions and the disk", .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Bytes that are not text.
    #[error("{}: line {line}, byte {offset}: not UTF-8 (0x{byte:02x})", .path.display())]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: u64,
        /// The byte in the file, from 0.
        offset: u64,
        /// Its value.
        byte: u8,
    },
    /// UTF-16 or UTF-32.
    #[error("{}: looks like UTF-16 or UTF-32", .0.display())]
    Utf16(PathBuf),
    /// A zero byte in a text.
    #[error("{}: line {line}, byte {offset}: a NUL byte, so this is not a text file", .path.display())]
    Nul {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: u64,
        /// The byte in the file, from 0.
        offset: u64,
    },
    /// No white space for too long.
    #[error("{}: line {line}, byte {offset}: a word of more than {limit} bytes", .path.display())]
    LongWord {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: u64,
        /// Where the word begins in the file, from 0.
        offset: u64,
        /// Longest word that is accepted, in bytes.
        limit: usize,
    },
    /// More different words than memory should hold.
    #[error("{}: line {line}: more than {limit} different words", .path.display())]
    ManyWords {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: u64,
        /// How many are accepted.
        limit: usize,
    },
    /// Nothing, or nothing but white space.
    #[error("{}: {}; a corpus needs some text", .path.display(), if *.bytes == 0 { "the file is empty" } else { "only white space" })]
    Empty {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// Too little text for three splits.
    #[error("{}: {tokens} {}, too short to be divided 90/5/5; at least {needed} are needed, so use a longer text", .path.display(), if *.tokens == 1 { "token" } else { "tokens" })]
    Indivisible {
        /// The file.
        path: PathBuf,
        /// Its length.
        tokens: usize,
        /// Least length.
        needed: usize,
    },
    /// Too little text in the file of a split.
    #[error("{}: {tokens} {} in the {split} split, but at least {needed} are needed; use a longer text", .path.display(), if *.tokens == 1 { "token" } else { "tokens" })]
    Short {
        /// The file.
        path: PathBuf,
        /// The split that is too short.
        split: Split,
        /// Its length.
        tokens: usize,
        /// Least length.
        needed: usize,
    },
    /// A field of a configuration without sense.
    #[error("{field} = {value}: {wanted}")]
    Field {
        /// Which configuration.
        of: CorpusPart,
        /// Its field.
        field: &'static str,
        /// As given.
        value: String,
        /// What is accepted.
        wanted: String,
    },
}

/// Which configuration a field is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorpusPart {
    /// [`super::CorpusConfig`]
    Corpus,
    /// [`super::SynthConfig`]
    Synth,
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
