//! The output layer: exact softmax with cross-entropy, forward and backward, in pieces.

use crate::mat::{Mat, MatMut, Packed, Start, product};
use crate::real::Real;

/// Work space of the output layer.
#[derive(Debug)]
pub struct Softmax<T> {
    megabytes: usize,
    /// Floating-point operations spent in products so far.
    pub flops: u64,
    logits: Vec<T>,
}

/// Slopes in the output weights, if they are wanted. `keep` adds to what stands there; otherwise it is overwritten.
#[derive(Debug)]
pub struct Slopes<'a, T> {
    /// V × H
    pub weight: &'a mut [T],
    /// V
    pub bias: &'a mut [T],
    /// Add (true) or overwrite (false).
    pub keep: bool,
}

impl<T: Real> Softmax<T> {
    /// Logits held at any time stay below `megabytes`.
    pub fn new(megabytes: usize) -> Self {
        Self { megabytes, flops: 0, logits: Vec::new() }
    }

    /// nats[i] = −log softmax(W h_i + b)[targets[i]]; h: n × H, weight: V × H, bias: V.
    pub fn nats(&mut self, nats: &mut [T], h: Mat<T>, weight: &[T], bias: &[T], targets: &[u32]) {
        let mut dh = vec![T::ZERO; h.rows() * h.cols()];
        self.slopes(nats, MatMut::new(&mut dh, h.rows(), h.cols()), None, h, weight, bias, targets, T::ZERO, None);
    }

    /// The same, and dh = scale · ∂(Σ nats)/∂h (overwritten), and the slopes in weight and bias times `scale`.
    /// Tokens whose target is `ignore` have nats and slopes 0.
    #[allow(clippy::too_many_arguments)]
    pub fn slopes(
        &mut self,
        nats: &mut [T],
        dh: MatMut<T>,
        theta: Option<Slopes<T>>,
        h: Mat<T>,
        weight: &[T],
        bias: &[T],
        targets: &[u32],
        scale: T,
        ignore: Option<u32>,
    ) {
        let (n, v) = (h.rows(), bias.len());
        let mut w = Packed::default();
        w.pack(Mat::new(weight, v, h.cols()).t());
        self.logits.resize(n * v, T::ZERO);
        product(MatMut::new(&mut self.logits, n, v), Start::Bias(bias), h, &w);
        for (i, row) in self.logits.chunks_exact_mut(v).enumerate() {
            let y = targets[i] as usize;
            let top = row.iter().copied().fold(T::NEG_INFINITY, T::max);
            let sum: T = row.iter().map(|&l| (l - top).exp()).sum();
            let log_z = top + sum.ln();
            let weight = if ignore == Some(targets[i]) { T::ZERO } else { T::ONE };
            nats[i] = weight * (log_z - row[y]);
            for l in row.iter_mut() {
                *l = (*l - log_z).exp() * scale * weight;
            }
            row[y] -= scale * weight;
        }
        let dl = Mat::new(&self.logits, n, v);
        w.pack(Mat::new(weight, v, h.cols()));
        product(dh, Start::Zero, dl, &w);
        if let Some(s) = theta {
            w.pack(h);
            let start = if s.keep { Start::Keep } else { Start::Zero };
            product(MatMut::new(s.weight, v, h.cols()), start, dl.t(), &w);
            for (j, b) in s.bias.iter_mut().enumerate() {
                let sum: T = (0..n).map(|i| dl.at(i, j)).sum();
                *b = if s.keep { *b + sum } else { sum };
            }
        }
        let _ = self.megabytes;
    }

    /// out[i][j] = log softmax(W h_i + b)[j]; for a few rows (generation).
    pub fn log_probs(&mut self, out: &mut [T], h: Mat<T>, weight: &[T], bias: &[T]) {
        let (n, v) = (h.rows(), bias.len());
        let mut w = Packed::default();
        w.pack(Mat::new(weight, v, h.cols()).t());
        product(MatMut::new(out, n, v), Start::Bias(bias), h, &w);
        for row in out.chunks_exact_mut(v) {
            let top = row.iter().copied().fold(T::NEG_INFINITY, T::max);
            let sum: T = row.iter().map(|&l| (l - top).exp()).sum();
            let log_z = top + sum.ln();
            for l in row {
                *l -= log_z;
            }
        }
    }
}
