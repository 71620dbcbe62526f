//! `sample.txt`: a few lines that a model writes at the end of its training, for people and for reports.

use tprop::corpus::Corpus;
use tprop::generate::{Generator, Sampling};
use tprop::model::Model;
use tprop::params::Params;
use tprop::vocab::{Level, plain};

use crate::console;
use crate::lines::opening;
use crate::run::Run;

/// Writes a sample with the seed 1 at temperature 1, as `tprop generate RUN` does. A run is not worth failing for it, so trouble is
/// only reported.
pub fn write(run: &Run, corpus: &Corpus, model: &Model<f32>, params: &Params<f32>) {
    let vocab = &corpus.vocab;
    let tokens = match vocab.level() {
        Level::Word => 60,
        Level::Char | Level::Byte => 300,
    };
    let mut generator = Generator::new(model, params);
    generator.read(opening(vocab));
    let mut written = Vec::new();
    generator.generate(tokens, Sampling { temperature: 1.0, top_k: 0, seed: 1 }, |token| {
        written.push(token);
        true
    });
    if let Err(failure) = run.write("sample.txt", &format!("{}\n", plain(vocab.decode(&written).trim_end()))) {
        console::note(format!("tprop: warning: {failure}"));
    }
}
