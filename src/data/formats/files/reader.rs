//! Samples of a split, file after file, as minibatches.

use std::collections::VecDeque;

use super::{Files, Share, bad, limit_rows};
use crate::base::{Error, Result};
use crate::data::formats::{Rows, Table};
use crate::data::{Batch, Description, Labels, Reader, Samples};

/// A position in the samples of a split.
pub(super) struct FilesReader<'a> {
    files: &'a Files,
    description: &'a Description,
    /// What is still to be read, that of `open` first.
    left: VecDeque<Share>,
    open: Option<Box<dyn Rows + 'a>>,
    scratch: Samples,
    /// Where each bag's new rows begin.
    starts: Vec<usize>,
    /// Bytes that were read of shares that are done.
    closed_bytes: u64,
}

impl<'a> FilesReader<'a> {
    /// Before the first row of what is `left`, whose columns, with what was learned of them, are these.
    pub(super) fn new(files: &'a Files, description: &'a Description, left: Vec<Share>) -> Self {
        Self {
            files,
            description,
            left: left.into(),
            open: None,
            scratch: Samples::new(description),
            starts: Vec::new(),
            closed_bytes: 0,
        }
    }
}

impl Reader for FilesReader<'_> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        let files = self.files;
        self.starts.clear();
        self.starts.extend(batch.bags.iter().map(|bag| bag.rows.len()));
        let mut read = 0;
        while read < limit
            && let Some(share) = self.left.front_mut()
        {
            if self.open.is_none() {
                self.open = Some(files.members[share.member].table.open(share.first)?);
            }
            let rows = self.open.as_mut().expect("opened above");
            let wanted = usize::try_from(share.rows).unwrap_or(usize::MAX).min(limit - read);
            let (before, table) = (batch.labels.len(), &*files.members[share.member].table);
            let found = rows.read_batch(batch, wanted, (&mut self.scratch, self.description))?;
            if found < wanted {
                return Err(shrunk(table));
            }
            if files.labels == Labels::Required && batch.labels[before..].iter().any(|label| label.is_nan()) {
                let reason =
                    "has samples without a label, which `octorec predict` alone reads: make it of text that has one";
                return Err(bad(table.path(), reason));
            }
            share.first += found as u64;
            share.rows -= found as u64;
            if share.rows == 0 {
                self.close();
            }
            read += found;
        }
        if files.cap > 0 {
            let columns = self.description.categorical.iter().enumerate();
            for ((bag, &start), (table, column)) in batch.bags.iter_mut().zip(&self.starts).zip(columns) {
                // Taken modulo the limit, a number that no row of the data has would be one like all others.
                bag.check_rows(start, table, &column.name, column.rows)?;
                limit_rows(&mut bag.rows[start..], files.cap);
            }
        }
        files.unseen.count(&batch.bags, &self.starts, 0);
        Ok(read)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let mut skipped = 0;
        while skipped < count
            && let Some(share) = self.left.front_mut()
        {
            let wanted = share.rows.min(count - skipped);
            // A file that is left whole need not be opened.
            if let Some(rows) = &mut self.open
                && wanted < share.rows
                && rows.skip(wanted)? < wanted
            {
                return Err(shrunk(&*self.files.members[share.member].table));
            }
            share.first += wanted;
            share.rows -= wanted;
            if share.rows == 0 {
                self.close();
            }
            skipped += wanted;
        }
        Ok(skipped)
    }

    fn bytes_read(&self) -> u64 {
        self.closed_bytes + self.open.as_ref().map_or(0, |rows| rows.bytes_read())
    }
}

impl FilesReader<'_> {
    /// Ends the first of the shares.
    fn close(&mut self) {
        self.left.pop_front();
        self.closed_bytes += self.open.take().map_or(0, |rows| rows.bytes_read());
    }
}

fn shrunk(table: &dyn Table) -> Error {
    bad(table.path(), "ends before the rows that it had when it was opened")
}
