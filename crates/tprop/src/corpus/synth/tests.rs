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
    assert!(text.iter().filter(|&&word| word == EOS).count() > 1, "more than one sentence, so that topics may change");
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
        let entropy: f64 =
            (0..120).map(|w| language.step(&belief, w, &mut scratch)).filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum();
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
    // A longer text continues where the shorter one ends.
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
    let token = |word: &str| language.words().iter().position(|w| w == word).unwrap_or_else(|| panic!("{word}")) as u32;
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
