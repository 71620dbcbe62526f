//! The recurrent layers: the products with the inputs of all steps at once, the time loop, and the way back through both.

use std::time::Instant;

use rayon::prelude::*;

use crate::cell::{Before, CellGradients};
use crate::clock::Part;
use crate::kernel;
use crate::mat::{Mat, MatMut, Start, product, product_par};
use crate::params::{Grads, Params};
use crate::real::Real;

use super::{Model, Tape};

/// Where ∂θ goes.
pub struct ThetaGradient<'a, T> {
    /// Added to.
    pub grads: &'a mut Grads<T>,
    /// Called when a group of [`Model::groups`] is complete.
    pub ready: &'a mut dyn FnMut(&mut Grads<T>, usize),
}

impl<T> std::fmt::Debug for ThetaGradient<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThetaGradient").finish_non_exhaustive()
    }
}

impl<T: Real> Model<T> {
    /// Looks up the embeddings of `tape.inputs` and computes the first layer's input products. Call it whenever the
    /// tokens or θ have changed, and only then.
    pub fn prepare(&self, params: &Params<T>, tape: &mut Tape<T>) {
        self.embed(params, tape);
        let since = Instant::now();
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

    /// Back through the cells: from the gradient that [`Model::loss`] left (unless `with_loss` is false) and `d_end`, the gradient in
    /// the end states (0 if none), to `d_start` and ∂θ of cells and embedding, each only if wanted. The tape's forward stays
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
        let mut ready = |_: &mut Grads<T>, _| {};
        let theta = grads.map(|grads| ThetaGradient { grads, ready: &mut ready });
        self.backward_by_group(params, tape, with_loss, d_end, d_start, theta);
    }

    /// [`Model::backward`] that says when a group of [`Model::groups`] is complete.
    pub fn backward_by_group(
        &self,
        params: &Params<T>,
        tape: &mut Tape<T>,
        with_loss: bool,
        d_end: Option<&[T]>,
        mut d_start: Option<&mut [T]>,
        mut theta: Option<ThetaGradient<T>>,
    ) {
        for l in (0..self.config.layers).rev() {
            let since = Instant::now();
            let with_out = with_loss || l + 1 < self.config.layers;
            self.layer_backward(params, tape, l, with_out, d_end, d_start.as_deref_mut());
            if let Some(theta) = &mut theta {
                self.recurrent_gradient(tape, l, theta.grads);
            }
            let since = tape.clock.book(Part::Recurrence, since);
            if l > 0 || theta.is_some() {
                self.input_backward(params, tape, l, theta.as_mut().map(|theta| &mut *theta.grads));
            }
            tape.clock.book(Part::Input, since);
            if let Some(theta) = &mut theta {
                (theta.ready)(theta.grads, self.config.layers - l);
            }
        }
        if let Some(theta) = theta {
            self.embed_back(tape, theta.grads);
            (theta.ready)(theta.grads, self.config.layers + 1);
        }
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

    /// ∂W_ih, ∂b_ih (if wanted) and the gradient in the layer's inputs.
    fn input_backward(&self, params: &Params<T>, tape: &mut Tape<T>, l: usize, grads: Option<&mut Grads<T>>) {
        let (ids, n, h) = (&self.layers[l], tape.layout.tokens(), self.config.hidden);
        let wide = self.cell.gates() * h;
        let (below, at) = tape.layers.split_at_mut(l);
        let layer = &mut at[0];
        let dgx = if self.cell.split_gradients() { &layer.dgx } else { &layer.dgh };
        let dgx_all = Mat::new(dgx, n, wide);
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
            product_par(MatMut::new(dw, wide, ids.inputs), start, dgx_all.t(), &tape.scratch);
            tape.clock.count(n, wide, ids.inputs);
            if let Some((b_ih, _)) = ids.biases {
                sum_columns(grads.sum_into(b_ih), dgx);
            }
        }
        let w = layer.packs.get(3, || Mat::new(params.get(ids.w_ih), wide, ids.inputs));
        product_par(MatMut::new(dinputs, n, ids.inputs), Start::Zero, dgx_all, w);
        tape.clock.count(n, wide, ids.inputs);
    }

    fn layer_forward(&self, params: &Params<T>, tape: &mut Tape<T>, l: usize, starts: &[T]) {
        let (ids, layout, h, cell) = (&self.layers[l], tape.layout, self.config.hidden, &self.cell);
        let (steps, group) = (layout.steps, layout.group);
        let (wide, width, cached) = (cell.gates() * h, self.layer_width(), (cell.cached() * h).max(1));
        let (state_width, offset) = (self.state_width(), l * width);
        let layer = &mut tape.layers[l];
        let w = layer.packs.get(1, || Mat::new(params.get(ids.w_hh), wide, h).t());
        let bias = ids.biases.map_or(Start::Zero, |(_, b_hh)| Start::Bias(params.get(b_hh)));
        let extras = self.extras(params, ids);
        let groups = (
            layer.states.par_chunks_mut(group * (steps + 1) * width),
            layer.cached.par_chunks_mut(group * steps * cached),
            layer.out.par_chunks_mut(group * steps * h),
            layer.gh.par_chunks_mut(group * wide),
            layer.gx.par_chunks(group * steps * wide),
            starts.par_chunks(group * state_width),
        );
        groups.into_par_iter().for_each(|(states, all_cached, out, gh, gx, starts)| {
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
                let cached = &mut all_cached[t * rows * cached..][..rows * cached];
                cell.forward(next, cached, Before { hidden: h, state: prev, gx, extras }, gh);
                let out = &mut out[t * rows * h..][..rows * h];
                for (out, next) in out.chunks_exact_mut(h).zip(next.chunks_exact(width)) {
                    out.copy_from_slice(&next[..h]);
                }
                rest = after;
            }
        });
        tape.clock.count(layout.tokens(), wide, h);
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
        let (wide, width, cached) = (cell.gates() * h, self.layer_width(), (cell.cached() * h).max(1));
        let (state_width, offset) = (self.state_width(), l * width);
        let layer = &mut tape.layers[l];
        let w = layer.packs.get(2, || Mat::new(params.get(ids.w_hh), wide, h));
        let extras = self.extras(params, ids);
        let split = cell.split_gradients();
        let groups = (
            layer.dgh.par_chunks_mut(group * steps * wide),
            layer.dgx.par_chunks_mut(group * steps * if split { wide } else { 1 }),
            layer.cached.par_chunks_mut(group * steps * cached),
            layer.dstate.par_chunks_mut(2 * group * width),
            layer.dout.par_chunks(group * steps * h),
            layer.gx.par_chunks(group * steps * wide),
            layer.states.par_chunks(group * (steps + 1) * width),
        );
        groups.into_par_iter().enumerate().for_each(|(g, (dgh, dgx, all_cached, dstate, dout, gx, states))| {
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
                let grads = CellGradients { gx: dgx, gh: &mut dgh[step.clone()], state: dprev };
                cell.backward(grads, dnext, next, &mut all_cached[t * rows * cached..][..rows * cached], before);
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

    /// ∂W_hh, ∂b_hh and the gradients of the cell's own vectors.
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
            self.cell.extras_back(sums, h, &layer.cached, &layer.gx);
        }
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
}

/// sums[j] += Σ_i rows[i][j], in the order of i.
fn sum_columns<T: Real>(sums: &mut [T], rows: &[T]) {
    let cols = sums.len();
    sums.par_chunks_mut(256).enumerate().for_each(|(run, sums)| {
        for row in rows.chunks_exact(cols) {
            kernel::add(sums, &row[run * 256..][..sums.len()]);
        }
    });
}
