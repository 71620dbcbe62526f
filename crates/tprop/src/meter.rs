//! A microscope for gradients: how far a method's gradient is from the exact one, and what decides about it.
//!
//! Windows of a text are entered in the state that reading the text before them leaves. Over each of them the *exact* gradient is that of BPTT
//! through the whole window; a method's is what its updates see, averaged over them if it makes several ([`Probe::gradient`]). Each question is a
//! function; [`measure`] asks all of them and averages over windows. Nothing here trains.
//!
//! Errors are ‖g − g*‖/‖g*‖. *Starts* are the states in which blocks begin: held starts that are not exact are one source of error, *pulls* that
//! have not come all the way back the other. Both fall as fast as the network forgets, which is its largest Lyapunov exponent.

use std::ops::Range;

use serde::Serialize;

use crate::method::{BtpropConfig, Init, MethodConfig, Outline, Solver, StateConfig};
use crate::model::Model;
use crate::params::Id;
use crate::probe::{Excerpt, Probe, ProbeError, Worked, cosine, norm, relative_error, window};
use crate::real::Real;
use crate::rng::Draws;
use crate::tokens::Text;
use crate::window::{Layout, Streams};

/// Tokens before a window that are read to enter it.
const BEFORE: usize = 4096;
/// Tokens over which exponents are measured, if the window has fewer.
const LONG: usize = 1024;
/// Steps between two renormalisations.
const STEPS: usize = 8;
/// Blocks of BPTT, which has none of its own, for the decay with the lag: at most so many tokens.
const LAG: usize = 20;
/// Lags and sweeps of starts that are looked at.
const MOST: usize = 64;

/// What to measure.
#[derive(Clone, Debug, PartialEq)]
pub struct MeterConfig {
    /// The method; its gradient is measured, not its optimiser.
    pub method: MethodConfig,
    /// Tokens of each stream over which the gradient is exact; the method's own window if none.
    pub window: Option<usize>,
    /// How many such windows, spread evenly over the text.
    pub windows: usize,
    /// State steps (pull sweeps) up to which target propagation is measured.
    pub sweeps: usize,
}

/// How near a method's gradient is to the exact one, in some of the weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nearness {
    /// Which weights.
    pub group: String,
    /// ‖g − g*‖ / ‖g*‖
    pub error: f64,
    /// Cosine of the angle between them.
    pub cosine: f64,
}

/// A method's gradient against the exact one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// State steps (pull sweeps), if the method has them.
    pub sweeps: Option<usize>,
    /// These are the method's own.
    pub own: bool,
    /// Mean number of sweeps that found the starts.
    pub start_sweeps: f64,
    /// By group of weights.
    pub groups: Vec<Nearness>,
}

/// The starts of blocks after a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StartSweep {
    /// From 1.
    pub sweep: usize,
    /// What the sweep changed: ‖s⁺ − s‖ / ‖s⁺‖.
    pub change: f64,
    /// Against the exact starts s*: ‖s⁺ − s*‖ / ‖s*‖.
    pub error: f64,
}

/// How much of a loss arrives at states before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lag {
    /// Tokens between the start of the loss's own block and the state.
    pub tokens: usize,
    /// Root mean square of the gradient there, relative to that at the own block's start.
    pub norm: f64,
}

/// What was found; means over the windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Number type of all passes.
    pub real: &'static str,
    /// Tokens of each stream of a window.
    pub window: usize,
    /// Streams.
    pub streams: usize,
    /// Windows.
    pub windows: usize,
    /// Tokens that the method works on at once, of each stream.
    pub own_window: usize,
    /// Steps of a block, for starts and lags.
    pub block: usize,
    /// The gradient, by pull sweeps.
    pub rows: Vec<Row>,
    /// The starts, sweep by sweep, whatever tolerance would end them earlier; empty if the method's init has no sweeps.
    pub starts: Vec<StartSweep>,
    /// Factor by which a sweep multiplies the error of the starts.
    pub starts_factor: Option<f64>,
    /// Largest Lyapunov exponent: how fast what a state was is forgotten, per step.
    pub lyapunov: f64,
    /// How the gradient decays.
    pub lags: Vec<Lag>,
}

