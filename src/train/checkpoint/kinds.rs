//! What a schema makes of fields: whether values become the rows and features that they became where a model was
//! trained, and what of it is read from other places of the text, or in another way.

use super::Checkpoint;
use super::place::schema;
use crate::base::Result;
use crate::base::config::{Config, Vocab};
use crate::base::console::note;
use crate::data::Source;
use crate::data::formats::csv::{self, Clock, TextCategorical, TextDense, TextSchema};

/// How values of a column get their rows, for people.
fn rows_by(column: &TextCategorical) -> String {
    let plain = match column.time {
        Some(Clock::Hour) => "by the hour",
        Some(Clock::Weekday) => "by the weekday",
        None if !column.buckets.is_empty() => {
            let edges: Vec<_> = column.buckets.iter().map(f64::to_string).collect();
            return format!("by buckets from {}", edges.join(", "));
        }
        None if column.rows > 0 => "by a hash",
        None => "by a vocabulary",
    };
    plain.to_owned()
}

/// What is the feature of a dense column's field, for people; what becomes of a number is told with the column.
fn feature_is(column: &TextDense) -> &'static str {
    if column.count.is_some() { "how many values a field has" } else { "the number in a field" }
}

/// How a key of a column is written: what it is, or nothing.
type Written<'a> = (&'static str, &'a str);

/// Where fields of a dense column are found, and how they are written.
fn dense_written(column: &TextDense) -> [Written<'_>; 4] {
    [
        ("column", &column.column),
        ("count", column.count.as_deref().unwrap_or_default()),
        ("padding", &column.padding),
        ("unit", column.unit().map_or("", |unit| unit.name())),
    ]
}

/// Where fields of a categorical column are found, and how they are written.
fn categorical_written(column: &TextCategorical) -> [Written<'_>; 6] {
    [
        ("column", &column.column),
        ("separator", column.separator.as_deref().unwrap_or_default()),
        ("padding", &column.padding),
        ("weights", column.weights.as_deref().unwrap_or_default()),
        ("weight_separator", column.weight_separator.as_deref().unwrap_or_default()),
        ("unit", column.time.map_or("", |_| column.unit.unwrap_or_default().name())),
    ]
}

/// The keys of a column that say another thing now, for people; nothing where none does.
fn changed(had: &[Written<'_>], has: &[Written<'_>]) -> Option<String> {
    let shown = |text: &str| if text.is_empty() { "none".to_owned() } else { format!("{text:?}") };
    let differ = had.iter().zip(has).filter(|((_, had), (_, has))| had != has);
    let told: Vec<_> =
        differ.map(|((key, had), (_, has))| format!("{key} = {} (was {})", shown(has), shown(had))).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// How the fields of data are read otherwise than those that a model was trained on, a sentence each: right where the
/// data are written otherwise.
fn read_otherwise(had: &TextSchema, has: &TextSchema) -> Vec<String> {
    let dense = had.dense.iter().zip(&has.dense).map(|(had, has)| (has.name(), dense_written(had), dense_written(has)));
    let dense = dense.filter_map(|(name, had, has)| Some((name, changed(&had, &has)?)));
    let categorical = had.categorical.iter().zip(&has.categorical);
    let categorical = categorical.map(|(had, has)| (has.name(), categorical_written(had), categorical_written(has)));
    let categorical = categorical.filter_map(|(name, had, has)| Some((name, changed(&had, &has)?)));
    let columns = dense.chain(categorical).map(|(name, what)| format!("column {name} is read with {what}"));
    let lacks = |of: &TextSchema, other: &TextSchema| of.missing.iter().any(|text| !other.missing.contains(text));
    let differs = lacks(had, has) || lacks(has, had);
    let blank =
        differs.then(|| format!("blank fields are read with missing = {:?} (was {:?})", has.missing, had.missing));
    let told = columns.chain(blank);
    told.map(|what| what + ", other than where this model was trained: right only if these data are written so")
        .collect()
}

impl Checkpoint<'_> {
    /// Checks that values of described columns become rows and features in the way in which those that the model was
    /// trained on became them, where both have a schema, and tells what is read otherwise; `flag` is that by which
    /// training begins or goes on.
    ///
    /// # Errors
    /// [`Error::Checkpoint`](crate::base::Error::Checkpoint) with the first column whose values become others.
    pub fn check_kinds(&self, config: &Config, source: &dyn Source, flag: &str) -> Result<()> {
        let Some(header) = self.sound_header() else { return Ok(()) };
        let described = |text: Option<&str>, config: &Config| {
            let mut schema = schema(text?)?;
            if config.data.vocab == Vocab::Hash {
                csv::hash(&mut schema, config.data.rows_cap).ok()?;
            }
            Some(schema)
        };
        let had = described(header.schema_text.as_deref(), &header.config);
        let has = described(source.about().schema_text.as_deref(), config);
        let Some((had, has)) = had.zip(has) else { return Ok(()) };
        let remedy = format!("describe it as it was, or train from the start, without {flag}");
        let mut categorical = had.categorical.iter().zip(&has.categorical);
        if let Some((had, has)) = categorical.find(|(had, has)| rows_by(had) != rows_by(has)) {
            return Err(self.fail(format!(
                "values of column {} got their rows {} where this model was trained, and get them {} by the schema of these \
                 data: {remedy}",
                has.name(),
                rows_by(had),
                rows_by(has)
            )));
        }
        let mut dense = had.dense.iter().zip(&has.dense);
        if let Some((had, has)) = dense.find(|(had, has)| feature_is(had) != feature_is(has)) {
            return Err(self.fail(format!(
                "the feature of column {} was {} where this model was trained, and is {} by the schema of these data: {remedy}",
                has.name(),
                feature_is(had),
                feature_is(has)
            )));
        }
        read_otherwise(&had, &has).iter().for_each(|told| note!("note: {flag}: {told}"));
        Ok(())
    }
}
