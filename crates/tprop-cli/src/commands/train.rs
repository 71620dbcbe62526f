//! `train`, and the loop that `resume` shares with it.

use std::path::Path;
use std::time::Instant;

use tprop::comm::Comm;
use tprop::corpus::synth::Memory;
use tprop::corpus::{Corpus, Split};
use tprop::kernel;
use tprop::method::Advance;
use tprop::model::Model;
use tprop::record::{self, BestPossible, End, Event, Recorder, Start};
use tprop::train::{Data, TrainError, Trainer};

use super::resume::best_for;
use super::sample;
use super::watch::{Parts, Watcher};
use crate::args::{self, Telling};
use crate::cluster::{Cluster, Job};
use crate::console::{self, duration, grouped, short};
use crate::disk;
use crate::failure::{Code, Failure, Outcome};
use crate::prepare::{self, Sizes};
use crate::progress::{Progress, ending};
use crate::run::sessions::{self, Session};
use crate::run::{self, Loaded, Run};
use crate::settings::{Settings, table};
use crate::signals::Signals;
use crate::wording;

/// A diverged run goes back with a rate this many times smaller, at most so often.
const ROLLBACK: f64 = 10.0;
const ROLLBACKS: usize = 10;

/// Trains a new run.
pub fn train(args: &args::Train) -> Outcome {
    let sources = args::sources(&args.words, &args.settings, args.config.as_deref())?;
    let mut settings = Settings::resolve(&sources)?;
    if args.print_settings {
        return console::data(&settings.to_toml());
    }
    let cluster = Cluster::join()?;
    if cluster.serves() {
        return cluster.serve(Some(&settings));
    }
    settings.replace_word("cluster.shares", cluster.shares(settings.shares()).to_string());
    let comm = cluster.in_shares(&settings)?;
    if let Some(dir) = &args.run {
        Run::check_free(dir)?;
    }
    prepare::machine(cluster.threads(settings.threads()), settings.simd())?;
    let corpus = prepare::corpus(&settings, args.telling.quiet)?;
    let model = Model::<f32>::new(settings.model(corpus.vocab.len()));
    let need = prepare::memory(&settings, &model, Sizes::of(&corpus, comm.size()));
    prepare::check_memory(need)?;
    prepare::check_lengths(&settings, &corpus)?;
    let mut trainer = Trainer::new(&model, data(&corpus), settings.train(), &comm)?;
    if let Some(dir) = &args.from {
        begin_with(&mut trainer, &model, &corpus, dir)?;
    }
    let summary = prepare::summary(&settings, &corpus, &model, trainer.updates_per_epoch(), need);
    if args.dry_run {
        cluster.refuse_several("train --dry-run")?;
        return dry_run(&mut trainer, &settings, &summary, need, args.telling.json);
    }
    cluster.announce(&Job::new(&settings, &corpus, true))?;
    make_absolute(&mut settings);
    let place = args.run.as_deref().unwrap_or(Path::new("runs"));
    disk::check_room(place, trainer.snapshot_bytes(), settings.checkpointing().keep, 0)?;
    let signals = Signals::listen();
    let (run, _lock) = Run::create(args.run.as_deref(), &settings.short_name())?;
    run.write("tokenizer.json", &corpus.vocab.to_tokenizer_json())?;
    if settings.old_least_squares() {
        console::note("note: btprop.theta_solver=least_squares is now spelt method=least_squares (the same numbers)");
    }
    if !args.telling.quiet {
        console::note(format!("{summary}\nrun      {}", run.name()));
    }
    let record = run.path("record.jsonl");
    let recorder = Recorder::create(&record).map_err(|e| Failure::disk(&record, &e))?;
    let session = session(run::new_id());
    sessions::append(&run.path("sessions.jsonl"), &session)?;
    let updates = trainer.updates_per_epoch();
    let mut watcher = Watcher::new(Parts {
        store: run.store().of_run(Some(session.run)),
        run: &run,
        recorder,
        settings: &settings,
        corpus: &corpus.fingerprint,
        progress: progress(args.telling, &settings, updates),
        json: args.telling.json,
        signals,
        step: 0,
    })?;
    cluster.begin(&run, &mut trainer, None);
    watcher.tell(&Event::Start(start(&model, &corpus, updates, comm.size(), args.from.as_deref())))?;
    go(trainer, watcher, &run, &corpus, args.telling, &cluster)
}

