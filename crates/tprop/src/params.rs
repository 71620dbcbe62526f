//! Weights, gradients and their names: named tensors in one buffer. Weights, gradients and the accumulators of optimisers have the same shape and order.

use std::sync::Arc;

use crate::real::Real;

/// Position of a tensor in its [`Shapes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(usize);

/// One tensor: its name, its dimensions (one or two) and where it stands in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// PyTorch's name, for example `rnn.weight_ih_l0`.
    pub name: String,
    /// Rows (1 for a vector) …
    pub rows: usize,
    /// … of this many values.
    pub cols: usize,
    /// A vector, written with one dimension.
    pub vector: bool,
    start: usize,
}

impl Entry {
    /// Dimensions as a file states them.
    pub fn dims(&self) -> Vec<usize> {
        if self.vector { vec![self.cols] } else { vec![self.rows, self.cols] }
    }

    /// Where the tensor stands in the buffer.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.rows * self.cols
    }
}

/// Names, dimensions and offsets of all tensors of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shapes {
    entries: Vec<Entry>,
    len: usize,
}

impl Shapes {
    /// Adds a matrix.
    pub fn matrix(&mut self, name: impl Into<String>, rows: usize, cols: usize) -> Id {
        self.push(name.into(), rows, cols, false)
    }

    /// Adds a vector.
    pub fn vector(&mut self, name: impl Into<String>, len: usize) -> Id {
        self.push(name.into(), 1, len, true)
    }

    fn push(&mut self, name: String, rows: usize, cols: usize, vector: bool) -> Id {
        self.entries.push(Entry { name, rows, cols, vector, start: self.len });
        self.len += rows * cols;
        Id(self.entries.len() - 1)
    }

    /// All tensors in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// One tensor.
    pub fn entry(&self, id: Id) -> &Entry {
        &self.entries[id.0]
    }

    /// All ids in order.
    pub fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        (0..self.entries.len()).map(Id)
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Values for every tensor of a model.
#[derive(Clone, Debug)]
pub struct Params<T> {
    shapes: Arc<Shapes>,
    data: Vec<T>,
}

impl<T: Real> Params<T> {
    /// All zero.
    pub fn zeros(shapes: &Arc<Shapes>) -> Self {
        Self { shapes: shapes.clone(), data: vec![T::ZERO; shapes.len()] }
    }

    /// Names, dimensions and offsets.
    pub fn shapes(&self) -> &Arc<Shapes> {
        &self.shapes
    }

    /// One tensor's values, row-major.
    pub fn get(&self, id: Id) -> &[T] {
        &self.data[self.shapes.entry(id).range()]
    }

    /// One tensor's values, to write.
    pub fn get_mut(&mut self, id: Id) -> &mut [T] {
        &mut self.data[self.shapes.entries[id.0].range()]
    }

    /// Two tensors at once, the first before the second in the buffer.
    pub fn pair_mut(&mut self, first: Id, second: Id) -> (&mut [T], &mut [T]) {
        let (a, b) = (self.shapes.entry(first).range(), self.shapes.entry(second).range());
        assert!(a.end <= b.start, "tensors out of order");
        let (head, tail) = self.data.split_at_mut(b.start);
        (&mut head[a], &mut tail[..b.end - b.start])
    }

    /// All values.
    pub fn all(&self) -> &[T] {
        &self.data
    }

    /// All values, to write.
    pub fn all_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// A tensor by name.
    pub fn by_name(&self, name: &str) -> Option<Id> {
        self.shapes.entries.iter().position(|e| e.name == name).map(Id)
    }
}

/// ∂L/∂θ. Nothing is zeroed that will be overwritten: the first product into a fresh tensor starts at 0, later ones add.
/// The embedding's gradient is row-sparse: rows outside `touched` are 0 and cost nothing.
#[derive(Clone, Debug)]
pub struct Grads<T> {
    values: Params<T>,
    fresh: Vec<bool>,
    sparse: Option<Id>,
    touched: Vec<u32>,
    mark: Vec<bool>,
}

impl<T: Real> Grads<T> {
    /// Gradients of these shapes; `sparse` is the tensor whose gradient is row-sparse.
    pub fn new(shapes: &Arc<Shapes>, sparse: Option<Id>) -> Self {
        let rows = sparse.map_or(0, |id| shapes.entry(id).rows);
        Self {
            values: Params::zeros(shapes),
            fresh: vec![true; shapes.entries.len()],
            sparse,
            touched: Vec::with_capacity(rows),
            mark: vec![false; rows],
        }
    }

    /// Forgets the sums so far.
    pub fn clear(&mut self) {
        self.fresh.fill(true);
        self.clear_rows();
    }

    /// Forgets the rows of the row-sparse tensor alone.
    pub fn clear_rows(&mut self) {
        if let Some(id) = self.sparse {
            let cols = self.values.shapes.entry(id).cols;
            let data = self.values.get_mut(id);
            for &row in &self.touched {
                data[row as usize * cols..][..cols].fill(T::ZERO);
                self.mark[row as usize] = false;
            }
            self.touched.clear();
        }
    }

    /// Forgets the sums of some tensors.
    pub fn clear_some(&mut self, ids: impl IntoIterator<Item = Id>) {
        for id in ids {
            self.fresh[id.0] = true;
            if self.sparse == Some(id) {
                self.clear_rows();
            }
        }
    }

    /// A dense tensor to add to or, if the second value is false, to overwrite whole.
    pub fn add_to(&mut self, id: Id) -> (&mut [T], bool) {
        let keep = !std::mem::replace(&mut self.fresh[id.0], false);
        (self.values.get_mut(id), keep)
    }

