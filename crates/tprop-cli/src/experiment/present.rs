//! The files and the page at the end of an experiment.

use std::collections::{BTreeMap, BTreeSet};

use super::compare::{self, Comparison};
use super::out::Out;
use super::results::{Figure, Line, Results};
use super::study::{Study, Table};
use crate::console::{self, short};
use crate::failure::Outcome;
use crate::sheet::Sheet;
use crate::spread::Spread;

/// A table of more points is read by programs.
const MOST_POINTS: usize = 100;

/// Writes `table.md`, `table.csv`, `table.tex`, `table.json` and `trials.csv`, and prints the first or (`--json`) the fourth.
pub fn present(study: &Study, results: &Results, out: &Out, best: Option<f64>, json: bool) -> Outcome {
    let comparisons: Vec<Option<Comparison>> =
        study.tables.iter().map(|table| compare::compare(table, &results.figures)).collect();
    let mut sheets: Vec<Sheet> = if study.sweep {
        std::iter::once(sweep_sheet(study, results)).chain(points_sheet(study, results)).collect()
    } else {
        let both = study.tables.iter().zip(&comparisons);
        let wanted = |table: &Table| !table.cells.iter().flatten().all(|c| compare::unasked(&results.figures[*c]));
        let sheets = both.filter(|(table, _)| wanted(table)).flat_map(|(table, c)| {
            let sheet = compare::sheet(study, table, &results.figures, c.as_ref());
            std::iter::once(sheet).chain(compare::chosen(study, table, &results.figures))
        });
        sheets.collect()
    };
    if let (Some(best), Some(first)) = (best, sheets.first_mut()) {
        first.notes.push(format!("Best possible validation perplexity of this text: {}.", short(best)));
    }
    let markdown = page(study, results, &sheets);
    out.write("table.md", &markdown)?;
    out.write("table.tex", &sheets.iter().map(Sheet::latex).collect::<Vec<_>>().join("\n"))?;
    out.write("table.csv", &figures_sheet(study, results, &comparisons).csv())?;
    out.write("trials.csv", &trials_sheet(results).csv())?;
    let mut value = serde_json::to_value(results).expect("plain data");
    value["comparisons"] = serde_json::to_value(&comparisons).expect("plain data");
    value["best_possible"] = best.into();
    value["tables"] = serde_json::to_value(&sheets).expect("plain data");
    value["names"] = serde_json::to_value(names(study, results)).expect("plain data");
    let text = serde_json::to_string_pretty(&value).expect("plain data");
    out.write("table.json", &(text + "\n"))?;
    if json { console::line(value) } else { console::data(&markdown) }
}

fn page(study: &Study, results: &Results, sheets: &[Sheet]) -> String {
    let plain = |text: &str| tprop::vocab::printable(text);
    let mut text = format!("# {}\n\n", plain(&study.title));
    if !study.asks.is_empty() {
        text += &format!("{}\n\n", plain(&study.asks));
    }
    text += &format!("Made by `{}`.\n\n", plain(&results.command));
    text += &sheets.iter().map(Sheet::markdown).collect::<Vec<_>>().join("\n");
    let bad = |title: &str, lines: Vec<String>| match lines.is_empty() {
        true => String::new(),
        false => format!("\n{title}:\n\n{}\n", lines.join("\n")),
    };
    let line = |l: &Line| {
        let set: Vec<String> = l.settings.iter().map(|(k, v)| format!("{k}={v}")).collect();
        format!("- {} ({}): {}", plain(&l.cell), plain(&set.join(" ")), plain(&l.reason))
    };
    text += &bad("Trials that diverged", results.divergences().map(line).collect());
    text += &bad("Trials that failed (`--retry` runs them again)", results.failures().map(line).collect());
    text
}

/// What the runs behind the figures are called: the labels of their rows, with those of columns and tables where rows alone do not tell
/// them apart. A sweep's runs are called by their points.
fn names(study: &Study, results: &Results) -> BTreeMap<String, String> {
    if study.sweep {
        return results.trials.iter().map(|line| (line.trial.clone(), point_of(line))).collect();
    }
    let runs = |cell: usize| results.figures[cell].runs.iter().map(|run| run.trim_start_matches("runs/").to_owned());
    let mut names = BTreeMap::new();
    let shown = study.tables.iter().filter(|t| t.cells.iter().flatten().any(|c| runs(*c).next().is_some())).count();
    for table in &study.tables {
        for (row, cells) in table.rows.iter().zip(&table.cells) {
            // Columns may be other figures of the same runs.
            let told: Vec<Vec<String>> =
                cells.iter().map(|c| runs(*c).collect::<Vec<_>>()).filter(|r| !r.is_empty()).collect();
            let one = told.windows(2).all(|pair| pair[0] == pair[1]);
            for (column, cell) in table.columns.iter().zip(cells) {
                let mut name = if one { row.clone() } else { format!("{row}, {column}") };
                if shown > 1 {
                    name = format!("{}: {name}", table.name);
                }
                for run in runs(*cell) {
                    names.entry(run).or_insert_with(|| name.clone());
                }
            }
        }
    }
    names
}

