//! The lexicon of the built-in language: everyday words first, made-up ones when more are asked for.
//!
//! A word belongs to one class and, for content words, to one topic or to all of them. No form occurs twice, so that a
//! content word gives its class away; only the determiner "the" leaves the number open.

use crate::rng::Draws;
use std::collections::HashSet;

/// Words of one theme; each list by falling frequency.
pub(super) struct Theme {
    pub nouns: &'static str,
    pub verbs: &'static str,
    pub adjectives: &'static str,
}

pub(super) const DETERMINERS: [&str; 2] = ["the one this every each another", "the some many these few several"];
/// "the boats that the captain sees", "the boats that pass the captain"
pub(super) const PRONOUNS: &str = "that which";
pub(super) const PREPOSITIONS: &str = "near with behind beside under above against beyond";
pub(super) const OPENERS: &str = "today often then sometimes perhaps tonight soon again";
pub(super) const ADVERBS: &str = "slowly quietly there together well alone gladly early late twice";
/// Verbs without an object, used under every topic.
pub(super) const INTRANSITIVE: &str =
    "wait sleep smile arrive return laugh disappear hesitate rest agree tremble shine";

/// Content words of no topic in particular.
pub(super) const EVERYWHERE: Theme = Theme {
    nouns: "friend girl boy stranger neighbour brother sister visitor guest cousin uncle aunt twin parent partner newcomer \
            villager teenager crowd couple rival beginner helper leader owner member",
    verbs: "see like find know follow help remember want meet need admire expect forget surprise trust ignore",
    adjectives: "old small young quiet new big good strange tired clever nice tall funny happy sad ugly pretty serious angry \
                 polite shabby",
};

pub(super) const THEMES: [Theme; 10] = [
    Theme {
        nouns: "boat sailor captain harbour wave ship island sail rope anchor lighthouse gull reef deck storm pirate whale \
                net oar beach shell mast ferry diver buoy crab paddle",
        verbs: "steer board rescue pass row launch moor salvage tow sink navigate unload hoist sight",
        adjectives: "salty stormy wet deep coastal drowned sunken foggy blue calm rusty seaworthy windy drifting tidal \
                     stranded northern barnacled",
    },
    Theme {
        nouns: "flower gardener rose seed tree hedge spade bee lawn root leaflet bulb weed shrub petal orchard pot fern rake \
                snail tulip greenhouse trellis daisy cactus nettle acorn",
        verbs: "plant water prune dig harvest trim sow gather mow uproot pollinate nurture cultivate transplant",
        adjectives: "green fragrant blooming leafy wild sunny thorny ripe withered mossy muddy tender shady overgrown \
                     budding fruitful rooted tangled",
    },
    Theme {
        nouns: "cook soup pan spoon oven cake recipe kettle plate baker onion pie cup waiter sauce egg carrot apron muffin \
                pepper dumpling bowl noodle tray biscuit sausage ladle",
        verbs: "bake taste stir boil eat fry slice peel season roast knead swallow chop devour",
        adjectives: "hot sweet spicy fresh burnt hungry crisp sour buttered greasy juicy raw tasty salted creamy bitter \
                     smoked steaming",
    },
    Theme {
        nouns: "singer song violin drum pianist melody flute choir guitar concert trumpet composer dancer band cello note \
                organist tune harp opera soloist chord encore metronome rhythm ballad anthem",
        verbs: "play sing rehearse compose conduct applaud record strum whistle improvise hum transcribe accompany perform",
        adjectives: "loud gentle cheerful slow rhythmic famous melodic tuneless harmonious shrill joyful lively solemn mellow \
                     gifted operatic echoing baroque",
    },
    Theme {
        nouns: "trader coin market price customer shop merchant basket bargain debt cart banker clerk ledger purse stall \
                cloth scale receipt parcel auction jewel broker tax wallet invoice loan",
        verbs: "buy sell pay trade weigh count borrow deliver pack owe export import wrap",
        adjectives: "cheap costly honest rich greedy busy golden careful fair worthless rare profitable bankrupt generous \
                     wholesale thrifty crowded priceless",
    },
    Theme {
        nouns: "planet star astronomer comet telescope moon rocket orbit galaxy meteor eclipse satellite crater nebula \
                astronaut signal lens dome observatory probe sunspot capsule asteroid antenna sunrise module pulsar",
        verbs: "observe discover photograph measure circle map illuminate predict approach chart magnify detect outshine track explore",
        adjectives: "bright distant dark cold silver round faint lunar cosmic stellar glowing frozen invisible spinning solar \
                     celestial weightless orbiting",
    },
    Theme {
        nouns: "teacher pupil book lesson pencil exam desk question answer library essay poet scholar page blackboard poem \
                dictionary student riddle professor chapter alphabet sentence exercise tutor notebook syllable",
        verbs: "read write teach study explain learn correct ask recite spell underline translate quote summarise",
        adjectives: "wise difficult patient curious lazy studious learned attentive strict printed absent forgetful simple \
                     inky literate puzzled classical talkative",
    },
    Theme {
        nouns: "hunter bear forest fox owl path hut stag river squirrel camp trail badger lantern cave mushroom hiker beaver \
                den branch tent stream rabbit eagle wolverine hedgehog boar",
        verbs: "chase hunt hear climb cross hide frighten feed catch shelter startle sniff stalk outrun",
        adjectives: "hidden lost dense shy snowy furry hollow fearless wooden misty silent rocky prowling nocturnal steep \
                     fallen untamed nimble watchful",
    },
    Theme {
        nouns: "mechanic engine machine hammer wheel factory tool robot gear welder screw motor inventor lever pump bolt valve \
                engineer blueprint spring turbine drill gauge crane pulley rivet cable",
        verbs: "repair build test oil assemble invent lift adjust fasten polish sharpen dismantle rebuild tighten",
        adjectives: "heavy broken noisy modern iron electric sharp oily reliable automatic hydraulic rigid worn mechanical \
                     precise hinged toothed overheated",
    },
    Theme {
        nouns: "king queen knight castle sword crown tower guard dragon throne banner servant prince shield duke battle moat \
                rider palace herald jester feast helmet dungeon archer squire fortress",
        verbs: "defend serve attack praise betray command besiege obey conquer banish avenge imprison challenge summon",
        adjectives: "brave royal proud loyal cruel noble mighty ancient armed cursed victorious wounded jealous legendary \
                     exiled feared rebellious chivalrous",
    },
];

