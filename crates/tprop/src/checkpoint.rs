//! The whole state of a run in one file that appears all at once or not at all.
//!
//! A checkpoint is a safetensors file: weights under PyTorch's names, everything else under `optim.…`, `bptt.…`, `btprop.…`,
//! `train.…`; counters and exact numbers in the metadata; and a SHA-256 over every byte of the file (its own 64 digits taken as zeros).
//! Writing: aside → sync → rename → sync the directory → read back and verify → only then prune older ones.
//! There is no `latest` pointer: reading scans the directory and verifies, newest first.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::params::{Params, Walk};
use crate::real::Real;

/// Version of the checkpoint's format.
pub const FORMAT: u32 = 1;

const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const HASH_KEY: &[u8] = b"\"sha256\":\"";

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Not a checkpoint, or a damaged one.
    #[error("{path}: {reason}")]
    Bad {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No file of the directory can be used.
    #[error("{dir}: no usable checkpoint{}", list(.tried))]
    None {
        /// The directory.
        dir: PathBuf,
        /// What was tried, and why each failed.
        tried: Vec<String>,
    },
}

fn list(tried: &[String]) -> String {
    tried.iter().map(|t| format!("\n  {t}")).collect()
}

/// One tensor, as bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// `F32` or `F64`.
    pub kind: String,
    /// Its values, little-endian.
    pub bytes: Vec<u8>,
}

/// A copy of everything that shapes the future.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Strings by name.
    pub meta: BTreeMap<String, String>,
    /// Tensors in order.
    pub tensors: Vec<Tensor>,
}

impl Snapshot {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut meta: Map<String, Value> = self.meta.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
        meta.insert("format".into(), json!(FORMAT.to_string()));
        meta.insert("sha256".into(), json!(NO_HASH));
        let mut header = Map::new();
        header.insert("__metadata__".into(), Value::Object(meta));
        let mut at = 0;
        for t in &self.tensors {
            let offsets = [at, at + t.bytes.len()];
            header.insert(t.name.clone(), json!({"dtype": t.kind, "shape": t.dims, "data_offsets": offsets}));
            at += t.bytes.len();
        }
        let mut header = serde_json::to_vec(&header).expect("strings and numbers");
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut bytes = Vec::with_capacity(8 + header.len() + at);
        bytes.extend_from_slice(&(header.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&header);
        self.tensors.iter().for_each(|t| bytes.extend_from_slice(&t.bytes));
        let place = find_hash(&bytes[..8 + header.len()]).expect("written above");
        let hash = hex(&Sha256::digest(&bytes));
        bytes[place..place + 64].copy_from_slice(hash.as_bytes());
        bytes
    }

    /// Checks the hash and takes the file apart. The text says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Err("the file is empty".into());
        }
        let (size, header) = safetensors::SafeTensors::read_metadata(bytes)
            .map_err(|e| format!("not a safetensors file, or a damaged one ({e})"))?;
        let place = find_hash(&bytes[..8 + size]).ok_or("no hash in it: not a checkpoint of this program")?;
        let stated = bytes.get(place..place + 64).ok_or("its hash is cut short")?;
        let mut digest = Sha256::new();
        digest.update(&bytes[..place]);
        digest.update(NO_HASH.as_bytes());
        digest.update(&bytes[place + 64..]);
        if hex(&digest.finalize()).as_bytes() != stated {
            return Err("its hash does not match its contents: the file is damaged".into());
        }
        let mut meta: BTreeMap<String, String> = header.metadata().clone().unwrap_or_default().into_iter().collect();
        match meta.get("format").map(|f| f.parse::<u32>()) {
            Some(Ok(f)) if f <= FORMAT => {}
            Some(Ok(f)) => {
                return Err(format!("written in format {f} by a newer version; this one reads up to {FORMAT}"));
            }
            _ => return Err("no format version in it".into()),
        }
        meta.remove("sha256");
        meta.remove("format");
        let data = &bytes[8 + size..];
        let mut tensors: Vec<(usize, Tensor)> = Vec::new();
        for (name, info) in header.tensors() {
            let (from, to) = info.data_offsets;
            let slice = data.get(from..to).ok_or_else(|| format!("tensor {name} is cut short"))?;
            let kind = format!("{:?}", info.dtype);
            tensors.push((from, Tensor { name, dims: info.shape.clone(), kind, bytes: slice.to_vec() }));
        }
        tensors.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
        Ok(Self { meta, tensors: tensors.into_iter().map(|(_, t)| t).collect() })
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|t| t.name == name)
    }

    /// Puts the weights, under `prefix`, back into `params`. The text says what does not fit.
    pub fn restore_params<T: Real>(&self, prefix: &str, params: &mut Params<T>) -> Result<(), String> {
        let mut reader = SnapshotReader::new(self);
        walk_params(prefix, params, &mut reader);
        reader.finish()
    }
}

