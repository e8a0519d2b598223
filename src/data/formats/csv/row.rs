//! One record becomes numbers: its label, dense values, and the look-ups of every categorical column.

use std::path::Path;

use super::label::{Rule, TRUTHS, finite as number};
use super::lookups::trimmed;
use super::records::Record;
use super::schema::{TextCategorical, TextSchema};
use super::sniff::separated;
use super::{bad, escaped, found_instead, listed, missing_hint};
use crate::base::error::meant;
use crate::base::{Reason, Result};
use crate::data::samples::{MISSING, Samples, Values};
use crate::data::schema::{A_WEIGHT, is_weight};
use crate::data::{Labels, Lost};

/// Where the columns of a schema stand in a record.
pub(in crate::data) struct Projection {
    pub(in crate::data) schema: TextSchema,
    /// The label's column and its rule.
    label_name: String,
    rule: Rule,
    pub(super) labels: Labels,
    /// Whether the schema is one that a trained model keeps.
    kept: bool,
    /// Whether dense columns that the schema does not call fractions must hold integers.
    integers: bool,
    /// Columns of a record.
    width: usize,
    /// Label (nowhere, if there need be none), dense, categorical, weights.
    label: Option<usize>,
    /// The weight's is nowhere where there need be no label: whoever predicts weighs no row.
    dense: Vec<Option<usize>>,
    categorical: Vec<usize>,
    weights: Vec<Option<usize>>,
}

/// The numbers of one row; reused from row to row. `K` is what stands for a categorical value: its row of a table, or
/// what becomes that.
pub(in crate::data) struct Row<K> {
    pub(in crate::data) label: f32,
    pub(in crate::data) dense: Vec<Option<f64>>,
    /// Whether each dense value is an i32, or nothing.
    pub(super) whole: Vec<bool>,
    pub(in crate::data) lookups: Vec<Weighed<K>>,
}

/// The rows of a bag, and their weights.
pub(in crate::data) struct Weighed<K> {
    pub(in crate::data) rows: Vec<K>,
    pub(in crate::data) weights: Vec<f32>,
    /// Values without a row.
    unseen: u64,
    /// Whether the field is blank, and no list.
    is_blank: bool,
}

impl Projection {
    /// Finds the columns in a file's header.
    pub(in crate::data) fn find(path: &Path, schema: &TextSchema, header: &[Vec<u8>], labels: Labels) -> Result<Self> {
        let names = header.iter().map(Vec::as_slice);
        let (label_name, rule) = Rule::of(&schema.label, names).map_err(|reason| bad(path, reason))?;
        let place = |name: &str| place(header, name, schema.columns.is_empty()).map_err(|reason| bad(path, reason));
        let has_label = labels == Labels::Required || header.iter().any(|field| field == label_name.as_bytes());
        let label = has_label.then(|| place(&label_name)).transpose()?;
        let categorical = &schema.categorical;
        let weights = categorical.iter().filter_map(|column| column.weights.as_ref());
        let features = schema.dense.iter().filter(|column| !column.weighs).map(|column| &column.column);
        let read = features.chain(categorical.iter().map(|column| &column.column)).chain(weights);
        refuse_shared(read.map(|name| Ok((place(name)?, &**name))).collect::<Result<_>>()?)
            .map_err(|reason| bad(path, reason))?;
        Ok(Self {
            labels,
            kept: false,
            integers: false,
            width: header.len(),
            label,
            dense: schema
                .dense
                .iter()
                .map(|column| (!column.weighs || labels == Labels::Required).then(|| place(&column.column)).transpose())
                .collect::<Result<_>>()?,
            categorical: categorical.iter().map(|column| place(&column.column)).collect::<Result<_>>()?,
            weights: categorical
                .iter()
                .map(|column| column.weights.as_deref().map(place).transpose())
                .collect::<Result<_>>()?,
            label_name,
            rule,
            schema: schema.clone(),
        })
    }

    /// The same columns, where dense values that are no integers of 32 bits are refused unless the schema calls them
    /// fractions: whoever reads a file but once must be told.
    pub(in crate::data) fn of_integers(self) -> Self {
        Self { integers: true, ..self }
    }

