//! Where train, valid and test come from: files, or the built-in language, read as words, characters or bytes.
//!
//! A file is read once, in chunks: memory goes into the tokens (4 bytes each, 2 where they fit) and the different words, not into the text. The
//! vocabulary is made behind the reading, when all counts are known, and the tokens are then renumbered in place.
//!
//! Tokens are numbered by falling frequency, and by first occurrence among equals: a cut-off then keeps a prefix, the rows of
//! frequent words lie together in memory, and the order does not depend on a hash. `<unk>` has the count of all that it stands
//! for and appears only when something is unknown; a corpus that has its own `<unk>` keeps that one.
//!
//! The vocabulary comes from the whole training split even if `max_tokens` takes a slice of it, so that perplexities of
//! different slices can be compared.

mod error;
mod find;
mod inspect;
mod read;
pub mod synth;

pub use crate::vocab::Level;
pub use error::{CorpusError, CorpusPart};
pub use find::{DATASETS, Dataset, places};
pub use inspect::{Inspection, inspect};
pub use synth::SynthConfig;

use crate::tokens::{Text, Tokens};
use crate::vocab::{Cutting, EOS, UNK, Vocab, hex};
use crate::words;
use find::Found;
use read::SymbolTable;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use synth::{Language, Memory};

/// A part of a corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// For the weights.
    Train,
    /// For stopping and choosing.
    Valid,
    /// For the last figure.
    Test,
}

impl Split {
    /// All three.
    pub const ALL: [Split; 3] = [Split::Train, Split::Valid, Split::Test];

    /// As users and files spell it.
    pub fn name(self) -> &'static str {
        ["train", "valid", "test"][self as usize]
    }
}

impl std::fmt::Display for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Which splits a vocabulary is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VocabFrom {
    /// The training split: what a model can know.
    #[default]
    Train,
    /// All splits, as the paper did.
    All,
}

words! { VocabFrom { "train" => Train, "all" => All } }

/// Where a corpus comes from and how it is cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CorpusConfig {
    /// A file, a directory or the name of a known data set; none is the built-in language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Where names are looked up first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    /// What a token is; data sets whose name ends in `-char` are always read as characters.
    pub level: Level,
    /// Whether a line end is a token; by default it is, except in text8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eos: Option<bool>,
    /// Whether characters stand apart with a space written as `_`; by default so in ptb-char.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub underscores: Option<bool>,
    /// Rarer words become `<unk>`; 1 by default, 11 for text8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_count: Option<usize>,
    /// Largest size of the vocabulary, `<unk>` and `<eos>` included; not below 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_vocab: Option<usize>,
    /// Which splits the vocabulary is made from.
    pub vocab_from: VocabFrom,
    /// Uses only so many tokens of the training split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<usize>,
}

/// How a corpus was divided into splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Division {
    /// It came in three files.
    Files,
    /// One file, 90/5/5, cut at line ends.
    Lines,
    /// One file, 90/5/5, cut between tokens because it has few lines.
    Tokens,
    /// text8 in words: the first 99,000,000 bytes, and the last 1,000,000 as both valid and test.
    Text8Words,
    /// text8 in characters: 90,000,000 bytes, 5,000,000 and 5,000,000.
    Text8Chars,
    /// Three texts of the built-in language.
    Generated,
}

