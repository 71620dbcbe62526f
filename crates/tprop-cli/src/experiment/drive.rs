//! Runs the trials that an experiment wants, some at a time, each as an ordinary run of this program.
//!
//! What is done is read off the run directories, never off a memory of this process: killed at any moment and started
//! again, the driver takes up finished trials from their records, goes on with interrupted ones and begins the rest. Two
//! processes never train one point: its directory follows from its settings, and a run holds its directory's lock.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use tprop::record::{Event, Step};

use super::child::{Child, News, Said};
use super::ledger::{Job, Ledger, Task, perplexity};
use super::out::Out;
use super::show::{Show, Working};
use super::study::Study;
use super::trial::{self, Ended, Found, Trial};
use crate::failure::{Code, Failure, Outcome};
use crate::signals::Signals;

/// A directory that another process holds is looked at again after this time.
const BUSY: Duration = Duration::from_millis(300);
/// A trial that is killed so often without getting on is given up.
const TRIES: u32 = 3;

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Trials side by side.
    pub jobs: usize,
    /// Threads of each.
    pub threads: usize,
    /// Where data sets are looked for first.
    pub data_dir: Option<String>,
    /// No progress.
    pub quiet: bool,
}

struct Running {
    token: u64,
    task: Task,
    child: Child,
    working: Working,
    /// It was asked to end.
    asked: bool,
    /// Evaluations when it was started.
    evals: usize,
}

/// Runs an experiment in its directory.
pub struct Driver<'a> {
    study: &'a Study,
    cells: Vec<usize>,
    out: &'a Out,
    options: Options,
    ledger: Ledger,
    running: Vec<Running>,
    busy: HashMap<String, Instant>,
    tries: HashMap<String, u32>,
    told_busy: HashSet<String>,
    show: Show,
    tell: Sender<News>,
    news: Receiver<News>,
    next_token: u64,
}

impl<'a> Driver<'a> {
    /// For some cells of an experiment, whose texts have these fingerprints.
    pub fn new(
        study: &'a Study,
        cells: Vec<usize>,
        out: &'a Out,
        texts: HashMap<String, String>,
        options: Options,
    ) -> Self {
        let (tell, news) = mpsc::channel();
        let show = Show::new(options.quiet, &study.name, study.count_of(&cells));
        Self {
            study,
            cells,
            out,
            options,
            ledger: Ledger { texts, ..Ledger::default() },
            running: Vec::new(),
            busy: HashMap::new(),
            tries: HashMap::new(),
            told_busy: HashSet::new(),
            show,
            tell,
            news,
            next_token: 0,
        }
    }

    /// Forgets failures of earlier drivers, with what they left, and runs that cannot be taken up.
    pub fn retry(&mut self) -> Outcome {
        self.ledger.retry = true;
        for id in self.out.forget_failures()? {
            if !trial::clear(&self.out.run(&id))? {
                let message =
                    format!("{}: in use by another process; wait for it, or stop it", self.out.run(&id).display());
                return Err(Failure::new(Code::InUse, message));
            }
        }
        Ok(())
    }

    /// Runs everything that is wanted.
    pub fn drive(mut self) -> Outcome<Ledger> {
        let signals = Signals::listen();
        self.ledger.noted = self.out.outcomes()?.into_iter().collect();
        let mut jobs = self.ledger.jobs(self.study, &self.cells, self.out);
        self.show.taken_up(self.ended());
        loop {
            if let Some(code) = signals.code() {
                self.stop_all();
                self.show.wipe();
                let message = "stopped; finished trials are kept, and the same command goes on with the others";
                return Err(Failure::new(code, message));
            }
            self.stop_unwanted(&jobs);
            if let Err(failure) = self.start(&jobs) {
                self.stop_all();
                return Err(failure);
            }
            if jobs.is_empty() && self.running.is_empty() {
                break;
            }
            let ended = self.ended();
            self.show.draw(ended, self.running.iter().map(|r| &r.working));
            match self.listen() {
                Ok(false) => {}
                Ok(true) => jobs = self.ledger.jobs(self.study, &self.cells, self.out),
                Err(failure) => {
                    self.stop_all();
                    self.show.wipe();
                    return Err(failure);
                }
            }
        }
        self.show.wipe();
        // The table fills up: cells that were not asked for this time, but have been run before, keep their figures.
        let others: Vec<usize> = (0..self.study.cells.len()).filter(|cell| !self.cells.contains(cell)).collect();
        self.ledger.jobs(self.study, &others, self.out);
        Ok(self.ledger)
    }

    fn ended(&self) -> usize {
        self.ledger.known.values().filter(|p| p.ended.is_some()).count()
    }

