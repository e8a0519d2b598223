//! `octorec convert`: a data set in one format becomes one in another.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::data::{bar, options};
use crate::base::console::note;
use crate::base::units::{Bytes, Many};
use crate::base::{Result, interrupt};
use crate::data::blocks::Codec;
use crate::data::formats::{self, Format, Target};

/// Arguments of `octorec convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The data set: a directory or a file.
    from: PathBuf,

    /// The directory to write.
    to: PathBuf,

    #[command(flatten)]
    output: OutputArgs,

    /// The format of FROM, where its files do not tell it: octorec, mlperf, nvidia, torchrec, hugectr, parquet, csv.
    #[arg(long, value_name = "NAME")]
    from_format: Option<String>,

    /// What describes FROM, where it is text with a header line (`octorec inspect` proposes it).
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
}

/// How a data set is written.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// What is written: octorec, mlperf, nvidia, torchrec, hugectr, parquet.
    #[arg(long, value_name = "NAME", default_value = "octorec")]
    pub format: String,

    /// Compression of octorec's blocks.
    #[arg(long, value_enum, default_value = "lz4")]
    pub codec: CodecName,

    /// Samples a block of octorec's.
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub block_rows: u32,
}

/// Compression as it is spelled on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CodecName {
    /// None: the mapped file is read in place.
    Raw,
    /// LZ4: fast.
    Lz4,
    /// Zstandard: small.
    Zstd,
}

impl From<CodecName> for Codec {
    fn from(name: CodecName) -> Self {
        match name {
            CodecName::Raw => Self::Raw,
            CodecName::Lz4 => Self::Lz4,
            CodecName::Zstd => Self::Zstd,
        }
    }
}

impl ConvertArgs {
    /// Converts.
    pub fn run(&self) -> Result<()> {
        interrupt::install()?;
        let format = Format::named(&self.output.format, "--format")?;
        let from = self.from_format.as_deref().map(|name| Format::named(name, "--from-format")).transpose()?;
        let mut dataset = formats::open(&self.from, from, self.schema.as_deref())?;
        if format.holds_features() {
            dataset.learn_scales()?;
        }
        let total = dataset.members.iter().map(|member| member.table.rows()).sum();
        let mut target = Target::create(&self.to, format, &dataset.description, options(&self.output))?;
        let bar = bar(total, "converting");
        let rows = formats::convert(&dataset, &mut target, |done| bar.set_position(done));
        bar.finish_and_clear();
        let rows = rows?;
        let bytes = target.seal()?;
        note!("{}: {}, {}", self.to.display(), Many(rows, "sample"), Bytes(bytes));
        Ok(())
    }
}
