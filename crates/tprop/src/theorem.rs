//! The paper's theorem and its extension to what is really trained, computed afresh on a small random model and text, in f64.
//!
//! **The theorem** (supplement): B = 1, loss on the free states, states on the exact trajectory, one plain state step of rate η. Then ∂θ of the
//! penalty is ηλ times the one-step gradient of BPTT, over the cell's and the embedding's parameters. It holds if ĥ is computed from the *old*
//! states; its proof does not see that with all states moved at once ĥ moves too. Both variants are measured.
//!
//! **Reach**: any B, loss on the predicted states, exact starts that are held, n state steps with ηλ = 1. Then ∂θ is the gradient of BPTT in
//! which each block's loss flows back through the n blocks before it; n = M − 1 is BPTT over the whole window.

use serde::Serialize;

use crate::cell::CellKind;
use crate::method::{
    Batch, BpttConfig, BtpropConfig, Init, LossOn, MethodConfig, Solver, Starts, StateConfig, StateRule, StateScale,
};
use crate::model::{Model, ModelConfig};
use crate::params::Params;
use crate::probe::{Excerpt, Probe, cosine, norm, relative_error};
use crate::rng::Draws;
use crate::window::Streams;

/// S × M of the windows, and B where it is not 1.
const STREAMS: usize = 2;
const BLOCKS: usize = 6;
const BLOCK: usize = 5;
const VOCAB: usize = 11;

/// How two gradients compare: both are 1 if they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// ‖ours‖ / ‖what the theorem says‖
    pub ratio: f64,
    /// Cosine of the angle between them.
    pub cosine: f64,
}

/// Target propagation with n state steps against BPTT that reaches n blocks back.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reach {
    /// State steps, and blocks that BPTT reaches back.
    pub n: usize,
    /// ‖difference of the gradients‖ / ‖BPTT's‖
    pub relative_error: f64,
    /// Against BPTT over the whole window: how much of it such a reach has.
    pub of_whole: Agreement,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Theorem {
    /// The cell's name.
    pub cell: &'static str,
    /// Seed of weights and text.
    pub seed: u64,
    /// η of the state step …
    pub rate: f64,
    /// … and λ, of the theorem.
    pub lambda: f64,
    /// ĥ from the old states: the theorem as it holds.
    pub old: Agreement,
    /// All states moved at once, as the algorithm would.
    pub moved: Agreement,
    /// n = 0 … M − 1 with ηλ = 1.
    pub reach: Vec<Reach>,
    /// One state step with ηλ = 0.2 against BPTT with K = B plus 0.2 times what the next block's loss sends back: relative error.
    pub damped_error: f64,
}

/// Computes both for a one-layer model of `cell`; weights and text are a function of `seed`.
///
/// ```
/// let found = tprop::theorem::theorem(tprop::cell::CellKind::Gru, 1);
/// assert!((found.old.ratio - 1.0).abs() < 1e-10 && (found.old.cosine - 1.0).abs() < 1e-10);
/// assert!(found.moved.cosine < 0.999);
/// ```
pub fn theorem(cell: CellKind, seed: u64) -> Theorem {
    let shape = ModelConfig { cell, hidden: 6, embed: 5, init: 0.5, ..ModelConfig::new(VOCAB) };
    let model = Model::<f64>::new(shape);
    let params = model.initial(seed);
    let draws = Draws::new(seed, "theorem");
    let n = STREAMS * BLOCKS * BLOCK + 1;
    let tokens: Vec<u32> = (0..n as u64).map(|i| draws.below(i, VOCAB as u64) as u32).collect();
    let lab = Lab { model, params, tokens };

    let (rate, lambda) = (0.01, 0.7);
    let one_step = lab.gradient(&MethodConfig::Bptt(BpttConfig {
        window: 1,
        streams: STREAMS,
        batch: Batch::Mini { accumulate: BLOCKS },
    }));
    // The output layer sees the free states, whose loss is no part of the claim.
    let claimed = lab.model.shapes().entry(lab.model.output_ids().0).range().start;
    let expected: Vec<f64> = one_step[..claimed].iter().map(|g| rate * lambda * g).collect();
    let variant = |starts| {
        let free = BtpropConfig { block: 1, loss: LossOn::Free, ..settings(1, rate, lambda, starts) };
        agreement(&lab.gradient(&MethodConfig::Btprop(free))[..claimed], &expected)
    };

    let ours = |n, rate, lambda| lab.gradient(&MethodConfig::Btprop(settings(n, rate, lambda, Starts::Held)));
    let far: Vec<Vec<f64>> = (0..BLOCKS).map(|n| lab.reach_gradient(n)).collect();
    let reach = far.iter().enumerate().map(|(n, theirs)| Reach {
        n,
        relative_error: relative_error(&ours(n, 2.0, 0.5), theirs),
        of_whole: agreement(theirs, &far[BLOCKS - 1]),
    });
    let damped: Vec<f64> = far[0].iter().zip(&far[1]).map(|(near, far)| near + 0.2 * (far - near)).collect();
    Theorem {
        cell: cell.name(),
        seed,
        rate,
        lambda,
        old: variant(Starts::Held),
        moved: variant(Starts::Moving),
        reach: reach.collect(),
        damped_error: relative_error(&ours(1, 0.4, 0.5), &damped),
    }
}

