//! Models learn: the built-in log and, where it is present, the real sample.

use super::{criteo_sample, fail, json, succeed, tiny_training};

#[test]
fn the_built_in_log_is_learned_towards_its_ceiling() {
    let line = "train --epochs 1 --set data.train_samples=40000 --set data.test_samples=10000 --eval-every 0 --json";
    let summary = json(line);
    let (auc, best) = (summary["auc"].as_f64().unwrap(), summary["best_possible_auc"].as_f64().unwrap());
    // Four seeds reach 0.7208 to 0.7239.
    assert!(auc > 0.715, "AUC {auc}");
    assert!(auc < best && best > 0.78 && best < 0.85, "AUC {auc}, best possible {best}");
}

/// One seed of the recipe whose five-seed mean in PyTorch is 0.719 (sd 0.005) with log loss 0.476.
#[test]
fn the_real_sample_reaches_the_auc_of_pytorch() {
    let Some(file) = criteo_sample() else { return };
    let summary = json(&format!(
        "train --data {} --preset kaggle --batch 128 --lr 0.1 --test-fraction 0.2 --no-shuffle --seed 1 --json",
        file.display()
    ));
    let (auc, logloss) = (summary["auc"].as_f64().unwrap(), summary["logloss"].as_f64().unwrap());
    assert!((0.705..0.735).contains(&auc), "AUC {auc}");
    assert!((0.468..0.484).contains(&logloss), "log loss {logloss}");
    assert_eq!(summary["steps"], 500);
    assert_eq!(summary["samples"], 64_000);
}

#[test]
fn the_summary_has_the_promised_keys() {
    let summary = json(&format!("{} --json", tiny_training()));
    for key in [
        "auc",
        "pr_auc",
        "logloss",
        "normalised_entropy",
        "accuracy",
        "steps",
        "samples",
        "seconds",
        "samples_per_s",
        "final_loss",
    ] {
        assert!(summary[key].is_number(), "{key}: {summary}");
    }
    assert_eq!((summary["steps"].as_u64(), summary["samples"].as_u64()), (Some(40), Some(2560)));
}

#[test]
fn scores_are_of_all_samples_whatever_ranks_and_threads_have_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let summary = json(&format!("{} --determinism ranks --out {} --json", tiny_training(), out.display()));
    let eval = format!("eval --checkpoint {} --gauc C5 --by C3", out.display());
    let scores = |ranks: usize, threads: usize| {
        json(&format!("{eval} --calibration-buckets 6 --ranks {ranks} --threads {threads} --json"))
    };
    let one = scores(1, 1);
    for (ranks, threads) in [(1, 2), (2, 1), (3, 2), (5, 1)] {
        assert_eq!(scores(ranks, threads), one, "{ranks} ranks of {threads} threads");
    }
    for key in ["auc", "best_possible_auc", "pr_auc", "logloss", "normalised_entropy", "accuracy", "calibration"] {
        assert_eq!(one[key], summary[key], "{key}");
    }
    let buckets = one["calibration_buckets"].as_array().unwrap();
    let samples = |value: &serde_json::Value| value.as_u64().unwrap();
    assert_eq!(buckets.iter().map(|bucket| samples(&bucket["samples"])).sum::<u64>(), 640);
    assert!(buckets.len() > 3 && buckets.is_sorted_by_key(|bucket| bucket["probability"].as_f64()), "{buckets:?}");
    let parts = ["gauc_samples", "gauc_samples_of_one_class", "gauc_samples_without_group"];
    assert_eq!(parts.iter().map(|part| samples(&one[*part])).sum::<u64>(), 640);
    assert!((0.3..0.8).contains(&one["gauc"].as_f64().unwrap()) && samples(&one["gauc_groups"]) > 1, "{one}");
    // Of each value's samples, those with the most first; together they are all.
    let values = one["by_value"]["values"].as_array().unwrap();
    assert!(values.len() > 20 && one["by_value"]["count"].as_u64() == Some(values.len() as u64), "{one}");
    assert!(values.is_sorted_by_key(|value| std::cmp::Reverse(samples(&value["samples"]))), "{values:?}");
    assert_eq!(values.iter().map(|value| samples(&value["samples"])).sum::<u64>(), 640);
    let mean = |key: &str| {
        let of = |value: &serde_json::Value| value[key].as_f64().unwrap() * samples(&value["samples"]) as f64;
        values.iter().map(of).sum::<f64>() / 640.0
    };
    for key in ["logloss", "label_rate"] {
        assert!((mean(key) - one[key].as_f64().unwrap()).abs() < 1e-9, "{key}: {one}");
    }
    // One column groups samples for both, and nothing tells another one of the same.
    let both = json(&format!("{} --calibration-buckets 6 --json", eval.replace("--gauc C5", "--gauc C3")));
    assert!(both["by_value"] == one["by_value"] && both["gauc"] != one["gauc"], "{both}");
    // Ten buckets unless told otherwise, in JSON alone.
    let plain = json(&format!("{} --json", eval.replace(" --gauc C5 --by C3", "")));
    assert!(plain["calibration_buckets"].as_array().unwrap().len() <= 10 && plain.get("gauc").is_none(), "{plain}");
    assert!(plain.get("by_value").is_none(), "{plain}");
    let told = |line: &str| String::from_utf8(succeed(line).stdout).unwrap();
    let table = told(&format!("{eval} --calibration-buckets 6"));
    assert!(table.contains("probabilities ") && table.contains("left out: ") && table.contains("NE  "), "{table}");
    let more = format!("and {} more value", values.len() - 20);
    assert!(
        table.contains("label rate") && table.contains(&more) && table.matches("\n  row ").count() == 20,
        "{table}"
    );
    assert!(!told(&eval).contains("probabilities "));
    for (flag, column) in [("--gauc", "C5"), ("--by", "C3")] {
        let wrong = column.to_lowercase();
        let message = fail(&eval.replace(&format!("{flag} {column}"), &format!("{flag} {wrong}")));
        let told = [flag, &format!("is called {wrong}"), "C2, C3, C4, C5, C6"];
        assert!(told.iter().all(|words| message.contains(words)), "{message}");
    }
}

