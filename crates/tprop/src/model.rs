//! Embedding → cells → softmax, as a *block pass*: the two functions that all training methods are written with.
//!
//! ```text
//! forward:  prepare  (embeddings and input products; only when tokens or θ change)
//!           recur    (the time loop from given starts; gives the end states)
//!           loss     (the output layer: nats, their slope in h and, if wanted, in the output weights)
//! backward: backward (from the slope in the end states to ∂θ, if wanted, and the slope in the starts, if wanted)
//! ```
//!
//! A caller that needs no softmax (dual step, init sweeps) leaves `loss` out; one that needs no ∂θ (state step) hands in no
//! gradients; one whose starts did not move (`starts=held`) runs `backward` again with another pull. Rows are blocks,
//! side by side (see [`crate::window`]). A row's state is the concatenation of the layers' states, `[h]` or `[h | c]`.
//!
//! Dropout would be a mask, drawn from [`crate::rng`] by (step, layer, place), kept in the tape and applied where a layer's
//! inputs are read: `embedded` and `out` are copies made for the products, so masking them changes nothing else.

use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;

use crate::cell::{Before, Cell, CellKind, Slopes, Tensor};
use crate::clock::{Clock, Part};
use crate::kernel::{self, softmax};
use crate::mat::{Mat, MatMut, Packed, Start, product, product_par};
use crate::params::{Grads, Id, Params, Plan};
use crate::real::Real;
use crate::rng::Draws;
use crate::window::Layout;

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
    /// A window whose tape would hold more megabytes than this runs in pieces (of at least 32 rows).
    pub tape_mb: usize,
}

