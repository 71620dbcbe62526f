//! Writes checkpoints while training continues.
//!
//! Training hands over a copy of the state and is free again. One state may be on its way to the disk and one may wait; whoever makes
//! a third one asks for room first ([`Saver::make_room`]), or it takes the place of the one that waits (the best so far is never lost by
//! that). What went wrong on the way surfaces in the trainer, the next time it looks.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::{CheckpointError, Kind, Snapshot, Store};
use crate::fault;
use crate::file::Output;

/// A state to be written.
#[derive(Debug)]
pub struct Job {
    /// The state.
    pub snapshot: Snapshot,
    /// It is also the best so far.
    pub best: bool,
    /// Must be on the disk before: the record whose length the state knows.
    pub first: Option<Output>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Option<Job>,
    waiting_best: Option<Job>,
    busy: bool,
    closed: bool,
    trouble: Option<CheckpointError>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that writes checkpoints. Dropping it waits for what was handed over.
#[derive(Debug)]
pub struct Saver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    /// Writes into a store, of which the last `keep` files and the best stay.
    ///
    /// # Errors
    /// If the system has no room for one more thread.
    pub fn start(store: Store, keep: usize) -> io::Result<Self> {
        Self::with(move |job| write(&store, keep, job))
    }

    /// Writes by any function.
    fn with(mut write: impl FnMut(Job) -> Result<(), CheckpointError> + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            let mut state = theirs.state();
            loop {
                // The best first: it is older, and what waits may need it.
                if let Some(job) = state.waiting_best.take().or_else(|| state.waiting.take()) {
                    state.busy = true;
                    theirs.changed.notify_all();
                    drop(state);
                    let result = write(job);
                    state = theirs.state();
                    state.busy = false;
                    if let Err(trouble) = result {
                        state.trouble.get_or_insert(trouble);
                    }
                    theirs.changed.notify_all();
                } else if state.closed {
                    return;
                } else {
                    state = theirs.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits until no state waits, so that there are never more than two of them beside the trainer's own, and none is overtaken.
    pub fn make_room(&self) {
        let mut state = self.shared.state();
        while state.waiting.is_some() || state.waiting_best.is_some() {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hands a state over; takes no longer than that.
    ///
    /// # Errors
    /// What an earlier one came to.
    pub fn hand_over(&self, job: Job) -> Result<(), CheckpointError> {
        self.check()?;
        let mut state = self.shared.state();
        match state.waiting.take() {
            Some(old) if old.best && !job.best => state.waiting_best = Some(old),
            _ => {}
        }
        if job.best {
            state.waiting_best = None;
        }
        state.waiting = Some(job);
        self.shared.changed.notify_all();
        drop(state);
        // Which save is the N-th must not depend on how fast the disk is.
        if fault::planned("save.") { self.finish() } else { Ok(()) }
    }

    /// What went wrong since the last question.
    ///
    /// # Errors
    /// If something did.
    pub fn check(&self) -> Result<(), CheckpointError> {
        self.shared.state().trouble.take().map_or(Ok(()), Err)
    }

    /// Waits until all that was handed over is on the disk.
    ///
    /// # Errors
    /// If it is not.
    pub fn finish(&self) -> Result<(), CheckpointError> {
        let mut state = self.shared.state();
        while state.busy || state.waiting.is_some() || state.waiting_best.is_some() {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.trouble.take().map_or(Ok(()), Err)
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state to resume from comes first: whoever comes back to it finds in it that it is the best, and writes that file again.
fn write(store: &Store, keep: usize, mut job: Job) -> Result<(), CheckpointError> {
    if let Some(record) = &job.first {
        let path = store.dir().to_owned();
        record.sync().map_err(|source| CheckpointError::Io { path, source, needed: None })?;
    }
    store.write(Kind::Step, &mut job.snapshot)?;
    if job.best {
        store.write(Kind::Best, &mut job.snapshot)?;
    }
    store.prune(&Store::name(job.snapshot.count("train.step").unwrap_or(0)), keep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn job(step: u64, best: bool) -> Job {
        let mut snapshot = Snapshot::default();
        snapshot.meta.insert("count.train.step".into(), step.to_string());
        Job { snapshot, best, first: None }
    }

    /// A saver that writes only on demand, and what it has begun to write.
    fn gated() -> (Saver, mpsc::Sender<bool>, mpsc::Receiver<(u64, bool)>) {
        let (go, gate) = mpsc::channel::<bool>();
        let (begun, seen) = mpsc::channel();
        let saver = Saver::with(move |job| {
            let step = job.snapshot.count("train.step").unwrap();
            begun.send((step, job.best)).unwrap();
            if gate.recv().unwrap() {
                return Ok(());
            }
            Err(CheckpointError::Bad { path: format!("step {step}").into(), reason: "planted".into() })
        });
        let saver = saver.unwrap();
        (saver, go, seen)
    }

    #[test]
    fn a_newer_state_takes_the_place_of_the_one_that_waits_but_the_best_is_never_lost() {
        let (saver, go, seen) = gated();
        saver.hand_over(job(1, false)).unwrap();
        assert_eq!(seen.recv(), Ok((1, false)));
        // All of these are handed over while the first is still on its way.
        for (step, best) in [(2, true), (3, false), (4, true), (5, false), (6, false)] {
            saver.hand_over(job(step, best)).unwrap();
        }
        (0..3).for_each(|_| go.send(true).unwrap());
        assert_eq!((seen.recv(), seen.recv()), (Ok((4, true)), Ok((6, false))));
        saver.finish().unwrap();
        assert!(seen.try_recv().is_err());
        // Dropping writes what was handed over.
        saver.hand_over(job(7, false)).unwrap();
        go.send(true).unwrap();
        drop(saver);
        assert_eq!(seen.recv(), Ok((7, false)));
    }

    /// `checkpoint.every_steps=1 checkpoint.keep=100` keeps all of them, however slow the disk is.
    #[test]
    fn with_room_nothing_is_overtaken() {
        let (saver, go, seen) = gated();
        std::thread::scope(|scope| {
            let saver = &saver;
            scope.spawn(move || {
                for step in 1..=5 {
                    saver.make_room();
                    saver.hand_over(job(step, step == 2)).unwrap();
                }
            });
            for step in 1..=5 {
                assert_eq!(seen.recv(), Ok((step, step == 2)));
                go.send(true).unwrap();
            }
        });
        saver.finish().unwrap();
    }

    #[test]
    fn trouble_surfaces_once_in_the_one_who_hands_over() {
        let (saver, go, seen) = gated();
        saver.check().unwrap();
        saver.hand_over(job(1, false)).unwrap();
        go.send(false).unwrap();
        assert!(saver.finish().unwrap_err().to_string().contains("step 1: planted"));
        saver.finish().unwrap();
        saver.hand_over(job(2, false)).unwrap();
        go.send(false).unwrap();
        while saver.shared.state().trouble.is_none() {
            std::thread::yield_now();
        }
        assert!(saver.hand_over(job(3, false)).unwrap_err().to_string().contains("step 2: planted"));
        saver.check().unwrap();
        assert_eq!(seen.try_iter().count(), 2);
    }
}
