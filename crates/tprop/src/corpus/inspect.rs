//! What is in a file: counts, frequent symbols, coverage, a few lines.

use super::{CorpusError, read};
use crate::vocab::{Cutting, Level, Vocab, printable};
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A description of one text file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// The file.
    pub path: PathBuf,
    /// What was counted.
    pub level: Level,
    /// Length in bytes.
    pub bytes: u64,
    /// Lines; a last one without a newline counts.
    pub lines: u64,
    /// Tokens, line ends included.
    pub tokens: u64,
    /// Different tokens.
    pub distinct: usize,
    /// Tokens that occur once.
    pub once: usize,
    /// The most frequent tokens with their counts; control characters are spelt out.
    pub head: Vec<(String, u64)>,
    /// Share of the text that the n most frequent tokens make up, for several n.
    pub coverage: Vec<(usize, f64)>,
    /// The first lines, cut to a readable length; control characters are spelt out.
    pub samples: Vec<String>,
}

const HEAD: usize = 20;
const SAMPLES: usize = 5;
const SAMPLE_CHARS: usize = 160;

/// Counts a file in one pass; memory goes into its different tokens only.
///
/// # Errors
/// As [`super::load`] for the same file; an empty file is not an error here.
pub fn inspect(path: &Path, level: Level) -> Result<Inspection, CorpusError> {
    let cutting = Cutting { level, eos: true, underscores: false };
    let mut symbols = read::SymbolTable::new(cutting);
    let mut counts: Vec<u64> = Vec::new();
    let mut tokens = 0;
    let extent = symbols.scan(read::open(path)?, path, &mut |token, _| {
        let token = token as usize;
        if token >= counts.len() {
            counts.resize(token + 1, 0);
        }
        counts[token] += 1;
        tokens += 1;
    })?;
    let words: Vec<String> = match symbols.into_words().0 {
        Some(words) => words.into_iter().map(String::from).collect(),
        None => Vocab::bytes(true).words().to_vec(),
    };
    let mut order: Vec<usize> = (0..counts.len()).filter(|&i| counts[i] > 0).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(counts[i]), i));
    let mut coverage = Vec::new();
    let mut covered = 0u64;
    let sizes = [10, 100, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];
    for (n, &i) in order.iter().enumerate() {
        covered += counts[i];
        if sizes.contains(&(n + 1)) {
            coverage.push((n + 1, covered as f64 / tokens as f64));
        }
    }
    if let Some(last) = Some(order.len()).filter(|n| *n > 0 && !sizes.contains(n)) {
        coverage.push((last, 1.0));
    }
    Ok(Inspection {
        path: path.to_owned(),
        level,
        bytes: extent.bytes,
        lines: extent.lines,
        tokens,
        distinct: order.len(),
        once: counts.iter().filter(|&&count| count == 1).count(),
        head: order.iter().take(HEAD).map(|&i| (printable(&words[i]), counts[i])).collect(),
        coverage,
        samples: samples(path)?,
    })
}

fn samples(path: &Path) -> Result<Vec<String>, CorpusError> {
    let mut start = Vec::new();
    let io = |source| CorpusError::Io { path: path.to_owned(), source };
    read::open(path)?.take(1 << 16).read_to_end(&mut start).map_err(io)?;
    let text = String::from_utf8_lossy(&start);
    let lines = text.trim_start_matches('\u{feff}').lines().filter(|line| !line.trim().is_empty());
    Ok(lines
        .take(SAMPLES)
        .map(|line| {
            let cut: String = line.chars().take(SAMPLE_CHARS).collect();
            let more = if cut.len() < line.len() { "…" } else { "" };
            printable(&cut) + more
        })
        .collect())
}
