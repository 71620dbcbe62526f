//! Reading by blocks in parallel: the same nats as in order, whatever the cell, the depth, the length of the text and the threads.

mod common;
use common::*;
use tprop::cell::CellKind;
use tprop::eval::{ParallelConfig, Reader, Reading};
use tprop::model::Model;
use tprop::params::Params;
use tprop::prelude::{BpttConfig, Data, MethodConfig, ModelConfig, Solo, TrainConfig, Trainer};
use tprop::real::Real;

/// Windows of 5 blocks of 3 steps, swept until nothing moves.
const EXACT: ParallelConfig = ParallelConfig { block: 3, blocks: 5, tolerance: 0.0, sweeps: 5 };

/// Every token's nats by stream and position, and the reading.
fn each<T: Real>(
    model: &Model<T>,
    params: &Params<T>,
    text: &[u32],
    streams: usize,
    parallel: Option<ParallelConfig>,
) -> (Vec<f64>, Reading) {
    let length = (text.len() - 1) / streams;
    let mut nats = vec![f64::NAN; streams * length];
    let mut reader = Reader::new(4).in_parallel(parallel);
    let reading = reader.read_each(model, params, text, streams, |i, at, x| nats[i * length + at] = x.f64());
    assert!(nats.iter().all(|x| x.is_finite()), "every token is shown");
    (nats, reading)
}

/// Swept until nothing moves, each token has the sequential nats, for texts that fill their windows or blocks and those that do not.
#[test]
fn exact_starts_give_the_sequential_nats() {
    for cell in CellKind::ALL {
        for layers in [1, 2] {
            let model = model(cell, layers);
            let params = model.initial(2);
            // Behind the first chunk: two windows; a block more; a step more; nothing; two windows but for a step.
            for length in [35, 38, 39, 5, 34] {
                for streams in [1, 2] {
                    let text = tokens(streams * (length - 1) + 1);
                    let (expected, plain) = each(&model, &params, &text, streams, None);
                    let (nats, reading) = each(&model, &params, &text, streams, Some(EXACT));
                    let what = format!("{cell:?} × {layers}, {length} tokens, {streams} streams");
                    assert_same(&what, &nats, &expected, 1e-10);
                    assert_same(&what, &[reading.nats], &[plain.nats], 1e-10);
                    assert_eq!(reading.tokens, plain.tokens);
                    for (a, b) in reading.by_position.iter().zip(&plain.by_position) {
                        assert!((a.0 - b.0).abs() <= 1e-9 * b.0 && a.1 == b.1, "{what}: by position");
                    }
                    let sweeps = reading.sweeps.unwrap();
                    assert_eq!((sweeps.residual, sweeps.unsettled), (0.0, 0), "{what}");
                    // One sweep for every start but the first, and none to see that they stand.
                    assert!(sweeps.most <= 4, "{what}: {sweeps:?}");
                    // The first 4 steps are read in order, and what is less than two blocks.
                    let left = (length - 1usize).saturating_sub(4);
                    let windows = left / 15 + usize::from(left % 15 >= 6);
                    assert_eq!(sweeps.windows, windows as u64, "{what}");
                }
            }
        }
    }
}

/// A tolerance is kept, and the nats are off by about as much and no more.
#[test]
fn a_tolerance_bounds_the_error() {
    for cell in CellKind::ALL {
        let model = model(cell, 2);
        let (params, text) = (model.initial(2), tokens(70));
        let (expected, _) = each(&model, &params, &text, 1, None);
        let mut before = f64::INFINITY;
        for tolerance in [1e-2, 1e-4, 1e-8] {
            let config = ParallelConfig { block: 2, blocks: 16, tolerance, sweeps: 16 };
            let (nats, reading) = each(&model, &params, &text, 1, Some(config));
            let (sweeps, error) = (reading.sweeps.unwrap(), relative(&nats, &expected));
            assert!(sweeps.residual <= tolerance && sweeps.unsettled == 0, "{cell:?}: {sweeps:?}");
            assert!(error <= tolerance && error <= before, "{cell:?} at {tolerance}: {error:e}");
            before = error;
        }
    }
}

