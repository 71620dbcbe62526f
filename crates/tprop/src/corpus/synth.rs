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
//! cheap since a word allows few slots: only those with mass are kept.

use super::words::{self, Stems};
use crate::rng::Draws;
use std::collections::HashMap;

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

/// A place in a sentence: its role, the number of the subject and that of the noun phrase being made.
type Place = (&'static str, usize, usize);

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

/// The slots of a sentence and the classes that they name.
fn grammar() -> (Vec<Slot>, Vec<Class>) {
    let mut g = Grammar { slots: Vec::new(), classes: Vec::new(), index: HashMap::new() };
    let end: Place = ("end", 0, 0);
    let opener: Place = ("opener", 0, 0);
    let subject = [(0, 0.55), (1, 0.45)].map(|(n, p)| (("subject determiner", n, n), p));
    g.rule(end, Class::End, &[(opener, 0.2), (subject[0].0, 0.8 * subject[0].1), (subject[1].0, 0.8 * subject[1].1)]);
    g.rule(opener, Class::Opener, &subject);
    for n in [0, 1] {
        // A verb phrase: with or without an object.
        let verb = |p: f64| [(("verb", n, n), 0.7 * p), (("intransitive", n, n), 0.3 * p)];
        // A noun phrase of either number inside the sentence whose subject has number n.
        let inner = |role| [((role, n, 0), 0.55), ((role, n, 1), 0.45)];
        g.rule(
            ("subject determiner", n, n),
            Class::Determiner(n),
            &[(("subject adjective", n, n), 0.35), (("subject", n, n), 0.65)],
        );
        g.rule(("subject adjective", n, n), Class::Adjective, &[(("subject", n, n), 1.0)]);
        let [v, i] = verb(0.45);
        g.rule(
            ("subject", n, n),
            Class::Noun(n),
            &[(("whom", n, n), 0.2), (("who", n, n), 0.15), (("beside", n, n), 0.2), v, i],
        );
        // "the boats that the captain sees …", "the boats that see the captain …", "the boats near the captain …"
        g.rule(("whom", n, n), Class::Pronoun, &inner("whom determiner"));
        g.rule(("who", n, n), Class::Pronoun, &[(("who verb", n, n), 1.0)]);
        g.rule(("who verb", n, n), Class::Verb(n), &inner("attached determiner"));
        g.rule(("beside", n, n), Class::Preposition, &inner("attached determiner"));
        g.rule(("verb", n, n), Class::Verb(n), &inner("object determiner"));
        let more = [(end, 0.5), (("adverb", n, n), 0.3), (("place", n, n), 0.2)];
        g.rule(("intransitive", n, n), Class::Intransitive(n), &more);
        g.rule(("adverb", n, n), Class::Adverb, &[(end, 0.85), (("and", n, n), 0.15)]);
        g.rule(("place", n, n), Class::Preposition, &inner("place determiner"));
        g.rule(("and", n, n), Class::And, &verb(1.0));
        for m in [0, 1] {
            g.rule(("whom determiner", n, m), Class::Determiner(m), &[(("whom noun", n, m), 1.0)]);
            g.rule(("whom noun", n, m), Class::Noun(m), &[(("whom verb", n, m), 1.0)]);
            g.rule(("whom verb", n, m), Class::Verb(m), &verb(1.0));
            g.rule(("attached determiner", n, m), Class::Determiner(m), &[(("attached noun", n, m), 1.0)]);
            g.rule(("attached noun", n, m), Class::Noun(m), &verb(1.0));
            g.rule(
                ("object determiner", n, m),
                Class::Determiner(m),
                &[(("object adjective", n, m), 0.35), (("object", n, m), 0.65)],
            );
            g.rule(("object adjective", n, m), Class::Adjective, &[(("object", n, m), 1.0)]);
            g.rule(("object", n, m), Class::Noun(m), &[(end, 0.65), (("place", n, n), 0.2), (("and", n, n), 0.15)]);
            g.rule(("place determiner", n, m), Class::Determiner(m), &[(("place noun", n, m), 1.0)]);
            g.rule(("place noun", n, m), Class::Noun(m), &[(end, 0.85), (("and", n, n), 0.15)]);
        }
    }
    debug_assert!(g.slots.iter().all(|slot| (slot.next.iter().map(|next| next.1).sum::<f64>() - 1.0).abs() < 1e-12));
    (g.slots, g.classes)
}

struct Grammar {
    slots: Vec<Slot>,
    classes: Vec<Class>,
    index: HashMap<Place, usize>,
}

impl Grammar {
    fn rule(&mut self, place: Place, class: Class, next: &[(Place, f64)]) {
        let class = self.classes.iter().position(|known| *known == class).unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len() - 1
        });
        let slot = self.slot(place);
        self.slots[slot].class = class;
        self.slots[slot].next = next.iter().map(|&(to, p)| (self.slot(to), p)).collect();
    }

    fn slot(&mut self, place: Place) -> usize {
        *self.index.entry(place).or_insert_with(|| {
            self.slots.push(Slot { class: 0, next: Vec::new() });
            self.slots.len() - 1
        })
    }
}

