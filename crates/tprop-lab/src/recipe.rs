//! An experiment's file: what the paper asks, as rows and columns of settings, with the paper's figures.
//!
//! ```toml
//! title = "…"                      # heading
//! asks = "…"                       # the question, in a sentence or two
//! set = { … }                      # settings of all entries
//! [scale.quick]                    # and [scale.full]: their settings win over those of tables, rows and columns
//! seeds = [1]                      # of the trials that count
//! trials = 3                       # short trials per entry, the same number for every method
//! short = { train.epochs = 1 }     # what makes them short
//! sizes = true                     # the paper's sizes can be compared with ours; without it only their order is
//! set = { … }
//! [search.btprop]                  # which points the short trials try
//! draw = 1                         # drawn by this seed; without it all points, with as many seeds as trials allow
//! grid = { btprop.lambda = [1, 0.1], … }
//! [[table]]
//! name = "mini"                    # entries are called mini/ROW/COLUMN
//! title = "…"
//! metric = "valid_ppl"             # also per column
//! minus = "ROW"                    # figures are differences from this row
//! tolerance = 0.05                 # figures that differ by less agree in size
//! at = "full"                      # only at this scale; also for rows and columns
//! quick = { set = …, short = … }   # wins over [scale.quick]; the same with full
//! full = { part = true }           # less text than the paper had: sizes are not compared; follows by itself from data.max_tokens
//! rows = { optim.lr = [1, 2], … }  # further rows, one for each point of a grid
//! [[table.column]]
//! name = "b5"
//! label = "B = 5"
//! set = { … }
//! [[table.row]]
//! name = "bptt"
//! search = "btprop"                # its short trials; without it the row trains as it is
//! metric = "train_ppl"             # wins over the column's
//! paper = [188.31]                 # one figure per column; nan where there is none
//! eval = ["--adapt-states", "1"]   # the figure is what `tprop eval` prints with these arguments; also per column
//! ```

use std::collections::HashMap;
use std::path::Path;

use super::grid::{Grid, MOST_TRIALS, shown};
use super::metric::Metric;
use super::study::{Entry, Layout, Protocol, Search, Sizes, Study};
use super::toml::{Section, Source};
use super::trial::merge;
use tprop_run::settings::{SettingError, Typed};

/// How much of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Minutes: the built-in language, small models
    Quick,
    /// The paper's data and sizes
    Full,
}

tprop::words! { Scale { "quick" => Quick, "full" => Full } }

/// The experiments that come with the program.
pub const BUILT_IN: [(&str, &str); 15] = [
    ("table1", include_str!("../../../experiments/table1.toml")),
    ("table2", include_str!("../../../experiments/table2.toml")),
    ("table4", include_str!("../../../experiments/table4.toml")),
    ("figure", include_str!("../../../experiments/figure.toml")),
    ("grid", include_str!("../../../experiments/grid.toml")),
    ("solvers", include_str!("../../../experiments/solvers.toml")),
    ("convergence", include_str!("../../../experiments/convergence.toml")),
    ("leastsquares", include_str!("../../../experiments/leastsquares.toml")),
    ("adapt", include_str!("../../../experiments/adapt.toml")),
    ("reach", include_str!("../../../experiments/reach.toml")),
    ("parallel", include_str!("../../../experiments/parallel.toml")),
    ("ladder", include_str!("../../../experiments/ladder.toml")),
    ("duals", include_str!("../../../experiments/duals.toml")),
    ("geometry", include_str!("../../../experiments/geometry.toml")),
    ("demo", include_str!("../../../experiments/demo.toml")),
];

/// What a scale says.
struct Amount {
    set: Vec<Typed>,
    short: Vec<Typed>,
    seeds: Vec<u64>,
    trials: u64,
    sizes: bool,
}

/// The points that short trials try.
struct Points {
    grid: Grid,
    draw: Option<u64>,
}

