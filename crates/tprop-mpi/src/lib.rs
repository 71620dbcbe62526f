//! Ranks of a cluster as a [`tprop::comm::Comm`], by MPI. The only crate that names MPI.
//!
//! One thread of each rank, the MPI thread, makes every MPI call, so that MPI need not know about threads: it sends what is queued, receives
//! what arrives, and sends its neighbour a sign of life once a second. Nothing in it waits, so messages travel while
//! the other threads compute. A second thread watches the neighbour before this rank: if it has been silent for too
//! long, the whole job ends with its number.
//!
//! Without the feature `mpi` this crate is empty, and building it needs neither MPI nor libclang.

#[cfg(feature = "mpi")]
#[allow(unsafe_code)] // buffers that MPI reads and writes behind our back; each block says why it may
mod messages;
#[cfg(feature = "mpi")]
mod connection;

#[cfg(feature = "mpi")]
pub use connection::{Connection, ENDING, Lost};
