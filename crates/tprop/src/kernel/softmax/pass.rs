//! The two passes over the tiles, as tasks that own what they write.

use super::tile::{self, Columns, ROWS};
use super::{Cut, Layer};
use crate::mat::{First, Panel, Shared, in_blocks};
use crate::real::Real;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// What the first pass keeps besides maxima and sums.
#[derive(Clone, Copy)]
pub struct Keep<T> {
    /// Gradients in h.
    pub gradients: bool,
    /// The exponentials of all tiles.
    pub tiles: bool,
    /// The logits themselves, token × word.
    pub logits: Option<Shared<T>>,
}

impl<T> Default for Keep<T> {
    fn default() -> Self {
        Self { gradients: false, tiles: false, logits: None }
    }
}

/// What the tasks of the first pass spent on each half of it, in nanoseconds: one pair of tile and panel in [`SAMPLE`] is timed.
#[derive(Debug, Default)]
pub struct Meter {
    forward: AtomicU64,
    gradients: AtomicU64,
}

/// Timing every pair would cost half a percent at hidden 100.
const SAMPLE: usize = 4;

impl Meter {
    fn book(&self, since: Instant, between: Instant) {
        self.forward.fetch_add((between - since).as_nanos() as u64, Relaxed);
        self.gradients.fetch_add(between.elapsed().as_nanos() as u64, Relaxed);
    }

    /// The part of the pass that was forward.
    pub fn forward_share(&self) -> f64 {
        let (forward, gradients) = (self.forward.load(Relaxed) as f64, self.gradients.load(Relaxed) as f64);
        if forward + gradients > 0.0 { forward / (forward + gradients) } else { 1.0 }
    }
}

/// The first pass: logits, exponentials, sums, gradients in h.
pub struct Lanes<'a, T> {
    pub cut: Cut,
    pub layer: Layer<'a, T>,
    pub targets: &'a [u32],
    pub tokens: &'a [T],
    pub keep: Keep<T>,
    pub tiles: Shared<T>,
    pub refs: Shared<T>,
    pub tops: Shared<T>,
    pub sums: Shared<T>,
    pub hits: Shared<T>,
    pub parts: Shared<T>,
    pub meter: &'a Meter,
}

