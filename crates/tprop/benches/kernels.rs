//! The kernels beside their slow twins, and the products beside the `gemm` crate; one thread.
//!
//! `cargo bench -p tprop --bench kernels`, or with a filter: `-- product`.

#![allow(unsafe_code)] // the peer's interface takes pointers

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use tprop::kernel::softmax::{Layer, Softmax, Targets, WeightGradients};
use tprop::kernel::{Kernel, math, sum_squares, update, vectorize};
use tprop::mat::{Mat, MatMut, Packed, Start, product};
use tprop::rng::Draws;

fn noise(len: usize, purpose: &str) -> Vec<f32> {
    let draws = Draws::new(1, purpose);
    (0..len as u64).map(|i| draws.within(i, 0.1) as f32).collect()
}

/// Rows, sums and columns of a product, and whether A and B are transposed views.
type Shape = (usize, usize, usize, bool, bool);

/// Output layer forward and its two backward products, recurrences, weight gradients.
const SHAPES: [Shape; 8] = [
    (640, 200, 10_000, false, true),
    (640, 10_000, 200, false, false),
    (10_000, 640, 200, true, false),
    (320, 100, 10_000, false, true),
    (32, 512, 2048, false, true),
    (64, 512, 2048, false, true),
    (16, 100, 300, false, true),
    (1536, 640, 512, true, false),
];

fn products(c: &mut Criterion) {
    let mut group = c.benchmark_group("product");
    for shape @ (m, k, n, turned_a, turned_b) in SHAPES {
        let (a_data, b_data) = (noise(m * k, "a"), noise(k * n, "b"));
        let a = if turned_a { Mat::new(&a_data, k, m).t() } else { Mat::new(&a_data, m, k) };
        let b = if turned_b { Mat::new(&b_data, n, k).t() } else { Mat::new(&b_data, k, n) };
        let mut out = vec![0.0; m * n];
        let mut packed = Packed::default();
        packed.pack(b);
        let name = format!("{m}x{k}x{n}");
        group.throughput(Throughput::Elements(2 * (m * k * n) as u64));
        group.bench_function(BenchmarkId::new("ours", &name), |bench| {
            bench.iter(|| product(MatMut::new(&mut out, m, n), Start::Zero, a, &packed));
        });
        group.bench_function(BenchmarkId::new("ours with packing", &name), |bench| {
            bench.iter(|| {
                packed.pack(b);
                product(MatMut::new(&mut out, m, n), Start::Zero, a, &packed);
            });
        });
        group.bench_function(BenchmarkId::new("gemm", &name), |bench| {
            bench.iter(|| gemm(&mut out, &a_data, &b_data, shape));
        });
        if m * k * n < 1 << 20 {
            group.bench_function(BenchmarkId::new("twin", &name), |bench| {
                bench.iter(|| {
                    for (i, row) in out.chunks_exact_mut(n).enumerate() {
                        for (j, x) in row.iter_mut().enumerate() {
                            *x = (0..k).fold(0.0, |sum, k| a.at(i, k).mul_add(b.at(k, j), sum));
                        }
                    }
                });
            });
        }
    }
}

/// The peer's product: C = A·B, all of C overwritten.
fn gemm(c: &mut [f32], a: &[f32], b: &[f32], (m, k, n, turned_a, turned_b): Shape) {
    assert!(c.len() == m * n && a.len() == m * k && b.len() == k * n);
    let strides = |turned: bool, rows: usize, cols: usize| if turned { (rows as isize, 1) } else { (1, cols as isize) };
    let ((a_col, a_row), (b_col, b_row)) = (strides(turned_a, m, k), strides(turned_b, k, n));
    let (c, c_row) = (c.as_mut_ptr(), n as isize);
    let (a, b) = (a.as_ptr(), b.as_ptr());
    let one_thread = gemm_common::Parallelism::None;
    let f = gemm_f32::gemm::f32::get_gemm_fn();
    // SAFETY: the lengths were checked above.
    unsafe {
        f(m, n, k, c, 1, c_row, false, a, a_col, a_row, b, b_col, b_row, 0.0, 1.0, false, false, false, one_thread)
    }
}

