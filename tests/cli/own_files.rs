//! A command touches the files that are its own: whatever else lies in a folder stays, and a run goes on as it was
//! left.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use octorec::memory::FolderLock;
use rustix::process::{Pid, Signal, kill_process};
use safetensors::tensor::TensorView;
use safetensors::{SafeTensors, serialize};
use serde_json::Value;

use super::{fail, json, octorec, succeed, tiny_training, tsv};

/// The names and contents of a folder's files.
fn held(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.is_file() && !path.ends_with(".lock"));
    let mut files: Vec<_> =
        files.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn a_users_own_folder_in_that_of_a_run_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (out, own) = (folder.path().join("run"), folder.path().join("run/previous"));
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("checkpoint.safetensors"), "an older run's").unwrap();
    fs::write(own.join("notes.txt"), "mine").unwrap();
    let before = held(&own);
    let line = format!("{} --steps 3 --out {}", tiny_training(), out.display());
    succeed(&line);
    fail(&line);
    succeed(&format!("{line} --force"));
    succeed(&format!("train --resume {} --steps 5", out.display()));
    assert_eq!(held(&own), before);
}

#[test]
fn inputs_with_the_names_of_a_runs_files_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (out, plan) = (folder.path().join("run"), folder.path().join("run/plan.toml"));
    fs::create_dir(&out).unwrap();
    let mine = out.join("config.toml");
    fs::write(&mine, "# Mine.\n[train]\nsteps = 3\n").unwrap();
    succeed(&format!("plan --topology two-socket --preset demo --out {}", plan.display()));
    let before = held(&out);
    let line = format!("train --preset demo --rows-cap 50 --out {}", out.display());
    let (named, other) = (mine.display().to_string(), plan.display().to_string());
    // Whether this command reads them or not, and an input with --force, too.
    for (flags, files) in [
        (format!("--config {named}"), [&named, &other]),
        (format!("--plan {other}"), [&named, &other]),
        ("--steps 3".to_owned(), [&named, &other]),
        (format!("--config {named} --force"), [&named; 2]),
        (format!("--plan {other} --force"), [&other; 2]),
    ] {
        let message = fail(&format!("{line} {flags}"));
        assert!(message.contains("--out") && files.iter().all(|file| message.contains(file.as_str())), "{message}");
        assert_eq!(held(&out), before, "{flags}");
        assert!(!out.join(".lock").exists(), "{flags}");
    }
    let moved = folder.path().join("mine.toml");
    fs::rename(&mine, &moved).unwrap();
    fs::rename(&plan, folder.path().join("plan.toml")).unwrap();
    // Metrics of another program's are no run's.
    let metrics = out.join("metrics.jsonl");
    fs::write(&metrics, "{\"epoch\": 1}\n").unwrap();
    let line = format!("{line} --config {}", moved.display());
    let message = fail(&line);
    assert!(message.contains(&metrics.display().to_string()), "{message}");
    assert_eq!(fs::read_to_string(&metrics).unwrap(), "{\"epoch\": 1}\n");
    succeed(&format!("{line} --force"));
    // What is left of a run without a checkpoint gives way.
    fs::remove_file(out.join("checkpoint.safetensors")).unwrap();
    succeed(&line);
}

#[test]
fn a_resume_that_is_refused_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&format!("{} --steps 3 --out {}", tiny_training(), out.display()));
    let before = held(&out);
    let message = fail(&format!("train --resume {} --steps 6 --optimizer adam", out.display()));
    assert!(message.contains("--init"), "{message}");
    assert_eq!(held(&out), before);
}

#[test]
fn a_run_goes_on_from_where_it_stands_whatever_its_minibatch() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = (folder.path().join("run"), tsv(&folder.path().join("clicks.tsv"), 300));
    let line = format!(
        "train --data {} --test-fraction 0 --set model.bottom=[13,8] --set model.top=[8,1] --set model.dim=8 --threads 1 \
         --batch 16 --steps 10 --out {}",
        data.display(),
        out.display()
    );
    succeed(&line);
    // Of the epoch 140 samples are left.
    let found = json(&format!("train --resume {} --batch 64 --steps 0 --epochs 1 --json", out.display()));
    assert_eq!((found["step"].as_u64(), found["outcome"].as_str()), (Some(13), Some("finished")));
    let found = json(&format!("train --resume {} --batch 100 --epochs 2 --json", out.display()));
    assert_eq!(found["step"].as_u64(), Some(16));
}

