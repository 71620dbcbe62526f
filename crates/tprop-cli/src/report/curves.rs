//! How runs went: curves over epochs and tokens, perplexity by position, and the same as tables for other programs.

use tprop::vocab::printable;

use super::document::{Block, Cell, Column, Figure, Section, Table};
use super::groups::{Group, Spread, mean_curve};
use super::plot::{Lines, Plot, Point, Series};
use super::read::{Row, RunData};
use super::results::reference;
use crate::console::{grouped, short};

/// Curves of more groups than this would hide each other; the best are shown.
const MOST: usize = 24;
/// Points of a curve over tokens.
const POINTS: usize = 80;

/// A figure over epochs.
struct Over {
    name: &'static str,
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    caption: &'static str,
}

const PERPLEXITY: [Over; 3] = [
    Over {
        name: "valid-ppl",
        key: "valid_ppl",
        title: "Validation",
        unit: "perplexity",
        caption: "The validation text after each epoch.",
    },
    Over {
        name: "train-ppl",
        key: "train_ppl",
        title: "Training text",
        unit: "perplexity",
        caption: "Comparable between methods: the beginning of the training text, read like the validation text after each epoch.",
    },
    Over {
        name: "window-ppl",
        key: "window_ppl",
        title: "Training windows",
        unit: "perplexity",
        caption: "As the objective saw them: each window before its own update, under target propagation from states that the optimiser has moved.",
    },
];

const COUPLING: [Over; 7] = [
    Over {
        name: "residual",
        key: "residual_relative",
        title: "Relative residual",
        unit: "mean ‖r‖ / mean ‖s‖",
        caption: "How far blocks end from the states that they should end in: 0 is the recurrence itself.",
    },
    Over {
        name: "residual-max",
        key: "residual_max",
        title: "Largest residual",
        unit: "‖r‖",
        caption: "The worst block of the epoch.",
    },
    Over {
        name: "duals", key: "dual_norm", title: "Duals", unit: "mean ‖u‖", caption: "0 under the penalty method."
    },
    Over {
        name: "penalty",
        key: "penalty",
        title: "Penalty",
        unit: "nats per token",
        caption: "Mean C, as it is added to the loss.",
    },
    Over {
        name: "state-move",
        key: "state_move",
        title: "Movement of states",
        unit: "‖Δs‖",
        caption: "How far a state moves in its window, on the mean.",
    },
    Over {
        name: "objective",
        key: "objective",
        title: "Objective",
        unit: "nats per token",
        caption: "Loss and penalty together.",
    },
    Over { name: "lambda", key: "lambda", title: "λ", unit: "λ", caption: "Weight of the coupling." },
];