    /// The same columns, by a schema that a trained model keeps (or not): no message advises to edit it.
    pub(super) fn kept(self, kept: bool) -> Self {
        Self { kept, ..self }
    }

    /// What to do where a row without names has one field less than the schema lists, which may be the label or the
    /// weight, and other fields stand between these.
    fn one_of_two(&self, fields: usize) -> Option<String> {
        let weight = self.schema.weight.as_ref().filter(|_| self.labels != Labels::Required)?;
        (fields + 1 == self.schema.columns.len()).then(|| {
            format!(
                "is it the label ({}) or the weight ({weight}) that is missing? write both or neither",
                self.label_name
            )
        })
    }

    /// What is wrong with a field, and how the schema would tell that it stands for a missing value.
    fn advised(&self, reason: String, field: &[u8]) -> String {
        if self.kept { reason } else { reason + &missing_hint(field) }
    }

    /// Columns of a record.
    pub(in crate::data) fn width(&self) -> usize {
        self.width
    }

    /// Whether rows have a label.
    pub(in crate::data) fn is_labelled(&self) -> bool {
        self.label.is_some()
    }

    /// The label's column.
    pub(in crate::data) fn label_name(&self) -> &str {
        &self.label_name
    }

    /// A field of a record; a blank one where its text counts as that.
    fn field<'r>(&self, record: &'r Record, at: usize) -> &'r [u8] {
        let (field, missing) = (&record[at], &self.schema.missing);
        let is_blank = !missing.is_empty() && missing.iter().any(|text| text.as_bytes() == trimmed(field));
        if is_blank { b"" } else { field }
    }

    /// Behind what is wrong with a field: that its text is one that counts as blank, if so.
    fn told_missing(&self, record: &Record, at: usize) -> &'static str {
        let is_missing = self.field(record, at).is_empty() && !record[at].is_empty();
        if is_missing { ", which counts as blank (the schema's `missing` has it)" } else { "" }
    }

    /// The label; NaN where there is none.
    fn label_of(&self, record: &Record) -> std::result::Result<f32, Reason> {
        let Some(at) = self.label else { return Ok(f32::NAN) };
        let field = self.field(record, at);
        let label = self.rule.label(field);
        // Without names a field that is no label may be another column's, in a row that has one field too many.
        let is_unused = self.labels == Labels::Unused && self.schema.columns.is_empty();
        let is_optional = self.labels != Labels::Required;
        if label.is_none() && (is_unused || is_optional && field.trim_ascii().is_empty()) {
            return Ok(f32::NAN);
        }
        label.ok_or_else(|| {
            let (column, expected) = (&self.label_name, self.rule.expects());
            let reason = found_instead(column, expected, &record[at]) + self.told_missing(record, at);
            match self.rule.advice(column, field, self.kept) {
                Some(advice) => Reason::with_remedy(format!("{reason}: {advice}")),
                None => reason.into(),
            }
        })
    }

    /// A dense field, nothing where it is blank; and whether it is an i32.
    fn dense_of(&self, column: usize, record: &Record) -> std::result::Result<(Option<f64>, bool), String> {
        let spec = &self.schema.dense[column];
        let Some(at) = self.dense[column] else { return Ok((Some(1.0), false)) };
        let held = self.field(record, at).trim_ascii();
        if spec.weighs {
            let weight = number(trimmed(held)).filter(|weight| is_weight(*weight as f32));
            let weight = weight
                .ok_or_else(|| found_instead(&spec.column, A_WEIGHT, &record[at]) + self.told_missing(record, at))?;
            return Ok((Some(weight), false));
        }
        if let Some(count) = spec.counted(held) {
            return Ok((Some(count.into()), true));
        }
        let field = trimmed(held);
        if field.is_empty() {
            return Ok((None, true));
        }
        let unit = spec.unit();
        let value = match unit {
            Some(unit) => unit.parse(field).map(|moment| moment.0.into()),
            None => number(field).filter(|value| (*value as f32).is_finite()),
        };
        let integers = self.integers && !spec.float;
        // Where kinds are found out, a number between blanks that are none of ASCII's has always been a fraction: data
        // that a model was trained on keep their kind.
        let text = std::str::from_utf8(if integers { field } else { held }).unwrap_or_default();
        // The smallest i32 means that there is none.
        let whole = unit.is_some() || text.parse().is_ok_and(|value: i32| value != MISSING);
        let value = value.filter(|_| whole || !integers).ok_or_else(|| {
            let expected = match unit {
                Some(unit) => unit.expects(),
                None if integers => "an integer of at most 32 bits (fractions need float = true)",
                None => "a finite number",
            };
            let reason = found_instead(&spec.column, expected, field);
            let is_truth = TRUTHS.as_flattened().iter().any(|word| word.as_bytes() == field);
            match is_truth && !self.kept {
                true => reason + ": is it a category (then [[categorical]] reads it)?",
                false => self.advised(reason, field),
            }
        })?;
        Ok((Some(value), whole))
    }

    /// Calls `each` with every value of a categorical column.
    pub(super) fn each_value<E: From<String>>(
        &self,
        column: usize,
        record: &Record,
        each: impl FnMut(&[u8], f32) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let weights = self.weights[column].map(|at| self.field(record, at));
        self.schema.categorical[column].each_value(self.field(record, self.categorical[column]), weights, each)
    }
}

