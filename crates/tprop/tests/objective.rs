//! The objective of a whole window against central differences, in f64: gradients in θ, in starts and targets, and the duals' effect,
//! through every penalty, constraint and kind of boundary. What is not differentiable (box, binary, sparse) has the properties of a
//! projection.
//!
//! Batch mode keeps states over epochs, so a test can put states and duals where it wants them ([`Peek`]) and look at them
//! after one update: with plain steps of rate 1 on the mean gradient, s − s' is ∂L/∂s.

mod common;
use common::*;
use tprop::cell::{Activation, CellKind};
use tprop::comm::Solo;
use tprop::method::*;
use tprop::model::{Model, ModelConfig};
use tprop::objective::{Constraint, Direction, Penalty};
use tprop::rng::Draws;
use tprop::words::Words;

const STREAMS: usize = 2;
const BLOCKS: usize = 3;

fn small(cell: CellKind, layers: usize) -> Model<f64> {
    Model::new(ModelConfig { cell, hidden: 3, embed: 2, layers, init: 0.5, ..ModelConfig::new(5) })
}

/// One window of 2 × 3 blocks in batch mode, with duals that rest.
fn config(block: usize) -> BtpropConfig {
    let states = StateConfig { rate: 1.0, scale: StateScale::Mean, ..plain(STREAMS, BLOCKS, block).states };
    BtpropConfig {
        batch: Batch::Full,
        init: Init::Zero,
        solver: Solver::Admm { duals: duals(0.0), before_theta: false },
        lambda: 0.7,
        states,
        ..plain(STREAMS, BLOCKS, block)
    }
}

/// What a window's objective depends on besides θ. `starts` and `targets` have a slot more per stream than there are blocks.
#[derive(Clone)]
struct Place {
    starts: Vec<f64>,
    targets: Vec<f64>,
    latent: Vec<f64>,
    duals: Vec<f64>,
}

impl Place {
    fn random(model: &Model<f64>, config: &BtpropConfig) -> Self {
        let (width, rows) = (model.state_width(), STREAMS * BLOCKS);
        let draw = |purpose: &str, n: usize| -> Vec<f64> {
            let draws = Draws::new(3, purpose);
            (0..n as u64).map(|i| draws.within(i, 0.9)).collect()
        };
        let mut place = Self {
            starts: draw("starts", (rows + STREAMS) * width),
            targets: draw("targets", (rows + STREAMS) * width),
            latent: draw("latent", (rows + STREAMS) * width),
            duals: draw("duals", rows * width),
        };
        if config.first == First::Fixed {
            place.starts[..STREAMS * width].fill(model.initial_state());
        }
        if config.constraint == Constraint::Tanh {
            place.squash(model);
        }
        place
    }

    /// s = tanh z in every h that may move, s = z elsewhere; the targets, if the starts are held, likewise.
    fn squash(&mut self, model: &Model<f64>) {
        let width = model.state_width();
        for i in STREAMS * width..self.starts.len() {
            let s = if model.is_h(i % width) { self.latent[i].tanh() } else { self.latent[i] };
            (self.starts[i], self.targets[i]) = (s, s);
        }
    }
}

/// A method that has been through its first epoch, and so takes states as they are put.
struct Lab<'a> {
    learner: Learner<'a, f64>,
    method: Box<dyn Method<f64>>,
}

impl<'a> Lab<'a> {
    fn new(model: &'a Model<f64>, config: &BtpropConfig, tokens: &'a [u32], rate: f64) -> Self {
        let mut l = learner(model, model.initial(1), tokens, &Solo);
        l.optimiser.rate = 0.0;
        let mut method = MethodConfig::Btprop(config.clone()).build(&l).unwrap();
        method.begin_epoch(&l, 1);
        update(&mut *method, &mut l);
        l.optimiser.rate = rate;
        Self { learner: l, method }
    }

