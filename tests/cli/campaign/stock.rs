//! What every case starts from: small sound files of every kind, made by octorec itself before the first case.
//!
//! Cases read them and damage copies only. All are functions of nothing, so that a case is the same in every campaign.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::disk::SmallDisk;
use super::process::{Ended, Line};
use super::results::Results;

/// A model that trains hundreds of steps in a second. Its dense features are as many as the data has.
pub const MODEL: &str = "--set model.bottom=[0,16,8] --set model.top=[16,1] --set model.dim=8 --batch 64 --lr 0.1 \
                         --eval-every 0";

/// The same, for commands that only look at layers.
pub const LAYERS: &str = "--set model.bottom=[13,16,8] --set model.top=[16,1] --set model.dim=8 --batch 64";

/// The built-in click log, small.
pub const BUILT_IN: &str = "--set data.train_samples=2560 --set data.test_samples=320 --set model.bottom=[13,16,8]";

/// Rows of a built-in log that is written to files.
const WRITTEN: &str = "--set data.train_samples=500 --set data.test_samples=200 --rows-cap 100";

/// The formats of other programs that octorec writes.
pub const FORMATS: &[&str] = if cfg!(feature = "parquet") {
    &["mlperf", "nvidia", "torchrec", "hugectr", "parquet"]
} else {
    &["mlperf", "nvidia", "torchrec", "hugectr"]
};

/// Sound files, and what octorec makes of them.
pub struct Stock {
    /// A disk that can be filled, where this process may mount one. It is unmounted before the folder is removed.
    pub disk: Option<SmallDisk>,
    /// Where they lie; the folder is readable for everybody.
    folder: TempDir,
    /// The binary, where everybody can run it.
    pub program: String,
    /// What commands made of sound files, by what they are called.
    pub known: RefCell<HashMap<String, Results>>,
}

impl Stock {
    /// Makes everything.
    pub fn new() -> Self {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = folder.path().join("octorec");
        fs::copy(env!("CARGO_BIN_EXE_octorec"), &program).unwrap();
        let program = program.display().to_string();
        let disk = SmallDisk::mount(&folder.path().join("disk"));
        let stock = Self { disk, folder, program, known: RefCell::default() };
        stock.texts();
        stock.data_sets();
        stock.runs();
        stock.documents();
        stock
    }

    /// Where something lies.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same, as a word of a command line.
    pub fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn make(&self, words: impl AsRef<str>) -> Ended {
        let line = Line::new(words);
        let ended = line.start(&self.program).end();
        assert!(ended.succeeded(), "{line}\n{}", ended.stderr);
        ended
    }