/// Where a column stands among those of a header or, without one, those that a schema lists; as of the label, blanks
/// around its name, as some programs write them behind a comma, need not be said, unless another one's tell the two.
///
/// # Errors
/// That there is none, or another one of that name, and what to do.
pub(super) fn place(names: &[Vec<u8>], name: &str, are_header: bool) -> std::result::Result<usize, String> {
    let is_exact = names.iter().any(|field| field == name.as_bytes());
    let is_it = |field: &[u8]| if is_exact { field == name.as_bytes() } else { is_named(field, name) };
    let mut found = (0..).zip(names).filter(|(_, field)| is_it(field)).map(|(at, _)| at);
    let (whose, lists) = if are_header { ("its header", "has") } else { ("the schema", "lists") };
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(at),
        (Some(first), Some(second)) => Err(format!(
            "{whose} {lists} two columns {name}, numbers {} and {}: give one of them another name",
            first + 1,
            second + 1
        )),
        (None, _) => {
            let has_name = |parts: &[&[u8]]| parts.contains(&name.as_bytes());
            // Of several names the delimiter is the right one.
            let one = if are_header && names.len() == 1 { names.first() } else { None };
            if let Some(advice) = one.and_then(|field| separated(field, None, has_name)) {
                return Err(format!("has no column {name}: {advice}"));
            }
            if names.iter().any(|name| name.contains(&0)) {
                return Err(format!("has no column {name}, and {whose} is no text: name a file of text"));
            }
            let known: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            let meant = escaped(&meant(name, known.iter().map(|name| &**name)));
            let known = listed(known.iter().map(|name| &**name));
            Err(format!("has no column {name}{meant}; {whose} {lists} {known}"))
        }
    }
}

/// Refuses a column of a file that two names of a schema find, each with its place: one of the two is not there, and
/// would have the other one's values.
fn refuse_shared(mut read: Vec<(usize, &str)>) -> std::result::Result<(), String> {
    read.sort_unstable();
    let shared = read.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1);
    shared.map_or(Ok(()), |pair| {
        let ((at, one), (_, other)) = (pair[0], pair[1]);
        Err(format!(
            "has one column, number {}, for {one:?} and {other:?}, which the schema reads as two: a file with both is expected",
            at + 1
        ))
    })
}

/// Whether a field is a name, but for blanks around both.
pub(in crate::data) fn is_named(field: &[u8], name: &str) -> bool {
    trimmed(field) == trimmed(name.as_bytes())
}

impl<K> Weighed<K> {
    const fn of(rows: Vec<K>, weights: Vec<f32>) -> Self {
        Self { rows, weights, unseen: 0, is_blank: false }
    }
}

impl<K> Row<K> {
    pub(in crate::data) fn new(columns: &Projection) -> Self {
        let (dense, whole) = (vec![None; columns.dense.len()], vec![true; columns.dense.len()]);
        let bags = columns.categorical.iter().map(|_| Weighed::of(Vec::new(), Vec::new()));
        Self { label: 0.0, dense, whole, lookups: bags.collect() }
    }