/// Reads an experiment at a scale; `last` are settings of the command line.
pub fn read(text: &str, path: &Path, scale: Scale, last: Vec<Typed>) -> Result<Study, SettingError> {
    let source = Source { text, path };
    let whole = source.parse()?;
    let file = Section::new(source, "the file", &whole, 0, &["title", "asks", "set", "scale", "search", "table"])?;
    let base = file.settings("set")?;
    let mut amount = amount(file, scale)?;
    amount.short = shortened(amount.short, &last);
    let searches = searches(file)?;
    let mut study = Study::new(path, last);
    study.title = file.needed("title")?;
    study.asks = file.text("asks")?.unwrap_or_default();
    let keys = ["name", "title", "metric", "minus", "tolerance", "at", "set", "quick", "full", "column", "row", "rows"];
    for section in file.inners("table", "[[table]]", &keys)? {
        if here(section, scale)? {
            read_table(section, scale, &base, &amount, &searches, &mut study)?;
        }
    }
    for entry in &study.entries {
        let Protocol::Search(search) = &entry.protocol else { continue };
        let searched = |one: &&Typed| search.points.iter().flatten().any(|p| p.name == one.name);
        if let Some(one) = study.last.iter().find(searched) {
            let what = format!(
                "{} is what the short trials of {} choose; leave it out, or write your own copy of the recipe",
                one.name, entry.name
            );
            return Err(SettingError::at(&one.place, what));
        }
    }
    if study.entries.is_empty() {
        return file.refuse(format!("there is nothing to run at scale {scale}"));
    }
    if study.count() as u64 > MOST_TRIALS {
        return file.refuse(format!("{} trials; at most {MOST_TRIALS} are run: thin it out", study.count()));
    }
    study.check()?;
    for (i, entry) in study.entries.iter().enumerate() {
        let epochs = study.forecast(i).iter().map(|(_, trial)| trial.epochs()).max().unwrap_or(0);
        if let Some(epoch) = entry.metric.epoch.filter(|epoch| *epoch > epochs) {
            return file.refuse(format!(
                "{}: there is no epoch {epoch} for metric {}, because trials have {epochs}",
                entry.name,
                entry.metric.name()
            ));
        }
    }
    Ok(study)
}

fn amount(file: Section<'_>, scale: Scale) -> Result<Amount, SettingError> {
    let Some(scales) = file.inner("scale", "[scale]", &["quick", "full"])? else {
        return file.refuse("there is no [scale.quick] and no [scale.full]; at least one is needed");
    };
    let Some(section) = scales.inner(scale.name(), "[scale]", &["set", "short", "seeds", "trials", "sizes"])? else {
        return scales.refuse(format!("there is no [scale.{scale}]"));
    };
    Ok(Amount {
        set: section.settings("set")?,
        short: section.settings("short")?,
        seeds: section.seeds()?,
        trials: section.count("trials", 1, 1_000)?.unwrap_or(9),
        sizes: section.flag("sizes")?,
    })
}

fn searches<'a>(file: Section<'a>) -> Result<HashMap<&'a str, Points>, SettingError> {
    let mut searches = HashMap::new();
    for (key, value) in file.table("search")?.into_iter().flatten() {
        let at = key.span().start;
        let Some(table) = value.get_ref().as_table() else {
            return file.source.refuse(at, "a search must be a table with grid and perhaps draw");
        };
        let section = Section::new(file.source, "a search", table, at, &["grid", "draw"])?;
        let Some(grid) = section.table("grid")? else {
            return section.refuse("a search needs a grid: setting = [values]");
        };
        let grid = Grid::read(file.source, grid)?;
        if grid.len().is_none_or(|n| n > MOST_TRIALS) {
            return section.refuse(format!("a search's grid may have at most {MOST_TRIALS} points"));
        }
        let draw = section.count("draw", 0, i64::MAX as u64)?;
        searches.insert(key.get_ref().as_ref(), Points { grid, draw });
    }
    Ok(searches)
}

/// Short trials stay short: of the lengths that the file and the command line give, the smaller one counts. In everything else the
/// command line wins.
fn shortened(mut short: Vec<Typed>, last: &[Typed]) -> Vec<Typed> {
    let length = |one: &Typed| match (one.name.as_str(), one.text.replace('_', "").parse::<u64>()) {
        ("data.max_tokens", Ok(0)) => Some(u64::MAX),
        ("data.max_tokens" | "train.epochs", Ok(n)) => Some(n),
        _ => None,
    };
    short.retain(|one| match last.iter().find(|other| other.name == one.name) {
        None => true,
        Some(other) => length(one).zip(length(other)).is_some_and(|(file, line)| file < line),
    });
    short
}

/// Whether a table, row or column belongs to this scale.
fn here(section: Section<'_>, scale: Scale) -> Result<bool, SettingError> {
    match section.text("at")?.map(|at| at.parse::<Scale>()) {
        Some(Err(_)) => section.refuse("at must be \"quick\" or \"full\""),
        at => Ok(at.is_none_or(|at| at == Ok(scale))),
    }
}

/// A part of an entry's name: it is typed behind `--only`.
fn name_of(section: Section<'_>) -> Result<String, SettingError> {
    let name = section.needed("name")?;
    if name.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c)) {
        return Ok(name);
    }
    let shown = tprop::vocab::printable(&name);
    section.refuse(format!("name {shown} may only have letters, digits and - . _ :"))
}

