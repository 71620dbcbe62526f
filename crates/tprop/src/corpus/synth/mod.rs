//! The built-in language: a hidden Markov chain that writes sentences, and the exact best possible reader of them.
//!
//! A hidden state is a pair (slot, topic). A *slot* is a place in a sentence ("verb of the relative clause, subject
//! plural, inner noun singular"); it says which class of words comes now and which slots may follow. The *topic* stays
//! for many sentences and chooses among the nouns, verbs and adjectives. So a reader must carry two things: the number of
//! the subject, over relative clauses and attached phrases up to its verb (and to a second verb after "and"), and the topic,
//! over hundreds of words.
//!
//! Because the chain is finite, the probability of each word given all words before is known exactly, by the forward
//! recursion over the belief b(slot, topic):
//!
//!   p(w | past) = Σ_{s'} e(w | s') Σ_s a(s, s') b(s),    b'(s') = e(w | s') Σ_s a(s, s') b(s) / p(w | past).
//!
//! A reader who forgets ([`Memory::Last`]) starts again from the stationary distribution before each k-th word, reads that
//! word and predicts its successor, like a model whose state is set to nothing at the start of each block of k inputs. With
//! k = 1 that is the best possible bigram model, with k = 0 the unigram model; nothing is estimated from the text.
//!
//! The seed chooses the text, not the language: another seed is a fresh sample of the same language. The recursion is
//! cheap since a word allows few slots: only those with mass are stored.

mod grammar;
mod lexicon;
#[cfg(test)]
mod tests;
mod words;

use crate::rng::Draws;
use grammar::{grammar, stationary};
use lexicon::Lexicon;

/// Settings of the built-in language.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SynthConfig {
    /// Number of different tokens, 50 to 100,000.
    pub vocab: usize,
    /// Length of the training split, 1,000 to 100,000,000; it is rounded up to a whole sentence.
    pub tokens: usize,
    /// Chooses the text.
    pub seed: u64,
}

impl Default for SynthConfig {
    fn default() -> Self {
        Self { vocab: 1000, tokens: 1_000_000, seed: 1 }
    }
}

impl SynthConfig {
    /// Sizes of vocabulary that make a language.
    pub const VOCAB: std::ops::RangeInclusive<usize> = 50..=100_000;
    /// Lengths of the training split that are accepted.
    pub const TOKENS: std::ops::RangeInclusive<usize> = 1_000..=100_000_000;

    /// Length of the validation and of the test split.
    pub fn held_out(&self) -> usize {
        (self.tokens / 16).clamp(1_000, 100_000)
    }
}

/// How much of the text before a word a reader may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Everything from the start of the split.
    All,
    /// Everything is forgotten before the words 0, k, 2k, …; k = 1 is the bigram model, k = 0 the unigram model.
    Last(usize),
}

/// The end of a sentence, the first token of the language.
pub const EOS: u32 = 0;

/// Probability that the next sentence keeps the topic: it lasts 25 sentences on average, some 250 words.
const STAY: f64 = 0.96;
/// Exponent of Zipf's law inside each list of words.
const ZIPF: f64 = 1.0;

/// A class of words; the number, 0 or 1 for singular or plural, is visible in nouns, verbs and most determiners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Class {
    End,
    Opener,
    Determiner(usize),
    Adjective,
    Noun(usize),
    Pronoun,
    Preposition,
    Verb(usize),
    Intransitive(usize),
    Adverb,
    And,
}

struct Slot {
    class: usize,
    /// Slots that may follow, with their probabilities.
    next: Vec<(usize, f64)>,
}

/// The words of a class with their probabilities under each topic.
#[derive(Default)]
struct Emission {
    words: Vec<u32>,
    /// `cumulative[topic][i]`: probability of the words 0 ..= i.
    cumulative: Vec<Vec<f64>>,
}

/// The built-in language with a given number of words.
pub struct Language {
    words: Vec<String>,
    topics: usize,
    slots: Vec<Slot>,
    /// Stationary probability of each slot; topics are uniform and independent of it.
    stationary: Vec<f64>,
    emissions: Vec<Emission>,
    /// For each word the classes that it may come from, each with the place of its `topics` probabilities in `likelihood`.
    origins: Vec<Vec<(usize, usize)>>,
    likelihood: Vec<f64>,
    stay: f64,
}

