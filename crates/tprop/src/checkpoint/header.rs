//! The JSON header of a safetensors file, read with limits: a file from outside decides neither how much memory is taken for it
//! nor how deep it nests.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Largest header, in bytes. Ours have some thousands, and some millions for windows of 100,000 steps.
pub(super) const LARGEST: u64 = 32 << 20;
/// Most entries of all kinds.
const MOST: usize = 300_000;
/// Most dimensions of a tensor.
const DEEPEST: usize = 8;

/// What a header says, checked.
#[derive(Debug)]
pub(super) struct Header {
    pub meta: BTreeMap<String, String>,
    /// In the order of their bytes, without gaps.
    pub tensors: Vec<TensorInfo>,
}

/// A tensor of the file.
#[derive(Debug)]
pub(super) struct TensorInfo {
    pub name: String,
    pub dims: Vec<usize>,
    pub kind: &'static str,
    pub bytes: usize,
}

/// Takes a header apart. The tensors must fill `data` bytes exactly.
pub(super) fn parse(json: &[u8], data: u64) -> Result<Header, String> {
    let Raw { meta, mut tensors } = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    // Tensors without values may share a place.
    tensors.sort_by(|(a, x), (b, y)| (x.data_offsets, a).cmp(&(y.data_offsets, b)));
    let mut at = 0;
    let mut known = Vec::with_capacity(tensors.len());
    for (name, Info { dtype, shape: Dims(dims), data_offsets: (from, to) }) in tensors {
        let (kind, width) = match dtype {
            Dtype::F32 => ("F32", 4),
            Dtype::F64 => ("F64", 8),
        };
        let bytes = dims.iter().try_fold(width, |n: u64, &d| n.checked_mul(d as u64));
        if from != at || to.checked_sub(from) != bytes || to > data {
            return Err(format!("tensor {} does not fit its place", crate::vocab::printable(&name)));
        }
        at = to;
        known.push(TensorInfo { name, dims, kind, bytes: (to - from) as usize });
    }
    if at != data {
        return Err(format!("its tensors have {at} bytes, but {data} follow the header"));
    }
    Ok(Header { meta, tensors: known })
}

#[derive(Deserialize)]
struct Info {
    dtype: Dtype,
    shape: Dims,
    data_offsets: (u64, u64),
}

#[derive(Deserialize)]
enum Dtype {
    F32,
    F64,
}

struct Dims(Vec<usize>);

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Few;
        impl<'de> Visitor<'de> for Few {
            type Value = Dims;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {DEEPEST} dimensions")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Dims, A::Error> {
                let mut dims = Vec::new();
                while let Some(dim) = seq.next_element()? {
                    if dims.len() == DEEPEST {
                        return Err(A::Error::invalid_length(dims.len() + 1, &self));
                    }
                    dims.push(dim);
                }
                dims.shrink_to_fit();
                Ok(Dims(dims))
            }
        }
        deserializer.deserialize_seq(Few)
    }
}

#[derive(Default)]
struct Raw {
    meta: BTreeMap<String, String>,
    tensors: Vec<(String, Info)>,
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Raw;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a header")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                let mut raw = Raw::default();
                let mut names = std::collections::BTreeSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        raw.meta = map.next_value::<Strings>()?.0;
                        continue;
                    }
                    if raw.tensors.len() == MOST {
                        return Err(A::Error::custom(format!("more than {MOST} tensors")));
                    }
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom("a tensor occurs twice"));
                    }
                    raw.tensors.push((name, map.next_value()?));
                }
                Ok(raw)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

struct Strings(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Strings;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("strings by name")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strings, A::Error> {
                let mut strings = BTreeMap::new();
                while let Some((name, text)) = map.next_entry::<String, String>()? {
                    if strings.len() == MOST {
                        return Err(A::Error::custom(format!("more than {MOST} strings")));
                    }
                    if strings.insert(name, text).is_some() {
                        return Err(A::Error::custom("a string occurs twice"));
                    }
                }
                Ok(Strings(strings))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