/// A row or a column, as read.
struct Line<'a> {
    section: Section<'a>,
    /// Its place among all of its kind in the file, for the paper's figures.
    number: usize,
    name: String,
    label: String,
    set: Vec<Typed>,
    metric: Option<Metric>,
    eval: Vec<String>,
}

impl<'a> Line<'a> {
    /// One that only sets something.
    fn new(section: Section<'a>, number: usize, name: String, label: String, set: Vec<Typed>) -> Self {
        Self { section, number, name, label, set, metric: None, eval: Vec::new() }
    }
}

fn metric_of(section: Section<'_>) -> Result<Option<Metric>, SettingError> {
    let Some(text) = section.text("metric")? else { return Ok(None) };
    Metric::named(&text).map(Some).or_else(|why| section.refuse(why))
}

/// The rows or columns of a table that belong to this scale.
fn lines<'a>(section: Section<'a>, key: &str, scale: Scale) -> Result<Vec<Line<'a>>, SettingError> {
    let (what, keys): (_, &[&str]) = match key {
        "row" => ("a row", &["name", "label", "set", "search", "paper", "at", "eval", "metric"]),
        _ => ("a column", &["name", "label", "set", "metric", "at", "eval"]),
    };
    let mut lines: Vec<Line<'a>> = Vec::new();
    for (number, section) in section.inners(key, what, keys)?.into_iter().enumerate() {
        if !here(section, scale)? {
            continue;
        }
        let name = name_of(section)?;
        if lines.iter().any(|line| line.name == name) {
            return section.refuse(format!("two {key}s are called {name}"));
        }
        let label = section.text("label")?.unwrap_or_else(|| name.clone());
        let (set, metric, eval) = (section.settings("set")?, metric_of(section)?, section.texts("eval")?);
        lines.push(Line { section, number, name, label, set, metric, eval });
    }
    Ok(lines)
}

/// The columns of a table; one without a name if the file has none.
fn columns<'a>(section: Section<'a>, scale: Scale, usual: Metric) -> Result<Vec<Line<'a>>, SettingError> {
    match section.tables("column")?.is_empty() {
        true => Ok(vec![Line::new(section, 0, String::new(), usual.title(), Vec::new())]),
        false => lines(section, "column", scale),
    }
}

/// The rows of a table: those that are written, and one for each point of a grid.
fn rows<'a>(section: Section<'a>, scale: Scale) -> Result<Vec<Line<'a>>, SettingError> {
    let mut rows = lines(section, "row", scale)?;
    let Some(table) = section.table("rows")? else { return Ok(rows) };
    let grid = Grid::read(section.source, table)?;
    if grid.len().is_none_or(|n| n > MOST_TRIALS) {
        return section.refuse(format!("rows has more than {MOST_TRIALS} points; thin it out"));
    }
    for set in grid.points() {
        let values: Vec<&str> = set.iter().map(|t| t.text.as_str()).collect();
        let (name, label) = (values.join("-"), shown(&set));
        if rows.iter().any(|row| row.name == name) {
            return section.refuse(format!("two rows are called {name}"));
        }
        rows.push(Line::new(section, rows.len(), name, label, set));
    }
    Ok(rows)
}

/// The paper's figures of a row: one for each column of the file, or none.
fn paper(row: Section<'_>, width: usize) -> Result<Vec<f64>, SettingError> {
    let paper = row.reals("paper")?;
    if paper.iter().any(|x| *x == 0.0 || x.is_infinite()) {
        return row.refuse("a figure of the paper must be a finite number other than 0, or nan where there is none");
    }
    if !paper.is_empty() && paper.len() != width {
        return row.refuse(format!("paper has {} figures, but there are {width} columns", paper.len()));
    }
    Ok(paper)
}

