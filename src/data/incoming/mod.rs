//! Rows that are read as they arrive, once, from standard input or a file: what a trained model is asked.
//!
//! A row is a line: text as files of the same data have it, or an object of JSON by the columns' names (`json`).
//! Nothing is known of how many there are. Readers hand over what has come whenever the input pauses
//! ([`About::pauses`]), so that whoever writes rows one by one is answered one by one. Categories become rows by what
//! the model knows: nothing is learned here. A malformed row ends everything, unless it is to be answered
//! ([`Malformed`]): then a row without values stands in its place.

mod json;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(super) use json::{Column, Numbers, Objects, TRUTHS};

use super::formats::{csv, refuse_described};
use super::text::{Judged, Lines, Wanted, packed};
use super::unseen::UnseenCounts;
use super::{About, Batch, OnUnseen, Opening, Reader, Schema, Source, Split, UnseenValues, Vocabulary, tsv};
use crate::base::config::{Config, SourceKind};
use crate::base::{Error, Result, Unpoisoned, interrupt};

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// As in files of text.
    Text,
    /// An object of JSON a line.
    Json,
}

/// What rows arrive by.
pub trait Input: Read + Send {
    /// Whether nothing can be read now without waiting.
    fn waits(&self) -> bool;
}

/// Standard input. A wish to stop ends a wait for it.
#[derive(Debug)]
struct StandardInput {
    /// Whether nobody wants more: the input then ends.
    closed: Arc<AtomicBool>,
    /// Whether something has come.
    begun: bool,
}

/// How often a wait is interrupted to look whether it still makes sense.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

impl StandardInput {
    /// Whether there is something to read, or the end, within this time.
    fn ready(within: Timespec) -> bool {
        let stdin = io::stdin();
        let mut one = [PollFd::new(&stdin, PollFlags::IN)];
        // Where the system refuses to tell, reading does: it waits, or says what is wrong.
        poll(&mut one, Some(&within)).map_or(true, |ready| ready > 0)
    }
}

impl Read for StandardInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.closed.load(Ordering::Relaxed) {
                return Ok(0);
            }
            if interrupt::requested() {
                return Err(ErrorKind::Interrupted.into());
            }
            if Self::ready(LOOK_EVERY) {
                // The file beneath, which is not buffered: what has come is handed over.
                let read = rustix::io::read(io::stdin(), &mut *buffer).map_err(io::Error::from)?;
                let first = !std::mem::replace(&mut self.begun, true);
                return match packed(&buffer[..read]).filter(|_| first) {
                    Some(reason) => Err(io::Error::other(reason)),
                    None => Ok(read),
                };
            }
        }
    }
}

impl Input for StandardInput {
    fn waits(&self) -> bool {
        !Self::ready(Timespec { tv_sec: 0, tv_nsec: 0 })
    }
}

/// Parses lines into samples.
pub(super) trait Parse: Send + Sync {
    /// The columns.
    fn schema(&self) -> &Schema;

    /// As [`About::dense_columns`].
    fn dense_columns(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Rows of the model's categories, where they have a vocabulary.
    fn vocabulary(&self) -> Option<&Arc<Vocabulary>>;

    /// Begins to read these lines.
    ///
    /// # Errors
    /// When what stands before the rows (a header) cannot be used.
    fn begin(&self, lines: Lines) -> Result<Box<dyn Next + '_>>;
}

/// Lines that become rows of numbers, and these samples.
pub(super) trait Next: Send {
    /// Reads the next row; nothing at the end.
    ///
    /// # Errors
    /// When it cannot be read.
    fn next(&mut self) -> Result<Option<Judged<()>>>;

    /// Puts another row in the place of the malformed one that was read last: one that looks up the first row of each
    /// table.
    fn stand_in(&mut self);

    /// Appends the row, if not now then when the minibatch is finished; values without a row are added to `left_out`,
    /// one entry a categorical column.
    fn push(&mut self, batch: &mut Batch, left_out: &[AtomicU64]);

    /// Appends what was not appended yet.
    fn finish(&mut self, _batch: &mut Batch) {}