#[test]
fn within_a_pass_a_run_goes_on_with_the_samples_and_the_order_that_it_began_with() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = (folder.path().join("run"), tsv(&folder.path().join("clicks.tsv"), 300));
    let line = format!(
        "train --data {} --test-fraction 0 --set model.bottom=[13,8] --set model.top=[8,1] --set model.dim=8 --threads 1 \
         --batch 50 --steps 2 --out {}",
        data.display(),
        out.display()
    );
    succeed(&line);
    let resume = format!("train --resume {}", out.display());
    for (flag, key) in [
        ("--seed 7", "train.seed"),
        ("--no-shuffle", "data.shuffle"),
        ("--set data.shuffle_window=99", "data.shuffle_window"),
    ] {
        let message = fail(&format!("{resume} --steps 3 {flag}"));
        assert!(message.contains(&format!("{key} with --resume: the run stopped within a pass")), "{message}");
    }
    assert!(fail(&format!("{resume} --steps 3 --test-fraction 0.5")).contains("--init"), "fewer samples");
    let text = fs::read_to_string(&data).unwrap();
    let copy = folder.path().join("copy.tsv");
    fs::write(&copy, &text).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let others = [("grown", format!("{text}{first}\n")), ("in another order", format!("{rest}{first}\n"))];
    for (how, other) in &others {
        fs::write(&data, other).unwrap();
        let message = fail(&format!("{resume} --steps 3"));
        assert!(message.contains("stopped within a pass over 300 training samples"), "{how}: {message}");
    }
    // Where they lie does not matter, and behind a pass other samples are those of the next one, from the first on.
    succeed(&format!("{resume} --steps 6 --data {}", copy.display()));
    let grown = &others[0].1;
    fs::write(&copy, grown).unwrap();
    let message = fail(&format!("{resume} --steps 0 --epochs 1"));
    assert!(message.contains("train.epochs") && message.contains("--epochs 2"), "{message}");
    let found = json(&format!("{resume} --seed 7 --steps 0 --epochs 2 --json"));
    assert_eq!((found["step"].as_u64(), found["samples"].as_u64()), (Some(6 + 7), Some(301)));
}

#[test]
fn a_row_that_ended_a_pass_is_mended_or_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("clicks.tsv"), 300);
    let text = fs::read_to_string(&data).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[220] = "cut";
    let bad = lines.join("\n") + "\n";
    for (left, text, flag) in [(100, &text, ""), (99, &bad, " --on-bad-row skip")] {
        let out = folder.path().join(format!("run-{left}"));
        fs::write(&data, &bad).unwrap();
        let message = fail(&format!(
            "train --data {} --test-fraction 0 --vocab hash --rows-cap 50 --no-shuffle --set model.bottom=[13,8] --set \
             model.top=[8,1] --set model.dim=8 --threads 1 --batch 50 --epochs 1 --out {}",
            data.display(),
            out.display()
        ));
        assert!(message.contains("line 221") && message.contains("--resume"), "{message}");
        fs::write(&data, text).unwrap();
        let found = json(&format!("train --resume {}{flag} --json", out.display()));
        assert_eq!((found["step"].as_u64(), found["samples"].as_u64()), (Some(6), Some(left)), "{flag}");
    }
}

#[test]
fn within_a_pass_blocks_and_generated_samples_go_on_too() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    for (name, samples) in [("blocks", 300), ("others", 310)] {
        let rows = format!("--set data.train_samples={samples} --set data.test_samples=50 --rows-cap 50");
        succeed(&format!("data generate {} {rows}", to(name)));
    }
    let model = "--set model.bottom=[13,8] --set model.top=[8,1] --set model.dim=8 --threads 1 --batch 50";
    succeed(&format!("train --data {} {model} --steps 2 --out {}", to("blocks"), to("run")));
    let resume = format!("train --resume {}", to("run"));
    let message = fail(&format!("{resume} --steps 4 --data {}", to("others")));
    assert!(message.contains("stopped within a pass over 300 training samples"), "{message}");
    assert_eq!(json(&format!("{resume} --steps 4 --json"))["samples"].as_u64(), Some(100));
    succeed(&format!("{} --threads 1 --steps 2 --out {}", tiny_training(), to("built-in")));
    assert_eq!(json(&format!("train --resume {} --steps 4 --json", to("built-in")))["steps"].as_u64(), Some(2));
}

/// Writes a log, a.tsv, and its lines in reverse, b.tsv, whose values have other numbers.
fn there_and_back(folder: &Path) {
    let text = fs::read_to_string(tsv(&folder.join("a.tsv"), 300)).unwrap();
    let reversed: Vec<&str> = text.lines().rev().collect();
    fs::write(folder.join("b.tsv"), reversed.join("\n") + "\n").unwrap();
}

/// Trains a small model on a log.
fn two_steps(data: &str) -> String {
    format!(
        "train --data {data} --test-fraction 0 --set model.bottom=[13,8] --set model.top=[8,1] --set model.dim=8 --threads 1 \
         --batch 50 --steps 2"
    )
}

#[test]
fn weights_begin_on_other_data_with_the_rows_that_their_values_had() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    there_and_back(folder.path());
    let line = |data: &str| two_steps(&to(data));
    succeed(&format!("{} --out {}", line("a.tsv"), to("run")));
    let init = format!("--init {}", to("run/checkpoint.safetensors"));
    succeed(&format!("{} {init} --out {}", line("b.tsv"), to("other")));
    let [before, after] = ["run", "other"].map(|run| fs::read(to(&format!("{run}/vocabulary.safetensors"))).unwrap());
    assert!(before == after, "the second run has the vocabulary of the first");
    for (flag, key) in [("--rows-cap 5", "data.rows_cap"), ("--vocab train", "data.vocab")] {
        let message = fail(&format!("{} {init} {flag}", line("b.tsv")));
        assert!(message.contains(key) && message.contains("with --init"), "{message}");
    }
    // Without it, values would get other rows.
    let (own, aside) = (to("run/vocabulary.safetensors"), to("aside"));
    fs::rename(&own, &aside).unwrap();
    let message = fail(&format!("{} {init}", line("b.tsv")));
    assert!(message.contains("other rows") && message.contains(&own), "{message}");
    succeed(&format!("{} {init}", line("a.tsv")));
    // The remedy.
    fs::rename(&aside, &own).unwrap();
    succeed(&format!("{} {init}", line("b.tsv")));
}

