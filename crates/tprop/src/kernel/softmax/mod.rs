//! The output layer: exact softmax with cross-entropy, forward and backward, in chunks.
//!
//! The vocabulary is cut into *lanes*, each lane into *tiles* of words, the tokens into *panels* of a few vectors. For one tile
//! and one panel, while both are in cache:
//!
//! ```text
//! logits = W_tile · Hᵀ + b              W where it stands, Hᵀ packed once for all tiles
//! e      = exp(logits − m)              m: running maximum of the lane (online softmax), sums alongside
//! dHᵀ    = dHᵀ · shrink + W_tileᵀ · e   the tile of e is already a packed right-hand side
//! ```
//!
//! When all lanes are through, Z is known. The gradients in h are the lanes' sums, rescaled and added in the order of the
//! lanes, less the target's row of W; so without gradients in the weights no logits are cached at all. With them, e is cached, and
//! a second pass makes ∂/∂logits = e · factor (one per tile and token) less the target's share, and dW_tile = (∂/∂logits) · [H | 1],
//! whose last column is the gradient of the bias.
//!
//! Lanes depend on the size of the vocabulary alone, and all else is a chain in a fixed order; hence neither threads nor the
//! SIMD path nor the memory limit change a bit of any result.

mod pass;
#[cfg(test)]
mod tests;
mod tile;

use crate::kernel::{self, Path, path};
use crate::mat::{Buffer, Mat, MatMut, Packed, Shared, turn};
use crate::real::Real;
use pass::{Keep, Lanes, Meter, Weights};
use rayon::prelude::*;
use std::time::Instant;
use tile::ROWS;

/// Work space of the output layer.
#[derive(Debug)]
pub struct Softmax<T> {
    megabytes: usize,
    /// Floating-point operations spent in products so far.
    pub flops: u64,
    /// Seconds of [`Softmax::gradients`] that went into nats, so far: the rest went into gradients.
    pub forward_seconds: f64,
    /// Hᵀ: tokens in the vector lanes.
    tokens: Packed<T>,
    /// [H | 1]: hidden units in the vector lanes.
    units: Packed<T>,
    /// Exponentials: of all words if the weights' gradients are wanted, otherwise one tile per task.
    tiles: Buffer<T>,
    /// The maximum that a tile's exponentials refer to, later what they are multiplied with: tile × token.
    refs: Buffer<T>,
    /// Maximum and sum: lane × token.
    tops: Buffer<T>,
    sums: Buffer<T>,
    /// Gradients in h: lane × panel × H × width.
    parts: Buffer<T>,
    /// Logit of the target, overall maximum, and scale / Z: token.
    hits: Buffer<T>,
    peaks: Buffer<T>,
    shares: Buffer<T>,
}

/// Gradients in the output weights, if they are wanted. `keep` adds to what stands there; otherwise it is overwritten.
#[derive(Debug)]
pub struct WeightGradients<'a, T> {
    /// V × H
    pub weight: &'a mut [T],
    /// V
    pub bias: &'a mut [T],
    /// Add (true) or overwrite (false).
    pub keep: bool,
}

/// The layer's weights, V × H and V.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a, T> {
    /// W
    pub weight: &'a [T],
    /// b
    pub bias: &'a [T],
}

/// What the tokens should predict, and how much that counts.
#[derive(Clone, Copy, Debug)]
pub struct Targets<'a, T> {
    /// One word for each token.
    pub words: &'a [u32],
    /// Gradients are multiplied with this.
    pub scale: T,
    /// Tokens that should predict this word count nothing.
    pub ignore: Option<u32>,
}

/// How one chunk of tokens is cut.
#[derive(Clone, Copy)]
struct Cut {
    path: Path,
    /// Tokens, tokens of a panel, panels.
    n: usize,
    width: usize,
    panels: usize,
    /// Words, words of a lane (a multiple of a tile), lanes, tiles.
    v: usize,
    lane: usize,
    lanes: usize,
    tiles: usize,
    h: usize,
}

impl Cut {
    fn new<T: Real>(path: Path, n: usize, v: usize, h: usize) -> Self {
        let width = T::panel_width(path);
        let lane = v.div_ceil((v / 2500).clamp(1, 8)).next_multiple_of(ROWS);
        Self { path, n, width, panels: n.div_ceil(width), v, lane, lanes: v.div_ceil(lane), tiles: v.div_ceil(ROWS), h }
    }
    /// Tokens with the last panel filled up.
    fn padded(&self) -> usize {
        self.panels * self.width
    }
    /// The words of a tile.
    fn words(&self, tile: usize) -> std::ops::Range<usize> {
        tile * ROWS..self.v.min((tile + 1) * ROWS)
    }
    /// Tokens of a panel that exist.
    fn used(&self, panel: usize) -> usize {
        (self.n - panel * self.width).min(self.width)
    }
}

