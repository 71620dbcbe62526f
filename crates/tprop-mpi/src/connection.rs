//! A rank's connection to the others: one thread that makes all MPI calls, and one that watches a neighbour.

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use tprop::comm::{Comm, Topic};

use crate::messages::{ALIVE, Incoming, Outgoing};

/// Between two signs of life.
const PULSE: Duration = Duration::from_secs(1);
/// How long the MPI thread rests when nobody wants anything from it.
const REST: Duration = Duration::from_millis(2);
/// The same when messages are on their way but nobody waits for them.
const SHORT_REST: Duration = Duration::from_micros(200);
/// How often the MPI thread looks without rest while someone waits; then it leaves the core to others now and then, because there may be
/// more ranks than cores.
const SPINS: u32 = 500;
/// How long such a rest is.
const BLINK: Duration = Duration::from_micros(20);
/// Until a number has gone round.
const PROPAGATION: Duration = Duration::from_millis(300);
/// A watcher that was away for so long was itself stopped, and must not blame others.
const AWAY: Duration = Duration::from_secs(5);

/// In the number that goes round: someone has said why the job ends, so nobody else need wonder.
pub const ENDING: u64 = 1 << 63;

/// A neighbour that has gone silent.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Its rank.
    pub rank: usize,
    /// For how long.
    pub silent: Duration,
}

