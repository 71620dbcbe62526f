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
use std::rc::Rc;

use toml::de::DeValue;

use super::grid::{Grid, MOST_TRIALS, Point, shown};
use super::metric::Metric;
use super::study::{Entry, Halving, Protocol, Study};
use super::toml::{Section, Source};
use super::trial::Trial;
use tprop_run::settings::table::neutral;
use tprop_run::settings::{SettingError, Typed};

/// Reads a sweep; `last` are settings of the command line.
pub fn read(text: &str, path: &Path, last: Vec<Typed>) -> Result<Study, SettingError> {
    let source = Source { text, path };
    let whole = source.parse()?;
    let file = Section::new(source, "the file", &whole, 0, &["set", "grid", "sweep"])?;
    let set = file.settings("set")?;
    let keys = ["title", "asks", "seeds", "groups", "prune"];
    let empty = Default::default();
    let sweep = file.inner("sweep", "[sweep]", &keys)?.unwrap_or(Section::new(source, "[sweep]", &empty, 0, &keys)?);
    let grids = grids(file)?;
    let seeds = sweep.seeds()?;
    let halving = sweep.inner("prune", "prune", &["first", "factor"])?.map(prune).transpose()?;
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
        if !grids.iter().flat_map(Grid::firsts).any(|first| first.name == *group) {
            let shown = tprop::vocab::printable(group);
            return sweep.refuse_at("groups", format!("groups has {shown}, which is not in the grid"));
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

    let mut study = Study::new(path, last);
    study.title = sweep.text("title")?.unwrap_or_else(|| study.name.clone());
    study.asks = sweep.text("asks")?.unwrap_or_default();
    study.sweep = true;
    for (name, points) in grouped(&grids, &groups) {
        let (set, seeds, protocol) = (set.clone(), seeds.clone(), Protocol::Contest { points, halving });
        study.entries.push(Entry { name, set, protocol, seeds, metric: Metric::default(), eval: Vec::new() });
    }
    study.check()?;
    study.drop_repeated()?;
    let trials = (0..study.entries.len()).flat_map(|entry| study.forecast(entry));
    let trials: Vec<_> = trials.map(|(_, trial)| trial).collect();
    check_sense(&trials, &grids)?;
    let longest = trials.iter().map(|trial| trial.epochs()).max().unwrap_or(0);
    if let Some(h) = halving.filter(|h| h.first >= longest) {
        let what = format!("prune first cuts after {} epochs, but trials have {longest}", h.first);
        return sweep.refuse_at("prune", what);
    }
    Ok(study)
}

/// Points by what they have in common, in their order; all of them together if nothing is asked for.
fn grouped(grids: &[Grid], groups: &[String]) -> Vec<(String, Vec<Point>)> {
    let mut found: Vec<(String, Vec<Point>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for point in grids.iter().flat_map(Grid::points) {
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

/// Refuses settings in the grid that change no trial.
fn check_sense(trials: &[Rc<Trial>], grids: &[Grid]) -> Result<(), SettingError> {
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
fn grids(file: Section<'_>) -> Result<Vec<Grid>, SettingError> {
    let tables = match file.value("grid") {
        Some((at, DeValue::Table(table))) => vec![(at, table)],
        None | Some((_, DeValue::Array(_))) => file.tables("grid")?,
        Some(_) => return file.refuse_at("grid", "grid must be a table: setting = [values]"),
    };
    if tables.is_empty() {
        return file.refuse("there is no [grid]; give at least one setting a list of values");
    }
    let grid = |(at, table)| match Grid::read(file.source, table)? {
        grid if grid.firsts().next().is_none() => {
            file.source.refuse(at, "the grid is empty; give at least one setting a list of values")
        }
        grid => Ok(grid),
    };
    tables.into_iter().map(grid).collect()
}

fn prune(section: Section<'_>) -> Result<Halving, SettingError> {
    let first = section.count("first", 1, 1_000_000)?.unwrap_or(1);
    let factor = section.count("factor", 2, 1_000)?.unwrap_or(3);
    Ok(Halving { first, factor })
}
