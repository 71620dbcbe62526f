//! Ranks change nothing: the same weights, bit for bit, after 20 updates on 1, 2, 3 and 4 ranks, for every cell, solver and mode; what
//! they send is what docs/cluster.md says; and a run may be resumed on another number of ranks.

mod common;
use std::collections::BTreeMap;

use common::{VOCAB, duals, plain, tokens};
use tprop::cell::CellKind;
use tprop::checkpoint::Snapshot;
use tprop::comm::scan::{Order, messages};
use tprop::comm::{Comm, Count, Counted, InShares, Shares, SharesError, Solo, Team, Topic, Unit, share};
use tprop::method::*;
use tprop::model::{Model, ModelConfig};
use tprop::objective::{Constraint, Direction, Penalty};
use tprop::optim::OptimConfig;
use tprop::train::{Data, TrainConfig, TrainError, Trainer};

const SHARES: usize = 12;
const UPDATES: usize = 20;

fn small(cell: CellKind, layers: usize, tied: bool) -> ModelConfig {
    // With so little room for tapes a lone rank runs in chunks that share tapes, and four ranks keep theirs.
    ModelConfig {
        cell,
        hidden: 4,
        embed: if tied { 4 } else { 3 },
        layers,
        tied,
        tape_mb: 0,
        ..ModelConfig::new(VOCAB)
    }
}

fn config(method: MethodConfig) -> TrainConfig {
    TrainConfig {
        method,
        optim: OptimConfig::default(),
        epochs: 1000,
        patience: 0,
        eval_streams: 1,
        ..TrainConfig::default()
    }
}

/// Solvers, inits and modes; each at least once, most of them in both modes.
fn methods() -> Vec<(String, MethodConfig)> {
    let states = StateConfig { steps: 2, rate: 0.1, ..plain(3, 14, 2).states };
    let base = BtpropConfig { states, ..plain(3, 14, 2) };
    let adagrad = StateConfig { rule: StateRule::Adagrad, tolerance: 0.02, clip: 0.5, ..states };
    let admm = |before_theta| Solver::Admm { duals: duals(0.5), before_theta };
    let alm = Solver::Alm { duals: duals(0.5), joint_steps: 2 };
    let (parallel, carried) = (Init::Parallel { sweeps: 2 }, Init::Carried { sweeps: 3 });
    let held = BtpropConfig { starts: Starts::Held, ..base.clone() };
    let newton = StateConfig { rule: StateRule::Newton, rate: 0.2, ..states };
    let kinds = [
        ("penalty", BtpropConfig { lambda_schedule: LambdaSchedule::Geometric(1.02), ..base.clone() }),
        ("admm", BtpropConfig { solver: admm(false), init: parallel, states: adagrad, ..base.clone() }),
        ("admm before", BtpropConfig { solver: admm(true), init: Init::Stored { sweeps: 1 }, ..base.clone() }),
        ("alm", BtpropConfig { solver: alm, last: Last::Free0, first: First::Free, ..base.clone() }),
        ("reach", BtpropConfig { starts: Starts::Held, theta_steps: 2, ..base.clone() }),
        ("held kl", BtpropConfig { starts: Starts::Held, penalty: Penalty::L2Kl(Direction::Reverse), ..base.clone() }),
        ("tanh", BtpropConfig { constraint: Constraint::Tanh, init: Init::Zero, ..base.clone() }),
        ("free", BtpropConfig { loss: LossOn::Free, block: 1, last: Last::Zero, solver: admm(false), ..base.clone() }),
        ("scan", BtpropConfig { scan: Scan::Both, init: carried, sweep_tolerance: 0.02, ..held.clone() }),
        ("scan, alm", BtpropConfig { scan: Scan::Both, init: carried, last: Last::Free0, solver: alm, ..held.clone() }),
        ("stored pulls", BtpropConfig { scan: Scan::Pulls, pulls: Pulls::Stored, ..held.clone() }),
        ("stored pulls, no steps", {
            let states = StateConfig { steps: 0, ..states };
            BtpropConfig { pulls: Pulls::Stored, init: parallel, states, solver: admm(true), ..held.clone() }
        }),
        ("scanned starts", BtpropConfig { scan: Scan::Starts, init: parallel, solver: admm(false), ..base.clone() }),
        ("scanned starts, held", BtpropConfig { scan: Scan::Starts, init: parallel, solver: admm(false), ..held }),
        ("newton", BtpropConfig { states: newton, init: carried, first: First::Free, ..base.clone() }),
        ("newton, behind", BtpropConfig { states: newton, last: Last::Free0, solver: admm(false), ..base.clone() }),
    ];
    let mut all = Vec::new();
    for (name, kind) in kinds {
        all.push((format!("mini {name}"), MethodConfig::Btprop(kind.clone())));
        all.push((format!("full {name}"), MethodConfig::Btprop(BtpropConfig { batch: Batch::Full, ..kind })));
    }
    let bptt = |streams, batch| MethodConfig::Bptt(BpttConfig { window: 2, streams, batch });
    all.push(("mini bptt".into(), bptt(13, Batch::Mini { accumulate: 1 })));
    all.push(("bptt, accumulated".into(), bptt(50, Batch::Mini { accumulate: 2 })));
    all.push(("full bptt".into(), bptt(14, Batch::Full)));
    all
}

