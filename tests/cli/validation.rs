//! Validation samples: evaluations are made on them, and the test samples are scored once, by the model that is kept.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{fail, json, octorec, succeed, tiny_training};

/// Clicks of twenty users: even ones click, from row 500 on the others. The last 1,000 of 5,000 rows are 600 for
/// validation, in which even ones click, and 400 for tests, in which the others do.
fn clicks() -> String {
    let even = |n: usize| n < 500 || (4000..4600).contains(&n);
    let row = |n: usize| format!("{},u{},{}\n", u8::from(n.is_multiple_of(2) == even(n)), n % 20, n % 7);
    "clicked,user,price\n".to_owned() + &(0..5000).map(row).collect::<String>()
}

/// Keys of 80 steps, with an evaluation every four, on such clicks in a folder.
pub const STEPS: &str = "--set model.bottom=[0,16,8] --set model.top=[32,1] --set model.dim=8 --set model.interaction=cat \
                         --batch 50 --optimizer adagrad --optimizer-rows adagrad --lr 0.1 --no-shuffle --threads 1 \
                         --steps 80 --eval-every 4";

/// What names the clicks, which are written to the folder.
pub fn text(folder: &Path) -> String {
    fs::write(folder.join("clicks.csv"), clicks()).unwrap();
    let schema = "label = \"clicked\"\n[[dense]]\ncolumn = \"price\"\n[[categorical]]\ncolumn = \"user\"\n";
    fs::write(folder.join("clicks.toml"), schema).unwrap();
    format!("--data {0}/clicks.csv --schema {0}/clicks.toml", folder.display())
}

/// How they are parted.
pub const SHARES: &str = "--validation-fraction 0.12 --test-fraction 0.08";

/// The evaluations that a run has logged on the samples of a split.
fn logged(out: &Path, split: &str) -> Vec<Value> {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.filter(|entry| entry["kind"] == "eval" && entry["split"] == split).collect()
}

/// Steps and AUC of these.
fn scores(found: &[Value]) -> Vec<(u64, f64)> {
    found.iter().map(|entry| (entry["step"].as_u64().unwrap(), entry["auc"].as_f64().unwrap())).collect()
}

/// The first of those with the highest AUC.
fn best_of(found: &[(u64, f64)]) -> (u64, f64) {
    found.iter().copied().reduce(|best, next| if next.1 > best.1 { next } else { best }).unwrap()
}

fn eval_auc(out: &Path, flags: &str) -> Value {
    json(&format!("eval --checkpoint {} --threads 1 --json {flags}", out.display()))["auc"].clone()
}

/// Where a run ended, and its scores.
fn end(results: &Value) -> Vec<Value> {
    let keys = ["outcome", "step", "auc", "validation_auc", "best_step", "best_auc", "best_validation_auc"];
    keys.iter().map(|key| results[key].clone()).collect()
}