impl<T: Real> Softmax<T> {
    /// Logits held at any time stay below `megabytes` (but there is room for 32 tokens in any case).
    pub fn new(megabytes: usize) -> Self {
        Self {
            megabytes,
            flops: 0,
            forward_seconds: 0.0,
            tokens: Packed::default(),
            units: Packed::default(),
            tiles: Buffer::default(),
            refs: Buffer::default(),
            tops: Buffer::default(),
            sums: Buffer::default(),
            parts: Buffer::default(),
            hits: Buffer::default(),
            peaks: Buffer::default(),
            shares: Buffer::default(),
        }
    }

    /// `nats[i] = −log softmax(W h_i + b)[targets[i]]`; h: n × H, weight: V × H, bias: V.
    pub fn nats(&mut self, nats: &mut [T], h: Mat<T>, weight: &[T], bias: &[T], targets: &[u32]) {
        let layer = Layer { weight, bias };
        layer.check(h.cols());
        check_targets(nats.len(), h.rows(), targets, bias.len(), None);
        for from in (0..h.rows()).step_by(CHUNK) {
            let to = h.rows().min(from + CHUNK);
            let cut = Cut::new::<T>(path(), to - from, bias.len(), h.cols());
            let targets = Targets { words: &targets[from..to], scale: T::ONE, ignore: None };
            self.forward(&cut, h.rows_range(from, to), layer, targets.words, Keep::default());
            self.finish(&cut, &mut nats[from..to], targets);
        }
    }

    /// The same, and dh = scale · ∂(Σ nats)/∂h (overwritten), and the gradients in weight and bias times `scale`.
    pub fn gradients(
        &mut self,
        nats: &mut [T],
        mut dh: MatMut<T>,
        mut theta: Option<WeightGradients<T>>,
        h: Mat<T>,
        layer: Layer<T>,
        targets: Targets<T>,
    ) {
        layer.check(h.cols());
        let (n, v) = (h.rows(), layer.bias.len());
        check_targets(nats.len(), n, targets.words, v, targets.ignore);
        assert_eq!(dh.shape(), (n, h.cols()), "shape of dh");
        if let Some(s) = &mut theta {
            assert_eq!((s.weight.len(), s.bias.len()), (layer.weight.len(), v), "shape of the gradients");
            if n == 0 && !s.keep {
                s.weight.fill(T::ZERO);
                s.bias.fill(T::ZERO);
            }
        }
        let chunk = if theta.is_some() { self.chunk_tokens(v) } else { CHUNK };
        for from in (0..n).step_by(chunk) {
            let to = n.min(from + chunk);
            let (h, targets) = (h.rows_range(from, to), Targets { words: &targets.words[from..to], ..targets });
            let cut = Cut::new::<T>(path(), to - from, v, h.cols());
            let since = Instant::now();
            let share = self.forward(
                &cut,
                h,
                layer,
                targets.words,
                Keep { gradients: true, tiles: theta.is_some(), logits: None },
            );
            self.forward_seconds += share * since.elapsed().as_secs_f64();
            let since = Instant::now();
            self.finish(&cut, &mut nats[from..to], targets);
            self.forward_seconds += since.elapsed().as_secs_f64();
            self.gradients_in_h(&cut, dh.rows_range_mut(from, to), layer, targets);
            if let Some(s) = &mut theta {
                self.gradients_in_weights(&cut, s, h, targets);
                s.keep = true; // the chunks after the first add to it
            }
        }
    }

    /// `out[i][j] = log softmax(W h_i + b)[j]`; for a few rows (generation).
    pub fn log_probs(&mut self, out: &mut [T], h: Mat<T>, weight: &[T], bias: &[T]) {
        let (layer, v) = (Layer { weight, bias }, bias.len());
        layer.check(h.cols());
        assert_eq!(out.len(), h.rows() * v, "room for the logarithms");
        for (i, out) in out.chunks_mut(CHUNK * v).enumerate() {
            let h = h.rows_range(i * CHUNK, i * CHUNK + out.len() / v);
            let cut = Cut::new::<T>(path(), h.rows(), v, h.cols());
            let logits = Some(Shared(out.as_mut_ptr()));
            self.forward(&cut, h, layer, &[], Keep { logits, ..Keep::default() });
            for (i, row) in out.chunks_exact_mut(v).enumerate() {
                let (top, sum) = self.peak_and_sum(&cut, i);
                let log = sum.ln();
                row.iter_mut().for_each(|l| *l = (*l - top) - log);
            }
        }
    }

