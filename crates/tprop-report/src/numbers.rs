//! Numbers as people read them, and the mean and deviation of several.

use serde::Serialize;

/// A whole number with commas: 1,234,567.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let (first, rest) = digits.split_at((digits.len() - 1) % 3 + 1);
    rest.as_bytes().chunks(3).fold(first.to_owned(), |text, three| text + "," + &String::from_utf8_lossy(three))
}

/// A size in memory: 1.5 GB.
pub fn bytes(n: u64) -> String {
    let mut x = n as f64;
    for unit in ["bytes", "KB", "MB", "GB", "TB"] {
        if x < 1000.0 {
            let digits = usize::from(unit != "bytes" && x < 9.95);
            return format!("{x:.digits$} {unit}");
        }
        x /= 1000.0;
    }
    format!("{x:.0} PB")
}

/// A time: 4.2 s, 3:07, 2:05:09.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds > 1e9 {
        return "?".to_owned();
    }
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{}:{:02}", whole / 60, whole % 60),
        _ => format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60),
    }
}

/// A perplexity or the like with four digits that matter.
pub fn short(x: f64) -> String {
    match x.abs() {
        a if a < 10.0 => format!("{x:.3}"),
        a if a < 1000.0 => format!("{x:.2}"),
        a if a < 1e4 => format!("{x:.0}"),
        a if a < 1e6 => format!("{}{}", if x < 0.0 { "-" } else { "" }, grouped(a.round() as u64)),
        _ => format!("{x:.2e}"),
    }
}

/// A perplexity in a column: two digits behind the point, so that the points stand under each other.
pub fn ppl(x: f64) -> String {
    if x.abs() < 1e6 { format!("{x:.2}") } else { format!("{x:.2e}") }
}

/// A share: 12.5 %.
pub fn percent(x: f64) -> String {
    format!("{:.1} %", 100.0 * x)
}

/// A number as settings write it.
pub fn number(text: &str) -> Option<f64> {
    text.replace('_', "").parse().ok().filter(|x: &f64| x.is_finite())
}

/// Mean and deviation of some figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
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

    /// As a table shows it: `128.16 ± 0.31`, the deviation with as many digits as the mean.
    pub fn shown(&self) -> String {
        let mean = short(self.mean);
        match self.deviation {
            Some(d) => {
                let digits = mean.split_once('.').map_or(0, |(_, fraction)| fraction.len());
                format!("{mean} ± {d:.digits$}")
            }
            None => mean,
        }
    }

    /// As a sentence says it: `16.90`, or `16.90 ± 0.02 (3 seeds)`.
    pub fn said(&self, show: impl Fn(f64) -> String) -> String {
        match self.deviation {
            Some(d) => format!("{} ± {} ({} seeds)", show(self.mean), show(d), self.n),
            None => show(self.mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!((grouped(0), grouped(999), grouped(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!(
            (bytes(12), bytes(1_500_000), bytes(25_000_000)),
            ("12 bytes".into(), "1.5 MB".into(), "25 MB".into())
        );
        assert_eq!(
            (duration(4.21), duration(187.0), duration(7509.0)),
            ("4.2 s".into(), "3:07".into(), "2:05:09".into())
        );
        assert_eq!((short(4.5), short(128.157), short(1e9)), ("4.500".into(), "128.16".into(), "1.00e9".into()));
    }

    #[test]
    fn deviations_are_of_a_sample() {
        let spread = Spread::of(&[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((spread.mean, spread.deviation, spread.n), (2.0, Some(1.0), 3));
        assert_eq!(spread.shown(), "2.000 ± 1.000");
        assert_eq!(spread.said(|x| format!("{x:.1}")), "2.0 ± 1.0 (3 seeds)");
        assert_eq!(Spread::of(&[128.157]).unwrap().shown(), "128.16");
        assert_eq!(Spread::of(&[]), None);
    }
}
