//! Reading a few long streams by blocks, all at once.
//!
//! One stream gives every product one row, which leaves the cores waiting for the weights. So a *window* of M blocks of B steps of every
//! stream runs as one tape of M rows a stream, from starts that are not known yet but for the first one. They all begin at the state
//! that the window before left (the first block of a text is read in order, because the initial state is far from those that a text
//! leads to), and a sweep moves them by one scan over the blocks:
//!
//! ```text
//! s⁺_{k+1} = F_k(s_k) + d_k (s⁺_k − s_k)          d_k: the block's derivative unit by unit (model::Units)
//! ```
//!
//! After i sweeps the first i + 1 starts are exact whatever d is, and after the M-th nothing is left to move; long before that the change
//! s⁺ − s, which is the error of s to first order, falls below the tolerance. The output layer then runs once, on the states of that last
//! recurrence. Each window hands on s⁺ behind its last block. A row's numbers do not depend on the rows beside it, so that exact starts
//! give the sequential nats to the bit, and threads change nothing.
//!
//! This is a quasi-Newton iteration for the whole trajectory (DEER, Lim et al. 2024; quasi-DEER, Gonzalez et al. 2024) with blocks in
//! place of single steps, so that dense recurrent matrices and long texts fit.

use crate::model::{Model, Sweep, Tape};
use crate::params::Params;
use crate::real::Real;
use crate::window::{Layout, Streams};

/// How few long streams are read in parallel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParallelConfig {
    /// B: steps of a block.
    pub block: usize,
    /// M: blocks of a window, for every stream.
    pub blocks: usize,
    /// A window is settled when no start is further than this from where the text before it leads, relative to its length.
    pub tolerance: f64,
    /// Sweeps before a window is given up and read block after block.
    pub sweeps: usize,
}

/// Rows of a window: two groups of as many as a product takes at once.
const ROWS: usize = 64;
/// From so many streams on they are read in order.
const FEW: usize = 8;
/// Below so many units of a layer, too.
const WIDE: usize = 256;

impl Default for ParallelConfig {
    /// Windows of 64 blocks of 64 steps. Measured errors of the summed nats are below a thousandth of the tolerance.
    fn default() -> Self {
        Self { block: 64, blocks: ROWS, tolerance: 1e-4, sweeps: 8 }
    }
}

impl ParallelConfig {
    /// The rule, measured on two cores (docs/parallel-reading.md): fewer than 8 streams of a model with 256 units a layer or more are read
    /// in parallel. More streams fill the products by themselves, and smaller weights stay in the cache. Windows have 64 blocks, of all
    /// streams together, of 64 steps, or of as many (from 16) as fit into [`tape_mb`](crate::model::ModelConfig::tape_mb).
    pub fn where_faster<T: Real>(model: &Model<T>, streams: usize) -> Option<Self> {
        let fit = (model.config().tape_mb << 20) / (model.tape_bytes_per_token() * ROWS);
        let block = (fit / 8 * 8).clamp(16, 64);
        (streams < FEW && model.config().hidden >= WIDE).then(|| Self {
            block,
            blocks: ROWS / streams,
            ..Self::default()
        })
    }
}

/// What reading in parallel took. Sums; means are made by the methods.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sweeps {
    /// Windows whose starts settled.
    pub windows: u64,
    /// Sweeps of all of them. Each window has one recurrence more than sweeps.
    pub total: u64,
    /// Sweeps of the window with the most.
    pub most: u64,
    /// The largest distance of a start from where the text before it leads, relative to its length, when its block was read.
    pub residual: f64,
    /// Windows that did not settle and were read block after block.
    pub unsettled: u64,
    /// Tokens that were read in order: the end that fills no window, and what follows windows that did not settle.
    pub in_order: u64,
}

impl Sweeps {
    /// Sweeps of a window.
    pub fn mean(&self) -> f64 {
        self.total as f64 / self.windows.max(1) as f64
    }

    fn note(&mut self, sweeps: usize, residual: f64) {
        self.windows += 1;
        self.total += sweeps as u64;
        self.most = self.most.max(sweeps as u64);
        self.residual = self.residual.max(residual);
    }
}

