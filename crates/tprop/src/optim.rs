//! How θ is updated: optimisers over named tensors, with one pass for clipping and updating. The formulas are PyTorch's; learning rates and Adagrad's ε are
//! not its defaults (docs/formats.md has the list).
//!
//! The embedding's gradient is row-sparse, and only the rows of words that occur are updated. For sgd and adagrad that equals the
//! dense update. The others differ from PyTorch's dense optimisers: a row's momentum and averages stand still while its word
//! does not occur (as in `torch.optim.SparseAdam`, but for where ε stands), so that a step does not cost more for a larger vocabulary.

use std::sync::Arc;

use crate::kernel::{self, update};
use crate::params::{Grads, Params, Shapes};
use crate::real::Real;
use crate::words;

/// An update rule with its own constants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// p ← p − η g
    Sgd,
    /// Nesterov's momentum in PyTorch's form.
    Nag {
        /// μ
        momentum: f64,
    },
    /// Per-weight rates η / (√Σg² + ε).
    Adagrad {
        /// ε
        eps: f64,
    },
    /// η / (√mean g² + ε) with a decaying mean.
    Rmsprop {
        /// Weight of the old mean.
        alpha: f64,
        /// ε
        eps: f64,
    },
    /// Ratio of decaying means of updates and gradients.
    Adadelta {
        /// Weight of the old means.
        rho: f64,
        /// ε
        eps: f64,
    },
    /// Bias-corrected decaying means of g and g².
    Adam {
        /// Weight of the old mean of g.
        beta1: f64,
        /// Weight of the old mean of g².
        beta2: f64,
        /// ε
        eps: f64,
    },
}

words! {
    Rule {
        "adagrad" => Adagrad { eps: 1e-5 },
        "sgd" => Sgd,
        "nag" => Nag { momentum: 0.9 },
        "rmsprop" => Rmsprop { alpha: 0.99, eps: 1e-8 },
        "adadelta" => Adadelta { rho: 0.9, eps: 1e-6 },
        "adam" => Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8 },
    }
}

impl Default for Rule {
    fn default() -> Self {
        Rule::Adagrad { eps: 1e-5 }
    }
}

impl Rule {
    /// A rate to begin with.
    pub fn usual_rate(&self) -> f64 {
        match self {
            Rule::Sgd => 1.0,
            Rule::Nag { .. } => 0.1,
            Rule::Adagrad { .. } => 0.05,
            Rule::Rmsprop { .. } | Rule::Adam { .. } => 0.002,
            Rule::Adadelta { .. } => 1.0,
        }
    }

    /// The ε of the rule, if it has one.
    pub fn eps(&self) -> Option<f64> {
        match *self {
            Rule::Sgd | Rule::Nag { .. } => None,
            Rule::Adagrad { eps } | Rule::Rmsprop { eps, .. } | Rule::Adadelta { eps, .. } | Rule::Adam { eps, .. } => {
                Some(eps)
            }
        }
    }

    /// The rule with another ε, if it has one.
    pub fn with_eps(mut self, other: f64) -> Self {
        match &mut self {
            Rule::Sgd | Rule::Nag { .. } => {}
            Rule::Adagrad { eps } | Rule::Rmsprop { eps, .. } | Rule::Adadelta { eps, .. } | Rule::Adam { eps, .. } => {
                *eps = other;
            }
        }
        self
    }

    /// How many values it keeps per weight.
    pub fn slots(&self) -> usize {
        match self {
            Rule::Sgd => 0,
            Rule::Nag { .. } | Rule::Adagrad { .. } | Rule::Rmsprop { .. } => 1,
            Rule::Adadelta { .. } | Rule::Adam { .. } => 2,
        }
    }
}

/// How θ is updated.
///
/// ```
/// use tprop::prelude::*;
/// let rule: Rule = "adam".parse()?;
/// let config = OptimConfig { rule, rate: rule.usual_rate(), clip: 1.0 };
/// assert_eq!(config.rate, 0.002);
/// assert_eq!(config.rule.eps(), Some(1e-8));
/// # Ok::<(), tprop::words::WordError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimConfig {
    /// The rule.
    pub rule: Rule,
    /// η
    pub rate: f64,
    /// Largest global norm of the gradient; larger ones are scaled down to it. 0 switches clipping off.
    pub clip: f64,
}

impl Default for OptimConfig {
    fn default() -> Self {
        let rule = Rule::default();
        Self { rule, rate: rule.usual_rate(), clip: 0.5 }
    }
}

/// An optimiser and what it remembers.
#[derive(Clone, Debug)]
pub struct Optimiser<T> {
    rule: Rule,
    /// η, changed by schedules.
    pub rate: f64,
    clip: f64,
    /// Updates so far.
    pub steps: u64,
    slots: Vec<Params<T>>,
    copy: Copied<T>,
}

