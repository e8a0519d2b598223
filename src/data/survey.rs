//! What a data set holds: labels, missing values, cardinalities, skew, and the shape of every column.

use std::collections::HashMap;

use serde::Serialize;

use super::moment::DAY;
use super::samples::Samples;
use super::schema::Description;

/// Bars of a column's picture.
const BARS: usize = 16;
/// Numbers of a [`SystematicSample`] at which every second one goes.
const KEPT: usize = 8192;

/// What was seen of a data set.
#[derive(Debug, Clone)]
pub struct Survey {
    rows: u64,
    label_sum: f64,
    dense: Vec<DenseSeen>,
    categorical: Vec<CategoricalSeen>,
}

#[derive(Debug, Clone)]
struct DenseSeen {
    missing: u64,
    negative: u64,
    present: u64,
    least: f64,
    most: f64,
    sum: f64,
    /// For its picture.
    kept: SystematicSample,
}

/// Some of many numbers, evenly spread over the order in which they come.
#[derive(Debug, Clone)]
pub(in crate::data) struct SystematicSample {
    kept: Vec<f64>,
    /// Of so many numbers one is kept.
    stride: u64,
}

#[derive(Debug, Clone, Default)]
struct CategoricalSeen {
    /// The row of a blank field, where that is no other value's: it is no look-up here.
    blank: Option<u32>,
    accesses: HashMap<u32, u64>,
    lookups: u64,
    empty: u64,
    longest: u64,
    /// Sum of weights.
    weights: f64,
}

/// The findings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// Rows that were looked at.
    pub rows: u64,
    /// Their mean label; nothing without rows.
    pub label_rate: Option<f64>,
    /// One entry a dense column.
    pub dense: Vec<DenseFindings>,
    /// One entry a categorical column.
    pub categorical: Vec<CategoricalFindings>,
}

/// A dense column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DenseFindings {
    /// Its name; of moments that become ages, all numbers are days before the newest that was seen.
    pub name: String,
    /// Share of rows without a value.
    pub missing: f64,
    /// Share of rows with a negative one.
    pub negative: f64,
    /// The smallest; nothing where all are missing, as the next two.
    pub least: Option<f64>,
    /// Mean of those present.
    pub mean: Option<f64>,
    /// The greatest.
    pub most: Option<f64>,
    /// Shares of values, from small to large; integers by their logarithm.
    pub shape: Vec<f64>,
}

/// A categorical column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CategoricalFindings {
    /// Its name.
    pub name: String,
    /// Values that occur.
    pub distinct: u64,
    /// Rows of its table, where the data set says so.
    pub rows: Option<u64>,
    /// Share of rows without a look-up.
    pub missing: f64,
    /// Mean look-ups a row.
    pub lookups: f64,
    /// The most look-ups of a row.
    pub lookups_max: u64,
    /// The mean weight of a look-up; nothing where all count the same.
    pub weight_mean: Option<f64>,
    /// Share of look-ups that the most frequent 1 % of the occurring values (at least one) take.
    pub hottest_share: f64,
    /// Shares of look-ups by frequency rank: the first value, the next 2, the next 4 …
    pub shape: Vec<f64>,
}

impl Survey {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(description: &Description) -> Self {
        let dense = DenseSeen {
            missing: 0,
            negative: 0,
            present: 0,
            least: f64::INFINITY,
            most: f64::NEG_INFINITY,
            sum: 0.0,
            kept: SystematicSample::default(),
        };
        Self {
            rows: 0,
            label_sum: 0.0,
            dense: vec![dense; description.dense.len()],
            categorical: vec![CategoricalSeen::default(); description.categorical.len()],
        }
    }

    /// The same, where blank fields of text have these rows, if they have some of their own: one entry a categorical
    /// column, or none at all.
    #[must_use]
    pub fn with_blanks(mut self, rows: &[Option<u32>]) -> Self {
        self.categorical.iter_mut().zip(rows).for_each(|(seen, row)| seen.blank = *row);
        self
    }

