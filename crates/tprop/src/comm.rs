//! Ranks that work on one model. A lone process is a cluster of one: nothing above this file asks how many there are.
//!
//! Sums run in the order of ranks, so that every rank gets the same bits and a repetition gives them again.

use std::fmt::Debug;
use std::sync::{Arc, Barrier, Mutex};

use crate::params::Grads;
use crate::real::Real;

/// What ranks say to each other. Numbers travel as `f64`, which holds every `f32` exactly.
pub trait Comm: Send + Sync + Debug {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Adds up over all ranks, in their order; every rank gets the sums.
    fn sum(&self, values: &mut [f64]);

    /// Largest value over all ranks, component by component.
    fn max(&self, values: &mut [f64]);

    /// Sends to the next rank and receives from the one before; the first rank's `from` stays as it is.
    fn forward(&self, to_next: &[f64], from_previous: &mut [f64]);

    /// Sends to the rank before and receives from the next one; the last rank's `from` stays as it is.
    fn back(&self, to_previous: &[f64], from_next: &mut [f64]);

    /// All ranks' lists, one after the other, in the order of ranks.
    fn gather(&self, values: &[f64]) -> Vec<Vec<f64>>;
}

/// A process by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Solo;

impl Comm for Solo {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn sum(&self, _values: &mut [f64]) {}
    fn max(&self, _values: &mut [f64]) {}
    fn forward(&self, _to_next: &[f64], _from_previous: &mut [f64]) {}
    fn back(&self, _to_previous: &[f64], _from_next: &mut [f64]) {}
    fn gather(&self, values: &[f64]) -> Vec<Vec<f64>> {
        vec![values.to_vec()]
    }
}

/// Carries numbers of any type through a [`Comm`]; its letters are reused.
#[derive(Debug, Default)]
pub struct Post {
    sent: Vec<f64>,
    received: Vec<f64>,
}

impl Post {
    /// [`Comm::forward`]
    pub fn forward<T: Real>(&mut self, comm: &dyn Comm, to_next: &[T], from_previous: &mut [T]) {
        self.write(to_next, from_previous);
        comm.forward(&self.sent, &mut self.received);
        self.read(from_previous);
    }

    /// [`Comm::back`]
    pub fn back<T: Real>(&mut self, comm: &dyn Comm, to_previous: &[T], from_next: &mut [T]) {
        self.write(to_previous, from_next);
        comm.back(&self.sent, &mut self.received);
        self.read(from_next);
    }

    /// [`Comm::sum`]
    pub fn sum<T: Real>(&mut self, comm: &dyn Comm, values: &mut [T]) {
        self.write(&[], values);
        comm.sum(&mut self.received);
        self.read(values);
    }

    /// What nobody answers stays as it is.
    fn write<T: Real>(&mut self, sent: &[T], received: &[T]) {
        self.sent.clear();
        self.sent.extend(sent.iter().map(|v| v.f64()));
        self.received.clear();
        self.received.extend(received.iter().map(|v| v.f64()));
    }

    fn read<T: Real>(&self, values: &mut [T]) {
        values.iter_mut().zip(&self.received).for_each(|(v, &r)| *v = T::of(r));
    }
}

/// Threads as ranks of one process, for tests and examples.
#[derive(Debug)]
pub struct Team {
    rank: usize,
    table: Arc<Table>,
}

#[derive(Debug)]
struct Table {
    barrier: Barrier,
    slots: Mutex<Vec<Vec<f64>>>,
}

impl Team {
    /// A team of `size` ranks; hand one to each thread.
    pub fn new(size: usize) -> Vec<Team> {
        let table = Arc::new(Table { barrier: Barrier::new(size), slots: Mutex::new(vec![Vec::new(); size]) });
        (0..size).map(|rank| Team { rank, table: table.clone() }).collect()
    }

    /// Puts a list on the table and looks at what all ranks have put there.
    fn meet<R>(&self, values: &[f64], look: impl FnOnce(&[Vec<f64>]) -> R) -> R {
        let lock = || self.table.slots.lock().unwrap_or_else(|e| e.into_inner());
        lock()[self.rank] = values.to_vec();
        self.table.barrier.wait();
        let result = look(&lock());
        // Nobody may put the next list there before all have looked.
        self.table.barrier.wait();
        result
    }

