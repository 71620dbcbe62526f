//! Every gradient of the block pass against central differences, in f64.

use tprop::cell::CellKind;
use tprop::model::{Model, ModelConfig, Tape};
use tprop::params::Params;
use tprop::rng::Draws;
use tprop::window::Layout;

struct Case {
    model: Model<f64>,
    params: Params<f64>,
    tape: Tape<f64>,
    starts: Vec<f64>,
    pull: Vec<f64>,
    scale: f64,
}

impl Case {
    fn new(cell: CellKind, layers: usize, tied: bool, rows: usize, steps: usize) -> Self {
        let (hidden, embed) = if tied { (5, 5) } else { (5, 4) };
        let config = ModelConfig { cell, hidden, embed, layers, tied, init: 0.5, ..ModelConfig::new(7) };
        let model = Model::new(config);
        let params = model.initial(3);
        let mut tape = model.tape(Layout::new(rows, steps));
        let draws = Draws::new(5, "case");
        tape.inputs = (0..rows * steps).map(|i| draws.below(i as u64, 7) as u32).collect();
        tape.targets = (0..rows * steps).map(|i| draws.below(1000 + i as u64, 7) as u32).collect();
        let width = model.state_width();
        let starts = (0..rows * width).map(|i| draws.within(2000 + i as u64, 1.0)).collect();
        let pull = (0..rows * width).map(|i| draws.within(9000 + i as u64, 1.0)).collect();
        Self { model, params, tape, starts, pull, scale: 0.7 }
    }

    /// scale · Σ nats + ⟨pull, ends⟩
    fn objective(&mut self) -> f64 {
        self.model.prepare(&self.params, &mut self.tape);
        self.model.recur(&self.params, &mut self.tape, &self.starts);
        let mut ends = vec![0.0; self.pull.len()];
        self.model.ends(&self.tape, &mut ends);
        let nats = self.model.nats(&self.params, &mut self.tape);
        self.scale * nats + ends.iter().zip(&self.pull).map(|(e, p)| e * p).sum::<f64>()
    }
}

fn difference(case: &mut Case, mut at: impl FnMut(&mut Case) -> &mut f64) -> f64 {
    let eps = 1e-5;
    let value = *at(case);
    // Fourth-order central difference: its own error stays below the tolerance.
    let mut f = |d: f64| {
        *at(case) = value + d;
        case.objective()
    };
    let gradient = (8.0 * (f(eps) - f(-eps)) - (f(2.0 * eps) - f(-2.0 * eps))) / (12.0 * eps);
    *at(case) = value;
    gradient
}

fn assert_close(what: &str, ours: &[f64], theirs: &[f64]) {
    let norm = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
    let error: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a - b).collect();
    let relative = norm(&error) / norm(theirs).max(1e-3);
    assert!(relative <= 1e-7, "{what}: relative error {relative:e}");
}

#[test]
fn block_pass_agrees_with_central_differences() {
    for cell in CellKind::ALL {
        for layers in [1, 2, 3] {
            for tied in [false, true] {
                for (rows, steps) in [(2, 3), (9, 2), (1, 1)] {
                    check(cell, layers, tied, rows, steps);
                }
            }
        }
    }
}

fn check(cell: CellKind, layers: usize, tied: bool, rows: usize, steps: usize) {
    let mut case = Case::new(cell, layers, tied, rows, steps);
    let mut grads = case.model.grads();
    case.objective();
    let mut d_start = vec![0.0; case.starts.len()];
    // Stale sums must not survive a clear: run once, clear, run again.
    for _ in 0..2 {
        grads.clear();
        case.model.loss(&case.params, &mut case.tape, case.scale, None, Some(&mut grads));
        let (pull, starts) = (Some(&case.pull[..]), Some(&mut d_start[..]));
        case.model.backward(&case.params, &mut case.tape, true, pull, starts, Some(&mut grads));
        grads.settle();
    }
    let context = format!("{cell:?} × {layers}, tied {tied}, {rows} × {steps}");
    let shapes = case.model.shapes().clone();
    for (entry, id) in shapes.entries().iter().zip(shapes.ids()) {
        let differences: Vec<f64> =
            entry.range().map(|i| difference(&mut case, |c| &mut c.params.all_mut()[i])).collect();
        assert_close(&format!("{context}: {}", entry.name), grads.values().get(id), &differences);
    }
    let differences: Vec<f64> = (0..case.starts.len()).map(|i| difference(&mut case, |c| &mut c.starts[i])).collect();
    assert_close(&format!("{context}: starts"), &d_start, &differences);

    // A second backward with another pull and no θ gives the same gradient in the starts as a first one would.
    case.objective();
    case.model.loss(&case.params, &mut case.tape, case.scale, None, None);
    let mut again = vec![0.0; d_start.len()];
    case.model.backward(&case.params, &mut case.tape, true, None, Some(&mut again), None);
    case.model.backward(&case.params, &mut case.tape, true, Some(&case.pull), Some(&mut again), None);
    assert_eq!(again, d_start, "{context}: repeated backward");
}
