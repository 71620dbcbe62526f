//! This process among the ranks that a launcher started. Rank 0 is the program as ever: it reads, writes and speaks. The others
//! *serve*: they are handed the job and the state by rank 0, load the same corpus, train along and write nothing.

mod launch;
mod peers;
mod serve;

pub use serve::Job;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tprop::checkpoint::Snapshot;
use tprop::comm::{Comm, InShares, Solo, broadcast};
use tprop::record::{End, Event};
use tprop::train::{Request, SaveReason, TrainError, Trainer, Watch};

use crate::console;
use crate::failure::{Failure, Outcome};
use crate::launcher;
use crate::run::Run;
use crate::settings::Settings;
use launch::Member;

/// Shares under MPI: even for 1, 2, 3, 4, 6 and 12 ranks.
pub const SHARES: usize = 12;

/// The run that is being trained, for last words.
static RUN: OnceLock<String> = OnceLock::new();

/// This process among its ranks.
#[derive(Debug)]
pub struct Cluster {
    member: Member,
    /// A launcher has started this process.
    launched: bool,
    /// The others know what to do.
    announced: AtomicBool,
    /// They have seen the end of it as well.
    over: AtomicBool,
}

impl Cluster {
    /// Joins the other ranks, if a launcher says that there are any.
    pub fn join() -> Outcome<Self> {
        let (member, launched) = launch::join()?;
        let cluster = Self { member, launched, announced: AtomicBool::new(false), over: AtomicBool::new(false) };
        if cluster.comm().size() > 1 {
            peers::watch(cluster.comm());
        }
        Ok(cluster)
    }

    /// The other ranks.
    pub fn comm(&self) -> &dyn Comm {
        match &self.member {
            Member::Alone => &Solo,
            #[cfg(feature = "mpi")]
            Member::Rank(connection) => connection.as_ref().expect("open until the end"),
        }
    }

    /// Whether this rank follows another's command.
    pub fn serves(&self) -> bool {
        self.comm().rank() > 0
    }

    /// The number of shares for a new run.
    pub fn shares(&self, asked: Option<usize>) -> usize {
        asked.unwrap_or(if self.launched { SHARES.max(self.comm().size()) } else { 1 })
    }

    /// The other ranks, with sums in the shares of a run.
    pub fn in_shares(&self, settings: &Settings) -> Outcome<InShares<&dyn Comm>> {
        // A run from before there were shares has one.
        self.in_so_many(settings.shares().unwrap_or(1))
    }

    /// The other ranks, with sums in so many shares.
    pub fn in_so_many(&self, shares: usize) -> Outcome<InShares<&dyn Comm>> {
        let size = self.comm().size();
        if size > shares {
            return Err(Failure::input(format!(
                "{size} ranks for a run with cluster.shares={shares}: start at most {shares} ranks, or a new run with \
                 cluster.shares={size} or more"
            )));
        }
        Ok(InShares::new(self.comm(), shares))
    }

    /// Threads of this rank: an equal part of its machine, unless so many were asked for or the launcher has bound it to some cores.
    pub fn threads(&self, asked: Option<usize>) -> Option<usize> {
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        let neighbours = launcher::ranks_here();
        if asked.is_some() || self.comm().size() == 1 || here < launcher::cores() {
            return asked;
        }
        Some((here / neighbours).max(1))
    }

    /// For commands that a launcher should not start several times.
    pub fn refuse_launcher() -> Outcome {
        launch::refuse_several()
    }

    /// For commands that one process does.
    pub fn refuse_several(&self, command: &str) -> Outcome {
        match self.comm().size() {
            1 => Ok(()),
            n => Err(Failure::input(format!("`tprop {command}` is for one process; a launcher started {n}"))),
        }
    }

    /// Tells the others what to do and compares what they found with what is here; before any file is made.
    pub fn announce(&self, job: &Job) -> Outcome {
        if self.comm().size() == 1 {
            return Ok(());
        }
        self.announced.store(true, Ordering::Relaxed);
        broadcast(self.comm(), serde_json::to_vec(job).expect("strings and numbers"));
        match serve::problems(self.comm(), String::new()) {
            None => Ok(()),
            Some(problem) => {
                self.over.store(true, Ordering::Relaxed);
                Err(Failure::input(problem))
            }
        }
    }

    /// Hands out the state of a run; a fresh one begins with rank 0's weights.
    pub fn begin(&self, run: &Run, trainer: &mut Trainer<'_, f32>, state: Option<(&Snapshot, Option<&Snapshot>)>) {
        let _ = RUN.set(run.name());
        launch::note(state.map_or(0, |_| trainer.step() + 1));
        if self.comm().size() == 1 {
            return;
        }
        broadcast(self.comm(), run.name().into_bytes());
        self.hand_out(state);
        if state.is_none() {
            serve::same_weights(self.comm(), trainer.params_mut());
        }
        serve::same_rate(self.comm(), trainer);
    }

