//! The same command gives the same bits, whatever the number of threads.

use std::fs;
use std::path::Path;

use super::{succeed, tiny_training};

/// The loss trace and the checkpoint's bytes of a run with these further arguments.
fn run(folder: &Path, name: &str, further: &str) -> (String, Vec<u8>) {
    let (out, trace) = (folder.join(name), folder.join(format!("{name}.txt")));
    succeed(&format!("{} --out {} --trace-loss {} {further}", tiny_training(), out.display(), trace.display()));
    (fs::read_to_string(trace).unwrap(), fs::read(out.join("checkpoint.safetensors")).unwrap())
}

/// The bytes behind the header, which names the number of threads.
fn weights(file: &[u8]) -> &[u8] {
    let header = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    &file[8 + header..]
}

#[test]
fn the_same_command_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (losses, checkpoint) = run(folder.path(), "a", "--threads 2");
    assert_eq!(losses.lines().count(), 40);
    assert!(
        losses.lines().all(|line| line.split('e').next().unwrap().replace(['.', '-'], "").len() == 9),
        "nine digits"
    );
    let again = run(folder.path(), "b", "--threads 2");
    assert_eq!(losses, again.0);
    assert!(checkpoint == again.1, "checkpoints are the same bytes");
}

#[test]
fn every_number_of_threads_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (losses, checkpoint) = run(folder.path(), "1", "--threads 1");
    for threads in [2, 3, 7] {
        let (other_losses, other) = run(folder.path(), &threads.to_string(), &format!("--threads {threads}"));
        assert_eq!(losses, other_losses, "{threads} threads");
        assert!(weights(&checkpoint) == weights(&other), "weights of {threads} threads");
    }
}

#[test]
fn another_seed_gives_another_run() {
    let folder = tempfile::tempdir().unwrap();
    let (losses, _) = run(folder.path(), "a", "--seed 1");
    assert_ne!(losses, run(folder.path(), "b", "--seed 2").0);
}
