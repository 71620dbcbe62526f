//! The tables of a report, and the order of its parts.

use tprop::vocab::printable;

use super::document::{Block, Cell, Column, Document, Section, Table};
use super::groups::{self, Group, Spread, harmless, shape, speed, summary, value, varying};
use super::read::RunData;
use super::text::shell;
use super::{curves, grid};
use crate::console::{duration, grouped};

/// Everything that there is to say about `runs`.
pub fn document(title: &str, commands: &[String], runs: &[RunData], problems: &[String]) -> Document {
    let groups = groups::groups(runs);
    let mut sections = vec![results(runs, &groups)];
    sections.extend(grid::section(runs, &groups));
    sections.extend(curves::sections(runs, &groups));
    sections.extend(samples(runs));
    sections.extend(settings(runs));
    sections.push(remake(runs));
    let seeds = groups.iter().map(|g| g.members.len()).max().unwrap_or(1);
    let mut lead = if runs.len() == 1 { "One run".to_owned() } else { format!("{} runs", runs.len()) };
    if let [one] = runs {
        let words = [shape(one), summary(one)].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>();
        if !words.is_empty() {
            lead = words.join(", ");
        }
    } else if seeds > 1 {
        lead += &format!(" in {} groups of up to {seeds} seeds", groups.len());
    }
    let data = vec![curves::evaluations(runs), curves::steps(runs), curves::positions(runs)];
    Document {
        title: title.to_owned(),
        lead: lead + ".",
        commands: commands.to_vec(),
        problems: problems.to_vec(),
        sections,
        data: data.into_iter().filter(|t| !t.rows.is_empty()).collect(),
    }
}

/// A perplexity; two digits behind the point, so that columns stand under each other.
pub fn ppl(x: f64) -> String {
    if x.abs() < 1e6 { format!("{x:.2}") } else { format!("{x:.2e}") }
}

fn percent(x: f64) -> String {
    format!("{:.1} %", 100.0 * x)
}

/// What a run's end is called.
fn ending(run: &RunData) -> &str {
    match run.end.as_ref().and_then(|e| e.text("reason")) {
        Some("epochs") => "all epochs done",
        Some("patience") => "no better for a while",
        Some(other) => other,
        None if run.evals.is_empty() && run.steps.is_empty() => "nothing recorded",
        None => "not ended",
    }
}

/// The best possible perplexity on the validation split, where the record knows it.
pub fn best_possible(run: &RunData, split: &str) -> Option<f64> {
    run.start.as_ref()?.inner("best_possible")?.number(split)
}

/// The best possible perplexity as a line to compare `values` with, where all runs share it; where it is so far below them that it would
/// squeeze them, a sentence instead.
pub fn reference(runs: &[RunData], values: impl Iterator<Item = f64>) -> (Vec<(f64, String)>, String) {
    let possible: Vec<f64> = runs.iter().filter_map(|r| best_possible(r, "valid")).collect();
    let Some(&x) = possible.first().filter(|x| possible.len() == runs.len() && possible.iter().all(|p| p == *x)) else {
        return (Vec::new(), String::new());
    };
    if values.fold(f64::INFINITY, f64::min) < 1.5 * x {
        (vec![(x, format!("best possible {}", ppl(x)))], String::new())
    } else {
        (Vec::new(), format!(" The best possible is {}, far below.", ppl(x)))
    }
}

