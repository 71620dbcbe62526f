//! Memory, seen by a counting allocator: after the first updates a training step allocates nothing, and batch mode keeps
//! a few numbers per state, however long the corpus.
#![allow(unsafe_code)] // an allocator can only be written so

mod common;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard};

use common::{duals, plain, tokens};
use tprop::cell::CellKind;
use tprop::comm::Solo;
use tprop::method::*;
use tprop::model::{Model, ModelConfig};
use tprop::objective::{Constraint, Direction, Penalty};
use tprop::optim::{OptimConfig, Rule};
use tprop::train::{Data, TrainConfig, Trainer};
use tprop::words::Words;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);
static TRAP: AtomicBool = AtomicBool::new(false);

struct Counting;

// SAFETY: every request goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Relaxed);
        BYTES.fetch_add(layout.size(), Relaxed);
        let live = LIVE.fetch_add(layout.size() as isize, Relaxed) + layout.size() as isize;
        PEAK.fetch_max(live, Relaxed);
        // Set TPROP_TRAP=1 to see where a step allocates.
        if TRAP.swap(false, Relaxed) {
            eprintln!("{} bytes at {}", layout.size(), std::backtrace::Backtrace::force_capture());
            TRAP.store(true, Relaxed);
        }
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: the caller's word.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The counters are the process's, so one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

/// Two threads for all tests, never dropped: threads that end while another test counts would give back memory of their own.
static POOL: LazyLock<rayon::ThreadPool> =
    LazyLock::new(|| rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap());

fn trainer<'a>(model: &'a Model<f32>, method: &MethodConfig, rule: &str, text: &'a [u32]) -> Trainer<'a, f32> {
    let config = TrainConfig {
        method: method.clone(),
        optim: OptimConfig { rule: rule.parse().unwrap(), rate: 0.01, ..OptimConfig::default() },
        epochs: 1,
        patience: 0,
        eval_streams: 1,
        ..TrainConfig::default()
    };
    Trainer::new(model, Data::new(text, &[], &[]), config, &Solo).unwrap()
}

/// Updates, across epochs.
fn train(trainer: &mut Trainer<f32>, updates: usize) {
    let mut done = 0;
    while done < updates {
        match trainer.advance(&mut || false) {
            Advance::Update(_) => done += 1,
            Advance::EpochEnd => {}
            other => panic!("{other:?}"),
        }
    }
}

fn methods() -> Vec<(&'static str, MethodConfig)> {
    let bptt = |batch| MethodConfig::Bptt(BpttConfig { window: 5, streams: 4, batch });
    let states = StateConfig { steps: 2, rate: 0.05, ..plain(2, 6, 3).states };
    let base = BtpropConfig { states, ..plain(2, 6, 3) };
    let admm = |before_theta| Solver::Admm { duals: duals(0.5), before_theta };
    let alm = Solver::Alm { duals: duals(0.5), joint_steps: 2 };
    let adagrad = StateConfig { rule: StateRule::Adagrad, tolerance: 1e-3, clip: 0.5, ..states };
    let kl = Penalty::L2Kl(Direction::Forward);
    let held = BtpropConfig { starts: Starts::Held, ..base.clone() };
    let list = [
        ("penalty", base.clone()),
        ("admm", BtpropConfig { solver: admm(false), init: Init::Parallel { sweeps: 2 }, ..base.clone() }),
        ("stored", BtpropConfig { solver: admm(true), init: Init::Stored { sweeps: 1 }, ..base.clone() }),
        ("alm", BtpropConfig { solver: alm, last: Last::Free0, states: adagrad, ..base.clone() }),
        ("full", BtpropConfig { solver: admm(false), batch: Batch::Full, states: adagrad, ..base.clone() }),
        ("reach", BtpropConfig { starts: Starts::Held, ..base.clone() }),
        ("kl", BtpropConfig { penalty: kl, ..base.clone() }),
        ("free", BtpropConfig { loss: LossOn::Free, block: 1, ..base.clone() }),
        ("tanh", BtpropConfig { constraint: Constraint::Tanh, ..base.clone() }),
        ("sparse", BtpropConfig { constraint: Constraint::Sparse(2), ..base.clone() }),
        ("stored pulls", BtpropConfig { pulls: Pulls::Stored, ..held.clone() }),
        ("settling sweeps", BtpropConfig { init: Init::Carried { sweeps: 2 }, sweep_tolerance: 0.1, ..held }),
    ];
    let mut all = vec![
        ("bptt", bptt(Batch::Mini { accumulate: 1 })),
        ("bptt, accumulated", bptt(Batch::Mini { accumulate: 2 })),
        ("full bptt", bptt(Batch::Full)),
    ];
    all.extend(list.map(|(name, config)| (name, MethodConfig::Btprop(config))));
    all
}

