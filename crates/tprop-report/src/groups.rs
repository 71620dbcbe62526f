//! What runs have in common and in what they differ: settings that vary, runs that are seeds of one another, their statistics.

use std::collections::{HashMap, HashSet};

use tprop::vocab::printable;

use crate::numbers::{Spread, number, ppl};
use crate::run::{RunData, Setting};

/// A setting with different values among runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Varying {
    /// Dotted name.
    pub name: String,
    /// Whether its values are numbers.
    pub numeric: bool,
    /// Whether each run has it.
    pub everywhere: bool,
    /// Its values, each once; numbers in order.
    pub values: Vec<String>,
}

impl Varying {
    /// The name without its group.
    pub fn short(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }
}

/// Settings with more than one value among the runs that they mean something for, in the order of the program's list. Those that
/// shape no number are left out.
pub fn varying(runs: &[RunData]) -> Vec<Varying> {
    let mut seen = HashSet::new();
    let all = runs.iter().flat_map(|r| &r.settings).filter(|s| s.shapes && seen.insert(&s.name));
    let mut all: Vec<&Setting> = all.collect();
    all.sort_by_key(|s| s.rank);
    let mut found = Vec::new();
    for Setting { name, number: known, .. } in all {
        let mut values: Vec<String> = runs.iter().filter_map(|r| r.value(name)).map(str::to_owned).collect();
        let everywhere = values.len() == runs.len();
        values.sort();
        values.dedup();
        if values.len() < 2 {
            continue;
        }
        let numeric = *known && values.iter().all(|v| number(v).is_some());
        if numeric {
            values.sort_by(|a, b| number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0)));
            values.dedup_by(|a, b| number(a) == number(b));
        }
        found.push(Varying { name: name.clone(), numeric, everywhere, values });
    }
    found
}

/// Those that are worth an axis: no seeds, and not the same as one before (the embedding follows the hidden size).
pub fn axes(runs: &[RunData]) -> Vec<Varying> {
    let mut axes: Vec<Varying> = Vec::new();
    for one in varying(runs).into_iter().filter(|v| v.name != SEED) {
        let follows = |other: &Varying| runs.iter().all(|r| r.value(&one.name) == r.value(&other.name));
        if !axes.iter().any(follows) {
            axes.push(one);
        }
    }
    axes
}

/// Runs that differ in nothing but this are repetitions of each other.
pub const SEED: &str = "train.seed";

/// Runs that differ only in their seed.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Distinct among groups.
    pub name: String,
    /// At least one.
    pub runs: Vec<&'a RunData>,
}

impl<'a> Group<'a> {
    /// The run that stands for all in whatever does not depend on the seed.
    pub fn first(&self) -> &'a RunData {
        self.runs[0]
    }

    /// Mean and deviation of a figure over the seeds that have it.
    pub fn spread(&self, of: impl Fn(&RunData) -> Option<f64>) -> Option<Spread> {
        Spread::of(&self.runs.iter().filter_map(|run| of(run)).collect::<Vec<_>>())
    }
}

