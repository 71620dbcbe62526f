//! The tables of a report, and the order of its parts.

use std::collections::HashSet;

use tprop::vocab::printable;

use crate::comparison;
use crate::curves;
use crate::document::{Block, Document, Section};
use crate::groups::{self, Group, best_possible, shape, summary, varying};
use crate::numbers::{Spread, duration, grouped, percent, ppl};
use crate::record::Numbers;
use crate::run::RunData;
use crate::table::{Field, Table, numbers, words};
use crate::text::shell;

/// Everything that there is to say about `runs`.
pub fn document(title: &str, commands: &[String], runs: &[RunData], problems: &[String]) -> Document {
    let groups = groups::groups(runs);
    let mut sections = vec![results(runs, &groups)];
    sections.extend(comparison::section(runs, &groups));
    sections.extend(curves::sections(runs, &groups));
    sections.extend(samples(runs));
    sections.extend(settings(runs));
    sections.push(remake(runs));
    let seeds = groups.iter().map(|g| g.runs.len()).max().unwrap_or(1);
    let mut lead = if runs.len() == 1 { "One run".to_owned() } else { format!("{} runs", runs.len()) };
    if let [one] = runs {
        let words = [shape(one), summary(one)].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>();
        if !words.is_empty() {
            lead = words.join(", ");
        }
    } else if seeds > 1 {
        lead += &format!(" in {} groups of up to {seeds} seeds", groups.len());
    }
    Document {
        title: title.to_owned(),
        lead: lead + ".",
        commands: commands.to_vec(),
        problems: problems.to_vec(),
        sections,
        data: curves::tables(runs),
    }
}

/// What a run's end is called.
fn ending(run: &RunData) -> String {
    let why = match run.record.end.as_ref().map(|e| e.reason.as_str()) {
        Some("epochs") => "all epochs done",
        Some("patience") => "no better for a while",
        Some(other) => other,
        None if run.record.evals.is_empty() && run.record.steps.is_empty() => "nothing recorded",
        None => "not ended",
    };
    why.to_owned()
}

fn whole(x: f64) -> String {
    grouped(x as u64)
}

/// A number of the best evaluation, and one of the last.
fn at_best(run: &RunData, name: &str) -> Option<f64> {
    run.record.best(None)?.number(name)
}

fn at_last(run: &RunData, name: &str) -> Option<f64> {
    run.record.evals.last()?.number(name)
}

fn test_ppl(run: &RunData) -> Option<f64> {
    run.record.end.as_ref()?.test_ppl
}

