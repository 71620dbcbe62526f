//! Block target propagation as docs/math.md defines it, sections 4 to 8 and 13: nothing is cached, every pass computes everything.
//!
//! Row q = k·S + i is block k of stream i; slot q is its start, and slot q + S its target.

use std::collections::BTreeSet;

use tprop::method::*;
use tprop::objective::{Constraint, Direction, Penalty};

use super::net::{Matrix, Theta, Vector, add, add_scaled, dot, flip, minus, norm, product, solve, zeros_like};
use super::run::{Coupling, Learner, Update};

/// ε of the states' Adagrad.
const STATE_EPS: f64 = 1e-5;
/// |s| of a `tanh` state stays below 1 by this much, so that it has a z.
const RIM: f64 = 1e-6;
/// λ moves under `balance` when one side is so many times the other.
const BALANCE: f64 = 10.0;

pub struct Btprop {
    config: BtpropConfig,
    /// M, and the windows of an epoch.
    blocks: usize,
    windows: usize,
    ignore: Option<usize>,
    pub lambda: f64,
    /// Inputs and targets of the window's rows.
    tokens: Vec<(Vec<usize>, Vec<usize>)>,
    /// s of all slots.
    starts: Matrix,
    /// The variable that moves (s, or t if the starts are held) after the init and after each state step; the last is the present.
    history: Vec<Matrix>,
    /// z of the constraints that keep one.
    latent: Matrix,
    /// Adagrad's Σ g².
    squares: Matrix,
    /// u of all rows; 0 without duals.
    duals: Matrix,
    /// What the last epoch left of each window.
    stored: Vec<Matrix>,
    stored_duals: Vec<Matrix>,
    /// p of each window's rows as the last θ pass saw them, and p_0 of its last state step, one a stream.
    stored_pulls: Vec<Matrix>,
    first_pulls: Vec<Matrix>,
    /// The present window, and the sweeps that found its starts.
    window: usize,
    sweeps: usize,
    /// F_M of the last θ pass of the window before, one a stream.
    carried: Matrix,
    /// Blocks with which ranks but the first begin.
    shards: Vec<usize>,
    epoch: usize,
    epoch_residual: f64,
    epoch_moved: f64,
}

/// L at one point with its gradients.
struct Look {
    nats: f64,
    by_position: Vector,
    ends: Matrix,
    /// p = S·M · ∂L/∂F of all rows.
    pulls: Matrix,
    d_start: Matrix,
    d_target: Matrix,
    d_theta: Theta,
    coupling: Coupling,
}

impl Btprop {
    pub fn new(config: BtpropConfig, l: &Learner, shards: &[usize]) -> Self {
        let length = l.length(config.streams);
        let (blocks, windows) = match config.batch {
            Batch::Mini { .. } => (config.blocks, length / config.block / config.blocks),
            Batch::Full => (length / config.block, 1),
        };
        let (rows, s) = (blocks * config.streams, config.streams);
        let zeros = |n: usize| vec![vec![0.0; l.net.width()]; n];
        let initial = |n: usize| vec![l.net.initial_state(); n];
        Self {
            ignore: match config.ignore {
                Ignore::None => None,
                Ignore::First => Some(l.text[0]),
                Ignore::Token(token) => Some(token as usize),
            },
            lambda: config.lambda,
            tokens: Vec::new(),
            starts: initial(rows + s),
            history: vec![initial(rows + s)],
            latent: zeros(rows + s),
            squares: zeros(rows + s),
            duals: zeros(rows),
            stored: vec![initial(rows); windows],
            stored_duals: vec![zeros(rows); windows],
            stored_pulls: vec![zeros(rows); windows],
            first_pulls: vec![zeros(s); windows],
            window: 0,
            sweeps: 0,
            carried: initial(s),
            shards: shards.to_vec(),
            epoch: 0,
            epoch_residual: 0.0,
            epoch_moved: 0.0,
            blocks,
            windows,
            config,
        }
    }

    /// One pass over the text.
    pub fn epoch(&mut self, l: &mut Learner, epoch: usize) -> Vec<Update> {
        if epoch > 1 {
            self.reschedule(l);
        }
        self.epoch = epoch;
        (self.epoch_residual, self.epoch_moved) = (0.0, 0.0);
        self.carried.fill(l.net.initial_state());
        (0..self.windows).map(|window| self.window(l, window)).collect()
    }

