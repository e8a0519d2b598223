//! Separated text with a header line (RFC 4180 quoting), described by a [`TextSchema`]; plain, gzip, zstd or that of
//! Parquet.
//!
//! Opening reads the file once: it counts good rows, numbers values in the order of their first appearance (or as a
//! trained model knows them), tells integers from floats and marks places to enter at. What `data.vocab`,
//! `data.rows_cap` and `data.on_bad_row` say holds as for Criteo's text. Vocabularies are held in memory: this is for
//! data sets of up to some million values, beyond which `octorec preprocess` is the way.

mod arriving;
mod encoding;
pub mod keys;
mod label;
mod lookups;
mod propose;
pub(in crate::data) mod records;
pub(in crate::data) mod row;
pub(in crate::data) mod scan;
mod schema;
pub mod sniff;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(in crate::data) use arriving::Arriving;
use encoding::Encoding;
use label::finite as number;
use lookups::trimmed;
pub use propose::{LeftOut, Proposal, propose};
use scan::{GoodRows, InUse, Part, Pass, RowPolicy};
pub use schema::{Clock, Span, TextCategorical, TextDense, TextSchema};

use super::dataset::{Described, Member};
use super::parquet::{is_such, refuse_two_types, role};
use super::{Dataset, Rows, Table, bad};
use crate::base::config::{OnBadRow, Vocab};
pub(in crate::data) use crate::base::console::escaped;
use crate::base::console::note;
use crate::base::error::shell;
use crate::base::units::{Count, Many};
use crate::base::{Error, Result};
use crate::data::preprocess::{input_files, note_left_out};
use crate::data::samples::Samples;
use crate::data::schema::Description;
use crate::data::source::first_part;
use crate::data::text::{LONGEST, SHOWN, Scanned, shown};
use crate::data::unfinished::name as file_name;
use crate::data::unseen::LostCounts;
use crate::data::{Labels, Lost, OnUnseen, Progress, Split, Vocabulary};

/// Opens a text file, or all of a folder as one table in the order of their names, as a schema says.
///
/// # Errors
/// When a column is missing, or a row is malformed ([`Error::BadRow`]).
pub fn open(path: &Path, text: Option<Described<'_>>) -> Result<Dataset> {
    let Some(Described { schema, max_line, on_bad_row }) = text else {
        let shown = shell(path);
        let reason = format!(
            "is text with named columns and needs a description: `octorec inspect {shown} --write-schema FILE` proposes one; \
             name one with --schema FILE"
        );
        return Err(bad(path, reason));
    };
    let choices = Choices { max_line, on_bad_row, ..Choices::default() };
    let (schema, text) = TextSchema::kept_or_read(None, schema)?;
    let dataset = open_as(path, schema, &choices, &mut |_, _| {})?;
    Ok(Dataset { schema_text: Some(text), ..dataset })
}

/// How a text file is opened, beyond its schema.
pub struct Choices<'a> {
    /// The values of a trained model; without them, values are numbered as they appear.
    pub known: Option<&'a Vocabulary>,
    /// Whether new values of training samples are added to `known`: where training begins with that model.
    pub grows: bool,
    /// Whether the schema is one that a trained model keeps, so that no advice to change it would help.
    pub kept: bool,
    /// What a value of a training sample does that `known` lacks, where it has no row for such; one of a test sample is
    /// left out in any case.
    pub unseen: OnUnseen,
    /// Whether there must be a label.
    pub labels: Labels,
    /// How values become row numbers, where the schema leaves it open.
    pub vocab: Vocab,
    /// At most this many rows a table of numbered values, and the rows that [`Vocab::Hash`] hashes into; 0: no limit.
    pub rows_cap: u64,
    /// What a malformed row does.
    pub on_bad_row: OnBadRow,
    /// The longest row, in bytes.
    pub max_line: usize,
    /// Good rows of a file that are read, from its start: what is behind them is not looked at.
    pub rows: u64,
    /// A second file that holds the test samples.
    pub test: Option<&'a Path>,
    /// The share of good rows of the first file, from its end, that are no training samples: [`Vocab::Train`] knows the
    /// others.
    pub held_out: f64,
}