/// A sweep's table: for each group its best point.
fn sweep_sheet(study: &Study, results: &Results) -> Sheet {
    let header = ["group", "best point", "valid ppl", "train ppl", "test ppl", "seeds"];
    let mut sheet = Sheet::new(format!("{}: the best of each group", study.title), header);
    let mut figures: Vec<&Figure> = results.figures.iter().collect();
    let mean = |f: &Figure| f.valid_ppl.map_or(f64::INFINITY, |s| s.mean);
    figures.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
    for figure in figures {
        let spread = |s: Option<Spread>| s.map_or("–".to_owned(), |s| s.shown());
        sheet.rows.push(vec![
            figure.cell.clone(),
            figure.chosen.clone().unwrap_or_default(),
            spread(figure.valid_ppl),
            spread(figure.train_ppl),
            spread(figure.test_ppl),
            figure.valid_ppl.map_or(0, |s| s.n).to_string(),
        ]);
        if let Some(why) = &figure.missing {
            sheet.notes.push(format!("{}: no figure ({why}).", figure.cell));
        }
    }
    let pruned: usize = results.figures.iter().map(|f| f.pruned.len()).sum();
    if pruned > 0 {
        sheet.notes.push(format!("{pruned} points were left behind by successive halving (trials.csv)."));
    }
    sheet
}

/// The settings in which a trial differs from others than its seeds.
fn point_of(line: &Line) -> String {
    let pairs = line.settings.iter().filter(|(name, _)| *name != "train.seed");
    let shown: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
    if shown.is_empty() { "all".to_owned() } else { shown.join(" ") }
}

/// All points of a sweep, the best first; none if the table of groups says it all.
fn points_sheet(study: &Study, results: &Results) -> Option<Sheet> {
    let mut points: BTreeMap<String, Vec<&Line>> = BTreeMap::new();
    for line in &results.trials {
        points.entry(point_of(line)).or_default().push(line);
    }
    if points.len() <= results.figures.len() {
        return None;
    }
    type Of = fn(&Line) -> Option<f64>;
    let spread = |lines: &[&Line], of: Of| {
        let numbers: Vec<f64> = lines.iter().filter_map(|l| of(l)).collect();
        Spread::of(&numbers).filter(|s| s.n == lines.len())
    };
    let mut rows: Vec<(f64, Vec<String>)> = Vec::new();
    for (point, lines) in points {
        let good = |line: &&Line| line.outcome == "finished" || line.outcome == "pruned";
        let valid = spread(&lines, |l| l.valid_ppl).filter(|_| lines.iter().all(good));
        let mut ends: Vec<&str> = lines.iter().map(|l| l.outcome.as_str()).collect();
        ends.sort_unstable();
        ends.dedup();
        let shown = |s: Option<Spread>| s.map_or("–".to_owned(), |s| s.shown());
        let (train, test) = (spread(&lines, |l| l.train_ppl), spread(&lines, |l| l.test_ppl));
        let row = vec![point, shown(valid), shown(train), shown(test), lines.len().to_string(), ends.join(", ")];
        rows.push((valid.map_or(f64::INFINITY, |s| s.mean), row));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let header = ["point", "valid ppl", "train ppl", "test ppl", "seeds", "end"];
    let mut sheet = Sheet::new(format!("{}: all points", study.title), header);
    let more = rows.len().saturating_sub(MOST_POINTS);
    sheet.rows = rows.into_iter().take(MOST_POINTS).map(|(_, row)| row).collect();
    if more > 0 {
        sheet.notes.push(format!("{more} more points stand in trials.csv."));
    }
    Some(sheet)
}

/// One line per cell, for other programs.
fn figures_sheet(study: &Study, results: &Results, comparisons: &[Option<Comparison>]) -> Sheet {
    let header = [
        "cell",
        "metric",
        "mean",
        "deviation",
        "seeds",
        "paper",
        "relative",
        "agrees",
        "train_ppl",
        "valid_ppl",
        "test_ppl",
        "residual",
        "tokens_per_s",
        "chosen",
        "runs",
        "missing",
    ];
    let mut sheet = Sheet::new(&study.title, header);
    let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
    for f in &results.figures {
        let beside = comparisons.iter().flatten().flat_map(|c| &c.cells).find(|b| b.cell == f.cell);
        sheet.rows.push(vec![
            f.cell.clone(),
            f.metric.clone(),
            number(f.value.map(|s| s.mean)),
            number(f.value.and_then(|s| s.deviation)),
            f.value.map_or(0, |s| s.n).to_string(),
            number(beside.map(|b| b.paper)),
            number(beside.and_then(|b| b.relative)),
            beside.and_then(|b| b.agrees).map_or(String::new(), |a| a.to_string()),
            number(f.train_ppl.map(|s| s.mean)),
            number(f.valid_ppl.map(|s| s.mean)),
            number(f.test_ppl.map(|s| s.mean)),
            number(f.residual.map(|s| s.mean)),
            number(f.tokens_per_s.map(|s| s.mean.round())),
            f.chosen.clone().unwrap_or_default(),
            f.runs.join(" "),
            f.missing.clone().unwrap_or_default(),
        ]);
    }
    sheet
}

/// One line per trial.
fn trials_sheet(results: &Results) -> Sheet {
    let names: BTreeSet<&String> = results.trials.iter().flat_map(|l| l.settings.keys()).collect();
    let fixed = ["trial", "cell", "outcome", "reason", "epochs", "valid_ppl", "train_ppl", "test_ppl", "seconds"];
    let header = fixed.iter().map(|s| (*s).to_owned()).chain(names.iter().map(|s| (*s).clone()));
    let mut sheet = Sheet::new(&results.title, header);
    let number = |x: Option<f64>| x.map_or(String::new(), |x| x.to_string());
    for line in &results.trials {
        let mut row = vec![
            line.trial.clone(),
            line.cell.clone(),
            line.outcome.clone(),
            line.reason.clone(),
            line.epochs.to_string(),
            number(line.valid_ppl),
            number(line.train_ppl),
            number(line.test_ppl),
            number(line.seconds),
        ];
        row.extend(names.iter().map(|name| line.settings.get(*name).cloned().unwrap_or_default()));
        sheet.rows.push(row);
    }
    sheet
}
