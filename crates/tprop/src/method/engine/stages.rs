//! The stages of a window, so that its algorithm box can be left between two chunks of rows and entered again.
//!
//! Which stages a window has, and in which order, depends on the configuration and on saved state alone: [`Cursor::list_stages`] lists them. The box
//! runs through its lines from the beginning each time it is entered, and each line names its stage: those that are done are
//! skipped. A checkpoint saves how many are done, and how many chunks of the next one.

use super::{Batch, BtpropConfig, Engine, Init, Solver, Starts};
use crate::real::Real;

/// A stage of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// States are put where the init begins.
    BeginStates,
    /// A sweep of the recurrence over all blocks, and its ends as starts.
    Sweep(usize),
    TakeEnds(usize),
    /// The exact init: ranks take turns.
    ReceiveStart,
    Follow,
    SendEnd,
    /// Targets begin at the starts.
    SettleStates,
    /// A step of the states.
    StateGradient(usize),
    MoveStates(usize),
    /// A step of θ.
    ThetaGradient(usize),
    MoveTheta(usize),
    /// A step of both.
    JointGradient(usize),
    MoveBoth(usize),
    Duals,
    Finish,
}

/// How far a window has been worked through.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    stages: Vec<Stage>,
    /// Stages that are done, and chunks of the next one.
    pub done: u64,
    pub chunk: u64,
    /// State steps after which the states had settled, if they had.
    pub settled: u64,
    /// Sweeps after which the starts had settled, if they had.
    pub swept: u64,
}

/// So many, or fewer if it was enough before.
fn at_most(all: usize, enough: u64) -> usize {
    if enough == 0 { all } else { all.min(enough as usize) }
}

/// The watcher wants to look in.
#[derive(Debug)]
pub struct Paused;

pub type Step = Result<(), Paused>;

impl Cursor {
    /// Lists the stages of a window of this epoch.
    pub fn list_stages(&mut self, config: &BtpropConfig, epoch: u64) {
        let stages = &mut self.stages;
        stages.clear();
        stages.push(Stage::BeginStates);
        if !persists(config, epoch) {
            match config.init {
                Init::Zero | Init::Parallel { .. } | Init::Stored { .. } | Init::Carried { .. } => {
                    let sweeps = at_most(config.init.sweeps(), self.swept);
                    stages.extend((0..sweeps).flat_map(|i| [Stage::Sweep(i), Stage::TakeEnds(i)]));
                }
                Init::Sequential => stages.extend([Stage::ReceiveStart, Stage::Follow, Stage::SendEnd]),
            }
        }
        stages.push(Stage::SettleStates);
        let steps = at_most(config.states.steps, self.settled);
        let states = (0..steps).flat_map(|i| [Stage::StateGradient(i), Stage::MoveStates(i)]);
        let theta = (0..config.theta_steps).flat_map(|i| [Stage::ThetaGradient(i), Stage::MoveTheta(i)]);
        let duals = duals_move(config, epoch).then_some(Stage::Duals);
        match config.solver {
            Solver::Alm { joint_steps, .. } => {
                stages.extend((0..joint_steps).flat_map(|i| [Stage::JointGradient(i), Stage::MoveBoth(i)]));
                stages.extend(duals);
            }
            Solver::Admm { before_theta: true, .. } => stages.extend(states.chain(duals).chain(theta)),
            Solver::Penalty | Solver::Admm { before_theta: false, .. } => {
                stages.extend(states.chain(theta).chain(duals));
            }
        }
        stages.push(Stage::Finish);
    }

    /// Sweeps of a window of this epoch.
    pub fn sweeps(&self, config: &BtpropConfig, epoch: u64) -> usize {
        if persists(config, epoch) { 0 } else { at_most(config.init.sweeps(), self.swept) }
    }

    /// Whether a stage is the first pass over the blocks after the init.
    pub fn is_first_pass(&self, stage: Stage) -> bool {
        let settle = self.stages.iter().position(|&s| s == Stage::SettleStates).expect("every window has it");
        self.stages.get(settle + 1) == Some(&stage)
    }

    /// Whether a stage is next; if not, it is done.
    fn is_next(&self, stage: Stage) -> bool {
        let done = self.done as usize;
        let next = self.stages.get(done) == Some(&stage);
        assert!(next || self.stages[..done].contains(&stage), "{stage:?} is not stage {done} of {:?}", self.stages);
        next
    }

    /// Refuses a place behind the window's stages.
    ///
    /// # Errors
    /// What was found, and how many there are.
    pub fn check(&self) -> Result<(), String> {
        let (done, all) = (self.done, self.stages.len() as u64);
        if done < all { Ok(()) } else { Err(format!("{done} stages of a window are done; it has {all}")) }
    }

    /// The next window begins.
    pub fn reset(&mut self) {
        (self.done, self.chunk, self.settled, self.swept) = (0, 0, 0, 0);
    }

    /// Whether a window is in the middle of its stages.
    pub fn inside(&self) -> bool {
        self.done > 0 || self.chunk > 0
    }
}

/// Whether a window takes up the states of the pass before as they are. In batch mode states persist. Held starts, though, lie on the
/// trajectory of the present θ, so they are found anew for every pass, unless they are to be taken as they are.
pub(super) fn persists(config: &BtpropConfig, epoch: u64) -> bool {
    let as_they_are = config.init == Init::Stored { sweeps: 0 };
    config.batch == Batch::Full && epoch > 1 && (config.starts == Starts::Moving || as_they_are)
}