#[test]
fn weights_come_back_from_an_export_with_the_rows_that_their_values_had() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    there_and_back(folder.path());
    let line = |data: &str| two_steps(&to(data));
    succeed(&format!("{} --out {}", line("a.tsv"), to("run")));
    fs::create_dir(to("out")).unwrap();
    let (weights, beside) = (to("out/model.safetensors"), to("out/vocabulary.safetensors"));
    let export = format!("export --checkpoint {} --format torch --out {weights}", to("run"));
    // What is another model's stays.
    fs::write(&beside, "another's").unwrap();
    let message = fail(&export);
    assert!(message.contains("--out") && message.contains(&beside) && !Path::new(&weights).exists(), "{message}");
    fs::remove_file(&beside).unwrap();
    succeed(&export);
    succeed(&export);
    let kept = fs::read(&beside).unwrap();
    assert!(kept == fs::read(to("run/vocabulary.safetensors")).unwrap());
    // After another training its vocabulary is replaced with it; beside another name it is another's.
    succeed(&format!("{} --out {}", line("b.tsv"), to("retrained")));
    let retrained = |name: &str| format!("export --checkpoint {} --format torch --out {}", to("retrained"), to(name));
    let message = fail(&retrained("out/second.safetensors"));
    assert!(message.contains("--out") && message.contains(&beside), "{message}");
    succeed(&retrained("out/model.safetensors"));
    assert!(fs::read(&beside).unwrap() == fs::read(to("retrained/vocabulary.safetensors")).unwrap());
    succeed(&export);
    assert!(kept == fs::read(&beside).unwrap());
    // Nor does it come over the weights.
    fs::create_dir(to("named")).unwrap();
    let message = fail(&retrained("named/vocabulary.safetensors"));
    assert!(message.contains("--out") && fs::read_dir(to("named")).unwrap().next().is_none(), "{message}");
    let doubt = "does not tell which value each of its rows belongs to";
    let init = format!("{} --init {weights}", line("b.tsv"));
    let said = |line: &str| String::from_utf8(succeed(line).stderr).unwrap();
    assert!(!said(&format!("{init} --out {}", to("other"))).contains(doubt));
    assert!(kept == fs::read(to("other/vocabulary.safetensors")).unwrap());
    fs::remove_file(&beside).unwrap();
    let message = fail(&init);
    assert!(message.contains("other rows") && message.contains(&beside), "{message}");
    // As PyTorch writes it again.
    let whole = fs::read(&weights).unwrap();
    let file = SafeTensors::deserialize(&whole).unwrap();
    fs::write(&weights, serialize::<_, TensorView<'_>, _>(file.tensors(), None).unwrap()).unwrap();
    let found = said(&init);
    assert!(found.contains(&format!("warning: {weights} {doubt}")) && found.contains(&beside), "{found}");
    fs::write(&beside, kept).unwrap();
    assert!(!said(&init).contains(doubt));
    // As it is exported of a model without a vocabulary: one that lies there is another's.
    let without = HashMap::from([("octorec.model".to_owned(), r#"{"vocabulary": null}"#.to_owned())]);
    fs::write(&weights, serialize::<_, TensorView<'_>, _>(file.tensors(), Some(without)).unwrap()).unwrap();
    let found = said(&init);
    assert!(found.contains("was trained without a vocabulary") && found.contains(&beside), "{found}");
}

#[test]
fn test_samples_of_data_that_have_changed_are_not_scored_as_the_runs_own() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let data = tsv(&folder.path().join("clicks.tsv"), 300);
    let text = fs::read_to_string(&data).unwrap();
    let first = text.lines().next().unwrap();
    let (grown, cut) = (format!("{text}{first}\n{first}\n"), text[..text.len() / 2].to_owned());
    let cut = cut[..=cut.rfind('\n').unwrap()].to_owned();
    let model = "--set model.bottom=[13,8] --set model.top=[8,1] --set model.dim=8 --threads 1 --batch 50 --steps 2";
    let train = format!("train --data {} {model}", data.display());
    succeed(&format!("{train} --test-fraction 0.25 --out {}", to("run")));
    let eval = format!("eval --checkpoint {}", to("run"));
    let scores = json(&format!("{eval} --json"));
    assert_eq!(scores["samples"], 75);
    for other in [&grown, &cut] {
        fs::write(&data, other).unwrap();
        let message = fail(&eval);
        let told = ["225 training samples and 75 test samples", "have changed or grown since", "--data FILE"];
        assert!(told.iter().all(|words| message.contains(words)), "{message}");
        // The remedy.
        let all = json(&format!("{eval} --data {} --json", data.display()));
        assert_eq!(all["samples"], other.lines().count());
    }
    fs::write(&data, &text).unwrap();
    assert_eq!(json(&format!("{eval} --json")), scores);
    // Test samples with a value that weights have no row for are test samples all the same: the value counts as empty.
    let mut fields: Vec<&str> = first.split('\t').collect();
    fields[14] = "0badcafe";
    fs::write(to("more.tsv"), format!("{text}{}", (fields.join("\t") + "\n").repeat(40))).unwrap();
    let init = format!("--init {} --on-bad-row skip", to("run/checkpoint.safetensors"));
    let more = format!("train --data {} {model} --test-fraction 0.25 {init} --out {}", to("more.tsv"), to("tuned"));
    let output = succeed(&format!("{more} --json"));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("not in the model's vocabulary, and count as empty: of C1\n"), "{told}");
    let trained: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(trained["skipped_rows"], 0);
    let found = json(&format!("eval --checkpoint {} --json", to("tuned")));
    assert_eq!((&found["samples"], &found["skipped_rows"], &found["auc"]), (&85.into(), &0.into(), &trained["auc"]));
    assert_eq!(found["unknown_values"], 40);
    let column = &found["unknown_values_by_column"][0];
    assert_eq!((&column["column"], &column["values"]), (&"C1".into(), &40.into()));
    assert!((column["share"].as_f64().unwrap() - 40.0 / 85.0).abs() < 1e-12, "{column}");
    // So they are to whoever trains on.
    succeed(&format!("train --resume {} --steps 3", to("tuned")));
    assert_eq!(json(&format!("eval --checkpoint {} --json", to("tuned")))["samples"], 85);
    let message = fail(&format!("eval --checkpoint {} --on-bad-row fail", to("tuned")));
    assert!(message.contains("--on-bad-row") && message.contains("left malformed rows out"), "{message}");
    // The remedy.
    let whole = format!("eval --checkpoint {} --on-bad-row fail --data {} --json", to("tuned"), to("more.tsv"));
    assert_eq!(json(&whole)["samples"], 340);
    // Malformed rows are told by whoever goes on, too.
    fs::write(to("broken.tsv"), format!("{text}{}", "broken\n".repeat(40))).unwrap();
    let broken =
        format!("train --data {} {model} --test-fraction 0.25 {init} --out {}", to("broken.tsv"), to("mended"));
    let mended = json(&format!("{broken} --json"));
    assert_eq!(mended["skipped_rows"], 40);
    let warned = format!(
        "warning: 11.8 % of all rows (40 of 340) are malformed and left out: the first is {}: line 301: ",
        to("broken.tsv")
    );
    let is_warned = |told: &Value| told.as_str().unwrap().starts_with(&warned);
    assert!(mended["warnings"].as_array().unwrap().iter().any(is_warned), "{mended}");
    let scored = succeed(&format!("eval --checkpoint {}", to("mended")));
    assert!(String::from_utf8(scored.stderr).unwrap().contains(&warned));
    // Those in a file of their own are the same, whatever becomes of the others.
    fs::write(to("test.tsv"), &cut).unwrap();
    succeed(&format!("{train} --test-data {} --out {}", to("test.tsv"), to("apart")));
    let eval = format!("eval --checkpoint {}", to("apart"));
    fs::write(&data, &grown).unwrap();
    succeed(&eval);
    let message = fail(&format!("{eval} --split train"));
    assert!(message.contains("have changed or grown since, so that its training samples"), "{message}");
    fs::write(to("test.tsv"), &text).unwrap();
    assert!(fail(&eval).contains("have changed or grown since"));
    // They do not go along with other data unasked.
    let other = format!("train --config {} --data {} --out {}", to("apart/config.toml"), to("more.tsv"), to("others"));
    let message = fail(&other);
    assert!(
        message.contains("--data: the test samples would still be those of") && message.contains("test.tsv"),
        "{message}"
    );
    // The remedies.
    assert_eq!(json(&format!("{other} --set data.test_path= --json"))["samples"], 100);
    assert_eq!(json(&format!("{other} --force --test-data {} --json", to("test.tsv")))["samples"], 100);
    // Where the data are gone, the test samples may still be there.
    fs::remove_file(&data).unwrap();
    let message = fail(&eval);
    assert!(message.contains("clicks.tsv: is not there") && message.contains("put it back"), "{message}");
    assert!(message.contains(&format!("here --data {}", to("test.tsv"))), "{message}");
    succeed(&format!("{eval} --data {}", to("test.tsv")));
}

#[test]
fn a_closed_terminal_ends_no_run_under_nohup() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line = format!("{} --steps 100000000 --out {}", tiny_training(), out.display());
    let command = format!("trap '' HUP; exec {} {line}", octorec().get_program().display());
    let mut child = Command::new("sh").args(["-c", &command]).stderr(Stdio::null()).spawn().unwrap();
    let number = child.id().to_string();
    let logged = || fs::metadata(out.join("metrics.jsonl")).map_or(0, |file| file.len());
    let grows = |from: u64| {
        let began = Instant::now();
        while logged() <= from {
            assert!(began.elapsed() < Duration::from_secs(60), "the run logs");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let tell = |signal: &str| {
        assert!(Command::new("kill").args([signal, &number]).status().unwrap().success());
    };
    grows(0);
    tell("-HUP");
    // Longer than an interrupted run takes to save and end.
    for _ in 0..4 {
        let then = logged();
        grows(then);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(child.try_wait().unwrap().is_none(), "it goes on");
    tell("-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn the_script_beside_an_export_replaces_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (out, script) = (folder.path().join("run"), folder.path().join("load.py"));
    succeed(&format!("{} --steps 2 --out {}", tiny_training(), out.display()));
    fs::write(&script, "print('mine')\n").unwrap();
    let line = format!(
        "export --checkpoint {} --format torch --out {}",
        out.display(),
        folder.path().join("model.safetensors").display()
    );
    let message = fail(&line);
    assert!(message.contains("load.py") && !folder.path().join("model.safetensors").exists(), "{message}");
    assert_eq!(fs::read_to_string(&script).unwrap(), "print('mine')\n");
    fs::remove_file(&script).unwrap();
    succeed(&line);
    succeed(&line);
}

#[test]
fn data_are_not_written_over_other_data_or_folders() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let generate =
        format!("data generate {} --set data.train_samples=100 --set data.test_samples=50 --rows-cap 50", to("text"));
    succeed(&format!("{generate} --text"));
    let before = held(&folder.path().join("text"));
    assert!(fail(&format!("{generate} --text")).contains("day_0"), "text is there already");
    // A folder that preprocess would work in is somebody else's.
    fs::create_dir_all(folder.path().join("blocks/unfinished")).unwrap();
    fs::write(folder.path().join("blocks/unfinished/notes.txt"), "mine").unwrap();
    let preprocess = format!("preprocess criteo-kaggle --in {} --out {}", to("text/day_0"), to("blocks"));
    for force in ["", " --force"] {
        assert!(fail(&format!("{preprocess}{force}")).contains("unfinished"), "{force}");
    }
    fs::rename(folder.path().join("blocks/unfinished"), folder.path().join("mine")).unwrap();
    succeed(&preprocess);
    // Files of a format tell no more than their names; no part of a data set is written beside others' parts.
    for (format, name) in
        [("torchrec", "day_0_dense.npy"), ("mlperf", "their_test.bin"), ("octorec", "part-00009.octo")]
    {
        let (theirs, folder) = (folder.path().join(format).join(name), folder.path().join(format));
        fs::create_dir(&folder).unwrap();
        fs::write(&theirs, "theirs").unwrap();
        let message = fail(&format!("convert {} {} --format {format}", to("blocks"), folder.display()));
        assert!(message.contains("choose another directory"), "{message}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "{format}");
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    }
    assert_eq!(held(&folder.path().join("text")), before);
    // The folder that one is in has a name, too.
    let verify = octorec().args(["data", "verify", "."]).current_dir(folder.path().join("blocks")).output().unwrap();
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stderr));
}

#[test]
fn a_folder_of_text_stays_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let log = folder.path().join("log");
    fs::create_dir(&log).unwrap();
    fs::write(log.join("a.csv"), "label,user\n1,a\n0,b\n1,a\n0,b\n").unwrap();
    let schema = to("schema.toml");
    succeed(&format!("inspect {} --write-schema {schema}", to("log/a.csv")));
    fs::write(to("space.toml"), "[train]\nlr = { from = 0.01, to = 1.0 }\n").unwrap();
    let before = held(&log);
    let text = format!("--data {} --schema {schema} --steps 1", to("log"));
    for line in [
        format!("search {text} --space {} --trials 1 --out {}", to("space.toml"), to("log")),
        format!("convert {} {} --schema {schema}", to("log"), to("log")),
        format!("data generate {} --set data.train_samples=10", to("log")),
        format!("data generate {} --set data.train_samples=10 --text --rows-cap 50", to("log")),
    ] {
        let message = fail(&line);
        assert!(message.contains("are read as"), "{line}: {message}");
        assert_eq!(held(&log), before, "{line}");
        assert_eq!(fs::read_dir(&log).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(), 0);
    }
    // Text without a header, and text that only a schema tells.
    let generate = |name: &str| format!("data generate {} --set data.train_samples=10 --rows-cap 50", to(name));
    succeed(&format!("{} --text", generate("raw")));
    for name in ["kaggle", "odd", "notes"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    tsv(&folder.path().join("kaggle/train.txt"), 3);
    fs::copy(log.join("a.csv"), folder.path().join("odd/a.log")).unwrap();
    let convert = format!("convert {} {} --schema {schema}", to("odd/a.log"), to("odd"));
    for (line, name) in [(generate("raw"), "raw"), (generate("kaggle"), "kaggle"), (convert, "odd")] {
        let before = held(&folder.path().join(name));
        let message = fail(&line);
        assert!(message.contains("are read as"), "{line}: {message}");
        assert_eq!(held(&folder.path().join(name)), before, "{line}");
    }
    // Reports and notes are no tables.
    fs::write(folder.path().join("notes/notes.txt"), "two words\n").unwrap();
    fs::write(folder.path().join("notes/verify.json"), "{\"rows\": 1, \"files\": 2}\n").unwrap();
    succeed(&generate("notes"));
}

#[test]
fn make_removes_what_it_has_made_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let make = |flag: &str, mlperf: &str| {
        // Nothing is built, and no program is there: make ends where it would be called.
        let mut make = Command::new("make");
        make.env_remove("MAKEFLAGS").env_remove("MFLAGS");
        make.args([flag, "-C", env!("CARGO_MANIFEST_DIR"), "-o", "build", "mlperf-small", "TARGET=/nowhere"]);
        make.arg(format!("MLPERF={mlperf}")).output().unwrap()
    };
    let own = folder.path().display().to_string();
    let raw = folder.path().join("raw");
    fs::create_dir(&raw).unwrap();
    fs::write(raw.join("mine"), "mine").unwrap();
    // No command runs with -n; one that fails does not end make with -i.
    for (flag, given, told) in [
        ("-n", "", "names no folder"),
        ("-n", " ", "names no folder"),
        ("-k", &*own, "not of mlperf-small"),
        ("-i", &*own, "not of mlperf-small"),
    ] {
        let output = make(flag, given);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains(told), "{flag} {given:?}: {message}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{flag} {given:?}");
        assert!(raw.join("mine").exists());
    }
    // Its own mark.
    fs::write(folder.path().join(".mlperf-small"), "").unwrap();
    assert!(!make("-k", &own).status.success() && !raw.exists());
    // An empty folder, as mktemp makes one, is taken.
    fs::remove_file(folder.path().join(".mlperf-small")).unwrap();
    assert!(!make("-k", &own).status.success() && folder.path().join(".mlperf-small").exists());
}

#[test]
fn other_judges_of_rows_take_no_part_of_an_unfinished_run() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let good = tsv(&folder.path().join("a.tsv"), 300);
    let text = fs::read_to_string(&good).unwrap();
    fs::write(&good, format!("malformed\n{text}")).unwrap();
    // The second file is cut short, which ends the first attempt when it is done with the first file.
    let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    file.write_all(text.as_bytes()).unwrap();
    let whole = file.finish().unwrap();
    fs::write(folder.path().join("b.gz"), &whole[..whole.len() / 2]).unwrap();
    let line = format!("preprocess criteo-kaggle --in {} {} --out {} --threads 1", to("a.tsv"), to("b.gz"), to("out"));
    let skipping = format!("{line} --on-bad-row skip");
    assert!(fail(&skipping).contains("b.gz"));
    let message = fail(&line);
    assert!(message.contains("a.tsv: line 1: "), "{message}");
    fs::write(folder.path().join("b.gz"), &whole).unwrap();
    let told = String::from_utf8(succeed(&skipping).stderr).unwrap();
    assert!(told.contains(&format!("2 files, from {} to {}", to("a.tsv"), to("b.gz"))), "{told}");
}

