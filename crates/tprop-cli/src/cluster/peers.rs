//! Last words. When a rank dies, a launcher notices first and ends the others with SIGTERM; there is about a second to say
//! which one it was and where the run can be taken up again.

use tprop::comm::{Comm, gather};

/// Where a process can be looked up: its process-number space and its number.
fn identity() -> String {
    let space = std::fs::read_link("/proc/self/ns/pid").map_or(String::new(), |link| link.display().to_string());
    let host = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    format!("{}{space} {}", host.trim(), std::process::id())
}

/// Whether a process of this machine is gone; a zombie is.
fn gone(process: &str) -> bool {
    match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(text) => text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X'])),
        Err(_) => true,
    }
}

/// Gets to know the other ranks of this machine, and looks after them when this rank is told to end.
pub fn watch(comm: &dyn Comm) {
    let mine = identity();
    let all: Vec<String> =
        gather(comm, mine.clone().into_bytes()).iter().map(|b| String::from_utf8_lossy(b).into_owned()).collect();
    let place = mine.rsplit_once(' ').map_or("", |(place, _)| place);
    let near = |(rank, identity): (usize, &String)| {
        let (there, process) = identity.rsplit_once(' ')?;
        (there == place && there.contains("pid")).then(|| (rank, process.to_owned()))
    };
    let near: Vec<(usize, String)> = all.iter().enumerate().filter_map(near).collect();
    let rank = comm.rank();
    #[cfg(unix)]
    if let Ok(mut signals) = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM]) {
        std::thread::spawn(move || {
            for _ in signals.forever() {
                look_after(&near, rank);
            }
        });
    }
}

/// If a rank of this machine is gone, the first one that is left says so; all of them end.
fn look_after(near: &[(usize, String)], rank: usize) {
    for _ in 0..40 {
        let dead: Vec<usize> = near.iter().filter(|(_, process)| gone(process)).map(|(rank, _)| *rank).collect();
        if let Some(&first) = dead.first() {
            let speaker = near.iter().find(|(rank, _)| !dead.contains(rank)).is_some_and(|(alive, _)| *alive == rank);
            if !speaker {
                // Whoever left first would be taken for the dead one.
                std::thread::sleep(std::time::Duration::from_secs(5));
            } else if !super::launch::ending() {
                crate::console::note(format!("tprop: rank {first} has died. {}", super::last_words()));
            }
            std::process::exit(1);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
