//! Our figures beside the paper's: differences, and whether they agree in size and in order.

use serde::Serialize;

use super::NOT_ASKED;
use super::results::Figure;
use super::study::{Plan, Sizes, Study, Table};
use crate::console::short;
use crate::settings::table::BUILT_IN;
use crate::sheet::Sheet;
use crate::spread::Spread;

/// A figure of the paper beside ours.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The cell.
    pub cell: String,
    /// Ours; a difference where the table is one of differences.
    pub ours: Option<f64>,
    /// The paper's.
    pub paper: f64,
    /// Ours less the paper's, over the paper's; none for tables of differences.
    pub relative: Option<f64>,
    /// Whether they agree in size; none if sizes cannot be compared here.
    pub agrees: Option<bool>,
}

/// How two orders compare.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Order {
    /// Pairs in one row or one column for which both have figures that differ.
    pub pairs: usize,
    /// Those of them that stand the same way round.
    pub agree: usize,
    /// The others, as `a < b` in the paper.
    pub against: Vec<String>,
}

/// The comparison of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Which table.
    pub table: String,
    /// Cell by cell.
    pub cells: Vec<Beside>,
    /// Of pairs.
    pub order: Order,
}

/// Our figure as the table shows it: less the row of reference, if there is one.
fn ours(table: &Table, figures: &[Figure], i: usize, j: usize) -> Option<Spread> {
    let of = |i: usize| &figures[table.cells[i][j]].by_seed;
    match table.minus {
        // Seed by seed: what the rows share does not widen the spread.
        Some(row) if row != i => {
            let differences: Vec<f64> = of(i).iter().zip(of(row)).map(|(a, b)| a - b).collect();
            Spread::of(&differences)
        }
        _ => figures[table.cells[i][j]].value,
    }
}

/// Compares a table; none if the paper has no figures for it.
pub fn compare(table: &Table, figures: &[Figure]) -> Option<Comparison> {
    let mut cells = Vec::new();
    for (i, row) in table.paper.iter().enumerate() {
        for (j, paper) in row.iter().enumerate() {
            let Some(paper) = *paper else { continue };
            let ours = ours(table, figures, i, j).map(|s| s.mean);
            let difference = table.minus.is_some_and(|m| m != i);
            let scale = match table.minus {
                Some(m) if difference => figures[table.cells[m][j]].value.map_or(f64::NAN, |s| s.mean),
                _ => paper,
            };
            let agrees = ours
                .filter(|_| table.sizes == Sizes::Comparable)
                .map(|x| ((x - paper) / scale).abs() <= table.tolerance);
            let relative = ours.filter(|_| !difference).map(|x| x / paper - 1.0);
            cells.push(Beside { cell: figures[table.cells[i][j]].cell.clone(), ours, paper, relative, agrees });
        }
    }
    (!cells.is_empty()).then(|| Comparison { table: table.name.clone(), order: order(table, figures), cells })
}

/// All pairs of one column and of one row; the row of reference counts as difference 0.
fn order(table: &Table, figures: &[Figure]) -> Order {
    let value = |i: usize, j: usize| {
        if table.minus == Some(i) {
            return figures[table.cells[i][j]].value.map(|_| (0.0, 0.0));
        }
        Some((ours(table, figures, i, j)?.mean, table.paper[i][j]?))
    };
    let places: Vec<(usize, usize)> =
        (0..table.rows.len()).flat_map(|i| (0..table.columns.len()).map(move |j| (i, j))).collect();
    let mut order = Order::default();
    for (n, &(i, j)) in places.iter().enumerate() {
        for &(k, l) in places[n + 1..].iter().filter(|(k, l)| (*k == i) != (*l == j)) {
            // Differences of several columns have nothing in common.
            if table.minus.is_some() && l != j {
                continue;
            }
            let (Some(a), Some(b)) = (value(i, j), value(k, l)) else { continue };
            if a.1 == b.1 {
                continue;
            }
            order.pairs += 1;
            if (a.0 < b.0) == (a.1 < b.1) && a.0 != b.0 {
                order.agree += 1;
            } else {
                // What the two share is said once.
                let (shared, name) = if i == k {
                    (&table.rows[i], [&table.columns[j], &table.columns[l]])
                } else {
                    (&table.columns[j], [&table.rows[i], &table.rows[k]])
                };
                let [low, high] = if a.1 < b.1 { name } else { [name[1], name[0]] };
                let shared = if table.columns.len() == 1 { String::new() } else { format!("{shared}: ") };
                order.against.push(format!("{shared}{low} < {high}"));
            }
        }
    }
    order
}

