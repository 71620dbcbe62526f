//! Borrowed row-major views and the one product that everything is written with.
//!
//! `product` computes C = start + A·B, where B has been packed once ([`Packed`]) and may serve many products.
//! Each element is one chain of fused multiply-adds over k in ascending order, so the result does not depend on how
//! rows or columns are cut, on threads, or on the SIMD path: the twin in the tests agrees bit for bit.

use crate::real::Real;

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
        Self { data, rows, cols, stride }
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

/// The right-hand side of products, laid out for the vector unit. The buffer is reused from one packing to the next.
#[derive(Debug, Default)]
pub struct Packed<T> {
    data: Vec<T>,
    k: usize,
    n: usize,
}

impl<T: Real> Packed<T> {
    /// Packs B (k × n); transposed views are welcome.
    pub fn pack(&mut self, b: Mat<T>) {
        (self.k, self.n) = (b.rows(), b.cols());
        self.data.clear();
        for i in 0..self.k {
            for j in 0..self.n {
                self.data.push(b.at(i, j));
            }
        }
    }
    /// Rows of B.
    pub fn k(&self) -> usize {
        self.k
    }
    /// Columns of B.
    pub fn n(&self) -> usize {
        self.n
    }
}

/// C = start + A·B, on the calling thread.
pub fn product<T: Real>(c: MatMut<T>, start: Start<T>, a: Mat<T>, b: &Packed<T>) {
    assert_eq!((a.rows(), b.n, a.cols()), (c.rows, c.cols, b.k));
    for i in 0..c.rows {
        for j in 0..c.cols {
            let cij = &mut c.data[i * c.stride + j];
            let mut sum = match start {
                Start::Zero => T::ZERO,
                Start::Keep => *cij,
                Start::Bias(bias) => bias[j],
            };
            for k in 0..b.k {
                sum = a.at(i, k).mul_add(b.data[k * b.n + j], sum);
            }
            *cij = sum;
        }
    }
}

/// The same on all threads of the current pool, cut by rows of C.
pub fn product_par<T: Real>(c: MatMut<T>, start: Start<T>, a: Mat<T>, b: &Packed<T>) {
    use rayon::prelude::*;
    assert_eq!(a.rows(), c.rows);
    if c.rows == 0 || c.cols == 0 {
        return;
    }
    let piece = c.rows.div_ceil(rayon::current_num_threads()).next_multiple_of(16);
    let (cols, stride, rows) = (c.cols, c.stride, c.rows);
    let used = (rows - 1) * stride + cols;
    c.data[..used].par_chunks_mut(piece * stride).enumerate().for_each(|(i, part)| {
        let (from, to) = (i * piece, rows.min((i + 1) * piece));
        product(MatMut::strided(part, to - from, cols, stride), start, a.rows_range(from, to), b);
    });
}
