//! How often the rows of a table come: a Zipf distribution over rows by falling frequency.
//!
//! Row 0 is taken as the hottest, as numbering by first appearance nearly makes it; that is the unkind case for
//! contiguous rows. Sums are exact for the first rows and the integral of x^-s beyond, as in [`crate::data::zipf`];
//! here they only have to be good to a percent.

use super::scheme::Rows;
use crate::data::zipf::integral;

/// Rows that are summed one by one.
const EXACT: u64 = 64;

/// Each band of rows that are taken as equally frequent is this much longer than all rows before it.
const BAND: f64 = 0.25;

/// The frequencies of one table's rows: P(row k) is proportional to (k + 1)^-s.
#[derive(Debug, Clone)]
pub struct Skew {
    rows: u64,
    exponent: f64,
    /// The sum over the first k rows, for k up to [`EXACT`].
    head: Vec<f64>,
    total: f64,
}

impl Skew {
    /// Frequencies of `rows` rows with exponent `exponent`; 0: all alike.
    #[must_use]
    pub fn new(rows: u64, exponent: f64) -> Self {
        let mut head = vec![0.0];
        let mut sum = 0.0;
        for row in 1..=rows.min(EXACT) {
            sum += libm::pow(row as f64, -exponent);
            head.push(sum);
        }
        let mut skew = Self { rows, exponent, head, total: 1.0 };
        skew.total = skew.mass(rows);
        skew
    }

    /// The sum over the first `count` rows.
    fn mass(&self, count: u64) -> f64 {
        if self.exponent == 0.0 {
            return count as f64;
        }
        let known = self.head.len() as u64 - 1;
        match count <= known {
            true => self.head[count as usize],
            false => self.head[known as usize] + integral(known as f64 + 0.5, count as f64 + 0.5, self.exponent),
        }
    }

    /// The share of all look-ups that these rows take.
    #[must_use]
    pub fn share(&self, rows: &Rows) -> f64 {
        if rows.step == 1 {
            return (self.mass(rows.first + rows.count) - self.mass(rows.first)) / self.total;
        }
        if self.exponent == 0.0 {
            return rows.count as f64 / self.rows as f64;
        }
        let known = self.head.len() as u64 - 1;
        let (mut sum, mut members) = (0.0, 0);
        for row in (rows.first..known).step_by(rows.step as usize).take(rows.count as usize) {
            sum += self.head[row as usize + 1] - self.head[row as usize];
            members += 1;
        }
        if self.rows > known {
            let rest = self.total - self.head[known as usize];
            sum += rest * (rows.count - members) as f64 / (self.rows - known) as f64;
        }
        sum / self.total
    }

    /// How many rows take at least such a share of all look-ups each.
    #[must_use]
    pub fn hottest(&self, least: f64) -> u64 {
        let probability = |row: u64| libm::pow((row + 1) as f64, -self.exponent) / self.total;
        let (mut low, mut high) = (0, self.rows);
        while low < high {
            let middle = u64::midpoint(low, high);
            if probability(middle) >= least { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// How many different ones of these rows `draws` look-ups of the whole table are expected to name: the sum of
    /// 1 - (1 - p)^draws, by bands of rows that are nearly as frequent.
    #[must_use]
    pub fn unique(&self, rows: &Rows, draws: f64) -> f64 {
        if rows.step != 1 {
            // Parts that are dealt in turn are alike.
            let all = self.unique(&Rows::all(self.rows), draws);
            return (all * rows.count as f64 / self.rows as f64).min(draws * self.share(rows));
        }
        let seen = |probability: f64| -libm::expm1(-draws * probability);
        if self.exponent == 0.0 {
            return rows.count as f64 * seen(1.0 / self.total);
        }
        let (mut first, end) = (rows.first, rows.first + rows.count);
        let (mut sum, mut before) = (0.0, self.mass(first));
        while first < end {
            let next = (first + 1).max(first + (first as f64 * BAND) as u64).min(end);
            let after = self.mass(next);
            let count = (next - first) as f64;
            sum += count * seen((after - before) / self.total / count);
            (first, before) = (next, after);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::scheme::cyclic;

    #[test]
    fn shares_and_unique_rows_are_near_the_sums_over_all_rows() {
        for (rows, exponent) in [(1u64, 1.0), (50, 1.2), (5_000, 0.0), (5_000, 0.7), (20_000, 1.0), (20_000, 1.4)] {
            let skew = Skew::new(rows, exponent);
            let weight = |row: u64| ((row + 1) as f64).powf(-exponent);
            let total: f64 = (0..rows).map(weight).sum();
            let draws = 3_000.0;
            let mut parts = vec![Rows::all(rows), Rows { first: rows / 3, step: 1, count: rows - rows / 3 }];
            parts.extend((0..3).map(|part| cyclic(rows, 3, part)));
            for part in parts {
                let members = || (0..part.count).map(|local| weight(part.global(local)) / total);
                let share: f64 = members().sum();
                assert!((skew.share(&part) - share).abs() < 0.01 * share + 1e-6, "{rows} {exponent} {part:?}");
                let unique: f64 = members().map(|p| 1.0 - (1.0 - p).powf(draws)).sum();
                let found = skew.unique(&part, draws);
                assert!((found - unique).abs() < 0.03 * unique + 1.0, "{rows} {exponent} {part:?}: {found} {unique}");
            }
        }
    }
}
