//! Nothing ends without a word: what cannot be read, held or reached is an error that names it and what to do, with
//! exit code 1, and what it says to do works.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{SGD, TINY, fail, json, octorec, succeed, tsv};

/// Runs a command line under a shell's limits (`ulimit` with this, if anything); one that hangs is killed after a
/// minute.
fn under(limit: &str, line: &str) -> Output {
    let limits = if limit.is_empty() { String::new() } else { format!("ulimit {limit} && ") };
    let script = format!("{limits}exec timeout -s KILL 60 \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_octorec")).args(line.split_whitespace());
    command.stdin(Stdio::null()).output().expect("a shell runs")
}

/// A small training on the built-in data.
fn built_in() -> String {
    format!("train {TINY} --set data.train_samples=2560 --set data.test_samples=640")
}

/// A training of a few steps on a file's rows.
fn training(data: &Path) -> String {
    format!("train {TINY} --steps 3 --data {}", data.display())
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// As [`under`], for a command that must fail with exit code 1 and a message.
fn refused(limit: &str, line: &str) -> String {
    let output = under(limit, line);
    let message = message(&output);
    assert_eq!(output.status.code(), Some(1), "octorec {line} under {limit}\n{message}");
    assert!(message.contains("error: ") && !message.contains("panicked"), "octorec {line} under {limit}\n{message}");
    message
}

fn accepted(limit: &str, line: &str) {
    let output = under(limit, line);
    assert!(output.status.success(), "octorec {line} under {limit}\n{}", message(&output));
}

fn pipe(path: &Path) -> PathBuf {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    path.to_owned()
}

/// A file of zeros that takes no room on the disk.
fn endless(path: &Path) -> PathBuf {
    File::create(path).unwrap().set_len(1 << 36).unwrap();
    path.to_owned()
}

/// Waits until something is so.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_cannot_be_read_twice_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (good, run) = (tsv(&folder.path().join("good.tsv"), 300), folder.path().join("run"));
    succeed(&format!("{} --out {}", training(&good), run.display()));
    let fifo = pipe(&folder.path().join("pipe"));
    let out = folder.path().join("out");
    for (path, kind) in
        [(&*fifo, "is a pipe, no regular file"), (Path::new("/dev/zero"), "is a device, no regular file")]
    {
        let (train, path, run) = (training(path), path.display(), run.display());
        for line in [
            train,
            format!("{} --test-data {path}", training(&good)),
            format!("{} --steps 3 --init {path}", built_in()),
            format!("eval --checkpoint {path}"),
            format!("eval --checkpoint {run} --data {path}"),
            format!("predict --checkpoint {run} --data {path} --out {}", out.display()),
            format!("inspect {path}"),
            format!("preprocess criteo-kaggle --in {path} --out {}", out.display()),
        ] {
            let message = refused("", &line);
            // Rows that arrive are predicted, too.
            let arrives = line.starts_with("predict") && kind.contains("pipe");
            let (kind, remedy) =
                if arrives { ("is a pipe", "octorec predict --data -") } else { (kind, "put it into a file") };
            assert!(message.contains(kind) && message.contains(remedy), "{line}: {message}");
        }
    }
    let train = format!("{} --steps 3", built_in());
    let message = refused("", &format!("train {TINY} --source tsv --set data.path={}", folder.path().display()));
    assert!(message.contains("is a folder, no regular file: name a file in it"), "{message}");
    let message = refused("", &format!("{train} --config {}", folder.path().display()));
    assert!(message.contains("is a folder: name a file in it"), "{message}");
    let message = refused("", &format!("{train} --config /dev/zero"));
    assert!(message.contains("/dev/zero: is longer than 64.0 MiB"), "{message}");
    let message = refused("", &format!("{train} --config {}", fifo.display()));
    assert!(message.contains("is a pipe into which nobody writes"), "{message}");
}

