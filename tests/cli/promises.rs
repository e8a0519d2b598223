//! What is finished is never lost, whoever reads, writes, forces or removes; and what is asked for is done or refused.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{fail, json, octorec, succeed, tiny_training, tsv};

fn checkpoint(run: &Path) -> Vec<u8> {
    fs::read(run.join("checkpoint.safetensors")).expect("a checkpoint")
}

/// Waits until something is so.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(5));
    }
}

/// A training that goes on until it is interrupted.
fn endless(out: &Path) -> Child {
    let line = format!("{} --steps 100000000 --out {}", tiny_training(), out.display());
    let child = octorec().args(line.split_whitespace()).stderr(Stdio::null()).spawn().unwrap();
    until("the run logs", || fs::metadata(out.join("metrics.jsonl")).is_ok_and(|file| file.len() > 0));
    child
}

fn interrupt(child: &mut Child) -> Option<i32> {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    child.wait().unwrap().code()
}

#[test]
fn a_forced_run_that_fails_leaves_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line = format!("{} --out {}", tiny_training(), out.display());
    succeed(&line);
    let before = checkpoint(&out);
    let (good, bad) = (tsv(&folder.path().join("good.tsv"), 300), folder.path().join("bad.tsv"));
    fs::write(&bad, "1\tonly\n").unwrap();
    for wrong in [
        "--data nowhere.tsv".to_owned(),
        format!("--data {}", bad.display()),
        format!("--data {} --plan nowhere.toml", good.display()),
        "--init nowhere.safetensors".to_owned(),
        "--lr nan".to_owned(),
    ] {
        fail(&format!("{line} --force {wrong}"));
        assert!(checkpoint(&out) == before, "{wrong}");
        succeed(&format!("eval --checkpoint {}", out.display()));
    }
    // Diverged before anything was saved.
    fail(&format!("{line} --force --lr 1e30"));
    assert!(checkpoint(&out) == before, "a run that diverges");
    // Its own weights may start the run that replaces it.
    succeed(&format!("{line} --force --init {}", out.join("checkpoint.safetensors").display()));
    assert!(checkpoint(&out) != before && !out.join(".previous").exists());
}

#[test]
fn a_forced_run_that_is_killed_leaves_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&format!("{} --out {}", tiny_training(), out.display()));
    let before = checkpoint(&out);
    let line = format!("{} --steps 100000000 --out {} --force", tiny_training(), out.display());
    let mut child = octorec().args(line.split_whitespace()).stderr(Stdio::null()).spawn().unwrap();
    until("the new run has begun", || out.join(".previous").exists() && out.join("config.toml").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    succeed(&format!("eval --checkpoint {}", out.display()));
    succeed(&format!("train --resume {} --steps 45", out.display()));
    assert!(!out.join(".previous").exists() && checkpoint(&out) != before);
}

/// What is proposed is made to be edited: what was edited is not overwritten, and what was not may be written again.
#[test]
fn a_schema_that_was_edited_stays() {
    let folder = tempfile::tempdir().unwrap();
    let [data, schema] = ["clicks.csv", "clicks.toml"].map(|name| folder.path().join(name));
    fs::write(&data, "label,user,price\n1,a,0.5\n0,b,1.5\n1,a,2.5\n").unwrap();
    let line = format!("inspect {} --write-schema {}", data.display(), schema.display());
    succeed(&line);
    succeed(&line);
    let edited = format!("{}# mine\n", fs::read_to_string(&schema).unwrap());
    fs::write(&schema, &edited).unwrap();
    let message = fail(&line);
    assert!(message.contains("--write-schema: ") && message.contains("name another file"), "{message}");
    assert_eq!(fs::read_to_string(&schema).unwrap(), edited);
}