impl<T: Real> Lanes<'_, T> {
    /// All tiles of a lane, for some panels of tokens.
    ///
    /// # Safety
    /// The buffers have the lengths of the cut, and no other task has the same task number or the same lane and panel.
    pub unsafe fn run(&self, task: usize, lane: usize, panels: Range<usize>) {
        let Cut { path, width, h, v, .. } = self.cut;
        let padded = self.cut.padded();
        let mut shrink = [T::ZERO; 32];
        let words_of_lane = lane * self.cut.lane..v.min((lane + 1) * self.cut.lane);
        for tile in words_of_lane.start / ROWS..words_of_lane.end.div_ceil(ROWS) {
            let words = self.cut.words(tile);
            let rows = words.len();
            let opening = words.start == words_of_lane.start;
            let weight = &self.layer.weight[words.start * h..words.end * h];
            let bias = &self.layer.bias[words.clone()];
            let share = weight.len().div_ceil(panels.len());
            for p in panels.clone() {
                let used = self.cut.used(p);
                let since = (self.keep.gradients && (tile + p).is_multiple_of(SAMPLE)).then(Instant::now);
                // SAFETY: offsets stay within the cut; slices made here belong to this (lane, panel) or to this task.
                unsafe {
                    let at = if self.keep.tiles {
                        self.tiles.at(words.start * padded + p * rows * width)
                    } else {
                        self.tiles.at(task * ROWS * width)
                    };
                    let logits = Panel {
                        c: at,
                        c_stride: width,
                        a: weight.as_ptr(),
                        a_row: h,
                        a_col: 1,
                        b: self.tokens[p * width * h..(p + 1) * width * h].as_ptr(),
                        rows,
                        cols: used,
                        k: h,
                        segment: usize::MAX,
                        jump: 0,
                        first: First::Rows(bias.as_ptr()),
                        // The next tile's weights, a share with each panel.
                        ahead: weight.as_ptr().wrapping_add(weight.len() + (p - panels.start) * share),
                        ahead_lines: (share * T::BYTES).div_ceil(64),
                    };
                    in_blocks(path, logits);
                    let e = std::slice::from_raw_parts_mut(at, rows * width);
                    self.look_up(e, &words, p);
                    let columns = |buffer: &Shared<T>| {
                        std::slice::from_raw_parts_mut(buffer.at(lane * padded + p * width), width)
                    };
                    let (top, sum) = (columns(&self.tops), columns(&self.sums));
                    if opening {
                        top.fill(T::NEG_INFINITY);
                        sum.fill(T::ZERO);
                    }
                    tile::fold(e, Columns { top, sum, shrink: &mut shrink[..width] });
                    if self.keep.tiles {
                        let refs = self.refs.at(tile * padded + p * width);
                        std::slice::from_raw_parts_mut(refs, width).copy_from_slice(columns(&self.tops));
                    }
                    if self.keep.gradients {
                        let between = since.map(|_| Instant::now());
                        let gradients = Panel {
                            c: self.parts.at((lane * self.cut.panels + p) * h * width),
                            c_stride: width,
                            a: weight.as_ptr(),
                            a_row: 1,
                            a_col: h,
                            b: at,
                            rows: h,
                            cols: used,
                            k: rows,
                            segment: usize::MAX,
                            jump: 0,
                            first: if opening { First::Zero } else { First::Scaled(shrink.as_ptr()) },
                            ahead: std::ptr::null(),
                            ahead_lines: 0,
                        };
                        T::panel(path, &gradients);
                        if let (Some(since), Some(between)) = (since, between) {
                            self.meter.book(since, between);
                        }
                    }
                }
            }
        }
    }

    /// Notes the logits of the targets, and all of them if they are wanted.
    unsafe fn look_up(&self, logits: &[T], words: &Range<usize>, p: usize) {
        let (width, v) = (self.cut.width, self.cut.v);
        for j in 0..self.cut.used(p) {
            let i = p * width + j;
            // SAFETY: only one tile contains the target of token i, and only one task has this (lane, panel).
            unsafe {
                if let Some(y) = self.targets.get(i).map(|&y| y as usize).filter(|y| words.contains(y)) {
                    *self.hits.at(i) = logits[(y - words.start) * width + j];
                }
                if let Some(out) = self.keep.logits {
                    for (row, word) in words.clone().enumerate() {
                        *out.at(i * v + word) = logits[row * width + j];
                    }
                }
            }
        }
    }
}

/// The second pass: gradients in weight and bias.
pub struct Weights<'a, T> {
    pub cut: Cut,
    /// Add to what stands there.
    pub keep: bool,
    pub targets: &'a [u32],
    pub scale: T,
    pub ignore: Option<u32>,
    /// [H | 1], packed.
    pub units: &'a [T],
    pub peaks: &'a [T],
    pub shares: &'a [T],
    pub tiles: Shared<T>,
    pub factors: Shared<T>,
    pub weight: Shared<T>,
    pub bias: Shared<T>,
}

/// Tokens between two visits to a tile's gradients; a multiple of every panel.
const TOKENS: usize = 256;

/// Columns that do not fill a panel, the gradient of the bias among them.
#[repr(align(64))]
struct Edge<T>([T; ROWS * 32]);

