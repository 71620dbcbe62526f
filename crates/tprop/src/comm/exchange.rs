//! What a rank exchanges with its neighbours in the order of blocks: end states go to the next rank, its first states and the gradients in
//! them come and go between the two, and the end of a window goes to the rank with the first blocks. Where there is no
//! neighbour nothing happens, so that a lone process needs no case of its own.

use super::{Comm, Topic, broadcast, receive_numbers, send_numbers};
use crate::real::Real;

/// The boundary of a rank's blocks.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Messages with the next rank's first states that are on their way.
    due: usize,
    /// The rank before has sent, or will send, where my first targets begin.
    aims_due: bool,
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

    /// Sends where the targets of my last blocks begin; the rank before does the same.
    pub fn send_aims<T: Real>(&mut self, comm: &dyn Comm, targets: &[T]) {
        send(comm, next(comm), Topic::ENDS, targets);
        self.aims_due = previous(comm).is_some();
    }

    /// Waits for where my first targets begin, if it is due. Returns whether it was.
    pub fn receive_aims<T: Real>(&mut self, comm: &dyn Comm, targets: &mut [T]) -> bool {
        let due = std::mem::take(&mut self.aims_due);
        if due {
            receive(comm, previous(comm), Topic::ENDS, targets);
        }
        due
    }

    /// Gives all ranks the state in which the window begins, which the rank with the first blocks has.
    pub fn share_carried<T: Real>(&self, comm: &dyn Comm, carried: &mut [T]) {
        if comm.size() == 1 {
            return;
        }
        let mut bytes = Vec::new();
        T::write_le(carried, &mut bytes);
        T::read_le(&broadcast(comm, bytes), carried);
    }

    /// Waits for what the rank before hands on, when ranks take turns from the first to the last; left alone on the first.
    pub fn receive_turn<T: Real>(&self, comm: &dyn Comm, values: &mut [T]) {
        receive(comm, previous(comm), Topic::MAPS, values);
    }

    /// Hands on to the next rank.
    pub fn send_turn<T: Real>(&self, comm: &dyn Comm, values: &[T]) {
        send(comm, next(comm), Topic::MAPS, values);
    }

    /// The same from the last rank to the first.
    pub fn receive_turn_back<T: Real>(&self, comm: &dyn Comm, values: &mut [T]) {
        receive(comm, next(comm), Topic::INPUTS, values);
    }

    /// Hands back to the rank before.
    pub fn send_turn_back<T: Real>(&self, comm: &dyn Comm, values: &[T]) {
        send(comm, previous(comm), Topic::INPUTS, values);
    }

    /// Brings a pull from the rank with the first blocks to the one with the last ones, where it is put into `behind`.
    pub fn carry_back<T: Real>(&self, comm: &dyn Comm, pull: Option<&[T]>, behind: &mut [T]) {
        let last = comm.size() - 1;
        match (comm.rank(), pull) {
            (rank, Some(pull)) if rank == last => behind.copy_from_slice(pull),
            (_, Some(pull)) => send_numbers(comm, last, Topic::PULLS, pull),
            (rank, None) if rank == last => receive_numbers(comm, 0, Topic::PULLS, behind),
            (_, None) => {}
        }
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
