//! How runs went: curves over epochs and tokens, perplexity by position, and the same as tables for other programs.

use tprop::record::Eval;
use tprop::vocab::printable;

use crate::document::{Block, Figure, Section};
use crate::groups::{Group, mean_curve, reference};
use crate::numbers::{grouped, short};
use crate::plot::{Lines, Point, Series};
use crate::record::Numbers;
use crate::run::RunData;
use crate::table::{Table, numbers, words};

/// Curves of more groups than this would hide each other; the best are shown.
const MOST: usize = 24;
/// Points of a curve.
const POINTS: usize = 80;

/// A figure over epochs.
struct Over {
    name: &'static str,
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    caption: &'static str,
}

#[rustfmt::skip]
const PERPLEXITY: [Over; 3] = [
    Over { name: "valid-ppl", key: "valid_ppl", title: "Validation", unit: "perplexity",
        caption: "The validation text after each epoch." },
    Over { name: "train-ppl", key: "train_ppl", title: "Training text", unit: "perplexity",
        caption: "Comparable between methods: the beginning of the training text, read like the validation text after each epoch." },
    Over { name: "window-ppl", key: "window_ppl", title: "Training windows", unit: "perplexity",
        caption: "As the objective saw them: each window before its own update, under target propagation from states that the optimiser has moved." },
];

#[rustfmt::skip]
const COUPLING: [Over; 7] = [
    Over { name: "residual", key: "residual_relative", title: "Relative residual", unit: "mean ‖r‖ / mean ‖s‖",
        caption: "How far blocks end from the states that they should end in: 0 is the recurrence itself." },
    Over { name: "residual-max", key: "residual_max", title: "Largest residual", unit: "‖r‖",
        caption: "The worst block of the epoch." },
    Over { name: "duals", key: "dual_norm", title: "Duals", unit: "mean ‖u‖",
        caption: "0 under the penalty method." },
    Over { name: "penalty", key: "penalty", title: "Penalty", unit: "nats per token",
        caption: "Mean C, as it is added to the loss." },
    Over { name: "state-move", key: "state_move", title: "Movement of states", unit: "‖Δs‖",
        caption: "How far a state moves in its window, on the mean." },
    Over { name: "objective", key: "objective", title: "Objective", unit: "nats per token",
        caption: "Loss and penalty together." },
    Over { name: "lambda", key: "lambda", title: "λ", unit: "λ",
        caption: "Weight of the coupling." },
];

/// Groups with their colours.
type Shown<'a> = [(usize, &'a Group<'a>)];

