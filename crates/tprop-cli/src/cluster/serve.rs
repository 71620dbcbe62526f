//! The ranks that do as rank 0 says.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use tprop::checkpoint::{Snapshot, hex};
use tprop::comm::{Comm, broadcast, gather};
use tprop::corpus::Corpus;
use tprop::model::Model;
use tprop::params::Params;
use tprop::real::Real;
use tprop::record::Event;
use tprop::train::{Data, Request, TrainError, Trainer, Watch};

use super::{Cluster, RUN};
use crate::failure::{Failure, Outcome};
use crate::prepare;
use crate::settings::{Settings, Sources, typed};
use crate::signals::Signals;

/// What the others are told if there is nothing to do: rank 0 says why.
pub const NOTHING: &[u8] = b"null";

/// What all ranks have to agree on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    settings: String,
    /// Fingerprints.
    corpus: String,
    program: String,
    /// A new run, for which every rank has read its own command line.
    new: bool,
}

impl Job {
    /// As rank 0 sees it.
    pub fn new(settings: &Settings, corpus: &Corpus, new: bool) -> Self {
        Self { settings: settings.to_toml(), corpus: corpus.fingerprint.clone(), program: program(), new }
    }
}

/// A fingerprint of this program.
fn program() -> String {
    let file = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    format!("{} {}", env!("CARGO_PKG_VERSION"), hex(&Sha256::digest(file)))
}

/// The first rank's problem, if any rank has one; all ranks ask together.
pub fn problems(comm: &dyn Comm, mine: String) -> Option<String> {
    let all = gather(comm, mine.into_bytes());
    let (rank, text) = all.iter().enumerate().find(|(_, text)| !text.is_empty())?;
    Some(format!("rank {rank}: {}", String::from_utf8_lossy(text)))
}

/// All ranks take rank 0's weights.
pub fn same_weights(comm: &dyn Comm, params: &mut Params<f32>) {
    let mut bytes = Vec::new();
    f32::write_le(params.all(), &mut bytes);
    f32::read_le(&broadcast(comm, bytes), params.all_mut());
}

/// All ranks take rank 0's rate: it may have been changed for the rest of the run.
pub fn same_rate(comm: &dyn Comm, trainer: &mut Trainer<'_, f32>) {
    let bytes = broadcast(comm, trainer.rate().to_le_bytes().to_vec());
    trainer.set_rate(bytes.first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes)));
}

/// Settings that may differ between machines.
const LOCAL: [&str; 4] = ["data.source", "data.dir", "train.threads", "cluster.shares"];

/// Trains along as rank 0 says.
pub fn serve(cluster: &Cluster, own: Option<&Settings>) -> Outcome {
    let comm = cluster.comm();
    let job: Option<Job> = serde_json::from_slice(&broadcast(comm, Vec::new())).expect("rank 0 writes it");
    let Some(job) = job else { return Ok(()) };
    let found = prepared(cluster, &job, own);
    let problem = found.as_ref().err().map_or(String::new(), |failure| failure.message.clone());
    // Rank 0 tells what is wrong.
    if problems(comm, problem).is_some() {
        return Ok(());
    }
    let (settings, corpus) = found?;
    let model = Model::<f32>::new(settings.model(corpus.vocab.len()));
    let shared = cluster.in_shares(&settings)?;
    let data = Data::new(&corpus.train, &corpus.valid, &corpus.test);
    let mut trainer = Trainer::new(&model, data, settings.train(), &shared).unwrap_or_else(|e| cluster.fail(e.into()));
    let run = broadcast(comm, Vec::new());
    let _ = RUN.set(String::from_utf8_lossy(&run).into_owned());
    if !take_state(cluster, &mut trainer) {
        same_weights(comm, trainer.params_mut());
    }
    same_rate(comm, &mut trainer);
    let mut silent = Silent(Signals::listen());
    loop {
        match trainer.run(&mut silent) {
            // Rank 0 tells how it ended.
            Ok(_) => return Ok(()),
            Err(TrainError::Diverged { .. }) if take_state(cluster, &mut trainer) => {}
            Err(TrainError::Diverged { .. }) => return Ok(()),
            Err(error) => cluster.fail(error.into()),
        }
    }
}

/// Settings and corpus, if they are rank 0's.
fn prepared(cluster: &Cluster, job: &Job, own: Option<&Settings>) -> Outcome<(Settings, Corpus)> {
    if job.program != program() {
        let here = env!("CARGO_PKG_VERSION");
        return Err(Failure::input(format!(
            "its program is not rank 0's (tprop {here}; the files differ): install the same one on every machine"
        )));
    }
    let file = typed::read_text(&job.settings, std::path::Path::new("the settings of rank 0"))?;
    let mut settings = Settings::resolve(&Sources { file, arguments: Vec::new() })?;
    if let Some(own) = own.filter(|_| job.new) {
        let others: Vec<_> = own.differences(&settings).into_iter().filter(|name| !LOCAL.contains(name)).collect();
        if !others.is_empty() {
            return Err(Failure::input(format!("it was started with other settings ({})", others.join(", "))));
        }
        // Files may lie elsewhere on this machine.
        let shares = settings.shares().unwrap_or(1);
        settings = own.clone();
        settings.replace_word("cluster.shares", shares.to_string());
    }
    prepare::machine(cluster.threads(settings.threads()), settings.simd())?;
    let corpus = prepare::corpus(&settings, true)?;
    if corpus.fingerprint != job.corpus {
        return Err(Failure::input(format!(
            "its corpus {} is not rank 0's: put the same files on every machine",
            tprop::vocab::printable(&corpus.name)
        )));
    }
    Ok((settings, corpus))
}

/// Takes the snapshot that rank 0 hands out; false if there is none.
fn take_state(cluster: &Cluster, trainer: &mut Trainer<'_, f32>) -> bool {
    let (snapshot, best) = (broadcast(cluster.comm(), Vec::new()), broadcast(cluster.comm(), Vec::new()));
    if snapshot.is_empty() {
        return false;
    }
    let read = |bytes: &[u8]| {
        Snapshot::decode(bytes).unwrap_or_else(|e| cluster.fail(Failure::input(format!("the state of rank 0: {e}"))))
    };
    let best = (!best.is_empty()).then(|| read(&best));
    trainer.restore(&read(&snapshot), best.as_ref()).unwrap_or_else(|e| cluster.fail(e.into()));
    true
}

/// Writes nothing and says nothing; a signal to any rank stops all of them.
struct Silent(Signals);

impl Watch for Silent {
    fn event(&mut self, _event: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
    fn request(&mut self) -> Request {
        if self.0.code().is_some() { Request::Stop } else { Request::Go }
    }
}