    /// Ends trials that have come as far as anyone wants them to.
    fn stop_unwanted(&mut self, jobs: &[Job]) {
        for running in &mut self.running {
            let Task::Train { id, .. } = &running.task else { continue };
            let wanted = jobs.iter().any(|job| job.task.name() == id);
            let ended = self.ledger.known.get(id).is_some_and(|p| p.ended.is_some());
            if !wanted && !ended && !running.asked {
                running.asked = true;
                running.child.stop();
            }
        }
    }

    fn start(&mut self, jobs: &[Job]) -> Outcome {
        for job in jobs {
            if self.running.len() >= self.options.jobs {
                break;
            }
            let name = job.task.name();
            let at_work = self.running.iter().any(|r| r.task.name() == name);
            if at_work || self.busy.get(name).is_some_and(|until| Instant::now() < *until) {
                continue;
            }
            match &job.task {
                Task::Train { id, .. } => self.start_training(id, job)?,
                Task::Read { key } => {
                    let run = self.out.run(&job.trial.id);
                    let mut args: Vec<OsString> = vec!["eval".into(), run.into(), "--json".into()];
                    args.extend(self.study.cells[job.cell].eval.iter().map(OsString::from));
                    if let Some(dir) = &self.options.data_dir {
                        args.extend(["--data-dir".into(), dir.into()]);
                    }
                    self.spawn(Task::Read { key: key.clone() }, &args, job, None)?;
                }
            }
        }
        Ok(())
    }

    fn start_training(&mut self, id: &str, job: &Job) -> Outcome {
        let dir = self.out.run(id);
        // Looked at again: an older driver's trial may have gone on meanwhile.
        let found = match trial::look(&dir, &job.trial) {
            Ok(found) => found,
            Err(failure) => return self.ended_badly(id, Ended::Failed(failure.message)),
        };
        let evals = match found {
            Found::Run(progress) => {
                let (ended, evals) = (progress.ended.is_some(), progress.evals.len());
                let further = evals > self.ledger.known.get(id).map_or(0, |p| p.evals.len());
                self.ledger.known.insert(id.to_owned(), progress);
                if ended || further {
                    return self.look_again();
                }
                Some(evals)
            }
            Found::Nothing => {
                if !trial::clear(&dir)? {
                    self.wait_for(id);
                    return Ok(());
                }
                None
            }
        };
        let threads: OsString = self.options.threads.to_string().into();
        let mut run = OsString::from("--run=");
        run.push(&dir);
        let (fresh, mut args): (bool, Vec<OsString>) = match evals {
            Some(_) => (false, vec!["resume".into(), path_argument(&dir)]),
            None => {
                let name = format!("trials/{id}.toml");
                self.out.write(&name, &self.settings_of(&job.trial).to_toml())?;
                let mut config = OsString::from("--config=");
                config.push(self.out.dir().join(name));
                (true, vec!["train".into(), config, run])
            }
        };
        args.extend(["--json".into(), "--quiet".into(), "--threads".into(), threads]);
        self.spawn(Task::Train { id: id.to_owned(), fresh }, &args, job, evals)
    }

    /// A trial's settings as its process gets them: with files where they really are.
    fn settings_of(&self, trial: &Trial) -> crate::settings::Settings {
        super::located(&trial.settings, self.options.data_dir.as_deref())
    }

    fn spawn(&mut self, task: Task, args: &[OsString], job: &Job, after: Option<usize>) -> Outcome {
        self.next_token += 1;
        let child = Child::start(args, self.next_token, self.tell.clone())
            .map_err(|e| Failure::new(Code::Failed, format!("a trial's process cannot be started ({e})")))?;
        let cell = &self.study.cells[job.cell].name;
        let working = Working::new(cell, &job.label, &job.trial, job.until);
        self.show.started(&working, after);
        let evals = after.unwrap_or(0);
        self.running.push(Running { token: self.next_token, task, child, working, asked: false, evals });
        Ok(())
    }