impl Default for Choices<'_> {
    fn default() -> Self {
        Self {
            known: None,
            grows: false,
            kept: false,
            unseen: OnUnseen::default(),
            labels: Labels::default(),
            vocab: Vocab::All,
            rows_cap: 0,
            on_bad_row: OnBadRow::Fail,
            max_line: LONGEST,
            rows: u64::MAX,
            test: None,
            held_out: 0.0,
        }
    }
}

impl Choices<'_> {
    const fn policy(&self) -> RowPolicy {
        let Self { labels, kept, on_bad_row, max_line, unseen, .. } = *self;
        RowPolicy { labels, kept, on_bad_row, max_line, unseen }
    }
}

/// As [`open`], with a schema at hand; `progress` is told how many bytes of how many the opening pass has read.
///
/// # Errors
/// As [`open`].
pub fn open_as(
    path: &Path,
    mut schema: TextSchema,
    choices: &Choices<'_>,
    progress: &mut Progress<'_>,
) -> Result<Dataset> {
    if choices.known.is_none() && choices.vocab == Vocab::Hash {
        hash(&mut schema, choices.rows_cap)?;
    }
    let by_values: Vec<bool> = schema.categorical.iter().map(|column| column.fixed_rows().is_none()).collect();
    let numbered = by_values.contains(&true);
    let (parts, trained, encoding) = scan_all(path, &schema, choices, progress)?;
    // A trained model may score samples of one class, but goes on with its own.
    if choices.labels == Labels::Required && (!choices.kept || choices.unseen == OnUnseen::Reject) {
        warn_of_one_class(path, &schema, choices, &parts[..trained]);
    }
    let float = |column: usize| parts.iter().any(|part| !part.whole[column]);
    let left_out = parts.iter().any(|part| part.policy.unseen == OnUnseen::EmptyBag);
    let unseen = if left_out { OnUnseen::EmptyBag } else { OnUnseen::Reject };
    let description = schema.description(float, |column| encoding.table(column, &schema.categorical[column], unseen));
    description.check().map_err(|reason| bad(path, reason))?;
    let vocabulary = numbered.then(|| Arc::new(encoding.vocabulary()));
    let blanks = schema.categorical.iter().enumerate().map(|(at, spec)| encoding.row_of_blank(at, spec)).collect();
    let growth = encoding.growth().to_vec();
    let encoding = Arc::new(encoding);
    let member = |(at, part)| {
        let lists: Vec<bool> = description.categorical.iter().map(|column| column.hots == 0).collect();
        let lost = lists.iter().map(|_| LostCounts::default()).collect();
        let (encoding, description) = (Arc::clone(&encoding), description.clone());
        let table = CsvTable { part, encoding, description, lists, lost };
        Member { role: if at < trained { Split::Train } else { Split::Test }, table: Box::new(table) }
    };
    let members = parts.into_iter().enumerate().map(member).collect();
    let mut dataset = Dataset::new(description.clone(), members);
    dataset.learned = numbered && choices.known.is_none();
    dataset.vocabulary = vocabulary;
    dataset.numbered = by_values;
    dataset.growth = growth;
    dataset.blanks = blanks;
    Ok(dataset)
}

