//! The one measuring loop. What is measured is done a few times to warm up and then again and again; whoever asks takes the best time,
//! because whatever else the machine does only adds some, or the median, or the mean. Things that are to be compared take turns.

use std::time::Instant;

use tprop::method::Advance;
use tprop::rng::Draws;
use tprop::train::Trainer;

use crate::failure::{Failure, Outcome};

/// How long to continue.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// So many times.
    Times(usize),
    /// Once at least, and until so many seconds are over.
    Seconds(f64),
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Seconds of each time, in order.
    pub seconds: Vec<f64>,
    /// Tokens of all times.
    pub tokens: u64,
}

impl Measured {
    /// The shortest time.
    pub fn best(&self) -> f64 {
        self.seconds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The time in the middle.
    pub fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    /// All times together.
    pub fn total(&self) -> f64 {
        self.seconds.iter().sum()
    }

    /// More of the same.
    pub fn extend(&mut self, more: Self) {
        self.seconds.extend(more.seconds);
        self.tokens += more.tokens;
    }
}

/// Does `work`, which says how many tokens it did, `warm` times unmeasured and then as long as asked for.
pub fn measure(warm: usize, until: Until, mut work: impl FnMut() -> Outcome<u64>) -> Outcome<Measured> {
    for _ in 0..warm {
        work()?;
    }
    let mut measured = Measured::default();
    let begun = Instant::now();
    loop {
        let since = Instant::now();
        measured.tokens += work()?;
        measured.seconds.push(since.elapsed().as_secs_f64());
        let enough = match until {
            Until::Times(n) => measured.seconds.len() >= n,
            Until::Seconds(seconds) => begun.elapsed().as_secs_f64() >= seconds,
        };
        if enough {
            return Ok(measured);
        }
    }
}

/// The next update of a trainer, which goes round and round its text; says how many tokens it read.
pub fn update(trainer: &mut Trainer<'_, f32>) -> Outcome<u64> {
    loop {
        match trainer.advance(&mut || false) {
            Advance::Update(update) => return Ok(update.tokens),
            Advance::EpochEnd | Advance::Paused => {}
            Advance::Diverged { .. } => return Err(Failure::input("the steps diverged; use a smaller optim.lr")),
        }
    }
}

/// A random text to measure on.
pub fn text(tokens: usize, vocab: usize) -> Vec<u32> {
    let draws = Draws::new(1, "plan");
    (0..tokens as u64).map(|i| draws.below(i, vocab as u64) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warming_up_is_not_measured() {
        let mut done = 0;
        let mut work = || {
            done += 1;
            Ok(done)
        };
        let mut measured = measure(2, Until::Times(3), &mut work).unwrap();
        assert_eq!((measured.seconds.len(), measured.tokens), (3, 3 + 4 + 5));
        measured.extend(measure(0, Until::Seconds(0.0), &mut work).unwrap());
        assert_eq!((measured.seconds.len(), measured.tokens), (4, 3 + 4 + 5 + 6));
        let measured = Measured { seconds: vec![3.0, 1.0, 2.0], tokens: 1 };
        assert_eq!((measured.best(), measured.median(), measured.total()), (1.0, 2.0, 6.0));
    }
}
