//! Ranks of a cluster as a [`tprop::comm::Comm`], by MPI. The only crate that names MPI.
//!
//! One thread of each rank, the *office*, makes every MPI call, so that MPI need not know about threads: it sends what is posted, takes in
//! what arrives, and tells its neighbour once a second that it is alive. Nothing in it waits, so letters travel while
//! the other threads compute. A second thread watches the neighbour before this rank: if it has been silent for too
//! long, the whole job ends with its number.
//!
//! Without the feature `mpi` this crate is empty, and building it needs neither MPI nor libclang.

#[cfg(feature = "mpi")]
#[allow(unsafe_code)] // buffers that MPI reads and writes behind our back; each block says why it may
mod letters;
#[cfg(feature = "mpi")]
mod office;

#[cfg(feature = "mpi")]
pub use office::{ENDING, Lost, Office};
