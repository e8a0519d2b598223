//! The paper's statistical optimizer: thresholds are tried until the hot rows, by the upper end of their estimated
//! size, fit a budget. (The paper tells what it moves and when it stops, not how; this is ours.)
//!
//! First a ladder of thresholds, two a decade, from 1 to where one access in the sample makes a row hot, and 0, at
//! which every row is: these are the points of the paper's Figure 5. Then the gap in which the budget lies is halved.

use serde::Serialize;

use super::estimate::Chunks;

/// Halvings of the gap between two steps of the ladder: to less than a thousandth of the threshold.
const HALVINGS: usize = 12;
/// The optimizer is content with a threshold that uses so much of the budget.
const ENOUGH: f64 = 0.99;
/// Steps of the ladder at most: down to one access in 10^15, and 0.
const RUNGS: i32 = 31;

/// An estimate, and the interval that holds the truth in 99.9 % of all cases.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// How many rows of a table are hot at a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Size {
    /// Accesses in the sample from which on a row is hot; 0: all rows are.
    pub cutoff: u32,
    /// Hot rows as estimated from a part of the log.
    pub rows: Interval,
    /// Hot rows of the whole log, counted when all was over.
    pub counted: u64,
    /// Rows that all inputs, counted at the same threshold, would make hot: inferred from the log.
    pub inferred: f64,
}

/// A threshold that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tried {
    /// The share of its table's accesses that makes a row hot, the paper's t.
    pub threshold: f64,
    /// By table.
    pub tables: Vec<Size>,
    /// Bytes of all hot rows, as estimated.
    pub bytes: Interval,
    /// The same of the whole log.
    pub counted_bytes: u64,
    /// Bytes of the rows that all inputs would make hot, as inferred.
    pub inferred_bytes: f64,
    /// Share of the judged inputs that look up hot rows only.
    pub hot_inputs: f64,
    /// Share of their look-ups that are of hot rows.
    pub hot_lookups: f64,
}

/// A table whose hot rows are to be told.
#[derive(Debug)]
pub(super) struct Candidate {
    /// All of its rows.
    pub rows: u64,
    /// What was drawn of its log, and all accesses in the log; `None` where it is hot as a whole.
    pub drawn: Option<(Chunks, u64)>,
}

/// What rows may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// Bytes of all hot rows together.
    pub bytes: u64,
    /// Bytes of a row.
    pub row_bytes: u64,
    /// A threshold that is tried whatever else is; 0: none.
    pub least: f64,
}

impl Interval {
    /// What is known.
    #[must_use]
    pub const fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }
}

/// Accesses in a sample with `accesses` of them from which on a row is hot at `threshold`.
fn cutoff(threshold: f64, accesses: u64) -> u32 {
    if threshold == 0.0 {
        return 0;
    }
    // The product's own rounding makes no threshold higher; a row that the sample lacks is cold.
    let exact = threshold * accesses as f64 * (1.0 - 1e-12);
    exact.ceil().clamp(1.0, f64::from(u32::MAX)) as u32
}

/// Tries one threshold.
fn tried(threshold: f64, tables: &[Candidate], row_bytes: u64) -> Tried {
    let size = |table: &Candidate| match &table.drawn {
        None => Size { cutoff: 0, rows: Interval::exact(table.rows as f64), counted: 0, inferred: 0.0 },
        Some((chunks, accesses)) => {
            let cutoff = cutoff(threshold, *accesses);
            let rows = if cutoff == 0 { Interval::exact(table.rows as f64) } else { chunks.hot(cutoff) };
            Size { cutoff, rows, counted: 0, inferred: 0.0 }
        }
    };
    let tables: Vec<Size> = tables.iter().map(size).collect();
    // Entries are drawn of each table on its own, so that squares of deviations add up.
    let value: f64 = tables.iter().map(|size| size.rows.value).sum();
    let spread = |end: fn(&Interval) -> f64| {
        tables.iter().map(|size| (end(&size.rows) - size.rows.value).powi(2)).sum::<f64>().sqrt()
    };
    let [low, high] = [value - spread(|rows| rows.low), value + spread(|rows| rows.high)];
    let [value, low, high] = [value, low, high].map(|rows| rows * row_bytes as f64);
    let bytes = Interval { value, low, high };
    Tried { threshold, tables, bytes, counted_bytes: 0, inferred_bytes: 0.0, hot_inputs: 0.0, hot_lookups: 0.0 }
}

