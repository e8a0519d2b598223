//! Several machines save in rounds: after each of them all tell that they are alive, and what they wrote in the round
//! before it is on the disk. What lay in memory until the end would take longer to flush than others wait.

use crossbeam::channel::{Receiver, Sender, bounded};

use super::PIECE;
use crate::base::{Error, Result};
use crate::machine::team::roam;
use crate::memory::Flush;
use crate::model::Parameter;
use crate::train::Ranks;
use crate::train::tensor_file::TensorFile;

/// What machines do when they tell each other how far they are.
pub(super) const SAVE: &str = "save a checkpoint";

/// Bytes of a round that each machine writes, or that the first one writes for all.
pub(super) const ROUND: usize = 256 << 20;

/// The rounds of a save.
pub(super) struct Rounds<'a> {
    ranks: &'a Ranks,
    /// Of what this machine writes, if it writes; one machine alone has nobody who waits.
    flusher: Option<Flusher>,
}

/// A thread that flushes a file while more of it is written.
struct Flusher {
    asks: Sender<()>,
    answers: Receiver<Result<()>>,
    /// Whether an answer is due.
    asked: bool,
}

impl<'a> Rounds<'a> {
    /// Of a save into this file.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(ranks: &'a Ranks, file: Option<&TensorFile>) -> Result<Self> {
        let shared = file.filter(|_| ranks.world().machines() > 1);
        let flush = shared.map(TensorFile::flush_beside).transpose()?.flatten();
        Ok(Self { ranks, flusher: flush.map(Flusher::start).transpose()? })
    }

    /// Gathers at the first machine, which writes it, what no machine has whole, or only the first one can write: the
    /// tensors that have no holder.
    ///
    /// # Errors
    /// As [`Ranks::export_rows`], and when the file cannot be written.
    pub fn gather_at_first(
        &mut self,
        parameters: &[Parameter],
        holders: &[Option<usize>],
        file: &mut Option<TensorFile>,
    ) -> Result<()> {
        let (ranks, mut gathered) = (self.ranks, 0);
        for (tensor, parameter) in parameters.iter().enumerate().filter(|(tensor, _)| holders[*tensor].is_none()) {
            file.iter_mut().for_each(|file| file.seek(tensor));
            for rows in parameter.ranges(PIECE) {
                gathered += rows.len() * parameter.columns() * size_of::<f32>();
                let values = ranks.export_rows(parameter, rows)?;
                if ranks.world().is_first() {
                    file.as_mut().map_or(Ok(()), |file| file.append(bytemuck::cast_slice(&values)))?;
                }
                // Nobody answers those who give: without rounds, what is not written would fill the first one's memory.
                if gathered >= ROUND {
                    gathered = 0;
                    self.end()?;
                }
            }
        }
        Ok(())
    }

    /// Ends a round, together with all machines.
    ///
    /// # Errors
    /// When the disk refuses what was written, or another machine fails.
    pub fn end(&mut self) -> Result<()> {
        if let Some(flusher) = &mut self.flusher {
            flusher.wait()?;
            flusher.asked = flusher.asks.send(()).is_ok();
        }
        self.alive()
    }

    /// Waits for what is being flushed: the file itself would not tell again what went wrong.
    ///
    /// # Errors
    /// When the disk refuses what was written.
    pub fn settle(&mut self) -> Result<()> {
        self.flusher.as_mut().map_or(Ok(()), Flusher::wait)
    }

    /// Tells all machines that this one is alive, and hears it of them.
    ///
    /// # Errors
    /// When another machine fails.
    pub fn alive(&self) -> Result<()> {
        self.ranks.everywhere(SAVE, Vec::<u8>::new()).map(|_| ())
    }
}

impl Flusher {
    fn start(flush: Flush) -> Result<Self> {
        let (asks, asked) = bounded::<()>(1);
        let (answer, answers) = bounded(1);
        let serve = move || {
            roam();
            for () in asked {
                if answer.send(flush.now()).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("octorec-flush".to_owned()).spawn(serve);
        thread.map_err(|source| Error::Threads { wanted: 1, source })?;
        Ok(Self { asks, answers, asked: false })
    }

    fn wait(&mut self) -> Result<()> {
        if std::mem::take(&mut self.asked) { self.answers.recv().unwrap_or(Ok(())) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::WholeFile;

    #[test]
    fn a_file_is_flushed_while_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = WholeFile::create(&folder.path().join("whole")).unwrap();
        let mut flusher = Flusher::start(file.flush_beside().unwrap().unwrap()).unwrap();
        for round in 0..3 {
            file.append(&[round; 1 << 19]).unwrap();
            flusher.wait().unwrap();
            flusher.asked = flusher.asks.send(()).is_ok();
            assert!(flusher.asked, "round {round}");
        }
        flusher.wait().unwrap();
        assert!(!flusher.asked && file.finish().unwrap() == 3 << 19);
    }
}