fn results(runs: &[RunData], groups: &[Group<'_>]) -> Section {
    let above = |r: &RunData| Some(r.best_ppl()? / best_possible(r)? - 1.0);
    let time = |r: &RunData| r.record.end.as_ref().map(|e| e.seconds).or_else(|| at_last(r, "seconds"));
    let weights = |r: &RunData| r.record.start.as_ref().map(|s| s.parameters as f64);
    let fields = vec![
        words("run", "run", |r: &RunData| r.name.clone()),
        numbers("valid. ppl", "best_valid_ppl", RunData::best_ppl, ppl),
        numbers("in epoch", "best_epoch", |r| at_best(r, "epoch"), whole),
        numbers("at the end", "last_valid_ppl", |r| at_last(r, "valid_ppl"), ppl),
        numbers("test ppl", "test_ppl", test_ppl, ppl),
        numbers("train. ppl", "train_ppl", |r| at_best(r, "train_ppl"), ppl),
        numbers("best possible", "best_possible_valid_ppl", best_possible, ppl),
        numbers("above it", "above_best_possible", above, percent),
        numbers("residual", "residual_relative", |r| at_last(r, "residual_relative"), percent),
        numbers("tokens/s", "tokens_per_s", |r: &RunData| r.record.speed(), whole),
        numbers("time", "seconds", time, duration),
        numbers("epochs", "epochs", |r| at_last(r, "epoch"), whole),
        words("ended", "ended", ending),
        words("method", "method", summary),
        words("model", "model", shape),
        numbers("weights", "parameters", weights, whole),
    ];
    let caption = "Perplexities: validation at its best and at the last evaluation; test with the best weights; training is the beginning of the \
                   training text read like the validation text, at the best evaluation. Residual: mean ‖r‖ over mean ‖s‖ in the last epoch. \
                   Tokens/s over the whole run, on the machine and beside the load that there was.";
    let mut table = Table::of("results", caption, fields, runs);
    // Lower is better only on one and the same text.
    if same_validation(runs) {
        table.mark_best(1);
    }
    let table = Block::Table(table.without_empty_columns());
    let several = groups.iter().any(|g| g.runs.len() > 1 || g.first().label.is_some());
    let blocks = match several {
        true => vec![Block::Table(by_group(runs, groups)), Block::Folded("Each run".into(), vec![table])],
        false => vec![table],
    };
    Section { id: "results", title: "Results".into(), blocks }
}

/// Whether perplexities of all runs are about one and the same validation text in the same words.
fn same_validation(runs: &[RunData]) -> bool {
    let shapes = |name: &str| name.starts_with("data.") || name.starts_with("synth.");
    !varying(runs).iter().any(|v| shapes(&v.name) && v.name != "data.max_tokens")
}

/// Mean and deviation of a perplexity over the seeds, as two columns.
fn mean_and_deviation<'a>(
    title: &str,
    key: &str,
    of: impl Fn(&RunData) -> Option<f64> + Copy + 'a,
) -> [Field<'a, Group<'a>>; 2] {
    let deviation = move |g: &Group<'_>| g.spread(of).and_then(|s: Spread| s.deviation);
    [
        numbers(title, key, move |g: &Group<'_>| g.spread(of).map(|s| s.mean), ppl),
        numbers("", &format!("{key}_deviation"), deviation, |d| format!("± {}", ppl(d))),
    ]
}

fn by_group(runs: &[RunData], groups: &[Group<'_>]) -> Table {
    let mean = |of: fn(&RunData) -> Option<f64>| move |g: &Group<'_>| g.spread(of).map(|s| s.mean);
    let mut fields = vec![
        words("group", "group", |g: &Group<'_>| g.name.clone()),
        numbers("seeds", "seeds", |g: &Group<'_>| Some(g.runs.len() as f64), |n| format!("{n}")),
    ];
    fields.extend(mean_and_deviation("valid. ppl", "best_valid_ppl", RunData::best_ppl));
    fields.extend(mean_and_deviation("test ppl", "test_ppl", test_ppl));
    fields.extend(mean_and_deviation("train. ppl", "train_ppl", |r| at_best(r, "train_ppl")));
    fields.extend([
        numbers("best possible", "best_possible_valid_ppl", |g: &Group<'_>| best_possible(g.first()), ppl),
        numbers("residual", "residual_relative", mean(|r| at_last(r, "residual_relative")), percent),
        numbers("tokens/s", "tokens_per_s", mean(|r| r.record.speed()), whole),
        words("model", "model", |g: &Group<'_>| shape(g.first())),
        words("method", "method", |g: &Group<'_>| summary(g.first())),
    ]);
    let caption = "Runs that differ only in train.seed, as mean ± sample deviation over seeds.";
    let mut table = Table::of("groups", caption, fields, groups);
    if same_validation(runs) {
        table.mark_best(2);
    }
    table.without_empty_columns()
}

fn samples(runs: &[RunData]) -> Option<Section> {
    let each = runs.iter().filter_map(|run| {
        let sample = run.sample.as_ref().filter(|s| !s.trim().is_empty())?;
        Some(Block::Code(printable(&run.name), sample.trim_end().to_owned()))
    });
    let each: Vec<Block> = each.take(24).collect();
    if each.is_empty() {
        return None;
    }
    let text = "Drawn from the best weights of each run, after a line end, at temperature 1.";
    let blocks = std::iter::once(Block::Text(text.into())).chain(each).collect();
    Some(Section { id: "text", title: "What the models write".into(), blocks })
}

fn settings(runs: &[RunData]) -> Option<Section> {
    if runs.iter().all(|r| r.settings.is_empty()) {
        return None;
    }
    let mut blocks = Vec::new();
    let varying = varying(runs);
    if runs.len() > 1 && varying.is_empty() {
        blocks.push(Block::Text("The runs do not differ in any setting that shapes their numbers.".into()));
    } else if runs.len() > 1 {
        let value = |run: &RunData, name: &str| run.value(name).unwrap_or("–").to_owned();
        let mut fields = vec![words("run", "run", |r: &RunData| r.name.clone())];
        fields.extend(varying.iter().map(|v| words(&v.name, &v.name, move |r: &RunData| value(r, &v.name))));
        let caption = "Settings in which the runs differ; – where a setting means nothing for a run. Threads, checkpoints and where data lie are left out.";
        let mut table = Table::of("differences", caption, fields, runs);
        table.columns[1..].iter_mut().zip(&varying).for_each(|(column, v)| column.numeric = v.numeric);
        blocks.push(Block::Table(table));
    }
    let mut seen: HashSet<&str> = varying.iter().map(|v| v.name.as_str()).collect();
    let others = runs.iter().flat_map(|r| &r.settings).filter(|s| s.shapes && seen.insert(&s.name));
    let shared = others.filter_map(|s| Some((s.name.as_str(), runs.iter().find_map(|r| r.value(&s.name))?)));
    let shared: Vec<(&str, &str)> = shared.collect();
    type Pair<'a> = (&'a str, &'a str);
    let fields = vec![
        words("setting", "setting", |pair: &Pair<'_>| pair.0.to_owned()),
        words("value", "value", |pair: &Pair<'_>| pair.1.to_owned()),
    ];
    let table = Table::of("settings", "", fields, &shared);
    let title = if runs.len() == 1 { "All settings" } else { "Settings that all runs share" };
    blocks.push(Block::Folded(title.into(), vec![Block::Table(table)]));
    Some(Section { id: "settings", title: "Settings".into(), blocks })
}

/// Commands that make each run again.
fn remake(runs: &[RunData]) -> Section {
    let text = "Each command makes a run again, with the same numbers up to the last bit where the corpus is the same; settings at their \
                defaults are left out, as are threads, checkpoints and where data lie.";
    let lines: Vec<String> = runs.iter().map(command).collect();
    let mut listing = Block::Code("Runs".into(), lines.join("\n"));
    if runs.len() > 12 {
        listing = Block::Folded(format!("{} commands", runs.len()), vec![listing]);
    }
    Section { id: "commands", title: "Commands".into(), blocks: vec![Block::Text(text.into()), listing] }
}

/// The command line that makes a run again.
fn command(run: &RunData) -> String {
    let mut words = vec!["tprop train".to_owned()];
    match &run.words {
        Some(settings) => words.extend(settings.iter().map(|word| shell(word))),
        None => words.push(format!("--config {}", shell(&run.dir.join("settings.toml").to_string_lossy()))),
    }
    if let Some(from) = run.record.start.as_ref().and_then(|s| s.from.as_ref()) {
        words.push(format!("--from {}", shell(from)));
    }
    words.push(format!("--run {}", shell(&run.name)));
    words.join(" ")
}
