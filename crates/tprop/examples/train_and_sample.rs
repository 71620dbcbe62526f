//! Trains a small model on the built-in language through the library alone, then generates text with it.
//!
//! `cargo run --release -p tprop --example train_and_sample`

use tprop::corpus;
use tprop::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let synth = SynthConfig { vocab: 200, tokens: 100_000, ..Default::default() };
    let corpus = corpus::load(&CorpusConfig::default(), &synth)?;

    let model = Model::<f32>::new(ModelConfig { hidden: 64, embed: 64, ..ModelConfig::new(corpus.vocab.len()) });
    let config = TrainConfig {
        method: MethodConfig::Bptt(BpttConfig { window: 20, ..BpttConfig::default() }),
        epochs: 3,
        ..TrainConfig::default()
    };
    let data = Data::new(&corpus.train, &corpus.valid, &corpus.test);
    let mut trainer = Trainer::new(&model, data, config, &Solo)?;
    trainer.run(&mut |event: &Event| {
        if let Event::Eval(e) = event {
            println!("epoch {}: validation perplexity {:.2}", e.epoch, e.valid_ppl);
        }
    })?;

    let mut generator = Generator::new(&model, trainer.best_params());
    corpus.vocab.eos().into_iter().for_each(|eos| generator.read(eos));
    let mut text = Vec::new();
    generator.generate(60, Sampling { seed: 7, ..Sampling::default() }, |token| {
        text.push(token);
        true
    });
    println!("\n{}", corpus.vocab.decode(&text));
    Ok(())
}
