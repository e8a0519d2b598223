//! `train --ranks`: one run on several ranks, its checkpoint one file that any other number of ranks continues.

use std::fs;
use std::path::Path;

use super::{criteo_sample, fail, json, succeed, tiny_training};

fn losses(path: &Path) -> Vec<f64> {
    fs::read_to_string(path).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

fn follow(alone: &[f64], others: &[f64], bound: f64, what: &str) {
    assert_eq!(alone.len(), others.len(), "{what}");
    for (step, (a, b)) in alone.iter().zip(others).enumerate() {
        assert!((a - b).abs() <= bound * a.abs(), "{what}: step {step}: {b}, not {a}");
    }
}

#[test]
fn ranks_follow_the_losses_of_one_and_continue_each_others_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let trace = |name: &str, arguments: &str| {
        let summary = json(&format!("{arguments} --trace-loss {} --json", path(name).display()));
        (losses(&path(name)), summary)
    };
    let train = tiny_training();
    let (alone, summary) = trace("alone", &train);
    for ranks in [2, 3, 5] {
        let out = path(&format!("run{ranks}"));
        let (first, _) =
            trace("first", &format!("{train} --ranks {ranks} --threads 1 --steps 20 --out {}", out.display()));
        follow(&alone[..20], &first, 1e-5, &format!("{ranks} ranks"));
        let other = 6 - ranks;
        let resume = format!("train --resume {} --steps 40 --ranks {other} --threads 1", out.display());
        let (second, ended) = trace("second", &resume);
        follow(&alone[20..], &second, 1e-4, &format!("{other} ranks after {ranks}"));
        let apart = ended["auc"].as_f64().unwrap() - summary["auc"].as_f64().unwrap();
        assert!(apart.abs() < 1e-3, "{ended} and {summary}");
        // What several ranks saved, one evaluates to the same scores.
        let scores = json(&format!("eval --checkpoint {} --json", out.display()));
        assert!((scores["auc"].as_f64().unwrap() - ended["auc"].as_f64().unwrap()).abs() < 1e-6);
    }
}

#[test]
fn tables_are_divided_as_an_edited_plan_says() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let model = "--set model.bottom=[13,32,8] --set model.top=[16,1] --set model.dim=8 --batch 64";
    succeed(&format!("plan {model} --ranks 2 --scheme row --out {}", plan.display()));
    let train = format!("{} --ranks 2 --threads 1 --plan {}", tiny_training(), plan.display());
    assert!(json(&format!("{train} --json"))["auc"].as_f64().unwrap() > 0.5);
    let message = fail(&format!("{} --ranks 3 --threads 1 --plan {}", tiny_training(), plan.display()));
    assert!(message.contains("plan.toml") && message.contains("ranks"), "{message}");
}

#[test]
fn what_looks_at_one_ranks_stages_is_refused() {
    let message = fail(&format!("{} --ranks 2 --trace never.json", tiny_training()));
    assert!(message.contains("--ranks") && message.contains("--trace"), "{message}");
}

#[test]
fn flags_of_ranks_that_would_have_no_effect_are_refused() {
    let refused = |flags: &str, named: &str| {
        let message = fail(&format!("{} {flags}", tiny_training()));
        assert!(message.contains(named), "{flags}: {message}");
    };
    refused("--comm-cores 1", "--comm-cores");
    refused("--ranks 2 --comm-cores 1 --determinism ranks", "--determinism ranks");
    refused("--ranks 2 --tuned plans.toml", "--tuned");
    refused("--loader local", "--loader");
    let message = fail("bench step --preset kaggle --ranks 2 --loader naive");
    assert!(message.contains("--loader"), "{message}");
}

#[test]
fn whoever_reads_the_data_the_run_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let generate = "--rows-cap 500 --set data.train_samples=5000 --set data.test_samples=500";
    succeed(&format!("data generate {} --format mlperf {generate}", path("data")));
    // 5000 samples are no multiple of 96, two of the ranks get a sample more, and windows end within minibatches.
    let train = "--set model.bottom=[13,16,8] --set model.top=[16,1] --set model.dim=8 --batch 96 --epochs 2 \
                 --set data.shuffle_window=1000";
    for determinism in ["run", "ranks"] {
        let run = |more: &str| {
            let name = path("trace");
            let ranks = format!("--ranks 3 --threads 1 --determinism {determinism} {more}");
            let summary = json(&format!("train --data {} {train} {ranks} --trace-loss {name} --json", path("data")));
            let read: Vec<u64> =
                summary["data_bytes_read"].as_array().unwrap().iter().map(|bytes| bytes.as_u64().unwrap()).collect();
            assert_eq!(summary["samples"], 10_000);
            assert!(summary["data_wait_seconds"].as_f64().is_some());
            (losses(Path::new(&name)), read)
        };
        let (naive, everything) = run("--loader naive");
        let (broadcast, once) = run("--loader broadcast");
        let (local, slices) = run("");
        assert_eq!(naive.len(), 2 * 53);
        assert_eq!((&broadcast, &local), (&naive, &naive), "{determinism}");
        // Two epochs of rows of 160 bytes, and what is read ahead of the end: nothing.
        assert_eq!(everything, [1_600_000; 3], "{determinism}");
        assert_eq!(once, [1_600_000, 0, 0], "{determinism}");
        assert_eq!(slices.iter().sum::<u64>(), 1_600_000, "{determinism}");
        assert!(slices.iter().all(|bytes| (350_000..700_000).contains(bytes)), "{determinism}: {slices:?}");
    }
}

