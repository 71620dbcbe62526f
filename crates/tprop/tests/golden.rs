//! PyTorch's numbers: cells, optimisers alone, whole training steps, the KL penalty (see golden/README.md).
//!
//! A distance is absolute, or relative to the largest entry of the tensor where that is above 1.

use std::path::Path;

use safetensors::{Dtype, SafeTensors};
use tprop::cell::{Activation, CellKind};
use tprop::comm::Solo;
use tprop::mat::{Mat, MatMut, Packed, Start, product};
use tprop::method::{Advance, Batch, BpttConfig, MethodConfig};
use tprop::model::{Model, ModelConfig};
use tprop::objective::{Boundary, BoundaryGrads, Coupler, CouplingWeight, Direction, Penalty};
use tprop::optim::{OptimConfig, Optimiser, Rule};
use tprop::params::{Grads, Params, Shapes};
use tprop::real::Real;
use tprop::train::{Data, TrainConfig, Trainer};
use tprop::window::Layout;

/// One file of golden/.
struct Golden {
    name: String,
    bytes: Vec<u8>,
}

impl Golden {
    fn open(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.safetensors"));
        Self { name: name.into(), bytes: std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display())) }
    }

    fn file(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).unwrap()
    }

    fn get(&self, tensor: &str) -> Vec<f64> {
        let view = self.file();
        let view = view.tensor(tensor).unwrap_or_else(|e| panic!("{}: {tensor}: {e}", self.name));
        let bytes = view.data();
        match view.dtype() {
            Dtype::F64 => bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
            Dtype::F32 => bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect(),
            Dtype::I64 => bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect(),
            other => panic!("{}: {tensor} is {other:?}", self.name),
        }
    }

    fn one(&self, tensor: &str) -> f64 {
        self.get(tensor)[0]
    }

    fn real<T: Real>(&self, tensor: &str) -> Vec<T> {
        self.get(tensor).into_iter().map(T::of).collect()
    }

    fn tokens(&self, tensor: &str) -> Vec<u32> {
        self.get(tensor).into_iter().map(|t| t as u32).collect()
    }

    fn fill<T: Real>(&self, prefix: &str, params: &mut Params<T>) {
        let shapes = params.shapes().clone();
        for (entry, id) in shapes.entries().iter().zip(shapes.ids()) {
            params.get_mut(id).copy_from_slice(&self.real(&format!("{prefix}{}", entry.name)));
        }
    }

    #[track_caller]
    fn compare<T: Real>(&self, tensor: &str, ours: &[T], tolerance: f64) {
        let theirs = self.get(tensor);
        assert_eq!(ours.len(), theirs.len(), "{}: {tensor}", self.name);
        let largest = theirs.iter().fold(1.0f64, |m, x| m.max(x.abs()));
        for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            let distance = (a.f64() - b).abs() / largest;
            assert!(distance <= tolerance, "{}: {tensor}[{i}]: {a} instead of {b} ({distance:e})", self.name);
        }
    }

    #[track_caller]
    fn compare_params<T: Real>(&self, prefix: &str, ours: &Params<T>, tolerance: f64) {
        let shapes = ours.shapes().clone();
        for (entry, id) in shapes.entries().iter().zip(shapes.ids()) {
            self.compare(&format!("{prefix}{}", entry.name), ours.get(id), tolerance);
        }
    }
}

const ROWS: usize = 4;
const STEPS: usize = 6;

fn cell(name: &str) -> CellKind {
    match name {
        "elman" => CellKind::Elman(Activation::Tanh),
        "gru" => CellKind::Gru,
        "lstm" => CellKind::Lstm,
        other => panic!("{other}"),
    }
}

