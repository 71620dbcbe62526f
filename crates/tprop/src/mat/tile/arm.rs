//! Tiles for NEON.

use super::{ANY, COLS_ADJACENT, First, Panel, ROWS_ADJACENT, Simd, ask, tile};
use std::arch::aarch64::*;

#[target_feature(enable = "neon")]
unsafe fn one128<S: Simd, const MR: usize, const NV: usize, const W: usize, const A: u8>(p: &Panel<S::T>) {
    // SAFETY: passed on to the caller.
    unsafe { tile::<S, MR, NV, W, A>(p) }
}

macro_rules! vector {
    ($module:ident, $name:ident, $raw:ty, $t:ty, $lanes:literal, $w:literal, $splat:ident, $load:ident,
     $store:ident, $fma:ident, $mul:ident) => {
        pub mod $module {
            use super::*;
            #[derive(Clone, Copy)]
            pub struct $name($raw);

            impl Simd for $name {
                type T = $t;
                const LANES: usize = $lanes;
                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY (here and below): only inlined into functions compiled for NEON; the caller vouches
                    // for pointers.
                    unsafe { Self($splat(0.0)) }
                }
                #[inline(always)]
                unsafe fn splat(x: $t) -> Self {
                    // SAFETY: as above.
                    unsafe { Self($splat(x)) }
                }
                #[inline(always)]
                unsafe fn load(p: *const $t) -> Self {
                    // SAFETY: as above.
                    unsafe { Self($load(p)) }
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut $t) {
                    // SAFETY: as above.
                    unsafe { $store(p, self.0) }
                }
                #[inline(always)]
                unsafe fn load_part(p: *const $t, n: usize) -> Self {
                    let mut part = [0.0; $lanes];
                    // SAFETY: as above; only n elements are read.
                    unsafe {
                        std::ptr::copy_nonoverlapping(p, part.as_mut_ptr(), n);
                        Self($load(part.as_ptr()))
                    }
                }
                #[inline(always)]
                unsafe fn store_part(self, p: *mut $t, n: usize) {
                    let mut part = [0.0; $lanes];
                    // SAFETY: as above; only n elements are written.
                    unsafe {
                        $store(part.as_mut_ptr(), self.0);
                        std::ptr::copy_nonoverlapping(part.as_ptr(), p, n);
                    }
                }
                #[inline(always)]
                unsafe fn fma(self, a: Self, b: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { Self($fma(self.0, a.0, b.0)) }
                }
                #[inline(always)]
                unsafe fn mul(self, a: Self) -> Self {
                    // SAFETY: as above.
                    unsafe { Self($mul(self.0, a.0)) }
                }
            }

            pub unsafe fn neon(p: &Panel<$t>) {
                // SAFETY: passed on to the caller.
                unsafe {
                    if p.cols > $lanes {
                        sweep!(one128, $name, 2, $w, 12, p)
                    } else {
                        sweep!(one128, $name, 1, $w, 12, p)
                    }
                }
            }
        }
    };
}
vector!(single, F32x4, float32x4_t, f32, 4, 8, vdupq_n_f32, vld1q_f32, vst1q_f32, vfmaq_f32, vmulq_f32);
vector!(double, F64x2, float64x2_t, f64, 2, 4, vdupq_n_f64, vld1q_f64, vst1q_f64, vfmaq_f64, vmulq_f64);
