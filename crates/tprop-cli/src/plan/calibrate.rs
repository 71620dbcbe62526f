//! Rates of this machine, measured on a random text for a moment.

use std::time::Instant;

use serde::Serialize;
use tprop::clock::Part;
use tprop::comm::{Comm, Counted, InShares, Solo, gather};
use tprop::kernel;
use tprop::method::{Advance, Init, MethodConfig};
use tprop::model::Model;
use tprop::real::Real;
use tprop::rng::Draws;
use tprop::train::{Data, TrainConfig, Trainer};

use super::Work;
use crate::failure::{Failure, Outcome};

/// How fast one rank is.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rates {
    /// All passes over a token, states and θ.
    pub seconds_per_token: f64,
    /// Of the init that ranks do in turn.
    pub serial_seconds_per_token: f64,
    /// Clipping and updating θ once.
    pub seconds_per_update: f64,
    /// Writing, reading and adding one byte of a gradient.
    pub seconds_per_byte: f64,
}

/// What passes took.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Number of ranks.
    pub ranks: usize,
    /// Seconds of each pass.
    pub seconds: Vec<f64>,
    /// What rank 0 sent in one of them.
    pub bytes: u64,
    /// In so many letters.
    pub letters: u64,
}

/// A random text.
pub fn text(tokens: usize, vocab: usize) -> Vec<u32> {
    let draws = Draws::new(1, "plan");
    (0..tokens as u64).map(|i| draws.below(i, vocab as u64) as u32).collect()
}

/// Tokens of a calibration's text, unless a single window has more.
const MOST: usize = 16_000;
/// It takes the best of this many rounds, of this many seconds or an update, because whatever else the machine does only adds time.
const ROUNDS: usize = 6;
const SECONDS: f64 = 0.3;

/// The method without its exact init, if it has one.
fn without_init(method: &MethodConfig) -> Option<MethodConfig> {
    let mut other = method.clone();
    let init = match &mut other {
        MethodConfig::Bptt(_) => return None,
        MethodConfig::Btprop(c) => &mut c.init,
        MethodConfig::LeastSquares(c) => &mut c.init,
    };
    (std::mem::replace(init, Init::Zero) == Init::Sequential).then_some(other)
}

/// Measures the rates for some seconds each.
pub fn calibrate(config: &TrainConfig, model: &Model<f32>, shares: usize, tokens: usize) -> Outcome<Rates> {
    let (total, update) = moment(config, model, shares, tokens)?;
    let mut serial = 0.0;
    if let Some(other) = without_init(&config.method)
        && Work::new(&config.method, model, shares, tokens, &[]).is_ok_and(|work| work.serial)
    {
        let other = TrainConfig { method: other, ..config.clone() };
        serial = (total - moment(&other, model, shares, tokens)?.0).clamp(0.0, total);
    }
    Ok(Rates {
        seconds_per_token: total - serial,
        serial_seconds_per_token: serial,
        seconds_per_update: update,
        seconds_per_byte: byte_rate(),
    })
}

/// Seconds per token, the updates of θ aside, and seconds per update.
fn moment(config: &TrainConfig, model: &Model<f32>, shares: usize, tokens: usize) -> Outcome<(f64, f64)> {
    let text = text(tokens.min(MOST.max(config.method.least_tokens())), model.config().vocab);
    let comm = InShares::new(Solo, shares);
    let data = Data::new(&text, &[], &[]);
    let mut trainer = Trainer::new(model, data, config.clone(), &comm)?;
    // The first update allocates and, in batch mode, looks for the states.
    next(&mut trainer)?;
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        trainer.clock().reset();
        let (since, mut seen, mut updates) = (Instant::now(), 0, 0);
        while updates == 0 || since.elapsed().as_secs_f64() < SECONDS {
            seen += next(&mut trainer)?;
            updates += 1;
        }
        let seconds = since.elapsed().as_secs_f64();
        let update = trainer.clock().seconds(Part::Optimiser);
        best.0 = best.0.min((seconds - update) / seen as f64);
        best.1 = best.1.min(update / f64::from(updates));
    }
    Ok(best)
}

fn next(trainer: &mut Trainer<'_, f32>) -> Outcome<u64> {
    loop {
        match trainer.advance(&mut || false) {
            Advance::Update(update) => return Ok(update.tokens),
            Advance::EpochEnd | Advance::Paused => {}
            Advance::Diverged { .. } => return Err(Failure::input("the steps diverged; use a smaller optim.lr")),
        }
    }
}

/// Seconds for a byte of a gradient to be written, read and added.
fn byte_rate() -> f64 {
    let values = vec![1.0f32; 1 << 20];
    let (mut sum, mut read) = (values.clone(), values.clone());
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let since = Instant::now();
        let mut letter = Vec::with_capacity(size_of_val(&values[..]));
        f32::write_le(&values, &mut letter);
        f32::read_le(&letter, &mut read);
        kernel::add(&mut sum, &read);
        best = best.min(since.elapsed().as_secs_f64());
    }
    best / size_of_val(&values[..]) as f64
}

/// Times whole passes over a random text, on all ranks together.
pub fn measure(
    config: &TrainConfig,
    model: &Model<f32>,
    comm: &dyn Comm,
    tokens: usize,
    passes: usize,
) -> Outcome<Measured> {
    let text = text(tokens, model.config().vocab);
    let data = Data::new(&text, &[], &[]);
    let counted = Counted::new(comm);
    let mut trainer = Trainer::new(model, data, config.clone(), &counted)?;
    let per_pass = trainer.updates_per_epoch();
    let (mut seconds, mut sent) = (Vec::new(), (0, 0));
    for pass in 0..=passes {
        gather(comm, Vec::new());
        counted.take_counts();
        let since = Instant::now();
        for _ in 0..per_pass {
            next(&mut trainer)?;
        }
        // The first pass allocates and looks for the states.
        if pass > 0 {
            seconds.push(since.elapsed().as_secs_f64());
        }
        let counts = counted.take_counts();
        sent = counts.values().fold((0, 0), |sum, count| (sum.0 + count.bytes, sum.1 + count.messages));
    }
    Ok(Measured { ranks: comm.size(), seconds, bytes: sent.0, letters: sent.1 })
}
