//! The optimisers, weight by weight, in PyTorch's form.

use std::collections::BTreeSet;

use tprop::optim::{OptimConfig, Rule};

use super::net::{Theta, zeros_like};

pub struct Optimiser {
    config: OptimConfig,
    steps: i32,
    /// Two values that a rule may remember of each weight.
    memory: [Theta; 2],
}

impl Optimiser {
    pub fn new(config: OptimConfig, theta: &Theta) -> Self {
        Self { config, steps: 0, memory: [zeros_like(theta), zeros_like(theta)] }
    }

    /// (9): θ ← optimiser(∂L/∂θ), the gradient clipped to its global norm first. Rows of the embedding whose word was not read rest,
    /// unless they are the output weights too. Returns the norm before clipping, and whether clipping acted.
    pub fn step(&mut self, theta: &mut Theta, gradient: &Theta, read: &BTreeSet<usize>, tied: bool) -> (f64, bool) {
        let norm = gradient.values().flatten().flatten().map(|g| g * g).sum::<f64>().sqrt();
        let OptimConfig { rule, rate, clip } = self.config;
        let shrink = if clip > 0.0 { (clip / (norm + 1e-6)).min(1.0) } else { 1.0 };
        self.steps += 1;
        for (name, rows) in theta {
            for (i, row) in rows.iter_mut().enumerate() {
                if name == "embed.weight" && !tied && !read.contains(&i) {
                    continue;
                }
                for (j, p) in row.iter_mut().enumerate() {
                    let g = shrink * gradient[name][i][j];
                    let [m, v] = self.memory.each_mut().map(|memory| &mut memory.get_mut(name).unwrap()[i][j]);
                    *p -= rate
                        * match rule {
                            Rule::Sgd => g,
                            Rule::Nag { momentum } => {
                                *m = if self.steps == 1 { g } else { momentum * *m + g };
                                g + momentum * *m
                            }
                            Rule::Adagrad { eps } => {
                                *m += g * g;
                                g / (m.sqrt() + eps)
                            }
                            Rule::Rmsprop { alpha, eps } => {
                                *m = alpha * *m + (1.0 - alpha) * g * g;
                                g / (m.sqrt() + eps)
                            }
                            Rule::Adadelta { rho, eps } => {
                                *m = rho * *m + (1.0 - rho) * g * g;
                                let delta = ((*v + eps) / (*m + eps)).sqrt() * g;
                                *v = rho * *v + (1.0 - rho) * delta * delta;
                                delta
                            }
                            Rule::Adam { beta1, beta2, eps } => {
                                *m = beta1 * *m + (1.0 - beta1) * g;
                                *v = beta2 * *v + (1.0 - beta2) * g * g;
                                let unbiased = *v / (1.0 - beta2.powi(self.steps));
                                *m / (1.0 - beta1.powi(self.steps)) / (unbiased.sqrt() + eps)
                            }
                        };
                }
            }
        }
        (norm, shrink < 1.0)
    }
}