    /// Reads a record; `row_of` gives a categorical column's value its row, nothing where it has none.
    ///
    /// # Errors
    /// What is wrong with it; the row's numbers are then unspecified.
    pub(in crate::data) fn read(
        &mut self,
        record: &Record,
        columns: &Projection,
        row_of: impl Fn(usize, &TextCategorical, &[u8]) -> std::result::Result<Option<K>, Reason>,
    ) -> std::result::Result<(), Reason> {
        if record.len() != columns.width {
            let whose = if columns.schema.columns.is_empty() { "as in the header" } else { "as the schema lists" };
            // A header that was read has shown that the delimiter is right.
            let unsure = record.len() == 1 && !columns.schema.columns.is_empty();
            let kept = columns.kept.then_some(columns.schema.delimiter);
            let advice = unsure.then(|| separated(&record[0], kept, |parts| parts.len() == columns.width)).flatten();
            let advice = advice.or_else(|| columns.one_of_two(record.len()));
            let reason = format!("expected {} columns {whose}, found {}", columns.width, record.len());
            return Err(match advice {
                Some(advice) => Reason::with_remedy(format!("{reason}: {advice}")),
                None => reason.into(),
            });
        }
        self.label = columns.label_of(record)?;
        for (column, (value, whole)) in self.dense.iter_mut().zip(&mut self.whole).enumerate() {
            (*value, *whole) = columns.dense_of(column, record)?;
        }
        for (column, bag) in self.lookups.iter_mut().enumerate() {
            bag.rows.clear();
            bag.weights.clear();
            (bag.unseen, bag.is_blank) = (0, false);
            let spec = &columns.schema.categorical[column];
            let is_single = spec.separator.is_none();
            // Of values whose rows follow from them, those that are not what is expected have none.
            let advised = |reason: Reason, value: &[u8]| match spec.fixed_rows() {
                Some(_) => columns.advised(reason.to_string(), value).into(),
                None => reason,
            };
            columns.each_value(column, record, |value, weight| {
                bag.is_blank = is_single && value.is_empty();
                match row_of(column, spec, value).map_err(|reason| advised(reason, value))? {
                    Some(row) => {
                        bag.rows.push(row);
                        bag.weights.push(weight);
                    }
                    None => bag.unseen += 1,
                }
                Ok::<(), Reason>(())
            })?;
        }
        Ok(())
    }
}

impl Row<u32> {
    /// Becomes a row without numbers, whose categories have the first row of each table: one that stands in the place
    /// of a malformed one.
    pub(super) fn stand_in(&mut self, columns: &Projection) {
        self.label = f32::NAN;
        let dense = self.dense.iter_mut().zip(&columns.schema.dense);
        dense.for_each(|(value, spec)| *value = spec.weighs.then_some(1.0));
        for bag in &mut self.lookups {
            *bag = Weighed::of(vec![0], vec![1.0]);
        }
    }

    /// Whether a value has no row.
    pub(super) fn has_unseen(&self) -> bool {
        self.lookups.iter().any(|bag| bag.unseen > 0)
    }

    /// What its look-ups do not show, column by column.
    pub(super) fn lost(&self) -> impl Iterator<Item = Lost> {
        self.lookups.iter().map(|bag| Lost {
            values: bag.unseen,
            emptied: u64::from(bag.unseen > 0 && bag.rows.is_empty()),
            blanks: u64::from(bag.is_blank),
            tells_blanks: false,
        })
    }

    /// Appends the row to others.
    pub(super) fn push(&self, samples: &mut Samples, columns: &Projection, lists: &[bool]) {
        samples.labels.push(self.label);
        for (values, value) in samples.dense.iter_mut().zip(&self.dense) {
            match values {
                // Exact: only i32s are in such a column.
                Values::Integers(values) => values.push(value.map_or(MISSING, |value| value as i32)),
                Values::Floats(values) => values.push(value.map_or(f32::NAN, |value| value as f32)),
            }
        }
        let specs = columns.schema.categorical.iter().zip(lists);
        for ((lookups, bag), (spec, &list)) in samples.lookups.iter_mut().zip(&self.lookups).zip(specs) {
            lookups.rows.extend_from_slice(&bag.rows);
            if spec.weighted() {
                lookups.weights.extend_from_slice(&bag.weights);
            }
            if list {
                lookups.ends.push(lookups.rows.len() as u32);
            }
        }
    }
}
