//! Which vector instructions to use, and how safe code gets compiled for them.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::words;

/// A set of vector instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Path {
    /// Whatever the target has by itself.
    Scalar = 1,
    /// x86-64 with AVX2 and FMA.
    Avx2 = 2,
    /// x86-64 with AVX-512 (F, DQ, VL, BW).
    Avx512 = 3,
    /// AArch64.
    Neon = 4,
}

words! { Path { "scalar" => Scalar, "avx2" => Avx2, "avx512" => Avx512, "neon" => Neon } }

impl Path {
    /// The paths that this machine can run, best last.
    pub fn available() -> Vec<Path> {
        #[allow(unused_mut)]
        let mut paths = vec![Path::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                paths.push(Path::Avx2);
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bw")
                {
                    paths.push(Path::Avx512);
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        paths.push(Path::Neon);
        paths
    }
}

static PATH: AtomicU8 = AtomicU8::new(0);

/// The path in use: the best available one unless [`set_path`] chose another.
#[inline]
pub fn path() -> Path {
    match PATH.load(Ordering::Relaxed) {
        1 => Path::Scalar,
        2 => Path::Avx2,
        3 => Path::Avx512,
        4 => Path::Neon,
        _ => {
            let best = *Path::available().last().expect("scalar is always there");
            PATH.store(best as u8, Ordering::Relaxed);
            best
        }
    }
}

/// Chooses the path for the whole process. Returns false, and changes nothing, if the machine lacks it.
pub fn set_path(path: Path) -> bool {
    let ok = Path::available().contains(&path);
    if ok {
        PATH.store(path as u8, Ordering::Relaxed);
    }
    ok
}

/// Element-wise work. Mark `run` `#[inline(always)]`, so that [`vectorize`] compiles it for each path.
pub trait Kernel {
    /// What comes out.
    type Out;
    /// Does the work.
    fn run(self) -> Self::Out;
}

/// Runs a kernel compiled for the vector instructions in use.
#[inline]
#[allow(unsafe_code)]
pub fn vectorize<K: Kernel>(kernel: K) -> K::Out {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn avx2<K: Kernel>(kernel: K) -> K::Out {
            kernel.run()
        }
        #[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512vl,avx512bw")]
        fn avx512<K: Kernel>(kernel: K) -> K::Out {
            kernel.run()
        }
        match path() {
            // SAFETY: `path` returns only paths that the machine was found to have.
            Path::Avx2 => return unsafe { avx2(kernel) },
            // SAFETY: as above.
            Path::Avx512 => return unsafe { avx512(kernel) },
            _ => {}
        }
    }
    kernel.run()
}

/// What the products need to know about a number type; implemented for `f32` and `f64` only.
pub trait Lanes: Sized {
    /// Columns of a packed panel.
    #[doc(hidden)]
    fn panel_width(path: Path) -> usize;

    /// C = first + A·B for one panel.
    ///
    /// # Safety
    /// The pointers and extents of the panel must be valid, C must not overlap what is read, and the machine must have
    /// the path.
    #[doc(hidden)]
    unsafe fn panel(path: Path, panel: &crate::mat::Panel<Self>);

    /// Transposes a square of 8 × 8.
    ///
    /// # Safety
    /// Both squares can be accessed and do not overlap, and the machine has the path.
    #[doc(hidden)]
    unsafe fn turn(path: Path, to: *mut Self, stride: usize, from: *const Self, from_stride: usize);
}

/// Runs a test once on each path of this machine, best last; one such test at a time.
#[cfg(test)]
pub(crate) fn on_each_path(mut test: impl FnMut(Path)) {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    for path in Path::available() {
        assert!(set_path(path));
        test(path);
    }
}