    /// Every rank has read the same command line and does the same; no rank instructs another.
    pub fn all_do_the_same(&self) {
        self.announced.store(true, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
    }

    /// Gives all ranks a snapshot, or tells them that the run is over.
    pub fn hand_out(&self, state: Option<(&Snapshot, Option<&Snapshot>)>) {
        if self.comm().size() > 1 {
            let (snapshot, best) = state.unzip();
            broadcast(self.comm(), snapshot.map_or(Vec::new(), Snapshot::encode));
            broadcast(self.comm(), best.flatten().map_or(Vec::new(), Snapshot::encode));
        }
    }

    /// Trains along as rank 0 says. `own`: the settings that this rank was started with, if it was.
    pub fn serve(&self, own: Option<&Settings>) -> Outcome {
        serve::serve(self, own)
    }

    /// Notes checkpoints, so that every rank can name the last one.
    pub fn watching<'a>(&'a self, watch: &'a mut dyn Watch) -> impl Watch + 'a {
        Noting(watch)
    }

    /// What all ranks have seen ends on all of them; anything else that went wrong here ends the job.
    pub fn ended(&self, end: Result<End, TrainError>) -> Result<End, TrainError> {
        if self.comm().size() > 1 {
            match &end {
                Ok(_) => {}
                Err(TrainError::Diverged { .. }) => self.hand_out(None),
                Err(_) => self.fail(Failure::from(end.expect_err("just seen"))),
            }
        }
        self.over.store(true, Ordering::Relaxed);
        end
    }

    /// Ends the whole job.
    pub fn fail(&self, failure: Failure) -> ! {
        console::note(format!("tprop: {}{}", self.name(), failure.message));
        match &self.member {
            Member::Alone => {}
            #[cfg(feature = "mpi")]
            Member::Rank(connection) => connection.as_ref().expect("open until the end").abort(failure.code as u8),
        }
        std::process::exit(failure.code as i32)
    }

    /// Who speaks, in front of a message.
    fn name(&self) -> String {
        match self.comm().rank() {
            0 => String::new(),
            rank => format!("rank {rank}: "),
        }
    }
}

impl Drop for Cluster {
    /// Ranks leave together; those that do not know what to do learn that there is nothing.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let leads = self.comm().size() > 1 && !self.serves();
        let announced = self.announced.load(Ordering::Relaxed);
        if leads && !announced {
            broadcast(self.comm(), serve::NOTHING.to_vec());
        }
        // Something went wrong on rank 0 alone, and the others wait for it.
        let abandoned = leads && announced && !self.over.load(Ordering::Relaxed);
        match &mut self.member {
            Member::Alone => debug_assert!(!abandoned),
            #[cfg(feature = "mpi")]
            Member::Rank(connection) => {
                let connection = connection.take().expect("open until the end");
                if abandoned { connection.abandon() } else { connection.close() }
            }
        }
    }
}

/// Where the run can be taken up again.
fn last_words() -> String {
    let Some(run) = RUN.get() else { return "The job ends; nothing has been trained yet".to_owned() };
    match newest(run).or(launch::last_step()) {
        None => format!("The job ends; {run} has no checkpoint yet"),
        Some(step) => format!(
            "The job ends; the last checkpoint of {run} is that of update {step}, and `tprop resume {run}` under the same launcher continues"
        ),
    }
}

/// The newest checkpoint that can be seen from here.
fn newest(run: &str) -> Option<u64> {
    let steps = std::fs::read_dir(std::path::Path::new(run).join("checkpoints")).ok()?.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok()
    });
    steps.max()
}

struct Noting<'a>(&'a mut dyn Watch);

type Watched = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl Watch for Noting<'_> {
    fn event(&mut self, event: &Event) -> Watched {
        self.0.event(event)
    }
    fn updated(&mut self, step: u64) -> Watched {
        self.0.updated(step)
    }
    fn request(&mut self) -> Request {
        self.0.request()
    }
    fn make_room(&mut self) {
        self.0.make_room();
    }
    fn save(&mut self, snapshot: Snapshot, why: SaveReason) -> Watched {
        let step = snapshot.meta.get("count.train.step").and_then(|step| step.parse::<u64>().ok());
        self.0.save(snapshot, why)?;
        launch::note(step.map_or(0, |step| step + 1));
        Ok(())
    }
}
