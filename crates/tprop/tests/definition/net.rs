//! Embedding, cells and softmax of docs/math.md, sections 2 and 3, for one row and one step at a time.

use std::collections::BTreeMap;

use tprop::cell::{Activation, CellKind};

pub type Vector = Vec<f64>;
pub type Matrix = Vec<Vec<f64>>;
/// Weights, or what belongs to each of them, by name; a vector is a matrix of one row.
pub type Theta = BTreeMap<String, Matrix>;

/// The shape of a model.
#[derive(Clone, Copy, Debug)]
pub struct Net {
    pub cell: CellKind,
    pub hidden: usize,
    pub layers: usize,
    pub tied: bool,
}

/// Derivatives of one step of one cell.
struct StepBack {
    d_gx: Vector,
    d_gh: Vector,
    /// In the state before, past the recurrent product.
    d_state: Vector,
}

impl Net {
    /// Values of one layer's state: [h], or [h | c].
    fn layer_width(&self) -> usize {
        match self.cell {
            CellKind::Lstm => 2 * self.hidden,
            CellKind::Elman(_) | CellKind::Gru | CellKind::Mult | CellKind::MultGated => self.hidden,
        }
    }

    pub fn width(&self) -> usize {
        self.layers * self.layer_width()
    }

    /// Where h of layer `l` stands in a state.
    pub fn h(&self, l: usize) -> std::ops::Range<usize> {
        l * self.layer_width()..l * self.layer_width() + self.hidden
    }