    /// The algorithm box.
    fn window(&mut self, l: &mut Learner, window: usize) -> Update {
        let (s, b) = (self.config.streams, self.config.block);
        let at = |k: usize| (window * self.blocks + k) * b;
        self.tokens = (0..self.rows()).map(|q| l.tokens(s, q % s, at(q / s), b)).collect();
        (self.window, self.sweeps) = (window, 0);
        self.init_states(l, window);
        let mut moved = 0.0;
        let seen = match self.config.solver {
            Solver::Penalty => {
                moved += self.state_steps(l);
                self.theta_steps(l)
            }
            Solver::Admm { duals, before_theta } => {
                moved += self.state_steps(l);
                if before_theta {
                    self.dual_step(l, duals);
                }
                let seen = self.theta_steps(l);
                if !before_theta {
                    self.dual_step(l, duals);
                }
                seen
            }
            Solver::Alm { duals, joint_steps } => {
                let mut seen = None;
                for _ in 0..joint_steps {
                    // Both from the same gradients.
                    let look = self.look(l);
                    moved += self.state_step(l, &look).0;
                    let norm = self.theta_step(l, &look);
                    seen = Some((look, norm));
                }
                self.dual_step(l, duals);
                seen.unwrap()
            }
        };
        self.stored[window] = self.starts[..self.rows()].to_vec();
        self.stored_duals[window] = self.duals.clone();
        let (look, norm) = seen;
        let movable = self.movable_slots().len() as f64;
        let coupling = Coupling { moved, movable, sweeps: self.sweeps as f64, ..look.coupling };
        self.epoch_residual += coupling.residual;
        self.epoch_moved += moved;
        let tokens = (self.rows() * b) as u64;
        Update {
            nats: look.nats,
            tokens,
            norm,
            by_position: look.by_position,
            coupling: Some(coupling),
            theta: l.theta.clone(),
        }
    }

    // ---- the window's shape

    fn rows(&self) -> usize {
        self.blocks * self.config.streams
    }

    /// Slots whose state (target, if the starts are held) may move.
    fn movable_slots(&self) -> Vec<usize> {
        let (s, rows) = (self.config.streams, self.rows());
        let first = self.config.first == First::Free && self.config.starts == Starts::Moving;
        let last = self.config.last == Last::Free0 || self.config.loss == LossOn::Free;
        (if first { 0 } else { s }..if last { rows + s } else { rows }).collect()
    }

    /// Rows that are tied to a target.
    fn tied_rows(&self) -> Vec<usize> {
        let all =
            self.config.last != Last::None || self.config.loss == LossOn::Free || self.config.pulls == Pulls::Stored;
        (0..self.rows()).filter(|&q| all || self.inside(q)).collect()
    }

    /// Whether the boundary behind row q lies inside the window.
    fn inside(&self, q: usize) -> bool {
        q + self.config.streams < self.rows()
    }

    /// What moves: s, or t if the starts are held.
    fn variable(&self) -> &Matrix {
        self.history.last().unwrap()
    }

    /// t_{k+1}; where a rank ends, as it was `staleness` steps ago.
    fn target(&self, q: usize) -> &Vector {
        let s = self.config.streams;
        let late = if self.shards.contains(&(q / s + 1)) { self.config.staleness } else { 0 };
        &self.history[(self.history.len() - 1).saturating_sub(late)][q + s]
    }

    // ---- section 4: the objective and its gradients