    /// One update from the given place.
    fn update(&mut self, place: &Place) -> Update {
        let mut peek = Peek::default();
        for (name, values) in
            [("starts", &place.starts), ("targets", &place.targets), ("latent", &place.latent), ("duals", &place.duals)]
        {
            peek.set.insert(format!("btprop.{name}"), values.clone());
        }
        self.method.visit(&mut peek);
        self.method.begin_epoch(&self.learner, 2);
        update(&mut *self.method, &mut self.learner)
    }

    fn objective(&mut self, place: &Place) -> f64 {
        self.update(place).coupling.unwrap().objective
    }

    fn look(&mut self, name: &str) -> Vec<f64> {
        let mut peek = Peek::default();
        self.method.visit(&mut peek);
        peek.got.remove(&format!("btprop.{name}")).unwrap_or_else(|| panic!("{name} is not kept"))
    }
}

/// Fourth-order central difference.
fn derivative(mut f: impl FnMut(f64) -> f64) -> f64 {
    let e = 1e-4;
    (8.0 * (f(e) - f(-e)) - (f(2.0 * e) - f(-2.0 * e))) / (12.0 * e)
}

#[track_caller]
fn assert_close(what: &str, ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    let error: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a - b).collect();
    let relative = norm(&error) / norm(theirs).max(1e-3);
    assert!(relative <= 1e-7, "{what}: relative error {relative:e}");
}

/// Everything that one configuration can be asked.
fn check(name: &str, model: &Model<f64>, config: &BtpropConfig) {
    let text: Vec<u32> = tokens(STREAMS * BLOCKS * config.block + 1).into_iter().map(|t| t % 5).collect();
    let place = Place::random(model, config);
    let width = model.state_width();
    let mut still = Lab::new(model, config, &text, 0.0);

    // θ, tensor by tensor, each along two directions.
    let theta = still.learner.params.clone();
    let mut taught = Lab::new(model, config, &text, 1.0);
    taught.update(&place);
    let gradient = difference(&theta, &taught.learner.params);
    for entry in model.shapes().entries() {
        let draws = Draws::new(9, &entry.name);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for turn in 0..2 {
            let direction: Vec<f64> = entry.range().map(|i| draws.within((2 * i + turn) as u64, 1.0)).collect();
            ours.push(dot(&gradient[entry.range()], &direction));
            theirs.push(derivative(|e| {
                let moved = entry.range().zip(&direction);
                moved.for_each(|(i, d)| still.learner.params.all_mut()[i] = theta.all()[i] + e * d);
                still.objective(&place)
            }));
            still.learner.params.all_mut().copy_from_slice(theta.all());
        }
        assert_close(&format!("{name}: {}", entry.name), &ours, &theirs);
    }

    // States: one step shows the gradient of all that may move, and the rest must not have moved.
    let held = config.starts == Starts::Held;
    let squashed = config.constraint == Constraint::Tanh;
    let moving = BtpropConfig { states: StateConfig { steps: 1, ..config.states }, ..config.clone() };
    let mut mover = Lab::new(model, &moving, &text, 0.0);
    mover.update(&place);
    let (variable, before) = match (squashed, held) {
        (true, _) => ("latent", &place.latent),
        (false, true) => ("targets", &place.targets),
        (false, false) => ("starts", &place.starts),
    };
    let after = mover.look(variable);
    let rows = STREAMS * BLOCKS;
    for q in 0..rows + STREAMS {
        let free = match q {
            _ if q < STREAMS => config.first == First::Free && !held,
            _ if q >= rows => config.last == Last::Free0 || config.loss == LossOn::Free,
            _ => true,
        };
        let at = q * width..(q + 1) * width;
        let moved: Vec<f64> = before[at.clone()].iter().zip(&after[at.clone()]).map(|(a, b)| a - b).collect();
        if !free {
            assert!(moved.iter().all(|&m| m == 0.0), "{name}: state {q} has moved");
            continue;
        }
        let differences: Vec<f64> = at
            .map(|i| {
                derivative(|e| {
                    let mut place = place.clone();
                    if squashed {
                        place.latent[i] += e;
                        place.squash(model);
                    } else {
                        // Held: the gradient at the start and that of the target move the target together.
                        place.starts[i] += e;
                        place.targets[i] += e;
                    }
                    still.objective(&place)
                })
            })
            .collect();
        assert_close(&format!("{name}: state {q}"), &moved, &differences);
    }

    // Held: starts and targets one by one.
    if held && !squashed {
        // The θ pass after the step has seen the moved targets.
        still.update(&place);
        let (d_start, d_target) = (mover.look("d_start"), still.look("d_target"));
        let (mut starts, mut targets) = (Vec::new(), Vec::new());
        for (i, &here) in d_start.iter().enumerate() {
            let along = |still: &mut Lab, pick: fn(&mut Place) -> &mut Vec<f64>, i: usize| {
                derivative(|e| {
                    let mut place = place.clone();
                    pick(&mut place)[i] += e;
                    still.objective(&place)
                })
            };
            // The first starts are what the window before left; nobody may put them elsewhere.
            let first = config.first == First::Fixed && i < STREAMS * width;
            starts.push(if first { here } else { along(&mut still, |p| &mut p.starts, i) });
            targets.push(along(&mut still, |p| &mut p.targets, i + STREAMS * width));
        }
        assert_close(&format!("{name}: starts alone"), &d_start, &starts);
        assert_close(&format!("{name}: targets alone"), &d_target, &targets);
    }

    // Duals: ∂L/∂u = λ r / (S·M), and a dual step of rate 1 moves by r.
    let solver = Solver::Admm { duals: duals(1.0), before_theta: false };
    let mut raiser = Lab::new(model, &BtpropConfig { solver, ..config.clone() }, &text, 0.0);
    raiser.update(&place);
    let raised = raiser.look("duals");
    let differences: Vec<f64> = (0..place.duals.len())
        .map(|i| {
            derivative(|e| {
                let mut place = place.clone();
                place.duals[i] += e;
                still.objective(&place)
            })
        })
        .collect();
    let r: Vec<f64> = raised.iter().zip(&place.duals).map(|(a, b)| (a - b) * config.lambda / rows as f64).collect();
    assert_close(&format!("{name}: duals"), &r, &differences);
}

