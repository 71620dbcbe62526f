//! The output layer: softmax(W h + b). Its forward and backward are one fused kernel, because the logits of all tokens would not fit.

use std::time::Instant;

use crate::clock::{Clock, Part};
use crate::kernel::softmax;
use crate::mat::{Mat, MatMut};
use crate::params::{Grads, Params};
use crate::real::Real;

use super::{Model, Tape};

/// What the output layer works with beside states: parts of a tape ([`Tape::output`]).
#[derive(Debug)]
pub struct Output<'a, T> {
    /// Work space.
    pub softmax: &'a mut softmax::Softmax<T>,
    /// Nats of every token, to be written.
    pub nats: &'a mut [T],
    /// The token that each state should predict.
    pub targets: &'a [u32],
    /// Time and arithmetic.
    pub clock: &'a mut Clock,
}

/// How much a token's nats count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight<T> {
    /// Gradients are multiplied with this.
    pub scale: T,
    /// Tokens that should predict this one count nothing.
    pub ignore: Option<u32>,
}

impl<T: Real> Model<T> {
    /// Nats of every token into `tape.nats`, without any gradient; returns their sum.
    pub fn nats(&self, params: &Params<T>, tape: &mut Tape<T>) -> f64 {
        let since = Instant::now();
        let top = Mat::new(&tape.layers.last().expect("a layer").out, tape.layout.tokens(), self.config.hidden);
        let (w, b) = (params.get(self.out_weight), params.get(self.out_bias));
        tape.softmax.nats(&mut tape.nats, top, w, b, &tape.targets);
        tape.clock.count(tape.layout.tokens(), self.config.vocab, self.config.hidden);
        tape.clock.book(Part::SoftmaxForward, since);
        tape.total_nats()
    }

    /// Nats of every token into `tape.nats` (returns their sum), and scale · their gradient in h, left in the tape for
    /// [`Model::backward`]. With `grads`, scale · the gradient in the output weights is added there.
    pub fn loss(
        &self,
        params: &Params<T>,
        tape: &mut Tape<T>,
        scale: T,
        ignore: Option<u32>,
        grads: Option<&mut Grads<T>>,
    ) -> f64 {
        let (n, h) = (tape.layout.tokens(), self.config.hidden);
        let Tape { layers, softmax, nats, targets, clock, .. } = tape;
        let layer = layers.last_mut().expect("a layer");
        let (dh, top) = (MatMut::new(&mut layer.dout, n, h), Mat::new(&layer.out, n, h));
        self.loss_at(params, Output { softmax, nats, targets, clock }, dh, top, Weight { scale, ignore }, grads);
        tape.total_nats()
    }

    /// The output layer on any states `h` (n × hidden): see [`Model::loss`].
    pub fn loss_at(
        &self,
        params: &Params<T>,
        output: Output<T>,
        dh: MatMut<T>,
        h: Mat<T>,
        weight: Weight<T>,
        grads: Option<&mut Grads<T>>,
    ) {
        let since = Instant::now();
        let Output { softmax, nats, targets, clock } = output;
        let layer = softmax::Layer { weight: params.get(self.out_weight), bias: params.get(self.out_bias) };
        let Weight { scale, ignore } = weight;
        let products = 2 + usize::from(grads.is_some());
        let theta = grads.map(|grads| {
            let (weight, bias, keep) = grads.add_to_pair(self.out_weight, self.out_bias);
            softmax::WeightGradients { weight, bias, keep }
        });
        let before = softmax.forward_seconds;
        softmax.gradients(nats, dh, theta, h, layer, softmax::Targets { words: targets, scale, ignore });
        let forward = softmax.forward_seconds - before;
        clock.count(products * targets.len(), self.config.vocab, self.config.hidden);
        clock.book_both(since, (Part::SoftmaxForward, forward), Part::SoftmaxBackward);
    }
}