/// The plural of a noun, or the singular form of a verb.
pub(super) fn with_s(stem: &str) -> String {
    let before_y = stem.strip_suffix('y').and_then(|rest| rest.chars().next_back());
    let consonant_y = before_y.is_some_and(|c| !"aeiou".contains(c));
    if consonant_y {
        format!("{}ies", &stem[..stem.len() - 1])
    } else if ["s", "x", "z", "ch", "sh"].iter().any(|end| stem.ends_with(end)) {
        format!("{stem}es")
    } else {
        format!("{stem}s")
    }
}

/// Hands out stems, from a list while it lasts and made-up ones after it, and never the same form twice.
pub(super) struct Stems {
    taken: HashSet<String>,
    draws: Draws,
    made: u64,
}

impl Stems {
    pub fn new() -> Self {
        // The language does not depend on the user's seed: that one chooses the text.
        Self { taken: HashSet::new(), draws: Draws::new(0, "synth.lexicon"), made: 0 }
    }

    /// Claims `word`; false if it was in use.
    pub fn claim(&mut self, word: &str) -> bool {
        self.taken.insert(word.to_owned())
    }

    /// The next stem of `list`, or a made-up one, whose forms are all unused.
    pub fn next(&mut self, list: &mut dyn Iterator<Item = &'static str>, inflected: bool) -> String {
        loop {
            let stem = list.next().map_or_else(|| self.make(), str::to_owned);
            let other = with_s(&stem);
            if self.taken.contains(&stem) || (inflected && self.taken.contains(&other)) {
                continue;
            }
            self.taken.insert(stem.clone());
            if inflected {
                self.taken.insert(other);
            }
            return stem;
        }
    }

    /// A pronounceable word of two or three syllables.
    fn make(&mut self) -> String {
        const ONSETS: [&str; 24] = [
            "b", "br", "d", "dr", "f", "fl", "g", "gl", "h", "k", "kr", "l", "m", "n", "p", "pl", "r", "s", "st", "t",
            "tr", "v", "w", "z",
        ];
        const VOWELS: [&str; 8] = ["a", "e", "i", "o", "u", "ai", "ou", "ea"];
        const CODAS: [&str; 8] = ["n", "r", "l", "m", "t", "k", "nd", "st"];
        let mut word = String::new();
        let mut left = self.draws.bits(self.made);
        self.made += 1;
        let mut pick = |n: u64| {
            let digit = left % n;
            left /= n;
            digit as usize
        };
        for _ in 0..2 + usize::from(pick(3) == 0) {
            word.push_str(ONSETS[pick(24)]);
            word.push_str(VOWELS[pick(8)]);
        }
        word.push_str(CODAS[pick(8)]);
        word
    }
}
