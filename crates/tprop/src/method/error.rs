//! Reason a method cannot be planned: which field of its configuration, what was found there, what was wanted, and why. The program words
//! it with the names that its users type.

use crate::comm::SharesError;

/// Reason a method cannot be planned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MethodError {
    /// The training split is shorter than one window of all streams and the token behind it.
    #[error("the training split has {tokens} tokens and one window needs {wanted}")]
    TooShort {
        /// Tokens of the split.
        tokens: usize,
        /// Tokens of the shortest one that will do.
        wanted: usize,
        /// The fields whose product is the window, with their values.
        window: Vec<(&'static str, usize)>,
    },
    /// A value that cannot be honoured.
    #[error("{field} is {found}; {wanted} is wanted: {reason:?}")]
    Field {
        /// Its path in the configuration of the method or of the model.
        field: &'static str,
        /// Its value.
        found: String,
        /// Values that will do.
        wanted: &'static str,
        /// What rules it out.
        reason: Reason,
    },
    /// This machine has no room for it.
    #[error("{what:?} need {bytes} bytes and {free} are free")]
    Memory {
        /// What would fill it.
        what: Room,
        /// What it needs.
        bytes: u64,
        /// What could be had.
        free: u64,
    },
    /// More ranks than work.
    #[error(transparent)]
    Shares(#[from] SharesError),
    /// The method needs a feature that this build is without.
    #[error("this build is without the feature {0}")]
    Feature(&'static str),
}

/// What rules a value out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The loss looks at free states, of which there is one a block.
    FreeLoss,
    /// Held starts stay where the init puts them, and this one puts them nowhere.
    NothingFound,
    /// A window is an update of its own.
    OneWindowPerUpdate,
    /// There is no closed form for it.
    NoClosedForm,
    /// The closed form has no solution without it.
    NoScale,
    /// A scan over pulls is exact for the targets of held starts, of a quadratic penalty, moved by plain steps.
    ScannedPulls,
    /// Pulls are kept for the targets of held starts inside the text.
    StoredPulls,
    /// The quadratic model is that of moving starts and a quadratic penalty, and its solution has a length of its own.
    Newton,
}

/// What fills memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The states of so many blocks.
    States {
        /// Their number.
        blocks: usize,
    },
    /// The factors of the least-squares problem of the states.
    Factors,
}

impl MethodError {
    /// A value that cannot be honoured.
    pub(super) fn field(field: &'static str, found: impl ToString, wanted: &'static str, reason: Reason) -> Self {
        MethodError::Field { field, found: found.to_string(), wanted, reason }
    }

    /// Refuses what does not fit into nine tenths of the memory that is free.
    pub(super) fn check_memory(what: Room, bytes: u64) -> Result<(), Self> {
        match super::memory::available() {
            Some(free) if bytes > free / 10 * 9 => Err(MethodError::Memory { what, bytes, free }),
            _ => Ok(()),
        }
    }
}