/// One sweep does not settle a window. It is then read in order, to the last bit, and the reading says so.
#[test]
fn a_window_that_does_not_settle_is_read_in_order_and_reported() {
    for cell in CellKind::ALL {
        let model = model(cell, 2);
        let (params, text) = (model.initial(2), tokens(4 + 15 * 9 + 1));
        let (expected, _) = each(&model, &params, &text, 1, None);
        let (nats, reading) = each(&model, &params, &text, 1, Some(ParallelConfig { sweeps: 1, ..EXACT }));
        assert!(nats == expected, "{cell:?}");
        let sweeps = reading.sweeps.unwrap();
        // Of what would be nine windows three are tried; one, two and then four are left out behind them.
        assert_eq!((sweeps.windows, sweeps.unsettled, sweeps.in_order), (0, 3, 4 + 15 * 6), "{cell:?}");
    }
}

/// Weights that are not numbers settle nowhere.
#[test]
fn nan_does_not_look_settled() {
    let model = model(CellKind::Gru, 1);
    let mut params = model.initial(2);
    params.all_mut().fill(f64::NAN);
    let reading = Reader::new(4).in_parallel(Some(EXACT)).read(&model, &params, &tokens(31), 1);
    assert!(reading.nats.is_nan());
    assert_eq!(reading.sweeps.unwrap().windows, 0);
}

/// A small model after some training on a text with a little structure.
fn trained(cell: CellKind) -> (Model<f32>, Params<f32>, Vec<u32>) {
    let draws = tprop::rng::Draws::new(5, "text");
    let mut text = vec![0u32];
    for i in 1..24_000u64 {
        let last = text[text.len() - 1];
        let back = text[text.len().saturating_sub(7)];
        text.push(if draws.unit(i) < 0.8 { (3 * last + back + 1) % 12 } else { draws.below(i, 12) as u32 });
    }
    let model = Model::<f32>::new(ModelConfig { cell, hidden: 48, embed: 16, ..ModelConfig::new(12) });
    let method = MethodConfig::Bptt(BpttConfig { window: 20, streams: 16, ..BpttConfig::default() });
    let config = TrainConfig { method, epochs: 3, eval_streams: 8, ..TrainConfig::default() };
    let data = Data::new(&text[..16_000], &text[16_000..18_000], &[]);
    let mut trainer = Trainer::new(&model, data, config, &Solo).unwrap();
    let end = trainer.run(&mut |_: &_| {}).unwrap();
    assert!(end.best_valid_ppl < 11.5, "{cell:?} has learnt something: {}", end.best_valid_ppl);
    let params = trainer.best_params().clone();
    (model, params, text.split_off(16_000))
}

/// In f32 the sum of a trained model's nats is the sequential one to 1e-6, and threads change no bit of it.
#[test]
fn a_trained_model_in_f32_within_a_millionth_and_the_same_bits_on_any_threads() {
    // The multiplicative cells diverge at the rate at which the others learn.
    for cell in CellKind::ALL.into_iter().filter(|cell| !matches!(cell, CellKind::Mult | CellKind::MultGated)) {
        let (model, params, text) = trained(cell);
        let short = ParallelConfig { block: 16, blocks: 40, sweeps: 40, ..ParallelConfig::default() };
        for (streams, config) in [(1, ParallelConfig::default()), (1, short), (3, short)] {
            let plain = Reader::new(32).read(&model, &params, &text, streams);
            let read = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| each(&model, &params, &text, streams, Some(config)))
            };
            let (nats, reading) = read(1);
            let sweeps = reading.sweeps.unwrap();
            let error = (reading.nats / plain.nats - 1.0).abs();
            println!("{cell:?}, {streams} streams, B = {}: {error:e} {sweeps:?}", config.block);
            assert!(error < 1e-6, "{cell:?}: {error:e}");
            assert!(sweeps.windows > 0 && sweeps.unsettled == 0, "{cell:?}: {sweeps:?}");
            for threads in [2, 3] {
                let (other, same) = read(threads);
                assert!(nats == other && reading == same, "{cell:?}: {threads} threads");
            }
        }
    }
}
