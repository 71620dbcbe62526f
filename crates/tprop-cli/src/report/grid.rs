//! Results against settings: a figure over one number, heat maps of two, parallel coordinates of more; and means with deviations
//! over seeds.

use tprop::vocab::printable;

use super::curves::in_words;
use super::document::{Block, Figure, Section};
use super::groups::{Group, Spread, Varying, axes, describe, number, value};
use super::plot::{Dot, Dots, Heat, HeatCell, Lines, Parallel, ParallelAxis, Plot, Point, Series, Thread};
use super::read::RunData;
use super::results::{ppl, reference, same_text};

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
pub fn section(runs: &[RunData], groups: &[Group]) -> Option<Section> {
    let known: Vec<usize> = (0..runs.len()).filter(|&i| runs[i].best_ppl().is_some()).collect();
    if known.len() < 2 || !same_text(runs) {
        return None;
    }
    let axes = axes(runs);
    let mut figures = Vec::new();
    let over = over_one(runs, groups, &axes);
    if over.is_none() || groups.iter().any(|g| g.members.len() > 1) {
        figures.extend(dots(runs, groups));
    }
    figures.extend(over);
    figures.extend(heat_maps(runs, groups, &axes));
    figures.extend(parallel(runs, &known, &axes));
    (!figures.is_empty()).then(|| Section {
        id: "comparison",
        title: "Comparison".into(),
        blocks: vec![Block::Figures(figures)],
    })
}

fn results_of(runs: &[RunData], members: &[usize]) -> Vec<f64> {
    members.iter().filter_map(|&m| runs[m].best_ppl()).collect()
}

