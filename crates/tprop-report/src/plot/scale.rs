//! Numbers → places on an axis, and the few numbers that are written beside it.

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    lo: f64,
    hi: f64,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Only whole numbers are written beside it.
    pub whole: bool,
    from: f64,
    to: f64,
}

impl Scale {
    /// An axis for `values` that runs from place `from` to place `to`; a logarithmic one where they are all above 0 and the largest
    /// is more than `ratio` times the smallest.
    pub fn fit(values: impl Iterator<Item = f64>, from: f64, to: f64, ratio: f64) -> Self {
        let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
        for x in values.filter(|x| x.is_finite()) {
            (lo, hi) = (lo.min(x), hi.max(x));
        }
        if lo > hi {
            (lo, hi) = (0.0, 1.0);
        }
        let log = lo > 0.0 && hi / lo > ratio;
        if lo == hi {
            let pad = if lo == 0.0 { 1.0 } else { lo.abs() * 0.05 };
            (lo, hi) = (lo - pad, hi + pad);
        }
        Self { lo, hi, log, whole: false, from, to }
    }

    /// A little room at both ends.
    pub fn padded(mut self, share: f64) -> Self {
        if self.log {
            let pad = (self.hi / self.lo).powf(share);
            (self.lo, self.hi) = (self.lo / pad, self.hi * pad);
        } else {
            let pad = (self.hi - self.lo) * share;
            // What is never negative does not get a negative axis.
            let floor = if self.lo >= 0.0 { 0.0 } else { f64::NEG_INFINITY };
            (self.lo, self.hi) = ((self.lo - pad).max(floor), self.hi + pad);
        }
        self
    }

    /// The place of a number.
    pub fn at(&self, x: f64) -> f64 {
        let share = if self.log {
            (x.max(f64::MIN_POSITIVE) / self.lo).ln() / (self.hi / self.lo).ln()
        } else {
            (x - self.lo) / (self.hi - self.lo)
        };
        self.from + share * (self.to - self.from)
    }

    /// About `count` round numbers, with their texts.
    pub fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        let found = if self.log { self.log_ticks(count) } else { self.linear_ticks(count) };
        let step = found.windows(2).map(|w| w[1] - w[0]).fold(f64::INFINITY, f64::min);
        // On a logarithmic axis each number has the digits that it needs itself.
        found.iter().map(|&x| (x, tick_text(x, if self.log { x } else { step }))).collect()
    }

    fn linear_ticks(&self, count: usize) -> Vec<f64> {
        let rough = (self.hi - self.lo) / count.max(1) as f64;
        let magnitude = 10f64.powf(rough.log10().floor());
        let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|n| n * magnitude >= rough * 0.999).unwrap_or(10.0);
        let mut step = nice * magnitude;
        if self.whole {
            step = step.max(1.0).round();
        }
        let (first, last) = ((self.lo / step - 1e-9).ceil() as i64, (self.hi / step + 1e-9).floor() as i64);
        (first..=last).take(50).map(|i| i as f64 * step).collect()
    }

    /// Powers of ten, with halves and fifths of them where there is room; round steps if that gives too few.
    fn log_ticks(&self, count: usize) -> Vec<f64> {
        // An end may have become 0 or infinite by padding; no number lies beyond these powers.
        let power = |x: f64| (x.log10() as i32).clamp(-330, 310);
        let (first, last) = (power(self.lo) - 1, power(self.hi) + 1);
        let inside = |x: &f64| *x >= self.lo * 0.999 && *x <= self.hi * 1.001;
        let of = |digits: &[f64], every: i32| -> Vec<f64> {
            let powers = (first..=last).filter(|p| p.rem_euclid(every) == 0);
            powers.flat_map(|p| digits.iter().map(move |d| d * 10f64.powi(p))).filter(inside).collect()
        };
        for (digits, every) in [(&[1.0, 2.0, 5.0][..], 1), (&[1.0], 1), (&[1.0], 2), (&[1.0], 5), (&[1.0], 25)] {
            let found = of(digits, every);
            if found.len() <= count + 2 {
                return if found.len() >= 3 { found } else { self.linear_ticks(count) };
            }
        }
        of(&[1.0], 50)
    }
}