/// Nor is any file of the run that is read, and two outputs are two files.
#[test]
fn no_output_is_a_file_of_a_run_or_another_output() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    succeed(&format!("{} --out {}", tiny_training(), at("run")));
    succeed(&format!("{} --steps 9 --eval-every 3 --keep-best --out {}", tiny_training(), at("other")));
    succeed(&format!("export --format onnx --checkpoint {} --out {} --external-above 1", at("run"), at("model.onnx")));
    fs::rename(at("run/checkpoint.safetensors"), at("model.onnx.data")).unwrap();
    fs::copy(at("model.onnx.data"), at("run/checkpoint.safetensors")).unwrap();
    fs::write(at("others.onnx.data"), "another's").unwrap();
    let files = ["run/metrics.jsonl", "run/config.toml", "model.onnx.data", "others.onnx.data"];
    let files = files.into_iter().chain(["other/checkpoint.safetensors", "other/config.toml"]);
    let before: Vec<_> = files.map(|name| (name, fs::read(at(name)).unwrap())).collect();
    for line in [
        "export --format torch --checkpoint {}/run --out {}/run/metrics.jsonl",
        "export --format torch --checkpoint {}/run --out {}/run/config.toml",
        "export --format onnx --checkpoint {}/model.onnx.data --out {}/model.onnx --external-above 1",
        "export --format onnx --checkpoint {}/run --out {}/others.onnx --external-above 1",
        "predict --checkpoint {}/run --data {}/none.csv --out {}/other/checkpoint.safetensors",
        "predict --checkpoint {}/other/best --data {}/none.csv --out {}/other/config.toml",
        "predict --checkpoint {}/other/best --data {}/none.csv --out {}/other/plan.toml",
        "predict --checkpoint {}/run --data {}/.p.octorec-partial --out {}/p",
    ] {
        let message = fail(&line.replace("{}", &folder.path().display().to_string()));
        assert!(message.contains("--out: ") && message.contains("would be lost"), "{line}: {message}");
        assert!(before.iter().all(|(name, bytes)| fs::read(at(name)).unwrap() == *bytes), "{line}");
    }
    let message = fail(&format!("{} --trace-loss {} --mllog {}", tiny_training(), at("x"), at("x")));
    assert!(message.contains("--mllog: ") && message.contains("--trace-loss writes"), "{message}");
}

#[test]
fn a_run_that_is_killed_before_it_saved_says_so_and_starts_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut child = endless(&out);
    child.kill().unwrap();
    child.wait().unwrap();
    let message = fail(&format!("train --resume {}", out.display()));
    let remedies = ["--set train.checkpoint_minutes=M", "--checkpoint-every N"];
    let told = ["ended before it saved one"].iter().chain(&remedies).all(|words| message.contains(words));
    assert!(told, "{message}");
    succeed(&format!("{} --out {}", tiny_training(), out.display()));
}

#[test]
fn a_failed_start_takes_no_directory() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    fail(&format!("{} --data nowhere.tsv --out {}", tiny_training(), out.display()));
    succeed(&format!("{} --steps 3 --out {}", tiny_training(), out.display()));
    // Killed before it saved anything.
    let other = folder.path().join("other");
    let mut child = endless(&other);
    child.kill().unwrap();
    child.wait().unwrap();
    succeed(&format!("{} --steps 3 --out {}", tiny_training(), other.display()));
}

#[test]
fn one_process_at_a_time_writes_to_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut child = endless(&out);
    for second in [
        format!("{} --out {} --force", tiny_training(), out.display()),
        format!("train --resume {} --steps 5", out.display()),
    ] {
        let message = fail(&second);
        assert!(message.contains("is being written by another process"), "{message}");
    }
    // Whoever would read it is told that it comes.
    let message = fail(&format!("eval --checkpoint {}", out.display()));
    assert!(message.contains("there is no checkpoint yet: a training that runs writes to this directory"), "{message}");
    assert_eq!(interrupt(&mut child), Some(130));
    succeed(&format!("eval --checkpoint {}", out.display()));
}

#[test]
fn a_directory_that_is_removed_while_training_comes_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut child = endless(&out);
    fs::remove_dir_all(&out).unwrap();
    assert_eq!(interrupt(&mut child), Some(130));
    assert!(out.is_dir() && out.join("config.toml").exists());
    succeed(&format!("eval --checkpoint {}", out.display()));
}

