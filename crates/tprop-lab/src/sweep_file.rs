//! A sweep's file: settings, a grid over them, and how to look at what comes out.
//!
//! ```toml
//! [set]                                     # settings of all trials
//! model.hidden = 50
//!
//! [grid]                                    # every combination is a point; several grids as [[grid]]
//! optim.lr = [0.01, 0.05, 0.1]
//! btprop.lambda = { from = 0.01, to = 1, steps = 3, scale = "log" }
//!
//! [sweep]
//! seeds = 3                                 # or a list
//! groups = ["optim.lr"]                     # a row of the table for each value, with the best of the other settings
//! prune = { first = 1, factor = 3 }         # after 1, 3, 9, … epochs the best third of each group continues
//! ```

use std::collections::HashMap;
use std::path::Path;

use toml::de::DeValue;

use super::grid::{Grid, MOST_TRIALS, Point, shown};
use super::metric::Metric;
use super::study::{Entry, Halving, Protocol, Study};
use super::toml::{Section, Source};
use tprop_run::settings::table::neutral;
use tprop_run::settings::{SettingError, Typed};

/// Reads a sweep; `last` are settings of the command line.
pub fn read(text: &str, path: &Path, last: Vec<Typed>) -> Result<Study, SettingError> {
    let source = Source::new(text, path);
    let whole = source.parse()?;
    let file = Section::new(source, "the file", &whole, 0, &["set", "grid", "sweep"])?;
    let set = file.settings("set")?;
    let empty = Default::default();
    let (at, table) = file.table("sweep")?.unwrap_or((0, &empty));
    let sweep = Section::new(source, "[sweep]", table, at, &["title", "asks", "seeds", "groups", "prune"])?;
    let grids = grids(file, source)?;
    let seeds = sweep.seeds("seeds")?.unwrap_or_else(|| vec![1]);
    let halving = sweep.table("prune")?.map(|(at, table)| prune(source, table, at)).transpose()?;
    for first in grids.iter().flat_map(Grid::firsts) {
        let refuse = |what: String| Err(SettingError::at(&first.place, what));
        if first.name == "train.seed" {
            return refuse("train.seed does not belong into the grid: give seeds in [sweep]".into());
        }
        if let Some(other) = set.iter().chain(&last).find(|s| s.name == first.name) {
            return refuse(format!("{} is in the grid and also set ({}); leave one out", first.name, other.place));
        }
    }
    let groups = sweep.texts("groups")?;
    for group in &groups {
        if !grids.iter().any(|grid| grid.names().any(|name| name == group)) {
            let at = sweep.value("groups").map_or(0, |(at, _)| at);
            let shown = tprop::vocab::printable(group);
            return source.refuse(at, format!("groups has {shown}, which is not in the grid"));
        }
    }
    let points: Option<u64> = grids.iter().try_fold(0u64, |sum, grid| sum.checked_add(grid.len()?));
    match points.and_then(|n| n.checked_mul(seeds.len() as u64)) {
        Some(n) if n <= MOST_TRIALS => {}
        n => {
            let n = n.map_or("more than 10^19".to_owned(), tprop_report::numbers::grouped);
            let most = tprop_report::numbers::grouped(MOST_TRIALS);
            return file
                .refuse(format!("the grid has {n} trials, seeds included; at most {most} are run: thin it out"));
        }
    }

    let name = path.file_stem().map_or("sweep".into(), |stem| tprop::vocab::printable(&stem.to_string_lossy()));
    let title = sweep.text("title")?.unwrap_or_else(|| name.clone());
    let mut study = Study::new(name, title, sweep.text("asks")?.unwrap_or_default());
    study.sweep = true;
    study.last = last;
    for (name, points) in grouped(&grids, &groups) {
        let (set, seeds, protocol) = (set.clone(), seeds.clone(), Protocol::Contest { points, halving });
        study.entries.push(Entry { name, set, protocol, seeds, metric: Metric::default(), eval: Vec::new() });
    }
    study.check()?;
    study.drop_repeated()?;
    check_sense(&study, &grids)?;
    if let Some((h, longest)) = halving.map(|h| (h, longest(&study))).filter(|(h, longest)| h.first >= *longest) {
        let at = sweep.value("prune").map_or(0, |(at, _)| at);
        return source.refuse(at, format!("prune first cuts after {} epochs, but trials have {longest}", h.first));
    }
    Ok(study)
}

/// Points by what they have in common, in their order; all of them together if nothing is asked for.
fn grouped(grids: &[Grid], groups: &[String]) -> Vec<(String, Vec<Point>)> {
    let mut found: Vec<(String, Vec<Point>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for point in grids.iter().flat_map(|grid| (0..grid.len().unwrap_or(0)).map(|i| grid.point(i))) {
        let group: Point = point.iter().filter(|t| groups.contains(&t.name)).cloned().collect();
        let group = if group.is_empty() { "all".to_owned() } else { shown(&group) };
        let place = *places.entry(group.clone()).or_insert(found.len());
        if place == found.len() {
            found.push((group, Vec::new()));
        }
        found[place].1.push(point);
    }
    found
}

/// Epochs of the longest trial.
fn longest(study: &Study) -> u64 {
    let trials = (0..study.entries.len()).flat_map(|entry| study.forecast(entry));
    trials.map(|(_, trial)| trial.epochs()).max().unwrap_or(0)
}

/// Refuses settings in the grid that change no trial.
fn check_sense(study: &Study, grids: &[Grid]) -> Result<(), SettingError> {
    let trials: Vec<_> =
        (0..study.entries.len()).flat_map(|entry| study.forecast(entry)).map(|(_, trial)| trial).collect();
    for first in grids.iter().flat_map(Grid::firsts) {
        let refuse = |why: String| Err(SettingError::at(&first.place, format!("{} {why}", first.name)));
        if neutral(&first.name) {
            return refuse("changes no result, so there is nothing to sweep".into());
        }
        if !trials.iter().any(|trial| trial.settings.applies(&first.name)) {
            let method = &trials[0].settings.text("method");
            return refuse(format!(
                "means nothing for any of these trials (method = {method}); leave it out, or set what it needs"
            ));
        }
    }
    Ok(())
}

/// `[grid]` or several `[[grid]]`.
fn grids(file: Section<'_>, source: Source<'_>) -> Result<Vec<Grid>, SettingError> {
    let tables = match file.value("grid") {
        Some((at, DeValue::Table(table))) => vec![(at, table)],
        Some((_, DeValue::Array(_))) => file.tables("grid")?,
        Some((at, _)) => return source.refuse(at, "grid must be a table: setting = [values]"),
        None => Vec::new(),
    };
    let mut grids = Vec::new();
    for (at, table) in tables {
        let grid = Grid::read(source, table)?;
        if grid.names().next().is_none() {
            return source.refuse(at, "the grid is empty; give at least one setting a list of values");
        }
        grids.push(grid);
    }
    if grids.is_empty() {
        return file.refuse("there is no [grid]; give at least one setting a list of values");
    }
    Ok(grids)
}

fn prune(source: Source<'_>, table: &toml::de::DeTable<'_>, at: usize) -> Result<Halving, SettingError> {
    let section = Section::new(source, "prune", table, at, &["first", "factor"])?;
    let first = section.count("first", 1, 1_000_000)?.unwrap_or(1);
    let factor = section.count("factor", 2, 1_000)?.unwrap_or(3);
    Ok(Halving { first, factor })
}
