//! `generate`: text from a model.

use std::io::IsTerminal;

use tprop::rng::Draws;
use tprop::vocab::{Level, Vocab, printable};

use super::prepare;
use crate::args;
use crate::console;
use crate::failure::Outcome;
use crate::run::Loaded;
use crate::speaker::{Speaker, opening, tell_unknown};

/// Writes text.
pub fn generate(args: &args::Generate) -> Outcome {
    let loaded = Loaded::open(&args.weights.run, args.weights.checkpoint.as_deref())?;
    // One token at a time has nothing to share among threads.
    prepare::machine(Some(1), loaded.settings.simd())?;
    let vocab = &loaded.vocab;
    tell_unknown(&args.prompt, vocab, "");
    let prompt = vocab.encode(&args.prompt);
    let mut speaker = Speaker::new(&loaded.model, &loaded.params);
    let mut writer = Writer::new(vocab, std::io::stdout().is_terminal());
    speaker.read(opening(vocab));
    for &token in &prompt {
        speaker.read(token);
        writer.write(token)?;
    }
    let draws = Draws::new(args.seed, "generate");
    let mut logits = Vec::new();
    for i in 0..args.tokens {
        speaker.logits(&mut logits);
        let token = choose(&mut logits, args.temperature, args.top_k, draws.unit(i));
        writer.write(token)?;
        speaker.read(token);
    }
    writer.finish()
}

/// A token drawn from softmax(logits / temperature) among the `top_k` likeliest (0: all); `unit` is uniform in [0, 1).
fn choose(logits: &mut [f64], temperature: f64, top_k: usize, unit: f64) -> u32 {
    let best = logits.iter().enumerate().fold(0, |best, (i, x)| if *x > logits[best] { i } else { best });
    if temperature == 0.0 {
        return best as u32;
    }
    let top = logits[best];
    if top_k > 0 && top_k < logits.len() {
        let mut sorted = logits.to_vec();
        let (_, least, _) = sorted.select_nth_unstable_by(top_k - 1, |a, b| b.total_cmp(a));
        let least = *least;
        // Among equals at the edge the earlier tokens stay, so that exactly k do.
        let mut room = top_k - logits.iter().filter(|x| **x > least).count();
        for x in logits.iter_mut() {
            let stays = *x > least || (*x == least && room > 0);
            room -= usize::from(stays && *x == least);
            if !stays {
                *x = f64::NEG_INFINITY;
            }
        }
    }
    let mut sum = 0.0;
    for x in logits.iter_mut() {
        sum += ((*x - top) / temperature).exp();
        *x = sum; // cumulative
    }
    logits.partition_point(|x| *x <= unit * sum).min(logits.len() - 1) as u32
}

/// Writes tokens as they come. A terminal gets no control characters.
struct Writer<'a> {
    vocab: &'a Vocab,
    terminal: bool,
    line_start: bool,
    /// Bytes that may be the beginning of a character.
    pending: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(vocab: &'a Vocab, terminal: bool) -> Self {
        Self { vocab, terminal, line_start: true, pending: Vec::new() }
    }

    fn write(&mut self, token: u32) -> Outcome {
        let text = match self.vocab.level() {
            Level::Char => self.vocab.decode(&[token]),
            Level::Word if Some(token) == self.vocab.eos() => "\n".to_owned(),
            Level::Word if self.line_start => self.vocab.word(token).to_owned(),
            Level::Word => format!(" {}", self.vocab.word(token)),
            Level::Byte => {
                self.pending.push(token as u8);
                self.whole_characters()
            }
        };
        self.show(&text)
    }

    /// Takes what can be shown off the pending bytes.
    fn whole_characters(&mut self) -> String {
        match std::str::from_utf8(&self.pending) {
            Err(e) if e.error_len().is_none() => {
                let rest = self.pending.split_off(e.valid_up_to());
                let whole = std::mem::replace(&mut self.pending, rest);
                String::from_utf8_lossy(&whole).into_owned()
            }
            _ => String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned(),
        }
    }

    fn show(&mut self, text: &str) -> Outcome {
        if let Some(last) = text.chars().last() {
            self.line_start = last == '\n';
        }
        if self.terminal {
            let lines: Vec<String> = text.split('\n').map(printable).collect();
            return console::data(&lines.join("\n"));
        }
        console::data(text)
    }

    fn finish(mut self) -> Outcome {
        let rest = String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned();
        self.show(&rest)?;
        if self.line_start { Ok(()) } else { console::data("\n") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_follow_the_distribution() {
        let logits = [0.0, 2f64.ln(), 1f64.ln() - 50.0, 5f64.ln()];
        let draws = Draws::new(3, "test");
        let mut counts = [0; 4];
        for i in 0..8000 {
            counts[choose(&mut logits.clone(), 1.0, 0, draws.unit(i)) as usize] += 1;
        }
        for (count, share) in counts.iter().zip([1.0, 2.0, 0.0, 5.0]) {
            assert!((f64::from(*count) - 1000.0 * share).abs() < 150.0, "{counts:?}");
        }
        let top2: Vec<u32> = (0..200).map(|i| choose(&mut logits.clone(), 1.0, 2, draws.unit(i))).collect();
        assert!(top2.iter().all(|t| [1, 3].contains(t)) && top2.contains(&1));
        assert_eq!(choose(&mut logits.clone(), 0.0, 0, 0.999), 3);
        assert_eq!(choose(&mut [1.0, 1.0, 1.0], 1.0, 1, 0.999), 0);
    }

    #[test]
    fn bytes_are_shown_as_whole_characters() {
        let vocab = Vocab::bytes(true);
        let mut writer = Writer::new(&vocab, true);
        let mut shown = String::new();
        for byte in "é\u{1b}".bytes().chain([0xff, 0xe2, 0x82]) {
            writer.pending.push(byte);
            shown += &writer.whole_characters();
        }
        assert_eq!(shown, "é\u{1b}\u{fffd}");
        assert_eq!(writer.pending, [0xe2, 0x82]);
    }
}
