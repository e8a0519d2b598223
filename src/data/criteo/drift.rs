//! Which values are popular changes from day to day: of the hottest ranks of each column a share is taken by other
//! values, which were rare before, and the values that had these ranks are rare from then on.
//!
//! How often a rank is drawn stays, and so does every other rank's value, so that each day has the shape of all.

use super::sample::Sample;
use crate::base::config::DataConfig;
use crate::base::rng::{Random, Stream};

/// Ranks of a column that change their values: beyond them, no value is looked up often on any day.
const HOTTEST: u64 = 1 << 13;

/// The values of the hottest ranks, by day.
#[derive(Debug)]
pub(super) struct Drift {
    /// Samples of a day.
    day: u64,
    /// By day, then by column, the values of the first ranks. Test samples beyond the last day are of the day after.
    days: Vec<Vec<Vec<u32>>>,
}

impl Drift {
    /// Of columns of so many values; nothing where values stay.
    pub(super) fn new(config: &DataConfig, columns: &[u64]) -> Option<Self> {
        if config.drift <= 0.0 {
            return None;
        }
        // A value comes from the column's other half; its last one may stand for "missing".
        let hottest = |values: u64| HOTTEST.min(values.saturating_sub(2) / 2);
        let first = || columns.iter().map(|&values| (0..hottest(values) as u32).collect()).collect();
        let mut days: Vec<Vec<Vec<u32>>> = vec![first()];
        for day in 1..=config.days {
            let mut values = days[days.len() - 1].clone();
            for (column, (now, &all)) in (0..).zip(values.iter_mut().zip(columns)) {
                let (random, hottest) = (Random::new(config.seed, Stream::Drift(column)), now.len() as u64);
                for (rank, value) in (0..).zip(now) {
                    let [changes, other] = random.uniform_pair(day * HOTTEST + rank);
                    if changes < config.drift {
                        *value = (hottest + (other * (all - 1 - hottest) as f64) as u64) as u32;
                    }
                }
            }
            days.push(values);
        }
        Some(Self { day: config.train_samples.div_ceil(config.days).max(1), days })
    }

    /// Gives sample number `n` among all the values of its day.
    pub(super) fn apply(&self, n: u64, sample: &mut Sample) {
        self.apply_day((n / self.day).min(self.days.len() as u64 - 1) as usize, sample);
    }

    /// The same to one of any day, alike often.
    pub(super) fn apply_any(&self, n: u64, sample: &mut Sample) {
        self.apply_day((n % self.days.len() as u64) as usize, sample);
    }

    fn apply_day(&self, day: usize, sample: &mut Sample) {
        let Sample { ranks, values, .. } = sample;
        for ((value, rank), hottest) in values.iter_mut().zip(ranks).zip(&self.days[day]) {
            if let Some(of_day) = hottest.get(*rank as usize) {
                *value = *of_day;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift(days: u64, drift: f64) -> Option<Drift> {
        let config = DataConfig { days, drift, train_samples: 1000, ..DataConfig::default() };
        Drift::new(&config, &[50_000, 20, 3, 1])
    }

    #[test]
    fn a_share_of_the_hottest_ranks_changes_its_value_each_day() {
        assert!(drift(4, 0.0).is_none());
        let drift = drift(4, 0.1).unwrap();
        assert_eq!((drift.day, drift.days.len()), (250, 5));
        for days in drift.days.windows(2) {
            let [before, after] = [&days[0], &days[1]].map(|day| &day[0]);
            let changed = before.iter().zip(after).filter(|(before, after)| before != after).count();
            // Binomial of 8192 and a tenth: five deviations.
            assert!((683..956).contains(&changed), "{changed}");
            assert!(before.iter().zip(after).all(|(before, after)| before == after || (8192..49_999).contains(after)));
        }
        assert_eq!(drift.days[4].iter().map(Vec::len).collect::<Vec<_>>(), [8192, 9, 0, 0]);
    }

    #[test]
    fn samples_have_the_values_of_their_day() {
        let drift = drift(4, 1.0).unwrap();
        let values = |n| {
            let ranks = vec![3, 5, 2, 0];
            let mut sample = Sample { values: ranks.clone(), ranks, ..Sample::default() };
            drift.apply(n, &mut sample);
            sample.values
        };
        assert_eq!(values(249), [3, 5, 2, 0]);
        assert_ne!(values(250)[..2], [3, 5]);
        assert_eq!([values(250), values(999)], [values(499), values(750)]);
        assert!(values(250)[0] != values(500)[0] && values(1000) != values(999) && values(1000) == values(9999));
        assert_eq!(values(500)[2..], [2, 0]);
    }
}
