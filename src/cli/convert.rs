//! `octorec convert`: a data set in one format becomes one in another.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;

use super::heed_signals;
use super::terminal::bar;
use super::text::TextArgs;
use crate::base::console::note;
use crate::base::error::shell;
use crate::base::units::{Bytes, Count, Many};
use crate::base::{Error, Result, console};
use crate::data::blocks::{Codec, Options};
use crate::data::formats::{self, Dataset, Format, Target};
use crate::data::hot::{HotInputs, Inputs};
use crate::data::{Description, Split, Unfinished};
use crate::memory::same_file;
use crate::train::save_hot;

/// How the file with hot rows and the tags of samples is called, beside data that tell them.
const HOT: &str = "hot.safetensors";

/// Arguments of `octorec convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The data set: a directory or a file.
    from: PathBuf,

    /// The directory to write.
    to: PathBuf,

    #[command(flatten)]
    output: OutputArgs,

    /// The format of FROM, where its files do not tell it.
    #[arg(long, value_enum, value_name = "NAME")]
    from_format: Option<Format>,

    #[command(flatten)]
    text: TextArgs,

    /// Print what was written as one JSON object on stdout.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Results {
    out: String,
    format: &'static str,
    samples: u64,
    bytes: u64,
    #[serde(flatten)]
    hot: Option<Hot>,
}

/// The same of data that tell which samples are hot.
#[derive(Serialize)]
struct Hot {
    /// The file.
    hot_set: String,
    hot_rows: u64,
    /// Of all training samples.
    hot_samples: u64,
}

/// How a data set is written.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// What is written; csv and fae are only read.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Format::Octorec)]
    pub format: Format,

    /// Compression of octorec's blocks and of Parquet [default: lz4].
    #[arg(long, value_enum)]
    codec: Option<Codec>,

    /// Samples a block of octorec's [default: 4096]; a row group of Parquet's has 32 times as many, which are held in
    /// memory until it is written.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    block_rows: Option<u32>,
}

impl OutputArgs {
    /// The format, and how its blocks are written.
    ///
    /// # Errors
    /// When the format has no blocks and flags are of blocks.
    pub fn chosen(&self) -> Result<(Format, Options)> {
        let format = self.format;
        let given = [("--codec", self.codec.is_some()), ("--block-rows", self.block_rows.is_some())];
        if let Some((flag, _)) = given.into_iter().find(|(_, given)| *given)
            && !matches!(format, Format::Octorec | Format::Parquet)
        {
            let reason = format!("{} has no blocks: leave it away, or use --format octorec", format.name());
            return Err(Error::config(flag, reason));
        }
        let codec = self.codec.unwrap_or(Codec::Lz4);
        Ok((format, Options { codec, block_rows: self.block_rows.unwrap_or(4096) }))
    }
}