fn find_hash(header: &[u8]) -> Option<usize> {
    header.windows(HASH_KEY.len()).position(|w| w == HASH_KEY).map(|at| at + HASH_KEY.len())
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Walks the tensors of a set of weights under `prefix`.
pub fn walk_params<T: Real>(prefix: &str, params: &mut Params<T>, walk: &mut dyn Walk<T>) {
    let plan = params.plan().clone();
    for (entry, id) in plan.entries().iter().zip(plan.ids()) {
        let rows = if entry.vector { 0 } else { entry.rows };
        walk.tensor(&format!("{prefix}{}", entry.name), rows, entry.cols, params.get_mut(id));
    }
}

fn dims(rows: usize, cols: usize) -> Vec<usize> {
    if rows == 0 { vec![cols] } else { vec![rows, cols] }
}

/// Copies what it is shown into a snapshot. (A tensor of 0 rows is a vector.)
#[derive(Debug)]
pub struct SnapshotWriter<'a>(pub &'a mut Snapshot);

impl<T: Real> Walk<T> for SnapshotWriter<'_> {
    fn count(&mut self, name: &str, value: &mut u64) {
        self.0.meta.insert(format!("count.{name}"), value.to_string());
    }
    fn real(&mut self, name: &str, value: &mut f64) {
        // The bits, because decimal digits would have to be trusted; the digits, for people.
        self.0.meta.insert(format!("real.{name}"), format!("{:016x} {value}", value.to_bits()));
    }
    fn tensor(&mut self, name: &str, rows: usize, cols: usize, values: &mut [T]) {
        let mut bytes = Vec::new();
        T::write_le(values, &mut bytes);
        self.0.tensors.push(Tensor { name: name.into(), dims: dims(rows, cols), kind: T::NAME.into(), bytes });
    }
}

/// Puts the values of a snapshot back; collects what does not fit.
#[derive(Debug)]
pub struct SnapshotReader<'a> {
    snapshot: &'a Snapshot,
    tensors: BTreeMap<&'a str, &'a Tensor>,
    problem: Option<String>,
}

impl<'a> SnapshotReader<'a> {
    /// Reads from a snapshot.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let tensors = snapshot.tensors.iter().map(|t| (t.name.as_str(), t)).collect();
        Self { snapshot, tensors, problem: None }
    }

    /// The first thing that did not fit, if any.
    pub fn finish(self) -> Result<(), String> {
        self.problem.map_or(Ok(()), Err)
    }

    fn complain(&mut self, what: String) {
        self.problem.get_or_insert(what);
    }
}

impl<T: Real> Walk<T> for SnapshotReader<'_> {
    fn count(&mut self, name: &str, value: &mut u64) {
        match self.snapshot.meta.get(&format!("count.{name}")).map(|s| s.parse()) {
            Some(Ok(v)) => *value = v,
            _ => self.complain(format!("the counter {name} is missing")),
        }
    }
    fn real(&mut self, name: &str, value: &mut f64) {
        let bits = self.snapshot.meta.get(&format!("real.{name}")).and_then(|s| s.split(' ').next());
        match bits.map(|b| u64::from_str_radix(b, 16)) {
            Some(Ok(bits)) => *value = f64::from_bits(bits),
            _ => self.complain(format!("the number {name} is missing")),
        }
    }
    fn tensor(&mut self, name: &str, rows: usize, cols: usize, values: &mut [T]) {
        match self.tensors.get(name) {
            None => self.complain(format!("the tensor {name} is missing")),
            Some(t) if t.dims != dims(rows, cols) || t.kind != T::NAME || t.bytes.len() != size_of_val(values) => {
                let wanted = dims(rows, cols);
                let (kind, found) = (t.kind.clone(), t.dims.clone());
                self.complain(format!("the tensor {name} is {kind} {found:?}; {} {wanted:?} is wanted", T::NAME));
            }
            Some(t) => T::read_le(&t.bytes, values),
        }
    }
}

/// The `checkpoints/` folder of a run.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

/// The checkpoint with the best validation perplexity.
pub const BEST: &str = "best.safetensors";

