//! Which rows are for what: by day, as the reference trains on all days but the last, or by fraction.
//!
//! **The naming trap.** Both programs halve the last day, the first half taking the odd row. facebookresearch/dlrm
//! (`data_utils.py`) calls the first half test and the second validation; torchrec (`datasets/criteo.py`) and MLPerf's
//! DCNv2 rules call the first half validation and the second test. Both names are offered, and none is the default.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Options, Recipe};
use crate::base::{Error, Result};
use crate::data::Split;
use crate::data::source::first_part;

/// How rows are split.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SplitBy {
    /// All rows are for training.
    None,
    /// The first half of the last day is for test, the second for validation.
    LastDayDlrm,
    /// The first half of the last day is for validation, the second for test.
    LastDayTorchrec,
    /// The last rows are for test, those before them for validation; shares of all rows, as training keeps them of a
    /// file.
    Fraction {
        /// Of all rows.
        validation: f64,
        /// Of all rows.
        test: f64,
    },
}

/// Consecutive rows of one day for one purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) role: Split,
    pub(super) rows: Range<u64>,
}

/// Equal days of Criteo's display-advertising log.
pub(super) const KAGGLE_DAYS: u64 = 7;

/// Refuses to hold out the last day of one.
///
/// # Errors
/// [`Error::Config`] that says how there would be several.
pub(super) fn refuse_only_day(options: &Options, files: usize) -> Result<()> {
    let days = match (options.days, &options.recipe) {
        (0, Recipe::CriteoKaggle) => KAGGLE_DAYS,
        (0, _) => files as u64,
        (days, _) => days,
    };
    if days > 1 || !matches!(options.split, SplitBy::LastDayDlrm | SplitBy::LastDayTorchrec) {
        return Ok(());
    }
    let reason = "the only day is the last one, which would leave no rows to train on: name a file for each day, cut all \
                  rows into several days with --days N, or use --split fraction";
    Err(Error::config("--split", reason))
}

/// Rows of each of `days` equal days: the first ones have one row more, as in `data_utils.py`.
pub(super) fn equal_days(rows: u64, days: u64) -> Vec<u64> {
    (0..days).map(|day| rows / days + u64::from(day < rows % days)).collect()
}

impl SplitBy {
    /// The stretches of all rows, in order; none is empty, and none has rows of two days.
    pub(super) fn stretches(self, days: &[u64]) -> Vec<Stretch> {
        let total: u64 = days.iter().sum();
        let last = total - days.last().copied().unwrap_or(0);
        let half = last + (total - last).div_ceil(2);
        let borders = match self {
            Self::None => vec![(Split::Train, total)],
            Self::LastDayDlrm => vec![(Split::Train, last), (Split::Test, half), (Split::Validation, total)],
            Self::LastDayTorchrec => vec![(Split::Train, last), (Split::Validation, half), (Split::Test, total)],
            Self::Fraction { validation, test } => {
                let [train, both] = [validation + test, test].map(|last| first_part(total, last));
                vec![(Split::Train, train), (Split::Validation, both), (Split::Test, total)]
            }
        };
        let mut stretches = Vec::new();
        let (mut from, mut day_end, mut left) = (0, 0, days.iter());
        for (role, border) in borders {
            while from < border {
                while day_end <= from {
                    day_end += left.next().expect("days have all rows");
                }
                let to = border.min(day_end);
                stretches.push(Stretch { role, rows: from..to });
                from = to;
            }
        }
        stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(split: SplitBy, days: &[u64]) -> Vec<(Split, Range<u64>)> {
        split.stretches(days).into_iter().map(|stretch| (stretch.role, stretch.rows)).collect()
    }

    #[test]
    fn days_are_equal_but_for_a_row() {
        assert_eq!(
            equal_days(45_840_617, 7)[..],
            [6_548_660, 6_548_660, 6_548_660, 6_548_660, 6_548_659, 6_548_659, 6_548_659]
        );
        assert_eq!(equal_days(3, 7), [1, 1, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn the_two_programs_name_the_halves_differently() {
        let days = [4, 0, 5];
        let (train, first, second) = (0..4, 4..7, 7..9);
        let dlrm = [(Split::Train, train.clone()), (Split::Test, first.clone()), (Split::Validation, second.clone())];
        assert_eq!(of(SplitBy::LastDayDlrm, &days), dlrm);
        let torchrec = [(Split::Train, train), (Split::Validation, first), (Split::Test, second)];
        assert_eq!(of(SplitBy::LastDayTorchrec, &days), torchrec);
        // Day 23 of the Terabyte log, as torchrec's documentation counts its validation samples.
        let last = of(SplitBy::LastDayTorchrec, &[1, 178_274_637]);
        assert_eq!(last[1].1.end - last[1].1.start, 89_137_319);
    }

    #[test]
    fn fractions_cut_days_too() {
        let split = SplitBy::Fraction { validation: 0.1, test: 0.2 };
        let found = of(split, &[6, 4]);
        assert_eq!(
            found,
            [(Split::Train, 0..6), (Split::Train, 6..7), (Split::Validation, 7..8), (Split::Test, 8..10)]
        );
        assert_eq!(
            of(SplitBy::Fraction { validation: 0.6, test: 0.6 }, &[10]),
            [(Split::Validation, 0..4), (Split::Test, 4..10)]
        );
        // As training splits a file.
        let split = SplitBy::Fraction { validation: 0.0, test: 0.1 };
        assert_eq!(of(split, &[14]), [(Split::Train, 0..12), (Split::Test, 12..14)]);
        assert_eq!(of(SplitBy::None, &[3, 2]), [(Split::Train, 0..3), (Split::Train, 3..5)]);
        assert!(of(SplitBy::LastDayDlrm, &[0, 0]).is_empty());
    }
}
