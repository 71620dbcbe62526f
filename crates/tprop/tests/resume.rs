//! A run that is stopped, written to bytes, read back and continued in a fresh trainer continues bit for bit: same weights, same
//! events but for the time that passed. Runs are stopped at every place where a watcher is asked, also in the middle of a
//! pass over several chunks.

mod common;
use common::{VOCAB, duals, plain, tokens};
use sha2::{Digest, Sha256};
use tprop::cell::CellKind;
use tprop::checkpoint::Snapshot;
use tprop::comm::Solo;
use tprop::method::*;
use tprop::model::{Model, ModelConfig};
use tprop::objective::{Constraint, Direction, Penalty};
use tprop::optim::{OptimConfig, Rule};
use tprop::record::Event;
use tprop::train::{Data, Request, SaveReason, TrainConfig, Trainer, Watch, is_best};
use tprop::words::Words;

/// Every method, mode, solver, init and constraint at least once.
fn methods() -> Vec<(&'static str, MethodConfig)> {
    let bptt = |batch| MethodConfig::Bptt(BpttConfig { window: 2, streams: 34, batch });
    // 10 streams × 8 blocks = 80 rows: chunks of 32, 32 and 16.
    let states = StateConfig { steps: 2, rate: 0.1, ..plain(10, 8, 2).states };
    let base = BtpropConfig { states, ..plain(10, 8, 2) };
    let full = BtpropConfig { batch: Batch::Full, ..base.clone() };
    let adagrad = StateConfig { rule: StateRule::Adagrad, tolerance: 0.02, clip: 0.5, ..states };
    let admm = |before_theta| Solver::Admm { duals: duals(0.5), before_theta };
    let forgets = Solver::Admm { duals: DualConfig { stored: false, ..duals(0.5) }, before_theta: false };
    let alm = Solver::Alm { duals: DualConfig { start_epoch: 2, ..duals(0.5) }, joint_steps: 2 };
    let parallel = Init::Parallel { sweeps: 2 };
    let scanned = BtpropConfig { scan: Scan::Both, init: Init::Carried { sweeps: 3 }, ..base.clone() };
    let pulls = BtpropConfig { scan: Scan::Pulls, ..base.clone() };
    let newton = StateConfig { rule: StateRule::Newton, rate: 1.0, tolerance: 0.02, ..states };
    let btprop = [
        ("mini penalty", BtpropConfig { lambda_schedule: LambdaSchedule::Geometric(1.5), ..base.clone() }),
        (
            "mini admm, stored states and duals",
            BtpropConfig { solver: admm(false), init: Init::Stored { sweeps: 1 }, states: adagrad, ..base.clone() },
        ),
        ("mini admm, forgetful", BtpropConfig { solver: forgets, init: parallel, theta_steps: 2, ..base.clone() }),
        ("mini alm", BtpropConfig { solver: alm, last: Last::Free0, first: First::Free, ..base.clone() }),
        ("mini reach", BtpropConfig { starts: Starts::Held, ..base.clone() }),
        (
            "full admm",
            BtpropConfig {
                solver: admm(true),
                states: adagrad,
                lambda_schedule: LambdaSchedule::Balance(2.0),
                init: parallel,
                ..full.clone()
            },
        ),
        ("full alm, one stream", BtpropConfig { solver: alm, streams: 1, last: Last::Zero, ..full.clone() }),
        (
            "full held, kl",
            BtpropConfig { starts: Starts::Held, penalty: Penalty::L2Kl(Direction::Reverse), ..full.clone() },
        ),
        ("full free", BtpropConfig { loss: LossOn::Free, block: 1, streams: 3, solver: admm(false), ..full.clone() }),
        ("full tanh", BtpropConfig { constraint: Constraint::Tanh, init: Init::Zero, ..full.clone() }),
        ("full binary", BtpropConfig { constraint: Constraint::Binary, theta_steps: 2, ..full.clone() }),
        ("full sparse", BtpropConfig { constraint: Constraint::Sparse(2), first: First::Free, ..full.clone() }),
        ("mini scan", BtpropConfig { starts: Starts::Held, sweep_tolerance: 0.1, ..scanned.clone() }),
        ("mini scan, alm", BtpropConfig { starts: Starts::Held, solver: alm, last: Last::Free0, ..scanned.clone() }),
        ("mini stored pulls", BtpropConfig { starts: Starts::Held, pulls: Pulls::Stored, ..pulls.clone() }),
        ("full stored pulls", {
            let init = Init::Stored { sweeps: 1 };
            let solver = admm(false);
            BtpropConfig { starts: Starts::Held, pulls: Pulls::Stored, init, solver, batch: Batch::Full, ..pulls }
        }),
        ("mini scanned starts", BtpropConfig { scan: Scan::Starts, init: parallel, ..base.clone() }),
        ("full scan", BtpropConfig { starts: Starts::Held, batch: Batch::Full, ..scanned }),
        ("mini newton", BtpropConfig { states: newton, solver: admm(false), init: parallel, ..base.clone() }),
        ("full newton", BtpropConfig { states: newton, first: First::Free, last: Last::Free0, ..full.clone() }),
    ];
    let mut all = vec![
        ("bptt", bptt(Batch::Mini { accumulate: 1 })),
        // So many updates that not every one is recorded.
        ("long bptt", MethodConfig::Bptt(BpttConfig { window: 2, streams: 2, batch: Batch::Mini { accumulate: 1 } })),
        ("bptt, accumulated", bptt(Batch::Mini { accumulate: 2 })),
        ("full bptt", bptt(Batch::Full)),
    ];
    all.extend(btprop.map(|(name, config)| (name, MethodConfig::Btprop(config))));
    all
}