impl Store {
    /// A folder that exists.
    pub fn open(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Name of the checkpoint of an update.
    pub fn name(step: u64) -> String {
        format!("step-{step:010}.safetensors")
    }

    /// Writes a checkpoint; what stood under that name is replaced only by a whole new file. Returns its size.
    pub fn write(&self, name: &str, snapshot: &Snapshot) -> Result<u64, CheckpointError> {
        let bytes = snapshot.encode();
        let (path, aside) = (self.dir.join(name), self.dir.join(format!("{name}.tmp")));
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| CheckpointError::Io { path, source }
        };
        let mut file = File::create(&aside).map_err(at(&aside))?;
        let written = file.write_all(&bytes).and_then(|()| file.sync_all());
        if let Err(e) = written {
            drop(file);
            let _ = fs::remove_file(&aside);
            return Err(at(&aside)(e));
        }
        drop(file);
        fs::rename(&aside, &path).map_err(at(&path))?;
        File::open(&self.dir).and_then(|d| d.sync_all()).map_err(at(&self.dir))?;
        let back = fs::read(&path).map_err(at(&path))?;
        if back != bytes {
            return Err(CheckpointError::Bad { path, reason: "what was read back is not what was written".into() });
        }
        Ok(bytes.len() as u64)
    }

    /// Reads and verifies one checkpoint.
    pub fn read(&self, name: &str) -> Result<Snapshot, CheckpointError> {
        read(&self.dir.join(name))
    }

    /// Names of the step checkpoints, newest first.
    pub fn steps(&self) -> Result<Vec<String>, CheckpointError> {
        let io = |source| CheckpointError::Io { path: self.dir.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(io)? {
            let name = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
            if name.starts_with("step-") && name.ends_with(".safetensors") {
                names.push(name);
            }
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        Ok(names)
    }

    /// The newest checkpoint that is whole, and what was wrong with newer ones.
    pub fn newest(&self) -> Result<(String, Snapshot, Vec<String>), CheckpointError> {
        let mut tried = Vec::new();
        for name in self.steps()? {
            match self.read(&name) {
                Ok(snapshot) => return Ok((name, snapshot, tried)),
                Err(e) => tried.push(e.to_string()),
            }
        }
        Err(CheckpointError::None { dir: self.dir.clone(), tried })
    }

    /// Removes all but the newest `keep` step checkpoints, and what an interrupted write left.
    pub fn prune(&self, keep: usize) -> Result<(), CheckpointError> {
        for name in self.steps()?.iter().skip(keep.max(1)) {
            let path = self.dir.join(name);
            fs::remove_file(&path).map_err(|source| CheckpointError::Io { path, source })?;
        }
        self.sweep()
    }

    /// Removes what an interrupted write left.
    pub fn sweep(&self) -> Result<(), CheckpointError> {
        let io = |source| CheckpointError::Io { path: self.dir.clone(), source };
        for entry in fs::read_dir(&self.dir).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.extension().is_some_and(|e| e == "tmp") {
                fs::remove_file(&path).map_err(|source| CheckpointError::Io { path, source })?;
            }
        }
        Ok(())
    }
}

/// Reads and verifies a checkpoint file.
pub fn read(path: &Path) -> Result<Snapshot, CheckpointError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut f| f.read_to_end(&mut bytes))
        .map_err(|source| CheckpointError::Io { path: path.to_owned(), source })?;
    Snapshot::decode(&bytes).map_err(|reason| CheckpointError::Bad { path: path.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Draws;

    fn sample() -> Snapshot {
        let mut s = Snapshot::default();
        s.meta.insert("settings".into(), "a = \"sha256\"\nb = 1".into());
        let mut w = SnapshotWriter(&mut s);
        let mut values: Vec<f32> = (0..12).map(|i| i as f32 / 7.0).collect();
        w.tensor("a.weight", 3, 4, &mut values);
        w.tensor("a.bias", 0, 12, &mut values);
        Walk::<f32>::count(&mut w, "steps", &mut 17);
        Walk::<f32>::real(&mut w, "best", &mut 0.1);
        s
    }

    #[test]
    fn what_was_written_comes_back() {
        let s = sample();
        let back = Snapshot::decode(&s.encode()).unwrap();
        assert_eq!(back, s);
        let mut r = SnapshotReader::new(&back);
        let (mut n, mut x, mut values) = (0, 0.0, vec![0f32; 12]);
        Walk::<f32>::count(&mut r, "steps", &mut n);
        Walk::<f32>::real(&mut r, "best", &mut x);
        r.tensor("a.weight", 3, 4, &mut values);
        assert_eq!((n, x, values[11]), (17, 0.1, 11.0 / 7.0));
        assert!(r.finish().is_ok());
        let mut r = SnapshotReader::new(&back);
        r.tensor("a.weight", 4, 3, &mut values);
        assert!(r.finish().unwrap_err().contains("[3, 4]"));
    }

    #[test]
    fn no_flipped_bit_and_no_cut_is_accepted() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Snapshot::decode(&bad).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Snapshot::decode(&bytes[..len]).is_err(), "length {len}");
        }
        let draws = Draws::new(1, "noise");
        for n in 0..200u64 {
            let noise: Vec<u8> = (0..n).map(|i| draws.bits(n * 1000 + i) as u8).collect();
            assert!(Snapshot::decode(&noise).is_err());
        }
    }
}