/// Visits per sentence, over their sum: a sentence is a cycle from the end slot back to it.
fn stationary(slots: &[Slot]) -> Vec<f64> {
    let mut visits = vec![0.0; slots.len()];
    let mut now = vec![0.0; slots.len()];
    now[END] = 1.0;
    while now.iter().sum::<f64>() > 1e-18 {
        let mut after = vec![0.0; slots.len()];
        for (slot, mass) in slots.iter().zip(&now) {
            for &(to, p) in &slot.next {
                after[to] += mass * p;
            }
        }
        for (sum, mass) in visits.iter_mut().zip(&after) {
            *sum += mass;
        }
        after[END] = 0.0;
        now = after;
    }
    let sum: f64 = visits.iter().sum();
    visits.iter().map(|v| v / sum).collect()
}

/// Words of one theme, as tokens; nouns and verbs in both numbers.
#[derive(Default)]
struct Shelf {
    nouns: Vec<[u32; 2]>,
    verbs: Vec<[u32; 2]>,
    adjectives: Vec<u32>,
}

/// All words with their classes.
struct Lexicon {
    words: Vec<String>,
    topics: usize,
    determiners: [Vec<u32>; 2],
    singles: HashMap<Class, Vec<u32>>,
    intransitive: Vec<[u32; 2]>,
    everywhere: Shelf,
    shelves: Vec<Shelf>,
}

impl Lexicon {
    fn new(vocab: usize) -> Self {
        let topics = (vocab / 20).clamp(3, MAX_TOPICS);
        let mut lexicon = Self {
            words: vec!["<eos>".to_owned()],
            topics,
            determiners: [Vec::new(), Vec::new()],
            singles: HashMap::from([(Class::End, vec![EOS])]),
            intransitive: Vec::new(),
            everywhere: Shelf::default(),
            shelves: (0..topics).map(|_| Shelf::default()).collect(),
        };
        let mut stems = Stems::new();
        // Small languages take the head of each list; a list is complete from about 600 words on.
        let head = |full: usize| (full * vocab).div_ceil(600).clamp(1, full);
        for number in [0, 1] {
            for word in words::DETERMINERS[number].split(' ').take(head(6).max(2)) {
                let token = lexicon.add_shared(&mut stems, word);
                lexicon.determiners[number].push(token);
            }
        }
        let singles = [
            (Class::Pronoun, words::PRONOUNS),
            (Class::And, "and"),
            (Class::Preposition, words::PREPOSITIONS),
            (Class::Opener, words::OPENERS),
            (Class::Adverb, words::ADVERBS),
        ];
        for (class, list) in singles {
            let full = list.split(' ').count();
            let tokens = list.split(' ').take(head(full)).map(|word| lexicon.add_shared(&mut stems, word)).collect();
            lexicon.singles.insert(class, tokens);
        }
        let mut list = words::INTRANSITIVE.split(' ');
        for _ in 0..head(12) {
            let [stem, with_s] = lexicon.add_pair(&mut stems, &mut list);
            lexicon.intransitive.push([with_s, stem]);
        }
        // One shelf for all topics and one for each, filled in turn until the vocabulary is complete.
        let mut shelves: Vec<Shelf> = (0..=topics).map(|_| Shelf::default()).collect();
        let mut lists: Vec<_> = std::iter::once(&words::EVERYWHERE)
            .chain(&words::THEMES[..topics])
            .map(|theme| [theme.nouns, theme.verbs, theme.adjectives].map(|list| list.split_ascii_whitespace()))
            .collect();
        const CYCLE: &[u8] = b"nvananvna";
        let mut turn = 0;
        while lexicon.words.len() < vocab {
            for (shelf, [nouns, verbs, adjectives]) in shelves.iter_mut().zip(&mut lists) {
                match (vocab - lexicon.words.len(), CYCLE[turn % CYCLE.len()]) {
                    (0, _) => break,
                    (2.., b'n') => shelf.nouns.push(lexicon.add_pair(&mut stems, nouns)),
                    (2.., b'v') => {
                        let [stem, with_s] = lexicon.add_pair(&mut stems, verbs);
                        shelf.verbs.push([with_s, stem]);
                    }
                    _ => {
                        let stem = stems.next(adjectives, false);
                        shelf.adjectives.push(lexicon.add(stem));
                    }
                }
            }
            turn += 1;
        }
        lexicon.everywhere = shelves.remove(0);
        lexicon.shelves = shelves;
        lexicon
    }

