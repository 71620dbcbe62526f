//! Memory that a method takes beside weights and gradients, known before any of it is taken.

use std::fs;
use std::path::Path;

use super::tapes::Tapes;
use super::{Batch, BtpropConfig, Init, Outline, Pulls, Starts, StateRule};
use crate::model::Model;
use crate::objective::Constraint;
use crate::real::Real;

/// Bytes of the tapes and states of windows of blocks, on the rank that has the most of them.
pub(super) fn windowed<T: Real>(c: &BtpropConfig, model: &Model<T>, tokens: usize, ranks: usize) -> u64 {
    let (blocks, windows) = c.windows(tokens.saturating_sub(1) / c.streams);
    let rows = blocks.div_ceil(ranks).saturating_mul(c.streams);
    let column = if c.init == Init::Sequential { Tapes::bytes(model, c.streams, c.block) } else { 0 };
    let tapes = Tapes::bytes(model, rows, c.block).saturating_add(column);
    tapes.saturating_add(states(c, model, rows, windows))
}

/// Which values a configuration keeps beside those that all have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeps {
    /// Targets of their own, because the starts are held.
    pub targets: bool,
    /// z of the constraints that keep one.
    pub latent: bool,
    /// Adagrad's sums of the states.
    pub sums: bool,
    /// Duals.
    pub duals: bool,
    /// Of every window, for the next epoch: its states, its duals. In batch mode the one window has them anyway.
    pub states_of_all: bool,
    pub duals_of_all: bool,
    /// Pulls of every window, in batch mode too.
    pub pulls_of_all: bool,
    /// Gradients of all states at once, because they are scanned or solved for.
    pub gradients: bool,
    /// Diagonals of the blocks.
    pub diagonals: bool,
}

impl Keeps {
    pub fn of(config: &BtpropConfig) -> Self {
        let (mini, duals) = (config.batch != Batch::Full, config.solver.duals());
        Self {
            targets: config.starts == Starts::Held,
            latent: matches!(config.constraint, Constraint::Tanh | Constraint::Binary),
            sums: config.states.rule == StateRule::Adagrad,
            duals: duals.is_some(),
            states_of_all: mini && matches!(config.init, Init::Stored { .. }),
            duals_of_all: mini && duals.is_some_and(|d| d.stored),
            pulls_of_all: config.pulls == Pulls::Stored,
            gradients: config.scan.pulls() || config.states.rule == StateRule::Newton,
            diagonals: config.needs_diagonals(),
        }
    }

    /// Values for each component of a state, in a text of so many windows.
    fn values(self, windows: usize) -> usize {
        let now = [self.targets, self.latent, self.sums, self.duals, self.gradients].map(usize::from);
        let of_all = [self.states_of_all, self.duals_of_all, self.pulls_of_all].map(usize::from);
        // All have starts, ends, and the gradients in starts, ends and targets.
        (5 + now.iter().sum::<usize>()).saturating_add(windows.saturating_mul(of_all.iter().sum()))
    }
}

/// Bytes of the states of `rows` blocks, and of what goes with them.
pub(super) fn states<T: Real>(config: &BtpropConfig, model: &Model<T>, rows: usize, windows: usize) -> u64 {
    let slots = rows.saturating_add(config.streams);
    let keeps = Keeps::of(config);
    let diagonals = if keeps.diagonals { model.units().matrix_width() } else { 0 };
    let values = keeps.values(windows).saturating_mul(model.state_width()).saturating_add(diagonals);
    slots.saturating_mul(values).saturating_mul(T::BYTES) as u64
}

/// Memory that this process could have now without swapping, where the system says: what the machine has left, and what is left of the
/// limits of its container or batch job (control groups of both versions) and of its shell (`ulimit -v`).
pub fn available() -> Option<u64> {
    let root = Path::new("/");
    [machine(root), control_group(root), address_space(root)].into_iter().flatten().min()
}

/// The number behind a word at the beginning of a line.
fn number(text: &str, word: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(word))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What the machine has left. (`root` is `/` but in tests.)
fn machine(root: &Path) -> Option<u64> {
    number(&fs::read_to_string(root.join("proc/meminfo")).ok()?, "MemAvailable:").map(|kb| kb << 10)
}

/// What is left of `ulimit -v`: of addresses, not of memory, so that what is mapped already counts.
fn address_space(root: &Path) -> Option<u64> {
    let limit = number(&fs::read_to_string(root.join("proc/self/limits")).ok()?, "Max address space")?;
    let taken = number(&fs::read_to_string(root.join("proc/self/status")).ok()?, "VmSize:").unwrap_or(0) << 10;
    Some(limit.saturating_sub(taken))
}

/// What is left of the limits of the control groups that this process is in; a group is also held to the limits of those above it.
fn control_group(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let left = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let (mount, limit, usage, cache) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "),
            list if list.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
            }
            _ => return None,
        };
        let mount = root.join(mount);
        // In a container the group may have another name outside, and the mounted tree begins at the group itself.
        let own = mount.join(group);
        let left = own.ancestors().take_while(|dir| dir.starts_with(&mount)).filter_map(|dir| {
            let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
            // "max", or no file: no limit here.
            let limit: u64 = read(limit)?.trim().parse().ok()?;
            let usage: u64 = read(usage)?.trim().parse().ok()?;
            // Pages of files that were read are given back when they are needed.
            let cache = read("memory.stat").and_then(|text| number(&text, cache)).unwrap_or(0);
            Some(limit.saturating_sub(usage.saturating_sub(cache)))
        });
        left.min()
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn control_groups_of_both_versions_and_all_levels_count() {
        let second = root(&[
            ("proc/self/cgroup", "0::/jobs/7\n"),
            ("sys/fs/cgroup/jobs/7/memory.max", "max\n"),
            ("sys/fs/cgroup/jobs/7/memory.current", "100\n"),
            ("sys/fs/cgroup/jobs/memory.max", "400000\n"),
            ("sys/fs/cgroup/jobs/memory.current", "150000\n"),
            ("sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file 50000\n"),
        ]);
        assert_eq!(control_group(second.path()), Some(300_000));
        let first = root(&[
            ("proc/self/cgroup", "4:cpu:/x\n3:memory,hugetlb:/docker/ab\n0::/\n"),
            // Inside a container: the group's own directory is the root of what is mounted.
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "300\n"),
        ]);
        assert_eq!(control_group(first.path()), Some(700));
        let over = root(&[
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "5"),
            ("sys/fs/cgroup/memory.current", "9"),
        ]);
        assert_eq!(control_group(over.path()), Some(0));
        assert_eq!(control_group(root(&[("proc/self/cgroup", "0::/\n")]).path()), None);
        assert_eq!(control_group(root(&[]).path()), None);
    }

    #[test]
    fn the_limit_of_a_shell_counts() {
        let limits = |limit: &str| {
            let text = format!("Limit  Soft Limit  Hard Limit  Units\nMax address space  {limit}  unlimited  bytes\n");
            let files = [("proc/self/limits", text.as_str()), ("proc/self/status", "Name:\tx\nVmSize:\t   4 kB\n")];
            address_space(root(&files).path())
        };
        assert_eq!(limits("10000"), Some(10_000 - 4096));
        assert_eq!(limits("unlimited"), None);
        assert_eq!(machine(root(&[("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   5 kB\n")]).path()), Some(5 << 10));
    }
}