/// A corpus in memory.
///
/// ```
/// use tprop::prelude::*;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("text.txt");
/// std::fs::write(&path, "the cat sees the dog\nthe dog sees the cat\n".repeat(100)).unwrap();
/// let source = Some(path.to_string_lossy().into_owned());
/// let corpus = tprop::corpus::load(&CorpusConfig { source, ..CorpusConfig::default() }, &SynthConfig::default())?;
/// assert_eq!(corpus.vocab.words(), ["the", "cat", "sees", "dog", "<eos>"]); // by falling frequency, then by occurrence
/// let model = Model::<f32>::new(ModelConfig::new(corpus.vocab.len()));
/// let data = Data::new(&corpus.train, &corpus.valid, &corpus.test); // 90, 5 and 5 % of the lines
/// # assert_eq!((model.config().vocab, data.valid.len()), (5, 60));
/// # Ok::<(), tprop::corpus::CorpusError>(())
/// ```
#[derive(Debug)]
pub struct Corpus {
    /// Words and tokens.
    pub vocab: Vocab,
    /// Tokens of the training split.
    pub train: Tokens,
    /// Tokens of the validation split.
    pub valid: Tokens,
    /// Tokens of the test split.
    pub test: Tokens,
    /// The name or path that was asked for; `built-in` for the built-in language.
    pub name: String,
    /// How the splits were made.
    pub division: Division,
    /// Number of `<unk>` in each split.
    pub unknown: [usize; 3],
    /// The best possible readers, if the corpus is the built-in language in words.
    pub reference: Option<Reference>,
    /// SHA-256 over the vocabulary and the tokens of all splits, in hexadecimal.
    pub fingerprint: String,
}

impl Corpus {
    /// The tokens of a split.
    pub fn tokens(&self, split: Split) -> &Tokens {
        match split {
            Split::Train => &self.train,
            Split::Valid => &self.valid,
            Split::Test => &self.test,
        }
    }

    /// Bytes that the tokens of all splits take.
    pub fn bytes(&self) -> usize {
        Split::ALL.iter().map(|&split| self.tokens(split).bytes()).sum()
    }

    /// The exact best perplexities on a split of the built-in language, computed when asked for (a few hundredths of a
    /// second for the held-out splits, half a second for a million tokens).
    pub fn reference(&self, split: Split) -> Option<Perplexities> {
        self.reference.as_ref().map(|reference| reference.perplexities(self.tokens(split)))
    }

    fn new(vocab: Vocab, [train, valid, test]: [Tokens; 3], name: String, division: Division) -> Self {
        let count = |tokens: &Tokens| tokens.iter().filter(|&token| Some(token) == vocab.unk()).count();
        let unknown = [count(&train), count(&valid), count(&test)];
        let fingerprint = fingerprint(&vocab, [&train, &valid, &test]);
        Self { vocab, train, valid, test, name, division, unknown, reference: None, fingerprint }
    }
}

/// The exact best readers of the built-in language.
#[derive(Debug)]
pub struct Reference {
    /// The language.
    pub language: Language,
}

/// Best possible perplexities on a text of the built-in language, by what the reader remembers. All are implied by the
/// language itself; nothing is fitted to a text.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Perplexities {
    /// Everything.
    pub best: f64,
    /// Forgets everything every 20 tokens.
    pub forget_20: f64,
    /// Forgets everything every 10 tokens.
    pub forget_10: f64,
    /// Forgets everything every 5 tokens.
    pub forget_5: f64,
    /// Only the last token.
    pub bigram: f64,
    /// Nothing.
    pub unigram: f64,
}

impl Reference {
    /// Best possible perplexity of `text` for a memory.
    pub fn perplexity<'a>(&self, text: impl Into<Text<'a>>, memory: Memory) -> f64 {
        let text: Vec<u32> = text.into().iter().collect();
        self.of(&text, memory)
    }

    fn of(&self, text: &[u32], memory: Memory) -> f64 {
        (self.language.nats(text, memory) / text.len().saturating_sub(1).max(1) as f64).exp()
    }

    /// Best possible perplexities of `text` for all memories.
    pub fn perplexities<'a>(&self, text: impl Into<Text<'a>>) -> Perplexities {
        let text: Vec<u32> = text.into().iter().collect();
        let of = |memory| self.of(&text, memory);
        Perplexities {
            best: of(Memory::All),
            forget_20: of(Memory::Last(20)),
            forget_10: of(Memory::Last(10)),
            forget_5: of(Memory::Last(5)),
            bigram: of(Memory::Last(1)),
            unigram: of(Memory::Last(0)),
        }
    }
}

/// A split must have an input and its successor.
const NEEDED: usize = 2;
/// From so many lines on a single file is cut at line ends.
const ENOUGH_LINES: usize = 100;

