//! The pass over a text file before it is used: how many rows there are, which values, which rows are malformed.
//!
//! Samples are numbered over good rows only, so this pass judges rows exactly as the reader does later: both call
//! [`GoodRows::next`].

use std::ops::RangeInclusive;
use std::path::Path;

use super::bad;
use super::encoding::Encoding;
use super::label::{Rule, finite};
use super::records::{Record, Records};
use super::row::{Projection, Row, place};
use super::schema::TextSchema;
use super::sniff::check_header;
use crate::base::config::OnBadRow;
use crate::base::input::Found;
use crate::base::{Error, Result, interrupt};
use crate::data::text::{Form, Marks, Place, Scanned, Shown, Skipped, Wanted};
use crate::data::{Labels, OnUnseen, Progress};

/// Rows between two places at which the file can be entered.
const ROWS_A_MARK: u64 = 1 << 12;

/// Which rows of a column that is hashed some value has.
pub(super) struct InUse {
    /// Rows of its table.
    pub(super) rows: u64,
    /// A bit for each.
    bits: Vec<u64>,
}

impl InUse {
    /// Of no row yet; nothing where they are so few that they tell nothing, or so many that counting them would cost.
    pub(super) fn new(rows: u64) -> Option<Self> {
        const COUNTED: RangeInclusive<u64> = 32..=1 << 26;
        COUNTED.contains(&rows).then(|| Self { rows, bits: vec![0; rows.div_ceil(64) as usize] })
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.bits.iter().map(|bits| u64::from(bits.count_ones())).sum()
    }

    fn note(&mut self, row: u32) {
        let row = u64::from(row) % self.rows;
        self.bits[(row / 64) as usize] |= 1 << (row % 64);
    }
}

/// How far a pass over several files has come.
pub(super) struct Pass<'a> {
    /// Bytes of the files before, and of all.
    pub(super) done: u64,
    pub(super) total: u64,
    /// Good rows of the files before.
    pub(super) rows: u64,
    /// Good rows that are read of each file, at most.
    pub(super) most: u64,
    pub(super) progress: &'a mut Progress<'a>,
}

impl Pass<'_> {
    /// Tells of so many bytes of the file that is read.
    fn tell(&mut self, bytes: u64) {
        (self.progress)(self.done + bytes, self.total);
    }
}

/// What makes a row a good one.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowPolicy {
    pub(super) labels: Labels,
    /// As [`super::Choices::kept`].
    pub(super) kept: bool,
    pub(super) on_bad_row: OnBadRow,
    /// The longest row, in bytes.
    pub(super) max_line: usize,
    /// What a value without a row does.
    pub(super) unseen: OnUnseen,
}

/// A text file after the pass.
pub(super) struct Part {
    pub(super) text: Scanned,
    /// By what rows are judged.
    pub(super) policy: RowPolicy,
    pub(super) columns: Projection,
    /// The first good row of each label: 0, then 1.
    pub(super) labels: [Option<u64>; 2],
    /// The most look-ups of a row, one entry a categorical column.
    pub(super) longest: Vec<u32>,
    /// Whether a dense column holds nothing but i32s.
    pub(super) whole: Vec<bool>,
}

/// The good rows of a file, in order.
pub(super) struct GoodRows<'a> {
    path: &'a Path,
    columns: &'a Projection,
    unseen: OnUnseen,
    records: Records,
    /// The row that [`GoodRows::next`] found.
    pub(super) row: Row<u32>,
    skipped: Skipped,
}