/// Penalty, exact starts, no duals, plain state steps on the per-block gradient.
fn settings(steps: usize, rate: f64, lambda: f64, starts: Starts) -> BtpropConfig {
    BtpropConfig {
        block: BLOCK,
        blocks: BLOCKS,
        streams: STREAMS,
        solver: Solver::Penalty,
        lambda,
        init: Init::Sequential,
        states: StateConfig { steps, rate, rule: StateRule::Sgd, scale: StateScale::Block, ..StateConfig::default() },
        starts,
        ..BtpropConfig::default()
    }
}

struct Lab {
    model: Model<f64>,
    params: Params<f64>,
    tokens: Vec<u32>,
}

impl Lab {
    fn probe(&self) -> Probe<'_, f64> {
        Probe { model: &self.model, params: &self.params }
    }

    /// ∂L/∂θ of a method's first update.
    fn gradient(&self, config: &MethodConfig) -> Vec<f64> {
        self.probe().first_gradient(config, (&self.tokens).into()).expect("the text is long enough")
    }

    /// BPTT in which each block's loss flows back through the `reach` blocks before it, by the block pass alone.
    fn reach_gradient(&self, reach: usize) -> Vec<f64> {
        let excerpt = Excerpt::new(&Streams::new(&self.tokens, STREAMS), 0, BLOCKS * BLOCK);
        let mut blocks = self.probe().blocks(&excerpt, BLOCK, &self.probe().initial_state(STREAMS));
        let mut grads = self.model.grads();
        let mut pulls = blocks.losses(Some(&mut grads));
        for _ in 0..reach {
            pulls = blocks.send_back(&pulls, Some(&mut grads));
        }
        grads.settle();
        grads.values().all().to_vec()
    }
}

fn agreement(ours: &[f64], theirs: &[f64]) -> Agreement {
    Agreement { ratio: norm(ours) / norm(theirs), cosine: cosine(ours, theirs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_for_every_cell_and_seed_with_old_states_only() {
        for cell in CellKind::ALL {
            for seed in [1, 2, 3] {
                let found = theorem(cell, seed);
                let Agreement { ratio, cosine } = found.old;
                assert!((ratio - 1.0).abs() < 1e-9 && (cosine - 1.0).abs() < 1e-12, "{found:?}");
                assert!(found.moved.cosine < 0.999, "{found:?}");
                assert_eq!(found.reach.len(), BLOCKS);
                assert!(found.reach.iter().all(|r| r.relative_error < 1e-10), "{found:?}");
                assert!(found.damped_error < 1e-10, "{found:?}");
                // A reach of 0 is not the whole window, so the agreement above says something (least for the logistic cell).
                assert!(relative(found.reach[0].of_whole) > 1e-5, "{found:?}");
                assert!(relative(found.reach[BLOCKS - 1].of_whole) < 1e-12, "{found:?}");
            }
        }
    }

    fn relative(a: Agreement) -> f64 {
        (a.ratio - 1.0).abs() + (a.cosine - 1.0).abs()
    }

    #[test]
    fn seeds_differ_and_repeat() {
        let of = |seed| theorem(CellKind::Gru, seed);
        assert_eq!(of(4), of(4));
        assert_ne!(of(4).moved, of(5).moved);
        let json = serde_json::to_value(of(4)).expect("plain numbers");
        assert!(json["old"]["ratio"].is_f64() && json["moved"]["cosine"].is_f64());
        assert_eq!(json["reach"][1]["n"], 1);
    }
}
