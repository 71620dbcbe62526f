//! `score`: log-probability of each line.
//!
//! A line is read from the initial state after a line end, and its own line end is part of it (where the vocabulary has one), so
//! that the probabilities of all possible lines add up to 1.

use std::io::{self, BufRead, BufReader};

use tprop::generate::Generator;
use tprop::vocab::{Level, Vocab, printable};

use crate::args;
use crate::console;
use crate::failure::{Failure, Outcome};
use crate::lines::{opening, tell_unknown};
use crate::prepare;
use crate::run::Loaded;

/// Scores each line.
pub fn score(args: &args::Score) -> Outcome {
    let loaded = Loaded::open(&args.weights.run, args.weights.checkpoint.as_deref())?;
    prepare::machine(Some(1), loaded.settings.simd())?;
    let (name, mut input): (String, Box<dyn BufRead>) = match &args.file {
        Some(path) => {
            let name = path.display().to_string();
            let file = tprop::file::open(path).map_err(|e| Failure::input(format!("{name}: cannot be read ({e})")))?;
            (name, Box::new(BufReader::new(file)))
        }
        None => ("standard input".to_owned(), Box::new(io::stdin().lock())),
    };
    let vocab = &loaded.vocab;
    let mut generator = Generator::new(&loaded.model, &loaded.params);
    let mut bytes = Vec::new();
    for number in 1u64.. {
        bytes.clear();
        let read = input.read_until(b'\n', &mut bytes);
        if read.map_err(|e| Failure::input(format!("{name}: line {number}: cannot be read ({e})")))? == 0 {
            break;
        }
        let content = bytes.strip_suffix(b"\n").map(|b| b.strip_suffix(b"\r").unwrap_or(b)).unwrap_or(&bytes);
        let tokens = encode(content, vocab).map_err(|at| {
            Failure::input(format!(
                "{name}: line {number}, byte {at} of the line: not UTF-8; only a byte-level model reads it"
            ))
        })?;
        if let Ok(text) = std::str::from_utf8(content) {
            tell_unknown(text, vocab, &format!("line {number}: "));
        }
        let scores = generator.score(&tokens);
        let total: f64 = scores.iter().sum();
        let words: Vec<&str> = tokens.iter().skip(1).map(|&t| vocab.word(t)).collect();
        if args.json {
            let mut line = serde_json::json!({"line": number, "logprob": total, "tokens": scores.len()});
            if args.tokens {
                line["by_token"] = words.iter().zip(&scores).map(|(w, s)| serde_json::json!([w, s])).collect();
            }
            console::line(line)?;
            continue;
        }
        console::line(format!("{total:.6}\t{}\t{}", scores.len(), printable(&String::from_utf8_lossy(content))))?;
        if args.tokens {
            let rows: String =
                words.iter().zip(&scores).map(|(w, s)| format!("  {s:.6}\t{}\n", printable(w))).collect();
            console::data(&rows)?;
        }
    }
    Ok(())
}

/// The tokens of a line between two line ends; the place of the first byte that is not UTF-8 otherwise.
fn encode(line: &[u8], vocab: &Vocab) -> Result<Vec<u32>, usize> {
    let mut tokens = vec![opening(vocab)];
    match vocab.level() {
        Level::Byte => tokens.extend(line.iter().map(|b| u32::from(*b))),
        _ => tokens.extend(vocab.encode(std::str::from_utf8(line).map_err(|e| e.valid_up_to())?)),
    }
    tokens.extend(vocab.eos());
    Ok(tokens)
}
