//! Ranks that work on one model. A lone process is a cluster of one: nothing above this folder asks how many there are.
//!
//! A [`Comm`] sends messages and no more: bytes go from rank to rank, in order for each pair and topic, and sending
//! never waits. Everything else is written with that: lists from all ranks ([`gather`]), one rank's bytes for all
//! ([`broadcast`]), boundary states for a neighbour ([`exchange`]), a scan over the blocks of all ranks ([`scan`]), and gradients, summed in a fixed tree of *shares*
//! ([`shares`], [`gradient`]), so that the result does not depend on how many ranks there are, bit for bit.

mod counted;
#[doc(hidden)]
pub mod exchange;
#[doc(hidden)]
pub mod gradient;
#[doc(hidden)]
pub mod rows;
#[doc(hidden)]
pub mod scan;
#[doc(hidden)]
pub mod shares;
mod team;

pub use counted::{Count, Counted};
#[doc(hidden)]
pub use exchange::Exchange;
#[doc(hidden)]
pub use gradient::GradientSum;
pub use shares::{InShares, Shares, SharesError, Span, Unit, share};
pub use team::Team;

use std::fmt::Debug;

use crate::real::Real;

/// What a message is about. Messages of one pair of ranks and one topic arrive in the order in which they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(pub u16);

impl Topic {
    /// Lists from all ranks.
    pub const GATHER: Topic = Topic(1);
    /// One rank's bytes for all.
    pub const BROADCAST: Topic = Topic(2);
    /// End states, for the rank with the next blocks.
    pub const ENDS: Topic = Topic(3);
    /// Gradients in the next rank's first states.
    pub const GRADIENTS: Topic = Topic(4);
    /// The next rank's first states, back to the rank whose last blocks aim at them.
    pub const STARTS: Topic = Topic(5);
    /// The end state of a window, for the rank with the first blocks.
    pub const CARRIED: Topic = Topic(6);
    /// Rows of the state, for the rank that writes.
    pub const STATE: Topic = Topic(7);
    /// Maps of a scan over shares.
    pub const MAPS: Topic = Topic(8);
    /// What comes in to a share of a scan.
    pub const INPUTS: Topic = Topic(9);
    /// The pull at the beginning of a window, for the rank with the last blocks.
    pub const PULLS: Topic = Topic(10);
    /// Summands of the first group of a gradient; the other groups follow.
    pub const SUMMANDS: Topic = Topic(0x100);
    /// Sums of the first group of a gradient; the other groups follow.
    pub const SUMS: Topic = Topic(0x200);

    /// The topic of group `i`.
    pub fn group(self, i: usize) -> Topic {
        Topic(self.0 + i as u16)
    }

    /// A few words for people.
    pub fn name(self) -> String {
        match self {
            Topic::GATHER => "list".into(),
            Topic::BROADCAST => "for all".into(),
            Topic::ENDS => "end states".into(),
            Topic::GRADIENTS => "gradients in the next rank's states".into(),
            Topic::STARTS => "first states".into(),
            Topic::CARRIED => "carried state".into(),
            Topic::STATE => "state, to be written".into(),
            Topic::MAPS => "maps of a scan".into(),
            Topic::INPUTS => "inputs of a scan".into(),
            Topic::PULLS => "pull at the beginning of a window".into(),
            Topic(n) if n >= Topic::SUMS.0 => format!("sums, group {}", n - Topic::SUMS.0),
            Topic(n) => format!("summands, group {}", n - Topic::SUMMANDS.0),
        }
    }
}

/// A rank that sends messages to others.
pub trait Comm: Send + Sync + Debug {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Number of shares in which sums are made; at least the number of ranks. See [`shares`].
    fn shares(&self) -> usize {
        1
    }

    /// Sends a message to another rank and returns at once.
    fn send(&self, to: usize, topic: Topic, message: Vec<u8>);

    /// The oldest message of another rank about a topic; waits until there is one.
    fn receive(&self, from: usize, topic: Topic) -> Vec<u8>;
}

impl<C: Comm + ?Sized> Comm for &C {
    fn rank(&self) -> usize {
        (**self).rank()
    }
    fn size(&self) -> usize {
        (**self).size()
    }
    fn shares(&self) -> usize {
        (**self).shares()
    }
    fn send(&self, to: usize, topic: Topic, message: Vec<u8>) {
        (**self).send(to, topic, message);
    }
    fn receive(&self, from: usize, topic: Topic) -> Vec<u8> {
        (**self).receive(from, topic)
    }
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
    fn send(&self, to: usize, _topic: Topic, _message: Vec<u8>) {
        unreachable!("a message to rank {to} of one");
    }
    fn receive(&self, from: usize, _topic: Topic) -> Vec<u8> {
        unreachable!("a message from rank {from} of one");
    }
}

/// All ranks' messages, in the order of ranks. In each of ⌈log₂ R⌉ rounds a rank passes on what it has (Bruck's way).
pub fn gather(comm: &dyn Comm, mine: Vec<u8>) -> Vec<Vec<u8>> {
    let (rank, size) = (comm.rank(), comm.size());
    // Those of the ranks from this one on, round the ring.
    let mut have = vec![mine];
    while have.len() < size {
        let (n, far) = (have.len().min(size - have.len()), have.len());
        comm.send((rank + size - far) % size, Topic::GATHER, pack(&have[..n]));
        have.extend(unpack(&comm.receive((rank + far) % size, Topic::GATHER)));
    }
    have.rotate_right(rank);
    have
}

