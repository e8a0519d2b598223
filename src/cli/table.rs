//! A table of text: the first column and columns of words to the left, numbers to the right.

use std::fmt;

/// Rows of cells; every row is as long as the first, which holds the headings.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of words, besides the first.
    words: Vec<usize>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut table = Self::default();
        table.row(headings);
        table
    }

    /// Sets this column to the left as well.
    pub fn words(mut self, column: usize) -> Self {
        self.words.push(column);
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |text| text.chars().count());
        let widths: Vec<usize> =
            (0..columns).map(|column| self.rows.iter().map(|row| cell(row, column)).max().unwrap_or(0)).collect();
        for row in &self.rows {
            for (column, (text, width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => write!(f, "  {text:<width$}")?,
                    _ if self.words.contains(&column) && column + 1 == columns => write!(f, "   {text}")?,
                    _ if self.words.contains(&column) => write!(f, "   {text:<width$}")?,
                    _ => write!(f, "   {text:>width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