    /// (4) to (7) at the present states and θ.
    fn look(&self, l: &Learner) -> Look {
        let (rows, b, width) = (self.rows(), self.config.block, l.net.width());
        let n = rows as f64;
        let (top, tied) = (l.net.h(l.net.layers - 1), self.tied_rows());
        let mut look = Look {
            nats: 0.0,
            by_position: vec![0.0; b],
            ends: Vec::new(),
            pulls: Vec::new(),
            d_start: Vec::new(),
            d_target: vec![vec![0.0; width]; rows],
            d_theta: zeros_like(&l.theta),
            coupling: Coupling::default(),
        };
        for q in 0..rows {
            let (inputs, targets) = &self.tokens[q];
            let states = l.net.run(&l.theta, inputs, &self.starts[q]); // (1)
            let (end, target) = (&states[b], self.target(q));
            let mut d_tops = vec![vec![0.0; l.net.hidden]; b];
            let mut d_end = vec![0.0; width];
            for t in 0..b {
                let h = match self.config.loss {
                    LossOn::Predicted => l.net.top(&states[t + 1]),
                    LossOn::Free => l.net.top(target),
                };
                let scale = 1.0 / (n * b as f64);
                let (nats, d_h) = l.net.nats(&l.theta, h, targets[t], self.ignore, scale, &mut look.d_theta); // (2)
                look.by_position[t] += nats;
                match self.config.loss {
                    LossOn::Predicted => d_tops[t] = d_h,
                    LossOn::Free => add(&mut look.d_target[q][top.clone()], &d_h),
                }
            }
            if tied.contains(&q) {
                let (c, d_f, d_t) = self.coupling(l, end, target, &self.duals[q], 1.0 / n, &mut look.d_theta);
                look.coupling.penalty += c / n;
                d_end = d_f; // (6)
                add(&mut look.d_target[q], &d_t);
            }
            if self.inside(q) {
                let c = &mut look.coupling;
                let r = norm(&minus(end, target));
                c.boundaries += 1.0;
                c.residual += r;
                c.residual_max = c.residual_max.max(r);
                c.state += norm(target);
                c.dual += norm(&self.duals[q]);
            }
            look.d_start.push(l.net.back(&l.theta, inputs, &states, &d_tops, &d_end, &mut look.d_theta)); // (3)
            look.ends.push(end.clone());
            look.pulls.push(d_end.iter().map(|d| n * d).collect());
        }
        look.nats = look.by_position.iter().sum();
        look.coupling.objective = look.nats / (n * b as f64) + look.coupling.penalty; // (4)
        look
    }

    /// (5): C_k, and `scale` times its gradients in F and t (6); that in θ is added to `d_theta`.
    fn coupling(
        &self,
        l: &Learner,
        f: &[f64],
        t: &[f64],
        u: &[f64],
        scale: f64,
        d_theta: &mut Theta,
    ) -> (f64, Vector, Vector) {
        let r = minus(f, t);
        let weight = self.lambda * scale;
        let top = l.net.h(l.net.layers - 1);
        let mut c = dot(u, &r);
        let (mut d_f, mut d_t) = (vec![0.0; f.len()], vec![0.0; f.len()]);
        add_scaled(&mut d_f, u, weight);
        add_scaled(&mut d_t, u, -weight);
        for j in 0..r.len() {
            let l2 = match self.config.penalty {
                Penalty::L2 | Penalty::L2Kl(_) => true,
                Penalty::Kl(_) => !top.contains(&j),
            };
            if l2 {
                c += 0.5 * r[j] * r[j];
                d_f[j] += weight * r[j];
                d_t[j] -= weight * r[j];
            }
        }
        if let Penalty::Kl(direction) | Penalty::L2Kl(direction) = self.config.penalty {
            let (h_f, h_t) = (l.net.top(f), l.net.top(t));
            let (log_f, log_t) = (l.net.log_softmax(&l.theta, h_f), l.net.log_softmax(&l.theta, h_t));
            let (d, in_f, in_t) = match direction {
                Direction::Forward => divergence(&log_f, &log_t),
                Direction::Reverse => {
                    let (d, in_t, in_f) = divergence(&log_t, &log_f);
                    (d, in_f, in_t)
                }
            };
            c += d;
            for (h, d_logits, d_state) in [(h_f, in_f, &mut d_f), (h_t, in_t, &mut d_t)] {
                let d_logits: Vector = d_logits.iter().map(|d| weight * d).collect();
                let d_h = l.net.output_back(&l.theta, h, &d_logits, d_theta);
                add(&mut d_state[top.clone()], &d_h);
            }
        }
        (self.lambda * c, d_f, d_t)
    }

    /// (7): ∂L/∂s of a slot, from the block that starts there and the block that aims at it.
    fn state_gradient(&self, look: &Look, slot: usize) -> Vector {
        let mut g = vec![0.0; look.ends[0].len()];
        if slot < self.rows() {
            add(&mut g, &look.d_start[slot]);
        }
        if slot >= self.config.streams {
            add(&mut g, &look.d_target[slot - self.config.streams]);
        }
        g
    }

    // ---- section 5: solvers

