//! Recurrent language models on ordinary CPUs, trained by truncated back-propagation through time and by target
//! propagation (free hidden states tied to the recurrence by penalties and duals).
//!
//! A module uses only those above it in the list below. The library never prints and never exits.

pub mod cell;
pub mod checkpoint;
pub mod clock;
pub mod comm;
pub mod eval;
#[allow(unsafe_code)]
pub mod kernel;
#[allow(unsafe_code)]
pub mod mat;
pub mod method;
pub mod model;
pub mod objective;
pub mod optim;
pub mod params;
pub mod real;
pub mod record;
pub mod rng;
pub mod train;
pub mod window;
