//! The micro-kernels: a few rows of C in registers against one packed panel of B.
//!
//! One generic body, [`tile`], is written over a vector type and compiled for each instruction set. It keeps an
//! MR × NV block of accumulators, and for each k multiplies one row of the panel with MR broadcast elements of A. A is
//! read where it stands; only B is packed. Each accumulator is one chain of fused multiply-adds over ascending k, which is
//! what makes all paths agree bit for bit.

#![allow(clippy::needless_range_loop)] // register blocks read best by index

use crate::kernel::{Lanes, Path};

/// Where the accumulators begin.
#[derive(Clone, Copy, Debug)]
pub enum First<T> {
    /// At 0.
    Zero,
    /// At C.
    Keep,
    /// At one value per column.
    Cols(*const T),
    /// At one value per row.
    Rows(*const T),
    /// At C times one value per column.
    Scaled(*const T),
}

/// A product of some rows of A with one panel of B. `k` runs in segments: after each `segment` steps A jumps by
/// `jump`, so that A may itself stand in panels.
#[derive(Clone, Copy, Debug)]
pub struct Panel<T> {
    /// First element of C; its rows begin `c_stride` apart.
    pub c: *mut T,
    /// See `c`.
    pub c_stride: usize,
    /// First element of A; element (i, k) stands `i·a_row + k·a_col` after it.
    pub a: *const T,
    /// See `a`.
    pub a_row: usize,
    /// See `a`.
    pub a_col: usize,
    /// First element of the panel: k rows of the path's panel width.
    pub b: *const T,
    /// Rows of C.
    pub rows: usize,
    /// Columns of C, at most a panel.
    pub cols: usize,
    /// Length of the sums.
    pub k: usize,
    /// Steps of k between jumps of A.
    pub segment: usize,
    /// How far A jumps from the beginning of one segment to the beginning of the next.
    pub jump: usize,
    /// Where the sums begin.
    pub first: First<T>,
    /// Memory that will be wanted next, and how many cache lines of it to ask for, spread over the tiles.
    pub ahead: *const T,
    /// See `ahead`.
    pub ahead_lines: usize,
}

/// A vector of one instruction set. All methods are inlined into functions compiled for that set.
trait Simd: Copy {
    type T: Copy;
    const LANES: usize;
    unsafe fn zero() -> Self;
    unsafe fn splat(x: Self::T) -> Self;
    unsafe fn load(p: *const Self::T) -> Self;
    unsafe fn store(self, p: *mut Self::T);
    /// Only the first `n` lanes touch memory.
    unsafe fn load_part(p: *const Self::T, n: usize) -> Self;
    unsafe fn store_part(self, p: *mut Self::T, n: usize);
    /// a·b + self, rounded once.
    unsafe fn fma(self, a: Self, b: Self) -> Self;
    unsafe fn mul(self, a: Self) -> Self;
}

/// How A is stepped through; known at compile time so that addresses need few registers.
const ANY: u8 = 0;
const ROWS_ADJACENT: u8 = 1;
const COLS_ADJACENT: u8 = 2;