/// Tries thresholds; returns all of them, falling.
pub(super) fn optimize(tables: &[Candidate], budget: Budget) -> Vec<Tried> {
    let attempt = |threshold| tried(threshold, tables, budget.row_bytes);
    let fits = |tried: &Tried| tried.bytes.high <= budget.bytes as f64;
    let mut all = Vec::new();
    for half in 0..RUNGS {
        all.push(attempt(libm::pow(10.0, -0.5 * f64::from(half))));
        if all[all.len() - 1].tables.iter().all(|size| size.cutoff <= 1) {
            break;
        }
    }
    all.push(attempt(0.0));
    if all.iter().all(|tried| tried.threshold != budget.least) {
        let place = all.partition_point(|tried| tried.threshold > budget.least);
        all.insert(place, attempt(budget.least));
    }
    let below = all.partition_point(fits);
    if below > 0 && below + 1 < all.len() {
        let (mut high, mut low) = (all[below - 1].clone(), all[below].clone());
        for _ in 0..HALVINGS {
            let same = high.tables.iter().zip(&low.tables).all(|(a, b)| a.cutoff == b.cutoff);
            if same || high.bytes.high >= ENOUGH * budget.bytes as f64 {
                break;
            }
            let middle = attempt((high.threshold * low.threshold).sqrt());
            all.push(middle.clone());
            if fits(&middle) { high = middle } else { low = middle }
        }
    }
    all.sort_by(|a, b| b.threshold.total_cmp(&a.threshold));
    all
}

#[cfg(test)]
mod tests {
    use super::super::log::{Kind, Log};
    use super::*;
    use crate::base::rng::{Random, Stream};

    /// A log of `rows` rows, of which row r has `most / (r + 1)` accesses, rounded up.
    fn candidate(rows: u32, most: u32, table: u32) -> Candidate {
        let mut log = Log::new(Kind::Array, u64::from(rows));
        (0..rows).for_each(|row| log.add(&vec![row; most.div_ceil(row + 1) as usize]));
        let chunks = Chunks::draw(&log, &Random::new(1, Stream::Profile(1, table)));
        Candidate { rows: u64::from(rows), drawn: Some((chunks, log.accesses())) }
    }

    #[test]
    fn cutoffs_are_the_papers() {
        // Its example: a threshold of a hundredth, of 60.5 million samples 5 %, but per entry of T x x = 30,250
        // accesses.
        assert_eq!(cutoff(1e-2, 30_250), 303);
        assert_eq!(
            (cutoff(0.1, 30), cutoff(1.0, 7), cutoff(1e-9, 30), cutoff(0.5, 0), cutoff(0.0, 30)),
            (3, 7, 1, 1, 0)
        );
    }

    #[test]
    fn the_budget_is_met_from_below_and_nearly_used() {
        let whole = Candidate { rows: 1000, drawn: None };
        let tables = [candidate(90_000, 40_000, 0), whole, candidate(50_000, 5000, 1)];
        for bytes in [100_000, 200_000, 400_000] {
            let all = optimize(&tables, Budget { bytes, row_bytes: 64, least: 0.0 });
            assert!(all.is_sorted_by(|a, b| a.threshold > b.threshold), "no threshold twice");
            assert!(all.len() < 40 && all[0].threshold == 1.0 && all[all.len() - 1].threshold == 0.0);
            let chosen = all.iter().rfind(|tried| tried.bytes.high <= bytes as f64).unwrap();
            assert!(chosen.bytes.high > 0.8 * bytes as f64, "{bytes}: {:?}", chosen.bytes);
            let Interval { value, low, high } = chosen.bytes;
            assert!(low < value && value < high);
            assert_eq!(chosen.tables[1].rows, Interval::exact(1000.0));
        }
        let all = optimize(&tables, Budget { bytes: 200_000, row_bytes: 64, least: 0.05 });
        assert!(all.is_sorted_by(|a, b| a.threshold > b.threshold) && all.iter().any(|tried| tried.threshold == 0.05));
        // Everything fits, or nothing does.
        let all = optimize(&tables, Budget { bytes: 141_000 * 64, row_bytes: 64, least: 0.0 });
        assert!(all[all.len() - 1].bytes == Interval::exact(141_000.0 * 64.0));
        let all = optimize(&tables, Budget { bytes: 1000, row_bytes: 64, least: 0.0 });
        assert!(all.iter().all(|tried| tried.bytes.high > 1000.0));
    }
}