/// Writes a data set of `rows` samples, which `fill` hands over, unless the same `task` has finished it and was killed
/// then; and says so. A bar tells what the command is `doing`. Returns all bytes of the rows.
///
/// # Errors
/// Those of [`Target`] and of `fill`; nothing of the data set stays then.
pub fn write_samples(
    (to, task): (&Path, &str),
    (format, options): (Format, Options),
    description: &Description,
    (doing, rows): (&'static str, u64),
    fill: impl FnOnce(&mut Target, &ProgressBar) -> Result<()>,
) -> Result<u64> {
    let bytes = if let Some(bytes) = Unfinished::end(to, task)? {
        bytes
    } else {
        let mut target = Target::create(to, format, description, options)?.of_task(task);
        let bar = bar(rows, doing);
        fill(&mut target, &bar)?;
        drop(bar);
        target.seal()?
    };
    note!("{}: {}, {}", to.display(), Many(rows, "sample"), Bytes(bytes));
    Ok(bytes)
}

impl ConvertArgs {
    /// Converts.
    pub fn run(&self) -> Result<()> {
        heed_signals()?;
        let chosen = self.output.chosen()?;
        if self.from.exists() {
            self.refuse_folder_of_text()?;
        }
        let mut dataset = formats::open(&self.from, self.from_format, self.text.described())?;
        let total: u64 = dataset.members.iter().map(|member| member.table.rows()).sum();
        if total == 0 {
            let reason = "has no samples, and no data set is made of none: name data with samples";
            return Err(Error::bad_file(&self.from, reason));
        }
        if chosen.0.holds_features() {
            dataset.learn_scales()?;
        }
        let task = self.task(&dataset, total)?;
        let (doing, hot) = (("converting", total), self.to.join(HOT));
        let bytes = write_samples((&self.to, &task), chosen, &dataset.description, doing, |target, bar| {
            if dataset.hot.is_some() && hot.exists() {
                return Err(Error::bad_file(hot, "is there already: choose another directory, or move it away"));
            }
            formats::convert(&dataset, target, |done| bar.set_position(done))?;
            let (file, schema) = (target.work().join(HOT), dataset.description.schema(0));
            dataset.hot.as_ref().map_or(Ok(()), |hot| save_hot(&file, &schema, &hot.set, Some(&hot.tags)))
        })?;
        let (hot, told) = dataset.hot.as_ref().map(|hot| self.told(&dataset, hot)).unzip();
        told.into_iter().flatten().for_each(|line| note!("{line}"));
        if self.json {
            let (out, format) = (self.to.display().to_string(), chosen.0.name());
            console::json(&Results { out, format, samples: total, bytes, hot })?;
        }
        Ok(())
    }

    /// What the bytes of this command follow from: its flags, but for what it prints, and the files that it reads.
    fn task(&self, dataset: &Dataset, total: u64) -> Result<String> {
        let Self { from, to: _, output, from_format, text, json: _ } = self;
        let (description, schema, found) = (&dataset.description, &dataset.schema_text, dataset.found()?);
        Ok(format!("convert {from:?} {output:?} {from_format:?} {text:?} {total} {description:?} {schema:?} {found:?}"))
    }

    /// Refuses to write to the folder of the text that is read, whatever its files are called.
    fn refuse_folder_of_text(&self) -> Result<()> {
        let parent = self.from.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = if self.from.is_dir() { &self.from } else { parent };
        let format = self.from_format.or_else(|| Format::detect(&self.from));
        let is_text = self.text.described().is_some() || matches!(format, None | Some(Format::Csv));
        if !is_text || !same_file(folder, &self.to) {
            return Ok(());
        }
        let reason = "is the folder of the text, of which all files are read as one table: choose another directory";
        Err(Error::bad_file(self.to.clone(), reason))
    }

    /// What to say of rows and samples that are hot, which stand beside the data, to programs and to people.
    fn told(&self, dataset: &Dataset, hot: &HotInputs) -> (Hot, Vec<String>) {
        let found = Hot {
            hot_set: self.to.join(HOT).display().to_string(),
            hot_rows: (0..hot.set.tables()).map(|table| hot.set.rows(table)).sum(),
            hot_samples: hot.tags.count(Inputs::Hot),
        };
        let untested = dataset.rows(Split::Test) == 0;
        let tests = if untested { " --test-fraction 0" } else { "" };
        let mut told = vec![format!(
            "{}: {}, {} of {} training samples look up no others: octorec train --data {}{tests} --hot fae --hot-set {}",
            found.hot_set,
            Many(found.hot_rows, "hot row"),
            Count(found.hot_samples),
            Count(hot.tags.samples()),
            shell(&self.to),
            shell(&self.to.join(HOT))
        )];
        if untested {
            told.push(format!(
                "no test samples: FAE's code takes them from *_processed.npz and *_day_count.npz; copy both beside {} and convert \
                 again, or name others with octorec train --test-data",
                self.from.display()
            ));
        }
        (found, told)
    }
}
