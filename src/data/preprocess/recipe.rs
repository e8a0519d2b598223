//! What a log looks like: Criteo's two layouts, and tables of text with a column for each name (Avazu, Taobao, any
//! CSV).

use std::path::{Path, PathBuf};

use super::fingerprint;
use crate::base::config::OnBadRow;
use crate::base::console::note;
use crate::base::error::meant;
use crate::base::{Error, Reason, Result};
use crate::data::Labels;
use crate::data::formats::csv::records::{Record, Splitter};
use crate::data::formats::csv::row::{self, Row};
use crate::data::formats::csv::scan::header;
use crate::data::formats::csv::sniff::check_header;
use crate::data::formats::csv::{Clock, TextCategorical, TextDense, TextSchema, escaped};
use crate::data::key_map::Key;
use crate::data::moment::Unit;
use crate::data::samples::MISSING;
use crate::data::schema::{Description, Transform};
use crate::data::text::{BadLine, Columns, Tally, line_at, most_rows, too_long};
use crate::data::tsv::Layout;

/// Turns pieces of text into columns.
pub(super) trait RowParser: Sync {
    /// The type of categorical values.
    type Key: Key;

    /// Integer and categorical columns.
    fn widths(&self) -> (usize, usize);

    /// Whether it reads a column of this name, where columns have names.
    fn reads(&self, name: &str) -> bool;

    /// Reads whole lines; `at`: the number of their input, and whether they begin with its first one.
    fn parse(
        &self,
        text: &[u8],
        at: (usize, bool),
        into: &mut Columns<Self::Key>,
    ) -> std::result::Result<Tally, BadLine>;
}

/// Of Criteo's text.
pub(super) struct CriteoParser {
    pub(super) layout: Layout,
    pub(super) on_bad_row: OnBadRow,
}

impl CriteoParser {
    pub(super) fn new(on_bad_row: OnBadRow, max_line: usize) -> Self {
        Self { layout: Layout::criteo(Labels::Required, max_line), on_bad_row }
    }
}

impl RowParser for CriteoParser {
    type Key = u32;

    fn widths(&self) -> (usize, usize) {
        (self.layout.dense, self.layout.categorical)
    }

    fn reads(&self, _: &str) -> bool {
        true
    }

    fn parse(&self, text: &[u8], _: (usize, bool), into: &mut Columns<u32>) -> std::result::Result<Tally, BadLine> {
        into.parse(text, &self.layout, self.on_bad_row)
    }
}

fn categories(names: &str) -> Vec<TextCategorical> {
    let column = |name: &str| TextCategorical { column: name.to_owned(), ..TextCategorical::default() };
    names.split_whitespace().map(column).collect()
}

fn logarithm(name: &str) -> Vec<TextDense> {
    vec![TextDense { column: name.to_owned(), transform: Transform::Log, ..TextDense::default() }]
}

/// The hour and the day of the week of a column of moments.
fn clock(column: &str, unit: Unit) -> Vec<TextCategorical> {
    let of = |time, name: &str| TextCategorical {
        name: name.to_owned(),
        time: Some(time),
        unit: Some(unit),
        ..categories(column).swap_remove(0)
    };
    vec![of(Clock::Hour, "hour_of_day"), of(Clock::Weekday, "weekday")]
}

/// Avazu's click log: all columns are categorical, the hour as that of the day and as the day of the week; the id is
/// left out.
#[must_use]
pub fn avazu() -> TextSchema {
    TextSchema {
        label: "click".to_owned(),
        weight: None,
        delimiter: ',',
        columns: Vec::new(),
        missing: Vec::new(),
        dense: Vec::new(),
        categorical: [
            clock("hour", Unit::Hours),
            categories(
                "C1 banner_pos site_id site_domain site_category app_id app_domain app_category device_id device_ip \
                 device_model device_type device_conn_type C14 C15 C16 C17 C18 C19 C20 C21",
            ),
        ]
        .concat(),
    }
}

/// Taobao's user behaviour log, which has no header: a purchase is positive; of the time, the hour of the day and the
/// day of the week count.
#[must_use]
pub fn taobao() -> TextSchema {
    TextSchema {
        label: "behavior == buy".to_owned(),
        weight: None,
        delimiter: ',',
        columns: "user item category behavior time".split_whitespace().map(str::to_owned).collect(),
        missing: Vec::new(),
        dense: Vec::new(),
        categorical: [categories("user item category"), clock("time", Unit::Seconds)].concat(),
    }
}