/// The names of a file's columns: its first record, or what the schema lists where it has no header; of that the first
/// record tells what is missing ([`row_columns`]).
pub(in crate::data) fn header(
    path: &Path,
    schema: &TextSchema,
    labels: Labels,
    max_line: usize,
) -> Result<Vec<Vec<u8>>> {
    let reads = |name: &str| schema.reads(name, labels);
    let mut records = Records::open_at(path, schema.delimiter, max_line, Place::default(), Wanted::Of(&reads))?;
    if schema.columns.is_empty() {
        return header_of(path, &mut records);
    }
    let (first, mut all) = (records.next()?, row_columns(path, schema, labels)?);
    let mut found = None;
    if let Some((_, Ok(()))) = first {
        refuse_names(path, &records.record, &all)?;
        found = all.iter().position(|names| names.len() == records.record.len());
        refuse_other_lines(path, &mut records, &all)?;
    }
    Ok(all.swap_remove(found.unwrap_or(0)))
}

/// The columns that a row may have of those that a schema lists: all, first; where there need be no label, all but that
/// and the weight, if there is one; of these two one alone may be missing where they stand beside each other, so that
/// it does not matter which.
pub(super) fn row_columns(path: &Path, schema: &TextSchema, labels: Labels) -> Result<Vec<Vec<Vec<u8>>>> {
    let names: Vec<Vec<u8>> = schema.columns.iter().map(|name| name.clone().into_bytes()).collect();
    let (label, _) = Rule::of(&schema.label, names.iter().map(Vec::as_slice)).map_err(|reason| bad(path, reason))?;
    // What is wrong with a name is told by whoever reads all columns.
    let place = |name: &str| place(&names, name, false).ok();
    let label = place(&label);
    let without = |absent: &[Option<usize>]| -> Vec<Vec<u8>> {
        let others = names.iter().enumerate().filter(|(at, _)| !absent.contains(&Some(*at)));
        others.map(|(_, name)| name.clone()).collect()
    };
    let mut all = vec![names.clone()];
    match schema.weight.as_deref().map(place) {
        _ if labels == Labels::Required => (),
        None => all.push(without(&[label])),
        Some(weight) => {
            let beside = label.zip(weight).is_some_and(|(a, b)| a.abs_diff(b) == 1);
            all.extend(beside.then(|| without(&[label])));
            all.push(without(&[label, weight]));
        }
    }
    Ok(all)
}

/// Refuses a first record that is a header although the schema lists the names: it would be taken for a row.
pub(super) fn refuse_names(path: &Path, record: &Record, all: &[Vec<Vec<u8>>]) -> Result<()> {
    let is_header = |names: &Vec<Vec<u8>>| {
        let mut both = names.iter().zip(record.iter());
        names.len() == record.len() && both.all(|(name, field)| name.trim_ascii() == field.trim_ascii())
    };
    // Columns that are called 0, 1, 2 may hold these numbers.
    let is_named = |names: &&Vec<Vec<u8>>| names.iter().any(|name| finite(name).is_none());
    if all.iter().filter(is_named).any(is_header) {
        let reason = "its first line is the names of its columns, but the schema lists them under `columns`, as files \
                      without such a line need: remove the line, or, of a schema that no model was trained by yet, `columns`";
        return Err(bad(path, reason.to_owned()));
    }
    Ok(())
}

/// The names of columns that the first of these records has.
pub(super) fn header_of(path: &Path, records: &mut Records) -> Result<Vec<Vec<u8>>> {
    match records.next()? {
        Some((_, Ok(()))) => {
            let names: Vec<_> = records.record.iter().map(<[u8]>::to_vec).collect();
            refuse_other_lines(path, records, &[])?;
            Ok(names)
        }
        Some((line, Err(reason))) => {
            let reason = reason.of("its header: ", ": mend the line");
            Err(Error::BadRow { path: path.to_owned(), line, reason })
        }
        None => Err(bad(path, "the file is empty: a header line with the names of its columns is expected")),
    }
}

/// What the row shows that was read last, of one that has one of these columns' numbers of fields.
pub(super) fn shown(path: &Path, records: &Records, all: &[Vec<Vec<u8>>]) -> Shown {
    let fits = all.iter().any(|names| names.len() == records.record.len());
    Shown::by(path, records.line(), fits, records.record.iter())
}

