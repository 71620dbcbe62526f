//! `tokenizer.json` is what the `tokenizers` library reads; it then encodes as [`Vocab::encode`] does:
//!
//! | level | normalizer | pre-tokenizer | model |
//! |---|---|---|---|
//! | word | `"\n"` → `" <eos> "` | WhitespaceSplit | WordLevel |
//! | char | `"\r\n"` → `"\n"`; spaces → `_` where the corpus has it so | Split at each character | WordLevel |
//! | byte | none | ByteLevel (its printable stand-ins for bytes) | BPE without merges |
//!
//! Two differences remain: a symbol that is unknown to a vocabulary without `<unk>` is left out here and is an error there;
//! and that library has no decoder which undoes the white space of words, so decoding there gives `<eos>` as a word.

use super::{Cutting, EOS, Level, UNK, Vocab, printable};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::io::Read;

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

impl Vocab {
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
        Self::of_file(serde_json::from_str(text)?)
    }

    /// The same from a reader, which need not fit into memory beside the vocabulary.
    ///
    /// # Errors
    /// If it cannot be read, or is not such a file.
    pub fn read_tokenizer_json(reader: impl Read) -> Result<Self, VocabError> {
        Self::of_file(serde_json::from_reader(std::io::BufReader::new(reader))?)
    }

    fn of_file(file: TokenizerRead) -> Result<Self, VocabError> {
        let level = match file.pre_tokenizer.kind.as_str() {
            "WhitespaceSplit" => Level::Word,
            "Split" => Level::Char,
            "ByteLevel" => Level::Byte,
            other => {
                return Err(VocabError::Unsupported {
                    what: "pre_tokenizer",
                    found: if other.is_empty() { "missing".into() } else { other.chars().take(80).collect() },
                    wanted: "WhitespaceSplit, Split or ByteLevel",
                });
            }
        };
        let words = file.model.vocab.in_order()?;
        let size = words.len();
        if level == Level::Byte && size != 256 {
            return Err(VocabError::Unsupported {
                what: "model.vocab",
                found: format!("{size} words long"),
                wanted: "the 256 bytes",
            });
        }
        let normalizer = file.normalizer.unwrap_or_default();
        let replaces = |step: &Normalizer, from: &str, to: &str| {
            step.kind == "Replace" && step.content == to && step.pattern.as_ref().is_some_and(|p| p.string == from)
        };
        let has = |from: &str, to: &str| {
            replaces(&normalizer, from, to) || normalizer.normalizers.0.iter().any(|step| replaces(step, from, to))
        };
        let cutting = match level {
            Level::Word => Cutting { level, eos: has("\n", &format!(" {EOS} ")), underscores: false },
            Level::Char => Cutting { level, eos: !has("\n", " "), underscores: has(" ", "_") },
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
        Self::new(words, cutting).ok_or(VocabError::Number { word: String::new(), id: 0, words: size })
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
struct TokenizerRead {
    #[serde(default)]
    normalizer: Option<Normalizer>,
    #[serde(default)]
    pre_tokenizer: Kind,
    model: ReadModel,
}

#[derive(Default, Deserialize)]
struct Kind {
    #[serde(rename = "type", default)]
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Normalizer {
    #[serde(rename = "type")]
    kind: String,
    normalizers: Few,
    pattern: Option<Pattern>,
    content: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pattern {
    #[serde(rename = "String")]
    string: String,
}

/// A few steps; ours have four.
#[derive(Default)]
struct Few(Vec<Normalizer>);

impl<'de> Deserialize<'de> for Few {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Steps;
        impl<'de> Visitor<'de> for Steps {
            type Value = Few;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("at most 64 normalizers")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Few, A::Error> {
                let mut steps = Vec::new();
                while let Some(step) = seq.next_element()? {
                    if steps.len() == 64 {
                        return Err(serde::de::Error::invalid_length(65, &self));
                    }
                    steps.push(step);
                }
                Ok(Few(steps))
            }
        }
        deserializer.deserialize_seq(Steps)
    }
}

#[derive(Deserialize)]
struct ReadModel {
    vocab: Numbered,
}

/// Words with their numbers, in the order of the file.
struct Numbered {
    words: Vec<String>,
    ids: Vec<u64>,
}

impl Numbered {
    /// The words in the order of their numbers, which must be 0, 1, …, n − 1.
    fn in_order(self) -> Result<Vec<String>, VocabError> {
        let Self { mut words, mut ids } = self;
        let size = words.len();
        if size == 0 {
            return Err(VocabError::Empty);
        }
        // Each swap puts one word into its place.
        for i in 0..size {
            while ids[i] != i as u64 {
                match usize::try_from(ids[i]).ok().filter(|&id| id < size && ids[id] != ids[i]) {
                    Some(id) => {
                        words.swap(i, id);
                        ids.swap(i, id);
                    }
                    None => return Err(VocabError::Number { word: printable(&words[i]), id: ids[i], words: size }),
                }
            }
        }
        Ok(words)
    }
}

impl<'de> Deserialize<'de> for Numbered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Numbered;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("words with their numbers")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Numbered, A::Error> {
                let mut found = Numbered { words: Vec::new(), ids: Vec::new() };
                while let Some((word, id)) = map.next_entry()? {
                    push(&mut found.words, word);
                    push(&mut found.ids, id);
                }
                Ok(found)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Appends to a list that grows by a quarter and not by all of itself.
fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 4 + 1024);
    }
    list.push(item);
}
