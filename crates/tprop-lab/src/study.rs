//! What an experiment consists of: entries, each a figure of a table, and for each entry the trials that lead to it.
//!
//! An entry's protocol is a pure function: given how far all trials are, [`Study::next`] says which trials it wants now, or what
//! came out. Nothing else decides anything, so a driver that is killed and started again arrives at the same trials and the
//! same table. The protocol of the paper's tables is one for all methods:
//!
//! - *search*: so many short trials per entry, the same number for every method: all points of a small grid with several seeds,
//!   or points drawn from a large grid by a fixed seed, the last of them the best of the neighbouring entry. The lowest
//!   validation perplexity (mean over seeds) wins.
//! - then the winner runs in full, with the experiment's seeds.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use super::grid::{self, Point};
use super::metric::Metric;
use super::progress::Progress;
use super::trial::{Trial, merge};
use tprop_run::settings::{SettingError, Typed};

/// An experiment.
#[derive(Debug, Default)]
pub struct Study {
    /// For files and messages.
    pub name: String,
    /// For the table.
    pub title: String,
    /// What it wants to know.
    pub asks: String,
    /// All entries, in the order in which they are run.
    pub entries: Vec<Entry>,
    /// How entries are laid out.
    pub layouts: Vec<Layout>,
    /// Settings of the command line, which win over all others.
    pub last: Vec<Typed>,
    /// Whether its entries are a sweep's groups.
    pub sweep: bool,
    cache: RefCell<HashMap<String, Rc<Trial>>>,
}

/// A figure of a table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// `table/row/column`, or a sweep's group.
    pub name: String,
    /// Settings of its trials.
    pub set: Vec<Typed>,
    /// How it comes to its figure.
    pub protocol: Protocol,
    /// Seeds of the trials that count.
    pub seeds: Vec<u64>,
    /// Which figure.
    pub metric: Metric,
    /// Arguments of `tprop eval`, if the figure is made by it rather than by training.
    pub eval: Vec<String>,
}

/// How an entry comes to its figure.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// All these points train; the best one is the result. An entry without a choice has one point, which changes nothing.
    Contest { points: Vec<Point>, halving: Option<Halving> },
    /// Short trials choose a point, which then trains in full.
    Search(Search),
}

/// Short trials.
#[derive(Clone, Debug)]
pub struct Search {
    /// What makes them short; wins over the command line.
    pub short: Vec<Typed>,
    /// Points in the order in which they are taken.
    pub points: Vec<Point>,
    /// Seeds of each.
    pub seeds: Vec<u64>,
    /// The entry whose winner takes the last place.
    pub neighbour: Option<usize>,
}

/// Successive halving: after `first`, `first · factor`, … epochs only the best 1/factor of the points continue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Halving {
    /// Epochs before the first cut.
    pub first: u64,
    /// How many times fewer points and more epochs each time.
    pub factor: u64,
}

/// Whether the paper's figures can be compared with ours in size, or only in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// The paper's text and models.
    Comparable,
    /// Another text, smaller models.
    OtherScale,
    /// Less of the text than the paper had.
    PartOfText,
}

/// Rows and columns of entries.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Its part of the entries' names.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Labels of rows.
    pub rows: Vec<String>,
    /// Labels of columns.
    pub columns: Vec<String>,
    /// Entries by row and column.
    pub entries: Vec<Vec<usize>>,
    /// What the paper's figures can be compared in.
    pub sizes: Sizes,
    /// The paper's figures, where it has some.
    pub paper: Vec<Vec<Option<f64>>>,
    /// The row from which the paper's figures (and then ours) are differences.
    pub minus: Option<usize>,
    /// Figures that differ by less than this part agree in size.
    pub tolerance: f64,
}

/// A trial that is wanted now, until an epoch or to its end.
#[derive(Clone, Debug)]
pub struct Want {
    /// Which.
    pub trial: Rc<Trial>,
    /// How far.
    pub until: Option<u64>,
    /// The point, as people read it.
    pub label: String,
}

