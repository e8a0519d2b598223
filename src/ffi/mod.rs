//! Foreign doors: libnuma, MPI, and the Linux calls that place threads and pages, divide processes and take signals.
//! Thin and typed, nothing clever.
//!
//! Everything here states what the kernel promises, not what octorec wants; policy lives in `machine` and `memory`.
//! One operation an unsafe block, each with its proof. Sources: numa(3), mbind(2), move_pages(2), mmap(2),
//! sched_setaffinity(2), and the constants of `linux/mempolicy.h` as published by the crate linux-raw-sys.

pub mod child;
pub mod linux;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod numa;
pub mod signals;