    /// Waits a moment for news; says whether what is wanted may have changed.
    fn listen(&mut self) -> Outcome<bool> {
        let mut changed = false;
        let mut next = self.news.recv_timeout(Duration::from_millis(100));
        loop {
            match next {
                Ok((token, Said::Line(line))) => changed |= self.hear(token, &line)?,
                Ok((token, Said::Closed)) => {
                    self.close(token)?;
                    changed = true;
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(changed),
            }
            next = self.news.recv_timeout(Duration::ZERO);
        }
    }

    fn hear(&mut self, token: u64, line: &str) -> Outcome<bool> {
        let Some(running) = self.running.iter_mut().find(|r| r.token == token) else { return Ok(false) };
        match &running.task {
            Task::Read { key } => {
                let Some(figure) = perplexity(line) else { return Ok(false) };
                std::fs::create_dir_all(self.out.dir().join("evals"))
                    .map_err(|e| Failure::disk(&self.out.dir().join("evals"), &e))?;
                self.out.write(&format!("evals/{key}.json"), &format!("{line}\n"))?;
                self.ledger.readings.insert(key.clone(), Ok(figure));
                Ok(true)
            }
            Task::Train { id, .. } => {
                let Ok(event) = serde_json::from_str::<Event>(line) else { return Ok(false) };
                if let Event::Step(Step { epoch, nats, tokens_per_s, .. }) = &event {
                    running.working.step(*epoch, *nats, *tokens_per_s);
                }
                let counts = matches!(event, Event::Eval(_) | Event::End(_));
                if let Event::Eval(eval) = &event {
                    running.working.eval(eval);
                }
                self.ledger.known.entry(id.clone()).or_default().note(event);
                Ok(counts)
            }
        }
    }

    /// A process has ended: what does that mean for its trial?
    fn close(&mut self, token: u64) -> Outcome {
        let Some(place) = self.running.iter().position(|r| r.token == token) else { return Ok(()) };
        let running = self.running.remove(place);
        let (status, reason) = running.child.end().map_err(|e| Failure::new(Code::Failed, e))?;
        let (id, fresh) = match running.task {
            Task::Train { id, fresh } => (id, fresh),
            Task::Read { key } => {
                if !status.success() {
                    self.ledger.readings.insert(key, Err(reason));
                } else {
                    self.ledger.readings.entry(key).or_insert_with(|| Err("eval printed no perplexity".into()));
                }
                return Ok(());
            }
        };
        let dir = self.out.run(&id);
        match status.code() {
            Some(0) => {
                let progress = self.ledger.known.get(&id).cloned().unwrap_or_default();
                if progress.ended.is_none() {
                    // It had ended before this process came.
                    self.ledger.known.remove(&id);
                    return match trial::look(&dir, running.working.trial()) {
                        Ok(Found::Run(progress)) if progress.ended.is_some() => {
                            self.ledger.known.insert(id, progress);
                            Ok(())
                        }
                        _ => self.ended_badly(&id, Ended::Failed("it ended without a result".into())),
                    };
                }
                self.show.finished(&running.working, &progress);
                Ok(())
            }
            Some(3) => {
                self.show.failed(&running.working, &reason);
                self.ended_badly(&id, Ended::Diverged(reason))
            }
            Some(5) => Err(Failure::new(Code::Disk, format!("a trial could not write: {reason}"))),
            Some(6) => {
                self.wait_for(&id);
                Ok(())
            }
            _ if running.asked => Ok(()),
            // Another process made the run while this one was reading its text.
            Some(2) if fresh && dir.join("settings.toml").exists() => self.interrupted(&id, running.evals, &reason),
            Some(130 | 143) => self.interrupted(&id, running.evals, "was stopped by a signal"),
            None => self.interrupted(&id, running.evals, &format!("was killed ({status})")),
            Some(_) => {
                self.show.failed(&running.working, &reason);
                self.ended_badly(&id, Ended::Failed(reason))
            }
        }
    }

    /// Goes on with it, unless that has not helped before.
    fn interrupted(&mut self, id: &str, evals: usize, what: &str) -> Outcome {
        self.wait_for_quietly(id);
        let further = self.ledger.known.get(id).is_some_and(|p| p.evals.len() > evals);
        let tries = self.tries.entry(id.to_owned()).or_default();
        *tries = if further { 1 } else { *tries + 1 };
        if *tries < TRIES {
            return Ok(());
        }
        self.ended_badly(id, Ended::Failed(format!("{what}, {TRIES} times in a row")))
    }

    fn ended_badly(&mut self, id: &str, ended: Ended) -> Outcome {
        self.out.note(id, &ended)?;
        self.ledger.known.entry(id.to_owned()).or_default().ended = Some(ended);
        self.look_again()
    }

    /// Makes the main loop ask again what is wanted.
    fn look_again(&mut self) -> Outcome {
        let _ = self.tell.send((0, Said::Closed));
        Ok(())
    }

    fn wait_for(&mut self, id: &str) {
        if self.told_busy.insert(id.to_owned()) {
            self.show.line(&format!("{id}: another process is at work on it; waiting"));
        }
        self.wait_for_quietly(id);
    }

    fn wait_for_quietly(&mut self, id: &str) {
        self.busy.insert(id.to_owned(), Instant::now() + BUSY);
    }

    /// Asks all trials to save, and waits for them.
    fn stop_all(&mut self) {
        self.running.iter_mut().filter(|r| !r.asked).for_each(|r| r.child.stop());
        for running in self.running.drain(..) {
            let _ = running.child.end();
        }
    }
}

/// A path that begins with a dash is no flag.
fn path_argument(path: &Path) -> OsString {
    if path.to_string_lossy().starts_with('-') { Path::new(".").join(path).into() } else { path.into() }
}
