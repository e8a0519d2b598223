//! How often the rows of a table were accessed: the paper's embedding logger.
//!
//! Counts are an array, one entry a row, or a map of the rows that came where an array would not fit the memory that
//! may be used ([`Kind::of`] decides before anything is read, by what both take at most). Rows are also listed by first
//! access, so that entries are drawn, and all of them visited, in an order that depends on the inputs alone.

use std::collections::HashMap;

use crate::base::units::Bytes;
use crate::base::{Error, Result};

/// Accesses to the rows of one table.
#[derive(Debug)]
pub(super) struct Log {
    counts: Counts,
    /// Rows by first access.
    rows: Vec<u32>,
    accesses: u64,
}

#[derive(Debug)]
enum Counts {
    Array(Vec<u32>),
    Map(HashMap<u32, u32>),
}

/// What holds a table's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An entry a row.
    Array,
    /// An entry an accessed row.
    Map,
}

/// Bytes of a map's entry at most: key, count and the map's own byte, at the least load after growing, with the memory
/// that it grew out of.
const MAP_BYTES: u64 = 32;

impl Kind {
    /// Bytes for a table of `rows` rows that gets up to `accesses` accesses, its list of rows included.
    const fn bytes(self, rows: u64, accesses: u64) -> u64 {
        let seen = if rows < accesses { rows } else { accesses };
        // A list doubles when it is full, and is copied then.
        let list = 12 * seen;
        list + match self {
            Self::Array => 4 * rows,
            Self::Map => MAP_BYTES * seen,
        }
    }

    /// What holds the counts of each table, in at most `memory` bytes together, and how many those are. Arrays, which
    /// are faster, as far as they fit: the largest tables are the first to do without.
    ///
    /// # Errors
    /// [`Error::Config`] when they do not fit.
    pub(super) fn of(tables: &[u64], accesses: u64, memory: u64) -> Result<(Vec<Self>, u64)> {
        let mut kinds = vec![Self::Array; tables.len()];
        let mut total: u64 = tables.iter().map(|&rows| Self::Array.bytes(rows, accesses)).sum();
        let mut order: Vec<usize> = (0..tables.len()).collect();
        order.sort_by_key(|&table| std::cmp::Reverse(tables[table]));
        for table in order {
            let [array, map] = [Self::Array, Self::Map].map(|kind| kind.bytes(tables[table], accesses));
            if total > memory && map < array {
                kinds[table] = Self::Map;
                total -= array - map;
            }
        }
        if total <= memory {
            return Ok((kinds, total));
        }
        let reason = format!(
            "counting the sample's accesses takes up to {}, and {} are left for that: allow more, or sample fewer inputs \
             (--sample)",
            Bytes(total),
            Bytes(memory)
        );
        Err(Error::config("--memory", reason))
    }
}

impl Log {
    pub(super) fn new(kind: Kind, rows: u64) -> Self {
        let counts = match kind {
            Kind::Array => Counts::Array(vec![0; rows as usize]),
            Kind::Map => Counts::Map(HashMap::new()),
        };
        Self { counts, rows: Vec::new(), accesses: 0 }
    }

    /// Counts accesses.
    pub(super) fn add(&mut self, rows: &[u32]) {
        self.accesses += rows.len() as u64;
        for &row in rows {
            let count = match &mut self.counts {
                Counts::Array(counts) => &mut counts[row as usize],
                Counts::Map(counts) => counts.entry(row).or_insert(0),
            };
            if *count == 0 {
                self.rows.push(row);
            }
            *count = count.saturating_add(1);
        }
    }

    /// The accesses to a row.
    pub(super) fn of(&self, row: u32) -> u32 {
        match &self.counts {
            Counts::Array(counts) => counts[row as usize],
            Counts::Map(counts) => counts.get(&row).copied().unwrap_or(0),
        }
    }

    /// The rows that were accessed, by first access.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// All accesses.
    pub(super) const fn accesses(&self) -> u64 {
        self.accesses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_and_a_map_count_the_same() {
        let [mut array, mut map] = [Kind::Array, Kind::Map].map(|kind| Log::new(kind, 100));
        for log in [&mut array, &mut map] {
            log.add(&[7, 99, 7]);
            log.add(&[0, 7]);
            assert_eq!((log.rows(), log.accesses()), (&[7, 99, 0][..], 5));
            assert_eq!([7, 99, 0, 50].map(|row| log.of(row)), [3, 1, 1, 0]);
        }
    }

    #[test]
    fn counts_stay_within_their_memory() {
        let tables = [1000, 40_000_000, 10_000_000];
        let bytes = |kinds: [Kind; 3]| -> u64 {
            kinds.into_iter().zip(tables).map(|(kind, rows)| kind.bytes(rows, 100_000)).sum()
        };
        let arrays = [Kind::Array; 3];
        assert_eq!(Kind::of(&tables, 100_000, bytes(arrays)).unwrap(), (arrays.to_vec(), bytes(arrays)));
        let one = [Kind::Array, Kind::Map, Kind::Array];
        assert_eq!(Kind::of(&tables, 100_000, bytes(arrays) - 1).unwrap(), (one.to_vec(), bytes(one)));
        let two = [Kind::Array, Kind::Map, Kind::Map];
        assert_eq!(Kind::of(&tables, 100_000, bytes(two)).unwrap(), (two.to_vec(), bytes(two)));
        let message = Kind::of(&tables, 100_000, bytes(two) - 1).unwrap_err().to_string();
        assert!(message.starts_with("--memory: counting") && message.contains("(--sample)"), "{message}");
    }
}