impl std::fmt::Debug for Language {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Language").field("words", &self.words.len()).field("topics", &self.topics).finish()
    }
}

/// What a reader believes about the hidden state: only slots with mass are listed.
struct Belief {
    active: Vec<usize>,
    /// `mass[slot * topics + topic]`; stale outside the active slots.
    mass: Vec<f64>,
}

impl Language {
    /// The language with `vocab` words, `<eos>` among them.
    ///
    /// # Panics
    /// Outside of [`SynthConfig::VOCAB`].
    pub fn new(vocab: usize) -> Self {
        assert!(SynthConfig::VOCAB.contains(&vocab), "vocabulary of {vocab} words");
        let lexicon = Lexicon::new(vocab);
        let (slots, classes) = grammar();
        let topics = lexicon.topics;
        let mut language = Self {
            topics,
            stationary: stationary(&slots),
            slots,
            emissions: Vec::new(),
            origins: vec![Vec::new(); lexicon.words.len()],
            likelihood: Vec::new(),
            stay: STAY,
            words: Vec::new(),
        };
        for (class, kind) in classes.into_iter().enumerate() {
            language.add_class(class, &lexicon.of(kind));
        }
        language.words = lexicon.words;
        language
    }

    /// `weights`: (word, probability under each topic), summing to 1 under each topic.
    fn add_class(&mut self, class: usize, weights: &[(u32, Vec<f64>)]) {
        let mut emission = Emission { words: Vec::new(), cumulative: vec![Vec::new(); self.topics] };
        let mut sums = vec![0.0; self.topics];
        for (word, under) in weights {
            emission.words.push(*word);
            self.origins[*word as usize].push((class, self.likelihood.len()));
            for (topic, p) in under.iter().enumerate() {
                sums[topic] += p;
                emission.cumulative[topic].push(sums[topic]);
                self.likelihood.push(*p);
            }
        }
        debug_assert!(sums.iter().all(|sum| (sum - 1.0).abs() < 1e-12));
        self.emissions.push(emission);
    }

    /// The words in the order of their tokens.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// At least `tokens` tokens of text that end with a sentence; `name` tells the splits of a seed apart.
    pub fn text(&self, seed: u64, name: &str, tokens: usize) -> Vec<u32> {
        let draws = |purpose| Draws::new(seed, &format!("synth.{name}.{purpose}"));
        let (slot_draws, word_draws, topic_draws) = (draws("slot"), draws("word"), draws("topic"));
        let mut text = Vec::with_capacity(tokens + 64);
        let mut topic = topic_draws.below(u64::MAX, self.topics as u64) as usize;
        let mut slot = END;
        while text.len() < tokens || slot != END {
            let at = text.len() as u64;
            if slot == END && topic_draws.unit(2 * at) >= self.stay {
                let step = 1 + topic_draws.below(2 * at + 1, self.topics as u64 - 1) as usize;
                topic = (topic + step) % self.topics;
            }
            slot = self.follow(slot, slot_draws.unit(at));
            let emission = &self.emissions[self.slots[slot].class];
            let sums = &emission.cumulative[topic];
            let u = word_draws.unit(at);
            text.push(emission.words[sums.partition_point(|&sum| sum <= u).min(sums.len() - 1)]);
        }
        text
    }

    fn follow(&self, slot: usize, mut u: f64) -> usize {
        let next = &self.slots[slot].next;
        for &(to, p) in next {
            u -= p;
            if u < 0.0 {
                return to;
            }
        }
        next[next.len() - 1].0
    }

    /// Sum over `text[1..]` of −ln p(word | what the reader remembers), the exact best for its memory. The first word is
    /// read and not predicted, as in the evaluation of a model.
    ///
    /// # Panics
    /// If a token is not of this language.
    pub fn nats(&self, text: &[u32], memory: Memory) -> f64 {
        if text.is_empty() {
            return 0.0;
        }
        if memory == Memory::Last(0) {
            return text[1..].iter().map(|&word| -self.frequency(word).ln()).sum();
        }
        let mut belief = Belief { active: Vec::new(), mass: vec![0.0; self.slots.len() * self.topics] };
        let mut after = Belief { active: Vec::new(), mass: vec![0.0; self.slots.len() * self.topics] };
        self.recall(&mut belief, text[0], memory == Memory::All);
        let mut nats = 0.0;
        for (t, &word) in text.iter().enumerate().skip(1) {
            nats -= self.step(&belief, word, &mut after).ln();
            std::mem::swap(&mut belief, &mut after);
            if let Memory::Last(k) = memory
                && t % k == 0
            {
                self.recall(&mut belief, word, false);
            }
        }
        nats
    }

