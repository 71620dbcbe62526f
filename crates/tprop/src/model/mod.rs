//! Embedding → cells → softmax, as a *block pass*: the two functions that all training methods are written with.
//!
//! ```text
//! forward:  prepare  (embeddings and input products; only when tokens or θ change)
//!           recur    (the time loop from given starts; gives the end states)
//!           loss     (the output layer: nats, their gradient in h and, if wanted, in the output weights)
//! backward: backward (from the gradient in the end states to ∂θ, if wanted, and the gradient in the starts, if wanted)
//! ```
//!
//! The forward of each part stands next to its backward: `embedding.rs`, `recurrence.rs`, `output.rs`.
//!
//! A caller that needs no softmax (dual step, init sweeps) leaves `loss` out; one that needs no ∂θ (state step) hands in no
//! gradients; one whose starts did not move (`starts=held`) runs `backward` again with another pull. Rows are blocks,
//! side by side (see [`crate::window`]). A row's state is the concatenation of the layers' states, `[h]` or `[h | c]`.
//!
//! Dropout would be a mask, drawn from [`crate::rng`] by (step, layer, place), cached in the tape and applied where a layer's
//! inputs are read: `embedded` and `out` are copies made for the products, so masking them changes nothing else.

mod diagonal;
mod embedding;
mod output;
mod recurrence;
mod tape;

use std::sync::Arc;

use crate::cell::{Cell, CellKind, Tensor};
use crate::params::{Grads, Id, Params, Shapes};
use crate::real::Real;
use crate::rng::Draws;

pub use diagonal::{Side, Sweep, Units};
pub use output::{Output, Weight};
pub use recurrence::ThetaGradient;
pub use tape::Tape;

/// What a model looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Words, characters or bytes.
    pub vocab: usize,
    /// The recurrent cell.
    pub cell: CellKind,
    /// Units of each layer.
    pub hidden: usize,
    /// Size of the embedding.
    pub embed: usize,
    /// Number of recurrent layers.
    pub layers: usize,
    /// Output weights are the embedding (`embed` = `hidden`).
    pub tied: bool,
    /// Embedding and output weights are drawn within ± this; recurrent ones within ±1/√hidden.
    pub init: f64,
    /// Logits held at any time stay below this many megabytes.
    pub logits_mb: usize,
    /// A window whose tape would hold more megabytes than this runs in chunks (of at least 32 rows).
    pub tape_mb: usize,
}

impl Default for ModelConfig {
    /// One GRU layer of 100 units, embedding of the same size, over 10,000 words.
    fn default() -> Self {
        Self {
            vocab: 10_000,
            cell: CellKind::Gru,
            hidden: 100,
            embed: 100,
            layers: 1,
            tied: false,
            init: 0.1,
            logits_mb: 144,
            tape_mb: 128,
        }
    }
}

impl ModelConfig {
    /// The default over a vocabulary of this size.
    pub fn new(vocab: usize) -> Self {
        Self { vocab, ..Self::default() }
    }
}

/// The shape of a model; its weights are [`Params`].
///
/// ```
/// use tprop::prelude::*;
/// let model = Model::<f32>::new(ModelConfig { cell: CellKind::Lstm, hidden: 32, embed: 16, ..ModelConfig::new(50) });
/// let params = model.initial(1);
/// assert_eq!(params.all().len(), model.shapes().len());
/// for tensor in model.shapes().entries() {
///     println!("{} {:?}", tensor.name, tensor.dims()); // embed.weight [50, 16], rnn.weight_ih_l0 [128, 16], …
/// }
/// ```
#[derive(Debug)]
pub struct Model<T> {
    config: ModelConfig,
    shapes: Arc<Shapes>,
    cell: Box<dyn Cell<T>>,
    embed: Id,
    layers: Vec<LayerIds>,
    out_weight: Id,
    out_bias: Id,
}

#[derive(Debug)]
struct LayerIds {
    w_ih: Id,
    w_hh: Id,
    biases: Option<(Id, Id)>,
    /// The cell's own vectors stand next to each other in the buffer.
    extras: Option<(Id, usize)>,
    inputs: usize,
}

impl<T: Real> Model<T> {
    /// Names and places of all weights.
    pub fn new(config: ModelConfig) -> Self {
        assert!(config.vocab > 0 && config.hidden > 0 && config.embed > 0 && config.layers > 0);
        assert!(!config.tied || config.embed == config.hidden, "tied weights need embed = hidden");
        let cell = config.cell.build::<T>();
        let (h, wide) = (config.hidden, cell.gates() * config.hidden);
        let mut shapes = Shapes::default();
        let embed = shapes.matrix("embed.weight", config.vocab, config.embed);
        let layers = (0..config.layers).map(|l| {
            let inputs = if l == 0 { config.embed } else { h };
            let w_ih = shapes.matrix(format!("rnn.weight_ih_l{l}"), wide, inputs);
            let w_hh = shapes.matrix(format!("rnn.weight_hh_l{l}"), wide, h);
            let biases = cell.biased().then(|| {
                let b_ih = shapes.vector(format!("rnn.bias_ih_l{l}"), wide);
                (b_ih, shapes.vector(format!("rnn.bias_hh_l{l}"), wide))
            });
            let mut extras = None;
            for name in cell.extras() {
                let id = shapes.vector(format!("rnn.{name}_l{l}"), h);
                extras.get_or_insert((id, cell.extras().len() * h));
            }
            LayerIds { w_ih, w_hh, biases, extras, inputs }
        });
        let layers = layers.collect();
        let out_weight = if config.tied { embed } else { shapes.matrix("out.weight", config.vocab, h) };
        let out_bias = shapes.vector("out.bias", config.vocab);
        Self { config, shapes: Arc::new(shapes), cell, embed, layers, out_weight, out_bias }
    }

