//! The embedding: one row of a table for each token, and the gradient in those rows.

use std::time::Instant;

use rayon::prelude::*;

use crate::clock::Part;
use crate::kernel;
use crate::params::{Grads, Params};
use crate::real::Real;

use super::{Model, Tape};

impl<T: Real> Model<T> {
    /// Looks up the rows of `tape.inputs`.
    pub(super) fn embed(&self, params: &Params<T>, tape: &mut Tape<T>) {
        let since = Instant::now();
        let (n, e) = (tape.layout.tokens(), self.config.embed);
        assert_eq!(tape.inputs.len(), n);
        let table = params.get(self.embed);
        tape.embedded.par_chunks_mut(e * 64).zip(tape.inputs.par_chunks(64)).for_each(|(rows, tokens)| {
            for (row, &token) in rows.chunks_exact_mut(e).zip(tokens) {
                row.copy_from_slice(&table[token as usize * e..][..e]);
            }
        });
        tape.clock.book(Part::Embedding, since);
    }

    /// Adds the gradients in the embedded inputs to the rows of their tokens.
    pub(super) fn embed_back(&self, tape: &mut Tape<T>, grads: &mut Grads<T>) {
        let since = Instant::now();
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
        tape.clock.book(Part::Embedding, since);
    }
}
