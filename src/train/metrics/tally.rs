//! What a rank notes of samples: sums whose order does not matter, and of those that it has scored what their order
//! tells.

use bytemuck::{Pod, Zeroable};

use super::runs::{Runs, grouped, key, weighed};
use crate::machine::team::Team;

/// A sum of 64-bit floats in fixed point: whoever adds which of them, in whatever order, the bits are the same.
///
/// Its unit is 2^-64: terms of at least 2^-11 lose nothing, and a smaller one less than the unit. Terms of up to 254,
/// as squares of cross-entropies are, add up exactly until there are 3.6 x 10^16 of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct FixedSum(i128);

const UNIT: f64 = 1.0 / (1u128 << 64) as f64;

impl FixedSum {
    /// That of one number.
    fn of(number: f64) -> Self {
        Self((number / UNIT) as i128)
    }

    /// Adds a number.
    pub fn add(&mut self, number: f64) {
        self.plus(Self::of(number));
    }

    /// Adds another sum.
    pub const fn plus(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }

    /// The sum.
    pub fn value(self) -> f64 {
        self.0 as f64 * UNIT
    }
}

/// The losses of samples, none of which is negative, added up: by whom and in which order changes no bit.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct LossSum {
    finite: FixedSum,
    /// Of their weights.
    weight: FixedSum,
    /// The sum of those that are infinite, no number, or of 2^40 and more, for many of which fixed point has no room; 0
    /// without any.
    others: f64,
    samples: u64,
}

/// Losses from here on are not added up in fixed point.
const LARGEST: f64 = (1u64 << 40) as f64;

impl LossSum {
    /// That of these samples, each of weight 1.
    pub fn of(losses: &[f64]) -> Self {
        let samples = losses.len();
        let mut sum = Self { weight: FixedSum::of(samples as f64), samples: samples as u64, ..Self::default() };
        for &loss in losses {
            if loss.abs() < LARGEST {
                sum.finite.add(loss);
            } else {
                sum.others += loss;
            }
        }
        sum
    }

    /// The same of samples of these weights, by which their losses are multiplied already.
    pub fn weighed(self, weights: impl Iterator<Item = f64>) -> Self {
        let mut weight = FixedSum::default();
        weights.for_each(|own| weight.add(own));
        Self { weight, ..self }
    }

    /// Adds that of other samples.
    pub fn plus(&mut self, other: &Self) {
        self.finite.plus(other.finite);
        self.weight.plus(other.weight);
        self.others += other.others;
        self.samples += other.samples;
    }

    /// The mean; infinite or NaN where a loss is.
    pub fn mean(&self) -> f64 {
        (self.finite.value() + self.others) / self.samples as f64
    }

    /// The mean by weight: what is lost by samples of weight 1, whatever the weights are; 0 without weight.
    pub fn weighted_mean(&self) -> f64 {
        let weight = self.weight.value();
        if weight == 0.0 { 0.0 } else { (self.finite.value() + self.others) / weight }
    }
}

/// Sums over samples, each times its weight, which is 1 where samples have none.
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Sums {
    /// Of binary cross-entropies.
    pub entropy: FixedSum,
    /// Of their squares.
    pub squares: FixedSum,
    /// Of probabilities.
    pub promised: FixedSum,
    /// Of labels.
    pub labels: FixedSum,
    /// Of the weights alone.
    pub weight: FixedSum,
    /// Of those of samples whose rounded probability is their label.
    pub right: FixedSum,
    /// How many labels are at least 0.5, and how many samples there are, whatever their weights.
    pub clicks: u64,
    pub samples: u64,
    /// Probabilities that lie outside of [0, 1]: with one, there are no scores.
    pub broken: u64,
    /// Fills the memory of one up to the next: all bytes of a message are known.
    rest: u64,
}

/// The binary cross-entropy of a sample.
pub fn cross_entropy(probability: f32, label: f32) -> f64 {
    let (p, t) = (f64::from(probability), f64::from(label));
    // As sklearn's log_loss: probabilities of type f32 are kept this far from 0 and 1.
    let edge = f64::from(f32::EPSILON);
    let kept = p.clamp(edge, 1.0 - edge);
    -(t * kept.ln() + (1.0 - t) * (1.0 - kept).ln())
}

impl Sums {
    /// Adds samples of a probability and a label to the sums, by their weight; whoever knows how many they are counts
    /// them.
    pub fn add(&mut self, probability: f32, label: f32, weight: f64) {
        let (p, t, own) = (f64::from(probability), f64::from(label), FixedSum::of(weight));
        self.weight.plus(own);
        self.labels.add(weight * t);
        if !(0.0..=1.0).contains(&probability) {
            self.broken += 1;
            return;
        }
        let loss = cross_entropy(probability, label);
        self.entropy.add(weight * loss);
        self.squares.add(weight * loss * loss);
        // As facebookresearch/dlrm, which rounds halves to even: an even chance is no click.
        if (p > 0.5) == (label >= 0.5) {
            self.right.plus(own);
        }
        self.promised.add(weight * p);
    }

    /// Adds those of other samples.
    pub fn plus(&mut self, other: &Self) {
        self.entropy.plus(other.entropy);
        self.squares.plus(other.squares);
        self.promised.plus(other.promised);
        self.labels.plus(other.labels);
        self.weight.plus(other.weight);
        self.right.plus(other.right);
        self.clicks += other.clicks;
        self.samples += other.samples;
        self.broken += other.broken;
    }
}

