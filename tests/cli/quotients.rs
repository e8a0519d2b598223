//! Columns that are looked up by quotients and remainders, as a user trains them.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;

use super::{TINY, fail, json, succeed};

/// Some thousand samples.
const DATA: &str = "--preset demo --set data.train_samples=4000 --set data.test_samples=600";
const KEYS: &str = "--set model.qr_collisions=4 --set model.qr_threshold=100";

#[test]
fn a_checkpoint_has_the_names_of_the_reference_and_is_resumed_to_the_bit_on_other_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let checkpoint = |run: &Path| fs::read(run.join("checkpoint.safetensors")).unwrap();
    let line = format!("train {DATA} {TINY} {KEYS} --determinism ranks --threads 1");
    let summary = json(&format!("{line} --ranks 1 --steps 40 --out {} --json", at("whole").display()));
    let file = checkpoint(&at("whole"));
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let config = fs::read_to_string(at("whole/config.toml")).unwrap();
    let rows: toml::Table = config.parse().unwrap();
    let rows: Vec<u64> =
        rows["model"]["rows"].as_array().unwrap().iter().map(|n| n.as_integer().unwrap() as u64).collect();
    assert!(rows.iter().any(|rows| *rows > 100) && rows.iter().any(|rows| *rows <= 100), "{rows:?}");
    for (column, rows) in rows.iter().enumerate() {
        let shape = |kind: &str| Some(tensors.tensor(&format!("emb_l.{column}.weight{kind}")).ok()?.shape()[0] as u64);
        let expected = if *rows > 100 { [None, Some(rows.div_ceil(4)), Some(4)] } else { [Some(*rows), None, None] };
        assert_eq!(["", "_q", "_r"].map(shape), expected, "column {column} of {rows} values");
    }
    succeed(&format!("{line} --ranks 2 --steps 17 --out {}", at("parts").display()));
    let resumed = json(&format!("train --resume {} --ranks 1 --steps 40 --json", at("parts").display()));
    assert_eq!(resumed["final_loss"], summary["final_loss"]);
    let scores = json(&format!("eval --checkpoint {} --json", at("whole").display()));
    assert_eq!(scores["auc"], summary["auc"]);
    // Copies of hot rows are of both tables' rows.
    let hot = at("hot.safetensors");
    let sizes = "--set model.bottom=[13,32,8] --set model.dim=8";
    let data = DATA.split_once(" --set data.test").unwrap().0;
    let inspected =
        format!("inspect --hot {data} {KEYS} {sizes} --sample 50% --hot-budget 5MiB --out {}", hot.display());
    succeed(&inspected);
    let copied = json(&format!("{line} --ranks 2 --steps 40 --hot exact --hot-set {} --json", hot.display()));
    assert_eq!(copied["final_loss"], summary["final_loss"], "{copied}");
}

#[test]
fn plans_and_predictions_know_both_tables() {
    let where_to = format!("--preset kaggle {KEYS} --topology twisted-hypercube-8 --ranks 8 --json");
    let plan = json(&format!("plan {where_to}"));
    let tables = plan["workload"]["tables"].as_array().unwrap();
    let named = |name: &str| tables.iter().find(|table| table["name"] == name).unwrap()["rows"].as_u64();
    assert!(tables.len() > 26, "{}", tables.len());
    assert_eq!(named("C3 mod 4"), Some(4));
    let plain = json("plan --preset kaggle --topology twisted-hypercube-8 --ranks 8 --json");
    let rows = plain["workload"]["tables"][2]["rows"].as_u64().unwrap();
    assert_eq!(named("C3 / 4"), Some(rows.div_ceil(4)));
    assert!(json(&format!("simulate {where_to}"))["points"][0]["step_ms"].as_f64().unwrap() > 0.0);
    let keys = "--rows-cap 1000 --batch 64 --repeat 2 --minibatches 2 --limit-mib 16 --json";
    assert!(json(&format!("bench step --preset kaggle {KEYS} {keys}"))["roofline_ms"].as_f64().unwrap() > 0.0);
}

#[test]
fn quotients_that_cannot_be_or_would_not_matter_are_refused() {
    for (words, told) in [
        ("--set model.qr_operation=add", "model.qr_operation has an effect only with model.qr_collisions above 0"),
        ("--set model.qr_collisions=1", "model.qr_collisions = 1 must lie in 0 or [2, 2^20]"),
        ("--set model.qr_collisions=4 --set model.wide=true", "leave one away"),
        ("--set model.qr_collisions=4 --set model.md_temperature=0.2", "leave one away"),
        (
            "--set model.qr_collisions=4 --set model.qr_operation=concat --set model.dim=7 --set model.bottom=[13,7]",
            "an even number of columns",
        ),
    ] {
        let message = fail(&format!("train {words}"));
        assert!(message.contains(told), "{words}: {message}");
    }
}
