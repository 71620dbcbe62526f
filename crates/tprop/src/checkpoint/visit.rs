//! Between a snapshot and the values that it is a copy of.

use std::collections::BTreeMap;

use super::{Snapshot, Tensor};
use crate::params::{Params, Visit};
use crate::real::Real;

/// Walks the tensors of a set of weights under `prefix`.
pub fn visit_params<T: Real>(prefix: &str, params: &mut Params<T>, visit: &mut dyn Visit<T>) {
    let shapes = params.shapes().clone();
    for (entry, id) in shapes.entries().iter().zip(shapes.ids()) {
        let rows = if entry.vector { 0 } else { entry.rows };
        visit.tensor(&format!("{prefix}{}", entry.name), rows, entry.cols, params.get_mut(id));
    }
}

fn dims(rows: usize, cols: usize) -> Vec<usize> {
    if rows == 0 { vec![cols] } else { vec![rows, cols] }
}

/// Copies what it is shown into a snapshot. (A tensor of 0 rows is a vector.)
#[derive(Debug)]
pub struct SnapshotWriter<'a>(pub &'a mut Snapshot);

impl<T: Real> Visit<T> for SnapshotWriter<'_> {
    fn count(&mut self, name: &str, value: &mut u64) {
        self.0.set_count(name, *value);
    }
    fn real(&mut self, name: &str, value: &mut f64) {
        self.0.set_real(name, *value);
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

impl<T: Real> Visit<T> for SnapshotReader<'_> {
    fn count(&mut self, name: &str, value: &mut u64) {
        match self.snapshot.count(name) {
            Some(v) => *value = v,
            None => self.complain(format!("the counter {name} is missing")),
        }
    }
    fn real(&mut self, name: &str, value: &mut f64) {
        match self.snapshot.real(name) {
            Some(v) => *value = v,
            None => self.complain(format!("the number {name} is missing")),
        }
    }
    fn tensor(&mut self, name: &str, rows: usize, cols: usize, values: &mut [T]) {
        match matching::<T>(self.tensors.get(name).copied(), name, &dims(rows, cols)) {
            Err(what) => self.complain(what),
            Ok(t) => T::read_le(&t.bytes, values),
        }
        // None is ever written, so whoever wrote this one was not we. (On this thread: commands read before they choose how many.)
        if !values.iter().all(|value| value.is_finite()) {
            self.complain(format!("the tensor {name} has values that are not finite"));
        }
    }
}

/// The tensor, if it is there and has this type and shape.
pub(super) fn matching<'a, T: Real>(
    tensor: Option<&'a Tensor>,
    name: &str,
    wanted: &[usize],
) -> Result<&'a Tensor, String> {
    let tensor = tensor.ok_or_else(|| format!("the tensor {name} is missing"))?;
    let (kind, found) = (&tensor.kind, &tensor.dims);
    let bytes = wanted.iter().try_fold(T::BYTES, |n, &d| n.checked_mul(d));
    if found != wanted || kind != T::NAME || Some(tensor.bytes.len()) != bytes {
        return Err(format!("the tensor {name} is {kind} {found:?}; {} {wanted:?} is wanted", T::NAME));
    }
    Ok(tensor)
}

/// Finds the first tensor with a value that is not finite.
#[derive(Debug, Default)]
pub(crate) struct Health {
    pub sick: Option<String>,
}

impl<T: Real> Visit<T> for Health {
    fn count(&mut self, _: &str, _: &mut u64) {}
    fn real(&mut self, _: &str, _: &mut f64) {}
    fn tensor(&mut self, name: &str, _: usize, _: usize, values: &mut [T]) {
        if self.sick.is_none() && !crate::kernel::all_finite(values) {
            self.sick = Some(name.to_owned());
        }
    }
}