    /// Two neighbours of which the first decides about both.
    pub fn add_to_pair(&mut self, first: Id, second: Id) -> (&mut [T], &mut [T], bool) {
        let keep = !std::mem::replace(&mut self.fresh[first.0], false);
        self.fresh[second.0] = false;
        let (a, b) = self.values.pair_mut(first, second);
        (a, b, keep)
    }

    /// A dense tensor to add to, zeroed if it was fresh.
    pub fn sum_into(&mut self, id: Id) -> &mut [T] {
        let (data, keep) = self.add_to(id);
        if !keep {
            data.fill(T::ZERO);
        }
        data
    }

    /// `count` neighbouring tensors as one slice to add to, zeroed if they were fresh.
    pub fn sum_into_run(&mut self, first: Id, count: usize) -> &mut [T] {
        (first.0..first.0 + count).for_each(|i| {
            self.sum_into(Id(i));
        });
        let (from, to) =
            (self.values.shapes.entry(first).start, self.values.shapes.entries[first.0 + count - 1].range().end);
        &mut self.values.data[from..to]
    }

    /// One row of the row-sparse tensor, to add to.
    pub fn row(&mut self, id: Id, row: u32) -> &mut [T] {
        debug_assert_eq!(self.sparse, Some(id));
        if !std::mem::replace(&mut self.mark[row as usize], true) {
            self.touched.push(row);
        }
        let cols = self.values.shapes.entries[id.0].cols;
        &mut self.values.get_mut(id)[row as usize * cols..][..cols]
    }

    /// Zeroes what nothing was added to and puts the touched rows in order; call before reading.
    pub fn settle(&mut self) {
        self.settle_some(self.values.shapes.clone().ids());
    }

    /// [`Grads::settle`] for some tensors.
    pub fn settle_some(&mut self, ids: impl IntoIterator<Item = Id>) {
        for id in ids {
            let fresh = std::mem::replace(&mut self.fresh[id.0], false);
            if self.sparse == Some(id) {
                self.touched.sort_unstable();
            } else if fresh {
                self.values.get_mut(id).fill(T::ZERO);
            }
        }
    }

    /// The row-sparse tensor and its rows that may differ from 0.
    pub fn sparse_rows(&self) -> Option<(Id, &[u32])> {
        self.sparse.map(|id| (id, &self.touched[..]))
    }

    /// The values; rows of the sparse tensor that were not touched are 0.
    pub fn values(&self) -> &Params<T> {
        &self.values
    }

    /// The values, to write (for sums over ranks and for tests).
    pub fn values_mut(&mut self) -> &mut Params<T> {
        &mut self.values
    }

    /// Adds another gradient of the same shapes. Both must be settled.
    pub fn add(&mut self, other: &Self) {
        self.add_some(other, self.values.shapes.clone().ids());
    }

    /// Adds some tensors of another gradient.
    pub fn add_some(&mut self, other: &Self, ids: impl IntoIterator<Item = Id>) {
        for id in ids {
            if self.sparse == Some(id) {
                for &row in &other.touched {
                    let cols = other.values.shapes.entry(id).cols;
                    let from = &other.values.get(id)[row as usize * cols..][..cols];
                    crate::kernel::add(self.row(id, row), from);
                }
                self.touched.sort_unstable();
            } else {
                let (data, keep) = self.add_to(id);
                if keep {
                    crate::kernel::add(data, other.values.get(id));
                } else {
                    data.copy_from_slice(other.values.get(id));
                }
            }
        }
    }

    /// Shows or restores the sums so far. Rows that were touched are marked by a flag each.
    pub fn visit(&mut self, name: &str, visit: &mut dyn Visit<T>) {
        let shapes = self.values.shapes.clone();
        for (entry, id) in shapes.entries().iter().zip(shapes.ids()) {
            let mut fresh = u64::from(self.fresh[id.0]);
            visit.count(&format!("{name}.fresh.{}", entry.name), &mut fresh);
            self.fresh[id.0] = fresh != 0;
            visit.tensor(&format!("{name}.{}", entry.name), entry.rows, entry.cols, self.values.get_mut(id));
        }
        if self.sparse.is_some() {
            let mut flags: Vec<T> = self.mark.iter().map(|&m| if m { T::ONE } else { T::ZERO }).collect();
            visit.tensor(&format!("{name}.touched"), 1, flags.len(), &mut flags);
            self.touched.clear();
            for (row, &flag) in flags.iter().enumerate() {
                self.mark[row] = flag != T::ZERO;
                if self.mark[row] {
                    self.touched.push(row as u32);
                }
            }
        }
    }
}

/// Visits every value that shapes the future: a writer copies them out, a reader puts them back. The order and the
/// names are the same both ways, because the same code walks.
pub trait Visit<T> {
    /// A counter.
    fn count(&mut self, name: &str, value: &mut u64);
    /// A number.
    fn real(&mut self, name: &str, value: &mut f64);
    /// A tensor of rows × cols.
    fn tensor(&mut self, name: &str, rows: usize, cols: usize, values: &mut [T]);
    /// A tensor whose rows are divided among the ranks; `values` are this rank's.
    fn rows(&mut self, name: &str, rows: Rows, cols: usize, values: &mut [T]) {
        self.tensor(name, rows.repeat * rows.all, cols, values);
    }
}

/// Which rows of a tensor are a rank's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The tensor is so many times the rows of all ranks, one after the other.
    pub repeat: usize,
    /// This rank's first row.
    pub first: usize,
    /// Rows that this rank answers for; it may hold copies of rows behind them.
    pub own: usize,
    /// Rows of all ranks.
    pub all: usize,
}
