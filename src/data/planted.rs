//! What generated data have in common: each sample follows from its number, and test samples are those after the
//! training samples. Of planted click models, how often there is a click and how well the best model tells are set by
//! an intercept and a scale of their scores.

use super::{Batch, Reader, Split};
use crate::base::config::DataConfig;
use crate::base::{Error, Result};

/// How many samples are generated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    train: u64,
    test: u64,
}

impl Counts {
    /// As many as a configuration says.
    pub(super) const fn of(config: &DataConfig) -> Self {
        Self { train: config.train_samples, test: config.test_samples }
    }

    /// Samples of a split.
    pub(super) const fn of_split(self, split: Split) -> u64 {
        match split {
            Split::Train => self.train,
            Split::Validation => 0,
            Split::Test => self.test,
        }
    }

    /// The number of a split's sample among all.
    pub(super) const fn number(self, split: Split, sample: u64) -> u64 {
        match split {
            Split::Train => sample,
            Split::Validation | Split::Test => self.train.wrapping_add(sample),
        }
    }

    /// The number of a split's sample `start` among all, and how many there are from there on.
    ///
    /// # Errors
    /// [`Error::Config`] when there is no such sample.
    pub(super) fn from(self, split: Split, start: u64) -> Result<[u64; 2]> {
        let count = self.of_split(split);
        if start > count {
            let reason = format!("sample {start} is asked for, but only {count} are generated");
            return Err(Error::config("data.train_samples, data.test_samples", reason));
        }
        Ok([self.number(split, start), count - start])
    }

    /// A reader from a split's sample `start` on: see [`Generated`].
    ///
    /// # Errors
    /// As [`Counts::from`].
    pub(super) fn open<'a>(
        self,
        split: Split,
        start: u64,
        push: impl FnMut(u64, &mut Batch) + Send + 'a,
    ) -> Result<Box<dyn Reader + 'a>> {
        let [next, left] = self.from(split, start)?;
        Ok(Box::new(Generated { push, next, left }))
    }

    /// What `probability` says of `count` samples of a split from `start` on, by their numbers among all.
    pub(super) fn truth(
        self,
        split: Split,
        start: u64,
        count: usize,
        mut probability: impl FnMut(u64) -> f64,
    ) -> Vec<f32> {
        let count = self.of_split(split).saturating_sub(start).min(count as u64);
        (start..start + count).map(|n| probability(self.number(split, n)) as f32).collect()
    }
}

/// Reads `left` samples from number `next` on; `push` appends the sample of a number.
pub(super) struct Generated<F> {
    pub(super) push: F,
    pub(super) next: u64,
    pub(super) left: u64,
}

impl<F: FnMut(u64, &mut Batch) + Send> Reader for Generated<F> {
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(limit);
        for _ in 0..wanted {
            (self.push)(self.next, batch);
            self.next = self.next.wrapping_add(1);
        }
        self.left -= wanted as u64;
        Ok(wanted)
    }

    fn skip(&mut self, count: u64) -> Result<u64> {
        let count = count.min(self.left);
        self.next = self.next.wrapping_add(count);
        self.left -= count;
        Ok(count)
    }
}

/// Scale and intercept with which these scores make clicks so often, and the true probabilities have this AUC (the
/// Bayes AUC).
pub(super) fn calibrated(mut scores: Vec<f64>, rate: f64, bayes_auc: f64) -> [f64; 2] {
    scores.sort_unstable_by(f64::total_cmp);
    let mut shift = 0.0;
    let scale = bisect(0.0, 8.0, |scale| {
        shift = intercept(&scores, scale, rate, shift);
        auc(&scores, scale, shift) < bayes_auc
    });
    [scale, intercept(&scores, scale, rate, shift)]
}

/// The intercept at which the click rate is met: what halving [-30, 30] twenty times would find, by Newton's steps from
/// a guess, which cost a quarter of it.
fn intercept(scores: &[f64], scale: f64, rate: f64, guess: f64) -> f64 {
    const CELLS: f64 = (1 << 20) as f64;
    let count = scores.len() as f64;
    let [from, width] = [-30.0, 60.0 / CELLS];
    let (mut low, mut high, mut next) = (0.0, CELLS, ((guess - from) / width).floor());
    let mut looks = 0;
    while high - low > 1.0 {
        looks += 1;
        // Newton's steps end where scores are as usual; halves do so with any.
        let cell = if looks % 8 == 0 { (0.5 * (low + high)).floor() } else { next.max(low + 1.0).min(high - 1.0) };
        let shift = from + width * cell;
        let (mut clicks, mut slope) = (0.0, 0.0);
        for score in scores {
            let p = logistic(scale * score + shift);
            clicks += p;
            slope += p * (1.0 - p);
        }
        *(if clicks < rate * count { &mut low } else { &mut high }) = cell;
        // Of the log-odds of the rate, which are all but straight in the intercept.
        let odds = (rate / (1.0 - rate) * (count - clicks) / clicks).ln();
        next = ((shift + odds * clicks * (count - clicks) / (count * slope) - from) / width).floor();
    }
    from + width * 0.5 * (low + high)
}

/// The expected AUC of the true probabilities, for scores in ascending order.
fn auc(scores: &[f64], scale: f64, intercept: f64) -> f64 {
    let (mut clicks, mut others, mut right, mut same) = (0.0, 0.0, 0.0, 0.0);
    for score in scores {
        let p = logistic(scale * score + intercept);
        right += p * others;
        clicks += p;
        others += 1.0 - p;
        same += p * (1.0 - p);
    }
    right / (clicks * others - same)
}

/// Where a condition that holds up to a point stops to hold.
fn bisect(mut low: f64, mut high: f64, mut holds: impl FnMut(f64) -> bool) -> f64 {
    for _ in 0..20 {
        let middle = 0.5 * (low + high);
        if holds(middle) { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// The probability of a logit; by libm's exp, on which the bits of all generated data hang.
pub(super) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::{Random, Stream};

    /// On the bits of what halving finds hang those of all generated data.
    #[test]
    fn newtons_steps_end_where_halving_does() {
        let random = Random::new(3, Stream::Sample(0));
        for (spread, count) in [(0.0, 5), (1.0, 1), (1.0, 300), (9.0, 40), (60.0, 300)] {
            let scores: Vec<f64> =
                (0..count).map(|n| spread * (random.uniform_pair(n).iter().sum::<f64>() - 1.0)).collect();
            for rate in [0.001, 0.03, 0.25, 0.5, 0.999] {
                let clicks = |shift: f64| scores.iter().map(|score| logistic(score + shift)).sum::<f64>();
                let halved = bisect(-30.0, 30.0, |shift| clicks(shift) < rate * count as f64);
                for guess in [-30.0, 0.0, 30.0, halved] {
                    assert_eq!(intercept(&scores, 1.0, rate, guess), halved, "{spread} {count} {rate} {guess}");
                }
            }
        }
    }
}