#[test]
fn the_best_model_is_chosen_by_validation_samples_and_tested_once() {
    let folder = tempfile::tempdir().unwrap();
    let (data, out) = (text(folder.path()), folder.path().join("run"));
    let blocks = folder.path().join("blocks").display().to_string();
    let file = folder.path().join("clicks").display().to_string();
    succeed(&format!("preprocess csv --in {file}.csv --schema {file}.toml --out {blocks} --split fraction {SHARES}"));
    for data in [format!("{data} {SHARES} --ranks 1"), format!("--data {blocks} --ranks 2")] {
        let output = succeed(&format!("train {data} {STEPS} --keep-best --out {} --force --json", out.display()));
        let said = String::from_utf8(output.stderr).unwrap();
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(said.contains("4,000 training, 600 validation and 400 test samples"), "{said}");
        let (validated, tested) = (scores(&logged(&out, "validation")), logged(&out, "test"));
        assert_eq!(
            validated.iter().map(|(step, _)| *step).collect::<Vec<_>>(),
            (4..=80).step_by(4).collect::<Vec<_>>()
        );
        let (step, auc) = best_of(&validated);
        assert!(step < 80 && auc > 0.6 && validated[19].1 < 0.4, "{validated:?}");
        assert_eq!((&results["best_step"], &results["best_validation_auc"]), (&step.into(), &auc.into()));
        assert_eq!(results["validation_auc"], validated[19].1);
        // By test samples the last model would be the best.
        assert_eq!((tested.len(), &tested[0]["step"], &tested[0]["best_step"]), (1, &80.into(), &step.into()));
        assert!(tested[0]["auc"].as_f64().unwrap() < 0.4 && tested[0]["samples"] == 400, "{tested:?}");
        assert_eq!([&results["auc"], &results["best_auc"]], [&tested[0]["auc"]; 2]);
        let best = out.join("best");
        for (run, flags, auc) in [
            (&best, "", &results["auc"]),
            (&best, "--split test", &results["auc"]),
            (&best, "--split validation", &results["best_validation_auc"]),
            (&out, "--split validation", &results["validation_auc"]),
        ] {
            assert_eq!(eval_auc(run, flags), *auc, "{} {flags}", run.display());
        }
        assert!(eval_auc(&out, "").as_f64().unwrap() > 0.6);
        let train = json(&format!("eval --checkpoint {} --split train --json", out.display()));
        assert_eq!(train["samples"], 4000);
        assert!(said.contains("step 4: validation AUC "), "{said}");
        assert!(said.contains(&format!("step {step}: test AUC 0.")) && said.matches("test AUC").count() == 1, "{said}");
        assert!(said.contains("best: validation AUC "), "{said}");
    }
    // The data say themselves which samples are for validation.
    let message = fail(&format!("train --data {blocks} {STEPS} --validation-fraction 0.1"));
    assert!(message.contains("--validation-fraction") && message.contains("say which samples"), "{message}");
    // Without a best model it is the last one that is tested.
    let last = json(&format!("train {data} {SHARES} {STEPS} --out {} --force --json", out.display()));
    assert_eq!((&eval_auc(&out, ""), &last["best_auc"]), (&last["auc"], &Value::Null));
    // Evaluations may be made on test samples, and are then logged as where there are no others.
    let by_tests = format!("train {data} {SHARES} {STEPS} --set train.eval_split=test --keep-best --json");
    let output = succeed(&format!("{by_tests} --out {} --force", out.display()));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("validation samples are left unused") && said.contains("step 4: test AUC "), "{said}");
    assert!(results["best_step"].as_u64().unwrap() > 8 && results["validation_auc"].is_null(), "{results}");
    assert!(logged(&out, "validation").is_empty() && logged(&out, "test").is_empty());
}

#[test]
fn runs_that_validation_samples_end_go_on_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let checkpoint = |out: &Path| fs::read(out.join("checkpoint.safetensors")).unwrap();
    let line = format!("train {} {SHARES} {STEPS} --patience 3", text(folder.path()));
    let whole = at("whole");
    let output = succeed(&format!("{line} --out {} --json", whole.display()));
    let expected: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no better validation AUC in 3 evaluations since step"), "{said}");
    let (step, _) = best_of(&scores(&logged(&whole, "validation")));
    assert_eq!((&expected["outcome"], &expected["step"]), (&"no-improvement".into(), &(step + 12).into()));
    let again = |out: &Path| {
        let results = json(&format!("train --resume {} --steps 80 --json", out.display()));
        assert_eq!(end(&results), end(&expected), "{}", out.display());
        assert!(checkpoint(out) == checkpoint(&whole), "{}", out.display());
        assert_eq!(eval_auc(&out.join("best"), "--split validation"), expected["best_validation_auc"]);
        assert_eq!(scores(&logged(out, "validation")), scores(&logged(&whole, "validation")));
        let at_end = |entry: &Value| entry["step"] == expected["step"];
        assert_eq!(logged(out, "test").iter().filter(|entry| at_end(entry)).count(), 1, "it is logged once");
    };
    let parts = at("parts");
    succeed(&format!("{line} --steps 8 --out {}", parts.display()));
    again(&parts);
    // One that has ended stays as it is.
    again(&whole);
    // By other samples than before the best model is looked for anew.
    let output = succeed(&format!("train --resume {} --set train.eval_split=test --json", parts.display()));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("evaluations were made on samples of another kind before"), "{said}");
    assert!(results["best_step"].as_u64() > expected["step"].as_u64(), "{results}");
    assert_eq!(eval_auc(&parts.join("best"), ""), results["best_auc"]);
    // Samples for validation that have changed are no longer the run's.
    let changed = clicks().lines().take(4990).map(|line| line.to_owned() + "\n").collect::<String>();
    fs::write(at("clicks.csv"), changed).unwrap();
    let message = fail(&format!("eval --checkpoint {} --split validation", whole.display()));
    assert!(message.contains("others, or have changed or grown since"), "{message}");
}