/// Runs in groups, in the order of their first members. A run without settings is a group of its own; one that repeats another, seed
/// included, is left out, because it tells nothing new about the spread.
pub fn groups(runs: &[RunData]) -> Vec<Group<'_>> {
    type Key = Vec<(String, String)>;
    let key = |run: &RunData| -> Option<Key> {
        let shapes = |s: &&Setting| s.name != SEED && s.shapes && s.applies;
        let mut pairs: Key = run.settings.iter().filter(shapes).map(|s| (s.name.clone(), s.text.clone())).collect();
        // Weights that a run began with, and a corpus that changed under its name, make it another experiment.
        let start = run.record.start.as_ref();
        pairs.push(("from".to_owned(), start.and_then(|s| s.from.clone()).unwrap_or_default()));
        pairs.push(("corpus".to_owned(), start.map(|s| s.corpus.clone()).unwrap_or_default()));
        pairs.sort();
        (!run.settings.is_empty()).then_some(pairs)
    };
    let mut groups: Vec<(Option<Key>, Vec<&RunData>)> = Vec::new();
    for run in runs {
        let key = key(run);
        match groups.iter_mut().find(|(k, _)| k.is_some() && *k == key) {
            Some((_, members)) if members.iter().any(|m| m.setting(SEED) == run.setting(SEED)) => {}
            Some((_, members)) => members.push(run),
            None => groups.push((key, vec![run])),
        }
    }
    let named = groups.into_iter().map(|(_, runs)| {
        let name = match (&runs[0].label, &runs[..]) {
            (Some(label), _) => label.clone(),
            (None, [one]) => one.name.clone(),
            (None, several) => common_name(several),
        };
        Group { name, runs }
    });
    let mut named: Vec<Group<'_>> = named.collect();
    // A name that says too little, or one that is there twice, gives way to what the group's settings say.
    let unclear = |one: &Group<'_>| {
        let twice = named.iter().filter(|other| other.name == one.name).count() > 1;
        one.runs.len() > 1 && (twice || one.name.is_empty())
    };
    let unclear: Vec<bool> = named.iter().map(unclear).collect();
    let axes = axes(runs);
    for (group, _) in named.iter_mut().zip(unclear).filter(|(_, unclear)| *unclear) {
        group.name = describe(group.first(), &axes);
        if group.name.is_empty() {
            group.name = format!("{} and its seeds", group.first().name);
        }
    }
    named
}

/// The values of the settings that vary, in few words.
pub fn describe(run: &RunData, axes: &[Varying]) -> String {
    let words = axes.iter().filter_map(|axis| {
        let text = run.value(&axis.name)?;
        let bare = axis.name == "method" || (!axis.numeric && text.parse::<bool>().is_err());
        Some(if bare { text.to_owned() } else { format!("{} {text}", axis.short().replace('_', " ")) })
    });
    words.collect::<Vec<_>>().join(", ")
}

/// What the names of runs begin with, without the beginning of a word like `seed` or `s`.
fn common_name(runs: &[&RunData]) -> String {
    let first: Vec<char> = runs[0].name.chars().collect();
    let same = runs.iter().map(|run| first.iter().zip(run.name.chars()).take_while(|(a, b)| **a == *b).count());
    let length = same.min().unwrap_or(0);
    let name: String = first[..length].iter().collect();
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = ["seed", "s"].iter().find_map(|w| name.strip_suffix(w)).unwrap_or(name);
    name.trim_end_matches(['-', '_', '.', '/', ' ', '=', '+']).to_owned()
}

/// A curve over runs: where all that have a curve have a point. `of` gives x and y. It has at most `most` points, each of them the mean
/// of as many neighbours in every run.
pub fn mean_curve(runs: &[&RunData], most: usize, of: impl Fn(&RunData) -> Vec<(f64, f64)>) -> Vec<(f64, Spread)> {
    let curves: Vec<Vec<(f64, f64)>> = runs.iter().map(|run| of(run)).filter(|c| !c.is_empty()).collect();
    let every = curves.iter().map(Vec::len).max().unwrap_or(0).div_ceil(most).max(1);
    let curves: Vec<Vec<(f64, f64)>> = curves.iter().map(|curve| thin(curve, every)).collect();
    let Some((first, others)) = curves.split_first() else { return Vec::new() };
    let others: Vec<HashMap<u64, f64>> =
        others.iter().map(|curve| curve.iter().map(|(x, y)| (x.to_bits(), *y)).collect()).collect();
    let at = |x: f64, y: f64| -> Option<Vec<f64>> {
        std::iter::once(Some(y)).chain(others.iter().map(|curve| curve.get(&x.to_bits()).copied())).collect()
    };
    first.iter().filter_map(|&(x, y)| Some((x, Spread::of(&at(x, y)?)?))).collect()
}

/// Each `every` points as one: where the last of them stands, as high as their mean.
fn thin(points: &[(f64, f64)], every: usize) -> Vec<(f64, f64)> {
    let mean = |chunk: &[(f64, f64)]| {
        let last = chunk.last().map_or(0.0, |p| p.0);
        (last, chunk.iter().map(|p| p.1).sum::<f64>() / chunk.len() as f64)
    };
    points.chunks(every).map(mean).collect()
}

