//! What a log looks like: Criteo's two layouts, and tables of text with a column for each name (Avazu, Taobao, any
//! CSV).

use std::path::Path;

use super::vocabulary::fingerprint;
use crate::base::config::OnBadRow;
use crate::base::{Error, Result};
use crate::data::formats::csv::label::Rule;
use crate::data::formats::csv::records::{Record, Splitter, too_long};
use crate::data::formats::csv::{Clock, TextCategorical, TextDense, TextSchema};
use crate::data::moment::Unit;
use crate::data::samples::MISSING;
use crate::data::schema::{Categorical, Description, Transform};
use crate::data::table::Key;
use crate::data::tsv::{BadLine, Columns, Labels, Layout, Line, Lines, Tally, line_at, line_ends};

/// Turns pieces of text into columns.
pub(super) trait Rows: Sync {
    /// The type of categorical values.
    type Key: Key;

    /// Integer and categorical columns.
    fn widths(&self) -> (usize, usize);

    /// Reads whole lines; `first`: they begin with the file's first one.
    fn parse(&self, text: &[u8], first: bool, into: &mut Columns<Self::Key>) -> std::result::Result<Tally, BadLine>;
}

/// Criteo's rows.
pub(super) struct Criteo {
    pub(super) layout: Layout,
    pub(super) on_bad_row: OnBadRow,
}

impl Criteo {
    pub(super) fn new(on_bad_row: OnBadRow, max_line: usize) -> Self {
        Self { layout: Layout::criteo(Labels::Required, max_line), on_bad_row }
    }
}

impl Rows for Criteo {
    type Key = u32;

    fn widths(&self) -> (usize, usize) {
        (self.layout.dense, self.layout.categorical)
    }

    fn parse(&self, text: &[u8], _: bool, into: &mut Columns<u32>) -> std::result::Result<Tally, BadLine> {
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
        delimiter: ',',
        columns: Vec::new(),
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
        delimiter: ',',
        columns: "user item category behavior time".split_whitespace().map(str::to_owned).collect(),
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
        delimiter: '\t',
        columns: "user item category label items categories other_items other_categories"
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        dense: Vec::new(),
        categorical: names.iter().map(sequence).collect(),
    }
}

/// Rows of a table of text.
pub(super) struct Table {
    delimiter: char,
    /// All columns; the header that every file begins with, unless `headless`.
    names: Vec<Vec<u8>>,
    headless: bool,
    label: (usize, Rule),
    /// Where a dense column is, and whether it is a float, whose bits then stand in an integer's place.
    dense: Vec<(usize, TextDense)>,
    categorical: Vec<(usize, TextCategorical)>,
    /// Where a categorical column's weights are, if it has a column of them.
    weights: Vec<Option<usize>>,
    on_bad_row: OnBadRow,
    /// The longest row, in bytes.
    max_line: usize,
}

impl Table {
    /// Finds the columns of `layout` in the header of the first file.
    pub(super) fn open(layout: &TextSchema, first: &Path, on_bad_row: OnBadRow, max_line: usize) -> Result<Self> {
        let bad = |reason: String| Error::bad_file(first, reason);
        let headless = !layout.columns.is_empty();
        let delimiter = layout.delimiter;
        let names: Vec<Vec<u8>> = if headless {
            layout.columns.iter().map(|name| name.clone().into_bytes()).collect()
        } else {
            match Lines::open(first)?.limited(max_line).next_line()? {
                Some(Line::Text(line)) => {
                    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
                    let mut record = Record::default();
                    if !Splitter::new(delimiter).split(line, &mut record) {
                        return Err(bad(format!("its header: {UNCLOSED}")));
                    }
                    record.iter().map(<[u8]>::to_vec).collect()
                }
                Some(Line::TooLong) => return Err(bad("its first line is too long for a header".to_owned())),
                None => return Err(bad("the file is empty: a header is expected".to_owned())),
            }
        };
        let find = |name: &String| {
            names.iter().position(|known| known == name.as_bytes()).ok_or_else(|| {
                let all: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
                let nearest = crate::base::error::nearest(name, all.iter().map(|name| &**name));
                let meant = nearest.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default();
                bad(format!("has no column {name}{meant}: its columns are {}", all.join(", ")))
            })
        };
        let (label, rule) = Rule::parse(&layout.label).map_err(bad)?;
        Ok(Self {
            delimiter,
            headless,
            label: (find(&label)?, rule),
            dense: layout
                .dense
                .iter()
                .map(|column| Ok((find(&column.column)?, column.clone())))
                .collect::<Result<_>>()?,
            categorical: layout
                .categorical
                .iter()
                .map(|column| Ok((find(&column.column)?, column.clone())))
                .collect::<Result<_>>()?,
            weights: layout
                .categorical
                .iter()
                .map(|column| column.weights.as_ref().map(find).transpose())
                .collect::<Result<_>>()?,
            on_bad_row,
            max_line,
            names,
        })
    }

