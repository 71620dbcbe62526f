//! Laying out the right-hand side in panels.

use super::Mat;
use crate::kernel::Path;
use crate::real::Real;

/// out[panel][k][width] = b, the last panel filled up with zeros.
pub fn pack<T: Real>(path: Path, out: &mut [T], width: usize, b: Mat<T>) {
    if b.rows == 0 || b.cols == 0 {
        return;
    }
    for (p, panel) in out.chunks_exact_mut(width * b.rows).enumerate() {
        let j = p * width;
        let part = b.cols_range(j, b.cols.min(j + width));
        if part.col_stride == 1 {
            copy_rows(panel, width, part);
        } else {
            turn_rows(path, panel, width, part);
        }
    }
}

/// Rows of the panel are parts of rows of B.
fn copy_rows<T: Real>(panel: &mut [T], width: usize, part: Mat<T>) {
    for (k, row) in panel.chunks_exact_mut(width).enumerate() {
        let from = &part.data[k * part.row_stride..][..part.cols];
        row[..part.cols].copy_from_slice(from);
        row[part.cols..].fill(T::ZERO);
    }
}

/// Columns of B are adjacent in memory, or nothing is.
fn turn_rows<T: Real>(path: Path, panel: &mut [T], width: usize, part: Mat<T>) {
    let (rows, cols) = (part.rows, part.cols);
    let (k8, j8) = if part.row_stride == 1 { (rows / 8 * 8, cols / 8 * 8) } else { (0, 0) };
    turn(path, &mut panel[..k8 * width], width, part.data, part.col_stride, j8);
    for (k, row) in panel.chunks_exact_mut(width).enumerate() {
        let done = if k < k8 { j8 } else { 0 };
        for (j, x) in row.iter_mut().enumerate().skip(done) {
            *x = if j < cols { part.at(k, j) } else { T::ZERO };
        }
    }
}

/// out[i·stride + j] = from[j·from_stride + i] for all rows of `out` and j below `cols`; both multiples of 8.
pub(crate) fn turn<T: Real>(path: Path, out: &mut [T], stride: usize, from: &[T], from_stride: usize, cols: usize) {
    let rows = if cols == 0 { 0 } else { (out.len() + stride - cols) / stride };
    assert!(rows.is_multiple_of(8) && cols.is_multiple_of(8) && cols <= stride);
    assert!(rows == 0 || (cols - 1) * from_stride + rows <= from.len());
    // Whole cache lines of `from` before the next rows: its lines are far apart.
    for j in (0..cols).step_by(8) {
        for i in (0..rows).step_by(8) {
            // SAFETY: the square ends at row i + 8 ≤ rows and column j + 8 ≤ cols, which both slices were found to hold.
            unsafe {
                let to = out.as_mut_ptr().add(i * stride + j);
                T::turn(path, to, stride, from.as_ptr().add(j * from_stride + i), from_stride);
            }
        }
    }
}

/// One square of 8 × 8, for any number type and target.
///
/// # Safety
/// Both squares can be accessed and do not overlap.
pub(crate) unsafe fn turn_plain<T: Copy>(to: *mut T, stride: usize, from: *const T, from_stride: usize) {
    for i in 0..8 {
        for j in 0..8 {
            // SAFETY: the caller's word.
            unsafe { *to.add(i * stride + j) = *from.add(j * from_stride + i) };
        }
    }
}

/// The same with AVX: pairs, fours, halves.
///
/// # Safety
/// As above, and the machine has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn turn_avx2(to: *mut f32, stride: usize, from: *const f32, from_stride: usize) {
    use std::arch::x86_64::*;
    // SAFETY: the caller's word.
    unsafe {
        let row = |i: usize| _mm256_loadu_ps(from.add(i * from_stride));
        let fours = |i: usize| {
            let (ab, cd) = ((row(i), row(i + 1)), (row(i + 2), row(i + 3)));
            let (l0, h0) = (_mm256_unpacklo_ps(ab.0, ab.1), _mm256_unpackhi_ps(ab.0, ab.1));
            let (l1, h1) = (_mm256_unpacklo_ps(cd.0, cd.1), _mm256_unpackhi_ps(cd.0, cd.1));
            [
                _mm256_shuffle_ps::<0x44>(l0, l1),
                _mm256_shuffle_ps::<0xee>(l0, l1),
                _mm256_shuffle_ps::<0x44>(h0, h1),
                _mm256_shuffle_ps::<0xee>(h0, h1),
            ]
        };
        let (left, right) = (fours(0), fours(4));
        for i in 0..4 {
            _mm256_storeu_ps(to.add(i * stride), _mm256_permute2f128_ps::<0x20>(left[i], right[i]));
            _mm256_storeu_ps(to.add((i + 4) * stride), _mm256_permute2f128_ps::<0x31>(left[i], right[i]));
        }
    }
}