#[test]
fn standard_input_is_data_where_it_is_a_file_and_refused_where_it_is_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let good = tsv(&folder.path().join("good.tsv"), 300);
    let line = training(Path::new("/dev/stdin"));
    let start = |stdin: Stdio| {
        let mut command = octorec();
        command.args(line.split_whitespace()).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut child = start(Stdio::piped());
    // It may have ended by then.
    let _ = child.stdin.take().unwrap().write_all(&fs::read(&good).unwrap());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        message(&output).contains("/dev/stdin: is a pipe, no regular file: it is read more than once, so put it into")
    );
    assert!(start(File::open(&good).unwrap().into()).wait_with_output().unwrap().status.success());
}

#[test]
fn lines_without_an_end_are_told_and_longer_ones_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let zeros = endless(&folder.path().join("zeros.txt"));
    let out = folder.path().join("out");
    let schema = folder.path().join("schema.toml");
    fs::write(&schema, "label = \"l\"\n[[dense]]\ncolumn = \"d\"\n[[categorical]]\ncolumn = \"c\"\n").unwrap();
    let (train, zeros, out) = (training(&zeros), zeros.display(), out.display());
    for line in [
        format!("{train} --vocab hash --rows-cap 100"),
        train,
        format!("inspect {zeros}"),
        format!("preprocess criteo-kaggle --in {zeros} --out {out}"),
    ] {
        let message = refused("", &line);
        assert!(message.contains("zeros.txt: line 1: the line is longer than 16.0 MiB"), "{message}");
        assert!(message.contains("--max-line") && !message.contains("?:"), "{message}");
    }
    let message = refused("", &format!("preprocess csv --schema {} --in {zeros} --out {out}", schema.display()));
    assert!(message.contains("zeros.txt: line 1: its header: the line is longer than 16.0 MiB"), "{message}");
    // Long, and right.
    let table = folder.path().join("table.csv");
    fs::write(&table, format!("l,d,c\n1,2,x\n0,3,{}\n", "y".repeat(3 << 20))).unwrap();
    let tables = folder.path().join("tables");
    let line = format!("preprocess csv --schema {} --in {}", schema.display(), table.display());
    let line = format!("{line} --out {}", tables.display());
    let message = refused("", &format!("{line} --max-line 2MiB"));
    assert!(message.contains("table.csv: line 3: the line is longer than 2.0 MiB"), "{message}");
    accepted("", &format!("{line} --force --max-line 4MiB"));
    let (text, blocks) = (table.display(), folder.path().join("blocks"));
    let described = format!("--schema {}", schema.display());
    for command in [
        format!("convert {text} {} {described}", blocks.display()),
        format!("data verify {text} {described}"),
        format!("data profile {text} {described} --trace {}", folder.path().join("profile_j.log").display()),
        format!("inspect {text} {described}"),
    ] {
        let message = refused("", &format!("{command} --max-line 2MiB"));
        assert!(message.contains("table.csv: line 3: the line is longer than 2.0 MiB"), "{command}: {message}");
        accepted("", &format!("{command} --max-line 4MiB"));
    }
    let message = refused("", &format!("data verify {} --format octorec {described}", blocks.display()));
    assert!(message.contains("--schema: describes text with a header line, and octorec is none"), "{message}");
}

#[test]
fn a_read_of_an_endless_line_ends_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let zeros = endless(&folder.path().join("zeros.txt"));
    let line = format!("{} --on-bad-row skip", training(&zeros));
    for signal in ["-TERM", "-INT"] {
        let mut child = octorec().args(line.split_whitespace()).stderr(Stdio::piped()).spawn().unwrap();
        let reads = |child: &Child| {
            let files = fs::read_dir(format!("/proc/{}/fd", child.id())).into_iter().flatten().flatten();
            files.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file == zeros)
        };
        until("it reads", || reads(&child));
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        until("it ends", || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{signal}");
        let said = message(&output);
        assert!(said.contains("interrupted before the first step: nothing was trained or saved"), "{signal}: {said}");
    }
}