    /// The top layer's h.
    pub fn top<'a>(&self, state: &'a [f64]) -> &'a [f64] {
        &state[self.h(self.layers - 1)]
    }

    /// Where texts begin.
    pub fn initial_state(&self) -> Vector {
        let value = match self.cell {
            CellKind::Mult => 1.0,
            CellKind::Elman(_) | CellKind::Gru | CellKind::Lstm | CellKind::MultGated => 0.0,
        };
        vec![value; self.width()]
    }

    /// gx = W_ih x + b_ih and gh = W_hh h₋ + b_hh.
    fn products(&self, theta: &Theta, l: usize, x: &[f64], h: &[f64]) -> (Vector, Vector) {
        let product = |weight: &str, bias: &str, v: &[f64]| {
            let mut out: Vector = theta[&format!("rnn.{weight}_l{l}")].iter().map(|row| dot(row, v)).collect();
            if let Some(b) = theta.get(&format!("rnn.{bias}_l{l}")) {
                add(&mut out, &b[0]);
            }
            out
        };
        (product("weight_ih", "bias_ih", x), product("weight_hh", "bias_hh", h))
    }

    /// Section 3: the state after one step of one layer.
    fn cell(&self, theta: &Theta, l: usize, gx: &[f64], gh: &[f64], before: &[f64]) -> Vector {
        let n = self.hidden;
        let gate = |name: &str, j: usize| theta[&format!("rnn.gate_{name}_l{l}")][0][j];
        let mut next = vec![0.0; before.len()];
        for j in 0..n {
            match self.cell {
                CellKind::Elman(Activation::Tanh) => next[j] = (gx[j] + gh[j]).tanh(),
                CellKind::Elman(Activation::Sigmoid) => next[j] = sigma(gx[j] + gh[j]),
                CellKind::Gru => {
                    let r = sigma(gx[j] + gh[j]);
                    let z = sigma(gx[n + j] + gh[n + j]);
                    let c = (gx[2 * n + j] + r * gh[2 * n + j]).tanh();
                    next[j] = (1.0 - z) * c + z * before[j];
                }
                CellKind::Lstm => {
                    let [i, f, g, o] = [0, 1, 2, 3].map(|k| gx[k * n + j] + gh[k * n + j]);
                    let c = sigma(f) * before[n + j] + sigma(i) * g.tanh();
                    (next[j], next[n + j]) = (sigma(o) * c.tanh(), c);
                }
                CellKind::Mult => next[j] = gx[j] * gh[j],
                CellKind::MultGated => {
                    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| gate(name, j));
                    next[j] = a * gx[j] * gh[j] + b * gh[j] + c * gx[j] + d;
                }
            }
        }
        next
    }

    /// The derivative of [`Net::cell`], from that in the state after the step; the cell's own vectors' is added to `d_theta`.
    #[allow(clippy::too_many_arguments)]
    fn cell_back(
        &self,
        theta: &Theta,
        l: usize,
        gx: &[f64],
        gh: &[f64],
        before: &[f64],
        d: &[f64],
        d_theta: &mut Theta,
    ) -> StepBack {
        let n = self.hidden;
        let mut back =
            StepBack { d_gx: vec![0.0; gx.len()], d_gh: vec![0.0; gh.len()], d_state: vec![0.0; before.len()] };
        for j in 0..n {
            match self.cell {
                CellKind::Elman(activation) => {
                    let derivative = match activation {
                        Activation::Tanh => 1.0 - (gx[j] + gh[j]).tanh().powi(2),
                        Activation::Sigmoid => d_sigma(gx[j] + gh[j]),
                    };
                    back.d_gx[j] = d[j] * derivative;
                    back.d_gh[j] = d[j] * derivative;
                }
                CellKind::Gru => {
                    let (a_r, a_z) = (gx[j] + gh[j], gx[n + j] + gh[n + j]);
                    let (r, z) = (sigma(a_r), sigma(a_z));
                    let c = (gx[2 * n + j] + r * gh[2 * n + j]).tanh();
                    let d_c = d[j] * (1.0 - z) * (1.0 - c * c);
                    let d_r = d_c * gh[2 * n + j] * d_sigma(a_r);
                    let d_z = d[j] * (before[j] - c) * d_sigma(a_z);
                    (back.d_gx[j], back.d_gh[j]) = (d_r, d_r);
                    (back.d_gx[n + j], back.d_gh[n + j]) = (d_z, d_z);
                    (back.d_gx[2 * n + j], back.d_gh[2 * n + j]) = (d_c, d_c * r);
                    back.d_state[j] = d[j] * z;
                }
                CellKind::Lstm => {
                    let [i, f, g, o] = [0, 1, 2, 3].map(|k| gx[k * n + j] + gh[k * n + j]);
                    let c = sigma(f) * before[n + j] + sigma(i) * g.tanh();
                    let d_c = d[n + j] + d[j] * sigma(o) * (1.0 - c.tanh().powi(2));
                    let gates = [
                        d_c * g.tanh() * d_sigma(i),
                        d_c * before[n + j] * d_sigma(f),
                        d_c * sigma(i) * (1.0 - g.tanh().powi(2)),
                        d[j] * c.tanh() * d_sigma(o),
                    ];
                    for (k, d_gate) in gates.into_iter().enumerate() {
                        (back.d_gx[k * n + j], back.d_gh[k * n + j]) = (d_gate, d_gate);
                    }
                    back.d_state[n + j] = d_c * sigma(f);
                }
                CellKind::Mult => (back.d_gx[j], back.d_gh[j]) = (d[j] * gh[j], d[j] * gx[j]),
                CellKind::MultGated => {
                    let [a, b, c] = ["a", "b", "c"].map(|name| theta[&format!("rnn.gate_{name}_l{l}")][0][j]);
                    back.d_gx[j] = d[j] * (a * gh[j] + c);
                    back.d_gh[j] = d[j] * (a * gx[j] + b);
                    for (name, factor) in [("a", gx[j] * gh[j]), ("b", gh[j]), ("c", gx[j]), ("d", 1.0)] {
                        tensor(d_theta, &format!("rnn.gate_{name}_l{l}"))[0][j] += d[j] * factor;
                    }
                }
            }
        }
        back
    }

    /// Values of a unit's state: h, or h and c.
    fn unit_width(&self) -> usize {
        self.layer_width() / self.hidden
    }

    /// Where each unit's values stand in a state, layer by layer.
    pub fn units(&self) -> Vec<Vec<usize>> {
        let (v, w) = (self.unit_width(), self.layer_width());
        let unit = |l: usize, j: usize| (0..v).map(|a| l * w + a * self.hidden + j).collect();
        (0..self.layers).flat_map(|l| (0..self.hidden).map(move |j| unit(l, j))).collect()
    }

    /// Section 13: the derivative of [`Net::cell`] unit by unit, each in its own state before the step, as far as that passes through the
    /// diagonal of the recurrent matrices.
    fn step_diagonals(&self, theta: &Theta, l: usize, gx: &[f64], gh: &[f64], before: &[f64]) -> Vec<Matrix> {
        let n = self.hidden;
        let after = self.cell(theta, l, gx, gh, before);
        let gate = |name: &str, j: usize| theta[&format!("rnn.gate_{name}_l{l}")][0][j];
        let w = |k: usize, j: usize| theta[&format!("rnn.weight_hh_l{l}")][k * n + j][j];
        let of_unit = |j: usize| match self.cell {
            CellKind::Elman(Activation::Tanh) => vec![vec![(1.0 - after[j] * after[j]) * w(0, j)]],
            CellKind::Elman(Activation::Sigmoid) => vec![vec![after[j] * (1.0 - after[j]) * w(0, j)]],
            CellKind::Gru => {
                let [w_r, w_z, w_n] = [0, 1, 2].map(|k| w(k, j));
                let r = sigma(gx[j] + gh[j]);
                let z = sigma(gx[n + j] + gh[n + j]);
                let a = gh[2 * n + j];
                let c = (gx[2 * n + j] + r * a).tanh();
                let candidate = (1.0 - c * c) * (r * w_n + a * r * (1.0 - r) * w_r);
                vec![vec![z + (1.0 - z) * candidate + (before[j] - c) * z * (1.0 - z) * w_z]]
            }
            CellKind::Lstm => {
                let [i, f, g, o] = [0, 1, 2, 3].map(|k| gx[k * n + j] + gh[k * n + j]);
                let [i, f, g, o] = [sigma(i), sigma(f), g.tanh(), sigma(o)];
                let [w_i, w_f, w_g, w_o] = [0, 1, 2, 3].map(|k| w(k, j));
                let (c_before, tanh_c) = (before[n + j], after[n + j].tanh());
                let c_h = c_before * f * (1.0 - f) * w_f + g * i * (1.0 - i) * w_i + i * (1.0 - g * g) * w_g;
                let through_c = o * (1.0 - tanh_c * tanh_c);
                vec![vec![o * (1.0 - o) * tanh_c * w_o + through_c * c_h, through_c * f], vec![c_h, f]]
            }
            CellKind::Mult => vec![vec![gx[j] * w(0, j)]],
            CellKind::MultGated => vec![vec![(gate("a", j) * gx[j] + gate("b", j)) * w(0, j)]],
        };
        (0..n).map(of_unit).collect()
    }

    /// Section 13: d of a block, for each of [`Net::units`] the product of its steps' matrices.
    pub fn diagonals(&self, theta: &Theta, inputs: &[usize], states: &[Vector]) -> Vec<Matrix> {
        let (v, w) = (self.unit_width(), self.layer_width());
        let mut d = vec![identity(v); self.layers * self.hidden];
        for (t, &token) in inputs.iter().enumerate() {
            for l in 0..self.layers {
                let x = match l {
                    0 => &theta["embed.weight"][token][..],
                    _ => &states[t + 1][self.h(l - 1)],
                };
                let before = &states[t][l * w..(l + 1) * w];
                let (gx, gh) = self.products(theta, l, x, &before[..self.hidden]);
                for (j, step) in self.step_diagonals(theta, l, &gx, &gh, before).iter().enumerate() {
                    let unit = &mut d[l * self.hidden + j];
                    *unit = product(step, unit);
                }
            }
        }
        d
    }

    /// d x, unit by unit.
    pub fn diagonal_times(&self, d: &[Matrix], x: &[f64]) -> Vector {
        let mut out = vec![0.0; x.len()];
        for (unit, d) in self.units().iter().zip(d) {
            for (a, &to) in unit.iter().enumerate() {
                for (b, &from) in unit.iter().enumerate() {
                    out[to] += d[a][b] * x[from];
                }
            }
        }
        out
    }

    /// dᵀ x, unit by unit.
    pub fn diagonal_transposed_times(&self, d: &[Matrix], x: &[f64]) -> Vector {
        let flipped: Vec<Matrix> = d.iter().map(flip).collect();
        self.diagonal_times(&flipped, x)
    }

    /// (1): the whole state before the first step (the start) and after each step; the last one is F.
    pub fn run(&self, theta: &Theta, inputs: &[usize], start: &[f64]) -> Vec<Vector> {
        let mut states = vec![start.to_vec()];
        for &token in inputs {
            let before = states.last().unwrap().clone();
            let mut x = theta["embed.weight"][token].clone();
            let mut after = Vector::new();
            for l in 0..self.layers {
                let layer = &before[l * self.layer_width()..(l + 1) * self.layer_width()];
                let (gx, gh) = self.products(theta, l, &x, &layer[..self.hidden]);
                let next = self.cell(theta, l, &gx, &gh, layer);
                x = next[..self.hidden].to_vec();
                after.extend(next);
            }
            states.push(after);
        }
        states
    }

    /// (3) without the output layer: from the derivatives in the top layer's h of each step and in the end to that in the start;
    /// those in θ are added to `d_theta`.
    pub fn back(
        &self,
        theta: &Theta,
        inputs: &[usize],
        states: &[Vector],
        d_tops: &[Vector],
        d_end: &[f64],
        d_theta: &mut Theta,
    ) -> Vector {
        let w = self.layer_width();
        let mut d = d_end.to_vec();
        for t in (0..inputs.len()).rev() {
            add(&mut d[self.h(self.layers - 1)], &d_tops[t]);
            let mut d_before = vec![0.0; d.len()];
            for l in (0..self.layers).rev() {
                let x = match l {
                    0 => &theta["embed.weight"][inputs[t]][..],
                    _ => &states[t + 1][self.h(l - 1)],
                };
                let before = &states[t][l * w..(l + 1) * w];
                let (gx, gh) = self.products(theta, l, x, &before[..self.hidden]);
                let step = self.cell_back(theta, l, &gx, &gh, before, &d[l * w..(l + 1) * w], d_theta);
                for (weight, bias, d_g, v) in [
                    ("weight_ih", "bias_ih", &step.d_gx, x),
                    ("weight_hh", "bias_hh", &step.d_gh, &before[..self.hidden]),
                ] {
                    let d_weight = tensor(d_theta, &format!("rnn.{weight}_l{l}"));
                    for (row, d) in d_weight.iter_mut().zip(d_g) {
                        add_scaled(row, v, *d);
                    }
                    if let Some(d_bias) = d_theta.get_mut(&format!("rnn.{bias}_l{l}")) {
                        add(&mut d_bias[0], d_g);
                    }
                }
                let d_layer = &mut d_before[l * w..(l + 1) * w];
                add(d_layer, &step.d_state);
                add(&mut d_layer[..self.hidden], &transposed(&theta[&format!("rnn.weight_hh_l{l}")], &step.d_gh));
                let d_x = transposed(&theta[&format!("rnn.weight_ih_l{l}")], &step.d_gx);
                match l {
                    0 => add(&mut tensor(d_theta, "embed.weight")[inputs[t]], &d_x),
                    _ => add(&mut d[self.h(l - 1)], &d_x),
                }
            }
            d = d_before;
        }
        d
    }

    fn output_weight(&self) -> &'static str {
        if self.tied { "embed.weight" } else { "out.weight" }
    }

    /// log softmax(W_y h + b)
    pub fn log_softmax(&self, theta: &Theta, h: &[f64]) -> Vector {
        let mut logits: Vector = theta[self.output_weight()].iter().map(|row| dot(row, h)).collect();
        add(&mut logits, &theta["out.bias"][0]);
        let largest = logits.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
        let log_z = largest + logits.iter().map(|l| (l - largest).exp()).sum::<f64>().ln();
        logits.iter().map(|l| l - log_z).collect()
    }

    /// From the derivative in the logits of W_y h + b to that in h; those in W_y and b are added to `d_theta`.
    pub fn output_back(&self, theta: &Theta, h: &[f64], d_logits: &[f64], d_theta: &mut Theta) -> Vector {
        for (row, d) in tensor(d_theta, self.output_weight()).iter_mut().zip(d_logits) {
            add_scaled(row, h, *d);
        }
        add(&mut tensor(d_theta, "out.bias")[0], d_logits);
        transposed(&theta[self.output_weight()], d_logits)
    }

    /// (2): the nats of a token y after h, and `scale` times their derivative in h; that in W_y and b is added to `d_theta`. A token
    /// without weight has neither.
    pub fn nats(
        &self,
        theta: &Theta,
        h: &[f64],
        y: usize,
        ignore: Option<usize>,
        scale: f64,
        d_theta: &mut Theta,
    ) -> (f64, Vector) {
        if ignore == Some(y) {
            return (0.0, vec![0.0; h.len()]);
        }
        let log_p = self.log_softmax(theta, h);
        let mut d_logits: Vector = log_p.iter().map(|l| scale * l.exp()).collect();
        d_logits[y] -= scale;
        (-log_p[y], self.output_back(theta, h, &d_logits, d_theta))
    }

    /// Perplexity of a text, read in so many streams from the initial state.
    pub fn perplexity(&self, theta: &Theta, text: &[usize], streams: usize) -> f64 {
        let length = (text.len() - 1) / streams;
        let mut nats = 0.0;
        for i in 0..streams {
            let states = self.run(theta, &text[i * length..(i + 1) * length], &self.initial_state());
            for t in 0..length {
                nats -= self.log_softmax(theta, self.top(&states[t + 1]))[text[i * length + t + 1]];
            }
        }
        (nats / (streams * length) as f64).exp()
    }
}

