//! What a cluster would give: the time of a pass on R ranks from a few measured rates and the sizes of everything that travels.
//!
//! ```text
//! T(R) = U · ( t_token · n_max(R) + t_serial · n + t_update + reduction(R) + boundaries(R) + lists(R) )
//!
//! U            windows (or, in batch mode, updates) of a pass            n         tokens of one
//! n_max(R)     tokens of the rank with most shares                       t_serial  what ranks do one after the other (init=sequential)
//! reduction    2 ℓ + messages · o + (nodes + 1) · |θ| · (R−1)/R / bandwidth + t_value · (nodes + 2) · |θ|
//! boundaries   exchanges · (ℓ + o + S · width / bandwidth)               ℓ latency, o the processor's time for a message
//! lists        ⌈log₂ R⌉ · (ℓ + o) each
//! ```
//!
//! Nothing is taken off for what travels while the ranks compute, so the prediction is on the careful side. docs/cluster.md counts
//! the messages.

use std::collections::HashSet;

use serde::Serialize;
use tprop::clock::Part;
use tprop::comm::{InShares, Shares, Solo, Unit, share};
use tprop::kernel;
use tprop::method::{Batch, MethodConfig, Outline};
use tprop::model::Model;
use tprop::real::Real;
use tprop::train::{Data, TrainConfig, Trainer};

use crate::failure::Outcome;
use crate::measure::{self, Until, measure, update};

/// What connects the ranks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Network {
    /// Bytes a second, each way.
    pub bandwidth: f64,
    /// Seconds until a short message is there.
    pub latency: f64,
    /// Seconds that a message costs its sender and its receiver.
    pub overhead: f64,
}

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

/// What one window asks of the ranks.
#[derive(Clone, Debug, Serialize)]
pub struct Work {
    /// Windows of a pass.
    pub windows: usize,
    /// Tokens of a window.
    pub tokens: usize,
    /// Blocks or streams, which are dealt into shares.
    pub units: usize,
    /// Shares; more if there are more ranks.
    pub shares: usize,
    /// Groups of the gradient.
    pub groups: usize,
    /// Bytes of a dense gradient, the embedding aside unless it is tied.
    pub dense_bytes: f64,
    /// Bytes of the embedding's touched rows.
    pub sparse_bytes: f64,
    /// Bytes of a boundary's states.
    pub boundary_bytes: f64,
    /// Updates of θ.
    pub reductions: usize,
    /// Boundary vectors that a rank sends.
    pub exchanges: usize,
    /// Lists of sums.
    pub lists: usize,
    /// Ranks take turns in finding the starts.
    pub serial: bool,
}

impl Work {
    /// Of a method over a training split of `tokens` tokens. `text` stands for it: how many words a window touches.
    pub fn new(
        method: &MethodConfig,
        model: &Model<f32>,
        shares: usize,
        tokens: usize,
        text: &[u32],
    ) -> Result<Self, String> {
        let (per_window, windows) = method.windows(tokens.saturating_sub(1) / method.streams());
        let per_update = match method.batch() {
            Batch::Mini { accumulate } => accumulate.min(windows.max(1)),
            Batch::Full => windows,
        };
        let passes = method.passes();
        if per_window == 0 || windows == 0 {
            return Err(format!(
                "{tokens} tokens are less than one window; use more --tokens, or fewer streams or blocks"
            ));
        }
        let (units, boundary, exchanges) = match passes.blocks_are_dealt {
            true => {
                (per_window, method.streams() * model.state_width() * 4, passes.sweeps + 2 * passes.state_moves + 1)
            }
            false => (method.streams(), 0, 0),
        };
        let tokens = per_update * per_window * method.block() * method.streams();
        let shape = model.config();
        let seen = text.iter().take(tokens).collect::<HashSet<_>>().len();
        // A longer window than the text that stands for it touches at most the whole vocabulary.
        let touched = match tokens > text.len() {
            true => shape.vocab.min(seen * tokens / text.len().max(1)),
            false => seen,
        };
        let (all, embed) = (model.shapes().len(), model.shapes().entry(model.embed_id()).range().len());
        let (dense, sparse) = if shape.tied { (all, 0) } else { (all - embed, touched * (shape.embed + 1)) };
        Ok(Self {
            windows: windows / per_update.max(1),
            tokens,
            units,
            shares,
            groups: model.groups().len(),
            dense_bytes: dense as f64 * 4.0,
            sparse_bytes: sparse as f64 * 4.0,
            boundary_bytes: boundary as f64,
            reductions: passes.theta_passes,
            exchanges,
            lists: 1 + if passes.moves_are_measured { passes.state_moves } else { 0 },
            serial: passes.sequential,
        })
    }