#[test]
fn a_target_ends_the_run_early() {
    let line = format!("{} --eval-every 10 --target-auc 0.01 --json", tiny_training());
    let output = succeed(&line);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["steps"], 10);
    assert_eq!(summary["outcome"], "target-reached");
    assert!(String::from_utf8_lossy(&output.stderr).contains("reached AUC 0.01 after"));
}

#[test]
fn a_run_tells_what_its_end_gives_to_doubt() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").display().to_string();
    let told = |words: &str| {
        let output = succeed(&format!("{} {words}", tiny_training()));
        String::from_utf8(output.stderr).unwrap()
    };
    let doubts = ["was not reached", "normalised entropy is", "best: ", "log loss was", "holds all", "times the odds"];
    let said = told("--eval-every 10");
    assert!(doubts.iter().all(|doubt| !said.contains(doubt)), "{said}");
    // At such a rate nothing is learned, whatever chance gave at first.
    let rash = "--lr 3 --steps 5 --eval-every 1 --target-auc 0.99";
    let said = told(rash);
    assert!(said.contains("train.target_auc = 0.99 was not reached\n"), "{said}");
    assert!(said.contains("above 1: these probabilities are worse than the mean label"), "{said}");
    assert!(said.contains("; nothing is saved (a new run with --out DIR --keep-best keeps the best)"), "{said}");
    let said = told(&format!("{rash} --out {out}"));
    assert!(said.contains("best: test AUC 0.") && said.contains("; the last model is the one that is saved"), "{said}");
    // The remedy.
    let said = told(&format!("{rash} --out {out} --force --keep-best"));
    assert!(said.contains(&format!("kept: octorec eval --checkpoint {out}/best")), "{said}");
    // A run that has reached its target stands there.
    let aim = rash.replace(" --target-auc 0.99", "");
    let best = json(&format!("{} {aim} --json", tiny_training()))["best_auc"].as_f64().unwrap();
    let said = told(&format!("{aim} --target-auc {} --out {out} --force", best - 1e-9));
    assert!(said.contains("reached AUC"), "{said}");
    let said = String::from_utf8(succeed(&format!("train --resume {out}")).stderr).unwrap();
    assert!(said.contains("the run stands where it has reached AUC 0.") && !said.contains("was not reached"), "{said}");
    // Learned by heart.
    let long = "--optimizer adam --optimizer-rows adam --lr 0.01 --steps 120 --eval-every 20";
    let said = told(long);
    assert!(
        said.contains("the test log loss was 0.") && said.contains("DIR --keep-best --set train.best_by=logloss"),
        "{said}"
    );
    let said = told(&format!("{long} --out {out} --force --keep-best --set train.best_by=logloss"));
    assert!(said.contains("best: test log loss 0.") && !said.contains("log loss was"), "{said}");
    let said = told("--batch 5000 --epochs 2");
    assert!(said.contains("a minibatch of 5,000 holds all 2,560 training samples"), "{said}");
    // What a loss that weighs classes does to probabilities is told wherever they are scored.
    let said = told(&format!("--set model.loss=wbce --set model.loss_weights=[1,100] --out {out} --force"));
    let scored = String::from_utf8(succeed(&format!("eval --checkpoint {out} --json")).stderr).unwrap();
    for said in [said, scored] {
        assert!(said.contains("100 times the odds of clicks") && said.contains("add -4.6052 to each logit"), "{said}");
        assert!(!said.contains("normalised entropy is"), "{said}");
    }
    assert!(!told("--set model.loss=wbce --set model.loss_weights=[2,2]").contains("times the odds"));
}

#[test]
fn a_profile_names_every_stage_and_a_trace_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let output = succeed(&format!("{} --steps 3 --profile --json --trace {}", tiny_training(), trace.display()));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let profiled = results["profile"]["stages"].as_array().unwrap();
    // One rank exchanges nothing and waits for nobody.
    let names = [
        "look up rows",
        "bottom MLP",
        "interaction",
        "top MLP",
        "loss",
        "back top MLP",
        "back interaction",
        "back bottom MLP",
        "update rows",
        "update MLPs",
    ];
    let found: Vec<_> = profiled.iter().map(|row| row["stage"].as_str().unwrap()).collect();
    assert!(results["auc"].is_number() && found == names, "{results}");
    for (name, row) in names.iter().zip(profiled) {
        assert!(message.contains(name), "{message}");
        assert!(row["ms"].as_f64().unwrap() > 0.0 && row["ratio"].as_f64().unwrap() > 0.0, "{row}");
    }
    // With AMX, f32 have two peaks.
    let limits = if octorec::simd::Isa::best().amx_thirds().is_some() { 5 } else { 4 };
    assert_eq!(results["profile"]["limits"].as_array().unwrap().len(), limits);
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |cat: &str| events.iter().filter(|event| event["cat"] == cat).count();
    assert_eq!(count("step"), 3);
    for name in names {
        assert!(events.iter().filter(|event| event["name"] == name).count() >= 3, "{name}");
    }
    assert!(count("data") >= 3);
}
