//! How text is generated, and how lines are scored: a trained model that reads tokens one after the other.

use crate::eval::Reader;
use crate::model::{Model, Tape};
use crate::params::Params;
use crate::real::Real;
use crate::rng::Draws;
use crate::window::Layout;

/// Tokens that are read at once when scoring; bounds the memory for long lines.
const CHUNK: usize = 128;

/// How to draw the next token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Probabilities are raised to 1/temperature; 0 takes the likeliest token.
    pub temperature: f64,
    /// Only the likeliest so many tokens; 0 is all.
    pub top_k: usize,
    /// The same seed draws the same text.
    pub seed: u64,
}

impl Default for Sampling {
    /// From the model's own distribution.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, seed: 1 }
    }
}

/// A model with its weights and a state: reads tokens, predicts the next one, scores lines.
///
/// ```
/// use tprop::prelude::*;
/// let model = Model::<f32>::new(ModelConfig { hidden: 8, embed: 8, ..ModelConfig::new(10) });
/// let params = model.initial(1);
/// let mut generator = Generator::new(&model, &params);
/// generator.read(3);
/// let mut tokens = Vec::new();
/// generator.generate(20, Sampling { temperature: 0.8, top_k: 5, seed: 7 }, |token| {
///     tokens.push(token);
///     token != 0 // stops behind a 0
/// });
/// assert!(!tokens.is_empty());
/// let scores = generator.score(&[3, 1, 4]); // log p(1 | 3) and log p(4 | 3 1)
/// assert!(scores.len() == 2 && scores.iter().all(|&s| s < 0.0));
/// ```
#[derive(Debug)]
pub struct Generator<'a, T> {
    model: &'a Model<T>,
    params: &'a Params<T>,
    one: Tape<T>,
    state: Vec<T>,
    ends: Vec<T>,
}

impl<'a, T: Real> Generator<'a, T> {
    /// Begins in the initial state.
    pub fn new(model: &'a Model<T>, params: &'a Params<T>) -> Self {
        let state = vec![model.initial_state(); model.state_width()];
        Self { model, params, one: model.tape(Layout::new(1, 1)), ends: state.clone(), state }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.state.fill(self.model.initial_state());
    }

    /// Reads a token.
    pub fn read(&mut self, token: u32) {
        let tape = &mut self.one;
        tape.inputs.clear();
        tape.inputs.push(token);
        self.model.prepare(self.params, tape);
        self.model.recur(self.params, tape, &self.state);
        self.model.ends(tape, &mut self.ends);
        std::mem::swap(&mut self.state, &mut self.ends);
    }

    /// Logits of the token after the last one that was read.
    pub fn logits(&self, logits: &mut Vec<f64>) {
        let (weight, bias) = self.model.output_ids();
        let h = self.one.top();
        let rows = self.params.get(weight).chunks_exact(h.len());
        logits.clear();
        logits.extend(rows.zip(self.params.get(bias)).map(|(row, b)| {
            let dot: f64 = row.iter().zip(h).map(|(w, h)| w.f64() * h.f64()).sum();
            dot + b.f64()
        }));
    }

    /// Generates `count` tokens after what was read, calling `sink` with each as it is drawn. Stops if `sink` returns false.
    pub fn generate(&mut self, count: u64, sampling: Sampling, mut sink: impl FnMut(u32) -> bool) {
        let draws = Draws::new(sampling.seed, "generate");
        let mut logits = Vec::new();
        for i in 0..count {
            self.logits(&mut logits);
            let token = choose(&mut logits, sampling.temperature, sampling.top_k, draws.unit(i));
            if !sink(token) {
                return;
            }
            self.read(token);
        }
    }

    /// Log-probabilities, in nats, of tokens 1, 2, … of `tokens`, each after all before it, from the initial state.
    pub fn score(&self, tokens: &[u32]) -> Vec<f64> {
        let mut scores = Vec::with_capacity(tokens.len());
        let mut reader = Reader::new(CHUNK);
        // One stream in order.
        reader.read_each(self.model, self.params, tokens, 1, |_, _, nats| scores.push(-nats.f64()));
        scores
    }
}

/// A token drawn from softmax(logits / temperature) among the `top_k` likeliest (0: all); `unit` is uniform in 0 … 1.
fn choose(logits: &mut [f64], temperature: f64, top_k: usize, unit: f64) -> u32 {
    let best = logits.iter().enumerate().fold(0, |best, (i, x)| if *x > logits[best] { i } else { best });
    if temperature == 0.0 {
        return best as u32;
    }
    let top = logits[best];
    if top_k > 0 && top_k < logits.len() {
        let mut sorted = logits.to_vec();
        let (_, least, _) = sorted.select_nth_unstable_by(top_k - 1, |a, b| b.total_cmp(a));
        let least = *least;
        // Among equals at the edge the earlier tokens stay, so that exactly k do.
        let mut room = top_k - logits.iter().filter(|x| **x > least).count();
        for x in logits.iter_mut() {
            let stays = *x > least || (*x == least && room > 0);
            room -= usize::from(stays && *x == least);
            if !stays {
                *x = f64::NEG_INFINITY;
            }
        }
    }
    let mut sum = 0.0;
    for x in logits.iter_mut() {
        sum += ((*x - top) / temperature).exp();
        *x = sum; // cumulative
    }
    logits.partition_point(|x| *x <= unit * sum).min(logits.len() - 1) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelConfig;

    #[test]
    fn scores_are_the_log_softmax_of_the_logits() {
        let model: Model<f64> = Model::new(ModelConfig { hidden: 6, embed: 6, ..ModelConfig::new(9) });
        let params = model.initial(2);
        let mut generator = Generator::new(&model, &params);
        // Longer than a chunk, so that the state is carried between two.
        let tokens: Vec<u32> = (0..200).map(|i| (i * i % 9) as u32).collect();
        let scores = generator.score(&tokens);
        generator.reset();
        let mut logits = Vec::new();
        for (i, pair) in tokens.windows(2).enumerate() {
            generator.read(pair[0]);
            generator.logits(&mut logits);
            let log_z = logits.iter().map(|l| l.exp()).sum::<f64>().ln();
            assert!((logits[pair[1] as usize] - log_z - scores[i]).abs() < 1e-12, "token {i}");
        }
    }

    #[test]
    fn choices_follow_the_distribution() {
        let logits = [0.0, 1.0, 2.0, 2.0];
        let share = |temperature: f64, top_k: usize| {
            let mut counts = [0.0; 4];
            for i in 0..10_000 {
                let unit = (i as f64 + 0.5) / 10_000.0;
                counts[choose(&mut logits.clone(), temperature, top_k, unit) as usize] += 1e-4;
            }
            counts
        };
        let z: f64 = logits.iter().map(|l: &f64| l.exp()).sum();
        for (got, l) in share(1.0, 0).iter().zip(logits) {
            assert!((got - l.exp() / z).abs() < 1e-3);
        }
        assert_eq!(share(0.0, 0), [0.0, 0.0, share(0.0, 0)[2], 0.0]);
        let two = share(1.0, 2);
        assert!(two[0] == 0.0 && two[1] == 0.0 && (two[2] - 0.5).abs() < 1e-3);
        assert!(share(0.1, 0)[1] < 1e-3);
    }
}