fn results(runs: &[RunData], groups: &[Group]) -> Section {
    let columns = vec![
        Column::words("run", "run"),
        Column::numbers("valid. ppl", "best_valid_ppl"),
        Column::numbers("in epoch", "best_epoch"),
        Column::numbers("at the end", "last_valid_ppl"),
        Column::numbers("test ppl", "test_ppl"),
        Column::numbers("train. ppl", "train_ppl"),
        Column::numbers("best possible", "best_possible_valid_ppl"),
        Column::numbers("above it", "above_best_possible"),
        Column::numbers("residual", "residual_relative"),
        Column::numbers("tokens/s", "tokens_per_s"),
        Column::numbers("time", "seconds"),
        Column::numbers("epochs", "epochs"),
        Column::words("ended", "ended"),
        Column::words("method", "method"),
        Column::words("model", "model"),
        Column::numbers("weights", "parameters"),
    ];
    let whole = |x: f64| grouped(x as u64);
    let rows = runs.iter().map(|run| {
        let (best, last) = (run.best(), run.evals.last());
        let of = |row: Option<&super::read::Row>, key: &str| row.and_then(|r| r.number(key));
        let possible = best_possible(run, "valid");
        let above = possible.zip(run.best_ppl()).map(|(p, x)| x / p - 1.0);
        vec![
            Cell::word(&run.name),
            Cell::number(run.best_ppl(), ppl),
            Cell::number(of(best, "epoch"), whole),
            Cell::number(of(last, "valid_ppl"), ppl),
            Cell::number(of(run.end.as_ref(), "test_ppl"), ppl),
            Cell::number(of(best, "train_ppl"), ppl),
            Cell::number(possible, ppl),
            Cell::number(above, percent),
            Cell::number(of(last, "residual_relative"), percent),
            Cell::number(speed(run), whole),
            Cell::number(of(run.end.as_ref().or(last), "seconds"), duration),
            Cell::number(of(last, "epoch"), whole),
            Cell::word(ending(run)),
            Cell::word(summary(run)),
            Cell::word(shape(run)),
            Cell::number(of(run.start.as_ref(), "parameters"), whole),
        ]
    });
    let mut table = Table {
        name: "results".into(),
        caption: "Perplexities: validation at its best and at the last evaluation; test with the best weights; training is the beginning of the \
                  training text read like the validation text, at the best evaluation. Residual: mean ‖r‖ over mean ‖s‖ in the last epoch. \
                  Tokens/s over the whole run, on the machine and beside the load that there was."
            .into(),
        columns,
        rows: rows.collect(),
    };
    let best: Vec<_> = runs.iter().map(RunData::best_ppl).collect();
    // Lower is better only on one and the same text.
    if same_validation(runs) {
        table.mark_best(1, &best);
    }
    let mut blocks = Vec::new();
    if groups.iter().any(|g| g.members.len() > 1 || runs[g.members[0]].label.is_some()) {
        blocks.push(Block::Table(by_group(runs, groups)));
        blocks.push(Block::Folded("Each run".into(), vec![Block::Table(table.without_empty_columns())]));
    } else {
        blocks.push(Block::Table(table.without_empty_columns()));
    }
    Section { id: "results", title: "Results".into(), blocks }
}

/// Whether all runs read one corpus, as far as their settings tell; more or less of it.
pub fn same_text(runs: &[RunData]) -> bool {
    runs.windows(2).all(|w| w[0].setting("data.source") == w[1].setting("data.source"))
}

/// Whether perplexities of all runs are about one and the same validation text in the same words.
fn same_validation(runs: &[RunData]) -> bool {
    let shapes = |name: &str| name.starts_with("data.") || name.starts_with("synth.");
    !varying(runs).iter().any(|v| shapes(&v.name) && v.name != "data.max_tokens")
}

fn by_group(runs: &[RunData], groups: &[Group]) -> Table {
    let spread = |group: &Group, of: &dyn Fn(&RunData) -> Option<f64>| {
        let numbers: Vec<f64> = group.members.iter().filter_map(|&m| of(&runs[m])).collect();
        Spread::of(&numbers)
    };
    let last = |key: &'static str| move |r: &RunData| r.evals.last().and_then(|e| e.number(key));
    let pair = |spread: Option<Spread>, show: &dyn Fn(f64) -> String| {
        let deviation = spread.and_then(|s| s.deviation);
        [Cell::number(spread.map(|s| s.mean), show), Cell::number(deviation, |d| format!("± {}", show(d)))]
    };
    let percent = |x: f64| format!("{:.1} %", 100.0 * x);
    let mut best = Vec::new();
    let rows = groups.iter().map(|group| {
        let first = &runs[group.members[0]];
        let valid = spread(group, &RunData::best_ppl);
        best.push(valid.map(|s| s.mean));
        let mut row = vec![Cell::word(&group.name)];
        row.push(Cell::number(Some(group.members.len() as f64), |n| format!("{n}")));
        row.extend(pair(valid, &ppl));
        row.extend(pair(spread(group, &|r| r.end.as_ref().and_then(|e| e.number("test_ppl"))), &ppl));
        row.extend(pair(spread(group, &|r| r.best().and_then(|e| e.number("train_ppl"))), &ppl));
        row.push(Cell::number(best_possible(first, "valid"), ppl));
        row.push(Cell::number(spread(group, &last("residual_relative")).map(|s| s.mean), percent));
        row.push(Cell::number(spread(group, &speed).map(|s| s.mean), |x| grouped(x as u64)));
        row.extend([Cell::word(shape(first)), Cell::word(summary(first))]);
        row
    });
    let rows = rows.collect();
    let mut table = Table {
        name: "groups".into(),
        caption: "Runs that differ only in train.seed, as mean ± sample deviation over seeds.".into(),
        columns: vec![
            Column::words("group", "group"),
            Column::numbers("seeds", "seeds"),
            Column::numbers("valid. ppl", "best_valid_ppl"),
            Column::numbers("", "best_valid_ppl_deviation"),
            Column::numbers("test ppl", "test_ppl"),
            Column::numbers("", "test_ppl_deviation"),
            Column::numbers("train. ppl", "train_ppl"),
            Column::numbers("", "train_ppl_deviation"),
            Column::numbers("best possible", "best_possible_valid_ppl"),
            Column::numbers("residual", "residual_relative"),
            Column::numbers("tokens/s", "tokens_per_s"),
            Column::words("model", "model"),
            Column::words("method", "method"),
        ],
        rows,
    };
    if same_validation(runs) {
        table.mark_best(2, &best);
    }
    table.without_empty_columns()
}

