//! `octorec preprocess`: raw logs become octorec's blocks.

use std::path::PathBuf;
use std::sync::Mutex;

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde::Serialize;

use super::heed_signals;
use super::session::{growth_told, report_skipped, warn_of_skipped};
use super::terminal::bar_of;
use super::text::max_line;
use crate::base::config::OnBadRow;
use crate::base::console::note;
use crate::base::units::{Bytes, Count, Many, Seconds, parse_bytes};
use crate::base::{Error, Result, console};
use crate::data::blocks::Codec;
use crate::data::formats::csv::TextSchema;
use crate::data::preprocess::{
    Options, Recipe, SUMMARY, ShuffleBy, SplitBy, Stage, Summary, avazu, input_files, preprocess, taobao,
    taobao_sequences,
};

/// What the input is.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Criteo's display-advertising log: one file, cut into 7 equal days
    CriteoKaggle,
    /// Criteo's Terabyte log: a file a day
    CriteoTerabyte,
    /// Avazu's click log
    Avazu,
    /// Taobao's user behaviour log
    Taobao,
    /// Taobao's behaviour sequences as TBSM's reference prepares them (taobao_train.txt, taobao_test.txt)
    TaobaoSequences,
    /// The same, as points that TBSM is trained on: columns user, items and categories
    Tbsm,
    /// Any table of text, described by --schema
    Csv,
}

/// How rows are split.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum SplitName {
    /// All rows are for training
    None,
    /// The last day's first half is for test, its second for validation: facebookresearch/dlrm's names
    LastDayDlrm,
    /// The last day's first half is for validation, its second for test: torchrec's and MLPerf's names
    LastDayTorchrec,
    /// By --validation-fraction and --test-fraction, in the order of the log
    Fraction,
}

/// Arguments of `octorec preprocess`.
#[derive(Debug, Args)]
pub struct PreprocessArgs {
    /// What the input is
    format: Format,

    /// Text files (plain, gzip or zstd), a day each, in order: day_{0..23}.gz, since of day_* a shell sorts day_10
    /// before day_2; or a folder of them
    #[arg(long = "in", value_name = "FILE|DIR", required = true, num_args = 1..)]
    input: Vec<PathBuf>,

    /// The folder of the data set; an unfinished run in it goes on where it was killed
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Memory that may be used: vocabularies that need more are numbered in shards
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = memory)]
    memory: u64,

    /// Threads; 0: one for each core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024))]
    threads: u32,

    /// Values seen less often share a column's last row, as values that are met later do; 0: every value has its own
    /// row, as in the reference
    #[arg(long, value_name = "N", default_value_t = 0)]
    min_count: u32,

    /// Use the vocabulary of this data set as it is; the label's column of csv may then be missing, for predict
    #[arg(long, value_name = "DIR")]
    vocabulary: Option<PathBuf>,

    /// With --vocabulary: values that it lacks get rows behind its own, in the vocabulary of the new data set, on which
    /// `train --init` goes on with a model of the old one
    #[arg(long, requires = "vocabulary")]
    grow: bool,

    /// What rows are for
    #[arg(long, value_enum, default_value_t = SplitName::None)]
    split: SplitName,

    /// With --split fraction: the share of all rows, before those for test [default: 0]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    validation_fraction: Option<f64>,

    /// With --split fraction: the share of all rows, the last ones [default: 0.1]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    test_fraction: Option<f64>,

    /// Equal days that all rows are cut into; 0: 7 for criteo-kaggle, otherwise a day each file
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    days: u64,

    /// Which rows are brought into random order
    #[arg(long, value_enum, default_value_t = ShuffleBy::None)]
    shuffle: ShuffleBy,

    /// With --shuffle, and of tbsm's negative points: the seed [default: 123]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Malformed rows
    #[arg(long, value_enum, default_value_t = OnBadRow::Fail)]
    on_bad_row: OnBadRow,

    /// The longest line of the input
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = max_line)]
    max_line: u64,

    /// Compression of the blocks
    #[arg(long, value_enum, default_value_t = Codec::Raw)]
    codec: Codec,

    /// Rows of a block file
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    file_rows: u64,

    /// For csv: a TOML file that describes the columns, the same that `train --schema` takes (`octorec inspect`
    /// proposes it)
    #[arg(long, value_name = "FILE", required_if_eq("format", "csv"))]
    schema: Option<PathBuf>,

    /// For tbsm: positive points of a user at most, and as many negative ones; 0: the line itself, as for test (default
    /// 10)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    points_per_user: Option<u32>,

    /// For tbsm: items before the one in question, as model.ts_length has it (default 20)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    ts_length: Option<u32>,

    /// Replace the data set in --out, which stays until the new one is whole, or an unfinished run with other options
    #[arg(long)]
    force: bool,

    /// Print what was counted as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Results<'a> {
    out: String,
    #[serde(flatten)]
    summary: &'a Summary,
    seconds: f64,
}