/// A session that begins now.
pub fn session(run: String) -> Session {
    Session {
        time: run::now(),
        run,
        version: env!("CARGO_PKG_VERSION").into(),
        process: std::process::id(),
        threads: rayon::current_num_threads(),
        simd: kernel::path().name().into(),
        from: None,
        step: 0,
        changed: Default::default(),
    }
}

/// What is shown of a run.
pub fn progress(telling: Telling, settings: &Settings, updates: usize) -> Progress {
    // With events on standard output, a terminal needs no second telling.
    let quiet = telling.quiet || (telling.json && console::live());
    Progress::new(quiet, settings.train().epochs, updates)
}

/// The splits of a corpus.
pub fn data(corpus: &Corpus) -> Data<'_> {
    Data::new(&corpus.train, &corpus.valid, &corpus.test)
}

fn start(model: &Model<f32>, corpus: &Corpus, updates_per_epoch: usize, ranks: usize, from: Option<&Path>) -> Start {
    let best = |split| Some(corpus.reference.as_ref()?.perplexity(corpus.tokens(split), Memory::All));
    let best_possible = best(Split::Valid).zip(best(Split::Test));
    Start {
        format: record::FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        simd: kernel::path().name().into(),
        real: "f32".into(),
        threads: rayon::current_num_threads(),
        ranks,
        parameters: model.shapes().len() as u64,
        train_tokens: corpus.train.len() as u64,
        updates_per_epoch: updates_per_epoch as u64,
        vocab: corpus.vocab.len() as u64,
        corpus: corpus.fingerprint.clone(),
        from: from.map(|dir| dir.to_string_lossy().into_owned()),
        best_possible: best_possible.map(|(valid, test)| BestPossible { valid, test }),
    }
}

/// Trains, then says how it went.
pub fn go(
    mut trainer: Trainer<'_, f32>,
    mut watcher: Watcher,
    run: &Run,
    corpus: &Corpus,
    telling: Telling,
    cluster: &Cluster,
) -> Outcome {
    let mut rollbacks = 0;
    let end = loop {
        let end = trainer.run(&mut cluster.watching(&mut watcher));
        watcher.progress().wipe();
        match end {
            Err(error @ TrainError::Diverged { .. }) if watcher.rolls_back() && rollbacks < ROLLBACKS => {
                rollbacks += 1;
                let what = wording::train_error(&error);
                watcher.progress().line(&format!("{what}; going back to the last checkpoint"));
                let mut snapshot = watcher.roll_back(ROLLBACK)?;
                let best = best_for(&mut snapshot, &run.store(), false)?;
                run.store().set_aside(best.bad.as_slice())?;
                let best = best.snapshot;
                cluster.hand_out(Some((&snapshot, best.as_ref())));
                trainer.restore(&snapshot, best.as_ref())?;
            }
            end => {
                // A resumed run forgets this end together with what followed its checkpoint.
                if matches!(end, Err(TrainError::Diverged { .. })) {
                    watcher.tell(&Event::End(trainer.end("diverged")))?;
                }
                break cluster.ended(end)?;
            }
        }
    };
    if end.reason == "stopped" {
        watcher.finish()?;
        // If it was not this process, it was a signal to another rank.
        let code = watcher.stopped.unwrap_or(Code::Terminated);
        let message = format!("stopped and saved; `tprop resume {}` continues", run.name());
        return Err(Failure::new(code, message));
    }
    sample::write(run, corpus, trainer.model(), trainer.best_params());
    if !telling.quiet {
        console::note(ending(&end));
    }
    if !telling.json {
        console::data(&results(&end, corpus))?;
    }
    if !telling.quiet {
        let name = run.name();
        console::note(format!(
            "\nnext:\n  tprop generate {name} --tokens 60\n  tprop eval {name} --split test --by-position\n  tprop export {name} --out exported\n  tprop report {name}"
        ));
    }
    Ok(())
}