/// Says if all rows that a model is to learn from have the same label, and what may have made them so. Of these parts
/// the last rows may be for tests.
fn warn_of_one_class(path: &Path, schema: &TextSchema, choices: &Choices<'_>, parts: &[Part]) {
    let (mut rows, mut first) = (0, [None; 2]);
    for part in parts {
        for (first, of_part) in first.iter_mut().zip(part.labels) {
            *first = first.or(of_part.map(|row| rows + row));
        }
        rows += part.text.rows;
    }
    let train = first_part(rows, choices.held_out);
    let (of, others) = match first.map(|first| first.is_some_and(|row| row < train)) {
        [true, false] => ("negative", "positive"),
        [false, true] => ("positive", "negative"),
        _ => return,
    };
    let which = if first.contains(&None) && choices.test.is_none() { "rows" } else { "training rows" };
    let skipped = parts.iter().map(|part| part.text.skipped.rows()).sum::<u64>();
    let left_out = match skipped {
        0 => String::new(),
        _ => format!(", perhaps because the {others} ones are among the {} left out", Many(skipped, "malformed row")),
    };
    note!(
        "warning: {}: all {which} are {of} by label = {:?}{left_out}: nothing can be learned of one class; does the schema's \
         label say which rows are positive?",
        path.display(),
        schema.label
    );
}

/// Of which columns it is told that many values share a row: of those that are hashed, where whoever begins with the
/// data may give them other rows.
fn rows_in_use(schema: &TextSchema, choices: &Choices<'_>) -> Vec<Option<InUse>> {
    let told = !choices.kept && choices.labels == Labels::Required;
    let cap = if choices.rows_cap == 0 { u64::MAX } else { choices.rows_cap };
    let columns = schema.categorical.iter();
    columns.map(|spec| if told { InUse::new(spec.rows.min(cap)) } else { None }).collect()
}

/// Says which columns are hashed to fewer rows than they have different values, as far as the rows in use tell that.
fn note_shared_rows(schema: &TextSchema, used: &[Option<InUse>]) {
    for (spec, used) in schema.categorical.iter().zip(used) {
        let Some(used) = used else { continue };
        let rows = used.rows as f64;
        // Of so many values that fall on rows by chance, this part of the rows has none: e^(-values / rows).
        let values = -rows * ((rows - used.count() as f64).max(0.5) / rows).ln();
        if values > rows {
            let remedy = match used.rows < spec.rows {
                true => "a larger --rows-cap",
                false => "rows = N in the schema, or --rows-cap with --vocab hash",
            };
            note!(
                "note: column {} has about {} different values or more, which are hashed to {}: many share a row, so give it \
                 more of them ({remedy}), if memory allows",
                escaped(spec.name()),
                Count(values.round() as u64),
                Many(used.rows, "row")
            );
        }
    }
}

/// Has the values of all columns whose rows would depend on the data hashed.
///
/// # Errors
/// [`Error::Config`] that names a column, where nobody says into how many rows.
pub fn hash(schema: &mut TextSchema, rows_cap: u64) -> Result<()> {
    schema.hash(rows_cap).map_err(|column| Error::config("data.vocab = \"hash\"", format!(
            "column {column} needs a number of rows: set data.rows_cap (--rows-cap), or give the column rows in the schema"
        )))
}

/// The text files that a path names: of a folder those in it, in the order of their names, of one with Parquet these
/// alone. What describes them may lie beside them.
///
/// # Errors
/// When the folder cannot be read, or has none.
pub(in crate::data) fn files_at(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files = input_files(&[path.to_owned()])?;
    files.retain(|file| file == path || file.extension().is_none_or(|end| end != "toml"));
    if files.is_empty() {
        return Err(bad(path, "there is no file of text in it: name another folder"));
    }
    Ok(files)
}

/// As [`files_at`], each with its bytes; of a folder those with rows, if any has some, and says which have none.
fn sized_at(path: &Path, schema: &TextSchema, max_line: usize) -> Result<Vec<(PathBuf, u64)>> {
    let sized = |file: PathBuf| {
        let bytes = std::fs::metadata(&file).map_err(Error::io(&file, "open"))?.len();
        Ok((file, bytes))
    };
    let mut files = files_at(path)?;
    note_left_out(path)?;
    if path.is_dir() {
        let (mut empty, mut others) = (Vec::new(), Vec::new());
        for file in files {
            let is_empty = scan::is_empty(&file, schema, max_line)?;
            if is_empty { &mut empty } else { &mut others }.push(file);
        }
        // Of those without rows alone, the pass says what is wrong with the first.
        if others.is_empty() {
            std::mem::swap(&mut empty, &mut others);
        }
        if !empty.is_empty() {
            let names: Vec<_> = empty.iter().map(|file| file_name(file)).collect();
            note!("note: {}: no rows are in {}", path.display(), listed(names.iter().map(|name| &**name)));
        }
        files = others;
    }
    files.into_iter().map(sized).collect()
}