    /// Reads a record; `bags` are for columns of several values, and for weights.
    fn row(
        &self,
        record: &Record,
        integers: &mut [i32],
        (keys, bags): (&mut [u64], &mut [Bag]),
    ) -> std::result::Result<f32, String> {
        if record.len() != self.names.len() {
            return Err(format!("expected {} columns, found {}", self.names.len(), record.len()));
        }
        let text = |at: usize| String::from_utf8_lossy(&self.names[at]);
        let shown =
            |field: &[u8]| field.iter().take(32).flat_map(|&byte| std::ascii::escape_default(byte)).collect::<Vec<_>>();
        let wrong = |at: usize, expected: &str| {
            let found = String::from_utf8(shown(&record[at])).expect("escaped bytes are ASCII");
            format!("column {}: expected {expected}, found \"{found}\"", text(at))
        };
        let (at, rule) = &self.label;
        let label = rule.label(&record[*at]).ok_or_else(|| wrong(*at, rule.expects()))?;
        for (cell, (at, column)) in integers.iter_mut().zip(&self.dense) {
            let (at, float) = (*at, column.float);
            if let Some(count) = column.counted(&record[at]) {
                *cell = count as i32;
                continue;
            }
            let field = std::str::from_utf8(&record[at]).unwrap_or("?").trim();
            if let (Some(unit), false) = (column.unit(), field.is_empty()) {
                *cell = unit.parse(field.as_bytes()).ok_or_else(|| wrong(at, unit.expects()))?.0;
                continue;
            }
            *cell = match (field, float) {
                ("", false) => MISSING,
                ("", true) => f32::NAN.to_bits() as i32,
                (field, false) => field
                    .parse()
                    .ok()
                    .filter(|&value| value != MISSING)
                    .ok_or_else(|| wrong(at, "an integer of at most 32 bits (fractions need float = true)"))?,
                (field, true) => field
                    .parse()
                    .ok()
                    .filter(|value: &f32| value.is_finite())
                    .ok_or_else(|| wrong(at, "a finite number"))?
                    .to_bits() as i32,
            };
        }
        for (((key, bag), (at, column)), weights) in keys.iter_mut().zip(bags).zip(&self.categorical).zip(&self.weights)
        {
            let key_of = |value: &[u8]| match column.fixed_rows() {
                Some(_) => column.fixed_row(value).map(u64::from).map_err(|expected| wrong(*at, expected)),
                None => Ok(fingerprint(value)),
            };
            bag.keys.clear();
            bag.weights.clear();
            column.each_value(&record[*at], weights.map(|at| &record[at]), |value, weight| {
                *key = key_of(value)?;
                bag.keys.push(*key);
                bag.weights.push(weight);
                Ok(())
            })?;
        }
        Ok(label)
    }
}

/// The values of a field and their weights.
#[derive(Debug, Clone, Default)]
pub(super) struct Bag {
    pub(super) keys: Vec<u64>,
    weights: Vec<f32>,
}

/// The columns of a row.
pub(super) struct Fields<'a> {
    pub(super) label: f32,
    integers: &'a [i32],
    /// Of a list the last value.
    pub(super) keys: &'a [u64],
    pub(super) bags: &'a [Bag],
}

/// What is wrong with a line whose last field goes on behind it. Pieces of text that are read at the same time begin at
/// line ends, so a line end cannot be part of a field here.
const UNCLOSED: &str =
    "a quotation mark opens a field that does not end on its line (fields must not hold line ends here)";

impl Rows for Table {
    type Key = u64;

    fn widths(&self) -> (usize, usize) {
        (self.dense.len(), self.categorical.len())
    }

    fn parse(&self, text: &[u8], first: bool, into: &mut Columns<u64>) -> std::result::Result<Tally, BadLine> {
        let (dense, categorical) = self.widths();
        into.reset(line_ends(text) + 1, dense, categorical);
        self.each(text, first, |&Fields { label, integers, keys, bags }| {
            into.push(label, integers, keys);
            for (column, (bag, (_, spec))) in bags.iter().zip(&self.categorical).enumerate() {
                if spec.separator.is_some() {
                    into.push_list(column, &bag.keys);
                }
                if spec.weighted() {
                    into.push_weights(column, &bag.weights);
                }
            }
            Ok(())
        })
    }
}

impl Table {
    /// Reads whole lines; `take` gets each good row, and may find it a bad one.
    pub(super) fn each(
        &self,
        text: &[u8],
        first: bool,
        mut take: impl FnMut(&Fields<'_>) -> std::result::Result<(), String>,
    ) -> std::result::Result<Tally, BadLine> {
        let text = if first { text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text) } else { text };
        let (dense, categorical) = self.widths();
        let (mut integers, mut keys) = (vec![0; dense], vec![0; categorical]);
        let mut bags = vec![Bag::default(); categorical];
        let mut tally = Tally::default();
        let (mut splitter, mut record) = (Splitter::new(self.delimiter), Record::default());
        let mut header = first && !self.headless;
        let mut at = 0;
        while at < text.len() {
            let (next, row) = line_at(text, at);
            let line = tally.lines;
            at = next;
            tally.lines += 1;
            if row.is_empty() {
                continue;
            }
            let result = match () {
                () if row.len() > self.max_line => Err(too_long(self.max_line)),
                () if !splitter.split(row, &mut record) => Err(UNCLOSED.to_owned()),
                () if header => {
                    header = false;
                    if record.iter().eq(self.names.iter().map(|name| &name[..])) {
                        continue;
                    }
                    let reason = "the header differs from that of the first file".to_owned();
                    return Err(BadLine { line, reason });
                }
                () => self
                    .row(&record, &mut integers, (&mut keys, &mut bags))
                    .and_then(|label| take(&Fields { label, integers: &integers, keys: &keys, bags: &bags })),
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
    let categorical = |column: &TextCategorical| Categorical {
        hots: u32::from(column.separator.is_none()),
        weighted: column.weighted(),
        ..Categorical::new(column.name(), column.fixed_rows().unwrap_or(1))
    };
    let mut description = Description {
        label: crate::data::schema::Label { name: "label".to_owned(), float: false },
        dense: table.dense.iter().map(|column| column.described(column.float)).collect(),
        categorical: table.categorical.iter().map(categorical).collect(),
    };
    if description.check().is_err() {
        // A feature may be called so: then the label is what the schema says of it.
        description.label.name.clone_from(&table.label);
    }
    description
}