    /// Tokens whose logits fit into the memory that was allowed. Not a multiple of the path's panel but of the widest:
    /// the cut must not depend on the path.
    fn chunk_tokens(&self, v: usize) -> usize {
        let fit = (self.megabytes << 20) / (v * T::BYTES).max(1);
        (fit / 32 * 32).clamp(32, CHUNK)
    }

    /// Logits, exponentials, maxima, sums, and what `keep` asks for; all lanes. Returns the part of the time that did not go
    /// into gradients.
    fn forward(&mut self, cut: &Cut, h: Mat<T>, layer: Layer<T>, targets: &[u32], keep: Keep<T>) -> f64 {
        self.tokens.pack_for(cut.path, h.t());
        // Enough tasks for all threads, and few enough panels in each for their hidden states and gradients to stay in cache.
        let tasks = (4 * rayon::current_num_threads()).div_ceil(cut.lanes);
        let cached = (GROUP_BYTES / (2 * cut.h * cut.width * T::BYTES).max(1)).max(2);
        let group = cut.panels.div_ceil(tasks.clamp(1, cut.panels)).min(cached);
        let groups = cut.panels.div_ceil(group);
        let padded = cut.padded();
        self.tiles.set_len(if keep.tiles { cut.v * padded } else { cut.lanes * groups * ROWS * cut.width });
        self.refs.set_len(if keep.tiles { cut.tiles * padded } else { 0 });
        self.tops.set_len(cut.lanes * padded);
        self.sums.set_len(cut.lanes * padded);
        self.hits.set_len(padded);
        self.parts.set_len(if keep.gradients { cut.lanes * padded * cut.h } else { 0 });
        let meter = Meter::default();
        let lanes = Lanes {
            cut: *cut,
            layer,
            targets,
            tokens: self.tokens.panels(),
            keep,
            tiles: Shared(self.tiles.as_mut_slice().as_mut_ptr()),
            refs: Shared(self.refs.as_mut_slice().as_mut_ptr()),
            tops: Shared(self.tops.as_mut_slice().as_mut_ptr()),
            sums: Shared(self.sums.as_mut_slice().as_mut_ptr()),
            hits: Shared(self.hits.as_mut_slice().as_mut_ptr()),
            parts: Shared(self.parts.as_mut_slice().as_mut_ptr()),
            meter: &meter,
        };
        (0..cut.lanes * groups).into_par_iter().for_each(|task| {
            let from = task % groups * group;
            // SAFETY: each (lane, panel) belongs to one task, and the buffers have just been made long enough.
            unsafe { lanes.run(task, task / groups, from..cut.panels.min(from + group)) };
        });
        self.flops += (if keep.gradients { 4 } else { 2 }) * (cut.n * cut.v * cut.h) as u64;
        meter.forward_share()
    }

    /// Maximum over all words and Σ exp(logit − maximum) of a token, lanes added in order.
    fn peak_and_sum(&self, cut: &Cut, i: usize) -> (T, T) {
        let (tops, sums, padded) = (self.tops.as_slice(), self.sums.as_slice(), cut.padded());
        let peak = (0..cut.lanes).map(|l| tops[l * padded + i]).fold(T::NEG_INFINITY, T::max);
        let sum = (0..cut.lanes).map(|l| sums[l * padded + i] * (tops[l * padded + i] - peak).exp());
        (peak, sum.fold(T::ZERO, |a, b| a + b))
    }

    /// Nats, and each token's maximum and share: what its exponentials get multiplied with.
    fn finish(&mut self, cut: &Cut, nats: &mut [T], targets: Targets<T>) {
        let Targets { words, scale, ignore } = targets;
        self.peaks.set_len(cut.padded());
        self.shares.set_len(cut.padded());
        for i in 0..cut.n {
            let (peak, sum) = self.peak_and_sum(cut, i);
            let counts = ignore != Some(words[i]);
            nats[i] = if counts { (peak - self.hits.as_slice()[i]) + sum.ln() } else { T::ZERO };
            self.peaks.as_mut_slice()[i] = peak;
            self.shares.as_mut_slice()[i] = if counts { scale / sum } else { T::ZERO };
        }
    }

