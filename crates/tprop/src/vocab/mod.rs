//! Words and their numbers: how a text is cut into symbols, and which number each symbol has.
//!
//! Three levels. *Word*: symbols between white space, and `<eos>` for each line end. *Char*: every character, and `"\n"` for
//! each line end. *Byte*: the 256 bytes as they are. CR LF counts as LF on the first two. With `eos` off a line end is just
//! white space.

mod cutter;
#[cfg(test)]
mod tests;
mod tokenizer;

use crate::tokens::Text;
use crate::words;
pub(crate) use cutter::{Cutter, Symbol};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
pub use tokenizer::VocabError;

/// The word that stands for all that are not in the vocabulary.
pub const UNK: &str = "<unk>";
/// The word for a line end at word level.
pub const EOS: &str = "<eos>";

/// What a token is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Symbols between white space.
    #[default]
    Word,
    /// Unicode characters.
    Char,
    /// The 256 bytes.
    Byte,
}

words! { Level { "word" => Word, "char" => Char, "byte" => Byte } }

/// How a text is cut into symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutting {
    /// What a symbol is.
    pub level: Level,
    /// Whether a line end is a symbol of its own (at byte level it always is, and this only names it).
    pub eos: bool,
    /// At character level: lines are trimmed of spaces and a space inside is written as `_`, the custom of the
    /// character version of the Penn Treebank.
    pub underscores: bool,
}

/// Words and their tokens.
///
/// ```
/// use tprop::vocab::{Cutting, Level, Vocab};
/// let words = ["the", "cat", "sleeps", "<unk>", "<eos>"].map(String::from).to_vec();
/// let vocab = Vocab::new(words, Cutting { level: Level::Word, eos: true, underscores: false }).expect("all differ");
/// let tokens = vocab.encode("the cat snores\n");
/// assert_eq!(tokens, [0, 1, 3, 4]);
/// assert_eq!(vocab.decode(&tokens[..2]), "the cat");
/// assert_eq!(vocab.word(2), "sleeps");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocab {
    cutting: Cutting,
    words: Vec<String>,
    /// Tokens in the alphabetical order of their words: four bytes a word, where a hash table would take forty.
    sorted: Vec<u32>,
    unk: Option<u32>,
    eos: Option<u32>,
}

impl Vocab {
    /// The vocabulary whose token i is `words[i]`; `None` if a word occurs twice or there are 2³² of them.
    pub fn new(words: Vec<String>, cutting: Cutting) -> Option<Self> {
        if cutting.level == Level::Byte {
            return Some(Self::bytes(cutting.eos));
        }
        let size = u32::try_from(words.len()).ok()?;
        let mut sorted: Vec<u32> = (0..size).collect();
        sorted.sort_unstable_by_key(|&token| &words[token as usize]);
        if sorted.windows(2).any(|pair| words[pair[0] as usize] == words[pair[1] as usize]) {
            return None;
        }
        let mut vocab = Self { cutting, words, sorted, unk: None, eos: None };
        vocab.unk = vocab.token(UNK);
        let line_end = if cutting.level == Level::Word { EOS } else { "\n" };
        vocab.eos = vocab.token(line_end).filter(|_| cutting.eos);
        Some(vocab)
    }

    /// The 256 bytes, token = byte; with `eos` the newline is named as the line end.
    pub fn bytes(eos: bool) -> Self {
        let words: Vec<String> = (0..=255).map(|byte| stand_in(byte).to_string()).collect();
        let mut sorted: Vec<u32> = (0..=255).collect();
        sorted.sort_unstable_by_key(|&token| &words[token as usize]);
        let cutting = Cutting { level: Level::Byte, eos, underscores: false };
        Self { cutting, words, sorted, unk: None, eos: eos.then_some(u32::from(b'\n')) }
    }

    /// Number of tokens.
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// The word of a token; at byte level a printable stand-in for the byte.
    ///
    /// # Panics
    /// If there is no such token.
    pub fn word(&self, token: u32) -> &str {
        &self.words[token as usize]
    }

