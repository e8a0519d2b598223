//! The one pass over the text: pieces are parsed by all threads and become [parts](super::part), in any order.
//!
//! Plain files are read by whoever parses; compressed ones are decoded by up to half of the threads, one file each,
//! which hand pieces over. Pieces are handed out in order, and after a fault none behind it is begun, so the fault that
//! is reported is the first one of a plain file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam::channel::{Receiver, Sender, bounded};

use super::part::{Contents, Maker, finished};
use super::pieces::{Input, Stream};
use super::progress::{Meter, Stage};
use super::recipe::RowParser;
use crate::base::{Error, Result, Unpoisoned, interrupt};
use crate::data::text::{Columns, Wanted, without_mark};

/// A finished part and where it comes from.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    /// Which input, and which piece of it.
    pub(super) input: usize,
    pub(super) piece: u64,
    pub(super) contents: Contents,
}

/// Text on its way to a parser.
enum Piece {
    /// Of a plain file, not yet read.
    Range { input: usize, number: u64 },
    /// Of a compressed file, with the lines before it and the bytes of the file that it took.
    Text { input: usize, number: u64, lines: u64, bytes: u64, text: Vec<u8> },
}

/// The pass over all inputs.
pub(super) struct Gather<'a> {
    pub(super) inputs: &'a [Input],
    /// Where parts go.
    pub(super) folder: &'a Path,
    /// Bytes of text a piece.
    pub(super) size: u64,
    pub(super) threads: usize,
    pub(super) meter: &'a Meter<'a>,
}

/// What a thread makes parts by, with memory that it uses again.
type Parse<'a> = Box<dyn FnMut(&Piece) -> Result<Source> + 'a>;

/// The first fault, by input and piece.
#[derive(Default)]
struct Failure {
    first: Mutex<Option<((usize, u64), Error)>>,
    /// Not 0 once there is one; a cheap look before each piece.
    seen: AtomicU64,
}

impl Failure {
    fn report(&self, at: (usize, u64), error: Error) {
        let mut first = self.first.lock().unpoisoned();
        if first.as_ref().is_none_or(|(known, _)| at < *known) {
            *first = Some((at, error));
        }
        // Relaxed: only a hint to stop.
        self.seen.store(1, Ordering::Relaxed);
    }

    fn stops(&self, at: (usize, u64)) -> bool {
        self.seen.load(Ordering::Relaxed) > 0
            && self.first.lock().unpoisoned().as_ref().is_some_and(|(known, _)| at > *known)
    }
}

/// What the threads of a pass share.
struct Work {
    /// The compressed inputs, and how many of them are begun.
    streams: Vec<usize>,
    begun: AtomicUsize,
    /// The pieces of all plain inputs, the first one last.
    ranges: Mutex<Vec<(usize, u64)>>,
    /// Pieces that were decoded.
    decoded: Receiver<Piece>,
    /// Texts go back to be filled again: memory that is handed around is memory that is already there.
    used: Sender<Vec<u8>>,
    free: Receiver<Vec<u8>>,
    parts: Mutex<Vec<Source>>,
    failure: Failure,
}

impl Work {
    /// The next compressed input.
    fn stream(&self) -> Option<usize> {
        // Relaxed: who takes which file does not matter.
        self.streams.get(self.begun.fetch_add(1, Ordering::Relaxed)).copied()
    }

    /// The next piece; nothing once there will be none.
    fn piece(&self) -> Option<Piece> {
        self.decoded.try_recv().ok().or_else(|| {
            let next = self.ranges.lock().unpoisoned().pop();
            next.map(|(input, number)| Piece::Range { input, number }).or_else(|| self.decoded.recv().ok())
        })
    }
}

/// Where a part of an input goes.
pub(super) fn part_path(folder: &Path, input: usize, piece: u64) -> PathBuf {
    folder.join(format!("{input:05}-{piece:08}.part"))
}

