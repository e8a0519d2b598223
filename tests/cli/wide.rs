//! Wide & Deep as a user trains it: the preset, checkpoints, what comes after training, and keys that are refused.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use safetensors::SafeTensors;

use super::{ONE_EPOCH, fail, json, octorec, succeed, tsv};

const MODEL: &str = "--set model.bottom=[13] --set model.interaction=cat --set model.top=[16,1] --set model.dim=8 \
                     --set model.wide=true --set model.wide_crosses=[[\"C6\",\"C9\"],[\"C14\",\"C17\",\"C20\"]] \
                     --set model.wide_buckets=500 --set train.ftrl_beta=0.01 --set train.lr_wide=0.05 --batch 64 \
                     --optimizer adagrad --optimizer-rows adagrad --lr 0.02 --eval-every 0";

fn checkpoint(run: &Path) -> Vec<u8> {
    fs::read(run.join("checkpoint.safetensors")).unwrap()
}

#[test]
fn a_checkpoint_has_the_wide_part_and_is_resumed_to_the_bit_on_other_ranks() {
    saved_and_resumed("");
    // Tables of the deep part that are as narrow as those of the wide one.
    saved_and_resumed("--set model.md_temperature=0.9 --set model.md_threshold=1");
}

fn saved_and_resumed(keys: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let line = format!("train {ONE_EPOCH} {MODEL} {keys} --seed 5 --threads 1 --determinism ranks");
    let summary = json(&format!("{line} --ranks 1 --steps 40 --out {} --json", whole.display()));
    let file = checkpoint(&whole);
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let shape = |name: &str| tensors.tensor(name).unwrap_or_else(|_| panic!("{name} is missing")).shape().to_vec();
    for (column, name) in (0..26).map(|column| (column, format!("wide_l.{column}.weight"))) {
        assert_eq!(shape(&name), [shape(&format!("emb_l.{column}.weight"))[0], 1]);
    }
    let narrow = (0..26).filter(|column| shape(&format!("state.emb_l.{column}.weight.sum"))[1] == 1);
    assert_eq!(narrow.count() > 0, !keys.is_empty());
    for name in ["wide_l.26.weight", "wide_l.27.weight", "state.wide_l.27.weight.linear"] {
        assert_eq!(shape(name), [500, 1]);
    }
    assert_eq!((shape("wide_dense.weight"), shape("wide_dense.bias")), (vec![1, 13], vec![1]));
    assert_eq!(shape("state.wide_dense.weight.accumulator"), [1, 13]);
    assert!(tensors.tensor("wide_l.28.weight").is_err() && tensors.tensor("emb_l.26.weight").is_err());

    succeed(&format!("{line} --ranks 2 --steps 17 --out {}", parts.display()));
    let resumed = json(&format!("train --resume {} --ranks 1 --steps 40 --json", parts.display()));
    assert_eq!(resumed["final_loss"], summary["final_loss"]);
    let weights = |file: &[u8]| {
        let head = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
        file[8 + head..].to_vec()
    };
    assert!(weights(&checkpoint(&parts)) == weights(&file), "stopping and resuming on other ranks changes no bit");
    let scores = json(&format!("eval --checkpoint {} --json", whole.display()));
    assert_eq!(scores["auc"], summary["auc"]);
}

#[test]
fn rows_are_scored_alike_from_a_file_and_as_they_arrive() {
    let folder = tempfile::tempdir().unwrap();
    let (file, run) = (tsv(&folder.path().join("clicks.tsv"), 600), folder.path().join("run"));
    succeed(&format!(
        "train --preset demo {MODEL} --data {} --steps 20 --test-fraction 0 --out {}",
        file.display(),
        run.display()
    ));
    let from_file = succeed(&format!("predict --checkpoint {} --data {}", run.display(), file.display())).stdout;
    let mut command = octorec();
    command.args(["predict", "--data", "-", "--checkpoint"]).arg(&run);
    let output = command.stdin(Stdio::from(fs::File::open(&file).unwrap())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&from_file));
    // Another model's weights lack its wide part, and the other way round.
    let weights = run.join("checkpoint.safetensors");
    let message = fail(&format!("train --preset demo --data {} --init {}", file.display(), weights.display()));
    assert!(message.contains("has no place in the model") || message.contains("has shape"), "{message}");
}

#[test]
fn the_preset_is_trained_planned_simulated_and_timed() {
    let summary = json("train --preset wide-deep --steps 200 --set data.test_samples=4000 --eval-every 0 --json");
    assert!(summary["auc"].as_f64().unwrap() > 0.55, "{summary}");
    let where_to = "--preset wide-deep --topology twisted-hypercube-8 --ranks 8 --json";
    let plan = json(&format!("plan {where_to}"));
    let tables = plan["workload"]["tables"].as_array().unwrap();
    let dims: Vec<u64> = tables.iter().map(|table| table["dim"].as_u64().unwrap()).collect();
    assert_eq!((dims.len(), dims.iter().filter(|dim| **dim == 1).count()), (26 + 26 + 3, 26 + 3));
    assert!(json(&format!("simulate {where_to}"))["points"][0]["step_ms"].as_f64().unwrap() > 0.0);
    let keys = "--rows-cap 1000 --batch 64 --repeat 2 --minibatches 2 --limit-mib 16 --json";
    assert!(json(&format!("bench step --preset wide-deep {keys}"))["roofline_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_wide_part_that_cannot_be_or_would_not_matter_is_refused() {
    for (words, told) in [
        ("--set model.wide_crosses=[[\"C1\",\"C2\"]]", "model.wide_crosses has an effect only with model.wide = true"),
        ("--set train.lr_wide=0.1", "train.lr_wide has an effect only with model.wide = true"),
        ("--set train.l1=0.1", "train.l1 has an effect only with an optimizer that is `ftrl`"),
        ("--set model.wide=true --set model.wide_crosses=[[\"C1\"]]", "a cross is of two columns or more"),
        ("--set model.wide=true --set model.wide_crosses=[[\"C1\",\"C1\"]]", "a column is there twice"),
        ("--set model.wide=true --set model.wide_crosses=[[\"C1\",\"C27\"]]", "C27"),
        ("--set model.wide=true --set model.wide_crosses=[1,2]", "a list of lists of names is expected"),
        ("--set model.wide=true --set model.wide_buckets=0", "model.wide_buckets"),
        ("--set model.wide=true --set train.optimizer_wide=lamb", "use ftrl, adagrad, sgd, momentum or adam"),
        ("--set model.bottom=[13]", "the dot interaction needs the number of dense features and at least one layer"),
    ] {
        let message = fail(&format!("train {words}"));
        assert!(message.contains(told), "{words}: {message}");
    }
}
