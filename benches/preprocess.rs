//! Raw text to blocks, end to end, as `make bench-data` runs it: speed of the whole command and its peak memory.
//!
//! The text is generated once (`-- --gb N` gigabytes with tables up to 40 million rows) and left where it is; the
//! command runs as a process of its own, whose peak resident set the system tells. It must stay below `--memory`, and
//! the data set must have every row.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use octorec::base::config::DataConfig;
use octorec::data::blocks::Manifest;
use octorec::data::{Criteo, Split};

/// Rows of MLPerf's tables.
const TABLES: [u64; 26] = [
    40_000_000, 39_060, 17_295, 7424, 20_265, 3, 7122, 1543, 63, 40_000_000, 3_067_956, 405_282, 10, 2209, 11_938, 155,
    4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36,
];
/// Rows that one thread writes at a time.
const STRETCH: u64 = 20_000;

/// Writes about `bytes` of text; returns its rows.
fn generate(path: &Path, bytes: u64) -> u64 {
    let config = DataConfig { train_samples: u64::MAX >> 8, test_samples: 0, ..DataConfig::default() };
    let log = Criteo::new(&config, &TABLES, 13).expect("a valid configuration");
    let mut file = BufWriter::new(File::create(path).expect("the folder can be written to"));
    let (mut rows, mut written) = (0, 0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    while written < bytes {
        let some: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let one = |n| {
                let (log, from) = (&log, rows + n * STRETCH);
                scope.spawn(move || {
                    let mut text = Vec::new();
                    log.write_tsv(Split::Train, from..from + STRETCH, &mut text).expect("memory can be written to");
                    text
                })
            };
            let threads: Vec<_> = (0..threads).map(one).collect();
            threads.into_iter().map(|thread| thread.join().expect("the generator does not panic")).collect()
        });
        for text in some {
            file.write_all(&text).expect("the disk has room");
            written += text.len() as u64;
            rows += STRETCH;
        }
    }
    file.flush().expect("the disk has room");
    rows
}

/// The value of `--name`, if it is given.
fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1)
}

fn main() {
    let Some(gb) = argument("--gb") else {
        println!("skipped: it writes gigabytes; run `make bench-data`");
        return;
    };
    let gb: f64 = gb.parse().expect("--gb takes a number");
    let memory = argument("--memory").unwrap_or_else(|| "4GiB".to_owned());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-data");
    fs::create_dir_all(&folder).expect("the target folder can be written to");
    let (text, out) = (folder.join(format!("{gb}.tsv")), folder.join("out"));
    let rows_file = folder.join(format!("{gb}.rows"));
    let known = fs::read_to_string(&rows_file).ok().filter(|_| text.exists());
    let rows: u64 = known.and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        eprintln!("generating {gb} GB of text in {}", text.display());
        let rows = generate(&text, (gb * 1e9) as u64);
        fs::write(&rows_file, rows.to_string()).expect("the disk has room");
        rows
    });
    let bytes = fs::metadata(&text).expect("it was written").len();
    let mut command = Command::new(env!("CARGO_BIN_EXE_octorec"));
    command.args(["preprocess", "criteo-kaggle", "--force", "--memory", &memory, "--in"]).arg(&text);
    let began = Instant::now();
    let mut child = command.arg("--out").arg(&out).stdout(Stdio::null()).spawn().expect("the binary runs");
    let mut peak = 0.0f64;
    let status = loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
        peak = peak.max(line.trim().trim_end_matches(" kB").parse().expect("a number of kB"));
        if let Some(status) = child.try_wait().expect("the child is ours") {
            break status;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let seconds = began.elapsed().as_secs_f64();
    assert!(status.success(), "the command failed");
    let manifest = Manifest::read(&out).expect("the data set is complete");
    assert_eq!(manifest.parts.iter().map(|part| part.rows).sum::<u64>(), rows, "every row is there");
    let tables: u64 = manifest.schema.categorical.iter().map(|column| column.rows).sum();
    println!(
        "{rows} rows, {:.2} GB of text, {tables} distinct values: {seconds:.1} s, {:.0} MB/s, peak resident set {:.2} GiB \
         (limit {memory})",
        bytes as f64 / 1e9,
        bytes as f64 / 1e6 / seconds,
        peak / f64::from(1 << 20)
    );
    fs::remove_dir_all(&out).expect("the data set can be removed");
}
