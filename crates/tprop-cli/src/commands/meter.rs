//! `meter`: how far a method's gradient is from the exact one.

use tprop::meter::{ALL, CELL_AND_EMBEDDING, Measured, MeterConfig, MeterError, Nearness, Row, measure};
use tprop::method::{BpttConfig, Outline};
use tprop::model::Model;
use tprop::params::Params;
use tprop::probe::{Probe, ProbeError};
use tprop::train::TrainError;
use tprop_report::table::Table;

use crate::args;
use crate::console::{self, grouped};
use crate::failure::{Failure, Outcome};
use crate::prepare;
use crate::run::{Loaded, Run};
use crate::settings::presets;
use crate::settings::{Settings, Typed};

/// Lags that are shown, in blocks.
const LAGS: [usize; 8] = [0, 1, 2, 4, 8, 16, 32, 63];

/// Measures, and prints what came out.
pub fn meter(args: &args::Meter) -> Outcome {
    let loaded = Loaded::open(&args.weights.run, args.weights.checkpoint.as_deref())?;
    let settings = Run::open(&args.weights.run)?.settings_with(typed(&args.words)?)?;
    check_same_model(&loaded, &settings)?;
    prepare::machine(settings.threads(), settings.simd())?;
    let corpus = prepare::corpus(&settings, args.json)?;
    if corpus.vocab.words() != loaded.vocab.words() {
        return Err(Failure::input(format!("{}: not the text of this run", tprop::vocab::printable(&corpus.name))));
    }
    let config = MeterConfig {
        method: settings.method(),
        window: args.window.map(|n| n as usize),
        windows: args.windows as usize,
        sweeps: args.sweeps as usize,
    };
    // Errors as small as rounding in f32 can be seen, and the run's weights are exact in f64.
    let model = Model::<f64>::new(loaded.model.config().clone());
    let mut params = Params::zeros(model.shapes());
    params.all_mut().iter_mut().zip(loaded.params.all()).for_each(|(to, &from)| *to = f64::from(from));
    check_memory(&config, &model, corpus.train.len())?;
    let probe = Probe { model: &model, params: &params };
    let found = measure(probe, corpus.train.text(), &config).map_err(|error| refusal(error, &settings))?;
    if args.json {
        let mut line = serde_json::to_value(&found).map_err(Failure::input)?;
        line["method"] = settings.text("method").into();
        line["data"] = corpus.name.clone().into();
        line["checkpoint"] = loaded.checkpoint.clone().into();
        return console::line(line);
    }
    let head = format!(
        "{} of {}, {}: {} {} of {} tokens of {} {}\n",
        settings.text("method"),
        args.weights.run.display(),
        loaded.checkpoint,
        found.windows,
        if found.windows == 1 { "window" } else { "windows" },
        grouped(found.window as u64),
        found.streams,
        if found.streams == 1 { "stream" } else { "streams" },
    );
    console::data(&(head + &shown(&found)))
}

/// What was typed. A preset stands for its settings here, because the run's own would hide it; what was typed beside it wins.
fn typed(words: &[String]) -> Outcome<Vec<Typed>> {
    let mut all = Vec::new();
    for word in words {
        let one = Typed::argument(word)
            .ok_or_else(|| Failure::input(format!("{}: settings are key=value", tprop::vocab::printable(word))))?;
        all.push(one);
    }
    let Some(at) = all.iter().position(|one| one.name == "preset") else { return Ok(all) };
    let preset = all.remove(at);
    let Some(found) = presets::find(&preset.text) else {
        // The settings have the sentence for it.
        all.push(preset);
        return Ok(all);
    };
    let hidden: Vec<_> = found.sets.iter().filter(|(name, _)| all.iter().all(|one| one.name != *name)).collect();
    all.extend(hidden.into_iter().map(|(name, text)| Typed::spelt(name, text, &format!("preset={}", found.name))));
    Ok(all)
}

fn check_same_model(loaded: &Loaded, settings: &Settings) -> Outcome {
    if settings.model(loaded.vocab.len()) == *loaded.model.config() {
        return Ok(());
    }
    Err(Failure::input("the weights have the run's own shape: leave out model.*; meter takes settings of the method"))
}

