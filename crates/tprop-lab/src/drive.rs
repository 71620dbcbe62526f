//! Runs the trials that an experiment wants, some at a time, each as an ordinary run of this program.
//!
//! What is done is read off the run directories, never off a memory of this process: killed at any moment and started
//! again, the driver takes up finished trials from their records, continues interrupted ones and begins the rest. Two
//! processes never train one point: its directory follows from its settings, and a run holds its directory's lock.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use tprop::record::Event;

use super::child::{Child, News, Said};
use super::ledger::{Kind, Ledger, Task, perplexity};
use super::out::Out;
use super::progress::{Ended, Progress};
use super::request::Request;
use super::show::{self, Show};
use super::study::Study;
use super::trial;
use tprop_run::failure::{Code, Failure, Outcome};
use tprop_run::signals::Signals;

/// A directory that another process holds is looked at again after this time.
const BUSY: Duration = Duration::from_millis(300);
/// A trial that is killed so often without getting on is given up.
const TRIES: u32 = 3;

struct Running {
    task: Task,
    /// As people read it.
    name: String,
    child: Child,
    /// It was asked to end.
    asked: bool,
    /// Evaluations when it was started; none if it began.
    after: Option<usize>,
}

/// Runs an experiment in its directory.
pub struct Driver<'a> {
    study: &'a Study,
    entries: Vec<usize>,
    out: &'a Out,
    request: &'a Request,
    /// Of each trial.
    threads: usize,
    ledger: Ledger,
    running: Vec<Running>,
    busy: HashMap<String, Instant>,
    tries: HashMap<String, u32>,
    told_busy: HashSet<String>,
    show: Show,
    tell: Sender<News>,
    news: Receiver<News>,
}

impl<'a> Driver<'a> {
    /// For some entries of an experiment, whose texts have these fingerprints; trials share the threads.
    pub fn new(
        study: &'a Study,
        entries: Vec<usize>,
        out: &'a Out,
        texts: HashMap<String, String>,
        request: &'a Request,
        threads: usize,
    ) -> Self {
        let (tell, news) = mpsc::channel();
        let show = Show::new(request.quiet, &study.name, study.count_of(&entries));
        Self {
            study,
            entries,
            out,
            request,
            threads: (threads / request.jobs).max(1),
            ledger: Ledger { texts, ..Ledger::default() },
            running: Vec::new(),
            busy: HashMap::new(),
            tries: HashMap::new(),
            told_busy: HashSet::new(),
            show,
            tell,
            news,
        }
    }

    /// Forgets failures of earlier drivers, with what they left, and runs that cannot be taken up.
    pub fn retry(&mut self) -> Outcome {
        self.ledger.retry = true;
        for id in self.out.forget_failures()? {
            let dir = self.out.run(&id);
            if !trial::clear(&dir)? {
                let message = format!("{}: in use by another process; wait for it, or stop it", dir.display());
                return Err(Failure::new(Code::InUse, message));
            }
        }
        Ok(())
    }

    /// Runs everything that is wanted.
    pub fn drive(mut self) -> Outcome<Ledger> {
        let driven = self.drive_all();
        if driven.is_err() {
            self.stop_all();
        }
        self.show.wipe();
        driven?;
        // The table fills up: entries that were not asked for this time, but have been run before, keep their figures.
        let others: Vec<usize> = (0..self.study.entries.len()).filter(|e| !self.entries.contains(e)).collect();
        self.ledger.tasks(self.study, &others, self.out);
        Ok(self.ledger)
    }

    fn drive_all(&mut self) -> Outcome {
        let signals = Signals::listen();
        self.ledger.noted = self.out.outcomes()?.into_iter().collect();
        let mut tasks = self.ledger.tasks(self.study, &self.entries, self.out);
        self.show.taken_up(self.ended());
        loop {
            if let Some(code) = signals.code() {
                let message = "stopped; finished trials are kept, and the same command continues with the others";
                return Err(Failure::new(code, message));
            }
            self.stop_unwanted(&tasks);
            self.start(&tasks)?;
            if tasks.is_empty() && self.running.is_empty() {
                return Ok(());
            }
            let ended = self.ended();
            let known = &self.ledger.known;
            self.show.draw(ended, self.running.iter().map(|r| show::line(&r.name, &r.task, known.get(&r.task.key))));
            if self.listen()? {
                tasks = self.ledger.tasks(self.study, &self.entries, self.out);
            }
        }
    }