fn output_layer(c: &mut Criterion) {
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
    let mut group = c.benchmark_group("softmax");
    for (n, h, v) in [(640, 200, 10_000), (320, 100, 10_000), (640, 512, 10_000), (4800, 512, 50)] {
        let (states, weight, bias) = (noise(n * h, "h"), noise(v * h, "weight"), noise(v, "bias"));
        let targets: Vec<u32> = (0..n as u64).map(|i| Draws::new(1, "y").below(i, v as u64) as u32).collect();
        let (mut nats, mut dh) = (vec![0.0; n], vec![0.0; n * h]);
        let (mut dw, mut db) = (vec![0.0; v * h], vec![0.0; v]);
        let mut softmax = Softmax::new(64);
        let x = Mat::new(&states, n, h);
        for (what, products) in [("with weights", 3), ("states only", 2)] {
            group.throughput(Throughput::Elements(products * 2 * (n * h * v) as u64));
            group.bench_function(BenchmarkId::new(what, format!("{n}x{h}x{v}")), |bench| {
                bench.iter(|| {
                    let theta = WeightGradients { weight: &mut dw, bias: &mut db, keep: false };
                    let theta = (products == 3).then_some(theta);
                    let dh = MatMut::new(&mut dh, n, h);
                    one.install(|| {
                        let layer = Layer { weight: &weight, bias: &bias };
                        let targets = Targets { words: &targets, scale: 1.0, ignore: None };
                        softmax.gradients(&mut nats, dh, theta, x, layer, targets);
                    });
                });
            });
        }
        group.throughput(Throughput::Elements(2 * (n * h * v) as u64));
        group.bench_function(BenchmarkId::new("nats", format!("{n}x{h}x{v}")), |bench| {
            bench.iter(|| one.install(|| softmax.nats(&mut nats, x, &weight, &bias, &targets)));
        });
    }
}

/// An element-wise function over a slice.
struct Map<'a, F>(&'a mut [f32], &'a [f32], F);

impl<F: Fn(f32) -> f32> Kernel for Map<'_, F> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        for (y, x) in self.0.iter_mut().zip(self.1) {
            *y = (self.2)(*x);
        }
    }
}

fn elements(c: &mut Criterion) {
    let n = 1 << 14;
    let x = noise(n, "x");
    let mut y = vec![0.0; n];
    let mut group = c.benchmark_group("elements");
    group.throughput(Throughput::Elements(n as u64));
    macro_rules! pair {
        ($name:literal, $ours:expr, $twin:expr) => {
            group.bench_function(concat!($name, "/ours"), |b| b.iter(|| vectorize(Map(&mut y, black_box(&x), $ours))));
            group.bench_function(concat!($name, "/twin"), |b| b.iter(|| vectorize(Map(&mut y, black_box(&x), $twin))));
        };
    }
    pair!("exp", math::exp_f32, f32::exp);
    pair!("tanh", math::tanh_f32, f32::tanh);
    pair!("sigmoid", math::sigmoid_f32, |x: f32| 1.0 / (1.0 + (-x).exp()));
    group.bench_function("sum_squares/ours", |b| b.iter(|| sum_squares(black_box(&x))));
    group.bench_function("sum_squares/twin", |b| {
        b.iter(|| black_box(&x).iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>());
    });
    let (mut p, mut s) = (noise(n, "p"), vec![1.0; n]);
    group.bench_function("adagrad/ours", |b| b.iter(|| update::adagrad(&mut p, &mut s, &x, 0.05, 1e-5, 0.5)));
    group.bench_function("adagrad/twin", |b| {
        b.iter(|| {
            for ((p, s), g) in p.iter_mut().zip(&mut s).zip(&x) {
                let g = g * 0.5;
                *s += g * g;
                *p -= 0.05 * g / (s.sqrt() + 1e-5);
            }
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2));
    targets = products, output_layer, elements
}
criterion_main!(benches);
