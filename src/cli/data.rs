//! `octorec data`: checks a data set, or generates one.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use indicatif::ProgressBar;
use serde::Serialize;

use super::convert::{OutputArgs, write_samples};
use super::heed_signals;
use super::output::refuse_overwriting;
use super::overrides::{BaseArgs, KeyArgs};
use super::terminal::bar;
use super::text::TextArgs;
use crate::base::config::{Command, Config, SourceKind};
use crate::base::console::note;
use crate::base::units::{Count, Many};
use crate::base::{Error, Result, console, interrupt};
use crate::data::formats::{self, Format};
use crate::data::stack_distance::{StackCounter, StackProfile, StackTrace};
use crate::data::{Criteo, Description, Samples, Source, Split, Taobao, Unfinished};
use crate::memory::WholeFile;

/// Arguments of `octorec data`.
#[derive(Debug, Args)]
pub struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Debug, Subcommand)]
enum DataCommand {
    /// Read every row of a data set, and its vocabularies, and check checksums, sizes, labels and row numbers.
    Verify(VerifyArgs),
    /// Write the built-in click log, of any size, in any format.
    Generate(Box<GenerateArgs>),
    /// Measure the LRU stack distances of a data set's look-ups, for `data generate --access lru`.
    Profile(ProfileArgs),
}

#[derive(Debug, Args)]
struct VerifyArgs {
    /// The data set: a directory or a file.
    path: PathBuf,

    /// Its format, where its files do not tell it.
    #[arg(long, value_enum, value_name = "NAME")]
    format: Option<Format>,

    #[command(flatten)]
    text: TextArgs,

    /// Print what was found as one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `data verify --json` prints of data that are sound; others are an error.
#[derive(Serialize)]
struct Verified {
    path: String,
    samples: u64,
    vocabularies: usize,
}

#[derive(Debug, Args)]
struct ProfileArgs {
    /// The data set: a directory or a file.
    path: PathBuf,

    /// The profiles to write, one a categorical column: `j` in the file's name becomes its number, from 0.
    #[arg(long, value_name = "FILE", default_value = "dist_emb_j.log")]
    trace: PathBuf,

    /// Rows to look at, from the start of the training samples; 0: all.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    rows: u64,

    #[command(flatten)]
    text: TextArgs,

    /// Print which files were written as one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `data profile --json` prints.
#[derive(Serialize)]
struct Profiled {
    columns: Vec<ProfiledColumn>,
}

/// The profile of one column.
#[derive(Serialize)]
struct ProfiledColumn {
    column: String,
    file: String,
    /// Rows that were looked up.
    rows: u64,
}

/// Appends samples of a split.
type Fill<'a> = dyn Fn(Split, Range<u64>, &mut Samples) + 'a;

/// How rows are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Access {
    /// As the click log has it: by rank, each sample on its own
    Log,
    /// By LRU stack distance, as the profiles of --trace say: look-ups with the locality of another trace
    Lru,
}

#[derive(Debug, Args)]
struct GenerateArgs {
    /// The directory to write.
    to: PathBuf,

    #[command(flatten)]
    base: BaseArgs,

    #[command(flatten)]
    keys: KeyArgs,

    #[command(flatten)]
    output: OutputArgs,

    /// Write text in Criteo's layout instead, as `preprocess` reads it: day_0 has the training samples, day_1 those for
    /// test
    #[arg(long, conflicts_with_all = ["format", "codec", "block_rows", "access", "trace"])]
    text: bool,

    /// How rows are looked up
    #[arg(long, value_enum, default_value = "log")]
    access: Access,

    /// With --access lru: the profiles of `data profile` (or of the reference), one a categorical column: `j` in the
    /// file's name becomes its number, from 0; rows are taken modulo the table's
    #[arg(long, value_name = "FILE", required_if_eq("access", "lru"))]
    trace: Option<PathBuf>,

