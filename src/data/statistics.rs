//! What samples look like, column by column, in few enough numbers for a checkpoint: by these, later data are compared
//! with those that a model was trained on.
//!
//! Dense values are counted as the model reads them, transformed, and those that are missing apart. A column's values
//! fall into bins: tenths of the training samples', or the most frequent rows of a table and all others. How far counts
//! in the same bins differ is told by the Population Stability Index (Siddiqi, "Credit Risk Scorecards", 2006): below
//! 0.1 little has changed, above 0.25 much.
//!
//! All sums are taken in the order of the samples, so that they depend on the data alone.

mod drawn;
mod known;

use drawn::{Drawn, LOOKED_AT, looked_at};
pub use known::Known;
use serde::{Deserialize, Serialize};

use super::samples::{Lookups, Values};
use super::schema::{Dense, Transform};
use super::{Lost, Source, Split, Stored};
use crate::base::Result;

/// Bins of a dense column.
const BINS: usize = 10;
/// Rows of a table that are bins of their own, at most.
const FREQUENT: usize = 15;
/// Values of such a row, at least: how often rarer ones come is chance, which would be taken for change.
const TELLING: usize = 20;

/// Of some samples.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Statistics {
    /// How many there are.
    pub samples: u64,
    /// Those of them that have a label.
    pub labelled: u64,
    /// The sum of the labels.
    pub label_sum: f64,
    /// The least label, and the greatest.
    pub label_range: Option<(f32, f32)>,
    /// One entry a dense feature.
    pub dense: Vec<DenseStatistics>,
    /// One entry a categorical column.
    pub categorical: Vec<CategoricalStatistics>,
}

/// Of a dense column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DenseStatistics {
    /// Samples without a value.
    pub missing: u64,
    /// Samples with one.
    pub present: u64,
    /// Values that the transform makes 0, since they are below what it is for.
    pub clipped: u64,
    /// The mean of values, as the model reads them.
    pub mean: f64,
    /// The sum of their squared distances from it.
    pub squares: f64,
    /// Bins of values: up to the first of these numbers, behind that up to the next, and behind the last.
    pub edges: Vec<f32>,
    /// Values in each bin.
    pub counts: Vec<u64>,
}

/// Of a categorical column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CategoricalStatistics {
    /// Samples without a value.
    pub missing: u64,
    /// Values that the model has not learned.
    pub unseen: u64,
    /// Some rows of the table, ascending.
    pub rows: Vec<u32>,
    /// Values of each of these rows, and of all others that are known.
    pub counts: Vec<u64>,
}