    /// dh from the lanes' sums.
    fn gradients_in_h(&mut self, cut: &Cut, dh: MatMut<T>, layer: Layer<T>, targets: Targets<T>) {
        let Targets { words, scale, ignore } = targets;
        let (w, h, padded) = (cut.width, cut.h, cut.padded());
        let (tops, peaks, shares) = (self.tops.as_slice(), self.peaks.as_slice(), self.shares.as_slice());
        let parts = Shared(self.parts.as_mut_slice().as_mut_ptr());
        let (dh, stride) = dh.into_parts();
        let dh = Shared(dh.as_mut_ptr());
        (0..cut.panels).into_par_iter().for_each(|p| {
            // SAFETY: the parts of panel p and the rows of its tokens belong to this task alone.
            let part = |lane: usize| unsafe {
                std::slice::from_raw_parts_mut(parts.at((lane * cut.panels + p) * h * w), h * w)
            };
            let sum = part(0);
            for lane in 0..cut.lanes {
                let mut factors = [T::ZERO; 32];
                let factors = &mut factors[..w];
                factors.copy_from_slice(&tops[lane * padded + p * w..][..w]);
                tile::factors(factors, &peaks[p * w..][..w], &shares[p * w..][..w]);
                if lane == 0 {
                    tile::scale(cut.path, sum, factors);
                } else {
                    let part = part(lane);
                    tile::scale(cut.path, part, factors);
                    kernel::add(sum, part);
                }
            }
            let used = cut.used(p);
            // SAFETY: as above.
            let rows = unsafe { std::slice::from_raw_parts_mut(dh.at(p * w * stride), (used - 1) * stride + h) };
            let (i8, u8) = (used / 8 * 8, h / 8 * 8);
            if i8 > 0 {
                turn(cut.path, &mut rows[..(i8 - 1) * stride + h], stride, sum, w, u8);
            }
            for (j, row) in rows.chunks_mut(stride).enumerate() {
                let i = p * w + j;
                for u in if j < i8 { u8 } else { 0 }..h {
                    row[u] = sum[u * w + j];
                }
                if ignore != Some(words[i]) {
                    let target = &layer.weight[words[i] as usize * h..][..h];
                    kernel::add_scaled(&mut row[..h], target, -scale);
                }
            }
        });
    }

    /// The second pass over the tiles: gradients in weight and bias.
    fn gradients_in_weights(&mut self, cut: &Cut, theta: &mut WeightGradients<T>, h: Mat<T>, targets: Targets<T>) {
        let Targets { words, scale, ignore } = targets;
        self.units.pack_with_ones(cut.path, h);
        let pass = Weights {
            cut: *cut,
            keep: theta.keep,
            targets: words,
            scale,
            ignore,
            units: self.units.panels(),
            peaks: self.peaks.as_slice(),
            shares: self.shares.as_slice(),
            tiles: Shared(self.tiles.as_mut_slice().as_mut_ptr()),
            factors: Shared(self.refs.as_mut_slice().as_mut_ptr()),
            weight: Shared(theta.weight.as_mut_ptr()),
            bias: Shared(theta.bias.as_mut_ptr()),
        };
        let blocks = cut.h / cut.width + 1;
        // SAFETY: tiles, their factors and their rows of the gradients belong to one task each; where a tile is shared, its
        // columns of the gradients do.
        unsafe {
            if cut.tiles >= 2 * rayon::current_num_threads() {
                (0..cut.tiles).into_par_iter().for_each(|tile| pass.run(tile, 0..blocks, true));
            } else {
                (0..cut.tiles).into_par_iter().for_each(|tile| pass.make_factors(tile));
                let panels = cut.tiles * cut.panels;
                (0..panels).into_par_iter().for_each(|i| pass.differentiate(i / cut.panels, i % cut.panels));
                (0..cut.tiles * blocks).into_par_iter().for_each(|i| {
                    let block = i % blocks;
                    pass.run(i / blocks, block..block + 1, false);
                });
            }
        }
        self.flops += 2 * (cut.n * cut.v * cut.h) as u64;
    }
}

/// Hidden states and gradients of the panels of one task; half of a second-level cache.
const GROUP_BYTES: usize = 512 << 10;

/// Tokens that go through the lanes together.
const CHUNK: usize = 2048;

impl<T: Real> Layer<'_, T> {
    fn check(&self, h: usize) {
        assert_eq!(self.weight.len(), self.bias.len() * h, "weight is V × H, bias V");
        assert!(!self.bias.is_empty(), "a vocabulary of no words");
    }
}

/// A target outside the vocabulary would be read out of bounds.
fn check_targets(nats: usize, n: usize, targets: &[u32], v: usize, ignore: Option<u32>) {
    assert_eq!((nats, targets.len()), (n, n), "one target and one number of nats per token");
    for &y in targets {
        assert!(ignore == Some(y) || (y as usize) < v, "target {y} outside a vocabulary of {v}");
    }
}
