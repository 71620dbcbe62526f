//! Reads text in chunks and gives each different symbol a number, in the order of first occurrence.

use super::CorpusError;
use crate::tokens::Tokens;
use crate::vocab::{Cutter, Cutting, EOS, Level, Symbol};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest word, in bytes: far above any real one, so that a text without spaces is distinguished from one with them.
const LONGEST_WORD: usize = 1 << 16;
/// Most different words; a billion words of English have fewer, and memory stays near 2 GB.
const MOST_WORDS: usize = 1 << 24;
const CHUNK: usize = 1 << 18;

/// The different symbols seen so far.
pub(super) struct SymbolTable {
    cutting: Cutting,
    index: HashMap<Box<str>, u32>,
    line_end: Option<u32>,
    /// Numbers of the ASCII characters: at character level most symbols are found here.
    ascii: [u32; 128],
}

/// What a reading has seen besides its symbols.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    pub bytes: u64,
    pub lines: u64,
    /// Anything but white space.
    pub has_text: bool,
}

const NONE: u32 = u32::MAX;

impl SymbolTable {
    pub fn new(cutting: Cutting) -> Self {
        Self { cutting, index: HashMap::new(), line_end: None, ascii: [NONE; 128] }
    }

    /// The number of the line end, if there is one.
    pub fn line_end(&self) -> Option<u32> {
        match self.cutting.level {
            Level::Byte => Some(u32::from(b'\n')),
            _ => self.line_end,
        }
    }

    /// The words by number (none at byte level, where symbols are their own numbers).
    pub fn into_words(self) -> (Option<Vec<Box<str>>>, Cutting) {
        if self.cutting.level == Level::Byte {
            return (None, self.cutting);
        }
        let mut words: Vec<Box<str>> = vec![Box::default(); self.index.len()];
        for (word, number) in self.index {
            words[number as usize] = word;
        }
        (Some(words), self.cutting)
    }

    /// Appends the numbers of a file's symbols to `tokens`.
    pub fn read(&mut self, path: &Path, tokens: &mut Tokens) -> Result<(), CorpusError> {
        self.read_with_cuts(path, tokens, &[]).map(|_| ())
    }

    /// The same; returns for each byte in `cuts` the first token that begins there or behind.
    pub fn read_with_cuts(
        &mut self,
        path: &Path,
        tokens: &mut Tokens,
        cuts: &[u64],
    ) -> Result<Vec<usize>, CorpusError> {
        let file = open(path)?;
        self.read_from(file, path, tokens, cuts)
    }

    /// The same from any reader; `path` is for messages.
    pub fn read_from(
        &mut self,
        reader: impl Read,
        path: &Path,
        tokens: &mut Tokens,
        cuts: &[u64],
    ) -> Result<Vec<usize>, CorpusError> {
        let mut places = Vec::new();
        let mut count = 0;
        let extent = self.scan(reader, path, &mut |token, start| {
            while places.len() < cuts.len() && start >= cuts[places.len()] {
                places.push(count);
            }
            count += 1;
            tokens.push(token);
        })?;
        if !extent.has_text {
            return Err(CorpusError::Empty { path: path.to_owned(), bytes: extent.bytes });
        }
        places.resize(cuts.len(), count);
        Ok(places)
    }

