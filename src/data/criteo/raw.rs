//! Generated samples as raw text in Criteo's layout, as other programs and the `tsv` source read it.

use std::io::{self, Write};
use std::ops::Range;

use super::Criteo;
use super::sample::Sample;
use crate::data::samples::{MISSING, Values};
use crate::data::{Description, Samples, Split};

impl Criteo {
    /// The columns of its samples as files store them.
    #[must_use]
    pub fn description(&self) -> Description {
        let mut description = Description::criteo(self.schema.dense, &self.schema.rows());
        for (column, (_, further)) in description.categorical.iter_mut().zip(&self.further) {
            column.hots = 1 + *further as u32;
        }
        description
    }

    /// Appends samples `range` of a split as files store them: counts, and row numbers.
    ///
    /// # Panics
    /// When `samples` are of another description than [`Criteo::description`].
    pub fn fill(&self, split: Split, range: Range<u64>, samples: &mut Samples) {
        let mut sample = Sample::default();
        for n in range {
            let number = self.counts.number(split, n);
            self.draw(number, &mut sample);
            samples.labels.push(f32::from(self.label(&sample)));
            for (values, integer) in samples.dense.iter_mut().zip(&sample.integers) {
                let Values::Integers(values) = values else { panic!("a click log counts in integers") };
                // Larger counts than an i32 holds are drawn next to never; the largest stands for them.
                values.push(integer.map_or(MISSING, |value| i32::try_from(value).unwrap_or(i32::MAX)));
            }
            for (table, lookups) in samples.lookups.iter_mut().enumerate() {
                self.look_up(table, number, &sample, &mut lookups.rows);
            }
        }
    }

    /// Writes samples `range` of a split: label, integers and 8-digit hexadecimal categories, separated by tabs; what
    /// is missing is empty, and there is no place for more than the first row of a bag. A category's value is a
    /// function of its column and row, different for every row and never 0.
    ///
    /// # Errors
    /// When `out` cannot be written to.
    pub fn write_tsv(&self, split: Split, range: Range<u64>, out: &mut impl Write) -> io::Result<()> {
        let mut sample = Sample::default();
        let mut line = Vec::new();
        for n in range {
            self.draw(self.counts.number(split, n), &mut sample);
            line.clear();
            write!(line, "{}", self.label(&sample))?;
            for integer in &sample.integers {
                line.push(b'\t');
                if let Some(value) = integer {
                    write!(line, "{value}")?;
                }
            }
            for (column, &value) in sample.values.iter().enumerate() {
                line.push(b'\t');
                let rows = self.schema.tables[column].rows;
                if !self.drawer.has_missing(column) || u64::from(value) + 1 < rows {
                    write!(line, "{:08x}", category(column, self.scatters[column].row(u64::from(value))))?;
                }
            }
            line.push(b'\n');
            out.write_all(&line)?;
        }
        Ok(())
    }
}

/// A bijection of the 32-bit words other than 0 (the row number is one less): 0 would read as missing.
fn category(column: usize, row: u32) -> u32 {
    // Odd factors and shifted xors are bijections that keep 0 where it is.
    let mut word = (row + 1).wrapping_mul(0x9E37_79B1 ^ (column as u32) << 1);
    word ^= word >> 15;
    word = word.wrapping_mul(0x2C1B_3C6D);
    word ^ word >> 13
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_are_distinct_and_never_read_as_missing() {
        let mut seen: Vec<u32> = (0..100_000).map(|row| category(3, row)).collect();
        seen.push(category(3, u32::MAX - 1));
        seen.sort_unstable();
        assert!(seen[0] > 0 && seen.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