fn samples(runs: &[RunData]) -> Option<Section> {
    let each: Vec<Block> = runs
        .iter()
        .filter_map(|run| {
            let sample = run.sample.as_ref().filter(|s| !s.trim().is_empty())?;
            Some(Block::Code(printable(&run.name), sample.trim_end().to_owned()))
        })
        .take(24)
        .collect();
    if each.is_empty() {
        return None;
    }
    let mut blocks =
        vec![Block::Text("Drawn from the best weights of each run, after a line end, at temperature 1.".into())];
    blocks.extend(each);
    Some(Section { id: "text", title: "What the models write".into(), blocks })
}

fn settings(runs: &[RunData]) -> Option<Section> {
    if runs.iter().all(|r| r.settings.is_empty()) {
        return None;
    }
    let mut blocks = Vec::new();
    let varying = varying(runs);
    if runs.len() > 1 {
        if varying.is_empty() {
            blocks.push(Block::Text("The runs do not differ in any setting that shapes their numbers.".into()));
        } else {
            let mut columns = vec![Column::words("run", "run")];
            columns.extend(varying.iter().map(|v| Column {
                title: v.name.clone(),
                key: v.name.clone(),
                numeric: v.numeric,
            }));
            let rows = runs.iter().map(|run| {
                let cells = varying.iter().map(|v| Cell::word(value(run, &v.name).unwrap_or("–")));
                std::iter::once(Cell::word(&run.name)).chain(cells).collect()
            });
            blocks.push(Block::Table(Table {
                name: "differences".into(),
                caption: "Settings in which the runs differ; – where a setting means nothing for a run. Threads, checkpoints and where data lie are left out."
                    .into(),
                columns,
                rows: rows.collect(),
            }));
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in runs.iter().flat_map(|r| &r.settings) {
        if !names.contains(&name.as_str()) && !varying.iter().any(|v| v.name == *name) {
            names.push(name);
        }
    }
    let rows = names.iter().filter(|n| !harmless(n)).filter_map(|name| {
        let text = runs.iter().find_map(|r| value(r, name))?;
        Some(vec![Cell::word(*name), Cell::word(text)])
    });
    let table = Table {
        name: "settings".into(),
        caption: String::new(),
        columns: vec![Column::words("setting", "setting"), Column::words("value", "value")],
        rows: rows.collect(),
    };
    let title = if runs.len() == 1 { "All settings" } else { "Settings that all runs share" };
    blocks.push(Block::Folded(title.into(), vec![Block::Table(table)]));
    Some(Section { id: "settings", title: "Settings".into(), blocks })
}

/// Commands that make each run again.
fn remake(runs: &[RunData]) -> Section {
    let text = "Each command makes a run again, with the same numbers up to the last bit where the corpus is the same; settings at their \
                defaults are left out, as are threads, checkpoints and where data lie.";
    let lines: Vec<String> = runs.iter().map(command).collect();
    let listing = Block::Code("Runs".into(), lines.join("\n"));
    let blocks = if runs.len() > 12 {
        vec![Block::Text(text.into()), Block::Folded(format!("{} commands", runs.len()), vec![listing])]
    } else {
        vec![Block::Text(text.into()), listing]
    };
    Section { id: "commands", title: "Commands".into(), blocks }
}

/// The command line that makes a run again.
pub fn command(run: &RunData) -> String {
    let mut words = vec!["tprop train".to_owned()];
    match &run.resolved {
        Some(settings) => {
            // One share is what a process alone has.
            let alone = |n: &str, v: &str| n == "cluster.shares" && v == "1";
            let told = |(n, v): &&(&str, String)| !(harmless(n) || alone(n, v));
            words.extend(settings.spelt().iter().filter(told).map(|(n, v)| shell(&format!("{n}={v}"))))
        }
        None => words.push(format!("--config {}", shell(&run.dir.join("settings.toml").to_string_lossy()))),
    }
    if let Some(from) = run.start.as_ref().and_then(|s| s.text("from")) {
        words.push(format!("--from {}", shell(from)));
    }
    words.push(format!("--run {}", shell(&run.name)));
    words.join(" ")
}
