//! From the first step to the last prediction: directories, checkpoints, resuming, signals, full disks.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use octorec::memory::file_id;
use serde_json::Value;

use super::auc::auc;
use super::{TINY, criteo_sample, fail, json, octorec, succeed, tiny_training, tsv};

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_run_leaves_its_configuration_metrics_and_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let began = Instant::now();
    let summary = json(&format!("{} --eval-every 15 --out {} --json", tiny_training(), out.display()));
    let took_ms = began.elapsed().as_secs_f64() * 1e3;
    let metrics = lines(&out.join("metrics.jsonl"));
    let of_kind = |kind: &str| metrics.iter().filter(|entry| entry["kind"] == kind).collect::<Vec<_>>();
    let steps = of_kind("step");
    assert_eq!(steps.len(), 40);
    for (entry, number) in steps.iter().zip(1..) {
        assert_eq!(entry["step"], number);
        assert!(["epoch", "loss", "lr", "ms", "samples_per_s"].iter().all(|key| entry[key].is_number()), "{entry}");
        let samples = entry["samples_per_s"].as_f64().unwrap() * entry["ms"].as_f64().unwrap() / 1e3;
        assert!((samples - 64.0).abs() < 1e-6, "{entry}");
    }
    // What steps took lies within the run's seconds, and with evaluations within the command's time.
    let ms_of = |entries: &[&Value]| entries.iter().map(|entry| entry["ms"].as_f64().unwrap()).sum::<f64>();
    let steps_ms = ms_of(&steps);
    assert!(steps_ms <= summary["seconds"].as_f64().unwrap() * 1e3 + 1e-3, "{steps_ms} ms, {summary}");
    let evaluations = of_kind("eval");
    assert_eq!(evaluations.iter().map(|entry| entry["step"].as_u64().unwrap()).collect::<Vec<_>>(), [15, 30, 40]);
    assert_eq!(evaluations[2]["auc"], summary["auc"]);
    assert_eq!(evaluations[2]["samples"], 640);
    let told_ms = steps_ms + ms_of(&evaluations);
    assert!(told_ms <= took_ms, "{told_ms} of {took_ms} ms");

    // The saved configuration is complete: it reproduces the run by itself.
    let config = out.join("config.toml");
    let again = json(&format!("train --config {} --json", config.display()));
    assert_eq!((&again["auc"], &again["final_loss"]), (&summary["auc"], &summary["final_loss"]));

    let scores = json(&format!("eval --checkpoint {} --json", out.display()));
    assert_eq!((&scores["auc"], &scores["logloss"]), (&summary["auc"], &summary["logloss"]));
}

/// Every learned row of a metrics file, without what depends on the clock.
fn learned(path: &Path) -> Vec<(u64, u64, String)> {
    let steps = lines(path).into_iter().filter(|entry| entry["kind"] == "step");
    steps.map(|e| (e["step"].as_u64().unwrap(), e["epoch"].as_u64().unwrap(), e["loss"].to_string())).collect()
}

#[test]
fn stopping_and_resuming_changes_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("clicks.tsv"), 1500);
    for source in [String::new(), format!("--data {} --set data.shuffle_window=200", data.display())] {
        // Over an epoch's end, and not at a shuffle window's.
        for stop in [7, 40, 53] {
            let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
            let line = format!("{} {source} --batch 50 --seed 5", tiny_training());
            succeed(&format!("{line} --steps 70 --out {} --force", whole.display()));
            succeed(&format!("{line} --steps {stop} --out {} --force", parts.display()));
            succeed(&format!("train --resume {} --steps 70", parts.display()));
            let file = |run: &Path| fs::read(run.join("checkpoint.safetensors")).unwrap();
            assert!(file(&whole) == file(&parts), "checkpoints after stopping at {stop} {source}");
            let metrics = |run: &Path| learned(&run.join("metrics.jsonl"));
            assert_eq!(metrics(&whole), metrics(&parts), "losses after stopping at {stop} {source}");
        }
    }
}