/// What a rank saw: the bits of θ after the updates, and of each update's figures.
type Trace = (Vec<u32>, Vec<String>);

fn updates<'a>(trainer: &mut Trainer<'a, f32>, n: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < n {
        // Whoever asks for a pause in the middle of an update is not heard when sums are made in shares.
        match trainer.advance(&mut || true) {
            Advance::EpochEnd => {}
            Advance::Update(update) => seen.push(format!("{update:?}")),
            // Products of hundreds of factors may leave all bounds; then they do so on any number of ranks.
            other => {
                seen.push(format!("{other:?}"));
                break;
            }
        }
    }
    seen
}

fn trained(model: &Model<f32>, method: &MethodConfig, text: &[u32], comm: &dyn Comm) -> Trace {
    let data = Data::new(text, &[], &[]);
    let mut trainer = Trainer::new(model, data, config(method.clone()), comm).unwrap();
    let seen = updates(&mut trainer, UPDATES);
    (bits(&trainer), seen)
}

fn bits(trainer: &Trainer<f32>) -> Vec<u32> {
    trainer.params().all().iter().map(|w| w.to_bits()).collect()
}

/// Runs one thread a rank, which does not share its work with others.
fn on_ranks<R: Send>(ranks: usize, work: impl Fn(&dyn Comm) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let team = Team::in_shares(ranks, SHARES).into_iter();
        let threads: Vec<_> = team
            .map(|comm| {
                scope.spawn({
                    let work = &work;
                    move || by_itself(|| work(&comm))
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn by_itself<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap().install(work)
}

#[test]
fn ranks_give_the_same_bits_for_every_cell_solver_and_mode() {
    let text = tokens(190);
    for (name, method) in methods() {
        for (i, cell) in CellKind::ALL.into_iter().enumerate() {
            let model = Model::<f32>::new(small(cell, 1 + i % 2, i % 3 == 2));
            let alone = by_itself(|| trained(&model, &method, &text, &InShares::new(Solo, SHARES)));
            assert!(alone.1.len() == UPDATES || cell == CellKind::Mult, "{name}, {cell:?}: {:?}", alone.1);
            for ranks in [1, 2, 3, 4] {
                for (rank, trace) in on_ranks(ranks, |comm| trained(&model, &method, &text, comm)).iter().enumerate() {
                    let place = format!("{name}, {cell:?}: rank {rank} of {ranks}");
                    for (a, b) in trace.1.iter().zip(&alone.1) {
                        assert_eq!(a, b, "{place}");
                    }
                    assert!(trace.0 == alone.0, "{place}: other weights");
                }
            }
        }
    }
}

/// Rows that aim at the next rank's states may lie in several chunks: with tapes for 32 rows, 40 streams are more than a chunk.
#[test]
fn more_streams_than_a_chunk_has_rows() {
    let text = tokens(40 * 2 * 14 + 41);
    let states = StateConfig { steps: 2, rate: 0.1, ..plain(1, 1, 1).states };
    let model = Model::<f32>::new(small(CellKind::Gru, 1, false));
    for solver in [Solver::Penalty, Solver::Admm { duals: duals(0.5), before_theta: false }] {
        for batch in [Batch::Full, Batch::Mini { accumulate: 1 }] {
            let init = Init::Parallel { sweeps: 1 };
            let method = MethodConfig::Btprop(BtpropConfig { batch, solver, init, states, ..plain(40, 14, 2) });
            let alone = by_itself(|| trained(&model, &method, &text, &InShares::new(Solo, SHARES)));
            for ranks in [2, 3] {
                for trace in on_ranks(ranks, |comm| trained(&model, &method, &text, comm)) {
                    assert_eq!(trace.1, alone.1, "{solver:?}, {batch:?}: {ranks} ranks");
                    assert!(trace.0 == alone.0, "{solver:?}, {batch:?}: {ranks} ranks have other weights");
                }
            }
        }
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let text = tokens(190);
    for (i, (name, method)) in methods().into_iter().enumerate() {
        let model = Model::<f32>::new(small(CellKind::ALL[i % CellKind::ALL.len()], 1, false));
        let whole = by_itself(|| trained(&model, &method, &text, &InShares::new(Solo, SHARES)));
        let data = Data::new(&text, &[], &[]);
        let mut last: Option<Vec<u8>> = None;
        let mut seen = Vec::new();
        // A lone process, then teams.
        for (ranks, n) in [(1, 3), (3, 4), (2, 5), (4, 6), (1, UPDATES - 18)] {
            let results = on_ranks(ranks, |comm| {
                let mut trainer = Trainer::new(&model, data, config(method.clone()), comm).unwrap();
                if let Some(last) = &last {
                    trainer.restore(&Snapshot::decode(last).unwrap(), None).unwrap();
                }
                let seen = updates(&mut trainer, n);
                (bits(&trainer), seen, trainer.snapshot().encode())
            });
            seen.extend(results[0].1.clone());
            last = Some(results[0].2.clone());
            for result in &results {
                assert!(result.0 == results[0].0, "{name}: {ranks} ranks differ among themselves");
            }
            if seen.len() == UPDATES {
                assert!(results[0].0 == whole.0, "{name}: other weights");
            }
        }
        assert_eq!(seen, whole.1, "{name}");
    }
}

#[test]
fn too_many_ranks_are_refused() {
    let text = tokens(190);
    let model = Model::<f32>::new(small(CellKind::Gru, 1, false));
    let data = Data::new(&text, &[], &[]);
    let bptt = MethodConfig::Bptt(BpttConfig { window: 2, streams: 3, batch: Batch::Mini { accumulate: 1 } });
    for (method, unit) in [(bptt, Unit::Streams), (MethodConfig::Btprop(plain(2, 3, 2)), Unit::Blocks)] {
        let refusals = on_ranks(4, |comm| Trainer::new(&model, data, config(method.clone()), comm).unwrap_err());
        let expected = MethodError::Shares(SharesError { ranks: 4, unit, units: 3, shares: SHARES });
        for refusal in refusals {
            assert!(matches!(&refusal, TrainError::Method(error) if *error == expected), "{refusal:?}");
        }
    }
}

/// What docs/cluster.md says that rank `r` of `ranks` sends for one update of θ, by topic: messages and bytes.
struct Formula<'a> {
    model: &'a Model<f32>,
    shares: Shares,
    /// Distinct words that each share reads.
    words: Vec<std::collections::BTreeSet<u32>>,
    ranks: usize,
}

const BYTES: usize = 4;

impl Formula<'_> {
    /// Group by group: (R − 1) messages with the summands and (R − 1) with the sums.
    fn reduction(&self, rank: usize) -> BTreeMap<Topic, Count> {
        let mut counts = BTreeMap::new();
        let others = |r: usize| (0..self.ranks).filter(move |&o| o != r);
        let nodes = self.shares.nodes(rank);
        for (i, ids) in self.model.groups().iter().enumerate() {
            let shapes = self.model.shapes();
            let values: usize = ids.iter().map(|&id| shapes.entry(id).range().len()).sum();
            let (rows, cols) = (shapes.entry(ids[0]).rows, shapes.entry(ids[0]).cols);
            let sparse = ids == &[self.model.embed_id()] && !self.model.config().tied;
            // What rank o adds up of the group, for a set of shares.
            let slice = |o: usize, shares: std::ops::Range<usize>| {
                if !sparse {
                    return share(values, o, self.ranks).len() * BYTES;
                }
                let words: std::collections::BTreeSet<_> = self.words[shares].iter().flatten().collect();
                let mine = words.into_iter().filter(|&&w| share(rows, o, self.ranks).contains(&(w as usize))).count();
                4 + mine * (4 + cols * BYTES)
            };
            let out: usize = others(rank).map(|o| nodes.iter().map(|n| slice(o, n.clone())).sum::<usize>()).sum();
            let back = (self.ranks - 1) * slice(rank, 0..self.shares.count());
            let messages = (self.ranks - 1) as u64;
            if messages > 0 {
                counts.insert(Topic::SUMMANDS.group(i), Count { messages, bytes: out as u64 });
                counts.insert(Topic::SUMS.group(i), Count { messages, bytes: back as u64 });
            }
        }
        counts
    }

    /// Lists of `n` numbers a share from all ranks: ⌈log₂ R⌉ messages; each rank's list but one's own passes by.
    fn gather(&self, rank: usize, n: usize) -> Count {
        let mut count = Count::default();
        let list = |r: usize| 8 + share(self.shares.count(), r % self.ranks, self.ranks).len() * n * 8;
        let mut have = 1;
        while have < self.ranks {
            let sent = have.min(self.ranks - have);
            count.messages += 1;
            count.bytes += (rank..rank + sent).map(list).sum::<usize>() as u64;
            have += sent;
        }
        count
    }
}

/// What a window of one of the cases sends beside the gradient.
#[derive(Default)]
struct Traffic {
    /// Boundaries forward (end states, or where targets begin; gradients) and back.
    ends: usize,
    gradients: usize,
    starts: usize,
    /// The end of a window, to the first rank; the state in which it begins, to all; pulls behind the window before.
    carried: usize,
    broadcasts: usize,
    pulls: usize,
    /// Scans from the first rank and from the last; solutions for which ranks take turns.
    scans: [usize; 2],
    turns: usize,
    /// Numbers a share in lists: the sums of a window, and two for each sweep or state step with a tolerance.
    lists: Vec<usize>,
}

/// Messages and bytes of `reach` (n state steps on held starts), of ADMM, of scans, stored pulls and newton are those of the formula, on
/// every rank.
#[test]
fn messages_and_bytes_are_those_of_the_formula() {
    let (streams, blocks, block, steps) = (2, 13, 2, 3);
    let text = tokens(streams * blocks * block * 2 + 1);
    let model = Model::<f32>::new(small(CellKind::Lstm, 2, false));
    let states = StateConfig { steps, rate: 0.1, ..plain(1, 1, 1).states };
    let reach = BtpropConfig { starts: Starts::Held, states, ..plain(streams, blocks, block) };
    let admm = Solver::Admm { duals: duals(0.5), before_theta: false };
    let sweeps = BtpropConfig {
        solver: admm,
        init: Init::Parallel { sweeps: 2 },
        states: StateConfig { tolerance: 1e-9, ..states },
        starts: Starts::Moving,
        ..reach.clone()
    };
    let carried = Init::Carried { sweeps: 2 };
    let scan = BtpropConfig { scan: Scan::Both, init: carried, sweep_tolerance: 1e-9, ..reach.clone() };
    let inexact = BtpropConfig { init: Init::Parallel { sweeps: 2 }, ..reach.clone() };
    let resting = BtpropConfig { states: StateConfig { steps: 0, ..states }, ..inexact.clone() };
    let stored = BtpropConfig { scan: Scan::Pulls, pulls: Pulls::Stored, ..reach.clone() };
    let newton = StateConfig { rule: StateRule::Newton, ..states };
    let newton =
        BtpropConfig { starts: Starts::Moving, states: newton, scan: Scan::Starts, init: carried, ..reach.clone() };
    let bptt = MethodConfig::Bptt(BpttConfig { window: 2, streams: 13, batch: Batch::Mini { accumulate: 1 } });
    let window = || vec![8 + block];
    let plain = || Traffic { gradients: steps, starts: 1 + steps, carried: 1, lists: window(), ..Traffic::default() };
    let aimed = || Traffic { ends: 1, starts: steps, ..plain() };
    let cases = [
        ("reach", MethodConfig::Btprop(reach), Traffic { ends: 1, ..plain() }),
        ("admm", MethodConfig::Btprop(sweeps), Traffic { ends: 2, lists: vec![8 + block, 2, 2, 2], ..plain() }),
        ("not exact", MethodConfig::Btprop(inexact), Traffic { ends: 2 + 1, ..aimed() }),
        ("at rest", MethodConfig::Btprop(resting), Traffic { ends: 2, gradients: 0, starts: 0, ..plain() }),
        ("scan", MethodConfig::Btprop(scan), {
            Traffic { broadcasts: 1, scans: [2, steps], lists: vec![8 + block, 2, 2], ..aimed() }
        }),
        ("stored", MethodConfig::Btprop(stored), Traffic { ends: 1 + 1, pulls: steps, scans: [0, steps], ..aimed() }),
        ("newton", MethodConfig::Btprop(newton), Traffic { broadcasts: 1, scans: [2, 0], turns: steps, ..plain() }),
        ("bptt", bptt, Traffic { lists: vec![2 + 1], ..Traffic::default() }),
    ];
    for (name, method, traffic) in cases {
        for ranks in 1..=5 {
            let counts = on_ranks(ranks, |comm| {
                let data = Data::new(&text, &[], &[]);
                let comm = Counted::new(comm);
                let mut trainer = Trainer::new(&model, data, config(method.clone()), &comm).unwrap();
                // The second window, before which there is one.
                updates(&mut trainer, 1);
                comm.take_counts();
                updates(&mut trainer, 1);
                comm.take_counts()
            });
            let things = if name == "bptt" { 13 } else { blocks };
            let shares = Shares::deal(&Team::in_shares(ranks, SHARES)[0] as &dyn Comm, things, Unit::Blocks).unwrap();
            let at = if name == "bptt" { 2 } else { blocks * block };
            let words = (0..shares.count()).map(|i| words(&text, &method, at, shares.of(i))).collect();
            let formula = Formula { model: &model, shares, words, ranks };
            let vector = streams * model.state_width() * BYTES;
            for (rank, counted) in counts.into_iter().enumerate() {
                let mut want = formula.reduction(rank);
                let mut add = |topic, messages: usize, bytes: usize| {
                    let count = want.entry(topic).or_default();
                    count.messages += messages as u64;
                    count.bytes += bytes as u64;
                };
                let (first, last) = (rank == 0, rank + 1 == ranks);
                let times = |n: usize, there: bool| if there { n } else { 0 };
                // A broadcast doubles those who have it.
                let heirs = (0..3).filter(|&i| rank < 1 << i && rank + (1 << i) < ranks).count();
                for (topic, n) in [
                    (Topic::ENDS, times(traffic.ends, !last)),
                    (Topic::GRADIENTS, times(traffic.gradients, !last)),
                    (Topic::STARTS, times(traffic.starts, !first)),
                    (Topic::CARRIED, times(traffic.carried, last && !first)),
                    (Topic::BROADCAST, traffic.broadcasts * heirs),
                    (Topic::PULLS, times(traffic.pulls, first && !last)),
                ] {
                    add(topic, n, n * vector);
                }
                for (order, n) in [Order::Forward, Order::Backward].into_iter().zip(traffic.scans) {
                    let (maps, inputs) = messages(&formula.shares, order, rank, ranks);
                    // Of an LSTM's unit a state has two values and a matrix four.
                    add(Topic::MAPS, n * maps, n * maps * 3 * vector);
                    add(Topic::INPUTS, n * inputs, n * inputs * vector);
                }
                // In f64: a matrix and a vector forward, a vector back.
                let (forward, back) = (times(traffic.turns, !last), times(traffic.turns, !first));
                add(Topic::MAPS, forward, forward * 3 * 2 * vector);
                add(Topic::INPUTS, back, back * 2 * vector);
                for &n in &traffic.lists {
                    let list = formula.gather(rank, n);
                    add(Topic::GATHER, list.messages as usize, list.bytes as usize);
                }
                want.retain(|_, count| count.messages > 0);
                assert_eq!(counted, want, "{name}: rank {rank} of {ranks}");
            }
        }
    }
}

/// Words that the blocks (or streams) `things` of the window at step `at` read.
fn words(
    text: &[u32],
    method: &MethodConfig,
    at: usize,
    things: std::ops::Range<usize>,
) -> std::collections::BTreeSet<u32> {
    let (streams, steps) = (method.streams(), method.block());
    let cut = tprop::window::Streams::new(text, streams);
    let mut words = std::collections::BTreeSet::new();
    for thing in things {
        for step in 0..steps {
            if method.passes().blocks_are_dealt {
                words.extend((0..streams).map(|s| cut.input(s, at + thing * steps + step)));
            } else {
                words.insert(cut.input(thing, at + step));
            }
        }
    }
    words
}