/// The seed unless another is given.
const SEED: u64 = 123;

/// Memory for the work: see [`parse_bytes`].
pub(super) fn memory(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_bytes(text)?;
    if bytes < 16 << 20 { Err("at least 16MiB are needed".to_owned()) } else { Ok(bytes) }
}

fn share(text: &str) -> std::result::Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "a share from 0 to 1 is expected".to_owned())
}

impl PreprocessArgs {
    fn options(&self) -> Result<Options> {
        self.check()?;
        let recipe = match self.format {
            Format::CriteoKaggle => Recipe::CriteoKaggle,
            Format::CriteoTerabyte => Recipe::CriteoTerabyte,
            Format::Avazu => Recipe::Table(avazu()),
            Format::Taobao => Recipe::Table(taobao()),
            Format::TaobaoSequences => Recipe::Table(taobao_sequences()),
            Format::Tbsm => {
                Recipe::Points { most: self.points_per_user.unwrap_or(10), history: self.ts_length.unwrap_or(20) }
            }
            Format::Csv => match &self.schema {
                Some(schema) => Recipe::Table(TextSchema::read(schema)?),
                None => unreachable!("clap requires it"),
            },
        };
        let (validation, test) = (self.validation_fraction.unwrap_or(0.0), self.test_fraction.unwrap_or(0.1));
        let split = match self.split {
            SplitName::None => SplitBy::None,
            SplitName::LastDayDlrm => SplitBy::LastDayDlrm,
            SplitName::LastDayTorchrec => SplitBy::LastDayTorchrec,
            SplitName::Fraction => SplitBy::Fraction { validation, test },
        };
        if validation + test > 1.0 {
            let reason = "the shares for validation and test are more than all rows".to_owned();
            return Err(Error::config("--validation-fraction, --test-fraction", reason));
        }
        Ok(Options {
            memory: self.memory,
            threads: self.threads as usize,
            min_count: self.min_count,
            days: self.days,
            split,
            shuffle: self.shuffle,
            seed: self.seed.unwrap_or(SEED),
            vocabulary: self.vocabulary.clone(),
            grow: self.grow,
            on_bad_row: self.on_bad_row,
            codec: self.codec,
            max_line: self.max_line as usize,
            file_rows: self.file_rows,
            force: self.force,
            ..Options::new(recipe, self.input.clone(), self.out.clone())
        })
    }

