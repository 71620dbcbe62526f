//! The figure of a trial that a table shows.

use tprop::record::Eval;

use super::trial::{Ended, Progress};

/// Which figure: `valid_ppl`, `test_bits`, `valid_ppl@3`, …
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    quantity: Quantity,
    /// After this epoch rather than at the best one.
    epoch: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantity {
    ValidPpl,
    TrainPpl,
    TestPpl,
    WindowPpl,
    ValidBits,
    TrainBits,
    TestBits,
    Residual,
    TokensPerSecond,
}

const NAMES: [(&str, Quantity); 9] = [
    ("valid_ppl", Quantity::ValidPpl),
    ("train_ppl", Quantity::TrainPpl),
    ("test_ppl", Quantity::TestPpl),
    ("window_ppl", Quantity::WindowPpl),
    ("valid_bits", Quantity::ValidBits),
    ("train_bits", Quantity::TrainBits),
    ("test_bits", Quantity::TestBits),
    ("residual", Quantity::Residual),
    ("tokens_per_s", Quantity::TokensPerSecond),
];

impl Default for Metric {
    fn default() -> Self {
        Self { quantity: Quantity::ValidPpl, epoch: None }
    }
}

impl Metric {
    /// Reads its name; on failure says what there is.
    pub fn named(text: &str) -> Result<Self, String> {
        let (name, epoch) = match text.split_once('@') {
            Some((name, epoch)) => (name, Some(epoch.parse::<u64>().ok().filter(|n| *n > 0))),
            None => (text, None),
        };
        let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, quantity)| *quantity);
        let of_end = matches!(known, Some(Quantity::TestPpl | Quantity::TestBits | Quantity::TokensPerSecond));
        match (known, epoch) {
            (Some(quantity), None) => Ok(Self { quantity, epoch: None }),
            (Some(quantity), Some(Some(epoch))) if !of_end => Ok(Self { quantity, epoch: Some(epoch) }),
            _ => {
                let names: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
                let shown = tprop::vocab::printable(text);
                Err(format!(
                    "metric must be one of {} (all but test_… and tokens_per_s also as NAME@EPOCH), not {shown}",
                    names.join(", ")
                ))
            }
        }
    }

    /// The epoch that it looks at, if it is not the best one.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// As files name it.
    pub fn name(&self) -> String {
        let name = NAMES.iter().find(|(_, q)| *q == self.quantity).map_or("", |(name, _)| *name);
        self.epoch.map_or(name.to_owned(), |epoch| format!("{name}@{epoch}"))
    }

    /// As a table's heading names it.
    pub fn title(&self) -> String {
        let title = match self.quantity {
            Quantity::ValidPpl => "validation perplexity",
            Quantity::TrainPpl => "training perplexity",
            Quantity::TestPpl => "test perplexity",
            Quantity::WindowPpl => "perplexity of the training windows",
            Quantity::ValidBits => "validation bits per token",
            Quantity::TrainBits => "training bits per token",
            Quantity::TestBits => "test bits per token",
            Quantity::Residual => "mean relative residual",
            Quantity::TokensPerSecond => "tokens per second",
        };
        self.epoch.map_or(title.to_owned(), |epoch| format!("{title} after epoch {epoch}"))
    }

    /// Whether a trial can have this figure at all: BPTT has no residual.
    pub fn applies(&self, progress: &Progress) -> bool {
        self.quantity != Quantity::Residual || progress.evals.iter().any(|e| e.coupling.is_some())
    }

    /// The figure of a trial; none if it has not come so far.
    pub fn of(&self, progress: &Progress) -> Option<f64> {
        let Some(Ended::Finished(end)) = &progress.ended else { return None };
        let eval: &Eval = match self.epoch {
            Some(epoch) => progress.evals.iter().find(|e| e.epoch == epoch)?,
            None => progress.best(None)?,
        };
        Some(match self.quantity {
            Quantity::ValidPpl => eval.valid_ppl,
            Quantity::TrainPpl => eval.train_ppl,
            Quantity::TestPpl => end.test_ppl?,
            Quantity::WindowPpl => eval.window_ppl,
            Quantity::ValidBits => eval.valid_ppl.log2(),
            Quantity::TrainBits => eval.train_ppl.log2(),
            Quantity::TestBits => end.test_ppl?.log2(),
            Quantity::Residual => eval.coupling?.residual_relative,
            Quantity::TokensPerSecond => end.tokens as f64 / end.seconds.max(1e-9),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_names() {
        for (name, _) in NAMES {
            assert_eq!(Metric::named(name).unwrap().name(), name);
        }
        assert_eq!(Metric::named("valid_ppl@3").unwrap().name(), "valid_ppl@3");
        for wrong in ["ppl", "valid_ppl@", "valid_ppl@0", "test_ppl@2", ""] {
            assert!(Metric::named(wrong).unwrap_err().contains("must be one of valid_ppl"), "{wrong}");
        }
    }
}
