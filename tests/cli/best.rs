//! Training that ends when tests get no better, and the best model, which is kept: by a kill and a wish to stop, too.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{fail, json, octorec, succeed, tiny_training};

/// Evaluations that are waited for.
const PATIENCE: usize = 3;

/// Clicks of twenty users; even ones click, and from row `turns` on the others.
fn clicks(rows: usize, turns: usize) -> String {
    let row = |n: usize| format!("{},u{},{}\n", u8::from(n.is_multiple_of(2) == (n < turns)), n % 20, n % 7);
    "clicked,user,price\n".to_owned() + &(0..rows).map(row).collect::<String>()
}

/// A training of 80 steps on users who change their minds after 20, tested by users who do not, every four steps.
fn training(folder: &Path) -> String {
    let at = |name: &str| folder.join(name);
    fs::write(at("clicks.csv"), clicks(4000, 1000)).unwrap();
    fs::write(at("tests.csv"), clicks(400, 400)).unwrap();
    let schema = "label = \"clicked\"\n[[dense]]\ncolumn = \"price\"\n[[categorical]]\ncolumn = \"user\"\n";
    fs::write(at("clicks.toml"), schema).unwrap();
    let model = "--set model.bottom=[0,8,4] --set model.top=[8,1] --set model.dim=4 --batch 50 --optimizer adagrad \
                 --optimizer-rows adagrad --lr 0.03 --no-shuffle --threads 1 --set train.decay_steps=0";
    let data = ["clicks.csv", "tests.csv", "clicks.toml"].map(|name| at(name).display().to_string());
    let [data, tests, schema] = data;
    format!("train --data {data} --test-data {tests} --schema {schema} {model} --steps 80 --eval-every 4")
}

/// The evaluations of a run: steps and test AUC.
fn evaluations(out: &Path) -> Vec<(u64, f64)> {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found = entries.filter(|entry| entry["kind"] == "eval");
    found.map(|entry| (entry["step"].as_u64().unwrap(), entry["auc"].as_f64().unwrap())).collect()
}

/// The first of those with the highest AUC.
fn best_of(found: &[(u64, f64)]) -> (u64, f64) {
    found.iter().copied().reduce(|best, next| if next.1 > best.1 { next } else { best }).unwrap()
}

/// Where a run ended, and what was the best.
fn end(results: &Value) -> [Value; 4] {
    ["outcome", "step", "best_step", "best_auc"].map(|key| results[key].clone())
}

/// The same of a run that ended because tests got no better.
fn no_better(step: u64, best_step: u64, best_auc: impl Into<Value>) -> [Value; 4] {
    ["no-improvement".into(), step.into(), best_step.into(), best_auc.into()]
}

fn eval_auc(out: &Path) -> Value {
    json(&format!("eval --checkpoint {} --threads 1 --json", out.display()))["auc"].clone()
}

fn checkpoint(out: &Path) -> Vec<u8> {
    fs::read(out.join("checkpoint.safetensors")).unwrap()
}

#[test]
fn training_ends_when_tests_get_no_better_and_the_best_model_is_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let (line, out) = (training(folder.path()), folder.path().join("run"));
    for ranks in ["--ranks 1", "--ranks 2"] {
        let line = format!("{line} {ranks} --patience {PATIENCE} --out {} --force --json", out.display());
        let output = succeed(&line);
        let results: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = evaluations(&out);
        let (step, auc) = best_of(&found);
        // As many evaluations as are waited for have come since the best, and no more.
        assert!(found.len() > PATIENCE && found[found.len() - 1 - PATIENCE] == (step, auc), "{found:?}");
        assert_eq!(end(&results), no_better(found[found.len() - 1].0, step, auc), "{found:?}");
        assert!(results["step"].as_u64().unwrap() < 80, "{results}");
        // Its own model is kept, and the run's is that of the end.
        let best = out.join("best");
        assert_eq!((&eval_auc(&best), &eval_auc(&out)), (&results["best_auc"], &results["auc"]));
        assert!(checkpoint(&best) != checkpoint(&out), "they are of other steps");
        let said = String::from_utf8(output.stderr).unwrap();
        let told = format!("octorec eval --checkpoint {}", best.display());
        assert!(said.contains("no better test AUC in 3 evaluations since step") && said.contains(&told), "{said}");
    }
    // All that a run's directory is for.
    let at = |name: &str| folder.path().join(name).display().to_string();
    let best = out.join("best").display().to_string();
    succeed(&format!("predict --checkpoint {best} --data {} --out {}", at("tests.csv"), at("clicks.txt")));
    succeed(&format!("export --checkpoint {best} --format torch --out {}", at("model.safetensors")));
    succeed(&format!("{line} --steps 4 --init {best}/checkpoint.safetensors"));
    succeed(&format!("train --config {best}/config.toml --steps 8"));
    // By other test samples, others are the best.
    fs::write(at("others.csv"), clicks(300, 300)).unwrap();
    let before = evaluations(&out);
    let resume = format!("train --resume {} --test-data {} --json", out.display(), at("others.csv"));
    let output = succeed(&resume);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("these are other test samples than before"), "{said}");
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(results["best_step"].as_u64().unwrap() > before[before.len() - 1].0, "{results}");
    assert_eq!(eval_auc(&out.join("best")), results["best_auc"]);
    // Without a folder training ends as well; a run in the place of this one has no best model of another.
    let results = json(&format!("{line} --patience {PATIENCE} --threads 1 --json"));
    assert_eq!(results["outcome"], "no-improvement");
    assert!(fail(&format!("{line} --out {}", out.display())).contains("--force"));
    succeed(&format!("{line} --patience {PATIENCE} --set train.keep_best=false --out {} --force", out.display()));
    assert!(!out.join("best").exists());
}

