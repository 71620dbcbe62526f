//! What a window's last θ pass saw: sums by share, then over all of them in their order, so that they do not depend on the ranks.

use crate::comm::{Comm, gather_numbers};
use crate::objective::CouplingSums;

/// Sums of the present window and of the last one.
#[derive(Debug)]
pub(super) struct Statistics {
    /// By share.
    pub shares: Vec<ShareSums>,
    /// Global norm of the last gradient.
    pub norm: f64,
    /// The last window's sums over all ranks, then its nats by position.
    gathered: Vec<f64>,
}

/// What the last θ pass saw of a share.
#[derive(Clone, Debug, Default)]
pub(super) struct ShareSums {
    pub nats: f64,
    pub by_position: Vec<f64>,
    pub coupling: CouplingSums,
}

/// What a window came to, over all ranks.
pub(super) struct WindowSums {
    pub nats: f64,
    pub coupling: CouplingSums,
    /// Σ ‖Δs‖
    pub moved: f64,
}

impl ShareSums {
    pub fn clear(&mut self) {
        (self.nats, self.coupling) = (0.0, CouplingSums::default());
        self.by_position.fill(0.0);
    }
}

/// Numbers in front of the positions: the largest residual, then sums.
const HEAD: usize = 8;

impl Statistics {
    pub fn new(shares: usize, positions: usize) -> Self {
        let empty = ShareSums { by_position: vec![0.0; positions], ..ShareSums::default() };
        Self { shares: vec![empty; shares], norm: 0.0, gathered: Vec::new() }
    }

    /// Nats of the last window by position in the block.
    pub fn nats_by_position(&self) -> &[f64] {
        self.gathered.get(HEAD..).unwrap_or_default()
    }

    /// Adds up pairs of all ranks' shares.
    pub fn sum(&mut self, comm: &dyn Comm, pairs: &[[f64; 2]]) -> [f64; 2] {
        let all = &mut self.gathered;
        all.clear();
        all.extend(pairs.as_flattened());
        gather_numbers(comm, all);
        all.as_chunks::<2>().0.iter().fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]])
    }

    /// Adds up the window's sums of all ranks' shares; `moved` is Σ ‖Δs‖ by share.
    pub fn gather(&mut self, comm: &dyn Comm, moved: &[f64]) -> WindowSums {
        let all = &mut self.gathered;
        all.clear();
        for (sums, &moved) in self.shares.iter().zip(moved) {
            let c = sums.coupling;
            all.extend([c.residual_max, sums.nats, c.penalty, c.boundaries, c.residual, c.state, c.dual, moved]);
            all.extend(&sums.by_position);
        }
        gather_numbers(comm, all);
        let len = HEAD + self.shares[0].by_position.len();
        for from in (len..all.len()).step_by(len) {
            let (sums, share) = all.split_at_mut(from);
            sums[0] = sums[0].max(share[0]);
            sums[1..len].iter_mut().zip(&share[1..len]).for_each(|(sum, x)| *sum += x);
        }
        all.truncate(len);
        let &[residual_max, nats, penalty, boundaries, residual, state, dual, moved] =
            all.first_chunk::<HEAD>().expect("a share");
        let coupling = CouplingSums { penalty, boundaries, residual, residual_max, state, dual };
        WindowSums { nats, coupling, moved }
    }
}
