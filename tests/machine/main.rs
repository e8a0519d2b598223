//! Machines as data, what training takes of one, and the rules of the house that a machine can check.

mod allocation;
#[path = "../support/alone.rs"]
mod alone;
mod describe;
mod discover;
mod draw;
mod house;
mod links;
mod loader_allocation;
mod placement;
#[path = "../support/requirement.rs"]
mod requirement;
mod requirements;
mod schedule;

use std::alloc::System;
use std::env;
use std::process::Command;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Whether this process runs nothing but `test`, so that what is counted for the whole process is that test's. If it
/// runs others, too, the test is run in a process of its own first, and the caller has nothing left to do.
fn alone(test: &str) -> bool {
    const ALONE: &str = "OCTOREC_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = Command::new(env::current_exe().expect("this process has a binary"));
    // A single thread leaves the harness nothing to say while the test runs.
    child.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, "yes");
    let output = child.output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{test}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{test} is a test of this binary");
    false
}
