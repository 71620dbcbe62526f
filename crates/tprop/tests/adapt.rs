//! Test-time states: no look ahead, no change when switched off, and worth something when the text drifts.

mod common;
use common::*;
use tprop::adapt::*;
use tprop::cell::CellKind;
use tprop::eval::Reader;
use tprop::model::Model;
use tprop::window::{Layout, Streams};

const ADAPT: AdaptConfig = AdaptConfig { block: 4, steps: 3, rate: 0.4, blocks: 3, lambda: 0.2 };

fn each_nats(cell: CellKind, layers: usize, text: &[u32], streams: usize) -> Vec<(usize, usize, f64)> {
    let model = model(cell, layers);
    let mut all = Vec::new();
    read_adapting_each(&model, &model.initial(2), text, streams, ADAPT, |i, at, nats| all.push((i, at, nats)));
    all
}

/// A token that changes may change its own probability and later ones, never an earlier one, in any bit.
#[test]
fn the_future_changes_no_earlier_probability() {
    for cell in CellKind::ALL {
        for layers in [1, 2] {
            let text = tokens(42);
            let before = each_nats(cell, layers, &text, 1);
            assert_eq!(before.len(), 41);
            for at in 1..text.len() {
                let mut other = text.clone();
                other[at] = (other[at] + 3) % VOCAB as u32;
                let after = each_nats(cell, layers, &other, 1);
                // The prediction at position p is about token p + 1.
                for (a, b) in before.iter().zip(&after).filter(|(a, _)| a.1 + 1 < at) {
                    assert_eq!(a, b, "{cell:?}: token {at} reached back to position {}", a.1);
                }
                assert_ne!(before[at - 1].2, after[at - 1].2, "{cell:?}: the changed token itself");
            }
        }
    }
}

/// Nor does the token that is being predicted: over all that could stand there, the probabilities add up to 1.
#[test]
fn no_prediction_peeks_at_its_own_answer() {
    for cell in CellKind::ALL {
        let text = tokens(22);
        for at in 1..text.len() {
            let total: f64 = (0..VOCAB as u32)
                .map(|word| {
                    let mut other = text.clone();
                    other[at] = word;
                    (-each_nats(cell, 1, &other, 1)[at - 1].2).exp()
                })
                .sum();
            assert!((total - 1.0).abs() < 1e-12, "{cell:?}: token {at}: {total}");
        }
    }
}

/// Each stream is a text of its own, and every token of it is shown once.
#[test]
fn streams_are_read_apart_and_every_token_once() {
    let cell = CellKind::Gru;
    let mut seen = each_nats(cell, 1, &tokens(84), 2);
    assert_eq!(seen.len(), 82);
    seen.sort_by_key(|s| (s.0, s.1));
    let places: Vec<_> = seen.iter().map(|s| (s.0, s.1)).collect();
    assert_eq!(places, (0..2).flat_map(|i| (0..41).map(move |p| (i, p))).collect::<Vec<_>>());
    let alone = each_nats(cell, 1, &tokens(84)[..42], 1);
    assert!(seen[..41].iter().zip(&alone).all(|(a, b)| a.2 == b.2), "the first stream is a text of its own");
}

/// No steps or no blocks: the plain reading.
#[test]
fn switched_off_it_is_plain_reading() {
    for cell in CellKind::ALL {
        let model = model(cell, 2);
        let (params, text) = (model.initial(2), tokens(203));
        let plain = Reader::new(4).read(&model, &params, &text, 3);
        for off in [AdaptConfig { steps: 0, ..ADAPT }, AdaptConfig { blocks: 0, ..ADAPT }] {
            assert_eq!(read_adapting(&model, &params, &text, 3, off), plain, "{cell:?}");
        }
        assert_ne!(read_adapting(&model, &params, &text, 3, ADAPT).nats, plain.nats, "{cell:?}");
    }
}

/// One block of the text from `start`: its nats and its end.
fn block(model: &Model<f64>, text: &[u32], k: usize, start: &[f64]) -> (f64, Vec<f64>) {
    let (params, b) = (model.initial(2), ADAPT.block);
    let mut tape = model.tape(Layout::new(1, b));
    Streams::new(text, 1).fill(&tape.layout(), k * b, 0..1, &mut tape.inputs, &mut tape.targets);
    model.prepare(&params, &mut tape);
    model.recur(&params, &mut tape, start);
    let mut end = start.to_vec();
    model.ends(&tape, &mut end);
    (model.nats(&params, &mut tape), end)
}

/// The slow twin: all starts are kept, the objective is written out, its gradient is taken by central differences.
fn twin(model: &Model<f64>, text: &[u32], config: AdaptConfig) -> f64 {
    let rest = vec![model.initial_state(); model.state_width()];
    let mut starts = vec![rest.clone()];
    let mut nats = 0.0;
    for k in 0..(text.len() - 1) / config.block {
        let oldest = k.saturating_sub(config.blocks);
        let anchor = if oldest == 0 { rest.clone() } else { block(model, text, oldest - 1, &starts[oldest - 1]).1 };
        let objective = |starts: &[Vec<f64>]| {
            let (mut sum, mut before) = (0.0, anchor.clone());
            for (j, start) in starts.iter().enumerate().take(k).skip(oldest) {
                let gap: f64 = before.iter().zip(start).map(|(f, s)| (f - s) * (f - s)).sum();
                let (nats, end) = block(model, text, j, start);
                sum += nats / config.block as f64 + 0.5 * config.lambda * gap;
                before = end;
            }
            sum
        };
        for _ in 0..config.steps {
            let mut moved = starts.clone();
            for j in oldest..k {
                for i in 0..rest.len() {
                    let at = |x: f64| {
                        let mut probe = starts.clone();
                        probe[j][i] += x;
                        objective(&probe)
                    };
                    moved[j][i] -= config.rate * (at(1e-5) - at(-1e-5)) / 2e-5;
                }
            }
            starts = moved;
        }
        if k > 0 {
            starts[k] = block(model, text, k - 1, &starts[k - 1]).1;
        }
        let (more, end) = block(model, text, k, &starts[k]);
        nats += more;
        starts.push(end);
    }
    nats
}

#[test]
fn it_agrees_with_its_slow_twin() {
    let text = tokens(21);
    for cell in CellKind::ALL {
        let model = model(cell, 1);
        for blocks in [1, 2, 9] {
            let config = AdaptConfig { blocks, steps: 2, lambda: 0.7, ..ADAPT };
            let (fast, slow) =
                (read_adapting(&model, &model.initial(2), &text, 1, config).nats, twin(&model, &text, config));
            assert!((fast - slow).abs() < 1e-7, "{cell:?}, {blocks} blocks: {fast} and {slow}");
        }
    }
}

/// A text that has drifted from what the weights know: two words alone are left of seven.
#[test]
fn it_helps_when_the_text_drifts() {
    let model = model(CellKind::Gru, 1);
    let params = model.initial(2);
    let text: Vec<u32> = tokens(400).iter().map(|t| if t % 3 == 0 { 2 } else { 5 }).collect();
    let plain = Reader::new(1).read(&model, &params, &text, 2).nats;
    let config = AdaptConfig { block: 1, blocks: 4, steps: 5, rate: 2.0, lambda: 0.05 };
    let adapted = read_adapting(&model, &params, &text, 2, config).nats;
    assert!(adapted < 0.6 * plain, "{adapted} nats against {plain}");
}