#[test]
fn a_run_that_is_killed_goes_on_from_what_it_saved_by_time() {
    let moments = "--optimizer adam --optimizer-rows momentum";
    for (ranks, words) in [
        ("--ranks 1", String::new()),
        ("--ranks 2 --threads 1", format!("{moments} --precision bf16")),
        ("--ranks 2 --threads 1", format!("{moments} --lr 0.01 --hot exact --hot-budget 64KiB")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let [whole, killed] = ["whole", "killed"].map(|name| folder.path().join(name));
        let file = |run: &Path| fs::read(run.join("checkpoint.safetensors")).unwrap_or_default();
        let line = format!("{} --rows-cap 100 {ranks} {words}", tiny_training());
        let saving =
            format!("{line} --steps 100000000 --set train.checkpoint_minutes=0.001 --out {}", killed.display());
        let mut child = octorec().args(saving.split_whitespace()).stderr(Stdio::null()).spawn().unwrap();
        // The second one is of steps behind a save.
        let deadline = Instant::now() + Duration::from_secs(300);
        let mut saved = Vec::new();
        for _ in 0..2 {
            while file(&killed) == saved {
                assert!(Instant::now() < deadline, "{ranks} {words}: nothing is saved by time");
                std::thread::sleep(Duration::from_millis(5));
            }
            saved = file(&killed);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let resume = format!("train --resume {} {ranks} --set train.checkpoint_minutes=0", killed.display());
        let steps = json(&format!("{resume} --steps 1 --json"))["step"].as_u64().unwrap() + 20;
        succeed(&format!("{resume} --steps {steps}"));
        succeed(&format!("{line} --steps {steps} --set train.checkpoint_minutes=0 --out {}", whole.display()));
        assert!(file(&whole) == file(&killed), "{ranks} {words}: checkpoints");
        let [whole, killed] = [whole, killed].map(|run| learned(&run.join("metrics.jsonl")));
        assert_eq!(whole, killed, "{ranks} {words}: losses");
    }
}

#[test]
fn resuming_a_finished_run_does_nothing_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let first = json(&format!("{} --out {} --json", tiny_training(), out.display()));
    let before = fs::read(out.join("checkpoint.safetensors")).unwrap();
    let again = json(&format!("train --resume {} --json", out.display()));
    assert_eq!((&again["step"], &again["steps"], &again["samples"]), (&first["step"], &0.into(), &0.into()));
    assert_eq!(&again["auc"], &first["auc"]);
    assert_eq!((&first["outcome"], &again["outcome"]), (&"finished".into(), &"already-finished".into()));
    assert!(fs::read(out.join("checkpoint.safetensors")).unwrap() == before);
    // Nor does it say of itself what somebody asks for who trains nothing.
    let config = fs::read_to_string(out.join("config.toml")).unwrap();
    let asked = json(&format!("train --resume {} --lr 0.3 --batch 32 --json", out.display()));
    assert_eq!(asked["outcome"], "already-finished");
    assert_eq!(fs::read_to_string(out.join("config.toml")).unwrap(), config);
    assert!(fs::read(out.join("checkpoint.safetensors")).unwrap() == before && !out.join("resume.toml").exists());
    // Its last test is logged once, however often it is made.
    let logged = lines(&out.join("metrics.jsonl"));
    let kinds = ["step", "eval"].map(|kind| logged.iter().filter(|entry| entry["kind"] == kind).count());
    assert_eq!(kinds, [40, 1]);
}

/// Ends a command by a kill as soon as something is so.
pub(super) fn kill_when(line: &str, mut is: impl FnMut() -> bool) {
    let mut child = octorec().args(line.split_whitespace()).stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < deadline, "{line}");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_rate_that_a_run_is_given_names_those_that_do_not_move_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let begin = |name: &str, flags: &str| {
        let out = folder.path().join(name).display().to_string();
        succeed(&format!("{} --steps 1 {flags} --out {out}", tiny_training()));
        out
    };
    let told = |run: &str, flags: &str| {
        let output = succeed(&format!("train --resume {run} {flags}"));
        let told = String::from_utf8(output.stderr).unwrap();
        told.lines().filter(|line| line.contains(" the rate of the run")).collect::<Vec<_>>().join("; ")
    };
    let run = begin("rows", "--set train.lr_rows=0.3");
    let note = "the rows keep the rate of the run, train.lr_rows = 0.3; --set train.lr_rows=RATE changes it";
    assert_eq!(told(&run, "--steps 2 --lr 0.2"), format!("note: --lr: {note}"));
    assert_eq!(told(&run, "--steps 3 --set train.lr=0.25"), format!("note: --set train.lr=0.25: {note}"));
    assert_eq!(told(&run, "--steps 4 --lr 0.25"), "", "the rate that it has");
    assert_eq!(told(&run, "--steps 5 --lr 0.4 --set train.lr_rows=0.5"), "");
    let run = begin("one", "");
    assert_eq!(told(&run, "--steps 2 --lr 0.2"), "", "the rows follow");
    let run = begin("wide", "--set model.wide=true --set train.lr_wide=0.05");
    let note = "the wide part keeps the rate of the run, train.lr_wide = 0.05; --set train.lr_wide=RATE changes it";
    assert_eq!(told(&run, "--steps 2 --lr 0.2"), format!("note: --lr: {note}"));
}