    /// State steps until their number is reached, or the states have settled. Returns Σ ‖Δs‖.
    fn state_steps(&mut self, l: &mut Learner) -> f64 {
        let mut moved = 0.0;
        for step in 1..=self.config.states.steps {
            let look = self.look(l);
            let (way, root_mean_square) = self.state_step(l, &look);
            moved += way;
            if self.config.states.tolerance > 0.0 && root_mean_square < self.config.states.tolerance {
                let early = step < self.config.states.steps;
                l.facts.insert(if early { "settled early" } else { "settled in the last step" });
                return moved;
            }
            l.facts.insert("not settled");
        }
        moved
    }

    /// (8): s ← s − η · S·M · ∂L/∂s for all that may move, at once. Returns Σ ‖Δs‖ and the root mean square of all values of Δs.
    fn state_step(&mut self, l: &mut Learner, look: &Look) -> (f64, f64) {
        let StateConfig { rate, rule, scale, clip, .. } = self.config.states;
        let factor = match scale {
            StateScale::Block => self.rows() as f64,
            StateScale::Mean => 1.0,
        };
        let scanned = self.config.scan.pulls().then(|| self.scanned_gradients(l, look));
        let newton = (rule == StateRule::Newton).then(|| self.newton(l, look));
        let mut next = self.variable().clone();
        let (mut way, mut squares, mut values) = (0.0, 0.0, 0.0);
        for slot in self.movable_slots() {
            let g = scanned.as_ref().map_or_else(|| self.state_gradient(look, slot), |all| all[slot].clone());
            let mut g: Vector = g.iter().map(|g| factor * g).collect();
            let old = next[slot].clone();
            if self.config.constraint == Constraint::Tanh {
                // s = tanh z moves in z.
                components(l).for_each(|j| g[j] *= 1.0 - old[j] * old[j]);
            }
            let length = norm(&g);
            if clip > 0.0 && length > clip {
                g.iter_mut().for_each(|g| *g *= clip / length);
                l.facts.insert("state gradient clipped");
            } else if clip > 0.0 {
                l.facts.insert("state gradient not clipped");
            }
            let mut x = if self.has_latent() { self.latent[slot].clone() } else { old.clone() };
            for j in 0..g.len() {
                x[j] -= match rule {
                    StateRule::Sgd => rate * g[j],
                    StateRule::Adagrad => {
                        self.squares[slot][j] += g[j] * g[j];
                        rate * g[j] / (self.squares[slot][j].sqrt() + STATE_EPS)
                    }
                    StateRule::Newton => -newton.as_ref().unwrap()[slot][j],
                };
            }
            next[slot] = self.constrained(l, &x);
            self.latent[slot] = x;
            let delta = minus(&next[slot], &old);
            way += norm(&delta);
            squares += dot(&delta, &delta);
            values += delta.len() as f64;
        }
        if self.config.starts == Starts::Moving {
            self.starts = next.clone();
        }
        if self.config.pulls == Pulls::Stored {
            self.first_pulls[self.window] = self.pull_before(l, look, &next);
        }
        self.history.push(next);
        (way, (squares / f64::max(values, 1.0)).sqrt())
    }

    // ---- section 13: scans over blocks

    /// F and d of row q, from a start.
    fn block(&self, l: &Learner, q: usize, start: &[f64]) -> (Vector, Vec<Matrix>) {
        let states = l.net.run(&l.theta, &self.tokens[q].0, start);
        let d = l.net.diagonals(&l.theta, &self.tokens[q].0, &states);
        (states.last().unwrap().clone(), d)
    }

    /// σ_k = g_k + d_kᵀ σ_{k+1} of all slots that move; behind them 0.
    fn scanned_gradients(&self, l: &Learner, look: &Look) -> Matrix {
        let (s, movable) = (self.config.streams, self.movable_slots());
        let mut sigma = vec![vec![0.0; l.net.width()]; self.rows() + s];
        for &slot in movable.iter().rev() {
            let mut g = self.state_gradient(look, slot);
            if slot < self.rows() {
                let (_, d) = self.block(l, slot, &self.starts[slot]);
                add(&mut g, &l.net.diagonal_transposed_times(&d, &sigma[slot + s]));
            }
            sigma[slot] = g;
        }
        sigma
    }