/// Why it cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// The text is too short.
    #[error("each of the {streams} streams has {tokens} tokens; a window needs {wanted}")]
    TooShort {
        /// Streams.
        streams: usize,
        /// Of each of them.
        tokens: usize,
        /// A window's.
        wanted: usize,
    },
    /// There is no gradient.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// Measures a method at fixed weights on some windows of a text.
///
/// ```
/// use tprop::meter::{MeterConfig, measure};
/// use tprop::prelude::*;
/// use tprop::probe::Probe;
/// let text: Vec<u32> = (0..500).map(|i| i * i % 7).collect();
/// let model = Model::<f64>::new(ModelConfig { hidden: 8, embed: 8, ..ModelConfig::new(7) });
/// let params = model.initial(1);
/// let method = BtpropConfig { block: 5, blocks: 4, streams: 2, ..BtpropConfig::reach(1) }.into();
/// let config = MeterConfig { method, window: None, windows: 2, sweeps: 3 };
/// let found = measure(Probe { model: &model, params: &params }, (&text).into(), &config)?;
/// let all = |row: usize| found.rows[row].groups.last().unwrap();
/// assert!(all(1).error < all(0).error && all(3).error < 1e-10); // a reach of three of four blocks is exact
/// # Ok::<(), tprop::meter::MeterError>(())
/// ```
///
/// # Errors
/// If the text is too short, or the method makes no gradient over such windows.
pub fn measure<T: Real>(probe: Probe<T>, text: Text<'_>, config: &MeterConfig) -> Result<Measured, MeterError> {
    let own = window(&config.method).ok_or(ProbeError::NoGradient)?;
    let (streams, length) = (config.method.streams(), config.window.unwrap_or(own));
    let cut = Streams::new(text, streams);
    if cut.length() < length {
        return Err(MeterError::TooShort { streams, tokens: cut.length(), wanted: length });
    }
    let block = match &config.method {
        MethodConfig::Bptt(c) => c.window.min(LAG),
        method => method.block(),
    };
    let methods = by_sweeps(&config.method, config.sweeps);
    let count = config.windows.max(1);
    let mut rows: Vec<Mean> = methods.iter().map(|_| Mean::default()).collect();
    let (mut starts, mut decay, mut exponents) = (Mean::default(), Mean::default(), 0.0);
    for place in places(cut.length() - length, count) {
        let excerpt = Excerpt::new(&cut, place, length);
        let state = probe.state_at(&cut, place.saturating_sub(BEFORE), place);
        let exact = probe.exact(&excerpt, &state)?;
        for (sum, (_, method)) in rows.iter_mut().zip(&methods) {
            let worked = probe.gradient(method, &excerpt, &state)?;
            sum.add(nearness(probe.model, &worked, &exact));
        }
        if let MethodConfig::Btprop(method) = &config.method {
            let first = Excerpt::new(&cut, place, own.min(length));
            starts.add(start_sweeps(probe, method, &first, &state)?.iter().flat_map(|s| [s.change, s.error]));
        }
        decay.add(lags(probe, &excerpt, block, &state).iter().map(|lag| lag.norm));
        let long = length.max(LONG.min(cut.length()));
        let place = place.min(cut.length() - long);
        let state = probe.state_at(&cut, place.saturating_sub(BEFORE), place);
        exponents += lyapunov(probe, &Excerpt::new(&cut, place, long), &state) / count as f64;
    }
    let starts: Vec<StartSweep> = starts
        .take()
        .chunks_exact(2)
        .enumerate()
        .map(|(i, s)| StartSweep { sweep: i + 1, change: s[0], error: s[1] })
        .collect();
    let names = groups(probe.model);
    let rows = rows.into_iter().zip(&methods).map(|(mean, (sweeps, method))| {
        let values = mean.take();
        let groups = names.iter().zip(values[1..].chunks_exact(2)).map(|((name, _), v)| Nearness {
            group: name.clone(),
            error: v[0],
            cosine: v[1],
        });
        Row { sweeps: *sweeps, own: *method == config.method, start_sweeps: values[0], groups: groups.collect() }
    });
    Ok(Measured {
        real: T::NAME,
        window: length,
        streams,
        windows: count,
        own_window: own,
        block,
        rows: rows.collect(),
        starts_factor: factor(&starts),
        starts,
        lyapunov: exponents,
        lags: decay.take().iter().enumerate().map(|(i, &norm)| Lag { tokens: i * block, norm }).collect(),
    })
}