    /// Whether the next row has not come yet.
    fn waits(&mut self) -> bool;
}

/// Malformed rows that somebody answers: their numbers, from 0, rising, and what is wrong with each.
#[derive(Debug, Clone, Default)]
pub struct Malformed(Arc<Mutex<VecDeque<(u64, Error)>>>);

impl Malformed {
    fn rows(&self) -> MutexGuard<'_, VecDeque<(u64, Error)>> {
        self.0.lock().unpoisoned()
    }

    /// What is wrong with the row of this number, if it is malformed. Rows are asked for in their order, each once and
    /// behind the sample that stands in its place.
    #[must_use]
    pub fn take(&self, number: u64) -> Option<Error> {
        let mut rows = self.rows();
        let is_next = rows.front().is_some_and(|(row, _)| *row == number);
        if is_next { rows.pop_front().map(|(_, error)| error) } else { None }
    }

    /// Forgets those that were met: nobody asks for them any more.
    pub fn clear(&self) {
        self.rows().clear();
    }
}

/// Rows that arrive.
pub struct Incoming {
    parse: Box<dyn Parse>,
    /// The file, or what the input is called.
    path: PathBuf,
    about: About,
    /// Read once.
    lines: Mutex<Option<Lines>>,
    unseen: UnseenCounts,
    /// Values without a row, by column.
    left_out: Vec<AtomicU64>,
    /// What ends the input.
    closed: Arc<AtomicBool>,
    /// Where malformed rows go that do not end everything.
    malformed: Option<Malformed>,
}

impl Incoming {
    /// Those of standard input, for the model of this configuration; `opening` says what it knows.
    ///
    /// # Errors
    /// When the model was trained on data of another kind, or knows no rows of its categories.
    pub fn standard(config: &Config, opening: Opening<'_>, writing: Writing) -> Result<Self> {
        let closed = Arc::<AtomicBool>::default();
        let input = Box::new(StandardInput { closed: Arc::clone(&closed), begun: false });
        Ok(Self { closed, ..Self::open(config, opening, input, writing)? })
    }

    /// Those of the file of text that the configuration names.
    ///
    /// # Errors
    /// As [`Incoming::standard`], and when it is no file of text, or cannot be read.
    pub fn file(config: &Config, opening: Opening<'_>) -> Result<Self> {
        let path = Path::new(&config.data.path);
        let is_described = !config.data.schema.is_empty();
        if is_described {
            refuse_described(path, true)?;
        }
        if path.is_dir() {
            let reason = "is a folder, and malformed rows are answered of one file: name one file after another";
            return Err(Error::bad_file(path, reason));
        }
        let lines = match is_described {
            true => {
                let (schema, _) =
                    csv::TextSchema::kept_or_read(opening.schema.clone(), Path::new(&config.data.schema))?;
                Lines::open(path, Wanted::Of(&|name| schema.reads(name, opening.labels)))?
            }
            false => Lines::open(path, Wanted::All)?,
        };
        Self::of(config, opening, lines, Writing::Text)
    }

    /// Has malformed rows answered, if anybody does.
    #[must_use]
    pub fn answering(self, malformed: Option<Malformed>) -> Self {
        Self { malformed, ..self }
    }

    fn open(config: &Config, opening: Opening<'_>, input: Box<dyn Input>, writing: Writing) -> Result<Self> {
        Self::of(config, opening, Lines::incoming(NAME.as_ref(), input), writing)
    }

    fn of(config: &Config, opening: Opening<'_>, lines: Lines, writing: Writing) -> Result<Self> {
        let data = &config.data;
        let parse: Box<dyn Parse> = if data.schema.is_empty() {
            if data.source == SourceKind::Files {
                return refuse(
                    lines.path(),
                    "these are rows of text, and this run was trained on another format: name data of that with --data PATH \
                     (`octorec guide serving` says how text becomes blocks of the same rows), or train on text",
                );
            }
            Box::new(tsv::Arriving::new(data, &config.model.rows, opening.known, (lines.path(), writing))?)
        } else {
            let (schema, _) = csv::TextSchema::kept_or_read(opening.schema.clone(), Path::new(&data.schema))?;
            Box::new(csv::Arriving::new(data, schema, opening, (lines.path(), writing))?)
        };
        let (path, lines) = (lines.path().to_owned(), Mutex::new(Some(lines.limited(data.max_line))));
        let (vocabulary, dense_columns) = (parse.vocabulary().cloned(), parse.dense_columns());
        let unseen = UnseenCounts::of(parse.schema(), vocabulary.as_deref());
        let about = About { vocabulary, dense_columns, pauses: true, ..About::default() };
        let left_out = parse.schema().tables.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self { parse, path, about, lines, unseen, left_out, closed: Arc::default(), malformed: None })
    }
}

