//! ∂θ, summed over chunks, shares and ranks, group by group as groups become ready.
//!
//! The output layer's gradient is complete before the recurrence runs backwards, the cells' from the top down, the embedding's last
//! ([`crate::model::Model::groups`]). As soon as a group of this rank's last share is complete it is cut into one slice a rank, and
//! each slice is sent to the rank that adds it up; nothing waits. [`GradientSum::finish`] then adds the slices that came here, along
//! the tree of [`super::shares`], sends the sums round and takes the others'. So each rank sends and receives its nodes once and the
//! sum once, whatever the number of ranks. Of the embedding only the rows that were touched travel.

use std::ops::Range;

use super::shares::{Shares, Stack, share};
use super::{Comm, Topic};
use crate::kernel;
use crate::model::Model;
use crate::params::{Grads, Id};
use crate::real::Real;

/// Adds up gradients. The present share's (or chunk's) is the caller's; sums of runs of shares are cached here.
#[derive(Debug)]
pub struct GradientSum<T> {
    shares: Shares,
    groups: Vec<Group>,
    /// The sum over the chunks of a share, if it may have several.
    whole: Option<Grads<T>>,
    /// Sums of runs of shares, if this rank has several shares.
    slots: Vec<Grads<T>>,
    /// For each share: on which slot its gradient is put, and how often the two topmost are then added up.
    steps: Vec<(usize, usize)>,
}

/// A run of tensors.
#[derive(Debug)]
struct Group {
    ids: Vec<Id>,
    /// Where it stands among all values.
    span: Range<usize>,
    /// Rows and columns, if the gradient is row-sparse.
    rows: Option<(usize, usize)>,
}

/// Which chunk of which of this rank's shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareChunk {
    /// Counted from this rank's first share.
    pub share: usize,
    /// It is the share's last chunk.
    pub last: bool,
}

impl<T: Real> GradientSum<T> {
    /// For one rank's shares; `several`: a share may have several chunks.
    pub fn new(model: &Model<T>, shares: &Shares, several: bool) -> Self {
        let shapes = model.shapes();
        let sparse = model.sparse();
        let groups = model.groups().into_iter().map(|ids| {
            let span = shapes.entry(ids[0]).range().start..shapes.entry(*ids.last().expect("a tensor")).range().end;
            debug_assert_eq!(span.len(), ids.iter().map(|&id| shapes.entry(id).range().len()).sum::<usize>());
            let rows = (sparse == Some(ids[0])).then(|| (shapes.entry(ids[0]).rows, shapes.entry(ids[0]).cols));
            Group { ids, span, rows }
        });
        let mut stack = Stack::new(shares.count());
        let (mut steps, mut deepest) = (Vec::new(), 0);
        for number in shares.mine() {
            let depth = stack.nodes.len();
            let merges = stack.push(number..number + 1);
            deepest = deepest.max(if merges == 0 { depth + 1 } else { 0 });
            steps.push((depth, merges));
        }
        let slots = if steps.len() > 1 { deepest } else { 0 };
        Self {
            shares: shares.clone(),
            groups: groups.collect(),
            whole: several.then(|| model.grads()),
            slots: (0..slots).map(|_| model.grads()).collect(),
            steps,
        }
    }

    /// The sum over the chunks of the present share, for checkpoints in the middle of it.
    pub fn whole_mut(&mut self) -> Option<&mut Grads<T>> {
        self.whole.as_mut()
    }

    /// A share begins.
    pub fn begin_share(&mut self) {
        self.whole.iter_mut().for_each(Grads::clear);
    }