    fn ended(&self) -> usize {
        self.ledger.known.values().filter(|p| p.ended.is_some()).count()
    }

    /// Ends trials that have come as far as anyone wants them to.
    fn stop_unwanted(&mut self, tasks: &[Task]) {
        for running in self.running.iter_mut().filter(|r| r.task.kind == Kind::Train && !r.asked) {
            let id = &running.task.key;
            let ended = self.ledger.known.get(id).is_some_and(|p| p.ended.is_some());
            if !ended && !tasks.iter().any(|task| task.key == *id) {
                running.asked = true;
                running.child.stop();
            }
        }
    }

    fn start(&mut self, tasks: &[Task]) -> Outcome {
        for task in tasks {
            if self.running.len() >= self.request.jobs {
                break;
            }
            let at_work = self.running.iter().any(|r| r.task.key == task.key);
            if at_work || self.busy.get(&task.key).is_some_and(|until| Instant::now() < *until) {
                continue;
            }
            match task.kind {
                Kind::Train => self.start_training(task)?,
                Kind::Read => {
                    let run = self.out.run(&task.trial.id);
                    let mut args: Vec<OsString> = vec!["eval".into(), run.into(), "--json".into()];
                    args.extend(self.study.entries[task.entry].eval.iter().map(OsString::from));
                    if let Some(dir) = &self.request.data_dir {
                        args.extend(["--data-dir".into(), dir.into()]);
                    }
                    self.spawn(task, &args, None)?;
                }
            }
        }
        Ok(())
    }

    fn start_training(&mut self, task: &Task) -> Outcome {
        let id = &task.trial.id;
        let dir = self.out.run(id);
        // Looked at again: an older driver's trial may have continued meanwhile.
        let found = match trial::look(&dir, &task.trial) {
            Ok(found) => found,
            Err(failure) => return self.ended_badly(id, Ended::Failed(failure.message)),
        };
        let after = match found {
            Some(progress) => {
                let (ended, evals) = (progress.ended.is_some(), progress.epochs());
                let further = evals > self.epochs(id);
                self.ledger.known.insert(id.clone(), progress);
                if ended || further {
                    self.look_again();
                    return Ok(());
                }
                Some(evals)
            }
            None if trial::clear(&dir)? => None,
            None => {
                self.wait_for(id);
                return Ok(());
            }
        };
        let mut args: Vec<OsString> = match after {
            Some(_) => vec!["resume".into(), path_argument(&dir)],
            None => {
                let name = format!("trials/{id}.toml");
                self.out.write(&name, &task.trial.located(self.request.data_dir.as_deref()).to_toml())?;
                let (mut config, mut run) = (OsString::from("--config="), OsString::from("--run="));
                config.push(self.out.dir.join(name));
                run.push(&dir);
                vec!["train".into(), config, run]
            }
        };
        let threads = self.threads.to_string();
        args.extend(["--json", "--quiet", "--threads", &threads].map(OsString::from));
        self.spawn(task, &args, after)
    }

    /// Evaluations of a trial that are known.
    fn epochs(&self, id: &str) -> usize {
        self.ledger.known.get(id).map_or(0, Progress::epochs)
    }

    fn spawn(&mut self, task: &Task, args: &[OsString], after: Option<usize>) -> Outcome {
        let child = Child::start(args, self.tell.clone())
            .map_err(|e| Failure::new(Code::Failed, format!("a trial's process cannot be started ({e})")))?;
        let name = show::name(&self.study.entries[task.entry].name, task);
        self.show.started(&name, after);
        self.running.push(Running { task: task.clone(), name, child, asked: false, after });
        Ok(())
    }