/// Penalties, constraints and boundaries; each cell meets all of them.
fn variants() -> Vec<(&'static str, BtpropConfig)> {
    let (forward, reverse) = (Direction::Forward, Direction::Reverse);
    let held = |c: BtpropConfig| BtpropConfig { starts: Starts::Held, init: Init::Stored { sweeps: 0 }, ..c };
    let free = BtpropConfig { loss: LossOn::Free, ..config(1) };
    let tanh = BtpropConfig { constraint: Constraint::Tanh, ..config(2) };
    let list = [
        ("l2, first free, last free0", BtpropConfig { first: First::Free, last: Last::Free0, ..config(3) }),
        ("l2, last zero", BtpropConfig { last: Last::Zero, ..config(2) }),
        ("reverse kl, last free0", BtpropConfig { penalty: Penalty::Kl(reverse), last: Last::Free0, ..config(2) }),
        ("l2+kl, first free", BtpropConfig { penalty: Penalty::L2Kl(forward), first: First::Free, ..config(1) }),
        ("reverse l2+kl, last zero", BtpropConfig { penalty: Penalty::L2Kl(reverse), last: Last::Zero, ..config(2) }),
        ("held", held(config(2))),
        ("held, last free0", held(BtpropConfig { last: Last::Free0, ..config(2) })),
        ("held, kl", held(BtpropConfig { penalty: Penalty::Kl(forward), ..config(2) })),
        ("free loss", free.clone()),
        ("free loss, held, l2+kl", held(BtpropConfig { penalty: Penalty::L2Kl(reverse), ..free })),
        ("tanh", tanh.clone()),
        ("tanh, kl, last free0", BtpropConfig { penalty: Penalty::Kl(reverse), last: Last::Free0, ..tanh }),
        ("a word without weight", BtpropConfig { ignore: Ignore::Token(1), ..config(2) }),
    ];
    let penalties = Penalty::WORDS.iter().map(|&word| {
        let penalty = word.parse().unwrap();
        (word, BtpropConfig { penalty, ..config(2) })
    });
    penalties.chain(list).collect()
}

