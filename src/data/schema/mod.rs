//! What a sample consists of: how many dense features, and which categorical columns with how many values.
//!
//! The model is sized from [`Schema`]: one embedding table a categorical column. [`Description`] says what the rows of
//! a stored data set hold, column by column.

mod description;
pub mod feature;

use crate::base::config::{Interaction, ModelConfig};
use crate::base::error::meant;
use crate::base::units::Many;
use crate::base::{Error, Result};
use crate::data::Vocabulary;
pub use description::{A_WEIGHT, Categorical, Dense, Description, Label, Transform, check_names, is_weight};
pub use feature::{Scale, Scales};

/// The columns of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    /// Dense features a sample.
    pub dense: usize,
    /// Whether every sample has a weight, by which its loss and its share of scores count.
    pub weighted: bool,
    /// Categorical columns, in order.
    pub tables: Vec<Column>,
}

/// A categorical column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, for people.
    pub name: String,
    /// Distinct values: row numbers are below this. At most 2^32 - 1.
    pub rows: u64,
    /// Whether every look-up has a weight, which its row is multiplied by.
    pub weighted: bool,
    /// Look-ups of a sample for which there is room from the beginning; more are possible, but allocate memory when
    /// they come.
    pub lookups: usize,
    /// Whether the last row is that of all values which the vocabulary does not know, and of no other.
    pub unseen_row: bool,
}

/// The columns that a trained model reads, as its checkpoint has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainedColumns {
    /// The names of categorical columns, in order.
    pub names: Vec<String>,
    /// The rows of their tables.
    pub rows: Vec<u64>,
    /// Names of dense columns, with how numbers are transformed ([`Dense::title`]); `None` where nobody has said.
    pub dense: Option<Vec<(String, String)>>,
    /// The label; `None` where nobody has said.
    pub label: Option<Label>,
    /// The column of samples' weights, where they had some.
    pub weight: Option<String>,
}

impl Column {
    /// A column of one look-up a sample, which all count the same.
    #[must_use]
    pub fn new(name: impl Into<String>, rows: u64) -> Self {
        Self { name: name.into(), rows, weighted: false, lookups: 1, unseen_row: false }
    }

    /// The row of all values that the vocabulary does not know, if there is one.
    #[must_use]
    pub fn unseen(&self) -> Option<u64> {
        self.unseen_row.then(|| self.rows - 1)
    }
}

impl Schema {
    /// Criteo's layout: I1 to I13 and C1 to C26, or C1 to Cn for as many `rows` as are given.
    #[must_use]
    pub fn criteo(dense: usize, rows: &[u64]) -> Self {
        let tables = rows.iter().zip(1..).map(|(&rows, n)| Column::new(format!("C{n}"), rows)).collect();
        Self { dense, weighted: false, tables }
    }

    /// With these names of columns; with its own where there are none.
    #[must_use]
    pub fn named(mut self, columns: &[String]) -> Self {
        self.tables.iter_mut().zip(columns).for_each(|(column, name)| column.name.clone_from(name));
        self
    }