impl Statistics {
    /// Of a data set's training samples: of all where they are few, else of stretches all over them, or of the first
    /// ones where they can only be read from their beginning. Nothing where they are not stored.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn of_training(source: &dyn Source) -> Result<Option<Self>> {
        let Some(all) = source.samples(Split::Train).filter(|all| *all > 0) else { return Ok(None) };
        let mut drawn: Option<Drawn> = None;
        for range in looked_at(all, source.is_seekable(Split::Train)) {
            let is_stored = source.each_stored(Split::Train, range, &mut |stored| {
                drawn.get_or_insert_with(|| Drawn::new(stored, all.min(LOOKED_AT))).draw(stored.samples);
                Ok(())
            })?;
            if !is_stored {
                return Ok(None);
            }
        }
        Ok(drawn.filter(|drawn| !drawn.samples.is_empty()).map(|Drawn { samples, description, blanks, .. }| {
            let stored = Stored { samples: &samples, description: &description, blanks: &blanks };
            let mut found = Self::binned_by(stored);
            found.add(stored, &[]);
            found
        }))
    }

    /// No samples, whose values will fall into bins of these.
    fn binned_by(stored: Stored<'_>) -> Self {
        let Stored { samples, description, blanks } = stored;
        let edges = description.features().iter().zip(&samples.dense).map(|(column, values)| edges(column, values));
        let blank = |table: usize| blanks.get(table).copied().flatten();
        let rows = samples.lookups.iter().enumerate().map(|(table, lookups)| frequent(lookups, blank(table)));
        Self::with_bins(edges, rows)
    }

    /// No samples of these columns, whose values will not be told apart.
    #[must_use]
    pub fn of_columns(dense: usize, categorical: usize) -> Self {
        Self::with_bins((0..dense).map(|_| Vec::new()), (0..categorical).map(|_| Vec::new()))
    }

    /// No samples, whose values will fall into the same bins.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let edges = self.dense.iter().map(|column| column.edges.clone());
        Self::with_bins(edges, self.categorical.iter().map(|column| column.rows.clone()))
    }

    fn with_bins(edges: impl Iterator<Item = Vec<f32>>, rows: impl Iterator<Item = Vec<u32>>) -> Self {
        let dense =
            |edges: Vec<f32>| DenseStatistics { counts: vec![0; edges.len() + 1], edges, ..DenseStatistics::default() };
        let categorical = |rows: Vec<u32>| CategoricalStatistics {
            counts: vec![0; rows.len() + 1],
            rows,
            ..CategoricalStatistics::default()
        };
        Self { dense: edges.map(dense).collect(), categorical: rows.map(categorical).collect(), ..Self::default() }
    }

    /// Counts samples. A model has learned the rows `known` of each table; all, where nothing is said of it.
    pub fn add(&mut self, stored: Stored<'_>, known: &[Known]) {
        let Stored { samples, description, blanks } = stored;
        self.samples += samples.len() as u64;
        for &label in samples.labels.iter().filter(|label| label.is_finite()) {
            self.labelled += 1;
            self.label_sum += f64::from(label);
            let (least, most) = self.label_range.unwrap_or((label, label));
            self.label_range = Some((least.min(label), most.max(label)));
        }
        for ((counted, values), column) in self.dense.iter_mut().zip(&samples.dense).zip(description.features()) {
            counted.add(column, values);
        }
        let columns = self.categorical.iter_mut().zip(&samples.lookups).zip(&description.categorical);
        for (table, ((counted, lookups), column)) in columns.enumerate() {
            let blank = blanks.get(table).copied().flatten();
            counted.add(lookups, column.hots, blank, known.get(table).copied().unwrap_or(Known::ALL));
        }
    }

    /// The mean label; nothing where no sample has one.
    #[must_use]
    pub fn label_rate(&self) -> Option<f64> {
        (self.labelled > 0).then(|| self.label_sum / self.labelled as f64)
    }
}

impl DenseStatistics {
    fn add(&mut self, column: &Dense, values: &Values) {
        let (to, is_log) = (column.feature(), column.transform == Transform::Log);
        let newest = column.scale.map_or(i32::MAX, |scale| scale.newest);
        for at in 0..values.len() {
            let number = values.number(at);
            let below = |number: f64| if column.age { number > f64::from(newest) } else { number < 0.0 };
            self.count(number.map(|_| values.feature(at, to)), is_log && number.is_some_and(below));
        }
    }

    fn count(&mut self, feature: Option<f32>, clipped: bool) {
        // One that has become infinite tells as little as none.
        let Some(feature) = feature.filter(|feature| feature.is_finite()) else {
            self.missing += 1;
            return;
        };
        self.present += 1;
        self.clipped += u64::from(clipped);
        self.counts[self.edges.partition_point(|edge| *edge < feature)] += 1;
        // Welford's update, as where scales are learned.
        let from = f64::from(feature) - self.mean;
        self.mean += from / self.present as f64;
        self.squares += from * (f64::from(feature) - self.mean);
    }

    /// The standard deviation of values, as the model reads them; 0 where there are none.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        (self.squares / self.present.max(1) as f64).sqrt()
    }

    /// Its bins, and that of missing values.
    fn bins(&self) -> Vec<u64> {
        self.counts.iter().copied().chain([self.missing]).collect()
    }

    /// How far later values of the same bins are from these.
    #[must_use]
    pub fn stability_index(&self, now: &Self) -> f64 {
        stability_index(&self.bins(), &now.bins())
    }
}

impl CategoricalStatistics {
    fn add(&mut self, lookups: &Lookups, hots: u32, blank: Option<u32>, known: Known) {
        for &row in &lookups.rows {
            if Some(row) == blank {
                self.missing += 1;
            } else if let Some(row) = known.learned(row) {
                self.counts[self.rows.binary_search(&row).unwrap_or(self.rows.len())] += 1;
            } else {
                self.unseen += 1;
            }
        }
        if hots == 0 {
            let begins = [0].into_iter().chain(lookups.ends.iter().copied());
            self.missing += begins.zip(&lookups.ends).filter(|(begin, end)| begin == *end).count() as u64;
        }
    }