/// A rank's samples.
#[derive(Debug, Default)]
pub struct Tally {
    /// Added up.
    pub sums: Sums,
    /// By probability.
    pub scores: Runs<u32>,
    /// By true probability, where somebody planted it.
    pub truths: Runs<u32>,
    /// By group and probability, for each column that groups samples.
    pub groups: Vec<Runs<u64>>,
    /// Where samples have weights, in place of `scores` and of each of `groups`; otherwise empty.
    pub weighed: Vec<Runs<u128>>,
}

impl Tally {
    /// Before any sample, which so many columns will group; `weighted`: whether samples have weights.
    pub fn new(groupings: usize, weighted: bool) -> Self {
        let weighed = if weighted { 1 + groupings } else { 0 };
        Self {
            groups: (0..groupings).map(|_| Runs::default()).collect(),
            weighed: (0..weighed).map(|_| Runs::default()).collect(),
            ..Self::default()
        }
    }

    /// Notes samples: their probabilities, labels (0 or 1; at least 0.5 counts as a click), weights where they have
    /// some, their groups by each column, and where known their true probabilities.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn take(
        &mut self,
        probabilities: &[f32],
        labels: &[f32],
        weights: Option<&[f32]>,
        groups: &[Vec<u32>],
        truths: Option<&[f32]>,
    ) {
        assert_eq!(probabilities.len(), labels.len(), "one probability a label");
        assert_eq!(groups.len(), self.groups.len(), "groups of each column");
        assert!(groups.iter().all(|groups| groups.len() == labels.len()), "one group a label");
        assert!(weights.is_none_or(|weights| weights.len() == labels.len()), "one weight a label");
        assert_eq!(weights.is_some(), !self.weighed.is_empty(), "weights as was said");
        for (sample, (&probability, &label)) in probabilities.iter().zip(labels).enumerate() {
            let weight = weights.map_or(1.0, |weights| weights[sample]);
            self.sums.add(probability, label, f64::from(weight));
            self.sums.samples += 1;
            self.sums.clicks += u64::from(label >= 0.5);
            let Some(key) = key(probability, label >= 0.5) else { continue };
            if let [scores, by_group @ ..] = &mut self.weighed[..] {
                scores.push(weighed(u64::from(key), weight));
                for (runs, groups) in by_group.iter_mut().zip(groups) {
                    runs.push(weighed(grouped(groups[sample], key), weight));
                }
                continue;
            }
            self.scores.push(key);
            for (runs, groups) in self.groups.iter_mut().zip(groups) {
                runs.push(grouped(groups[sample], key));
            }
        }
        if let Some(truths) = truths {
            assert_eq!(truths.len(), labels.len(), "one true probability a label");
            let keys = truths.iter().zip(labels).filter_map(|(&truth, &label)| key(truth, label >= 0.5));
            keys.for_each(|key| self.truths.push(key));
        }
    }

    /// Sorts what was noted.
    pub fn sort(&mut self, team: &Team) {
        self.scores.sort_by(team);
        self.truths.sort_by(team);
        self.groups.iter_mut().for_each(|groups| groups.sort_by(team));
        self.weighed.iter_mut().for_each(|weighed| weighed.sort_by(team));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_in_fixed_point_are_exact_in_any_order() {
        let numbers: Vec<f64> = (0..1000).map(|i| f64::from((i * 7919 % 1000) as f32 / 1013.0) - 0.3).collect();
        let sum = |numbers: &mut dyn Iterator<Item = &f64>| {
            let mut sum = FixedSum::default();
            numbers.for_each(|number| sum.add(*number));
            sum
        };
        let (forth, back) = (sum(&mut numbers.iter()), sum(&mut numbers.iter().rev()));
        assert_eq!(forth, back);
        assert!((forth.value() - numbers.iter().sum::<f64>()).abs() < 1e-9);
        let mut many = FixedSum::default();
        many.add(-0.25);
        many.add(f64::from(f32::from_bits(1)));
        assert_eq!(many.value(), -0.25);
    }

    #[test]
    fn mean_losses_are_the_same_however_samples_are_divided_and_no_number_where_one_is_none() {
        let losses: Vec<f64> = (0..1000).map(|i| f64::from((i * 7919 % 1000) as f32 / 1013.0)).collect();
        let mean = |losses: &[f64], part: usize| {
            let mut sum = LossSum::default();
            losses.chunks(part).rev().for_each(|losses| sum.plus(&LossSum::of(losses)));
            sum.mean()
        };
        let whole = mean(&losses, 1000);
        assert_eq!(LossSum::of(&losses).weighted_mean(), whole, "a sample has weight 1 unless it is told");
        // Losses of 0.5 and 0.25 by weights of 1000 and 3000, on two ranks.
        let mut heavy = LossSum::of(&[500.0]).weighed([1000.0].into_iter());
        heavy.plus(&LossSum::of(&[750.0]).weighed([3000.0].into_iter()));
        assert_eq!([heavy.mean(), heavy.weighted_mean()], [625.0, 0.3125]);
        assert_eq!(LossSum::of(&[0.0]).weighed([0.0].into_iter()).weighted_mean(), 0.0);
        assert!((whole - losses.iter().sum::<f64>() / 1000.0).abs() < 1e-12);
        assert!([1, 7, 334].iter().all(|part| mean(&losses, *part).to_bits() == whole.to_bits()));
        for part in [1, 2, 3] {
            assert!(mean(&[0.5, f64::NAN, 0.5], part).is_nan());
            assert_eq!(mean(&[0.5, f64::INFINITY, 0.5], part), f64::INFINITY);
            assert!(mean(&[f64::INFINITY, f64::NAN, 0.5], part).is_nan());
        }
    }
}