/// MR rows against a panel of width W, of which NV vectors are used.
#[inline(always)]
unsafe fn tile<S: Simd, const MR: usize, const NV: usize, const W: usize, const A: u8>(p: &Panel<S::T>) {
    // SAFETY: the caller of `run` vouches for all pointers and extents; `W ≥ NV·LANES`, and the last vector touches
    // only its used lanes of C and of the row that C begins with.
    unsafe {
        let last = p.cols - (NV - 1) * S::LANES;
        let load = |at: *const S::T, j: usize| {
            if j + 1 < NV || last == S::LANES {
                S::load(at.add(j * S::LANES))
            } else {
                S::load_part(at.add(j * S::LANES), last)
            }
        };
        let mut acc = [[S::zero(); NV]; MR];
        match p.first {
            First::Zero => {}
            First::Keep => {
                for i in 0..MR {
                    for j in 0..NV {
                        acc[i][j] = load(p.c.add(i * p.c_stride), j);
                    }
                }
            }
            First::Cols(bias) => {
                for j in 0..NV {
                    let v = load(bias, j);
                    for row in &mut acc {
                        row[j] = v;
                    }
                }
            }
            First::Rows(bias) => {
                for i in 0..MR {
                    acc[i] = [S::splat(*bias.add(i)); NV];
                }
            }
            First::Scaled(by) => {
                for j in 0..NV {
                    let v = load(by, j);
                    for i in 0..MR {
                        acc[i][j] = load(p.c.add(i * p.c_stride), j).mul(v);
                    }
                }
            }
        }
        let rs = if A == ROWS_ADJACENT { 1 } else { p.a_row };
        let cs = if A == COLS_ADJACENT { 1 } else { p.a_col };
        let (mut b, mut begin, mut left) = (p.b, p.a, p.k);
        while left > 0 {
            let steps = left.min(p.segment);
            let mut a = begin;
            for _ in 0..steps {
                let mut row = [S::zero(); NV];
                for j in 0..NV {
                    row[j] = S::load(b.add(j * S::LANES));
                }
                for i in 0..MR {
                    let x = S::splat(*a.add(i * rs));
                    for j in 0..NV {
                        acc[i][j] = acc[i][j].fma(x, row[j]);
                    }
                }
                // Behind the last one it may leave the matrix.
                a = a.wrapping_add(cs);
                b = b.add(W);
            }
            begin = begin.wrapping_add(p.jump);
            left -= steps;
        }
        for i in 0..MR {
            for j in 0..NV {
                let at = p.c.add(i * p.c_stride + j * S::LANES);
                if j + 1 < NV || last == S::LANES {
                    acc[i][j].store(at);
                } else {
                    acc[i][j].store_part(at, last);
                }
            }
        }
    }
}

/// Asks for cache lines; a request never faults, so any address will do.
#[inline(always)]
fn ask<T>(at: *const T, lines: std::ops::Range<usize>) {
    #[cfg(target_arch = "x86_64")]
    for line in lines {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: every x86-64 machine has the instruction, and it does not access memory architecturally.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast::<i8>().wrapping_add(line * 64)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, lines);
}

/// Cuts the rows into tiles of nearly equal height, at most `$max`, and runs each.
macro_rules! sweep {
    ($one:ident, $S:ty, $nv:literal, $w:literal, $max:literal, $p:expr) => {{
        let p: &Panel<_> = $p;
        let tiles = p.rows.div_ceil($max);
        let mut done = 0;
        for t in 0..tiles {
            let mr = (p.rows - done).div_ceil(tiles - t);
            let first = match p.first {
                First::Rows(bias) => First::Rows(bias.add(done)),
                other => other,
            };
            ask(p.ahead, p.ahead_lines * t / tiles..p.ahead_lines * (t + 1) / tiles);
            let q = Panel { c: p.c.add(done * p.c_stride), a: p.a.add(done * p.a_row), first, ..*p };
            // The rows of C that the next tile begins with and ends in.
            for i in done + mr..p.rows.min(done + mr + $max) {
                ask(p.c.add(i * p.c_stride).cast_const(), 0..2);
            }
            if p.a_row == 1 {
                sweep!(@rows $one, $S, $nv, $w, ROWS_ADJACENT, &q, mr);
            } else if p.a_col == 1 {
                sweep!(@rows $one, $S, $nv, $w, COLS_ADJACENT, &q, mr);
            } else {
                sweep!(@rows $one, $S, $nv, $w, ANY, &q, mr);
            }
            done += mr;
        }
    }};
    (@rows $one:ident, $S:ty, $nv:literal, $w:literal, $a:ident, $q:expr, $mr:expr) => {
        match $mr {
            1 => $one::<$S, 1, $nv, $w, $a>($q),
            2 => $one::<$S, 2, $nv, $w, $a>($q),
            3 => $one::<$S, 3, $nv, $w, $a>($q),
            4 => $one::<$S, 4, $nv, $w, $a>($q),
            5 => $one::<$S, 5, $nv, $w, $a>($q),
            6 => $one::<$S, 6, $nv, $w, $a>($q),
            7 => $one::<$S, 7, $nv, $w, $a>($q),
            8 => $one::<$S, 8, $nv, $w, $a>($q),
            9 => $one::<$S, 9, $nv, $w, $a>($q),
            10 => $one::<$S, 10, $nv, $w, $a>($q),
            11 => $one::<$S, 11, $nv, $w, $a>($q),
            _ => $one::<$S, 12, $nv, $w, $a>($q),
        }
    };
}

