//! What a cluster would give: the time of a pass on R ranks from a few measured rates and the sizes of everything that travels.
//!
//! ```text
//! T(R) = U · ( t_token · n_max(R) + t_serial · n + t_update + reduction(R) + boundaries(R) + lists(R) )
//!
//! U            windows (or, in batch mode, updates) of a pass            n         tokens of one
//! n_max(R)     tokens of the rank with most shares                       t_serial  what ranks do one after the other (init=sequential)
//! reduction    2 ℓ + letters · o + (nodes + 1) · |θ| · (R−1)/R / bandwidth + t_value · (nodes + 2) · |θ|
//! boundaries   exchanges · (ℓ + o + S · width / bandwidth)               ℓ latency, o the processor's time for a letter
//! lists        ⌈log₂ R⌉ · (ℓ + o) each
//! ```
//!
//! Nothing is taken off for what travels while the ranks compute, so the prediction is on the careful side.

mod calibrate;
mod work;

pub use calibrate::{Rates, calibrate, measure, text};
pub use work::Work;

use serde::Serialize;

/// What connects the ranks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Network {
    /// Bytes a second, each way.
    pub bandwidth: f64,
    /// Seconds until a short letter is there.
    pub latency: f64,
    /// Seconds that a letter costs its sender and its receiver.
    pub overhead: f64,
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
    /// In so many letters.
    pub letters: f64,
    /// How many times as fast as one rank.
    pub speed_up: f64,
}

/// The plan for so many ranks; nothing if there are too few blocks for them.
pub fn predict(work: &Work, rates: &Rates, network: &Network, ranks: usize) -> Option<Row> {
    let one = row(work, rates, network, 1)?;
    let mut row = row(work, rates, network, ranks)?;
    row.speed_up = one.seconds / row.seconds;
    Some(row)
}

fn row(work: &Work, rates: &Rates, network: &Network, ranks: usize) -> Option<Row> {
    let dealt = work.dealt(ranks)?;
    let Network { bandwidth, latency, overhead } = *network;
    let windows = work.windows as f64;
    let alone = ranks == 1;
    let others = (ranks - 1) as f64;
    let rounds = (ranks as f64).log2().ceil();

    let gradient = work.dense_bytes + work.sparse_bytes;
    let bytes = (dealt.nodes as f64 + 1.0) * gradient * others / ranks as f64;
    let letters = 2.0 * others * work.groups as f64;
    let wire = if alone { 0.0 } else { 2.0 * latency + letters * overhead + bytes / bandwidth };
    // Along the tree and back: shares of this rank are added up as well, alone or not.
    let adding = dealt.merges as f64 + if alone { 0.0 } else { dealt.nodes as f64 + 2.0 };
    let reduction = work.reductions as f64 * (wire + rates.seconds_per_byte * gradient * adding);

    let vectors = if alone { 0.0 } else { work.exchanges as f64 };
    let lists = if alone { 0.0 } else { rounds * (work.lists as f64 + 1.0) };
    let vector = work.boundary_bytes / bandwidth;
    let turns = if work.serial { others * (latency + overhead) } else { 0.0 };
    let boundaries = vectors * (latency + overhead + vector) + lists * (latency + overhead) + turns;

    let compute = rates.seconds_per_token * dealt.tokens as f64;
    let serial = if work.serial { rates.serial_seconds_per_token * work.tokens as f64 } else { 0.0 };
    let update = rates.seconds_per_update * work.reductions as f64;
    Some(Row {
        ranks,
        seconds: windows * (compute + serial + update + reduction + boundaries),
        compute: windows * compute,
        serial: windows * serial,
        update: windows * update,
        reduction: windows * reduction,
        boundaries: windows * boundaries,
        bytes: windows * (work.reductions as f64 * bytes + vectors * work.boundary_bytes),
        letters: windows * (work.reductions as f64 * letters + vectors + lists),
        speed_up: 1.0,
    })
}

/// The number of ranks from which on more of them make a pass slower, to about one in twenty.
pub fn turning_point(work: &Work, rates: &Rates, network: &Network) -> Option<Row> {
    let numbers = std::iter::successors(Some(1), |&n: &usize| Some((n + 1).max(n + n / 20)));
    let rows = numbers.take_while(|&n| n <= work.things).filter_map(|ranks| predict(work, rates, network, ranks));
    rows.min_by(|a, b| a.seconds.total_cmp(&b.seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work() -> Work {
        Work {
            windows: 2,
            tokens: 96_000,
            things: 4800,
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
        assert_eq!((row.bytes, row.letters, row.boundaries, row.speed_up), (0.0, 0.0, 0.0, 1.0));
        // Two windows: 9.6 s of tokens and 10 ms of updating each, and 11 sums of shares.
        let adding = 11.0 * 5e6 * 1e-10;
        assert!((row.seconds - 2.0 * (9.6 + 0.01 + adding)).abs() < 1e-9, "{row:?}");
    }

    #[test]
    fn two_ranks_send_their_gradient_once_and_the_sum_once() {
        let row = predict(&work(), &RATES, &NETWORK, 2).unwrap();
        assert!((row.bytes - 2.0 * ((1.0 + 1.0) * 5e6 / 2.0 + 5.0 * 800.0)).abs() < 1e-6, "{row:?}");
        assert_eq!(row.letters, 2.0 * (2.0 * 3.0 + 5.0 + 2.0));
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