    fn reduce(&self, values: &mut [f64], combine: impl Fn(f64, f64) -> f64) {
        let mine = values.to_vec();
        self.meet(&mine, |all| {
            values.copy_from_slice(&all[0]);
            for other in &all[1..] {
                values.iter_mut().zip(other).for_each(|(v, &o)| *v = combine(*v, o));
            }
        });
    }
}

impl Comm for Team {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.meet(&[], <[_]>::len)
    }
    fn sum(&self, values: &mut [f64]) {
        self.reduce(values, |a, b| a + b);
    }
    fn max(&self, values: &mut [f64]) {
        self.reduce(values, f64::max);
    }
    fn forward(&self, to_next: &[f64], from_previous: &mut [f64]) {
        self.meet(to_next, |all| {
            if self.rank > 0 {
                from_previous.copy_from_slice(&all[self.rank - 1]);
            }
        });
    }
    fn back(&self, to_previous: &[f64], from_next: &mut [f64]) {
        self.meet(to_previous, |all| {
            if self.rank + 1 < all.len() {
                from_next.copy_from_slice(&all[self.rank + 1]);
            }
        });
    }
    fn gather(&self, values: &[f64]) -> Vec<Vec<f64>> {
        self.meet(values, <[_]>::to_vec)
    }
}

/// The contiguous share of `n` things that a rank owns; sizes differ by at most one.
pub fn share(n: usize, rank: usize, size: usize) -> std::ops::Range<usize> {
    let at = |r: usize| r * (n / size) + r.min(n % size);
    at(rank)..at(rank + 1)
}

/// Sums a settled gradient over all ranks; the embedding's touched rows go as rows.
pub fn sum_gradient<T: Real>(comm: &dyn Comm, grads: &mut Grads<T>) {
    if comm.size() == 1 {
        return;
    }
    let plan = grads.values().plan().clone();
    let sparse = grads.sparse_rows().map(|(id, rows)| (id, rows.to_vec()));
    for id in plan.ids() {
        match &sparse {
            Some((s, rows)) if *s == id => {
                let cols = plan.entry(id).cols;
                let mut message = Vec::with_capacity(rows.len() * (cols + 1));
                for &row in rows {
                    message.push(f64::from(row));
                    message.extend(grads.values().get(id)[row as usize * cols..][..cols].iter().map(|v| v.f64()));
                }
                let all = comm.gather(&message);
                grads.clear_rows();
                for row in all.iter().flat_map(|m| m.chunks_exact(cols + 1)) {
                    let sum = grads.row(id, row[0] as u32);
                    sum.iter_mut().zip(&row[1..]).for_each(|(s, &v)| *s += T::of(v));
                }
            }
            _ => {
                let mut values: Vec<f64> = grads.values().get(id).iter().map(|v| v.f64()).collect();
                comm.sum(&mut values);
                grads.values_mut().get_mut(id).iter_mut().zip(values).for_each(|(g, v)| *g = T::of(v));
            }
        }
    }
    grads.settle();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_sums_shifts_and_gathers_in_order() {
        for size in [1, 2, 3, 5] {
            std::thread::scope(|scope| {
                for comm in Team::new(size) {
                    scope.spawn(move || {
                        let r = comm.rank() as f64;
                        let mut v = [r, 1.0];
                        comm.sum(&mut v);
                        assert_eq!(v, [(size * (size - 1) / 2) as f64, size as f64]);
                        let mut v = [r, -r];
                        comm.max(&mut v);
                        assert_eq!(v, [(size - 1) as f64, 0.0]);
                        let (mut from, mut after) = ([-1.0], [-1.0]);
                        comm.forward(&[r], &mut from);
                        comm.back(&[r], &mut after);
                        assert_eq!(from, [r - 1.0]);
                        assert_eq!(after, [if comm.rank() + 1 < size { r + 1.0 } else { -1.0 }]);
                        assert_eq!(comm.gather(&[r]).concat(), (0..size).map(|r| r as f64).collect::<Vec<_>>());
                    });
                }
            });
        }
    }

    #[test]
    fn shares_cover_everything_once() {
        for n in 0..30 {
            for size in 1..8 {
                let all: Vec<usize> = (0..size).flat_map(|r| share(n, r, size)).collect();
                assert_eq!(all, (0..n).collect::<Vec<_>>());
                assert!((0..size).all(|r| share(n, r, size).len().abs_diff(n / size) <= 1));
            }
        }
    }
}