/// A table as people read it; the paper's figures stand below ours.
pub fn sheet(study: &Study, table: &Table, figures: &[Figure], comparison: Option<&Comparison>) -> Sheet {
    let metric = &study.cells[table.cells[0][0]].metric;
    let same = table.cells.iter().flatten().all(|c| study.cells[*c].metric == *metric);
    let corner = if same && !table.columns.contains(&metric.title()) { metric.title() } else { String::new() };
    let mut sheet = Sheet::new(title(study, table), std::iter::once(corner).chain(table.columns.clone()));
    let unwanted = |i: usize| table.cells[i].iter().all(|c| unasked(&figures[*c]));
    for (i, label) in table.rows.iter().enumerate().filter(|(i, _)| !unwanted(*i)) {
        let cell = |j: usize| match ours(table, figures, i, j) {
            Some(spread) if table.minus.is_none_or(|m| m == i) => spread.shown(),
            Some(spread) => signed(spread),
            None => "–".to_owned(),
        };
        let columns = 0..table.columns.len();
        sheet.rows.push(std::iter::once(label.clone()).chain(columns.clone().map(cell)).collect());
        if table.paper[i].iter().all(Option::is_none) {
            continue;
        }
        let difference = table.minus.is_some_and(|m| m != i);
        let paper = |j: usize| match table.paper[i][j] {
            Some(x) if difference => format!("{x:+.2}"),
            Some(x) => short(x),
            None => String::new(),
        };
        sheet.rows.push(std::iter::once("· paper".to_owned()).chain(columns.clone().map(paper)).collect());
        let found = |j: usize| {
            let beside = comparison?.cells.iter().find(|b| b.cell == figures[table.cells[i][j]].cell)?;
            let mark = if beside.agrees == Some(true) { " ✓" } else { "" };
            let apart = match beside.relative {
                Some(part) => format!("{:+.1} %", 100.0 * part),
                None => format!("{:+.2}", beside.ours? - beside.paper),
            };
            Some(format!("{apart}{mark}"))
        };
        if table.sizes == Sizes::Comparable {
            let cells = columns.clone().map(|j| found(j).unwrap_or_default());
            sheet.rows.push(std::iter::once("· difference".to_owned()).chain(cells).collect());
        }
        // Training because the paper's first finding is about both, test because validation has chosen.
        type Of = fn(&Figure) -> Option<Spread>;
        let others: [(&str, Of); 2] = [("training", |f| f.train_ppl), ("test", |f| f.test_ppl)];
        for (split, of) in others.into_iter().filter(|_| same) {
            let cell = |j: usize| of(&figures[table.cells[i][j]]).map_or(String::new(), |s| s.shown());
            let cells: Vec<String> = columns.clone().map(cell).collect();
            if cells.iter().any(|c| !c.is_empty()) {
                let label = if difference { format!("· {split} perplexity") } else { format!("· {split}") };
                sheet.rows.push(std::iter::once(label).chain(cells).collect());
            }
        }
    }
    if let Some(comparison) = comparison {
        sheet.notes.extend(sentences(table, comparison));
    }
    // Cells with one reason stand together.
    let mut missing: Vec<(&String, Vec<&str>)> = Vec::new();
    for figure in table.cells.iter().flatten().map(|c| &figures[*c]) {
        let Some(why) = &figure.missing else { continue };
        match missing.iter_mut().find(|(known, _)| *known == why) {
            Some((_, cells)) => cells.push(&figure.cell),
            None => missing.push((why, vec![&figure.cell])),
        }
    }
    for (why, cells) in missing {
        sheet.notes.push(match why.as_str() {
            // Long lists hide what was asked for.
            NOT_ASKED if cells.len() > 3 => format!("Without a figure: {} cells ({why}).", cells.len()),
            _ => format!("Without a figure: {} ({why}).", cells.join(", ")),
        });
    }
    for (i, j) in (0..table.rows.len()).flat_map(|i| (0..table.columns.len()).map(move |j| (i, j))) {
        let figure = &figures[table.cells[i][j]];
        if let (Some(spread), None, Some(row)) = (figure.value, ours(table, figures, i, j), table.minus) {
            let (cell, shown, row) = (&figure.cell, spread.shown(), &table.rows[row]);
            sheet.notes.push(format!("{cell} has {shown}, but “{row}”, from which it would differ, has no figure."));
        }
    }
    sheet
}

