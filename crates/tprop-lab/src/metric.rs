//! The figure of a trial that a table shows.

use tprop::record::{End, Eval};

use super::progress::Progress;

/// Which figure: `valid_ppl`, `test_bits`, `valid_ppl@3`, …
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    quantity: &'static Quantity,
    /// After this epoch rather than at the best one.
    pub epoch: Option<u64>,
}

/// A quantity of a run: at one of its evaluations, or known at its end only.
#[derive(Debug)]
struct Quantity {
    name: &'static str,
    title: &'static str,
    /// Of the evaluation that is looked at, and of the end.
    of: fn(Option<&Eval>, Option<&End>) -> Option<f64>,
}

#[rustfmt::skip]
static QUANTITIES: [Quantity; 9] = [
    Quantity { name: "valid_ppl", title: "validation perplexity", of: |eval, _| Some(eval?.valid_ppl) },
    Quantity { name: "train_ppl", title: "training perplexity", of: |eval, _| Some(eval?.train_ppl) },
    Quantity { name: "test_ppl", title: "test perplexity", of: |_, end| end?.test_ppl },
    Quantity { name: "window_ppl", title: "perplexity of the training windows", of: |eval, _| Some(eval?.window_ppl) },
    Quantity { name: "valid_bits", title: "validation bits per token", of: |eval, _| Some(eval?.valid_ppl.log2()) },
    Quantity { name: "train_bits", title: "training bits per token", of: |eval, _| Some(eval?.train_ppl.log2()) },
    Quantity { name: "test_bits", title: "test bits per token", of: |_, end| Some(end?.test_ppl?.log2()) },
    Quantity { name: "residual", title: "mean relative residual", of: |eval, _| Some(eval?.coupling?.residual_relative) },
    Quantity { name: "tokens_per_s", title: "tokens per second", of: |_, end| Some(end?.tokens as f64 / end?.seconds.max(1e-9)) },
];

impl Default for Metric {
    fn default() -> Self {
        Self { quantity: &QUANTITIES[0], epoch: None }
    }
}

impl Metric {
    /// Reads its name; on failure says what there is.
    pub fn named(text: &str) -> Result<Self, String> {
        let (name, epoch) = match text.split_once('@') {
            Some((name, epoch)) => (name, Some(epoch.parse::<u64>().ok().filter(|n| *n > 0))),
            None => (text, None),
        };
        // Known at the end only.
        let once = name.starts_with("test_") || name == "tokens_per_s";
        match (QUANTITIES.iter().find(|q| q.name == name), epoch) {
            (Some(quantity), None) => Ok(Self { quantity, epoch: None }),
            (Some(quantity), Some(Some(epoch))) if !once => Ok(Self { quantity, epoch: Some(epoch) }),
            _ => {
                let names: Vec<_> = QUANTITIES.iter().map(|q| q.name).collect();
                let shown = tprop::vocab::printable(text);
                Err(format!(
                    "metric must be one of {} (all but test_… and tokens_per_s also as NAME@EPOCH), not {shown}",
                    names.join(", ")
                ))
            }
        }
    }

    /// As files name it.
    pub fn name(&self) -> String {
        let name = self.quantity.name;
        self.epoch.map_or(name.to_owned(), |epoch| format!("{name}@{epoch}"))
    }

    /// As a table's heading names it.
    pub fn title(&self) -> String {
        let title = self.quantity.title;
        self.epoch.map_or(title.to_owned(), |epoch| format!("{title} after epoch {epoch}"))
    }

    /// Whether a trial can have this figure at all: BPTT has no residual.
    pub fn applies(&self, progress: &Progress) -> bool {
        self.quantity.name != "residual" || progress.record.evals.iter().any(|e| e.coupling.is_some())
    }

    /// The figure of a trial; none if it has not come so far.
    pub fn of(&self, progress: &Progress) -> Option<f64> {
        let record = Some(&progress.record).filter(|_| progress.finished())?;
        let eval = match self.epoch {
            Some(epoch) => record.evals.iter().find(|e| e.epoch == epoch),
            None => record.best(None),
        };
        (self.quantity.of)(eval, record.end.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_names() {
        for quantity in &QUANTITIES {
            assert_eq!(Metric::named(quantity.name).unwrap().name(), quantity.name);
        }
        assert_eq!(Metric::named("valid_ppl@3").unwrap().name(), "valid_ppl@3");
        for wrong in ["ppl", "valid_ppl@", "valid_ppl@0", "test_ppl@2", ""] {
            assert!(Metric::named(wrong).unwrap_err().contains("must be one of valid_ppl"), "{wrong}");
        }
    }
}
