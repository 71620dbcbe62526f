//! Tiles for AVX2 and AVX-512.

use super::{ANY, COLS_ADJACENT, First, Panel, ROWS_ADJACENT, Simd, ask, tile};
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512vl,avx512bw")]
unsafe fn one512<S: Simd, const MR: usize, const NV: usize, const W: usize, const A: u8>(p: &Panel<S::T>) {
    // SAFETY: passed on to the caller.
    unsafe { tile::<S, MR, NV, W, A>(p) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn one256<S: Simd, const MR: usize, const NV: usize, const W: usize, const A: u8>(p: &Panel<S::T>) {
    // SAFETY: passed on to the caller.
    unsafe { tile::<S, MR, NV, W, A>(p) }
}

/// All ones in the first n lanes, for the masked moves of AVX2.
static MASK32: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
static MASK64: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

macro_rules! vector {
    ($name:ident, $raw:ty, $t:ty, $lanes:literal, $zero:ident, $splat:ident, $load:ident, $store:ident,
     $fma:ident, $mul:ident, |$p:ident, $n:ident, $x:ident| $load_part:expr, $store_part:expr) => {
        #[derive(Clone, Copy)]
        pub struct $name($raw);

        impl Simd for $name {
            type T = $t;
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY (here and below): only inlined into functions compiled for the instruction set.
                unsafe { Self($zero()) }
            }
            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                // SAFETY: as above.
                unsafe { Self($splat(x)) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: as above; the caller vouches for the pointer.
                unsafe { Self($load(p)) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: as above; the caller vouches for the pointer.
                unsafe { $store(p, self.0) }
            }
            #[inline(always)]
            unsafe fn load_part($p: *const $t, $n: usize) -> Self {
                // SAFETY: as above; masked lanes are not touched.
                unsafe { Self($load_part) }
            }
            #[inline(always)]
            unsafe fn store_part(self, $p: *mut $t, $n: usize) {
                let $x = self.0;
                // SAFETY: as above; masked lanes are not touched.
                unsafe { $store_part }
            }
            #[inline(always)]
            unsafe fn fma(self, a: Self, b: Self) -> Self {
                // SAFETY: as above.
                unsafe { Self($fma(a.0, b.0, self.0)) }
            }
            #[inline(always)]
            unsafe fn mul(self, a: Self) -> Self {
                // SAFETY: as above.
                unsafe { Self($mul(self.0, a.0)) }
            }
        }
    };
}

macro_rules! drivers {
    ($wide:ty, $half:ty, $l512:literal, $l256:literal, $w512:literal, $w256:literal, $t:ty) => {
        #[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512vl,avx512bw")]
        pub unsafe fn avx512(p: &Panel<$t>) {
            // SAFETY: passed on to the caller.
            unsafe {
                if p.cols > $l512 {
                    sweep!(one512, $wide, 2, $w512, 12, p)
                } else if p.cols > $l256 {
                    sweep!(one512, $wide, 1, $w512, 12, p)
                } else {
                    sweep!(one512, $half, 1, $w512, 12, p)
                }
            }
        }

        #[target_feature(enable = "avx2,fma")]
        pub unsafe fn avx2(p: &Panel<$t>) {
            // SAFETY: passed on to the caller.
            unsafe {
                // Sixteen registers hold 6 × 2 accumulators and no more.
                if p.cols > $l256 {
                    sweep!(one256, $half, 2, $w256, 6, p)
                } else {
                    sweep!(one256, $half, 1, $w256, 12, p)
                }
            }
        }
    };
}

pub mod single {
    use super::*;
    vector!(
        F32x16,
        __m512,
        f32,
        16,
        _mm512_setzero_ps,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_fmadd_ps,
        _mm512_mul_ps,
        |p, n, x| _mm512_maskz_loadu_ps((1u16 << n) - 1, p),
        _mm512_mask_storeu_ps(p, (1u16 << n) - 1, x)
    );
    vector!(
        F32x8,
        __m256,
        f32,
        8,
        _mm256_setzero_ps,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_fmadd_ps,
        _mm256_mul_ps,
        |p, n, x| _mm256_maskload_ps(p, _mm256_loadu_si256(MASK32.as_ptr().add(8 - n).cast())),
        _mm256_maskstore_ps(p, _mm256_loadu_si256(MASK32.as_ptr().add(8 - n).cast()), x)
    );
    drivers!(F32x16, F32x8, 16, 8, 32, 16, f32);
}

pub mod double {
    use super::*;
    vector!(
        F64x8,
        __m512d,
        f64,
        8,
        _mm512_setzero_pd,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_fmadd_pd,
        _mm512_mul_pd,
        |p, n, x| _mm512_maskz_loadu_pd((1u8 << n) - 1, p),
        _mm512_mask_storeu_pd(p, (1u8 << n) - 1, x)
    );
    vector!(
        F64x4,
        __m256d,
        f64,
        4,
        _mm256_setzero_pd,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_fmadd_pd,
        _mm256_mul_pd,
        |p, n, x| _mm256_maskload_pd(p, _mm256_loadu_si256(MASK64.as_ptr().add(4 - n).cast())),
        _mm256_maskstore_pd(p, _mm256_loadu_si256(MASK64.as_ptr().add(4 - n).cast()), x)
    );
    drivers!(F64x8, F64x4, 8, 4, 16, 8, f64);
}