#[test]
fn window_objective_agrees_with_central_differences() {
    for cell in CellKind::ALL {
        for layers in [1, 2] {
            let model = small(cell, layers);
            for (name, config) in variants() {
                check(&format!("{cell:?} × {layers}, {name}"), &model, &config);
            }
        }
    }
}

/// One state step with and without a constraint from the same place. Returns (free to go, confined, z).
fn projected(model: &Model<f64>, constraint: Constraint, rate: f64, place: &Place) -> [Vec<f64>; 2] {
    let text: Vec<u32> = tokens(STREAMS * BLOCKS * 2 + 1).into_iter().map(|t| t % 5).collect();
    [Constraint::None, constraint].map(|constraint| {
        let states = StateConfig { steps: 1, rate, ..config(2).states };
        let mut lab = Lab::new(model, &BtpropConfig { constraint, states, ..config(2) }, &text, 0.0);
        lab.update(place);
        lab.look("starts")
    })
}

/// (state, component) of every value that may move.
fn movable(model: &Model<f64>) -> impl Iterator<Item = (usize, usize)> {
    let width = model.state_width();
    (STREAMS * width..STREAMS * BLOCKS * width).map(move |i| (i, i % width))
}

fn projection_models() -> [Model<f64>; 3] {
    [small(CellKind::Gru, 1), small(CellKind::Lstm, 2), small(CellKind::Elman(Activation::Sigmoid), 2)]
}

#[test]
fn the_box_takes_the_nearest_point() {
    for model in projection_models() {
        let place = Place::random(&model, &config(2));
        let [loose, inside] = projected(&model, Constraint::Box, 20.0, &place);
        let mut cut = 0;
        for (i, j) in movable(&model) {
            // Component by component, the nearest point of an interval; c may be anywhere.
            let nearest = if model.is_h(j) { loose[i].clamp(-1.0, 1.0) } else { loose[i] };
            assert_eq!(inside[i], nearest);
            cut += usize::from(nearest != loose[i]);
        }
        assert!(cut > 0, "nothing left the box, so nothing was tested");
        // A point of the set stays where it is.
        let place = Place { starts: inside.clone(), ..place };
        assert_eq!(projected(&model, Constraint::Box, 0.0, &place)[1], inside);
    }
}

#[test]
fn sparse_states_keep_their_largest_components() {
    for model in projection_models() {
        for k in [0, 1, 2, 3, 5] {
            let place = Place::random(&model, &config(2));
            let [loose, inside] = projected(&model, Constraint::Sparse(k), 0.5, &place);
            for q in STREAMS..STREAMS * BLOCKS {
                for layer in 0..model.config().layers {
                    let at = q * model.state_width() + layer * model.layer_width();
                    let (h, rest) = (at..at + 3, at + 3..at + model.layer_width());
                    assert_eq!(inside[rest.clone()], loose[rest], "c is left alone");
                    let kept: Vec<usize> = h.clone().filter(|&i| inside[i] != 0.0).collect();
                    assert_eq!(kept.len(), k.min(3));
                    let least = kept.iter().map(|&i| loose[i].abs()).fold(f64::INFINITY, f64::min);
                    for i in h {
                        assert!(inside[i] == 0.0 || inside[i] == loose[i], "what is kept is kept as it is");
                        assert!(kept.contains(&i) || loose[i].abs() <= least, "a larger one was dropped");
                    }
                }
            }
            let place = Place { starts: inside.clone(), ..place };
            assert_eq!(projected(&model, Constraint::Sparse(k), 0.0, &place)[1], inside);
        }
    }
}

