//! Sums in shares. Adding numbers in another order gives other bits, so the order must not depend on the ranks.
//!
//! The blocks (or streams) of a window are dealt into a fixed number of contiguous *shares*, each of which sums over its rows by itself. The
//! shares' sums are added along a tree that halves the run of shares again and again. A rank owns a contiguous run of shares;
//! it adds up what lies in its run along the tree, and what is left are a few *nodes* of the tree, which travel.
//!
//! ```text
//!                 0..4                 2 ranks: nodes 0..2 | 2..4
//!          0..2          2..4          3 ranks: nodes 0..2 | 2 | 3      (shares 0 1 | 2 | 3)
//!        0      1      2      3        4 ranks: nodes 0 | 1 | 2 | 3
//! ```

use std::ops::Range;

use super::{Comm, Topic};

/// The contiguous part of `n` things that number `i` of `size` gets; sizes differ by at most one.
pub fn share(n: usize, i: usize, size: usize) -> Range<usize> {
    let at = |i: usize| i * (n / size) + i.min(n % size);
    at(i)..at(i + 1)
}

/// Where a run of shares that is a node of the tree is halved; None if it is one share.
pub(super) fn halve(node: &Range<usize>) -> Option<usize> {
    (node.len() > 1).then(|| node.start + node.len().div_ceil(2))
}

/// A [`Comm`] with another number of shares.
#[derive(Debug)]
pub struct InShares<C> {
    comm: C,
    shares: usize,
}

impl<C: Comm> InShares<C> {
    /// Sums in so many shares; at least one a rank.
    pub fn new(comm: C, shares: usize) -> Self {
        assert!(shares >= comm.size(), "{} ranks for {shares} shares", comm.size());
        Self { comm, shares }
    }
}

impl<C: Comm> Comm for InShares<C> {
    fn rank(&self) -> usize {
        self.comm.rank()
    }
    fn size(&self) -> usize {
        self.comm.size()
    }
    fn shares(&self) -> usize {
        self.shares
    }
    fn send(&self, to: usize, topic: Topic, message: Vec<u8>) {
        self.comm.send(to, topic, message);
    }
    fn receive(&self, from: usize, topic: Topic) -> Vec<u8> {
        self.comm.receive(from, topic)
    }
}

/// How things are dealt into shares, and which shares are this rank's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    units: usize,
    count: usize,
    rank: usize,
    size: usize,
}

/// What is dealt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Consecutive blocks of a window.
    Blocks,
    /// Streams of the text.
    Streams,
}

/// There are more ranks than shares of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ranks} ranks have only {} shares of work ({units} {unit:?} in {shares} shares)", .shares.min(.units))]
pub struct SharesError {
    /// Number of ranks.
    pub ranks: usize,
    /// What is dealt …
    pub unit: Unit,
    /// … how many of it …
    pub units: usize,
    /// … in how many shares; a share has at least one.
    pub shares: usize,
}

/// This rank's run of rows among those of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first one.
    pub first: usize,
    /// Their number.
    pub own: usize,
    /// Rows of all ranks.
    pub all: usize,
}

impl Span {
    /// Whether the first row of all is among them.
    pub fn has_first(self) -> bool {
        self.first == 0
    }

    /// Whether the last row of all is among them.
    pub fn has_last(self) -> bool {
        self.first + self.own == self.all
    }

    /// The rows.
    pub fn range(self) -> Range<usize> {
        self.first..self.first + self.own
    }
}

impl Shares {
    /// Deals `units` (blocks or streams); a share has at least one of them.
    ///
    /// # Errors
    /// If some rank would have nothing to do.
    pub fn deal(comm: &dyn Comm, units: usize, unit: Unit) -> Result<Self, SharesError> {
        let (ranks, shares) = (comm.size(), comm.shares());
        let count = shares.min(units);
        if count < ranks {
            return Err(SharesError { ranks, unit, units, shares });
        }
        Ok(Self { units, count, rank: comm.rank(), size: ranks })
    }

    /// Whether work may pause inside an update. Ranks could not agree on that, and whether they can must not depend on
    /// their number.
    pub fn may_pause(&self) -> bool {
        self.count == 1
    }

    /// Number of shares of all ranks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// This rank's shares.
    pub fn mine(&self) -> Range<usize> {
        share(self.count, self.rank, self.size)
    }

    /// The units of a share.
    pub fn of(&self, number: usize) -> Range<usize> {
        share(self.units, number, self.count)
    }

    /// The units of this rank.
    pub fn owned(&self) -> Range<usize> {
        let mine = self.mine();
        self.of(mine.start).start..self.of(mine.end - 1).end
    }

    /// The units of each of this rank's shares, counted from the first of the rank.
    pub fn parts(&self) -> Vec<Range<usize>> {
        let first = self.owned().start;
        self.mine().map(|i| self.of(i).start - first..self.of(i).end - first).collect()
    }