impl Gather<'_> {
    /// Makes every part that is not there yet; returns all of them in the order of the text.
    pub(super) fn run<R: RowParser>(&self, parser: &R) -> Result<Vec<Source>> {
        let parse = &|| {
            let (mut maker, mut columns, mut own) = (Maker::new(), Columns::default(), Vec::new());
            Box::new(move |piece: &Piece| self.make(parser, piece, &mut maker, &mut columns, &mut own)) as Parse<'_>
        };
        self.by(parse, &|name| parser.reads(name))
    }

    /// The same by what parses pieces, which a thread begins with, and by the names of columns that it reads: compiled
    /// once for all kinds of rows.
    fn by<'a>(
        &self,
        parser: &(dyn Fn() -> Parse<'a> + Sync),
        reads: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<Vec<Source>> {
        let (hand, decoded) = bounded::<Piece>(self.threads);
        let (used, free) = bounded::<Vec<u8>>(2 * self.threads + 2);
        let work = Work {
            streams: (0..self.inputs.len()).filter(|&at| self.inputs[at].compressed).collect(),
            begun: AtomicUsize::new(0),
            ranges: Mutex::new(self.ranges()),
            decoded,
            used,
            free,
            parts: Mutex::default(),
            failure: Failure::default(),
        };
        std::thread::scope(|scope| {
            // Where the system has no more threads to give, fewer do the work.
            for number in 0..work.streams.len().min(self.threads.div_ceil(2)) {
                let (hand, work) = (hand.clone(), &work);
                let decoder = std::thread::Builder::new().spawn_scoped(scope, move || {
                    while !interrupt::requested()
                        && let Some(input) = work.stream()
                    {
                        if let Err((number, error)) = self.decode(input, reads, &hand, work) {
                            work.failure.report((input, number), error);
                        }
                    }
                });
                if let Err(source) = decoder {
                    if number == 0 {
                        work.failure.report((work.streams[0], 0), Error::Threads { wanted: self.threads, source });
                    }
                    break;
                }
            }
            // Who waits for pieces is told of the end by the last decoder alone.
            drop(hand);
            let parse = || parse_all(parser(), &work);
            let mut parsers = 0;
            for _ in 0..self.threads {
                if std::thread::Builder::new().spawn_scoped(scope, parse).is_err() {
                    break;
                }
                parsers += 1;
            }
            if parsers == 0 {
                parse();
            }
        });
        if let Some((_, error)) = work.failure.first.into_inner().unpoisoned() {
            return Err(error);
        }
        // Decoders have stopped, and a parser says so only of a piece that it takes.
        if interrupt::requested() {
            return Err(Error::Interrupted);
        }
        let mut parts = work.parts.into_inner().unpoisoned();
        parts.sort_unstable_by_key(|part: &Source| (part.input, part.piece));
        Ok(parts)
    }

    /// The pieces of all plain files, the first one last.
    fn ranges(&self) -> Vec<(usize, u64)> {
        let plain = self.inputs.iter().enumerate().filter(|(_, input)| !input.compressed);
        plain.flat_map(|(at, input)| (0..input.pieces(self.size)).map(move |n| (at, n))).rev().collect()
    }

    /// Hands over the pieces of a compressed file.
    fn decode(
        &self,
        input: usize,
        reads: &dyn Fn(&str) -> bool,
        hand: &Sender<Piece>,
        work: &Work,
    ) -> std::result::Result<(), (u64, Error)> {
        let wanted = Wanted::Of(reads);
        let mut stream = Stream::open(&self.inputs[input], self.size, wanted).map_err(|error| (0, error))?;
        let (mut next, mut before) = (0, 0);
        loop {
            let mut text = work.free.try_recv().unwrap_or_default();
            match stream.next_piece(&mut text).map_err(|error| (next, error))? {
                Some((number, lines)) => {
                    next = number + 1;
                    let bytes = stream.decoded() - before;
                    before += bytes;
                    let piece = Piece::Text { input, number, lines, bytes, text };
                    // Parsers leave only when all is taken or somebody stopped them.
                    if work.failure.stops((input, number)) || interrupt::requested() || hand.send(piece).is_err() {
                        return Ok(());
                    }
                }
                None => return Ok(()),
            }
        }
    }

    fn make<R: RowParser>(
        &self,
        parser: &R,
        piece: &Piece,
        maker: &mut Maker<R::Key>,
        columns: &mut Columns<R::Key>,
        own: &mut Vec<u8>,
    ) -> Result<Source> {
        let (Piece::Range { input, number } | Piece::Text { input, number, .. }) = *piece;
        let path = part_path(self.folder, input, number);
        let widths = parser.widths();
        let file = &self.inputs[input];
        let bytes = match piece {
            Piece::Text { bytes, .. } => *bytes,
            Piece::Range { .. } => {
                let lines = file.range(number, self.size);
                lines.end - lines.start
            }
        };
        if let Some(contents) = finished::<R::Key>(&path, widths)? {
            self.meter.add(Stage::Text, bytes);
            return Ok(Source { path, input, piece: number, contents });
        }
        let text = match piece {
            Piece::Text { text, .. } => text,
            Piece::Range { .. } => {
                let opened = File::open(&file.path).map_err(Error::io(&file.path, "open"))?;
                file.read_piece(&opened, number, self.size, own)?;
                own
            }
        };
        let text = if number == 0 { without_mark(text) } else { &text[..] };
        let tally = match parser.parse(text, (input, number == 0), columns) {
            Ok(tally) => tally,
            Err(bad) => {
                let before = match piece {
                    Piece::Text { lines, .. } => *lines,
                    Piece::Range { .. } => file.lines_before(number, self.size)?,
                };
                let remedy = "mend the line, or leave such rows out with --on-bad-row skip; what is finished is kept, so run \
                              the same command again (with --force, which begins anew, if a schema has changed)";
                let error = Error::BadRow { path: file.path.clone(), line: before + bad.line + 1, reason: bad.reason };
                return Err(error.with_remedy(remedy));
            }
        };
        let contents = maker.write(&path, columns, widths, tally)?;
        self.meter.add(Stage::Text, bytes);
        Ok(Source { path, input, piece: number, contents })
    }
}

/// Makes parts of pieces until there are none.
fn parse_all(mut parse: Parse<'_>, work: &Work) {
    while let Some(piece) = work.piece() {
        let (Piece::Range { input, number } | Piece::Text { input, number, .. }) = piece;
        if work.failure.stops((input, number)) {
            // Decoders wait until what they hand over is taken.
            continue;
        }
        if interrupt::requested() {
            work.failure.report((0, 0), Error::Interrupted);
            continue;
        }
        match parse(&piece) {
            Ok(part) => work.parts.lock().unpoisoned().push(part),
            Err(error) => work.failure.report((input, number), error),
        }
        if let Piece::Text { text, .. } = piece {
            // Full: enough of them are on their way.
            let _ = work.used.try_send(text);
        }
    }
}
