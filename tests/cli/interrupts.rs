//! Commands that are asked to stop: how far they came is told, and what is not whole is not there.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{TINY, octorec, succeed, tiny_training, tsv};

/// Starts a command line whose streams are all pipes.
fn start(line: &str) -> Child {
    let mut command = octorec();
    command.args(line.split_whitespace());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until something is so.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Asks a command to stop as soon as it heeds that.
fn ask(child: &Child, signal: Signal) {
    until("it heeds signals", || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
    });
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// What it printed and said, once it has ended as an interrupted command does.
fn ended(child: Child) -> (String, String) {
    let output = child.wait_with_output().unwrap();
    let [printed, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(130), "{said}");
    (printed, said)
}

/// A run on a generated file in Criteo's layout, and the file.
fn trained(folder: &Path, name: &str) -> (String, PathBuf) {
    let file = tsv(&folder.join("clicks.tsv"), 500);
    let run = folder.join(name).display().to_string();
    let train = format!("train --preset demo {TINY} --data {} --steps 5 --test-fraction 0", file.display());
    succeed(&format!("{train} --threads 1 --out {run}"));
    (run, file)
}

/// A file of the same rows again and again, 100,000 in all: more than are read before a signal comes.
fn many(file: &Path) -> PathBuf {
    let many = file.with_file_name("many.tsv");
    fs::write(&many, fs::read_to_string(file).unwrap().repeat(200)).unwrap();
    many
}

#[test]
fn an_interrupted_prediction_tells_which_rows_have_their_probabilities() {
    let folder = tempfile::tempdir().unwrap();
    let (run, file) = trained(folder.path(), "run");
    let text = fs::read_to_string(&file).unwrap();
    let rows: String = text.split_inclusive('\n').take(2).collect();
    let predict = format!("predict --checkpoint {run} --threads 1 --data");
    for (out, told) in [("", "standard output"), ("--out /dev/stdout", "/dev/stdout")] {
        for signal in [Signal::INT, Signal::TERM] {
            let mut child = start(&format!("{predict} - {out}"));
            // It stays open: there may be more to come.
            let mut input = child.stdin.take().unwrap();
            input.write_all(rows.as_bytes()).unwrap();
            let mut answers = BufReader::new(child.stdout.take().unwrap());
            for _ in 0..2 {
                let mut line = String::new();
                answers.read_line(&mut line).unwrap();
                assert!(line.trim_end().parse::<f64>().is_ok(), "{line}");
            }
            ask(&child, signal);
            let (_, said) = ended(child);
            let mut rest = String::new();
            answers.read_to_string(&mut rest).unwrap();
            let told = format!(
                "interrupted after 2 rows of standard input: their probabilities are written to {told}, those of others are not"
            );
            assert!(rest.is_empty() && said.contains(&told), "{out} {signal:?}: {said}");
        }
    }

    // Of a file there is all or nothing.
    let [found, partial] = ["found", ".found.octorec-partial"].map(|name| folder.path().join(name));
    for (before, told) in [(None, "found is not there"), (Some("before\n"), "found is what it was")] {
        before.into_iter().for_each(|text| fs::write(&found, text).unwrap());
        let mut child = start(&format!("{predict} - --out {}", found.display()));
        let mut input = child.stdin.take().unwrap();
        input.write_all(rows.as_bytes()).unwrap();
        until("it writes", || partial.exists());
        ask(&child, Signal::TERM);
        let (printed, said) = ended(child);
        assert!(printed.is_empty() && said.contains("no probability is written: "), "{said}");
        assert!(said.contains(told), "{said}");
        assert_eq!((fs::read_to_string(&found).ok().as_deref(), partial.exists()), (before, false), "{said}");
    }
    let many = many(&file);
    let child = start(&format!("{predict} {}", many.display()));
    ask(&child, Signal::INT);
    let (printed, said) = ended(child);
    let told = format!("interrupted before a row of {} was answered: no probability is written", many.display());
    assert!(printed.is_empty() && said.contains(&told), "{said}");
}

#[test]
fn an_interrupted_evaluation_tells_how_far_it_came_and_prints_no_scores() {
    let folder = tempfile::tempdir().unwrap();
    let (one, file) = trained(folder.path(), "one");
    let (other, _) = trained(folder.path(), "other");
    let eval = format!("eval --checkpoint {one} --threads 1 --data {}", many(&file).display());
    let child = start(&eval);
    ask(&child, Signal::TERM);
    let (printed, said) = ended(child);
    let told = "interrupted before a sample was scored: no scores are printed";
    assert!(printed.is_empty() && said.contains(told), "{said}");

    let mut child = start(&format!("{eval} --against {other}"));
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("scoring B") {
        assert!(errors.read_line(&mut said).unwrap() > 0, "{said}");
    }
    ask(&child, Signal::INT);
    let (printed, _) = ended(child);
    errors.read_to_string(&mut said).unwrap();
    let told = " of 200,000 samples in 2 passes: no scores are printed";
    assert!(printed.is_empty() && said.contains("interrupted after ") && said.contains(told), "{said}");
}

#[test]
fn a_run_that_is_interrupted_before_its_first_step_saves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [out, losses] = ["run", "losses"].map(|name| folder.path().join(name));
    assert!(Command::new("mkfifo").arg(&losses).status().unwrap().success());
    let (checkpoint, resume) = (out.join("checkpoint.safetensors"), out.join("resume.toml"));
    let of = |file: &Path| fs::metadata(file).ok().map(|found| (found.ino(), found.mtime(), found.mtime_nsec()));
    let interrupted = |line: &str| {
        let child = start(&format!("{line} --threads 1 --trace-loss {}", losses.display()));
        // It waits for somebody who reads its losses, which it opens behind the data and before the first step.
        ask(&child, Signal::TERM);
        let _reader = File::options().read(true).write(true).open(&losses).unwrap();
        let (printed, said) = ended(child);
        let told = "interrupted before the first step: nothing was trained or saved";
        assert!(printed.is_empty() && said.contains(told), "{line}: {said}");
    };
    let begin = format!("{} --steps 3 --out {}", tiny_training(), out.display());
    interrupted(&begin);
    assert!(!checkpoint.exists());
    // What has saved nothing stands in nobody's way.
    succeed(&begin);
    let saved = of(&checkpoint);
    assert!(saved.is_some());
    interrupted(&format!("{begin} --force"));
    assert_eq!(of(&checkpoint), saved, "the run before is there again");
    interrupted(&format!("train --resume {} --steps 5", out.display()));
    assert_eq!((of(&checkpoint), of(&resume)), (saved, None), "the run is what it was");
    succeed(&format!("train --resume {}", out.display()));
}