#[test]
fn text_that_was_not_generated_to_its_end_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("text");
    let line = |test: u64| {
        let samples = format!("--set data.train_samples=100 --set data.test_samples={test}");
        format!("data generate {} --text --rows-cap 50 {samples}", out.display())
    };
    let mut child = octorec().args(line(1_000_000_000).split(' ')).stderr(Stdio::null()).spawn().unwrap();
    until("the second day is written", || {
        fs::metadata(out.join("unfinished/.day_1.octorec-partial")).is_ok_and(|file| file.len() > 0)
    });
    assert_eq!(interrupt(&mut child), Some(130));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0, "neither day is there");
    succeed(&line(50));
    assert!(out.join("day_0").exists() && out.join("day_1").exists());
}

#[test]
fn devices_and_links_stay_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = (folder.path().join("run"), tsv(&folder.path().join("clicks.tsv"), 200));
    succeed(&format!("{} --data {} --test-fraction 0 --out {}", tiny_training(), data.display(), out.display()));
    let predict = format!("predict --checkpoint {} --data {}", out.display(), data.display());
    succeed(&format!("{predict} --out /dev/null"));
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let message = fail(&format!("{predict} --out -"));
    assert!(message.contains("--out -: ") && message.contains("./-"), "{message}");
    // Into a pipe, which has no name but that of the link.
    assert!(succeed(&format!("{predict} --out /dev/stdout")).stdout == succeed(&predict).stdout);
    // And behind what a log holds already, whatever writes to it and by which name, in its turn.
    let log = folder.path().join("log");
    let append = |line: &str| {
        let file = fs::File::options().create(true).append(true).open(&log).unwrap();
        let output = octorec().args(line.split_whitespace()).stdout(file).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let train = format!("{} --steps 3 --mllog /dev/stdout --trace-loss", tiny_training());
    let lines = [
        format!("{predict} --out /dev/stdout"),
        format!("{train} /proc/self/fd/1"),
        format!("{predict} --out /dev/fd/1"),
    ];
    lines.iter().for_each(|line| append(line));
    let (text, found) = (fs::read_to_string(&log).unwrap(), succeed(&predict).stdout);
    let found = String::from_utf8(found).unwrap();
    assert!(text.starts_with(&*found) && text.ends_with(&*found), "{text}");
    let between: Vec<&str> = text[found.len()..text.len() - found.len()].lines().collect();
    let losses = between.iter().filter(|line| line.parse::<f64>().is_ok()).count();
    let logged = between.iter().filter(|line| line.starts_with(":::MLLOG")).count();
    assert!(losses == 3 && logged > 0 && losses + logged == between.len(), "{between:?}");
    assert!(!folder.path().join(".log.octorec-partial").exists());
    let message = fail(&format!("{predict} --out /dev/full"));
    assert!(message.contains("/dev/full"), "{message}");
    let [link, target] = ["link", "target"].map(|name| folder.path().join(name));
    symlink(&target, &link).unwrap();
    succeed(&format!("{predict} --out {}", link.display()));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&target).unwrap().lines().count(), 200);
    // Results over their own source would leave neither.
    let before = fs::read(&data).unwrap();
    let message = fail(&format!("{predict} --out {}", data.display()));
    assert!(message.contains("--out") && fs::read(&data).unwrap() == before, "{message}");
    // Nor is any name but its own taken from a user.
    let [rows, found] = ["found.partial", "found"].map(|name| folder.path().join(name));
    fs::write(&rows, &before).unwrap();
    let predict = format!("predict --checkpoint {} --data {}", out.display(), rows.display());
    succeed(&format!("{predict} --out {}", found.display()));
    assert!(fs::read(&rows).unwrap() == before);
}

