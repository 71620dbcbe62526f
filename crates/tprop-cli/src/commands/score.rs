//! `score`: log-probability of each line.
//!
//! A line is read from the initial state after a line end, and its own line end is part of it (where the vocabulary has one), so
//! that the probabilities of all possible lines add up to 1. With `--carry` the lines are one text: each is read after all before it.

use std::io::{self, BufRead, BufReader};

use tprop::eval::Reader;
use tprop::generate::Generator;
use tprop::vocab::{Level, Vocab, printable};

use super::reading;
use crate::args;
use crate::console;
use crate::failure::{Failure, Outcome};
use crate::lines::{opening, tell_unknown};
use crate::prepare;
use crate::run::Loaded;

/// Scores each line.
pub fn score(args: &args::Score) -> Outcome {
    let loaded = Loaded::open(&args.weights.run, args.weights.checkpoint.as_deref())?;
    let threads = if args.carry { loaded.settings.threads() } else { Some(1) };
    prepare::machine(threads, loaded.settings.simd())?;
    if args.carry {
        return score_carried(args, &loaded);
    }
    let generator = Generator::new(&loaded.model, &loaded.params);
    each_line(args, &loaded.vocab, |number, content, tokens| {
        print(args, &loaded.vocab, &Line::new(number, content, tokens), &generator.score(tokens))
    })
}

/// A line and what is scored of it.
struct Line {
    number: u64,
    content: Vec<u8>,
    tokens: Vec<u32>,
}

impl Line {
    /// `tokens` begin with the one it opens with, which has no score.
    fn new(number: u64, content: &[u8], tokens: &[u32]) -> Self {
        Self { number, content: content.to_vec(), tokens: tokens[1..].to_vec() }
    }
}

/// All lines as one text.
fn score_carried(args: &args::Score, loaded: &Loaded) -> Outcome {
    let vocab = &loaded.vocab;
    let mut lines: Vec<Line> = Vec::new();
    let mut text: Vec<u32> = Vec::new();
    // Where the scored tokens of each line begin in the text.
    let mut places = Vec::new();
    each_line(args, vocab, |number, content, tokens| {
        // A line end that was read before serves as the opening one.
        let skip = usize::from(!text.is_empty() && vocab.eos().is_some());
        places.push(text.len() + 1 - skip);
        text.extend_from_slice(&tokens[skip..]);
        lines.push(Line::new(number, content, tokens));
        Ok(())
    })?;
    let way = reading::way(&loaded.model, 1, args.sequential);
    let mut scores = vec![0.0; text.len()];
    let mut reader = Reader::new(reading::STEPS).in_parallel(way);
    let read = reader.read_each(&loaded.model, &loaded.params, &text, 1, |_, at, nats| {
        scores[at + 1] = -f64::from(nats);
    });
    let (mut total, mut count) = (0.0, 0);
    for (line, from) in lines.iter().zip(places) {
        let scores = &scores[from..from + line.tokens.len()];
        (total, count) = (total + scores.iter().sum::<f64>(), count + scores.len());
        print(args, vocab, line, scores)?;
    }
    if args.json {
        let mut last = serde_json::json!({"lines": lines.len(), "logprob": total, "tokens": count});
        reading::describe(&mut last, &read, way);
        return console::line(last);
    }
    console::note(reading::sentence(&read, way));
    Ok(())
}

/// Shows every line of the input as its number, its bytes and its tokens, the one it opens with included.
fn each_line(args: &args::Score, vocab: &Vocab, mut show: impl FnMut(u64, &[u8], &[u32]) -> Outcome) -> Outcome {
    let (name, mut input): (String, Box<dyn BufRead>) = match &args.file {
        Some(path) => {
            let name = path.display().to_string();
            let file = tprop::file::open(path).map_err(|e| Failure::input(format!("{name}: cannot be read ({e})")))?;
            (name, Box::new(BufReader::new(file)))
        }
        None => ("standard input".to_owned(), Box::new(io::stdin().lock())),
    };
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
        show(number, content, &tokens)?;
    }
    Ok(())
}

/// A line with the scores of its tokens.
fn print(args: &args::Score, vocab: &Vocab, line: &Line, scores: &[f64]) -> Outcome {
    let total: f64 = scores.iter().sum();
    let words: Vec<&str> = line.tokens.iter().map(|&t| vocab.word(t)).collect();
    if args.json {
        let mut json = serde_json::json!({"line": line.number, "logprob": total, "tokens": scores.len()});
        if args.tokens {
            json["by_token"] = words.iter().zip(scores).map(|(w, s)| serde_json::json!([w, s])).collect();
        }
        return console::line(json);
    }
    console::line(format!("{total:.6}\t{}\t{}", scores.len(), printable(&String::from_utf8_lossy(&line.content))))?;
    if args.tokens {
        let rows: String = words.iter().zip(scores).map(|(w, s)| format!("  {s:.6}\t{}\n", printable(w))).collect();
        console::data(&rows)?;
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
