//! What an error or a warning tells to do works when it is done, and what is asked for first works without flags.

use std::fs;

use super::{ONE_EPOCH, TINY, fail, json, run, succeed, tiny_training, tsv};

#[test]
fn benches_of_steps_need_no_preset_and_name_the_one_that_they_take() {
    let small = "--batch 16 --repeat 1";
    let step = format!("bench step {small} --minibatches 1 --limit-mib 16 --threads 1");
    let [own, named] = ["", "--preset kaggle"].map(|preset| json(&format!("{step} --rows-cap 100 {preset} --json")));
    assert!(own["layer_parameters"].is_number() && own["layer_parameters"] == named["layer_parameters"], "{own}");
    succeed(&format!("bench overlap {small} --ranks 2"));
    for bench in ["step", "overlap"] {
        let help = String::from_utf8(succeed(&format!("bench {bench} --help")).stdout).unwrap();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            help.contains("default: kaggle, or demo where model.rows is set; with --config: the plain defaults"),
            "{help}"
        );
    }
    let help = String::from_utf8(succeed("train --help").stdout).unwrap();
    assert!(help.contains("--preset") && !help.contains("default: kaggle"), "{help}");
    // A preset whose tables have the sizes that data give them.
    for preset in ["demo", "dcnv2-small"] {
        let message = fail(&format!("{step} --preset {preset}"));
        assert!(message.contains("model.rows: ") && message.contains("--preset kaggle"), "{message}");
        assert!(message.contains("--set model.rows=[1000,500]"), "{message}");
    }
    succeed(&format!("{step} --preset demo --set model.rows=[1000,500]"));
}

#[test]
fn a_model_without_a_bottom_mlp_is_told_what_takes_dense_features() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("clicks.tsv"), 200);
    let train = format!("train --data {} --test-fraction 0 --steps 1 --threads 1", data.display());
    let message = fail(&format!("{train} --set model.bottom=[]"));
    let told = "the data has 13 dense features but model.bottom is [], which takes none: set it to [0, 16], ";
    assert!(message.contains(told), "{message}");
    succeed(&format!("{train} --set model.bottom=[0,16]"));
}

#[test]
fn an_update_that_the_optimizer_rules_out_is_told_before_what_would_go_with_another_one() {
    let train = format!("{} --steps 2 --threads 1 --update atomic", tiny_training());
    let message = fail(&format!("{train} --optimizer-rows adagrad"));
    assert!(message.contains("train.optimizer_rows = \"sgd\"") && !message.contains("race-free"), "{message}");
    let message = fail(&train);
    assert!(message.contains("--determinism none"), "{message}");
    succeed(&format!("{train} --determinism none"));
}

#[test]
fn hot_rows_of_a_plan_take_no_budget() {
    let output = run("plan --topology two-socket --preset demo --hot 64MiB");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && message.contains("unexpected argument '64MiB'"), "{message}");
}

#[test]
fn a_warm_up_that_outlasts_the_run_or_a_trial_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let told = |line: &str| String::from_utf8(succeed(line).stderr).unwrap();
    let train = |steps: u64| told(&format!("{} --set train.warmup_steps={steps}", tiny_training()));
    let long = train(40);
    assert!(long.contains("warning: the rate rises until step 40, and the run has 40 steps"), "{long}");
    assert!(long.contains("--set train.warmup_steps=0 leaves the warm-up away"), "{long}");
    let short = train(39);
    assert!(!short.contains("warm-up"), "{short}");
    // A preset's, which is for longer runs, beside a file that has other keys.
    let preset = ONE_EPOCH.replace("--preset demo", "--preset mlperf-v1");
    let preset = told(&format!("train {preset} {TINY} --rows-cap 100 --threads 1"));
    assert!(!preset.contains("warm-up") && !preset.contains("the rate decays"), "{preset}");
    let search = |to: u64| {
        let space = at(&format!("{to}.toml"));
        fs::write(&space, format!("[train]\nwarmup_steps = {{ from = 0, to = {to} }}\n")).unwrap();
        told(&format!("search {ONE_EPOCH} {TINY} --threads 1 --space {space} --out {} --trials 1", at(&to.to_string())))
    };
    let long = search(50);
    let warning = "50.toml:2: train.warmup_steps goes up to 50, and a trial has 40 steps: with 40 or more";
    assert!(long.contains(warning), "{long}");
    let short = search(39);
    assert!(!short.contains("warm-up"), "{short}");
    // One that all trials have, from a file; that of rows is searched over.
    let base = include_str!("../fixtures/one-epoch.toml").to_owned() + "warmup_steps = 40\n";
    fs::write(at("base.toml"), base).unwrap();
    fs::write(at("rows.toml"), "[train]\nwarmup_steps_rows = { from = 0, to = 9 }\n").unwrap();
    let [base, space, out] = ["base.toml", "rows.toml", "all"].map(at);
    let base = format!("--preset demo --config {base} {TINY} --threads 1");
    let long = told(&format!("search {base} --space {space} --out {out} --trials 1"));
    let warning =
        "warning: the rate of layers rises until step 40, and a trial has 40 steps, so that all of it is warm-up";
    assert!(long.contains(warning) && long.contains("below 40 ends it within a trial"), "{long}");
    assert!(!long.contains("the rate of rows") && !long.contains("goes up to"), "{long}");
    // Nobody can count the steps on data that a model does not fit, and every trial has another model.
    let data = tsv(&folder.path().join("clicks.tsv"), 400);
    let text = "[model]\nbottom = { choices = [[13, 8], [13, 9, 8]] }\n[train]\nwarmup_steps = { from = 0, to = 9 }\n";
    fs::write(at("bottom.toml"), text).unwrap();
    let other = format!("--data {} --test-fraction 0.4 --epochs 1", data.display());
    let base =
        "--set model.bottom=[5,8] --set model.top=[8,1] --set model.dim=8 --set train.evals_per_epoch=0 --batch 64";
    let (space, out) = (at("bottom.toml"), at("fits"));
    succeed(&format!("search {other} {base} --threads 1 --space {space} --out {out} --trials 1"));
}
