//! The twin: one chain of fused multiply-adds per element, as slow as it is plain.

use super::*;
use crate::kernel::on_each_path;
use crate::rng::Draws;
use proptest::prelude::*;

fn naive<T: Real>(c: &mut [T], stride: usize, start: Start<T>, a: Mat<T>, b: Mat<T>) {
    for i in 0..a.rows() {
        for j in 0..b.cols() {
            let c = &mut c[i * stride + j];
            let mut sum = match start {
                Start::Zero => T::ZERO,
                Start::Keep => *c,
                Start::Bias(bias) => bias[j],
            };
            for k in 0..b.rows() {
                sum = a.at(i, k).mul_add(b.at(k, j), sum);
            }
            *c = sum;
        }
    }
}

fn noise<T: Real>(len: usize, purpose: &str) -> Vec<T> {
    let draws = Draws::new(len as u64, purpose);
    (0..len as u64).map(|i| T::of(draws.within(i, 1.0))).collect()
}

/// A rows × cols view whose rows (or, transposed, columns) lie `pad` further apart than they need.
fn view<T: Real>(data: &[T], rows: usize, cols: usize, pad: usize, turned: bool) -> Mat<'_, T> {
    if turned { Mat::strided(data, cols, rows, rows + pad).t() } else { Mat::strided(data, rows, cols, cols + pad) }
}

#[derive(Debug, Clone, Copy)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    pads: [usize; 3],
    turned: [bool; 2],
    start: u8,
}

fn compare<T: Real>(case: Case) {
    let Case { m, n, k, pads, turned, start } = case;
    let a_data: Vec<T> = noise(m.max(k) * (m.max(k) + pads[0]), "a");
    let b_data: Vec<T> = noise(n.max(k) * (n.max(k) + pads[1]), "b");
    let bias: Vec<T> = noise(n, "bias");
    let a = view(&a_data, m, k, pads[0], turned[0]);
    let b = view(&b_data, k, n, pads[1], turned[1]);
    let start = [Start::Zero, Start::Keep, Start::Bias(&bias)][start as usize];
    let stride = n + pads[2];
    let before: Vec<T> = noise(m * stride, "c");
    let mut want = before.clone();
    naive(&mut want, stride, start, a, b);
    let mut packed = Packed::default();
    on_each_path(|path| {
        packed.pack(b);
        let mut c = before.clone();
        product(MatMut::strided(&mut c, m, n, stride), start, a, &packed);
        // Whatever stands between the rows must stay too, hence whole buffers are compared.
        assert!(same(&c, &want), "{case:?} {path:?}");
        let mut c = before.clone();
        pool(3).install(|| product_par(MatMut::strided(&mut c, m, n, stride), start, a, &packed));
        assert!(same(&c, &want), "{case:?} {path:?}, three threads");
    });
}

fn same<T: Real>(a: &[T], b: &[T]) -> bool {
    a.iter().zip(b).all(|(x, y)| x.f64().to_bits() == y.f64().to_bits())
}

fn pool(threads: usize) -> &'static rayon::ThreadPool {
    static POOL: std::sync::OnceLock<rayon::ThreadPool> = std::sync::OnceLock::new();
    POOL.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap())
}

/// Under Miri, which checks every access, an instruction takes a thousand times as long.
const TALL: usize = if cfg!(miri) { 10 } else { 40 };

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 150 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn small_products_agree_with_the_twin_bit_for_bit(
        m in 0usize..TALL, n in 0usize..2 * TALL, k in 0usize..TALL, pads in any::<[u8; 3]>(), turned in any::<[bool; 2]>(),
        start in 0u8..3,
    ) {
        let case = Case { m, n, k, pads: pads.map(|p| usize::from(p % 3)), turned, start };
        compare::<f32>(case);
        compare::<f64>(case);
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn products_longer_than_every_block_agree_with_the_twin() {
    for (m, n, k) in
        [(1, 1, 1), (13, 33, 2 * KC + 1), (BLOCK / KC + 5, 7, KC), (2 * HIGH + 1, 40, 9), (12, 700, 300), (700, 65, 70)]
    {
        for turned in [[false, false], [true, false], [false, true], [true, true]] {
            for start in 0..3 {
                let case = Case { m, n, k, pads: [1, 0, 2], turned, start };
                compare::<f32>(case);
                compare::<f64>(case);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for an interpreter")]
fn copied_blocks_of_a_agree_with_the_twin() {
    // Lines of A at distances that make `part` copy its blocks.
    for (m, n, k, pad, turned) in
        [(963, 70, 21, 61, true), (20, 64, 500, 12, false), (1024, 65, KC + 9, 0, true), (2 * HIGH, 64, 3, 0, true)]
    {
        let case = Case { m, n, k, pads: [pad, 0, 1], turned: [turned, false], start: 1 };
        let data = vec![0.0f32; m.max(k) * (m.max(k) + pad)];
        assert!(scattered(view(&data, m, k, pad, turned)), "{case:?}");
        compare::<f32>(case);
        compare::<f64>(case);
    }
}

#[test]
fn a_cut_product_is_the_whole_product() {
    let (m, n, k) = if cfg!(miri) { (5, 33, 4) } else { (31, 70, 45) };
    let (a, b) = (noise::<f32>(m * k, "a"), noise::<f32>(k * n, "b"));
    let (a, b) = (Mat::new(&a, m, k), Mat::new(&b, k, n));
    let mut packed = Packed::default();
    packed.pack(b);
    let mut whole = vec![0.0; m * n];
    product(MatMut::new(&mut whole, m, n), Start::Zero, a, &packed);
    for cut in 1..m {
        let mut c = vec![0.0; m * n];
        let (top, bottom) = c.split_at_mut(cut * n);
        product(MatMut::new(top, cut, n), Start::Zero, a.rows_range(0, cut), &packed);
        product(MatMut::new(bottom, m - cut, n), Start::Zero, a.rows_range(cut, m), &packed);
        assert_eq!(c, whole);
    }
    for cut in 1..k {
        let mut c = vec![0.0; m * n];
        packed.pack(b.rows_range(0, cut));
        product(MatMut::new(&mut c, m, n), Start::Zero, a.cols_range(0, cut), &packed);
        packed.pack(b.rows_range(cut, k));
        product(MatMut::new(&mut c, m, n), Start::Keep, a.cols_range(cut, k), &packed);
        assert_eq!(c, whole, "k cut at {cut}");
    }
}

#[test]
fn packing_again_reuses_the_buffer() {
    let data = noise::<f32>(64 * 64, "b");
    let mut packed = Packed::default();
    packed.pack(Mat::new(&data, 64, 64));
    let at = packed.panels().as_ptr();
    packed.pack(Mat::new(&data, 30, 40));
    packed.pack(Mat::new(&data, 64, 64).t());
    assert_eq!(at, packed.panels().as_ptr());
    assert_eq!(at as usize % 64, 0);
}

#[test]
#[should_panic(expected = "shapes of a product")]
fn shapes_are_checked() {
    let mut packed = Packed::default();
    packed.pack(Mat::new(&[1.0f32; 6], 2, 3));
    product(MatMut::new(&mut [0.0; 4], 2, 2), Start::Zero, Mat::new(&[1.0; 4], 2, 2), &packed);
}