    /// p_0 = g_1 + d_1ᵀ (p⁺_1 − p_1) of each stream after a step that moves the targets to `next`; without a scan g_1.
    fn pull_before(&self, l: &Learner, look: &Look, next: &Matrix) -> Matrix {
        let (s, n) = (self.config.streams, self.rows() as f64);
        let of_stream = |i: usize| {
            let mut p: Vector = look.d_start[i].iter().map(|d| n * d).collect();
            if self.config.scan.pulls() {
                let (_, d) = self.block(l, i, &self.starts[i]);
                let change = minus(&self.variable()[i + s], &next[i + s]);
                add_scaled(&mut p, &l.net.diagonal_transposed_times(&d, &change), self.lambda);
            }
            p
        };
        (0..s).map(of_stream).collect()
    }

    /// δ of all slots: the minimum of the quadratic model with d in place of J, for each unit of each stream one dense system.
    fn newton(&self, l: &Learner, look: &Look) -> Matrix {
        let (s, rows, lambda) = (self.config.streams, self.rows(), self.lambda);
        let n = rows as f64;
        let damping = match self.config.states.scale {
            StateScale::Block => 1.0 / self.config.states.rate,
            StateScale::Mean => n / self.config.states.rate,
        };
        let tied = self.tied_rows();
        let all_d: Vec<Vec<Matrix>> = (0..rows).map(|q| self.block(l, q, &self.starts[q]).1).collect();
        let mut delta = vec![vec![0.0; l.net.width()]; rows + s];
        for i in 0..s {
            let slots: Vec<usize> = self.movable_slots().into_iter().filter(|slot| slot % s == i).collect();
            for (unit, places) in l.net.units().iter().enumerate() {
                let v = places.len();
                let size = slots.len() * v;
                let (mut a, mut b) = (vec![vec![0.0; size]; size], vec![0.0; size]);
                let mut add_block = |row: usize, col: usize, block: &Matrix, factor: f64| {
                    for x in 0..v {
                        add_scaled(&mut a[row * v + x][col * v..(col + 1) * v], &block[x], factor);
                    }
                };
                for (k, &slot) in slots.iter().enumerate() {
                    let one: Matrix = (0..v).map(|x| (0..v).map(|y| f64::from(x == y)).collect()).collect();
                    add_block(k, k, &one, damping);
                    if slot >= s && tied.contains(&(slot - s)) {
                        // The block that aims at it, and where that starts.
                        add_block(k, k, &one, lambda);
                        if let Some(before) = slots.iter().position(|&other| other == slot - s) {
                            add_block(k, before, &all_d[slot - s][unit], -lambda);
                        }
                    }
                    if tied.contains(&slot) {
                        // The block that starts there, and its target.
                        let d = &all_d[slot][unit];
                        add_block(k, k, &product(&flip(d), d), lambda);
                        if let Some(behind) = slots.iter().position(|&other| other == slot + s) {
                            add_block(k, behind, &flip(d), -lambda);
                        }
                    }
                    let g = self.state_gradient(look, slot);
                    for x in 0..v {
                        b[k * v + x] = -n * g[places[x]];
                    }
                }
                let solution = solve(a, b);
                for (k, &slot) in slots.iter().enumerate() {
                    for x in 0..v {
                        delta[slot][places[x]] = solution[k * v + x];
                    }
                }
            }
        }
        delta
    }

    /// The θ steps of a window. Returns what the last one saw.
    fn theta_steps(&mut self, l: &mut Learner) -> (Look, f64) {
        let mut seen = None;
        for _ in 0..self.config.theta_steps {
            let look = self.look(l);
            let norm = self.theta_step(l, &look);
            seen = Some((look, norm));
        }
        seen.unwrap()
    }

    /// (9), and F_M of this pass is carried to the next window. Returns the gradient's norm.
    fn theta_step(&mut self, l: &mut Learner, look: &Look) -> f64 {
        let read: BTreeSet<usize> = self.tokens.iter().flat_map(|(inputs, _)| inputs.clone()).collect();
        let (norm, clipped) = l.optimiser.step(&mut l.theta, &look.d_theta, &read, l.net.tied);
        l.facts.insert(if clipped { "gradient clipped" } else { "gradient not clipped" });
        self.carried = look.ends[self.rows() - self.config.streams..].to_vec();
        self.stored_pulls[self.window] = look.pulls.clone();
        norm
    }

