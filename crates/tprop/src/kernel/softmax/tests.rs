//! The twin: the whole matrix of logits, one row after the other.

use super::*;
use crate::kernel::on_each_path;
use crate::mat::{Start, product};
use crate::rng::Draws;
use rayon::ThreadPoolBuilder;

struct Out<T> {
    nats: Vec<T>,
    dh: Vec<T>,
    weight: Vec<T>,
    bias: Vec<T>,
}

struct Case<T> {
    n: usize,
    hidden: usize,
    v: usize,
    h: Vec<T>,
    weight: Vec<T>,
    bias: Vec<T>,
    targets: Vec<u32>,
    scale: T,
    ignore: Option<u32>,
    keep: bool,
}

impl<T: Real> Case<T> {
    fn new(n: usize, hidden: usize, v: usize, size: f64) -> Self {
        let noise = |len: usize, purpose: &str, bound: f64| -> Vec<T> {
            let draws = Draws::new(7, purpose);
            (0..len as u64).map(|i| T::of(draws.within(i, bound))).collect()
        };
        let draws = Draws::new(7, "targets");
        Self {
            n,
            hidden,
            v,
            h: noise(n * hidden, "h", 1.0),
            weight: noise(v * hidden, "weight", size),
            bias: noise(v, "bias", size),
            targets: (0..n as u64).map(|i| draws.below(i, v as u64) as u32).collect(),
            scale: T::of(0.7),
            ignore: None,
            keep: false,
        }
    }

    fn h(&self) -> Mat<'_, T> {
        Mat::new(&self.h, self.n, self.hidden)
    }

    /// What stood in the outputs before: noise where it must count or must not.
    fn before(&self) -> Out<T> {
        let draws = Draws::new(9, "before");
        let noise = |len: usize| (0..len as u64).map(|i| T::of(draws.within(i, 1.0))).collect();
        let (n, h, v) = (self.n, self.hidden, self.v);
        Out { nats: noise(n), dh: noise(n * h), weight: noise(v * h), bias: noise(v) }
    }

    fn twin(&self) -> Out<T> {
        let Out { mut nats, mut dh, weight: mut dw, mut bias } = self.before();
        let (n, v) = (self.n, self.v);
        let mut w = Packed::default();
        w.pack(Mat::new(&self.weight, v, self.hidden).t());
        let mut logits = vec![T::ZERO; n * v];
        product(MatMut::new(&mut logits, n, v), Start::Bias(&self.bias), self.h(), &w);
        for (i, row) in logits.chunks_exact_mut(v).enumerate() {
            let y = self.targets[i] as usize;
            let top = row.iter().copied().fold(T::NEG_INFINITY, T::max);
            let sum: T = row.iter().map(|&l| (l - top).exp()).sum();
            let share = if self.ignore == Some(self.targets[i]) { T::ZERO } else { T::ONE };
            nats[i] = share * ((top - row[y]) + sum.ln());
            for l in row.iter_mut() {
                *l = (*l - top).exp() / sum * self.scale * share;
            }
            row[y] -= self.scale * share;
        }
        let dl = Mat::new(&logits, n, v);
        w.pack(Mat::new(&self.weight, v, self.hidden));
        product(MatMut::new(&mut dh, n, self.hidden), Start::Zero, dl, &w);
        w.pack(self.h());
        let start = if self.keep { Start::Keep } else { Start::Zero };
        product(MatMut::new(&mut dw, v, self.hidden), start, dl.t(), &w);
        for (j, b) in bias.iter_mut().enumerate() {
            let sum: T = (0..n).map(|i| dl.at(i, j)).sum();
            *b = if self.keep { *b + sum } else { sum };
        }
        Out { nats, dh, weight: dw, bias }
    }

    fn run(&self, softmax: &mut Softmax<T>, with_theta: bool) -> Out<T> {
        let mut o = self.before();
        let theta = WeightGradients { weight: &mut o.weight, bias: &mut o.bias, keep: self.keep };
        softmax.gradients(
            &mut o.nats,
            MatMut::new(&mut o.dh, self.n, self.hidden),
            with_theta.then_some(theta),
            self.h(),
            Layer { weight: &self.weight, bias: &self.bias },
            Targets { words: &self.targets, scale: self.scale, ignore: self.ignore },
        );
        o
    }
}

fn far<T: Real>(a: &[T], b: &[T]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| (x.f64() - y.f64()).abs() / (1.0 + y.f64().abs())).fold(0.0, |m: f64, x| {
        assert!(!x.is_nan());
        m.max(x)
    })
}

fn close<T: Real>(got: &Out<T>, want: &Out<T>, bound: f64, what: &str) {
    for (name, a, b) in [
        ("nats", &got.nats, &want.nats),
        ("dh", &got.dh, &want.dh),
        ("weight", &got.weight, &want.weight),
        ("bias", &got.bias, &want.bias),
    ] {
        let far = far(a, b);
        assert!(far <= bound, "{what}: {name} is off by {far:e}");
    }
}

fn same<T: Real>(a: &Out<T>, b: &Out<T>, what: &str) {
    let bits = |x: &[T]| -> Vec<u64> { x.iter().map(|x| x.f64().to_bits()).collect() };
    assert_eq!(bits(&a.nats), bits(&b.nats), "{what}: nats");
    assert_eq!(bits(&a.dh), bits(&b.dh), "{what}: dh");
    assert_eq!(bits(&a.weight), bits(&b.weight), "{what}: weight");
    assert_eq!(bits(&a.bias), bits(&b.bias), "{what}: bias");
}