/// Reads or makes a corpus.
///
/// ```
/// use tprop::corpus::{CorpusConfig, SynthConfig, load};
/// let synth = SynthConfig { tokens: 2_000, ..SynthConfig::default() };
/// let corpus = load(&CorpusConfig::default(), &synth)?;
/// println!("{}", corpus.vocab.decode(corpus.valid.text().part(0..40)));
/// # Ok::<(), tprop::corpus::CorpusError>(())
/// ```
///
/// # Errors
/// If there is no such corpus, it cannot be read as text, is too short, or a field of the configuration has no sense.
pub fn load(config: &CorpusConfig, synth: &SynthConfig) -> Result<Corpus, CorpusError> {
    check(config)?;
    let Some(source) = &config.source else { return built_in(config, synth) };
    let found = find::find(source, config.data_dir.as_deref())?;
    let set = found.dataset();
    let level = match set.filter(|set| set.level == Level::Char) {
        Some(set) if config.level == Level::Byte => {
            return Err(CorpusError::Field {
                of: CorpusPart::Corpus,
                field: "level",
                value: config.level.to_string(),
                wanted: format!("{} is read as characters; {} can be read as bytes", set.name, set.get),
            });
        }
        Some(_) => Level::Char,
        None => config.level,
    };
    let text8 = set.is_some_and(|set| set.get == "text8");
    let cutting = Cutting {
        level,
        eos: config.eos.unwrap_or(!text8),
        underscores: config.underscores.unwrap_or(set.is_some_and(|set| set.name == "ptb-char")),
    };
    let mut symbols = SymbolTable::new(cutting);
    let (mut splits, division) = match &found {
        Found::Files { files, .. } => {
            let mut splits = [Tokens::new(), Tokens::new(), Tokens::new()];
            for ((tokens, path), split) in splits.iter_mut().zip(files).zip(Split::ALL) {
                symbols.read(path, tokens)?;
                long_enough(tokens, path, split)?;
            }
            (splits, Division::Files)
        }
        Found::One { path, .. } => {
            let rule = match (text8 && read::length(path)? == 100_000_000, level) {
                (true, Level::Word) => Some((Division::Text8Words, vec![99_000_000])),
                (true, _) => Some((Division::Text8Chars, vec![90_000_000, 95_000_000])),
                (false, _) => None,
            };
            let (division, cuts) = rule.unzip();
            let mut tokens = Tokens::new();
            let cuts = symbols.read_with_cuts(path, &mut tokens, &cuts.unwrap_or_default())?;
            match division {
                Some(division) => {
                    let splits = at_cuts(tokens, &cuts);
                    for (tokens, split) in splits.iter().zip(Split::ALL) {
                        long_enough(tokens, path, split)?;
                    }
                    (splits, division)
                }
                None if tokens.len() < 20 * NEEDED => {
                    let needed = 20 * NEEDED;
                    return Err(CorpusError::Indivisible { path: path.clone(), tokens: tokens.len(), needed });
                }
                None => ninety(tokens, symbols.line_end()),
            }
        }
    };
    let min_count = config.min_count.unwrap_or(if text8 && level == Level::Word { 11 } else { 1 });
    let vocab = number(symbols, &mut splits, config, min_count)?;
    splits[0].truncate(config.max_tokens.unwrap_or(usize::MAX));
    Ok(Corpus::new(vocab, splits, source.clone(), division))
}

fn check(config: &CorpusConfig) -> Result<(), CorpusError> {
    let refuse = |field, value: usize, wanted: &str| {
        Err(CorpusError::Field { of: CorpusPart::Corpus, field, value: value.to_string(), wanted: wanted.to_owned() })
    };
    match config {
        CorpusConfig { max_vocab: Some(n @ 0..3), .. } => {
            refuse("max_vocab", *n, "must be at least 3: <unk>, <eos> and a word")
        }
        CorpusConfig { max_tokens: Some(n @ 0..NEEDED), .. } => {
            refuse("max_tokens", *n, "must be at least 2: an input and its successor")
        }
        CorpusConfig { min_count: Some(n @ 0), .. } => refuse("min_count", *n, "must be at least 1"),
        _ => Ok(()),
    }
}