#[test]
fn what_was_trained_before_data_turned_out_bad_is_saved_and_continued() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let generate = "--set model.rows=[2000,50,3] --set data.train_samples=6000 --set data.test_samples=500";
    succeed(&format!("data generate {} --format octorec --block-rows 1000 {generate}", path("data").display()));
    let blocks = fs::read_dir(path("data")).unwrap().map(|entry| entry.unwrap().path());
    let train = blocks.max_by_key(|file| fs::metadata(file).unwrap().len()).unwrap();
    let good = fs::read(&train).unwrap();
    let mut bad = good.clone();
    // In the last of six blocks.
    let place = good.len() - good.len() / 12;
    bad[place] ^= 0x55;
    let model = "--set model.bottom=[13,16,8] --set model.top=[16,1] --set model.dim=8 --batch 100 --no-shuffle";
    for ranks in [1, 3] {
        let out = path(&format!("run{ranks}"));
        fs::write(&train, &bad).unwrap();
        let data = path("data");
        let start = format!("train --data {} {model} --epochs 1 --ranks {ranks} --threads 1", data.display());
        let message = fail(&format!("{start} --out {}", out.display()));
        assert!(message.contains("block") && message.contains("saved after step 50"), "{ranks} ranks: {message}");
        fs::write(&train, &good).unwrap();
        let summary = json(&format!("train --resume {} --ranks {ranks} --threads 1 --json", out.display()));
        assert_eq!((summary["steps"].as_u64(), summary["samples"].as_u64()), (Some(60), Some(1000)), "{summary}");
    }
}

#[test]
fn steps_of_ranks_are_told_apart_by_what_they_were_for() {
    let output = succeed(&format!("{} --ranks 2 --profile --json", tiny_training()));
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ranks = results["breakdowns"]["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 2);
    let stages = results["breakdowns"]["stages"].as_array().unwrap().len();
    for rank in ranks {
        assert_eq!(rank["stages_ms"].as_array().unwrap().len(), stages);
        assert_eq!(rank["steps"], results["steps"]);
    }
    let table = String::from_utf8_lossy(&output.stderr).into_owned();
    for row in ["layers, interaction, loss", "exposed: dense gradients", "hidden: dense gradients", "packing: ids"] {
        assert!(table.contains(row), "{row}: {table}");
    }
}

#[test]
fn overlap_is_benched_against_blocking() {
    let tiny = "--set model.rows=[500,70,3] --set model.bottom=[13,32,16] --set model.top=[16,1] --batch 96";
    let output = succeed(&format!("bench overlap {tiny} --ranks 2 --repeat 3 --json"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let modes = report["rows"].as_array().unwrap();
    assert_eq!(modes.len(), 3);
    assert!(report["bytes"].as_f64().unwrap() > 0.0);
    for row in modes {
        assert!(row["step_ms"].as_f64().unwrap() > 0.0 && row["gemm_ms"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["communication_ms"].as_f64() >= row["exposed_ms"].as_f64(), "{row}");
    }
    let output = succeed(&format!("bench step {tiny} --ranks 2 --repeat 3 --json"));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["alone_ms"]["before"]["median"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn real_clicks_train_alike_on_any_number_of_ranks() {
    let Some(file) = criteo_sample() else { return };
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    // Sums in another order differ in their last bits. Sooner or later that moves a unit of an MLP over its ReLU's edge,
    // and from there on the runs part; with these rows none does within the steps that are compared.
    for (precision, bound) in [("f32", 1e-6), ("bf16", 1e-3)] {
        let run = |ranks: usize| {
            succeed(&format!(
                "train --preset kaggle --data {} --batch 128 --steps 20 --rows-cap 4000 --precision {precision} \
                 --set train.eval_every=0 --test-fraction 0 --ranks {ranks} --threads 1 --trace-loss {}",
                file.display(),
                trace.display()
            ));
            losses(&trace)
        };
        let alone = run(1);
        for ranks in [2, 3, 4, 5, 8] {
            follow(&alone, &run(ranks), bound, &format!("{ranks} ranks in {precision}"));
        }
    }
}