#[test]
fn no_output_takes_the_place_of_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let data = tsv(&folder.path().join("clicks.tsv"), 300).display().to_string();
    fs::write(to("mine.toml"), "# Mine.\n[train]\nsteps = 3\n").unwrap();
    succeed(&format!("topo --topology two-socket --export {}", to("machine.toml")));
    let run = to("run");
    let train = "--test-fraction 0 --set model.bottom=[13,8] --set model.top=[8,1] --set model.dim=8 --threads 1";
    succeed(&format!("train --data {data} {train} --batch 50 --steps 2 --out {run}"));
    let before = [held(folder.path()), held(&folder.path().join("run"))];
    let mine = to("mine.toml");
    for (line, flag) in [
        (format!("plan --topology two-socket --data {data} --out {data}"), "--out"),
        (format!("simulate --topology two-socket --preset demo --config {mine} --svg {mine}"), "--svg"),
        (format!("simulate --topology two-socket --preset demo --config {mine} --trace {mine}"), "--trace"),
        (format!("config --config {mine} --svg {mine}"), "--svg"),
        (format!("topo --topology {0} --svg {0}", to("machine.toml")), "--svg"),
        (format!("train --preset demo --config {mine} --trace-loss {mine}"), "--trace-loss"),
        (format!("train --resume {run} --steps 4 --trace {run}/checkpoint.safetensors"), "--trace"),
    ] {
        let message = fail(&line);
        assert!(message.contains(flag) && message.contains("would be lost"), "{line}: {message}");
    }
    // What is refused at once leaves a run as it was, and so does what fails before its first step.
    fs::write(to("other.tsv"), "1\tonly\n").unwrap();
    for (flag, word) in [
        ("--rows-cap 100".to_owned(), "data.rows_cap with --resume"),
        (format!("--data {}", to("other.tsv")), "other.tsv"),
    ] {
        let message = fail(&format!("train --resume {run} --steps 4 {flag}"));
        assert!(message.contains(word), "{flag}: {message}");
    }
    fs::remove_file(to("other.tsv")).unwrap();
    assert_eq!([held(folder.path()), held(&folder.path().join("run"))], before);
    succeed(&format!("train --resume {run} --steps 4"));
}