    fn texts(&self) {
        fs::create_dir(self.path("text")).unwrap();
        let text = fs::read(crate::tsv(&self.path("text/clicks.tsv"), 400)).unwrap();
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&text).unwrap();
        fs::create_dir(self.path("packed")).unwrap();
        fs::write(self.path("packed/clicks.tsv.gz"), packed.finish().unwrap()).unwrap();
        // Two days for preprocessing, each a second's work for a slow machine.
        fs::create_dir(self.path("log")).unwrap();
        let days = fs::read_to_string(crate::tsv(&self.path("log/all"), 16_000)).unwrap();
        fs::remove_file(self.path("log/all")).unwrap();
        let middle = days.len() / 2 + days[days.len() / 2..].find('\n').unwrap() + 1;
        fs::write(self.path("log/day_0"), &days[..middle]).unwrap();
        fs::write(self.path("log/day_1"), &days[middle..]).unwrap();
        fs::create_dir(self.path("csv")).unwrap();
        let mut table = "user,rating,genres,age,price,when\n".to_owned();
        for row in 0..400 {
            let genres = ["Drama", "Comedy|Action", "", "\"War, cold|Drama\""][row * 7 % 4];
            let (user, rating, age) = (row * 31 % 90, row * 13 % 5 + 1, 18 + row * 11 % 50);
            table +=
                &format!("u{user},{rating},{genres},{age},{}.{},{}\n", row % 40, row % 10, 880_000_000 + row * 977);
        }
        fs::write(self.path("csv/ratings.csv"), table).unwrap();
        fs::write(self.path("csv/ratings.toml"), RATINGS).unwrap();
    }

    fn data_sets(&self) {
        for codec in ["raw", "lz4", "zstd"] {
            let to = self.at(&format!("blocks-{codec}"));
            self.make(format!("data generate {to} {WRITTEN} --codec {codec} --block-rows 100"));
        }
        for format in FORMATS {
            self.make(format!("data generate {} {WRITTEN} --format {format}", self.at(format)));
        }
        let many = "--set data.train_samples=12000 --set data.test_samples=4000 --codec zstd --block-rows 256";
        self.make(format!("data generate {} {many}", self.at("many")));
        fs::create_dir(self.path("traces")).unwrap();
        self.make(format!("data profile {} --trace {}", self.at("blocks-raw"), self.at("traces/dist_j.log")));
        // Stopped by a bad row of the second day: the first day's work lies finished.
        let days = self.path("halted-days");
        fs::create_dir(&days).unwrap();
        let day = fs::read_to_string(self.path("log/day_0")).unwrap();
        let some: String = day.lines().take(1500).map(|line| format!("{line}\n")).collect();
        fs::write(days.join("day_0"), &some).unwrap();
        fs::write(days.join("day_1"), "no click\n").unwrap();
        let line = Line::new(self.halted(&self.path("halted")));
        let ended = line.start(&self.program).end();
        assert!(ended.code() == Some(1) && self.path("halted/unfinished").is_dir(), "{}", ended.stderr);
        fs::write(days.join("day_1"), some).unwrap();
    }

    /// The command that finishes a copy of what lies in `halted`.
    pub fn halted(&self, copy: &Path) -> String {
        let days = ["halted-days/day_0", "halted-days/day_1"].map(|day| self.at(day)).join(" ");
        format!("preprocess criteo-terabyte --threads 1 --in {days} --out {}", copy.display())
    }

    fn runs(&self) {
        let text = format!("--data {} --test-fraction 0.2", self.at("text/clicks.tsv"));
        self.make(format!("train {MODEL} {text} --steps 7 --threads 1 --out {}", self.at("run/of-text")));
        let table = format!("--data {} --schema {}", self.at("csv/ratings.csv"), self.at("csv/ratings.toml"));
        let more = "--optimizer momentum --optimizer-rows momentum --threads 1";
        self.make(format!("train {MODEL} {table} --steps 7 {more} --out {}", self.at("run-of-table/run")));
    }

    fn documents(&self) {
        let folder = |name: &str| fs::create_dir(self.path(name)).unwrap();
        ["config", "plan", "machine", "xml", "tuned"].into_iter().for_each(folder);
        let config = self.make(format!("config {MODEL} {BUILT_IN} --rows-cap 100 --steps 3")).stdout;
        fs::write(self.path("config/config.toml"), config).unwrap();
        self.make(format!("plan {LAYERS} --rows-cap 100 --ranks 2 --out {}", self.at("plan/plan.toml")));
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        fs::copy(here.join("topology/twisted-hypercube-8.toml"), self.path("machine/machine.toml")).unwrap();
        fs::copy(here.join("tests/fixtures/twisted8.xml"), self.path("xml/machine.xml")).unwrap();
        let layers = "--set model.rows=[50,7] --set model.bottom=[13,80,16] --set model.top=[70,1] --set model.dim=16";
        let out = self.at("tuned/tuned.toml");
        self.make(format!("tune gemm {layers} --batch 96 --threads 1 --repeat 1 --only f32 --out {out}"));
    }
}

/// A schema with every kind of column.
const RATINGS: &str = r#"label = "rating >= 4"
[[dense]]
column = "price"
float = true
[[dense]]
column = "genres"
name = "genres of it"
count = "|"
[[categorical]]
column = "user"
[[categorical]]
column = "genres"
separator = "|"
[[categorical]]
column = "age"
buckets = [18.0, 25.0, 50.0]
[[categorical]]
column = "when"
rows = 50
"#;