/// Whether the gradient of the next update is copied for someone who measures it; shapes nothing.
#[derive(Clone, Debug, Default)]
enum Copied<T> {
    #[default]
    No,
    Next,
    Here(Vec<T>),
}

impl<T: Real> Optimiser<T> {
    /// A fresh one.
    pub fn new(config: OptimConfig, shapes: &Arc<Shapes>) -> Self {
        let slots = (0..config.rule.slots()).map(|_| Params::zeros(shapes)).collect();
        Self { rule: config.rule, rate: config.rate, clip: config.clip, steps: 0, slots, copy: Copied::No }
    }

    /// From the next update on, until it is taken, a copy of that update's gradient is here ([`Optimiser::take_gradient`]).
    pub fn copy_next(&mut self) {
        self.copy = Copied::Next;
    }

    /// The gradient of the first update after [`Optimiser::copy_next`], before clipping.
    pub fn take_gradient(&mut self) -> Option<Vec<T>> {
        match std::mem::take(&mut self.copy) {
            Copied::Here(gradient) => Some(gradient),
            Copied::No | Copied::Next => None,
        }
    }

    /// The rule.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// What it remembers, for checkpoints: one set of tensors per slot.
    pub fn slots(&self) -> &[Params<T>] {
        &self.slots
    }

    /// What it remembers, to restore.
    pub fn slots_mut(&mut self) -> &mut [Params<T>] {
        &mut self.slots
    }

    /// Global norm of factor · gradient.
    pub fn norm(grads: &Grads<T>, factor: f64) -> f64 {
        let shapes = grads.values().shapes();
        let sparse = grads.sparse_rows();
        let mut sum = 0.0;
        for id in shapes.ids() {
            let values = grads.values().get(id);
            match sparse {
                Some((s, rows)) if s == id => {
                    let cols = shapes.entry(id).cols;
                    for &row in rows {
                        sum += kernel::sum_squares(&values[row as usize * cols..][..cols]);
                    }
                }
                _ => sum += kernel::sum_squares(values),
            }
        }
        sum.sqrt() * factor.abs()
    }

    /// θ ← θ − update(factor · g), clipped to the global norm. Returns the norm before clipping; if it is not finite, nothing has
    /// changed.
    pub fn update(&mut self, params: &mut Params<T>, grads: &Grads<T>, factor: f64) -> f64 {
        let factor = crate::fault::poison("nan.gradient").unwrap_or(factor);
        if let Copied::Next = self.copy {
            let factor = T::of(factor);
            self.copy = Copied::Here(grads.values().all().iter().map(|&g| factor * g).collect());
        }
        let norm = Self::norm(grads, factor);
        if !norm.is_finite() {
            return norm;
        }
        // PyTorch's clip_grad_norm_.
        let clip = if self.clip > 0.0 { (self.clip / (norm + 1e-6)).min(1.0) } else { 1.0 };
        let scale = T::of(clip * factor);
        self.steps += 1;
        let shapes = params.shapes().clone();
        let sparse = grads.sparse_rows();
        for id in shapes.ids() {
            let range = shapes.entry(id).range();
            match sparse {
                Some((s, rows)) if s == id => {
                    let cols = shapes.entry(id).cols;
                    for &row in rows {
                        let start = range.start + row as usize * cols;
                        self.update_slice(params, grads, start..start + cols, scale);
                    }
                }
                _ => self.update_slice(params, grads, range, scale),
            }
        }
        norm
    }

    fn update_slice(&mut self, params: &mut Params<T>, grads: &Grads<T>, at: std::ops::Range<usize>, scale: T) {
        let (p, g) = (&mut params.all_mut()[at.clone()], &grads.values().all()[at.clone()]);
        let rate = T::of(self.rate);
        let mut slots = self.slots.iter_mut().map(|s| &mut s.all_mut()[at.clone()]);
        let mut slot = || slots.next().expect("a slot per remembered value");
        match self.rule {
            Rule::Sgd => update::sgd(p, g, rate, scale),
            Rule::Nag { momentum } => update::nag(p, slot(), g, rate, T::of(momentum), self.steps == 1, scale),
            Rule::Adagrad { eps } => update::adagrad(p, slot(), g, rate, T::of(eps), scale),
            Rule::Rmsprop { alpha, eps } => update::rmsprop(p, slot(), g, rate, T::of(alpha), T::of(eps), scale),
            Rule::Adadelta { rho, eps } => {
                update::adadelta(p, slot(), slot(), g, rate, T::of(rho), T::of(eps), scale);
            }
            Rule::Adam { beta1, beta2, eps } => {
                let betas = (T::of(beta1), T::of(beta2));
                update::adam(p, slot(), slot(), g, rate, betas, T::of(eps), self.steps, scale);
            }
        }
    }
}
