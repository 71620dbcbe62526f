//! Texts as numbers: stored in chunks, two bytes a token wherever that is enough, and seen through [`Text`].
//!
//! A gigabyte of bytes or characters has a billion tokens; in one list of `u32` it would take four gigabytes, and more than
//! that while the list grows.

use std::ops::Range;

/// Tokens of a chunk; all chunks but the last are full.
const CHUNK: usize = 1 << 18;

/// A growing list of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    chunks: Vec<Chunk>,
}

/// Narrow exactly if all its tokens fit, so that equal texts are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Chunk {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

impl Chunk {
    fn len(&self) -> usize {
        match self {
            Chunk::Narrow(tokens) => tokens.len(),
            Chunk::Wide(tokens) => tokens.len(),
        }
    }

    #[inline]
    fn get(&self, at: usize) -> u32 {
        match self {
            Chunk::Narrow(tokens) => u32::from(tokens[at]),
            Chunk::Wide(tokens) => tokens[at],
        }
    }

    fn push(&mut self, token: u32) {
        match (&mut *self, u16::try_from(token)) {
            (Chunk::Narrow(tokens), Ok(token)) => tokens.push(token),
            (Chunk::Narrow(tokens), Err(_)) => {
                let mut wide = Vec::with_capacity(tokens.capacity());
                wide.extend(tokens.iter().map(|&token| u32::from(token)));
                wide.push(token);
                *self = Chunk::Wide(wide);
            }
            (Chunk::Wide(tokens), _) => tokens.push(token),
        }
    }

    /// The same tokens under other numbers.
    fn renumbered(&self, number: &[u32]) -> Self {
        let mut chunk = Chunk::Narrow(Vec::with_capacity(self.len()));
        (0..self.len()).for_each(|at| chunk.push(number[self.get(at) as usize]));
        chunk
    }
}

impl Tokens {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        let size = |chunk: &Chunk| chunk.len() * if matches!(chunk, Chunk::Narrow(_)) { 2 } else { 4 };
        self.chunks.iter().map(size).sum()
    }

    /// Adds one at the end.
    #[inline]
    pub fn push(&mut self, token: u32) {
        match self.chunks.last_mut().filter(|last| last.len() < CHUNK) {
            Some(last) => last.push(token),
            None => {
                let mut chunk = Chunk::Narrow(Vec::new());
                chunk.push(token);
                self.chunks.push(chunk);
            }
        }
    }

    /// Leaves the first `len`.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        self.chunks.truncate(len.div_ceil(CHUNK));
        if let Some(last) = self.chunks.pop() {
            // Built anew: what is left of a wide chunk may be narrow.
            let rest: Vec<u32> = (0..len - self.chunks.len() * CHUNK).map(|at| last.get(at)).collect();
            rest.into_iter().for_each(|token| self.push(token));
        }
    }

    /// Takes those from `at` on away, as a list of their own.
    pub fn split_off(&mut self, at: usize) -> Self {
        let tail = self.text().part(at..self.len()).iter().collect();
        self.truncate(at);
        tail
    }

    /// Gives token i the number `number[i]`.
    ///
    /// # Panics
    /// If a token has no number.
    pub fn renumber(&mut self, number: &[u32]) {
        self.chunks.iter_mut().for_each(|chunk| *chunk = chunk.renumbered(number));
    }

    /// All of them.
    pub fn text(&self) -> Text<'_> {
        Text { kind: Kind::Chunks(self), range: (0, self.len()) }
    }

    /// One after the other.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.text().iter()
    }
}

impl FromIterator<u32> for Tokens {
    fn from_iter<I: IntoIterator<Item = u32>>(tokens: I) -> Self {
        let mut list = Self::new();
        tokens.into_iter().for_each(|token| list.push(token));
        list
    }
}

/// A text, or a part of one, wherever it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    kind: Kind<'a>,
    /// First token and the one behind the last.
    range: (usize, usize),
}

