//! How many rows of a table are hot, told from some entries of its log: n chunks of m entries, drawn without
//! replacement.
//!
//! The mean number y of hot entries a chunk is nearly normal by the central limit theorem, n being at least 30, so with
//! the standard deviation s over chunks, and N chunks in all, the mean over all chunks lies in Student's interval `y ±
//! t x sqrt((N - n) / N x s² / n)` (the paper's equation 4). Entries of a chunk are drawn one by one, not as
//! neighbours: tables whose rows were numbered by first appearance have the hot ones at their start, and chunks of
//! neighbours would then differ so much that n of them tell nothing.
//!
//! Where only a few entries that were drawn are hot, or only a few are not, sums are far from normal, and s may be 0.
//! The interval is then at least that of Poisson's distribution (Garwood 1936), which needs no s.

use std::collections::HashSet;

use super::log::Log;
use super::optimizer::Interval;
use crate::base::rng::Random;

/// Chunks that are drawn, the paper's n.
pub const CHUNKS: usize = 35;
/// Entries of a chunk, the paper's m.
pub const ENTRIES: usize = 1024;
/// How often an interval holds what is estimated.
pub const CONFIDENCE: f64 = 0.999;
/// Half of what lies outside, on either side.
const OUTSIDE: f64 = (1.0 - CONFIDENCE) / 2.0;
/// What so much of Student's distribution with `CHUNKS - 1` degrees of freedom lies above.
const STUDENT: f64 = 3.600_715_797_386_448;
/// Fewer are told by Poisson's distribution, too.
const RARE: u64 = 64;

/// Entries that were drawn from a log.
#[derive(Debug, Clone)]
pub(super) struct Chunks {
    /// Entries of the log.
    entries: u64,
    /// Accesses of each chunk's entries, rising; one chunk with all of them where the log has no more than are drawn.
    chunks: Vec<Vec<u32>>,
}

impl Chunks {
    /// Draws from a log.
    pub(super) fn draw(log: &Log, random: &Random) -> Self {
        let (rows, wanted) = (log.rows(), CHUNKS * ENTRIES);
        let entries = rows.len() as u64;
        let mut chunks: Vec<Vec<u32>> = if rows.len() <= wanted {
            vec![rows.iter().map(|&row| log.of(row)).collect()]
        } else {
            let places = distinct(rows.len() as u64, wanted, random);
            places
                .chunks(ENTRIES)
                .map(|places| places.iter().map(|&place| log.of(rows[place as usize])).collect())
                .collect()
        };
        chunks.iter_mut().for_each(|counts| counts.sort_unstable());
        Self { entries, chunks }
    }

    /// How many of the log's rows have at least `cutoff` accesses.
    pub(super) fn hot(&self, cutoff: u32) -> Interval {
        let hits: Vec<u64> = self
            .chunks
            .iter()
            .map(|counts| (counts.len() - counts.partition_point(|&count| count < cutoff)) as u64)
            .collect();
        if cutoff <= 1 {
            // A row of the log was accessed.
            return Interval::exact(self.entries as f64);
        }
        let total: u64 = hits.iter().sum();
        if self.chunks.len() < CHUNKS {
            return Interval::exact(total as f64);
        }
        let (n, drawn) = (CHUNKS as f64, (CHUNKS * ENTRIES) as u64);
        let all = self.entries as f64 / ENTRIES as f64;
        let mean = total as f64 / n;
        let variance = hits.iter().map(|&hits| (hits as f64 - mean) * (hits as f64 - mean)).sum::<f64>() / (n - 1.0);
        let half = STUDENT * ((all - n) / all * variance / n).sqrt();
        let (mut low, mut high) = (mean - half, mean + half);
        if total < RARE {
            let [least, most] = poisson(total);
            (low, high) = (low.min(least / n), high.max(most / n));
        } else if drawn - total < RARE {
            let [least, most] = poisson(drawn - total).map(|misses| ENTRIES as f64 - misses / n);
            (low, high) = (low.min(most), high.max(least));
        }
        // What was drawn is known.
        let bounds = [total, self.entries - (drawn - total)].map(|count| count as f64);
        let within = |value: f64| (value * all).clamp(bounds[0], bounds[1]);
        Interval { value: mean * all, low: within(low), high: within(high) }
    }
}

/// The means between which that of a Poisson distribution lies that gave `count`.
fn poisson(count: u64) -> [f64; 2] {
    // P(X <= count) falls with the mean.
    let at_most = |count: u64, mean: f64| {
        let mut term = libm::exp(-mean);
        let mut sum = term;
        for k in 1..=count {
            term *= mean / k as f64;
            sum += term;
        }
        sum
    };
    let mean_at = |count: u64, share: f64| {
        let (mut low, mut high) = (0.0, 2.0 * count as f64 + 40.0);
        // Halved to below a millionth of a count.
        for _ in 0..40 {
            let middle = (low + high) / 2.0;
            if at_most(count, middle) > share { low = middle } else { high = middle }
        }
        (low + high) / 2.0
    };
    let least = if count == 0 { 0.0 } else { mean_at(count - 1, 1.0 - OUTSIDE) };
    [least, mean_at(count, OUTSIDE)]
}