/// Places for `count` windows, spread evenly over `room` places.
fn places(room: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| room * (2 * i + 1) / (2 * count))
}

/// The method with 0, 1, … state steps, and with its own if they are more.
fn by_sweeps(method: &MethodConfig, most: usize) -> Vec<(Option<usize>, MethodConfig)> {
    match method {
        MethodConfig::Btprop(c) if !matches!(c.solver, Solver::Alm { .. }) => {
            let own = c.states.steps;
            let steps = (0..=most).chain((own > most).then_some(own));
            let with = |steps| BtpropConfig { states: StateConfig { steps, ..c.states }, ..c.clone() };
            steps.map(|n| (Some(n), with(n).into())).collect()
        }
        method => vec![(None, method.clone())],
    }
}

/// Groups of weights by name, each a run of the buffer: embedding, every layer's cell, output; then cells and embedding together, and all.
pub fn groups<T: Real>(model: &Model<T>) -> Vec<(String, Range<usize>)> {
    let shapes = model.shapes();
    let run =
        |ids: &Vec<Id>| shapes.entry(ids[0]).range().start..shapes.entry(*ids.last().expect("a tensor")).range().end;
    let mut ranges: Vec<_> = model.groups().iter().map(run).rev().collect();
    let output = ranges.pop().expect("an output layer");
    let layers = model.config().layers;
    let mut groups = vec![("embedding".to_owned(), ranges[0].clone())];
    for (l, range) in ranges[1..].iter().enumerate() {
        let name = if layers == 1 { "cell".to_owned() } else { format!("cell {}", l + 1) };
        groups.push((name, range.clone()));
    }
    groups.push(("output".to_owned(), output.clone()));
    groups.push((CELL_AND_EMBEDDING.to_owned(), 0..output.start));
    groups.push((ALL.to_owned(), 0..shapes.len()));
    groups
}

/// The group of all weights but the output's, to which a gradient comes through states alone.
pub const CELL_AND_EMBEDDING: &str = "cell and embedding";
/// The group of all weights.
pub const ALL: &str = "all";

/// A gradient against the exact one: sweeps of the starts, then error and cosine by group.
fn nearness<T: Real>(model: &Model<T>, worked: &Worked<T>, exact: &[T]) -> Vec<f64> {
    let mut values = vec![worked.sweeps];
    for (_, range) in groups(model) {
        let (ours, theirs) = (&worked.gradient[range.clone()], &exact[range]);
        values.extend([relative_error(ours, theirs), cosine(ours, theirs)]);
    }
    values
}

/// The starts of a window's blocks after each sweep of the method's init. The first block's is no question and is not counted.
///
/// # Errors
/// If the method cannot be planned for such a window.
pub fn start_sweeps<T: Real>(
    probe: Probe<T>,
    method: &BtpropConfig,
    excerpt: &Excerpt,
    state: &[T],
) -> Result<Vec<StartSweep>, ProbeError> {
    let all = probe.exact_starts(excerpt, method.block, state);
    let exact = &all[state.len().min(all.len())..];
    if exact.is_empty() || matches!(method.init, Init::Zero | Init::Sequential) {
        return Ok(Vec::new());
    }
    let begin: Vec<T> = match method.init {
        Init::Carried { .. } => state.to_vec(),
        _ => probe.initial_state(excerpt.streams()),
    };
    let mut before: Vec<T> = begin.iter().cycle().take(exact.len()).copied().collect();
    let config = BtpropConfig { streams: excerpt.streams(), ..method.clone() };
    let mut found = Vec::new();
    for sweep in 1..=method.init.sweeps().min(MOST) {
        let starts = probe.swept_starts(&config, excerpt, state, sweep)?;
        let after = starts[state.len()..][..exact.len()].to_vec();
        let change = relative_error(&before, &after);
        found.push(StartSweep { sweep, change, error: relative_error(&after, exact) });
        before = after;
    }
    Ok(found)
}