/// What an entry wants.
#[derive(Debug)]
pub enum Next {
    /// More training.
    Trials(Vec<Want>),
    /// Nothing more.
    Done(Verdict),
}

/// What an entry came to.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The point that won; it changes nothing where there was no choice.
    pub chosen: Option<Point>,
    /// The trials that count; empty if all candidates came to a bad end.
    pub trials: Vec<Rc<Trial>>,
    /// All trials on the way, those that count included.
    pub all: Vec<Rc<Trial>>,
    /// Points that successive halving left behind, with the epoch.
    pub pruned: Vec<(Point, u64)>,
}

/// A point with its trials.
struct Candidate<'a> {
    point: &'a Point,
    trials: Vec<Rc<Trial>>,
}

type Resolved<T = ()> = Result<T, SettingError>;

/// How far the trial of a name is.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<&'a Progress>;

impl Study {
    /// The experiment of a file, which is still to be filled; `last` are settings of the command line.
    pub fn new(path: &Path, last: Vec<Typed>) -> Self {
        let name = path.file_stem().unwrap_or("experiment".as_ref()).to_string_lossy();
        Self { name: tprop::vocab::printable(&name), last, ..Self::default() }
    }

    /// Resolves every trial that can be known beforehand, so that a wrong setting is found before anything is written.
    pub fn check(&self) -> Resolved {
        for entry in &self.entries {
            match &entry.protocol {
                Protocol::Contest { points, .. } => drop(self.in_full(entry, points)?),
                Protocol::Search(search) => {
                    // Any of them may win, its own and those that its neighbour may hand on.
                    let points: Vec<Point> = self.searches(entry, search).flat_map(|(_, s)| s.points.clone()).collect();
                    self.in_short(entry, search, &points)?;
                    self.in_full(entry, &points)?;
                }
            }
        }
        Ok(())
    }

    /// The entry whose winner takes the last place of a search, with its own search.
    fn neighbour(&self, search: &Search) -> Option<(&Entry, &Search)> {
        let entry = &self.entries[search.neighbour?];
        match &entry.protocol {
            Protocol::Search(search) => Some((entry, search)),
            Protocol::Contest { .. } => None,
        }
    }

    /// Leaves out points of a contest that come to the same settings as one before, because what they differ in means nothing for them.
    pub fn drop_repeated(&mut self) -> Resolved {
        for i in 0..self.entries.len() {
            let Protocol::Contest { points, halving } = &self.entries[i].protocol else { continue };
            let mut seen = HashSet::new();
            let mut kept = Vec::with_capacity(points.len());
            for point in points {
                if seen.insert(self.resolve(&[&self.entries[i].set, point], &[1], &[])?[0].shape()) {
                    kept.push(point.clone());
                }
            }
            self.entries[i].protocol = Protocol::Contest { points: kept, halving: *halving };
        }
        Ok(())
    }

    /// The trials that an entry will want, each with a key: its name, or a number where its settings are not known yet (then
    /// those of the entry stand for it).
    pub fn forecast(&self, entry: usize) -> Vec<(String, Rc<Trial>)> {
        let entry = &self.entries[entry];
        let (mut all, points) = match &entry.protocol {
            Protocol::Contest { points, .. } => (Vec::new(), &points[..]),
            Protocol::Search(search) => (self.short_trials(entry, search), &search.points[..1]),
        };
        let searched = matches!(entry.protocol, Protocol::Search(_));
        let in_full = self.in_full(entry, points).expect("resolved before");
        let in_full = in_full.into_iter().flat_map(|c| c.trials).enumerate();
        all.extend(in_full.map(|(i, t)| (if searched { format!("{}#{i}", entry.name) } else { t.id.clone() }, t)));
        all
    }

