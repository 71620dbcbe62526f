//! A scan over shares: each share is a map x ↦ b + D x of what comes in to what goes out, and gets what the shares before it (or behind
//! it) make of what the first one gets.
//!
//! Maps are chained along the tree of the shares ([`super::shares`]), so that the result does not depend on the ranks. A node belongs to
//! the rank that has the share with which it begins. On the way up its right half sends its map to the left half's rank, which
//! chains the two; on the way down that rank sends the right half what its left half makes of what came in.
//!
//! ```text
//!            up: maps               down: inputs
//!          0 ⟵ 2                     0 ⟶ 2             4 shares on 4 ranks: 2 log₂ R messages one after the other,
//!        0 ⟵ 1  2 ⟵ 3              0 ⟶ 1  2 ⟶ 3        and no map that nobody asks for (here 2 ⟵ 3)
//! ```

use std::ops::Range;

use super::shares::{Shares, halve};
use super::{Comm, Topic, receive_numbers, send_numbers};
use crate::real::Real;

/// Which share comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The first blocks', as for starts.
    Forward,
    /// The last blocks', as for pulls.
    Backward,
}

/// x ↦ b + D x; `values` has b, then D.
#[derive(Clone, Debug, PartialEq)]
pub struct Affine<T> {
    /// b, then D.
    pub values: Vec<T>,
}

/// How maps are chained; D is whatever the caller makes of it.
pub trait Chain<T> {
    /// Values of b and of the map as a whole.
    fn lengths(&self) -> (usize, usize);

    /// `second` after `first`.
    fn chain(&self, first: &Affine<T>, second: &Affine<T>) -> Affine<T>;

    /// What the map makes of x.
    fn apply(&self, map: &Affine<T>, x: &[T]) -> Vec<T>;
}

/// What comes in to each of this rank's shares, in their order: `first` to the first of all (looked at on its rank alone). `map` is asked
/// for a share's map, counted from this rank's first, if any other rank or share needs it.
pub fn scan<T: Real>(
    comm: &dyn Comm,
    shares: &Shares,
    order: Order,
    chain: &dyn Chain<T>,
    map: &mut dyn FnMut(usize) -> Affine<T>,
    first: &[T],
) -> Vec<Vec<T>> {
    let mine = shares.mine();
    let mut tree = Tree { comm, places: Places { count: shares.count(), size: comm.size(), order }, chain, map, mine };
    let mut inputs = vec![Vec::new(); tree.mine.len()];
    let root = tree.up(0..shares.count(), false);
    let first = (tree.places.owner(0) == comm.rank()).then(|| first.to_vec());
    tree.down(&root, first, &mut inputs);
    inputs
}

/// Messages of one scan among `ranks` ranks that `rank` sends: maps, and inputs.
pub fn messages(shares: &Shares, order: Order, rank: usize, ranks: usize) -> (usize, usize) {
    fn count(places: Places, node: Range<usize>, needed: bool, rank: usize) -> (usize, usize) {
        let Some(middle) = halve(&node) else { return (0, 0) };
        let (left, right) = (places.owner(node.start), places.owner(middle));
        let a = count(places, node.start..middle, true, rank);
        let b = count(places, middle..node.end, needed, rank);
        let (up, down) = (needed && left != right && right == rank, left != right && left == rank);
        (a.0 + b.0 + usize::from(up), a.1 + b.1 + usize::from(down))
    }
    count(Places { count: shares.count(), size: ranks, order }, 0..shares.count(), false, rank)
}

/// Shares by their place in the scan.
#[derive(Clone, Copy, Debug)]
struct Places {
    count: usize,
    size: usize,
    order: Order,
}

impl Places {
    fn share(self, place: usize) -> usize {
        match self.order {
            Order::Forward => place,
            Order::Backward => self.count - 1 - place,
        }
    }

    fn owner(self, place: usize) -> usize {
        // The inverse of `share`: the first ranks have one more.
        let (number, each, more) = (self.share(place), self.count / self.size, self.count % self.size);
        let large = more * (each + 1);
        if number < large { number / (each + 1) } else { more + (number - large) / each }
    }
}

struct Tree<'a, T> {
    comm: &'a dyn Comm,
    places: Places,
    chain: &'a dyn Chain<T>,
    map: &'a mut dyn FnMut(usize) -> Affine<T>,
    mine: Range<usize>,
}

/// A node, as this rank knows it.
struct Node<T> {
    places: Range<usize>,
    owner: usize,
    map: Option<Affine<T>>,
    halves: Option<Box<[Node<T>; 2]>>,
}

