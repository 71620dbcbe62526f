//! Words and tokens: how a text is cut into pieces, and which number each piece has.
//!
//! Three levels. *Word*: pieces between white space, and `<eos>` for each line end. *Char*: every character, and `"\n"` for
//! each line end. *Byte*: the 256 bytes as they are. CR LF counts as LF on the first two. With `eos` off a line end is just
//! white space.
//!
//! `tokenizer.json` is what the `tokenizers` library reads; it then encodes as [`Vocab::encode`] does:
//!
//! | level | normalizer | pre-tokenizer | model |
//! |---|---|---|---|
//! | word | `"\n"` → `" <eos> "` | WhitespaceSplit | WordLevel |
//! | char | `"\r\n"` → `"\n"`; spaces → `_` where the corpus has it so | Split at each character | WordLevel |
//! | byte | none | ByteLevel (its printable stand-ins for bytes) | BPE without merges |
//!
//! Two differences remain: a piece that is unknown to a vocabulary without `<unk>` is left out here and is an error there;
//! and that library has no decoder which undoes the white space of words, so decoding there gives `<eos>` as a word.

use crate::tokens::Text;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// The word that stands for all that are not in the vocabulary.
pub const UNK: &str = "<unk>";
/// The word for a line end at word level.
pub const EOS: &str = "<eos>";

/// What a token is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Pieces between white space.
    #[default]
    Word,
    /// Unicode characters.
    Char,
    /// The 256 bytes.
    Byte,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Level::Word => "word",
            Level::Char => "char",
            Level::Byte => "byte",
        })
    }
}

/// How a text is cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cutting {
    /// What a piece is.
    pub level: Level,
    /// Whether a line end is a piece of its own (at byte level it always is, and this only names it).
    pub eos: bool,
    /// At character level: lines are trimmed of spaces and a space inside is written as `_`, the custom of the
    /// character version of the Penn Treebank.
    pub underscores: bool,
}