#[test]
fn a_restart_takes_no_run_for_the_one_that_shall_replace_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&format!("{} --steps 3 --out {}", tiny_training(), out.display()));
    let before = fs::read(out.join("checkpoint.safetensors")).unwrap();
    let tiny = tiny_training();
    let flags = tiny.strip_prefix("train ").unwrap();
    let restart = |flags: &str| restarted(&out, &format!("{flags} --force")).output().unwrap();
    let diverges = restart(&format!("{flags} --steps 5 --lr 1e30"));
    assert_eq!(diverges.status.code(), Some(1), "{}", String::from_utf8_lossy(&diverges.stderr));
    assert!(fs::read(out.join("checkpoint.safetensors")).unwrap() == before, "the run before is there as it was");
    assert!(restart(&format!("{flags} --steps 5")).status.success());
    assert!(fs::read(out.join("checkpoint.safetensors")).unwrap() != before);
}

/// A training that is restarted once, into a folder.
fn restarted(out: &Path, flags: &str) -> Command {
    let line = format!("1 {} {} -- {flags}", out.display(), octorec().get_program().display());
    let mut command = Command::new("bash");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/topology/restart")).args(line.split_whitespace());
    command
}

#[test]
fn a_restart_replaces_nothing_that_training_has_refused_to_replace() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("config.toml"), "mine = 1\n").unwrap();
    fs::write(out.join("plan.toml"), "mine, too").unwrap();
    let before = held(&out);
    let tiny = tiny_training();
    let flags = tiny.strip_prefix("train ").unwrap();
    let refused = restarted(&out, &format!("{flags} --steps 5")).output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert_eq!(message.matches("this run's own files would replace").count(), 2, "{message}");
    assert_eq!(held(&out), before);
    // What is left of a run that had begun, and was killed, or whose machine failed, before it saved anything, needs no
    // --force.
    for line in ["", "{\"kind\": \"step\", \"step\": 1}\n", "\0\0\0\0"] {
        let out = folder.path().join(format!("begun-{}", line.len()));
        fs::create_dir(&out).unwrap();
        fs::write(out.join("metrics.jsonl"), line).unwrap();
        fs::write(out.join("config.toml"), "").unwrap();
        let done = restarted(&out, &format!("{flags} --steps 5")).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
}

