//! Buffers of a block pass.

use crate::clock::Clock;
use crate::kernel::softmax;
use crate::mat::{Mat, Packed};
use crate::real::Real;
use crate::window::Layout;

use super::{Model, Output};

impl<T: Real> Model<T> {
    /// Buffers for passes of this shape; allocate once, reuse for every window.
    pub fn tape(&self, layout: Layout) -> Tape<T> {
        let (n, h) = (layout.tokens(), self.config.hidden);
        let wide = self.cell.gates() * h;
        let layers = self.layers.iter().map(|_| LayerTape {
            gx: vec![T::ZERO; n * wide],
            gh: vec![T::ZERO; layout.rows * wide],
            states: vec![T::ZERO; layout.rows * (layout.steps + 1) * self.layer_width()],
            cached: vec![T::ZERO; n * (self.cell.cached() * h).max(1)],
            out: vec![T::ZERO; n * h],
            dout: vec![T::ZERO; n * h],
            // A cell whose two gradients agree needs no second buffer; one value a token stands in for it.
            dgx: vec![T::ZERO; n * if self.cell.split_gradients() { wide } else { 1 }],
            dgh: vec![T::ZERO; n * wide],
            dstate: vec![T::ZERO; 2 * layout.rows * self.layer_width()],
            packs: Packs::default(),
        });
        Tape {
            layout,
            inputs: Vec::with_capacity(n),
            targets: Vec::with_capacity(n),
            embedded: vec![T::ZERO; n * self.config.embed],
            dembedded: Vec::new(),
            layers: layers.collect(),
            nats: vec![T::ZERO; n],
            softmax: softmax::Softmax::new(self.config.logits_mb),
            scratch: Packed::default(),
            clock: Clock::default(),
        }
    }

    /// About how much memory a tape needs for each token.
    pub fn tape_bytes_per_token(&self) -> usize {
        let wide = self.cell.gates() * if self.cell.split_gradients() { 3 } else { 2 };
        let layer = (wide + self.cell.cached() + self.cell.vectors() + 2) * self.config.hidden;
        (self.config.layers * layer + 2 * self.config.embed) * T::BYTES
    }
}

/// What one layer's passes need and leave.
#[derive(Debug)]
pub(super) struct LayerTape<T> {
    pub(super) gx: Vec<T>,
    pub(super) gh: Vec<T>,
    /// Group by group: the starts, then the state after each step.
    pub(super) states: Vec<T>,
    pub(super) cached: Vec<T>,
    /// h of every token, next layer's input.
    pub(super) out: Vec<T>,
    pub(super) dout: Vec<T>,
    pub(super) dgx: Vec<T>,
    pub(super) dgh: Vec<T>,
    pub(super) dstate: Vec<T>,
    pub(super) packs: Packs<T>,
}

/// Weights laid out for products, made when first asked for after θ changed:
/// W_ihᵀ, W_hhᵀ (forward), W_hh, W_ih (backward).
#[derive(Debug, Default)]
pub(super) struct Packs<T> {
    packs: [Packed<T>; 4],
    fresh: [bool; 4],
}

impl<T: Real> Packs<T> {
    pub(super) fn get<'a>(&mut self, which: usize, weights: impl FnOnce() -> Mat<'a, T>) -> &Packed<T> {
        if !std::mem::replace(&mut self.fresh[which], true) {
            self.packs[which].pack(weights());
        }
        &self.packs[which]
    }
}

/// Buffers of a block pass and what its forward leaves for its backward.
#[derive(Debug)]
pub struct Tape<T> {
    pub(super) layout: Layout,
    /// Inputs in the order of the layout; fill before [`Model::prepare`].
    pub inputs: Vec<u32>,
    /// What follows each input.
    pub targets: Vec<u32>,
    pub(super) embedded: Vec<T>,
    pub(super) dembedded: Vec<T>,
    pub(super) layers: Vec<LayerTape<T>>,
    /// Nats of every token after [`Model::loss`] or [`Model::nats`].
    pub nats: Vec<T>,
    /// The output layer's work space.
    pub softmax: softmax::Softmax<T>,
    pub(super) scratch: Packed<T>,
    /// Time and arithmetic so far.
    pub clock: Clock,
}

impl<T: Real> Tape<T> {
    /// Rows, steps and their order.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The weights laid out for products are out of date: θ has changed.
    pub fn forget_weights(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.packs.fresh = [false; 4]);
    }

    /// What the output layer needs to run on other states than the tape's.
    pub fn output(&mut self) -> Output<'_, T> {
        let Self { softmax, nats, targets, clock, .. } = self;
        Output { softmax, nats, targets, clock }
    }

    /// Sum of the nats of all tokens.
    pub fn total_nats(&self) -> f64 {
        self.nats.iter().map(|n| n.f64()).sum()
    }

    /// The top layer's h of every token, in the order of the layout.
    pub fn top(&self) -> &[T] {
        &self.layers.last().expect("a layer").out
    }

    /// Adds the nats of each step of the block to `sums`.
    pub fn nats_by_step(&self, sums: &mut [f64]) {
        self.layout.each(|place, _, step| sums[step] += self.nats[place].f64());
    }
}
