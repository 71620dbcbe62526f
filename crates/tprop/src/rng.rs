//! Random numbers without a state: a draw is a function of (seed, purpose, index), so there is nothing to save and
//! nothing to keep in step between threads, ranks or restarts.

/// A stream of draws for one purpose.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    key: u64,
}

impl Draws {
    /// The draws of `seed` for `purpose`; different purposes are independent streams.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut key = mix(seed ^ 0x6a09_e667_f3bc_c908);
        for byte in purpose.bytes() {
            key = mix(key ^ u64::from(byte));
        }
        Self { key }
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&self, index: u64) -> u64 {
        mix(mix(self.key.wrapping_add(index.wrapping_mul(GOLDEN))) ^ self.key)
    }

    /// Uniform in [0, 1).
    #[inline]
    pub fn unit(&self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in [−bound, bound).
    #[inline]
    pub fn within(&self, index: u64, bound: f64) -> f64 {
        (2.0 * self.unit(index) - 1.0) * bound
    }

    /// Uniform in 0..n; the bias is below 2^−64 · n.
    #[inline]
    pub fn below(&self, index: u64, n: u64) -> u64 {
        ((u128::from(self.bits(index)) * u128::from(n)) >> 64) as u64
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64: a bijection that sends every input bit to every output bit.
#[inline]
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_spread_and_purposes_differ() {
        let (a, b) = (Draws::new(1, "a"), Draws::new(1, "b"));
        let n = 100_000;
        let mean: f64 = (0..n).map(|i| a.unit(i)).sum::<f64>() / n as f64;
        let square: f64 = (0..n).map(|i| a.unit(i).powi(2)).sum::<f64>() / n as f64;
        let cross: f64 = (0..n).map(|i| (a.unit(i) - 0.5) * (b.unit(i) - 0.5)).sum::<f64>() / n as f64;
        let next: f64 = (0..n).map(|i| (a.unit(i) - 0.5) * (a.unit(i + 1) - 0.5)).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 4e-3 && (square - 1.0 / 3.0).abs() < 4e-3);
        assert!(cross.abs() < 1.5e-3 && next.abs() < 1.5e-3);
        assert_eq!(Draws::new(7, "x").bits(3), Draws::new(7, "x").bits(3));
        assert!((0..1000).all(|i| a.below(i, 3) < 3));
    }
}
