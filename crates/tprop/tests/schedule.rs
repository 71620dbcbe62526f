//! What happens between updates and epochs: when the learning rate falls, when a run stops, what an update of several windows is, and
//! what an evaluation reads.
//! (How far boundary states may lag is in `definition`.)

mod common;
use common::*;
use tprop::cell::CellKind;
use tprop::comm::Solo;
use tprop::eval::Reader;
use tprop::method::*;
use tprop::optim::{OptimConfig, Rule};
use tprop::record::{End, Eval, Event, RateChange, Step};
use tprop::train::{Data, TrainConfig, Trainer};

const EPOCHS: usize = 14;
const RATE: f64 = 3.0;

/// What a run recorded.
#[derive(Default)]
struct Record {
    steps: Vec<Step>,
    evals: Vec<Eval>,
    rates: Vec<RateChange>,
    end: Option<End>,
}

impl Record {
    /// Which evaluations were better than all before them.
    fn best(&self) -> Vec<bool> {
        let ppl: Vec<f64> = self.evals.iter().map(|eval| eval.valid_ppl).collect();
        (0..ppl.len()).map(|i| ppl[..i].iter().all(|&before| ppl[i] < before)).collect()
    }
}

fn config() -> TrainConfig {
    TrainConfig {
        method: MethodConfig::Bptt(BpttConfig { window: 4, streams: 2, batch: Batch::Mini { accumulate: 1 } }),
        optim: OptimConfig { rule: Rule::Sgd, rate: RATE, clip: 0.0 },
        epochs: EPOCHS,
        patience: 0,
        eval_streams: 2,
        ..TrainConfig::default()
    }
}

/// A run with a learning rate so large that validation gets better and worse.
fn run(anneal: f64, patience: usize) -> Record {
    let model = model(CellKind::Gru, 1);
    let (train, valid) = (tokens(49), tokens(120)[80..].to_vec());
    let config = TrainConfig { anneal, patience, ..config() };
    let mut record = Record::default();
    let mut trainer = Trainer::new(&model, Data::new(&train, &valid, &[]), config, &Solo).unwrap();
    let mut watch = |event: &Event| match event {
        Event::Step(step) => record.steps.push(step.clone()),
        Event::Eval(eval) => record.evals.push((**eval).clone()),
        Event::Rate(rate) => record.rates.push(rate.clone()),
        Event::End(end) => record.end = Some(end.clone()),
        other => panic!("{other:?}"),
    };
    trainer.run(&mut watch).unwrap();
    record
}

/// The learning rate is divided after each epoch without a better validation perplexity, before the next update, and at no other time.
#[test]
fn the_learning_rate_falls_after_each_epoch_that_is_not_better() {
    for anneal in [3.0, 1.3, 0.0] {
        let record = run(anneal, 0);
        let best = record.best();
        assert_eq!(best.len(), EPOCHS);
        let better_again = best.windows(2).any(|pair| pair == [false, true]);
        assert!(better_again && best[0], "the run is to get better and worse: {best:?}");
        let (mut rate, mut changes) = (RATE, record.rates.iter());
        for (eval, best) in record.evals.iter().zip(best) {
            let steps: Vec<_> = record.steps.iter().filter(|step| step.epoch == eval.epoch).collect();
            assert!(steps.len() == 6 && steps.iter().all(|step| step.rate == rate), "epoch {}: {steps:?}", eval.epoch);
            assert_eq!(eval.best, best, "epoch {}", eval.epoch);
            if !best && anneal > 0.0 {
                rate /= anneal;
                let change = changes.next().expect("a line for each change");
                assert_eq!((change.step, change.rate), (eval.step, rate), "epoch {}", eval.epoch);
            }
            assert_eq!(eval.rate, rate, "epoch {}: the rate of the next update", eval.epoch);
        }
        assert!(changes.next().is_none(), "more lines than changes");
    }
}

/// A run stops after exactly so many epochs in a row without a better one, and is until then the run that it would have been.
#[test]
fn patience_counts_epochs_in_a_row() {
    let whole = run(3.0, 0);
    let best = whole.best();
    let row = |n: usize| (n..=EPOCHS).find(|&epoch| best[epoch - n..epoch].iter().all(|better| !better));
    // The second row of bad epochs is longer: an epoch that is better must begin the count again.
    let (one, two) = (row(1).unwrap(), row(2).unwrap());
    assert!(best[..two].iter().filter(|better| !**better).count() > 2, "{best:?}");
    for patience in 1..=EPOCHS + 1 {
        let record = run(3.0, patience);
        let (last, reason) = row(patience).map_or((EPOCHS, "epochs"), |epoch| (epoch, "patience"));
        let end = record.end.expect("a last line");
        assert_eq!((end.epoch, record.evals.len()), (last as u64, last), "patience {patience}: {best:?}");
        // The last epoch of all is the reason, even if patience is out as well.
        assert_eq!(end.reason, if last == EPOCHS { "epochs" } else { reason }, "patience {patience}");
        for (ours, theirs) in record.evals.iter().zip(&whole.evals) {
            assert_eq!((ours.valid_ppl, ours.rate), (theirs.valid_ppl, theirs.rate), "patience {patience}");
        }
        let before = (0..last).rev().find(|&i| best[i]).unwrap();
        assert_eq!((end.best_epoch, end.best_valid_ppl), (before as u64 + 1, whole.evals[before].valid_ppl));
    }
    assert!(one < two && two < EPOCHS);
}