/// A `tokenizer.json` that is not one of ours.
#[derive(Debug, thiserror::Error)]
pub enum VocabError {
    /// Not JSON, or not of the expected shape.
    #[error("tokenizer.json: {0}")]
    Json(#[from] serde_json::Error),
    /// Another kind of tokenizer.
    #[error("tokenizer.json: {what} is {found}, but only {wanted} can be read")]
    Unsupported {
        /// The field.
        what: &'static str,
        /// Its value.
        found: String,
        /// What is understood.
        wanted: &'static str,
    },
    /// The numbers are not 0, 1, …, n − 1.
    #[error("tokenizer.json: the word {word:?} has the number {id}, but {words} words must have the numbers 0 to {last}, each once", last = words.saturating_sub(1))]
    Number {
        /// The word.
        word: String,
        /// Its number.
        id: u64,
        /// Size of the vocabulary.
        words: usize,
    },
    /// A model needs at least one token.
    #[error("tokenizer.json: the vocabulary is empty")]
    Empty,
}

/// Words and their tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocab {
    cutting: Cutting,
    words: Vec<String>,
    index: HashMap<String, u32>,
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
        let index: HashMap<String, u32> = words.iter().cloned().zip(0..size).collect();
        if index.len() != words.len() {
            return None;
        }
        let line_end = if cutting.level == Level::Word { EOS } else { "\n" };
        let eos = if cutting.eos { index.get(line_end).copied() } else { None };
        Some(Self { unk: index.get(UNK).copied(), eos, words, index, cutting })
    }

    /// The 256 bytes, token = byte; with `eos` the newline is named as the line end.
    pub fn bytes(eos: bool) -> Self {
        let words: Vec<String> = (0..=255).map(|byte| stand_in(byte).to_string()).collect();
        let index = words.iter().cloned().zip(0..).collect();
        let cutting = Cutting { level: Level::Byte, eos, underscores: false };
        Self { cutting, words, index, unk: None, eos: eos.then_some(u32::from(b'\n')) }
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
        self.index.get(word).copied()
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
    /// Unknown pieces are left out if there is no `<unk>`.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        if self.cutting.level == Level::Byte {
            return text.bytes().map(u32::from).collect();
        }
        let mut tokens = Vec::new();
        let mut cutter = Cutter::new(self.cutting, usize::MAX);
        let mut sink = |piece: Piece<'_>, _: u64| {
            tokens.extend(match piece {
                Piece::Word(word) => self.encode_word(word),
                Piece::LineEnd => self.eos,
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

    /// The vocabulary in the format of the `tokenizers` library.
    pub fn to_tokenizer_json(&self) -> String {
        let normalizer = match self.cutting {
            Cutting { level: Level::Word, eos: true, .. } => replace(json!({"String": "\n"}), &format!(" {EOS} ")),
            Cutting { level: Level::Char, eos, underscores } => {
                let mut steps = vec![replace(json!({"String": "\r\n"}), "\n")];
                if underscores {
                    steps.push(replace(json!({"Regex": "(?m)^ +| +$"}), ""));
                }
                if !eos {
                    steps.push(replace(json!({"String": "\n"}), " "));
                }
                if underscores {
                    steps.push(replace(json!({"String": " "}), "_"));
                }
                json!({"type": "Sequence", "normalizers": steps})
            }
            _ => Value::Null,
        };
        let (pre_tokenizer, decoder) = match self.cutting.level {
            Level::Word => (json!({"type": "WhitespaceSplit"}), Value::Null),
            Level::Char => (
                json!({"type": "Split", "pattern": {"Regex": "[\\s\\S]"}, "behavior": "Isolated", "invert": false}),
                json!({"type": "Fuse"}),
            ),
            Level::Byte => {
                let bytes =
                    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
                (bytes.clone(), bytes)
            }
        };
        let vocab = Words(&self.words);
        let model = match self.cutting.level {
            Level::Byte => Model {
                kind: "BPE",
                vocab,
                unk_token: None,
                rest: BTreeMapOf::from([
                    ("dropout", Value::Null),
                    ("continuing_subword_prefix", Value::Null),
                    ("end_of_word_suffix", Value::Null),
                    ("fuse_unk", json!(false)),
                    ("byte_fallback", json!(false)),
                    ("ignore_merges", json!(false)),
                    ("merges", json!([])),
                ]),
            },
            _ => Model { kind: "WordLevel", vocab, unk_token: Some(UNK), rest: BTreeMapOf::new() },
        };
        let file = TokenizerFile {
            version: "1.0",
            truncation: Value::Null,
            padding: Value::Null,
            added_tokens: [],
            normalizer,
            pre_tokenizer,
            post_processor: Value::Null,
            decoder,
            model,
        };
        serde_json::to_string_pretty(&file).expect("strings and numbers always make JSON")
    }

    /// Reads what [`Vocab::to_tokenizer_json`] writes.
    ///
    /// # Errors
    /// If the text is not such a file; other tokenizers are named as unsupported.
    pub fn from_tokenizer_json(text: &str) -> Result<Self, VocabError> {
        let file: Read = serde_json::from_str(text)?;
        let kind = |value: &Value| match value.get("type").and_then(Value::as_str) {
            Some(kind) => kind.chars().take(80).collect(),
            None => "missing".to_owned(),
        };
        let pre_tokenizer = kind(&file.pre_tokenizer);
        let level = match pre_tokenizer.as_str() {
            "WhitespaceSplit" => Level::Word,
            "Split" => Level::Char,
            "ByteLevel" => Level::Byte,
            _ => {
                return Err(VocabError::Unsupported {
                    what: "pre_tokenizer",
                    found: pre_tokenizer,
                    wanted: "WhitespaceSplit, Split or ByteLevel",
                });
            }
        };
        if level == Level::Byte && file.model.vocab.len() != 256 {
            return Err(VocabError::Unsupported {
                what: "model.vocab",
                found: format!("{} words long", file.model.vocab.len()),
                wanted: "the 256 bytes",
            });
        }
        let size = file.model.vocab.len();
        if size == 0 {
            return Err(VocabError::Empty);
        }
        let mut words: Vec<Option<String>> = vec![None; size];
        for (word, id) in file.model.vocab {
            match usize::try_from(id).ok().and_then(|id| words.get_mut(id)) {
                Some(place @ None) => *place = Some(word),
                _ => return Err(VocabError::Number { word: printable(&word), id, words: size }),
            }
        }
        // Every place was filled once, since there are as many words as places.
        let words: Vec<String> = words.into_iter().flatten().collect();
        let steps = match file.normalizer.get("normalizers").and_then(Value::as_array) {
            Some(steps) => steps.clone(),
            None => vec![file.normalizer.clone()],
        };
        let has = |pattern: Value, content: &str| steps.contains(&replace(pattern, content));
        let newline = || json!({"String": "\n"});
        let cutting = match level {
            Level::Word => Cutting { level, eos: has(newline(), &format!(" {EOS} ")), underscores: false },
            Level::Char => Cutting { level, eos: !has(newline(), " "), underscores: has(json!({"String": " "}), "_") },
            Level::Byte => {
                let vocab = Self::bytes(true);
                for (id, (word, wanted)) in words.iter().zip(&vocab.words).enumerate() {
                    if word != wanted {
                        return Err(VocabError::Number { word: printable(word), id: id as u64, words: size });
                    }
                }
                return Ok(vocab);
            }
        };
        let unique = words.len();
        Self::new(words, cutting).ok_or(VocabError::Number { word: String::new(), id: 0, words: unique })
    }
}

type BTreeMapOf = std::collections::BTreeMap<&'static str, Value>;

fn replace(pattern: Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

#[derive(Serialize)]
struct TokenizerFile<'a> {
    version: &'static str,
    truncation: Value,
    padding: Value,
    added_tokens: [Value; 0],
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    model: Model<'a>,
}

#[derive(Serialize)]
struct Model<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    rest: BTreeMapOf,
    unk_token: Option<&'static str>,
    vocab: Words<'a>,
}