const SHAPES: [(usize, usize, usize); 10] = [
    (6, 5, 40),
    (1, 1, 1),
    (1, 5, 3),
    (33, 7, 50),
    (70, 32, 129),
    (5, 33, 2500),
    (40, 31, 1300),
    (300, 16, 257),
    (64, 64, 128),
    (3, 1, 1),
];

#[test]
fn agrees_with_the_twin() {
    let shapes = SHAPES.into_iter().filter(|(n, h, v)| !cfg!(miri) || n * h * v < 2000);
    for (n, h, v) in shapes {
        for keep in [false, true] {
            for ignore in [None, Some(0)] {
                let mut case = Case::<f64>::new(n, h, v, 0.8);
                (case.keep, case.ignore) = (keep, ignore);
                case.targets[0] = 0;
                let what = format!("n {n}, H {h}, V {v}, keep {keep}, ignore {ignore:?}");
                close(&case.run(&mut Softmax::new(64), true), &case.twin(), 1e-12, &what);
                let mut case = Case::<f32>::new(n, h, v, 0.8);
                (case.keep, case.ignore) = (keep, ignore);
                close(&case.run(&mut Softmax::new(64), true), &case.twin(), 2e-5, &what);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn huge_logits_are_safe() {
    for size in [1e3, 1e4] {
        let case = Case::<f64>::new(40, 9, 1300, size);
        close(&case.run(&mut Softmax::new(64), true), &case.twin(), 1e-10, "f64");
        let case = Case::<f32>::new(40, 9, 1300, size);
        let got = case.run(&mut Softmax::new(64), true);
        assert!(far(&got.nats, &case.twin().nats) < 1e-5);
        assert!([&got.dh, &got.weight, &got.bias].iter().all(|x| x.iter().all(|x| x.is_finite())));
    }
}

#[test]
fn threads_paths_and_chunks_do_not_change_a_bit() {
    let shapes = if cfg!(miri) { [(35, 3, 20), (4, 2, 140)] } else { [(70, 20, 3000), (100, 40, 60)] };
    for (n, h, v) in shapes {
        let mut case = Case::<f32>::new(n, h, v, 0.5);
        (case.keep, case.ignore) = (true, Some(case.targets[3]));
        let want = case.run(&mut Softmax::new(64), true);
        for &threads in if cfg!(miri) { [2].as_slice() } else { &[1, 2, 3, 8] } {
            let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            on_each_path(|path| {
                let got = pool.install(|| case.run(&mut Softmax::new(64), true));
                same(&got, &want, &format!("{threads} threads, {path:?}"));
                // A work space of no size still holds 32 tokens: three chunks.
                let got = pool.install(|| case.run(&mut Softmax::new(0), true));
                same(&got, &want, &format!("{threads} threads, {path:?}, small chunks"));
            });
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn without_weight_gradients_the_rest_is_the_same() {
    let case = Case::<f32>::new(70, 20, 3000, 0.5);
    let mut softmax = Softmax::new(64);
    let (mut want, got) = (case.run(&mut softmax, true), case.run(&mut softmax, false));
    let before = case.before();
    (want.weight, want.bias) = (before.weight, before.bias);
    same(&got, &want, "theta not wanted");
    let mut nats = vec![0.0; case.n];
    softmax.nats(&mut nats, case.h(), &case.weight, &case.bias, &case.targets);
    assert_eq!(nats, want.nats);
    assert_eq!(softmax.flops, (6 + 4 + 2) * 70 * 20 * 3000);
    let mut logs = vec![0.0; case.n * case.v];
    softmax.log_probs(&mut logs, case.h(), &case.weight, &case.bias);
    for (i, row) in logs.chunks_exact(case.v).enumerate() {
        assert!((row[case.targets[i] as usize] + nats[i]).abs() < 1e-5);
        assert!((row.iter().map(|l| l.exp()).sum::<f32>() - 1.0).abs() < 1e-4);
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn a_second_call_of_the_size_allocates_nothing_and_gives_the_same() {
    let case = Case::<f32>::new(70, 20, 3000, 0.5);
    let mut softmax = Softmax::new(1);
    let first = case.run(&mut softmax, true);
    let at = (softmax.tiles.as_slice().as_ptr(), softmax.parts.as_slice().as_ptr());
    Case::<f32>::new(10, 5, 30, 0.5).run(&mut softmax, false);
    same(&case.run(&mut softmax, true), &first, "again");
    assert_eq!(at, (softmax.tiles.as_slice().as_ptr(), softmax.parts.as_slice().as_ptr()));
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn logits_stay_within_the_memory() {
    let case = Case::<f32>::new(1920, 4, 6000, 0.5); // the last chunk is as long as the others
    let mut softmax = Softmax::new(4);
    case.run(&mut softmax, true);
    assert!(softmax.tiles.as_slice().len() * 4 <= 4 << 20);
    let mut nats = vec![0.0; case.n];
    let mut softmax = Softmax::new(4);
    softmax.nats(&mut nats, case.h(), &case.weight, &case.bias, &case.targets);
    assert!(softmax.tiles.as_slice().len() * 4 <= 4 << 20);
}

#[test]
#[should_panic(expected = "target 30 outside")]
fn a_target_outside_the_vocabulary_is_refused() {
    let mut case = Case::<f32>::new(3, 5, 30, 0.5);
    case.targets[2] = 30;
    case.run(&mut Softmax::new(1), true);
}

#[test]
fn no_tokens_no_gradients() {
    let case = Case::<f64>::new(0, 5, 30, 0.5);
    close(&case.run(&mut Softmax::new(1), true), &case.twin(), 0.0, "nothing");
}
