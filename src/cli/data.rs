//! `octorec data`: checks a data set, or generates one.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use super::convert::OutputArgs;
use super::overrides::{BaseArgs, KeyArgs};
use crate::base::units::{Bytes, Count};
use crate::base::{Error, Result, interrupt};
use crate::data::blocks::{Options, Role};
use crate::data::formats::{self, Format, Target};
use crate::data::{Criteo, Samples, Source, Split};

/// Arguments of `octorec data`.
#[derive(Debug, Args)]
pub struct DataArgs {
    #[command(subcommand)]
    command: DataCommand,
}

#[derive(Debug, Subcommand)]
enum DataCommand {
    /// Read every row of a data set and check checksums, sizes, labels and row numbers.
    Verify(VerifyArgs),
    /// Write the built-in click log, of any size, in any format.
    Generate(Box<GenerateArgs>),
}

#[derive(Debug, Args)]
struct VerifyArgs {
    /// The data set: a directory or a file.
    path: PathBuf,

    /// Its format, where its files do not tell it: octorec, mlperf, nvidia, torchrec.
    #[arg(long, value_name = "NAME")]
    format: Option<String>,

    /// What describes it, where it is text with a header line.
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
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
}

impl DataArgs {
    /// Runs the command.
    pub fn run(&self) -> Result<()> {
        interrupt::install()?;
        match &self.command {
            DataCommand::Verify(args) => args.run(),
            DataCommand::Generate(args) => args.run(),
        }
    }
}

impl VerifyArgs {
    fn run(&self) -> Result<()> {
        let format = self.format.as_deref().map(|name| Format::named(name, "--format")).transpose()?;
        let dataset = formats::open(&self.path, format, self.schema.as_deref())?;
        let total = dataset.members.iter().map(|member| member.table.rows()).sum();
        let bar = bar(total, "checking");
        let rows = formats::verify(&dataset, |done| bar.inc(done));
        bar.finish_and_clear();
        println!("{}: {} samples are sound", self.path.display(), Count(rows?));
        Ok(())
    }
}

impl GenerateArgs {
    /// Samples that are drawn at a time.
    const PORTION: u64 = 1 << 14;

    fn run(&self) -> Result<()> {
        let config = self.keys.finish(self.base.layers()?)?;
        let format = Format::named(&self.output.format, "--format")?;
        let dense = config.model.bottom.first().copied().unwrap_or(0);
        let log = Criteo::new(&config.data, &config.model.rows, dense)?;
        let description = log.description();
        let (train, test) = (config.data.train_samples, config.data.test_samples);
        let bar = bar(train + test, "generating");
        let mut target = Target::create(&self.to, format, &description, options(&self.output))?;
        let mut samples = Samples::new(&description);
        for (role, split) in [(Role::Train, Split::Train), (Role::Test, Split::Test)] {
            let count = log.samples(split).unwrap_or(0);
            if count == 0 {
                continue;
            }
            target.write(role, |sink| {
                for from in (0..count).step_by(Self::PORTION as usize) {
                    if interrupt::requested() {
                        return Err(Error::Interrupted);
                    }
                    samples.clear();
                    log.fill(split, from..count.min(from + Self::PORTION), &mut samples);
                    sink.push(&samples)?;
                    bar.inc(samples.len() as u64);
                }
                Ok(count)
            })?;
        }
        bar.finish_and_clear();
        let bytes = target.seal()?;
        eprintln!("{}: {} samples, {}", self.to.display(), Count(train + test), Bytes(bytes));
        Ok(())
    }
}

/// How octorec's blocks are written.
pub(super) fn options(args: &OutputArgs) -> Options {
    Options { codec: args.codec.into(), block_rows: args.block_rows }
}

/// A bar of samples.
pub(super) fn bar(total: u64, doing: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} samples  {msg}  {eta} left");
    ProgressBar::new(total).with_style(style.expect("the template is well-formed")).with_message(doing)
}