/// Closed-form steps, over windows of several chunks.
#[cfg(feature = "least-squares")]
fn least_squares() -> [(&'static str, MethodConfig); 3] {
    let base = LeastSquaresConfig {
        blocks: 30,
        streams: 3,
        batch: Batch::Mini { accumulate: 1 },
        duals: None,
        lambda: 0.3,
        lambda_schedule: LambdaSchedule::Constant,
        init: Init::Parallel { sweeps: 2 },
        first: First::Fixed,
        last: Last::None,
        states: ProximalConfig { steps: 2, rate: 0.1, scale: StateScale::Block, tolerance: 0.0 },
        theta_steps: 2,
        ridge: 1.0,
        ignore: Ignore::None,
    };
    let duals = |before_theta| Some(LeastSquaresDuals { duals: duals(0.5), before_theta });
    let settling = ProximalConfig { steps: 5, tolerance: 0.02, ..base.states };
    [
        ("least squares", base.clone()),
        ("least squares, duals first", LeastSquaresConfig { duals: duals(true), states: settling, ..base.clone() }),
        ("full least squares", LeastSquaresConfig { batch: Batch::Full, duals: duals(false), ..base }),
    ]
    .map(|(name, config)| (name, MethodConfig::LeastSquares(config)))
}

/// Remembers what a run tells, and stops it at the `patience`-th question.
struct Witness {
    events: Vec<Event>,
    asked: usize,
    patience: usize,
    last: Option<Vec<u8>>,
    best: Option<Vec<u8>>,
    end: Option<String>,
}

impl Watch for Witness {
    fn event(&mut self, event: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.events.push(event.clone());
        Ok(())
    }
    fn request(&mut self) -> Request {
        self.asked += 1;
        if self.asked >= self.patience { Request::Stop } else { Request::Go }
    }
    fn save(&mut self, snapshot: Snapshot, why: SaveReason) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let bytes = snapshot.encode();
        if why == (SaveReason::Evaluated { best: true }) {
            self.best = Some(bytes.clone());
        }
        self.last = Some(bytes);
        Ok(())
    }
}

/// Events without the time that passed, and θ.
type Trace = (Vec<String>, Vec<u32>);

fn timeless(event: Event) -> Event {
    match event {
        Event::Step(mut e) => {
            (e.seconds, e.tokens_per_s) = (0.0, 0.0);
            Event::Step(e)
        }
        Event::Eval(mut e) => {
            e.seconds = 0.0;
            Event::Eval(e)
        }
        Event::End(mut e) => {
            e.seconds = 0.0;
            Event::End(e)
        }
        other => other,
    }
}

/// Trains to the end in segments of at most `patience` questions, each in a fresh trainer. Also returns their number.
fn train(model: &Model<f32>, config: &TrainConfig, text: &[u32], patience: usize) -> (Trace, usize) {
    let (valid, test) = (tokens(40), tokens(31));
    let data = Data::new(text, &valid, &test);
    let mut witness = Witness { events: Vec::new(), asked: 0, patience, last: None, best: None, end: None };
    let mut before = None;
    for segment in 1.. {
        let mut trainer = Trainer::new(model, data, config.clone(), &Solo).unwrap();
        if let Some(last) = &witness.last {
            let best = witness.best.as_ref().map(|best| Snapshot::decode(best).unwrap());
            trainer.restore(&Snapshot::decode(last).unwrap(), best.as_ref()).unwrap();
        }
        witness.asked = 0;
        match trainer.run(&mut witness) {
            Ok(end) if end.reason == "stopped" => {
                witness.events.pop();
                assert!(segment < 10_000, "no progress");
                // An evaluation that is given up begins again: without progress the next one is left alone a little longer.
                let mut now = witness.last.as_ref().map(|last| Snapshot::decode(last).unwrap()).unwrap();
                now.meta.retain(|name, _| !name.ends_with("seconds") && !name.ends_with("recent_since"));
                witness.patience = if before.as_ref() == Some(&now) { witness.patience + 1 } else { patience };
                before = Some(now);
                continue;
            }
            Ok(_) => {}
            // A product of hundreds of factors may leave all bounds: then it does so at the same step.
            Err(e) => witness.end = Some(e.to_string()),
        }
        let events = witness.events.into_iter().map(|e| format!("{:?}", timeless(e)));
        let events = events.chain(witness.end).collect();
        return ((events, trainer.params().all().iter().map(|w| w.to_bits()).collect()), segment);
    }
    unreachable!()
}

