//! The number type: `f32` for work, `f64` for gradient checks, in the same build.

use std::fmt::{Debug, Display};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// A floating-point number that models can be made of.
///
/// `exp`, `tanh` and `sigmoid` are branch-free for `f32`, so that loops over slices vectorise inside
/// [`crate::kernel::vectorize`]; the `f64` ones come from the standard library.
pub trait Real:
    Copy
    + Default
    + Debug
    + Display
    + PartialOrd
    + Send
    + Sync
    + Sum
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + crate::kernel::Lanes
    + 'static
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// −∞
    const NEG_INFINITY: Self;
    /// `"F32"` or `"F64"`, as safetensors writes it.
    const NAME: &'static str;
    /// Bytes of one number.
    const BYTES: usize;
    /// Nearest number.
    fn of(x: f64) -> Self;
    /// Exact widening.
    fn f64(self) -> f64;
    /// `self · a + b`, rounded once.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// e^x
    fn exp(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// 1 / (1 + e^−x)
    fn sigmoid(self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// |x|
    fn abs(self) -> Self;
    /// The larger.
    fn max(self, other: Self) -> Self;
    /// The smaller.
    fn min(self, other: Self) -> Self;
    /// Neither infinite nor NaN.
    fn is_finite(self) -> bool;
    /// Little-endian bytes of a slice, appended.
    fn write_le(values: &[Self], out: &mut Vec<u8>);
    /// The reverse of [`Real::write_le`]; `bytes` holds exactly `out.len()` numbers.
    fn read_le(bytes: &[u8], out: &mut [Self]);
}

macro_rules! real {
    ($t:ty, $name:literal, $exp:path, $tanh:path, $sigmoid:path) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = <$t>::NEG_INFINITY;
            const NAME: &'static str = $name;
            const BYTES: usize = size_of::<$t>();
            #[inline(always)]
            fn of(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                <$t>::mul_add(self, a, b)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                <$t>::ln(self)
            }
            #[inline(always)]
            fn tanh(self) -> Self {
                $tanh(self)
            }
            #[inline(always)]
            fn sigmoid(self) -> Self {
                $sigmoid(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                <$t>::sqrt(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                <$t>::abs(self)
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if other > self { other } else { self }
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if other < self { other } else { self }
            }
            #[inline(always)]
            fn is_finite(self) -> bool {
                <$t>::is_finite(self)
            }
            fn write_le(values: &[Self], out: &mut Vec<u8>) {
                out.reserve(size_of_val(values));
                for v in values {
                    out.extend_from_slice(&v.to_le_bytes());
                }
            }
            fn read_le(bytes: &[u8], out: &mut [Self]) {
                assert_eq!(bytes.len(), size_of_val(out));
                for (b, v) in bytes.chunks_exact(size_of::<$t>()).zip(out) {
                    *v = <$t>::from_le_bytes(b.try_into().expect("chunk of the right size"));
                }
            }
        }
    };
}

use crate::kernel::math;
real!(f32, "F32", math::exp_f32, math::tanh_f32, math::sigmoid_f32);
real!(f64, "F64", f64::exp, f64::tanh, math::sigmoid_f64);