/// What standard input is called in messages.
const NAME: &str = "standard input";

/// What a value does that the model does not know.
pub(super) const UNSEEN: OnUnseen = OnUnseen::EmptyBag;

/// An error of `--data -`, or of the file that is read in its place.
pub(super) fn refuse<T>(path: &Path, reason: &str) -> Result<T> {
    let named = if path == Path::new(NAME) { "-".to_owned() } else { path.display().to_string() };
    Err(Error::config(format!("--data {named}"), reason))
}

impl Source for Incoming {
    fn schema(&self) -> &Schema {
        self.parse.schema()
    }

    fn samples(&self, _split: Split) -> Option<u64> {
        None
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn close(&self) {
        // Relaxed: the flag carries no data.
        self.closed.store(true, Ordering::Relaxed);
    }

    fn open(&self, _split: Split, start: u64) -> Result<Box<dyn Reader + '_>> {
        let lines = self.lines.lock().unpoisoned().take();
        let Some(lines) = lines.filter(|_| start == 0) else {
            return refuse(Path::new(NAME), "what arrives is read once, from its start");
        };
        Ok(Box::new(Arrivals { of: self, lines: Some(lines), rows: None, before: 0, trouble: None }))
    }

    fn unseen_values(&self) -> Vec<UnseenValues> {
        self.unseen.told(|column| self.left_out[column].load(Ordering::Relaxed))
    }
}

struct Arrivals<'a> {
    of: &'a Incoming,
    /// Until the first row is asked for: a header may be long in coming.
    lines: Option<Lines>,
    rows: Option<Box<dyn Next + 'a>>,
    /// Rows before the next one.
    before: u64,
    /// What is wrong with the next row: those before it are answered first.
    trouble: Option<Error>,
}

impl Reader for Arrivals<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        if let Some(lines) = self.lines.take() {
            self.rows = Some(self.of.parse.begin(lines)?);
        }
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        let rows = self.rows.as_mut().expect("begun above");
        let before: Vec<usize> = batch.bags.iter().map(|bag| bag.rows.len()).collect();
        let (mut read, mut stand_ins) = (0, 0);
        while read < limit && (read == 0 || !rows.waits()) {
            let next = rows.next().and_then(|next| {
                let (line, reason) = match next {
                    None => return Ok(false),
                    Some((_, Ok(()))) => return Ok(true),
                    Some((line, Err(reason))) => (line, reason),
                };
                let trouble = Error::BadRow { path: self.of.path.clone(), line, reason };
                let Some(malformed) = &self.of.malformed else { return Err(trouble) };
                malformed.rows().push_back((self.before + read as u64, trouble));
                rows.stand_in();
                stand_ins += 1;
                Ok(true)
            });
            match next {
                Ok(true) => rows.push(batch, &self.of.left_out),
                Ok(false) => break,
                Err(trouble) if read == 0 => return Err(trouble),
                Err(trouble) => {
                    self.trouble = Some(trouble);
                    break;
                }
            }
            read += 1;
        }
        rows.finish(batch);
        self.before += read as u64;
        self.of.unseen.count(&batch.bags, &before, stand_ins);
        Ok(read)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let mut none = Batch::new(self.of.schema());
        let mut skipped = 0;
        while skipped < count && self.read(&mut none, 1)? == 1 {
            skipped += 1;
            none.clear();
        }
        Ok(skipped)
    }
}

#[cfg(test)]
mod tests;
