//! Who looks on while a run trains.

use crate::checkpoint::Snapshot;
use crate::record::Event;

/// What a watcher asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Continue.
    Go,
    /// Hand over a snapshot, then continue.
    Save,
    /// Hand over a snapshot, then stop.
    Stop,
}

/// Why a snapshot is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveReason {
    /// Before the first update.
    First,
    /// It was requested.
    Requested,
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
    fn request(&mut self) -> Request {
        Request::Go
    }

    /// A copy of the whole state, as large as the model several times, is about to be made.
    fn make_room(&mut self) {}

    /// Takes a copy of the whole state.
    fn save(&mut self, snapshot: Snapshot, why: SaveReason) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
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