impl<T: Real> Weights<'_, T> {
    /// What the exponentials of a tile are multiplied with.
    ///
    /// # Safety
    /// Called once for each tile; no other task touches the tile's factors.
    pub unsafe fn make_factors(&self, tile: usize) {
        let padded = self.cut.padded();
        // SAFETY: the caller's word.
        let factors = unsafe { std::slice::from_raw_parts_mut(self.factors.at(tile * padded), padded) };
        tile::factors(factors, self.peaks, self.shares);
    }

    /// Exponentials → gradients in the logits, for one tile and one panel of tokens.
    ///
    /// # Safety
    /// Called once for each tile and panel, after `make_factors`.
    pub unsafe fn differentiate(&self, tile: usize, p: usize) {
        let (width, padded, words) = (self.cut.width, self.cut.padded(), self.cut.words(tile));
        // SAFETY: the caller's word; offsets stay within the cut.
        let (e, factors) = unsafe {
            let at = self.tiles.at(words.start * padded + p * words.len() * width);
            let e = std::slice::from_raw_parts_mut(at, words.len() * width);
            (e, std::slice::from_raw_parts(self.factors.at(tile * padded + p * width), width))
        };
        tile::scale(self.cut.path, e, factors);
        for j in 0..self.cut.used(p) {
            let y = self.targets[p * width + j];
            if words.contains(&(y as usize)) && self.ignore != Some(y) {
                e[(y as usize - words.start) * width + j] -= self.scale;
            }
        }
    }

    /// Some blocks of columns of [dW | db] of one tile; `whole` also makes its gradients in the logits first, chunk by
    /// chunk, so that they are still in cache when they are used.
    ///
    /// # Safety
    /// The rows and columns belong to this task alone; without `whole` the tile has been differentiated before.
    pub unsafe fn run(&self, tile: usize, blocks: Range<usize>, whole: bool) {
        let Cut { path, n, width, h, .. } = self.cut;
        let words = self.cut.words(tile);
        let rows = words.len();
        let (full, rest) = (h / width, h % width);
        let mut edge = Edge([T::ZERO; ROWS * 32]);
        // SAFETY: offsets stay within the cut and the gradients, whose shapes were checked; the rest is the caller's word.
        unsafe {
            if whole {
                self.make_factors(tile);
            }
            if self.keep && rest > 0 && blocks.contains(&full) {
                for (row, word) in words.clone().enumerate() {
                    let from = self.weight.at(word * h + full * width);
                    std::ptr::copy_nonoverlapping(from, edge.0.as_mut_ptr().add(row * width), rest);
                    edge.0[row * width + rest] = *self.bias.at(word);
                }
            }
            for from in (0..n).step_by(TOKENS) {
                let tokens = (n - from).min(TOKENS);
                if whole {
                    let p = from / width;
                    (p..p + tokens.div_ceil(width)).for_each(|p| self.differentiate(tile, p));
                }
                // What this task differentiates next, a share with each block: these tokens' successors stand behind them, and
                // the next tile behind this one.
                let next = rows * TOKENS;
                let e = self.tiles.at(words.start * self.cut.padded() + from * rows);
                let share = if whole { next.div_ceil(blocks.len()) } else { 0 };
                for block in blocks.clone() {
                    let (c, c_stride, cols) = match () {
                        () if block < full => (self.weight.at(words.start * h + block * width), h, width),
                        () if rest > 0 => (edge.0.as_mut_ptr(), width, rest + 1),
                        () => (self.bias.at(words.start), 1, 1),
                    };
                    let panel = Panel {
                        c,
                        c_stride,
                        a: e,
                        a_row: width,
                        a_col: 1,
                        b: self.units[(block * n + from) * width..][..tokens * width].as_ptr(),
                        rows,
                        cols,
                        k: tokens,
                        segment: width,
                        jump: rows * width,
                        first: if from > 0 || self.keep { First::Keep } else { First::Zero },
                        ahead: e.wrapping_add(tokens.next_multiple_of(width) * rows + (block - blocks.start) * share),
                        ahead_lines: (share * T::BYTES).div_ceil(64),
                    };
                    T::panel(path, &panel);
                }
            }
            if rest > 0 && blocks.contains(&full) {
                for (row, word) in words.enumerate() {
                    let to = self.weight.at(word * h + full * width);
                    std::ptr::copy_nonoverlapping(edge.0.as_ptr().add(row * width), to, rest);
                    *self.bias.at(word) = edge.0[row * width + rest];
                }
            }
        }
    }
}
