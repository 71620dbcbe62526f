//! What a launcher has started, and whether MPI sees the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use crate::failure::{Failure, Outcome};
use crate::launcher::launched;

/// This process as a rank.
#[derive(Debug)]
pub enum Member {
    /// Nobody else.
    Alone,
    /// One of several; taken out when it leaves.
    #[cfg(feature = "mpi")]
    Rank(Option<tprop_mpi::Connection>),
}

/// The update of the last checkpoint, and one; 0 if there is none. Ranks tell it to each other.
static NOTED: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);

/// Whether some rank has said why the job ends.
pub fn ending() -> bool {
    #[cfg(feature = "mpi")]
    return NOTED.load(Ordering::Relaxed) & tprop_mpi::ENDING != 0;
    #[cfg(not(feature = "mpi"))]
    false
}

/// The update of the last checkpoint, as far as this rank has heard.
pub fn last_step() -> Option<u64> {
    (NOTED.load(Ordering::Relaxed) & (u64::MAX >> 1)).checked_sub(1)
}

/// There is a checkpoint.
pub fn note(number: u64) {
    NOTED.fetch_max(number, Ordering::Relaxed);
}

/// The same sentence from every process would be said many times.
fn refuse(rank: usize, message: String) -> Failure {
    Failure::input(if rank == 0 { message } else { String::new() })
}

/// Refuses what each of several processes would do for itself.
pub fn refuse_several() -> Outcome {
    match launched() {
        Some((size, rank)) if size > 1 => Err(refuse(
            rank,
            format!(
                "the launcher started {size} processes, but only train, resume and plan share their work: start this one without a launcher"
            ),
        )),
        _ => Ok(()),
    }
}

/// Joins the others, if there may be any. Also says whether a launcher was at work.
#[cfg(not(feature = "mpi"))]
pub fn join() -> Outcome<(Member, bool)> {
    match launched() {
        Some((size, rank)) if size > 1 => Err(refuse(
            rank,
            format!(
                "the launcher started {size} processes, but this tprop is built without MPI, and each of them would train the whole: \
                 build it with `cargo build --release --features mpi`, or start it without a launcher"
            ),
        )),
        _ => Ok((Member::Alone, false)),
    }
}

/// Joins the others, if there may be any. Also says whether a launcher was at work.
#[cfg(feature = "mpi")]
pub fn join() -> Outcome<(Member, bool)> {
    use std::time::Duration;

    let Some((size, rank)) = launched() else { return Ok((Member::Alone, false)) };
    let patience = match std::env::var("TPROP_PATIENCE") {
        Err(_) => 15,
        Ok(text) => text.parse().ok().filter(|s| (3..=86_400).contains(s)).ok_or_else(|| {
            refuse(
                rank,
                format!("TPROP_PATIENCE={}: seconds from 3 to 86400 are wanted", tprop::vocab::printable(&text)),
            )
        })?,
    };
    let lost = |lost: tprop_mpi::Lost| {
        let seconds = lost.silent.as_secs();
        crate::console::note(format!(
            "tprop: rank {} has been silent for {seconds} s: it is stopped, or its machine is gone. {}",
            lost.rank,
            super::last_words()
        ));
    };
    let connection = tprop_mpi::Connection::open(Duration::from_secs(patience), NOTED.clone(), lost);
    let connection = connection.map_err(|e| refuse(rank, e))?;
    let seen = tprop::comm::Comm::size(&connection);
    if seen != size {
        // An MPI other than the launcher's does not find it and takes itself for alone.
        return Err(refuse(
            rank,
            format!(
                "the launcher started {size} processes, but MPI sees {seen}: tprop was built for another MPI than the \
                 launcher's; build it with the launcher's mpicc (`MPICC=… cargo build --features mpi`), or use its own launcher"
            ),
        ));
    }
    Ok((Member::Rank(Some(connection)), true))
}
