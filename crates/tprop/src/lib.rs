//! Recurrent language models on ordinary CPUs, trained by truncated back-propagation through time and by target
//! propagation (free hidden states tied to the recurrence by penalties and duals).
//!
//! A module uses only those above it in the list below. The library never prints and never exits.

pub mod corpus;
#[allow(unsafe_code)]
pub mod kernel;
#[allow(unsafe_code)]
pub mod mat;
pub mod real;
pub mod rng;
pub mod vocab;
