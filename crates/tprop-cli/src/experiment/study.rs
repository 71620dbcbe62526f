//! What an experiment consists of: cells, each a figure of a table, and for each cell the trials that lead to it.
//!
//! A cell's plan is a pure function: given how far all trials are, [`Study::next`] says which trials it wants now, or what
//! came out. Nothing else decides anything, so a driver that is killed and started again arrives at the same trials and the
//! same table. The protocol of the paper's tables is one for all methods:
//!
//! - *search*: so many short trials per cell, the same number for every method: all points of a small grid with several seeds,
//!   or points drawn from a large grid by a fixed seed, the last of them the best of the neighbouring cell. The lowest
//!   validation perplexity (mean over seeds) wins.
//! - then the winner runs in full, with the experiment's seeds.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::grid::{self, Point};
use super::metric::Metric;
use super::trial::{Progress, Trial, merge};
use crate::settings::{SettingError, Typed};

/// An experiment.
#[derive(Debug)]
pub struct Study {
    /// For files and messages.
    pub name: String,
    /// For the table.
    pub title: String,
    /// What it wants to know.
    pub asks: String,
    /// All cells, in the order in which they are run.
    pub cells: Vec<Cell>,
    /// How cells are laid out.
    pub tables: Vec<Table>,
    /// Settings of the command line, which win over all others.
    pub last: Vec<Typed>,
    /// Whether its cells are a sweep's groups.
    pub sweep: bool,
    cache: RefCell<HashMap<String, Rc<Trial>>>,
}

/// A figure of a table.
#[derive(Clone, Debug)]
pub struct Cell {
    /// `table/row/column`, or a sweep's group.
    pub name: String,
    /// Settings of its trials.
    pub set: Vec<Typed>,
    /// How it comes to its figure.
    pub plan: Plan,
    /// Seeds of the trials that count.
    pub seeds: Vec<u64>,
    /// Which figure.
    pub metric: Metric,
    /// Arguments of `tprop eval`, if the figure is made by it rather than by training.
    pub eval: Vec<String>,
}

/// How a cell comes to its figure.
#[derive(Clone, Debug)]
pub enum Plan {
    /// It trains as it is.
    Plain,
    /// All these points train; the best one is the result.
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
    /// How many points.
    pub take: usize,
    /// Seeds of each.
    pub seeds: Vec<u64>,
    /// The cell whose winner takes the last place.
    pub neighbour: Option<usize>,
}

/// Successive halving: after `first`, `first · factor`, … epochs only the best 1/factor of the points go on.
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

/// Rows and columns of cells.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its part of the cells' names.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Labels of rows.
    pub rows: Vec<String>,
    /// Labels of columns.
    pub columns: Vec<String>,
    /// Cells by row and column.
    pub cells: Vec<Vec<usize>>,
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

/// What a cell wants.
#[derive(Debug)]
pub enum Next {
    /// More training.
    Trials(Vec<Want>),
    /// Nothing more.
    Done(Verdict),
}

/// What a cell came to.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The point that won, if there was a choice.
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

/// How far the trial of a name is.
pub type Known<'a> = &'a dyn Fn(&str) -> Option<&'a Progress>;

impl Study {
    /// An experiment whose cells and tables are still to come.
    pub fn new(name: String, title: String, asks: String) -> Self {
        let (cells, tables, last) = (Vec::new(), Vec::new(), Vec::new());
        Self { name, title, asks, cells, tables, last, sweep: false, cache: RefCell::default() }
    }

    /// Resolves every trial that can be known beforehand, so that a wrong setting is found before anything is written.
    pub fn check(&self) -> Result<(), SettingError> {
        for cell in &self.cells {
            match &cell.plan {
                Plan::Plain => drop(self.trials_of(&cell.set, &[], &cell.seeds)?),
                Plan::Contest { points, .. } => drop(self.candidates(points, &cell.set, &cell.seeds)?),
                Plan::Search(search) => {
                    // Any of them may win.
                    let points = self.possible(search);
                    self.tried(cell, search, &points)?;
                    self.candidates(&points, &cell.set, &cell.seeds)?;
                }
            }
        }
        Ok(())
    }

    /// The points that a search may try: its own, and those that its neighbour may hand on.
    fn possible(&self, search: &Search) -> Vec<Point> {
        let mut points = search.points[..search.take].to_vec();
        if let Some(Plan::Search(theirs)) = search.neighbour.map(|i| &self.cells[i].plan) {
            points.extend(self.possible(theirs));
        }
        points
    }

    /// Leaves out points of a contest that come to the same settings as one before, because what they differ in means nothing for them.
    pub fn drop_repeated(&mut self) -> Result<(), SettingError> {
        for i in 0..self.cells.len() {
            let Plan::Contest { points, .. } = &self.cells[i].plan else { continue };
            let mut seen = std::collections::HashSet::new();
            let mut new = Vec::with_capacity(points.len());
            for point in points {
                new.push(seen.insert(self.trials_of(&self.cells[i].set, point, &[1])?[0].shape()));
            }
            if let Plan::Contest { points, .. } = &mut self.cells[i].plan {
                let mut new = new.into_iter();
                points.retain(|_| new.next().unwrap_or(true));
            }
        }
        Ok(())
    }