/// A rank's connection to the others.
pub struct Connection {
    rank: usize,
    size: usize,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads of a rank share.
struct Shared {
    boxes: Mutex<Boxes>,
    /// A message has arrived.
    arrived: Condvar,
    /// There is something to do.
    called: Condvar,
    noted: Arc<AtomicU64>,
    /// Milliseconds after `born` at which the neighbour was last heard.
    heard: AtomicU64,
    born: Instant,
    closed: AtomicBool,
    /// Code to end the whole job with, if it is not negative.
    abort: AtomicI32,
}

#[derive(Default)]
struct Boxes {
    out: VecDeque<(usize, Topic, Vec<u8>)>,
    messages: HashMap<(usize, Topic), VecDeque<Vec<u8>>>,
    waiting: usize,
    closing: bool,
}

impl Shared {
    fn boxes(&self) -> MutexGuard<'_, Boxes> {
        self.boxes.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn hear(&self) {
        self.heard.store(self.born.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

impl Connection {
    /// Starts MPI in a thread of its own. If the rank before this one is silent for longer than `patience`, `lost` is called
    /// and then the process ends with code 1, on which a launcher ends the whole job. The number `noted` goes round with the signs of
    /// life; the largest one stays.
    ///
    /// # Errors
    /// If MPI cannot be started, or has been before.
    pub fn open(
        patience: Duration,
        noted: Arc<AtomicU64>,
        lost: impl Fn(Lost) + Send + 'static,
    ) -> Result<Self, String> {
        let shared = Arc::new(Shared {
            boxes: Mutex::default(),
            arrived: Condvar::new(),
            called: Condvar::new(),
            noted,
            heard: AtomicU64::new(0),
            born: Instant::now(),
            closed: AtomicBool::new(false),
            abort: AtomicI32::new(-1),
        });
        let (report, reported) = mpsc::channel();
        let inside = shared.clone();
        let work = move || {
            // The thread that starts MPI is the one that may call it.
            let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
                return drop(report.send(Err("MPI has been started before".to_owned())));
            };
            let world = universe.world();
            let _ = report.send(Ok((world.rank() as usize, world.size() as usize)));
            run(&world, &inside);
            inside.closed.store(true, Ordering::Relaxed);
        };
        let thread = std::thread::Builder::new().name("mpi".into()).spawn(work);
        let thread = thread.map_err(|e| format!("the MPI thread cannot be started ({e})"))?;
        let (rank, size) = reported.recv().map_err(|_| "MPI could not be started".to_owned())??;
        shared.hear();
        if size > 1 {
            let (shared, before) = (shared.clone(), (rank + size - 1) % size);
            let watching = std::thread::Builder::new().name("watch".into());
            let watching = watching.spawn(move || watch(&shared, before, patience, &lost));
            watching.map_err(|e| format!("the thread that watches a neighbour cannot be started ({e})"))?;
        }
        Ok(Self { rank, size, shared, thread: Some(thread) })
    }

    /// Waits until all ranks have come here, then ends MPI.
    pub fn close(mut self) {
        self.shared.boxes().closing = true;
        self.shared.called.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    /// Leaves without a word to the other ranks, which the launcher will end when this process fails.
    pub fn abandon(self) {
        self.shared.noted.fetch_or(ENDING, Ordering::Relaxed);
        std::thread::sleep(PROPAGATION);
        std::mem::forget(self);
    }

    /// Ends all ranks at once with an exit code; the caller has said why.
    pub fn abort(&self, code: u8) -> ! {
        self.shared.noted.fetch_or(ENDING, Ordering::Relaxed);
        std::thread::sleep(PROPAGATION);
        self.shared.abort.store(i32::from(code), Ordering::Relaxed);
        self.shared.called.notify_all();
        // The MPI thread may be stuck; a process that ends with an error makes the launcher end the others as well.
        std::thread::sleep(Duration::from_secs(10));
        std::process::exit(i32::from(code))
    }
}

impl Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.size)
    }
}

impl Comm for Connection {
    fn rank(&self) -> usize {
        self.rank
    }
    fn size(&self) -> usize {
        self.size
    }
    fn send(&self, to: usize, topic: Topic, message: Vec<u8>) {
        assert!(to < self.size && to != self.rank, "a message from rank {} to {to}", self.rank);
        self.shared.boxes().out.push_back((to, topic, message));
        self.shared.called.notify_one();
    }
    fn receive(&self, from: usize, topic: Topic) -> Vec<u8> {
        let mut boxes = self.shared.boxes();
        boxes.waiting += 1;
        self.shared.called.notify_one();
        loop {
            if let Some(message) = boxes.messages.get_mut(&(from, topic)).and_then(VecDeque::pop_front) {
                boxes.waiting -= 1;
                return message;
            }
            boxes = self.shared.arrived.wait(boxes).unwrap_or_else(|e| e.into_inner());
        }
    }
}

/// The MPI thread: sends, receives, and shows that it is alive, until all ranks close.
fn run(world: &SimpleCommunicator, shared: &Shared) {
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let (mut outgoing, mut incoming) = (Outgoing::default(), Incoming::default());
    let (mut pulse, mut announced, mut idle) = (Instant::now(), 0, 0);
    let mut leaving = None;
    loop {
        let (queued, closing, waiting) = {
            let mut boxes = shared.boxes();
            (std::mem::take(&mut boxes.out), boxes.closing, boxes.waiting > 0)
        };
        let mut busy = !queued.is_empty();
        for (to, topic, message) in queued {
            outgoing.send(world, to, topic, message);
        }
        let noted = shared.noted.load(Ordering::Relaxed);
        if size > 1 && (pulse <= Instant::now() || noted != announced) {
            outgoing.part(world, next, ALIVE, noted.to_le_bytes().to_vec());
            (pulse, announced) = (Instant::now() + PULSE, noted);
        }
        busy |= incoming.accept(world);
        while let Some((from, tag, bytes)) = incoming.next() {
            busy = true;
            if from == before {
                shared.hear();
            }
            if tag == ALIVE {
                let noted = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                shared.noted.fetch_max(noted, Ordering::Relaxed);
            } else {
                shared.boxes().messages.entry((from, Topic(tag as u16))).or_default().push_back(bytes);
                shared.arrived.notify_all();
            }
        }
        let unsent = outgoing.clear_sent();
        let code = shared.abort.load(Ordering::Relaxed);
        if code >= 0 {
            world.abort(code);
        }
        if closing && leaving.is_none() {
            leaving = Some(world.immediate_barrier());
        }
        if let Some(barrier) = leaving.take() {
            match barrier.test() {
                // All have come: signs of life stop, and what is still on its way will be received.
                Ok(_) => {
                    while outgoing.clear_sent() > 0 || incoming.busy() {
                        incoming.accept(world);
                        while incoming.next().is_some() {}
                        std::thread::yield_now();
                    }
                    last_messages(world, &mut outgoing, &mut incoming, size);
                    return;
                }
                Err(request) => leaving = Some(request),
            }
        }
        idle = if busy { 0 } else { idle + 1 };
        if waiting && idle < SPINS {
            // Someone of this rank has nothing else to do, so its core is free for looking.
            std::thread::yield_now();
        } else if waiting {
            std::thread::sleep(BLINK);
        } else if !busy {
            let rest = if unsent > 0 || incoming.busy() { SHORT_REST } else { REST };
            let boxes = shared.boxes();
            if boxes.out.is_empty() && boxes.waiting == 0 {
                drop(shared.called.wait_timeout(boxes, rest));
            }
        }
    }
}

/// Signs of life that were sent before the others came to the end must be received before MPI ends.
fn last_messages(world: &SimpleCommunicator, outgoing: &mut Outgoing, incoming: &mut Incoming, size: usize) {
    if size == 1 {
        return;
    }
    let mut barrier = Some(world.immediate_barrier());
    while let Some(request) = barrier.take() {
        barrier = request.test().err();
        incoming.accept(world);
        while incoming.next().is_some() {}
        outgoing.clear_sent();
        std::thread::yield_now();
    }
    incoming.accept(world);
    while incoming.busy() {
        while incoming.next().is_some() {}
    }
}

/// Watches the rank before this one.
fn watch(shared: &Shared, before: usize, patience: Duration, lost: &dyn Fn(Lost)) {
    let tick = PULSE / 2;
    let mut last = Instant::now();
    while !shared.closed.load(Ordering::Relaxed) {
        std::thread::sleep(tick);
        if last.elapsed() > AWAY {
            shared.hear();
        }
        last = Instant::now();
        let heard = Duration::from_millis(shared.heard.load(Ordering::Relaxed));
        let silent = shared.born.elapsed().saturating_sub(heard);
        if silent > patience && !shared.closed.load(Ordering::Relaxed) {
            lost(Lost { rank: before, silent });
            shared.noted.fetch_or(ENDING, Ordering::Relaxed);
            std::thread::sleep(PROPAGATION);
            // MPI itself may be stuck waiting for the neighbour. A launcher ends the job when a process fails.
            std::process::exit(1);
        }
    }
}