fn read_table(
    section: Section<'_>,
    scale: Scale,
    base: &[Typed],
    amount: &Amount,
    searches: &HashMap<&str, Points>,
    study: &mut Study,
) -> Result<(), SettingError> {
    let name = name_of(section)?;
    if study.layouts.iter().any(|t| t.name == name) {
        return section.refuse(format!("two tables are called {name}"));
    }
    let set = section.settings("set")?;
    let (mut scaled, mut short, mut part) = (amount.set.clone(), amount.short.clone(), false);
    if let Some(own) = section.inner(scale.name(), "a table's scale", &["set", "short", "part"])? {
        part = own.flag("part")?;
        scaled = merge(&[&scaled, &own.settings("set")?]);
        short = shortened(merge(&[&short, &own.settings("short")?]), &study.last);
    }
    let usual = metric_of(section)?.unwrap_or_default();
    let (columns, rows) = (columns(section, scale, usual)?, rows(section, scale)?);
    let width = section.tables("column")?.len().max(1);
    if rows.is_empty() || columns.is_empty() {
        return section.refuse(format!("table {name} has no rows or no columns at scale {scale}"));
    }
    let minus = section.text("minus")?;
    let reference = minus.as_ref().and_then(|minus| rows.iter().position(|r| r.name == *minus));
    if let Some(minus) = minus.filter(|_| reference.is_none()) {
        return section.refuse(format!("there is no row {} for minus", tprop::vocab::printable(&minus)));
    }
    let tolerance = section.real("tolerance")?.unwrap_or(0.05);
    if !(tolerance.is_finite() && tolerance > 0.0) {
        return section.refuse("tolerance must be above 0: the part by which figures that agree may differ");
    }
    let mut layout = Layout {
        title: section.text("title")?.unwrap_or_else(|| name.clone()),
        columns: columns.iter().map(|c| c.label.clone()).collect(),
        rows: rows.iter().map(|r| r.label.clone()).collect(),
        entries: Vec::new(),
        sizes: if amount.sizes { Sizes::Comparable } else { Sizes::OtherScale },
        paper: Vec::new(),
        minus: reference,
        tolerance,
        name: name.clone(),
    };
    // The search of the row above and its entries.
    let mut above: Option<(String, Vec<usize>)> = None;
    for row in &rows {
        // A grid's rows have the table's own section, which has neither.
        let (paper, kind) = (paper(row.section, width)?, row.section.text("search")?);
        if let Some(kind) = kind.as_deref().filter(|kind| !searches.contains_key(kind)) {
            return row.section.refuse(format!("there is no [search.{}]", tprop::vocab::printable(kind)));
        }
        let mut entries: Vec<usize> = Vec::new();
        for (j, column) in columns.iter().enumerate() {
            let parts = [name.as_str(), &row.name, &column.name];
            let full = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
            let protocol = match &kind {
                None => Protocol::Contest { points: vec![Vec::new()], halving: None },
                Some(kind) => {
                    // The neighbour: to the left in the same row, or above in the first column, with the same search.
                    let above = above.as_ref().filter(|(search, _)| search == kind).map(|(_, entries)| entries[j]);
                    let neighbour = entries.last().copied().or(above);
                    let points = &searches[kind.as_str()];
                    Protocol::Search(search(row.section, points, amount.trials, &short, &full, neighbour)?)
                }
            };
            let set = merge(&[base, &set, &column.set, &row.set, &scaled]);
            part |= merge(&[&set, &study.last]).iter().any(|one| one.name == "data.max_tokens" && one.text != "0");
            entries.push(study.entries.len());
            study.entries.push(Entry {
                name: full,
                set,
                protocol,
                seeds: amount.seeds.clone(),
                metric: row.metric.or(column.metric).unwrap_or(usual),
                eval: row.eval.iter().chain(&column.eval).cloned().collect(),
            });
        }
        above = kind.map(|search| (search, entries.clone()));
        let figure = |c: &Line<'_>| paper.get(c.number).copied().filter(|x| x.is_finite());
        layout.paper.push(columns.iter().map(figure).collect());
        layout.entries.push(entries);
    }
    if part && amount.sizes {
        layout.sizes = Sizes::PartOfText;
    }
    study.layouts.push(layout);
    Ok(())
}

/// The same number of short trials for every method: all points of a small grid with several seeds, or drawn ones with one.
fn search(
    row: Section<'_>,
    points: &Points,
    trials: u64,
    short: &[Typed],
    entry: &str,
    neighbour: Option<usize>,
) -> Result<Search, SettingError> {
    let short = short.to_vec();
    let all = points.grid.len().unwrap_or(u64::MAX);
    match points.draw {
        Some(_) if all < trials => row.refuse(format!("its search has {all} points, but trials = {trials}")),
        Some(seed) => {
            let points = points.grid.shuffled(seed, entry).into_iter().take(trials as usize).collect();
            Ok(Search { short, points, seeds: vec![1], neighbour })
        }
        None if !trials.is_multiple_of(all) => {
            row.refuse(format!("its search has {all} points, and trials = {trials} is not a multiple of that"))
        }
        None => {
            let (seeds, points) = ((1..=trials / all).collect(), points.grid.points().collect());
            Ok(Search { short, points, seeds, neighbour: None })
        }
    }
}
