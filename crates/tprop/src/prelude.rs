//! What most programs need: to read a corpus, train, evaluate, generate, save and resume.
//!
//! ```
//! use tprop::prelude::*;
//! ```

pub use crate::cell::CellKind;
pub use crate::checkpoint::{Snapshot, Store};
pub use crate::comm::Solo;
pub use crate::corpus::{Corpus, CorpusConfig, SynthConfig};
pub use crate::eval::Reader;
pub use crate::generate::{Generator, Sampling};
pub use crate::method::{BpttConfig, BtpropConfig, MethodConfig, Outline};
pub use crate::model::{Model, ModelConfig};
pub use crate::optim::{OptimConfig, Rule};
pub use crate::params::Params;
pub use crate::record::Event;
pub use crate::train::{Data, TrainConfig, Trainer};
pub use crate::vocab::Vocab;