#[test]
fn what_a_resumed_run_was_asked_for_outlives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (whole, parts) = (at("whole"), at("parts"));
    let [first, second] = ["day_0", "day_1"].map(|name| tsv(&at(name), 1000));
    // Other rows than the first day's.
    let text = fs::read_to_string(&second).unwrap();
    fs::write(&second, text.lines().rev().map(|line| line.to_owned() + "\n").collect::<String>()).unwrap();
    let line = format!("train {TINY} --data {} --vocab hash --rows-cap 50 --epochs 1", first.display());
    for run in [&whole, &parts] {
        succeed(&format!("{line} --out {}", run.display()));
    }
    let file = |run: &Path| fs::read(run.join("checkpoint.safetensors")).unwrap();
    let (before, noted) = (file(&parts), parts.join("resume.toml"));
    let more = |run: &Path, epochs: u64| {
        format!("train --resume {} --data {} --epochs {epochs}", run.display(), second.display())
    };
    // What fails before it trains leaves no trace.
    fail(&format!("train --resume {} --data nowhere.tsv --epochs 4", parts.display()));
    fail(&format!("{} --precision bf17", more(&parts, 4)));
    assert!(!noted.exists());
    kill_when(&more(&parts, 100_000_000), || noted.exists());
    assert!(file(&parts) == before, "nothing was saved");
    succeed(&format!("eval --checkpoint {}", parts.display()));
    let config = |run: &Path| fs::read_to_string(run.join("config.toml")).unwrap();
    assert!(!config(&parts).contains("day_1") && fs::read_to_string(&noted).unwrap().contains("day_1"));
    // What is given again comes on top of that, and what was given stays.
    succeed(&more(&whole, 9));
    let bare = format!("train --resume {} --json", parts.display());
    let found = json(&format!("{bare} --epochs 9"));
    assert_eq!((&found["outcome"], &found["step"]), (&"finished".into(), &(9 * 15).into()), "{found}");
    let told: Vec<_> = found["warnings"].as_array().unwrap().iter().map(|told| told.as_str().unwrap()).collect();
    let goes_on = told.iter().find(|told| told.starts_with("note: the run goes on as it was resumed last, with "));
    let named =
        |words: &&&str| words.contains("data.path = ") && words.contains("day_1") && words.contains("train.epochs = 9");
    assert!(goes_on.is_some_and(|told| named(&told) && told.contains("resume.toml")), "{told:?}");
    assert!(file(&whole) == file(&parts), "the bits of a run that was not killed");
    assert_eq!(config(&whole), config(&parts));
    assert!(!noted.exists());
    assert_eq!(json(&bare)["outcome"], "already-finished");
}

