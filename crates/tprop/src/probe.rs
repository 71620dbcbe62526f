//! The gradient of any method over a stretch of text, and the blocks of its exact trajectory: what measurements of gradients are made of.
//!
//! A method is run as it trains, window by window, but its updates are plain steps of rate 0: θ stays, so that its several gradients over the
//! stretch may be averaged, and the state is carried from window to window as the method carries it.

use crate::comm::Solo;
use crate::method::{
    Advance, Batch, BpttConfig, BtpropConfig, Init, Learner, Method, MethodConfig, MethodError, Outline,
};
use crate::model::{Model, Tape};
use crate::optim::{OptimConfig, Optimiser, Rule};
use crate::params::{Grads, Params, Visit};
use crate::real::Real;
use crate::tokens::Text;
use crate::window::{Layout, Streams};

/// Why there is no gradient to look at.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Its steps are closed forms.
    #[error("least squares moves weights by closed forms, not along a gradient")]
    NoGradient,
    /// A stretch of so many tokens is not a whole number of blocks.
    #[error("{tokens} tokens are not a whole number of blocks of {block}")]
    Blocks {
        /// Of each stream.
        tokens: usize,
        /// B
        block: usize,
    },
    /// The method cannot be planned.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// The gradient is not finite.
    #[error("the gradient is not finite")]
    NotFinite,
}

/// A stretch of text: L inputs of each of S streams, and what follows the last of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Excerpt {
    tokens: Vec<u32>,
    streams: usize,
    length: usize,
}

impl Excerpt {
    /// So many tokens of each stream, from `at` on.
    pub fn new(cut: &Streams, at: usize, length: usize) -> Self {
        assert!(length > 0 && at + length <= cut.length());
        let mut tokens = Vec::with_capacity(cut.streams() * (length + 1) + 1);
        for stream in 0..cut.streams() {
            tokens.extend((at..at + length).map(|i| cut.input(stream, i)));
            tokens.push(cut.target(stream, at + length - 1));
        }
        // Streams leave out the last token of a text.
        tokens.push(0);
        Self { tokens, streams: cut.streams(), length }
    }

    /// Tokens of each stream.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Streams side by side.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// The streams; each has the last target as one input more.
    pub(crate) fn cut(&self) -> Streams<'_> {
        Streams::new(&self.tokens, self.streams)
    }

    fn part(&self, from: usize, length: usize) -> Self {
        Self::new(&self.cut(), from, length)
    }
}

/// Tokens of each stream that a method works on at once; none if it makes no gradient.
pub fn window(config: &MethodConfig) -> Option<usize> {
    match config {
        MethodConfig::Bptt(c) => Some(c.window),
        MethodConfig::Btprop(c) => Some(c.block * c.blocks),
        MethodConfig::LeastSquares(_) => None,
    }
}

/// The method with windows of so many tokens of each stream, and an update after each.
pub fn with_window(config: &MethodConfig, tokens: usize, streams: usize) -> Result<MethodConfig, ProbeError> {
    let batch = Batch::default();
    match config {
        MethodConfig::Bptt(_) => Ok(BpttConfig { window: tokens, streams, batch }.into()),
        MethodConfig::Btprop(c) if !tokens.is_multiple_of(c.block) => {
            Err(ProbeError::Blocks { tokens, block: c.block })
        }
        MethodConfig::Btprop(c) => {
            // One θ step is one gradient.
            let blocks = tokens / c.block;
            Ok(BtpropConfig { blocks, streams, batch, theta_steps: 1, ..c.clone() }.into())
        }
        MethodConfig::LeastSquares(_) => Err(ProbeError::NoGradient),
    }
}

/// A model at fixed weights.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a, T> {
    /// Shape.
    pub model: &'a Model<T>,
    /// θ
    pub params: &'a Params<T>,
}

/// What a method did with an excerpt.
#[derive(Clone, Debug)]
pub struct Worked<T> {
    /// ∂(mean nats)/∂θ, as the method sees it: the mean over its updates.
    pub gradient: Vec<T>,
    /// Its updates.
    pub updates: usize,
    /// Mean number of sweeps that found the starts; 0 if there are none.
    pub sweeps: f64,
}

