//! The words of the built-in language by class and topic, with their probabilities.

use super::words::{self, Stems};
use super::{Class, EOS, MAX_TOPICS, ZIPF};
use std::collections::HashMap;

/// Words of one theme, as tokens; nouns and verbs in both numbers.
#[derive(Default)]
struct Shelf {
    nouns: Vec<[u32; 2]>,
    verbs: Vec<[u32; 2]>,
    adjectives: Vec<u32>,
}

/// All words with their classes.
pub(super) struct Lexicon {
    pub words: Vec<String>,
    pub topics: usize,
    determiners: [Vec<u32>; 2],
    singles: HashMap<Class, Vec<u32>>,
    intransitive: Vec<[u32; 2]>,
    everywhere: Shelf,
    shelves: Vec<Shelf>,
}

impl Lexicon {
    pub fn new(vocab: usize) -> Self {
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
    pub fn of(&self, class: Class) -> Vec<(u32, Vec<f64>)> {
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