#[test]
fn the_same_command_begins_a_run_goes_on_with_it_and_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = tsv(&at("clicks.tsv"), 600).display().to_string();
    // Of generated data and of files, which tell how many dense features there are.
    for (name, line) in [
        ("built-in", format!("{} --steps 2000", tiny_training())),
        ("files", format!("train {TINY} --data {data} --set model.bottom=[0,32,8] --epochs 200")),
    ] {
        let line = format!("{line} --checkpoint-every 10");
        let (out, whole) = (at(name), at(&format!("{name}-whole")));
        let saved = out.join("checkpoint.safetensors");
        let repeated = format!("{line} --out {} --auto-resume", out.display());
        // A run that has saved nothing begins anew.
        let unsaved = repeated.replace("--checkpoint-every 10", "");
        kill_when(&format!("{unsaved} --set train.checkpoint_minutes=0"), || out.join("metrics.jsonl").exists());
        assert!(!saved.exists(), "{name}");
        kill_when(&repeated, || saved.exists());
        for (more, key) in
            [("--lr 0.3", "train.lr"), ("--set model.top=[8,1]", "model.top"), ("--seed 9", "train.seed")]
        {
            let message = fail(&format!("{repeated} {more}"));
            let told = format!("{key} with --auto-resume: {} holds a run with {key} = ", out.display());
            assert!(message.contains(&told) && message.contains("--resume "), "{message}");
        }
        succeed(&repeated);
        succeed(&format!("{line} --out {}", whole.display()));
        assert!(fs::read(&saved).unwrap() == fs::read(whole.join("checkpoint.safetensors")).unwrap(), "{name}");
        let again = json(&format!("{repeated} --json"));
        assert_eq!((&again["outcome"], &again["steps"]), (&"already-finished".into(), &0.into()), "{name}");
    }
}

#[test]
fn a_command_that_begins_with_other_weights_does_not_go_on_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (first, second, moved) = (at("first"), at("second"), at("moved"));
    succeed(&format!("{} --steps 3 --out {first}", tiny_training()));
    succeed(&format!("{} --steps 3 --seed 9 --out {second}", tiny_training()));
    let goes_on = |line: &str| assert_eq!(json(&format!("{line} --json"))["outcome"], "already-finished", "{line}");
    let line = format!("{} --steps 5 --auto-resume --out", tiny_training());
    let (plain, begun) = (format!("{line} {}", at("plain")), format!("{line} {}", at("begun")));
    succeed(&plain);
    goes_on(&plain);
    let message = fail(&format!("{plain} --init {first}"));
    assert!(message.contains(&format!("began without --init, and one with --init {first} is asked for")), "{message}");
    succeed(&format!("{begun} --init {first}"));
    let refused = || {
        for (more, asked) in [
            (format!("--init {second}"), format!("with --init {second}")),
            (String::new(), "without --init".to_owned()),
        ] {
            let message = fail(&format!("{begun} {more}"));
            let told =
                format!("--init with --auto-resume: {} holds a run that began with --init {first}, ", at("begun"));
            assert!(message.contains(&told) && message.contains(&format!("and one {asked} is asked for")), "{message}");
        }
    };
    refused();
    // What is said of it stays, also where a process that did not begin the run saves.
    succeed(&format!("train --resume {} --steps 6", at("begun")));
    let begun = begun.replace("--steps 5", "--steps 6");
    goes_on(&format!("{begun} --init {first}"));
    // By the same path other weights, or none any more.
    succeed(&format!("train --resume {first} --steps 4"));
    goes_on(&format!("{begun} --init {first}"));
    fs::rename(&first, &moved).unwrap();
    goes_on(&format!("{begun} --init {first}"));
    let message = fail(&format!("{begun} --init {moved}"));
    assert!(message.contains(&format!("and one with --init {moved} is asked for")), "{message}");
    // The same weights by another path.
    let copied = format!("{line} {}", at("copied"));
    succeed(&format!("{copied} --init {second}"));
    fs::rename(&second, at("again")).unwrap();
    goes_on(&format!("{copied} --init {}", at("again")));
}

#[test]
fn a_taken_directory_is_refused_and_force_replaces_it() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line = format!("{} --out {}", tiny_training(), out.display());
    succeed(&line);
    let before = fs::read(out.join("checkpoint.safetensors")).unwrap();
    let message = fail(&line);
    assert!(message.contains("already holds a run") && message.contains("--resume"), "{message}");
    assert!(fs::read(out.join("checkpoint.safetensors")).unwrap() == before, "the refused run changed nothing");
    succeed(&format!("{line} --force --seed 9"));
    assert!(fs::read(out.join("checkpoint.safetensors")).unwrap() != before);
}

