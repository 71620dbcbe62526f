//! Our figures beside the paper's: differences, and whether they agree in size and in order.

use serde::Serialize;
use tprop_report::numbers::{Spread, short};
use tprop_report::table::{BESIDE, Table};

use super::results::{Figure, NOT_ASKED};
use super::study::{Layout, Protocol, Sizes, Study};
use tprop_run::settings::table::BUILT_IN;

/// A figure of the paper beside ours.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// Which entry.
    #[serde(rename = "cell")]
    pub entry: String,
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
    /// Entry by entry.
    #[serde(rename = "cells")]
    pub entries: Vec<Beside>,
    /// Of pairs.
    pub order: Order,
}

/// Our figure as the table shows it: less the row of reference, if there is one.
fn ours(layout: &Layout, figures: &[Figure], i: usize, j: usize) -> Option<Spread> {
    let of = |i: usize| &figures[layout.entries[i][j]];
    match layout.minus {
        // Seed by seed: what the rows share does not widen the spread.
        Some(row) if row != i => {
            let pairs = of(i).by_seed.iter().zip(&of(row).by_seed);
            Spread::of(&pairs.map(|(a, b)| a - b).collect::<Vec<f64>>())
        }
        _ => of(i).value,
    }
}

/// Compares a table; none if the paper has no figures for it.
pub fn compare(layout: &Layout, figures: &[Figure]) -> Option<Comparison> {
    let mut entries = Vec::new();
    for (i, j) in places(layout) {
        let Some(paper) = layout.paper[i][j] else { continue };
        let ours = ours(layout, figures, i, j).map(|s| s.mean);
        let reference = layout.minus.filter(|m| *m != i);
        // Differences are measured by the figure that they are differences from.
        let scale = match reference {
            Some(m) => figures[layout.entries[m][j]].value.map_or(f64::NAN, |s| s.mean),
            None => paper,
        };
        let comparable = ours.filter(|_| layout.sizes == Sizes::Comparable);
        let agrees = comparable.map(|x| ((x - paper) / scale).abs() <= layout.tolerance);
        let relative = ours.filter(|_| reference.is_none()).map(|x| x / paper - 1.0);
        entries.push(Beside { entry: figures[layout.entries[i][j]].entry.clone(), ours, paper, relative, agrees });
    }
    (!entries.is_empty()).then(|| Comparison { table: layout.name.clone(), order: order(layout, figures), entries })
}

/// Rows and columns of all entries, row by row.
fn places(layout: &Layout) -> Vec<(usize, usize)> {
    (0..layout.rows.len()).flat_map(|i| (0..layout.columns.len()).map(move |j| (i, j))).collect()
}

/// All pairs of one column and of one row; the row of reference counts as difference 0.
fn order(layout: &Layout, figures: &[Figure]) -> Order {
    let value = |(i, j): (usize, usize)| {
        if layout.minus == Some(i) {
            return figures[layout.entries[i][j]].value.map(|_| (0.0, 0.0));
        }
        Some((ours(layout, figures, i, j)?.mean, layout.paper[i][j]?))
    };
    let places = places(layout);
    let mut order = Order::default();
    for (n, &(i, j)) in places.iter().enumerate() {
        for &(k, l) in places[n + 1..].iter().filter(|(k, l)| (*k == i) != (*l == j)) {
            // Differences of several columns have nothing in common.
            if layout.minus.is_some() && l != j {
                continue;
            }
            let (Some(a), Some(b)) = (value((i, j)), value((k, l))) else { continue };
            if a.1 == b.1 {
                continue;
            }
            order.pairs += 1;
            if (a.0 < b.0) == (a.1 < b.1) && a.0 != b.0 {
                order.agree += 1;
            } else {
                // What the two share is said once.
                let (shared, name) = if i == k {
                    (&layout.rows[i], [&layout.columns[j], &layout.columns[l]])
                } else {
                    (&layout.columns[j], [&layout.rows[i], &layout.rows[k]])
                };
                let [low, high] = if a.1 < b.1 { name } else { [name[1], name[0]] };
                let shared = if layout.columns.len() == 1 { String::new() } else { format!("{shared}: ") };
                order.against.push(format!("{shared}{low} < {high}"));
            }
        }
    }
    order
}

/// A table as people read it; the paper's figures stand below ours.
pub fn table(study: &Study, layout: &Layout, figures: &[Figure], comparison: Option<&Comparison>) -> Table {
    let metric = study.entries[layout.entries[0][0]].metric.title();
    let same = layout.entries.iter().flatten().all(|e| study.entries[*e].metric.title() == metric);
    let corner = if same && !layout.columns.contains(&metric) { metric } else { String::new() };
    let mut table = Table::new(title(study, layout), std::iter::once(corner).chain(layout.columns.clone()));
    let columns = 0..layout.columns.len();
    for (i, label) in layout.rows.iter().enumerate() {
        let row: Vec<&Figure> = layout.entries[i].iter().map(|e| &figures[*e]).collect();
        if row.iter().all(|figure| unasked(figure)) {
            continue;
        }
        let difference = layout.minus.is_some_and(|m| m != i);
        let shown = |spread: Spread| if difference { signed(spread) } else { spread.shown() };
        let figure = |j: usize| ours(layout, figures, i, j).map_or("–".to_owned(), shown);
        table.row(label, columns.clone().map(figure));
        if layout.paper[i].iter().all(Option::is_none) {
            continue;
        }
        let paper = |x: f64| if difference { format!("{x:+.2}") } else { short(x) };
        table.row(format!("{BESIDE}paper"), layout.paper[i].iter().map(|x| x.map_or(String::new(), paper)));
        if layout.sizes == Sizes::Comparable {
            let apart = row.iter().map(|figure| comparison.and_then(|c| apart(c, figure)).unwrap_or_default());
            table.row(format!("{BESIDE}difference"), apart);
        }
        // Training because the paper's first finding is about both, test because validation has chosen.
        type Of = fn(&Figure) -> Option<Spread>;
        let others: [(&str, Of); 2] = [("training", |f| f.train_ppl), ("test", |f| f.test_ppl)];
        for (split, of) in others.into_iter().filter(|(_, of)| same && row.iter().any(|f| of(f).is_some())) {
            let what = if difference { " perplexity" } else { "" };
            let figures = row.iter().map(|f| of(f).map_or(String::new(), |s| s.shown()));
            table.row(format!("{BESIDE}{split}{what}"), figures);
        }
    }
    table.notes.extend(comparison.into_iter().flat_map(|comparison| sentences(layout, comparison)));
    table.notes.extend(missing(layout, figures));
    table
}