/// What the short trials chose for each cell of a table; none if it has no searches.
pub fn chosen(study: &Study, table: &Table, figures: &[Figure]) -> Option<Sheet> {
    let chosen: Vec<(&str, Vec<(&str, &str)>)> = (table.cells.iter().flatten())
        .filter(|cell| matches!(study.cells[**cell].plan, Plan::Search(_)))
        .filter_map(|cell| {
            let pairs = figures[*cell].chosen.as_ref()?.split(' ').filter_map(|pair| pair.split_once('='));
            Some((figures[*cell].cell.as_str(), pairs.collect()))
        })
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in chosen.iter().flat_map(|(_, pairs)| pairs) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let header = std::iter::once("cell").chain(names.iter().copied());
    let mut sheet = Sheet::new(format!("{}: what the short trials chose", title(study, table)), header);
    for (cell, pairs) in &chosen {
        let value = |name: &&str| pairs.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value).to_owned();
        sheet.rows.push(std::iter::once((*cell).to_owned()).chain(names.iter().map(value)).collect());
    }
    (!chosen.is_empty()).then_some(sheet)
}

/// The heading, with the text that was really read where it is not the one that the table is about.
fn title(study: &Study, table: &Table) -> String {
    let trials = table.cells.iter().flatten().map(|cell| study.forecast(*cell)[0].1.settings.text("data.source"));
    let elsewhere = table.sizes != Sizes::Comparable && table.paper.iter().flatten().any(Option::is_some);
    match elsewhere && trials.into_iter().all(|source| source == BUILT_IN) {
        true => format!("{} (here: the built-in language)", table.title),
        false => table.title.clone(),
    }
}

/// Whether nobody asked for this figure, and nothing is known about it.
pub fn unasked(figure: &Figure) -> bool {
    figure.value.is_none() && figure.missing.as_deref() == Some(NOT_ASKED)
}

/// A difference, with its sign.
fn signed(spread: Spread) -> String {
    let deviation = spread.deviation.map_or(String::new(), |d| format!(" ± {d:.2}"));
    format!("{:+.2}{deviation}", spread.mean)
}

fn sentences(table: &Table, comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    let (order, run) = (&comparison.order, comparison.cells.iter().filter(|b| b.ours.is_some()).count());
    if run > 0 {
        notes.push(match table.sizes {
            Sizes::Comparable => {
                let agree = comparison.cells.iter().filter(|b| b.agrees == Some(true)).count();
                let part = 100.0 * table.tolerance;
                format!("Size: {agree} of {run} figures are within {part} % of the paper's (✓).")
            }
            Sizes::OtherScale => {
                "Size: not comparable at this scale (another text, smaller models); only the order is.".into()
            }
            Sizes::PartOfText => "Size: not comparable (a part of the text was read); only the order is.".into(),
        });
    }
    if order.pairs > 0 {
        let mut text =
            format!("Order: {} of {} pairs in one row or column stand as in the paper", order.agree, order.pairs);
        if !order.against.is_empty() {
            let more = order.against.len().saturating_sub(6);
            let listed = order.against[..order.against.len().min(6)].join("; ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            text += &format!("; in the paper, but not here: {listed}{more}");
        }
        notes.push(text + ".");
    }
    notes
}
