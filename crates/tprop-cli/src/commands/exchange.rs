//! `export` and `import`: weights under PyTorch's names, so that `torch.nn.GRU`, `LSTM`, `RNN`, `Embedding` and `Linear`
//! load them without a converter.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use tprop::cell::{Activation, CellKind};
use tprop::checkpoint::{Kind, Snapshot, SnapshotWriter, visit_params};
use tprop::file;
use tprop::model::{Model, ModelConfig};
use tprop::params::Params;

use crate::args;
use crate::console::{self, grouped};
use crate::disk;
use crate::failure::{Failure, Outcome};
use crate::run::{Loaded, Run, read_vocab};
use crate::settings::{Settings, Typed};

const WEIGHTS: &str = "model.safetensors";
const TOKENIZER: &str = "tokenizer.json";
const CONFIG: &str = "config.json";
/// Longest header of a safetensors file, in bytes; a model has a few dozen tensors of a hundred bytes each.
const HEADER: u64 = 1 << 20;

/// What the tensors alone do not say, and what is pleasant to know.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Shape {
    cell: Option<String>,
    activation: Option<String>,
    vocab: Option<usize>,
    embed: Option<usize>,
    hidden: Option<usize>,
    layers: Option<usize>,
    tied: Option<bool>,
}

impl Shape {
    fn of(config: &ModelConfig) -> Self {
        let activation = match config.cell {
            CellKind::Elman(Activation::Sigmoid) => Some("sigmoid".to_owned()),
            CellKind::Elman(Activation::Tanh) => Some("tanh".to_owned()),
            _ => None,
        };
        Self {
            cell: Some(config.cell.name().to_owned()),
            activation,
            vocab: Some(config.vocab),
            embed: Some(config.embed),
            hidden: Some(config.hidden),
            layers: Some(config.layers),
            tied: Some(config.tied),
        }
    }
}

/// Writes weights, vocabulary and shape.
pub fn export(args: &args::Export) -> Outcome {
    let loaded = Loaded::open(&args.weights.run, args.weights.checkpoint.as_deref())?;
    file::create_dir_all(&args.out).map_err(|e| Failure::disk(&args.out, &e))?;
    let shape = Shape::of(loaded.model.config());
    let write = |name: &str, bytes: &[u8]| {
        let path = args.out.join(name);
        disk::write_shared(&path, bytes).map_err(|e| Failure::disk(&path, &e))
    };
    write(WEIGHTS, &weights_file(&loaded.model, &loaded.params, &shape)?)?;
    write(TOKENIZER, loaded.vocab.to_tokenizer_json().as_bytes())?;
    let config = serde_json::to_string_pretty(&shape).map_err(Failure::input)?;
    write(CONFIG, format!("{config}\n").as_bytes())?;
    console::note(format!(
        "{}: {} parameters of {}; load with safetensors.torch.load_file",
        args.out.join(WEIGHTS).display(),
        grouped(loaded.model.shapes().len() as u64),
        loaded.checkpoint
    ));
    Ok(())
}

fn weights_file(model: &Model<f32>, params: &Params<f32>, shape: &Shape) -> Outcome<Vec<u8>> {
    let plan = model.shapes();
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (entry, id) in plan.entries().iter().zip(plan.ids()) {
        let bytes = params.get(id).iter().flat_map(|x| x.to_le_bytes()).collect();
        tensors.push((entry.name.clone(), entry.dims(), bytes));
    }
    if model.config().tied {
        // torch.nn.Linear wants its own copy.
        let (_, dims, bytes) = tensors[0].clone();
        tensors.push(("out.weight".to_owned(), dims, bytes));
    }
    let views: Result<Vec<_>, _> = tensors
        .iter()
        .map(|(name, dims, bytes)| Ok((name.as_str(), TensorView::new(Dtype::F32, dims.clone(), bytes)?)))
        .collect();
    let broken = |e: safetensors::SafeTensorError| Failure::input(format!("{WEIGHTS}: {e}"));
    // One entry only: their order in the file is not ours to choose, and the same weights should make the same file.
    let meta = HashMap::from([("config".to_owned(), serde_json::to_string(shape).map_err(Failure::input)?)]);
    safetensors::serialize(views.map_err(broken)?, Some(meta)).map_err(broken)
}