/// Refuses lines that are written otherwise than rows of text, as their first one shows, which was read: a header or,
/// where there is none, a row of `all` these columns.
fn refuse_other_lines(path: &Path, records: &mut Records, all: &[Vec<Vec<u8>>]) -> Result<()> {
    let mut form = Form::default();
    form.take(path, Some(shown(path, records, all)))?;
    if !form.is_open() {
        return Ok(());
    }
    // Before rows there is one header.
    let next = !all.is_empty() && matches!(records.next()?, Some((_, Ok(()))));
    form.take(path, next.then(|| shown(path, records, all))).map(|_| ())
}

/// Whether a file has no row: nothing behind its header, if it is to have one, or nothing at all.
pub(super) fn is_empty(path: &Path, schema: &TextSchema, max_line: usize) -> Result<bool> {
    let schema = schema.at(path);
    let mut records = Records::open_at(path, schema.delimiter, max_line, Place::default(), Wanted::Names)?;
    let is_header = schema.columns.is_empty();
    Ok(is_header && records.next()?.is_none() || records.next()?.is_none())
}

impl<'a> GoodRows<'a> {
    fn open(path: &'a Path, columns: &'a Projection, policy: RowPolicy, place: Option<Place>) -> Result<Self> {
        let delimiter = columns.schema.delimiter;
        let reads = |name: &str| columns.schema.reads(name, columns.labels);
        let (place_at, wanted) = (place.unwrap_or_default(), Wanted::Of(&reads));
        let mut records = Records::open_at(path, delimiter, policy.max_line, place_at, wanted)?;
        if place.is_none() && columns.schema.columns.is_empty() {
            records.next()?;
        }
        let (row, skipped) = (Row::new(columns), Skipped::new(policy.on_bad_row));
        Ok(Self { path, columns, unseen: policy.unseen, records, row, skipped })
    }

    /// Reads the next good row into `row`; false at the end.
    pub(super) fn next(&mut self, encoding: &Encoding) -> Result<bool> {
        loop {
            let Some((line, read)) = self.records.next()? else { return Ok(false) };
            let row_of = |at, spec: &_, value: &_| encoding.row(at, spec, value, self.unseen);
            let Err(reason) = read.and_then(|()| self.row.read(&self.records.record, self.columns, row_of)) else {
                return Ok(true);
            };
            self.skipped.add(self.path, line, || reason)?;
            self.records.keep_first_line();
        }
    }

    /// Goes past the next good row; false at the end. Where malformed rows end the run, a record is a row, and rows
    /// that nobody wants need not be parsed.
    pub(super) fn step_over(&mut self, encoding: &Encoding) -> Result<bool> {
        match self.skipped.is_never() {
            true => Ok(self.records.next()?.is_some()),
            false => self.next(encoding),
        }
    }

    /// Bytes of the file that were read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.records.progress().0
    }

    fn learn(&self, encoding: &mut Encoding, number: u64) -> Result<()> {
        let numbered =
            self.columns.schema.categorical.iter().enumerate().filter(|(_, spec)| spec.fixed_rows().is_none());
        for (column, spec) in numbered {
            // The row was found good.
            let all =
                self.columns.each_value(column, &self.records.record, |value, _| encoding.learn(column, value, number));
            all.map_err(|reason| bad(self.path, format!("column {}: {reason}", spec.column)))?;
        }
        Ok(())
    }
}

