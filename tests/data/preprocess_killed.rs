//! The command, killed in the middle: the same command goes on, makes nothing finished again, and ends with the bytes
//! of a run that was never killed; and its memory stays bounded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use octorec::base::config::DataConfig;
use octorec::data::{Criteo, Split};
use tempfile::TempDir;

fn folder() -> TempDir {
    // In memory where there is such a folder: the test is about processes, not about disks.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// A log whose large tables have many more values than the sample's.
fn log(path: &Path, rows: u64) {
    let config = DataConfig { train_samples: rows, test_samples: 0, ..DataConfig::default() };
    let tables = [300, 40, 40_000_000, 2_000_000, 200, 20, 9000, 400, 3, 60_000, 5000, 40_000_000, 3000];
    let tables: Vec<u64> = tables.into_iter().chain(tables).collect();
    let source = Criteo::new(&config, &tables, 13).unwrap();
    let mut file = std::io::BufWriter::new(fs::File::create(path).unwrap());
    source.write_tsv(Split::Train, 0..rows, &mut file).unwrap();
}

fn command(input: &Path, out: &Path, more: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octorec"));
    command.args(["preprocess", "criteo-kaggle", "--threads", "2", "--in"]).arg(input).arg("--out").arg(out);
    command.args(more.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// Files that a run has finished so far, with when they were.
fn finished(out: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let folders = [out.to_owned(), out.join("unfinished")];
    let entries = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut all = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        let kept = path.extension().is_some_and(|end| ["part", "ids", "octo"].iter().any(|kept| end == *kept));
        if let Ok(data) = fs::metadata(&path).and_then(|data| data.modified())
            && kept
        {
            all.push((path, data));
        }
    }
    all
}

/// Kills the child once it has finished `count` files.
fn kill_after(mut child: Child, out: &Path, count: usize) -> bool {
    loop {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if finished(out).len() >= count {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_killed_run_goes_on_and_gives_the_same_bytes() {
    let folder = folder();
    let input = folder.path().join("train.txt");
    log(&input, 60_000);
    let more = "--memory 16MiB --shuffle total --split last-day-dlrm --file-rows 6000 --min-count 2";
    let whole = folder.path().join("whole");
    assert!(command(&input, &whole, more).status().unwrap().success());
    let out = folder.path().join("killed");
    let (mut kills, mut count) = (0, 1);
    for attempt in 0.. {
        let before = finished(&out);
        let child = command(&input, &out, more).spawn().unwrap();
        // Each time a little later: within the parts, the ids, the shuffle and the blocks.
        if !kill_after(child, &out, count) {
            if kills > 0 {
                break;
            }
            // This process was not scheduled while the other one ran: once more.
            assert!(attempt < 20, "the command was never caught in the middle");
            fs::remove_dir_all(&out).unwrap();
            continue;
        }
        kills += 1;
        let after = finished(&out);
        for file in before.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "part")) {
            assert!(after.contains(file), "{} was finished and made again", file.0.display());
        }
        count = after.len() + 6;
    }
    assert!(files(&whole) == files(&out), "a killed run ends with other bytes");
    assert!(files(&out).len() > 30);
}

#[test]
fn an_interrupted_run_says_so_and_goes_on() {
    let folder = folder();
    let (text, days) = (folder.path().join("text"), ["day_0.gz", "day_1.gz"].map(|name| folder.path().join(name)));
    log(&text, 30_000);
    for day in &days {
        let mut packed = flate2::write::GzEncoder::new(fs::File::create(day).unwrap(), flate2::Compression::fast());
        std::io::copy(&mut fs::File::open(&text).unwrap(), &mut packed).unwrap();
        packed.finish().unwrap();
    }
    let run = |out: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_octorec"));
        command
            .args("preprocess criteo-terabyte --threads 2 --memory 16MiB --shuffle total --file-rows 500".split(' '));
        command.arg("--in").args(&days).arg("--out").arg(out).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let whole = folder.path().join("whole");
    assert!(run(&whole).wait().unwrap().success());
    let out = folder.path().join("interrupted");
    // While the first of two packed files is decoded, and while shuffled rows are written.
    for what in ["part", "octo"] {
        for attempt in 0.. {
            let mut child = run(&out);
            let begun = || finished(&out).iter().any(|(path, _)| path.extension().is_some_and(|end| end == what));
            while !begun() && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
            // One that has ended may have left its number to another.
            if child.try_wait().unwrap().is_none() {
                let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
            }
            match child.wait().unwrap().code() {
                Some(0) => assert!(attempt < 20, "{what}: the command was never caught in the middle"),
                code => {
                    assert_eq!(code, Some(130), "{what}: an interrupted command says so");
                    break;
                }
            }
            fs::remove_dir_all(&out).unwrap();
        }
    }
    assert!(run(&out).wait().unwrap().success());
    assert!(files(&whole) == files(&out), "an interrupted run ends with other bytes");
}

#[cfg(target_os = "linux")]
#[test]
fn memory_stays_within_its_limit() {
    let folder = folder();
    let input = folder.path().join("train.txt");
    log(&input, 300_000);
    let text = fs::metadata(&input).unwrap().len() >> 20;
    assert!(text > 60, "the text ({text} MiB) is larger than the limit below");
    for (limit, more) in [(48, "--memory 48MiB"), (48, "--memory 48MiB --shuffle total")] {
        let out = folder.path().join(format!("out-{}", more.len()));
        let mut child = command(&input, &out, more).spawn().unwrap();
        let (mut peak, mut code) = (0, 0);
        while child.try_wait().unwrap().is_none() {
            // VmHWM grows only, so the last look before the end is what counts.
            let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
            let of = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0 kB");
                line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
            };
            // What is mapped from files is the program's code, which no limit is about: nothing else is mapped.
            code = code.max(of("RssFile:") >> 10);
            peak = peak.max(of("VmHWM:").saturating_sub(of("RssFile:")) >> 10);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(out.join("dataset.toml").exists());
        // The program itself takes a few MiB.
        assert!(peak > 4 && peak <= limit + 8, "{more}: {peak} MiB");
        assert!(code > 0 && code < 32, "{more}: {code} MiB of files");
    }
}
