//! A schema for a text file, guessed from its header and its first rows: what a practitioner would begin with, for a
//! person to edit.

mod form;
mod kind;
mod label;
mod seen;

use std::path::Path;

use serde::Serialize;

use self::kind::{Kind, kind};
pub(super) use self::seen::MISSING;
use self::seen::Seen;
use super::label::{Rule, finite as number};
use super::records::Records;
use super::scan::header_of;
use super::schema::{Clock, TextCategorical, TextDense, TextSchema};
use super::sniff::{delimiter, stated};
use super::{escaped, listed};
use crate::base::config::OnBadRow;
use crate::base::console::note;
use crate::base::error::meant;
use crate::base::units::Count;
use crate::base::{Error, Result, interrupt};
use crate::data::formats::{bad, parquet};
use crate::data::schema::is_weight;
use crate::data::text::{Place, Wanted, is_parquet_at};

/// The one name by which a column is taken for that of samples' weights: `weight` alone is as often a body's.
const SAMPLE_WEIGHT: &str = "sample_weight";

/// A schema with its reasons.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The schema.
    pub schema: TextSchema,
    /// Columns that it leaves out.
    pub left_out: Vec<LeftOut>,
    /// Why the label is one.
    label_reason: String,
    /// Why columns are what they are: those of `schema.dense`, then those of `schema.categorical`.
    reasons: Vec<String>,
    /// Whether all rows of the file were seen.
    whole: bool,
}

/// A column that is no feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub column: String,
    /// Why.
    pub reason: String,
}

/// Guesses the delimiter, the label and every column's kind from the first `rows` rows; `label` says what the label is,
/// where a person knows; no row is longer than `max_line`. Where malformed rows are left out, so will be those whose
/// label is blank.
///
/// # Errors
/// When the file cannot be read, or no column can be the label.
pub fn propose(path: &Path, rows: u64, label: Option<&str>, max_line: usize, on_bad_row: OnBadRow) -> Result<Proposal> {
    let delimiter = delimiter(path);
    // No schema of text reads all that Parquet may hold.
    let unread = if is_parquet_at(path) { parquet::unread(path, rows)? } else { Vec::new() };
    let reads = |name: &str| !unread.iter().any(|out| out.column == name);
    let mut records = Records::open_at(path, delimiter, max_line, Place::default(), Wanted::Of(&reads))?;
    let bare = TextSchema {
        label: String::new(),
        weight: None,
        delimiter,
        columns: Vec::new(),
        missing: Vec::new(),
        dense: Vec::new(),
        categorical: Vec::new(),
    };
    let names = header_of(path, &mut records)?;
    let seen = |name: &Vec<u8>| match std::str::from_utf8(name) {
        Ok(name) => Ok(Seen::new(name)),
        Err(error) => {
            Err(bad(path, format!("the name of a column is no UTF-8 text ({error}): write its header again")))
        }
    };
    let mut columns = names.iter().map(seen).collect::<Result<Vec<_>>>()?;
    let (mut seen, mut whole) = (0u64, false);
    loop {
        if seen.is_multiple_of(1 << 12) && interrupt::requested() {
            return Err(Error::Interrupted);
        }
        let Some((line, read)) = records.next()? else {
            whole = true;
            break;
        };
        if seen == rows {
            break;
        }
        let read = read.and_then(|()| match (columns.len(), records.record.len()) {
            (expected, found) if expected == found => Ok(()),
            (expected, found) => Err(format!("expected {expected} columns as in the header, found {found}").into()),
        });
        match read {
            Ok(()) => (),
            Err(_) if on_bad_row == OnBadRow::Skip => {
                records.keep_first_line();
                continue;
            }
            Err(reason) => return Err(Error::BadRow { path: path.to_owned(), line, reason }),
        }
        seen += 1;
        columns.iter_mut().zip(records.record.iter()).for_each(|(column, field)| column.add(field));
    }
    let lacks_by = |text: &&str| columns.iter().any(|column| column.lacks_by(text));
    let missing: Vec<String> = MISSING.into_iter().filter(lacks_by).map(str::to_owned).collect();
    columns.iter_mut().for_each(|column| column.settle(&missing));
    let (rule, at, label_reason) = match label {
        Some(rule) => given(rule, &columns, &missing, &unread).map_err(|reason| Error::config("--label", reason))?,
        None => label::label(&columns, on_bad_row == OnBadRow::Skip).map_err(|reason| {
            // The names of a table may be numbers, but then something else tells its label.
            let is_row = names.iter().any(|name| name.trim_ascii().is_empty() || number(name).is_some());
            let no_header = "its first line does not look like names of columns: put a line of names before it, or write a \
                             schema that lists them (columns = [..]; octorec schema has every key) and name it with \
                             --schema; if these are the names, name the label with --label";
            bad(path, if is_row { no_header.to_owned() } else { reason })
        })?,
    };
    let is_value = |seen: &Seen| {
        seen.name.trim().is_empty() || number(seen.name.as_bytes()).is_some() || seen.times(&seen.name) > 0
    };
    if columns.iter().all(is_value) {
        note!(
            "warning: {}: its first line, which is taken for the names of columns, looks like a row: if it is one, write a \
             schema that lists the names (columns = [..])",
            path.display()
        );
    }
    let schema = TextSchema { label: rule, missing, ..bare };
    let mut proposal = Proposal { schema, left_out: Vec::new(), label_reason, reasons: Vec::new(), whole };
    let features = columns.iter().enumerate().filter(|(column, seen)| *column != at && reads(&seen.name));
    features.for_each(|(at, column)| proposal.add(at, column));
    proposal.left_out.extend(unread);
    proposal.schema = proposal.schema.weighing();
    Ok(proposal)
}

