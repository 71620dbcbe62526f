//! Tokens → streams → windows → blocks.
//!
//! A split of n tokens is cut into S streams of m = ⌊(n−1)/S⌋: stream i reads tokens i·m … i·m+m−1 and predicts each
//! one's successor. A *window* is M consecutive blocks of B steps of every stream:
//!
//! ```text
//! stream 1   [ block 1 | block 2 | … | block M ]  →  next window continues here
//! stream S   [ block 1 | block 2 | … | block M ]
//! ```
//!
//! All M·S blocks run side by side as one matrix of M·S rows. Row k·S + i is block k of stream i, so that the
//! blocks after row r start at row r + S and a contiguous share of rows is a contiguous share of blocks.

use crate::tokens::Text;
use std::ops::Range;

/// How the rows × steps tokens of a pass lie in memory: rows come in groups that run through time independently (on
/// different threads, say); inside a group all rows of step 1, then all rows of step 2, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Rows of the pass.
    pub rows: usize,
    /// Steps of each row.
    pub steps: usize,
    /// Rows of a group; the last group may have fewer.
    pub group: usize,
}

impl Layout {
    /// The grouping depends on the number of rows alone, never on threads.
    pub fn new(rows: usize, steps: usize) -> Self {
        Self { rows, steps, group: rows.div_ceil(2).next_multiple_of(8).clamp(8, 32) }
    }

    /// Tokens of the pass.
    pub fn tokens(&self) -> usize {
        self.rows * self.steps
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.rows.div_ceil(self.group)
    }

    /// Rows of group `g`.
    pub fn group_rows(&self, g: usize) -> Range<usize> {
        g * self.group..self.rows.min((g + 1) * self.group)
    }

    /// Place of (row, step) among the tokens.
    pub fn place(&self, row: usize, step: usize) -> usize {
        let rows = self.group_rows(row / self.group);
        rows.start * self.steps + step * rows.len() + (row - rows.start)
    }

    /// Calls `visit(place, row, step)` for every token in memory order.
    pub fn each(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let mut place = 0;
        for g in 0..self.groups() {
            for step in 0..self.steps {
                for row in self.group_rows(g) {
                    visit(place, row, step);
                    place += 1;
                }
            }
        }
    }
}

/// A split cut into equally long streams.
#[derive(Clone, Copy, Debug)]
pub struct Streams<'a> {
    text: Text<'a>,
    streams: usize,
    length: usize,
}

impl<'a> Streams<'a> {
    /// Cuts a text into `streams` streams; what does not fill all of them equally is left out at the end.
    pub fn new(text: impl Into<Text<'a>>, streams: usize) -> Self {
        assert!(streams > 0);
        let text = text.into();
        Self { text, streams, length: text.len().saturating_sub(1) / streams }
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Inputs (and as many targets) of one stream.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Input at `at` of a stream; its target is the token after it.
    #[inline]
    pub fn input(&self, stream: usize, at: usize) -> u32 {
        debug_assert!(at < self.length);
        self.text.get(stream * self.length + at)
    }

    /// What follows [`Streams::input`].
    #[inline]
    pub fn target(&self, stream: usize, at: usize) -> u32 {
        self.text.get(stream * self.length + at + 1)
    }

    /// Writes the inputs and targets of `rows` of a window in the order of `layout`. The window begins at `at` of every
    /// stream and has blocks of `layout.steps` steps; row k·S + i is block k of stream i.
    pub fn fill(&self, layout: &Layout, at: usize, rows: Range<usize>, inputs: &mut Vec<u32>, targets: &mut Vec<u32>) {
        assert_eq!(rows.len(), layout.rows);
        inputs.clear();
        targets.clear();
        layout.each(|_, row, step| {
            let (block, stream) = ((rows.start + row) / self.streams, (rows.start + row) % self.streams);
            let at = at + block * layout.steps + step;
            inputs.push(self.input(stream, at));
            targets.push(self.target(stream, at));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_a_permutation_and_groups_run_through_time() {
        for (rows, steps) in [(1, 1), (1, 5), (7, 3), (8, 2), (31, 4), (32, 20), (70, 3), (200, 1)] {
            let layout = Layout::new(rows, steps);
            let mut next = 0;
            layout.each(|place, row, step| {
                assert_eq!((place, layout.place(row, step)), (next, next));
                next += 1;
            });
            assert_eq!(next, layout.tokens());
        }
    }

    #[test]
    fn windows_cover_the_streams_in_order() {
        let tokens: Vec<u32> = (0..101).collect();
        let s = Streams::new(&tokens, 2);
        assert_eq!(s.length(), 50);
        let (mut x, mut y) = (vec![], vec![]);
        let layout = Layout::new(4, 5); // 2 streams × 2 blocks × 5 steps
        s.fill(&layout, 10, 0..4, &mut x, &mut y);
        assert_eq!(x[layout.place(0, 0)], 10); // block 0 of stream 0
        assert_eq!(x[layout.place(1, 0)], 60); // block 0 of stream 1
        assert_eq!(x[layout.place(2, 0)], 15); // block 1 of stream 0
        assert_eq!(x[layout.place(3, 4)], 69); // last step of block 1 of stream 1
        assert!(x.iter().zip(&y).all(|(x, y)| x + 1 == *y));
        let half = Layout::new(2, 5);
        let (mut x2, mut y2) = (vec![], vec![]);
        s.fill(&half, 10, 2..4, &mut x2, &mut y2);
        assert_eq!(x2[half.place(1, 4)], 69);
    }
}
