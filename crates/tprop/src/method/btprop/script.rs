//! How far the box of a window has been worked through, so that it can be left between two pieces and entered again.
//!
//! Stages are counted in the order of the code. So whether a stage exists may depend on settings and saved state alone.

use super::*;

/// How far the box has been worked through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Script {
    /// Stages finished, and pieces of the next one.
    pub(super) done: u64,
    pub(super) piece: u64,
    /// The stage that the code has come to since it was entered.
    pub(super) now: u64,
    /// State steps after which the states had settled, if they had (+1).
    pub(super) settled: u64,
}

/// The watcher wants to look in.
pub(super) struct Paused;

pub(super) type Step = Result<(), Paused>;

impl<T: Real> Btprop<T> {
    /// A stage without pieces: done once, also when the box is entered again.
    pub(super) fn once(&mut self, work: impl FnOnce(&mut Self)) -> Step {
        let stage = self.script.now;
        self.script.now += 1;
        if stage >= self.script.done {
            work(self);
            self.script.done = stage + 1;
        }
        Ok(())
    }

    /// A stage over all pieces of this rank's rows.
    pub(super) fn pass(&mut self, pause: &mut dyn FnMut() -> bool, work: impl FnMut(&mut Self, usize)) -> Step {
        self.pass_over(self.pieces.count(), pause, work)
    }

    /// A stage of `count` parts; between two of them it may be left, and entered again where it was left.
    pub(super) fn pass_over(
        &mut self,
        count: usize,
        pause: &mut dyn FnMut() -> bool,
        mut work: impl FnMut(&mut Self, usize),
    ) -> Step {
        let stage = self.script.now;
        self.script.now += 1;
        if stage < self.script.done {
            return Ok(());
        }
        while (self.script.piece as usize) < count {
            work(self, self.script.piece as usize);
            self.script.piece += 1;
            // Ranks could not agree on a pause here, and whether they can must not depend on their number.
            if (self.script.piece as usize) < count && self.shares.count() == 1 && pause() {
                return Err(Paused);
            }
        }
        self.script.done = stage + 1;
        self.script.piece = 0;
        Ok(())
    }
}
