//! Exclusive prefix sums of what the chunks of a table's samples, or of its rows, have counted, which say where each
//! one's part begins.

use crate::machine::team::Team;
use crate::sync::Rows;

/// Units below which the leader scans them alone: it has fetched so few from other cores' caches by the time that
/// many threads have begun and ended together.
const FEW: usize = 128;

/// A chunk of a table's samples or rows, which counts into a histogram of its own.
pub trait Counters: Send {
    /// Its counters: as many for each chunk of a table.
    fn counters(&mut self) -> impl Iterator<Item = &mut u32>;
}

/// Exclusive prefix sum of counters over each table's chunks, so many one after another, in place. The first chunk,
/// whose own offsets are 0, holds the totals until the caller takes them.
pub(super) fn exclusive_scan<U: Counters>(team: &Team, units: &mut [U], chunks: usize) {
    let (much, tables) = (team.is_much(units.len(), FEW), units.len() / chunks);
    team.share_if(much, Rows::new(units, chunks, tables.max(1), 1), |band| exclusive_scan_table(band.data));
}

/// The same with one table's, which may be of any lengths.
pub fn exclusive_scan_table<U: Counters>(units: &mut [U]) {
    let Some((first, later)) = units.split_first_mut() else { return };
    for unit in later {
        for (sum, count) in first.counters().zip(unit.counters()) {
            let before = *sum;
            *sum += *count;
            *count = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone)]
    struct Counts(Vec<u32>);

    impl Counters for Counts {
        fn counters(&mut self) -> impl Iterator<Item = &mut u32> {
            self.0.iter_mut()
        }
    }

    #[test]
    fn chunks_begin_behind_those_before_whoever_scans_them() {
        for (tables, chunks, threads) in
            [(0, 3, 2), (2, 1, 1), (5, 4, 3), (1, 4 * FEW, 3), (4 * FEW, 3, 3), (FEW, 3, 1)]
        {
            let count = |unit: usize, which: usize| (unit * 7 + which * 3) as u32 % 11;
            let mut units: Vec<_> =
                (0..tables * chunks).map(|unit| Counts((0..3).map(|which| count(unit, which)).collect())).collect();
            exclusive_scan(&Team::new(threads).unwrap(), &mut units, chunks);
            for (unit, Counts(found)) in units.iter().enumerate() {
                let (first, own) = (unit / chunks * chunks, unit % chunks);
                let until = first + if own == 0 { chunks } else { own };
                let sum = |which: usize| (first..until).map(|unit| count(unit, which)).sum::<u32>();
                assert_eq!(*found, [sum(0), sum(1), sum(2)], "unit {unit} of {tables} x {chunks}, {threads} threads");
            }
        }
    }
}
