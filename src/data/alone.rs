//! What each column tells of the label by itself. One that tells it almost surely was most likely written down when the
//! label was known, such as the price of what was bought: a model learns it, and predicts nothing by it.

use std::collections::HashMap;

use super::samples::Samples;
use super::schema::Description;
use crate::base::rng::{Random, Stream};

/// Samples that are looked at, and values of them.
const MOST: usize = 1 << 16;
const MOST_VALUES: usize = 1 << 22;
/// Samples of each label, and of one value, below which nothing is told.
const FEW: usize = 50;
/// The AUC from which on a column tells the label almost surely.
const SURE: f64 = 0.98;
/// What chance may do.
const CHANCE: f64 = 1e-9;
/// The share of positive samples below which those of a column's sure values tell nothing: some users click whatever
/// they see.
const FAIR: f64 = 0.1;

/// The first samples of a data set.
#[derive(Debug)]
pub struct Alone {
    /// How many are looked at.
    most: usize,
    /// Whether each is positive.
    labels: Vec<bool>,
    /// By column, those of numbers first: what each sample has there, a number or a row. Columns of lists have nothing.
    columns: Vec<Vec<f64>>,
}

/// A column that tells the label.
#[derive(Debug, Clone, PartialEq)]
pub struct Telling {
    /// Its name.
    pub column: String,
    /// The AUC by this column alone.
    pub auc: f64,
    /// Samples of its values that only positive samples have.
    pub positive: usize,
}

impl Alone {
    /// Of no samples yet.
    #[must_use]
    pub fn new(description: &Description) -> Self {
        let columns = description.dense.len() + description.categorical.len();
        let most = MOST.min(MOST_VALUES / columns.max(1));
        Self { most, labels: Vec::new(), columns: vec![Vec::new(); columns] }
    }

    /// Looks at these samples, too, unless there were enough.
    pub fn add(&mut self, samples: &Samples) {
        let some = samples.len().min(self.most - self.labels.len());
        self.labels.extend(samples.labels[..some].iter().map(|label| *label > 0.5));
        let (dense, categorical) = self.columns.split_at_mut(samples.dense.len());
        for (column, values) in dense.iter_mut().zip(&samples.dense) {
            // Numbers that are missing stand below all others.
            column.extend((0..some).map(|at| values.number(at).unwrap_or(f64::NEG_INFINITY)));
        }
        for (column, lookups) in categorical.iter_mut().zip(&samples.lookups) {
            if lookups.ends.is_empty() && lookups.rows.len() == samples.len() {
                column.extend(lookups.rows[..some].iter().map(|&row| f64::from(row)));
            }
        }
    }

    /// The columns that tell the label almost surely, or have values that only positive samples have, more than chance
    /// would give them.
    #[must_use]
    pub fn telling(&self, description: &Description) -> Vec<Telling> {
        let positive = self.labels.iter().filter(|label| **label).count();
        if positive < FEW || self.labels.len() - positive < FEW {
            return Vec::new();
        }
        let rate = positive as f64 / self.labels.len() as f64;
        let names = description.dense.iter().map(|column| &column.name);
        let names = names.chain(description.categorical.iter().map(|column| &column.name));
        let whole = self.columns.iter().zip(names).enumerate().filter(|(_, (held, _))| held.len() == self.labels.len());
        let whole = whole.filter(|(at, _)| !description.weighs(*at));
        let told = whole.map(|(at, (held, name))| {
            let pairs = || held.iter().copied().zip(self.labels.iter().copied());
            let (auc, positive) = match at < description.dense.len() {
                true => (auc(pairs().collect()), 0),
                false => (by_value(pairs(), rate), sure(pairs(), rate)),
            };
            // A column may fall where the label rises.
            Telling { column: name.clone(), auc: auc.max(1.0 - auc), positive }
        });
        told.filter(|told| told.auc >= SURE || told.positive > 0).collect()
    }
}

/// The area under the ROC curve of these scores; 0.5 where all samples have the same label.
fn auc(mut scored: Vec<(f64, bool)>) -> f64 {
    scored.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let (mut rightly, mut below, mut positive) = (0.0, 0, 0);
    for tied in scored.chunk_by(|a, b| a.0 == b.0) {
        let yes = tied.iter().filter(|(_, label)| *label).count();
        let no = tied.len() - yes;
        rightly += yes as f64 * (below as f64 + no as f64 / 2.0);
        (below, positive) = (below + no, positive + yes);
    }
    if below == 0 || positive == 0 { 0.5 } else { rightly / (below as f64 * positive as f64) }
}

/// Samples of each value, and how many of them are positive.
fn counted(pairs: impl Iterator<Item = (f64, bool)>) -> HashMap<u64, (usize, usize)> {
    let mut counts = HashMap::new();
    for (value, label) in pairs {
        let (all, positive) = counts.entry(value.to_bits()).or_insert((0, 0));
        (*all, *positive) = (*all + 1, *positive + usize::from(label));
    }
    counts
}