fn check(name: &str, method: &MethodConfig, cell: CellKind, layers: usize, rule: &str, patiences: &[usize]) {
    let small = ModelConfig { cell, hidden: 4, embed: 3, layers, tape_mb: 0, ..ModelConfig::new(VOCAB) };
    let model = Model::<f32>::new(small);
    let config = TrainConfig {
        method: method.clone(),
        optim: OptimConfig { rule: rule.parse().unwrap(), rate: 0.02, ..OptimConfig::default() },
        anneal: 2.0,
        epochs: 3,
        patience: 2,
        eval_streams: 3,
        ..TrainConfig::default()
    };
    // Two windows and a bit for the minibatch methods, more for BPTT.
    let text = tokens(420);
    let name = format!("{name}, {cell:?} × {layers}, {rule}");
    let (whole, _) = train(&model, &config, &text, usize::MAX);
    assert!(whole.0.last().is_some_and(|e| e.starts_with("End")) || cell == CellKind::Mult, "{name}: {whole:?}");
    for &patience in patiences {
        let (parts, segments) = train(&model, &config, &text, patience);
        assert!(segments > 1, "{name}: never stopped");
        for (a, b) in parts.0.iter().zip(&whole.0) {
            assert_eq!(a, b, "{name}: stopped every {patience}");
        }
        assert_eq!(parts.0.len(), whole.0.len(), "{name}: stopped every {patience}");
        assert!(parts.1 == whole.1, "{name}: stopped every {patience}: other weights");
    }
}

/// Stopped at every single question.
#[test]
fn every_method_with_every_cell_resumes_anywhere() {
    for (name, method) in methods() {
        for (i, cell) in CellKind::ALL.into_iter().enumerate() {
            check(name, &method, cell, 1 + i % 2, Rule::WORDS[i % Rule::WORDS.len()], &[1]);
        }
    }
}

#[cfg(feature = "least-squares")]
#[test]
fn least_squares_resumes_anywhere() {
    for (name, method) in least_squares() {
        for (cell, rule) in [(CellKind::MultGated, "adagrad"), (CellKind::Mult, "adam")] {
            check(name, &method, cell, 1, rule, &[1, 3]);
        }
    }
}

#[test]
fn every_method_with_every_optimiser_resumes_anywhere() {
    for (name, method) in methods() {
        for &rule in Rule::WORDS {
            check(name, &method, CellKind::Gru, 1, rule, &[2, 5]);
        }
    }
}

/// Weights are the best once they have been evaluated, and not before.
#[test]
fn the_best_weights_have_been_evaluated() {
    let (text, valid) = (tokens(420), tokens(40));
    let model = Model::<f32>::new(ModelConfig { hidden: 4, embed: 3, ..ModelConfig::new(VOCAB) });
    let config = TrainConfig { method: methods()[0].1.clone(), epochs: 1, eval_streams: 3, ..TrainConfig::default() };
    let mut trainer = Trainer::new(&model, Data::new(&text, &valid, &[]), config, &Solo).unwrap();
    assert!(!trainer.at_best() && !is_best(&trainer.snapshot()));
    trainer.run(&mut |_: &Event| {}).unwrap();
    assert!(trainer.at_best() && is_best(&trainer.snapshot()));
}

