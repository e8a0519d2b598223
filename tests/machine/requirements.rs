//! What is missing is said, and CI takes nothing for tested that was not.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use crate::requirement::{REQUIREMENTS, required, verdict};

const ALLOWED: &str = "# names\nrtm  # often off\n\n";

#[test]
fn a_missing_requirement_skips_at_home_and_fails_in_ci() {
    assert_eq!(verdict("avx512", "old", false, ALLOWED), Ok("skipped: no avx512: old".to_owned()));
    assert!(verdict("avx512", "old", true, ALLOWED).is_err_and(|failure| failure.contains("CI requires avx512: old")));
    assert_eq!(verdict("rtm", "off", true, ALLOWED), Ok("skipped: no rtm: off".to_owned()));
    // Neither a comment nor a part of a name allows anything, and a misspelt name is no requirement.
    assert!(verdict("avx2", "old", true, "# avx2\navx2-more\n").is_err());
    assert!(verdict("avx-2", "old", false, "avx-2").is_err_and(|failure| failure.contains("no requirement")));
    assert_eq!(required("rtm", Ok::<_, String>(7)), Some(7));
}

#[test]
fn what_may_be_missing_is_a_requirement() {
    let allowed = include_str!("../../.ci/may-be-missing");
    let names = allowed.lines().map(|line| line.split('#').next().unwrap().trim()).filter(|name| !name.is_empty());
    for name in names {
        assert!(REQUIREMENTS.iter().any(|(known, _)| *known == name), "{name}");
        assert!(!["numa-emulation", "criteo-sample", "avx2"].contains(&name), "{name} is never missing");
    }
}

/// What `.ci/system-packages` does where programs of these names are in a folder, which comes before or in the place of
/// others, and nothing can be installed.
fn system_packages(programs: &Path, others: Option<&str>, words: &[&str], variables: &[(&str, &str)]) -> Output {
    let path = others.map_or_else(String::new, |others| format!(":{others}"));
    let mut command = Command::new("/bin/bash");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/.ci/system-packages")).args(words);
    command.env("PATH", format!("{}{path}", programs.display())).envs(variables.iter().copied());
    command.output().unwrap()
}

#[test]
fn packages_that_are_there_are_not_installed() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["apt-get", "sudo"] {
        symlink("/bin/false", folder.path().join(name)).unwrap();
    }
    // This build had all that the bindings of MPI need.
    let built = if cfg!(feature = "mpi") { Ok(()) } else { Err("built without the feature mpi") };
    if required("mpi", built).is_some() {
        let path = std::env::var("PATH").unwrap();
        let found = system_packages(folder.path(), Some(&path), &["mpi"], &[]);
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    }
}

#[test]
fn packages_are_asked_for_by_who_needs_them() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["cc", "pkg-config", "mpicc", "mpicc.other"] {
        symlink("/bin/true", folder.path().join(name)).unwrap();
    }
    let told = |words: &[&str], variables: &[(&str, &str)]| {
        let variables = [&[("MPICC", ""), ("LIBCLANG_PATH", "/opt/lib")][..], variables].concat();
        let output = system_packages(folder.path(), None, words, &variables);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // None of these has `ip`, which only the hosts of tests are made with.
    let none: &[(&str, &str)] = &[];
    for (words, variables) in [(&[][..], none), (&["mpi"][..], none), (&["mpi"][..], &[("MPICC", "mpicc.other")][..])] {
        assert_eq!(told(words, variables), (Some(0), String::new()), "{words:?} {variables:?}");
    }
    let (code, message) = told(&["mpi", "hosts"], &[]);
    assert!(
        code == Some(1) && message.contains("octorec needs these packages") && message.contains("iproute2"),
        "{message}"
    );
    let (code, message) = told(&["mpi"], &[("MPICC", "mpicc.none")]);
    assert!(code == Some(1) && message.contains("there is no mpicc.none"), "{message}");
    let (code, message) = told(&["MPI"], &[]);
    assert!(code == Some(2) && message.contains("MPI is neither mpi nor hosts"), "{message}");
}
