//! Mean and deviation of some figures.

/// Mean and deviation of some figures.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Spread {
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation with n − 1; none for one figure.
    pub deviation: Option<f64>,
    /// How many there are.
    pub n: usize,
}

impl Spread {
    /// Of these figures; none if there are none.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let n = figures.len();
        if n == 0 {
            return None;
        }
        let mean = figures.iter().sum::<f64>() / n as f64;
        let squares: f64 = figures.iter().map(|x| (x - mean).powi(2)).sum();
        Some(Self { mean, deviation: (n > 1).then(|| (squares / (n - 1) as f64).sqrt()), n })
    }

    /// As people read it: `128.16 ± 0.31`.
    pub fn shown(&self) -> String {
        let mean = crate::console::short(self.mean);
        match self.deviation {
            Some(d) => {
                let digits = mean.split_once('.').map_or(0, |(_, fraction)| fraction.len());
                format!("{mean} ± {d:.digits$}")
            }
            None => mean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_of_a_sample() {
        let spread = Spread::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((spread.mean, spread.deviation, spread.n), (2.0, Some(1.0), 3));
        assert_eq!(spread.shown(), "2.000 ± 1.000");
        assert_eq!(Spread::of(&[128.157]).unwrap().shown(), "128.16");
        assert_eq!(Spread::of(&[]), None);
    }
}