#[test]
fn a_block_file_that_is_cut_short_while_training_is_named_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("clicks.tsv"), 4000);
    let [blocks, out] = ["blocks", "run"].map(|name| folder.path().join(name));
    succeed(&format!("preprocess criteo-kaggle --in {} --out {}", data.display(), blocks.display()));
    let line =
        format!("train {TINY} --steps 100000000 --no-shuffle --data {} --out {}", blocks.display(), out.display());
    let child = octorec().args(line.split_whitespace()).stderr(Stdio::piped()).spawn().unwrap();
    until("the run logs", || fs::metadata(out.join("metrics.jsonl")).is_ok_and(|file| file.len() > 0));
    let part = blocks.join("part-00000.octo");
    let part = if part.exists() { part } else { largest(&blocks) };
    let whole = fs::read(&part).unwrap();
    File::options().write(true).open(&part).unwrap().set_len(8192).unwrap();
    let output = child.wait_with_output().unwrap();
    let message = message(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    let expected =
        format!("was cut short while it was read: it had {} bytes when it was opened and has 8192", whole.len());
    assert!(message.contains(&expected) && message.contains("copy or write it again"), "{message}");
    assert!(message.contains("saved after step"), "{message}");
    fs::write(&part, whole).unwrap();
    succeed(&format!("train --resume {} --steps 1", out.display()));
}

/// The largest file of a folder.
fn largest(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file());
    files.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
}

#[test]
fn a_limit_of_file_sizes_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("clicks.tsv"), 2000);
    let [run, blocks] = ["run", "blocks"].map(|name| folder.path().join(name));
    for line in [
        format!("{} --steps 3 --out {}", built_in(), run.display()),
        format!("preprocess criteo-kaggle --in {} --out {}", data.display(), blocks.display()),
    ] {
        // Blocks of 512 or 1024 bytes.
        let message = refused("-f 16", &line);
        assert!(message.contains("(ulimit -f)") && message.contains(&*folder.path().to_string_lossy()), "{message}");
        accepted("", &line);
    }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let data = tsv(&folder.path().join("clicks.tsv"), 2000);
    let train = training(&data);
    let mut told = 0;
    // In KiB of address space: from too little for anything to enough.
    for limit in [36_000, 43_000, 60_000, 90_000, 130_000, 180_000, 260_000, 400_000] {
        for (name, line) in [
            ("train", train.clone()),
            ("ranks", format!("{train} --ranks 2 --threads 1")),
            ("preprocess", {
                let out = folder.path().join(format!("{limit}"));
                format!("preprocess criteo-kaggle --in {} --out {}", data.display(), out.display())
            }),
        ] {
            let output = under(&format!("-v {limit}"), &line);
            let message = message(&output);
            match output.status.code() {
                Some(0) => {}
                Some(1) => {
                    assert!(message.contains("error: ") && !message.contains("panicked"), "{name} {limit}: {message}");
                    told += 1;
                }
                // The system's loader has no room for the program itself.
                Some(127) => {}
                code => panic!("{name} with {limit} KiB: {code:?} {message}"),
            }
        }
    }
    assert!(told > 0, "some limit was met");
    // Where threads start: the room for one is refused here and there.
    for limit in (160_000..180_000).step_by(400) {
        let out = folder.path().join(format!("{limit}"));
        let line = format!("preprocess criteo-kaggle --in {} --out {}", data.display(), out.display());
        let output = under(&format!("-v {limit}"), &format!("{line} --threads 2 --memory 16MiB --shuffle total"));
        assert!(matches!(output.status.code(), Some(0 | 1)) && !message(&output).contains("panicked"), "{output:?}");
    }
    let big = format!(
        "{} --steps 3 --set model.bottom=[13,4096,8] --set model.top=[4096,1] --set train.part=4096",
        built_in()
    );
    let message = refused("-v 500000", &big);
    assert!(message.contains("ulimit -v"), "{message}");
    accepted("", &big);
}