/// The geometric mean of what each sweep multiplies the error with, down to rounding.
fn factor(starts: &[StartSweep]) -> Option<f64> {
    let seen = starts.iter().take_while(|s| s.error > 1e-12).count();
    let (first, last) = (starts.first()?, starts.get(seen.checked_sub(1)?)?);
    (seen > 1).then(|| (last.error / first.error).powf(1.0 / (seen - 1) as f64))
}

/// The largest Lyapunov exponent per step: the growth of a vector that is sent back through the steps of an excerpt, J₁ᵀ ⋯ J_nᵀ v. (Forwards
/// it is the same.) The last quarter of the excerpt, through which it is sent first, only turns it into the direction that grows most.
pub fn lyapunov<T: Real>(probe: Probe<T>, excerpt: &Excerpt, state: &[T]) -> f64 {
    let Probe { model, params } = probe;
    let (streams, width) = (excerpt.streams(), model.state_width());
    let steps = STEPS.min(excerpt.length());
    let starts = probe.exact_starts(excerpt, steps, state);
    let layout = Layout::new(streams, steps);
    let mut tape = model.tape(layout);
    let draws = Draws::new(1, "lyapunov");
    let mut v: Vec<T> = (0..state.len() as u64).map(|i| T::of(draws.within(i, 1.0))).collect();
    let mut d_start = v.clone();
    let blocks = excerpt.length() / steps;
    let (turned, mut growth) = (blocks - blocks / 4, 0.0);
    for k in (0..blocks).rev() {
        excerpt.cut().fill(&layout, k * steps, 0..streams, &mut tape.inputs, &mut tape.targets);
        model.prepare(params, &mut tape);
        model.recur(params, &mut tape, &starts[k * state.len()..][..state.len()]);
        model.backward(params, &mut tape, false, Some(&v), Some(&mut d_start), None);
        for (v, d) in v.chunks_exact_mut(width).zip(d_start.chunks_exact(width)) {
            let (before, after) = (norm(v), norm(d));
            if k < turned {
                growth += (after / before).ln();
            }
            v.iter_mut().zip(d).for_each(|(v, &d)| *v = T::of(d.f64() / after));
        }
    }
    growth / (turned * steps * streams) as f64
}

/// The losses of blocks of `block` tokens sent back by 0, 1, 2, … blocks.
pub fn lags<T: Real>(probe: Probe<T>, excerpt: &Excerpt, block: usize, state: &[T]) -> Vec<Lag> {
    if excerpt.length() < block {
        return Vec::new();
    }
    let mut blocks = probe.blocks(excerpt, block, state);
    let (count, column) = (blocks.count(), blocks.column());
    let mut at_starts = blocks.losses(None);
    let mut norms = Vec::new();
    for lag in 0..count.min(MOST) {
        if lag > 0 {
            at_starts = blocks.send_back(&at_starts, None);
        }
        // What came from the first blocks has left the window.
        let inside = count - lag;
        norms.push(norm(&at_starts[..inside * column]) / (inside as f64).sqrt());
    }
    norms.iter().enumerate().map(|(lag, x)| Lag { tokens: lag * block, norm: x / norms[0] }).collect()
}

/// Means of rows of numbers.
#[derive(Clone, Debug, Default)]
struct Mean {
    sums: Vec<f64>,
    rows: usize,
}

impl Mean {
    fn add(&mut self, row: impl IntoIterator<Item = f64>) {
        let row: Vec<f64> = row.into_iter().collect();
        self.sums.resize(self.sums.len().max(row.len()), 0.0);
        self.sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        self.rows += 1;
    }

    fn take(self) -> Vec<f64> {
        self.sums.iter().map(|sum| sum / self.rows as f64).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Activation, CellKind};
    use crate::method::{Batch, BpttConfig, Scan};
    use crate::model::ModelConfig;
    use crate::params::Params;

    const VOCAB: usize = 7;
    /// S, M, B
    const SHAPE: (usize, usize, usize) = (2, 4, 3);
    const WINDOW: usize = SHAPE.1 * SHAPE.2;

    fn model(cell: CellKind, layers: usize) -> Model<f64> {
        Model::new(ModelConfig { cell, hidden: 5, embed: 4, layers, init: 0.5, ..ModelConfig::new(VOCAB) })
    }

