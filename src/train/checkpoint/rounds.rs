//! Several machines save in rounds: after each of them all tell that they are alive, and what they wrote in the round
//! before it is on the disk. What lay in memory until the end would take longer to flush than others wait.

use crossbeam::channel::{Receiver, Sender, bounded};

use super::PIECE;
use crate::base::{Error, Result};
use crate::machine::team::roam;
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
        Ok(Self { ranks, flusher: flush.map(|flush| Flusher::start(move || flush.now())).transpose()? })
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
            flusher.next()?;
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
    fn start(flush: impl Fn() -> Result<()> + Send + 'static) -> Result<Self> {
        let (asks, asked) = bounded::<()>(1);
        let (answer, answers) = bounded(1);
        let serve = move || {
            roam();
            for () in asked {
                if answer.send(flush()).is_err() {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("octorec-flush".to_owned()).spawn(serve);
        thread.map_err(|source| Error::Threads { wanted: 1, source })?;
        Ok(Self { asks, answers, asked: false })
    }

    /// Waits for what was asked for before, and asks for what was written since.
    fn next(&mut self) -> Result<()> {
        self.wait()?;
        self.asked = self.asks.send(()).is_ok();
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        if std::mem::take(&mut self.asked) { self.answers.recv().unwrap_or(Ok(())) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_when_the_one_before_it_is_on_the_disk() {
        let (flushed, flushes) = bounded(2);
        let flush = move || flushed.send(()).map_err(|_| Error::bad_file("disk", "full"));
        let mut flusher = Flusher::start(flush).unwrap();
        flusher.next().unwrap();
        flusher.next().unwrap();
        assert!(!flushes.is_empty(), "the first round's");
        flusher.wait().unwrap();
        assert_eq!(flushes.len(), 2);
    }

    #[test]
    fn what_the_disk_refuses_of_a_round_is_told_at_the_end_of_the_next_one() {
        let mut flusher = Flusher::start(|| Err(Error::bad_file("disk", "full"))).unwrap();
        flusher.next().unwrap();
        let error = flusher.next().unwrap_err().to_string();
        assert!(error.contains("full"), "{error}");
        flusher.wait().unwrap();
    }
}
