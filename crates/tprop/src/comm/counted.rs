//! Counts what a rank sends.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::{Comm, Topic};

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of messages.
    pub messages: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// A [`Comm`] that counts what is sent, by topic, and remembers the order of things.
#[derive(Debug)]
pub struct Counted<C> {
    comm: C,
    counts: Mutex<BTreeMap<Topic, Count>>,
}

impl<C: Comm> Counted<C> {
    /// Counts from now on.
    pub fn new(comm: C) -> Self {
        Self { comm, counts: Mutex::default() }
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<Topic, Count>> {
        self.counts.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// What was sent since the last call, by topic.
    pub fn take_counts(&self) -> BTreeMap<Topic, Count> {
        std::mem::take(&mut *self.counts())
    }
}

impl<C: Comm> Comm for Counted<C> {
    fn rank(&self) -> usize {
        self.comm.rank()
    }
    fn size(&self) -> usize {
        self.comm.size()
    }
    fn shares(&self) -> usize {
        self.comm.shares()
    }
    fn send(&self, to: usize, topic: Topic, message: Vec<u8>) {
        let mut counts = self.counts();
        let count = counts.entry(topic).or_default();
        count.messages += 1;
        count.bytes += message.len() as u64;
        drop(counts);
        self.comm.send(to, topic, message);
    }
    fn receive(&self, from: usize, topic: Topic) -> Vec<u8> {
        self.comm.receive(from, topic)
    }
}
