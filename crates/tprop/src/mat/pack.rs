//! Laying out the right-hand side in panels.

use super::Mat;
use crate::kernel::{Kernel, vectorize};
use crate::real::Real;

/// out[panel][k][width] = b, the last panel filled up with zeros.
pub fn pack<T: Real>(out: &mut [T], width: usize, b: Mat<T>) {
    if b.rows == 0 || b.cols == 0 {
        return;
    }
    for (p, panel) in out.chunks_exact_mut(width * b.rows).enumerate() {
        let j = p * width;
        let part = b.cols_range(j, b.cols.min(j + width));
        if part.col_stride == 1 {
            copy_rows(panel, width, part);
        } else {
            vectorize(Turn { panel, width, part });
        }
    }
}

/// Rows of the panel are pieces of rows of B.
fn copy_rows<T: Real>(panel: &mut [T], width: usize, part: Mat<T>) {
    for (k, row) in panel.chunks_exact_mut(width).enumerate() {
        let from = &part.data[k * part.row_stride..][..part.cols];
        row[..part.cols].copy_from_slice(from);
        row[part.cols..].fill(T::ZERO);
    }
}

/// Columns of B are adjacent in memory, or nothing is: squares of 8 × 8 go through registers.
struct Turn<'a, 'b, T> {
    panel: &'a mut [T],
    width: usize,
    part: Mat<'b, T>,
}

impl<T: Real> Kernel for Turn<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Self { panel, width, part } = self;
        let (rows, cols) = (part.rows, part.cols);
        let (k8, j8) = if part.row_stride == 1 { (rows / 8 * 8, cols / 8 * 8) } else { (0, 0) };
        for k in (0..k8).step_by(8) {
            for j in (0..j8).step_by(8) {
                let mut square = [[T::ZERO; 8]; 8];
                for (i, line) in square.iter_mut().enumerate() {
                    let from = (j + i) * part.col_stride + k;
                    line.copy_from_slice(&part.data[from..from + 8]);
                }
                for i in 0..8 {
                    let to = &mut panel[(k + i) * width + j..][..8];
                    for (x, line) in to.iter_mut().zip(&square) {
                        *x = line[i];
                    }
                }
            }
        }
        for k in 0..rows {
            let row = &mut panel[k * width..][..width];
            let done = if k < k8 { j8 } else { 0 };
            for (j, x) in row.iter_mut().enumerate().skip(done) {
                *x = if j < cols { part.at(k, j) } else { T::ZERO };
            }
        }
    }
}