/// Learning curves, coupling, positions: whatever the records have.
pub fn sections(runs: &[RunData], groups: &[Group]) -> Vec<Section> {
    let shown = best_groups(runs, groups);
    let cut = (shown.len() < groups.len()).then(|| {
        Block::Text(format!("Of {} groups the {MOST} with the lowest validation perplexity are drawn.", groups.len()))
    });
    let section = |id, title: &str, figures: Vec<Figure>| {
        let blocks = cut.iter().cloned().chain([Block::Figures(figures.clone())]).collect();
        (!figures.is_empty()).then(|| Section { id, title: title.into(), blocks })
    };
    let several = |figures: &[Over]| -> Vec<Figure> {
        figures.iter().filter_map(|over| over_epochs(over, runs, &shown)).collect()
    };
    let mut learning = several(&PERPLEXITY);
    learning.extend(over_tokens(runs, &shown));
    [
        section("curves", "Learning curves", learning),
        section("coupling", "States and their coupling", several(&COUPLING)),
        section("positions", "Perplexity by position", by_position(runs, &shown).into_iter().collect()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Groups with their colours; if there are too many, the best ones.
fn best_groups<'a>(runs: &[RunData], groups: &'a [Group]) -> Vec<(usize, &'a Group)> {
    let mut all: Vec<_> = groups.iter().enumerate().collect();
    if all.len() > MOST {
        let of = |g: &Group| g.members.iter().filter_map(|&m| runs[m].best_ppl()).fold(f64::INFINITY, f64::min);
        all.sort_by(|a, b| of(a.1).total_cmp(&of(b.1)));
        all.truncate(MOST);
        // Few colours are told apart more easily than many.
        return all.into_iter().enumerate().map(|(style, (_, group))| (style, group)).collect();
    }
    all
}

fn series(
    runs: &[RunData],
    groups: &[(usize, &Group)],
    of: impl Fn(&RunData) -> Vec<(f64, f64)> + Copy,
    tip: impl Fn(f64, String) -> String,
) -> Vec<Series> {
    let each = groups.iter().map(|(style, group)| {
        let points = mean_curve(runs, &group.members, POINTS, of).into_iter().map(|(x, spread)| Point {
            x,
            y: spread.mean,
            deviation: spread.deviation,
            tip: format!("{}\n{}", printable(&group.name), tip(x, in_words(spread, short))),
        });
        // A run that is alone needs no name beside its curve.
        let name = if groups.len() > 1 { group.name.clone() } else { String::new() };
        Series { name, style: *style, points: points.collect() }
    });
    each.filter(|s| !s.points.is_empty()).collect()
}

/// 16.90, or 16.90 ± 0.02 (3 seeds).
pub fn in_words(spread: Spread, show: impl Fn(f64) -> String) -> String {
    match spread.deviation {
        Some(d) => format!("{} ± {} ({} seeds)", show(spread.mean), show(d), spread.n),
        None => show(spread.mean),
    }
}

fn over_epochs(over: &Over, runs: &[RunData], groups: &[(usize, &Group)]) -> Option<Figure> {
    let of = |run: &RunData| -> Vec<(f64, f64)> {
        run.evals.iter().filter_map(|e| Some((e.number("epoch")?, e.number(over.key)?))).collect()
    };
    let series = series(runs, groups, of, |x, y| format!("epoch {x}: {} {y}", over.title.to_lowercase()));
    let mut values = series.iter().flat_map(|s| &s.points).map(|p| p.y);
    let first = values.next()?;
    // A curve that never moves is not worth a picture: duals of the penalty method, a constant λ.
    if over.key != "valid_ppl" && values.all(|y| y == first) && COUPLING.iter().any(|c| c.key == over.key) {
        return None;
    }
    let (rules, below) = match over.key {
        "valid_ppl" => reference(runs, series.iter().flat_map(|s| &s.points).map(|p| p.y)),
        _ => (Vec::new(), String::new()),
    };
    let plot = Lines {
        title: over.title.into(),
        x: "epoch".into(),
        whole: true,
        x_ratio: f64::INFINITY,
        ticks: Vec::new(),
        y: over.unit.into(),
        series,
        rules,
    };
    let many = runs.iter().any(|run| run.evals.len() > POINTS);
    let thinned =
        if many { format!(" At most {POINTS} points, each a mean of neighbouring epochs.") } else { String::new() };
    let caption = format!("{}{below}{thinned}", over.caption);
    Some(Figure { name: over.name.into(), caption, plot: Plot::Lines(plot) })
}

fn over_tokens(runs: &[RunData], groups: &[(usize, &Group)]) -> Option<Figure> {
    let most = runs.iter().filter_map(|r| r.steps.last()?.number("tokens")).fold(0.0, f64::max);
    let (unit, words) = if most >= 1e6 { (1e6, "millions") } else { (1e3, "thousands") };
    let of = |run: &RunData| -> Vec<(f64, f64)> {
        run.steps.iter().filter_map(|s| Some((s.number("tokens")? / unit, s.number("nats")?))).collect()
    };
    let series = series(runs, groups, of, |x, y| format!("{} tokens: {y} nats", grouped((x * unit).round() as u64)));
    if series.is_empty() {
        return None;
    }
    let plot = Lines {
        title: "Loss while training".into(),
        x: format!("tokens seen ({words})"),
        whole: false,
        x_ratio: f64::INFINITY,
        ticks: Vec::new(),
        y: "nats per token".into(),
        series,
        rules: Vec::new(),
    };
    let caption = format!(
        "Means over the windows since the step event before; a curve has at most {POINTS} points, each a mean of neighbours."
    );
    Some(Figure { name: "loss".into(), caption, plot: Plot::Lines(plot) })
}

fn by_position(runs: &[RunData], groups: &[(usize, &Group)]) -> Option<Figure> {
    let of = |run: &RunData| -> Vec<(f64, f64)> {
        let list = run.best().map_or(Vec::new(), |e| e.numbers("window_ppl_by_position"));
        list.into_iter().enumerate().map(|(i, y)| (i as f64 + 1.0, y)).collect()
    };
    let series = series(runs, groups, of, |x, y| format!("position {x}: perplexity {y}"));
    // One position has nothing beside it.
    if series.iter().all(|s| s.points.len() < 2) {
        return None;
    }
    let plot = Lines {
        title: "Training windows by position".into(),
        x: "position in the block".into(),
        whole: true,
        x_ratio: f64::INFINITY,
        ticks: Vec::new(),
        y: "perplexity".into(),
        series,
        rules: Vec::new(),
    };
    let caption =
        "In the epoch of the best evaluation. A block that begins in a poor state pays for it at its first positions.";
    Some(Figure { name: "positions".into(), caption: caption.into(), plot: Plot::Lines(plot) })
}

const EVAL_KEYS: [&str; 16] = [
    "epoch",
    "step",
    "tokens",
    "seconds",
    "train_ppl",
    "window_ppl",
    "valid_ppl",
    "rate",
    "objective",
    "penalty",
    "residual_mean",
    "residual_max",
    "residual_relative",
    "dual_norm",
    "state_move",
    "lambda",
];
const STEP_KEYS: [&str; 8] = ["epoch", "step", "tokens", "seconds", "nats", "norm", "rate", "tokens_per_s"];

/// Every evaluation of every run.
pub fn evaluations(runs: &[RunData]) -> Table {
    long("evaluations", &EVAL_KEYS, runs, |run| &run.evals)
}

/// Every step event of every run.
pub fn steps(runs: &[RunData]) -> Table {
    long("steps", &STEP_KEYS, runs, |run| &run.steps)
}

fn long(name: &str, keys: &[&str], runs: &[RunData], rows_of: impl Fn(&RunData) -> &[Row]) -> Table {
    let mut columns = vec![Column::words("run", "run")];
    columns.extend(keys.iter().map(|k| Column::numbers(k, k)));
    let mut rows = Vec::new();
    for run in runs {
        for row in rows_of(run) {
            let numbers = keys.iter().map(|key| Cell::number(row.number(key), |x| x.to_string()));
            rows.push(std::iter::once(Cell::word(&run.name)).chain(numbers).collect());
        }
    }
    Table { name: name.into(), caption: String::new(), columns, rows }.without_empty_columns()
}

/// Perplexity by position of every evaluation.
pub fn positions(runs: &[RunData]) -> Table {
    let columns = vec![
        Column::words("run", "run"),
        Column::numbers("epoch", "epoch"),
        Column::numbers("position", "position"),
        Column::numbers("window_ppl", "window_ppl"),
    ];
    let mut rows = Vec::new();
    for run in runs {
        for eval in &run.evals {
            for (i, y) in eval.numbers("window_ppl_by_position").into_iter().enumerate() {
                rows.push(vec![
                    Cell::word(&run.name),
                    Cell::number(eval.number("epoch"), |x| x.to_string()),
                    Cell::word((i + 1).to_string()),
                    Cell::number(Some(y), |x| x.to_string()),
                ]);
            }
        }
    }
    Table { name: "positions".into(), caption: String::new(), columns, rows }
}
