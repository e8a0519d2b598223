//! The pass over a file before training: how many rows there are, which values, which rows are malformed.
//!
//! Samples are numbered over good rows only, so this pass must judge rows exactly as the reader does later: both call
//! [`GoodRows::next_row`].

use std::path::Path;

use super::encoding::{Encoding, NO_ROW};
use super::fault::Fault;
use super::layout::Layout;
use super::row::Row;
use crate::base::config::OnBadRow;
use crate::base::input::Found;
use crate::base::{Error, Result, interrupt};
use crate::data::text::{Form, Line, Lines, Marks, Place, Scanned, Shown, Skipped, Wanted};
use crate::data::vocabulary::FirstSeen;
use crate::data::{OnUnseen, Progress, Vocabulary};

/// Lines between two looks at the clock, the progress bar and the wish to stop.
const LINES_A_REPORT: u64 = 1 << 13;
/// Good rows between two marks of a plain file: a reader starts less than this many rows before its sample.
const ROWS_A_MARK: u64 = 1 << 14;

/// What a pass does with each row.
pub(super) enum Task<'a> {
    /// Counts lines; malformed ones end the run when they are read.
    Count,
    /// Finds malformed rows, values that the encoding refuses among them.
    Check(&'a Encoding, OnUnseen),
    /// Gives values their ids; `first_seen` is told where they appear.
    Learn { vocabulary: &'a mut Vocabulary, cap: Option<u32>, first_seen: Option<&'a mut FirstSeen> },
}

/// Reads a whole file once. `done` and `total` are the bytes for `progress` before this file and in all files.
pub(super) fn scan(
    path: &Path,
    (layout, on_bad_row): (&Layout, OnBadRow),
    mut task: Task<'_>,
    (done, total): (u64, u64),
    progress: &mut Progress<'_>,
) -> Result<Scanned> {
    let found = Found::at(path)?;
    let mut rows = GoodRows::open(path, layout, on_bad_row)?;
    let (mut number, mut first_unseen, mut marks) = (0, None, Marks::default());
    let mut last_report = 0;
    loop {
        let place = rows.lines.place();
        if place.lines >= last_report + LINES_A_REPORT {
            last_report = place.lines;
            progress(done + rows.lines.progress().0, total);
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
        }
        let good = match &mut task {
            Task::Count => rows.count_line()?,
            Task::Check(encoding, unseen) => {
                let good = rows.next_row(Some((encoding, *unseen)))?;
                if good && first_unseen.is_none() && rows.row.categories.contains(&NO_ROW) {
                    first_unseen = Some(number);
                }
                good
            }
            Task::Learn { vocabulary, cap, first_seen } => {
                let good = rows.next_raw()?;
                if good {
                    learn(&rows.row, vocabulary, *cap, first_seen.as_deref_mut(), number);
                }
                good
            }
        };
        if !good {
            break;
        }
        // Malformed rows between `place` and this row are skipped again by whoever starts there.
        if !rows.lines.compressed() {
            marks.add(number, place, ROWS_A_MARK);
        }
        number += 1;
    }
    progress(done + rows.lines.progress().0, total);
    if number == 0 {
        return Err(empty(path, layout, rows.skipped.rows()));
    }
    Ok(Scanned { path: path.to_owned(), found, rows: number, skipped: rows.skipped, first_unseen, marks })
}

fn learn(
    row: &Row,
    vocabulary: &mut Vocabulary,
    cap: Option<u32>,
    mut first_seen: Option<&mut FirstSeen>,
    number: u64,
) {
    for (column, &value) in row.categories.iter().enumerate() {
        let id = vocabulary.insert(column, cap.map_or(value, |cap| value % cap));
        if let Some(seen) = &mut first_seen {
            seen.note(column, id as usize, number);
        }
    }
}

fn empty(path: &Path, layout: &Layout, skipped: u64) -> Error {
    let columns = layout.columns();
    let reason = if skipped == 0 {
        format!("the file is empty: expected rows of {columns} tab-separated columns")
    } else {
        format!(
            "the file has no usable row: all {skipped} are malformed (expected {columns} tab-separated columns; \
             without --on-bad-row skip the first is described)"
        )
    };
    Error::bad_file(path, reason)
}

