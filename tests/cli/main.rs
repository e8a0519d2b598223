//! The `octorec` command as a user meets it: whole runs of the binary, its files, its exit codes and its messages.

mod against;
#[path = "../support/alone.rs"]
mod alone;
#[path = "../support/auc.rs"]
mod auc;
mod bad_input;
mod bench;
mod best;
mod breakage;
mod campaign;
#[path = "../support/chance.rs"]
mod chance;
mod configuration;
mod described;
mod determinism;
mod drift;
mod export;
mod fae;
mod foreign_numbers;
mod growth;
mod hot;
mod idle_flags;
mod initial;
mod integrity;
mod interrupts;
#[path = "../support/keyed_once.rs"]
mod keyed_once;
mod learning;
mod led_astray;
mod lifecycle;
mod messages;
mod mllog;
mod mpi;
mod own_files;
mod own_layers;
mod own_tables;
mod parquet;
mod precision;
mod pricing;
mod promises;
mod propose;
mod quotients;
mod ranks;
mod remedies;
#[path = "../support/requirement.rs"]
mod requirement;
mod same_rows;
#[path = "../support/sample.rs"]
mod sample;
mod sample_weights;
mod scripts;
mod search;
mod series;
mod serving;
mod simulate;
#[path = "../support/spoil.rs"]
mod spoil;
mod torchrec;
mod transforms;
mod tune;
mod validation;
mod weighted_pooling;
mod wide;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use keyed_once::KeyedOnce;
use sample::criteo_sample;
use serde_json::Value;

/// The command, ready for arguments; what the user's cache knows of this machine is none of its business.
fn octorec() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octorec"));
    command.env("OCTOREC_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/no-cache"));
    command
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
    serde_json::from_slice::<KeyedOnce>(&output.stdout)
        .map(|KeyedOnce(value)| value)
        .unwrap_or_else(|error| panic!("octorec {line}: {error}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// Settings of a model that trains in a fraction of a second.
const TINY: &str = "--set model.bottom=[13,32,8] --set model.top=[16,1] --set model.dim=8 --batch 64 --lr 0.1 \
                    --eval-every 0";

/// Optimizers that keep nothing of what they move, for tests of what others do otherwise.
const SGD: &str = "--optimizer sgd --optimizer-rows sgd";

/// An epoch of a small log by SGD at 0.2, unless other data or steps are given: as flags they would then be refused.
const ONE_EPOCH: &str =
    concat!("--preset demo --config ", env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/one-epoch.toml");

/// TINY on a small built-in data set of 40 steps an epoch.
fn tiny_training() -> String {
    format!("train {ONE_EPOCH} {TINY}")
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