#[test]
fn predictions_are_those_of_the_evaluation_and_new_data_maps_as_the_training_data() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("clicks.tsv"), 2000);
    let text = fs::read_to_string(&data).unwrap();
    let out = folder.path().join("run");
    // Trained with the vocabulary of the first part, so that the last part has values never seen.
    let training = format!("train {TINY} --data {} --epochs 1 --test-fraction 0.25 --vocab train", data.display());
    let summary = json(&format!("{training} --out {} --json", out.display()));

    // The last quarter as a file of its own, and the same without labels.
    let tail: Vec<&str> = text.lines().skip(1500).collect();
    let (labelled, unlabelled) = (folder.path().join("tail.tsv"), folder.path().join("unlabelled.tsv"));
    fs::write(&labelled, tail.join("\n")).unwrap();
    let bare: Vec<&str> = tail.iter().map(|line| line.split_once('\t').unwrap().1).collect();
    fs::write(&unlabelled, bare.join("\n")).unwrap();

    let scores = json(&format!("eval --checkpoint {} --data {} --json", out.display(), labelled.display()));
    assert_eq!((&scores["auc"], &scores["samples"]), (&summary["auc"], &500.into()));

    let predicted = folder.path().join("p.txt");
    succeed(&format!(
        "predict --checkpoint {} --data {} --out {}",
        out.display(),
        unlabelled.display(),
        predicted.display()
    ));
    let predicted = fs::read_to_string(predicted).unwrap();
    let probabilities: Vec<f32> = predicted.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(probabilities.len(), 500);
    let labels: Vec<f32> = tail.iter().map(|line| line[..1].parse().unwrap()).collect();
    assert_eq!(auc(&probabilities, &labels), summary["auc"].as_f64().unwrap());

    let stdout = succeed(&format!("predict --checkpoint {} --data {}", out.display(), labelled.display())).stdout;
    assert_eq!(String::from_utf8(stdout).unwrap(), predicted, "labels do not matter, and stdout is the default");
}

#[test]
fn values_that_a_model_never_saw_count_as_empty_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("clicks.tsv"), 300);
    let out = folder.path().join("run");
    succeed(&format!("train {TINY} --data {} --epochs 1 --out {}", data.display(), out.display()));
    // One known row twice: as it is, and with two values that nobody has seen.
    let text = fs::read_to_string(&data).unwrap();
    let line = text.lines().next().unwrap();
    let mut fields: Vec<&str> = line.split('\t').collect();
    fields[14] = "0badcafe";
    fields[39] = "1badcafe";
    let new = folder.path().join("new.tsv");
    fs::write(&new, format!("{line}\n{}\n", fields.join("\t"))).unwrap();
    let output = succeed(&format!("predict --checkpoint {} --data {}", out.display(), new.display()));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("2 categorical values were not in the model's vocabulary"), "{message}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines.len() == 2 && lines[0] != lines[1], "{printed}");
    let scores = json(&format!("eval --checkpoint {} --data {} --json", out.display(), new.display()));
    assert_eq!((&scores["unknown_values"], &scores["skipped_rows"]), (&2.into(), &0.into()));
    let columns = scores["unknown_values_by_column"].as_array().unwrap();
    let shares: Vec<_> = columns.iter().map(|column| (column["values"].as_u64(), column["share"].as_f64())).collect();
    let expected = |n| if n == 0 || n == 25 { (Some(1), Some(0.5)) } else { (Some(0), Some(0.0)) };
    assert!(columns[25]["column"] == "C26" && shares == (0..26).map(expected).collect::<Vec<_>>(), "{shares:?}");
    // Columns of which many are unknown are told by name.
    let told = [1, 2, 26].map(|n| message.contains(&format!("50.0 % of the values of column C{n} were unknown")));
    assert_eq!(told, [true, false, true], "{message}");
}