    fn add(&mut self, word: String) -> u32 {
        self.words.push(word);
        self.words.len() as u32 - 1
    }

    /// A function word, which two classes may share.
    fn add_shared(&mut self, stems: &mut Stems, word: &str) -> u32 {
        if stems.claim(word) {
            self.add(word.to_owned())
        } else {
            self.words.iter().position(|known| known == word).unwrap_or(0) as u32
        }
    }

    /// A stem and the same with its s.
    fn add_pair(&mut self, stems: &mut Stems, list: &mut dyn Iterator<Item = &'static str>) -> [u32; 2] {
        let stem = stems.next(list, true);
        let with_s = words::with_s(&stem);
        [self.add(stem), self.add(with_s)]
    }

    /// The words of a class with their probability under each topic.
    fn of(&self, class: Class) -> Vec<(u32, Vec<f64>)> {
        let everyone = |words: Vec<u32>| {
            let p = zipf(words.len());
            words.into_iter().zip(p).map(|(word, p)| (word, vec![p; self.topics])).collect()
        };
        let themed = |share: f64, pick: &dyn Fn(&Shelf) -> Vec<u32>| {
            let mut all = Vec::new();
            let common = pick(&self.everywhere);
            all.extend(common.iter().zip(zipf(common.len())).map(|(&word, p)| (word, vec![share * p; self.topics])));
            for (topic, shelf) in self.shelves.iter().enumerate() {
                let own = pick(shelf);
                all.extend(own.iter().zip(zipf(own.len())).map(|(&word, p)| {
                    let mut under = vec![0.0; self.topics];
                    under[topic] = (1.0 - share) * p;
                    (word, under)
                }));
            }
            all
        };
        match class {
            Class::Determiner(n) => everyone(self.determiners[n].clone()),
            Class::Intransitive(n) => everyone(self.intransitive.iter().map(|forms| forms[n]).collect()),
            Class::Noun(n) => themed(0.25, &|shelf| shelf.nouns.iter().map(|forms| forms[n]).collect()),
            Class::Verb(n) => themed(0.3, &|shelf| shelf.verbs.iter().map(|forms| forms[n]).collect()),
            Class::Adjective => themed(0.4, &|shelf| shelf.adjectives.clone()),
            single => everyone(self.singles[&single].clone()),
        }
    }
}

