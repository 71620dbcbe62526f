//! exp, tanh and the logistic function, without branches, so that loops over them vectorise inside
//! [`vectorize`](super::vectorize).
//!
//! All three reduce to e^r − 1 on |r| ≤ ½ ln 2: with n = round(x / ln 2) and r = x − n ln 2 (in two steps of a fused
//! multiply-add, so r is exact to the last bit), e^x = 2^n · e^r. Only fused multiply-adds and single operations are
//! used, in a fixed order: all paths give the same bits. The bounds stated below are what the tests sweep.

/// Adding it leaves a number below 2^22 rounded to an integer, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0; // 1.5 · 2^23
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 with zeros at the end, so that n · LN2_HIGH is exact for |n| < 2^10; and the rest of ln 2.
const LN2_HIGH: f32 = 355.0 / 512.0;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Where 2^n would leave the normal numbers: 127.5 ln 2, and −126 ln 2 (rounded towards 0).
const EXP_MAX: f32 = 88.376_26;
const EXP_MIN: f32 = -87.336_54;

/// (2^n, e^r − 1) for x in [EXP_MIN, EXP_MAX].
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    let t = x.mul_add(LOG2_E, ROUND);
    let n = t - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
    let power = f32::from_bits((t.to_bits() << 23).wrapping_add(0x3f80_0000));
    // (e^r − 1 − r) / r², by least maximum error on |r| ≤ ½ ln 2.
    let mut q = 1.381_417_4e-3f32;
    q = q.mul_add(r, 8.368_922e-3);
    q = q.mul_add(r, 4.166_840_8e-2);
    q = q.mul_add(r, 0.166_665_2);
    q = q.mul_add(r, 4.999_999_3e-1);
    (power, (q * r).mul_add(r, r))
}

/// e^x; relative error at most 1.2e-7 between −87.33 and 88.37; 0 below, 2.4e38 (never ∞) above; NaN stays NaN.
#[inline(always)]
pub fn exp_f32(x: f32) -> f32 {
    let top = if x > EXP_MAX { EXP_MAX } else { x };
    let (power, p) = split(if top < EXP_MIN { EXP_MIN } else { top });
    let y = p.mul_add(power, power);
    if x < EXP_MIN { 0.0 } else { y }
}

/// Hyperbolic tangent; relative error at most 2.5e-7; odd; ±1 from |x| = 9.1 on; NaN stays NaN.
#[inline(always)]
pub fn tanh_f32(x: f32) -> f32 {
    let a = x.abs();
    let a = if a > 10.0 { 10.0 } else { a };
    let (power, p) = split(2.0 * a);
    let m = p.mul_add(power, power - 1.0); // e^2a − 1, accurate near 0 because there n = 0
    (m / (m + 2.0)).copysign(x)
}

/// 1 / (1 + e^−x); relative error at most 2.5e-7 above −87.33, absolute error below 1.2e-38 under it; NaN stays NaN.
#[inline(always)]
pub fn sigmoid_f32(x: f32) -> f32 {
    1.0 / (1.0 + exp_f32(-x))
}

/// 1 / (1 + e^−x)
#[inline(always)]
pub fn sigmoid_f64(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Kernel, on_each_path, vectorize};

    /// Every 97th f32 of either sign between 0 and `top`, and the neighbourhoods of the ends.
    fn sweep(top: f32) -> impl Iterator<Item = f32> {
        let end = top.to_bits();
        (0..end).step_by(97).chain(end - 1000..=end).map(f32::from_bits).flat_map(|x| [x, -x])
    }

    /// The largest relative error of f against the f64 function g.
    fn worst(top: f32, f: impl Fn(f32) -> f32, g: impl Fn(f64) -> f64) -> f64 {
        let mut worst = 0.0f64;
        for x in sweep(top) {
            let (got, want) = (f64::from(f(x)), g(f64::from(x)));
            // Below the normal numbers f32 has no relative precision to ask for.
            if want.abs() > f64::from(f32::MIN_POSITIVE) {
                worst = worst.max(((got - want) / want).abs());
            }
        }
        worst
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long for an interpreter")]
    fn errors_stay_below_the_stated_bounds() {
        let exp = worst(87.33, exp_f32, f64::exp);
        let tanh = worst(20.0, tanh_f32, f64::tanh);
        let sigmoid = worst(87.33, sigmoid_f32, sigmoid_f64);
        println!("exp {exp:.3e}, tanh {tanh:.3e}, sigmoid {sigmoid:.3e}");
        assert!(exp < 1.2e-7 && tanh < 2.5e-7 && sigmoid < 2.5e-7, "{exp:e} {tanh:e} {sigmoid:e}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long for an interpreter")]
    fn ends_and_zeros() {
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(-0.0), 1.0);
        for far in [-87.4, -100.0, -1e4, f32::MIN, f32::NEG_INFINITY] {
            assert_eq!(exp_f32(far), 0.0);
            assert!((0.0..1.2e-38).contains(&sigmoid_f32(far)));
            assert_eq!(tanh_f32(far), -1.0);
        }
        for far in [88.4, 100.0, 1e4, f32::MAX, f32::INFINITY] {
            assert!(exp_f32(far) > 2.3e38 && exp_f32(far).is_finite());
            assert_eq!(sigmoid_f32(far), 1.0);
            assert_eq!(tanh_f32(far), 1.0);
        }
        assert_eq!(tanh_f32(0.0).to_bits(), 0.0f32.to_bits());
        assert_eq!(tanh_f32(-0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(sigmoid_f32(0.0), 0.5);
        let tiny = f32::from_bits(1);
        assert!(tanh_f32(tiny) == tiny && tanh_f32(-tiny) == -tiny);
        assert!(exp_f32(f32::NAN).is_nan() && tanh_f32(f32::NAN).is_nan() && sigmoid_f32(f32::NAN).is_nan());
        assert!(sweep(f32::MAX).all(|x| !exp_f32(x).is_nan() && tanh_f32(x).abs() <= 1.0 && sigmoid_f32(x) <= 1.0));
    }

    struct All<'a>(&'a [f32], &'a mut [f32]);
    impl Kernel for All<'_> {
        type Out = ();
        #[inline(always)]
        fn run(self) {
            for (x, y) in self.0.iter().zip(self.1.chunks_exact_mut(3)) {
                y.copy_from_slice(&[exp_f32(*x), tanh_f32(*x), sigmoid_f32(*x)]);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long for an interpreter")]
    fn all_paths_give_the_same_bits() {
        let x: Vec<f32> = sweep(120.0).step_by(501).collect();
        let mut first: Option<Vec<u32>> = None;
        on_each_path(|path| {
            let mut y = vec![0.0; 3 * x.len()];
            vectorize(All(&x, &mut y));
            let bits: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
            assert_eq!(first.get_or_insert_with(|| bits.clone()), &bits, "{path:?}");
        });
    }
}