impl<T: Real> Tree<'_, T> {
    /// The maps of a node and of those below it, as far as they are `needed` and this rank is to know them.
    fn up(&mut self, places: Range<usize>, needed: bool) -> Node<T> {
        let (owner, me) = (self.places.owner(places.start), self.comm.rank());
        let last = self.places.owner(places.end - 1);
        if !(owner.min(last)..=owner.max(last)).contains(&me) {
            return Node { places, owner, map: None, halves: None };
        }
        let Some(middle) = halve(&places) else {
            let map = (needed && owner == me).then(|| (self.map)(self.places.share(places.start) - self.mine.start));
            return Node { places, owner, map, halves: None };
        };
        let left = self.up(places.start..middle, true);
        let mut right = self.up(middle..places.end, needed);
        let mut map = None;
        if needed && owner == me {
            let second = match right.map.take() {
                Some(second) => second,
                None => {
                    let mut values = vec![T::ZERO; self.chain.lengths().1];
                    receive_numbers(self.comm, right.owner, Topic::MAPS, &mut values);
                    Affine { values }
                }
            };
            map = Some(self.chain.chain(left.map.as_ref().expect("the left half is mine"), &second));
        } else if needed && right.owner == me {
            let second = right.map.take().expect("the right half is mine");
            send_numbers(self.comm, owner, Topic::MAPS, &second.values);
        }
        Node { places, owner, map, halves: Some(Box::new([left, right])) }
    }

    /// Hands down what comes in to a node.
    fn down(&mut self, node: &Node<T>, input: Option<Vec<T>>, inputs: &mut [Vec<T>]) {
        let Some(halves) = &node.halves else {
            if let Some(input) = input {
                inputs[self.places.share(node.places.start) - self.mine.start] = input;
            }
            return;
        };
        let ([left, right], me) = (&**halves, self.comm.rank());
        let mut second = None;
        if let (Some(map), Some(input)) = (&left.map, &input) {
            let out = self.chain.apply(map, input);
            if right.owner == me {
                second = Some(out);
            } else {
                send_numbers(self.comm, right.owner, Topic::INPUTS, &out);
            }
        } else if right.owner == me {
            let mut out = vec![T::ZERO; self.chain.lengths().0];
            receive_numbers(self.comm, node.owner, Topic::INPUTS, &mut out);
            second = Some(out);
        }
        self.down(left, input, inputs);
        self.down(right, second, inputs);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Counted, Team, Unit};
    use super::*;

    /// One number comes in and goes out.
    struct Numbers;

    impl Chain<f64> for Numbers {
        fn lengths(&self) -> (usize, usize) {
            (1, 2)
        }
        fn chain(&self, first: &Affine<f64>, second: &Affine<f64>) -> Affine<f64> {
            let (b, d) = (second.values[0] + second.values[1] * first.values[0], second.values[1] * first.values[1]);
            Affine { values: vec![b, d] }
        }
        fn apply(&self, map: &Affine<f64>, x: &[f64]) -> Vec<f64> {
            vec![map.values[0] + map.values[1] * x[0]]
        }
    }

    #[test]
    fn every_share_gets_what_those_before_it_make_of_the_first_input() {
        let map = |number: usize| Affine { values: vec![0.3 * number as f64 - 1.0, 0.7 + 0.01 * number as f64] };
        for order in [Order::Forward, Order::Backward] {
            for count in 1..14 {
                let mut bits: Option<Vec<u64>> = None;
                for size in 1..=count {
                    let results: Vec<(Vec<f64>, [usize; 2], Shares)> = std::thread::scope(|scope| {
                        let ranks: Vec<_> = Team::in_shares(size, count)
                            .into_iter()
                            .map(|comm| {
                                scope.spawn(move || {
                                    let comm = Counted::new(&comm);
                                    let shares = Shares::deal(&comm, count, Unit::Blocks).unwrap();
                                    let own = shares.mine().start;
                                    let inputs = scan(&comm, &shares, order, &Numbers, &mut |i| map(own + i), &[5.0]);
                                    let sent = comm.take_counts();
                                    let of = |topic| sent.get(&topic).map_or(0, |c| c.messages as usize);
                                    (inputs.concat(), [of(Topic::MAPS), of(Topic::INPUTS)], shares)
                                })
                            })
                            .collect();
                        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
                    });
                    for (rank, (_, sent, shares)) in results.iter().enumerate() {
                        let (maps, inputs) = messages(shares, order, rank, size);
                        assert_eq!([maps, inputs], *sent, "{order:?}: rank {rank} of {size}, {count} shares");
                    }
                    let inputs: Vec<f64> = results.into_iter().flat_map(|r| r.0).collect();
                    assert_eq!(inputs.len(), count);
                    let mut x = 5.0;
                    for place in 0..count {
                        let number = if order == Order::Forward { place } else { count - 1 - place };
                        assert!((inputs[number] - x).abs() < 1e-12, "{order:?}: share {number} of {count}");
                        x = Numbers.apply(&map(number), &[x])[0];
                    }
                    let now: Vec<u64> = inputs.iter().map(|x| x.to_bits()).collect();
                    assert_eq!(now, *bits.get_or_insert(now.clone()), "{order:?}: {size} ranks, {count} shares");
                }
            }
        }
    }
}
