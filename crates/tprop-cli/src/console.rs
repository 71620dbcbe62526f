//! Where text goes: data to standard output, everything else to standard error.

use std::io::{self, IsTerminal, Write};

use crate::failure::{Failure, Outcome};

/// Writes data to standard output at once.
pub fn data(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| Failure::output(&e))
}

/// Writes one line of data.
pub fn line(text: impl std::fmt::Display) -> Outcome {
    data(&format!("{text}\n"))
}

/// Writes a line for people; if nobody can read it, that is no reason to stop.
pub fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Whether standard error is a terminal that shows an updating line.
pub fn live() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether to use colours on standard error: <https://no-color.org>.
pub fn coloured() -> bool {
    live() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Columns of the terminal.
pub fn columns() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(80, |(terminal_size::Width(w), _)| usize::from(w))
}

/// A whole number with commas: 1,234,567.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    text
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
}
