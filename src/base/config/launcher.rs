//! What launchers of MPI (mpirun, srun) tell a process of the job that it belongs to.

use std::env;

use crate::base::{Error, Result};

/// How many processes the job has, and who says so.
const SIZES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun"),
    ("PMI_SIZE", "a launcher that speaks PMI (MPICH's mpirun, srun)"),
    ("SLURM_STEP_NUM_TASKS", "srun"),
];

/// The variables by which launchers tell a process how many there are.
pub fn size_variables() -> impl Iterator<Item = &'static str> {
    SIZES.into_iter().map(|(name, _)| name)
}

/// What a launcher says of its job, and by which variable.
fn told(variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, &'static str, usize)> {
    SIZES.into_iter().find_map(|(name, launcher)| Some((name, launcher, variable(name)?.parse().ok()?)))
}

/// How many processes a launcher has started together with this one, it included; nothing without a launcher.
#[must_use]
pub fn launched() -> Option<usize> {
    told(|name| env::var(name).ok()).map(|(_, _, processes)| processes)
}

/// Refuses that a launcher has started several processes of `command`, which is one process's work.
///
/// # Errors
/// [`Error::Config`] that names the launcher's variable.
pub fn refuse_several(command: &str) -> Result<()> {
    refuse_several_of(command, told(|name| env::var(name).ok()))
}

fn refuse_several_of(command: &str, told: Option<(&'static str, &'static str, usize)>) -> Result<()> {
    let Some((name, launcher, processes)) = told.filter(|(_, _, processes)| *processes > 1) else { return Ok(()) };
    let unset: String = size_variables().map(|name| format!("-u {name} ")).collect();
    let reason = format!(
        "{launcher} has started {processes} processes, and `octorec {command}` is the work of one, on one machine: start it \
         without a launcher, or as one process (-n 1); in a shell that the launcher has started, as `env {unset}octorec \
         {command} ...`"
    );
    Err(Error::config(name, reason))
}

/// How many of a job's processes are on this machine: by Open MPI, by MPICH, by Slurm, which tells it of all nodes.
const LOCAL_SIZES: [&str; 4] =
    ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"];

/// Whether a launcher says that no other process of the job is on this machine.
#[must_use]
pub fn alone_on_machine() -> bool {
    alone_by(|name| env::var(name).ok())
}

fn alone_by(variable: impl Fn(&str) -> Option<String>) -> bool {
    // Slurm writes 1(x4) where four nodes have one each.
    let one = |text: String| text == "1" || (text.starts_with("1(x") && text.ends_with(')') && !text.contains(','));
    LOCAL_SIZES.into_iter().find_map(variable).is_some_and(one)
}

/// Whether Open MPI has bound this process to a part of a machine that no other process of the job uses.
#[must_use]
pub fn bound_although_alone() -> bool {
    bound_alone_by(|name| env::var(name).ok())
}

/// What the launcher of Open MPI 4 says of the job; that of Open MPI 5 (PRRTE) says nothing of the kind.
const OF_ORTE: &str = "OMPI_MCA_orte_ess_num_procs";

fn bound_alone_by(variable: impl Fn(&str) -> Option<String>) -> bool {
    let said = |name: &str| variable(name).is_some_and(|text| text == "1");
    // PRRTE does not say whether it has bound the process, and binds it unless it is told otherwise.
    let bound = said("OMPI_MCA_orte_bound_at_launch") || variable(OF_ORTE).is_none();
    // A process that srun has started itself learns nothing of Open MPI's before it starts MPI.
    bound && said("OMPI_COMM_WORLD_LOCAL_SIZE")
}

/// Which threads may call MPI, where that is not left to octorec.
const CALLS: &str = "OCTOREC_MPI_CALLS";

/// Whether one thread alone is to call MPI: `OCTOREC_MPI_CALLS=one`; `any`, as without it, leaves it to what MPI
/// grants.
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
    fn a_process_alone_is_bound_where_its_launcher_says_so_or_says_nothing() {
        let (alone, orte, bound) =
            (("OMPI_COMM_WORLD_LOCAL_SIZE", "1"), (OF_ORTE, "2"), ("OMPI_MCA_orte_bound_at_launch", "1"));
        let found = |set: &[(&str, &str)]| {
            let set = set.to_vec();
            bound_alone_by(|name| set.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned()))
        };
        assert!(found(&[alone, orte, bound]) && !found(&[alone, orte]), "Open MPI 4");
        assert!(found(&[alone]) && !found(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "2")]), "Open MPI 5");
        assert!(!found(&[("SLURM_NTASKS_PER_NODE", "1"), ("SLURM_CPU_BIND", "quiet,mask_cpu:0x1")]), "srun");
    }

    #[test]
    fn a_process_is_alone_on_its_machine_where_its_launcher_says_so_of_it_or_of_all() {
        let found = |set: &[(&str, &str)]| {
            alone_by(|name| set.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned()))
        };
        let step = "SLURM_STEP_TASKS_PER_NODE";
        assert!(found(&[(step, "1(x4)")]) && found(&[(step, "1")]) && found(&[("SLURM_NTASKS_PER_NODE", "1")]));
        for several in ["2(x2)", "11(x2)", "1(x2),2", "2,1(x2)", "12"] {
            assert!(!found(&[(step, several), ("SLURM_NTASKS_PER_NODE", "1")]), "{several}");
        }
        assert!(!found(&[]) && !found(&[("OMPI_COMM_WORLD_LOCAL_SIZE", "2"), (step, "1")]));
    }

    #[test]
    fn several_processes_are_refused_by_the_name_of_their_launcher() {
        let of = |set: &[(&str, &str)]| {
            told(|name| set.iter().find(|(other, _)| *other == name).map(|(_, text)| (*text).to_owned()))
        };
        assert_eq!(of(&[("SLURM_NTASKS", "8")]), None, "an allocation, which nothing was started in");
        for set in [&[][..], &[("SLURM_STEP_NUM_TASKS", "1")], &[("PMI_SIZE", "many")]] {
            assert!(refuse_several_of("search", of(set)).is_ok(), "{set:?}");
        }
        let refused = refuse_several_of("search", of(&[("PMI_SIZE", "many"), ("SLURM_STEP_NUM_TASKS", "4")]));
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("SLURM_STEP_NUM_TASKS: srun has started 4 processes"), "{message}");
        assert!(
            message.contains("-n 1") && message.contains("-u PMI_SIZE -u SLURM_STEP_NUM_TASKS octorec search"),
            "{message}"
        );
    }

    #[test]
    fn callers_are_named() {
        assert!(!one_caller_of(None).unwrap() && !one_caller_of(Some("any")).unwrap());
        assert!(one_caller_of(Some("one")).unwrap());
        let refused = one_caller_of(Some("two")).unwrap_err().to_string();
        assert!(refused.contains("OCTOREC_MPI_CALLS: `two`") && refused.contains("one"), "{refused}");
    }
}
