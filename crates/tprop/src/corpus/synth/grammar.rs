//! The sentences of the built-in language: slots and what may follow them.

use super::{Class, END, Slot};
use std::collections::HashMap;

/// A place in a sentence: its role, the number of the subject and that of the noun phrase being made.
type SlotKey = (&'static str, usize, usize);

/// The slots of a sentence and the classes that they name.
pub(super) fn grammar() -> (Vec<Slot>, Vec<Class>) {
    let mut g = Grammar { slots: Vec::new(), classes: Vec::new(), index: HashMap::new() };
    let end: SlotKey = ("end", 0, 0);
    let opener: SlotKey = ("opener", 0, 0);
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
    index: HashMap<SlotKey, usize>,
}

impl Grammar {
    fn rule(&mut self, key: SlotKey, class: Class, next: &[(SlotKey, f64)]) {
        let class = self.classes.iter().position(|known| *known == class).unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len() - 1
        });
        let slot = self.slot(key);
        self.slots[slot].class = class;
        self.slots[slot].next = next.iter().map(|&(to, p)| (self.slot(to), p)).collect();
    }

    fn slot(&mut self, key: SlotKey) -> usize {
        *self.index.entry(key).or_insert_with(|| {
            self.slots.push(Slot { class: 0, next: Vec::new() });
            self.slots.len() - 1
        })
    }
}

/// Visits per sentence, over their sum: a sentence is a cycle from the end slot back to it.
pub(super) fn stationary(slots: &[Slot]) -> Vec<f64> {
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