#[derive(Clone, Copy, Debug)]
enum Kind<'a> {
    Slice(&'a [u32]),
    Chunks(&'a Tokens),
}

impl<'a> Text<'a> {
    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.range.1 - self.range.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The token at a place.
    ///
    /// # Panics
    /// If the text ends before it.
    #[inline]
    pub fn get(&self, at: usize) -> u32 {
        let at = at + self.range.0;
        assert!(at < self.range.1, "behind the end of the text");
        match self.kind {
            Kind::Slice(tokens) => tokens[at],
            Kind::Chunks(tokens) => tokens.chunks[at / CHUNK].get(at % CHUNK),
        }
    }

    /// A part of it.
    ///
    /// # Panics
    /// If the text has no such part.
    pub fn part(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {} tokens", self.len());
        Self { kind: self.kind, range: (self.range.0 + range.start, self.range.0 + range.end) }
    }

    /// One after the other.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + 'a {
        (0..self.len()).map(move |at| self.get(at))
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<'a> From<&'a [u32]> for Text<'a> {
    fn from(tokens: &'a [u32]) -> Self {
        Self { kind: Kind::Slice(tokens), range: (0, tokens.len()) }
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for Text<'a> {
    fn from(tokens: &'a [u32; N]) -> Self {
        tokens.as_slice().into()
    }
}

impl<'a> From<&'a Vec<u32>> for Text<'a> {
    fn from(tokens: &'a Vec<u32>) -> Self {
        tokens.as_slice().into()
    }
}

impl<'a> From<&'a Tokens> for Text<'a> {
    fn from(tokens: &'a Tokens) -> Self {
        tokens.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Long enough for three chunks, with tokens of both widths in places.
    fn long() -> Vec<u32> {
        (0..2 * CHUNK as u32 + 1000).map(|i| if i / 1000 == 300 { 70_000 + i } else { i % 65_536 }).collect()
    }

    #[test]
    fn chunks_hold_what_was_pushed_in_two_bytes_where_they_can() {
        let plain = long();
        let mut tokens: Tokens = plain.iter().copied().collect();
        assert_eq!(tokens.len(), plain.len());
        assert!(tokens.iter().eq(plain.iter().copied()));
        assert_eq!(tokens.bytes(), 2 * plain.len() + 2 * CHUNK); // the second chunk is wide
        assert_eq!(tokens.text(), Text::from(&plain));
        let tail = tokens.split_off(CHUNK + 10);
        assert_eq!(Text::from(&tokens), (&plain[..CHUNK + 10]).into());
        assert_eq!(Text::from(&tail), (&plain[CHUNK + 10..]).into());
        assert_eq!(tokens.bytes(), 2 * tokens.len(), "what is left of the wide chunk is narrow");
        tokens.truncate(0);
        assert!(tokens.is_empty());
    }

    #[test]
    fn renumbering_may_narrow_and_widen() {
        let mut tokens: Tokens = [0, 70_000, 3].into_iter().collect();
        let mut number = vec![5; 70_001];
        tokens.renumber(&number);
        assert_eq!((tokens.bytes(), tokens.text()), (6, (&[5, 5, 5]).into()));
        number[5] = 100_000;
        tokens.renumber(&number);
        assert_eq!((tokens.bytes(), tokens.text()), (12, (&[100_000; 3]).into()));
    }

    #[test]
    #[should_panic(expected = "behind the end")]
    fn a_part_ends_where_it_ends() {
        let tokens: Tokens = [1, 2, 3].into_iter().collect();
        tokens.text().part(0..2).get(2);
    }

    proptest! {
        #[test]
        fn parts_are_slices(plain in prop::collection::vec(0u32..80_000, 0..200), a in 0usize..200, b in 0usize..200) {
            let tokens: Tokens = plain.iter().copied().collect();
            let (a, b) = (a.min(plain.len()), b.min(plain.len()));
            let range = a.min(b)..a.max(b);
            let part = tokens.text().part(range.clone());
            prop_assert_eq!(part.iter().collect::<Vec<_>>(), plain[range].to_vec());
            let mut front = tokens.clone();
            let back = front.split_off(a);
            prop_assert!(front.iter().chain(back.iter()).eq(plain.iter().copied()));
        }
    }
}