/// Taobao's behaviour sequences as the reference of TBSM prepares them (facebookresearch/tbsm,
/// `tools/taobao_prepare.py`: `taobao_train.txt`, `taobao_test.txt`): the user, the item and category in question,
/// whether it was the user's, the 200 last items and their categories (the one in question last, zeros before the
/// first), and as many of others.
///
/// The sequences become lists without the zeros; their length is dense. The reference cuts them further when it trains,
/// and takes negatives from the others' items; both are left to whoever reads.
#[must_use]
pub fn taobao_sequences() -> TextSchema {
    let length = TextDense {
        name: "length".to_owned(),
        count: Some(",".to_owned()),
        padding: "0".to_owned(),
        ..logarithm("items").swap_remove(0)
    };
    let lists = sequences(&["items", "categories"]);
    let categorical = [categories("user item category"), lists.categorical].concat();
    TextSchema { dense: vec![length], categorical, ..lists }
}

/// Some of the lists of such text.
pub(super) fn sequences(names: &[&str]) -> TextSchema {
    let sequence = |column: &&str| TextCategorical {
        separator: Some(",".to_owned()),
        padding: "0".to_owned(),
        ..categories(column).swap_remove(0)
    };
    TextSchema {
        label: "label".to_owned(),
        weight: None,
        delimiter: '\t',
        columns: "user item category label items categories other_items other_categories"
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        missing: Vec::new(),
        dense: Vec::new(),
        categorical: names.iter().map(sequence).collect(),
    }
}

/// Of described text.
pub(super) struct TextParser {
    /// Where each input has its columns; there is one.
    inputs: Vec<row::Projection>,
    on_bad_row: OnBadRow,
    /// The longest row, in bytes.
    max_line: usize,
}

impl TextParser {
    /// Finds the columns of `layout` in the header of each file, by their names; where labels are optional, that of the
    /// label may be missing in all files, but one that is there has them all.
    pub(super) fn open(
        layout: &TextSchema,
        paths: &[PathBuf],
        labels: Labels,
        on_bad_row: OnBadRow,
        max_line: usize,
    ) -> Result<Self> {
        let mut inputs: Vec<row::Projection> = Vec::new();
        for path in paths {
            let layout = &*layout.at(path);
            let first = inputs.first();
            let names = header(path, layout, labels, max_line)?;
            if names.iter().any(|name| name.contains(&b'\n')) {
                return Err(Error::bad_file(path, format!("its header: {UNCLOSED}: mend the line")));
            }
            check_header(path, layout, &names, false)?;
            let mut columns = row::Projection::find(path, layout, &names, labels)?;
            if let Some(first) = first.filter(|first| first.is_labelled() != columns.is_labelled()) {
                return Err(labelled_otherwise(path, &paths[0], first));
            }
            if columns.is_labelled() {
                columns = row::Projection::find(path, layout, &names, Labels::Required)?;
            } else if first.is_none() {
                note_unlabelled(path, columns.label_name(), &names);
            }
            inputs.push(columns.of_integers());
        }
        Ok(Self { inputs, on_bad_row, max_line })
    }
}

/// Says of a file that its rows have no labels.
fn note_unlabelled(path: &Path, label: &str, names: &[Vec<u8>]) {
    let names: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
    let meant = escaped(&meant(label, names.iter().map(|name| &**name)));
    note!(
        "note: {} has no column {label}{meant}: these blocks have no labels, and are for `octorec predict` alone",
        path.display()
    );
}

/// The error of a file that has labels where the first one has none, or none where that has some.
fn labelled_otherwise(path: &Path, first: &Path, of_first: &row::Projection) -> Error {
    let [here, there] = if of_first.is_labelled() { ["no", "one"] } else { ["a", "none"] };
    let reason = format!(
        "has {here} column {}, and {} has {there}: rows of one data set have labels, or none of them has: preprocess these \
         files apart, or give all of them that column or none",
        of_first.label_name(),
        first.display()
    );
    Error::bad_file(path, reason)
}

/// What a value is until the values of all files have their rows: the row that does not depend on them, or a
/// fingerprint.
fn key_of(_: usize, column: &TextCategorical, value: &[u8]) -> std::result::Result<Option<u64>, Reason> {
    let fixed = column.fixed_rows().map(|_| column.fixed_row(value).map(u64::from)).transpose()?;
    Ok(Some(fixed.unwrap_or_else(|| fingerprint(value))))
}