/// A snapshot of other settings is refused with the name of what does not fit.
#[test]
fn what_does_not_fit_is_named() {
    let text = tokens(420);
    let data = Data::new(&text, &[], &[]);
    let config = |method: &MethodConfig, rule: &str| TrainConfig {
        method: method.clone(),
        optim: OptimConfig { rule: rule.parse().unwrap(), rate: 0.05, ..OptimConfig::default() },
        epochs: 1,
        patience: 0,
        eval_streams: 1,
        ..TrainConfig::default()
    };
    let small = |hidden| ModelConfig { hidden, embed: 3, ..ModelConfig::new(VOCAB) };
    let (model, wider) = (Model::<f32>::new(small(4)), Model::<f32>::new(small(5)));
    let bptt = &methods()[0].1;
    let snapshot = Trainer::new(&model, data, config(bptt, "adagrad"), &Solo).unwrap().snapshot();
    // What its file takes is known beforehand, the biases of a large vocabulary too.
    let many = Model::<f32>::new(ModelConfig { hidden: 4, embed: 3, ..ModelConfig::new(20_000) });
    let mut trainer = Trainer::new(&many, data, config(bptt, "adagrad"), &Solo).unwrap();
    let (estimate, is) = (trainer.snapshot_bytes(), trainer.snapshot().encode().len() as u64);
    assert!(estimate.abs_diff(is) < 8192, "{estimate} for {is}");
    let refusal = |model: &Model<f32>, method: &MethodConfig, rule: &str| {
        let mut trainer = Trainer::new(model, data, config(method, rule), &Solo).unwrap();
        trainer.restore(&snapshot, None).unwrap_err().to_string()
    };
    assert!(refusal(&model, bptt, "adam").contains("optim.1.embed.weight"));
    assert!(refusal(&wider, bptt, "adagrad").contains("rnn.weight_ih_l0 is F32 [12, 3]; F32 [15, 3] is wanted"));
    for (name, method) in methods().iter().filter(|(_, m)| matches!(m, MethodConfig::Btprop(_))) {
        assert!(refusal(&model, method, "adagrad").contains("btprop."), "{name}");
    }
    let mut double = Trainer::new(&Model::<f64>::new(small(4)), data, config(bptt, "adagrad"), &Solo)
        .map(|mut t| t.restore(&snapshot, None).unwrap_err().to_string());
    assert!(double.as_mut().unwrap().contains("embed.weight is F32"));
}

/// Runs that version 0.1.0 left in the middle of a window, and the hash of the weights that it would have come to.
/// They were written by `TPROP_WINDOWS=write cargo test -p tprop --test resume` on that version's code.
#[test]
fn windows_that_version_0_1_0_left_open_are_finished_as_it_would_have() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/version-0.1.0");
    let write = std::env::var("TPROP_WINDOWS").is_ok_and(|word| word == "write");
    let hash = |weights: &[f32]| {
        let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
        Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let open = [
        ("mini admm, stored states and duals", CellKind::Lstm),
        ("mini alm", CellKind::Gru),
        ("mini reach", CellKind::Gru),
        ("full admm", CellKind::Gru),
        ("full held, kl", CellKind::Gru),
        ("full free", CellKind::Gru),
    ];
    for (name, cell) in open {
        let method = methods().into_iter().find(|(other, _)| *other == name).expect("a method of this name").1;
        let model = Model::<f32>::new(ModelConfig { cell, hidden: 4, embed: 3, tape_mb: 0, ..ModelConfig::new(VOCAB) });
        let optim = OptimConfig { rate: 0.02, clip: 0.5, ..OptimConfig::default() };
        let (anneal, epochs, patience, eval_streams) = (2.0, 3, 2, 3);
        let config = TrainConfig { method, optim, anneal, epochs, patience, eval_streams, ..TrainConfig::default() };
        let (text, valid, test) = (tokens(420), tokens(40), tokens(31));
        let data = Data::new(&text, &valid, &test);
        let fresh = || Trainer::new(&model, data, config.clone(), &Solo).unwrap();
        let witness = |patience| Witness { events: vec![], asked: 0, patience, last: None, best: None, end: None };
        let file = folder.join(name.replace([' ', ','], "-"));
        if write {
            let mut all = fresh();
            all.run(&mut witness(usize::MAX)).unwrap();
            // In the second window of the first epoch, or in its second pass, between two chunks.
            for asked in 10.. {
                let mut left = witness(asked);
                fresh().run(&mut left).unwrap();
                let last = Snapshot::decode(left.last.as_ref().unwrap()).unwrap();
                if last.count("btprop.done") > Some(1) && last.count("btprop.piece") > Some(0) {
                    std::fs::create_dir_all(&folder).unwrap();
                    let best = left.best.as_ref().map_or(&[][..], |best| best);
                    std::fs::write(file.with_extension("safetensors"), left.last.unwrap()).unwrap();
                    std::fs::write(file.with_extension("best"), best).unwrap();
                    std::fs::write(file.with_extension("sha256"), hash(all.params().all())).unwrap();
                    break;
                }
            }
        }
        let read = |kind: &str| std::fs::read(file.with_extension(kind)).unwrap();
        let best = Some(read("best")).filter(|bytes| !bytes.is_empty()).map(|bytes| Snapshot::decode(&bytes).unwrap());
        let mut trainer = fresh();
        trainer.restore(&Snapshot::decode(&read("safetensors")).unwrap(), best.as_ref()).unwrap();
        trainer.run(&mut witness(usize::MAX)).unwrap();
        assert_eq!(hash(trainer.params().all()), String::from_utf8(read("sha256")).unwrap(), "{name}");
    }
}