/// Written in the order of the tokens, which a map of JSON values would not keep.
struct Words<'a>(&'a [String]);

impl Serialize for Words<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().zip(0u32..))
    }
}

#[derive(Deserialize)]
struct Read {
    #[serde(default)]
    normalizer: Value,
    pre_tokenizer: Value,
    model: ReadModel,
}

#[derive(Deserialize)]
struct ReadModel {
    vocab: HashMap<String, u64>,
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

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    Word(&'a str),
    LineEnd,
}

/// Cuts a text that arrives in chunks into pieces; keeps at most one unfinished word of bounded length.
///
/// The sink gets each piece with the byte at which it begins, and says whether to go on.
pub(crate) struct Cutter {
    cutting: Cutting,
    word: String,
    /// Longest word that is kept, in bytes.
    longest: usize,
    /// Where the last piece begins.
    start: u64,
    seen: u64,
    lines: u64,
    carriage_return: bool,
    spaces: u64,
    line_is_open: bool,
}

impl Cutter {
    pub fn new(cutting: Cutting, longest: usize) -> Self {
        Self {
            cutting,
            word: String::new(),
            longest,
            start: 0,
            seen: 0,
            lines: 0,
            carriage_return: false,
            spaces: 0,
            line_is_open: false,
        }
    }

    /// Where the last piece begins, or the one that is too long: its line, from 1, and byte.
    pub fn place(&self) -> (u64, u64) {
        (self.lines + 1, self.start)
    }