/// Says which Parquet files of a folder are read with the others though their names say that they are for validation or
/// tests, which counts where nobody describes them.
fn note_roles(path: &Path, files: &[(PathBuf, u64)]) {
    let names = files.iter().map(|(file, _)| file_name(file));
    let held_out = |name: &Cow<'_, str>| matches!(role(name), Some(Split::Validation | Split::Test)) && is_such(name);
    let held_out: Vec<_> = names.filter(held_out).collect();
    if path.is_dir() && !held_out.is_empty() && held_out.len() < files.len() {
        note!(
            "note: {}: all of its files are read as one table, and so are {}: samples for tests lie in a folder of their own, \
             which --test-data names",
            path.display(),
            listed(held_out.iter().map(|name| &**name))
        );
    }
}

/// Reads all files, then those of the test samples; tells how many are none of these.
fn scan_all(
    path: &Path,
    schema: &TextSchema,
    choices: &Choices<'_>,
    progress: &mut Progress<'_>,
) -> Result<(Vec<Part>, usize, Encoding)> {
    let sized = |path| sized_at(path, schema, choices.max_line);
    let (files, tests) = (sized(path)?, choices.test.map(sized).transpose()?.unwrap_or_default());
    if !choices.kept {
        note_roles(path, &files);
    }
    refuse_two_types(files.iter().chain(&tests).map(|(file, _)| &**file), schema, !choices.kept)?;
    let total = files.iter().chain(&tests).map(|(_, bytes)| bytes).sum();
    let mut encoding = Encoding::new(schema, choices.known, choices.grows, choices.rows_cap)?;
    let policy = choices.policy();
    // Values that the vocabulary lacks are no fault of test samples.
    let of_tests = RowPolicy { unseen: OnUnseen::EmptyBag, ..policy };
    let mut used = rows_in_use(schema, choices);
    let mut pass = Pass { done: 0, total, rows: 0, most: choices.rows, progress };
    let mut scan = |files: &[(PathBuf, u64)], policy, encoding: &mut Encoding, begins: bool| {
        if begins {
            (pass.done, pass.rows, used) = (0, 0, rows_in_use(schema, choices));
        }
        let mut parts = Vec::new();
        for (file, bytes) in files {
            let into = (&mut *encoding, &mut used[..]);
            let part = Part::scan(file, schema, policy, into, &mut pass)?;
            (pass.done, pass.rows) = (pass.done + bytes, pass.rows + part.text.rows);
            parts.push(part);
        }
        Ok::<_, Error>(parts)
    };
    // Which samples of these files the model is judged by is known when all are counted.
    let first = if choices.held_out > 0.0 { of_tests } else { policy };
    let mut parts = scan(&files, first, &mut encoding, true)?;
    let train = |parts: &[Part]| first_part(parts.iter().map(|part| part.text.rows).sum(), choices.held_out);
    let first_unseen = parts.iter().find_map(|part| part.text.first_unseen);
    if policy.unseen == OnUnseen::Reject && first_unseen.is_some_and(|row| row < train(&parts)) {
        parts = scan(&files, policy, &mut encoding, true)?;
    }
    if choices.grows {
        encoding.grow_before(train(&parts), schema);
    } else if choices.vocab == Vocab::Train {
        encoding.share_from(train(&parts));
    }
    parts.extend(scan(&tests, of_tests, &mut encoding, false)?);
    encoding.keep_all();
    for part in parts.iter_mut().filter(|_| policy.unseen == OnUnseen::Reject) {
        // Where all values are known, one without a row tells that the file has changed.
        let met = part.text.first_unseen.is_some() || choices.held_out > 0.0 && encoding.leaves_out();
        part.policy.unseen = if met { OnUnseen::EmptyBag } else { OnUnseen::Reject };
    }
    note_shared_rows(schema, &used);
    Ok((parts, files.len(), encoding))
}