    /// Print what was written as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// What `data generate --json` prints.
#[derive(Serialize)]
struct Generated {
    out: String,
    format: &'static str,
    train_samples: u64,
    test_samples: u64,
    bytes: u64,
}

impl DataArgs {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        heed_signals()?;
        match &self.command {
            DataCommand::Verify(args) => args.run(),
            DataCommand::Generate(args) => args.run(),
            DataCommand::Profile(args) => args.run(),
        }
    }
}

impl VerifyArgs {
    fn run(&self) -> Result<()> {
        let dataset = formats::open(&self.path, self.format, self.text.described())?;
        let total = dataset.members.iter().map(|member| member.table.rows()).sum();
        let bar = bar(total, "checking");
        let samples = formats::verify(&dataset, |done| bar.inc(done))?;
        drop(bar);
        let vocabularies = dataset.vocabularies.len();
        if self.json {
            return console::json(&Verified { path: self.path.display().to_string(), samples, vocabularies });
        }
        let vocabularies = match vocabularies {
            0 => String::new(),
            1 => ", 1 vocabulary".to_owned(),
            count => format!(", {count} vocabularies"),
        };
        console::result(format_args!("{}: sound, {}{vocabularies}\n", self.path.display(), Many(samples, "sample")))
    }
}

/// The file of one column's profile.
fn profile_path(pattern: &Path, column: usize) -> Result<PathBuf> {
    let name = pattern.file_name().unwrap_or_default().to_str().ok_or_else(|| {
        let reason = format!("{}: this name is no UTF-8: name another, as dist_emb_j.log", pattern.display());
        Error::config("--trace", reason)
    })?;
    // The last `j`: names of files end in what tells them apart.
    let Some((before, after)) = name.rsplit_once('j') else {
        let reason = format!("{name} has no `j` for a column's number, as in dist_emb_j.log");
        return Err(Error::config("--trace", reason));
    };
    Ok(pattern.with_file_name(format!("{before}{column}{after}")))
}

impl ProfileArgs {
    fn run(&self) -> Result<()> {
        let described = self.text.described();
        let inputs: Vec<&Path> = [&*self.path].into_iter().chain(described.map(|text| text.schema)).collect();
        let dataset = formats::open(&self.path, None, described)?;
        let paths = (0..dataset.description.categorical.len()).map(|column| profile_path(&self.trace, column));
        let paths = paths.collect::<Result<Vec<_>>>()?;
        // Each has a number of its own.
        paths.iter().try_for_each(|path| refuse_overwriting(&[("--trace", Some(path))], &inputs))?;
        let mut counters: Vec<StackCounter> = paths.iter().map(|_| StackCounter::default()).collect();
        let mut left = if self.rows == 0 { u64::MAX } else { self.rows };
        let bar = bar(left.min(dataset.rows(Split::Train)), "profiling");
        for member in dataset.members.iter().filter(|member| member.role == Split::Train) {
            let rows = left.min(member.table.rows());
            left -= rows;
            formats::scan(&*member.table, 0, rows, |samples| {
                for (counter, lookups) in counters.iter_mut().zip(&samples.lookups) {
                    for &row in &lookups.rows {
                        counter.access(u64::from(row));
                    }
                }
                bar.inc(samples.len() as u64);
                Ok(())
            })?;
        }
        drop(bar);
        let profile = |(counter, name): (StackCounter, &String)| {
            let none = || Error::bad_file(self.path.clone(), format!("column {name} has no look-up to profile"));
            counter.profile().ok_or_else(none)
        };
        let names = dataset.description.categorical.iter().map(|column| &column.name);
        let profiles = counters.into_iter().zip(names.clone()).map(profile).collect::<Result<Vec<_>>>()?;
        let mut columns = Vec::new();
        for ((path, profile), name) in paths.iter().zip(&profiles).zip(names) {
            profile.write(path)?;
            let (column, file, rows) = (name.clone(), path.display().to_string(), profile.rows.len() as u64);
            if !self.json {
                console::result(format_args!("{file}: {column}, {} rows\n", Count(rows)))?;
            }
            columns.push(ProfiledColumn { column, file, rows });
        }
        if self.json { console::json(&Profiled { columns }) } else { Ok(()) }
    }
}

impl GenerateArgs {
    /// What the bytes of this command follow from: its flags, but for what it prints; more is told of the profiles.
    fn task(&self, config: &Config) -> String {
        // All that `base` and `keys` say is in the configuration.
        let Self { to: _, base: _, keys: _, output, text, access, trace, json: _ } = self;
        format!("generate {output:?} {text:?} {access:?} {trace:?} {config:?}")
    }

    /// A profile a column, where rows are drawn by stack distance.
    fn profiles(&self, columns: usize) -> Result<Vec<StackProfile>> {
        let (Access::Lru, Some(pattern)) = (self.access, &self.trace) else { return Ok(Vec::new()) };
        (0..columns).map(|column| StackProfile::read(&profile_path(pattern, column)?)).collect()
    }

    /// Writes a file a day, all of them or none; returns their bytes.
    fn write_text(&self, log: &Criteo, task: &str) -> Result<u64> {
        let days = [("day_0", Split::Train), ("day_1", Split::Test)];
        if let Some(bytes) = Unfinished::end(&self.to, task)? {
            return Ok(bytes);
        }
        let unfinished = Unfinished::begin(&self.to, || {
            let mut paths = days.iter().map(|(name, _)| self.to.join(name));
            match paths.find(|path| path.exists()) {
                Some(path) => Err(Error::bad_file(path, "is there already: choose another folder, or remove it")),
                None => formats::refuse_text(&self.to),
            }
        })?;
        // A day without rows is none, to `preprocess` either.
        let counts = days.map(|(_, split)| log.samples(split).unwrap_or(0));
        let written = || days.into_iter().zip(counts).filter(|(_, count)| *count > 0);
        let last = written().next_back().map_or(days[0].0, |((name, _), _)| name);
        let mut bytes = 0;
        for ((name, split), count) in written() {
            let bar = bar(count, "generating");
            let mut file = WholeFile::create(&unfinished.work().join(name))?;
            in_portions(count, &bar, |rows| {
                log.write_tsv(split, rows, &mut file).map_err(|error| Error::io(file.path(), "write")(error))
            })?;
            bytes += file.finish()?;
        }
        unfinished.finish(last, (task, bytes))?;
        for ((name, _), count) in written() {
            note!("{}: {}", self.to.join(name).display(), Many(count, "sample"));
        }
        Ok(bytes)
    }

