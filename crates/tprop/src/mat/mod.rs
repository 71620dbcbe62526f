//! Borrowed row-major views and the one product that everything is written with.
//!
//! `product` computes C = start + A·B, where B has been packed once ([`Packed`]) and may serve many products.
//! Each element is one chain of fused multiply-adds over k in ascending order, so the result does not depend on how
//! rows or columns are cut, on threads, or on the SIMD path: the twin in the tests agrees bit for bit.

mod buffer;
mod pack;
#[cfg(test)]
mod tests;
mod tile;

use crate::kernel::Path;
use crate::real::Real;
use std::cell::RefCell;

pub(crate) use buffer::Buffer;
pub(crate) use pack::turn;
pub(crate) use tile::First;
#[doc(hidden)]
pub use tile::Panel;

/// A matrix to read: element (i, j) stands at `i·row_stride + j·col_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a, T> {
    data: &'a [T],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a, T: Real> Mat<'a, T> {
    /// A contiguous row-major matrix.
    pub fn new(data: &'a [T], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Rows of `cols` values that begin `stride` apart.
    pub fn strided(data: &'a [T], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(rows == 0 || cols == 0 || (rows - 1) * stride + cols <= data.len());
        Self { data, rows, cols, row_stride: stride, col_stride: 1 }
    }

    /// The transpose; nothing moves.
    pub fn t(self) -> Self {
        Self { rows: self.cols, cols: self.rows, row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// Rows `from..to`.
    pub fn rows_range(self, from: usize, to: usize) -> Self {
        assert!(from <= to && to <= self.rows);
        let skip = if from == to { 0 } else { from * self.row_stride };
        Self { data: &self.data[skip..], rows: to - from, ..self }
    }

    /// Columns `from..to`.
    pub fn cols_range(self, from: usize, to: usize) -> Self {
        self.t().rows_range(from, to).t()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Element (i, j).
    #[inline]
    pub fn at(&self, i: usize, j: usize) -> T {
        self.data[i * self.row_stride + j * self.col_stride]
    }
}

/// A matrix to write: rows of `cols` values that begin `stride` apart.
#[derive(Debug)]
pub struct MatMut<'a, T> {
    data: &'a mut [T],
    rows: usize,
    cols: usize,
    stride: usize,
}

impl<'a, T: Real> MatMut<'a, T> {
    /// A contiguous row-major matrix.
    pub fn new(data: &'a mut [T], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Rows of `cols` values that begin `stride` apart.
    pub fn strided(data: &'a mut [T], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(rows == 0 || cols == 0 || (rows - 1) * stride + cols <= data.len());
        // Rows that overlap could be written by two threads.
        assert!(rows <= 1 || stride >= cols);
        Self { data, rows, cols, stride }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Rows `from..to`.
    pub(crate) fn rows_range_mut(&mut self, from: usize, to: usize) -> MatMut<'_, T> {
        assert!(from <= to && to <= self.rows);
        let skip = if from == to { 0 } else { from * self.stride };
        MatMut { data: &mut self.data[skip..], rows: to - from, cols: self.cols, stride: self.stride }
    }

    /// The values and how far rows lie apart.
    pub(crate) fn into_parts(self) -> (&'a mut [T], usize) {
        (self.data, self.stride)
    }
}

/// Where the sums of a product begin.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a, T> {
    /// At 0: what stood in C is overwritten.
    Zero,
    /// At C: the product is added.
    Keep,
    /// At this row, the same for each row of C.
    Bias(&'a [T]),
}

/// The right-hand side of products, laid out for the vector unit: panels of columns, each k rows of a panel's width,
/// the last one filled up with zeros. The buffer is reused from one packing to the next.
#[derive(Debug)]
pub struct Packed<T> {
    data: Buffer<T>,
    k: usize,
    n: usize,
    /// The path that the panels were laid out for; products with them take it too.
    path: Path,
}

impl<T> Default for Packed<T> {
    fn default() -> Self {
        Self { data: Buffer::default(), k: 0, n: 0, path: Path::Scalar }
    }
}

impl<T: Real> Packed<T> {
    /// Packs B (k × n); transposed views are welcome.
    pub fn pack(&mut self, b: Mat<T>) {
        self.pack_for(crate::kernel::path(), b);
    }

    /// The same for a given path.
    pub(crate) fn pack_for(&mut self, path: Path, b: Mat<T>) {
        self.lay_out(path, b, b.cols());
    }

    /// [B | 1]: with a last column of ones.
    pub(crate) fn pack_with_ones(&mut self, path: Path, b: Mat<T>) {
        self.lay_out(path, b, b.cols() + 1);
        let width = self.width();
        let last = &mut self.data.as_mut_slice()[b.cols() / width * width * b.rows()..];
        last.iter_mut().skip(b.cols() % width).step_by(width).for_each(|x| *x = T::ONE);
    }

    fn lay_out(&mut self, path: Path, b: Mat<T>, n: usize) {
        (self.k, self.n, self.path) = (b.rows(), n, path);
        let width = self.width();
        self.data.set_len(n.div_ceil(width) * width * self.k);
        pack::pack(path, self.data.as_mut_slice(), width, b);
    }

    /// Rows of B.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Columns of B.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns of a panel.
    pub(crate) fn width(&self) -> usize {
        T::panel_width(self.path)
    }

    /// The panels, one after the other.
    pub(crate) fn panels(&self) -> &[T] {
        self.data.as_slice()
    }
}

/// Steps of k between visits to C. Longer than the first-level cache would like, because rows of C are slower to come by
/// than the panel, which streams.
const KC: usize = 384;
/// Numbers of a block of A, which stays in the second-level cache: fewer steps of k leave room for more rows, and B is then
/// read less often.
const BLOCK: usize = 1 << 17;
/// Rows of a block of A at most.
const HIGH: usize = 1024;

/// C = start + A·B, on the calling thread.
pub fn product<T: Real>(c: MatMut<T>, start: Start<T>, a: Mat<T>, b: &Packed<T>) {
    check(&c, start, a, b);
    // SAFETY: the shapes agree, and C is borrowed mutably.
    unsafe { part(c.data.as_mut_ptr(), c.stride, start, a, b, 0, b.n) }
}

/// The same on all threads of the current pool.
pub fn product_par<T: Real>(c: MatMut<T>, start: Start<T>, a: Mat<T>, b: &Packed<T>) {
    use rayon::prelude::*;
    check(&c, start, a, b);
    let threads = rayon::current_num_threads();
    let work = c.rows * c.cols * b.k;
    if threads == 1 || work < PARALLEL_FROM {
        return product(c, start, a, b);
    }
    // The longer side is cut: the operand of the other side is then read by all threads, and it is the smaller one.
    let width = b.width();
    let (by_rows, unit) = if c.rows >= c.cols { (true, 12) } else { (false, width) };
    let side = if by_rows { c.rows } else { c.cols };
    let chunks = (threads * 4).min(work / (PARALLEL_FROM / 2)).max(threads);
    let chunk = side.div_ceil(chunks).next_multiple_of(unit);
    let shared = Shared(c.data.as_mut_ptr());
    let stride = c.stride;
    (0..side.div_ceil(chunk)).into_par_iter().for_each(|i| {
        let (from, to) = (i * chunk, side.min((i + 1) * chunk));
        // SAFETY: the shapes agree, C is borrowed mutably, and the chunks of different tasks do not overlap.
        unsafe {
            if by_rows {
                part(shared.at(from * stride), stride, start, a.rows_range(from, to), b, 0, b.n);
            } else {
                part(shared.at(0), stride, start, a, b, from, to);
            }
        }
    });
}

/// Multiply-adds below which handing work to other threads costs more than it saves.
const PARALLEL_FROM: usize = 1 << 20;

/// A pointer that tasks share; each of them writes only its own part.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub(crate) *mut T);
// SAFETY: whoever makes one sees to it that tasks write disjoint parts.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The address of element `i`.
    ///
    /// # Safety
    /// `i` lies within what the pointer was made from.
    pub(crate) unsafe fn at(&self, i: usize) -> *mut T {
        // SAFETY: the caller's word.
        unsafe { self.0.add(i) }
    }
}

fn check<T: Real>(c: &MatMut<T>, start: Start<T>, a: Mat<T>, b: &Packed<T>) {
    assert_eq!((a.rows(), b.n, a.cols()), (c.rows, c.cols, b.k), "shapes of a product do not fit");
    if let Start::Bias(bias) = start {
        assert_eq!(bias.len(), c.cols, "length of the bias");
    }
}

/// One panel, in blocks of k.
///
/// # Safety
/// As for [`crate::kernel::Lanes::panel`]; A has no segments.
pub(crate) unsafe fn in_blocks<T: Real>(path: Path, panel: Panel<T>) {
    let width = T::panel_width(path);
    let (mut part, mut left) = (panel, panel.k);
    loop {
        part.k = left.min(KC);
        // SAFETY: the caller's word; the blocks lie in the panel.
        unsafe { T::panel(path, &part) };
        left -= part.k;
        if left == 0 {
            break;
        }
        part.a = part.a.wrapping_add(part.k * part.a_col);
        part.b = part.b.wrapping_add(part.k * width);
        part.first = First::Keep;
    }
}

/// Columns `from..to` of C = start + A·B; `from` begins a panel.
///
/// # Safety
/// `c` is the first element of all of C (also of the columns before `from`), whose shape fits A and B.
unsafe fn part<T: Real>(c: *mut T, stride: usize, start: Start<T>, a: Mat<T>, b: &Packed<T>, from: usize, to: usize) {
    if a.rows == 0 || from >= to {
        return;
    }
    if !scattered(a) || to - from < MANY {
        // SAFETY: passed on to the caller.
        return unsafe { blocks(c, stride, start, a, b, from, to, None) };
    }
    thread_local! {
        /// Doubles, so that it serves both number types.
        static ROOM: RefCell<Buffer<f64>> = RefCell::default();
    }
    ROOM.with_borrow_mut(|room| {
        room.set_len(BLOCK + GAP * HIGH);
        let room = room.as_mut_slice();
        // SAFETY: room for doubles is room for as many floats, and any bits are numbers; the rest is the caller's word.
        unsafe {
            let room = std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<T>(), room.len());
            blocks(c, stride, start, a, b, from, to, Some(room));
        }
    });
}

/// Columns of C from which it pays to copy a block of A.
const MANY: usize = 64;
/// A block has at most [`HIGH`] lines either way.
const _: () = assert!(KC <= HIGH && KC <= BLOCK);
/// Numbers between the lines of a copied block, so that lines do not begin in the same set of the cache.
const GAP: usize = 16;

/// Whether lines of A lie so far apart, or so evenly, that they fight for the same sets of the cache.
fn scattered<T: Real>(a: Mat<T>) -> bool {
    if a.col_stride == 1 {
        a.rows > 4 && (a.row_stride * T::BYTES).is_multiple_of(2048)
    } else {
        let bytes = a.col_stride * T::BYTES;
        a.row_stride == 1 && (bytes >= 4096 || bytes.is_multiple_of(1024))
    }
}

/// The loops around the panels. With `room`, each block of A is copied there first.
///
/// # Safety
/// As for [`part`].
#[allow(clippy::too_many_arguments)]
unsafe fn blocks<T: Real>(
    c: *mut T,
    stride: usize,
    start: Start<T>,
    a: Mat<T>,
    b: &Packed<T>,
    from: usize,
    to: usize,
    mut room: Option<&mut [T]>,
) {
    let (width, path, panels) = (b.width(), b.path, b.panels());
    let mut k0 = 0;
    loop {
        let k1 = b.k.min(k0 + KC);
        let high = (BLOCK / (k1 - k0).max(1)).min(HIGH);
        for i0 in (0..a.rows).step_by(high) {
            let i1 = a.rows.min(i0 + high);
            let block = match &mut room {
                None => a.rows_range(i0, i1).cols_range(k0, k1),
                Some(room) => copy(room, a.rows_range(i0, i1).cols_range(k0, k1)),
            };
            for j in (from..to).step_by(width) {
                let first = match start {
                    _ if k0 > 0 => First::Keep,
                    Start::Zero => First::Zero,
                    Start::Keep => First::Keep,
                    Start::Bias(bias) => First::Cols(bias[j..].as_ptr()),
                };
                // SAFETY: views were checked against their slices when they were made, the panel lies in the packed
                // buffer, and the rest is the caller's word. With k = 0 the pointers into A and B are not read.
                unsafe {
                    let panel = Panel {
                        c: c.add(i0 * stride + j),
                        c_stride: stride,
                        a: block.data.as_ptr(),
                        a_row: block.row_stride,
                        a_col: block.col_stride,
                        b: panels.as_ptr().add(j * b.k + k0 * width),
                        rows: i1 - i0,
                        cols: (to - j).min(width),
                        k: k1 - k0,
                        segment: usize::MAX,
                        jump: 0,
                        first,
                        ahead: std::ptr::null(),
                        ahead_lines: 0,
                    };
                    T::panel(path, &panel);
                }
            }
        }
        k0 = k1;
        if k0 >= b.k {
            break;
        }
    }
}

/// The block with its lines (rows, or columns if those are adjacent) close together.
fn copy<'r, T: Real>(room: &'r mut [T], block: Mat<T>) -> Mat<'r, T> {
    let upright = block.col_stride == 1;
    let lines = if upright { block } else { block.t() };
    let stride = lines.cols + GAP;
    for (i, to) in room.chunks_mut(stride).take(lines.rows).enumerate() {
        to[..lines.cols].copy_from_slice(&lines.data[i * lines.row_stride..][..lines.cols]);
    }
    let copied = Mat::strided(room, lines.rows, lines.cols, stride);
    if upright { copied } else { copied.t() }
}