    /// (10), (10a), (10b), at the present states and θ, for all rows that are tied.
    fn dual_step(&mut self, l: &mut Learner, duals: DualConfig) {
        if self.epoch < duals.start_epoch {
            l.facts.insert("duals rest");
            return;
        }
        let n = self.rows() as f64;
        for q in self.tied_rows() {
            let states = l.net.run(&l.theta, &self.tokens[q].0, &self.starts[q]);
            let r = minus(states.last().unwrap(), self.target(q));
            let u = &mut self.duals[q];
            for j in 0..r.len() {
                u[j] += match duals.rule {
                    DualRule::Scaled => duals.rate * r[j],
                    DualRule::Gradient => duals.rate * self.lambda * (r[j] + u[j]),
                    DualRule::Mean => duals.rate * self.lambda * r[j] / n,
                };
            }
        }
    }

    /// λ of the next epoch, and duals with the same multiplier λu.
    fn reschedule(&mut self, l: &mut Learner) {
        let old = self.lambda;
        match self.config.lambda_schedule {
            LambdaSchedule::Constant => {}
            LambdaSchedule::Geometric(factor) => self.lambda = old * factor,
            LambdaSchedule::Balance(factor) => {
                let (residual, movement) = (self.epoch_residual, old * self.epoch_moved);
                let near = |ratio: f64| (7.0..14.0).contains(&ratio);
                if residual > BALANCE * movement {
                    self.lambda = old * factor;
                    l.facts.insert(if near(residual / movement) { "λ just raised" } else { "λ raised" });
                } else if movement > BALANCE * residual {
                    self.lambda = old / factor;
                    l.facts.insert(if near(movement / residual) { "λ just lowered" } else { "λ lowered" });
                } else if near(residual / movement) {
                    l.facts.insert("λ nearly raised");
                } else if near(movement / residual) {
                    l.facts.insert("λ nearly lowered");
                } else {
                    l.facts.insert("λ in balance");
                }
            }
        }
        let all = self.stored_duals.iter_mut().chain([&mut self.duals]);
        all.flatten().flatten().for_each(|u| *u *= old / self.lambda);
    }

    // ---- section 6: the init ladder

    fn init_states(&mut self, l: &mut Learner, window: usize) {
        let (s, rows) = (self.config.streams, self.rows());
        let full = self.config.batch == Batch::Full;
        let later = full && self.epoch > 1;
        let stored = matches!(self.config.init, Init::Stored { .. });
        // In batch mode states are variables of the whole run; held starts are found anew.
        if later && (self.config.starts == Starts::Moving || self.config.init == (Init::Stored { sweeps: 0 })) {
            if self.config.first == First::Fixed {
                self.starts[..s].clone_from_slice(&self.carried);
            }
            let mut present = self.variable().clone();
            if self.config.starts == Starts::Moving {
                present = self.starts.clone();
            }
            if self.config.pulls == Pulls::Stored {
                self.aim(l, &mut present);
            }
            self.history = vec![present];
            return;
        }
        if !full {
            self.duals = match self.config.solver.duals() {
                Some(duals) if duals.stored => self.stored_duals[window].clone(),
                Some(_) | None => vec![vec![0.0; l.net.width()]; rows],
            };
        }
        if !later {
            self.squares.iter_mut().flatten().for_each(|x| *x = 0.0);
        }
        if stored && !full {
            self.starts[..rows].clone_from_slice(&self.stored[window]);
            self.starts[rows..].fill(l.net.initial_state());
        } else if !(stored && later) {
            self.starts.fill(l.net.initial_state());
        }
        if self.config.last != Last::None {
            self.starts[rows..].fill(vec![0.0; l.net.width()]);
        }
        self.starts[..s].clone_from_slice(&self.carried);
        if matches!(self.config.init, Init::Carried { .. }) {
            (0..rows).for_each(|q| self.starts[q] = self.carried[q % s].clone());
        }
        if self.config.init == Init::Sequential {
            for q in 0..rows {
                let end = l.net.run(&l.theta, &self.tokens[q].0, &self.starts[q]).pop().unwrap();
                self.put_end(q, end);
            }
        }
        for sweep in 1..=self.config.init.sweeps() {
            let from_initial = sweep == 1 && matches!(self.config.init, Init::Parallel { .. });
            let change = self.sweep(l, from_initial);
            self.sweeps = sweep;
            if !from_initial && change < self.config.sweep_tolerance {
                let early = sweep < self.config.init.sweeps();
                l.facts.insert(if early { "fewer sweeps" } else { "enough sweeps" });
                break;
            }
            l.facts.insert("all sweeps");
        }
        let mut variable = self.starts.clone();
        if self.config.starts == Starts::Held {
            self.aim(l, &mut variable);
        }
        for slot in self.movable_slots() {
            // z of a state that is there already.
            let mut z = variable[slot].clone();
            if self.config.constraint == Constraint::Tanh {
                components(l).for_each(|j| z[j] = z[j].clamp(RIM - 1.0, 1.0 - RIM).atanh());
            }
            variable[slot] = self.constrained(l, &z);
            self.latent[slot] = z;
        }
        if self.config.starts == Starts::Moving {
            self.starts = variable.clone();
        }
        self.history = vec![variable];
    }