fn long_enough(tokens: &Tokens, path: &std::path::Path, split: Split) -> Result<(), CorpusError> {
    if tokens.len() < NEEDED {
        return Err(CorpusError::Short { path: path.to_owned(), split, tokens: tokens.len(), needed: NEEDED });
    }
    Ok(())
}

fn built_in(config: &CorpusConfig, synth: &SynthConfig) -> Result<Corpus, CorpusError> {
    let within = |field, value: usize, range: std::ops::RangeInclusive<usize>| {
        if range.contains(&value) {
            return Ok(());
        }
        let wanted = format!("must be from {} to {}", range.start(), range.end());
        Err(CorpusError::Field { of: CorpusPart::Synth, field, value: value.to_string(), wanted })
    };
    within("vocab", synth.vocab, SynthConfig::VOCAB)?;
    within("tokens", synth.tokens, SynthConfig::TOKENS)?;
    let language = Language::new(synth.vocab);
    let lengths = [synth.tokens, synth.held_out(), synth.held_out()];
    let text = |i: usize| language.text(synth.seed, Split::ALL[i].name(), lengths[i]).into_iter().collect();
    let mut splits: [Tokens; 3] = [0, 1, 2].map(text);
    let cutting = Cutting { level: Level::Word, eos: true, underscores: false };
    let words = Vocab::new(language.words().to_vec(), cutting).expect("the words of the language differ");
    let as_is = config.level == Level::Word
        && config.eos != Some(false)
        && config.min_count.is_none_or(|n| n <= 1)
        && config.max_vocab.is_none_or(|n| n >= words.len());
    let (vocab, reference) = if as_is {
        (words, Some(Reference { language }))
    } else {
        // Cut in another way it is another language, whose best reader we do not know: its text is read like a file.
        let cutting = Cutting { level: config.level, eos: config.eos.unwrap_or(true), underscores: false };
        let mut symbols = SymbolTable::new(cutting);
        let name = PathBuf::from("built-in");
        for tokens in &mut splits {
            let text = words.decode(&*tokens);
            *tokens = Tokens::new();
            symbols.read_from(text.as_bytes(), &name, tokens, &[])?;
        }
        (number(symbols, &mut splits, config, config.min_count.unwrap_or(1))?, None)
    };
    splits[0].truncate(config.max_tokens.unwrap_or(usize::MAX));
    let mut corpus = Corpus::new(vocab, splits, "built-in".to_owned(), Division::Generated);
    corpus.reference = reference;
    Ok(corpus)
}

/// Cuts before the given tokens; a third part that was not asked for repeats the second.
fn at_cuts(mut tokens: Tokens, cuts: &[usize]) -> [Tokens; 3] {
    let last = if cuts.len() > 1 { tokens.split_off(cuts[1]) } else { Tokens::new() };
    let middle = tokens.split_off(cuts[0]);
    let last = if cuts.len() > 1 { last } else { middle.clone() };
    [tokens, middle, last]
}

/// 90/5/5, at line ends if there are enough of them.
fn ninety(mut tokens: Tokens, line_end: Option<u32>) -> ([Tokens; 3], Division) {
    let n = tokens.len();
    let mut cuts = [n - n / 20 * 2, n - n / 20];
    let mut division = Division::Tokens;
    if let Some(line_end) = line_end
        && tokens.iter().filter(|&token| token == line_end).take(ENOUGH_LINES).count() == ENOUGH_LINES
    {
        let line_ends = |cut: usize| (0..cut).rev().find(|&at| tokens.text().get(at) == line_end);
        let behind = |cut: usize| line_ends(cut).map_or(0, |at| at + 1);
        let lines = cuts.map(behind);
        // Lines of very uneven length could leave a split empty.
        if lines[0] >= NEEDED && lines[1] >= lines[0] + NEEDED && n >= lines[1] + NEEDED {
            (cuts, division) = (lines, Division::Lines);
        }
    }
    let test = tokens.split_off(cuts[1]);
    let valid = tokens.split_off(cuts[0]);
    ([tokens, valid, test], division)
}