/// An update of several windows moves along the mean of their gradients at the same weights; the last one of an epoch takes what is left.
#[test]
fn accumulated_windows_are_averaged() {
    let (streams, window, accumulate, windows) = (2, 3, 2, 5);
    for cell in CellKind::ALL {
        let (model, text) = (model(cell, 1), tokens(streams * (window * windows + 1) + 1));
        let mut l = learner(&model, model.initial(1), &text, &Solo);
        l.optimiser.rate = 0.01;
        let config = BpttConfig { window, streams, batch: Batch::Mini { accumulate } };
        let mut method = MethodConfig::Bptt(config).build(&l).unwrap();
        assert_eq!(method.updates_per_epoch(), 3);
        for _epoch in 0..2 {
            method.begin_epoch(&l, 1);
            // The first update of an epoch, from the beginning of the text.
            let before = l.params.clone();
            let first = update(&mut *method, &mut l);
            let mean = reach_gradient(&model, &before, &text, (streams, accumulate, window), 0);
            let moved: Vec<f64> = difference(&before, &l.params).iter().map(|d| d / 0.01).collect();
            assert_same(&format!("{cell:?}"), &moved, &mean, 1e-10);
            assert!((first.norm - norm(&mean)).abs() <= 1e-12 * first.norm, "{cell:?}: {}", first.norm);
            let tokens = [first, update(&mut *method, &mut l), update(&mut *method, &mut l)].map(|u| u.tokens);
            assert_eq!(tokens, [12, 12, 6], "{cell:?}");
            assert_eq!(method.advance(&mut l, &mut || false), Advance::EpochEnd);
        }
    }
}

/// The test split is read with the best weights, not with the last ones.
#[test]
fn the_test_split_is_read_with_the_best_weights() {
    let model = model(CellKind::Gru, 1);
    let (train, valid, test) = (tokens(49), tokens(120)[80..].to_vec(), tokens(160)[120..].to_vec());
    let mut trainer = Trainer::new(&model, Data::new(&train, &valid, &test), config(), &Solo).unwrap();
    let end = trainer.run(&mut |_: &Event| {}).unwrap();
    let read = |params| Reader::new(5).read(&model, params, &test, 2).perplexity();
    let (best, last) = (read(trainer.best_params()), read(trainer.params()));
    assert!((best - last).abs() > 1e-3, "the last weights are to be others than the best");
    assert_eq!(end.test_ppl.map(|ppl| (ppl - best).abs() < 1e-9), Some(true), "{end:?}: {best}");
    assert_eq!(trainer.best_epoch(), Some(end.best_epoch));
}

/// Evaluations read the beginning of the training text: as much as the validation split has, at least 10,000 tokens. Without a
/// validation split that reading decides.
#[test]
fn the_beginning_of_the_training_text_is_read() {
    let model = model(CellKind::Elman(tprop::cell::Activation::Tanh), 1);
    let text = tokens(12_001);
    let method = MethodConfig::Bptt(BpttConfig { window: 50, streams: 20, batch: Batch::Full });
    for (valid, length) in [(0, 10_000), (41, 10_000), (11_000, 11_000), (12_001, 12_001)] {
        let config = TrainConfig { method: method.clone(), epochs: 1, eval_streams: 3, ..config() };
        let mut trainer =
            Trainer::new(&model, Data::new(&text, &text[text.len() - valid..], &[]), config, &Solo).unwrap();
        let mut eval = None;
        let mut watch = |event: &Event| {
            if let Event::Eval(seen) = event {
                eval = Some((**seen).clone());
            }
        };
        trainer.run(&mut watch).unwrap();
        let eval = eval.expect("one evaluation");
        let read = |text: &[u32]| Reader::new(32).read(&model, trainer.params(), text, 3).perplexity();
        assert_eq!(eval.train_ppl, read(&text[..length]), "{valid} tokens of validation");
        let wanted = if valid == 0 { eval.train_ppl } else { read(&text[text.len() - valid..]) };
        assert_eq!(eval.valid_ppl, wanted, "{valid} tokens of validation");
    }
}
