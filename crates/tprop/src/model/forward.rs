//! The forward half of the block pass: inputs, time loop, output layer.

use std::time::Instant;

use rayon::prelude::*;

use crate::cell::Before;
use crate::clock::{Clock, Part};
use crate::kernel::softmax;
use crate::mat::{Mat, MatMut, Start, product, product_par};
use crate::params::{Grads, Params};
use crate::real::Real;

use super::{Model, Tape};

impl<T: Real> Model<T> {
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
}