    /// Where the targets of held starts begin. They are where the starts are if these are exact; otherwise t = F + u, so that nothing
    /// pulls; with stored pulls always t = F + u − p / λ. What `last` puts behind the last block stays.
    fn aim(&self, l: &Learner, targets: &mut Matrix) {
        let (s, rows) = (self.config.streams, self.rows());
        let pulls = (self.config.pulls == Pulls::Stored).then(|| {
            let mut p = self.stored_pulls[self.window].clone();
            let behind = self.first_pulls.get(self.window + 1).cloned();
            p[rows - s..].clone_from_slice(&behind.unwrap_or_else(|| vec![vec![0.0; l.net.width()]; s]));
            p
        });
        if pulls.is_none() && self.config.init == Init::Sequential {
            return;
        }
        for q in 0..rows {
            if self.inside(q) || self.config.loss == LossOn::Free || pulls.is_some() {
                let mut t = l.net.run(&l.theta, &self.tokens[q].0, &self.starts[q]).pop().unwrap();
                add(&mut t, &self.duals[q]);
                if let Some(p) = &pulls {
                    add_scaled(&mut t, &p[q], -1.0 / self.lambda);
                }
                targets[q + s] = t;
            }
        }
    }

    /// s_{k+1} ← F_k(x_k) for all blocks at once, where x are the starts, or the initial state; with a scan
    /// s⁺_{k+1} = F_k + d_k (s⁺_k − x_k). Returns ‖s⁺ − s‖ / ‖s⁺‖ over the starts of all blocks but the first.
    fn sweep(&mut self, l: &Learner, from_initial: bool) -> f64 {
        let (s, rows, before) = (self.config.streams, self.rows(), self.starts.clone());
        let x = if from_initial { vec![l.net.initial_state(); rows] } else { before.clone() };
        for (q, x) in x.iter().enumerate().take(rows) {
            let (mut end, d) = self.block(l, q, x);
            if self.config.scan.starts() {
                add(&mut end, &l.net.diagonal_times(&d, &minus(&self.starts[q], x)));
            }
            self.put_end(q, end);
        }
        let change: Matrix = (s..rows).map(|q| minus(&self.starts[q], &before[q])).collect();
        norm(&change.concat()) / norm(&self.starts[s..rows].concat())
    }

    /// The end of row q becomes the start behind it. Behind the last block there is none, unless the loss looks at it.
    fn put_end(&mut self, q: usize, end: Vector) {
        if self.inside(q) || self.config.loss == LossOn::Free {
            self.starts[q + self.config.streams] = end;
        }
    }

    // ---- section 8: constraints

    fn has_latent(&self) -> bool {
        match self.config.constraint {
            Constraint::Tanh | Constraint::Binary => true,
            Constraint::None | Constraint::Box | Constraint::Sparse(_) => false,
        }
    }

    /// Where the constraint allows a state to be, given z (or a state that may be outside).
    fn constrained(&self, l: &Learner, z: &[f64]) -> Vector {
        let mut s = z.to_vec();
        for layer in 0..l.net.layers {
            let h = l.net.h(layer);
            for j in h.clone() {
                s[j] = match self.config.constraint {
                    Constraint::None => z[j],
                    Constraint::Tanh => z[j].tanh(),
                    Constraint::Box => z[j].clamp(-1.0, 1.0),
                    Constraint::Binary => {
                        if z[j] < 0.0 {
                            -1.0
                        } else {
                            1.0
                        }
                    }
                    Constraint::Sparse(k) => {
                        let before = |i: usize| z[i].abs() > z[j].abs() || (z[i].abs() == z[j].abs() && i < j);
                        if h.clone().filter(|&i| before(i)).count() < k { z[j] } else { 0.0 }
                    }
                };
            }
        }
        s
    }
}

