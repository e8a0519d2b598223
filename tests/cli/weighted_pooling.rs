//! Rows with learned weights, as a user trains them.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;

use super::{SGD, TINY, fail, json, succeed};

/// Some thousand samples, and what moves rows unless a test says otherwise.
const DATA: &str = "--optimizer sgd --optimizer-rows sgd --set data.train_samples=4000 --set data.test_samples=600";
const LEARNED: &str = "--set model.weighted_pooling=learned";

fn checkpoint(run: &Path) -> Vec<u8> {
    fs::read(run.join("checkpoint.safetensors")).unwrap()
}

/// All tensors of a checkpoint, by name.
fn tensors(file: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> =
        SafeTensors::deserialize(file).unwrap().iter().map(|(n, t)| (n.to_owned(), t.data().to_vec())).collect();
    all.sort();
    all
}

#[test]
fn a_checkpoint_has_the_names_of_the_reference_and_is_resumed_to_the_bit_on_other_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (kind, keys) in
        [("f32", "--optimizer-rows adagrad"), ("bf16", "--precision bf16"), ("row", "--optimizer-rows rowwise-adagrad")]
    {
        let line = format!("train {DATA} {TINY} {LEARNED} {keys} --determinism ranks --threads 1");
        let whole = at(&format!("{kind}-whole"));
        let summary = json(&format!("{line} --ranks 1 --steps 40 --out {} --json", whole.display()));
        let file = checkpoint(&whole);
        let found = SafeTensors::deserialize(&file).unwrap();
        for table in 0..26 {
            let rows = found.tensor(&format!("emb_l.{table}.weight")).unwrap().shape()[0];
            let weights = found.tensor(&format!("v_W_l.{table}")).unwrap();
            assert_eq!(weights.shape(), [rows]);
            let values: Vec<f32> = bytemuck::pod_collect_to_vec(weights.data());
            assert!(values.iter().any(|w| *w != 1.0), "{kind}: those of table {table} learn");
            let kept = match kind {
                "f32" => Some("sum"),
                "row" => Some("momentum"),
                _ => None,
            };
            let kept = kept.map(|what| found.tensor(&format!("state.v_W_l.{table}.{what}")).unwrap().shape().to_vec());
            assert_eq!(kept, (kind != "bf16").then(|| vec![rows]));
        }
        // Parts of a run, each on other ranks.
        let parts = at(&format!("{kind}-parts"));
        succeed(&format!("{line} --ranks 2 --steps 17 --out {}", parts.display()));
        succeed(&format!("train --resume {} --ranks 3 --steps 29", parts.display()));
        let resumed = json(&format!("train --resume {} --ranks 1 --steps 40 --json", parts.display()));
        assert_eq!(resumed["final_loss"], summary["final_loss"], "{kind}");
        assert!(tensors(&checkpoint(&parts)) == tensors(&file), "{kind}: every tensor");
        let scores = json(&format!("eval --checkpoint {} --json", whole.display()));
        assert_eq!(scores["auc"], summary["auc"], "{kind}");
        // Copies of hot rows have the weights, too.
        let copied = json(&format!("{line} --ranks 2 --steps 40 --hot exact --hot-budget 5MiB --json"));
        assert_eq!(copied["final_loss"], summary["final_loss"], "{kind}: {copied}");
    }
    // They matter, and a model without them is another.
    let plain = format!("train {DATA} {TINY} --optimizer-rows adagrad --determinism ranks --threads 1");
    let loss = |line: &str| json(&format!("{line} --ranks 1 --steps 40 --json"))["final_loss"].as_f64().unwrap();
    assert!((loss(&plain) - loss(&format!("{plain} {LEARNED}"))).abs() > 1e-7);
    let taken = format!("--steps 1 --init {}", at("f32-whole/checkpoint.safetensors").display());
    let message = fail(&format!("{plain} --ranks 1 {taken}"));
    assert!(message.contains("tensor v_W_l.") && message.contains("has no place in the model"), "{message}");
    succeed(&format!("{plain} {LEARNED} --ranks 2 {taken}"));
}

#[test]
fn plans_keep_columns_together_and_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.toml");
    let line = "plan --preset kaggle --set model.bottom=[13,64,64] --set model.dim=64 --topology twisted-hypercube-8 --ranks 8";
    let explained = |keys: &str| String::from_utf8(succeed(&format!("{line} {keys} --explain 2")).stdout).unwrap();
    assert!(explained("").contains("column in") && !explained(LEARNED).contains("column in"), "{}", explained(LEARNED));
    let told = String::from_utf8(succeed(&format!("{line} {LEARNED}")).stderr).unwrap();
    assert!(told.contains("columns of tables are not divided: model.weighted_pooling"), "{told}");
    let table = |keys: &str| json(&format!("{line} {keys} --json"))["workload"]["tables"][0].clone();
    let [before, after] = [table("--optimizer-rows adam"), table(&format!("--optimizer-rows adam {LEARNED}"))];
    let bytes = |table: &serde_json::Value| ["row_weight_bytes", "row_state_bytes"].map(|key| table[key].as_u64());
    assert_eq!((bytes(&before), bytes(&after)), ([Some(0); 2], [Some(4), Some(12)]));
    // A plan of another model divides them.
    let tiny = format!("{SGD} --set model.bottom=[13,32,8] --set model.top=[16,1] --set model.dim=8");
    let column = format!("plan {tiny} --ranks 2 --scheme column");
    succeed(&format!("{column} --out {}", path.display()));
    for line in [
        format!("{column} {LEARNED}"),
        format!("plan {tiny} --ranks 2 --plan {} {LEARNED}", path.display()),
        format!("train {DATA} {TINY} {LEARNED} --ranks 2 --threads 1 --steps 2 --plan {}", path.display()),
    ] {
        let message = fail(&line);
        assert!(message.contains("model.weighted_pooling = \"learned\" gives each row one weight"), "{message}");
        assert!(message.contains("divide it by rows"), "{message}");
    }
    let keys = "--rows-cap 1000 --batch 64 --repeat 2 --minibatches 2 --limit-mib 16 --json";
    assert!(json(&format!("bench step --preset kaggle {LEARNED} {keys}"))["roofline_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn what_cannot_go_with_learned_weights_is_refused() {
    for (words, told) in [
        ("--set model.qr_collisions=4", "values that share rows have no weight of their own"),
        ("--update serial", "use train.update = \"auto\" or \"sorted\""),
        ("--determinism none --update atomic", "use train.update = \"auto\" or \"sorted\""),
    ] {
        let message = fail(&format!("train {SGD} {LEARNED} {words}"));
        assert!(
            message.contains("model.weighted_pooling = \"learned\"") && message.contains(told),
            "{words}: {message}"
        );
    }
    let message = fail("train --set model.weighted_pooling=mean");
    assert!(message.contains("fixed") && message.contains("learned"), "{message}");
    // Of a wide part and of a time series no weight is missed.
    let wide =
        json(&format!("train {DATA} {TINY} {LEARNED} --set model.wide=true --steps 3 --ranks 2 --threads 1 --json"));
    assert!(wide["final_loss"].as_f64().unwrap().is_finite());
    let output = succeed(&format!("train {DATA} {TINY} {LEARNED} --steps 3 --ranks 1 --threads 2"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("because a row and its learned weight move once"), "{message}");
}
