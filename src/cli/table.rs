//! A table of text: the first column and columns of words to the left, numbers to the right.

use std::fmt;

use super::terminal::wrapped;
use crate::base::console::escaped;

/// Rows of cells; every row is as long as the first, which holds the headings.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of words, besides the first.
    words: Vec<usize>,
    /// The longest line; every column is then one of words, and its cells have as many lines as they need.
    within: Option<usize>,
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

    /// Keeps lines to this width, as far as that leaves each column a few characters.
    pub fn within(mut self, width: usize) -> Self {
        self.within = Some(width);
        self
    }

    /// Adds a row; what cells have of files moves no cursor.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(|cell| escaped(&cell.into())).collect());
    }
}

impl Table {
    /// Writes it with columns of these widths; where a cell has several lines, blank ones part the rows.
    fn write_within(&self, f: &mut fmt::Formatter<'_>, widths: Vec<usize>) -> fmt::Result {
        let lines = |row: &Vec<String>| -> Vec<Vec<String>> {
            row.iter().zip(&widths).map(|(cell, &width)| wrapped(cell, width)).collect()
        };
        let rows: Vec<_> = self.rows.iter().map(lines).collect();
        let height = |row: &Vec<Vec<String>>| row.iter().map(Vec::len).max().unwrap_or(0);
        let parted = rows.iter().any(|row| height(row) > 1);
        for (number, row) in rows.iter().enumerate() {
            if parted && number > 0 {
                writeln!(f)?;
            }
            for at in 0..height(row) {
                let cell = |(lines, width): (&Vec<String>, &usize)| {
                    format!("{:<width$}", lines.get(at).map_or("", String::as_str))
                };
                let cells: Vec<_> = row.iter().zip(&widths).map(cell).collect();
                writeln!(f, "  {}", cells.join("   ").trim_end())?;
            }
        }
        Ok(())
    }
}

/// Widths of columns whose lines are at most this long together: the widest give way.
fn fitted(widths: &[usize], line: usize) -> Vec<usize> {
    /// What a column keeps.
    const LEAST: usize = 8;
    let room = line.saturating_sub(2 + 3 * widths.len().saturating_sub(1));
    let limit = (LEAST..=line).rev().find(|&most| widths.iter().map(|&width| width.min(most)).sum::<usize>() <= room);
    widths.iter().map(|&width| width.min(limit.unwrap_or(LEAST))).collect()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |text| text.chars().count());
        let widths: Vec<usize> =
            (0..columns).map(|column| self.rows.iter().map(|row| cell(row, column)).max().unwrap_or(0)).collect();
        if let Some(width) = self.within {
            return self.write_within(f, fitted(&widths, width));
        }
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