/// Learning curves, coupling, positions: whatever the records have.
pub fn sections(runs: &[RunData], groups: &[Group<'_>]) -> Vec<Section> {
    let shown = best_groups(groups);
    let section = |id, title: &str, figures: Vec<Figure>| {
        let mut blocks = Vec::new();
        if shown.len() < groups.len() {
            let all = groups.len();
            let cut = format!("Of {all} groups the {MOST} with the lowest validation perplexity are drawn.");
            blocks.push(Block::Text(cut));
        }
        let some = !figures.is_empty();
        blocks.push(Block::Figures(figures));
        some.then(|| Section { id, title: title.into(), blocks })
    };
    let several = |figures: &[Over]| figures.iter().filter_map(|over| over_epochs(over, runs, &shown)).collect();
    let mut learning: Vec<Figure> = several(&PERPLEXITY);
    learning.extend(over_tokens(runs, &shown));
    let found = [
        section("curves", "Learning curves", learning),
        section("coupling", "States and their coupling", several(&COUPLING)),
        section("positions", "Perplexity by position", by_position(&shown).into_iter().collect()),
    ];
    found.into_iter().flatten().collect()
}

/// Groups with their colours; if there are too many, the best ones.
fn best_groups<'a>(groups: &'a [Group<'a>]) -> Vec<(usize, &'a Group<'a>)> {
    let mut all: Vec<&Group<'_>> = groups.iter().collect();
    if all.len() > MOST {
        let best = |g: &Group<'_>| g.runs.iter().filter_map(|r| r.best_ppl()).fold(f64::INFINITY, f64::min);
        all.sort_by(|a, b| best(a).total_cmp(&best(b)));
        all.truncate(MOST);
    }
    all.into_iter().enumerate().collect()
}

/// A curve for each group: `of` gives x and y of a run, `tip` says them.
fn series(
    groups: &Shown<'_>,
    of: impl Fn(&RunData) -> Vec<(f64, f64)> + Copy,
    tip: impl Fn(f64, String) -> String,
) -> Vec<Series> {
    let each = groups.iter().map(|(style, group)| {
        let points = mean_curve(&group.runs, POINTS, of).into_iter().map(|(x, spread)| Point {
            x,
            y: spread.mean,
            deviation: spread.deviation,
            tip: format!("{}\n{}", printable(&group.name), tip(x, spread.said(short))),
        });
        // A run that is alone needs no name beside its curve.
        let name = if groups.len() > 1 { group.name.clone() } else { String::new() };
        Series { name, style: *style, points: points.collect() }
    });
    each.filter(|s| !s.points.is_empty()).collect()
}

fn over_epochs(over: &Over, runs: &[RunData], groups: &Shown<'_>) -> Option<Figure> {
    let of = |run: &RunData| -> Vec<(f64, f64)> {
        run.record.evals.iter().filter_map(|e| Some((e.epoch as f64, e.number(over.key)?))).collect()
    };
    let series = series(groups, of, |x, y| format!("epoch {x}: {} {y}", over.title.to_lowercase()));
    let values = || series.iter().flat_map(|s| &s.points).map(|p| p.y);
    let first = values().next()?;
    // A curve that never moves is not worth a picture: duals of the penalty method, a constant λ.
    if values().all(|y| y == first) && COUPLING.iter().any(|c| c.key == over.key) {
        return None;
    }
    let (rules, below) = if over.key == "valid_ppl" { reference(runs, values()) } else { Default::default() };
    let mut caption = format!("{}{below}", over.caption);
    if runs.iter().any(|run| run.record.evals.len() > POINTS) {
        caption += &format!(" At most {POINTS} points, each a mean of neighbouring epochs.");
    }
    let (title, y) = (over.title.into(), over.unit.into());
    let plot = Lines { title, x: "epoch".into(), whole: true, y, series, rules, ..Lines::default() };
    Some(Figure::new(over.name, caption, plot))
}

fn over_tokens(runs: &[RunData], groups: &Shown<'_>) -> Option<Figure> {
    let most = runs.iter().filter_map(|r| Some(r.record.steps.last()?.tokens as f64)).fold(0.0, f64::max);
    let (unit, words) = if most >= 1e6 { (1e6, "millions") } else { (1e3, "thousands") };
    let of = |run: &RunData| -> Vec<(f64, f64)> {
        let steps = run.record.steps.iter().filter(|s| s.nats.is_finite());
        steps.map(|s| (s.tokens as f64 / unit, s.nats)).collect()
    };
    let series = series(groups, of, |x, y| format!("{} tokens: {y} nats", grouped((x * unit).round() as u64)));
    if series.is_empty() {
        return None;
    }
    let caption = format!(
        "Means over the windows since the step event before; a curve has at most {POINTS} points, each a mean of neighbours."
    );
    let (x, y) = (format!("tokens seen ({words})"), "nats per token".into());
    let plot = Lines { title: "Loss while training".into(), x, y, series, ..Lines::default() };
    Some(Figure::new("loss", caption, plot))
}

fn by_position(groups: &Shown<'_>) -> Option<Figure> {
    let of = |run: &RunData| -> Vec<(f64, f64)> {
        let list = run.record.best(None).map_or(&[][..], |e| &e.window_ppl_by_position);
        let finite = list.iter().take_while(|y| y.is_finite());
        finite.enumerate().map(|(i, y)| (i as f64 + 1.0, *y)).collect()
    };
    let series = series(groups, of, |x, y| format!("position {x}: perplexity {y}"));
    // One position has nothing beside it.
    if series.iter().all(|s| s.points.len() < 2) {
        return None;
    }
    let caption =
        "In the epoch of the best evaluation. A block that begins in a poor state pays for it at its first positions.";
    let (title, x) = ("Training windows by position".into(), "position in the block".into());
    let plot = Lines { title, x, whole: true, y: "perplexity".into(), series, ..Lines::default() };
    Some(Figure::new("positions", caption, plot))
}

/// Every evaluation, every step event and every perplexity by position, each as a table for other programs.
pub fn tables(runs: &[RunData]) -> Vec<Table> {
    let positions = |eval: &Eval| -> Vec<Row> {
        let each = eval.window_ppl_by_position.iter().take_while(|y| y.is_finite()).enumerate();
        let epoch = eval.epoch as f64;
        each.map(|(i, y)| vec![("epoch", epoch), ("position", (i + 1) as f64), ("window_ppl", *y)]).collect()
    };
    let tables = [
        every("evaluations", runs, |run| run.record.evals.iter().map(Numbers::numbers).collect()),
        every("steps", runs, |run| run.record.steps.iter().map(Numbers::numbers).collect()),
        every("positions", runs, |run| run.record.evals.iter().flat_map(positions).collect()),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// Numbers with their names.
type Row = Vec<(&'static str, f64)>;

fn every(name: &str, runs: &[RunData], of: impl Fn(&RunData) -> Vec<Row>) -> Table {
    let each = |run: &RunData| of(run).into_iter().map(|numbers| (run.name.clone(), numbers)).collect::<Vec<_>>();
    let rows: Vec<(String, Row)> = runs.iter().flat_map(each).collect();
    let mut fields = vec![words("run", "run", |(run, _): &(String, Row)| run.clone())];
    for (i, (key, _)) in rows.first().map_or(&[][..], |(_, numbers)| numbers).iter().enumerate() {
        let number = move |(_, numbers): &(String, Row)| Some(numbers[i].1).filter(|x| x.is_finite());
        fields.push(numbers(key, key, number, |x| x.to_string()));
    }
    Table::of(name, "", fields, &rows).without_empty_columns()
}