impl<'a, T: Real> Probe<'a, T> {
    /// The method's gradient over an excerpt that is entered in `state` (a row for each stream). Windows of the method's own length, the last
    /// one perhaps shorter, follow each other.
    ///
    /// # Errors
    /// If the method makes no gradient, cannot be planned for it, or the gradient is not finite.
    pub fn gradient(&self, config: &MethodConfig, excerpt: &Excerpt, state: &[T]) -> Result<Worked<T>, ProbeError> {
        let own = window(config).ok_or(ProbeError::NoGradient)?;
        let whole = excerpt.length / own * own;
        let mut worked = Worked { gradient: vec![T::ZERO; self.model.shapes().len()], updates: 0, sweeps: 0.0 };
        let mut state = state.to_vec();
        for (from, length, window) in [(0, whole, own), (whole, excerpt.length - whole, excerpt.length - whole)] {
            if length == 0 {
                continue;
            }
            let part = excerpt.part(from, length);
            let config = with_window(config, window, excerpt.streams)?;
            let mut learner = self.learner((&part.tokens).into());
            let mut method = enter(&config, &learner, &state)?;
            let share = T::of(window as f64 / excerpt.length as f64);
            for _ in 0..length / window {
                learner.optimiser.copy_next();
                let update = match method.advance(&mut learner, &mut || false) {
                    Advance::Update(update) => update,
                    _ => return Err(ProbeError::NotFinite),
                };
                let gradient = learner.optimiser.take_gradient().expect("every update has a gradient");
                worked.gradient.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += share * g);
                worked.updates += 1;
                worked.sweeps += update.coupling.map_or(0.0, |c| c.sweeps);
            }
            state = shown(&mut *method, CARRIED);
        }
        worked.sweeps /= worked.updates as f64;
        Ok(worked)
    }

    /// The first update's gradient of a method over a whole text, from the initial state.
    ///
    /// # Errors
    /// As [`Probe::gradient`].
    pub fn first_gradient(&self, config: &MethodConfig, text: Text<'_>) -> Result<Vec<T>, ProbeError> {
        let mut learner = self.learner(text);
        let mut method = config.build(&learner)?;
        method.begin_epoch(&learner, 1);
        learner.optimiser.copy_next();
        match method.advance(&mut learner, &mut || false) {
            Advance::Update(_) => learner.optimiser.take_gradient().ok_or(ProbeError::NoGradient),
            _ => Err(ProbeError::NotFinite),
        }
    }

    /// BPTT over the whole excerpt at once.
    ///
    /// # Errors
    /// As [`Probe::gradient`].
    pub fn exact(&self, excerpt: &Excerpt, state: &[T]) -> Result<Vec<T>, ProbeError> {
        let (window, streams) = (excerpt.length, excerpt.streams);
        let bptt = BpttConfig { window, streams, ..BpttConfig::default() };
        Ok(self.gradient(&bptt.into(), excerpt, state)?.gradient)
    }

    /// The starts of all blocks after so many sweeps of the method's init (row k·S + i: block k of stream i); what stands behind them has no
    /// meaning. An init without sweeps is as it is.
    ///
    /// # Errors
    /// As [`Probe::gradient`].
    pub fn swept_starts(
        &self,
        config: &BtpropConfig,
        excerpt: &Excerpt,
        state: &[T],
        sweeps: usize,
    ) -> Result<Vec<T>, ProbeError> {
        let init = match config.init {
            init @ (Init::Zero | Init::Sequential) => init,
            Init::Parallel { .. } => Init::Parallel { sweeps },
            Init::Stored { .. } => Init::Stored { sweeps },
            Init::Carried { .. } => Init::Carried { sweeps },
        };
        // In batch mode a method shows its states, and no state step moves them.
        let config = BtpropConfig { init, batch: Batch::Full, sweep_tolerance: 0.0, ..config.clone() };
        let config = BtpropConfig { states: crate::method::StateConfig { steps: 0, ..config.states }, ..config };
        let mut learner = self.learner((&excerpt.tokens).into());
        let mut method = enter(&config.into(), &learner, state)?;
        match method.advance(&mut learner, &mut || false) {
            Advance::Update(_) => {}
            _ => return Err(ProbeError::NotFinite),
        }
        Ok(shown(&mut *method, "btprop.starts"))
    }

    /// The state in which a place of every stream is entered, read from `from` on in the initial state.
    pub fn state_at(&self, cut: &Streams, from: usize, to: usize) -> Vec<T> {
        let mut state = self.initial_state(cut.streams());
        if to > from {
            self.follow(&Excerpt::new(cut, from, to - from), STEPS, &mut state, |_, _| {});
        }
        state
    }

    /// The initial state of every stream.
    pub fn initial_state(&self, streams: usize) -> Vec<T> {
        vec![self.model.initial_state(); streams * self.model.state_width()]
    }

    /// The exact starts of the excerpt's blocks of `block` steps, the first one included.
    pub fn exact_starts(&self, excerpt: &Excerpt, block: usize, state: &[T]) -> Vec<T> {
        let mut starts = Vec::new();
        let mut state = state.to_vec();
        self.follow(excerpt, block, &mut state, |_, start| starts.extend(start));
        starts
    }

    /// Reads an excerpt in steps of `steps`, the last perhaps shorter; `each` sees every stretch's tape and where it started.
    pub fn follow(
        &self,
        excerpt: &Excerpt,
        steps: usize,
        state: &mut Vec<T>,
        mut each: impl FnMut(&mut Tape<T>, &[T]),
    ) {
        let Self { model, params } = *self;
        let cut = excerpt.cut();
        let mut ends = state.clone();
        let mut tape: Option<Tape<T>> = None;
        for at in (0..excerpt.length).step_by(steps) {
            let layout = Layout::new(excerpt.streams, steps.min(excerpt.length - at));
            let fresh = match tape.take() {
                Some(tape) if tape.layout() == layout => tape,
                _ => model.tape(layout),
            };
            let tape = tape.insert(fresh);
            cut.fill(&layout, at, 0..excerpt.streams, &mut tape.inputs, &mut tape.targets);
            model.prepare(params, tape);
            model.recur(params, tape, state);
            each(tape, state);
            model.ends(tape, &mut ends);
            std::mem::swap(state, &mut ends);
        }
    }

    /// All whole blocks of `block` steps of an excerpt side by side, on its exact trajectory.
    pub fn blocks(&self, excerpt: &Excerpt, block: usize, state: &[T]) -> Blocks<'a, T> {
        let Self { model, params } = *self;
        let streams = excerpt.streams;
        let rows = excerpt.length / block * streams;
        assert!(rows > 0);
        let mut starts = self.exact_starts(excerpt, block, state);
        starts.truncate(rows * model.state_width());
        let mut tape = model.tape(Layout::new(rows, block));
        excerpt.cut().fill(&tape.layout(), 0, 0..rows, &mut tape.inputs, &mut tape.targets);
        model.prepare(params, &mut tape);
        model.recur(params, &mut tape, &starts);
        Blocks { probe: *self, tape, streams }
    }

    fn learner<'l>(&self, tokens: Text<'l>) -> Learner<'l, T>
    where
        'a: 'l,
    {
        let still = OptimConfig { rule: Rule::Sgd, rate: 0.0, clip: 0.0 };
        let optimiser = Optimiser::new(still, self.model.shapes());
        Learner { model: self.model, params: self.params.clone(), optimiser, comm: &Solo, tokens }
    }
}