    /// Short, because states of multiplicative cells may grow: pulls would drown beside them.
    fn text() -> Vec<u32> {
        let draws = Draws::new(11, "tokens");
        (0..61).map(|i| draws.below(i, VOCAB as u64) as u32).collect()
    }

    fn reach(steps: usize) -> BtpropConfig {
        let (streams, blocks, block) = SHAPE;
        BtpropConfig { streams, blocks, block, ..BtpropConfig::reach(steps) }
    }

    fn bptt(window: usize) -> MethodConfig {
        BpttConfig { window, streams: SHAPE.0, ..BpttConfig::default() }.into()
    }

    fn meter(model: &Model<f64>, method: impl Into<MethodConfig>) -> Measured {
        let config = MeterConfig { method: method.into(), window: Some(WINDOW), windows: 2, sweeps: SHAPE.1 - 1 };
        measure(Probe { model, params: &model.initial(1) }, (&text()).into(), &config).unwrap()
    }

    fn worst(row: &Row) -> f64 {
        row.groups.iter().map(|g| g.error.max(1.0 - g.cosine)).fold(0.0, f64::max)
    }

    fn each_model(check: impl Fn(&str, Model<f64>)) {
        for cell in CellKind::ALL {
            for layers in [1, 2] {
                check(&format!("{cell:?} × {layers}"), model(cell, layers));
            }
        }
    }

    #[test]
    fn exact_methods_have_no_error() {
        let all = SHAPE.1 - 1;
        let scan = BtpropConfig { scan: Scan::Both, init: Init::Carried { sweeps: all }, ..reach(1) };
        each_model(|name, model| {
            assert!(worst(&meter(&model, bptt(WINDOW)).rows[0]) < 1e-10, "{name}");
            for method in [reach(all), scan.clone()] {
                let found = meter(&model, method);
                assert_eq!(found.rows.len(), all + 1);
                assert!(worst(&found.rows[all]) < 1e-10, "{name}: {found:?}");
                // The number says something.
                assert!(worst(&found.rows[0]) > 1e-6, "{name}: {found:?}");
            }
        });
    }

    #[test]
    fn no_reach_is_truncated_bptt() {
        each_model(|name, model| {
            let (ours, theirs) = (meter(&model, reach(0)), meter(&model, bptt(SHAPE.2)));
            assert_eq!((ours.rows[0].sweeps, ours.rows[0].own, theirs.rows[0].sweeps), (Some(0), true, None));
            for (a, b) in ours.rows[0].groups.iter().zip(&theirs.rows[0].groups) {
                assert!(
                    (a.error - b.error).abs() < 1e-10 && (a.cosine - b.cosine).abs() < 1e-10,
                    "{name}: {a:?} {b:?}"
                );
            }
            assert!(ours.rows[0].groups[0].error > 1e-6, "{name}");
        });
    }

    /// Windows of 5 in 12 tokens: two of 5 and one of 2, each weighted by its tokens and entered where the one before ended.
    #[test]
    fn windows_of_any_length_are_averaged() {
        let model = model(CellKind::Gru, 2);
        let (params, text) = (model.initial(1), text());
        let probe = Probe { model: &model, params: &params };
        let cut = Streams::new(&text, SHAPE.0);
        let state = probe.state_at(&cut, 0, 7);
        let ours = probe.gradient(&bptt(5), &Excerpt::new(&cut, 7, 12), &state).unwrap();
        let mut theirs = vec![0.0; ours.gradient.len()];
        for (at, length) in [(7, 5), (12, 5), (17, 2)] {
            let state = probe.state_at(&cut, 0, at);
            let exact = probe.exact(&Excerpt::new(&cut, at, length), &state).unwrap();
            theirs.iter_mut().zip(exact).for_each(|(sum, g)| *sum += g * length as f64 / 12.0);
        }
        assert_eq!(ours.updates, 3);
        assert!(relative_error(&ours.gradient, &theirs) < 1e-12);

        // Several windows an update, from the initial state, are the method's own way to average.
        let accumulated = BpttConfig { window: 4, streams: SHAPE.0, batch: Batch::Mini { accumulate: 3 } };
        let theirs = probe.first_gradient(&accumulated.into(), (&text).into()).unwrap();
        let ours = probe.gradient(&bptt(4), &Excerpt::new(&cut, 0, 12), &probe.initial_state(SHAPE.0)).unwrap();
        assert!(relative_error(&ours.gradient, &theirs) < 1e-12);
    }