#[test]
#[cfg(unix)]
fn files_have_the_permissions_that_the_user_asks_for() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line = format!(
        "umask 027; exec {} {} --steps 1 --out {}",
        env!("CARGO_BIN_EXE_octorec"),
        tiny_training(),
        out.display()
    );
    assert!(std::process::Command::new("bash").args(["-c", &line]).output().unwrap().status.success());
    for name in ["checkpoint.safetensors", "config.toml", "metrics.jsonl"] {
        assert_eq!(fs::metadata(out.join(name)).unwrap().permissions().mode() & 0o777, 0o640, "{name}");
    }
}

#[test]
fn weights_start_a_run_and_must_fit() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&format!("{} --steps 5 --out {}", tiny_training(), out.display()));
    let weights = out.join("checkpoint.safetensors");
    // From the same weights, the seed of the initial weights no longer matters.
    let from =
        |seed| json(&format!("{} --init {} --no-shuffle --seed {seed} --json", tiny_training(), weights.display()));
    assert_eq!(from(1)["final_loss"], from(2)["final_loss"]);

    let message = fail(&format!("{} --init {} --set model.top=[17,1]", tiny_training(), weights.display()));
    assert!(message.contains("top_l.0.weight has shape [16, ") && message.contains("needs [17, "), "{message}");
    let more = "--set model.top=[16,4,1]";
    let message = fail(&format!("{} --init {} {more}", tiny_training(), weights.display()));
    assert!(message.contains("top_l.2"), "{message}");
}

#[test]
#[cfg(unix)]
fn a_wish_to_stop_saves_and_exits_with_130() {
    let folder = tempfile::tempdir().unwrap();
    // Schedulers of jobs may ask again and again while a checkpoint is written.
    for signals in [&["INT"][..], &["TERM", "TERM", "TERM"], &["USR1", "HUP", "USR1"]] {
        let out = folder.path().join(signals[0]);
        let line = format!("{} --steps 1000000 --out {}", tiny_training(), out.display());
        let child = octorec().args(line.split_whitespace()).stderr(Stdio::piped()).spawn().unwrap();
        let metrics = out.join("metrics.jsonl");
        let deadline = Instant::now() + Duration::from_secs(60);
        while fs::metadata(&metrics).map_or(0, |file| file.len()) == 0 {
            assert!(Instant::now() < deadline, "training began");
            std::thread::sleep(Duration::from_millis(20));
        }
        let described = file_id(&out.join("config.toml"));
        assert!(described.is_some(), "{signals:?}");
        let kills: Vec<_> = signals.iter().map(|signal| format!("kill -{signal} {}", child.id())).collect();
        let kill = std::process::Command::new("bash").args(["-c", &kills.join("; true; ")]).status().unwrap();
        assert!(kill.success() || signals.len() > 1, "{kills:?}");
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{signals:?}: {message}");
        assert!(message.contains("continue with: octorec train --resume"), "{signals:?}: {message}");
        assert_eq!(file_id(&out.join("config.toml")), described, "{signals:?}: what was written is not written again");
        let done = lines(&metrics).iter().filter(|entry| entry["kind"] == "step").count();
        // One step more than were done: the checkpoint holds all that was logged.
        let resumed = json(&format!("train --resume {} --steps {} --json", out.display(), done + 1));
        assert_eq!(
            (&resumed["step"], &resumed["steps"], &resumed["samples"]),
            (&(done + 1).into(), &1.into(), &64.into())
        );
    }
}

#[test]
#[cfg(unix)]
fn scores_of_an_interrupted_run_are_those_of_its_last_step_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line = format!("{} --steps 1000000 --eval-every 100 --json --out {}", tiny_training(), out.display());
    let child = octorec().args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let metrics = out.join("metrics.jsonl");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !fs::read_to_string(&metrics).unwrap_or_default().contains("\"kind\":\"eval\"") {
        assert!(Instant::now() < deadline, "the run evaluates");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["outcome"], "interrupted");
    let metrics = lines(&metrics);
    let last = metrics.iter().rev().find(|entry| entry["kind"] == "eval").unwrap();
    let is_of_end = last["step"] == summary["step"];
    for key in ["auc", "logloss", "pr_auc", "normalised_entropy", "accuracy", "calibration"] {
        assert_eq!(summary[key].is_number(), is_of_end, "{key}: {summary} and {last}");
    }
}

