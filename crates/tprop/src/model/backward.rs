//! The backward half of the block pass: from slopes in the outputs and end states to ∂θ and slopes in the starts.

use std::time::Instant;

use rayon::prelude::*;

use crate::cell::{Before, Slopes};
use crate::clock::Part;
use crate::kernel;
use crate::mat::{Mat, MatMut, Start, product, product_par};
use crate::params::{Grads, Params};
use crate::real::Real;

use super::{Model, Tape};

impl<T: Real> Model<T> {
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
