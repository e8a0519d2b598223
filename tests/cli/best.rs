//! Training that ends when tests get no better, and the best model, which is kept: by a kill and a wish to stop, too.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
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
                 --optimizer-rows adagrad --lr 0.03 --no-shuffle --threads 1";
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
    let lost = out.join("best/checkpoint.safetensors").display().to_string();
    let predict = format!("predict --checkpoint {} --data {}/tests.csv", out.display(), folder.path().display());
    assert!(fail(&format!("{predict} --out {lost}")).contains("an input of this command"));
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
    // Also where by the tests before none was, whose samples were of one kind.
    let tests = fs::read_to_string(at("tests.csv")).unwrap();
    let ones = tests.lines().filter(|line| !line.starts_with("0,")).map(|line| line.to_owned() + "\n");
    fs::write(at("ones.csv"), ones.collect::<String>()).unwrap();
    let (none, line_of_none) = (at("none"), line.replace("tests.csv", "ones.csv"));
    let output = succeed(&format!("{line_of_none} --patience {PATIENCE} --threads 1 --out {none} --json"));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(end(&results), ["no-improvement".into(), 12.into(), Value::Null, Value::Null]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no test AUC in 3 evaluations: an AUC needs test samples of both kinds"), "{said}");
    let results = json(&format!("train --resume {none} --test-data {} --json", at("others.csv")));
    assert!(results["best_step"].as_u64().unwrap() > 12 && results["best_auc"].is_number(), "{results}");
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
    let output = succeed(&format!("train --resume {} --json", out.display()));
    let again: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((end(&again), &again["steps"]), (end(&first), &0.into()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no step was made: the run stands at step 12") && !said.contains("left to train"), "{said}");
    assert!(checkpoint(&out) == before);
    let more = json(&format!("train --resume {} --patience 5 --json", out.display()));
    assert_eq!(end(&more), no_better(24, 4, auc.clone()));
    // The best model goes on like any run.
    let on = json(&format!("train --resume {}/best --patience 1 --json", out.display()));
    assert_eq!(end(&on), no_better(8, 4, auc));
}

#[test]
fn a_best_model_that_is_trained_on_is_kept_in_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let (line, best) = (format!("{} --patience {PATIENCE} --json", training(folder.path())), out.join("best"));
    let first = json(&format!("{line} --out {}", out.display()));
    let before = checkpoint(&best);
    // The steps that spoiled it are made again.
    let output = succeed(&format!("train --resume {} --json", best.display()));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(end(&results), end(&first));
    let kept = best.join("best");
    assert!(checkpoint(&best) != before && checkpoint(&kept) != checkpoint(&best));
    assert_eq!(eval_auc(&kept), first["best_auc"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("kept: octorec eval --checkpoint {}", kept.display())), "{said}");
    // Of the run that it was of it is the best no more: that run neither takes it for its own nor replaces it.
    let before = [&best, &kept].map(|run| checkpoint(run));
    for words in [format!("train --resume {}", out.display()), format!("{line} --out {} --force", out.display())] {
        let message = fail(&words);
        assert!(message.contains(&format!("move {} elsewhere", best.display())), "{message}");
    }
    succeed(&format!("train --resume {} --set train.keep_best=false", out.display()));
    assert!([&best, &kept].map(|run| checkpoint(run)) == before);
}

#[test]
fn a_run_may_keep_its_best_model_from_a_later_process_on_and_end_to_keep_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").display().to_string();
    succeed(&format!("{} --eval-every 2 --steps 2 --out {out}", tiny_training()));
    // Where its model cannot be saved, the way on without it is told.
    let taken = folder.path().join("run/best/checkpoint.safetensors");
    fs::create_dir_all(&taken).unwrap();
    let on = format!("train --resume {out} --steps 4 --lr 0");
    let message = fail(&format!("{on} --keep-best"));
    let remedy = format!("--resume {out} --set train.keep_best=false");
    assert!(message.contains(&remedy), "{message}");
    succeed(&format!("train {remedy} --steps 2"));
    fs::remove_dir(&taken).unwrap();
    // What it stands at is the best so far.
    let before = eval_auc(Path::new(&out));
    let results = json(&format!("{on} --keep-best --json"));
    assert_eq!((&results["best_step"], &results["best_auc"]), (&2.into(), &before));
    assert_eq!(eval_auc(&folder.path().join("run/best")), before);
}

