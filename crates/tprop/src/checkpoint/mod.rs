//! The whole state of a run in one file that appears all at once or not at all.
//!
//! A checkpoint is a safetensors file: weights under PyTorch's names, everything else under `optim.…`, `bptt.…`, `btprop.…`,
//! `train.…`; counters and exact numbers in the metadata; and a SHA-256 over every byte of the file (its own 64 digits taken as zeros).
//!
//! Three thoughts, three files: this one is the format, [`store`] the folder and the order in which files appear and vanish in it,
//! [`saver`] the thread that writes while training continues.

mod header;
pub mod saver;
pub mod store;
mod visit;

pub use saver::{Job, Saver};
pub use store::{BEST, CheckpointError, Kind, Newest, Store, read};
pub(crate) use visit::Health;
pub use visit::{SnapshotReader, SnapshotWriter, visit_params};

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

pub use crate::file::hex;
use crate::params::{Params, Shapes};
use crate::real::Real;

/// Version of the checkpoint's format.
pub const FORMAT: u32 = 1;

const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const HASH_KEY: &[u8] = b"\"sha256\":\"";

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

/// A copy of everything that shapes the future: weights, the optimiser's sums, states, duals, counters.
///
/// [`Trainer::snapshot`](crate::train::Trainer::snapshot) makes one, [`Trainer::restore`](crate::train::Trainer::restore) takes it.
///
/// ```
/// use tprop::checkpoint::Snapshot;
/// let mut snapshot = Snapshot::default();
/// snapshot.set_count("train.step", 17);
/// let bytes = snapshot.encode(); // a safetensors file with a SHA-256 over all of it
/// let read = Snapshot::decode(&bytes).expect("whole");
/// assert_eq!(read.count("train.step"), Some(17));
/// assert!(Snapshot::decode(&bytes[..bytes.len() - 1]).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Strings by name.
    pub meta: BTreeMap<String, String>,
    /// Tensors in order.
    pub tensors: Vec<Tensor>,
}

/// Why bytes are no checkpoint.
#[derive(Debug)]
pub enum ReadError {
    /// They could not be read.
    Io(io::Error),
    /// What is wrong with them.
    Bad(String),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Bad("the file is cut short".into()),
            _ => Self::Io(error),
        }
    }
}

impl Snapshot {
    /// Bytes of the header, and where in the file the hash belongs.
    fn head(&self) -> (Vec<u8>, usize) {
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
        let mut json = serde_json::to_vec(&header).expect("strings and numbers");
        json.resize(json.len().next_multiple_of(8), b' ');
        let mut head = (json.len() as u64).to_le_bytes().to_vec();
        head.extend_from_slice(&json);
        let place = find_hash(&head).expect("written above");
        (head, place)
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        (self.head().0.len() + self.tensors.iter().map(|t| t.bytes.len()).sum::<usize>()) as u64
    }