/// Components of a state that belong to an h: constraints act on these.
fn components(l: &Learner) -> impl Iterator<Item = usize> + use<> {
    let net = l.net;
    (0..net.layers).flat_map(move |layer| net.h(layer))
}

/// (13) and (14): D = KL(p ‖ q) from log p and log q, and its gradients in the logits of p and of q.
fn divergence(log_p: &[f64], log_q: &[f64]) -> (f64, Vector, Vector) {
    let log_ratio = minus(log_p, log_q);
    let p: Vector = log_p.iter().map(|l| l.exp()).collect();
    let d = dot(&p, &log_ratio);
    let in_p = p.iter().zip(&log_ratio).map(|(p, ratio)| p * (ratio - d)).collect();
    let in_q = p.iter().zip(log_q).map(|(p, log_q)| log_q.exp() - p).collect();
    (d, in_p, in_q)
}

/// The twin itself: its gradients are those of its objective, in θ, in starts, in targets and in what duals do.
#[test]
fn gradients_are_those_of_the_objective() {
    use super::common::{duals, plain};
    use tprop::cell::CellKind;
    let base = BtpropConfig { solver: Solver::Admm { duals: duals(0.5), before_theta: false }, ..plain(2, 2, 2) };
    let kl = |direction| Penalty::L2Kl(direction);
    let free = BtpropConfig { loss: LossOn::Free, block: 1, blocks: 3, ..base.clone() };
    let variants = [
        BtpropConfig { ignore: Ignore::Token(3), ..base.clone() },
        BtpropConfig { last: Last::Free0, penalty: kl(Direction::Forward), ..base.clone() },
        BtpropConfig { last: Last::Zero, penalty: Penalty::Kl(Direction::Reverse), ..base },
        BtpropConfig { penalty: Penalty::Kl(Direction::Forward), ..free.clone() },
        free,
    ];
    for (i, config) in variants.into_iter().enumerate() {
        for (j, cell) in CellKind::ALL.into_iter().enumerate() {
            let case = super::btprop("", super::model(cell, 1 + (i + j) % 2), &config);
            let mut l = super::learner(&case);
            let mut twin = Btprop::new(config.clone(), &l, &[]);
            twin.window(&mut l, 0);
            // Somewhere: starts, targets and duals of their own.
            let draws = tprop::rng::Draws::new(3, "somewhere");
            let mut at = 0;
            let mut somewhere = |x: &mut f64| {
                at += 1;
                *x = draws.within(at, 0.8);
            };
            twin.starts.iter_mut().flatten().for_each(&mut somewhere);
            let slots = twin.starts.len();
            twin.history = vec![twin.starts.clone()];
            twin.history[0].iter_mut().flatten().for_each(&mut somewhere);
            twin.duals.iter_mut().flatten().for_each(&mut somewhere);
            let look = twin.look(&l);
            let check = |what: String, twin: &mut Btprop, l: &mut Learner, x: Place, want: f64| {
                let epsilon = 1e-5;
                let mut value = |by: f64| {
                    *x(twin, l) += by;
                    twin.look(l).coupling.objective
                };
                let derivative = (value(epsilon) - value(-2.0 * epsilon)) / (2.0 * epsilon);
                value(epsilon);
                let error = (derivative - want).abs() / derivative.abs().max(1.0);
                assert!(error < 1e-8, "{}: {what}: {want} and by differences {derivative}", case.name);
            };
            for q in 0..slots {
                for j in 0..l.net.width() {
                    if q < twin.rows() {
                        let want = look.d_start[q][j];
                        check(format!("start {q}"), &mut twin, &mut l, &|twin, _| &mut twin.starts[q][j], want);
                    }
                    if q >= config.streams {
                        let want = look.d_target[q - config.streams][j];
                        check(format!("target {q}"), &mut twin, &mut l, &|twin, _| &mut twin.history[0][q][j], want);
                    }
                }
            }
            for (name, rows) in &look.d_theta {
                for (i, row) in rows.iter().enumerate() {
                    for (j, &want) in row.iter().enumerate() {
                        let weight: Place = &|_, l| &mut l.theta.get_mut(name).unwrap()[i][j];
                        check(format!("{name}[{i}, {j}]"), &mut twin, &mut l, weight, want);
                    }
                }
            }
        }
    }
}

/// One number of a twin or of its learner.
type Place<'a> = &'a dyn for<'b> Fn(&'b mut Btprop, &'b mut Learner) -> &'b mut f64;