fn pack(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::with_capacity(messages.iter().map(|l| l.len() + 8).sum());
    for message in messages {
        all.extend_from_slice(&(message.len() as u64).to_le_bytes());
        all.extend_from_slice(message);
    }
    all
}

fn unpack(mut all: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some((len, rest)) = all.split_first_chunk::<8>() {
        let (message, rest) = rest.split_at(u64::from_le_bytes(*len) as usize);
        messages.push(message.to_vec());
        all = rest;
    }
    messages
}

/// Bytes that [`gather`] adds to each message that is passed on.
pub const GATHER_HEAD: usize = 8;

/// Rank 0's bytes, for all; the others' are not looked at. A rank hands them on to those 1, 2, 4, … behind it.
pub fn broadcast(comm: &dyn Comm, mut bytes: Vec<u8>) -> Vec<u8> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut far = 1;
    while far < size {
        if rank < far && rank + far < size {
            comm.send(rank + far, Topic::BROADCAST, bytes.clone());
        } else if (far..2 * far).contains(&rank) {
            bytes = comm.receive(rank - far, Topic::BROADCAST);
        }
        far *= 2;
    }
    bytes
}

/// Puts the lists of all ranks, in their order, in place of this rank's.
pub fn gather_numbers(comm: &dyn Comm, values: &mut Vec<f64>) {
    if comm.size() == 1 {
        return;
    }
    let mut mine = Vec::new();
    f64::write_le(values, &mut mine);
    values.clear();
    for message in gather(comm, mine) {
        let from = values.len();
        values.resize(from + message.len() / f64::BYTES, 0.0);
        f64::read_le(&message, &mut values[from..]);
    }
}

/// Largest value over all ranks.
pub fn largest(comm: &dyn Comm, value: f64) -> f64 {
    if comm.size() == 1 {
        return value;
    }
    let mut all = vec![value];
    gather_numbers(comm, &mut all);
    all.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// For work that cannot be shared.
///
/// # Errors
/// If there are other ranks: how many there are in all.
pub fn ensure_alone(comm: &dyn Comm) -> Result<(), usize> {
    if comm.size() == 1 { Ok(()) } else { Err(comm.size()) }
}

/// Asks a question on which ranks that work side by side could not agree: false wherever there are others.
pub fn ask_if_alone(comm: &dyn Comm, ask: impl FnOnce() -> bool) -> bool {
    comm.size() == 1 && ask()
}

/// Sends numbers to a rank and returns at once.
fn send_numbers<T: Real>(comm: &dyn Comm, to: usize, topic: Topic, values: &[T]) {
    let mut message = Vec::with_capacity(size_of_val(values));
    T::write_le(values, &mut message);
    comm.send(to, topic, message);
}

/// Waits for as many numbers of a rank as there is room for.
fn receive_numbers<T: Real>(comm: &dyn Comm, from: usize, topic: Topic, values: &mut [T]) {
    let message = comm.receive(from, topic);
    assert_eq!(message.len(), size_of_val(values), "a message of {topic:?} from rank {from}");
    T::read_le(&message, values);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_gather_and_broadcast_in_order() {
        for size in [1, 2, 3, 4, 5, 7, 8] {
            std::thread::scope(|scope| {
                for comm in Team::new(size) {
                    scope.spawn(move || {
                        let r = comm.rank();
                        let messages = gather(&comm, vec![r as u8; r]);
                        assert_eq!(messages, (0..size).map(|r| vec![r as u8; r]).collect::<Vec<_>>());
                        let mut numbers = vec![r as f64; 2];
                        gather_numbers(&comm, &mut numbers);
                        assert_eq!(numbers, (0..2 * size).map(|i| (i / 2) as f64).collect::<Vec<_>>());
                        assert_eq!(largest(&comm, -(r as f64)), 0.0);
                        assert_eq!(largest(&comm, r as f64), (size - 1) as f64);
                        assert_eq!(broadcast(&comm, vec![r as u8, 7]), [0, 7]);
                    });
                }
            });
        }
    }

    #[test]
    fn topics_do_not_overtake_themselves_but_each_other() {
        let mut team = Team::new(2).into_iter();
        let (a, b) = (team.next().unwrap(), team.next().unwrap());
        for i in 0..3u8 {
            a.send(1, Topic::ENDS, vec![i]);
            a.send(1, Topic::STARTS, vec![10 + i]);
        }
        for i in 0..3u8 {
            assert_eq!(b.receive(0, Topic::STARTS), [10 + i]);
        }
        send_numbers(&a, 1, Topic::ENDS, &[1.5f32, -2.0]);
        for i in 0..3u8 {
            assert_eq!(b.receive(0, Topic::ENDS), [i]);
        }
        let mut values = [0.0f32; 2];
        receive_numbers(&b, 0, Topic::ENDS, &mut values);
        assert_eq!(values, [1.5, -2.0]);
    }
}
