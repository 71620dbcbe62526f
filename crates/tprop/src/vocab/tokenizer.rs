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

use super::{Cutting, EOS, Level, UNK, Vocab, printable};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;

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