    /// Waits a moment for news; says whether what is wanted may have changed.
    fn listen(&mut self) -> Outcome<bool> {
        let mut changed = false;
        let mut wait = Duration::from_millis(100);
        while let Ok((id, said)) = self.news.recv_timeout(wait) {
            match said {
                Said::Line(line) => changed |= self.hear(id, &line)?,
                Said::Closed => {
                    self.close(id)?;
                    changed = true;
                }
            }
            wait = Duration::ZERO;
        }
        Ok(changed)
    }

    fn hear(&mut self, id: u32, line: &str) -> Outcome<bool> {
        let Some(Running { task: Task { kind, key, .. }, .. }) = self.running.iter().find(|r| r.child.id() == id)
        else {
            return Ok(false);
        };
        if *kind == Kind::Read {
            let Some(figure) = perplexity(line) else { return Ok(false) };
            let dir = self.out.dir.join("evals");
            std::fs::create_dir_all(&dir).map_err(|e| Failure::disk(&dir, &e))?;
            self.out.write(&format!("evals/{key}.json"), &format!("{line}\n"))?;
            self.ledger.readings.insert(key.clone(), Ok(figure));
            return Ok(true);
        }
        let Ok(event) = serde_json::from_str::<Event>(line) else { return Ok(false) };
        let counts = matches!(event, Event::Eval(_) | Event::End(_));
        self.ledger.known.entry(key.clone()).or_default().note(event);
        Ok(counts)
    }

    /// A process has ended: what does that mean for its trial?
    fn close(&mut self, id: u32) -> Outcome {
        let Some(place) = self.running.iter().position(|r| r.child.id() == id) else { return Ok(()) };
        let Running { task, name, child, asked, after, .. } = self.running.remove(place);
        let (status, reason) = child.end().map_err(|e| Failure::new(Code::Failed, e))?;
        if task.kind == Kind::Read {
            if status.success() {
                let nothing = || Err("eval printed no perplexity".into());
                self.ledger.readings.entry(task.key).or_insert_with(nothing);
            } else {
                self.ledger.readings.insert(task.key, Err(reason));
            }
            return Ok(());
        }
        let id = &task.trial.id;
        let dir = self.out.run(id);
        match status.code() {
            Some(0) => {
                let progress = self.ledger.known.get(id).cloned().unwrap_or_default();
                if progress.ended.is_some() {
                    self.show.finished(&name, &progress);
                    return Ok(());
                }
                // It had ended before this process came.
                self.ledger.known.remove(id);
                match trial::look(&dir, &task.trial) {
                    Ok(Some(progress)) if progress.ended.is_some() => {
                        self.ledger.known.insert(id.clone(), progress);
                        Ok(())
                    }
                    _ => self.ended_badly(id, Ended::Failed("it ended without a result".into())),
                }
            }
            Some(3) => {
                self.show.failed(&name, &reason);
                self.ended_badly(id, Ended::Diverged(reason))
            }
            Some(5) => Err(Failure::new(Code::Disk, format!("a trial could not write: {reason}"))),
            Some(6) => {
                self.wait_for(id);
                Ok(())
            }
            _ if asked => Ok(()),
            // Another process made the run while this one was reading its text.
            Some(2) if after.is_none() && dir.join("settings.toml").exists() => self.interrupted(id, after, &reason),
            Some(130 | 143) => self.interrupted(id, after, "was stopped by a signal"),
            None => self.interrupted(id, after, &format!("was killed ({status})")),
            Some(_) => {
                self.show.failed(&name, &reason);
                self.ended_badly(id, Ended::Failed(reason))
            }
        }
    }

    /// Continues it, unless that has not helped before.
    fn interrupted(&mut self, id: &str, after: Option<usize>, what: &str) -> Outcome {
        self.busy.insert(id.to_owned(), Instant::now() + BUSY);
        let further = self.epochs(id) > after.unwrap_or(0);
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
        self.look_again();
        Ok(())
    }

    /// Makes the main loop ask again what is wanted.
    fn look_again(&mut self) {
        let _ = self.tell.send((0, Said::Closed));
    }

    fn wait_for(&mut self, id: &str) {
        if self.told_busy.insert(id.to_owned()) {
            self.show.waits(id);
        }
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
