//! Several machines save in rounds: after each of them all tell that they are alive, and what they wrote in the round
//! before it is on the disk. What lay in memory until the end would take longer to flush than others wait.

use std::ops::Range;
use std::panic::resume_unwind;
use std::thread::{self, Scope, ScopedJoinHandle};

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

/// A thread that hashes and writes a piece while the next one is gathered.
struct PipelinedWriter<'scope> {
    pieces: Sender<Piece>,
    thread: ScopedJoinHandle<'scope, Result<Option<TensorFile>>>,
}

/// Some numbers of a tensor.
struct Piece {
    /// The tensor, where they are its first ones; others follow the piece before.
    begins: Option<usize>,
    values: Vec<f32>,
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

    /// Writes the tensors that this machine holds, while the others write theirs; the file again.
    ///
    /// # Errors
    /// As [`Ranks::own_rows`], when the file cannot be written, and those of [`Rounds::end`].
    pub fn write_held(
        &mut self,
        parameters: &[Parameter],
        holders: &[Option<usize>],
        file: Option<TensorFile>,
    ) -> Result<Option<TensorFile>> {
        let world = self.ranks.world();
        let held = |machine: usize| parameters.iter().enumerate().filter(move |(at, _)| holders[*at] == Some(machine));
        let bytes = |machine| held(machine).map(|(_, of)| of.len() * size_of::<f32>()).sum::<usize>();
        let rounds = (0..world.machines()).map(|machine| bytes(machine).div_ceil(ROUND)).max().unwrap_or(0);
        let own = held(world.machine());
        let pieces = own.flat_map(|(tensor, of)| of.ranges(PIECE).map(move |rows| (tensor, of, rows)));
        thread::scope(|scope| {
            let writer = PipelinedWriter::start(scope, file)?;
            let given = self.give(&writer, rounds, pieces);
            let file = writer.finish();
            given.and(file)
        })
    }

    /// Gives a writer these pieces of tensors, in so many rounds.
    fn give<'p>(
        &mut self,
        writer: &PipelinedWriter<'_>,
        rounds: usize,
        mut pieces: impl Iterator<Item = (usize, &'p Parameter, Range<usize>)>,
    ) -> Result<()> {
        for _ in 0..rounds {
            let mut gathered = 0;
            while gathered < ROUND
                && let Some((tensor, of, rows)) = pieces.next()
            {
                let begins = (rows.start == 0).then_some(tensor);
                let values = self.ranks.own_rows(of, rows)?;
                gathered += size_of_val(&values[..]);
                if writer.pieces.send(Piece { begins, values }).is_err() {
                    // It has ended by an error, which it tells when it is waited for.
                    return Ok(());
                }
            }
            self.end()?;
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

impl<'scope> PipelinedWriter<'scope> {
    fn start(scope: &'scope Scope<'scope, '_>, mut file: Option<TensorFile>) -> Result<Self> {
        let (pieces, given) = bounded::<Piece>(1);
        let write = move || {
            roam();
            for Piece { begins, values } in given {
                let Some(file) = &mut file else { continue };
                begins.into_iter().for_each(|tensor| file.seek(tensor));
                file.append(bytemuck::cast_slice(&values))?;
            }
            Ok(file)
        };
        let thread = thread::Builder::new().name("octorec-save".to_owned()).spawn_scoped(scope, write);
        Ok(Self { pieces, thread: thread.map_err(Error::threads(1))? })
    }

    /// Waits until all pieces are written; the file again.
    fn finish(self) -> Result<Option<TensorFile>> {
        drop(self.pieces);
        self.thread.join().unwrap_or_else(|payload| resume_unwind(payload))
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
        let thread = thread::Builder::new().name("octorec-flush".to_owned()).spawn(serve);
        thread.map_err(Error::threads(1))?;
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