/// Makes the vocabulary of the counts and renumbers the tokens, which so far are numbered by first occurrence.
fn number(
    symbols: SymbolTable,
    splits: &mut [Tokens; 3],
    config: &CorpusConfig,
    min_count: usize,
) -> Result<Vocab, CorpusError> {
    let (words, cutting) = match symbols.into_words() {
        (None, cutting) => return Ok(Vocab::bytes(cutting.eos)),
        (Some(words), cutting) => (words, cutting),
    };
    let mut counts = vec![0u64; words.len()];
    let counted = if config.vocab_from == VocabFrom::Train { 1 } else { 3 };
    for token in splits[..counted].iter().flat_map(Tokens::iter) {
        counts[token as usize] += 1;
    }
    let line_end = if cutting.level == Level::Word { EOS } else { "\n" };
    let special = |word: &str| word == UNK || (cutting.eos && word == line_end);
    let mut chosen: Vec<usize> =
        (0..words.len()).filter(|&i| special(&words[i]) || counts[i] >= (min_count as u64).max(1)).collect();
    // Chosen whatever their count, so they come first while the list is cut to size.
    chosen.sort_by_key(|&i| (!special(&words[i]), std::cmp::Reverse(counts[i]), i));
    let own_unk = words.iter().position(|word| **word == *UNK);
    let room = config.max_vocab.unwrap_or(usize::MAX);
    let cut = chosen.len() < words.len() || chosen.len() > room;
    if cut {
        chosen.truncate(room - usize::from(own_unk.is_none()));
        if chosen.iter().all(|&i| special(&words[i])) {
            return Err(CorpusError::Field {
                of: CorpusPart::Corpus,
                field: "min_count",
                value: min_count.to_string(),
                wanted: "no word of the corpus occurs that often".to_owned(),
            });
        }
    }
    let mut pooled: u64 = counts.iter().sum::<u64>() - chosen.iter().map(|&i| counts[i]).sum::<u64>();
    pooled += own_unk.map_or(0, |i| counts[i]);
    // `<unk>` is the entry without a place among the words, or the corpus's own.
    let mut order: Vec<(u64, usize)> =
        chosen.iter().map(|&i| (if Some(i) == own_unk { pooled } else { counts[i] }, i)).collect();
    if cut && own_unk.is_none() {
        order.push((pooled, words.len()));
    }
    order.sort_by_key(|&(count, i)| (std::cmp::Reverse(count), i));
    let unk_place = own_unk.unwrap_or(words.len());
    let unk = order.iter().position(|&(_, i)| i == unk_place).unwrap_or(0) as u32;
    let mut renumber = vec![unk; words.len()];
    let mut listed = Vec::with_capacity(order.len());
    let mut words: Vec<Option<Box<str>>> = words.into_iter().map(Some).collect();
    for (new, &(_, old)) in order.iter().enumerate() {
        match words.get_mut(old).and_then(Option::take) {
            Some(word) => {
                renumber[old] = new as u32;
                listed.push(String::from(word));
            }
            None => listed.push(UNK.to_owned()),
        }
    }
    splits.iter_mut().for_each(|tokens| tokens.renumber(&renumber));
    Ok(Vocab::new(listed, cutting).expect("the words differ"))
}

fn fingerprint(vocab: &Vocab, splits: [&Tokens; 3]) -> String {
    let mut hasher = Sha256::new();
    vocab.hash_into(&mut hasher);
    let mut bytes = Vec::with_capacity(4 * 4096);
    for tokens in splits {
        hasher.update((tokens.len() as u64).to_le_bytes());
        for token in tokens.iter() {
            bytes.extend(token.to_le_bytes());
            if bytes.len() == bytes.capacity() {
                hasher.update(&bytes);
                bytes.clear();
            }
        }
        hasher.update(&bytes);
        bytes.clear();
    }
    hex(&hasher.finalize())
}