impl ModelConfig {
    /// One GRU layer of 100 units, embedding of the same size.
    pub fn new(vocab: usize) -> Self {
        Self {
            vocab,
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

/// The shape of a model; its weights are [`Params`].
#[derive(Debug)]
pub struct Model<T> {
    config: ModelConfig,
    plan: Arc<Plan>,
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
    /// The cell's own vectors stand next to each other in the plan.
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
        let mut plan = Plan::default();
        let embed = plan.matrix("embed.weight", config.vocab, config.embed);
        let layers = (0..config.layers).map(|l| {
            let inputs = if l == 0 { config.embed } else { h };
            let w_ih = plan.matrix(format!("rnn.weight_ih_l{l}"), wide, inputs);
            let w_hh = plan.matrix(format!("rnn.weight_hh_l{l}"), wide, h);
            let biases = cell.biased().then(|| {
                let b_ih = plan.vector(format!("rnn.bias_ih_l{l}"), wide);
                (b_ih, plan.vector(format!("rnn.bias_hh_l{l}"), wide))
            });
            let mut extras = None;
            for name in cell.extras() {
                let id = plan.vector(format!("rnn.{name}_l{l}"), h);
                extras.get_or_insert((id, cell.extras().len() * h));
            }
            LayerIds { w_ih, w_hh, biases, extras, inputs }
        });
        let layers = layers.collect();
        let out_weight = if config.tied { embed } else { plan.matrix("out.weight", config.vocab, h) };
        let out_bias = plan.vector("out.bias", config.vocab);
        Self { config, plan: Arc::new(plan), cell, embed, layers, out_weight, out_bias }
    }

    /// What it looks like.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Names and places of the weights.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
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
    pub fn rest(&self) -> T {
        self.cell.rest()
    }

    /// Fresh gradients.
    pub fn grads(&self) -> Grads<T> {
        Grads::new(&self.plan, self.sparse())
    }

    /// The tensor whose gradient has few rows that are not 0: the embedding, unless it is the output weights too.
    pub fn sparse(&self) -> Option<Id> {
        (!self.config.tied).then_some(self.embed)
    }

    /// Tensors whose gradients become ready together, in the order in which they do: the output layer, the cells from the top down, the
    /// embedding (with tied weights the output weights are the embedding). Each is a run of the plan.
    pub fn groups(&self) -> Vec<Vec<Id>> {
        let ids: Vec<Id> = self.plan.ids().collect();
        let out = if self.config.tied { vec![self.out_bias] } else { vec![self.out_weight, self.out_bias] };
        let per_layer = (ids.len() - 1 - out.len()) / self.config.layers;
        let layers = ids[1..ids.len() - out.len()].chunks(per_layer).rev().map(<[_]>::to_vec);
        let layers: Vec<_> = layers.collect();
        [out].into_iter().chain(layers).chain([vec![self.embed]]).collect()
    }

    /// Initial weights: a function of the seed and the shape.
    pub fn initial(&self, seed: u64) -> Params<T> {
        let mut params = Params::zeros(&self.plan);
        let recurrent = self.cell.spread() / (self.config.hidden as f64).sqrt();
        let mut draw = |id: Id, bound: f64, kind: Option<Tensor>| {
            let entry = self.plan.entry(id);
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

    fn extra_ids(&self, ids: &LayerIds) -> impl Iterator<Item = Id> + use<T> {
        let first = ids.extras.map(|(id, _)| id);
        let count = self.cell.extras().len();
        let plan = self.plan.clone();
        plan.ids().skip_while(move |id| Some(*id) != first).take(count).collect::<Vec<_>>().into_iter()
    }

    /// Buffers for passes of this shape; allocate once, reuse for every window.
    pub fn tape(&self, layout: Layout) -> Tape<T> {
        let (n, h) = (layout.tokens(), self.config.hidden);
        let wide = self.cell.gates() * h;
        let layers = self.layers.iter().map(|_| LayerTape {
            gx: vec![T::ZERO; n * wide],
            gh: vec![T::ZERO; layout.rows * wide],
            states: vec![T::ZERO; layout.rows * (layout.steps + 1) * self.layer_width()],
            kept: vec![T::ZERO; n * (self.cell.kept() * h).max(1)],
            out: vec![T::ZERO; n * h],
            dout: vec![T::ZERO; n * h],
            // A cell whose two slopes agree needs no second buffer; one value a token stands in for it.
            dgx: vec![T::ZERO; n * if self.cell.split_slopes() { wide } else { 1 }],
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
        let wide = self.cell.gates() * if self.cell.split_slopes() { 3 } else { 2 };
        let layer = (wide + self.cell.kept() + self.cell.vectors() + 2) * self.config.hidden;
        (self.config.layers * layer + 2 * self.config.embed) * T::BYTES
    }

    /// Looks up the embeddings of `tape.inputs` and computes the first layer's input products. Call it whenever the
    /// tokens or θ have changed, and only then.
    pub fn prepare(&self, params: &Params<T>, tape: &mut Tape<T>) {
        let since = Instant::now();
        let (n, e) = (tape.layout.tokens(), self.config.embed);
        assert_eq!(tape.inputs.len(), n);
        let table = params.get(self.embed);
        tape.embedded.par_chunks_mut(e * 64).zip(tape.inputs.par_chunks(64)).for_each(|(rows, tokens)| {
            for (row, &token) in rows.chunks_exact_mut(e).zip(tokens) {
                row.copy_from_slice(&table[token as usize * e..][..e]);
            }
        });
        let since = tape.clock.book(Part::Embedding, since);
        tape.forget_weights();
        self.input_product(params, tape, 0);
        tape.clock.book(Part::Input, since);
    }

    /// Instead of [`Model::prepare`], for passes that only recur: takes the input products of the rows from `first` on of another
    /// tape, prepared with the same θ. The tape must have forgotten older weights.
    pub fn take_inputs(&self, tape: &mut Tape<T>, from: &Tape<T>, first: usize) {
        let since = Instant::now();
        let wide = self.cell.gates() * self.config.hidden;
        let (to, source) = (&mut tape.layers[0].gx, &from.layers[0].gx);
        tape.layout.each(|place, row, step| {
            let at = from.layout.place(first + row, step);
            to[place * wide..][..wide].copy_from_slice(&source[at * wide..][..wide]);
        });
        tape.clock.book(Part::Input, since);
    }

    /// gx = W_ih x + b_ih for all steps of layer `l`.
    fn input_product(&self, params: &Params<T>, tape: &mut Tape<T>, l: usize) {
        let (ids, n) = (&self.layers[l], tape.layout.tokens());
        let wide = self.cell.gates() * self.config.hidden;
        let (below, at) = tape.layers.split_at_mut(l);
        let layer = &mut at[0];
        let inputs = below.last().map_or(&tape.embedded, |b| &b.out);
        let w = layer.packs.get(0, || Mat::new(params.get(ids.w_ih), wide, ids.inputs).t());
        let start = ids.biases.map_or(Start::Zero, |(b_ih, _)| Start::Bias(params.get(b_ih)));
        product_par(MatMut::new(&mut layer.gx, n, wide), start, Mat::new(inputs, n, ids.inputs), w);
        tape.clock.count(n, wide, ids.inputs);
    }

    /// Runs the cells over the prepared inputs from `starts` (rows × state width).
    pub fn recur(&self, params: &Params<T>, tape: &mut Tape<T>, starts: &[T]) {
        assert_eq!(starts.len(), tape.layout.rows * self.state_width());
        for l in 0..self.config.layers {
            let since = Instant::now();
            if l > 0 {
                self.input_product(params, tape, l);
                tape.clock.book(Part::Input, since);
            }
            let since = Instant::now();
            self.layer_forward(params, tape, l, starts);
            tape.clock.book(Part::Recurrence, since);
        }
    }

    fn layer_forward(&self, params: &Params<T>, tape: &mut Tape<T>, l: usize, starts: &[T]) {
        let (ids, layout, h, cell) = (&self.layers[l], tape.layout, self.config.hidden, &self.cell);
        let (steps, group) = (layout.steps, layout.group);
        let (wide, width, kept) = (cell.gates() * h, self.layer_width(), (cell.kept() * h).max(1));
        let (state_width, offset) = (self.state_width(), l * width);
        let layer = &mut tape.layers[l];
        let w = layer.packs.get(1, || Mat::new(params.get(ids.w_hh), wide, h).t());
        let bias = ids.biases.map_or(Start::Zero, |(_, b_hh)| Start::Bias(params.get(b_hh)));
        let extras =
            ids.extras.map_or(&[][..], |(first, len)| &params.all()[self.plan.entry(first).range().start..][..len]);
        let groups = (
            layer.states.par_chunks_mut(group * (steps + 1) * width),
            layer.kept.par_chunks_mut(group * steps * kept),
            layer.out.par_chunks_mut(group * steps * h),
            layer.gh.par_chunks_mut(group * wide),
            layer.gx.par_chunks(group * steps * wide),
            starts.par_chunks(group * state_width),
        );
        groups.into_par_iter().for_each(|(states, kept_all, out, gh, gx, starts)| {
            let rows = starts.len() / state_width;
            for (state, start) in states.chunks_exact_mut(width).zip(starts.chunks_exact(state_width)) {
                state.copy_from_slice(&start[offset..][..width]);
            }
            let mut rest = states;
            for t in 0..steps {
                let (prev, after) = rest.split_at_mut(rows * width);
                product(MatMut::new(gh, rows, wide), bias, Mat::strided(prev, rows, h, width), w);
                let next = &mut after[..rows * width];
                let gx = &gx[t * rows * wide..][..rows * wide];
                let kept = &mut kept_all[t * rows * kept..][..rows * kept];
                cell.forward(next, kept, Before { hidden: h, state: prev, gx, extras }, gh);
                let out = &mut out[t * rows * h..][..rows * h];
                for (out, next) in out.chunks_exact_mut(h).zip(next.chunks_exact(width)) {
                    out.copy_from_slice(&next[..h]);
                }
                rest = after;
            }
        });
        tape.clock.count(layout.tokens(), wide, h);
    }

    /// Copies the end states of the last [`Model::recur`] into `ends` (rows × state width).
    pub fn ends(&self, tape: &Tape<T>, ends: &mut [T]) {
        let (layout, width, state_width) = (tape.layout, self.layer_width(), self.state_width());
        assert_eq!(ends.len(), layout.rows * state_width);
        for (l, layer) in tape.layers.iter().enumerate() {
            for g in 0..layout.groups() {
                let rows = layout.group_rows(g);
                let last = (rows.start * (layout.steps + 1) + layout.steps * rows.len()) * width;
                let from = layer.states[last..][..rows.len() * width].chunks_exact(width);
                for (row, from) in rows.zip(from) {
                    ends[row * state_width + l * width..][..width].copy_from_slice(from);
                }
            }
        }
    }

    /// Nats of every token into `tape.nats`, without any slope; returns their sum.
    pub fn nats(&self, params: &Params<T>, tape: &mut Tape<T>) -> f64 {
        let since = Instant::now();
        let top = Mat::new(&tape.layers.last().expect("a layer").out, tape.layout.tokens(), self.config.hidden);
        let (w, b) = (params.get(self.out_weight), params.get(self.out_bias));
        tape.softmax.nats(&mut tape.nats, top, w, b, &tape.targets);
        tape.clock.count(tape.layout.tokens(), self.config.vocab, self.config.hidden);
        tape.clock.book(Part::SoftmaxForward, since);
        tape.total_nats()
    }

    /// Nats of every token into `tape.nats` (returns their sum), and scale · their slope in h, left in the tape for
    /// [`Model::backward`]. With `grads`, scale · the slope in the output weights is added there.
    pub fn loss(
        &self,
        params: &Params<T>,
        tape: &mut Tape<T>,
        scale: T,
        ignore: Option<u32>,
        grads: Option<&mut Grads<T>>,
    ) -> f64 {
        let (n, h) = (tape.layout.tokens(), self.config.hidden);
        let layer = tape.layers.last_mut().expect("a layer");
        let dh = MatMut::new(&mut layer.dout, n, h);
        let top = Mat::new(&layer.out, n, h);
        self.loss_at(
            params,
            &mut tape.softmax,
            &mut tape.nats,
            dh,
            top,
            &tape.targets,
            scale,
            ignore,
            grads,
            &mut tape.clock,
        );
        tape.total_nats()
    }

    /// The output layer on any states `h` (n × hidden): see [`Model::loss`].
    #[allow(clippy::too_many_arguments)]
    pub fn loss_at(
        &self,
        params: &Params<T>,
        softmax: &mut softmax::Softmax<T>,
        nats: &mut [T],
        dh: MatMut<T>,
        h: Mat<T>,
        targets: &[u32],
        scale: T,
        ignore: Option<u32>,
        grads: Option<&mut Grads<T>>,
        clock: &mut Clock,
    ) {
        let since = Instant::now();
        let (w, b) = (params.get(self.out_weight), params.get(self.out_bias));
        let products = 2 + usize::from(grads.is_some());
        let theta = grads.map(|grads| {
            let (weight, bias, keep) = grads.add_to_pair(self.out_weight, self.out_bias);
            softmax::Slopes { weight, bias, keep }
        });
        let before = softmax.forward_seconds;
        softmax.slopes(nats, dh, theta, h, w, b, targets, scale, ignore);
        let forward = softmax.forward_seconds - before;
        clock.count(products * targets.len(), self.config.vocab, self.config.hidden);
        clock.book_both(since, (Part::SoftmaxForward, forward), Part::SoftmaxBackward);
    }

    /// Back through the cells: from the slope that [`Model::loss`] left (unless `with_loss` is false) and `d_end`, the slope in the
    /// end states (0 if none), to `d_start` and ∂θ of cells and embedding, each only if wanted. The tape's forward stays
    /// valid, so this may be called again with another `d_end`.
    pub fn backward(
        &self,
        params: &Params<T>,
        tape: &mut Tape<T>,
        with_loss: bool,
        d_end: Option<&[T]>,
        d_start: Option<&mut [T]>,
        grads: Option<&mut Grads<T>>,
    ) {
        self.backward_telling(params, tape, with_loss, d_end, d_start, grads, &mut |_, _| {});
    }

    /// [`Model::backward`] that tells when a group of [`Model::groups`] is complete.
    #[allow(clippy::too_many_arguments)]
    pub fn backward_telling(
        &self,
        params: &Params<T>,
        tape: &mut Tape<T>,
        with_loss: bool,
        d_end: Option<&[T]>,
        mut d_start: Option<&mut [T]>,
        mut grads: Option<&mut Grads<T>>,
        ready: &mut dyn FnMut(&mut Grads<T>, usize),
    ) {
        for l in (0..self.config.layers).rev() {
            let since = Instant::now();
            let with_out = with_loss || l + 1 < self.config.layers;
            self.layer_backward(params, tape, l, with_out, d_end, d_start.as_deref_mut());
            if let Some(grads) = grads.as_deref_mut() {
                self.recurrent_gradient(tape, l, grads);
            }
            let since = tape.clock.book(Part::Recurrence, since);
            if l > 0 || grads.is_some() {
                self.input_backward(params, tape, l, grads.as_deref_mut());
            }
            tape.clock.book(Part::Input, since);
            if let Some(grads) = grads.as_deref_mut() {
                ready(grads, self.config.layers - l);
            }
        }
        if let Some(grads) = grads {
            let since = Instant::now();
            self.scatter(tape, grads);
            tape.clock.book(Part::Embedding, since);
            ready(grads, self.config.layers + 1);
        }
    }

    fn layer_backward(
        &self,
        params: &Params<T>,
        tape: &mut Tape<T>,
        l: usize,
        with_out: bool,
        d_end: Option<&[T]>,
        d_start: Option<&mut [T]>,
    ) {
        let (ids, layout, h, cell) = (&self.layers[l], tape.layout, self.config.hidden, &self.cell);
        let (steps, group) = (layout.steps, layout.group);
        let (wide, width, kept) = (cell.gates() * h, self.layer_width(), (cell.kept() * h).max(1));
        let (state_width, offset) = (self.state_width(), l * width);
        let layer = &mut tape.layers[l];
        let w = layer.packs.get(2, || Mat::new(params.get(ids.w_hh), wide, h));
        let extras =
            ids.extras.map_or(&[][..], |(first, len)| &params.all()[self.plan.entry(first).range().start..][..len]);
        let split = cell.split_slopes();
        let groups = (
            layer.dgh.par_chunks_mut(group * steps * wide),
            layer.dgx.par_chunks_mut(group * steps * if split { wide } else { 1 }),
            layer.kept.par_chunks_mut(group * steps * kept),
            layer.dstate.par_chunks_mut(2 * group * width),
            layer.dout.par_chunks(group * steps * h),
            layer.gx.par_chunks(group * steps * wide),
            layer.states.par_chunks(group * (steps + 1) * width),
        );
        groups.into_par_iter().enumerate().for_each(|(g, (dgh, dgx, kept_all, dstate, dout, gx, states))| {
            let rows = layout.group_rows(g).len();
            let (mut dnext, mut dprev) = dstate.split_at_mut(rows * width);
            match d_end {
                None => dnext.fill(T::ZERO),
                Some(d_end) => {
                    let from = d_end[layout.group_rows(g).start * state_width..].chunks_exact(state_width);
                    for (d, from) in dnext.chunks_exact_mut(width).zip(from) {
                        d.copy_from_slice(&from[offset..][..width]);
                    }
                }
            }
            for t in (0..steps).rev() {
                if with_out {
                    let dout = dout[t * rows * h..][..rows * h].chunks_exact(h);
                    for (d, dout) in dnext.chunks_exact_mut(width).zip(dout) {
                        kernel::add(&mut d[..h], dout);
                    }
                }
                let state = &states[t * rows * width..][..rows * width];
                let next = &states[(t + 1) * rows * width..][..rows * width];
                let step = t * rows * wide..(t + 1) * rows * wide;
                let before = Before { hidden: h, state, gx: &gx[step.clone()], extras };
                let dgx = if split { &mut dgx[step.clone()] } else { &mut [][..] };
                let slopes = Slopes { gx: dgx, gh: &mut dgh[step.clone()], state: dprev };
                cell.backward(slopes, dnext, next, &mut kept_all[t * rows * kept..][..rows * kept], before);
                let c = MatMut::strided(dprev, rows, h, width);
                product(c, Start::Keep, Mat::new(&dgh[step], rows, wide), w);
                std::mem::swap(&mut dnext, &mut dprev);
            }
            // After an odd number of steps the result stands in the second half.
            if steps % 2 == 1 {
                dprev.copy_from_slice(dnext);
            }
        });
        if let Some(d_start) = d_start {
            for g in 0..layout.groups() {
                let rows = layout.group_rows(g);
                let from = &layer.dstate[2 * rows.start * width..][..rows.len() * width];
                for (row, from) in rows.zip(from.chunks_exact(width)) {
                    d_start[row * state_width + offset..][..width].copy_from_slice(from);
                }
            }
        }
        tape.clock.count(layout.tokens(), wide, h);
    }

    /// ∂W_hh, ∂b_hh and the slopes of the cell's own vectors.
    fn recurrent_gradient(&self, tape: &mut Tape<T>, l: usize, grads: &mut Grads<T>) {
        let (ids, layout, h) = (&self.layers[l], tape.layout, self.config.hidden);
        let (wide, width) = (self.cell.gates() * h, self.layer_width());
        let layer = &tape.layers[l];
        for g in 0..layout.groups() {
            let rows = layout.group_rows(g);
            let n = rows.len() * layout.steps;
            let before = &layer.states[rows.start * (layout.steps + 1) * width..][..n * width];
            tape.scratch.pack(Mat::strided(before, n, h, width));
            let dgh = Mat::new(&layer.dgh[rows.start * layout.steps * wide..][..n * wide], n, wide);
            let (dw, keep) = grads.add_to(ids.w_hh);
            let start = if keep { Start::Keep } else { Start::Zero };
            product_par(MatMut::new(dw, wide, h), start, dgh.t(), &tape.scratch);
        }
        tape.clock.count(layout.tokens(), wide, h);
        if let Some((_, b_hh)) = ids.biases {
            sum_columns(grads.sum_into(b_hh), &layer.dgh);
        }
        if let Some((first, _)) = ids.extras {
            let sums = grads.sum_into_run(first, self.cell.extras().len());
            self.cell.extras_back(sums, h, &layer.kept, &layer.gx);
        }
    }

    /// ∂W_ih, ∂b_ih (if wanted) and the slope in the layer's inputs.
    fn input_backward(&self, params: &Params<T>, tape: &mut Tape<T>, l: usize, grads: Option<&mut Grads<T>>) {
        let (ids, n, h) = (&self.layers[l], tape.layout.tokens(), self.config.hidden);
        let wide = self.cell.gates() * h;
        let (below, at) = tape.layers.split_at_mut(l);
        let layer = &mut at[0];
        let dgx = if self.cell.split_slopes() { &layer.dgx } else { &layer.dgh };
        let slopes = Mat::new(dgx, n, wide);
        let (inputs, dinputs) = match below.last_mut() {
            Some(below) => (&below.out, &mut below.dout),
            None => {
                tape.dembedded.resize(n * ids.inputs, T::ZERO);
                (&tape.embedded, &mut tape.dembedded)
            }
        };
        if let Some(grads) = grads {
            tape.scratch.pack(Mat::new(inputs, n, ids.inputs));
            let (dw, keep) = grads.add_to(ids.w_ih);
            let start = if keep { Start::Keep } else { Start::Zero };
            product_par(MatMut::new(dw, wide, ids.inputs), start, slopes.t(), &tape.scratch);
            tape.clock.count(n, wide, ids.inputs);
            if let Some((b_ih, _)) = ids.biases {
                sum_columns(grads.sum_into(b_ih), dgx);
            }
        }
        let w = layer.packs.get(3, || Mat::new(params.get(ids.w_ih), wide, ids.inputs));
        product_par(MatMut::new(dinputs, n, ids.inputs), Start::Zero, slopes, w);
        tape.clock.count(n, wide, ids.inputs);
    }

    /// Adds the slopes in the embedded inputs to the rows of their tokens.
    fn scatter(&self, tape: &Tape<T>, grads: &mut Grads<T>) {
        let e = self.config.embed;
        let rows = tape.inputs.iter().zip(tape.dembedded.chunks_exact(e));
        if self.config.tied {
            let dw = grads.sum_into(self.embed);
            for (&token, d) in rows {
                kernel::add(&mut dw[token as usize * e..][..e], d);
            }
        } else {
            for (&token, d) in rows {
                kernel::add(grads.row(self.embed, token), d);
            }
        }
    }
}

/// sums[j] += Σ_i rows[i][j], in the order of i.
fn sum_columns<T: Real>(sums: &mut [T], rows: &[T]) {
    let cols = sums.len();
    sums.par_chunks_mut(256).enumerate().for_each(|(piece, sums)| {
        for row in rows.chunks_exact(cols) {
            kernel::add(sums, &row[piece * 256..][..sums.len()]);
        }
    });
}

/// What one layer's passes need and leave.
#[derive(Debug)]
struct LayerTape<T> {
    gx: Vec<T>,
    gh: Vec<T>,
    /// Group by group: the starts, then the state after each step.
    states: Vec<T>,
    kept: Vec<T>,
    /// h of every token, next layer's input.
    out: Vec<T>,
    dout: Vec<T>,
    dgx: Vec<T>,
    dgh: Vec<T>,
    dstate: Vec<T>,
    packs: Packs<T>,
}

/// Weights laid out for products, made when first asked for after θ changed:
/// W_ihᵀ, W_hhᵀ (forward), W_hh, W_ih (backward).
#[derive(Debug, Default)]
struct Packs<T> {
    packs: [Packed<T>; 4],
    fresh: [bool; 4],
}

impl<T: Real> Packs<T> {
    fn get<'a>(&mut self, which: usize, weights: impl FnOnce() -> Mat<'a, T>) -> &Packed<T> {
        if !std::mem::replace(&mut self.fresh[which], true) {
            self.packs[which].pack(weights());
        }
        &self.packs[which]
    }
}

/// Buffers of a block pass and what its forward leaves for its backward.
#[derive(Debug)]
pub struct Tape<T> {
    layout: Layout,
    /// Inputs in the order of the layout; fill before [`Model::prepare`].
    pub inputs: Vec<u32>,
    /// What follows each input.
    pub targets: Vec<u32>,
    embedded: Vec<T>,
    dembedded: Vec<T>,
    layers: Vec<LayerTape<T>>,
    /// Nats of every token after [`Model::loss`] or [`Model::nats`].
    pub nats: Vec<T>,
    /// The output layer's work space.
    pub softmax: softmax::Softmax<T>,
    scratch: Packed<T>,
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
    pub fn output_parts(&mut self) -> (&mut softmax::Softmax<T>, &mut [T], &[u32], &mut Clock) {
        (&mut self.softmax, &mut self.nats, &self.targets, &mut self.clock)
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
