//! `generate`: text from a model.

use std::io::IsTerminal;

use tprop::generate::{Generator, Sampling};
use tprop::vocab::{Level, Vocab, printable};

use crate::args;
use crate::console;
use crate::failure::Outcome;
use crate::lines::{opening, tell_unknown};
use crate::prepare;
use crate::run::Loaded;

/// Writes text.
pub fn generate(args: &args::Generate) -> Outcome {
    let loaded = Loaded::open(&args.weights.run, args.weights.checkpoint.as_deref())?;
    // One token at a time has nothing to share among threads.
    prepare::machine(Some(1), loaded.settings.simd())?;
    let vocab = &loaded.vocab;
    tell_unknown(&args.prompt, vocab, "");
    let prompt = vocab.encode(&args.prompt);
    let mut generator = Generator::new(&loaded.model, &loaded.params);
    let mut writer = Writer::new(vocab, std::io::stdout().is_terminal());
    generator.read(opening(vocab));
    for &token in &prompt {
        generator.read(token);
        writer.write(token)?;
    }
    let sampling = Sampling { temperature: args.temperature, top_k: args.top_k, seed: args.seed };
    let mut written = Ok(());
    generator.generate(args.tokens, sampling, |token| {
        written = writer.write(token);
        written.is_ok()
    });
    written?;
    writer.finish()
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