    /// An entry's search, that of its neighbour, of the neighbour's neighbour and so on.
    fn searches<'a>(&'a self, entry: &'a Entry, search: &'a Search) -> impl Iterator<Item = (&'a Entry, &'a Search)> {
        std::iter::successors(Some((entry, search)), |(_, search)| self.neighbour(search))
    }

    fn short_trials(&self, entry: &Entry, search: &Search) -> Vec<(String, Rc<Trial>)> {
        let each = self
            .searches(entry, search)
            .flat_map(|(entry, search)| self.in_short(entry, search, &search.points).expect("resolved before"));
        each.flat_map(|c| c.trials).map(|t| (t.id.clone(), t)).collect()
    }

    /// How many trials there will be at most for these entries.
    pub fn count_of(&self, entries: &[usize]) -> usize {
        let keys = entries.iter().flat_map(|e| self.forecast(*e)).map(|(key, _)| key);
        keys.collect::<HashSet<_>>().len()
    }

    /// How many trials the protocols ask for, as far as numbers tell.
    pub fn count(&self) -> usize {
        let of = |entry: &Entry| match &entry.protocol {
            Protocol::Contest { points, .. } => points.len() * entry.seeds.len(),
            Protocol::Search(search) => search.points.len() * search.seeds.len() + entry.seeds.len(),
        };
        self.entries.iter().map(of).sum()
    }

    /// What an entry wants now.
    pub fn next(&self, entry: usize, known: Lookup<'_>) -> Next {
        self.wants(&self.entries[entry], known).unwrap_or_else(|e| panic!("{e}: resolved before"))
    }

    fn wants(&self, entry: &Entry, known: Lookup<'_>) -> Resolved<Next> {
        let (points, halving, before) = match &entry.protocol {
            Protocol::Contest { points, halving } => (points.clone(), *halving, Vec::new()),
            Protocol::Search(search) => match self.searched(entry, search, known)? {
                Next::Done(Verdict { chosen: Some(point), all, .. }) => (vec![point], None, all),
                open_or_nothing => return Ok(open_or_nothing),
            },
        };
        let mut alive = self.in_full(entry, &points)?;
        let all: Vec<_> = before.into_iter().chain(alive.iter().flat_map(|c| c.trials.clone())).collect();
        let epochs = alive.iter().flat_map(|c| &c.trials).map(|t| t.epochs()).max().unwrap_or(0);
        let mut pruned = Vec::new();
        let mut rung = halving.map_or(u64::MAX, |h| h.first);
        while let Some(h) = halving.filter(|_| rung < epochs && alive.len() > 1) {
            let wants = wanting(&alive, Some(rung), known);
            if !wants.is_empty() {
                return Ok(Next::Trials(wants));
            }
            alive.sort_by(|a, b| a.score(Some(rung), known).total_cmp(&b.score(Some(rung), known)));
            let keep = alive.len().div_ceil(h.factor as usize).max(1);
            pruned.extend(alive.drain(keep..).map(|c| (c.point.clone(), rung)));
            rung = rung.saturating_mul(h.factor);
        }
        let wants = wanting(&alive, None, known);
        if !wants.is_empty() {
            return Ok(Next::Trials(wants));
        }
        // Without a choice, or where a search has made it, the point is the result however it ended.
        let settled = points[0].is_empty() || matches!(entry.protocol, Protocol::Search(_));
        let best = if settled { alive.first() } else { best(&alive, known) };
        let (chosen, trials) = (best.map(|c| c.point.clone()), best.map_or(Vec::new(), |c| c.trials.clone()));
        Ok(Next::Done(Verdict { chosen, trials, all, pruned }))
    }

    /// How far a search is; once it is over, the point that it chose and its trials. The search of the neighbour comes first, also where
    /// only this entry was asked for.
    fn searched(&self, entry: &Entry, search: &Search, known: Lookup<'_>) -> Resolved<Next> {
        let mut points = search.points.clone();
        let last = points.len() - 1;
        if let Some((other, theirs)) = self.neighbour(search) {
            match self.searched(other, theirs, known)? {
                Next::Done(verdict) => {
                    // Unless it was drawn anyway.
                    let drawn = |best: &Point| points[..last].iter().any(|p| grid::shown(p) == grid::shown(best));
                    if let Some(best) = verdict.chosen.filter(|best| !drawn(best)) {
                        points[last] = best;
                    }
                }
                Next::Trials(mut wants) => {
                    // Its own points can run meanwhile, all but the last.
                    wants.extend(wanting(&self.in_short(entry, search, &points[..last])?, None, known));
                    return Ok(Next::Trials(wants));
                }
            }
        }
        let candidates = self.in_short(entry, search, &points)?;
        let wants = wanting(&candidates, None, known);
        if !wants.is_empty() {
            return Ok(Next::Trials(wants));
        }
        let all = candidates.iter().flat_map(|c| c.trials.clone()).collect();
        let chosen = best(&candidates, known).map(|c| c.point.clone());
        Ok(Next::Done(Verdict { chosen, all, ..Verdict::default() }))
    }

    /// Points with their short trials.
    fn in_short<'a>(&self, entry: &Entry, search: &Search, points: &'a [Point]) -> Resolved<Vec<Candidate<'a>>> {
        let trials = |point| self.resolve(&[&entry.set, point], &search.seeds, &search.short);
        points.iter().map(|point| Ok(Candidate { point, trials: trials(point)? })).collect()
    }

    /// Points with their trials in full.
    fn in_full<'a>(&self, entry: &Entry, points: &'a [Point]) -> Resolved<Vec<Candidate<'a>>> {
        let trials = |point| self.resolve(&[&entry.set, point], &entry.seeds, &[]);
        points.iter().map(|point| Ok(Candidate { point, trials: trials(point)? })).collect()
    }

    /// Trials, one for each seed: the command line wins over the layers, and what makes a trial short over the command line.
    fn resolve(&self, layers: &[&[Typed]], seeds: &[u64], short: &[Typed]) -> Resolved<Vec<Rc<Trial>>> {
        let set = merge(layers);
        let trial = |seed: &u64| {
            let seed = seed.to_string();
            let seed = [Typed::spelt("train.seed", &seed, &format!("train.seed={seed}"))];
            let set = merge(&[&set, &seed, &self.last, short]);
            let key = grid::shown(&set);
            if let Some(trial) = self.cache.borrow().get(&key) {
                return Ok(trial.clone());
            }
            let trial = Rc::new(Trial::new(set)?);
            self.cache.borrow_mut().insert(key, trial.clone());
            Ok(trial)
        };
        seeds.iter().map(trial).collect()
    }
}

impl Candidate<'_> {
    /// Mean of the best validation perplexities over the seeds; a trial with a bad end spoils it.
    fn score(&self, until: Option<u64>, known: Lookup<'_>) -> f64 {
        let scores = self.trials.iter().map(|t| known(&t.id).and_then(|p| p.score(until)).unwrap_or(f64::INFINITY));
        scores.sum::<f64>() / self.trials.len() as f64
    }
}

fn wanting(candidates: &[Candidate<'_>], until: Option<u64>, known: Lookup<'_>) -> Vec<Want> {
    let trials = candidates.iter().flat_map(|c| c.trials.iter().map(move |t| (c.point, t)));
    let open = trials.filter(|(_, t)| !known(&t.id).is_some_and(|p| p.reached(until)));
    open.map(|(point, t)| Want { trial: t.clone(), until, label: grid::shown(point) }).collect()
}

/// The first of the best.
fn best<'a, 'b>(candidates: &'b [Candidate<'a>], known: Lookup<'_>) -> Option<&'b Candidate<'a>> {
    let scored = candidates.iter().map(|c| (c.score(None, known), c)).filter(|(score, _)| score.is_finite());
    scored.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, c)| c)
}