    /// Hands the number of each symbol and the byte where it begins to `sink`.
    pub fn scan(
        &mut self,
        reader: impl Read,
        path: &Path,
        sink: &mut dyn FnMut(u32, u64),
    ) -> Result<Extent, CorpusError> {
        let mut chunks = Chunks::new(reader, path);
        let mut extent = Extent::default();
        if self.cutting.level == Level::Byte {
            while let Some(bytes) = chunks.bytes()? {
                for (&byte, at) in bytes.iter().zip(extent.bytes..) {
                    sink(u32::from(byte), at);
                }
                extent.bytes += bytes.len() as u64;
                extent.has_text = true;
            }
            extent.lines = chunks.lines();
            return Ok(extent);
        }
        let mut cutter = Cutter::new(self.cutting, LONGEST_WORD);
        let mut too_many = false;
        let mut take = |symbol: Symbol<'_>, at: u64| {
            extent.has_text = extent.has_text || matches!(symbol, Symbol::Word(word) if !word.trim().is_empty());
            match self.symbol(symbol) {
                Some(number) => sink(number, at),
                None => too_many = true,
            }
            !too_many
        };
        let mut going = true;
        while going && let Some((text, at)) = chunks.text()? {
            going = cutter.feed(text, at, &mut take);
        }
        going = going && cutter.finish(true, &mut take);
        let (line, offset) = cutter.place();
        match (going, too_many) {
            (_, true) => Err(CorpusError::ManyWords { path: path.to_owned(), line, limit: MOST_WORDS }),
            (false, _) => Err(CorpusError::LongWord { path: path.to_owned(), line, offset, limit: LONGEST_WORD }),
            (true, _) => {
                (extent.bytes, extent.lines) = (chunks.place, chunks.lines());
                Ok(extent)
            }
        }
    }

    /// The number of a symbol; none if there would be too many of them.
    fn symbol(&mut self, symbol: Symbol<'_>) -> Option<u32> {
        let word = match symbol {
            Symbol::LineEnd => {
                if let Some(number) = self.line_end {
                    return Some(number);
                }
                let word = if self.cutting.level == Level::Word { EOS } else { "\n" };
                self.line_end = self.number(word);
                return self.line_end;
            }
            Symbol::Word(word) => word,
        };
        if let &[byte @ 0..128] = word.as_bytes() {
            let known = self.ascii[usize::from(byte)];
            if known != NONE {
                return Some(known);
            }
            let number = self.number(word)?;
            self.ascii[usize::from(byte)] = number;
            return Some(number);
        }
        self.number(word)
    }

    fn number(&mut self, word: &str) -> Option<u32> {
        if let Some(&number) = self.index.get(word) {
            return Some(number);
        }
        let number = self.index.len();
        if number >= MOST_WORDS {
            return None;
        }
        self.index.insert(word.into(), number as u32);
        Some(number as u32)
    }
}

/// A file in chunks, checked to be text if it is asked for as text.
struct Chunks<'a, R> {
    reader: R,
    path: &'a Path,
    buffer: Vec<u8>,
    /// The part of the buffer that was handed out; behind it up to `filled` lies the beginning of a character.
    used: usize,
    filled: usize,
    ended: bool,
    /// Bytes and newlines handed out so far, and the last of these bytes.
    place: u64,
    newlines: u64,
    last: u8,
}

impl<'a, R: Read> Chunks<'a, R> {
    fn new(reader: R, path: &'a Path) -> Self {
        let buffer = vec![0; CHUNK];
        Self { reader, path, buffer, used: 0, filled: 0, ended: false, place: 0, newlines: 0, last: b'\n' }
    }

    /// Lines so far; a last one without a newline counts.
    fn lines(&self) -> u64 {
        self.newlines + u64::from(self.last != b'\n')
    }

