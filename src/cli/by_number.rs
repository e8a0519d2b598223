//! Columns of numbers that are taken for rows of tables: what is said where identifiers make these larger than memory.

use std::path::Path;

use crate::base::config::Config;
use crate::base::{Error, Result};
use crate::data::{SizedBy, Source};

/// What makes the tables of a data set as large as its numbers ask for.
#[derive(Debug, Clone, Default)]
pub struct ByNumber {
    /// Nothing where values get their rows otherwise.
    by: Option<SizedBy>,
    /// The data, and the samples for tests.
    files: [String; 2],
    /// Rows of each column's table; none where they are those of `data.rows_cap`.
    rows: Vec<Option<u64>>,
}

impl ByNumber {
    /// Of the data that a configuration names.
    #[must_use]
    pub fn of(config: &Config, source: &dyn Source) -> Self {
        let tables = &source.schema().tables;
        // Others are a wide part's, of the same numbers or of none.
        let columns = &tables[..config.model.deep_tables(tables.len())];
        let cap = config.data.rows_cap;
        Self {
            by: source.about().sized_by.clone(),
            files: [&config.data.path, &config.data.test_path].map(String::clone),
            rows: columns.iter().map(|column| (cap == 0 || column.rows < cap).then_some(column.rows)).collect(),
        }
    }

    /// Of a table that is too large for its numbers, tells the column, where its rows come from, and what to do where
    /// they are none; other results stay.
    ///
    /// # Errors
    /// The result's, or [`Error::BadFile`] in the place of [`Error::ShardTooBig`].
    pub fn explain<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.told(&error).unwrap_or(error))
    }

    fn told(&self, error: &Error) -> Option<Error> {
        let Error::ShardTooBig { table, name, need, place, free, advice } = error else { return None };
        let rows = (*self.rows.get(table.index())?)?;
        let [data, tests] = &self.files;
        let (file, cause) = match self.by.as_ref()? {
            SizedBy::Greatest => {
                let there = if tests.is_empty() { String::new() } else { format!(", here or in {tests}") };
                let most = rows.saturating_sub(1);
                (
                    Path::new(data),
                    format!("column {name} has numbers up to {most}{there}, each of which is a row of its table"),
                )
            }
            SizedBy::File(file) => {
                (&**file, format!("says that the numbers of column {name} are rows of a table that has {rows}"))
            }
        };
        let reason = format!(
            "{cause}, for which {need} are needed, and {place} has {free} left: where they are identifiers, give rows to those \
             alone that there are, by a schema (`octorec inspect FILE --label COLUMN --write-schema SCHEMA`, then --schema SCHEMA; \
             `rows = N` in it hashes them to N rows; `octorec preprocess csv --schema SCHEMA` numbers them once for all runs), or \
             take them modulo N with --rows-cap N; where they are rows, {advice}"
        );
        Some(Error::bad_file(file, reason))
    }
}