#[test]
fn a_restart_that_is_asked_to_stop_asks_the_run_and_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = tiny_training();
    let flags = tiny.strip_prefix("train ").unwrap();
    for (name, signal) in [("term", Signal::TERM), ("hup", Signal::HUP), ("usr1", Signal::USR1)] {
        let out = folder.path().join(name);
        let mut command = restarted(&out, &format!("{flags} --steps 100000000"));
        let mut script = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while !fs::metadata(out.join("metrics.jsonl")).is_ok_and(|file| file.len() > 0) {
            assert!(begun.elapsed() < Duration::from_secs(60) && script.try_wait().unwrap().is_none(), "{name}");
            std::thread::sleep(Duration::from_millis(10));
        }
        kill_process(Pid::from_child(&script), signal).unwrap();
        assert_eq!(script.wait().unwrap().code(), Some(130), "{name}");
        assert!(out.join("checkpoint.safetensors").exists(), "{name}");
        assert!(FolderLock::take(&out).is_ok(), "{name}: the run goes on");
    }
}

#[test]
fn a_restart_asks_its_launcher_by_the_signal_that_launchers_hand_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let stub = "for signal in TERM HUP USR1; do trap \"echo $signal >>$1/got; exit 130\" $signal; done\n\
                touch $1/begun\nwhile :; do sleep 0.02; done\n";
    fs::write(at("launcher"), stub).unwrap();
    for signal in [Signal::TERM, Signal::HUP, Signal::USR1] {
        let _ = fs::remove_file(at("begun"));
        let mut command = Command::new("bash");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/topology/restart")).args(["1", at("run").as_str(), "bash"]);
        command.args([at("launcher").as_str(), at("").as_str(), "--", "--steps", "5"]);
        let mut script = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while !folder.path().join("begun").exists() {
            assert!(begun.elapsed() < Duration::from_secs(60) && script.try_wait().unwrap().is_none(), "{signal:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        kill_process(Pid::from_child(&script), signal).unwrap();
        assert_eq!(script.wait().unwrap().code(), Some(130), "{signal:?}");
    }
    assert_eq!(fs::read_to_string(at("got")).unwrap(), "USR1\nUSR1\nUSR1\n");
}

#[test]
fn a_restart_that_is_given_again_goes_on_with_its_run_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let tiny = tiny_training();
    let flags = format!("{} --steps 5 --auto-resume", tiny.strip_prefix("train ").unwrap());
    for time in ["first", "second"] {
        let done = restarted(&out, &flags).output().unwrap();
        assert!(done.status.success(), "{time}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let refused = restarted(&out, &flags.replace(" --auto-resume", "")).output().unwrap();
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && message.contains("--auto-resume, or replace it"), "{message}");
}

#[test]
fn ranks_that_were_suspended_for_longer_than_they_wait_for_each_other_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line =
        format!("{} --steps 100000000 --ranks 2 --threads 1 --timeout 1 --out {}", tiny_training(), out.display());
    let mut command = octorec();
    command.args(line.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = command.spawn().unwrap();
    let begun = Instant::now();
    while !fs::metadata(out.join("metrics.jsonl")).is_ok_and(|file| file.len() > 0) {
        assert!(begun.elapsed() < Duration::from_secs(60) && run.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    let signal = |signal| kill_process(Pid::from_child(&run), signal).unwrap();
    signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(1400));
    signal(Signal::CONT);
    // Whoever waited looks at the clock.
    std::thread::sleep(Duration::from_millis(100));
    signal(Signal::TERM);
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert!(out.join("checkpoint.safetensors").exists());
}

#[test]
fn weights_are_saved_where_what_is_written_about_them_has_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let message = fail(&format!("{} --steps 30 --trace-loss /dev/full --out {}", tiny_training(), out.display()));
    assert!(message.contains("/dev/full"), "{message}");
    let found = json(&format!("train --resume {} --steps 40 --json", out.display()));
    assert_eq!((found["step"].as_u64(), found["steps"].as_u64()), (Some(40), Some(10)), "{found}");
}

#[test]
fn files_that_cannot_be_written_are_told_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none/file").display().to_string();
    let losses = folder.path().join("losses").display().to_string();
    fs::write(&losses, "of a run before").unwrap();
    for line in [
        format!("{} --trace {file} --trace-loss {losses}", tiny_training()),
        format!("inspect --hot --set data.train_samples=2000 --out {file}"),
        format!("tune gemm --set model.bottom=[13,8] --set model.top=[8,1] --set model.dim=8 --out {file}"),
    ] {
        let message = fail(&line);
        assert!(message.contains(&format!("{file}: cannot create")), "{line}: {message}");
        assert!(!message.contains("training: "), "{line}: {message}");
    }
    assert_eq!(fs::read_to_string(&losses).unwrap(), "of a run before");
}