/// Makes a run from weights and a vocabulary.
pub fn import(args: &args::Import) -> Outcome {
    Run::check_free(&args.run)?;
    let path = args.dir.join(WEIGHTS);
    let refuse = |what: String| Failure::input(format!("{}: {what}", path.display()));
    let bytes = file::read(&path, u64::MAX).map_err(|e| refuse(format!("cannot be read ({e})")))?;
    // Taken apart, a header needs 25 times its room.
    let header = bytes.first_chunk().map_or(0, |length| u64::from_le_bytes(*length));
    if header > HEADER {
        return Err(refuse(format!(
            "not a safetensors file, or one with a header of {header} bytes; {HEADER} are enough"
        )));
    }
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|e| refuse(format!("not a safetensors file, or a damaged one ({e})")))?;
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|e| refuse(e.to_string()))?;
    let meta = header.metadata().clone().unwrap_or_default();
    let mut sources = args::sources(&args.words, &args.settings, None)?;
    let shape = shape(&file, &meta, &args.dir, &sources.arguments).map_err(refuse)?;
    let vocab = read_vocab(&args.dir.join(TOKENIZER))?;
    if Some(vocab.len()) != shape.vocab {
        let rows = shape.vocab.unwrap_or(0);
        return Err(Failure::input(format!(
            "{}: {} words, but embed.weight has {rows} rows; they must be as many",
            args.dir.join(TOKENIZER).display(),
            vocab.len()
        )));
    }
    // The file's shape comes first, so that what was typed is checked against it below.
    sources.file = [
        ("model.cell", shape.cell.clone()),
        ("model.activation", shape.activation.clone()),
        ("model.hidden", shape.hidden.map(|n| n.to_string())),
        ("model.embed", shape.embed.map(|n| n.to_string())),
        ("model.layers", shape.layers.map(|n| n.to_string())),
        ("model.tied", shape.tied.map(|t| t.to_string())),
        ("data.level", Some(vocab.level().to_string())),
        ("data.eos", Some(vocab.cutting().eos.to_string())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some(Typed::spelt(name, &value?, &path.display().to_string())))
    .collect();
    let settings = Settings::resolve(&sources)?;
    let model = Model::<f32>::new(settings.model(vocab.len()));
    let mut params = params_of(&model, &file).map_err(refuse)?;

    let (run, _lock) = Run::create(Some(&args.run), "")?;
    run.write(TOKENIZER, &vocab.to_tokenizer_json())?;
    let mut snapshot = Snapshot::default();
    visit_params("", &mut params, &mut SnapshotWriter(&mut snapshot));
    snapshot.meta.insert("settings".into(), settings.to_toml());
    run.store().write(Kind::Best, &mut snapshot)?;
    // Last: what has settings is whole.
    run.write("settings.toml", &settings.to_toml())?;
    console::note(format!(
        "{}: {} with {} parameters; try `tprop eval {0} --data FILE` or `tprop generate {0}`",
        run.name(),
        shape.cell.unwrap_or_default(),
        grouped(model.shapes().len() as u64)
    ));
    Ok(())
}