fn tensor<'a>(theta: &'a mut Theta, name: &str) -> &'a mut Matrix {
    theta.get_mut(name).unwrap()
}

pub fn zeros_like(theta: &Theta) -> Theta {
    theta.iter().map(|(name, rows)| (name.clone(), rows.iter().map(|row| vec![0.0; row.len()]).collect())).collect()
}

fn sigma(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn d_sigma(x: f64) -> f64 {
    sigma(x) * (1.0 - sigma(x))
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

pub fn add(out: &mut [f64], x: &[f64]) {
    add_scaled(out, x, 1.0);
}

pub fn add_scaled(out: &mut [f64], x: &[f64], factor: f64) {
    assert_eq!(out.len(), x.len());
    for j in 0..x.len() {
        out[j] += factor * x[j];
    }
}

pub fn minus(a: &[f64], b: &[f64]) -> Vector {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn identity(n: usize) -> Matrix {
    (0..n).map(|a| (0..n).map(|b| if a == b { 1.0 } else { 0.0 }).collect()).collect()
}

/// A B
pub fn product(a: &Matrix, b: &Matrix) -> Matrix {
    a.iter().map(|row| (0..b[0].len()).map(|j| (0..b.len()).map(|k| row[k] * b[k][j]).sum()).collect()).collect()
}

/// Aᵀ
pub fn flip(a: &Matrix) -> Matrix {
    (0..a[0].len()).map(|j| a.iter().map(|row| row[j]).collect()).collect()
}

/// x of A x = b, by elimination with the largest pivot of each column.
pub fn solve(mut a: Matrix, mut b: Vector) -> Vector {
    let n = b.len();
    for i in 0..n {
        let pivot = (i..n).max_by(|&p, &q| a[p][i].abs().total_cmp(&a[q][i].abs())).unwrap();
        a.swap(i, pivot);
        b.swap(i, pivot);
        for k in i + 1..n {
            let factor = a[k][i] / a[i][i];
            let row = a[i].clone();
            add_scaled(&mut a[k], &row, -factor);
            b[k] -= factor * b[i];
        }
    }
    for i in (0..n).rev() {
        b[i] = (b[i] - (i + 1..n).map(|j| a[i][j] * b[j]).sum::<f64>()) / a[i][i];
    }
    b
}

/// Wᵀ v
fn transposed(w: &Matrix, v: &[f64]) -> Vector {
    let mut out = vec![0.0; w[0].len()];
    for (row, v) in w.iter().zip(v) {
        add_scaled(&mut out, row, *v);
    }
    out
}