/// The tapes of the whole window are the most that is needed.
fn check_memory(config: &MeterConfig, model: &Model<f64>, tokens: usize) -> Outcome {
    let own = tprop::probe::window(&config.method).unwrap_or(1);
    let window = config.window.unwrap_or(own);
    let exact = BpttConfig { window, streams: config.method.streams(), ..BpttConfig::default() };
    let weights = model.shapes().len() as u64 * 8;
    let logits = model.config().logits_mb as u64 * 1_000_000;
    prepare::check_memory(
        weights
            .saturating_mul(8)
            .saturating_add(logits)
            .saturating_add(exact.bytes(model, tokens, 1).saturating_mul(2)),
    )
}

fn refusal(error: MeterError, settings: &Settings) -> Failure {
    match error {
        MeterError::Probe(ProbeError::Method(error)) => TrainError::Method(error).into(),
        MeterError::Probe(ProbeError::NoGradient) => {
            Failure::input("least squares moves weights by closed forms, not along a gradient; try method=btprop")
        }
        MeterError::Probe(ProbeError::Blocks { tokens, block }) => Failure::input(format!(
            "--window leaves {tokens} tokens, no whole number of blocks of btprop.block={block}; use a multiple of it"
        )),
        MeterError::TooShort { streams, tokens, wanted } => Failure::input(format!(
            "each of train.streams={streams} has {tokens} tokens, but a window needs {wanted}; use fewer streams or a smaller window"
        )),
        MeterError::Probe(ProbeError::NotFinite) => {
            Failure::input(format!("the gradient of method={} is not finite here", settings.text("method")))
        }
    }
}

/// The tables.
fn shown(found: &Measured) -> String {
    let names: Vec<&str> = found.rows[0].groups.iter().map(|g| g.group.as_str()).collect();
    let sweeps = found.rows[0].sweeps.is_some();
    let of = |row: &Row, name: &str| row.groups.iter().find(|g| g.group == name).cloned();
    let mut header = vec![if sweeps { "pull sweeps" } else { "gradient" }.to_owned()];
    header.extend(names.iter().map(|name| format!("error: {name}")));
    header.extend([CELL_AND_EMBEDDING, ALL].map(|name| format!("cosine: {name}")));
    let mut table = Table::new("", header);
    for row in &found.rows {
        let name = match row.sweeps {
            Some(n) if row.own => format!("{n} (the method's own)"),
            Some(n) => n.to_string(),
            None => format!("windows of {}", found.own_window),
        };
        let errors = row.groups.iter().map(|Nearness { error, .. }| small(*error));
        let cosines =
            [CELL_AND_EMBEDDING, ALL].map(|name| of(row, name).map_or(String::new(), |g| format!("{:.5}", g.cosine)));
        table.row(name, errors.chain(cosines));
    }
    let mut text = format!("\nthe gradient against the exact one over {} tokens\n{}", found.window, table.terminal());
    if !sweeps && found.own_window >= found.window {
        text += "the method's own window is the whole one, so it is exact; --window N measures what a shorter one leaves out\n";
    }
    if !found.starts.is_empty() {
        let mut table = Table::new("", ["sweep", "change", "error"]);
        for s in &found.starts {
            table.row(s.sweep.to_string(), [small(s.change), small(s.error)]);
        }
        let used = found.rows.first().map_or(0.0, |row| row.start_sweeps);
        let factor = found.starts_factor.map_or(String::new(), |f| {
            let f = if f < 0.01 { format!("{f:.0e}") } else { format!("{f:.2}") };
            format!("; a sweep multiplies the error by {f}")
        });
        text += &format!("\nthe starts of blocks of {} tokens\n{}", found.block, table.terminal());
        text += &format!("the method took {used:.1} sweeps on average{factor}\n");
    }
    text += &format!("\nlargest Lyapunov exponent {:.4} per step", found.lyapunov);
    if found.lyapunov < 0.0 {
        text += &format!(": half is forgotten in {:.0} tokens", (0.5f64.ln() / found.lyapunov).abs());
    }
    text += "\n";
    let lags: Vec<_> = LAGS.iter().filter_map(|&i| found.lags.get(i)).collect();
    if lags.len() > 1 {
        let mut table = Table::new("", ["lag in tokens", "gradient"]);
        lags.iter().for_each(|lag| table.row(lag.tokens.to_string(), [small(lag.norm)]));
        text += &format!("\nwhat of a block's loss arrives before it\n{}", table.terminal());
    }
    text
}

/// Three digits, whatever the size.
fn small(x: f64) -> String {
    if x == 0.0 || (1e-3..1e4).contains(&x.abs()) { format!("{x:.4}") } else { format!("{x:.1e}") }
}