/// rayon itself may enlarge a worker's queue, or wake a worker by a message: seldom, but how often depends on how busy the
/// machine is. A buffer made anew in each update would show as at least one call per update.
#[test]
fn a_training_step_allocates_nothing() {
    let _turn = alone();
    let text = tokens(400);
    let updates = 40;
    let mut guilty = Vec::new();
    for (name, method) in methods() {
        for (i, cell) in CellKind::ALL.into_iter().enumerate() {
            let rule = Rule::WORDS[i % Rule::WORDS.len()];
            for tape_mb in [128, 0] {
                let small =
                    ModelConfig { cell, hidden: 8, embed: 6, layers: 1 + i % 2, tape_mb, ..ModelConfig::new(7) };
                let model = Model::<f32>::new(small);
                let (calls, bytes) = POOL.install(|| {
                    let mut trainer = trainer(&model, &method, rule, &text);
                    train(&mut trainer, updates);
                    let before = (CALLS.load(Relaxed), BYTES.load(Relaxed));
                    TRAP.store(std::env::var_os("TPROP_TRAP").is_some(), Relaxed);
                    train(&mut trainer, updates);
                    TRAP.store(false, Relaxed);
                    (CALLS.load(Relaxed) - before.0, BYTES.load(Relaxed) - before.1)
                });
                if calls > updates / 2 || bytes > 16 << 10 {
                    guilty.push(format!("{name}, {cell:?}: {calls} allocations, {bytes} bytes in {updates} updates"));
                }
            }
        }
    }
    assert!(guilty.is_empty(), "{}", guilty.join("\n"));
}

/// The same at a size at which products and the output layer run on several threads.
#[test]
fn a_parallel_step_allocates_next_to_nothing() {
    let _turn = alone();
    let model = Model::<f32>::new(ModelConfig { hidden: 64, embed: 64, ..ModelConfig::new(3000) });
    let text = tokens(16 * 10 * 4 + 1);
    let states = StateConfig { steps: 3, rate: 2.0, ..plain(8, 4, 5).states };
    let reach = BtpropConfig { lambda: 0.5, states, starts: Starts::Held, ..plain(8, 4, 5) };
    let bptt = BpttConfig { window: 10, streams: 16, batch: Batch::Mini { accumulate: 1 } };
    for method in [MethodConfig::Bptt(bptt), MethodConfig::Btprop(reach)] {
        let updates = 12;
        let bytes = POOL.install(|| {
            let mut trainer = trainer(&model, &method, "adagrad", &text);
            train(&mut trainer, updates);
            let before = BYTES.load(Relaxed);
            train(&mut trainer, updates);
            BYTES.load(Relaxed) - before
        });
        assert!(bytes / updates < 400, "{bytes} bytes in {updates} updates: {method:?}");
    }
}

/// Largest amount held at any time by two passes over a corpus of `blocks` blocks in batch mode.
fn peak(model: &Model<f32>, config: &BtpropConfig, blocks: usize) -> isize {
    let text: Vec<u32> = tokens(blocks * config.block + 1);
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    POOL.install(|| train(&mut trainer(model, &MethodConfig::Btprop(config.clone()), "adagrad", &text), 2));
    PEAK.load(Relaxed) - before
}

/// Memory of batch mode is O(blocks × state) + one chunk: neither tokens × hidden nor tokens × vocabulary.
#[test]
fn batch_mode_keeps_states_not_activations() {
    let _turn = alone();
    let shape = ModelConfig { cell: CellKind::Gru, hidden: 16, embed: 16, tape_mb: 0, ..ModelConfig::new(500) };
    let model = Model::<f32>::new(shape);
    let states = StateConfig { steps: 2, rate: 0.05, ..plain(1, 8, 10).states };
    let solver = Solver::Admm { duals: duals(0.5), before_theta: false };
    let moving = BtpropConfig { batch: Batch::Full, solver, states, ..plain(1, 8, 10) };
    let adagrad = StateConfig { rule: StateRule::Adagrad, ..states };
    let held = BtpropConfig { starts: Starts::Held, states: adagrad, ..moving.clone() };
    for (name, config, copies) in [("moving", moving, 5), ("held, adagrad", held, 7)] {
        // Starts, gradients in both ends, ends, duals; and for `held` targets and Adagrad's sums.
        let per_block = (copies * model.state_width() * size_of::<f32>()) as isize;
        peak(&model, &config, 1280); // the threads' own work space grows now and not while we count
        let (n, twice) = (peak(&model, &config, 640), peak(&model, &config, 1280));
        let more = twice - n;
        assert!(more <= 640 * per_block + 4096, "{name}: {} bytes a block instead of {per_block}", more / 640);
        // And one chunk, not the window, has a tape.
        let tape = model.tape_bytes_per_token() as isize * 10 * 640;
        assert!(n < tape, "{name}: {n} bytes, and the whole tape would be {tape}");
    }
}

/// The output layer at the size of WikiText-103 (vocabulary 267,000, hidden 200, 64 × 30 tokens): weights, gradients and
/// Adagrad's sums, and at most 256 MB besides. All logits of the window would take 2 GB.
#[test]
fn a_large_vocabulary_stays_within_its_weights() {
    let _turn = alone();
    let text: Vec<u32> = (0..64 * 30 + 1).map(|i| (i * 139) % 267_000).collect();
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let model = Model::<f32>::new(ModelConfig { hidden: 200, embed: 200, ..ModelConfig::new(267_000) });
    let bptt = BpttConfig { window: 30, streams: 64, batch: Batch::Mini { accumulate: 1 } };
    let mut trainer = trainer(&model, &MethodConfig::Bptt(bptt), "adagrad", &text);
    POOL.install(|| train(&mut trainer, 1));
    let used = PEAK.load(Relaxed) - before;
    let one = size_of_val(trainer.params().all());
    let allowed = 3 * one + (256 << 20);
    assert!(used as usize <= allowed, "{} MB, allowed are {} MB", used >> 20, allowed >> 20);
}