    /// Takes values for what they are, of which look-ups do not show it: those without a row are unseen, and their
    /// samples not without a value; blank fields that were taken for values are missing.
    pub fn tell_apart(&mut self, lost: Lost) {
        self.unseen = (self.unseen + lost.values).saturating_sub(lost.blanks);
        self.missing = (self.missing + lost.blanks).saturating_sub(lost.emptied);
    }

    /// The share of values that the model has not learned; 0 where there are none.
    #[must_use]
    pub fn unseen_share(&self) -> f64 {
        let values = self.unseen + self.counts.iter().sum::<u64>();
        self.unseen as f64 / values.max(1) as f64
    }

    /// Its bins, those of unseen values, and of samples without one.
    fn bins(&self) -> Vec<u64> {
        self.counts.iter().copied().chain([self.unseen, self.missing]).collect()
    }

    /// How far later values of the same bins are from these.
    #[must_use]
    pub fn stability_index(&self, now: &Self) -> f64 {
        stability_index(&self.bins(), &now.bins())
    }
}

/// The Population Stability Index: the sum over bins of (q - p) ln(q / p), p and q being their shares before and now.
/// Half a value more in each bin before, and one more now that is spread as those before, keep it finite. Bins that are
/// empty both times do not count.
fn stability_index(before: &[u64], now: &[u64]) -> f64 {
    let total = |counts: &[u64]| counts.iter().map(|count| *count as f64).sum::<f64>();
    let bins = || before.iter().zip(now).filter(|(before, now)| **before > 0 || **now > 0);
    let (all, later) = (total(before) + 0.5 * bins().count() as f64, total(now) + 1.0);
    let part = |(&before, &now): (&u64, &u64)| {
        let p = (before as f64 + 0.5) / all;
        let q = (now as f64 + p) / later;
        (q - p) * libm::log(q / p)
    };
    bins().map(part).sum()
}

/// The ends of bins of as many values of a column each, as far as different ones go.
fn edges(column: &Dense, values: &Values) -> Vec<f32> {
    let to = column.feature();
    let there = (0..values.len()).filter(|at| values.number(*at).is_some());
    let mut features: Vec<f32> = there.map(|at| values.feature(at, to)).filter(|feature| feature.is_finite()).collect();
    features.sort_unstable_by(f32::total_cmp);
    let Some(&least) = features.first() else { return Vec::new() };
    let mut edges: Vec<f32> = (1..BINS).map(|n| features[(n * features.len()).div_ceil(BINS) - 1]).collect();
    edges.dedup();
    let below = least.next_down();
    if edges[0] == least && below.is_finite() {
        // A value that is a bin of its own: lesser ones have another.
        edges.insert(0, below);
    }
    edges
}