    /// A group of a chunk's gradient is complete: it is settled and added to the share's, the share's to those before it, and if this
    /// was the last one the group is sent on its way.
    pub fn ready(&mut self, comm: &dyn Comm, chunk: &mut Grads<T>, of: ShareChunk, group: usize) {
        let ids = || self.groups[group].ids.iter().copied();
        chunk.settle_some(ids());
        let done: &mut Grads<T> = match &mut self.whole {
            None => chunk,
            Some(whole) => {
                whole.add_some(chunk, ids());
                whole
            }
        };
        if !of.last {
            return;
        }
        if !self.slots.is_empty() {
            let (depth, merges) = self.steps[of.share];
            if merges == 0 {
                self.slots[depth].clear_some(ids());
                self.slots[depth].add_some(done, ids());
            } else {
                self.slots[depth - 1].add_some(done, ids());
                for left in (depth - merges..depth - 1).rev() {
                    let (head, tail) = self.slots.split_at_mut(left + 1);
                    head[left].add_some(&tail[0], ids());
                }
            }
        }
        if of.share + 1 == self.steps.len() && comm.size() > 1 {
            let only = [&*done];
            let nodes: Vec<&Grads<T>> = if self.slots.is_empty() { only.to_vec() } else { self.nodes().collect() };
            for owner in (0..comm.size()).filter(|&o| o != comm.rank()) {
                let mut message = Vec::new();
                nodes.iter().for_each(|node| self.groups[group].write(node, owner, comm.size(), &mut message));
                comm.send(owner, Topic::SUMMANDS.group(group), message);
            }
        }
    }

    /// This rank's sums, when all its shares are in.
    fn nodes(&self) -> impl Iterator<Item = &Grads<T>> {
        let (depth, merges) = *self.steps.last().expect("a share");
        self.slots[..depth + 1 - merges].iter()
    }

    /// Waits for the other ranks' summands and sums; all groups of all shares must be [`GradientSum::ready`]. `chunk` is what was
    /// handed in last. Returns the gradient, the same on every rank.
    pub fn finish<'a>(&'a mut self, comm: &dyn Comm, chunk: &'a mut Grads<T>) -> &'a mut Grads<T> {
        let (rank, size) = (comm.rank(), comm.size());
        let others = || (0..size).filter(move |&other| other != rank);
        if size > 1 {
            let mut sums = Vec::new();
            for (i, group) in self.groups.iter().enumerate() {
                let mut mine = Vec::new();
                if self.slots.is_empty() {
                    group.write(self.whole.as_ref().unwrap_or(chunk), rank, size, &mut mine);
                } else {
                    self.nodes().for_each(|node| group.write(node, rank, size, &mut mine));
                }
                let mut stack = Stack::new(self.shares.count());
                let mut parts: Vec<Slice<T>> = Vec::new();
                for from in 0..size {
                    let message = if from == rank {
                        std::mem::take(&mut mine)
                    } else {
                        comm.receive(from, Topic::SUMMANDS.group(i))
                    };
                    let mut rest = &message[..];
                    for node in self.shares.nodes(from) {
                        parts.push(group.read(&mut rest, rank, size));
                        for _ in 0..stack.push(node) {
                            let right = parts.pop().expect("two of them");
                            parts.last_mut().expect("two of them").add(&right);
                        }
                    }
                    assert!(rest.is_empty(), "summands of rank {from}");
                }
                let sum = parts.pop().expect("the root");
                let mut message = Vec::new();
                sum.write(&mut message);
                others().for_each(|to| comm.send(to, Topic::SUMS.group(i), message.clone()));
                sums.push(sum);
            }
            let result = match self.slots.first_mut() {
                Some(slot) => slot,
                None => self.whole.as_mut().unwrap_or(&mut *chunk),
            };
            for (i, (group, mine)) in self.groups.iter().zip(sums).enumerate() {
                result.clear_some(group.ids.iter().copied().filter(|_| group.rows.is_some()));
                for from in 0..size {
                    if from == rank {
                        group.put(result, &mine, from, size);
                    } else {
                        let message = comm.receive(from, Topic::SUMS.group(i));
                        group.put(result, &group.read(&mut &message[..], from, size), from, size);
                    }
                }
                result.settle_some(group.ids.iter().copied());
            }
        }
        match self.slots.first_mut() {
            Some(slot) => slot,
            None => self.whole.as_mut().unwrap_or(chunk),
        }
    }
}

impl Group {
    /// The values of a dense group that `owner` adds up.
    fn slice(&self, owner: usize, size: usize) -> Range<usize> {
        let part = share(self.span.len(), owner, size);
        self.span.start + part.start..self.span.start + part.end
    }

