//! What a launcher of several processes says in the environment, and how large this machine is.

/// Variables in which launchers say how many processes they have started, and which one this is: Open MPI, MPICH and Intel MPI,
/// MVAPICH, Slurm's srun.
const SAID: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
];

fn variable(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

/// How many processes a launcher has started, and which one this is.
pub fn launched() -> Option<(usize, usize)> {
    SAID.iter().find_map(|(size, rank)| Some((variable(size)?, variable(rank)?)))
}

/// Ranks on this machine, as far as the launcher says.
pub fn ranks_here() -> usize {
    let names = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"];
    names.iter().find_map(|name| variable(name)).unwrap_or(1).max(1)
}

/// Cores of this machine, whether or not this process may use them all.
pub fn cores() -> usize {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("processor")).count()
}