    /// The rows of this rank, with so many rows a unit.
    pub fn span(&self, rows: usize) -> Span {
        let owned = self.owned();
        Span { first: owned.start * rows, own: owned.len() * rows, all: self.units * rows }
    }

    /// What a rank has left to send: nodes of the tree.
    pub fn nodes(&self, rank: usize) -> Vec<Range<usize>> {
        self.nodes_among(rank, self.size)
    }

    /// The same if there were so many ranks.
    pub fn nodes_among(&self, rank: usize, ranks: usize) -> Vec<Range<usize>> {
        let mut stack = Stack::new(self.count);
        for number in share(self.count, rank, ranks) {
            stack.push(number..number + 1);
        }
        stack.nodes
    }
}

/// Adds up runs of shares that come in order: two neighbours that are the halves of a node become that node.
#[derive(Clone, Debug)]
pub(super) struct Stack {
    count: usize,
    pub nodes: Vec<Range<usize>>,
}

impl Stack {
    pub fn new(count: usize) -> Self {
        Self { count, nodes: Vec::new() }
    }

    /// Puts the next run on top. Returns how many times the two topmost runs then have to be added up.
    pub fn push(&mut self, run: Range<usize>) -> usize {
        self.nodes.push(run);
        let mut merges = 0;
        while let [.., left, right] = &self.nodes[..] {
            let whole = left.start..right.end;
            if self.halves(&whole) != Some(right.start) {
                break;
            }
            self.nodes.pop();
            *self.nodes.last_mut().expect("the left one") = whole;
            merges += 1;
        }
        merges
    }

    /// Where a run of shares is halved, if it is a node of the tree.
    fn halves(&self, run: &Range<usize>) -> Option<usize> {
        let mut node = 0..self.count;
        while let Some(middle) = halve(&node) {
            if node == *run {
                return Some(middle);
            }
            node = if run.end <= middle { node.start..middle } else { middle..node.end };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::Team;
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for n in 0..30 {
            for size in 1..8 {
                let all: Vec<usize> = (0..size).flat_map(|r| share(n, r, size)).collect();
                assert_eq!(all, (0..n).collect::<Vec<_>>());
                assert!((0..size).all(|r| share(n, r, size).len().abs_diff(n / size) <= 1));
            }
        }
    }

    #[test]
    fn ranks_own_runs_of_shares_and_shares_do_not_depend_on_ranks() {
        for (things, shares) in [(12, 12), (13, 12), (100, 12), (5, 12), (7, 7), (40, 16)] {
            let mut first: Option<Vec<Range<usize>>> = None;
            for size in 1..=things.min(shares) {
                let team = Team::in_shares(size, shares);
                let deals: Vec<_> = team.iter().map(|c| Shares::deal(c, things, Unit::Blocks).unwrap()).collect();
                let of: Vec<_> = deals.iter().flat_map(|d| d.mine().map(|i| d.of(i))).collect();
                assert_eq!(of, *first.get_or_insert(of.clone()), "{things} {shares} {size}");
                assert_eq!(of.iter().flat_map(Clone::clone).collect::<Vec<_>>(), (0..things).collect::<Vec<_>>());
                for deal in &deals {
                    let owned = deal.owned();
                    let parts = deal.parts();
                    assert_eq!(parts.iter().map(Range::len).sum::<usize>(), owned.len());
                    assert_eq!((parts[0].start, parts.last().unwrap().end), (0, owned.len()));
                }
            }
        }
        let refused = Shares::deal(&Team::in_shares(4, 12)[1], 3, Unit::Blocks).unwrap_err();
        assert_eq!(refused, SharesError { ranks: 4, unit: Unit::Blocks, units: 3, shares: 12 });
    }

    /// Whatever the ranks, their nodes add up along the same tree.
    #[test]
    fn all_ranks_add_along_one_tree() {
        fn sum(node: Range<usize>) -> String {
            if node.len() == 1 {
                return node.start.to_string();
            }
            let middle = node.start + node.len().div_ceil(2);
            format!("({}+{})", sum(node.start..middle), sum(middle..node.end))
        }
        for count in 1..20 {
            for size in 1..=count {
                let deal = Shares { units: count, count, rank: 0, size };
                let mut stack = Stack::new(count);
                let mut sums: Vec<String> = Vec::new();
                let mut most = 0;
                for rank in 0..size {
                    let nodes = deal.nodes(rank);
                    most = most.max(nodes.len());
                    for node in nodes {
                        sums.push(sum(node.clone()));
                        for _ in 0..stack.push(node) {
                            let right = sums.pop().unwrap();
                            let left = sums.pop().unwrap();
                            sums.push(format!("({left}+{right})"));
                        }
                    }
                }
                assert_eq!(sums, [sum(0..count)], "{count} {size}");
                // Ranks that halve the shares evenly have one node each.
                if count.is_multiple_of(size) && size.is_power_of_two() && (count / size > 0) && count == 12 {
                    assert_eq!(most, 1, "{size}");
                }
            }
        }
    }
}
