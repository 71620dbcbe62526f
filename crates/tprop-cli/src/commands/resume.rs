//! `resume`: continues a run from its newest usable checkpoint, bit for bit.

use tprop::checkpoint::{BEST, CheckpointError, Kind, Newest, Snapshot, Store};
use tprop::comm::Comm;
use tprop::corpus::Corpus;
use tprop::kernel;
use tprop::model::Model;
use tprop::record::{self, Event, RateChange, Recorder};
use tprop::train::{Trainer, forget_best, is_best};

use super::resume_settings;
use super::train::{data, go, make_absolute, progress, session};
use super::watch::{Parts, Watcher};
use crate::args;
use crate::cluster::{Cluster, Job};
use crate::console::{self, grouped};
use crate::disk;
use crate::failure::{Failure, Outcome};
use crate::prepare::{self, Sizes};
use crate::run::sessions::{self, Session};
use crate::run::{self, Run, record_length};
use crate::signals::Signals;

/// Continues a run from its newest usable checkpoint.
pub fn resume(args: &args::Resume) -> Outcome {
    let cluster = Cluster::join()?;
    if cluster.serves() {
        return cluster.serve(None);
    }
    let run = Run::open(&args.run)?;
    let typed = resume_settings::typed(args)?;
    let _lock = run.lock()?;
    let mut settings = run.settings_with(typed)?;
    make_absolute(&mut settings);
    let past = sessions::read(&run.path("sessions.jsonl"))?;
    let id = past.first().map(|session| session.run.clone());
    let store = run.store().of_run(id.clone());
    let path = run.path("record.jsonl");
    let Newest { name: file, mut snapshot, bad } = run.newest(&store)?;
    let changed = resume_settings::changes(&run, &settings, &snapshot, &past, &args.allow_change)?;
    let comm = cluster.in_shares(&settings)?;
    prepare::machine(cluster.threads(settings.threads()), settings.simd().or_else(|| kept_path(&snapshot)))?;
    let corpus = prepare::corpus(&settings, args.telling.quiet)?;
    same_corpus(&corpus, &snapshot)?;
    let model = Model::<f32>::new(settings.model(corpus.vocab.len()));
    prepare::check_memory(prepare::memory(&settings, &model, Sizes::of(&corpus, comm.size())))?;
    let mut trainer = Trainer::new(&model, data(&corpus), settings.train(), &comm)?;
    let Best { snapshot: best, bad: bad_best } = best_for(&mut snapshot, &store, !changed.is_empty())?;
    trainer.restore(&snapshot, best.as_ref()).map_err(|e| {
        let failure = Failure::from(e);
        Failure::new(failure.code, format!("{}: {}", store.dir().join(&file).display(), failure.message))
    })?;

    let unreadable =
        |e: std::io::Error| Failure::input(format!("{}: the record cannot be continued ({e})", path.display()));
    let (length, ended) = record::before_end(&path, record_length(&snapshot)).map_err(unreadable)?;
    if trainer.finished() && ended {
        // It may have been killed when only the tidying up was left.
        store.prune(&file, settings.checkpointing().keep)?;
        console::note(format!("{} has come to its end already; `tprop eval {0}` reads it", run.name()));
        return Ok(());
    }
    disk::check_room(store.dir(), snapshot.size(), settings.checkpointing().keep, store.bytes())?;
    cluster.announce(&Job::new(&settings, &corpus, false))?;

    // From here on the run's files change.
    let signals = Signals::listen();
    if !bad.is_empty() {
        let reasons: Vec<String> = bad.iter().map(ToString::to_string).collect();
        console::note(format!("tprop: warning: {}; going on from {file} instead", reasons.join("; ")));
    }
    // Before the record is cut: what was newer must not come back as the newest.
    store.set_aside(&bad)?;
    store.set_aside(bad_best.as_slice())?;
    store.sweep(&[".tmp"])?;
    if trainer.at_best() && best.as_ref().is_none_or(|best| best.count("train.step") != snapshot.count("train.step")) {
        store.write(Kind::Best, &mut snapshot.clone())?;
    }
    let recorder = Recorder::resume(&path, length).map_err(unreadable)?;
    let step = trainer.step();
    let id = id.unwrap_or_else(run::new_id);
    sessions::append(
        &run.path("sessions.jsonl"),
        &Session { from: Some(file.clone()), step, changed: changed.clone(), ..session(id) },
    )?;
    let text = settings.to_toml();
    if std::fs::read_to_string(run.path("settings.toml")).ok().as_ref() != Some(&text) {
        run.write("settings.toml", &text)?;
    }
    let mut watcher = Watcher::new(Parts {
        run: &run,
        recorder,
        store,
        settings: &settings,
        corpus: &corpus.fingerprint,
        progress: progress(args.telling, &settings, trainer.updates_per_epoch()),
        json: args.telling.json,
        signals,
        step,
    })?;
    if changed.contains_key("optim.lr") {
        trainer.set_rate(settings.optim().rate);
    }
    cluster.begin(&run, &mut trainer, Some((&snapshot, best.as_ref())));
    drop((snapshot, best)); // as large as the model several times
    watcher.progress().line(&format!("going on from update {} ({file})", grouped(step)));
    if changed.contains_key("optim.lr") {
        let rate = settings.optim().rate;
        watcher.tell(&Event::Rate(RateChange { step, rate, reason: "optim.lr was changed".into() }))?;
    }
    go(trainer, watcher, &run, &corpus, args.telling, &cluster)
}