#[test]
fn what_people_edit_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let data = folder.path().join("log.csv");
    fs::write(&data, "label,user\n1,a\n0,b\n").unwrap();
    for (line, flag, file) in [
        ("plan --topology two-socket --preset demo".to_owned(), "--out", to("plan.toml")),
        ("topo --topology two-socket".to_owned(), "--export", to("machine.toml")),
        (format!("inspect {}", data.display()), "--write-schema", to("schema.toml")),
    ] {
        let line = format!("{line} {flag} {file}");
        succeed(&line);
        // The same once more loses nothing.
        succeed(&line);
        let edited = fs::read_to_string(&file).unwrap() + "# edited\n";
        fs::write(&file, &edited).unwrap();
        let message = fail(&line);
        assert!(message.contains(&format!("{flag}: {file} is there, with other text")), "{message}");
        assert_eq!(fs::read_to_string(&file).unwrap(), edited);
        fs::remove_file(&file).unwrap();
        succeed(&line);
    }
    // Where planning takes long, whatever is there is refused before.
    let (file, machine) = (to("many.toml"), "synthetic:node:64 core:32 pu:1");
    fs::write(&file, "# edited\n").unwrap();
    let many = ["plan", "--preset", "demo", "--topology", machine, "--ranks", "1025", "--out", &file];
    let output = octorec().args(many).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(&format!("--out: {file} is there already, which would be lost")), "{message}");
    assert!(!message.contains("is priced, which takes"), "{message}");
}