    /// Looks at samples.
    pub fn add(&mut self, samples: &Samples, description: &Description) {
        self.rows += samples.len() as u64;
        self.label_sum += samples.labels.iter().map(|&label| f64::from(label)).sum::<f64>();
        for (seen, values) in self.dense.iter_mut().zip(&samples.dense) {
            (0..values.len()).for_each(|at| seen.add(values.number(at)));
        }
        for ((seen, lookups), column) in self.categorical.iter_mut().zip(&samples.lookups).zip(&description.categorical)
        {
            for (at, &row) in lookups.rows.iter().enumerate() {
                if Some(row) == seen.blank {
                    seen.empty += 1;
                    continue;
                }
                *seen.accesses.entry(row).or_insert(0) += 1;
                seen.lookups += 1;
                seen.weights += lookups.weights.get(at).map_or(0.0, |&weight| f64::from(weight));
            }
            if column.hots > 0 {
                seen.longest = u64::from(column.hots);
                continue;
            }
            let mut before = 0;
            for &end in &lookups.ends {
                seen.empty += u64::from(end == before);
                seen.longest = seen.longest.max(u64::from(end - before));
                before = end;
            }
        }
    }

    /// What was found. `known_rows`: whether the description's table sizes come from the data set.
    #[must_use]
    pub fn findings(&self, description: &Description, known_rows: bool) -> Findings {
        let share = |count: u64| count as f64 / self.rows.max(1) as f64;
        let dense = self.dense.iter().zip(&description.dense).map(|(seen, column)| {
            let present = |value: f64| (seen.present > 0).then_some(value);
            let mean = seen.sum / seen.present as f64;
            let (least, mean, most) = if column.age {
                // Of moments, the age in days against the newest that was seen.
                let days = |moment: f64| (seen.most - moment) / DAY as f64;
                (0.0, days(mean), days(seen.least))
            } else {
                (seen.least, mean, seen.most)
            };
            let mut shape = seen.shape(!column.float && !column.age);
            if column.age {
                shape.reverse();
            }
            DenseFindings {
                name: column.name.clone(),
                missing: share(seen.missing),
                negative: if column.age { 0.0 } else { share(seen.negative) },
                least: present(least),
                mean: present(mean),
                most: present(most),
                shape,
            }
        });
        let categorical = self.categorical.iter().zip(&description.categorical).map(|(seen, column)| {
            let (hottest_share, shape) = seen.skew();
            CategoricalFindings {
                name: column.name.clone(),
                distinct: seen.accesses.len() as u64,
                rows: known_rows.then_some(column.rows),
                missing: share(seen.empty),
                lookups: share(seen.lookups),
                lookups_max: seen.longest,
                weight_mean: column.weighted.then(|| seen.weights / seen.lookups.max(1) as f64),
                hottest_share,
                shape,
            }
        });
        Findings {
            rows: self.rows,
            // No number where samples have no label.
            label_rate: Some(self.label_sum / self.rows as f64).filter(|rate| rate.is_finite()),
            dense: dense.collect(),
            categorical: categorical.collect(),
        }
    }
}

impl DenseSeen {
    fn add(&mut self, value: Option<f64>) {
        let Some(value) = value else {
            self.missing += 1;
            return;
        };
        self.negative += u64::from(value < 0.0);
        self.least = self.least.min(value);
        self.most = self.most.max(value);
        self.sum += value;
        self.kept.push(self.present, value);
        self.present += 1;
    }

    /// Shares of the kept values in equal steps from the least to the greatest, of logarithms where these are counts.
    fn shape(&self, counts: bool) -> Vec<f64> {
        let place = |value: f64| if counts { value.signum() * libm::log1p(value.abs()) } else { value };
        let (least, most) = (place(self.least), place(self.most));
        let kept = self.kept.numbers();
        if kept.is_empty() || !(most - least).is_finite() {
            return Vec::new();
        }
        let mut bars = vec![0.0; BARS];
        for &value in kept {
            let at = (place(value) - least) / (most - least).max(f64::MIN_POSITIVE) * BARS as f64;
            bars[(at as usize).min(BARS - 1)] += 1.0 / kept.len() as f64;
        }
        bars
    }
}

impl Default for SystematicSample {
    fn default() -> Self {
        Self { kept: Vec::new(), stride: 1 }
    }
}