    /// The trials that a cell will want, each with a key: its name, or a number where its settings are not known yet (then
    /// those of the cell stand for it).
    pub fn forecast(&self, cell: usize) -> Vec<(String, Rc<Trial>)> {
        let resolved = "resolved before";
        let cell = &self.cells[cell];
        let named = |trials: Vec<Rc<Trial>>| trials.into_iter().map(|t| (t.id.clone(), t)).collect::<Vec<_>>();
        match &cell.plan {
            Plan::Plain => named(self.trials_of(&cell.set, &[], &cell.seeds).expect(resolved)),
            Plan::Contest { points, .. } => {
                let candidates = self.candidates(points, &cell.set, &cell.seeds).expect(resolved);
                named(candidates.into_iter().flat_map(|c| c.trials).collect())
            }
            Plan::Search(search) => {
                let mut all = self.short_trials(cell);
                let finals = self.trials_of(&cell.set, &search.points[0], &cell.seeds).expect(resolved);
                all.extend(finals.into_iter().enumerate().map(|(i, t)| (format!("{}#{i}", cell.name), t)));
                all
            }
        }
    }

    fn short_trials(&self, cell: &Cell) -> Vec<(String, Rc<Trial>)> {
        let Plan::Search(search) = &cell.plan else { return Vec::new() };
        let own = self.tried(cell, search, &search.points[..search.take]).expect("resolved before");
        let mut all: Vec<_> = own.into_iter().flat_map(|c| c.trials).map(|t| (t.id.clone(), t)).collect();
        if let Some(neighbour) = search.neighbour {
            all.extend(self.short_trials(&self.cells[neighbour]));
        }
        all
    }

    /// How many trials there will be at most for these cells.
    pub fn count_of(&self, cells: &[usize]) -> usize {
        let keys = cells.iter().flat_map(|c| self.forecast(*c)).map(|(key, _)| key);
        keys.collect::<std::collections::HashSet<_>>().len()
    }

    /// How many trials the plans ask for, as far as numbers tell.
    pub fn count(&self) -> usize {
        self.cells.iter().map(Cell::count).sum()
    }

    /// What a cell wants now.
    pub fn next(&self, cell: usize, known: Known<'_>) -> Next {
        self.wants(&self.cells[cell], known).unwrap_or_else(|e| panic!("{e}: resolved before"))
    }

    fn wants(&self, cell: &Cell, known: Known<'_>) -> Result<Next, SettingError> {
        match &cell.plan {
            Plan::Plain => {
                let trials = self.trials_of(&cell.set, &[], &cell.seeds)?;
                Ok(finale(trials, None, Vec::new(), known))
            }
            Plan::Contest { points, halving } => self.contest(cell, points, *halving, known),
            Plan::Search(search) => match self.searched(cell, search, known)? {
                Searched::Open(wants) => Ok(Next::Trials(wants)),
                Searched::Closed { best: None, all } => Ok(Next::Done(Verdict { all, ..Verdict::default() })),
                Searched::Closed { best: Some(point), all } => {
                    let trials = self.trials_of(&cell.set, &point, &cell.seeds)?;
                    Ok(finale(trials, Some(point), all, known))
                }
            },
        }
    }

    fn contest(
        &self,
        cell: &Cell,
        points: &[Point],
        halving: Option<Halving>,
        known: Known<'_>,
    ) -> Result<Next, SettingError> {
        let mut alive = self.candidates(points, &cell.set, &cell.seeds)?;
        let all: Vec<_> = alive.iter().flat_map(|c| c.trials.clone()).collect();
        let epochs = all.iter().map(|t| t.epochs()).max().unwrap_or(0);
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
        let best = best(&alive, known);
        let (chosen, trials) = (best.map(|c| c.point.clone()), best.map_or(Vec::new(), |c| c.trials.clone()));
        Ok(Next::Done(Verdict { chosen, trials, all, pruned }))
    }

    /// How far a search is. The search of the neighbour comes first, also where only this cell was asked for.
    fn searched(&self, cell: &Cell, search: &Search, known: Known<'_>) -> Result<Searched, SettingError> {
        let neighbour = match search.neighbour.map(|i| &self.cells[i]) {
            Some(other @ Cell { plan: Plan::Search(theirs), .. }) => {
                match self.searched(other, theirs, known)? {
                    Searched::Closed { best, .. } => best,
                    Searched::Open(mut wants) => {
                        // Its own points can run meanwhile, all but the last.
                        let own = self.tried(cell, search, &search.points[..search.take - 1])?;
                        wants.extend(wanting(&own, None, known));
                        return Ok(Searched::Open(wants));
                    }
                }
            }
            _ => None,
        };
        let points = search.with(neighbour);
        let candidates = self.tried(cell, search, &points)?;
        let wants = wanting(&candidates, None, known);
        if !wants.is_empty() {
            return Ok(Searched::Open(wants));
        }
        let all = candidates.iter().flat_map(|c| c.trials.clone()).collect();
        Ok(Searched::Closed { best: best(&candidates, known).map(|c| c.point.clone()), all })
    }

