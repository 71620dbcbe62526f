//! Results against settings: a figure over one number, heat maps of two, parallel coordinates of more; and means with deviations
//! over seeds.

use std::collections::HashSet;

use tprop::vocab::printable;

use crate::document::{Block, Figure, Section};
use crate::groups::{Group, Varying, axes, describe, reference, same_text};
use crate::numbers::{number, ppl};
use crate::plot::{Dot, Dots, Heat, Lines, Parallel, ParallelAxis, Point, Series, Thread, Tile};
use crate::run::RunData;

/// More rows than this are a table's business.
const ROWS: usize = 40;
/// Curves of one figure.
const CURVES: usize = 14;
/// Heat maps of one report.
const MAPS: usize = 6;
/// Axes of parallel coordinates, beside the result.
const AXES: usize = 7;
const RESULT: &str = "best validation perplexity";

/// The figures that the runs give rise to; none for a single run or for runs on different texts.
pub fn section(runs: &[RunData], groups: &[Group<'_>]) -> Option<Section> {
    if runs.iter().filter_map(RunData::best_ppl).count() < 2 || !same_text(runs) {
        return None;
    }
    let axes = axes(runs);
    let mut figures = Vec::new();
    let over = over_one(runs, groups, &axes);
    if over.is_none() || groups.iter().any(|g| g.runs.len() > 1) {
        figures.extend(dots(runs, groups));
    }
    figures.extend(over);
    figures.extend(heat_maps(groups, &axes));
    figures.extend(parallel(runs, &axes));
    let section =
        |figures| Section { id: "comparison", title: "Comparison".into(), blocks: vec![Block::Figures(figures)] };
    (!figures.is_empty()).then(|| section(figures))
}

/// One row per group, the best above.
fn dots(runs: &[RunData], groups: &[Group<'_>]) -> Option<Figure> {
    let dot = |(style, group): (usize, &Group<'_>)| {
        let spread = group.spread(RunData::best_ppl)?;
        let each = group.runs.iter().filter_map(|run| {
            let x = run.best_ppl()?;
            Some((x, format!("{}\n{RESULT} {}", printable(&run.name), ppl(x))))
        });
        let tip = format!("{}\n{RESULT} {}", printable(&group.name), spread.said(ppl));
        let (name, mean, deviation) = (group.name.clone(), spread.mean, spread.deviation);
        Some(Dot { name, style, mean, deviation, each: each.collect(), tip })
    };
    let mut rows: Vec<Dot> = groups.iter().enumerate().filter_map(dot).collect();
    rows.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    let all = rows.len();
    rows.truncate(ROWS);
    if rows.len() < 2 {
        return None;
    }
    let mut caption = if groups.iter().any(|g| g.runs.len() > 1) {
        "Mean over seeds, bars: ± sample deviation; open circles: single seeds.".to_owned()
    } else {
        "Lower is better.".to_owned()
    };
    if all > ROWS {
        caption += &format!(" The best {ROWS} of {all}.");
    }
    let (rules, below) = reference(runs, rows.iter().map(|r| r.mean));
    caption += &below;
    let plot = Dots { title: "Best validation perplexity".into(), x: "perplexity".into(), rows, rules };
    Some(Figure::new("comparison", caption, plot))
}

/// Perplexity against the number with the most values that every run has; a curve for each combination of the other settings.
fn over_one(runs: &[RunData], groups: &[Group<'_>], axes: &[Varying]) -> Option<Figure> {
    let x = axes.iter().filter(|a| a.numeric && a.everywhere).max_by_key(|a| a.values.len())?;
    let rest: Vec<Varying> = axes.iter().filter(|a| a.name != x.name).cloned().collect();
    let mut series: Vec<Series> = Vec::new();
    for group in groups {
        let at = group.first().value(&x.name).and_then(number);
        let Some((at, spread)) = at.zip(group.spread(RunData::best_ppl)) else { continue };
        let name = describe(group.first(), &rest);
        let words = if name.is_empty() { String::new() } else { format!("{}\n", printable(&name)) };
        let tip = format!("{words}{} {at}: {}", x.name, spread.said(ppl));
        let point = Point { x: at, y: spread.mean, deviation: spread.deviation, tip };
        match series.iter_mut().find(|s| s.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name, style: series.len(), points: vec![point] }),
        }
    }
    for one in &mut series {
        one.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        // Two experiments at one place are told apart by something that is no setting; one curve cannot show both.
        if one.points.windows(2).any(|w| w[0].x == w[1].x) {
            return None;
        }
    }
    let long = series.iter().filter(|s| s.points.len() > 1).count();
    let enough = series.iter().map(|s| s.points.len()).max().unwrap_or(0) >= 2 && long * 2 >= series.len();
    if series.len() > CURVES || !enough {
        return None;
    }
    let seeds = groups.iter().any(|g| g.runs.len() > 1);
    let (rules, below) = reference(runs, series.iter().flat_map(|s| &s.points).map(|p| p.y));
    let plot = Lines {
        title: format!("Validation against {}", x.short().replace('_', " ")),
        x: x.name.clone(),
        whole: x.values.iter().all(|v| v.parse::<u64>().is_ok()),
        x_ratio: Some(3.0),
        ticks: if x.values.len() <= 8 { x.values.iter().filter_map(|v| number(v)).collect() } else { Vec::new() },
        y: "best perplexity".into(),
        series,
        rules,
    };
    let caption = if seeds { "Mean over seeds, bars: ± sample deviation." } else { "" };
    Some(Figure::new("figure", format!("{caption}{below}").trim(), plot))
}

/// The two numbers with the most values, once for each combination of the words.
fn heat_maps(groups: &[Group<'_>], axes: &[Varying]) -> Vec<Figure> {
    let mut numeric: Vec<&Varying> = axes.iter().filter(|a| a.numeric).collect();
    numeric.sort_by_key(|a| std::cmp::Reverse(a.values.len()));
    let [x, y, others @ ..] = &numeric[..] else { return Vec::new() };
    let words: Vec<Varying> = axes.iter().filter(|a| !a.numeric).cloned().collect();
    let mut panels: Vec<(String, Vec<&Group<'_>>)> = Vec::new();
    for group in groups {
        let first = group.first();
        if first.value(&x.name).is_none() || first.value(&y.name).is_none() {
            continue;
        }
        let name = describe(first, &words);
        match panels.iter_mut().find(|p| p.0 == name) {
            Some(panel) => panel.1.push(group),
            None => panels.push((name, vec![group])),
        }
    }
    // A grid in which most places are empty is better seen otherwise.
    panels.retain(|(_, groups)| {
        let distinct = |axes: &[&Varying]| {
            let places = groups.iter().map(|g| axes.iter().map(|a| g.first().value(&a.name)).collect::<Vec<_>>());
            places.collect::<HashSet<_>>().len()
        };
        let (columns, rows) = (distinct(&[x]), distinct(&[y]));
        columns > 1 && rows > 1 && distinct(&[x, y]) * 3 >= columns * rows * 2
    });
    panels.truncate(MAPS);
    let several = panels.len() > 1;
    let maps = panels.into_iter().enumerate().map(|(i, (name, groups))| {
        let tiles = tiles(&groups, x, y, !others.is_empty());
        let title =
            ["Best validation perplexity", &name].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(": ");
        let caption = if others.is_empty() {
            "The stronger, the better.".to_owned()
        } else {
            let others: Vec<_> = others.iter().map(|o| o.name.as_str()).collect();
            format!("The best over all values of {}; the stronger, the better.", others.join(", "))
        };
        let plot = Heat {
            title,
            x: x.name.clone(),
            columns: x.values.clone(),
            y: y.name.clone(),
            rows: y.values.clone(),
            tiles,
        };
        let file = if several { format!("heat-{}", i + 1) } else { "heat".to_owned() };
        Figure::new(file, caption, plot)
    });
    maps.collect()
}

fn tiles(groups: &[&Group<'_>], x: &Varying, y: &Varying, best: bool) -> Vec<Vec<Option<Tile>>> {
    let at = |group: &Group<'_>, axis: &Varying, text: &str| {
        group.first().value(&axis.name).and_then(number) == number(text)
    };
    let tile = |row: &String, column: &String| {
        let here = groups.iter().filter(|g| at(g, x, column) && at(g, y, row));
        let spreads = here.filter_map(|g| Some((*g, g.spread(RunData::best_ppl)?)));
        let (group, spread) = spreads.min_by(|a, b| a.1.mean.total_cmp(&b.1.mean))?;
        let which = if best { format!("\n{}", printable(&group.name)) } else { String::new() };
        let tip = format!("{} {column}, {} {row}\n{}{which}", x.short(), y.short(), spread.said(ppl));
        Some(Tile { value: spread.mean, tip })
    };
    y.values.iter().map(|row| x.values.iter().map(|column| tile(row, column)).collect()).collect()
}

fn parallel(runs: &[RunData], axes: &[Varying]) -> Option<Figure> {
    let known: Vec<(&RunData, f64)> = runs.iter().filter_map(|run| Some((run, run.best_ppl()?))).collect();
    if axes.len() < 3 || known.len() < 6 {
        return None;
    }
    // If there are too many, those with the most values.
    let mut order: Vec<usize> = (0..axes.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(axes[i].values.len()));
    order.truncate(AXES);
    order.sort_unstable();
    let kept: Vec<&Varying> = order.iter().map(|&i| &axes[i]).collect();
    let threads = known.iter().map(|(run, result)| {
        let (name, words) = (printable(&run.name), printable(&describe(run, axes)));
        Thread {
            values: kept.iter().map(|a| run.value(&a.name).map(str::to_owned)).collect(),
            result: *result,
            tip: format!("{name}\n{words}\n{RESULT} {}", ppl(*result)),
        }
    });
    let axis =
        |a: &&Varying| ParallelAxis { name: a.short().replace('_', " "), values: a.values.clone(), numeric: a.numeric };
    let plot = Parallel {
        title: "Settings and results".into(),
        axes: kept.iter().map(axis).collect(),
        result: "best valid. ppl".into(),
        threads: threads.collect(),
    };
    let mut caption = "One line per run; the stronger, the better, the best in another colour. A line leaves at the bottom where a setting means nothing for its run.".to_owned();
    if kept.len() < axes.len() {
        caption += &format!(" {} of {} settings that vary.", kept.len(), axes.len());
    }
    Some(Figure::new("parallel", caption, plot))
}