    /// What the busiest of so many ranks has to do: tokens, nodes of the tree, sums of shares that it makes by itself. None if there
    /// is not enough for all.
    fn busiest(&self, ranks: usize) -> Option<(usize, usize, usize)> {
        if ranks > self.units {
            return None;
        }
        let tokens = |units: usize| (self.tokens as f64 * units as f64 / self.units as f64) as usize;
        if ranks >= self.shares {
            // One share a rank.
            return Some((tokens(self.units.div_ceil(ranks)), 1, 0));
        }
        let deal = Shares::deal(&InShares::new(Solo, self.shares), self.units, Unit::Blocks).ok()?;
        if deal.count() < ranks {
            return None;
        }
        let units = |rank: usize| share(deal.count(), rank, ranks).map(|i| deal.of(i).len()).sum::<usize>();
        let most = (0..ranks).map(units).max()?;
        let nodes = (0..ranks).map(|rank| deal.nodes_among(rank, ranks).len()).max()?;
        Some((tokens(most), nodes, share(deal.count(), 0, ranks).len() - 1))
    }
}

/// One line of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Number of ranks.
    pub ranks: usize,
    /// Seconds of a pass.
    pub seconds: f64,
    /// Of these: computing, what ranks do in turn, updating θ, reducing ∂θ, exchanging boundaries and lists.
    pub compute: f64,
    /// See [`Row::compute`].
    pub serial: f64,
    /// See [`Row::compute`].
    pub update: f64,
    /// See [`Row::compute`].
    pub reduction: f64,
    /// See [`Row::compute`].
    pub boundaries: f64,
    /// What the busiest rank sends in a pass.
    pub bytes: f64,
    /// In so many messages.
    #[serde(rename = "letters")]
    pub messages: f64,
    /// How many times as fast as one rank.
    pub speed_up: f64,
}

/// The plan for so many ranks; nothing if there are too few blocks for them.
pub fn predict(work: &Work, rates: &Rates, network: &Network, ranks: usize) -> Option<Row> {
    let one = row(work, rates, network, 1)?;
    let row = row(work, rates, network, ranks)?;
    Some(Row { speed_up: one.seconds / row.seconds, ..row })
}

fn row(work: &Work, rates: &Rates, network: &Network, ranks: usize) -> Option<Row> {
    let (tokens, nodes, merges) = work.busiest(ranks)?;
    let Network { bandwidth, latency, overhead } = *network;
    let (windows, reductions) = (work.windows as f64, work.reductions as f64);
    let (others, nodes) = ((ranks - 1) as f64, nodes as f64);
    // A rank alone sends nothing.
    let several = f64::from(u8::from(ranks > 1));

    let gradient = work.dense_bytes + work.sparse_bytes;
    let bytes = (nodes + 1.0) * gradient * others / ranks as f64;
    let messages = 2.0 * others * work.groups as f64;
    let wire = several * 2.0 * latency + messages * overhead + bytes / bandwidth;
    // Along the tree and back: shares of this rank are added up as well, alone or not.
    let adding = merges as f64 + several * (nodes + 2.0);
    let reduction = reductions * (wire + rates.seconds_per_byte * gradient * adding);

    let vectors = several * work.exchanges as f64;
    let lists = several * (ranks as f64).log2().ceil() * (work.lists as f64 + 1.0);
    let turns = if work.serial { others * (latency + overhead) } else { 0.0 };
    let vector = work.boundary_bytes / bandwidth;
    let boundaries = vectors * (latency + overhead + vector) + lists * (latency + overhead) + turns;

    let compute = rates.seconds_per_token * tokens as f64;
    let serial = if work.serial { rates.serial_seconds_per_token * work.tokens as f64 } else { 0.0 };
    let update = rates.seconds_per_update * reductions;
    Some(Row {
        ranks,
        seconds: windows * (compute + serial + update + reduction + boundaries),
        compute: windows * compute,
        serial: windows * serial,
        update: windows * update,
        reduction: windows * reduction,
        boundaries: windows * boundaries,
        bytes: windows * (reductions * bytes + vectors * work.boundary_bytes),
        messages: windows * (reductions * messages + vectors + lists),
        speed_up: 1.0,
    })
}

