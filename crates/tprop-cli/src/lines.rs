//! How a line begins, and which of its words a model does not know.

use tprop::vocab::{Level, Vocab, printable};

use crate::console;

/// What a line begins after: the line end, or where there is none a space or the most frequent token.
pub fn opening(vocab: &Vocab) -> u32 {
    if vocab.level() == Level::Byte {
        return u32::from(b'\n');
    }
    vocab.eos().or_else(|| vocab.token(" ")).or_else(|| vocab.token("_")).unwrap_or(0)
}

/// Says which words of a text the model does not know.
pub fn tell_unknown(text: &str, vocab: &Vocab, place: &str) {
    let known = |token: &str| vocab.token(token).is_some();
    let mut unknown: Vec<String> = match vocab.level() {
        Level::Byte => Vec::new(),
        Level::Word => text.split_whitespace().filter(|word| !known(word)).map(printable).collect(),
        Level::Char => {
            let spaces = vocab.cutting().underscores;
            let token = |c: char| if c == ' ' && spaces { "_".to_owned() } else { c.to_string() };
            let tokens = text.chars().filter(|c| *c != '\n').map(token);
            tokens.filter(|p| !known(p)).map(|p| printable(&p)).collect()
        }
    };
    unknown.dedup();
    if !unknown.is_empty() {
        let fate = if vocab.unk().is_some() { "read as <unk>" } else { "left out" };
        console::note(format!("{place}not in the vocabulary, {fate}: {}", unknown.join(" ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tprop::vocab::Cutting;

    #[test]
    fn a_line_begins_after_what_stands_between_lines() {
        let cutting = |level, eos| Cutting { level, eos, underscores: false };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let vocab = |all: &[&str], level, eos| Vocab::new(words(all), cutting(level, eos)).unwrap();
        assert_eq!(opening(&vocab(&["the", "<eos>", "a"], Level::Word, true)), 1);
        assert_eq!(opening(&vocab(&["the", "a"], Level::Word, false)), 0);
        assert_eq!(opening(&vocab(&["e", "t", " "], Level::Char, false)), 2);
        assert_eq!(opening(&vocab(&["e", "_"], Level::Char, false)), 1);
        // Bytes have no token that is named as the line end, but they have one.
        assert_eq!(opening(&Vocab::bytes(false)), 10);
        assert_eq!(opening(&Vocab::bytes(true)), 10);
    }
}