    /// A tanh cell in the state 0 without inputs: every step's Jacobian is the recurrent matrix.
    fn linear(diagonal: [f64; 5]) -> (Model<f64>, Params<f64>) {
        let model = model(CellKind::Elman(Activation::Tanh), 1);
        let initial = model.initial(1);
        let mut params = Params::zeros(model.shapes());
        let (_, w_hh, _) = model.layer_ids(0);
        diagonal.iter().enumerate().for_each(|(i, &w)| params.get_mut(w_hh)[i * 5 + i] = w);
        let out = model.output_ids().0;
        params.get_mut(out).copy_from_slice(initial.get(out));
        (model, params)
    }

    #[test]
    fn exponents_and_decay_of_a_linear_network_are_known() {
        let (model, params) = linear([0.3, 0.9, -0.5, 0.2, 0.1]);
        let probe = Probe { model: &model, params: &params };
        let text = vec![3; 2 * 401];
        let cut = Streams::new(&text, 2);
        let excerpt = Excerpt::new(&cut, 0, 400);
        let found = lyapunov(probe, &excerpt, &probe.initial_state(2));
        assert!((found - 0.9f64.ln()).abs() < 1e-10, "{found} for {}", 0.9f64.ln());

        let (model, params) = linear([0.8; 5]);
        let probe = Probe { model: &model, params: &params };
        let found = lags(probe, &Excerpt::new(&cut, 0, 12), 3, &probe.initial_state(2));
        assert_eq!(found.iter().map(|lag| lag.tokens).collect::<Vec<_>>(), [0, 3, 6, 9]);
        for lag in found {
            assert!((lag.norm - 0.8f64.powi(lag.tokens as i32)).abs() < 1e-12, "{lag:?}");
        }
    }

    #[test]
    fn sweeps_find_the_starts() {
        for (scan, init) in [
            (Scan::None, Init::Parallel { sweeps: 4 }),
            (Scan::Both, Init::Carried { sweeps: 3 }),
            (Scan::Starts, Init::Stored { sweeps: 3 }),
        ] {
            each_model(|name, model| {
                let found = meter(&model, BtpropConfig { scan, init, sweep_tolerance: 0.5, ..reach(1) });
                let starts = &found.starts;
                assert_eq!(starts.len(), init.sweeps(), "{name}");
                assert!(starts[0].error > 1e-6 && starts.last().unwrap().error < 1e-12, "{name}: {starts:?}");
                // From the last starts that were wrong to those that are right: the change is their error.
                let last = starts.len() - 1;
                assert!((starts[last].change / starts[last - 1].error - 1.0).abs() < 1e-6, "{name}: {starts:?}");
            });
            // The tolerance ended those of the gradient.
            let found = meter(&model(CellKind::Gru, 1), BtpropConfig { scan, init, sweep_tolerance: 0.5, ..reach(1) });
            assert!(found.rows[0].start_sweeps < init.sweeps() as f64, "{found:?}");
        }
        assert!(meter(&model(CellKind::Gru, 1), reach(1)).starts.is_empty());
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let model = model(CellKind::Gru, 1);
        let params = model.initial(1);
        let refused = |method: MethodConfig, window| {
            let config = MeterConfig { method, window, windows: 1, sweeps: 0 };
            measure(Probe { model: &model, params: &params }, (&text()).into(), &config).unwrap_err()
        };
        assert!(matches!(refused(bptt(3), Some(500)), MeterError::TooShort { wanted: 500, tokens: 30, .. }));
        let blocks = refused(reach(1).into(), Some(14));
        assert!(matches!(blocks, MeterError::Probe(ProbeError::Blocks { tokens: 2, block: 3 })), "{blocks:?}");
        let none = refused(crate::method::LeastSquaresConfig::default().into(), None);
        assert!(matches!(none, MeterError::Probe(ProbeError::NoGradient)), "{none:?}");
    }
}
