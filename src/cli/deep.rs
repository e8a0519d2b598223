//! The tables of whose hot rows ranks may have copies: those of a model's deep part. A row of a wide part is one
//! weight: to copy all of its table to each rank is cheaper than to tell which rows are hot.

use std::path::PathBuf;

use crate::base::{Error, Result};
use crate::data::hot::HotSet;
use crate::data::{Schema, Source};

/// What a model reads, and the data set in it without the columns that a wide part adds.
pub struct DeepTables<'a> {
    all: &'a Schema,
    /// That data set.
    pub source: &'a dyn Source,
}

impl<'a> DeepTables<'a> {
    /// Of what a model reads.
    pub fn of(from: &'a dyn Source) -> Self {
        Self { all: from.schema(), source: from.without_wide().unwrap_or(from) }
    }

    /// Hot rows of these columns as those of all of the model's tables.
    pub fn of_all(&self, mut hot: HotSet) -> HotSet {
        for column in &self.all.tables[self.source.schema().tables.len()..] {
            hot.push_some(column.rows, std::iter::empty());
        }
        hot
    }

    /// Hot rows of these columns as those of all of the model's tables where hot inputs look up no others: of a wide
    /// part, whose rows are one weight each, a column's table has those of the column, and all of a cross are hot.
    pub fn with_wide(&self, mut hot: HotSet) -> HotSet {
        let columns = self.source.schema().tables.len();
        for (at, column) in self.all.tables[columns..].iter().enumerate() {
            if at < columns {
                hot.push_again(at);
            } else {
                hot.push_whole(column.rows);
            }
        }
        hot
    }

    /// Refuses a file's hot rows of all tables where they are of others than these.
    ///
    /// # Errors
    /// [`Error::BadFile`], which names the table.
    pub fn check(&self, hot: &HotSet, path: &str) -> Result<()> {
        let deep = self.source.schema().tables.len();
        let Some(table) = (deep..hot.tables()).find(|table| hot.rows(*table) > 0) else { return Ok(()) };
        let reason = format!(
            "hot rows of table {table} ({}), which is the wide part's: only the first {deep} tables are copied; write the file \
             with `octorec inspect --hot --out FILE`",
            self.all.tables[table].name
        );
        Err(Error::bad_file(PathBuf::from(path), reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{DataConfig, ModelConfig, SourceKind};
    use crate::data::Random;
    use crate::data::derived::Derived;

    #[test]
    fn the_columns_of_a_wide_part_are_left_away() {
        let config = DataConfig { source: SourceKind::Random, ..DataConfig::default() };
        let plain = || Random::new(&config, &[7, 40], 2).unwrap();
        let crosses = vec![vec!["C1".to_owned(), "C2".to_owned()]];
        let model = ModelConfig { wide: true, wide_crosses: crosses, wide_buckets: 50, ..ModelConfig::default() };
        let wide = Derived::of(&model, std::sync::Arc::new(plain())).unwrap();
        assert_eq!(wide.schema().tables.len(), 5);
        let deep = DeepTables::of(&*wide);
        assert_eq!(deep.source.schema(), plain().schema());
        let all = plain();
        assert_eq!(DeepTables::of(&all).source.schema(), all.schema(), "all columns, where there is no wide part");

        let mut hot = HotSet::new();
        hot.push_whole(7);
        hot.push_some(40, [3].into_iter());
        let all = deep.of_all(hot);
        let rows = |set: &HotSet| (0..set.tables()).map(|table| set.rows(table)).collect::<Vec<_>>();
        assert_eq!(rows(&all), [7, 1, 0, 0, 0]);
        assert_eq!(rows(&deep.with_wide(all.first(2))), [7, 1, 7, 1, 50]);
        deep.check(&all, "hot.safetensors").unwrap();
        let mut others = HotSet::new();
        others.push_whole(7);
        [40, 7].into_iter().for_each(|rows| others.push_some(rows, [3].into_iter()));
        [40, 50].into_iter().for_each(|rows| others.push_some(rows, std::iter::empty()));
        let message = deep.check(&others, "hot.safetensors").unwrap_err().to_string();
        assert!(message.contains("hot.safetensors") && message.contains("table 2 (wide C1)"), "{message}");
    }
}
