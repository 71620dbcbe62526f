//! Where text goes: data to standard output, everything else to standard error. Nothing that a terminal would obey gets past here but
//! what this file itself says to it: names of files, runs and tokens may hold anything.

use std::io::{self, IsTerminal, Write};

use tprop::vocab::plain;

use crate::failure::{Failure, Outcome};
pub use tprop_report::numbers::{bytes, duration, grouped, short};

/// Writes data to standard output at once.
pub fn data(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    out.write_all(plain(text).as_bytes()).and_then(|()| out.flush()).map_err(|e| Failure::output(&e))
}

/// Writes one line of data.
pub fn line(text: impl std::fmt::Display) -> Outcome {
    data(&format!("{text}\n"))
}

/// Writes a line for people; if nobody can read it, that is no reason to stop.
pub fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{}", plain(&text.to_string()));
}

/// Whether standard error is a terminal that shows an updating line.
pub fn live() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether to use colours on standard error: <https://no-color.org>.
pub fn coloured() -> bool {
    live() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Switches bold letters on and off.
pub const BOLD: &str = "\x1b[1m";
/// Back to plain letters.
pub const PLAIN: &str = "\x1b[0m";

/// Columns of the terminal.
pub fn columns() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(80, |(terminal_size::Width(w), _)| usize::from(w))
}

/// Lines on a terminal that are drawn again and again. Lines that stay are written above them, or alone where there is no terminal.
#[derive(Debug)]
pub struct Live {
    quiet: bool,
    terminal: bool,
    /// So many lines stand on the terminal, and must be wiped before anything else is written.
    drawn: usize,
}

impl Live {
    /// Nothing is shown if `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self { quiet, terminal: live(), drawn: 0 }
    }

    /// Whether lines are drawn.
    pub fn draws(&self) -> bool {
        self.terminal && !self.quiet
    }

    /// Draws lines in the place of the last ones, cut to the width of the terminal.
    pub fn draw(&mut self, lines: &[String]) {
        self.wipe();
        let width = columns().saturating_sub(1);
        let mut err = io::stderr().lock();
        for line in lines {
            let _ = writeln!(err, "{}", plain(&line.chars().take(width).collect::<String>()));
        }
        self.drawn = lines.len();
    }

    /// Writes a line that stays.
    pub fn line(&mut self, text: &str) {
        self.wipe();
        if !self.quiet {
            // The only letters for which a terminal is told anything.
            let mut text = plain(text).into_owned();
            for code in [BOLD, PLAIN] {
                text = text.replace(&*plain(code), code);
            }
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }

    /// Removes what was drawn.
    pub fn wipe(&mut self) {
        if self.drawn > 0 {
            let _ = write!(io::stderr().lock(), "\x1b[{}A\x1b[J", std::mem::take(&mut self.drawn));
        }
    }
}