#[test]
fn a_model_knows_its_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("clicks.tsv"), 400);
    let train = format!("{} --steps 3 --data {}", tiny_training(), data.display());
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    succeed(&format!("{train} --out {}", one.display()));
    // The values of fewer rows.
    succeed(&format!("{train} --vocab train --test-fraction 0.5 --out {}", other.display()));
    let vocabulary = one.join("vocabulary.safetensors");
    let kept = fs::read(&vocabulary).unwrap();
    let commands = [
        format!("train --resume {} --steps 5", one.display()),
        format!("eval --checkpoint {}", one.display()),
        format!("predict --checkpoint {} --data {}", one.display(), data.display()),
    ];
    fs::remove_file(&vocabulary).unwrap();
    for command in &commands {
        let message = fail(command);
        assert!(message.contains("vocabulary.safetensors") && message.contains("is missing"), "{message}");
    }
    fs::copy(other.join("vocabulary.safetensors"), &vocabulary).unwrap();
    for command in &commands {
        let message = fail(command);
        assert!(message.contains("is not the vocabulary that this model was trained with"), "{message}");
    }
    fs::write(&vocabulary, kept).unwrap();
    commands.iter().for_each(|command| drop(succeed(command)));
}

#[test]
fn no_output_is_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = (folder.path().join("run"), tsv(&folder.path().join("clicks.tsv"), 200));
    let train = format!("{} --data {} --steps 3", tiny_training(), data.display());
    succeed(&format!("{train} --out {}", out.display()));
    let weights = out.join("checkpoint.safetensors");
    let before = [&data, &weights].map(|file| fs::read(file).unwrap());
    for (flag, command) in [
        ("--trace-loss", format!("{train} --trace-loss {}", data.display())),
        ("--trace", format!("{train} --init {0} --trace {0}", weights.display())),
        ("--write-schema", format!("inspect {0} --write-schema {0}", data.display())),
        (
            "--out",
            format!("predict --checkpoint {} --data {} --out {}", out.display(), data.display(), weights.display()),
        ),
    ] {
        let message = fail(&command);
        assert!(message.contains(flag) && message.contains("is an input of this command"), "{message}");
    }
    let blocks = folder.path().join("blocks");
    let preprocess = format!("preprocess criteo-kaggle --in {} --out {}", data.display(), blocks.display());
    succeed(&preprocess);
    let message = fail(&format!("{preprocess} --force --vocabulary {}", blocks.display()));
    assert!(message.contains("is an input that would be lost to --out"), "{message}");
    succeed(&format!("data verify {}", blocks.display()));
    // Continuing a file would leave nowhere to save.
    let message = fail(&format!("train --resume {} --steps 5", weights.display()));
    assert!(message.contains("name the run's directory"), "{message}");
    assert!([&data, &weights].map(|file| fs::read(file).unwrap()) == before);
}

#[test]
fn no_output_is_another_one_or_a_file_that_the_configuration_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("{}/{name}", folder.path().display());
    let train = format!("{} --steps 1", tiny_training());
    for (line, [first, second]) in [
        (&*train, ["--trace-loss", "--trace"]),
        (&*train, ["--trace", "--mllog"]),
        ("simulate --preset demo --topology two-socket", ["--trace", "--svg"]),
        ("inspect --hot --set data.train_samples=2000", ["--out", "--svg"]),
        ("topo --topology two-socket", ["--svg", "--export"]),
    ] {
        // One file by two names.
        let message = fail(&format!("{line} {first} {} {second} {}", at("x.toml"), at("./x.toml")));
        assert!(message.contains(second) && message.contains(&format!("is also what {first} writes")), "{message}");
        assert!(!Path::new(&at("x.toml")).exists(), "{line}");
    }
    // What a command reads besides its data.
    let (run, data) = (at("run"), tsv(&folder.path().join("clicks.tsv"), 200));
    succeed(&format!("{} --data {} --steps 3 --out {run}", tiny_training(), data.display()));
    fs::write(at("own.toml"), "made by hand").unwrap();
    for (flag, command) in [
        ("--out", format!("predict --checkpoint {run} --data {} --plan {1} --out {1}", data.display(), at("own.toml"))),
        (
            "--out",
            format!("predict --checkpoint {run} --data {} --topology {1} --out {1}", data.display(), at("own.toml")),
        ),
        ("--svg", format!("config --tuned {0} --svg {0}", at("own.toml"))),
        ("--trace", format!("{train} --topology {0} --trace {0}", at("own.toml"))),
    ] {
        let message = fail(&command);
        assert!(message.contains(flag) && message.contains("is an input of this command"), "{message}");
        assert_eq!(fs::read_to_string(at("own.toml")).unwrap(), "made by hand");
    }
}