/// The number of ranks from which on more of them make a pass slower, to about one in twenty.
pub fn turning_point(work: &Work, rates: &Rates, network: &Network) -> Option<Row> {
    let numbers = std::iter::successors(Some(1), |&n: &usize| Some((n + 1).max(n + n / 20)));
    let rows = numbers.take_while(|&n| n <= work.units).filter_map(|ranks| predict(work, rates, network, ranks));
    rows.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

/// Tokens of a calibration's text, unless a single window has more.
const MOST: usize = 16_000;
/// It takes the best of this many rounds, of this many seconds or an update.
const ROUNDS: usize = 6;
const SECONDS: f64 = 0.3;

/// Measures the rates of this machine for some seconds each, on at most `tokens` tokens.
pub fn calibrate(config: &TrainConfig, model: &Model<f32>, work: &Work, tokens: usize) -> Outcome<Rates> {
    let (total, seconds_per_update) = pace(config, model, work.shares, tokens)?;
    let mut serial = 0.0;
    if work.serial {
        let other = TrainConfig { method: config.method.without_turns(), ..config.clone() };
        serial = (total - pace(&other, model, work.shares, tokens)?.0).clamp(0.0, total);
    }
    let values = vec![1.0f32; 1 << 20];
    let (mut sum, mut read) = (values.clone(), values.clone());
    let bytes = size_of_val(&values[..]);
    let exchange = measure(0, Until::Times(5), || {
        let mut message = Vec::with_capacity(bytes);
        f32::write_le(&values, &mut message);
        f32::read_le(&message, &mut read);
        kernel::add(&mut sum, &read);
        Ok(0)
    })?;
    Ok(Rates {
        seconds_per_token: total - serial,
        serial_seconds_per_token: serial,
        seconds_per_update,
        seconds_per_byte: exchange.best() / bytes as f64,
    })
}

/// Seconds per token, the updates of θ aside, and seconds per update.
fn pace(config: &TrainConfig, model: &Model<f32>, shares: usize, tokens: usize) -> Outcome<(f64, f64)> {
    let text = measure::text(tokens.min(MOST.max(config.method.least_tokens())), model.config().vocab);
    let comm = InShares::new(Solo, shares);
    let mut trainer = Trainer::new(model, Data::new(&text, &[], &[]), config.clone(), &comm)?;
    // The first update allocates and, in batch mode, looks for the states.
    update(&mut trainer)?;
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        trainer.clock().reset();
        let round = measure(0, Until::Seconds(SECONDS), || update(&mut trainer))?;
        let optimiser = trainer.clock().seconds(Part::Optimiser);
        best.0 = best.0.min((round.total() - optimiser) / round.tokens as f64);
        best.1 = best.1.min(optimiser / round.seconds.len() as f64);
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> Work {
        Work {
            windows: 2,
            tokens: 96_000,
            units: 4800,
            shares: 12,
            groups: 3,
            dense_bytes: 4e6,
            sparse_bytes: 1e6,
            boundary_bytes: 800.0,
            reductions: 1,
            exchanges: 5,
            lists: 1,
            serial: false,
        }
    }

    const RATES: Rates = Rates {
        seconds_per_token: 1e-4,
        serial_seconds_per_token: 1e-6,
        seconds_per_update: 0.01,
        seconds_per_byte: 1e-10,
    };
    const NETWORK: Network = Network { bandwidth: 1e9, latency: 2e-5, overhead: 5e-6 };

    #[test]
    fn one_rank_computes_and_updates_only() {
        let row = predict(&work(), &RATES, &NETWORK, 1).unwrap();
        assert_eq!((row.bytes, row.messages, row.boundaries, row.speed_up), (0.0, 0.0, 0.0, 1.0));
        // Two windows: 9.6 s of tokens and 10 ms of updating each, and 11 sums of shares.
        let adding = 11.0 * 5e6 * 1e-10;
        assert!((row.seconds - 2.0 * (9.6 + 0.01 + adding)).abs() < 1e-9, "{row:?}");
    }

    #[test]
    fn two_ranks_send_their_gradient_once_and_the_sum_once() {
        let row = predict(&work(), &RATES, &NETWORK, 2).unwrap();
        assert!((row.bytes - 2.0 * ((1.0 + 1.0) * 5e6 / 2.0 + 5.0 * 800.0)).abs() < 1e-6, "{row:?}");
        assert_eq!(row.messages, 2.0 * (2.0 * 3.0 + 5.0 + 2.0));
        assert!((row.compute - 9.6).abs() < 1e-9);
        assert!(row.speed_up > 1.9 && row.speed_up < 2.0, "{row:?}");
    }

    #[test]
    fn more_ranks_help_until_they_do_not() {
        let best = turning_point(&work(), &RATES, &NETWORK).unwrap();
        assert!(best.ranks > 12, "{best:?}");
        let slow = Network { bandwidth: 1e6, ..NETWORK };
        assert_eq!(turning_point(&work(), &RATES, &slow).unwrap().ranks, 1);
        assert_eq!(predict(&work(), &RATES, &NETWORK, 4801), None);
        let serial = Work { serial: true, ..work() };
        let row = predict(&serial, &RATES, &NETWORK, 1024).unwrap();
        assert!(row.serial > 2.0 * 0.09 && row.speed_up < 1024.0 / 2.0, "{row:?}");
    }
}