/// What is wrong with a line whose last field goes on behind it. Pieces of text that are read at the same time begin at
/// line ends, so a line end cannot be part of a field here.
const UNCLOSED: &str =
    "a quotation mark opens a field that does not end on its line (fields must not hold line ends here)";

impl RowParser for TextParser {
    type Key = u64;

    fn widths(&self) -> (usize, usize) {
        let schema = self.schema();
        (schema.dense.len(), schema.categorical.len())
    }

    fn reads(&self, name: &str) -> bool {
        self.schema().reads(name, Labels::Required)
    }

    fn parse(&self, text: &[u8], at: (usize, bool), into: &mut Columns<u64>) -> std::result::Result<Tally, BadLine> {
        let (dense, categorical) = self.widths();
        let schema = self.schema();
        let (mut integers, mut keys) = (vec![0; dense], vec![0; categorical]);
        into.reset(self.most_rows(text, at.0), dense, categorical);
        self.each(text, at, |row| {
            for ((cell, value), spec) in integers.iter_mut().zip(&row.dense).zip(&schema.dense) {
                *cell = match spec.float {
                    false => value.map_or(MISSING, |value| value as i32),
                    // A float's bits stand in an integer's place.
                    true => value.map_or(f32::NAN, |value| value as f32).to_bits() as i32,
                };
            }
            // Of a list the last value; the list itself follows.
            keys.iter_mut().zip(&row.lookups).for_each(|(key, bag)| *key = bag.rows.last().copied().unwrap_or(0));
            into.push(row.label, &integers, &keys);
            for (column, (bag, spec)) in row.lookups.iter().zip(&schema.categorical).enumerate() {
                if spec.separator.is_some() {
                    into.push_list(column, &bag.rows);
                }
                if spec.weighted() {
                    into.push_weights(column, &bag.weights);
                }
            }
            Ok(())
        })
    }
}

impl TextParser {
    /// What describes the rows of all inputs.
    fn schema(&self) -> &TextSchema {
        &self.inputs[0].schema
    }

    /// Whether rows have a label.
    pub(super) fn is_labelled(&self) -> bool {
        self.inputs[0].is_labelled()
    }

    /// For how many rows a text of an input needs room: each has a separator or an end behind every column.
    pub(super) fn most_rows(&self, text: &[u8], input: usize) -> usize {
        most_rows(text, self.inputs[input].width())
    }

    /// Reads whole lines of an input; `take` gets each good row, and may find it a bad one.
    pub(super) fn each(
        &self,
        text: &[u8],
        (input, first): (usize, bool),
        mut take: impl FnMut(&Row<u64>) -> std::result::Result<(), String>,
    ) -> std::result::Result<Tally, BadLine> {
        let columns = &self.inputs[input];
        let mut row = Row::new(columns);
        let mut tally = Tally::default();
        let (mut splitter, mut record) = (Splitter::new(columns.schema.delimiter), Record::default());
        let mut is_header = first && columns.schema.columns.is_empty();
        let mut at = 0;
        while at < text.len() {
            let (next, content) = line_at(text, at);
            let line = tally.lines;
            at = next;
            tally.lines += 1;
            // The names of columns were read when the input was opened.
            if content.is_empty() || std::mem::take(&mut is_header) {
                continue;
            }
            let result = match () {
                () if content.len() > self.max_line => Err(too_long(self.max_line)),
                () if !splitter.split(content, &mut record) => Err(UNCLOSED.to_owned().into()),
                () => row.read(&record, columns, key_of).and_then(|()| take(&row).map_err(Reason::from)),
            };
            match result {
                Ok(()) => (),
                Err(_) if self.on_bad_row == OnBadRow::Skip => tally.skipped += 1,
                Err(reason) => return Err(BadLine { line, reason }),
            }
        }
        Ok(tally)
    }
}

/// The columns of the data set that comes of a log; a categorical column has one row until its values are known.
pub(super) fn description(table: Option<&TextSchema>) -> Description {
    let Some(table) = table else { return Description::criteo(13, &[1; 26]) };
    let rows = |at: usize| table.categorical[at].fixed_rows().unwrap_or(1);
    let mut description = table.description(|at| table.dense[at].float, |at| (rows(at), false));
    "label".clone_into(&mut description.label.name);
    if description.check().is_err() {
        // A feature may be called so: then the label is what the schema says of it.
        description.label.name.clone_from(&table.label);
    }
    description
}
