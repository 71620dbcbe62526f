//! Faults on demand, for the tests that show what a run survives. Only in builds with debug assertions: a release has none of this.
//!
//! `TPROP_FAULT=POINT[:N]=ACTION[,…]` strikes when the point is passed for the N-th time (the first, if not said):
//!
//! | action | what happens |
//! |---|---|
//! | `kill` | the process ends at once; nothing of ours runs behind it |
//! | `full` | the system says that the disk is full |
//! | `slow`, `wait` | nothing happens for half a second, for an hour |
//! | `nan`, `inf` | a number is not finite any more |
//! | a number | is taken for what the machine would have said |
//!
//! Points of a save are listed in [`SAVE`]; others are named where they are passed.

/// Points inside a save, in their order.
pub const SAVE: [&str; 9] = [
    "save.before_write",
    "save.mid_write",
    "save.after_write",
    "save.after_sync",
    "save.after_rename",
    "save.after_dir_sync",
    "save.after_verify",
    "save.mid_prune",
    "save.after_prune",
];

#[cfg(debug_assertions)]
mod armed {
    use std::io;
    use std::sync::{Mutex, OnceLock};

    #[derive(Debug)]
    struct Fault {
        point: String,
        at: u64,
        seen: u64,
        action: String,
    }

    fn plan() -> &'static Mutex<Vec<Fault>> {
        static PLAN: OnceLock<Mutex<Vec<Fault>>> = OnceLock::new();
        PLAN.get_or_init(|| {
            let text = std::env::var("TPROP_FAULT").unwrap_or_default();
            let faults = text.split(',').filter(|part| !part.is_empty()).map(|part| {
                let (place, action) = part.split_once('=').unwrap_or_else(|| panic!("TPROP_FAULT: {part}: no action"));
                let (point, at) = place.split_once(':').unwrap_or((place, "1"));
                let at = at.parse().unwrap_or_else(|_| panic!("TPROP_FAULT: {part}: {at} is no number"));
                Fault { point: point.into(), at, seen: 0, action: action.into() }
            });
            Mutex::new(faults.collect())
        })
    }

    fn strikes(point: &str) -> Option<String> {
        let mut plan = plan().lock().ok()?;
        let fault = plan.iter_mut().find(|fault| fault.point == point && fault.seen < fault.at)?;
        fault.seen += 1;
        (fault.seen == fault.at).then(|| fault.action.clone())
    }

    /// Whether a fault at a point of this beginning is still to come.
    pub fn planned(begin: &str) -> bool {
        plan().lock().is_ok_and(|plan| plan.iter().any(|fault| fault.point.starts_with(begin) && fault.seen < fault.at))
    }

    /// Passes a point where writing may fail.
    pub fn at(point: &str) -> io::Result<()> {
        match strikes(point).as_deref() {
            None => Ok(()),
            Some("kill") => std::process::exit(137),
            Some("full") => Err(io::ErrorKind::StorageFull.into()),
            Some(pause @ ("slow" | "wait")) => {
                std::thread::sleep(std::time::Duration::from_millis(if pause == "slow" { 500 } else { 3_600_000 }));
                Ok(())
            }
            Some(other) => panic!("TPROP_FAULT: {point} cannot do {other}"),
        }
    }

    /// Passes a point where a number may go bad.
    pub fn poison(point: &str) -> Option<f64> {
        match strikes(point)?.as_str() {
            "nan" => Some(f64::NAN),
            "inf" => Some(f64::INFINITY),
            other => panic!("TPROP_FAULT: {point} cannot do {other}"),
        }
    }

    /// Passes a point where the machine is asked for a number.
    pub fn number(point: &str) -> Option<u64> {
        strikes(point)?.parse().ok()
    }
}

#[cfg(debug_assertions)]
pub use armed::{at, number, planned, poison};

#[cfg(not(debug_assertions))]
mod disarmed {
    /// Nothing happens in a release.
    #[inline(always)]
    pub fn planned(_begin: &str) -> bool {
        false
    }

    /// Nothing happens in a release.
    #[inline(always)]
    pub fn at(_point: &str) -> std::io::Result<()> {
        Ok(())
    }

    /// Nothing happens in a release.
    #[inline(always)]
    pub fn poison(_point: &str) -> Option<f64> {
        None
    }

    /// Nothing happens in a release.
    #[inline(always)]
    pub fn number(_point: &str) -> Option<u64> {
        None
    }
}

#[cfg(not(debug_assertions))]
pub use disarmed::{at, number, planned, poison};
