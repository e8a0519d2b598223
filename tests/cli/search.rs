//! Searches: trials are runs, a kill loses none, and what matters is found.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::{ONE_EPOCH, TINY, fail, json, octorec, succeed, tsv};

const SPACE: &str = "[train]\nlr = { from = 0.0001, to = 1.0, log = true }\nseed = { from = 1, to = 1000 }\n\
                     optimizer = { choices = [\"sgd\", \"adagrad\"] }\n";

/// A search in a folder, with a space of its own.
fn search(folder: &Path, flags: &str) -> String {
    let space = folder.join("space.toml");
    fs::write(&space, SPACE).unwrap();
    let line = format!("search {ONE_EPOCH} {TINY} --threads 1 --space {}", space.display());
    format!("{line} --out {} {flags}", folder.join("search").display())
}

/// What tells of a trial, without times.
fn outline(report: &Value) -> Vec<Value> {
    let mut trials: Vec<Value> = report["trials"].as_array().unwrap().clone();
    trials.sort_by_key(|trial| trial["trial"].as_u64());
    for trial in &mut trials {
        for key in ["seconds", "run", "target_seconds"] {
            trial.as_object_mut().unwrap().remove(key);
        }
    }
    trials
}

#[test]
fn the_best_of_many_trials_is_found_and_every_trial_is_a_run() {
    let folder = tempfile::tempdir().unwrap();
    // Drawn evenly: what is learned from which trials depends on which of two ends first, and few say little about a
    // key.
    let line = search(folder.path(), "--set data.train_samples=25600 --trials 24 --parallel 2 --sampler random --json");
    let report = json(&line);
    let trials = report["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 24);
    let auc = |trial: &Value| trial["auc"].as_f64().unwrap();
    assert!(trials.is_sorted_by(|a, b| auc(a) >= auc(b)) && auc(&trials[0]) > auc(&trials[23]) + 0.02, "{report}");
    assert_eq!(report["best"], trials[0]["trial"]);
    // A trial is a run like any other: scored again, and trained again from its configuration.
    let run = trials[0]["run"].as_str().unwrap();
    assert_eq!(json(&format!("eval --checkpoint {run} --threads 1 --json"))["auc"], trials[0]["auc"]);
    assert_eq!(json(&format!("train --config {run}/config.toml --json"))["auc"], trials[0]["auc"]);
    // The rate matters, the seed does not.
    let importance = report["importance"].as_array().unwrap();
    let of = |key: &str| importance.iter().find(|pair| pair[0] == key).unwrap()[1].as_f64().unwrap();
    assert!(of("train.lr") > 0.3 && of("train.seed") < of("train.lr"), "{importance:?}");
    let page = fs::read_to_string(folder.path().join("search/search.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 2);
    // Once more there is nothing to do but to tell; with more trials it goes on, and people get a table.
    assert_eq!(outline(&json(&line)), outline(&report));
    let output = succeed(&line.replace("--trials 24", "--trials 25").replace("--json", ""));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("train.optimizer") && table.lines().count() >= 25 + 1 + 4, "{table}");
    // Another search does not go on with this one.
    let message = fail(&format!("{line} --search-seed 2"));
    assert!(message.contains("--out") && message.contains("another"), "{message}");
}

#[test]
fn a_search_goes_on_whatever_is_given_that_is_searched_over_and_else_says_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let line = search(folder.path(), "--trials 1 --eval-every 20 --json");
    let report = json(&line);
    let output = succeed(&format!("{line} --lr 0.3"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--lr changes nothing") && said.contains("going on: 1 trial done"), "{said}");
    assert_eq!(outline(&serde_json::from_slice(&output.stdout).unwrap()), outline(&report));
    let message = fail(&format!("{line} --halving 2"));
    assert!(message.contains("--out: ") && message.contains("--halving 0, where 2 is asked for:"), "{message}");
    let message = fail(&format!("{line} --halving 2 --batch 32 --search-seed 3"));
    for told in ["--halving 0, where 2", "--search-seed 1, where 3", "train.batch = 64, where 32 is asked for:"] {
        assert!(message.contains(told), "{told}: {message}");
    }
}

#[test]
fn a_killed_search_has_the_trials_of_one_that_was_not() {
    let [whole, killed] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let flags = "--trials 12 --eval-every 10 --halving 2 --json";
    let expected = json(&search(whole.path(), flags));
    let ends: Vec<&str> =
        expected["trials"].as_array().unwrap().iter().map(|trial| trial["end"].as_str().unwrap()).collect();
    assert!(ends.contains(&"stopped") && ends.contains(&"finished"), "{expected}");

    let line = search(killed.path(), flags);
    let journal = killed.path().join("search/search.jsonl");
    for trials in [1, 3, 8] {
        let mut search =
            octorec().args(line.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Killed when so many have begun.
        while search.try_wait().unwrap().is_none()
            && fs::read_to_string(&journal).unwrap_or_default().matches("\"began\"").count() < trials
        {
            sleep(Duration::from_millis(2));
        }
        sleep(Duration::from_millis(40));
        search.kill().unwrap();
        search.wait().unwrap();
    }
    assert_eq!(outline(&json(&line)), outline(&expected));
}

/// The process of a search's first trial, once it is there.
fn first_trial(out: &Path) -> Option<String> {
    let run = out.join("trial-000").display().to_string();
    let mut processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let is_it = |found: &fs::DirEntry| {
        let words = fs::read(found.path().join("cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == run.as_bytes())
    };
    processes.find(is_it).map(|found| found.file_name().to_string_lossy().into_owned())
}

/// What a search has said whose first trial was killed; nothing where the trial had ended by then.
fn killed(line: &str, out: &Path) -> Option<String> {
    let mut process =
        octorec().args(line.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while process.try_wait().unwrap().is_none() {
        if let Some(trial) = first_trial(out) {
            let _ = std::process::Command::new("kill").args(["-9", &trial]).stderr(Stdio::null()).status();
            break;
        }
        sleep(Duration::from_millis(1));
    }
    let ended = process.wait_with_output().unwrap();
    (!ended.status.success()).then(|| String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// A search of one trial, which was killed `times` times; the folder, the search, and what the last one has said.
fn search_with_kills(times: usize) -> (tempfile::TempDir, String, String) {
    let once = |_: u32| {
        let folder = tempfile::tempdir().unwrap();
        let line = search(folder.path(), "--trials 1 --set data.train_samples=25600 --json");
        let out = folder.path().join("search");
        let said: Option<Vec<_>> = (0..times).map(|_| killed(&line, &out)).collect();
        // With a checkpoint between two kills a trial goes on once more.
        let has_saved = times > 1 && out.join("trial-000/checkpoint.safetensors").exists();
        Some((folder, line, said?.pop()?)).filter(|_| !has_saved)
    };
    (0..20).find_map(once).expect("the trial was never caught in the middle")
}

#[test]
fn a_trial_that_somebody_kills_goes_on_and_those_of_others_are_not_taken() {
    let (folder, line, said) = search_with_kills(1);
    let out = folder.path().join("search");
    assert!(
        said.contains("trial 0: its process was killed by signal 9") && said.contains("the same command"),
        "{said}"
    );
    assert_eq!(json(&line)["trials"][0]["end"], "finished");
    // Whatever the folder is called.
    let other = folder.path().join(OsStr::from_bytes(b"s\xff"));
    let shown = out.display().to_string();
    let words = line.split_whitespace().map(|word| if word == shown { other.as_os_str() } else { OsStr::new(word) });
    let told = octorec().args(words).output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let report: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(report["trials"][0]["end"], "finished");
    // Without their journal, nobody knows whose these trials are.
    let results = fs::read(out.join("trial-000.json")).unwrap();
    fs::remove_file(out.join("search.jsonl")).unwrap();
    let message = fail(&format!("{line} --search-seed 2"));
    assert!(message.contains("is of no trial of this search") && message.contains("another --out"), "{message}");
    assert!(fs::read(out.join("trial-000.json")).unwrap() == results);
}

#[test]
fn a_trial_that_is_killed_every_time_fails() {
    let (_folder, line, said) = search_with_kills(2);
    // Once more there is nothing to do but to tell.
    for said in [said, fail(&line)] {
        let told = ["--target AUC: no trial has a score", "killed twice by signal 9", "--parallel", "another --out"];
        assert!(told.iter().all(|told| said.contains(told)), "{said}");
    }
}

#[test]
fn trials_that_keep_their_best_models_are_compared_by_them() {
    let folder = tempfile::tempdir().unwrap();
    let line = search(folder.path(), "--trials 4 --eval-every 2 --patience 1 --json");
    let report = json(&line);
    let trials = report["trials"].as_array().unwrap();
    assert!(trials.iter().any(|trial| trial["end"] == "no-improvement"), "{report}");
    for trial in trials {
        let run = trial["run"].as_str().unwrap();
        let metrics = fs::read_to_string(format!("{run}/metrics.jsonl")).unwrap();
        let entries = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let found = entries.filter(|entry| entry["kind"] == "eval").map(|entry| entry["auc"].as_f64().unwrap());
        assert_eq!(trial["auc"], found.reduce(f64::max).unwrap(), "{trial}");
        assert_eq!(json(&format!("eval --checkpoint {run}/best --threads 1 --json"))["auc"], trial["auc"]);
    }
    // A search that an earlier version has begun goes on: what it says of its configuration lacks keys of this one.
    let journal = folder.path().join("search/search.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let older = text.replacen(r#"best_by = \"auc\"\n"#, "", 1);
    assert_ne!(older, text);
    fs::write(&journal, older).unwrap();
    assert_eq!(outline(&json(&line)), outline(&report));
}

#[test]
fn the_shortest_time_to_a_target_wins_and_wrong_trials_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let flags = "--trials 6 --target time-to-auc --json";
    let message = fail(&search(folder.path(), flags));
    assert!(message.contains("--target-auc"), "{message}");
    let message = fail(&search(folder.path(), &format!("{flags} --target-auc 0.55")));
    assert!(message.contains("--eval-every"), "{message}");
    let message = fail(&search(folder.path(), "--halving 3"));
    assert!(message.contains("--halving") && message.contains("evals_per_epoch"), "{message}");
    let report = json(&search(folder.path(), &format!("{flags} --target-auc 0.53 --set train.evals_per_epoch=10")));
    let trials = report["trials"].as_array().unwrap();
    let reached: Vec<f64> = trials.iter().filter_map(|trial| trial["target_seconds"].as_f64()).collect();
    assert!(!reached.is_empty() && reached.is_sorted(), "{report}");
    for trial in trials {
        assert_eq!(trial["end"] == "target-reached", trial["target_seconds"].is_number(), "{trial}");
    }

    // Tables of 16 columns do not go with a bottom MLP that ends in 8, nor these with one that ends in 16.
    let space = folder.path().join("dim.toml");
    fs::write(&space, "[model]\ndim = { choices = [8, 16] }\nbottom = { choices = [[13, 8], [13, 16]] }\n").unwrap();
    let out = folder.path().join("dims");
    let line = format!(
        "search {ONE_EPOCH} {TINY} --threads 1 --space {} --out {} --trials 5 --json",
        space.display(),
        out.display()
    );
    let output = succeed(&line);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let trials = report["trials"].as_array().unwrap();
    for trial in trials {
        let wrong = trial["values"]["model.dim"] != trial["values"]["model.bottom"][1];
        assert_eq!(trial["end"] == "failed", wrong, "{trial}");
        assert!(!wrong || trial["reason"].as_str().unwrap().contains("model.dim"), "{trial}");
    }
    // No trial came twice, and more than there are there cannot be.
    let values: HashSet<String> = trials.iter().map(|trial| trial["values"].to_string()).collect();
    assert_eq!((trials.len(), values.len()), (4, 4), "{report}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("all that the space has was tried: --trials 5 asks for more"), "{said}");
    let partly =
        "dim.toml: of 4 combinations of choices, ranges' ends and the configuration's own values, 2 contradict";
    assert!(said.contains(partly) && said.find(partly) < said.find("trial 0: "), "{said}");
    assert_eq!(outline(&json(&line)), outline(&report));
    // What goes with nothing is refused before the first trial.
    fs::write(&space, "[model]\ndim = { choices = [8, 16] }\n").unwrap();
    let message = fail(&line.replace("dims", "none"));
    assert!(message.contains("dim.toml:2: model.dim = 16 goes with no value of the others"), "{message}");
    assert!(!folder.path().join("none").exists());
    fs::write(&space, "[train]\nwarmup_steps = { from = 0, to = 30 }\n").unwrap();
    let decay = "--set train.decay_start=10 --set train.decay_steps=5";
    let message = fail(&format!("{} {decay}", line.replace("dims", "none")));
    assert!(message.contains("dim.toml:2: train.warmup_steps = 30 goes with no value of the others"), "{message}");
    assert!(message.contains("train.decay_start: ") && !folder.path().join("none").exists(), "{message}");
    let message = fail(&line.replace("dim.toml", "none.toml"));
    assert!(message.contains("none.toml"), "{message}");
}

#[test]
fn a_search_is_the_work_of_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let line = search(folder.path(), "--trials 2 --set train.steps=4 --json");
    let launched =
        |name: &str, processes: &str| octorec().args(line.split_whitespace()).env(name, processes).output().unwrap();
    for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"] {
        let refused = launched(name, "2");
        let message = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{message}");
        assert!(message.contains(&format!("error: {name}: ")) && message.contains("2 processes"), "{message}");
        assert!(message.contains("without a launcher") && !folder.path().join("search").exists(), "{message}");
    }
    // As in a job of one process.
    let output = launched("SLURM_STEP_NUM_TASKS", "1");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["trials"].as_array().unwrap().len(), 2, "{report}");
}

#[test]
fn a_search_that_could_tell_nothing_says_why() {
    let folder = tempfile::tempdir().unwrap();
    // An epoch has 40 steps.
    for late in ["--eval-every 40", "--set train.evals_per_epoch=1", "--eval-every 9 --steps 9"] {
        let message = fail(&search(folder.path(), &format!("--halving 2 {late}")));
        assert!(
            message.contains("--halving 2: the run has ") && message.contains("--eval-every N"),
            "{late}: {message}"
        );
    }
    assert!(!folder.path().join("search").exists());
    // Test samples of one kind have no AUC, but a log loss.
    let data = tsv(&folder.path().join("clicks.tsv"), 400);
    let text = fs::read_to_string(&data).unwrap();
    let ones = folder.path().join("ones.tsv");
    fs::write(&ones, text.lines().map(|line| format!("1{}\n", &line[1..])).collect::<String>()).unwrap();
    let space = folder.path().join("lr.toml");
    fs::write(&space, "[train]\nlr = { choices = [0.05, 0.1] }\n").unwrap();
    let line = |name: &str| {
        let files = [&data, &ones, &space].map(|path| path.display().to_string());
        let [data, tests, space] = files;
        let out = folder.path().join(name).display().to_string();
        format!("search {TINY} --steps 2 --threads 1 --data {data} --test-data {tests} --space {space} --out {out}")
    };
    let message = fail(&line("auc"));
    assert!(message.contains("an AUC needs samples of both kinds to judge by, and these are all of one"), "{message}");
    assert!(message.contains("needs another --out"), "{message}");
    // The remedy.
    let report = json(&format!("{} --target logloss --json", line("logloss")));
    assert_eq!(report["trials"].as_array().unwrap().len(), 2, "{report}");
}

#[test]
fn halving_looks_at_the_data_only_where_an_evaluation_may_come_late() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    // Whoever reads them tells of rows that are left out; trials do that in files of their own.
    let data = tsv(&folder.path().join("clicks.tsv"), 400);
    let text = fs::read_to_string(&data).unwrap() + &"1\tonly\n".repeat(20);
    fs::write(&data, text).unwrap();
    fs::write(at("lr.toml"), "[train]\nlr = { choices = [0.05, 0.1] }\n").unwrap();
    let reads = |name: &str, evaluations: &str| {
        let line = format!(
            "search {TINY} --epochs 2 --threads 1 --data {} --test-fraction 0.4 --on-bad-row skip --space {} --out {} --trials 2 \
             --target logloss --halving 2 {evaluations}",
            data.display(),
            at("lr.toml"),
            at(name)
        );
        String::from_utf8(succeed(&line).stderr).unwrap().contains("are malformed and left out")
    };
    assert!(reads("steps", "--eval-every 2"));
    // It was checked when the search began.
    assert!(!reads("steps", "--eval-every 2"));
    assert!(!reads("parts", "--set train.evals_per_epoch=2"));
}