/// Whether there are duals that move in this epoch.
pub(super) fn duals_move(config: &BtpropConfig, epoch: u64) -> bool {
    config.solver.duals().is_some_and(|duals| epoch as usize >= duals.start_epoch)
}

impl<T: Real> Engine<T> {
    /// A stage that is not left before it is done.
    pub fn once(&mut self, stage: Stage, work: impl FnOnce(&mut Self)) -> Step {
        if self.progress.cursor.is_next(stage) {
            work(self);
            self.progress.cursor.done += 1;
        }
        Ok(())
    }

    /// A stage over all chunks of this rank's rows.
    pub(super) fn pass(
        &mut self,
        stage: Stage,
        pause: &mut dyn FnMut() -> bool,
        work: impl FnMut(&mut Self, usize),
    ) -> Step {
        self.pass_over(stage, self.tapes.count(), pause, work)
    }

    /// A stage of `count` chunks; between two of them it may be left, and entered again where it was left.
    pub(super) fn pass_over(
        &mut self,
        stage: Stage,
        count: usize,
        pause: &mut dyn FnMut() -> bool,
        mut work: impl FnMut(&mut Self, usize),
    ) -> Step {
        if !self.progress.cursor.is_next(stage) {
            return Ok(());
        }
        while (self.progress.cursor.chunk as usize) < count {
            work(self, self.progress.cursor.chunk as usize);
            self.progress.cursor.chunk += 1;
            if (self.progress.cursor.chunk as usize) < count && self.geometry.shares.may_pause() && pause() {
                return Err(Paused);
            }
        }
        self.progress.cursor.done += 1;
        self.progress.cursor.chunk = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{DualConfig, DualRule, StateConfig};
    use super::Stage::*;
    use super::*;

    fn config() -> BtpropConfig {
        BtpropConfig {
            block: 2,
            blocks: 4,
            solver: Solver::Penalty,
            init: Init::Zero,
            states: StateConfig { steps: 2, ..StateConfig::default() },
            ..BtpropConfig::default()
        }
    }

    fn stages(config: &BtpropConfig, epoch: u64, settled: u64) -> Vec<Stage> {
        let mut cursor = Cursor { settled, ..Cursor::default() };
        cursor.list_stages(config, epoch);
        cursor.stages
    }

    /// Checkpoints save a stage by its number (`btprop.done`), so these lists are part of their format.
    #[test]
    fn stages_have_the_numbers_that_checkpoints_know() {
        let duals = DualConfig { rate: 0.1, rule: DualRule::Scaled, start_epoch: 2, stored: false };
        let begin = [BeginStates, SettleStates];
        let states = [StateGradient(0), MoveStates(0), StateGradient(1), MoveStates(1)];
        let theta = [ThetaGradient(0), MoveTheta(0)];
        let penalty = config();
        assert_eq!(stages(&penalty, 1, 0), [&begin[..], &states, &theta, &[Finish]].concat());
        assert_eq!(stages(&penalty, 1, 1), [&begin[..], &states[..2], &theta, &[Finish]].concat(), "settled");

        let parallel = BtpropConfig { init: Init::Parallel { sweeps: 2 }, ..penalty.clone() };
        let sweeps = [BeginStates, Sweep(0), TakeEnds(0), Sweep(1), TakeEnds(1), SettleStates];
        assert_eq!(stages(&parallel, 1, 0), [&sweeps[..], &states, &theta, &[Finish]].concat());
        let exact = BtpropConfig { init: Init::Sequential, ..penalty.clone() };
        let follow = [BeginStates, ReceiveStart, Follow, SendEnd, SettleStates];
        assert_eq!(stages(&exact, 1, 0), [&follow[..], &states, &theta, &[Finish]].concat());

        let admm = |before_theta| BtpropConfig { solver: Solver::Admm { duals, before_theta }, ..penalty.clone() };
        assert_eq!(stages(&admm(false), 1, 0), stages(&penalty, 1, 0), "duals rest in this epoch");
        assert_eq!(stages(&admm(false), 2, 0), [&begin[..], &states, &theta, &[Duals, Finish]].concat());
        assert_eq!(stages(&admm(true), 2, 0), [&begin[..], &states, &[Duals], &theta, &[Finish]].concat());
        let alm = BtpropConfig { solver: Solver::Alm { duals, joint_steps: 2 }, ..penalty.clone() };
        let joint = [JointGradient(0), MoveBoth(0), JointGradient(1), MoveBoth(1)];
        assert_eq!(stages(&alm, 2, 1), [&begin[..], &joint, &[Duals, Finish]].concat());

        // In batch mode later passes take up what is there, unless held starts have to be found again.
        let full = BtpropConfig { batch: Batch::Full, ..parallel };
        assert_eq!(stages(&full, 1, 0)[..6], sweeps);
        assert_eq!(stages(&full, 2, 0)[..2], begin);
        let held = BtpropConfig { starts: Starts::Held, ..full };
        assert_eq!(stages(&held, 2, 0)[..6], sweeps);
        let as_they_are = BtpropConfig { init: Init::Stored { sweeps: 0 }, ..held };
        assert_eq!(stages(&as_they_are, 2, 0)[..2], begin);
    }
}