    fn run(&self) -> Result<()> {
        let config = self.keys.finish(self.base.layers()?, Command::Generate)?;
        let chosen = self.output.chosen()?;
        if self.trace.is_some() && self.access != Access::Lru {
            let reason = "is what --access lru follows: name that, too, or leave it away".to_owned();
            return Err(Error::config("--trace", reason));
        }
        let task = self.task(&config);
        let (data, rows, dense) = (&config.data, &config.model.rows[..], config.model.dense());
        let (train, test) = (data.train_samples, data.test_samples);
        if train == 0 && test == 0 {
            let reason = "both are 0, so that there is nothing to write: set one of them to more".to_owned();
            return Err(Error::config("data.train_samples and data.test_samples", reason));
        }
        let (description, fill): (_, Box<Fill<'_>>) = match data.source {
            SourceKind::Taobao if self.text => {
                let reason = "text in Criteo's layout has one value a column, and a time series has many: use --format, or another preset";
                return Err(Error::config("--text", reason));
            }
            SourceKind::Taobao => {
                let log = Taobao::new(data, rows, dense)?;
                (log.description(), Box::new(move |split, range, samples| log.fill(split, range, samples)))
            }
            SourceKind::Criteo | SourceKind::Tsv | SourceKind::Files | SourceKind::Random => {
                let log = Criteo::new(data, rows, dense)?;
                if self.text {
                    refuse_as_text(&log.description())?;
                    let bytes = self.write_text(&log, &task)?;
                    return self.report("text", [train, test], bytes);
                }
                (log.description(), Box::new(move |split, range, samples| log.fill(split, range, samples)))
            }
        };
        let mut samples = Samples::new(&description);
        let profiles = self.profiles(description.categorical.len())?;
        let told: Vec<u64> = profiles.iter().map(StackProfile::fingerprint).collect();
        let task = format!("{task} {told:x?}");
        let traces = profiles.into_iter().zip(0..);
        let mut traces: Vec<_> =
            traces.map(|(profile, column)| StackTrace::new(profile, config.data.seed, column)).collect();
        let doing = ("generating", train + test);
        let bytes = write_samples((&self.to, &task), chosen, &description, doing, |target, bar| {
            let splits = [(Split::Train, train), (Split::Test, test)].into_iter().filter(|(_, count)| *count > 0);
            for (split, count) in splits {
                target.write(split, |sink| {
                    in_portions(count, bar, |range| {
                        samples.clear();
                        fill(split, range, &mut samples);
                        for ((trace, lookups), column) in
                            traces.iter_mut().zip(&mut samples.lookups).zip(&description.categorical)
                        {
                            lookups.rows.iter_mut().for_each(|row| *row = (trace.next_row() % column.rows) as u32);
                        }
                        sink.push(&samples)
                    })?;
                    Ok(count)
                })?;
            }
            Ok(())
        })?;
        self.report(chosen.0.name(), [train, test], bytes)
    }

    /// What was written, for programs.
    fn report(&self, format: &'static str, [train_samples, test_samples]: [u64; 2], bytes: u64) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        console::json(&Generated { out: self.to.display().to_string(), format, train_samples, test_samples, bytes })
    }
}

/// Hands so many samples over in portions, between which the command may be interrupted.
fn in_portions(count: u64, bar: &ProgressBar, mut each: impl FnMut(Range<u64>) -> Result<()>) -> Result<()> {
    const PORTION: u64 = 1 << 14;
    for from in (0..count).step_by(PORTION as usize) {
        if interrupt::requested() {
            return Err(Error::Interrupted);
        }
        let to = count.min(from + PORTION);
        each(from..to)?;
        bar.inc(to - from);
    }
    Ok(())
}

/// Refuses what text in Criteo's layout has no place for.
fn refuse_as_text(description: &Description) -> Result<()> {
    let (dense, categories) = (description.dense.len(), description.categorical.len());
    let reason = if (dense, categories) != (13, 26) {
        format!("text in Criteo's layout has 13 integers and 26 categories, and this preset {dense} and {categories}")
    } else if description.categorical.iter().any(|column| column.hots != 1) {
        "text in Criteo's layout has one value a column, and data.lookups is more for some".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::config("--text", reason + ": use --format, or another preset"))
}