/// The good rows of one file, in order.
pub struct GoodRows<'a> {
    path: &'a Path,
    layout: &'a Layout,
    pub(super) lines: Lines,
    /// The row that [`GoodRows::next_row`] found.
    pub(super) row: Row,
    /// Malformed rows so far.
    skipped: Skipped,
}

/// Refuses a file whose lines are written otherwise than rows of text, as the first ones show.
///
/// # Errors
/// [`Error::BadFile`] that says how, and when it cannot be read.
pub(in crate::data) fn refuse_other_lines(path: &Path, layout: &Layout) -> Result<()> {
    let mut lines = Lines::open(path, Wanted::All)?.limited(layout.max_line);
    let mut form = Form::default();
    while form.is_open() {
        let row = lines.next_row()?;
        let is_end = row.is_none();
        form.take(path, row.map(|(_, line)| line.map_or(Shown::Nothing, |line| layout.shown(path, line))))?;
        if is_end {
            break;
        }
    }
    Ok(())
}

impl<'a> GoodRows<'a> {
    /// Those of a whole file.
    ///
    /// # Errors
    /// When it cannot be opened, and when its lines are written otherwise than rows of text.
    pub fn open(path: &'a Path, layout: &'a Layout, on_bad_row: OnBadRow) -> Result<Self> {
        refuse_other_lines(path, layout)?;
        Self::open_at(path, layout, on_bad_row, Place::default())
    }

    /// Finds the next one, its categories as they stand in the file; false at the end.
    ///
    /// # Errors
    /// When the file cannot be read, and of a malformed row, unless such rows are left out.
    pub fn next_raw(&mut self) -> Result<bool> {
        self.next_row(None)
    }

    /// The row that was found last.
    #[must_use]
    pub const fn row(&self) -> &Row {
        &self.row
    }

    /// How many malformed rows were left out so far, and the first of them in words.
    #[must_use]
    pub fn skipped(&self) -> (u64, Option<&str>) {
        (self.skipped.rows(), self.skipped.first())
    }

    /// Whether no line follows; one that does is stepped over.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn is_at_end(&mut self) -> Result<bool> {
        Ok(self.lines.next_line()?.is_none())
    }

    pub(super) fn open_at(path: &'a Path, layout: &'a Layout, on_bad_row: OnBadRow, place: Place) -> Result<Self> {
        let lines = Lines::open_at(path, place, Wanted::All)?.limited(layout.max_line);
        Ok(Self { path, layout, lines, row: Row::new(layout), skipped: Skipped::new(on_bad_row) })
    }

    /// Goes past the next good row; false at the end. Where malformed rows end the run, a line is a row, and rows that
    /// nobody wants need not be parsed.
    pub(super) fn step_over(&mut self, encoding: &Encoding, unseen: OnUnseen) -> Result<bool> {
        match self.skipped.is_never() {
            true => self.count_line(),
            false => self.next_row(Some((encoding, unseen))),
        }
    }

    /// Goes past the next line, where each must be a good row; false at the end. One that is too long is judged at
    /// once: its end may be far.
    fn count_line(&mut self) -> Result<bool> {
        match self.lines.next_row()? {
            None => Ok(false),
            Some((_, Ok(_))) => Ok(true),
            Some((line, Err(reason))) => Err(Error::BadRow { path: self.path.to_owned(), line, reason }),
        }
    }

    /// Parses the next good row into `row`, categories encoded if an encoding is given, with what a value without a row
    /// does; false at the end.
    pub(super) fn next_row(&mut self, encoding: Option<(&Encoding, OnUnseen)>) -> Result<bool> {
        self.next_row_by(|categories| match encoding {
            Some((encoding, unseen)) => encoding.encode(categories, unseen),
            None => Ok(()),
        })
    }

    /// The same, with whatever `encode` makes of categories.
    #[inline]
    pub(super) fn next_row_by(
        &mut self,
        mut encode: impl FnMut(&mut [u32]) -> std::result::Result<(), Fault>,
    ) -> Result<bool> {
        loop {
            let fault = match self.lines.next_line()? {
                None => return Ok(false),
                Some(Line::TooLong) => Err(Fault::TooLong { limit: self.layout.max_line }),
                Some(Line::Text(line)) => {
                    self.row.parse(line, self.layout).and_then(|()| encode(&mut self.row.categories))
                }
            };
            let Err(fault) = fault else { return Ok(true) };
            self.skipped.add(self.path, self.lines.place().lines, || fault.reason())?;
        }
    }
}