    /// Points with their short trials.
    fn tried<'a>(&self, cell: &Cell, search: &Search, points: &'a [Point]) -> Result<Vec<Candidate<'a>>, SettingError> {
        let short = |point| self.resolve(&[&cell.set, point], &search.seeds, &search.short);
        points.iter().map(|point| Ok(Candidate { point, trials: short(point)? })).collect()
    }

    /// Points with their trials in full.
    fn candidates<'a>(
        &self,
        points: &'a [Point],
        set: &[Typed],
        seeds: &[u64],
    ) -> Result<Vec<Candidate<'a>>, SettingError> {
        points.iter().map(|point| Ok(Candidate { point, trials: self.trials_of(set, point, seeds)? })).collect()
    }

    /// The trials of a point, one for each seed.
    fn trials_of(&self, set: &[Typed], point: &[Typed], seeds: &[u64]) -> Result<Vec<Rc<Trial>>, SettingError> {
        self.resolve(&[set, point], seeds, &[])
    }

    /// Trials, one for each seed: the command line wins over the layers, and what makes a trial short over the command line.
    fn resolve(&self, layers: &[&[Typed]], seeds: &[u64], short: &[Typed]) -> Result<Vec<Rc<Trial>>, SettingError> {
        let mut trials = Vec::with_capacity(seeds.len());
        let set = merge(layers);
        for seed in seeds {
            let seed = seed.to_string();
            let seed = [Typed::spelt("train.seed", &seed, &format!("train.seed={seed}"))];
            let set = merge(&[&set, &seed, &self.last, short]);
            let key = grid::shown(&set);
            let cached = self.cache.borrow().get(&key).cloned();
            let trial = match cached {
                Some(trial) => trial,
                None => {
                    let trial = Rc::new(Trial::new(set)?);
                    self.cache.borrow_mut().insert(key, trial.clone());
                    trial
                }
            };
            trials.push(trial);
        }
        Ok(trials)
    }
}

/// How far a search is.
enum Searched {
    /// These trials are missing.
    Open(Vec<Want>),
    /// All are there.
    Closed { best: Option<Point>, all: Vec<Rc<Trial>> },
}

impl Cell {
    fn count(&self) -> usize {
        match &self.plan {
            Plan::Plain => self.seeds.len(),
            Plan::Contest { points, .. } => points.len() * self.seeds.len(),
            Plan::Search(search) => search.take * search.seeds.len() + self.seeds.len(),
        }
    }
}

impl Search {
    /// The points to try: the neighbour's winner takes the last place, unless it was drawn anyway.
    fn with(&self, neighbour: Option<Point>) -> Vec<Point> {
        let take = self.take.min(self.points.len());
        let mut points = self.points[..take].to_vec();
        let names = |point: &Point| point.iter().map(|t| (t.name.clone(), t.text.clone())).collect::<Vec<_>>();
        if let Some(best) = neighbour
            && !points[..take - 1].iter().any(|p| names(p) == names(&best))
        {
            points[take - 1] = best;
        }
        points
    }
}

impl Candidate<'_> {
    /// Mean of the best validation perplexities over the seeds; a trial with a bad end spoils it.
    fn score(&self, until: Option<u64>, known: Known<'_>) -> f64 {
        let scores = self.trials.iter().map(|t| known(&t.id).and_then(|p| p.score(until)).unwrap_or(f64::INFINITY));
        scores.sum::<f64>() / self.trials.len() as f64
    }
}

fn wanting(candidates: &[Candidate<'_>], until: Option<u64>, known: Known<'_>) -> Vec<Want> {
    let trials = candidates.iter().flat_map(|c| c.trials.iter().map(move |t| (c.point, t)));
    let open = trials.filter(|(_, t)| !known(&t.id).is_some_and(|p| p.reached(until)));
    open.map(|(point, t)| Want { trial: t.clone(), until, label: grid::shown(point) }).collect()
}

/// The first of the best.
fn best<'a, 'b>(candidates: &'b [Candidate<'a>], known: Known<'_>) -> Option<&'b Candidate<'a>> {
    let scored = candidates.iter().map(|c| (c.score(None, known), c)).filter(|(score, _)| score.is_finite());
    scored.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, c)| c)
}

/// The trials that count, after those that chose them.
fn finale(trials: Vec<Rc<Trial>>, chosen: Option<Point>, mut all: Vec<Rc<Trial>>, known: Known<'_>) -> Next {
    let open = trials.iter().filter(|t| !known(&t.id).is_some_and(|p| p.reached(None)));
    let label = chosen.as_ref().map_or(String::new(), |point| grid::shown(point));
    let wants: Vec<_> = open.map(|t| Want { trial: t.clone(), until: None, label: label.clone() }).collect();
    if !wants.is_empty() {
        return Next::Trials(wants);
    }
    all.extend(trials.iter().cloned());
    Next::Done(Verdict { chosen, trials, all, pruned: Vec::new() })
}