#[test]
fn binary_states_are_signs_and_gradients_pass_straight_through() {
    for model in projection_models() {
        let text: Vec<u32> = tokens(STREAMS * BLOCKS * 2 + 1).into_iter().map(|t| t % 5).collect();
        let mut place = Place::random(&model, &config(2));
        for (i, j) in movable(&model) {
            place.starts[i] = if model.is_h(j) { place.latent[i].signum() } else { place.latent[i] };
        }
        let states = StateConfig { steps: 1, rate: 5.0, ..config(2).states };
        let binary = BtpropConfig { constraint: Constraint::Binary, states, ..config(2) };
        let mut lab = Lab::new(&model, &binary, &text, 0.0);
        lab.update(&place);
        let (z, s) = (lab.look("latent"), lab.look("starts"));
        let [loose, _] = projected(&model, Constraint::None, 5.0, &place);
        let (mut flipped, mut kept) = (0, 0);
        for (i, j) in movable(&model) {
            let (by_z, by_s) = (place.latent[i] - z[i], place.starts[i] - loose[i]);
            assert!((by_z - by_s).abs() <= 1e-12 * (1.0 + by_s.abs()), "z moves as s would: {by_z} {by_s}");
            if model.is_h(j) {
                assert_eq!(s[i], z[i].signum());
                flipped += usize::from(s[i] != place.starts[i]);
                kept += usize::from(z[i] != s[i]);
            } else {
                assert_eq!(s[i], z[i], "c is left alone");
            }
        }
        assert!(flipped > 0 && kept > 0, "no sign has changed, so nothing was tested");
    }
}

/// The slot behind the last block begins at 0 for `zero` and `free0`, and an init leaves every state where the constraint allows.
#[test]
fn an_init_ends_inside_the_constraint() {
    for model in projection_models() {
        let text: Vec<u32> = tokens(STREAMS * BLOCKS * 2 + 1).into_iter().map(|t| t % 5).collect();
        let width = model.state_width();
        for constraint in
            [Constraint::None, Constraint::Tanh, Constraint::Box, Constraint::Binary, Constraint::Sparse(1)]
        {
            for last in [Last::None, Last::Zero, Last::Free0] {
                let config = BtpropConfig { constraint, last, init: Init::Sequential, ..config(2) };
                let mut lab = Lab::new(&model, &config, &text, 0.0);
                let s = lab.look("starts");
                for (i, j) in movable(&model).filter(|&(_, j)| model.is_h(j)) {
                    match constraint {
                        Constraint::None | Constraint::Box | Constraint::Tanh => assert!(s[i].abs() <= 1.0),
                        Constraint::Binary => assert_eq!(s[i].abs(), 1.0),
                        Constraint::Sparse(k) => {
                            let h = i - j % model.layer_width()..i - j % model.layer_width() + 3;
                            assert!(s[h].iter().filter(|&&v| v != 0.0).count() <= k);
                        }
                    }
                }
                let behind = &s[STREAMS * BLOCKS * width..];
                let signed = constraint == Constraint::Binary && last == Last::Free0;
                if last != Last::None && !signed {
                    assert!(behind.iter().all(|&v| v == 0.0), "{constraint:?} {last:?}");
                }
            }
        }
    }
}

/// λ = 0 is a setting like any other: duals that are kept over epochs stay finite, and nothing is pulled.
#[test]
fn without_lambda_stored_duals_do_no_harm() {
    let model = small(CellKind::Gru, 1);
    let text: Vec<u32> = tokens(121).into_iter().map(|t| t % 5).collect();
    let trained = |solver, batch, lambda_schedule| {
        let states = StateConfig { steps: 1, ..config(2).states };
        let config = BtpropConfig { solver, batch, lambda_schedule, lambda: 0.0, states, ..config(2) };
        let mut l = learner(&model, model.initial(1), &text, &Solo);
        l.optimiser.rate = 0.1;
        let mut method = MethodConfig::Btprop(config).build(&l).unwrap();
        for epoch in 1..=3 {
            method.begin_epoch(&l, epoch);
            while let Advance::Update(update) = method.advance(&mut l, &mut || false) {
                assert!(update.norm.is_finite());
            }
        }
        l.params.all().to_vec()
    };
    for batch in [Batch::Full, Batch::Mini { accumulate: 1 }] {
        for schedule in [LambdaSchedule::Constant, LambdaSchedule::Geometric(2.0), LambdaSchedule::Balance(2.0)] {
            let admm = Solver::Admm { duals: duals(0.5), before_theta: false };
            assert_eq!(trained(admm, batch, schedule), trained(Solver::Penalty, batch, schedule));
        }
    }
}
