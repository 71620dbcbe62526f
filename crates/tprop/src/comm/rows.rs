//! Rows of the state that are divided among the ranks, for checkpoints: a checkpoint holds all of them in order, as that of a lone process,
//! so it can be resumed on another number of ranks.

use super::{Comm, Topic, receive_numbers, send_numbers};
use crate::params::{Rows, Visit};
use crate::real::Real;

/// Shows a walker the rows of all ranks on rank 0, and what it is shown otherwise everywhere. All ranks visit together.
#[derive(Debug)]
pub struct Collect<'a, W: ?Sized> {
    /// The ranks.
    pub comm: &'a dyn Comm,
    /// Copies what it is shown.
    pub visit: &'a mut W,
}

impl<T: Real, W: Visit<T> + ?Sized> Visit<T> for Collect<'_, W> {
    fn count(&mut self, name: &str, value: &mut u64) {
        self.visit.count(name, value);
    }
    fn real(&mut self, name: &str, value: &mut f64) {
        self.visit.real(name, value);
    }
    fn tensor(&mut self, name: &str, rows: usize, cols: usize, values: &mut [T]) {
        self.visit.tensor(name, rows, cols, values);
    }
    fn rows(&mut self, name: &str, rows: Rows, cols: usize, values: &mut [T]) {
        if self.comm.size() == 1 {
            return self.visit.rows(name, rows, cols, values);
        }
        let held = values.len() / rows.repeat;
        let own: Vec<T> = values.chunks_exact(held).flat_map(|v| &v[..rows.own * cols]).copied().collect();
        if self.comm.rank() > 0 {
            send_numbers(self.comm, 0, Topic::STATE, &[rows.first as f64, rows.own as f64]);
            return send_numbers(self.comm, 0, Topic::STATE, &own);
        }
        let mut all = vec![T::ZERO; rows.repeat * rows.all * cols];
        for from in 0..self.comm.size() {
            let mut place = [rows.first as f64, rows.own as f64];
            let mut theirs = Vec::new();
            let part = if from == 0 {
                &own
            } else {
                receive_numbers(self.comm, from, Topic::STATE, &mut place);
                theirs.resize(rows.repeat * place[1] as usize * cols, T::ZERO);
                receive_numbers(self.comm, from, Topic::STATE, &mut theirs);
                &theirs
            };
            let (first, len) = (place[0] as usize * cols, place[1] as usize * cols);
            for (all, part) in all.chunks_exact_mut(rows.all * cols).zip(part.chunks_exact(len)) {
                all[first..first + len].copy_from_slice(part);
            }
        }
        self.visit.tensor(name, rows.repeat * rows.all, cols, &mut all);
    }
}

/// Gives each rank its rows of what a walker puts back.
#[derive(Debug)]
pub struct Deal<'a, W: ?Sized> {
    /// The ranks.
    pub comm: &'a dyn Comm,
    /// Puts values back.
    pub visit: &'a mut W,
}

impl<T: Real, W: Visit<T> + ?Sized> Visit<T> for Deal<'_, W> {
    fn count(&mut self, name: &str, value: &mut u64) {
        self.visit.count(name, value);
    }
    fn real(&mut self, name: &str, value: &mut f64) {
        self.visit.real(name, value);
    }
    fn tensor(&mut self, name: &str, rows: usize, cols: usize, values: &mut [T]) {
        self.visit.tensor(name, rows, cols, values);
    }
    fn rows(&mut self, name: &str, rows: Rows, cols: usize, values: &mut [T]) {
        if self.comm.size() == 1 {
            return self.visit.rows(name, rows, cols, values);
        }
        let mut all = vec![T::ZERO; rows.repeat * rows.all * cols];
        self.visit.tensor(name, rows.repeat * rows.all, cols, &mut all);
        // Copies of the next rank's first rows stand right behind this rank's own.
        let held = values.len() / rows.repeat;
        for (values, all) in values.chunks_exact_mut(held).zip(all.chunks_exact(rows.all * cols)) {
            values.copy_from_slice(&all[rows.first * cols..][..held]);
        }
    }
}
