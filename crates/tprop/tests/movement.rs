//! `state_move`: the mean, over all states that may move and all windows, of the length of their path.

mod common;
use common::*;
use tprop::cell::CellKind;
use tprop::comm::{Comm, Solo, Team};
use tprop::method::*;
use tprop::optim::{OptimConfig, Rule};
use tprop::record::Event;
use tprop::train::{Data, TrainConfig, Trainer};

const STREAMS: usize = 2;
const BLOCKS: usize = 4;

/// Every way in which outermost states move or stay, and how many states then move in a window.
fn cases() -> Vec<(BtpropConfig, usize)> {
    let states = StateConfig { steps: 2, rate: 0.3, ..plain(1, 1, 1).states };
    let mut cases = Vec::new();
    for batch in [Batch::Mini { accumulate: 1 }, Batch::Full] {
        for (first, last) in [(First::Fixed, Last::None), (First::Free, Last::Zero), (First::Free, Last::Free0)] {
            for (loss, starts) in
                [(LossOn::Predicted, Starts::Moving), (LossOn::Predicted, Starts::Held), (LossOn::Free, Starts::Moving)]
            {
                let base = plain(STREAMS, BLOCKS, if loss == LossOn::Free { 1 } else { 3 });
                let config = BtpropConfig { batch, first, last, loss, starts, states, ..base };
                let outer = usize::from(first == First::Free && starts == Starts::Moving)
                    + usize::from(last == Last::Free0 || loss == LossOn::Free);
                cases.push((config, STREAMS * (BLOCKS - 1 + outer)));
            }
        }
    }
    cases
}

/// In batch mode a method shows its states, so those that moved can be counted.
#[test]
fn the_states_that_move_are_those_that_are_counted() {
    let model = model(CellKind::Gru, 1);
    let width = model.state_width();
    for (config, expected) in cases() {
        let text = tokens(STREAMS * BLOCKS * config.block + 1);
        let mut l = learner(&model, model.initial(1), &text, &Solo);
        let name = format!("{config:?}");
        let batch = config.batch;
        let variable = if config.starts == Starts::Held { "btprop.targets" } else { "btprop.starts" };
        let still = BtpropConfig { states: StateConfig { steps: 0, ..config.states }, ..config.clone() };
        let mut states = Vec::new();
        for config in [still, config] {
            let mut method = MethodConfig::Btprop(config).build(&l).unwrap();
            assert_eq!(method.movable_states(), expected, "{name}");
            let params = l.params.clone();
            method.begin_epoch(&l, 1);
            update(&mut *method, &mut l);
            l.params = params;
            let mut peek = Peek::default();
            method.visit(&mut peek);
            states.push(peek.got.remove(variable));
        }
        if batch == Batch::Full {
            let [Some(before), Some(after)] = &states[..] else { panic!("{name}: no {variable}") };
            let rows = before.chunks_exact(width).zip(after.chunks_exact(width));
            assert_eq!(rows.filter(|(a, b)| a != b).count(), expected, "{name}");
        }
    }
}

/// Evaluations of a run, and the same from the updates of the method by itself.
#[test]
fn an_evaluation_records_the_mean_over_them() {
    let model = model(CellKind::Gru, 1);
    let text = tokens(3 * STREAMS * BLOCKS * 3 + 1);
    for (method, movable) in cases() {
        let name = format!("{method:?}");
        let config = TrainConfig {
            method: MethodConfig::Btprop(method.clone()),
            optim: OptimConfig { rule: Rule::Sgd, rate: 1.0, clip: 0.0 },
            epochs: 1,
            patience: 0,
            eval_streams: 1,
            ..TrainConfig::default()
        };
        let recorded = |comm: &dyn Comm| {
            let mut found = None;
            let mut watch = |event: &Event| {
                if let Event::Eval(eval) = event {
                    found = eval.coupling.as_ref().map(|c| c.state_move);
                }
            };
            let data = Data::new(&text, &[], &[]);
            Trainer::new(&model, data, config.clone(), comm).unwrap().run(&mut watch).unwrap();
            found.expect("an evaluation")
        };
        let mut l = learner(&model, model.initial(1), &text, &Solo);
        let mut by_itself = config.method.build(&l).unwrap();
        by_itself.begin_epoch(&l, 1);
        let (mut moved, mut windows) = (0.0, 0);
        while let Advance::Update(update) = by_itself.advance(&mut l, &mut || false) {
            moved += update.coupling.unwrap().moved;
            windows += 1;
        }
        // In batch mode the one window is the whole text.
        let blocks = if method.batch == Batch::Full { text.len() / STREAMS / method.block } else { BLOCKS };
        let movable = movable + STREAMS * (blocks - BLOCKS);
        let expected = moved / (windows * movable) as f64;
        assert!(expected > 0.0);
        assert_eq!(recorded(&Solo), expected, "{name}");
        // The number of states is that of all ranks.
        let on_ranks: Vec<f64> = std::thread::scope(|scope| {
            let recorded = &recorded;
            let ranks: Vec<_> = Team::new(2).into_iter().map(|comm| scope.spawn(move || recorded(&comm))).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        for found in on_ranks {
            assert!((found / expected - 1.0).abs() < 1e-9, "{name}: {found} and {expected}");
        }
    }
}
