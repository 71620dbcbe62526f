//! Who looks on while a run trains.

use crate::checkpoint::Snapshot;
use crate::record::Event;

/// What a watcher would like to happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Continue.
    Go,
    /// Hand over a snapshot, then continue.
    Save,
    /// Hand over a snapshot, then stop.
    Stop,
}

/// Why a snapshot is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Before the first update.
    First,
    /// It was wished for.
    Wished,
    /// After an evaluation.
    Evaluated {
        /// It was the best so far.
        best: bool,
    },
    /// The run is over.
    End,
}

/// Looks on: writes records, shows progress, keeps checkpoints, says when to stop.
pub trait Watch {
    /// Something happened.
    fn event(&mut self, event: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

    /// An update was made.
    fn updated(&mut self, step: u64) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let _ = step;
        Ok(())
    }

    /// Asked after every update, and between the chunks of a long one and of an evaluation.
    fn wish(&mut self) -> Wish {
        Wish::Go
    }

    /// Takes a copy of the whole state.
    fn save(&mut self, snapshot: Snapshot, why: Why) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let _ = (snapshot, why);
        Ok(())
    }
}

/// Lets any closure look on.
impl<F: FnMut(&Event)> Watch for F {
    fn event(&mut self, event: &Event) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self(event);
        Ok(())
    }
}