#[test]
fn a_run_that_gets_no_better_at_all_ends_behind_its_first_tests_and_goes_on_with_more_patience() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line = format!("{} --lr 0 --eval-every 4 --patience 2 --out {} --json", tiny_training(), out.display());
    let first = json(&line);
    let auc = eval_auc(&out.join("best"));
    assert_eq!(end(&first), no_better(12, 4, auc.clone()));
    // It has ended, and so it stays.
    let before = checkpoint(&out);
    let again = json(&format!("train --resume {} --json", out.display()));
    assert_eq!((end(&again), &again["steps"]), (end(&first), &0.into()));
    assert!(checkpoint(&out) == before);
    let more = json(&format!("train --resume {} --patience 5 --json", out.display()));
    assert_eq!(end(&more), no_better(24, 4, auc.clone()));
    // The best model goes on like any run.
    let on = json(&format!("train --resume {}/best --patience 1 --json", out.display()));
    assert_eq!(end(&on), no_better(8, 4, auc));
}

#[test]
fn a_run_that_was_stopped_or_killed_ends_where_it_would_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let line = format!("{} --patience {PATIENCE} --checkpoint-every 3", training(folder.path()));
    let whole = at("whole");
    let expected = json(&format!("{line} --out {} --json", whole.display()));
    let same = |out: &Path, name: &str| {
        let results = json(&format!("train --resume {} --steps 80 --json", out.display()));
        assert_eq!(end(&results), end(&expected), "{name}");
        assert_eq!(eval_auc(&out.join("best")), expected["best_auc"], "{name}");
        assert!(checkpoint(out) == checkpoint(&whole), "{name}: other checkpoints");
    };
    for steps in [8, 12, 16] {
        let parts = at(&format!("stopped{steps}"));
        succeed(&format!("{line} --steps {steps} --out {}", parts.display()));
        same(&parts, &format!("stopped after {steps}"));
    }
    // As a kill behind the best model and before the run's own checkpoint leaves it.
    let ahead = at("ahead");
    succeed(&format!("{line} --steps 8 --out {}", ahead.display()));
    for file in fs::read_dir(whole.join("best")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), ahead.join("best").join(file.file_name())).unwrap();
    }
    same(&ahead, "the best model is ahead");
    for (number, (name, signal)) in [
        ("checkpoint.safetensors", "INT"),
        ("checkpoint.safetensors", "KILL"),
        ("best/config.toml", "KILL"),
        ("best/checkpoint.safetensors", "KILL"),
        ("best/checkpoint.safetensors", "INT"),
    ]
    .into_iter()
    .enumerate()
    {
        let out = at(&format!("killed{number}"));
        let words = format!("{line} --out {}", out.display());
        let mut child = octorec().args(words.split_whitespace()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !out.join(name).exists() && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{name} is not written");
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = std::process::Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).output();
        child.wait().unwrap();
        // Where there is a best model, its run can be continued.
        if !out.join("checkpoint.safetensors").exists() {
            assert!(!out.join("best/checkpoint.safetensors").exists(), "{name} {signal}");
            continue;
        }
        same(&out, &format!("{name} {signal}"));
    }
}