#[test]
fn a_device_is_no_folder_and_has_no_place_for_a_second_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run").display().to_string();
    let data = tsv(&folder.path().join("clicks.tsv"), 20);
    succeed(&format!("{} --steps 2 --out {run}", tiny_training()));
    for line in [
        format!("{} --steps 2 --out /dev/null", tiny_training()),
        format!("preprocess criteo-kaggle --in {} --out /dev/null", data.display()),
        "data generate /dev/null --set data.train_samples=10".to_owned(),
    ] {
        let message = fail(&line);
        assert!(message.contains("/dev/null: is no folder") && message.contains("name a folder"), "{line}: {message}");
    }
    let message = fail(&format!("export --checkpoint {run} --format torch --out /dev/null"));
    assert!(message.contains("--out: /dev/null is no regular file"), "{message}");
    // What is one file goes there.
    succeed(&format!("export --checkpoint {run} --format onnx --out /dev/null"));
    succeed("plan --topology two-socket --preset demo --out /dev/null");
}

#[test]
fn what_a_run_was_trained_on_and_text_that_is_no_picture_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let to = |name: &str| folder.path().join(name).display().to_string();
    let data = tsv(&folder.path().join("clicks.tsv"), 300);
    for copy in ["tests.tsv", "others.tsv"] {
        fs::copy(&data, to(copy)).unwrap();
    }
    let (run, model) = (to("run"), "--set model.bottom=[13,8] --set model.top=[8,1] --set model.dim=8 --threads 1");
    let tests = to("tests.tsv");
    succeed(&format!("train --data {} --test-data {tests} {model} --batch 50 --steps 2 --out {run}", data.display()));
    fs::write(to("schema.toml"), "label = \"clicked\"\n").unwrap();
    let before = held(folder.path());
    for out in ["clicks.tsv", "tests.tsv"] {
        for command in [
            format!("predict --data {}", to("others.tsv")),
            "export --format torch".to_owned(),
            "export --format onnx".to_owned(),
        ] {
            let message = fail(&format!("{command} --checkpoint {run} --out {}", to(out)));
            let told = format!(
                "--out: {} is part of the data or configuration that the run of {run} reads, which would be lost",
                to(out)
            );
            assert!(message.contains(&told), "{command}: {message}");
            assert!(held(folder.path()) == before, "{command}");
        }
    }
    for command in ["config", "topo --topology two-socket", "simulate --topology two-socket --preset demo"] {
        let message = fail(&format!("{command} --svg {}", to("schema.toml")));
        assert!(message.contains(&format!("--svg: {} is there and is no picture", to("schema.toml"))), "{message}");
        assert!(held(folder.path()) == before, "{command}");
    }
    // Where standard output goes to such a file, it is no other than a pipe: what is there stays.
    fs::write(to("log"), "before\n").unwrap();
    let log = fs::File::options().append(true).open(to("log")).unwrap();
    let output = octorec().args(["config", "--svg", "/dev/stdout"]).stdout(log).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(to("log")).unwrap();
    assert!(text.starts_with("before\n") && text.contains("<svg"), "{text}");
    // A picture is drawn again, and so is an empty file.
    fs::write(to("net.svg"), "").unwrap();
    for _ in 0..2 {
        succeed(&format!("config --svg {}", to("net.svg")));
        assert!(fs::read_to_string(to("net.svg")).unwrap().contains("<svg"));
    }
}