/// Reads the shape off the tensors; config.json and the file's metadata say what they do not show.
fn shape(file: &SafeTensors, meta: &HashMap<String, String>, dir: &Path, typed: &[Typed]) -> Result<Shape, String> {
    let dims = |name: &str| file.tensor(name).map(|t| t.shape().to_vec()).ok();
    let matrix = |name: &str| match dims(name).as_deref() {
        Some(&[rows, cols]) if rows > 0 && cols > 0 => Ok((rows, cols)),
        Some(other) => Err(format!("{name} has the shape {other:?}; a matrix is wanted")),
        None => Err(format!("{name} is missing")),
    };
    let (vocab, embed) = matrix("embed.weight")?;
    let (wide, hidden) = matrix("rnn.weight_hh_l0")?;
    let layers = (0..).take_while(|l| dims(&format!("rnn.weight_ih_l{l}")).is_some()).count();
    let unreadable = |e: &dyn std::fmt::Display| format!("{CONFIG} beside it cannot be read ({e})");
    let beside = match file::read(&dir.join(CONFIG), 1 << 20) {
        Ok(bytes) => Some(bytes),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(unreadable(&e)),
    };
    let stated: Shape = match beside.as_deref().or(meta.get("config").map(String::as_bytes)) {
        Some(text) => serde_json::from_slice(text).map_err(|e| unreadable(&e))?,
        None => Shape::default(),
    };
    let asked = |name: &str| typed.iter().find(|t| t.name == name).map(|t| t.text.clone());
    let by_gates = match wide / hidden {
        3 => Some("gru".to_owned()),
        4 => Some("lstm".to_owned()),
        _ => None,
    };
    let cell = asked("model.cell").or(stated.cell).or(by_gates);
    let cell =
        cell.ok_or("which cell this is cannot be seen from its tensors; say --cell elman (or mult, mult_gated)")?;
    let activation = asked("model.activation").or(stated.activation);
    // Tied weights may come once or, from PyTorch, twice.
    let same = || Some(file.tensor("out.weight").ok()?.data() == file.tensor("embed.weight").ok()?.data());
    let tied = embed == hidden && same().unwrap_or(true) && stated.tied.unwrap_or(true);
    Ok(Shape {
        cell: Some(cell),
        activation,
        vocab: Some(vocab),
        embed: Some(embed),
        hidden: Some(hidden),
        layers: Some(layers),
        tied: Some(tied),
    })
}

/// The tensors of the model out of the file; nothing may be missing, left over, of another shape or not finite.
fn params_of(model: &Model<f32>, file: &SafeTensors) -> Result<Params<f32>, String> {
    let plan = model.shapes().clone();
    // All shapes first: what the file does not have takes no memory.
    for entry in plan.entries() {
        let tensor = file.tensor(&entry.name).map_err(|_| format!("{} is missing", entry.name))?;
        if tensor.shape() != entry.dims() {
            let (name, found, wanted) = (&entry.name, tensor.shape(), entry.dims());
            return Err(format!("{name} has the shape {found:?}; {wanted:?} is wanted"));
        }
    }
    let mut params = Params::zeros(&plan);
    let mut left: BTreeMap<String, ()> = file.names().into_iter().map(|name| (name.to_owned(), ())).collect();
    for (entry, id) in plan.entries().iter().zip(plan.ids()) {
        let name = &entry.name;
        left.remove(name);
        let tensor = file.tensor(name).map_err(|_| format!("{name} is missing"))?;
        let values = params.get_mut(id);
        match tensor.dtype() {
            Dtype::F32 => read(values, tensor.data().as_chunks::<4>().0, |b| f32::from_le_bytes(*b)),
            Dtype::F64 => read(values, tensor.data().as_chunks::<8>().0, |b| f64::from_le_bytes(*b) as f32),
            other => return Err(format!("{name} is {other:?}; F32 or F64 is wanted")),
        }
        if let Some(at) = values.iter().position(|x| !x.is_finite()) {
            return Err(format!("{name}: value {at} is not finite"));
        }
    }
    if model.config().tied {
        left.remove("out.weight");
    }
    match left.keys().next() {
        None => Ok(params),
        Some(name) => {
            let cell = model.config().cell.name();
            Err(format!(
                "{} is not a tensor of a {cell} model with {} layers",
                tprop::vocab::printable(name),
                model.config().layers
            ))
        }
    }
}

fn read<const N: usize>(values: &mut [f32], bytes: &[[u8; N]], of: impl Fn(&[u8; N]) -> f32) {
    values.iter_mut().zip(bytes).for_each(|(value, bytes)| *value = of(bytes));
}
