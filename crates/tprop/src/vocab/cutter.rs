//! Cuts a text into symbols.

use super::{Cutting, Level};

/// One symbol of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol<'a> {
    Word(&'a str),
    LineEnd,
}

/// Cuts a text that arrives in chunks into symbols; keeps at most one unfinished word of bounded length.
///
/// The sink gets each symbol with the byte at which it begins, and says whether to continue.
pub(crate) struct Cutter {
    cutting: Cutting,
    word: String,
    /// Longest word that is held, in bytes.
    longest: usize,
    /// Where the last symbol begins.
    start: u64,
    seen: u64,
    lines: u64,
    carriage_return: bool,
    spaces: u64,
    line_is_open: bool,
}

impl Cutter {
    pub fn new(cutting: Cutting, longest: usize) -> Self {
        Self {
            cutting,
            word: String::new(),
            longest,
            start: 0,
            seen: 0,
            lines: 0,
            carriage_return: false,
            spaces: 0,
            line_is_open: false,
        }
    }

    /// Where the last symbol begins, or the one that is too long: its line, from 1, and byte.
    pub fn place(&self) -> (u64, u64) {
        (self.lines + 1, self.start)
    }

    /// Cuts the next chunk, which begins at byte `at`. Stops early and returns false when the sink does, or when a word is
    /// too long.
    pub fn feed(&mut self, text: &str, at: u64, sink: &mut dyn FnMut(Symbol<'_>, u64) -> bool) -> bool {
        self.seen = at;
        let going = match self.cutting.level {
            Level::Word => self.feed_words(text, sink),
            _ => self.feed_chars(text, sink),
        };
        self.seen += text.len() as u64;
        going
    }

    /// What is left when the text is over. With `close_line` a last line that has no line end gets one.
    pub fn finish(&mut self, close_line: bool, sink: &mut dyn FnMut(Symbol<'_>, u64) -> bool) -> bool {
        let word = std::mem::take(&mut self.word);
        (word.is_empty() || sink(Symbol::Word(&word), self.start))
            && (!std::mem::take(&mut self.carriage_return) || self.character('\r', sink))
            && (!(close_line && self.line_is_open && self.cutting.eos) || sink(Symbol::LineEnd, self.seen))
    }

    fn feed_words(&mut self, text: &str, sink: &mut dyn FnMut(Symbol<'_>, u64) -> bool) -> bool {
        let mut begin = 0;
        for (at, c) in text.char_indices() {
            if !c.is_whitespace() {
                continue;
            }
            if begin < at || !self.word.is_empty() {
                if self.word.is_empty() {
                    self.start = self.seen + begin as u64;
                }
                if self.word.len() + (at - begin) > self.longest {
                    return false;
                }
                let going = if self.word.is_empty() {
                    sink(Symbol::Word(&text[begin..at]), self.start)
                } else {
                    self.word.push_str(&text[begin..at]);
                    sink(Symbol::Word(&self.word), self.start)
                };
                self.word.clear();
                if !going {
                    return false;
                }
            }
            begin = at + c.len_utf8();
            self.line_is_open = c != '\n';
            if c == '\n' {
                self.start = self.seen + at as u64;
                if self.cutting.eos && !sink(Symbol::LineEnd, self.start) {
                    return false;
                }
                self.lines += 1;
            }
        }
        if begin < text.len() {
            if self.word.is_empty() {
                self.start = self.seen + begin as u64;
            }
            self.line_is_open = true;
            if self.word.len() + (text.len() - begin) > self.longest {
                return false;
            }
            self.word.push_str(&text[begin..]);
        }
        true
    }

    fn feed_chars(&mut self, text: &str, sink: &mut dyn FnMut(Symbol<'_>, u64) -> bool) -> bool {
        let mut at = self.seen;
        for c in text.chars() {
            // CR LF is one line end, a lone CR a character like any other.
            if std::mem::take(&mut self.carriage_return) && c != '\n' && !self.character('\r', sink) {
                return false;
            }
            self.start = at;
            at += c.len_utf8() as u64;
            if c == '\r' {
                self.carriage_return = true;
                self.line_is_open = true;
            } else if !self.character(c, sink) {
                return false;
            }
        }
        true
    }

    fn character(&mut self, c: char, sink: &mut dyn FnMut(Symbol<'_>, u64) -> bool) -> bool {
        let start = self.start;
        match c {
            '\n' => {
                self.spaces = 0;
                self.lines += 1;
                self.line_is_open = false;
                match self.cutting {
                    Cutting { eos: true, .. } => sink(Symbol::LineEnd, start),
                    Cutting { underscores: true, .. } => sink(Symbol::Word("_"), start),
                    _ => sink(Symbol::Word(" "), start),
                }
            }
            ' ' if self.cutting.underscores => {
                // Dropped at the start of a line, and at its end unless something follows.
                self.spaces += u64::from(self.line_is_open);
                true
            }
            c => {
                self.line_is_open = true;
                let spaces = std::mem::take(&mut self.spaces);
                (0..spaces).all(|_| sink(Symbol::Word("_"), start))
                    && sink(Symbol::Word(c.encode_utf8(&mut [0; 4])), start)
            }
        }
    }
}