/// How far our figure is from the paper's.
fn apart(comparison: &Comparison, figure: &Figure) -> Option<String> {
    let beside = comparison.entries.iter().find(|b| b.entry == figure.entry)?;
    let mark = if beside.agrees == Some(true) { " ✓" } else { "" };
    Some(match beside.relative {
        Some(part) => format!("{:+.1} %{mark}", 100.0 * part),
        None => format!("{:+.2}{mark}", beside.ours? - beside.paper),
    })
}

/// Which entries have no figure, those with one reason together.
fn missing(layout: &Layout, figures: &[Figure]) -> Vec<String> {
    let mut missing: Vec<(&String, Vec<&str>)> = Vec::new();
    for figure in layout.entries.iter().flatten().map(|e| &figures[*e]) {
        let Some(why) = &figure.missing else { continue };
        match missing.iter_mut().find(|(known, _)| *known == why) {
            Some((_, entries)) => entries.push(&figure.entry),
            None => missing.push((why, vec![&figure.entry])),
        }
    }
    let sentence = |(why, entries): (&String, Vec<&str>)| match why.as_str() {
        // Long lists hide what was asked for.
        NOT_ASKED if entries.len() > 3 => format!("Without a figure: {} cells ({why}).", entries.len()),
        _ => format!("Without a figure: {} ({why}).", entries.join(", ")),
    };
    let mut notes: Vec<String> = missing.into_iter().map(sentence).collect();
    for (i, j) in places(layout) {
        let figure = &figures[layout.entries[i][j]];
        if let (Some(spread), None, Some(row)) = (figure.value, ours(layout, figures, i, j), layout.minus) {
            let (entry, shown, row) = (&figure.entry, spread.shown(), &layout.rows[row]);
            notes.push(format!("{entry} has {shown}, but “{row}”, from which it would differ, has no figure."));
        }
    }
    notes
}

/// What the short trials chose for each entry of a table; none if it has no searches.
pub fn chosen(study: &Study, layout: &Layout, figures: &[Figure]) -> Option<Table> {
    let searched = |entry: &&usize| matches!(study.entries[**entry].protocol, Protocol::Search(_));
    let chosen = layout.entries.iter().flatten().filter(searched).filter_map(|entry| {
        let pairs = figures[*entry].chosen.as_ref()?.split(' ').filter_map(|pair| pair.split_once('='));
        Some((figures[*entry].entry.as_str(), pairs.collect()))
    });
    let chosen: Vec<(&str, Vec<(&str, &str)>)> = chosen.collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in chosen.iter().flat_map(|(_, pairs)| pairs) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let header = std::iter::once("cell").chain(names.iter().copied());
    let mut table = Table::new(format!("{}: what the short trials chose", title(study, layout)), header);
    for (entry, pairs) in &chosen {
        let value = |name: &&str| pairs.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value).to_owned();
        table.row(*entry, names.iter().map(value));
    }
    (!chosen.is_empty()).then_some(table)
}

/// The heading, with the text that was really read where it is not the one that the table is about.
fn title(study: &Study, layout: &Layout) -> String {
    let sources = layout.entries.iter().flatten().map(|e| study.forecast(*e)[0].1.settings.text("data.source"));
    let elsewhere = layout.sizes != Sizes::Comparable && layout.paper.iter().flatten().any(Option::is_some);
    match elsewhere && sources.into_iter().all(|source| source == BUILT_IN) {
        true => format!("{} (here: the built-in language)", layout.title),
        false => layout.title.clone(),
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

fn sentences(layout: &Layout, comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    let (order, run) = (&comparison.order, comparison.entries.iter().filter(|b| b.ours.is_some()).count());
    if run > 0 {
        notes.push(match layout.sizes {
            Sizes::Comparable => {
                let agree = comparison.entries.iter().filter(|b| b.agrees == Some(true)).count();
                let part = 100.0 * layout.tolerance;
                format!("Size: {agree} of {run} figures are within {part} % of the paper's (✓).")
            }
            Sizes::OtherScale => {
                "Size: not comparable at this scale (another text, smaller models); only the order is.".into()
            }
            Sizes::PartOfText => "Size: not comparable (a part of the text was read); only the order is.".into(),
        });
    }
    if order.pairs > 0 {
        let Order { pairs, agree, against } = order;
        let mut text = format!("Order: {agree} of {pairs} pairs in one row or column stand as in the paper");
        if !against.is_empty() {
            let listed = against[..against.len().min(6)].join("; ");
            let more = if against.len() > 6 { format!(" and {} more", against.len() - 6) } else { String::new() };
            text += &format!("; in the paper, but not here: {listed}{more}");
        }
        notes.push(text + ".");
    }
    notes
}