    /// What it looks like.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Names and places of the weights.
    pub fn shapes(&self) -> &Arc<Shapes> {
        &self.shapes
    }

    /// Output weights (V × H) and bias.
    pub fn output_ids(&self) -> (Id, Id) {
        (self.out_weight, self.out_bias)
    }

    /// The embedding (V × E).
    pub fn embed_id(&self) -> Id {
        self.embed
    }

    /// Layer `l`'s input and recurrent weights, and its vectors of its own if it has any.
    pub fn layer_ids(&self, l: usize) -> (Id, Id, Option<Id>) {
        (self.layers[l].w_ih, self.layers[l].w_hh, self.layers[l].extras.map(|e| e.0))
    }

    /// Values of one state: layers · vectors · hidden.
    pub fn state_width(&self) -> usize {
        self.config.layers * self.layer_width()
    }

    /// Values of one layer's state.
    pub fn layer_width(&self) -> usize {
        self.cell.vectors() * self.config.hidden
    }

    /// Where the top layer's h, which the output layer sees, stands in a state.
    pub fn top(&self) -> std::ops::Range<usize> {
        let start = (self.config.layers - 1) * self.layer_width();
        start..start + self.config.hidden
    }

    /// Whether component `j` of a state belongs to an h (constraints act on h, not on c).
    pub fn is_h(&self, j: usize) -> bool {
        j % self.layer_width() < self.config.hidden
    }

    /// Every component of the state at the beginning of a text (0 but for the plain multiplicative cell).
    pub fn initial_state(&self) -> T {
        self.cell.initial_state()
    }

    /// Fresh gradients.
    pub fn grads(&self) -> Grads<T> {
        Grads::new(&self.shapes, self.sparse())
    }

    /// The tensor whose gradient has few rows that are not 0: the embedding, unless it is the output weights too.
    pub fn sparse(&self) -> Option<Id> {
        (!self.config.tied).then_some(self.embed)
    }

    /// Tensors whose gradients become ready together, in the order in which they do: the output layer, the cells from the top down, the
    /// embedding (with tied weights the output weights are the embedding). Each is a run of the buffer.
    pub fn groups(&self) -> Vec<Vec<Id>> {
        let ids: Vec<Id> = self.shapes.ids().collect();
        let out = if self.config.tied { vec![self.out_bias] } else { vec![self.out_weight, self.out_bias] };
        let per_layer = (ids.len() - 1 - out.len()) / self.config.layers;
        let layers = ids[1..ids.len() - out.len()].chunks(per_layer).rev().map(<[_]>::to_vec);
        let layers: Vec<_> = layers.collect();
        [out].into_iter().chain(layers).chain([vec![self.embed]]).collect()
    }

    /// Initial weights: a function of the seed and the shape.
    pub fn initial(&self, seed: u64) -> Params<T> {
        let mut params = Params::zeros(&self.shapes);
        let recurrent = self.cell.init_scale() / (self.config.hidden as f64).sqrt();
        let mut draw = |id: Id, bound: f64, kind: Option<Tensor>| {
            let entry = self.shapes.entry(id);
            let draws = Draws::new(seed, &entry.name);
            let cols = entry.cols;
            for (i, value) in params.get_mut(id).iter_mut().enumerate() {
                let centre = kind.map_or(0.0, |kind| self.cell.centre(kind, i / cols, i % cols, cols));
                *value = T::of(centre + draws.within(i as u64, bound));
            }
        };
        draw(self.embed, self.config.init, Some(Tensor::Embedding));
        for ids in &self.layers {
            // A layer above the first sees states, whose centre is the layer's own business.
            draw(ids.w_ih, recurrent, Some(Tensor::Input));
            draw(ids.w_hh, recurrent, Some(Tensor::Recurrent));
            if let Some((b_ih, b_hh)) = ids.biases {
                draw(b_ih, recurrent, None);
                draw(b_hh, recurrent, None);
            }
        }
        if !self.config.tied {
            draw(self.out_weight, self.config.init, None);
        }
        for ids in &self.layers {
            for (i, id) in self.extra_ids(ids).enumerate() {
                let centre = self.cell.centre(Tensor::Extra(i), 0, 0, 1);
                params.get_mut(id).fill(T::of(centre));
            }
        }
        params
    }

    /// The cell's own vectors of a layer, one after the other.
    fn extras<'a>(&self, params: &'a Params<T>, ids: &LayerIds) -> &'a [T] {
        ids.extras.map_or(&[][..], |(first, len)| &params.all()[self.shapes.entry(first).range().start..][..len])
    }

    fn extra_ids(&self, ids: &LayerIds) -> impl Iterator<Item = Id> + use<T> {
        let first = ids.extras.map(|(id, _)| id);
        let count = self.cell.extras().len();
        let shapes = self.shapes.clone();
        shapes.ids().skip_while(move |id| Some(*id) != first).take(count).collect::<Vec<_>>().into_iter()
    }
}