/// The rows that are looked up most, ascending, as far as they come often enough to tell; of equally frequent ones the
/// first. That of blank fields is none.
fn frequent(lookups: &Lookups, blank: Option<u32>) -> Vec<u32> {
    let mut rows = lookups.rows.clone();
    rows.sort_unstable();
    let mut runs: Vec<(usize, u32)> = rows.chunk_by(|a, b| a == b).map(|run| (run.len(), run[0])).collect();
    runs.retain(|(count, row)| *count >= TELLING && Some(*row) != blank);
    runs.sort_by(|(a, _), (b, _)| b.cmp(a));
    let mut frequent: Vec<u32> = runs.into_iter().take(FREQUENT).map(|(_, row)| row).collect();
    frequent.sort_unstable();
    frequent
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;
    use crate::data::samples::MISSING;
    use crate::data::schema::Scale;
    use crate::data::{Description, Samples};

    /// One dense column of integers and one categorical column of any number of look-ups.
    fn columns(transform: Transform) -> Description {
        let mut description = Description::criteo(1, &[100]);
        description.dense[0].transform = transform;
        description.categorical[0].hots = 0;
        description
    }

    fn samples(description: &Description, values: &[(i32, Option<u32>)]) -> Samples {
        let mut samples = Samples::new(description);
        for &(value, row) in values {
            samples.labels.push(f32::from(u8::from(value == 0)));
            let Values::Integers(integers) = &mut samples.dense[0] else { unreachable!() };
            integers.push(value);
            let Lookups { rows, ends, .. } = &mut samples.lookups[0];
            rows.extend(row);
            ends.push(rows.len() as u32);
        }
        samples
    }

    #[test]
    fn samples_are_counted_in_bins_of_the_first_ones() {
        let description = columns(Transform::None);
        // Ten different numbers, each six times, a missing one; row 7 of blanks, a sample without a look-up.
        let mut values: Vec<(i32, Option<u32>)> = (0..60).map(|n| (n % 10, Some(n as u32 % 3))).collect();
        values.extend([(MISSING, Some(7)), (4, None)]);
        let first = samples(&description, &values);
        let stored = Stored { samples: &first, description: &description, blanks: &[Some(7)] };
        let mut before = Statistics::binned_by(stored);
        before.add(stored, &[]);
        let DenseStatistics { missing, present, mean, edges, counts, .. } = &before.dense[0];
        assert_eq!((*missing, *present), (1, 61));
        assert!((mean - 274.0 / 61.0).abs() < 1e-12, "{mean}");
        assert_eq!(edges[..], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(counts[..], [12, 6, 6, 7, 6, 6, 6, 6, 6]);
        let CategoricalStatistics { missing, rows, counts, .. } = &before.categorical[0];
        assert_eq!((*missing, &rows[..], &counts[..]), (2, &[0, 1, 2][..], &[20, 20, 20, 0][..]));
        assert_eq!((before.samples, before.labelled, before.label_sum), (62, 62, 6.0));
        assert_eq!(before.label_range, Some((0.0, 1.0)));
        // The same samples again have not changed; they do not depend on portions.
        let mut now = before.emptied();
        for part in values.chunks(5) {
            let part = samples(&description, part);
            now.add(Stored { samples: &part, ..stored }, &[Known { rows: 3, moved: None }]);
        }
        assert_eq!(now, before);
        assert!(before.dense[0].stability_index(&now.dense[0]) < 0.01);
        // Rows from 3 on are unseen; a value without any row was the sample's only one.
        let mut now = before.emptied();
        let later = samples(&description, &[(-1, Some(3)), (50, Some(0)), (-7, None), (60, Some(7))]);
        now.add(Stored { samples: &later, ..stored }, &[Known { rows: 3, moved: None }]);
        assert_eq!((now.categorical[0].unseen, now.categorical[0].missing), (1, 2));
        now.categorical[0].tell_apart(Lost { values: 1, emptied: 1, ..Lost::default() });
        let CategoricalStatistics { missing, unseen, counts, .. } = &now.categorical[0];
        assert_eq!((*missing, *unseen, &counts[..]), (1, 2, &[1, 0, 0, 0][..]));
        assert!((now.categorical[0].unseen_share() - 2.0 / 3.0).abs() < 1e-12);
        // One of both was a blank field.
        now.categorical[0].tell_apart(Lost { blanks: 1, ..Lost::default() });
        assert_eq!((now.categorical[0].unseen, now.categorical[0].missing), (1, 2));
        assert!(before.dense[0].stability_index(&now.dense[0]) > 1.0, "all values are less or more than before");
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<Statistics>(&text).unwrap(), before, "{text}");
    }

    #[test]
    fn what_logarithms_make_0_is_clipped() {
        let count = |description: &Description, values: &[i32]| {
            let values: Vec<_> = values.iter().map(|value| (*value, None)).collect();
            let samples = samples(description, &values);
            let mut found = Statistics::of_columns(1, 1);
            found.add(Stored { samples: &samples, description, blanks: &[] }, &[]);
            (found.dense[0].clipped, found.dense[0].present, found.dense[0].missing)
        };
        let values = [-3, -1, 0, 5, MISSING];
        assert_eq!(count(&columns(Transform::Log), &values), (2, 4, 1));
        assert_eq!(count(&columns(Transform::None), &values), (0, 4, 1));
        let mut age = columns(Transform::Log);
        age.dense[0].age = true;
        age.dense[0].scale = Some(Scale { newest: 4, mean: 0.0, deviation: 1.0 });
        assert_eq!(count(&age, &values), (1, 4, 1), "5 is newer than 4");
    }

    #[test]
    fn a_constant_has_bins_below_and_above() {
        let description = columns(Transform::None);
        let first = samples(&description, &[(5, None), (5, None)]);
        let stored = Stored { samples: &first, description: &description, blanks: &[] };
        let mut before = Statistics::binned_by(stored);
        before.add(stored, &[]);
        assert_eq!(before.dense[0].counts, [0, 2, 0]);
        assert_eq!(before.dense[0].deviation(), 0.0);
        // Nor is there a bin where there is no value.
        let none = samples(&description, &[(MISSING, None)]);
        assert_eq!(Statistics::binned_by(Stored { samples: &none, ..stored }).dense[0].counts, [0]);
    }

    #[test]
    fn the_index_is_that_of_its_definition() {
        // Shares of 1/4 and 3/4 become 1/2 and 1/2: of so many, one more or less does not show.
        let (quarter, half) = ([1 << 40, 3 << 40], [1 << 40, 1 << 40]);
        let expected = 0.25 * 2f64.ln() - 0.25 * (2.0f64 / 3.0).ln();
        assert!((stability_index(&quarter, &half) - expected).abs() < 1e-9);
        assert!(stability_index(&quarter, &quarter).abs() < 1e-9);
        // A bin that nobody was in before.
        let found = stability_index(&[1000, 0], &[500, 500]);
        assert!(found > 3.0 && found.is_finite(), "{found}");
        assert!(stability_index(&[1000, 0], &[10, 0]) < 0.01);
    }

    #[test]
    fn stretches_lie_all_over_the_samples() {
        let single = |all, seekable| {
            let found = looked_at(all, seekable);
            assert_eq!(found.len(), 1);
            found[0].clone()
        };
        assert_eq!([single(100, true), single(32_768, true), single(40_000, false)], [0..100, 0..32_768, 0..32_768]);
        let found = looked_at(1_000_000, true);
        assert_eq!((found.len(), found[0].clone(), found[255].clone()), (256, 0..128, 999_872..1_000_000));
        assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start));
        // Just more than are looked at: they do not overlap.
        let found = looked_at(LOOKED_AT + 1, true);
        assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start), "{found:?}");
    }

    #[test]
    fn long_samples_take_no_more_than_their_stretch_may_have() {
        let description = columns(Transform::None);
        // Two samples a stretch, which may have 16,384 values; the rows that are held of samples of so many look-ups.
        let held = |lengths: [usize; 4]| {
            let mut samples = samples(&description, &[(0, None); 4]);
            samples.lookups[0].ends.clear();
            for (row, length) in (0..).zip(lengths) {
                let Lookups { rows, ends, .. } = &mut samples.lookups[0];
                rows.extend(iter::repeat_n(row, length));
                ends.push(rows.len() as u32);
            }
            let mut drawn = Drawn::new(Stored { samples: &samples, description: &description, blanks: &[] }, 512);
            drawn.draw(&samples);
            drawn.samples.check(&description);
            let mut rows = drawn.samples.lookups[0].rows.clone();
            rows.dedup();
            rows
        };
        assert_eq!(held([16_000, 1_000, 5, 5]), [0, 2, 3]);
        assert_eq!(held([20_000, 5, 5, 5]), [2, 3], "nothing behind it, or short samples would be preferred");
        assert_eq!(held([5, 5, 20_000, 5]), [0, 1, 2, 3], "the first stretch has left some");
    }

    #[test]
    fn rows_that_come_seldom_are_no_bins() {
        let description = columns(Transform::None);
        // Row 0 comes 20 times, row 1 19 times.
        let values: Vec<_> = (0..39).map(|n| (0, Some(n % 2))).collect();
        let samples = samples(&description, &values);
        let stored = Stored { samples: &samples, description: &description, blanks: &[] };
        let mut found = Statistics::binned_by(stored);
        found.add(stored, &[]);
        assert_eq!((&found.categorical[0].rows[..], &found.categorical[0].counts[..]), (&[0][..], &[20, 19][..]));
    }
}
