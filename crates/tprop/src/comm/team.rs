//! Threads as ranks of one process, for tests and examples.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::{Comm, Topic};

/// One rank of a team of threads.
#[derive(Debug)]
pub struct Team {
    rank: usize,
    size: usize,
    shares: usize,
    mail: Arc<Mail>,
}

#[derive(Debug)]
struct Mail {
    boxes: Mutex<Boxes>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct Boxes {
    /// Messages by (from, to, topic).
    messages: HashMap<(usize, usize, Topic), VecDeque<Vec<u8>>>,
    /// Who has gone home.
    gone: Vec<bool>,
}

impl Team {
    /// A team of `size` ranks that sum in one share each; hand one to each thread.
    pub fn new(size: usize) -> Vec<Team> {
        Self::in_shares(size, size)
    }

    /// A team that sums in so many shares.
    pub fn in_shares(size: usize, shares: usize) -> Vec<Team> {
        assert!(size > 0 && size <= shares, "{size} ranks for {shares} shares");
        let boxes = Mutex::new(Boxes { messages: HashMap::new(), gone: vec![false; size] });
        let mail = Arc::new(Mail { boxes, arrived: Condvar::new() });
        (0..size).map(|rank| Team { rank, size, shares, mail: mail.clone() }).collect()
    }

    fn boxes(&self) -> MutexGuard<'_, Boxes> {
        self.mail.boxes.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Comm for Team {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.size
    }
    fn shares(&self) -> usize {
        self.shares
    }
    fn send(&self, to: usize, topic: Topic, message: Vec<u8>) {
        assert!(to < self.size && to != self.rank, "a message from rank {} to {to}", self.rank);
        self.boxes().messages.entry((self.rank, to, topic)).or_default().push_back(message);
        self.mail.arrived.notify_all();
    }
    fn receive(&self, from: usize, topic: Topic) -> Vec<u8> {
        let mut boxes = self.boxes();
        loop {
            if let Some(message) = boxes.messages.get_mut(&(from, self.rank, topic)).and_then(VecDeque::pop_front) {
                return message;
            }
            // Otherwise a test whose one thread fails would wait for ever in the others.
            assert!(!boxes.gone[from], "rank {} waits for {topic:?} from rank {from}, which has gone", self.rank);
            boxes = self.mail.arrived.wait(boxes).unwrap_or_else(|e| e.into_inner());
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.boxes().gone[self.rank] = true;
        self.mail.arrived.notify_all();
    }
}
