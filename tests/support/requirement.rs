//! What tests require of the machine that runs them.
//!
//! A test that meets a machine without it is skipped and says so. Under `CI=true` such a test fails instead, unless
//! `.ci/may-be-missing` names the requirement: a green run means that everything else was tested. Tests of the library
//! and of `tests` include this same file; `tests/numa/run` keeps the same rule in shell (`.ci/missing`).

use std::fmt::Display;
use std::path::Path;

/// Every requirement, and what needs it.
pub const REQUIREMENTS: [(&str, &str); 16] = [
    ("avx2", "the AVX2 twin of every kernel"),
    ("avx512", "the AVX-512 twin of every kernel"),
    ("avx512-bf16", "the AVX512-BF16 twin of every kernel, the peak of its dot products"),
    ("amx-bf16", "tiles: their instructions, the passes of layers in bfloat16 and in thirds, their peak"),
    ("rtm", "updates of rows by transactions"),
    ("two-cpus", "threads that run where they are told, not wherever they may"),
    ("numa-calls", "binding memory to nodes, asking where pages lie, arenas"),
    ("huge-pages", "limits on huge pages, the advice that asks for them"),
    ("objdump", "the search for vector operations outside kernels"),
    ("criteo-sample", "every claim on real clicks (OCTOREC_CRITEO_SAMPLE names the folder)"),
    ("numa-emulation", "make test-numa: qemu, a static busybox, cpio and a kernel"),
    ("valgrind", "make valgrind"),
    ("two-hosts", "make test-mpi: root, ip and network namespaces"),
    ("mpi", "several machines: a build with the feature mpi, and mpirun"),
    ("onnxruntime", "exported graphs: Python (OCTOREC_PYTHON, else python3) with numpy and onnxruntime"),
    ("torch", "exported state dicts: the same Python with torch"),
];

/// What a test found of a requirement. Where that is missing, the test is to return: it is skipped.
///
/// # Panics
/// Where CI requires what is missing.
pub fn required<T, E: Display>(name: &str, found: Result<T, E>) -> Option<T> {
    let reason = match found {
        Ok(found) => return Some(found),
        Err(reason) => reason.to_string(),
    };
    let allowed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/may-be-missing");
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    match verdict(name, &reason, ci, &std::fs::read_to_string(allowed).unwrap_or_default()) {
        Ok(skipped) => println!("{skipped}"),
        Err(failure) => panic!("{failure}"),
    }
    None
}

/// What is said of a missing requirement: that a test is skipped, or, as an error, that it fails. `allowed` is the text
/// of `.ci/may-be-missing`.
pub fn verdict(name: &str, reason: &str, ci: bool, allowed: &str) -> Result<String, String> {
    if !REQUIREMENTS.iter().any(|(known, _)| *known == name) {
        return Err(format!("{name} is no requirement that tests/support/requirement.rs lists"));
    }
    let may_be_missing = allowed.lines().any(|line| line.split('#').next().unwrap_or_default().trim() == name);
    if ci && !may_be_missing {
        return Err(format!("CI requires {name}: {reason}; .ci/may-be-missing does not name it"));
    }
    Ok(format!("skipped: no {name}: {reason}"))
}