/// A number beside an axis whose numbers lie `step` apart.
pub fn tick_text(x: f64, step: f64) -> String {
    if x == 0.0 {
        return "0".to_owned();
    }
    let size = x.abs();
    if !(1e-4..1e7).contains(&size) {
        return format!("{x:.0e}");
    }
    let step = if step.is_finite() && step > 0.0 { step } else { size };
    let digits = (-(step * 1.001).log10().floor()).clamp(0.0, 6.0) as usize;
    // 2.5 apart needs a digit more than 2 apart.
    let digits = (digits..7).find(|d| (x - format!("{x:.d$}").parse().unwrap_or(0.0)).abs() < step * 1e-3).unwrap_or(6);
    let text = format!("{size:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), String::new()), |(w, r)| (w, format!(".{r}")));
    let whole = whole.parse::<u64>().map_or_else(|_| whole.to_owned(), crate::numbers::grouped);
    format!("{}{whole}{rest}", if x < 0.0 { "−" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, count: usize) -> Vec<String> {
        scale.ticks(count).into_iter().map(|t| t.1).collect()
    }

    #[test]
    fn round_numbers_stand_beside_an_axis() {
        let of = |values: &[f64], ratio| Scale::fit(values.iter().copied(), 0.0, 100.0, ratio);
        assert_eq!(texts(of(&[0.0, 1.0], 3.0), 5), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(texts(of(&[129.0, 168.0], 3.0), 5), ["130", "140", "150", "160"]);
        assert_eq!(texts(Scale { whole: true, ..of(&[1.0, 2.0], 3.0) }, 5), ["1", "2"]);
        assert_eq!(texts(of(&[30.0, 1006.0], 3.0), 5), ["50", "100", "200", "500", "1,000"]);
        assert_eq!(texts(of(&[1e-8, 1.0], 3.0), 5), ["1e-8", "1e-6", "0.0001", "0.01", "1"]);
        assert_eq!(texts(of(&[-2.0, 2.0], 3.0), 4), ["−2", "−1", "0", "1", "2"]);
        assert!(of(&[1.0, 4.0], 3.0).log && !of(&[0.0, 4.0], 3.0).log && !of(&[1.0, 2.9], 3.0).log);
        assert_eq!(texts(of(&[4.0, 13.0], 3.0), 5).len(), 5);
    }

    #[test]
    fn places_are_in_order_and_at_the_ends() {
        for values in [[1.0, 1000.0], [1.0, 2.0], [-5.0, 5.0]] {
            let scale = Scale::fit(values.into_iter(), 10.0, 110.0, 3.0);
            assert_eq!((scale.at(values[0]).round(), scale.at(values[1]).round()), (10.0, 110.0));
        }
        let flat = Scale::fit([7.0, 7.0].into_iter(), 0.0, 100.0, 3.0);
        assert_eq!(flat.at(7.0), 50.0);
        let none = Scale::fit([f64::NAN].into_iter(), 0.0, 1.0, 3.0);
        assert!(none.at(0.5).is_finite() && !none.ticks(5).is_empty());
        assert!(Scale::fit([0.1, 5.0].into_iter(), 0.0, 1.0, 100.0).padded(0.1).at(0.0) <= 0.0);
        // Records may hold anything.
        let wild = [f64::MIN, -1.0, 0.0, f64::from_bits(1), 1e-300, 1e-9, 1.0, 1e300, f64::MAX];
        for (a, b) in wild.iter().flat_map(|a| wild.map(|b| (*a, b))) {
            let scale = Scale { whole: true, ..Scale::fit([a, b].into_iter(), 0.0, 100.0, 3.0).padded(0.05) };
            assert!(scale.ticks(5).len() <= 60, "{a} {b}");
        }
    }
}
