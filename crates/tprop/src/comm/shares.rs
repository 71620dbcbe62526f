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
    fn post(&self, to: usize, topic: Topic, letter: Vec<u8>) {
        self.comm.post(to, topic, letter);
    }
    fn take(&self, from: usize, topic: Topic) -> Vec<u8> {
        self.comm.take(from, topic)
    }
}

/// How things are dealt into shares, and which shares are this rank's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    things: usize,
    count: usize,
    rank: usize,
    size: usize,
}

impl Shares {
    /// Deals `things` (blocks or streams); a share has at least one of them. The text says what to do if there are too few.
    pub fn deal(comm: &dyn Comm, things: usize, what: &str) -> Result<Self, String> {
        let (size, wanted) = (comm.size(), comm.shares());
        let count = wanted.min(things);
        if count < size {
            return Err(format!(
                "{size} ranks have only {count} shares of work ({things} {what} in {wanted} shares): use fewer ranks, or \
                 more {what} and a larger cluster.shares"
            ));
        }
        Ok(Self { things, count, rank: comm.rank(), size })
    }

    /// Number of shares of all ranks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// This rank's shares.
    pub fn mine(&self) -> Range<usize> {
        share(self.count, self.rank, self.size)
    }

    /// The things of a share.
    pub fn of(&self, number: usize) -> Range<usize> {
        share(self.things, number, self.count)
    }

    /// The things of this rank.
    pub fn owned(&self) -> Range<usize> {
        let mine = self.mine();
        self.of(mine.start).start..self.of(mine.end - 1).end
    }

    /// The things of each of this rank's shares, counted from the first of the rank.
    pub fn parts(&self) -> Vec<Range<usize>> {
        let first = self.owned().start;
        self.mine().map(|i| self.of(i).start - first..self.of(i).end - first).collect()
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
        while node.len() > 1 {
            let middle = node.start + node.len().div_ceil(2);
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
                let deals: Vec<_> = team.iter().map(|c| Shares::deal(c, things, "blocks").unwrap()).collect();
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
        let refused = Shares::deal(&Team::in_shares(4, 12)[1], 3, "blocks").unwrap_err();
        assert!(refused.contains("4 ranks have only 3 shares of work (3 blocks"), "{refused}");
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
                let deal = Shares { things: count, count, rank: 0, size };
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
