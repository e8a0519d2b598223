//! `octorec predict`: a click probability for every row of a file or data set, in its order.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::eval::{refuse_own_numbers, whole_file};
use super::ranks::{Purpose, RankArgs, Started};
use super::session::{Trained, VerifyArgs, load, open_whole, refuse_overwriting, report_unseen};
use crate::base::config::OnBadRow;
use crate::base::console::note;
use crate::base::units::Count;
use crate::base::{Error, Result, interrupt};
use crate::collective::World;
use crate::data::Split;
use crate::memory::WholeFile;
use crate::train::{predict, vocabulary_in};

/// Arguments of `octorec predict`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub struct PredictArgs {
    /// The run's directory, or its checkpoint file.
    #[arg(long, value_name = "DIR|FILE")]
    checkpoint: PathBuf,

    /// Rows in any format that `train --data` reads; in text the label column may be missing. Every row gets a probability,
    /// in the order of the file, so a malformed one ends the command; of a data set those for training, validation and
    /// test, in the order of its files (of octorec's blocks: as dataset.toml lists them; of others: training, validation,
    /// test).
    #[arg(long, value_name = "PATH")]
    data: PathBuf,

    /// Where the probabilities go, one a line; without it: stdout.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Compute threads of each rank; 0: one for each core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    threads: usize,

    #[command(flatten)]
    verify: VerifyArgs,

    #[command(flatten)]
    ranks: RankArgs,
}

impl PredictArgs {
    /// Writes the probabilities.
    pub fn run(&self, world: &World) -> Result<()> {
        interrupt::install()?;
        let trained = Trained::find(&self.checkpoint, self.verify)?;
        let mut config = trained.config()?;
        whole_file(&mut config, &self.data)?;
        let vocabulary = vocabulary_in(&self.checkpoint);
        refuse_overwriting("--out", self.out.as_deref(), &[&self.data, &trained.path, &vocabulary])?;
        // A row that is left out would shift all lines behind it.
        config.data.on_bad_row = OnBadRow::Fail;
        let source = open_whole(&mut config, trained.known)?;
        refuse_own_numbers(&*source)?;
        config.use_here(self.threads);
        let Started { ranks, .. } = self.ranks.start(world, &config, &*source, Purpose::Predict, None, false)?;
        load(&trained.path, self.verify, &*source, &ranks)?;
        let probabilities = predict(&ranks, &source, Split::Train, config.train.eval_batch)?;
        report_unseen(&*source);
        match &self.out {
            _ if !world.is_first() => (),
            Some(path) => {
                let mut file = WholeFile::create(path)?;
                write_lines(&mut file, &probabilities).map_err(Error::io(path, "write"))?;
                file.finish()?;
            }
            None => match write_lines(std::io::stdout().lock(), &probabilities) {
                // The reader has seen enough.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => (),
                result => result.map_err(Error::io(Path::new("stdout"), "write"))?,
            },
        }
        let rows = probabilities.len() as u64;
        let plural = if rows == 1 { "y" } else { "ies" };
        note!("{} probabilit{plural}: one for each row of {}, in its order", Count(rows), self.data.display());
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