#[test]
fn the_best_model_may_be_that_of_the_lowest_log_loss() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let line = format!("{} --lr 0.3 --eval-every 10 --json", tiny_training());
    let by_loss = format!("{line} --set train.best_by=logloss");
    let expected = json(&format!("{by_loss} --keep-best --steps 160 --out {}", at("whole")));
    let text = fs::read_to_string(at("whole/metrics.jsonl")).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found: Vec<Value> = entries.filter(|entry| entry["kind"] == "eval").collect();
    let loss = |entry: &Value| entry["logloss"].as_f64().unwrap();
    let lowest = found.iter().reduce(|best, next| if loss(next) < loss(best) { next } else { best }).unwrap();
    let best = |results: &Value| ["best_step", "best_auc", "best_logloss"].map(|key| results[key].clone());
    assert_eq!(best(&expected), ["step", "auc", "logloss"].map(|key| lowest[key].clone()));
    let scores = json(&format!("eval --checkpoint {} --json", at("whole/best")));
    assert_eq!([&scores["auc"], &scores["logloss"]], [&lowest["auc"], &lowest["logloss"]]);
    // By the AUC another one is the best.
    let by_auc = json(&format!("{line} --keep-best --steps 160 --out {}", at("auc")));
    assert!(by_auc["best_auc"].as_f64() > expected["best_auc"].as_f64(), "{by_auc}");
    // A run that goes on has the same.
    succeed(&format!("{by_loss} --keep-best --steps 100 --out {}", at("parts")));
    let resumed = json(&format!("train --resume {} --steps 160 --json", at("parts")));
    assert_eq!(best(&resumed), best(&expected));
    // Training ends by it.
    let output = succeed(&format!("{by_loss} --patience 2 --steps 160"));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(results["outcome"], "no-improvement");
    assert_eq!(results["step"].as_u64(), results["best_step"].as_u64().map(|step| step + 20));
    assert!(said.contains("no better test log loss in 2 evaluations since step"), "{said}");
    // By another score the best one is looked for anew, and kept.
    let output = succeed(&format!("train --resume {} --steps 170 --set train.best_by=auc --json", at("parts")));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("train.best_by is another than before"), "{said}");
    assert_eq!([&results["best_step"], &results["best_auc"]], [&170.into(), &results["auc"]]);
    assert_eq!(eval_auc(&folder.path().join("parts/best")), results["auc"]);
}

#[test]
fn a_run_in_a_folder_called_best_is_nobody_elses() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let line = format!("{} --steps 2", tiny_training());
    succeed(&format!("{line} --out {}", at("runs/best")));
    let before = checkpoint(&folder.path().join("runs/best"));
    for words in ["", "--force", "--force --keep-best --eval-every 1"] {
        let message = fail(&format!("{line} --out {} {words}", at("runs")));
        let remedy = format!("move {} elsewhere", at("runs/best"));
        assert!(message.contains(&remedy) && !message.contains("replace it with --force"), "{message}");
    }
    assert!(checkpoint(&folder.path().join("runs/best")) == before);
    fs::rename(at("runs/best"), at("elsewhere")).unwrap();
    succeed(&format!("{line} --out {}", at("runs")));
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
        // None is logged twice.
        assert_eq!(evaluations(out), evaluations(&whole), "{name}: other evaluations");
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
        ("checkpoint.safetensors", Signal::INT),
        ("checkpoint.safetensors", Signal::KILL),
        ("best/config.toml", Signal::KILL),
        ("best/checkpoint.safetensors", Signal::KILL),
        ("best/checkpoint.safetensors", Signal::INT),
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
        if child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&child), signal).unwrap();
        }
        child.wait().unwrap();
        // Where there is a best model, its run can be continued.
        if !out.join("checkpoint.safetensors").exists() {
            assert!(!out.join("best/checkpoint.safetensors").exists(), "{name} {signal:?}");
            continue;
        }
        same(&out, &format!("{name} {signal:?}"));
    }
}