/// M blocks of B steps of every stream, as rows of one tape.
#[derive(Debug)]
pub(super) struct Window<T> {
    pub tape: Tape<T>,
    /// One block of every stream, for windows that do not settle.
    column: Option<Tape<T>>,
    streams: usize,
    starts: Vec<T>,
    scanned: Vec<T>,
    ends: Vec<T>,
    diagonals: Vec<T>,
}

impl<T: Real> Window<T> {
    pub fn new(model: &Model<T>, streams: usize, blocks: usize, block: usize) -> Self {
        let rows = streams * blocks;
        let states = vec![T::ZERO; rows * model.state_width()];
        Self {
            tape: model.tape(Layout::new(rows, block)),
            column: None,
            streams,
            starts: states.clone(),
            scanned: states.clone(),
            ends: states,
            diagonals: vec![T::ZERO; rows * model.units().matrix_width()],
        }
    }

    /// Runs the window that begins at `at` in the state `carried`, which becomes the one behind it.
    pub fn run(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        (cut, at): (&Streams, usize),
        carried: &mut [T],
        config: ParallelConfig,
        took: &mut Sweeps,
    ) {
        let layout = self.tape.layout();
        cut.fill(&layout, at, 0..layout.rows, &mut self.tape.inputs, &mut self.tape.targets);
        model.prepare(params, &mut self.tape);
        self.starts.chunks_exact_mut(carried.len()).for_each(|start| start.copy_from_slice(carried));
        match self.settle(model, params, carried, config) {
            Some((sweeps, residual)) => took.note(sweeps, residual),
            None => {
                took.unsettled += 1;
                self.follow(model, params, carried);
            }
        }
    }

    /// Sweeps until the starts stand; their number and the largest residual, if they do.
    fn settle(
        &mut self,
        model: &Model<T>,
        params: &Params<T>,
        carried: &mut [T],
        config: ParallelConfig,
    ) -> Option<(usize, f64)> {
        let mut behind = carried.to_vec();
        for sweeps in 0..=config.sweeps {
            model.recur(params, &mut self.tape, &self.starts);
            model.ends(&self.tape, &mut self.ends);
            model.diagonals(params, &self.tape, &mut self.diagonals);
            behind.copy_from_slice(carried);
            let sweep = Sweep { starts: &self.starts, ends: &self.ends, diagonals: &self.diagonals };
            model.units().scan_starts(sweep, &mut behind, &mut self.scanned);
            let residual = largest_change(&self.starts, &self.scanned, model.state_width());
            if residual <= config.tolerance {
                carried.copy_from_slice(&behind);
                return Some((sweeps, residual));
            }
            std::mem::swap(&mut self.starts, &mut self.scanned);
        }
        None
    }

    /// s_{k+1} = F_k(s_k), block after block; then all blocks from there.
    fn follow(&mut self, model: &Model<T>, params: &Params<T>, carried: &mut [T]) {
        let (tape, streams) = (&mut self.tape, self.streams);
        let layout = Layout::new(streams, tape.layout().steps);
        let column = self.column.get_or_insert_with(|| model.tape(layout));
        column.forget_weights();
        for (k, start) in self.starts.chunks_exact_mut(carried.len()).enumerate() {
            start.copy_from_slice(carried);
            model.take_inputs(column, tape, k * streams);
            model.recur(params, column, start);
            model.ends(column, carried);
        }
        model.recur(params, tape, &self.starts);
    }
}

/// The largest ‖s⁺ − s‖/‖s⁺‖ of a row; infinite if one is not a number.
fn largest_change<T: Real>(old: &[T], new: &[T], width: usize) -> f64 {
    let rows = old.chunks_exact(width).zip(new.chunks_exact(width));
    let changes = rows.map(|(old, new)| {
        let norms = old.iter().zip(new).fold((0.0, 0.0), |(change, norm), (old, new)| {
            let (old, new) = (old.f64(), new.f64());
            (change + (new - old).powi(2), norm + new * new)
        });
        match norms {
            (0.0, _) => 0.0,
            (change, norm) if change.is_finite() && norm.is_finite() => (change / norm).sqrt(),
            _ => f64::INFINITY,
        }
    });
    changes.fold(0.0, f64::max)
}