/// The AUC of one half of the samples, drawn by chance, by what their values have told of the other.
fn by_value(pairs: impl Iterator<Item = (f64, bool)> + Clone, rate: f64) -> f64 {
    let drawn = Random::new(0, Stream::Profile(0, 0));
    // Every second one might have the same label.
    let half = |half: u32| {
        let pairs = pairs.clone().zip(0..);
        pairs.filter(move |&(_, at)| drawn.block(at)[0] & 1 == half).map(|(pair, _)| pair)
    };
    let counts = counted(half(0));
    let scored = half(1).map(|(value, label)| {
        let (all, positive) = counts.get(&value.to_bits()).copied().unwrap_or((0, 0));
        ((positive as f64 + rate) / (all as f64 + 1.0), label)
    });
    auc(scored.collect())
}

/// Samples of values that only positive ones have, of as many that chance does not make them so; none where these are a
/// small share of all positive ones.
fn sure(pairs: impl Iterator<Item = (f64, bool)>, rate: f64) -> usize {
    let is_sure = |&(all, positive): &(usize, usize)| all == positive && all >= FEW && rate.powf(all as f64) < CHANCE;
    let counts = counted(pairs);
    let found = counts.values().filter(|counts| is_sure(counts)).map(|(all, _)| all).sum::<usize>();
    let positive = counts.values().map(|(_, positive)| positive).sum::<usize>();
    if found as f64 >= FAIR * positive as f64 { found } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{MISSING, Values};
    use super::super::schema::{Categorical, Dense};
    use super::*;

    #[test]
    fn columns_that_follow_the_label_are_told_from_others() {
        let dense = |name: &str| Dense { name: name.to_owned(), ..Dense::default() };
        let description = Description {
            dense: ["price", "dwell", "blank"].map(dense).to_vec(),
            categorical: ["user", "bought", "where", "rare", "fan"]
                .map(|name| Categorical::new(name, 1 << 20))
                .to_vec(),
            ..Description::default()
        };
        let mut samples = Samples::new(&description);
        let mut alone = Alone::new(&description);
        for n in 0..4000i32 {
            let (chance, label) = (n * 7919 % 1009, n % 4 == n / 100 % 4);
            let words = [chance, if label { -chance } else { 1 + chance }, if label { n } else { MISSING }];
            for (values, word) in samples.dense.iter_mut().zip(words) {
                let Values::Integers(values) = values else { panic!("no float") };
                values.push(word);
            }
            // What was bought is known of some who clicked; where, of none else; rare values are too few to tell, and
            // so are users who always click.
            let bought = u32::from(label && chance % 8 == 0);
            let [rare, fan] = [9, 70].map(|bound| u32::from(label && chance < bound));
            let rows = [n as u32, bought, u32::from(label), rare, fan];
            samples.lookups.iter_mut().zip(rows).for_each(|(lookups, row)| lookups.rows.push(row));
            samples.labels.push(f32::from(u8::from(label)));
        }
        assert!(alone.telling(&description).is_empty(), "nothing was seen");
        alone.add(&samples);
        let told = alone.telling(&description);
        let names: Vec<_> = told.iter().map(|told| &told.column[..]).collect();
        assert_eq!(names, ["dwell", "blank", "bought", "where"], "{told:?}");
        assert!(told[0].auc > 0.99 && told[1].auc == 1.0 && told[3].auc == 1.0, "{told:?}");
        let bought = samples.lookups[1].rows.iter().filter(|row| **row == 1).count();
        assert!(told[2].auc < 0.6 && told[2].positive == bought, "{told:?}");
    }

    #[test]
    fn labels_that_take_turns_hide_nothing() {
        let description = Description {
            categorical: ["leak", "user"].map(|name| Categorical::new(name, 1 << 20)).to_vec(),
            ..Description::default()
        };
        let mut samples = Samples::new(&description);
        for n in 0..1000u32 {
            let label = n % 2;
            // No value is sure.
            let leak = if n < 4 { 1 - label } else { label };
            samples.lookups.iter_mut().zip([leak, n % 7]).for_each(|(lookups, row)| lookups.rows.push(row));
            samples.labels.push(label as f32);
        }
        let mut alone = Alone::new(&description);
        alone.add(&samples);
        let told = alone.telling(&description);
        assert!(told.len() == 1 && told[0].column == "leak" && told[0].positive == 0, "{told:?}");
        // Halves of one label.
        assert_eq!(by_value((0..100).map(|n| (f64::from(n), true)), 1.0), 0.5);
    }

    #[test]
    fn of_many_columns_fewer_samples_are_looked_at() {
        let columns = MOST_VALUES / 1000;
        let description =
            Description { categorical: vec![Categorical::new("a", 9); columns], ..Description::default() };
        let mut samples = Samples::new(&description);
        samples.lookups.iter_mut().for_each(|lookups| lookups.rows.extend(0..600));
        samples.labels.resize(600, 1.0);
        let mut alone = Alone::new(&description);
        (0..3).for_each(|_| alone.add(&samples));
        assert_eq!((alone.labels.len(), alone.columns[columns - 1].len()), (1000, 1000));
    }
}