    /// Refuses flags that would have no effect.
    fn check(&self) -> Result<()> {
        let (tbsm, csv) = (matches!(self.format, Format::Tbsm), matches!(self.format, Format::Csv));
        let (of_tbsm, of_csv) = ("`octorec preprocess tbsm`", "`octorec preprocess csv`");
        let (shares, shuffles) = (matches!(self.split, SplitName::Fraction), self.shuffle != ShuffleBy::None);
        let numbers = self.vocabulary.is_none() || self.grow;
        for (flag, given, used, whose) in [
            ("--points-per-user", self.points_per_user.is_some(), tbsm, of_tbsm),
            ("--ts-length", self.ts_length.is_some(), tbsm, of_tbsm),
            ("--schema", self.schema.is_some(), csv, of_csv),
            ("--min-count", self.min_count > 0, numbers, "new values (no --vocabulary, or --grow beside it)"),
            ("--validation-fraction", self.validation_fraction.is_some(), shares, "--split fraction"),
            ("--test-fraction", self.test_fraction.is_some(), shares, "--split fraction"),
            ("--seed", self.seed.is_some(), shuffles || tbsm, "--shuffle day or total, or tbsm"),
        ] {
            if given && !used {
                let reason = format!("has an effect only with {whose}: leave it away");
                return Err(Error::config(flag, reason));
            }
        }
        Ok(())
    }

    /// Preprocesses, drawing a bar a stage, and prints what was counted.
    pub fn run(&self) -> Result<()> {
        let options = self.options()?;
        heed_signals()?;
        let inputs = input_files(&options.inputs)?;
        if let [first, .., last] = &inputs[..] {
            // The order decides which rows are the last day's.
            note!("{} files, from {} to {}", Count(inputs.len() as u64), first.display(), last.display());
        }
        let began = std::time::Instant::now();
        let bars = Bars::default();
        let summary = preprocess(&options, &|stage, done, total| bars.draw(stage, done, total));
        drop(bars);
        let summary = summary.inspect_err(|error| {
            if matches!(error, Error::Interrupted) {
                note!("stopped: what is finished is kept; the same command goes on from here");
            }
        })?;
        self.report(&summary, began.elapsed().as_secs_f64())
    }

    fn report(&self, summary: &Summary, seconds: f64) -> Result<()> {
        let roles: Vec<_> = summary.roles.iter().map(|(role, rows)| format!("{} {role}", Count(*rows))).collect();
        let rows: u64 = summary.counts.iter().map(|(_, rows)| rows).sum();
        let out = self.out.display().to_string();
        match self.json {
            true => console::json(&Results { out, summary, seconds })?,
            false => console::result(format_args!("{out}\n"))?,
        }
        note!("rows: {} ({})", Count(summary.rows), roles.join(", "));
        report_skipped(summary.skipped);
        warn_of_skipped(summary.skipped, summary.rows, None);
        let tables = Many(summary.counts.len() as u64, "table");
        note!("{tables} with {}; counts in {SUMMARY}", Many(rows, "row"));
        if let Some((known, told)) = self.vocabulary.as_ref().zip(growth_told(0, &summary.growth)) {
            note!("--vocabulary {}: {told}", known.display());
        }
        let speed = summary.bytes as f64 / seconds / 1e6;
        note!("{} in {}: {speed:.0} MB/s of input", Bytes(summary.bytes), Seconds(seconds));
        Ok(())
    }
}

/// One bar at a time: that of the stage that is going on.
#[derive(Default)]
struct Bars(Mutex<Option<(Stage, ProgressBar)>>);

impl Bars {
    fn draw(&self, stage: Stage, done: u64, total: u64) {
        let mut current = self.0.lock().expect("no thread panics with this lock");
        if current.as_ref().is_none_or(|(of, _)| *of != stage) {
            if total == 0 {
                return;
            }
            let template = match stage {
                Stage::Text => "{bar:30} {bytes}/{total_bytes}  {msg}  {bytes_per_sec}  {eta} left",
                _ => "{bar:30} {human_pos}/{human_len}  {msg}  {eta} left",
            };
            *current = Some((stage, bar_of(template, total, stage.name())));
        }
        if let Some((_, bar)) = &*current {
            bar.set_position(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_bounds() {
        assert_eq!((memory("4GiB"), max_line("1GiB")), (Ok(4 << 30), Ok(1 << 30)));
        assert!(memory("1KiB").unwrap_err().contains("at least 16MiB"));
        assert!(max_line("0").is_err() && max_line("2GiB").is_err());
    }
}