/// Steps that are read at once where it does not matter.
const STEPS: usize = 64;

/// The blocks of an excerpt side by side, on its exact trajectory: row k·S + i is block k of stream i.
#[derive(Debug)]
pub struct Blocks<'a, T> {
    probe: Probe<'a, T>,
    tape: Tape<T>,
    streams: usize,
}

impl<T: Real> Blocks<'_, T> {
    /// M
    pub fn count(&self) -> usize {
        self.tape.layout().rows / self.streams
    }

    /// Values of the states of one block of every stream.
    pub fn column(&self) -> usize {
        self.streams * self.probe.model.state_width()
    }

    /// The losses of all blocks, each sent back to its block's start: ℓ'. They are those of the mean nats over the excerpt.
    pub fn losses(&mut self, mut grads: Option<&mut Grads<T>>) -> Vec<T> {
        let Probe { model, params } = self.probe;
        let scale = T::of(1.0 / self.tape.layout().tokens() as f64);
        model.loss(params, &mut self.tape, scale, None, grads.as_deref_mut());
        self.back(None, grads)
    }

    /// What arrives at the blocks' starts sent through the blocks before them: J_kᵀ p_{k+1} for all k, with nothing behind the last.
    pub fn send_back(&mut self, at_starts: &[T], grads: Option<&mut Grads<T>>) -> Vec<T> {
        let mut at_ends = at_starts[self.column()..].to_vec();
        at_ends.resize(at_starts.len(), T::ZERO);
        self.back(Some(&at_ends), grads)
    }

    fn back(&mut self, d_end: Option<&[T]>, grads: Option<&mut Grads<T>>) -> Vec<T> {
        let Probe { model, params } = self.probe;
        let mut d_start = vec![T::ZERO; self.tape.layout().rows * model.state_width()];
        model.backward(params, &mut self.tape, d_end.is_none(), d_end, Some(&mut d_start), grads);
        d_start
    }
}

