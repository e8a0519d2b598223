//! What launchers of MPI (mpirun, srun) tell a process of the job that it belongs to.

use std::env;

use crate::base::{Error, Result};

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

/// Which threads may call MPI, where that is not left to octorec.
const CALLS: &str = "OCTOREC_MPI_CALLS";

/// Whether one thread alone is to call MPI: `OCTOREC_MPI_CALLS=one`; `any`, as without it, leaves it to what MPI grants.
///
/// # Errors
/// [`Error::Config`] for another word.
pub fn one_caller() -> Result<bool> {
    one_caller_of(env::var(CALLS).ok().as_deref())
}

fn one_caller_of(text: Option<&str>) -> Result<bool> {
    match text {
        None | Some("" | "any") => Ok(false),
        Some("one") => Ok(true),
        Some(other) => Err(Error::config(CALLS, format!("`{other}` is none of one, any"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_named() {
        assert!(!one_caller_of(None).unwrap() && !one_caller_of(Some("any")).unwrap());
        assert!(one_caller_of(Some("one")).unwrap());
        let refused = one_caller_of(Some("two")).unwrap_err().to_string();
        assert!(refused.contains("OCTOREC_MPI_CALLS: `two`") && refused.contains("one"), "{refused}");
    }
}