    /// p(word | `before`) for every word of the language, the whole past known from the start of a split.
    pub fn prediction(&self, before: &[u32]) -> Vec<f64> {
        let mut belief = self.opening();
        let mut after = Belief { active: Vec::new(), mass: vec![0.0; self.slots.len() * self.topics] };
        for &word in before {
            self.step(&belief, word, &mut after);
            std::mem::swap(&mut belief, &mut after);
        }
        (0..self.words.len() as u32).map(|word| self.step(&belief, word, &mut after)).collect()
    }

    /// Stationary probability of a word.
    fn frequency(&self, word: u32) -> f64 {
        let mut p = 0.0;
        for &(class, at) in &self.origins[word as usize] {
            let share: f64 =
                (0..self.slots.len()).filter(|&s| self.slots[s].class == class).map(|s| self.stationary[s]).sum();
            p += share * self.likelihood[at..at + self.topics].iter().sum::<f64>() / self.topics as f64;
        }
        p
    }

    /// A split begins behind the end of a sentence, with any topic.
    fn opening(&self) -> Belief {
        let mut belief = Belief { active: vec![END], mass: vec![0.0; self.slots.len() * self.topics] };
        belief.mass[END * self.topics..(END + 1) * self.topics].fill(1.0 / self.topics as f64);
        belief
    }

    /// The belief of a reader who has read nothing but `word`: at the start of a split, or anywhere.
    fn recall(&self, belief: &mut Belief, word: u32, at_start: bool) {
        if at_start {
            self.step(&self.opening(), word, belief);
            return;
        }
        let k = self.topics;
        belief.active.clear();
        let mut sum = 0.0;
        for &(class, at) in &self.origins[word as usize] {
            for (s, slot) in self.slots.iter().enumerate() {
                if slot.class != class {
                    continue;
                }
                belief.active.push(s);
                for (b, e) in belief.mass[s * k..(s + 1) * k].iter_mut().zip(&self.likelihood[at..at + k]) {
                    *b = self.stationary[s] * e;
                    sum += *b;
                }
            }
        }
        scale(belief, k, 1.0 / sum);
    }

    /// One turn of the recursion: returns p(word | belief) and leaves the next belief in `after`.
    fn step(&self, before: &Belief, word: u32, after: &mut Belief) -> f64 {
        let k = self.topics;
        after.active.clear();
        let mut turned = [0.0; MAX_TOPICS];
        for &s in &before.active {
            let mut b = &before.mass[s * k..(s + 1) * k];
            if s == END {
                // A topic may change only between sentences: to each other topic with equal probability.
                let sum: f64 = b.iter().sum();
                let leave = (1.0 - self.stay) / (k - 1) as f64;
                for (to, from) in turned.iter_mut().zip(b) {
                    *to = self.stay * from + leave * (sum - from);
                }
                b = &turned[..k];
            }
            for &(to, a) in &self.slots[s].next {
                let class = self.slots[to].class;
                let Some(&(_, at)) = self.origins[word as usize].iter().find(|origin| origin.0 == class) else {
                    continue;
                };
                let mass = &mut after.mass[to * k..(to + 1) * k];
                if !after.active.contains(&to) {
                    after.active.push(to);
                    mass.fill(0.0);
                }
                for ((m, b), e) in mass.iter_mut().zip(b).zip(&self.likelihood[at..at + k]) {
                    *m += a * b * e;
                }
            }
        }
        let p: f64 = after.active.iter().map(|&s| after.mass[s * k..(s + 1) * k].iter().sum::<f64>()).sum();
        // A text that the language cannot write has p = 0 and leaves no belief; all that follows is impossible too.
        if p > 0.0 {
            scale(after, k, 1.0 / p);
        }
        p
    }
}

const MAX_TOPICS: usize = words::THEMES.len();

fn scale(belief: &mut Belief, topics: usize, factor: f64) {
    for &s in &belief.active {
        for mass in &mut belief.mass[s * topics..(s + 1) * topics] {
            *mass *= factor;
        }
    }
}

/// The slot that ends a sentence; it is the first one.
const END: usize = 0;