    /// All words in the order of their tokens.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The token of exactly this word.
    pub fn token(&self, word: &str) -> Option<u32> {
        let place = self.sorted.binary_search_by(|&token| self.words[token as usize].as_str().cmp(word));
        place.ok().map(|at| self.sorted[at])
    }

    /// The token of this word, or else that of `<unk>` if the vocabulary has it.
    pub fn encode_word(&self, word: &str) -> Option<u32> {
        self.token(word).or(self.unk)
    }

    /// The token for unknown words; bytes have none, nor has a corpus in which nothing is unknown.
    pub fn unk(&self) -> Option<u32> {
        self.unk
    }

    /// The token of a line end.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// What a token is.
    pub fn level(&self) -> Level {
        self.cutting.level
    }

    /// How texts are cut.
    pub fn cutting(&self) -> Cutting {
        self.cutting
    }

    /// The tokens of a text, as a file with it would be read, except that no line end is added behind the last line.
    /// Unknown symbols are left out if there is no `<unk>`.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        if self.cutting.level == Level::Byte {
            return text.bytes().map(u32::from).collect();
        }
        let mut tokens = Vec::new();
        let mut cutter = Cutter::new(self.cutting, usize::MAX);
        let mut sink = |symbol: Symbol<'_>, _: u64| {
            tokens.extend(match symbol {
                Symbol::Word(word) => self.encode_word(word),
                Symbol::LineEnd => self.eos,
            });
            true
        };
        cutter.feed(text, 0, &mut sink);
        cutter.finish(false, &mut sink);
        tokens
    }

    /// The text of some tokens. Words are joined by spaces, a line end is `"\n"`; bytes that are not UTF-8 become U+FFFD;
    /// tokens outside the vocabulary are left out. The text may hold any character: see [`printable`].
    pub fn decode<'a>(&self, text: impl Into<Text<'a>>) -> String {
        let known = text.into().iter().filter(|&token| (token as usize) < self.len());
        match self.cutting.level {
            Level::Byte => {
                let bytes: Vec<u8> = known.map(|token| token as u8).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Level::Char => known
                .map(|token| match self.word(token) {
                    "_" if self.cutting.underscores => " ",
                    word => word,
                })
                .collect(),
            Level::Word => {
                let mut text = String::new();
                for token in known {
                    if Some(token) == self.eos {
                        text.push('\n');
                        continue;
                    }
                    if !text.is_empty() && !text.ends_with('\n') {
                        text.push(' ');
                    }
                    text.push_str(self.word(token));
                }
                text
            }
        }
    }

    /// SHA-256 over the level, the way of cutting and all words, in hexadecimal.
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        self.hash_into(&mut hasher);
        hex(&hasher.finalize())
    }

    pub(crate) fn hash_into(&self, hasher: &mut Sha256) {
        let Cutting { level, eos, underscores } = self.cutting;
        hasher.update([level as u8, u8::from(eos), u8::from(underscores)]);
        hasher.update((self.len() as u64).to_le_bytes());
        for word in &self.words {
            hasher.update((word.len() as u64).to_le_bytes());
            hasher.update(word.as_bytes());
        }
    }
}

/// The printable character that stands for a byte in byte-level tokenizers: itself if it is printable, else the next
/// unused one from U+0100 on.
fn stand_in(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or('\u{fffd}')
}

/// The text with control characters, marks that turn the writing direction and the like spelt out, so that a terminal shows
/// it and does not obey it. A newline is spelt out too.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let invisible = matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}');
        if c.is_control() || invisible {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// The text with control characters spelt out, as JSON does it; line ends and tabs stay. For whole texts: nothing else is changed.
pub fn plain(text: &str) -> std::borrow::Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(obeyed) {
        return text.into();
    }
    let spelt = |c: char| match c {
        '\r' => "\\r".to_owned(),
        c if obeyed(c) => format!("\\u{:04x}", c as u32),
        c => c.to_string(),
    };
    text.chars().map(spelt).collect::<String>().into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