#[test]
fn predictions_that_nobody_has_taken_are_not_told_as_written() {
    let folder = tempfile::tempdir().unwrap();
    let (out, data) = (folder.path().join("run"), tsv(&folder.path().join("clicks.tsv"), 200));
    succeed(&format!("{} --data {} --test-fraction 0 --out {}", tiny_training(), data.display(), out.display()));
    let line = format!("predict --checkpoint {} --data {}", out.display(), data.display());
    let mut child =
        octorec().args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{message}");
    assert!(
        message.contains("standard output was closed before") && !message.contains("one for each row"),
        "{message}"
    );
}

/// The exit code of a command whose standard output or error nobody reads, or goes to a full disk.
fn unread(line: &str, which: &str, full: bool) -> Option<i32> {
    let mut command = octorec();
    command.args(line.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    let sink = || if full { fs::File::options().write(true).open("/dev/full").unwrap().into() } else { Stdio::piped() };
    let mut child = match which {
        "stdout" => command.stdout(sink()),
        _ => command.stderr(sink()),
    }
    .spawn()
    .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    child.wait().unwrap().code()
}

#[test]
fn training_goes_on_and_saves_whoever_reads() {
    let folder = tempfile::tempdir().unwrap();
    for (index, (which, full, code)) in
        [("stderr", false, 0), ("stderr", true, 0), ("stdout", false, 1), ("stdout", true, 1)].into_iter().enumerate()
    {
        let out = folder.path().join(index.to_string());
        let line = format!("{} --json --set train.eval_every=10 --out {}", tiny_training(), out.display());
        assert_eq!(unread(&line, which, full), Some(code), "{which}, full {full}");
        succeed(&format!("eval --checkpoint {}", out.display()));
    }
}

#[test]
fn short_commands_end_quietly_where_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&format!("{} --steps 3 --out {}", tiny_training(), out.display()));
    let data = tsv(&folder.path().join("clicks.tsv"), 200);
    for line in [
        "config".to_owned(),
        "config --list".to_owned(),
        "topo".to_owned(),
        "plan --preset kaggle".to_owned(),
        format!("inspect {} --json", data.display()),
        format!("inspect {}", data.display()),
        format!("eval --checkpoint {} --json", out.display()),
        format!("eval --checkpoint {}", out.display()),
    ] {
        assert_eq!(unread(&line, "stdout", false), Some(0), "{line}");
        assert_eq!(unread(&line, "stdout", true), Some(1), "{line}");
    }
}

#[test]
fn rows_are_capped_in_every_source() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    for (index, source) in ["criteo", "random"].into_iter().enumerate() {
        let rows: Vec<_> = (0..26).map(|table| (40 + 10 * table).to_string()).collect();
        let model = format!("--set model.rows=[{}] --set data.source=\"{source}\"", rows.join(","));
        let out = out.join(index.to_string());
        succeed(&format!("{} {model} --rows-cap 55 --steps 3 --out {}", tiny_training(), out.display()));
        let file = checkpoint(&out);
        let head = String::from_utf8_lossy(&file[..file.len().min(40_000)]).into_owned();
        assert!(head.contains("[55,8]") && head.contains("[40,8]") && !head.contains("[60,8]"), "{source}");
    }
}

#[test]
fn numbers_that_cannot_be_kept_are_refused() {
    for flag in ["--seed", "--steps"] {
        let message = fail(&format!("{} {flag} 18446744073709551615", tiny_training()));
        assert!(message.contains(flag) && message.contains("2^63 - 1 at most"), "{message}");
    }
    let message = fail(&format!("{} --steps 5 --set data.train_samples=0", tiny_training()));
    assert!(message.contains("there is no training sample"), "{message}");
    let message = fail(&format!("{} --update atomic", tiny_training()));
    assert!(message.contains("--determinism none"), "{message}");
    let summary = json(&format!("{} --update atomic --determinism none --json", tiny_training()));
    assert_eq!(summary["steps"], 40);
}