impl SystematicSample {
    /// Takes a number that comes behind so many others, or leaves it out.
    pub(in crate::data) fn push(&mut self, before: u64, number: f64) {
        if before.is_multiple_of(self.stride) {
            self.kept.push(number);
            if self.kept.len() == KEPT {
                let mut at = 0;
                self.kept.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.stride *= 2;
            }
        }
    }

    /// Those that were kept.
    pub(in crate::data) fn numbers(&self) -> &[f64] {
        &self.kept
    }
}

impl CategoricalSeen {
    /// The share of the hottest 1 %, and the shares by octaves of rank.
    fn skew(&self) -> (f64, Vec<f64>) {
        let mut counts: Vec<u64> = self.accesses.values().copied().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let all = self.lookups.max(1) as f64;
        let hot = (counts.len() / 100).max(1).min(counts.len());
        let share = counts[..hot].iter().sum::<u64>() as f64 / all;
        let (mut octaves, mut from) = (Vec::new(), 0);
        while from < counts.len() {
            let to = (2 * from + 1).min(counts.len());
            octaves.push(counts[from..to].iter().sum::<u64>() as f64 / all);
            from = to;
        }
        (share, octaves)
    }
}

/// A line of bars, the highest for the greatest share.
#[must_use]
pub fn sparkline(shares: &[f64]) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = shares.iter().copied().fold(0.0, f64::max);
    let level = |share: f64| LEVELS[((share / most.max(f64::MIN_POSITIVE) * 7.0).ceil() as usize).min(7)];
    shares.iter().map(|&share| level(share)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::samples::{MISSING, Values};
    use crate::data::schema::Dense;

    #[test]
    fn a_small_data_set_is_described_exactly() {
        let mut description = Description::criteo(1, &[1000, 1000]);
        description.dense.push(Dense { name: "f".to_owned(), float: true, ..description.dense[0].clone() });
        description.categorical[1].hots = 0;
        let mut samples = Samples::new(&description);
        for n in 0..200u32 {
            samples.labels.push(f32::from(u8::from(n % 4 == 0)));
            let Values::Integers(values) = &mut samples.dense[0] else { unreachable!() };
            values.push(if n < 50 { MISSING } else { n as i32 - 60 });
            let Values::Floats(values) = &mut samples.dense[1] else { unreachable!() };
            values.push(if n < 150 { 1.0 } else { f32::NAN });
            // Half of all look-ups go to one of 101 values.
            samples.lookups[0].rows.push(if n % 2 == 0 { 7 } else { 100 + n });
            if n % 5 > 0 {
                samples.lookups[1].rows.extend([1, 2, 3]);
            }
            let end = samples.lookups[1].rows.len() as u32;
            samples.lookups[1].ends.push(end);
        }
        samples.check(&description);
        let mut survey = Survey::new(&description);
        survey.add(&samples, &description);
        let found = survey.findings(&description, false);
        assert_eq!((found.rows, found.label_rate), (200, Some(0.25)));
        let dense = &found.dense[0];
        assert_eq!((dense.missing, dense.negative), (0.25, 0.05));
        assert_eq!((dense.least, dense.mean, dense.most), (Some(-10.0), Some(64.5), Some(139.0)));
        assert!((dense.shape.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert_eq!(found.dense[1].missing, 0.25);
        let column = &found.categorical[0];
        assert_eq!((column.distinct, column.rows, column.hottest_share), (101, None, 0.5));
        assert_eq!(column.shape[..2], [0.5, 0.01]);
        let column = &found.categorical[1];
        assert_eq!((column.distinct, column.missing, column.lookups_max), (3, 0.2, 3));
        assert!((column.lookups - 2.4).abs() < 1e-9);
        assert_eq!(sparkline(&[0.0, 0.5, 1.0]), "▁▅█");
        // Row 7 is that of blank fields: half of the first column's.
        let mut survey = Survey::new(&description).with_blanks(&[Some(7), None]);
        survey.add(&samples, &description);
        let blanks = &survey.findings(&description, false).categorical[0];
        assert_eq!((blanks.missing, blanks.distinct, blanks.lookups), (0.5, 100, 0.5));
        let empty = Survey::new(&description).findings(&description, true);
        assert_eq!(
            (empty.label_rate, empty.categorical[0].hottest_share, empty.categorical[0].rows),
            (None, 0.0, Some(1000))
        );
    }
}