    /// Moves what was not used to the front and fills the buffer behind it; false at the end.
    fn fill(&mut self) -> Result<bool, CorpusError> {
        self.buffer.copy_within(self.used..self.filled, 0);
        self.filled -= self.used;
        self.used = 0;
        while self.filled < self.buffer.len() && !self.ended {
            match self.reader.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.ended = true,
                Ok(got) => self.filled += got,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(CorpusError::Io { path: self.path.to_owned(), source }),
            }
        }
        Ok(self.filled > 0)
    }

    /// The next `length` bytes have been handed out.
    fn advance(&mut self, length: usize) {
        let bytes = &self.buffer[..length];
        self.newlines += newlines(bytes);
        self.last = bytes.last().copied().unwrap_or(self.last);
        self.place += length as u64;
        self.used = length;
    }

    fn bytes(&mut self) -> Result<Option<&[u8]>, CorpusError> {
        if !self.fill()? {
            return Ok(None);
        }
        self.advance(self.filled);
        Ok(Some(&self.buffer[..self.used]))
    }

    /// The next chunk of text and the byte where it begins; a byte order mark at the start of the file is left out of it.
    fn text(&mut self) -> Result<Option<(&str, u64)>, CorpusError> {
        if !self.fill()? {
            return Ok(None);
        }
        let bytes = &self.buffer[..self.filled];
        let begin = if self.place == 0 { byte_order_mark(bytes, self.path)? } else { 0 };
        let (length, broken) = match std::str::from_utf8(bytes) {
            Ok(_) => (bytes.len(), None),
            Err(e) => {
                let valid = e.valid_up_to();
                // A character may continue in the next chunk, but not behind the end of the file.
                (valid, Some(bytes[valid]).filter(|_| e.error_len().is_some() || self.ended))
            }
        };
        let place = |at: usize| (self.newlines + newlines(&bytes[..at]) + 1, self.place + at as u64);
        if let Some(at) = bytes[..length].iter().position(|&byte| byte == 0) {
            let (line, offset) = place(at);
            return Err(CorpusError::Nul { path: self.path.to_owned(), line, offset });
        }
        if let Some(byte) = broken {
            let (line, offset) = place(length);
            return Err(CorpusError::NotUtf8 { path: self.path.to_owned(), line, offset, byte });
        }
        let at = self.place + begin as u64;
        self.advance(length);
        // Found valid above; the borrow of `bytes` had to end in between.
        Ok(Some((std::str::from_utf8(&self.buffer[begin..length]).unwrap_or_default(), at)))
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Length of the UTF-8 mark at the start of a file; an error if the start is that of another encoding.
fn byte_order_mark(start: &[u8], path: &Path) -> Result<usize, CorpusError> {
    if start.starts_with(b"\xef\xbb\xbf") {
        return Ok(3);
    }
    // Without a mark, Latin text in UTF-16 has a NUL in every other byte.
    let head = &start[..start.len().min(1000)];
    let nuls = |odd: usize| head.iter().skip(odd).step_by(2).filter(|&&byte| byte == 0).count();
    let (even, odd) = (nuls(0), nuls(1));
    let lopsided = even.max(odd) * 5 > head.len() && even.min(odd) * 5 < even.max(odd);
    if start.starts_with(b"\xff\xfe") || start.starts_with(b"\xfe\xff") || (head.len() >= 4 && lopsided) {
        return Err(CorpusError::Utf16(path.to_owned()));
    }
    Ok(0)
}

/// Opens an ordinary file; anything else could block for ever, never end, or not be there on the second reading.
pub(super) fn open(path: &Path) -> Result<File, CorpusError> {
    let io = |source| CorpusError::Io { path: path.to_owned(), source };
    // Looked at before opening, because opening a FIFO waits for its writer.
    let meta = std::fs::metadata(path).map_err(io)?;
    if !meta.is_file() {
        return Err(CorpusError::Special { path: path.to_owned(), kind: kind(&meta) });
    }
    File::open(path).map_err(io)
}

/// Length of a file in bytes.
pub(super) fn length(path: &Path) -> Result<u64, CorpusError> {
    let meta = std::fs::metadata(path).map_err(|source| CorpusError::Io { path: path.to_owned(), source })?;
    Ok(meta.len())
}

#[cfg(unix)]
fn kind(meta: &std::fs::Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let file_type = meta.file_type();
    match () {
        () if file_type.is_dir() => "a directory",
        () if file_type.is_fifo() => "a pipe (FIFO)",
        () if file_type.is_socket() => "a socket",
        () => "a device",
    }
}

#[cfg(not(unix))]
fn kind(meta: &std::fs::Metadata) -> &'static str {
    if meta.is_dir() { "a directory" } else { "a device" }
}