#[test]
fn with_what_the_sums_of_an_optimizer_began_stays_where_they_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let line = format!("{} --optimizer adagrad --optimizer-rows rowwise-adagrad --steps", tiny_training());
    succeed(&format!("{line} 3 --out {}", at("run")));
    let resume =
        |value: &str| format!("train --resume {} --steps 5 --set train.initial_accumulator={value}", at("run"));
    let message = fail(&resume("0.5"));
    assert!(message.contains("train.initial_accumulator with --resume: the optimizer's sums began at 0 "), "{message}");
    succeed(&resume("0"));
    succeed(&format!("export --checkpoint {} --format torch --out {}", at("run"), at("model.safetensors")));
    for (from, is_told) in [("run", true), ("model.safetensors", false)] {
        let begun = format!("{line} 1 --init {} --set train.initial_accumulator=0.5", at(from));
        let said = String::from_utf8(succeed(&begun).stderr).unwrap();
        let note =
            "note: --set train.initial_accumulator=0.5 changes nothing: the optimizer's sums are taken from --init";
        assert_eq!(said.contains(note), is_told, "{from}: {said}");
    }
    // Of layers alone there are some, and the sums of rows begin as they are told to.
    let halves = format!("{} --optimizer adagrad --optimizer-rows sgd --steps 3", tiny_training());
    succeed(&format!("{halves} --out {}", at("halves")));
    let begun = format!("{line} 1 --init {} --set train.initial_accumulator=0.5", at("halves"));
    let said = String::from_utf8(succeed(&begun).stderr).unwrap();
    let note = "train.initial_accumulator=0.5 changes nothing of layers: the optimizer's sums of layers are taken from";
    assert!(said.contains(note), "{said}");
}

/// A disk that is full looks to a program like this limit on the size of its files.
#[test]
#[cfg(unix)]
fn a_full_disk_leaves_the_old_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&format!("{} --steps 5 --out {}", tiny_training(), out.display()));
    let checkpoint = out.join("checkpoint.safetensors");
    let before = fs::read(&checkpoint).unwrap();
    // At the end, every so many steps, and by time.
    let endless = "--steps 100000000";
    for words in [
        "--steps 9",
        &format!("{endless} --checkpoint-every 9"),
        // A run goes on as it was resumed last.
        &format!("{endless} --checkpoint-every 0 --set train.checkpoint_minutes=0.0001"),
    ] {
        let limited = format!(
            "trap '' XFSZ; ulimit -f 64; exec {} train --resume {} {words}",
            env!("CARGO_BIN_EXE_octorec"),
            out.display()
        );
        let output = std::process::Command::new("bash").args(["-c", &limited]).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words}: {message}");
        assert!(message.contains("checkpoint.safetensors: cannot write"), "{words}: {message}");
        let kept = "checkpoint.safetensors is still that of an earlier step, whole and safe";
        assert!(message.contains(kept), "{words}: {message}");
        assert!(fs::read(&checkpoint).unwrap() == before, "{words}: the old checkpoint stays, whole");
        assert!(!octorec::memory::partial_of(&checkpoint).exists(), "{words}: nothing half-written stays behind");
    }
    succeed(&format!("train --resume {} --steps 9", out.display()));
}

#[test]
fn the_vocabulary_of_the_real_sample_has_its_known_sizes() {
    let Some(file) = criteo_sample() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&format!("train {TINY} --data {} --steps 1 --out {}", file.display(), out.display()));
    let vocabulary = octorec::train::load_vocabulary(&out.join("vocabulary.safetensors"), true).unwrap();
    let sizes = [
        484, 491, 35104, 20746, 136, 12, 7220, 235, 3, 9833, 3674, 33153, 2732, 26, 4804, 27922, 9, 2375, 1221, 4,
        31058, 11, 14, 10541, 49, 8167,
    ];
    assert_eq!(vocabulary.rows(), sizes);
}
