//! The files and the page at the end of an experiment.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use tprop::vocab::printable;
use tprop_report::numbers::{Spread, short};
use tprop_report::table::{Table, numbers, words};

use super::compare::{self, Comparison};
use super::out::Out;
use super::results::{Figure, Line, Results};
use super::study::{Layout, Study};
use tprop_run::console;
use tprop_run::failure::Outcome;

/// A table of more points is read by programs.
const MOST_POINTS: usize = 100;

/// Writes `table.md`, `table.csv`, `table.tex`, `table.json` and `trials.csv`, and prints the first or (`--json`) the fourth.
pub fn present(study: &Study, results: &Results, out: &Out, best: Option<f64>, json: bool) -> Outcome {
    let figures = &results.figures;
    let comparisons: Vec<Option<Comparison>> = study.layouts.iter().map(|l| compare::compare(l, figures)).collect();
    let mut tables: Vec<Table> = if study.sweep {
        std::iter::once(groups(study, results)).chain(points(study, results)).collect()
    } else {
        let asked = |layout: &Layout| !layout.entries.iter().flatten().all(|e| compare::unasked(&figures[*e]));
        let both = study.layouts.iter().zip(&comparisons).filter(|(layout, _)| asked(layout));
        let tables = both.flat_map(|(layout, comparison)| {
            let table = compare::table(study, layout, figures, comparison.as_ref());
            std::iter::once(table).chain(compare::chosen(study, layout, figures))
        });
        tables.collect()
    };
    if let (Some(best), Some(first)) = (best, tables.first_mut()) {
        first.notes.push(format!("Best possible validation perplexity of this text: {}.", short(best)));
    }
    let markdown = page(study, results, &tables);
    out.write("table.md", &markdown)?;
    out.write("table.tex", &tables.iter().map(Table::latex).collect::<Vec<_>>().join("\n"))?;
    out.write("table.csv", &all_figures(results, &comparisons).csv("\r\n"))?;
    out.write("trials.csv", &all_trials(results).csv("\r\n"))?;
    let mut value = json!(results);
    value["comparisons"] = json!(comparisons);
    value["best_possible"] = json!(best);
    value["tables"] = json!(tables);
    value["names"] = json!(names(study, results));
    let text = serde_json::to_string_pretty(&value).expect("plain data");
    out.write("table.json", &(text + "\n"))?;
    if json { console::line(value) } else { console::data(&markdown) }
}

fn page(study: &Study, results: &Results, tables: &[Table]) -> String {
    let mut text = format!("# {}\n\n", printable(&study.title));
    if !study.asks.is_empty() {
        text += &format!("{}\n\n", printable(&study.asks));
    }
    text += &format!("Made by `{}`.\n\n", printable(&results.command));
    text += &tables.iter().map(Table::markdown_page).collect::<Vec<_>>().join("\n");
    let ends = [("diverged", "diverged"), ("failed", "failed (`--retry` runs them again)")];
    for (outcome, words) in ends.into_iter().filter(|(outcome, _)| results.ended(outcome).next().is_some()) {
        text += &format!("\nTrials that {words}:\n\n");
        for line in results.ended(outcome) {
            let set: Vec<String> = line.settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let (entry, set, reason) = (printable(&line.entry), printable(&set.join(" ")), printable(&line.reason));
            text += &format!("- {entry} ({set}): {reason}\n");
        }
    }
    text
}

/// What the runs behind the figures are called: the labels of their rows, with those of columns and tables where rows alone do not tell
/// them apart. A sweep's runs are called by their points.
fn names(study: &Study, results: &Results) -> BTreeMap<String, String> {
    if study.sweep {
        return results.trials.iter().map(|line| (line.trial.clone(), point_of(line))).collect();
    }
    let runs = |entry: usize| &results.figures[entry].runs;
    let mut names = BTreeMap::new();
    let shown = study.layouts.iter().filter(|l| l.entries.iter().flatten().any(|e| !runs(*e).is_empty())).count();
    for layout in &study.layouts {
        for (row, entries) in layout.rows.iter().zip(&layout.entries) {
            // Columns may be other figures of the same runs.
            let distinct: BTreeSet<_> = entries.iter().map(|e| runs(*e)).filter(|r| !r.is_empty()).collect();
            for (column, entry) in layout.columns.iter().zip(entries) {
                let mut name = if distinct.len() < 2 { row.clone() } else { format!("{row}, {column}") };
                if shown > 1 {
                    name = format!("{}: {name}", layout.name);
                }
                for run in runs(*entry) {
                    names.entry(run.trim_start_matches("runs/").to_owned()).or_insert_with(|| name.clone());
                }
            }
        }
    }
    names
}

fn shown(spread: Option<Spread>) -> String {
    spread.map_or("–".to_owned(), |s| s.shown())
}

/// A sweep's table: for each group its best point.
fn groups(study: &Study, results: &Results) -> Table {
    let header = ["group", "best point", "valid ppl", "train ppl", "test ppl", "seeds"];
    let mut table = Table::new(format!("{}: the best of each group", study.title), header);
    let mut figures: Vec<&Figure> = results.figures.iter().collect();
    let mean = |f: &Figure| f.valid_ppl.map_or(f64::INFINITY, |s| s.mean);
    figures.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
    for f in figures {
        let seeds = f.valid_ppl.map_or(0, |s| s.n).to_string();
        let chosen = f.chosen.clone().unwrap_or_default();
        table.row(&f.entry, [chosen, shown(f.valid_ppl), shown(f.train_ppl), shown(f.test_ppl), seeds]);
        table.notes.extend(f.missing.as_ref().map(|why| format!("{}: no figure ({why}).", f.entry)));
    }
    let pruned: usize = results.figures.iter().map(|f| f.pruned.len()).sum();
    if pruned > 0 {
        table.notes.push(format!("{pruned} points were left behind by successive halving (trials.csv)."));
    }
    table
}