#[test]
fn a_run_that_has_reached_its_target_stays_there_also_where_its_test_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let checkpoint = |out: &Path| fs::read(out.join("checkpoint.safetensors")).unwrap();
    let data = text(folder.path());
    let learned: String = clicks().lines().take(4601).map(|line| line.to_owned() + "\n").collect();
    fs::write(at("clicks.csv"), learned).unwrap();
    // Tests that take a while.
    let row = |n: usize| format!("{},u{},{}\n", n % 2, n % 20, n % 7);
    fs::write(at("tests.csv"), "clicked,user,price\n".to_owned() + &(0..200_000).map(row).collect::<String>()).unwrap();
    for by in ["auc", "logloss"] {
        let out = at(by);
        let line = format!(
            "train {data} --test-data {}/tests.csv --validation-fraction 0.13 {STEPS} --target-auc 0.6 --keep-best --json \
             --set train.best_by={by} --out {} --auto-resume",
            folder.path().display(),
            out.display()
        );
        let mut run = octorec();
        let run = run.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        let reached = || {
            let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
            let mut entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            entries.any(|entry| entry["split"] == "validation" && entry["auc"].as_f64() >= Some(0.6))
        };
        while !reached() {
            assert!(began.elapsed() < Duration::from_secs(60), "the target is reached");
            sleep(Duration::from_millis(2));
        }
        let id = Pid::from_raw(i32::try_from(run.id()).unwrap()).unwrap();
        // It may have ended.
        let _ = kill_process(id, Signal::INT);
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        let first: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(first["outcome"], "target-reached");
        let told = "the test samples are not scored, since the user has interrupted: octorec eval --checkpoint";
        assert_eq!(first["auc"].is_null(), said.contains(told), "{said}");
        let before = checkpoint(&out);
        let again = json(&line);
        assert_eq!([&again["outcome"], &again["steps"]], [&"target-reached".into(), &Value::from(0)]);
        assert_eq!([&again["step"], &again["validation_auc"]], [&first["step"], &first["validation_auc"]]);
        assert!(again["auc"].is_number() && checkpoint(&out) == before, "{again}");
        let on = json(&format!("train --resume {} --target-auc 0 --json", out.display()));
        assert_eq!([&on["outcome"], &on["step"]], [&"finished".into(), &Value::from(80)]);
    }
}

#[test]
fn what_a_run_has_found_and_kept_outlives_a_resumption_that_trains_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line = format!("train {} {SHARES} {STEPS} --keep-best --out {}", text(folder.path()), out.display());
    let first = json(&format!("{line} --json"));
    assert!(first["best_step"].as_u64() < Some(80), "{first}");
    let best = out.join("best/checkpoint.safetensors");
    let kept = fs::read(&best).unwrap();
    let again = |flags: &str| {
        let output = succeed(&format!("train --resume {} --json {flags}", out.display()));
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!([&results["outcome"], &results["steps"]], [&"already-finished".into(), &Value::from(0)]);
        (results, String::from_utf8(output.stderr).unwrap())
    };
    // A best model that cannot be read.
    let mut damaged = kept.clone();
    *damaged.last_mut().unwrap() ^= 0x55;
    fs::write(&best, damaged).unwrap();
    let (results, said) = again("");
    assert_eq!([&results["validation_auc"], &results["auc"]], [&first["validation_auc"], &Value::Null]);
    assert!(said.contains("the test samples are not scored: ") && said.contains("best/checkpoint"), "{said}");
    // By other samples the last model is no better than one that nobody has scored by them.
    fs::write(&best, &kept).unwrap();
    let (results, said) = again("--set train.eval_split=test");
    assert!(said.contains("evaluations were made on samples of another kind before"), "{said}");
    assert_eq!(results["best_step"], 80);
    assert!(fs::read(&best).unwrap() == kept, "it is still there");
}

