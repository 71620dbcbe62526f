//! What a rank exchanges with its neighbours in the order of blocks: end states go to the next rank, its first states and the gradients in
//! them come and go between the two, and the end of a window goes to the rank with the first blocks. Where there is no
//! neighbour nothing happens, so that a lone process needs no case of its own.

use super::{Comm, Topic, receive_numbers, send_numbers};
use crate::real::Real;

/// The boundary of a rank's blocks.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Messages with the next rank's first states that are on their way.
    due: usize,
}

impl Exchange {
    /// Sends where my last blocks end to the rank whose first blocks begin there.
    pub fn send_ends<T: Real>(&self, comm: &dyn Comm, ends: &[T]) {
        send(comm, next(comm), Topic::ENDS, ends);
    }

    /// Waits for where my first blocks begin; left alone if they are the first of all.
    pub fn receive_ends<T: Real>(&self, comm: &dyn Comm, starts: &mut [T]) {
        receive(comm, previous(comm), Topic::ENDS, starts);
    }

    /// Sends the gradient of my last blocks in their targets, which are the next rank's first states.
    pub fn send_gradient<T: Real>(&self, comm: &dyn Comm, d_target: &[T]) {
        send(comm, next(comm), Topic::GRADIENTS, d_target);
    }

    /// Waits for the gradient of the previous rank's blocks in my first states; left alone if there is none.
    pub fn receive_gradient<T: Real>(&self, comm: &dyn Comm, d_first: &mut [T]) {
        receive(comm, previous(comm), Topic::GRADIENTS, d_first);
    }

    /// Sends my first states to the rank whose last blocks aim at them. The next rank does the same.
    pub fn send_first_states<T: Real>(&mut self, comm: &dyn Comm, states: &[T]) {
        send(comm, previous(comm), Topic::STARTS, states);
        self.due += usize::from(next(comm).is_some());
    }

    /// Waits for the next rank's first states until at most `late` messages are still on their way.
    pub fn receive_first_states<T: Real>(&mut self, comm: &dyn Comm, late: usize, states: &mut [T]) {
        while self.due > late {
            receive(comm, next(comm), Topic::STARTS, states);
            self.due -= 1;
        }
    }

    /// Brings the end of the last blocks of all to the rank with the first ones; `end` and `carried` are looked at there alone.
    pub fn carry<T: Real>(&self, comm: &dyn Comm, end: &[T], carried: &mut [T]) {
        let last = comm.size() - 1;
        match comm.rank() {
            0 if last == 0 => carried.copy_from_slice(end),
            0 => receive_numbers(comm, last, Topic::CARRIED, carried),
            rank if rank == last => send_numbers(comm, 0, Topic::CARRIED, end),
            _ => {}
        }
    }
}

fn previous(comm: &dyn Comm) -> Option<usize> {
    comm.rank().checked_sub(1)
}

fn next(comm: &dyn Comm) -> Option<usize> {
    Some(comm.rank() + 1).filter(|&rank| rank < comm.size())
}

fn send<T: Real>(comm: &dyn Comm, to: Option<usize>, topic: Topic, values: &[T]) {
    if let Some(to) = to {
        send_numbers(comm, to, topic, values);
    }
}

fn receive<T: Real>(comm: &dyn Comm, from: Option<usize>, topic: Topic, values: &mut [T]) {
    if let Some(from) = from {
        receive_numbers(comm, from, topic, values);
    }
}
