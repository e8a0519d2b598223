//! The `octorec` command as a user meets it: whole runs of the binary, its files, its exit codes and its messages.

mod bad_input;
mod bench;
mod determinism;
mod foreign_numbers;
mod initial;
mod learning;
mod lifecycle;
mod precision;
mod promises;
mod ranks;
#[path = "../support/requirement.rs"]
mod requirement;
#[path = "../support/sample.rs"]
mod sample;
mod tune;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sample::criteo_sample;
use serde_json::Value;

/// The command, ready for arguments.
fn octorec() -> Command {
    Command::new(env!("CARGO_BIN_EXE_octorec"))
}

/// Runs a command line (words separated by spaces) and returns what it printed.
fn run(line: &str) -> Output {
    octorec().args(line.split_whitespace()).output().expect("the binary runs")
}

/// As [`run`], for a command that must succeed.
fn succeed(line: &str) -> Output {
    let output = run(line);
    assert!(output.status.success(), "octorec {line}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// As [`run`], for a command that must fail with exit code 1; returns its message.
fn fail(line: &str) -> String {
    let output = run(line);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "octorec {line}\n{message}");
    message
}

/// The JSON object that a successful command printed.
fn json(line: &str) -> Value {
    let output = succeed(line);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("octorec {line}: {error}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// Settings of a model that trains in a fraction of a second.
const TINY: &str = "--set model.bottom=[13,32,8] --set model.top=[16,1] --set model.dim=8 --batch 64 --lr 0.1 \
                    --eval-every 0 --set train.decay_steps=0";

/// TINY on a small built-in data set of 40 steps an epoch.
fn tiny_training() -> String {
    format!("train {TINY} --epochs 1 --set data.train_samples=2560 --set data.test_samples=640")
}

/// A generated file in Criteo's layout with `rows` good rows.
fn tsv(path: &Path, rows: u64) -> PathBuf {
    use octorec::base::config::DataConfig;
    use octorec::data::{Criteo, Split};
    let config = DataConfig { train_samples: rows, test_samples: 0, ..DataConfig::default() };
    let source = Criteo::new(&config, &[], 13).unwrap();
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    source.write_tsv(Split::Train, 0..rows, &mut file).unwrap();
    path.to_owned()
}