/// The vector instructions that a run began with; results do not depend on them, but they are kept where the machine has them.
fn kept_path(snapshot: &Snapshot) -> Option<kernel::Path> {
    let name = snapshot.meta.get("simd")?;
    kernel::Path::available().iter().copied().find(|path| path.name() == name)
}

fn same_corpus(corpus: &Corpus, snapshot: &Snapshot) -> Outcome {
    match snapshot.meta.get("corpus") {
        Some(then) if *then != corpus.fingerprint => Err(Failure::input(format!(
            "{}: the corpus has changed since the run began (its fingerprint was {}, now {}); put it back, or train a new run on it",
            tprop::vocab::printable(&corpus.name),
            &then.chars().take(12).collect::<String>(),
            &corpus.fingerprint.chars().take(12).collect::<String>()
        ))),
        _ => Ok(()),
    }
}

/// What [`best_for`] found.
#[derive(Debug)]
pub struct Best {
    /// The best weights.
    pub snapshot: Option<Snapshot>,
    /// A file that is not they, to be set aside before another takes its place.
    pub bad: Option<CheckpointError>,
}

/// The best weights that `snapshot` knows of. Where they are lost, the snapshot forgets them, with a warning.
///
/// A newer best than that is of a future that this run will come to again, unless its settings have changed.
///
/// # Errors
/// If there is a file that cannot be read: the next best one would replace it.
pub fn best_for(snapshot: &mut Snapshot, store: &Store, changed: bool) -> Outcome<Best> {
    let found = match store.read(BEST) {
        Err(e @ CheckpointError::Unreadable { .. }) => return Err(e.into()),
        found => found,
    };
    let none = |bad| Best { snapshot: None, bad };
    let Some(wanted) = snapshot.count("train.best_epoch").filter(|&epoch| epoch > 0) else { return Ok(none(None)) };
    let trouble = match found {
        Ok(best) => match best.count("train.best_epoch") {
            Some(epoch) if epoch == wanted || (epoch > wanted && !changed) => {
                return Ok(Best { snapshot: Some(best), bad: None });
            }
            epoch => {
                let reason = format!("of epoch {}, not {wanted}", epoch.unwrap_or(0));
                CheckpointError::Stranger { path: store.dir().join(BEST), reason }
            }
        },
        Err(e) => e,
    };
    // The state itself may be the best one, and its copy may not have been written yet.
    if is_best(snapshot) {
        return Ok(none(None));
    }
    console::note(format!("tprop: warning: {trouble}; the next evaluation will count as the best"));
    forget_best(snapshot);
    Ok(none(Some(trouble)))
}