/// The forward and both backwards of one cell file.
fn cells<T: Real>(name: &str, kind: CellKind, layers: usize, tied: bool, tolerance: f64) {
    let golden = Golden::open(name);
    let (vocab, hidden, embed) = (11, 7, if tied { 7 } else { 5 });
    let model = Model::<T>::new(ModelConfig { cell: kind, hidden, embed, layers, tied, ..ModelConfig::new(vocab) });
    let mut params = Params::zeros(model.shapes());
    golden.fill("", &mut params);
    let mut tape = model.tape(Layout::new(ROWS, STEPS));
    // The files go step by step, as a tape of a single group does.
    assert_eq!(tape.layout().groups(), 1);
    (tape.inputs, tape.targets) = (golden.tokens("tokens"), golden.tokens("targets"));
    model.prepare(&params, &mut tape);
    model.recur(&params, &mut tape, &golden.real("start"));

    let mut ends = vec![T::ZERO; ROWS * model.state_width()];
    model.ends(&tape, &mut ends);
    golden.compare("end", &ends, tolerance);

    let (weight, bias) = model.output_ids();
    let mut packed = Packed::default();
    packed.pack(Mat::new(params.get(weight), vocab, hidden).t());
    let mut logits = vec![T::ZERO; ROWS * STEPS * vocab];
    let top = Mat::new(tape.top(), ROWS * STEPS, hidden);
    product(MatMut::new(&mut logits, ROWS * STEPS, vocab), Start::Bias(params.get(bias)), top, &packed);
    golden.compare("logits", &logits, tolerance);
    let mut log_probs = vec![T::ZERO; logits.len()];
    let top: Vec<T> = tape.top().to_vec();
    let top = Mat::new(&top, ROWS * STEPS, hidden);
    tape.softmax.log_probs(&mut log_probs, top, params.get(weight), params.get(bias));
    for (ours, theirs) in log_probs.chunks(vocab).zip(golden.get("logits").chunks(vocab)) {
        let log_z = theirs.iter().map(|l| l.exp()).sum::<f64>().ln();
        for (a, b) in ours.iter().zip(theirs) {
            assert!((a.f64() - (b - log_z)).abs() <= tolerance, "{name}: log-probability {a} instead of {}", b - log_z);
        }
    }

    let nats = model.nats(&params, &mut tape);
    golden.compare("nats", &[nats], tolerance);
    let pull: Vec<T> = golden.real("d_end");
    for (prefix, d_end) in [("grad.", None), ("pull.grad.", Some(&pull[..]))] {
        let mut grads = model.grads();
        let nats = model.loss(&params, &mut tape, T::ONE, None, Some(&mut grads));
        golden.compare("nats", &[nats], tolerance);
        let mut d_start = vec![T::ZERO; ends.len()];
        model.backward(&params, &mut tape, true, d_end, Some(&mut d_start), Some(&mut grads));
        grads.settle();
        golden.compare_params(prefix, grads.values(), tolerance);
        golden.compare(&format!("{prefix}start"), &d_start, tolerance);
    }
}

#[test]
fn cells_agree_with_pytorch() {
    for kind in ["elman", "gru", "lstm"] {
        for layers in [1, 2] {
            let name = format!("cells_{kind}_{layers}");
            cells::<f64>(&name, cell(kind), layers, false, 1e-10);
            cells::<f32>(&format!("{name}_f32"), cell(kind), layers, false, 1e-5);
        }
    }
    cells::<f64>("cells_gru_1_tied", CellKind::Gru, 1, true, 1e-10);
    cells::<f32>("cells_gru_1_tied_f32", CellKind::Gru, 1, true, 1e-5);
}

const RULES: [&str; 6] = ["sgd", "nag", "adagrad", "rmsprop", "adadelta", "adam"];

/// The rule and rate that a file was made with.
fn rule(golden: &Golden, name: &str) -> (Rule, f64) {
    let h = |key: &str| golden.one(&format!("hyper.{key}"));
    let rule = match name {
        "sgd" => Rule::Sgd,
        "nag" => Rule::Nag { momentum: h("momentum") },
        "adagrad" => Rule::Adagrad { eps: h("eps") },
        "rmsprop" => Rule::Rmsprop { alpha: h("alpha"), eps: h("eps") },
        "adadelta" => Rule::Adadelta { rho: h("rho"), eps: h("eps") },
        "adam" => Rule::Adam { beta1: h("beta1"), beta2: h("beta2"), eps: h("eps") },
        other => panic!("{other}"),
    };
    (rule, h("lr"))
}

fn optimiser<T: Real>(file: &str, name: &str, tolerance: f64) {
    let golden = Golden::open(file);
    let mut shapes = Shapes::default();
    let id = shapes.vector("p", 50);
    let shapes = shapes.into();
    let (rule, rate) = rule(&golden, name);
    let mut optimiser = Optimiser::<T>::new(OptimConfig { rule, rate, clip: 0.0 }, &shapes);
    let mut params = Params::zeros(&shapes);
    params.get_mut(id).copy_from_slice(&golden.real("p0"));
    let mut grads = Grads::new(&shapes, None);
    for step in 1..=5 {
        grads.clear();
        // Half the gradient with factor 2: the factor belongs to the gradient, not to the rate.
        let half = T::of(0.5);
        let g: Vec<T> = golden.real(&format!("g{step}"));
        grads.sum_into(id).iter_mut().zip(g).for_each(|(to, g)| *to = half * g);
        grads.settle();
        optimiser.update(&mut params, &grads, 2.0);
        golden.compare(&format!("p{step}"), params.get(id), tolerance);
    }
}