impl Part {
    /// Reads the next file of a pass once; `used` is of those categorical columns of which somebody is told.
    pub(super) fn scan(
        path: &Path,
        schema: &TextSchema,
        policy: RowPolicy,
        (encoding, used): (&mut Encoding, &mut [Option<InUse>]),
        pass: &mut Pass<'_>,
    ) -> Result<Self> {
        let found = Found::at(path)?;
        let schema = &*schema.at(path);
        let columns = columns_of(path, schema, policy)?;
        let (mut rows, mut labels, mut marks) = (0, [None; 2], Marks::default());
        let mut first_unseen = None;
        let mut longest = vec![1; schema.categorical.len()];
        let mut whole: Vec<bool> = schema.dense.iter().map(|column| !column.float).collect();
        let mut good = GoodRows::open(path, &columns, policy, None)?;
        loop {
            if (rows + good.skipped.rows()).is_multiple_of(ROWS_A_MARK) {
                pass.tell(good.bytes_read());
                if interrupt::requested() {
                    return Err(Error::Interrupted);
                }
            }
            // Malformed rows between this place and the next good row are skipped again by whoever starts there.
            let place = good.records.place();
            if rows == pass.most || !good.next(encoding)? {
                break;
            }
            if let Some(place) = place {
                marks.add(rows, place, ROWS_A_MARK);
            }
            if encoding.learns() {
                good.learn(encoding, pass.rows + rows)?;
            }
            if first_unseen.is_none() && good.row.has_unseen() {
                first_unseen = Some(pass.rows + rows);
            }
            let bags = good.row.lookups.iter();
            longest.iter_mut().zip(bags).for_each(|(most, bag)| *most = (*most).max(bag.rows.len() as u32));
            for (used, bag) in used.iter_mut().zip(&good.row.lookups) {
                let Some(used) = used else { continue };
                bag.rows.iter().for_each(|&row| used.note(row));
            }
            whole.iter_mut().zip(&good.row.whole).for_each(|(all, one)| *all &= *one);
            for (first, label) in labels.iter_mut().zip([0.0, 1.0]) {
                *first = first.or((good.row.label == label).then_some(rows));
            }
            rows += 1;
        }
        pass.tell(good.bytes_read());
        let skipped = good.skipped;
        if rows == 0 {
            return Err(bad(path, no_rows(schema, skipped.rows())));
        }
        let text = Scanned { path: path.to_owned(), found, rows, skipped, first_unseen, marks };
        Ok(Self { text, policy, columns, labels, longest, whole })
    }

    /// A reader that stands before good row `start`.
    pub(super) fn open(&self, start: u64, encoding: &Encoding) -> Result<GoodRows<'_>> {
        let mark = self.text.enter(start)?;
        let mut good = GoodRows::open(&self.text.path, &self.columns, self.policy, mark.map(|(_, place)| place))?;
        for _ in mark.map_or(0, |(row, _)| row)..start {
            if !good.step_over(encoding)? {
                break;
            }
        }
        Ok(good)
    }
}

/// Where a file has the columns of its schema, once its header is checked.
fn columns_of(path: &Path, schema: &TextSchema, policy: RowPolicy) -> Result<Projection> {
    let names = header(path, schema, policy.labels, policy.max_line)?;
    check_header(path, schema, &names, policy.kept)?;
    Ok(Projection::find(path, schema, &names, policy.labels)?.kept(policy.kept))
}

fn no_rows(schema: &TextSchema, skipped: u64) -> String {
    match skipped {
        0 if schema.columns.is_empty() => "has no rows behind its header: name a file with data".to_owned(),
        0 => "has no rows: name a file with data".to_owned(),
        _ => format!(
            "the file has no usable row: all {skipped} are malformed; without --on-bad-row skip the first is described"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_may_lack_what_nobody_needs_whatever_blanks_its_name_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.toml");
        let user = "[[categorical]]\ncolumn = 'user'\n";
        for names in ["'user', 'w', 'label'", "'user', ' w', ' label'"] {
            std::fs::write(&path, format!("label = 'label'\nweight = 'w'\ncolumns = [{names}]\n{user}")).unwrap();
            let schema = TextSchema::read(&path).unwrap();
            let found = row_columns(&path, &schema, Labels::Optional).unwrap();
            assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2, 1], "{names}");
            assert_eq!(found[2], [b"user".to_vec()]);
        }
    }
}
