//! Samples by the value of a column: the mean AUC of these groups, and the scores of each. Samples are read once, group
//! by group, and in it lowest score first.

use std::cmp::Reverse;

use serde::Serialize;

use super::Scores;
use super::curve::Pairs;
use super::runs::Tied;
use super::tally::Sums;

/// In place of a group: the sample has no value. Tables have fewer rows than this.
pub const NO_VALUE: u32 = u32::MAX;

/// So many values are told of at most.
pub const MOST_VALUES: usize = 10_000;

/// What is asked of the groups that the values of a column make.
#[derive(Debug, Clone, Copy)]
pub struct Grouping {
    /// The row of all values that the vocabulary does not know, if there is one.
    pub unseen: Option<u32>,
    /// Whether the mean AUC of groups is asked for.
    pub gauc: bool,
    /// Whether the scores of each value are.
    pub by: bool,
}

/// AUC by group.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Grouped {
    /// The mean AUC of groups, weighted by their samples, or by the weights of these; NaN where no group has both
    /// classes.
    pub gauc: f64,
    /// Groups that count.
    pub gauc_groups: u64,
    /// Samples in them.
    pub gauc_samples: u64,
    /// The sum of their weights, where they have some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gauc_weight: Option<f64>,
    /// Groups that are left out: all of their labels are the same, or are where weights are above 0.
    pub gauc_groups_of_one_class: u64,
    /// Samples in those.
    pub gauc_samples_of_one_class: u64,
    /// Samples that are left out because they have no group: no value, or one that the vocabulary does not know.
    pub gauc_samples_without_group: u64,
}

/// Scores by the value of a column.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByValue {
    /// How many values the samples have; all unseen values count as one, and so does none.
    pub count: u64,
    /// Those with the most samples, most first: all, unless there are more than [`MOST_VALUES`].
    pub values: Vec<ValueScores>,
}

/// The scores of the samples of one value. A label of at least 0.5 counts as 1, any other one as 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ValueScores {
    /// The value's text, where a vocabulary has it; of Criteo's text its eight hexadecimal digits.
    pub value: Option<String>,
    /// The row of the column's table; nothing where samples have no value, or one that has no row.
    pub row: Option<u32>,
    /// Whether it is the row of all values that the vocabulary does not know.
    pub unseen: bool,
    /// How many samples.
    pub samples: u64,
    /// The sum of their weights, where they have some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Mean label.
    pub label_rate: f64,
    /// Area under the ROC curve; NaN when all labels are the same.
    pub auc: f64,
    /// Mean binary cross-entropy.
    pub logloss: f64,
    /// As [`Scores::normalised_entropy`], against these samples' own mean label.
    pub normalised_entropy: f64,
    /// Mean probability over mean label.
    pub calibration: f64,
}

impl ByValue {
    /// Takes those of one more value; what is kept does not grow with their number.
    fn push(&mut self, scores: ValueScores) {
        self.count += 1;
        self.values.push(scores);
        if self.values.len() >= 2 * MOST_VALUES {
            self.keep_most();
        }
    }

    /// Forgets all but those with the most samples; of equal ones the first rows stay.
    fn keep_most(&mut self) {
        self.values.sort_unstable_by_key(|scores| (Reverse(scores.samples), scores.row));
        self.values.truncate(MOST_VALUES);
    }
}

/// One pass over samples by group, and in it by score.
#[derive(Debug)]
pub struct Groups {
    grouping: Grouping,
    /// The weight that counts as one, where samples have weights.
    unit: Option<f64>,
    group: Option<u32>,
    pairs: Pairs,
    /// Samples of the group; their sums, where the scores of each are asked for.
    samples: u64,
    sums: Sums,
    /// Of AUCs times units, and of these.
    aucs: f64,
    units: u64,
    found: Grouped,
    by_value: ByValue,
}

impl Groups {
    /// Before the first group; `unit` is the weight that counts as one, where samples have weights.
    pub fn new(grouping: Grouping, unit: Option<f64>) -> Self {
        let found = Grouped {
            gauc: f64::NAN,
            gauc_groups: 0,
            gauc_samples: 0,
            gauc_weight: None,
            gauc_groups_of_one_class: 0,
            gauc_samples_of_one_class: 0,
            gauc_samples_without_group: 0,
        };
        let by_value = ByValue { count: 0, values: Vec::new() };
        let (pairs, sums) = (Pairs::default(), Sums::default());
        Self { grouping, unit, group: None, pairs, samples: 0, sums, aucs: 0.0, units: 0, found, by_value }
    }

    /// The samples of the next higher score in the group, or of the lowest in the next one.
    pub fn push(&mut self, tied: Tied) {
        if self.group != Some(tied.group()) {
            self.end_group();
            self.group = Some(tied.group());
        }
        self.pairs.push(tied);
        self.samples += tied.samples;
        if self.grouping.by {
            let weight = |units: u64| units as f64 * self.unit.unwrap_or(1.0);
            self.sums.add(tied.probability(), 1.0, weight(tied.clicks));
            self.sums.add(tied.probability(), 0.0, weight(tied.others));
        }
    }

    fn end_group(&mut self) {
        let Some(group) = self.group.take() else { return };
        let (pairs, sums, found) = (std::mem::take(&mut self.pairs), std::mem::take(&mut self.sums), &mut self.found);
        let (auc, units, samples) = (pairs.auc(), pairs.units(), std::mem::take(&mut self.samples));
        let unseen = Some(group) == self.grouping.unseen;
        if group == NO_VALUE || unseen {
            found.gauc_samples_without_group += samples;
        } else if auc.is_nan() {
            found.gauc_groups_of_one_class += 1;
            found.gauc_samples_of_one_class += samples;
        } else {
            found.gauc_groups += 1;
            found.gauc_samples += samples;
            self.units += units;
            self.aucs += auc * units as f64;
        }
        if self.grouping.by {
            let weighted = self.unit.is_some();
            let Scores { weight, logloss, normalised_entropy, calibration, label_rate, .. } =
                Scores::without_order(&sums, weighted);
            let row = Some(group).filter(|row| *row != NO_VALUE);
            let value = None;
            self.by_value.push(ValueScores {
                value,
                row,
                unseen,
                samples,
                weight,
                label_rate,
                auc,
                logloss,
                normalised_entropy,
                calibration,
            });
        }
    }

    /// After the last group: what is asked for.
    pub fn finish(mut self) -> (Option<Grouped>, Option<ByValue>) {
        self.end_group();
        let gauc = if self.units == 0 { f64::NAN } else { self.aucs / self.units as f64 };
        let gauc_weight = self.unit.map(|unit| self.units as f64 * unit);
        self.by_value.keep_most();
        let Grouping { gauc: asked, by, .. } = self.grouping;
        (asked.then_some(Grouped { gauc, gauc_weight, ..self.found }), by.then_some(self.by_value))
    }
}