/// The table at the end; best possible perplexities stand beside ours where they are known.
fn results(end: &End, corpus: &Corpus) -> String {
    let mut rows: Vec<(String, Option<f64>, Option<f64>)> =
        vec![(format!("this model (epoch {})", end.best_epoch), Some(end.best_valid_ppl), end.test_ppl)];
    if let (Some(valid), Some(test)) = (corpus.reference(Split::Valid), corpus.reference(Split::Test)) {
        for (name, of) in [
            ("best possible", (|p| p.best) as fn(&tprop::corpus::Perplexities) -> f64),
            ("best that forgets every 20 tokens", |p| p.forget_20),
            ("best that forgets every 10 tokens", |p| p.forget_10),
            ("best that forgets every 5 tokens", |p| p.forget_5),
            ("best bigram model", |p| p.bigram),
            ("best unigram model", |p| p.unigram),
        ] {
            rows.push((name.to_owned(), Some(of(&valid)), Some(of(&test))));
        }
    }
    let number = |x: Option<f64>| x.map_or("-".to_owned(), short);
    let mut text = format!("{:<36} {:>10} {:>10}\n", "perplexity", "valid", "test");
    for (name, valid, test) in rows {
        text += &format!("{name:<36} {:>10} {:>10}\n", number(valid), number(test));
    }
    text
}

/// Measures a moment of training and says what the whole would take.
fn dry_run(trainer: &mut Trainer<'_, f32>, settings: &Settings, summary: &str, need: u64, json: bool) -> Outcome {
    let mut tokens = 0;
    let mut since = Instant::now();
    for update in 0..1000 {
        // A pass of batch mode may take minutes, so a pause counts as much as an update.
        match trainer.advance(&mut || since.elapsed().as_secs_f64() > 1.0) {
            Advance::Update(u) => tokens += u.tokens,
            _ => break,
        }
        if update == 0 {
            // The first update allocates and warms up.
            (tokens, since) = (0, Instant::now());
        } else if since.elapsed().as_secs_f64() > 1.0 {
            break;
        }
    }
    let speed = tokens as f64 / since.elapsed().as_secs_f64();
    let (per_epoch, epochs) = (trainer.tokens_per_epoch(), settings.train().epochs);
    let seconds = (speed > 0.0).then(|| per_epoch as f64 / speed);
    if json {
        return console::line(serde_json::json!({
            "parameters": trainer.params().shapes().len(),
            "memory_bytes": need,
            "tokens_per_epoch": per_epoch,
            "updates_per_epoch": trainer.updates_per_epoch(),
            "epochs": epochs,
            "tokens_per_s": speed,
            "seconds_per_epoch": seconds,
        }));
    }
    let time = seconds.map_or("not measured: one update takes longer than a second".to_owned(), |s| {
        format!(
            "about {} an epoch, {} for {epochs} ({} tokens/s, measured for a second)",
            duration(s),
            duration(s * epochs as f64),
            grouped(speed as u64)
        )
    });
    console::data(&format!("{summary}\ntokens   {} per epoch\ntime     {time}\n", grouped(per_epoch)))
}

/// A run may be resumed from elsewhere, so its settings name files by their full paths; what lies below a data directory is found from anywhere.
pub fn make_absolute(settings: &mut Settings) {
    let config = settings.corpus();
    let full = |path: &Path| std::path::absolute(path).ok().and_then(|p| p.to_str().map(str::to_owned));
    let named = |source: &str| tprop::corpus::DATASETS.iter().any(|set| set.name == source);
    let file = |source: &str| source != table::BUILT_IN && !named(source) && Path::new(source).exists();
    if let Some(path) = config.source.filter(|s| file(s)).and_then(|s| full(Path::new(&s))) {
        settings.replace_word("data.source", path);
    }
    if let Some(path) = config.data_dir.and_then(|dir| full(&dir)) {
        settings.replace_word("data.dir", path);
    }
}

fn begin_with(trainer: &mut Trainer<'_, f32>, model: &Model<f32>, corpus: &Corpus, dir: &Path) -> Outcome {
    let other = Loaded::open(dir, None)?;
    if other.vocab.words() != corpus.vocab.words() {
        let message = format!("--from {}: its vocabulary is not that of {}", dir.display(), corpus.name);
        return Err(Failure::input(message));
    }
    if other.model.shapes() != model.shapes() {
        let message = format!("--from {}: its model has another shape; use its model.* settings", dir.display());
        return Err(Failure::input(message));
    }
    trainer.params_mut().all_mut().copy_from_slice(other.params.all());
    Ok(())
}
