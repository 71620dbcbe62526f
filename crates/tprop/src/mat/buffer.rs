//! Memory that begins on a cache line, so that no vector of a packed panel straddles two.

use crate::real::Real;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line<T>([T; 16]);

/// A slice on a cache line. It only ever grows, so that work of one size allocates once.
#[derive(Debug)]
pub struct Buffer<T> {
    lines: Vec<Line<T>>,
    len: usize,
}

impl<T> Default for Buffer<T> {
    fn default() -> Self {
        Self { lines: Vec::new(), len: 0 }
    }
}

impl<T: Real> Buffer<T> {
    /// Makes room for `len` values; what stands there afterwards is unspecified.
    pub fn set_len(&mut self, len: usize) {
        let lines = len.div_ceil(16);
        if lines > self.lines.len() {
            self.lines = Vec::new(); // the old contents are not wanted: do not copy them
            self.lines = vec![Line([T::ZERO; 16]); lines];
        }
        self.len = len;
    }

    /// The values.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: a line is 16 values without padding (64 or 128 bytes), and `len` never exceeds the lines.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }

    /// The values, to write.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}