/// In a few words what a run is: method and its shape.
pub fn summary(run: &RunData) -> String {
    let get = |name: &str| run.setting(name).map(printable);
    let or = |name: &str| get(name).unwrap_or_else(|| "?".into());
    let batch = if run.setting("train.batch") == Some("full") { ", full batch" } else { "" };
    match run.setting("method") {
        Some("bptt") => format!("BPTT, K = {}, S = {}{batch}", or("bptt.window"), or("train.streams")),
        Some("btprop") => {
            let steps = match run.setting("btprop.solver") {
                Some("alm") => format!("{} joint", or("btprop.joint_steps")),
                _ => format!("{} state", or("btprop.state_steps")),
            };
            let (b, m, s) = (or("btprop.block"), or("btprop.blocks"), or("train.streams"));
            let (solver, lambda) = (or("btprop.solver"), or("btprop.lambda"));
            let plural = if steps.starts_with("1 ") { "step" } else { "steps" };
            format!("BTPROP {solver}, B = {b}, M = {m}, S = {s}, λ = {lambda}, {steps} {plural}{batch}")
        }
        Some(other) => printable(other),
        None => String::new(),
    }
}

/// Cell and sizes.
pub fn shape(run: &RunData) -> String {
    let Some(cell) = run.setting("model.cell") else { return String::new() };
    let layers = run.setting("model.layers").filter(|l| *l != "1").map_or(String::new(), |l| format!(" × {l}"));
    printable(&format!("{} {}{layers}", cell.to_uppercase(), run.setting("model.hidden").unwrap_or("?")))
}

/// The best possible perplexity on the validation split, where the record knows it.
pub fn best_possible(run: &RunData) -> Option<f64> {
    Some(run.record.start.as_ref()?.best_possible?.valid)
}

/// The best possible perplexity as a line to compare `values` with, where all runs share it; where it is so far below them that it would
/// squeeze them, a sentence instead.
pub fn reference(runs: &[RunData], values: impl Iterator<Item = f64>) -> (Vec<(f64, String)>, String) {
    let possible: Vec<f64> = runs.iter().filter_map(best_possible).collect();
    let Some(&x) = possible.first().filter(|x| possible.len() == runs.len() && possible.iter().all(|p| p == *x)) else {
        return (Vec::new(), String::new());
    };
    if values.fold(f64::INFINITY, f64::min) < 1.5 * x {
        (vec![(x, format!("best possible {}", ppl(x)))], String::new())
    } else {
        (Vec::new(), format!(" The best possible is {}, far below.", ppl(x)))
    }
}