    /// Writes the file chunk by chunk, without a second copy of it in memory. Returns its hash.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write_to(&self, out: &mut (impl Write + Seek)) -> io::Result<String> {
        let (head, place) = self.head();
        let mut digest = Sha256::new();
        for part in std::iter::once(&head).chain(self.tensors.iter().map(|t| &t.bytes)) {
            digest.update(part);
            out.write_all(part)?;
        }
        let hash = hex(&digest.finalize());
        out.seek(SeekFrom::Start(place as u64))?;
        out.write_all(hash.as_bytes())?;
        Ok(hash)
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Cursor::new(Vec::with_capacity(self.size() as usize));
        self.write_to(&mut out).expect("memory takes everything");
        out.into_inner()
    }

    /// Checks the hash and takes the file apart. The text says what is wrong.
    ///
    /// # Errors
    /// If a single bit is not as it was written.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        Self::read_from(&mut &bytes[..], bytes.len() as u64).map_err(|error| match error {
            ReadError::Bad(reason) => reason,
            ReadError::Io(error) => error.to_string(),
        })
    }

    /// The same for a file of `length` bytes: tensors go straight to their places.
    ///
    /// # Errors
    /// If it cannot be read, or a single bit is not as it was written.
    pub fn read_from(input: &mut impl Read, length: u64) -> Result<Self, ReadError> {
        let bad = |reason: &str| Err(ReadError::Bad(reason.to_owned()));
        if length == 0 {
            return bad("the file is empty");
        }
        let mut digest = Sha256::new();
        let (head, hash) = read_head(input, length, &mut digest)?;
        let damaged = |what: String| ReadError::Bad(format!("not a safetensors file, or a damaged one ({what})"));
        let data = length - 8 - head.len() as u64;
        let header = header::parse(&head, data).map_err(damaged)?;
        drop(head);
        let mut tensors = Vec::with_capacity(header.tensors.len());
        for place in header.tensors {
            let mut bytes = vec![0; place.bytes];
            input.read_exact(&mut bytes)?;
            digest.update(&bytes);
            tensors.push(Tensor { name: place.name, dims: place.dims, kind: place.kind.into(), bytes });
        }
        if hex(&digest.finalize()).as_bytes() != hash {
            return bad("its hash does not match its contents: the file is damaged");
        }
        let mut meta = header.meta;
        match meta.get("format").map(|f| f.parse::<u32>()) {
            Some(Ok(f)) if f <= FORMAT => {}
            Some(Ok(f)) => {
                return bad(&format!("written in format {f} by a newer version; this one reads up to {FORMAT}"));
            }
            _ => return bad("no format version in it"),
        }
        meta.remove("sha256");
        meta.remove("format");
        Ok(Self { meta, tensors })
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|t| t.name == name)
    }

    /// A counter by name.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.meta.get(&format!("count.{name}"))?.parse().ok()
    }

    /// An exact number by name.
    pub fn real(&self, name: &str) -> Option<f64> {
        let bits = self.meta.get(&format!("real.{name}"))?.split(' ').next()?;
        u64::from_str_radix(bits, 16).ok().map(f64::from_bits)
    }

    /// Writes a counter down.
    pub fn set_count(&mut self, name: &str, value: u64) {
        self.meta.insert(format!("count.{name}"), value.to_string());
    }

    /// Writes an exact number down: the bits, because decimal digits would have to be trusted; the digits, for people.
    pub fn set_real(&mut self, name: &str, value: f64) {
        self.meta.insert(format!("real.{name}"), format!("{:016x} {value}", value.to_bits()));
    }

    /// The weights of a model of these shapes; nothing is taken from memory for shapes that the file does not have. The text says
    /// what does not fit.
    ///
    /// # Errors
    /// If a tensor is missing, has another shape, or a value that is not finite.
    pub fn params<T: Real>(&self, shapes: &Arc<Shapes>) -> Result<Params<T>, String> {
        for entry in shapes.entries() {
            visit::matching::<T>(self.tensor(&entry.name), &entry.name, &entry.dims())?;
        }
        let mut params = Params::zeros(shapes);
        self.restore_params("", &mut params)?;
        Ok(params)
    }

    /// Puts the weights, under `prefix`, back into `params`. The text says what does not fit.
    ///
    /// # Errors
    /// If a tensor is missing, has another shape, or a value that is not finite.
    pub fn restore_params<T: Real>(&self, prefix: &str, params: &mut Params<T>) -> Result<(), String> {
        let mut reader = SnapshotReader::new(self);
        visit_params(prefix, params, &mut reader);
        reader.finish()
    }
}

/// The header behind its length, and the hash that it states; `digest` has seen both, with zeros for the hash.
fn read_head(input: &mut impl Read, length: u64, digest: &mut Sha256) -> Result<(Vec<u8>, [u8; 64]), ReadError> {
    let mut size = [0; 8];
    input.read_exact(&mut size)?;
    let bytes = u64::from_le_bytes(size);
    if bytes > header::LARGEST || bytes > length - 8 {
        let reason = format!("not a safetensors file, or a damaged one (a header of {bytes} bytes)");
        return Err(ReadError::Bad(reason));
    }
    let mut head = vec![0; bytes as usize];
    input.read_exact(&mut head)?;
    let place = find_hash(&head).filter(|place| place + 64 <= head.len());
    let Some(place) = place else {
        return Err(ReadError::Bad("no hash in it: not a checkpoint of this program".into()));
    };
    let mut hash = [0; 64];
    hash.copy_from_slice(&head[place..place + 64]);
    digest.update(size);
    digest.update(&head[..place]);
    digest.update(NO_HASH.as_bytes());
    digest.update(&head[place + 64..]);
    Ok((head, hash))
}

/// The hash that a file of `length` bytes should have and the one that it states, without keeping it.
fn hashes(input: &mut impl Read, length: u64) -> Result<(String, String), ReadError> {
    let mut digest = Sha256::new();
    let (head, stated) = read_head(input, length, &mut digest)?;
    let mut left = length - 8 - head.len() as u64;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let chunk = &mut buffer[..left.min(1 << 20) as usize];
        input.read_exact(chunk)?;
        digest.update(&chunk);
        left -= chunk.len() as u64;
    }
    Ok((hex(&digest.finalize()), String::from_utf8_lossy(&stated).into_owned()))
}

fn find_hash(header: &[u8]) -> Option<usize> {
    header.windows(HASH_KEY.len()).position(|w| w == HASH_KEY).map(|at| at + HASH_KEY.len())
}

#[cfg(test)]
mod tests;