/// What the process of a search's best trial told at its end.
fn json_of_best(report: &Value) -> Value {
    let best = report["trials"].as_array().unwrap().iter().find(|trial| trial["trial"] == report["best"]).unwrap();
    serde_json::from_str(&fs::read_to_string(format!("{}.json", best["run"].as_str().unwrap())).unwrap()).unwrap()
}

#[test]
fn searches_and_mlperfs_log_go_by_validation_samples() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let data = text(folder.path());
    fs::write(at("space.toml"), "[train]\nlr = { choices = [0.03, 0.0001] }\n").unwrap();
    let line = format!("search --space {} --out {} --trials 2 --json", at("space.toml"), at("search"));
    let report = json(&format!("{line} {data} {SHARES} {STEPS}"));
    for trial in report["trials"].as_array().unwrap() {
        let run = Path::new(trial["run"].as_str().unwrap());
        let (validated, tested) = (scores(&logged(run, "validation")), logged(run, "test"));
        assert_eq!((&trial["auc"], tested.len()), (&validated.last().unwrap().1.into(), 1), "{trial}");
        assert_eq!(trial["evaluations"], validated.len());
    }
    // The search is over: what is told of it says which samples are which.
    let told = succeed(&format!("{line} {data} {SHARES} {STEPS}").replace(" --json", ""));
    let (table, said) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    let auc = json_of_best(&report)["auc"].as_f64().unwrap();
    assert!(table.contains("validation AUC"), "{table}");
    assert!(fs::read_to_string(at("search/search.html")).unwrap().contains("<th>validation AUC</th>"));
    assert!(said.contains(&format!(", with test AUC {auc:.5}; its config.toml")), "{said}");
    succeed(&format!("train {data} {SHARES} {STEPS} --mllog {}", at("log")));
    let log = fs::read_to_string(at("log")).unwrap();
    let event = |key: &str| log.lines().filter(|line| line.contains(&format!("\"{key}\""))).collect::<Vec<_>>();
    assert!(event("eval_samples")[0].contains("\"value\":600") && event("eval_accuracy").len() == 20, "{log}");
    assert!(log.lines().last().unwrap().contains("run_stop"), "{log}");
}

#[test]
fn a_split_that_is_not_there_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (data, run) = (text(folder.path()), folder.path().join("run").display().to_string());
    let message = fail(&format!("train {data} {STEPS} --validation-fraction 0.6 --test-fraction 0.5"));
    assert!(
        message.contains("--validation-fraction") && message.contains("more than all samples together"),
        "{message}"
    );
    let message = fail(&format!("train {data} {STEPS} --set train.eval_split=validation"));
    assert!(
        message.contains("train.eval_split") && message.contains("keep some with --validation-fraction"),
        "{message}"
    );
    succeed(&format!("train {data} {STEPS} --steps 4 --out {run}"));
    let message = fail(&format!("eval --checkpoint {run} --split validation"));
    assert!(message.contains("--split validation: these data have no validation samples"), "{message}");
    let message = fail(&format!("eval --checkpoint {run} --split test --data {}/clicks.csv", folder.path().display()));
    assert!(message.contains("--split test: these data have no test samples"), "{message}");
    let message = fail(&format!("train {data} {STEPS} --validation-fraction 0.5 --test-fraction 0.5"));
    assert!(message.contains("--validation-fraction") && message.contains("--test-fraction"), "{message}");
    // Without test samples those that there are can be scored.
    let shares = "--validation-fraction 0.2 --test-fraction 0";
    succeed(&format!("train {data} {STEPS} {shares} --steps 4 --out {run} --force"));
    let message = fail(&format!("eval --checkpoint {run}"));
    assert!(
        message.contains("kept no test samples: score its validation samples with --split validation"),
        "{message}"
    );
    assert_eq!(json(&format!("eval --checkpoint {run} --split validation --json"))["samples"], 1000);
    // Generated data have parts as well.
    succeed(&format!("{} --steps 2 --out {run} --force", tiny_training()));
    assert_eq!(json(&format!("eval --checkpoint {run} --split train --json"))["samples"], 2560);
}
