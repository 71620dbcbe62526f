//! Recurrent language models on ordinary CPUs, trained by truncated back-propagation through time and by target
//! propagation (free hidden states tied to the recurrence by penalties and duals).
//!
//! A module uses only those above it in the list below; `real`, `mat` and `kernel` are one layer, the arithmetic. The library never prints and never exits.

pub mod words;
pub mod fault;
pub mod real;
#[allow(unsafe_code)]
pub mod mat;
#[allow(unsafe_code)]
pub mod kernel;
pub mod rng;
pub mod tokens;
pub mod vocab;
pub mod corpus;
pub mod window;
pub mod params;
pub mod clock;
pub mod cell;
pub mod model;
pub mod comm;
pub mod objective;
pub mod optim;
pub mod method;
pub mod eval;
pub mod generate;
pub mod adapt;
pub mod theorem;
pub mod record;
pub mod checkpoint;
pub mod train;
