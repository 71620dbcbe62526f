//! Messages on their way: buffers that belong to MPI until it says that it is done with them.
//!
//! Messages may be longer than MPI's counts, so they travel in parts; all but the last have a mark in their tag.

use std::collections::VecDeque;

use mpi::Tag;
use mpi::datatype::Equivalence;
use mpi::request::{Request, StaticScope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use tprop::comm::Topic;

/// Bytes of a part at most; MPI counts in 32 bits.
const PART: usize = 1 << 30;
/// Mark of a part that is not the last. Topics are smaller.
const MORE: Tag = 0x4000;
/// Tag of a sign of life.
pub const ALIVE: Tag = 0x7000;

/// A buffer that MPI reads or writes.
struct Lent {
    request: Option<Request<'static, [u8], StaticScope>>,
    bytes: *mut [u8],
}

impl Lent {
    /// The buffer, if MPI is done with it.
    fn back(&mut self) -> Option<Box<[u8]>> {
        match self.request.take()?.test() {
            Ok(_) => {
                // SAFETY: `bytes` was leaked from a box in `send` or `receive` below and is made a box again only here, once, because
                // the request is gone by now. The request was complete, so MPI has no use for the buffer any more, and the
                // reference that it held was consumed with it.
                Some(unsafe { Box::from_raw(self.bytes) })
            }
            Err(request) => {
                self.request = Some(request);
                None
            }
        }
    }
}

/// Messages that have been handed to MPI.
#[derive(Default)]
pub struct Outgoing(Vec<Lent>);

impl Outgoing {
    /// Hands a message to MPI.
    pub fn send(&mut self, world: &SimpleCommunicator, to: usize, topic: Topic, message: Vec<u8>) {
        let parts = message.len().div_ceil(PART).max(1);
        if parts == 1 {
            return self.part(world, to, Tag::from(topic.0), message);
        }
        for (i, part) in message.chunks(PART).enumerate() {
            let more = if i + 1 < parts { MORE } else { 0 };
            self.part(world, to, Tag::from(topic.0) + more, part.to_vec());
        }
    }

    /// Sends bytes under any tag.
    pub fn part(&mut self, world: &SimpleCommunicator, to: usize, tag: Tag, bytes: Vec<u8>) {
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        // SAFETY: the pointer comes from a box just above; nothing else refers to it until `Lent::back` takes it back.
        let lent: &'static [u8] = unsafe { &*bytes };
        let request = world.process_at_rank(to as i32).immediate_send_with_tag(StaticScope, lent, tag);
        self.0.push(Lent { request: Some(request), bytes });
    }

    /// Forgets what has been sent; returns how much is still on its way.
    pub fn clear_sent(&mut self) -> usize {
        self.0.retain_mut(|lent| lent.back().is_none());
        self.0.len()
    }
}

/// Messages that MPI is writing.
#[derive(Default)]
pub struct Incoming {
    /// In the order in which they were matched, which is the order in which they are handed out.
    parts: VecDeque<(usize, Tag, Lent)>,
    /// Beginnings of messages, by rank and topic.
    begun: Vec<(usize, Topic, Vec<u8>)>,
}

impl Incoming {
    /// Begins to receive whatever has been announced. Returns whether there was anything.
    pub fn accept(&mut self, world: &SimpleCommunicator) -> bool {
        let mut any = false;
        while let Some((message, status)) = world.any_process().immediate_matched_probe() {
            any = true;
            let len = status.count(u8::equivalent_datatype()) as usize;
            let bytes = Box::into_raw(vec![0; len].into_boxed_slice());
            // SAFETY: the pointer comes from a box just above; nothing else refers to it until `Lent::back` takes it back.
            let lent: &'static mut [u8] = unsafe { &mut *bytes };
            let request = message.immediate_matched_receive_into(StaticScope, lent);
            let lent = Lent { request: Some(request), bytes };
            self.parts.push_back((status.source_rank() as usize, status.tag(), lent));
        }
        any
    }

    /// The next message that is complete: from whom, its tag, its bytes.
    pub fn next(&mut self) -> Option<(usize, Tag, Vec<u8>)> {
        loop {
            let (from, tag, lent) = self.parts.front_mut()?;
            let (from, tag) = (*from, *tag);
            let bytes = lent.back()?.into_vec();
            self.parts.pop_front();
            if tag == ALIVE {
                return Some((from, tag, bytes));
            }
            let topic = Topic((tag & !MORE) as u16);
            let begun = self.begun.iter().position(|b| (b.0, b.1) == (from, topic));
            let message = match begun {
                None => bytes,
                Some(i) => {
                    let mut message = self.begun.swap_remove(i).2;
                    message.extend(bytes);
                    message
                }
            };
            if tag & MORE == 0 {
                return Some((from, tag, message));
            }
            self.begun.push((from, topic, message));
        }
    }

    /// Whether something is being received.
    pub fn busy(&self) -> bool {
        !self.parts.is_empty()
    }
}