/// The settings in which a trial differs from others than its seeds.
fn point_of(line: &Line) -> String {
    let pairs = line.settings.iter().filter(|(name, _)| *name != "train.seed");
    let shown: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
    if shown.is_empty() { "all".to_owned() } else { shown.join(" ") }
}

/// All points of a sweep, the best first; none if the table of groups says it all.
fn points(study: &Study, results: &Results) -> Option<Table> {
    let mut points: BTreeMap<String, Vec<&Line>> = BTreeMap::new();
    for line in &results.trials {
        points.entry(point_of(line)).or_default().push(line);
    }
    if points.len() <= results.figures.len() {
        return None;
    }
    let header = ["point", "valid ppl", "train ppl", "test ppl", "seeds", "end"];
    let mut table = Table::new(format!("{}: all points", study.title), header);
    let mut rows: Vec<(f64, String, [String; 5])> = Vec::new();
    for (point, lines) in points {
        let spread = |of: fn(&Line) -> Option<f64>| {
            let numbers: Vec<f64> = lines.iter().filter_map(|l| of(l)).collect();
            Spread::of(&numbers).filter(|s| s.n == lines.len())
        };
        let good = |line: &&Line| line.outcome == "finished" || line.outcome == "pruned";
        let valid = spread(|l| l.valid_ppl).filter(|_| lines.iter().all(good));
        let ends: BTreeSet<&str> = lines.iter().map(|l| l.outcome).collect();
        let ends = ends.into_iter().collect::<Vec<_>>().join(", ");
        let (train, test) = (shown(spread(|l| l.train_ppl)), shown(spread(|l| l.test_ppl)));
        let place = valid.map_or(f64::INFINITY, |s| s.mean);
        rows.push((place, point, [shown(valid), train, test, lines.len().to_string(), ends]));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let more = rows.len().saturating_sub(MOST_POINTS);
    rows.into_iter().take(MOST_POINTS).for_each(|(_, point, texts)| table.row(point, texts));
    if more > 0 {
        table.notes.push(format!("{more} more points stand in trials.csv."));
    }
    Some(table)
}

fn digits(x: f64) -> String {
    x.to_string()
}

/// One line per entry, for other programs.
fn all_figures(results: &Results, comparisons: &[Option<Comparison>]) -> Table {
    let beside = |f: &Figure| comparisons.iter().flatten().flat_map(|c| &c.entries).find(|b| b.entry == f.entry);
    let mean = |of: fn(&Figure) -> Option<Spread>| move |f: &Figure| of(f).map(|s| s.mean);
    let agrees = |f: &Figure| beside(f).and_then(|b| b.agrees).map_or(String::new(), |a| a.to_string());
    let speed = |f: &Figure| f.tokens_per_s.map(|s| s.mean.round());
    let fields = vec![
        words("", "cell", |f: &Figure| f.entry.clone()),
        words("", "metric", |f: &Figure| f.metric.clone()),
        numbers("", "mean", mean(|f| f.value), digits),
        numbers("", "deviation", |f: &Figure| f.value.and_then(|s| s.deviation), digits),
        words("", "seeds", |f: &Figure| f.value.map_or(0, |s| s.n).to_string()),
        numbers("", "paper", |f: &Figure| beside(f).map(|b| b.paper), digits),
        numbers("", "relative", |f: &Figure| beside(f).and_then(|b| b.relative), digits),
        words("", "agrees", agrees),
        numbers("", "train_ppl", mean(|f| f.train_ppl), digits),
        numbers("", "valid_ppl", mean(|f| f.valid_ppl), digits),
        numbers("", "test_ppl", mean(|f| f.test_ppl), digits),
        numbers("", "residual", mean(|f| f.residual), digits),
        numbers("", "tokens_per_s", speed, digits),
        words("", "chosen", |f: &Figure| f.chosen.clone().unwrap_or_default()),
        words("", "runs", |f: &Figure| f.runs.join(" ")),
        words("", "missing", |f: &Figure| f.missing.clone().unwrap_or_default()),
    ];
    Table::of("table", "", fields, &results.figures)
}

/// One line per trial.
fn all_trials(results: &Results) -> Table {
    let names: BTreeSet<&String> = results.trials.iter().flat_map(|l| l.settings.keys()).collect();
    let mut fields = vec![
        words("", "trial", |l: &Line| l.trial.clone()),
        words("", "cell", |l: &Line| l.entry.clone()),
        words("", "outcome", |l: &Line| l.outcome.to_owned()),
        words("", "reason", |l: &Line| l.reason.clone()),
        words("", "epochs", |l: &Line| l.epochs.to_string()),
        numbers("", "valid_ppl", |l: &Line| l.valid_ppl, digits),
        numbers("", "train_ppl", |l: &Line| l.train_ppl, digits),
        numbers("", "test_ppl", |l: &Line| l.test_ppl, digits),
        numbers("", "seconds", |l: &Line| l.seconds, digits),
    ];
    fields.extend(
        names.iter().map(|name| words("", name, |l: &Line| l.settings.get(*name).cloned().unwrap_or_default())),
    );
    Table::of("trials", "", fields, &results.trials)
}