/// A method about to work on its first window, in which it enters in `state`. Duals move as they will once their epoch has come.
fn enter<T: Real>(config: &MethodConfig, learner: &Learner<T>, state: &[T]) -> Result<Box<dyn Method<T>>, ProbeError> {
    let mut method = config.build(learner)?;
    let duals = match config {
        MethodConfig::Btprop(c) if c.batch != Batch::Full => c.solver.duals().copied(),
        _ => None,
    };
    method.begin_epoch(learner, duals.map_or(1, |d| d.start_epoch));
    method.visit(&mut Shown { name: CARRIED, set: Some(state), values: Vec::new() });
    Ok(method)
}

/// A tensor that a method shows.
fn shown<T: Real>(method: &mut dyn Method<T>, name: &'static str) -> Vec<T> {
    let mut seen = Shown { name, set: None, values: Vec::new() };
    method.visit(&mut seen);
    seen.values
}

/// How the names end under which methods show the state that their next window begins with.
const CARRIED: &str = ".carried";

/// Looks at one of the tensors that a method shows, and may replace it.
struct Shown<'a, T> {
    name: &'static str,
    set: Option<&'a [T]>,
    values: Vec<T>,
}

impl<T: Real> Visit<T> for Shown<'_, T> {
    fn count(&mut self, _: &str, _: &mut u64) {}
    fn real(&mut self, _: &str, _: &mut f64) {}
    fn tensor(&mut self, name: &str, _: usize, _: usize, values: &mut [T]) {
        if name.ends_with(self.name) {
            if let Some(set) = self.set {
                values.copy_from_slice(set);
            }
            self.values = values.to_vec();
        }
    }
}

/// Scalar product, summed in f64.
pub fn dot<T: Real>(a: &[T], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a.f64() * b.f64()).sum()
}

/// ‖a‖
pub fn norm<T: Real>(a: &[T]) -> f64 {
    dot(a, a).sqrt()
}

/// ‖ours − theirs‖ / ‖theirs‖
pub fn relative_error<T: Real>(ours: &[T], theirs: &[T]) -> f64 {
    let squares: f64 = ours.iter().zip(theirs).map(|(a, b)| (a.f64() - b.f64()).powi(2)).sum();
    squares.sqrt() / norm(theirs)
}

/// Cosine of the angle between two vectors.
pub fn cosine<T: Real>(a: &[T], b: &[T]) -> f64 {
    dot(a, b) / (norm(a) * norm(b))
}
