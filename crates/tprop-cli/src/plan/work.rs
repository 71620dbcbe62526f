//! What one window asks of the ranks: tokens, bytes, exchanges. Counted as in docs/cluster.md.

use std::collections::HashSet;

use serde::Serialize;
use tprop::comm::{InShares, Shares, Solo, Unit, share};
use tprop::method::{Batch, BtpropConfig, Init, MethodConfig, Solver, Starts};
use tprop::model::Model;

/// What one window asks for.
#[derive(Clone, Debug, Serialize)]
pub struct Work {
    /// Windows of a pass.
    pub windows: usize,
    /// Tokens of a window.
    pub tokens: usize,
    /// Blocks or streams, which are dealt into shares.
    pub things: usize,
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

/// The rank with most to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealt {
    /// Its tokens.
    pub tokens: usize,
    /// Its nodes of the tree.
    pub nodes: usize,
    /// Sums of shares that it makes by itself.
    pub merges: usize,
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
        let shape = model.config();
        let groups = model.groups().len();
        let embed = model.plan().entry(model.embed_id()).range().len();
        let all = model.plan().len();
        let (windows, per_window, things, exchanges, lists, reductions, serial, streams) = match method {
            MethodConfig::Bptt(c) => {
                let windows = tokens.saturating_sub(1) / c.streams / c.window;
                let per = match c.batch {
                    Batch::Mini { accumulate } => accumulate.min(windows.max(1)),
                    Batch::Full => windows,
                };
                (windows / per.max(1), per * c.streams * c.window, c.streams, 0, 1, 1, false, 0)
            }
            MethodConfig::Btprop(c) => btprop(c, tokens),
            MethodConfig::LeastSquares(c) => btprop(&c.as_btprop(), tokens),
        };
        if windows == 0 {
            return Err(format!(
                "{tokens} tokens are less than one window; use more --tokens, or fewer streams or blocks"
            ));
        }
        let seen: HashSet<u32> = text.iter().copied().take(per_window).collect();
        // A longer window than the text that stands for it touches at most the whole vocabulary.
        let touched = if per_window > text.len() {
            shape.vocab.min(seen.len() * per_window / text.len().max(1))
        } else {
            seen.len()
        };
        let (dense, sparse) = if shape.tied { (all, 0) } else { (all - embed, touched * (shape.embed + 1)) };
        Ok(Self {
            windows,
            tokens: per_window,
            things,
            shares,
            groups,
            dense_bytes: dense as f64 * 4.0,
            sparse_bytes: sparse as f64 * 4.0,
            boundary_bytes: (streams * model.state_width() * 4) as f64,
            reductions,
            exchanges,
            lists,
            serial,
        })
    }

    /// What the busiest of so many ranks gets; nothing if there is not enough for all.
    pub fn dealt(&self, ranks: usize) -> Option<Dealt> {
        if ranks > self.things {
            return None;
        }
        let tokens = |things: usize| (self.tokens as f64 * things as f64 / self.things as f64) as usize;
        if ranks >= self.shares {
            // One share a rank.
            return Some(Dealt { tokens: tokens(self.things.div_ceil(ranks)), nodes: 1, merges: 0 });
        }
        let deal = Shares::deal(&InShares::new(Solo, self.shares), self.things, Unit::Blocks).ok()?;
        if deal.count() < ranks {
            return None;
        }
        let things = |rank: usize| share(deal.count(), rank, ranks).map(|i| deal.of(i).len()).sum::<usize>();
        let most = (0..ranks).map(things).max()?;
        let nodes = (0..ranks).map(|rank| deal.nodes_among(rank, ranks).len()).max()?;
        let own = share(deal.count(), 0, ranks).len();
        Some(Dealt { tokens: tokens(most), nodes, merges: own - 1 })
    }
}

type Counts = (usize, usize, usize, usize, usize, usize, bool, usize);

/// Windows, tokens of one, blocks, exchanges, lists, updates, whether ranks take turns, streams.
fn btprop(c: &BtpropConfig, tokens: usize) -> Counts {
    let length = tokens.saturating_sub(1) / c.streams;
    let (blocks, windows) = match c.batch {
        Batch::Full => (length / c.block, usize::from(length >= c.block)),
        Batch::Mini { .. } => (c.blocks, length / (c.block * c.blocks)),
    };
    let (moves, reductions) = match c.solver {
        Solver::Alm { joint_steps, .. } => (joint_steps, joint_steps),
        _ => (c.states.steps, c.theta_steps),
    };
    // In batch mode moving states persist, so that only the first pass looks for them.
    let looks = c.batch != Batch::Full || c.starts == Starts::Held;
    let sweeps = match c.init {
        Init::Parallel { sweeps } | Init::Stored { sweeps } if looks => sweeps,
        Init::Sequential if looks => 1,
        _ => 0,
    };
    let lists = 1 + if c.states.tolerance > 0.0 { moves } else { 0 };
    let serial = c.init == Init::Sequential && looks;
    (windows, blocks * c.block * c.streams, blocks, sweeps + 2 * moves + 1, lists, reductions, serial, c.streams)
}
