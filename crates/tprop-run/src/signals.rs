//! Ctrl-C and friends: the first asks for a checkpoint and an orderly end; one that comes a second or more after it ends at once.
//! One that comes sooner is the same request: `timeout`, shells and batch systems send theirs to the process and to its group.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Code;

/// A signal that comes sooner after the first is no second one.
const TOGETHER: Duration = Duration::from_secs(1);

/// Which signal came, if any.
#[derive(Clone, Debug)]
pub struct Signals {
    seen: Arc<AtomicUsize>,
}

impl Signals {
    /// Listens from now on. Where a handler cannot be installed, the signal ends the program as usual.
    pub fn listen() -> Self {
        let (seen, impatient) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in ends() {
            let code = code_of(signal) as i32;
            let _ = signal_hook::flag::register_conditional_shutdown(signal, code, impatient.clone());
            let _ = signal_hook::flag::register_usize(signal, seen.clone(), signal as usize);
        }
        // A handler may not look at the clock, so a thread waits for the first signal.
        if let Ok(mut signals) = signal_hook::iterator::Signals::new(ends()) {
            let _ = std::thread::Builder::new().spawn(move || {
                if signals.forever().next().is_some() {
                    std::thread::sleep(TOGETHER);
                    impatient.store(true, Ordering::Relaxed);
                }
            });
        }
        Self { seen }
    }

    /// The exit code of the signal that came.
    pub fn code(&self) -> Option<Code> {
        match self.seen.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(code_of(signal as i32)),
        }
    }
}

fn ends() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    // A closed terminal, unless `nohup` said that it does not matter.
    #[cfg(unix)]
    if !ignored(signal_hook::consts::SIGHUP) {
        signals.push(signal_hook::consts::SIGHUP);
    }
    signals
}

/// Whether whoever started us had a signal ignored, where the system tells.
#[cfg(unix)]
fn ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

fn code_of(signal: i32) -> Code {
    if signal == SIGINT { Code::Interrupted } else { Code::Terminated }
}