#[test]
fn a_small_stack_is_enough() {
    for line in [format!("{} --steps 3", built_in()), "train --help".to_owned(), "topo".to_owned()] {
        accepted("-s 64", &line);
    }
}

#[test]
fn a_plan_tells_of_limits_that_training_would_meet() {
    // A table of 1.5 GB.
    let plan = "plan --source random --set model.rows=[6000000] --set model.dim=64 --set model.bottom=[13,64,64]";
    let told = message(&under("-v 1048576", plan));
    let words = "warning: all ranks of this host together (the process's address space, ulimit -v): needs";
    assert!(told.lines().any(|line| line.starts_with(words)), "{told}");
    // Unless this process is limited itself.
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let unlimited = limits.lines().any(|line| line.starts_with("Max address space") && line.contains("unlimited"));
    assert!(!unlimited || !message(&under("", plan)).contains("ulimit -v"));
}

#[test]
fn memory_that_grows_with_ranks_is_refused_before_it_is_taken() {
    let line = format!("{} --steps 1 --threads 1", built_in());
    let message = refused("-v 4000000", &format!("{line} --ranks 4096"));
    assert!(message.contains("4096 ranks") && message.contains("ulimit -v"), "{message}");
    assert!(message.contains("GiB free") && message.contains("fewer --ranks"), "{message}");
    accepted("-v 4000000", &format!("{line} --ranks 2"));
}

#[test]
fn sixty_four_ranks_take_less_than_two_gib() {
    for further in ["", " --determinism ranks"] {
        let line = format!(
            "train --steps 2 --set data.train_samples=8192 --set data.test_samples=64 --ranks 64 --threads 1{further}"
        );
        let mut child = octorec().args(line.split_whitespace()).stderr(Stdio::null()).spawn().unwrap();
        let mut most = 0;
        let path = format!("/proc/{}/status", child.id());
        while child.try_wait().unwrap().is_none() {
            let status = fs::read_to_string(&path).unwrap_or_default();
            let peak =
                status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
            most = peak.unwrap_or(0u64).max(most);
            sleep(Duration::from_millis(5));
        }
        assert!(child.wait().unwrap().success(), "{line}");
        assert!(most > 0 && most < 2 << 20, "{line}: {most} KiB");
    }
}

#[test]
fn a_hundred_thousand_tables_start_and_more_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = |tables: usize| {
        let path = folder.path().join(format!("{tables}.toml"));
        let text = format!(
            "[model]\nbottom = [4, 8]\ntop = [1]\ndim = 1\ninteraction = \"cat\"\nrows = {:?}\n[data]\nsource = \"random\"\n\
             test_samples = 0\n[train]\nbatch = 2\neval_batch = 2\n",
            vec![3; tables]
        );
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    accepted("", &format!("train --steps 1 --config {}", config(100_000)));
    accepted("", &format!("train --steps 1 --ranks 2 --threads 1 --config {}", config(20_000)));
    let message = refused("", &format!("train --steps 1 --config {}", config(100_001)));
    assert!(message.contains("model.rows: 100001 tables are more than 100000"), "{message}");
}

