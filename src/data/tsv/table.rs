//! The good rows of one file as a table, whose categories have their rows.

use std::path::Path;

use super::encoding::{Encoding, NO_ROW};
use super::layout::Layout;
use super::row::Row;
use super::scan::GoodRows;
use crate::base::config::OnBadRow;
use crate::base::{Error, Result, interrupt};
use crate::data::dense::log_count;
use crate::data::formats::{Rows, Table};
use crate::data::text::Scanned;
use crate::data::unseen::LostCounts;
use crate::data::{Batch, Description, Lost, OnUnseen, Samples};

/// A file after the pass.
pub(super) struct CriteoTable {
    text: Scanned,
    layout: Layout,
    on_bad_row: OnBadRow,
    encoding: Encoding,
    description: Description,
    /// Values of the rows before this one must all have a row; others that have none are left out.
    strict: u64,
    /// What readers have met that look-ups do not show, by column.
    lost: Vec<LostCounts>,
}

impl CriteoTable {
    /// Values of the rows before number `strict` are not left out.
    pub(super) fn new(
        text: Scanned,
        (layout, on_bad_row): (Layout, OnBadRow),
        (encoding, strict): (Encoding, u64),
    ) -> Self {
        let mut description = Description::criteo(layout.dense, &encoding.rows());
        // A value without a row is no look-up.
        description.categorical.iter_mut().for_each(|column| column.hots = 0);
        let lost = (0..layout.categorical).map(|_| LostCounts::default()).collect();
        Self { text, layout, on_bad_row, encoding, description, strict, lost }
    }

    /// Counts a value of this column that has no row.
    fn leave_out(&self, column: usize) {
        self.lost[column].add(Lost { values: 1, emptied: 1, ..Lost::default() });
    }

    fn rows_from(&self, start: u64) -> Result<CriteoRows<'_>> {
        let (at, place) = self.text.enter(start)?.unwrap_or_default();
        let rows = GoodRows::open_at(&self.text.path, &self.layout, self.on_bad_row, place)?;
        let mut rows = CriteoRows { table: self, rows, at };
        while rows.at < start {
            if rows.at.is_multiple_of(1 << 13) && interrupt::requested() {
                return Err(Error::Interrupted);
            }
            rows.step_over()?;
        }
        Ok(rows)
    }
}

impl Table for CriteoTable {
    fn description(&self) -> &Description {
        &self.description
    }

    fn rows(&self) -> u64 {
        self.text.rows
    }

    fn path(&self) -> &Path {
        &self.text.path
    }

    fn scanned(&self) -> Option<&Scanned> {
        Some(&self.text)
    }

    fn lost(&self) -> Vec<Lost> {
        let columns = self.lost.iter().enumerate();
        columns.map(|(at, lost)| lost.told(self.encoding.tells_blanks(at))).collect()
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        Ok(Box::new(self.rows_from(start)?))
    }
}

struct CriteoRows<'a> {
    table: &'a CriteoTable,
    rows: GoodRows<'a>,
    /// The number of the next row.
    at: u64,
}

impl CriteoRows<'_> {
    /// What a value of the next row does that has no row.
    const fn unseen(&self) -> OnUnseen {
        if self.at < self.table.strict { OnUnseen::Reject } else { OnUnseen::EmptyBag }
    }

    /// Of `limit` rows those that are left.
    fn left(&self, limit: u64) -> u64 {
        limit.min(self.table.text.rows - self.at)
    }

    /// Reads the next row; `raw` is told its categories as they stand in the file.
    #[inline]
    fn next_row(&mut self, mut raw: impl FnMut(&[u32])) -> Result<()> {
        let (encoding, unseen) = (&self.table.encoding, self.unseen());
        let found = self.rows.next_row_by(|categories| {
            raw(categories);
            encoding.encode(categories, unseen)
        });
        self.passed(found?)
    }

    /// Goes past the next row.
    fn step_over(&mut self) -> Result<()> {
        let found = self.rows.step_over(&self.table.encoding, self.unseen())?;
        self.passed(found)
    }

    /// Counts a row that was found, as it must be.
    fn passed(&mut self, found: bool) -> Result<()> {
        if found {
            self.at += 1;
            return Ok(());
        }
        let reason = format!(
            "the file has changed: it had {} usable rows when it was opened and ends after {} now",
            self.table.text.rows, self.at
        );
        Err(Error::bad_file(self.table.text.path.clone(), reason))
    }
}

impl Rows for CriteoRows<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        let (table, wanted) = (self.table, self.left(limit as u64));
        let mut are_blank = vec![false; table.layout.categorical];
        for _ in 0..wanted {
            self.next_row(|raw| are_blank.iter_mut().zip(raw).for_each(|(is, value)| *is = *value == 0))?;
            let row = &self.rows.row;
            row.push(samples, NO_ROW);
            let unseen = row.categories.iter().enumerate().filter(|(_, id)| **id == NO_ROW);
            unseen.for_each(|(column, _)| table.leave_out(column));
            for (lost, _) in table.lost.iter().zip(&are_blank).filter(|(_, is)| **is) {
                lost.add(Lost { blanks: 1, ..Lost::default() });
            }
        }
        Ok(wanted as usize)
    }

    /// Without a detour: integers of more than 32 bits count as they are.
    fn read_batch(&mut self, batch: &mut Batch, limit: usize, _: (&mut Samples, &Description)) -> Result<usize> {
        let wanted = self.left(limit as u64);
        for _ in 0..wanted {
            self.next_row(|_| ())?;
            append(&self.rows.row, batch, |column| self.table.leave_out(column));
        }
        Ok(wanted as usize)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = self.left(count);
        for _ in 0..count {
            self.step_over()?;
        }
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        self.rows.lines.progress().0
    }
}

/// Appends a row whose categories are encoded to a minibatch; `leave_out` is told the columns of those without a row.
pub(super) fn append(row: &Row, batch: &mut Batch, mut leave_out: impl FnMut(usize)) {
    batch.labels.push(row.label);
    batch.dense.extend(row.integers.iter().map(|&value| log_count(value)));
    for (column, (bag, &id)) in batch.bags.iter_mut().zip(&row.categories).enumerate() {
        if id == NO_ROW {
            leave_out(column);
        } else {
            bag.rows.push(id);
        }
        bag.close();
    }
}