/// One row per group, the best above.
fn dots(runs: &[RunData], groups: &[Group]) -> Option<Figure> {
    let mut rows: Vec<Dot> = groups
        .iter()
        .enumerate()
        .filter_map(|(style, group)| {
            let spread = Spread::of(&results_of(runs, &group.members))?;
            let each = group.members.iter().filter_map(|&m| {
                let x = runs[m].best_ppl()?;
                Some((x, format!("{}\n{RESULT} {}", printable(&runs[m].name), ppl(x))))
            });
            let tip = format!("{}\n{RESULT} {}", printable(&group.name), in_words(spread, ppl));
            Some(Dot {
                name: group.name.clone(),
                style,
                mean: spread.mean,
                deviation: spread.deviation,
                each: each.collect(),
                tip,
            })
        })
        .collect();
    rows.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    let all = rows.len();
    rows.truncate(ROWS);
    if rows.len() < 2 {
        return None;
    }
    let mut caption = if groups.iter().any(|g| g.members.len() > 1) {
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
    Some(Figure { name: "comparison".into(), caption, plot: Plot::Dots(plot) })
}

/// Perplexity against the number with the most values that every run has; a curve for each combination of the other settings.
fn over_one(runs: &[RunData], groups: &[Group], axes: &[Varying]) -> Option<Figure> {
    let x = axes.iter().filter(|a| a.numeric && a.everywhere).max_by_key(|a| a.values.len())?;
    let rest: Vec<Varying> = axes.iter().filter(|a| a.name != x.name).cloned().collect();
    let mut series: Vec<Series> = Vec::new();
    for group in groups {
        let first = &runs[group.members[0]];
        let (Some(at), Some(spread)) =
            (value(first, &x.name).and_then(number), Spread::of(&results_of(runs, &group.members)))
        else {
            continue;
        };
        let name = describe(first, &rest);
        let words = if name.is_empty() { String::new() } else { format!("{}\n", printable(&name)) };
        let tip = format!("{words}{} {at}: {}", x.name, in_words(spread, ppl));
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
    let seeds = groups.iter().any(|g| g.members.len() > 1);
    let (rules, below) = reference(runs, series.iter().flat_map(|s| &s.points).map(|p| p.y));
    let plot = Lines {
        title: format!("Validation against {}", x.short().replace('_', " ")),
        x: x.name.clone(),
        whole: x.values.iter().all(|v| v.parse::<u64>().is_ok()),
        x_ratio: 3.0,
        ticks: if x.values.len() <= 8 { x.values.iter().filter_map(|v| number(v)).collect() } else { Vec::new() },
        y: "best perplexity".into(),
        series,
        rules,
    };
    let caption = if seeds { "Mean over seeds, bars: ± sample deviation." } else { "" };
    Some(Figure {
        name: "figure".into(),
        caption: format!("{caption}{below}").trim().to_owned(),
        plot: Plot::Lines(plot),
    })
}

/// The two numbers with the most values, once for each combination of the words.
fn heat_maps(runs: &[RunData], groups: &[Group], axes: &[Varying]) -> Vec<Figure> {
    let mut numeric: Vec<&Varying> = axes.iter().filter(|a| a.numeric).collect();
    numeric.sort_by_key(|a| std::cmp::Reverse(a.values.len()));
    let [x, y, others @ ..] = &numeric[..] else { return Vec::new() };
    let words: Vec<Varying> = axes.iter().filter(|a| !a.numeric).cloned().collect();
    let mut panels: Vec<(String, Vec<&Group>)> = Vec::new();
    for group in groups {
        let first = &runs[group.members[0]];
        if value(first, &x.name).is_none() || value(first, &y.name).is_none() {
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
        let here = |axis: &Varying| {
            let mut values: Vec<_> = groups.iter().filter_map(|g| value(&runs[g.members[0]], &axis.name)).collect();
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        let mut places: Vec<_> = groups.iter().map(|g| [x, y].map(|a| value(&runs[g.members[0]], &a.name))).collect();
        places.sort_unstable();
        places.dedup();
        here(x) > 1 && here(y) > 1 && places.len() * 3 >= here(x) * here(y) * 2
    });
    panels.truncate(MAPS);
    let several = panels.len() > 1;
    let maps = panels.into_iter().enumerate().map(|(i, (name, groups))| {
        let cells = cells(runs, &groups, x, y, !others.is_empty());
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
            cells,
        };
        let file = if several { format!("heat-{}", i + 1) } else { "heat".to_owned() };
        Figure { name: file, caption, plot: Plot::Heat(plot) }
    });
    maps.collect()
}

fn cells(runs: &[RunData], groups: &[&Group], x: &Varying, y: &Varying, best: bool) -> Vec<Vec<Option<HeatCell>>> {
    let at = |group: &Group, axis: &Varying, text: &str| {
        value(&runs[group.members[0]], &axis.name).and_then(number) == number(text)
    };
    let cell = |row: &String, column: &String| {
        let here = groups.iter().filter(|g| at(g, x, column) && at(g, y, row));
        let spreads = here.filter_map(|g| Some((*g, Spread::of(&results_of(runs, &g.members))?)));
        let (group, spread) = spreads.min_by(|a, b| a.1.mean.total_cmp(&b.1.mean))?;
        let which = if best { format!("\n{}", printable(&group.name)) } else { String::new() };
        let tip = format!("{} {column}, {} {row}\n{}{which}", x.short(), y.short(), in_words(spread, ppl));
        Some(HeatCell { value: spread.mean, tip })
    };
    y.values.iter().map(|row| x.values.iter().map(|column| cell(row, column)).collect()).collect()
}

fn parallel(runs: &[RunData], known: &[usize], axes: &[Varying]) -> Option<Figure> {
    if axes.len() < 3 || known.len() < 6 {
        return None;
    }
    // If there are too many, those with the most values.
    let mut order: Vec<usize> = (0..axes.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(axes[i].values.len()));
    order.truncate(AXES);
    order.sort_unstable();
    let kept: Vec<&Varying> = order.iter().map(|&i| &axes[i]).collect();
    let threads = known.iter().map(|&i| {
        let values: Vec<Option<String>> = kept.iter().map(|a| value(&runs[i], &a.name).map(str::to_owned)).collect();
        let result = runs[i].best_ppl().unwrap_or(f64::NAN);
        let words = describe(&runs[i], axes);
        Thread {
            values,
            result,
            tip: format!("{}\n{}\n{RESULT} {}", printable(&runs[i].name), printable(&words), ppl(result)),
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
    Some(Figure { name: "parallel".into(), caption, plot: Plot::Parallel(plot) })
}