    /// Appends what `owner` adds up.
    fn write<T: Real>(&self, grads: &Grads<T>, owner: usize, size: usize, message: &mut Vec<u8>) {
        let Some((rows, cols)) = self.rows else {
            return T::write_le(&grads.values().all()[self.slice(owner, size)], message);
        };
        let part = share(rows, owner, size);
        let touched = grads.sparse_rows().expect("a row-sparse group").1;
        let from = touched.partition_point(|&row| (row as usize) < part.start);
        let to = touched.partition_point(|&row| (row as usize) < part.end);
        let values = grads.values().get(self.ids[0]);
        write_rows(&touched[from..to], |row| &values[row as usize * cols..][..cols], message);
    }

    /// One node's slice from the front of a message.
    fn read<T: Real>(&self, message: &mut &[u8], owner: usize, size: usize) -> Slice<T> {
        let mut cut = |bytes: usize| {
            let (head, tail) = message.split_at(bytes);
            *message = tail;
            head
        };
        let (rows, cols, len) = match self.rows {
            None => (Vec::new(), 0, self.slice(owner, size).len()),
            Some((_, cols)) => {
                let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let count = word(cut(4)) as usize;
                (cut(4 * count).chunks_exact(4).map(word).collect(), cols, count * cols)
            }
        };
        let mut values = vec![T::ZERO; len];
        T::read_le(cut(len * T::BYTES), &mut values);
        Slice { rows, cols, values }
    }

    /// Puts a slice in its place.
    fn put<T: Real>(&self, grads: &mut Grads<T>, slice: &Slice<T>, owner: usize, size: usize) {
        if self.rows.is_none() {
            grads.values_mut().all_mut()[self.slice(owner, size)].copy_from_slice(&slice.values);
            return;
        }
        for (&row, values) in slice.rows.iter().zip(slice.values.chunks_exact(slice.cols)) {
            grads.row(self.ids[0], row).copy_from_slice(values);
        }
    }
}

/// Count, numbers and values of some rows.
fn write_rows<'a, T: Real>(rows: &[u32], values: impl Fn(u32) -> &'a [T], message: &mut Vec<u8>) {
    message.extend_from_slice(&(rows.len() as u32).to_le_bytes());
    rows.iter().for_each(|row| message.extend_from_slice(&row.to_le_bytes()));
    rows.iter().for_each(|&row| T::write_le(values(row), message));
}

/// What one rank adds up of a group: consecutive values, or some rows in order.
#[derive(Debug)]
struct Slice<T> {
    rows: Vec<u32>,
    /// 0 if the group is dense.
    cols: usize,
    values: Vec<T>,
}

impl<T: Real> Slice<T> {
    /// self += right, as [`Grads::add`] does it: a row that is missing counts as 0.
    fn add(&mut self, right: &Slice<T>) {
        if self.cols == 0 {
            return kernel::add(&mut self.values, &right.values);
        }
        let (mut rows, mut values) = (Vec::new(), Vec::new());
        let (mut i, mut j) = (0, 0);
        while i < self.rows.len() || j < right.rows.len() {
            let left_row = self.rows.get(i).copied().unwrap_or(u32::MAX);
            let right_row = right.rows.get(j).copied().unwrap_or(u32::MAX);
            let row = left_row.min(right_row);
            let from = values.len();
            rows.push(row);
            if left_row == row {
                values.extend_from_slice(&self.values[i * self.cols..][..self.cols]);
                i += 1;
            } else {
                values.resize(from + self.cols, T::ZERO);
            }
            if right_row == row {
                kernel::add(&mut values[from..], &right.values[j * self.cols..][..self.cols]);
                j += 1;
            }
        }
        (self.rows, self.values) = (rows, values);
    }

    /// As [`Group::read`] reads it.
    fn write(&self, message: &mut Vec<u8>) {
        if self.cols == 0 {
            return T::write_le(&self.values, message);
        }
        let place = |row: u32| self.rows.binary_search(&row).expect("one of them") * self.cols;
        write_rows(&self.rows, |row| &self.values[place(row)..][..self.cols], message);
    }
}