    /// Names of every column.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.tables.iter().map(|column| column.name.clone()).collect()
    }

    /// Rows of every table.
    #[must_use]
    pub fn rows(&self) -> Vec<u64> {
        self.tables.iter().map(|column| column.rows).collect()
    }

    /// Look-ups of a sample in all tables together.
    #[must_use]
    pub fn lookups(&self) -> usize {
        self.tables.iter().map(|column| column.lookups).sum()
    }

    /// The most look-ups of a sample in one table.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.tables.iter().map(|column| column.lookups).max().unwrap_or(1)
    }

    /// With so many look-ups of a sample in each table.
    #[must_use]
    pub fn with_lookups(mut self, of: impl Fn(usize) -> usize) -> Self {
        self.tables.iter_mut().enumerate().for_each(|(table, column)| column.lookups = of(table));
        self
    }

    /// With what a vocabulary of its columns says of rows for values that are not listed. The only row of a table is
    /// all values'.
    #[must_use]
    pub fn with_unseen_rows(mut self, known: Option<&Vocabulary>) -> Self {
        for (number, column) in self.tables.iter_mut().enumerate() {
            column.unseen_row = column.rows > 1 && known.is_some_and(|known| known.has_unseen_row(number));
        }
        self
    }

    /// By table, as how many rows side by side a sample's look-ups reach a model: 1 where they are pooled, and where
    /// they are the steps of its time series, as many as that has.
    #[must_use]
    pub fn positions(&self, model: &ModelConfig) -> Vec<usize> {
        let is_sequence = |column: &Column| match &model.sequences[..] {
            [] => column.lookups > 1,
            names => names.contains(&column.name),
        };
        self.tables.iter().map(|column| if is_sequence(column) { model.steps() } else { 1 }).collect()
    }

    /// The names of the columns that are the steps of a model's time series; none where it has no time series.
    ///
    /// # Errors
    /// [`Error::Config`] when the model names a column that is not there, or no column can be its steps.
    pub fn sequences(&self, model: &ModelConfig) -> Result<Vec<String>> {
        if model.ts_length == 0 {
            return Ok(Vec::new());
        }
        let fail = |origin: &str, reason| Err(Error::config(origin, reason));
        let names = || self.tables.iter().map(|column| &*column.name);
        if let Some(name) = model.sequences.iter().find(|name| names().all(|known| known != **name)) {
            let meant = meant(name, names());
            let all = names().collect::<Vec<_>>().join(", ");
            let reason = format!("the data has no column {name}{meant}: its categorical columns are {all}");
            return fail("model.sequences", reason);
        }
        let steps = self.tables.iter().zip(self.positions(model)).filter(|(_, positions)| *positions > 1);
        let steps: Vec<String> = steps.map(|(column, _)| column.name.clone()).collect();
        if steps.is_empty() {
            let reason = "model.ts_length is above 0, but no column has several look-ups a sample, which would be the steps of a time \
                          series: name the columns that are steps in model.sequences, or use model.ts_length = 0";
            return fail("model.ts_length", reason.to_owned());
        }
        Ok(steps)
    }

    /// Checks that a model can read this data: that it has as many dense inputs, and that something meets in its
    /// interaction.
    ///
    /// # Errors
    /// [`Error::Config`] with both sides.
    pub fn check_model(&self, model: &ModelConfig) -> Result<()> {
        let fail = |reason| Err(Error::config("model.bottom", reason));
        let (own, dense) = (self.dense, model.dense());
        if own != dense {
            let inputs = own + model.positions();
            let remedy = match inputs {
                0 => "set it to [], or its first entry to 0, which takes as many as there are".to_owned(),
                _ => format!("set its first entry to {inputs}, or to 0, which takes as many as there are"),
            };
            let there = Many(own as u64, "dense feature");
            if model.bottom.is_empty() {
                let layers = format!("[0, {}], whose 0 takes as many as there are", model.dim);
                return fail(format!(
                    "the data has {there} but model.bottom is [], which takes none: set it to {layers}"
                ));
            }
            let starts = model.bottom[0];
            let counted = if model.ts_length > 0 { ", of which the position of a step is one" } else { "" };
            return fail(format!("the data has {there} but model.bottom starts with {starts}{counted}: {remedy}"));
        }
        if self.tables.is_empty() {
            let reason = "the data has no categorical column, so that the model has no embedding table: add a column to what \
                          describes the data (a dense one may be cut into buckets)";
            return Err(Error::config("data", reason));
        }
        self.sequences(model)?;
        if !model.layers.is_empty() {
            let told = |reason| Error::config("model.layers", reason);
            // Tables that the model derives from columns are behind those of the columns.
            let own = if model.columns.is_empty() { self.names() } else { model.columns.clone() };
            return model.widths(Some(&own)).map(|_| ()).map_err(told);
        }
        let dense = if model.bottom.is_empty() { 0 } else { dense + model.positions() };
        let vectors = model.vectors(self.tables.len()) + usize::from(dense > 0);
        let needed = if model.interaction == Interaction::Dot && !model.interaction_itself { 2 } else { 1 };
        if vectors < needed && !(dense > 0 && vectors > 0) {
            return fail(format!(
                "without dense features, the interaction of {} gives the top MLP nothing to read: add columns, or use \
                 model.interaction = \"cat\"",
                Many(vectors as u64, "table")
            ));
        }
        Ok(())
    }
}