#[test]
fn machines_beyond_any_are_refused() {
    let large = "--topology synthetic:node:100000_core:100_pu:2".replace('_', " ");
    let topo = |arguments: &[&str]| {
        let output = octorec().arg("topo").args(arguments).output().unwrap();
        (output.status.code(), message(&output))
    };
    let (code, message) = topo(&["--topology", large.strip_prefix("--topology ").unwrap()]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("20000000 hardware threads; at most 8192"), "{message}");
    assert_eq!(topo(&["--topology", "synthetic:node:64 core:64 pu:2"]).0, Some(0), "smaller counts");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("machine.xml");
    for text in ["", "<topology>", "<?xml version=\"1.0\"?><topology version=\"2.0\"></topology>"] {
        fs::write(&path, text).unwrap();
        let (code, message) = topo(&["--topology", path.to_str().unwrap()]);
        assert_eq!(code, Some(1), "{text}: {message}");
        assert!(message.contains("machine.xml: cannot") && !message.contains("errno"), "{text}: {message}");
    }
    let path = folder.path().join("machine.toml");
    fs::write(&path, "name = \"x\"\n[[node]]\nids = \"0-599\"\ncores = 4\nmemory_gib = 1.0\n").unwrap();
    let (code, message) = topo(&["--topology", path.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{message}");
    assert!(
        message.contains("machine.toml:3: host 0 has 600 nodes with 2400 hardware threads: at most 256"),
        "{message}"
    );
    // What would be refused is not written.
    let (path, numbers) = (folder.path().join("numbers.toml"), "synthetic:node:2(indexes=0,2000) core:2 pu:1");
    for export in ["toml", path.to_str().unwrap()] {
        let (code, message) = topo(&["--topology", numbers, "--export", export]);
        assert_eq!(code, Some(1), "{message}");
        assert!(message.contains("--export: ") && message.contains("node numbers below 1024"), "{message}");
    }
    assert!(!path.exists());
}

#[test]
fn numbers_beyond_their_range_say_what_is_expected() {
    let line = built_in();
    for (further, expected) in [
        ("--set data.shuffle_window=4294967296", "data.shuffle_window = 4294967296 must lie in [1, 2^32 - 1]"),
        ("--set train.batch=-1", "train.batch = -1: a whole number from 0 to 2^63 - 1 is expected"),
        ("--batch 18446744073709551590", "--batch: 18446744073709551590 is more than any key takes"),
        ("--batch 9223372036854775807", "train.batch = 9223372036854775807 must lie in [1, 2^31]"),
        ("--set train.eval_batch=2147483649", "train.eval_batch = 2147483649 must lie in [1, 2^31]"),
    ] {
        let message = refused("", &format!("{line} {further}"));
        assert!(message.contains(expected), "{further}: {message}");
    }
    let random = format!("train {TINY} --source random --set model.rows=[10] --steps 1");
    let message = refused("", &format!("{random} --set data.lookups=99999999999"));
    assert!(message.contains("data.lookups = 99999999999 must lie in [1, 2^20]"), "{message}");
    let message = refused("", &format!("train {TINY} --data nowhere.tsv --set data.max_line=0"));
    assert!(message.contains("data.max_line = 0 must lie in [1, 2^30]"), "{message}");
    // A minibatch that no memory holds.
    let message = refused("", &format!("{line} --batch 2147483648"));
    assert!(message.contains("smaller --batch"), "{message}");
    accepted("", &format!("{line} --steps 2 --set data.shuffle_window=4294967295"));
    accepted("", &format!("{line} --epochs 9223372036854775807 --target-auc 0.01 --eval-every 1"));
    let bench = format!("bench step {SGD} --batch 64 --repeat 3 --set model.rows=[100,50]");
    let message = refused("", &format!("{bench} --lr 99"));
    assert!(message.contains("training diverged; use a lower --lr"), "{message}");
    accepted("", &format!("{bench} --lr 0.01"));
}

/// Replaces a part of what a checkpoint says of itself.
fn change(checkpoint: &Path, from: &str, to: &str) {
    let bytes = fs::read(checkpoint).unwrap();
    let (length, rest) = bytes.split_at(8);
    let (head, tensors) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let quoted = |text: &str| text.replace('"', "\\\"");
    let head = String::from_utf8(head.to_vec()).unwrap();
    assert!(head.contains(&quoted(from)), "{head} has {from}");
    let mut head = head.trim_end().replace(&quoted(from), &quoted(to)).into_bytes();
    head.resize(head.len().next_multiple_of(8), b' ');
    fs::write(checkpoint, [&(head.len() as u64).to_le_bytes(), &head[..], tensors].concat()).unwrap();
}

#[test]
fn what_a_checkpoint_says_of_itself_is_judged_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&format!("{} --steps 3 --out {}", built_in(), out.display()));
    let checkpoint = out.join("checkpoint.safetensors");
    let sound = fs::read(&checkpoint).unwrap();
    // A file that was changed by hand has another hash, where hashes are checked.
    let help = octorec().args(["eval", "--help"]).output().unwrap();
    let unverified = if String::from_utf8_lossy(&help.stdout).contains("--no-verify") { " --no-verify" } else { "" };
    let eval = format!("eval --checkpoint {}{unverified}", out.display());
    let graph = folder.path().join("model.onnx");
    let export = format!("export --format onnx --checkpoint {} --out {}{unverified}", out.display(), graph.display());
    for (from, to, expected) in [
        ("\"eval_batch\":4096", "\"eval_batch\":0", "train.eval_batch = 0 must lie in [1, 2^31]"),
        ("\"dim\":8", "\"dim\":0", "model.dim = 0: a row of a table has at least one column"),
        (
            "\"bottom\":[13,32,8]",
            "\"bottom\":[13]",
            "model.bottom = [13]: the dot interaction needs the number of dense features",
        ),
        ("\"shuffle_window\":131072", "\"shuffle_window\":0", "data.shuffle_window = 0"),
        ("\"top\":[16,1]", "\"top\":[9007199254740992,1]", "9007199254740992 is more than 2^20, the widest layer"),
    ] {
        change(&checkpoint, from, to);
        for line in [&eval, &export] {
            let message = refused("", line);
            assert!(
                message.contains("checkpoint.safetensors: its configuration: ") && message.contains(expected),
                "{line}: {message}"
            );
        }
        assert!(!graph.exists());
        fs::write(&checkpoint, &sound).unwrap();
    }
    // Without dense features this model has other layers.
    change(&checkpoint, "\"bottom\":[13,32,8]", "\"bottom\":[]");
    let message = refused("", &eval);
    assert!(message.contains("checkpoint.safetensors"), "{message}");
    fs::write(&checkpoint, &sound).unwrap();
    let beyond = u64::MAX.to_string();
    for (name, number) in [("step", "3"), ("epoch", "0"), ("sample", "192")] {
        let (from, to) = (format!("\"{name}\":{number}"), format!("\"{name}\":{beyond}"));
        change(&checkpoint, &from, &to);
        for line in [format!("train --resume {} --steps 5{unverified}", out.display()), eval.clone()] {
            let message = refused("", &line);
            assert!(message.contains(&format!("no run reaches {name} {beyond}")), "{message}");
        }
        let message = refused("", &format!("train --resume {} --steps 5{unverified}", out.display()));
        assert!(message.contains("start from its weights with --init"), "{message}");
        succeed(&format!("{} --steps 3 --init {}{unverified}", built_in(), checkpoint.display()));
        fs::write(&checkpoint, &sound).unwrap();
    }
    // Nor does any key, which a run that goes on writes as TOML.
    for (section, key, number) in [("model", "qr_threshold", "200"), ("train", "steps", "3")] {
        let beyond = (1_u64 << 63).to_string();
        change(&checkpoint, &format!("\"{key}\":{number}"), &format!("\"{key}\":{beyond}"));
        for line in [format!("train --resume {} --steps 5{unverified}", out.display()), eval.clone(), export.clone()] {
            let message = refused("", &line);
            let expected = format!("{section}.{key} is {beyond}, and keys go to 2^63 - 1: start from its weights");
            assert!(message.contains("checkpoint.safetensors") && message.contains(&expected), "{line}: {message}");
        }
        succeed(&format!("{} --steps 3 --init {}{unverified}", built_in(), checkpoint.display()));
        fs::write(&checkpoint, &sound).unwrap();
    }
    // As far as a number reaches, there is nothing left to do.
    change(&checkpoint, "\"step\":3", &format!("\"step\":{}", i64::MAX));
    succeed(&format!("train --resume {} --steps 5{unverified}", out.display()));
    fs::write(&checkpoint, &sound).unwrap();
    json(&format!("{eval} --json"));
    assert!(fail(&format!("eval --checkpoint {}", folder.path().display())).contains("there is no checkpoint"));
}
