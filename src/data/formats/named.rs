//! Which files may be named together, and with a schema.

use std::path::Path;

use super::{Format, bad, csv};
use crate::base::config::DataConfig;
use crate::base::{Error, Result};

/// Refuses a schema for what is no text and describes itself; `trained`: it is that of a model, which reads no blocks.
///
/// # Errors
/// [`Error::BadFile`] that says what to name instead.
pub(in crate::data) fn refuse_described(path: &Path, trained: bool) -> Result<()> {
    match Format::detect(path) {
        Some(format) if format.is_described() => Ok(()),
        None => Ok(()),
        Some(format) => {
            let reason = match trained {
                true => {
                    "and this model reads text, or a Parquet file, by its own schema: name such a file with the columns that it \
                     was trained on"
                }
                false => {
                    "which needs no schema, but data.schema (--schema) names one: name a text file, or leave it away"
                }
            };
            Err(bad(path, format!("is of format {}, {reason}", format.name())))
        }
    }
}

/// Refuses test samples in files of another kind than the training samples, of which no flag would make one kind: text
/// in Criteo's layout, text with named columns, and data sets that tell their columns.
///
/// # Errors
/// [`Error::Config`] that names both.
pub fn refuse_mixed(config: &DataConfig) -> Result<()> {
    let described = !config.schema.is_empty();
    let kind = |path: &str| {
        let path = Path::new(path);
        let text = || match csv::sniff::header(path) {
            _ if described => "text",
            Some(_) => "text with named columns",
            None => "text without names of columns",
        };
        match Format::detect(path) {
            Some(format) if format == Format::Csv || described && format.is_described() => path.exists().then(text),
            Some(_) => Some("a data set that tells its columns"),
            None => path.is_file().then(text),
        }
    };
    if !config.is_stored() || config.test_path.is_empty() {
        return Ok(());
    }
    match (kind(&config.path), kind(&config.test_path)) {
        (Some(train), Some(test)) if train != test => {
            let (path, other) = (&config.path, &config.test_path);
            let reason = format!(
                "{other} is {test}, and {path} is {train}, so that their values would get other rows: name files of one kind \
                 for both; `octorec preprocess` makes a data set of text (of several files at once, or with --vocabulary by the \
                 rows of another one)"
            );
            Err(Error::config("data.test_path (--test-data)", reason))
        }
        _ => Ok(()),
    }
}