/// The label that a person names, where these texts count as blank and these columns are not read.
fn given(
    rule: &str,
    columns: &[Seen],
    missing: &[String],
    unread: &[LeftOut],
) -> std::result::Result<label::Found, String> {
    let (name, kind) = Rule::of(rule, columns.iter().map(|seen| seen.name.as_bytes()))?;
    if let Some(LeftOut { column, reason }) = unread.iter().find(|out| out.column == name) {
        return Err(format!("column {column} cannot be the label: {reason}"));
    }
    kind.check_missing(&name, missing)?;
    let at = columns.iter().position(|seen| seen.name == name).ok_or_else(|| {
        let names = || columns.iter().map(|seen| &*seen.name);
        let meant = escaped(&meant(&name, names()));
        format!("there is no column {name}{meant}: the columns are {}", listed(names()))
    })?;
    if let (Rule::Bit, Some(advice)) = (kind, label::advice(&columns[at])) {
        return Err(advice);
    }
    Ok((rule.to_owned(), at, "as --label says".to_owned()))
}

impl Proposal {
    /// Whether the file has no other rows than those that were seen.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.whole
    }

    /// Adds the column at this place, from 0.
    fn add(&mut self, at: usize, seen: &Seen) {
        let holds_weights = || seen.is_numeric() && seen.blank == 0 && seen.least >= 0.0 && seen.most > 0.0;
        if seen.name == SAMPLE_WEIGHT && holds_weights() && is_weight(seen.most as f32) {
            self.schema.weight = Some(seen.name.clone());
            return;
        }
        let (kind, reason) = kind(seen, self.whole);
        // A model knows its columns by their names.
        let nameless = format!("column {}", at + 1);
        let column = seen.name.clone();
        let bare = if column.is_empty() { &*nameless } else { stated(&seen.name).0 };
        // What a header says of a column's kind is no part of its name.
        let name = if bare == column { String::new() } else { bare.to_owned() };
        let plain = TextCategorical { column: column.clone(), name: name.clone(), ..TextCategorical::default() };
        let mut categorical = Vec::new();
        match kind {
            Kind::Out => self.left_out.push(LeftOut { column, reason: reason.clone() }),
            Kind::Dense { transform, float } => {
                let dense = TextDense { column, name, float, transform, ..TextDense::default() };
                self.reasons.insert(self.schema.dense.len(), reason.clone());
                self.schema.dense.push(dense);
            }
            Kind::Categorical => categorical.push(plain),
            Kind::List(separator) => {
                categorical.push(TextCategorical { separator: Some(separator.to_owned()), ..plain });
            }
            Kind::Time { unit, hour, weekday } => {
                let parts = [(hour, Clock::Hour, "hour"), (weekday, Clock::Weekday, "weekday")];
                let parts = parts.into_iter().filter(|(there, ..)| *there);
                categorical.extend(parts.map(|(_, clock, what)| TextCategorical {
                    name: format!("{bare}_{what}"),
                    time: Some(clock),
                    unit: Some(unit),
                    ..plain.clone()
                }));
            }
        }
        self.reasons.extend(categorical.iter().map(|_| reason.clone()));
        self.schema.categorical.extend(categorical);
    }

    /// The schema as a TOML document, with the reasons as comments; `rows` are those that were seen and are not left
    /// out as malformed.
    #[must_use]
    pub fn to_toml(&self, rows: u64) -> String {
        let all = if self.whole { "all" } else { "the first" };
        let mut text = format!(
            "# Proposed by octorec inspect from {all} {} rows: edit it as you know better. Every key: octorec schema\n\n",
            Count(rows)
        );
        // Whatever a header holds: a comment ends with its line.
        let comment = |text: &str| format!("# {}\n", text.replace(|c: char| c.is_control(), " "));
        text += &comment(&self.label_reason);
        let head = TextSchema { dense: Vec::new(), categorical: Vec::new(), ..self.schema.clone() };
        text += &document(&Head { label: &head.label, delimiter: head.delimiter });
        if let Some(weight) = &head.weight {
            text += &comment("by its name, how much each row counts in the loss and in scores");
            text += &document(&Weight { weight });
        }
        if !head.missing.is_empty() {
            text += &comment(
                "in columns of numbers these stand where there is no value; they count as blank in every column, categories too",
            );
            text += &document(&Lacking { missing: &head.missing });
        }
        for LeftOut { column, reason } in &self.left_out {
            text += &comment(&format!("left out: {column}: {reason}"));
        }
        let mut reasons = self.reasons.iter();
        let mut reason = || reasons.next().map_or_else(String::new, |reason| comment(reason));
        for column in self.schema.dense.iter().filter(|column| !column.weighs) {
            text += &format!("\n{}[[dense]]\n{}", reason(), document(column));
        }
        for column in &self.schema.categorical {
            text += &format!("\n{}[[categorical]]\n{}", reason(), document(column));
        }
        text
    }
}

/// What stands before the columns.
#[derive(Serialize)]
struct Head<'a> {
    label: &'a str,
    delimiter: char,
}

/// The weight.
#[derive(Serialize)]
struct Weight<'a> {
    weight: &'a str,
}

/// Texts that count as blank.
#[derive(Serialize)]
struct Lacking<'a> {
    missing: &'a [String],
}

fn document(part: &impl Serialize) -> String {
    toml::to_string(part).expect("every field of a schema is representable in TOML")
}