#[test]
fn optimisers_agree_with_pytorch() {
    for name in RULES {
        optimiser::<f64>(&format!("optim_{name}"), name, 1e-12);
        optimiser::<f32>(&format!("optim_{name}_f32"), name, 1e-6);
    }
}

/// Truncated BPTT through the trainer, from the file's weights and text.
fn steps(file: &str, kind: &str, layers: usize, name: &str) {
    let golden = Golden::open(file);
    let vocab = golden.get("init.out.bias").len();
    let config = ModelConfig { cell: cell(kind), hidden: 7, embed: 5, layers, ..ModelConfig::new(vocab) };
    let model = Model::<f64>::new(config);
    let (rule, rate) = rule(&golden, name);
    let corpus = golden.tokens("corpus");
    let train = TrainConfig {
        method: MethodConfig::Bptt(BpttConfig { window: STEPS, streams: ROWS, batch: Batch::Mini { accumulate: 1 } }),
        optim: OptimConfig { rule, rate, clip: golden.one("hyper.clip") },
        epochs: 1,
        patience: 0,
        eval_streams: 1,
        ..TrainConfig::default()
    };
    let data = Data::new(&corpus, &[], &[]);
    let mut trainer = Trainer::new(&model, data, train, &Solo).unwrap();
    golden.fill("init.", trainer.params_mut());
    let (mut losses, mut norms, mut states) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        match trainer.advance(&mut || false) {
            Advance::Update(update) => {
                losses.push(update.nats / update.tokens as f64);
                norms.push(update.norm);
                let snapshot = trainer.snapshot();
                let carried = snapshot.tensor("bptt.carried").unwrap();
                let mut values = vec![0.0; ROWS * model.state_width()];
                f64::read_le(&carried.bytes, &mut values);
                states.extend(values);
            }
            Advance::EpochEnd => break,
            other => panic!("{file}: {other:?}"),
        }
    }
    golden.compare("losses", &losses, 1e-9);
    golden.compare("norms", &norms, 1e-9);
    golden.compare("states", &states, 1e-9);
    golden.compare("end", &states[states.len() - ROWS * model.state_width()..], 1e-9);
    golden.compare_params("final.", trainer.params(), 1e-9);
}

#[test]
fn whole_training_steps_agree_with_pytorch() {
    for name in RULES {
        steps(&format!("steps_gru_{name}"), "gru", 1, name);
    }
    steps("steps_elman_adagrad", "elman", 2, "adagrad");
    steps("steps_lstm_adagrad", "lstm", 2, "adagrad");
    // A vocabulary larger than a window: rows of the embedding rest while their word does not occur.
    steps("steps_gru_adagrad_long", "gru", 1, "adagrad");
    steps("steps_gru_sgd_long", "gru", 1, "sgd");
}

#[test]
fn the_kl_penalty_agrees_with_pytorch() {
    let golden = Golden::open("kl");
    let model = Model::<f64>::new(ModelConfig { hidden: 7, embed: 5, ..ModelConfig::new(11) });
    let (weight, bias) = model.output_ids();
    let mut params = Params::zeros(model.shapes());
    params.get_mut(weight).copy_from_slice(&golden.get("out.weight"));
    params.get_mut(bias).copy_from_slice(&golden.get("out.bias"));
    let (ends, targets) = (golden.get("F"), golden.get("s"));
    let (lambda, scale) = (0.8, 1.25); // their product is 1
    for (prefix, direction) in [("forward", Direction::Forward), ("reverse", Direction::Reverse)] {
        let mut grads = model.grads();
        let (mut d_end, mut d_target) = (vec![0.0; ends.len()], vec![0.0; ends.len()]);
        let boundary = Boundary { ends: &ends, targets: &targets, duals: None };
        let coupling = CouplingWeight { lambda, scale, counted: 5 };
        let all = BoundaryGrads { ends: &mut d_end, targets: &mut d_target, theta: Some(&mut grads) };
        let sums = Coupler::new(Penalty::Kl(direction)).pull(&model, &params, boundary, coupling, all);
        grads.settle();
        golden.compare(&format!("{prefix}.kl"), &[sums.penalty / lambda], 1e-12);
        golden.compare(&format!("{prefix}.grad.F"), &d_end, 1e-12);
        golden.compare(&format!("{prefix}.grad.s"), &d_target, 1e-12);
        golden.compare(&format!("{prefix}.grad.out.weight"), grads.values().get(weight), 1e-12);
        golden.compare(&format!("{prefix}.grad.out.bias"), grads.values().get(bias), 1e-12);
    }
}