/// `count` different numbers below `bound`, in random order.
fn distinct(bound: u64, count: usize, random: &Random) -> Vec<u64> {
    // Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", 1987) draws a set; a shuffle makes its order
    // random.
    let (mut known, mut order) = (HashSet::with_capacity(count), Vec::with_capacity(count));
    let mut draw = 0;
    let mut below = |bound| {
        draw += 1;
        random.below(draw, bound)
    };
    for last in bound - count as u64..bound {
        let drawn = below(last + 1);
        let chosen = if known.insert(drawn) { drawn } else { last };
        known.insert(chosen);
        order.push(chosen);
    }
    for last in (1..order.len()).rev() {
        order.swap(last, below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::super::log::Kind;
    use super::*;
    use crate::base::rng::Stream;

    fn drawn(log: &Log, seed: u64) -> Chunks {
        Chunks::draw(log, &Random::new(seed, Stream::Profile(1, 0)))
    }

    /// A log whose row r was accessed `counts(r)` times.
    fn log(rows: u32, counts: impl Fn(u32) -> u32) -> Log {
        let mut log = Log::new(Kind::Array, u64::from(rows));
        (0..rows).for_each(|row| log.add(&vec![row; counts(row) as usize]));
        log
    }

    #[test]
    fn students_quantile_is_the_integral_of_its_density() {
        let freedom = (CHUNKS - 1) as f64;
        let density = |x: f64| (1.0 + x * x / freedom).powf(-(freedom + 1.0) / 2.0);
        let integral = |from: f64, to: f64| -> f64 {
            let steps = 200_000;
            let width = (to - from) / f64::from(steps);
            (0..steps).map(|step| density(from + (f64::from(step) + 0.5) * width) * width).sum()
        };
        let (above, half) = (integral(STUDENT, 60.0), integral(0.0, 60.0));
        assert!((above / (2.0 * half) / OUTSIDE - 1.0).abs() < 1e-6, "{above} {half}");
    }

    #[test]
    fn poisson_bounds_are_the_published_ones() {
        // Garwood's bounds at 99.9 % as quantiles of chi-square: chi2(0.0005, 2k) / 2 and chi2(0.9995, 2k + 2) / 2.
        for (count, [least, most]) in [(0, [0.0, 7.600_90]), (1, [0.000_50, 9.998_68]), (10, [2.699_03, 25.255_56])] {
            let found = poisson(count);
            assert!((found[0] - least).abs() < 1e-4 && (found[1] - most).abs() < 1e-4, "{count}: {found:?}");
        }
    }

    #[test]
    fn distinct_numbers_are_distinct_and_equally_likely_anywhere() {
        let mut first = [0u32; 6];
        for seed in 0..6000 {
            let random = Random::new(seed, Stream::Profile(1, 7));
            let numbers = distinct(6, 4, &random);
            assert!(numbers.len() == 4 && numbers.iter().collect::<HashSet<_>>().len() == 4);
            numbers.iter().enumerate().filter(|(place, _)| *place == 1).for_each(|(_, &n)| first[n as usize] += 1);
        }
        assert!(first.iter().all(|count| (840..1160).contains(count)), "{first:?}");
    }

    #[test]
    fn small_logs_are_counted_exactly() {
        let log = log(30_000, |row| row % 7);
        let chunks = drawn(&log, 1);
        assert_eq!(log.rows().len(), 25_714);
        for (cutoff, rows) in [(1, 25_714), (2, 21_428), (6, 4285), (7, 0)] {
            assert_eq!(chunks.hot(cutoff), Interval::exact(f64::from(rows)), "{cutoff}");
        }
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        // Hot rows at the start, as where rows are numbered by first appearance: a row in 1, 10, 100, 1000 and 50,000.
        let rows = 200_000;
        let hot = [200_000, 20_000, 2000, 200, 4];
        let log = log(rows, |row| 1 + hot.iter().filter(|&&first| row < first).count() as u32);
        let (mut missed, mut all) = ([0u32; 5], 0);
        for seed in 0..400 {
            let chunks = drawn(&log, seed);
            all += 1;
            for (missed, (cutoff, &truth)) in missed.iter_mut().zip((2..).zip(&hot)) {
                let Interval { value, low, high } = chunks.hot(cutoff);
                let truth = f64::from(truth);
                assert!(low <= value && value <= high, "{low} {value} {high}");
                *missed += u32::from(!(low..=high).contains(&truth));
                // A tenth of the rows: 3 deviations of the estimate are 4 %.
                assert!(cutoff != 3 || (value / truth - 1.0).abs() < 0.08, "{value}");
            }
        }
        // 0.4 are expected of each; more than 4 come once in 16,000 runs.
        assert!(all == 400 && missed.iter().all(|&missed| missed <= 4), "{missed:?}");
        assert_eq!(drawn(&log, 3).hot(4), drawn(&log, 3).hot(4));
        assert_ne!(drawn(&log, 3).hot(4), drawn(&log, 4).hot(4));
    }
}
