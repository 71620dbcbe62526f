//! Where the time of a step goes, and how much arithmetic it did. Cheap enough to leave on.

use std::time::Instant;

/// Parts of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Looking up embeddings and scattering their gradients.
    Embedding,
    /// W_ih x for all steps and its backward products.
    Input,
    /// The time loop, both ways, and the recurrent weight gradient.
    Recurrence,
    /// The output layer: logits, exponentials, nats.
    SoftmaxForward,
    /// The output layer's gradients. Tiles do both while they are in cache, so the tasks measure their own halves.
    SoftmaxBackward,
    /// Clipping and the update.
    Optimiser,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 6] =
        [Part::Embedding, Part::Input, Part::Recurrence, Part::SoftmaxForward, Part::SoftmaxBackward, Part::Optimiser];

    /// A word for tables.
    pub fn name(self) -> &'static str {
        match self {
            Part::Embedding => "embedding",
            Part::Input => "input product",
            Part::Recurrence => "recurrence",
            Part::SoftmaxForward => "softmax forward",
            Part::SoftmaxBackward => "softmax backward",
            Part::Optimiser => "optimiser",
        }
    }
}

/// Seconds by part, and floating-point operations in products.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    seconds: [f64; Part::ALL.len()],
    /// 2·m·n·k of every product, the output layer's included.
    pub flops: u64,
}

impl Clock {
    /// Books the time since `since` and returns now.
    pub fn book(&mut self, part: Part, since: Instant) -> Instant {
        let now = Instant::now();
        self.seconds[part as usize] += (now - since).as_secs_f64();
        now
    }

    /// Books the time since `since`, of which `first_seconds` went into one part and the rest into another.
    pub fn book_both(&mut self, since: Instant, (first, first_seconds): (Part, f64), rest: Part) {
        let all = since.elapsed().as_secs_f64();
        let first_seconds = first_seconds.min(all);
        self.seconds[first as usize] += first_seconds;
        self.seconds[rest as usize] += all - first_seconds;
    }

    /// Counts a product of an m × k by a k × n matrix.
    pub fn count(&mut self, m: usize, n: usize, k: usize) {
        self.flops += 2 * (m * n * k) as u64;
    }

    /// Seconds spent in a part.
    pub fn seconds(&self, part: Part) -> f64 {
        self.seconds[part as usize]
    }

    /// Starts again.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

impl Clock {
    /// Moves another clock's bookings here.
    pub fn take(&mut self, other: &mut Clock) {
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            *mine += theirs;
        }
        self.flops += other.flops;
        other.reset();
    }
}