/// The portable path: one element at a time, on targets whose vector unit we do not know.
#[inline(always)]
unsafe fn plain<T: crate::real::Real>(p: &Panel<T>, width: usize) {
    for i in 0..p.rows {
        for j in 0..p.cols {
            // SAFETY: the caller of `run` vouches for all pointers and extents.
            unsafe {
                let c = p.c.add(i * p.c_stride + j);
                let mut sum = match p.first {
                    First::Zero => T::ZERO,
                    First::Keep => *c,
                    First::Cols(bias) => *bias.add(j),
                    First::Rows(bias) => *bias.add(i),
                    First::Scaled(by) => *c * *by.add(j),
                };
                for k in 0..p.k {
                    let at = k / p.segment * p.jump + k % p.segment * p.a_col;
                    sum = (*p.a.add(i * p.a_row + at)).mul_add(*p.b.add(k * width + j), sum);
                }
                *c = sum;
            }
        }
    }
}

/// Width of a panel of the portable path.
const PLAIN: usize = 8;

macro_rules! lanes {
    ($t:ty, $x86:ident, $arm:ident, $w512:literal, $w256:literal, $w128:literal, $turn:path) => {
        impl Lanes for $t {
            fn panel_width(path: Path) -> usize {
                match path {
                    Path::Avx512 => $w512,
                    Path::Avx2 => $w256,
                    Path::Neon => $w128,
                    Path::Scalar => PLAIN,
                }
            }

            unsafe fn panel(path: Path, p: &Panel<$t>) {
                if p.rows == 0 || p.cols == 0 {
                    return;
                }
                // SAFETY: a path is only ever taken from those that the machine has; the rest is the caller's word.
                unsafe {
                    match path {
                        #[cfg(target_arch = "x86_64")]
                        Path::Avx512 => x86::$x86::avx512(p),
                        #[cfg(target_arch = "x86_64")]
                        Path::Avx2 => x86::$x86::avx2(p),
                        #[cfg(target_arch = "aarch64")]
                        Path::Neon => arm::$arm::neon(p),
                        other => plain(p, Self::panel_width(other)),
                    }
                }
            }

            unsafe fn turn(path: Path, to: *mut Self, stride: usize, from: *const Self, from_stride: usize) {
                // SAFETY: as above.
                unsafe { $turn(path, to, stride, from, from_stride) }
            }
        }
    };
}
lanes!(f32, single, single, 32, 16, 8, turn_single);
lanes!(f64, double, double, 16, 8, 4, turn_double);

unsafe fn turn_single(path: Path, to: *mut f32, stride: usize, from: *const f32, from_stride: usize) {
    // SAFETY: passed on to the caller.
    unsafe {
        match path {
            #[cfg(target_arch = "x86_64")]
            Path::Avx512 | Path::Avx2 => super::pack::turn_avx2(to, stride, from, from_stride),
            _ => super::pack::turn_plain(to, stride, from, from_stride),
        }
    }
}

unsafe fn turn_double(_: Path, to: *mut f64, stride: usize, from: *const f64, from_stride: usize) {
    // SAFETY: passed on to the caller.
    unsafe { super::pack::turn_plain(to, stride, from, from_stride) }
}

#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
mod arm;