/// Zipf's law over n ranks.
fn zipf(n: usize) -> Vec<f64> {
    let weight = |rank: usize| (rank as f64 + 1.0).powf(-ZIPF);
    let sum: f64 = (0..n).map(weight).sum();
    (0..n).map(|rank| weight(rank) / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Probability of a text by summing over every path of hidden states, none of the recursion used.
    fn enumerate(language: &Language, slot: usize, topic: usize, rest: &[u32]) -> f64 {
        let Some((&word, rest)) = rest.split_first() else { return 1.0 };
        let k = language.topics;
        let mut sum = 0.0;
        for to_topic in 0..k {
            let turn = match (slot == END, topic == to_topic) {
                (true, true) => STAY,
                (true, false) => (1.0 - STAY) / (k - 1) as f64,
                (false, true) => 1.0,
                (false, false) => continue,
            };
            for &(to, a) in &language.slots[slot].next {
                let emission = &language.emissions[language.slots[to].class];
                let Some(i) = emission.words.iter().position(|&w| w == word) else { continue };
                let sums = &emission.cumulative[to_topic];
                let e = sums[i] - if i == 0 { 0.0 } else { sums[i - 1] };
                if e > 0.0 {
                    sum += turn * a * e * enumerate(language, to, to_topic, rest);
                }
            }
        }
        sum
    }

    #[test]
    fn recursion_equals_the_sum_over_all_paths() {
        let language = Language::new(50);
        let k = language.topics;
        let text = language.text(3, "tiny", 14);
        assert!(
            text.iter().filter(|&&word| word == EOS).count() > 1,
            "more than one sentence, so that topics may change"
        );
        for end in 1..text.len() {
            let of = |text: &[u32]| (0..k).map(|topic| enumerate(&language, END, topic, text)).sum::<f64>() / k as f64;
            let exact = -(of(&text[..=end]) / of(&text[..1])).ln();
            assert!((language.nats(&text[..=end], Memory::All) - exact).abs() < 1e-10 * exact.max(1.0), "{end}");
        }
        // A reader who forgets: the hidden state before the block is stationary.
        let anywhere = |text: &[u32]| -> f64 {
            let mut sum = 0.0;
            for (slot, p) in language.stationary.iter().enumerate() {
                sum += (0..k).map(|topic| p * enumerate(&language, slot, topic, text)).sum::<f64>() / k as f64;
            }
            sum
        };
        for block in [1, 2, 3, 5] {
            let mut exact = 0.0;
            for t in 1..text.len() {
                let seen = (t - 1) / block * block;
                exact -= (anywhere(&text[seen..=t]) / anywhere(&text[seen..t])).ln();
            }
            assert!((language.nats(&text, Memory::Last(block)) - exact).abs() < 1e-10 * exact, "{block}");
        }
        let unigram: f64 = -text[1..].iter().map(|&word| anywhere(&[word]).ln()).sum::<f64>();
        assert!((language.nats(&text, Memory::Last(0)) - unigram).abs() < 1e-10 * unigram);
    }

    #[test]
    fn predictions_sum_to_one() {
        for vocab in [50, 61, 100, 333, 1000, 3000] {
            let language = Language::new(vocab);
            let text = language.text(1, "any", 60);
            for end in 0..text.len() {
                let sum: f64 = language.prediction(&text[..end]).iter().sum();
                assert!((sum - 1.0).abs() < 1e-12, "{vocab} {end}: {sum}");
            }
            let sum: f64 = (0..vocab as u32).map(|word| language.frequency(word)).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{vocab}: {sum}");
        }
    }

    /// The mean of −ln p over a text must be the mean entropy of the predictions, up to chance: four standard errors.
    #[test]
    fn text_is_as_surprising_as_predicted() {
        let language = Language::new(120);
        let text = language.text(5, "any", 3000);
        let mut belief = language.opening();
        let mut after = language.opening();
        let mut scratch = language.opening();
        let (mut gap, mut square) = (0.0, 0.0);
        for &word in &text {
            let entropy: f64 = (0..120)
                .map(|w| language.step(&belief, w, &mut scratch))
                .filter(|p| *p > 0.0)
                .map(|p| -p * p.ln())
                .sum();
            let d = -language.step(&belief, word, &mut after).ln() - entropy;
            gap += d;
            square += d * d;
            std::mem::swap(&mut belief, &mut after);
        }
        assert!(gap.abs() < 4.0 * square.sqrt(), "{gap} ± {}", square.sqrt());
    }

    #[test]
    fn words_have_the_frequencies_of_the_stationary_distribution() {
        let language = Language::new(50);
        let n = 300_000;
        let text = language.text(2, "any", n);
        for word in 0..50 {
            let share = text.iter().filter(|&&w| w == word).count() as f64 / text.len() as f64;
            let p = language.frequency(word);
            // Topics last long, so that the words of a topic come in swarms.
            assert!((share - p).abs() < 0.12 * p + 2e-4, "{}: {share} {p}", language.words()[word as usize]);
        }
    }

    #[test]
    fn long_memory_is_worth_something_at_the_default_size() {
        let language = Language::new(SynthConfig::default().vocab);
        let text = language.text(1, "valid", SynthConfig::default().held_out());
        let perplexity = |memory| (language.nats(&text, memory) / (text.len() - 1) as f64).exp();
        let best = perplexity(Memory::All);
        let costs = [20, 10, 5, 1, 0].map(|k| perplexity(Memory::Last(k)) / best - 1.0);
        assert!(costs.is_sorted(), "{costs:?}");
        assert!(costs[0] > 0.05 && costs[3] > 0.30, "{costs:?}");
        assert!((10.0..30.0).contains(&best), "{best}");
    }

    #[test]
    fn the_seed_is_the_text() {
        let language = Language::new(200);
        assert_eq!(language.text(1, "train", 5000), Language::new(200).text(1, "train", 5000));
        assert_ne!(language.text(1, "train", 5000), language.text(2, "train", 5000));
        assert_ne!(language.text(1, "train", 5000), language.text(1, "valid", 5000));
        // A longer text goes on where the shorter one ends.
        let short = language.text(1, "train", 1000);
        assert_eq!(language.text(1, "train", 5000)[..short.len()], short);
        assert_eq!(short.last(), Some(&EOS));
    }

    #[test]
    fn vocabularies_have_the_size_asked_for() {
        for vocab in (50..300).chain([999, 1000, 1001, 5000, 100_000]) {
            let language = Language::new(vocab);
            assert_eq!(language.words().len(), vocab);
            assert_eq!(language.words().iter().collect::<HashSet<_>>().len(), vocab);
            assert!((0..vocab).all(|word| !language.origins[word].is_empty()));
            assert!(language.words().iter().all(|word| !word.contains(char::is_whitespace)));
        }
    }

    /// Verbs agree with their subjects; nothing but the grammar may come between.
    #[test]
    fn sentences_agree() {
        let language = Language::new(1000);
        let token =
            |word: &str| language.words().iter().position(|w| w == word).unwrap_or_else(|| panic!("{word}")) as u32;
        let p = |before: &str, word: &str| {
            let before: Vec<u32> = before.split(' ').map(token).collect();
            language.prediction(&before)[token(word) as usize]
        };
        assert!(p("the boats near this captain", "rescue") > 0.0);
        assert_eq!(p("the boats near this captain", "rescues"), 0.0);
        assert_eq!(p("the boats that this captain rescues see one sailor and", "waits"), 0.0);
        assert!(p("the boats that this captain rescues see one sailor and", "wait") > 0.0);
        // The topic outlives many sentences without a word of it.
        let sea = "the boats wait <eos> ".repeat(3);
        let quiet = "the friends wait <eos> ".repeat(4);
        let ratio = p(&format!("{sea}{quiet}the"), "sailor") / p(&format!("{sea}{quiet}the"), "queen");
        assert!(ratio > 5.0, "{ratio}");
    }

    #[test]
    fn forms() {
        let forms = ["boat", "fox", "branch", "melody", "toy", "glass", "wish"].map(words::with_s);
        assert_eq!(forms, ["boats", "foxes", "branches", "melodies", "toys", "glasses", "wishes"]);
    }
}
