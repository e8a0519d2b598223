//! What launchers of MPI (mpirun, srun) tell a process of the job that it belongs to.

use std::env;

/// How many processes the job has: by Open MPI, by MPICH, by Slurm.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

/// How many processes a launcher has started together with this one, it included; nothing without a launcher.
#[must_use]
pub fn launched() -> Option<usize> {
    SIZES.iter().find_map(|name| env::var(name).ok()?.parse().ok())
}

/// Whether Open MPI has bound this process to a part of a machine that no other process of the job uses.
#[must_use]
pub fn bound_although_alone() -> bool {
    let said = |name: &str| env::var(name).is_ok_and(|text| text == "1");
    said("OMPI_MCA_orte_bound_at_launch") && said("OMPI_COMM_WORLD_LOCAL_SIZE")
}
