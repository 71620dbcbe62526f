//! Recurrent cells. Each is two matrix products and an element-wise function:
//!
//! ```text
//! gx = W_ih x + b_ih      for all steps at once, before the time loop
//! gh = W_hh h + b_hh      inside the loop
//! (h, c) = cell(gx, gh, h₋, c₋)
//! ```
//!
//! A cell is the element-wise function and its derivative; [`crate::model`] does the products. To add one: a file
//! here with the forward beside its backward, a line in [`CellKind`], its word, one in [`CellKind::ALL`] and [`CellKind::build`], its golden or
//! hand-checked case in `tests/gradients.rs`, its row in `docs/math.md`.

mod elman;
mod gru;
mod lstm;
mod mult;

use std::fmt::Debug;

use crate::real::Real;
use crate::words;

/// Non-linearity of the Elman cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// tanh, as in PyTorch.
    #[default]
    Tanh,
    /// The logistic function, as the paper writes it.
    Sigmoid,
}

words! { Activation { "tanh" => Tanh, "sigmoid" => Sigmoid } }

/// Which cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellKind {
    /// Gated recurrent unit in PyTorch's (cuDNN's) form.
    Gru,
    /// Long short-term memory; its state is `[h | c]`.
    Lstm,
    /// One non-linear layer.
    Elman(Activation),
    /// h = (A x) ⊙ (C h₋), no non-linearity (the paper's footnote).
    Mult,
    /// h = a ⊙ Ax ⊙ Ch₋ + b ⊙ Ch₋ + c ⊙ Ax + d.
    MultGated,
}

words! {
    CellKind {
        "gru" => Gru,
        "lstm" => Lstm,
        "elman" => Elman(Activation::default()),
        "mult" => Mult,
        "mult_gated" => MultGated,
    }
}

impl CellKind {
    /// Every cell, with every non-linearity. Tests run over this list.
    pub const ALL: [CellKind; 6] = [
        CellKind::Elman(Activation::Tanh),
        CellKind::Elman(Activation::Sigmoid),
        CellKind::Gru,
        CellKind::Lstm,
        CellKind::Mult,
        CellKind::MultGated,
    ];

    /// The cell with another non-linearity, if it lets one choose.
    pub fn with_activation(self, activation: Activation) -> Self {
        match self {
            CellKind::Elman(_) => CellKind::Elman(activation),
            CellKind::Gru | CellKind::Lstm | CellKind::Mult | CellKind::MultGated => self,
        }
    }

    /// The parts of its weights in which a step is linear; none for most cells.
    pub fn factors(self) -> &'static [Factor] {
        self.build::<f32>().factors()
    }

    /// The cell's arithmetic.
    pub fn build<T: Real>(self) -> Box<dyn Cell<T>> {
        match self {
            CellKind::Gru => Box::new(gru::Gru),
            CellKind::Lstm => Box::new(lstm::Lstm),
            CellKind::Elman(activation) => Box::new(elman::Elman(activation)),
            CellKind::Mult => Box::new(mult::Mult),
            CellKind::MultGated => Box::new(mult::MultGated),
        }
    }
}

/// Rows of one step of one group, all with the same number of units.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a, T> {
    /// Units of a row (hidden size).
    pub hidden: usize,
    /// State before the step: rows × vectors·hidden.
    pub state: &'a [T],
    /// Input product: rows × gates·hidden.
    pub gx: &'a [T],
    /// The cell's own vectors, one after the other.
    pub extras: &'a [T],
}

/// Gradients that a step's backward hands back: all overwritten.
#[derive(Debug)]
pub struct CellGradients<'a, T> {
    /// In the input product; empty if the cell says that it equals the gradient in the recurrent product.
    pub gx: &'a mut [T],
    /// In the recurrent product.
    pub gh: &'a mut [T],
    /// In the state before, what does not go through the recurrent product.
    pub state: &'a mut [T],
}

/// The element-wise part of a cell. Slices hold whole rows; `cached` is what the forward leaves for the backward.
pub trait Cell<T: Real>: Send + Sync + Debug {
    /// The products have gates·hidden columns.
    fn gates(&self) -> usize;

    /// A state has vectors·hidden values.
    fn vectors(&self) -> usize {
        1
    }

    /// The forward leaves cached·hidden values a row.
    fn cached(&self) -> usize;

    /// Names of vectors of the cell's own, beside weights and biases.
    fn extras(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the products have biases.
    fn biased(&self) -> bool {
        true
    }

    /// Whether the gradients in gx and gh differ.
    fn split_gradients(&self) -> bool {
        false
    }

    /// Every component of the state at the beginning of a text. 0 but for cells that would never leave it.
    fn initial_state(&self) -> T {
        T::ZERO
    }

    /// Recurrent weights are drawn within ±init_scale/√hidden.
    fn init_scale(&self) -> f64 {
        1.0
    }

    /// Added to the random initial value of a weight at (row, column) of `tensor`: its centre.
    fn centre(&self, _tensor: Tensor, _row: usize, _col: usize, _cols: usize) -> f64 {
        0.0
    }

    /// next = cell(before, gh); `gh` includes its bias.
    fn forward(&self, next: &mut [T], cached: &mut [T], before: Before<T>, gh: &[T]);

    /// Gradients from `dnext`, the gradient in the state after the step. `cached` may be changed for [`Cell::extras_back`].
    fn backward(&self, grads: CellGradients<T>, dnext: &[T], next: &[T], cached: &mut [T], before: Before<T>);

    /// The step unit by unit: the derivative of a unit's new state in its own state before, all other units left out. `diagonal` has rows ×
    /// vectors²·hidden values, of LSTM ∂h/∂h, ∂h/∂c, ∂c/∂h, ∂c/∂c; `weights` the diagonals of the gates' recurrent matrices.
    fn diagonal(&self, diagonal: &mut [T], weights: &[T], next: &[T], cached: &[T], before: Before<T>);

    /// Adds the gradients of the cell's own vectors over all rows; called after the backward of all steps.
    fn extras_back(&self, _dextras: &mut [T], _hidden: usize, _cached: &[T], _gx: &[T]) {}

    /// The parts of θ in which the step is linear, in the order in which least squares solves for them.
    fn factors(&self) -> &'static [Factor] {
        &[]
    }
}

/// A part of θ in which a step is linear while the rest is held; such a part has a least-squares solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    /// W_ih
    Input,
    /// W_hh
    Recurrent,
    /// The cell's own vectors.
    Gates,
}

/// Kinds of weights, for their initial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tensor {
    /// Rows of the embedding.
    Embedding,
    /// W_ih
    Input,
    /// W_hh
    Recurrent,
    /// A vector of the cell's own, by its place in [`Cell::extras`].
    Extra(usize),
}

#[cfg(test)]
mod tests {
    use super::{Activation, CellKind};
    use crate::words::Words;

    /// The words are complete because each variant must have one; so the list is complete if it has every word and no cell twice.
    #[test]
    fn the_list_of_cells_is_complete() {
        let mut expected = Vec::new();
        for cell in CellKind::WORDS.iter().map(|word| word.parse::<CellKind>().expect("its own word")) {
            for activation in Activation::WORDS.iter().map(|word| word.parse().expect("its own word")) {
                let cell = cell.with_activation(activation);
                if !expected.contains(&cell) {
                    expected.push(cell);
                }
            }
        }
        assert_eq!(expected.len(), CellKind::ALL.len());
        assert!(expected.iter().all(|cell| CellKind::ALL.contains(cell)), "{expected:?}");
    }
}