/// Whether all runs read one corpus, as far as their settings tell; more or less of it.
pub fn same_text(runs: &[RunData]) -> bool {
    runs.windows(2).all(|w| w[0].setting("data.source") == w[1].setting("data.source"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run whose program knows these settings: threads shape nothing, and those of the other method do not apply.
    fn run(name: &str, settings: &[(&str, &str)]) -> RunData {
        let method = settings.iter().find(|(n, _)| *n == "method").map_or("", |(_, text)| text);
        let known = |(rank, (name, text)): (usize, &(&str, &str))| {
            let group = name.split('.').next().unwrap_or_default();
            Setting {
                name: (*name).to_owned(),
                text: (*text).to_owned(),
                rank,
                shapes: *name != "train.threads",
                applies: !["bptt", "btprop"].contains(&group) || group == method,
                number: true,
            }
        };
        RunData { name: name.into(), settings: settings.iter().enumerate().map(known).collect(), ..RunData::default() }
    }

    fn members(groups: &[Group<'_>]) -> Vec<(String, String)> {
        let names = |g: &Group<'_>| g.runs.iter().map(|r| r.name.as_str()).collect::<Vec<_>>().join(" ");
        groups.iter().map(|g| (g.name.clone(), names(g))).collect()
    }

    #[test]
    fn seeds_are_grouped_and_what_does_not_matter_is_not_looked_at() {
        let one = |name, hidden, seed, threads, window| {
            run(
                name,
                &[
                    ("method", "btprop"),
                    ("model.hidden", hidden),
                    ("model.embed", hidden),
                    ("train.seed", seed),
                    ("train.threads", threads),
                    ("bptt.window", window),
                ],
            )
        };
        let runs = [
            one("h8-s1", "8", "1", "1", "5"),
            one("h8-s2", "8", "2", "4", "10"),
            one("h16-s1", "16", "1", "1", "5"),
            run("bare", &[]),
            run("bare2", &[]),
        ];
        let groups = groups(&runs);
        let members = members(&groups);
        let expected = [("h8", "h8-s1 h8-s2"), ("h16-s1", "h16-s1"), ("bare", "bare"), ("bare2", "bare2")];
        assert_eq!(members, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
        let names = |v: Vec<Varying>| v.into_iter().map(|v| v.name).collect::<Vec<_>>();
        assert_eq!(names(varying(&runs[..3])), ["model.hidden", "model.embed", "train.seed"]);
        assert_eq!(names(axes(&runs[..3])), ["model.hidden"]);
        assert_eq!(axes(&runs[..3])[0].values, ["8", "16"]);
        assert_eq!(describe(&runs[0], &axes(&runs[..3])), "hidden 8");
    }

    #[test]
    fn repeated_runs_are_no_seeds_and_names_that_say_too_little_all_give_way() {
        let one = |name, lr, seed, lambda| {
            run(name, &[("method", "bptt"), ("optim.lr", lr), ("train.seed", seed), ("btprop.lambda", lambda)])
        };
        let runs = [
            one("gru8-s1-aa", "0.1", "1", "1"),
            one("gru8-s1-bb", "0.1", "1", "2"), // λ means nothing here
            one("gru8-s2-cc", "0.1", "2", "1"),
            one("gru8-s1-dd", "0.2", "1", "1"),
            one("gru8-s2-ee", "0.2", "2", "1"),
        ];
        let groups = groups(&runs);
        let members = members(&groups);
        let expected = [("lr 0.1", "gru8-s1-aa gru8-s2-cc"), ("lr 0.2", "gru8-s1-dd gru8-s2-ee")];
        assert_eq!(members, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn a_mean_curve_ends_where_the_first_member_does() {
        let runs = [run("a", &[]), run("b", &[]), run("c", &[])];
        let curve = mean_curve(&runs.iter().collect::<Vec<_>>(), 9, |r| match r.name.as_str() {
            "a" => vec![(1.0, 10.0), (2.0, 8.0), (3.0, 7.0)],
            "b" => vec![(1.0, 12.0), (2.0, 6.0)],
            _ => vec![],
        });
        let points: Vec<_> = curve.iter().map(|(x, s)| (*x, s.mean, s.n)).collect();
        assert_eq!(points, [(1.0, 11.0, 2), (2.0, 7.0, 2)]);
    }

    #[test]
    fn long_curves_are_thinned_by_means_and_seeds_of_any_length_stay_together() {
        let points: Vec<_> = (0..10).map(|i| (f64::from(i), f64::from(i))).collect();
        assert_eq!(thin(&points, 1), points);
        assert_eq!(thin(&points, 2), [(1.0, 0.5), (3.0, 2.5), (5.0, 4.5), (7.0, 6.5), (9.0, 8.5)]);
        assert_eq!(thin(&points, 4), [(3.0, 1.5), (7.0, 5.5), (9.0, 8.5)]);
        let runs = [run("600", &[]), run("700", &[]), run("850", &[])];
        let of = |run: &RunData| (0..run.name.parse().unwrap()).map(|i: u32| (f64::from(i), 1.0)).collect();
        let curve = mean_curve(&runs.iter().collect::<Vec<_>>(), 80, of);
        // Eleven neighbours each, as in the longest; as far as the shortest goes.
        assert_eq!((curve.len(), curve[0].0, curve[1].0), (600 / 11, 10.0, 21.0));
        assert!(curve.iter().all(|(_, spread)| spread.n == 3));
    }
}