struct CsvTable {
    part: Part,
    encoding: Arc<Encoding>,
    description: Description,
    /// Whether each categorical column has any number of look-ups.
    lists: Vec<bool>,
    /// What readers have met that look-ups do not show, by column.
    lost: Vec<LostCounts>,
}

/// Names of a file's for a message: the first of many.
pub(in crate::data) fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const FIRST: usize = 10;
    const LONGEST: usize = 64;
    let more = names.len().saturating_sub(FIRST);
    let some = names.take(FIRST).map(|name| match name.char_indices().nth(LONGEST) {
        Some((end, _)) => escaped(&name[..end]) + "…",
        None => escaped(name),
    });
    let some = some.collect::<Vec<_>>().join(", ");
    if more == 0 { some } else { format!("{some} and {} more", Count(more as u64)) }
}

/// What is wrong with a field that is not what a column expects.
fn found_instead(column: &str, expected: &str, field: &[u8]) -> String {
    format!("column {column}: {expected} is expected, found \"{}\"", shown(field))
}

/// Behind that, of a text without a digit, which may stand for a missing value: what tells that.
fn missing_hint(field: &[u8]) -> String {
    let text = std::str::from_utf8(trimmed(field)).ok();
    let is_word = |text: &&str| !text.is_empty() && text.len() <= SHOWN && !text.bytes().any(|b| b.is_ascii_digit());
    let text = text.filter(is_word);
    text.map_or_else(String::new, |text| {
        let text = toml::Value::String(text.to_owned());
        format!(": does it stand for a missing value (then say missing = [{text}] in the schema)?")
    })
}

impl Table for CsvTable {
    fn description(&self) -> &Description {
        &self.description
    }

    fn rows(&self) -> u64 {
        self.part.text.rows
    }

    fn path(&self) -> &Path {
        &self.part.text.path
    }

    fn scanned(&self) -> Option<&Scanned> {
        Some(&self.part.text)
    }

    fn longest(&self) -> Vec<u32> {
        self.part.longest.clone()
    }

    fn lost(&self) -> Vec<Lost> {
        let columns = self.lost.iter().zip(&self.part.columns.schema.categorical).enumerate();
        columns.map(|(at, (lost, spec))| lost.told(self.encoding.tells_blanks(at, spec))).collect()
    }

    fn open(&self, start: u64) -> Result<Box<dyn Rows + '_>> {
        let good = self.part.open(start, &self.encoding)?;
        Ok(Box::new(CsvRows { table: self, good }))
    }
}

struct CsvRows<'a> {
    table: &'a CsvTable,
    good: GoodRows<'a>,
}

impl Rows for CsvRows<'_> {
    fn read(&mut self, samples: &mut Samples, limit: usize) -> Result<usize> {
        let table = self.table;
        let (mut read, mut lost) = (0, vec![Lost::default(); table.lists.len()]);
        while read < limit && self.good.next(&table.encoding)? {
            self.good.row.push(samples, &table.part.columns, &table.lists);
            lost.iter_mut().zip(self.good.row.lost()).for_each(|(all, here)| *all = all.and(here));
            read += 1;
        }
        table.lost.iter().zip(lost).for_each(|(all, here)| all.add(here));
        Ok(read)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        for skipped in 0..count {
            if !self.good.step_over(&self.table.encoding)? {
                return Ok(skipped);
            }
        }
        Ok(count)
    }

    fn bytes_read(&self) -> u64 {
        self.good.bytes_read()
    }
}
