//! `octorec predict`: a click probability for every row of a file.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::eval::{refuse_own_numbers, whole_file};
use super::ranks::{Purpose, RankArgs, Started};
use super::session::{Trained, load, open_data, refuse_overwriting, report_unseen};
use crate::base::console::note;
use crate::base::units::Count;
use crate::base::{Error, Result, interrupt};
use crate::data::{Labels, Split, Unseen};
use crate::memory::WholeFile;
use crate::train::predict;

/// Arguments of `octorec predict`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct PredictArgs {
    /// The run's directory, or its checkpoint file.
    #[arg(long, value_name = "DIR|FILE")]
    checkpoint: PathBuf,

    /// Rows in Criteo's tab-separated layout; the label column may be missing.
    #[arg(long, value_name = "FILE")]
    data: PathBuf,

    /// Where the probabilities go, one a line; without it: stdout.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Compute threads of each rank; 0: one for each core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,

    #[command(flatten)]
    ranks: RankArgs,
}

impl PredictArgs {
    /// Writes the probabilities.
    pub fn run(&self) -> Result<()> {
        interrupt::install()?;
        let trained = Trained::find(&self.checkpoint)?;
        let mut config = trained.config()?;
        whole_file(&mut config, &self.data);
        refuse_overwriting("--out", self.out.as_deref(), &[&self.data, &trained.path])?;
        let source = open_data(&config, trained.vocabulary, Labels::Optional, Unseen::NoRow)?;
        refuse_own_numbers(&*source)?;
        config.use_here(self.threads);
        let Started { ranks, .. } = self.ranks.start(&config, &*source, Purpose::Predict, false)?;
        load(&trained.path, &*source, &ranks)?;
        let found = predict(&ranks, &source, Split::Train, config.train.eval_batch)?;
        report_unseen(&*source);
        match &self.out {
            Some(path) => {
                let mut file = WholeFile::create(path)?;
                write_lines(&mut file, &found.probabilities).map_err(Error::io(path, "write"))?;
                file.finish()?;
            }
            None => match write_lines(std::io::stdout().lock(), &found.probabilities) {
                // The reader has seen enough.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => (),
                result => result.map_err(Error::io(Path::new("stdout"), "write"))?,
            },
        }
        note!("{} probabilities", Count(found.probabilities.len() as u64));
        Ok(())
    }
}

fn write_lines(to: impl Write, probabilities: &[f32]) -> std::io::Result<()> {
    let mut to = BufWriter::new(to);
    for probability in probabilities {
        // Nine significant digits give every f32 back.
        writeln!(to, "{probability:.8e}")?;
    }
    to.flush()
}