    /// Cuts the next chunk, which begins at byte `at`. Stops early and returns false when the sink does, or when a word is
    /// too long.
    pub fn feed(&mut self, text: &str, at: u64, sink: &mut dyn FnMut(Piece<'_>, u64) -> bool) -> bool {
        self.seen = at;
        let going = match self.cutting.level {
            Level::Word => self.feed_words(text, sink),
            _ => self.feed_chars(text, sink),
        };
        self.seen += text.len() as u64;
        going
    }

    /// What is left when the text is over. With `close_line` a last line that has no line end gets one.
    pub fn finish(&mut self, close_line: bool, sink: &mut dyn FnMut(Piece<'_>, u64) -> bool) -> bool {
        let word = std::mem::take(&mut self.word);
        (word.is_empty() || sink(Piece::Word(&word), self.start))
            && (!std::mem::take(&mut self.carriage_return) || self.character('\r', sink))
            && (!(close_line && self.line_is_open && self.cutting.eos) || sink(Piece::LineEnd, self.seen))
    }

    fn feed_words(&mut self, text: &str, sink: &mut dyn FnMut(Piece<'_>, u64) -> bool) -> bool {
        let mut begin = 0;
        for (at, c) in text.char_indices() {
            if !c.is_whitespace() {
                continue;
            }
            if begin < at || !self.word.is_empty() {
                if self.word.is_empty() {
                    self.start = self.seen + begin as u64;
                }
                if self.word.len() + (at - begin) > self.longest {
                    return false;
                }
                let going = if self.word.is_empty() {
                    sink(Piece::Word(&text[begin..at]), self.start)
                } else {
                    self.word.push_str(&text[begin..at]);
                    sink(Piece::Word(&self.word), self.start)
                };
                self.word.clear();
                if !going {
                    return false;
                }
            }
            begin = at + c.len_utf8();
            self.line_is_open = c != '\n';
            if c == '\n' {
                self.start = self.seen + at as u64;
                if self.cutting.eos && !sink(Piece::LineEnd, self.start) {
                    return false;
                }
                self.lines += 1;
            }
        }
        if begin < text.len() {
            if self.word.is_empty() {
                self.start = self.seen + begin as u64;
            }
            self.line_is_open = true;
            if self.word.len() + (text.len() - begin) > self.longest {
                return false;
            }
            self.word.push_str(&text[begin..]);
        }
        true
    }

    fn feed_chars(&mut self, text: &str, sink: &mut dyn FnMut(Piece<'_>, u64) -> bool) -> bool {
        let mut at = self.seen;
        for c in text.chars() {
            // CR LF is one line end, a lone CR a character like any other.
            if std::mem::take(&mut self.carriage_return) && c != '\n' && !self.character('\r', sink) {
                return false;
            }
            self.start = at;
            at += c.len_utf8() as u64;
            if c == '\r' {
                self.carriage_return = true;
                self.line_is_open = true;
            } else if !self.character(c, sink) {
                return false;
            }
        }
        true
    }

    fn character(&mut self, c: char, sink: &mut dyn FnMut(Piece<'_>, u64) -> bool) -> bool {
        let start = self.start;
        match c {
            '\n' => {
                self.spaces = 0;
                self.lines += 1;
                self.line_is_open = false;
                match self.cutting {
                    Cutting { eos: true, .. } => sink(Piece::LineEnd, start),
                    Cutting { underscores: true, .. } => sink(Piece::Word("_"), start),
                    _ => sink(Piece::Word(" "), start),
                }
            }
            ' ' if self.cutting.underscores => {
                // Dropped at the start of a line, and at its end unless something follows.
                self.spaces += u64::from(self.line_is_open);
                true
            }
            c => {
                self.line_is_open = true;
                let spaces = std::mem::take(&mut self.spaces);
                (0..spaces).all(|_| sink(Piece::Word("_"), start))
                    && sink(Piece::Word(c.encode_utf8(&mut [0; 4])), start)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vocab(words: &[&str], level: Level, eos: bool, underscores: bool) -> Vocab {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Vocab::new(words, Cutting { level, eos, underscores }).expect("different words")
    }

    #[test]
    fn words_and_back() {
        let v = vocab(&["<eos>", "a", "bc", "<unk>"], Level::Word, true, false);
        assert_eq!(v.encode(" a\tbc \r\n\nx\u{a0}a"), [1, 2, 0, 0, 3, 1]);
        assert_eq!(v.decode(&[1, 2, 0, 0, 3, 1, 99]), "a bc\n\n<unk> a");
        assert_eq!((v.eos(), v.unk(), v.len()), (Some(0), Some(3), 4));
        assert_eq!(v.encode_word("zzz"), Some(3));
        let without = vocab(&["a"], Level::Word, false, false);
        assert_eq!(without.encode("a b\na"), [0, 0]);
        assert!(Vocab::new(vec!["a".into(), "a".into()], v.cutting()).is_none());
    }

    #[test]
    fn characters_and_back() {
        let v = vocab(&["a", "é", " ", "\n", "\r"], Level::Char, true, false);
        assert_eq!(v.encode("a é\r\né\r"), [0, 2, 1, 3, 1, 4]);
        assert_eq!(v.decode(&v.encode("a é\né")), "a é\né");
        let treebank = vocab(&["a", "_", "\n"], Level::Char, true, true);
        assert_eq!(treebank.encode("  a a  \n a\n\n"), [0, 1, 0, 2, 0, 2, 2]);
        assert_eq!(treebank.decode(&[0, 1, 0, 2]), "a a\n");
        let joined = vocab(&["a", " "], Level::Char, false, false);
        assert_eq!(joined.encode("a\na"), [0, 1, 0]);
    }

    #[test]
    fn bytes_and_back() {
        let v = Vocab::bytes(true);
        assert_eq!(v.encode("é\r\n"), [0xc3, 0xa9, 13, 10]);
        assert_eq!(v.decode(&[0xc3, 0xa9, 0xff]), "é\u{fffd}");
        assert_eq!((v.len(), v.eos(), v.unk()), (256, Some(10), None));
        // The stand-ins that byte-level tokenizers have used since GPT-2.
        assert_eq!([v.word(0), v.word(10), v.word(32), v.word(65), v.word(0xad)], ["Ā", "Ċ", "Ġ", "A", "Ń"]);
    }

    #[test]
    fn json_keeps_everything() {
        for v in [
            vocab(&["<eos>", "a\"\\", "é\u{1f600}", "<unk>"], Level::Word, true, false),
            vocab(&["b", "a"], Level::Word, false, false),
            vocab(&["\n", "a", "_"], Level::Char, true, true),
            vocab(&["a", "b", "<unk>"], Level::Char, false, false),
            vocab(&["a", "b", "_"], Level::Char, false, true),
            Vocab::bytes(true),
        ] {
            let back = Vocab::from_tokenizer_json(&v.to_tokenizer_json()).expect("ours");
            assert_eq!(back, v);
            assert_eq!(back.hash(), v.hash());
        }
        let hashes: std::collections::HashSet<String> = [
            vocab(&["ab", "c"], Level::Word, true, false),
            vocab(&["a", "bc"], Level::Word, true, false),
            vocab(&["ab", "c"], Level::Word, false, false),
            vocab(&["ab", "c"], Level::Char, true, false),
        ]
        .iter()
        .map(Vocab::hash)
        .collect();
        assert_eq!(hashes.len(), 4);
    }

    #[test]
    fn other_json_is_refused() {
        let model =
            |vocab: &str| format!(r#"{{"pre_tokenizer":{{"type":"WhitespaceSplit"}},"model":{{"vocab":{vocab}}}}}"#);
        let read = |text: &str| Vocab::from_tokenizer_json(text).map_err(|e| e.to_string());
        assert!(read(&model(r#"{"a":0,"b":1}"#)).is_ok());
        for (text, part) in [
            (String::new(), "EOF"),
            ("[]".into(), "expected struct"),
            (model("{}"), "empty"),
            (model(r#"{"a":0,"b":0}"#), "the number 0, but 2 words must have the numbers 0 to 1"),
            (model(r#"{"a":1}"#), r#""a" has the number 1"#),
            (model(r#"{"a":18446744073709551615}"#), "18446744073709551615"),
            (model(r#"{"a":-1}"#), "invalid value"),
            (model(r#"{"a":0}"#).replace("WhitespaceSplit", "Metaspace"), "pre_tokenizer is Metaspace"),
            (model(r#"{"a":0}"#).replace("WhitespaceSplit", "ByteLevel"), "1 words long"),
            ("[".repeat(100_000), "recursion limit"),
        ] {
            let error = read(&text).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn nothing_dangerous_is_printable() {
        assert_eq!(printable("a\x1b[31m\u{202e}é\n\u{9b}"), "a\\u{1b}[31m\\u{202e}é\\n\\u{9b}");
    }

    proptest! {
        #[test]
        fn no_json_panics(text in "\\PC{0,60}", vocab in prop::collection::hash_map("\\PC{0,4}", any::<i64>(), 0..6),
                          kind in "(WhitespaceSplit|Split|ByteLevel|x)") {
            let _ = Vocab::from_tokenizer_json(&text);
            let json = json!({"pre_tokenizer": {"type": kind}, "model": {"vocab": vocab}, "normalizer": {"normalizers": [text]}});
            if let Ok(v) = Vocab::from_tokenizer_json(&json.to_string()) {
                let _ = v.decode(&v.encode(&text));
            }
        }

        /// Chunks are invisible: wherever a text is cut, its pieces and their places are the same.
        #[test]
        fn chunks_do_not_matter(text in "[ab_\u{e9}\u{a0} \r\n]{0,40}", at in 0usize..40, eos: bool, underscores: bool, chars: bool) {
            let level = if chars { Level::Char } else { Level::Word };
            let cut = |parts: &[&str]| {
                let mut cutter = Cutter::new(Cutting { level, eos, underscores }, usize::MAX);
                let mut pieces = Vec::new();
                let mut sink = |piece: Piece<'_>, at: u64| {
                    pieces.push((format!("{piece:?}"), at));
                    true
                };
                let mut place = 0;
                for part in parts {
                    cutter.feed(part, place, &mut sink);
                    place += part.len() as u64;
                }
                cutter.finish(true, &mut sink);
                pieces
            };
            let at = (0..=text.len().min(at)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            prop_assert_eq!(cut(&[&text]), cut(&[&text[..at], &text[at..]]));
        }

        /// The slow twin: white space by the standard library.
        #[test]
        fn words_are_those_of_the_standard_library(text in "[ab\u{e9}\u{a0}\u{2003} \t\r\n]{0,40}") {
            let v = vocab(&["<unk>", "<eos>", "a", "b", "ab", "é"], Level::Word, true, false);
            let mut slow = Vec::new();
            for (i, line) in text.split('\n').enumerate() {
                if i > 0 {
                    slow.push(1);
                }
                slow.extend(line.split_whitespace().map(|word| v.token(word).unwrap_or(0)));
            }
            prop_assert_eq!(v.encode(&text), slow);
        }
    }
}
