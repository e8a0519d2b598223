//! Traces with the locality of another trace: row numbers drawn by LRU stack distance.
//!
//! Source: facebookresearch/dlrm, `dlrm_data_pytorch.py` (`trace_profile`, `trace_generate_lru`,
//! `read_dist_from_file`), after Maeda et al., "Fast and Accurate Exploration of Multi-level Caches Using Hierarchical
//! Reuse Distance" (HPCA 2017). The distance of an access is the number of different rows accessed since the same row
//! was, itself included; 0: it is the row's first. Where the reference walks a list for each access, here a tree finds
//! the row at a distance in O(log rows).
//!
//! A profile's file has three lines, numbers separated by `, `: the rows by first appearance, the distances that occur,
//! rising, and the share of accesses up to each.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

use crate::base::rng::{Random, Stream};
use crate::base::{Error, Result, input};
use crate::data::fingerprint::of_bytes;
use crate::memory::write_file;

/// The locality of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct StackProfile {
    /// Rows in the order of their first appearance.
    pub rows: Vec<u64>,
    /// The distances that occur, rising; the first is 0.
    pub distances: Vec<u32>,
    /// The share of accesses whose distance is at most that of the same place; the last is 1.
    pub cumulative: Vec<f64>,
}

/// Counts the distances of a trace, access by access.
#[derive(Debug, Default)]
pub struct StackCounter {
    rows: Vec<u64>,
    /// The slot of each row in the stack.
    slots: HashMap<u64, u32>,
    stack: Stack,
    counts: HashMap<u32, u64>,
    accesses: u64,
}

/// Draws a trace.
#[derive(Debug)]
pub struct StackTrace {
    profile: StackProfile,
    random: Random,
    stack: Stack,
    /// The place in `profile.rows` that each slot of the stack holds.
    held: Vec<u32>,
    /// Accesses so far, and those among them that were a row's first.
    accesses: u64,
    new: u64,
}

/// Which slots are taken, in the order of time: a Fenwick tree. The topmost slot is the newest.
#[derive(Debug, Default, Clone)]
struct Stack {
    tree: Vec<u32>,
    next: u32,
    taken: u32,
}

impl Stack {
    /// Takes the next slot, for which there must be room.
    fn push(&mut self) -> u32 {
        let slot = self.next;
        (self.next, self.taken) = (slot + 1, self.taken + 1);
        self.add(slot, 1);
        slot
    }

    fn release(&mut self, slot: u32) {
        self.taken -= 1;
        self.add(slot, u32::MAX);
    }

    fn add(&mut self, slot: u32, change: u32) {
        let mut at = slot as usize + 1;
        while at <= self.tree.len() {
            self.tree[at - 1] = self.tree[at - 1].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }

    /// Slots taken that are not newer than this one.
    fn up_to(&self, slot: u32) -> u32 {
        let (mut at, mut sum) = (slot as usize + 1, 0u32);
        while at > 0 {
            sum = sum.wrapping_add(self.tree[at - 1]);
            at &= at - 1;
        }
        sum
    }

    /// The slot with `before` older ones.
    fn with_older(&self, mut before: u32) -> u32 {
        let mut at = 0;
        let mut step = (self.tree.len() + 1).next_power_of_two() / 2;
        while step > 0 {
            if at + step <= self.tree.len() && self.tree[at + step - 1] <= before {
                at += step;
                before -= self.tree[at - 1];
            }
            step /= 2;
        }
        at as u32
    }

    fn full(&self) -> bool {
        self.next as usize == self.tree.len()
    }

    /// Room for twice as many as are taken, which get the first slots.
    fn renew(&mut self, least: usize) {
        let taken = self.taken;
        *self = Self { tree: vec![0; (2 * taken as usize).max(least)], next: 0, taken: 0 };
        for _ in 0..taken {
            self.push();
        }
    }
}

impl StackCounter {
    /// Counts one access; returns its distance.
    pub fn access(&mut self, row: u64) -> u32 {
        if self.stack.full() {
            // The rows that are held, oldest first, move to the first slots.
            let mut held: Vec<(u32, u64)> = self.slots.iter().map(|(&row, &slot)| (slot, row)).collect();
            held.sort_unstable();
            self.stack.renew(1 << 10);
            self.slots = held.into_iter().zip(0..).map(|((_, row), slot)| (row, slot)).collect();
        }
        let distance = match self.slots.get(&row) {
            Some(&slot) => {
                let distance = self.stack.taken - self.stack.up_to(slot) + 1;
                self.stack.release(slot);
                distance
            }
            None => {
                self.rows.push(row);
                0
            }
        };
        let slot = self.stack.push();
        self.slots.insert(row, slot);
        *self.counts.entry(distance).or_default() += 1;
        self.accesses += 1;
        distance
    }

    /// What was counted; nothing without an access.
    #[must_use]
    pub fn profile(self) -> Option<StackProfile> {
        let mut counts: Vec<(u32, u64)> = self.counts.into_iter().collect();
        counts.sort_unstable();
        let total = self.accesses as f64;
        let mut sum = 0;
        let cumulative = counts.iter().map(|(_, count)| {
            sum += count;
            sum as f64 / total
        });
        let cumulative = cumulative.collect();
        let distances = counts.into_iter().map(|(distance, _)| distance).collect();
        (self.accesses > 0).then_some(StackProfile { rows: self.rows, distances, cumulative })
    }
}

impl StackProfile {
    /// Reads a file of the reference's, or one of [`StackProfile::write`].
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::BadRow`] with the line that cannot be.
    pub fn read(path: &Path) -> Result<Self> {
        let text = input::read_text(path)?;
        Self::parse(&text).map_err(|(line, reason)| Error::BadRow {
            path: path.to_owned(),
            line,
            reason: reason.into(),
        })
    }

    /// What tells it from others.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let Self { rows, distances, cumulative } = self;
        of_bytes([bytemuck::cast_slice(rows), bytemuck::cast_slice(distances), bytemuck::cast_slice(cumulative)])
    }

    fn parse(text: &str) -> std::result::Result<Self, (u64, String)> {
        fn numbers<T: std::str::FromStr>(
            text: &str,
            line: u64,
            what: &str,
        ) -> std::result::Result<Vec<T>, (u64, String)> {
            let fields = text.lines().nth(line as usize - 1).unwrap_or_default().split(',').map(str::trim);
            let number = |field: &str| {
                let shown: String = field.chars().take(32).collect();
                // The reference prints what Python shows of its numbers, which since numpy 2 names their type.
                let bare = field.strip_prefix("np.uint64(").and_then(|rest| rest.strip_suffix(')'));
                bare.unwrap_or(field)
                    .parse()
                    .map_err(|_| (line, format!("{what} are expected, separated by commas; found \"{shown}\"")))
            };
            fields.map(number).collect()
        }
        let found = Self {
            rows: numbers(text, 1, "row numbers")?,
            distances: numbers(text, 2, "stack distances")?,
            cumulative: numbers(text, 3, "shares of accesses")?,
        };
        let (rows, last) = (found.rows.len(), *found.distances.last().expect("a line has a number"));
        if u32::try_from(rows).is_err() {
            return Err((1, format!("{rows} rows are more than a table can have")));
        }
        if found.distances[0] != 0 || !found.distances.is_sorted_by(|a, b| a < b) {
            return Err((2, "stack distances must rise from 0, which stands for a row's first access".to_owned()));
        }
        if last as usize > rows {
            return Err((2, format!("the distance {last} needs as many rows, but line 1 has {rows}")));
        }
        let (shares, distances) = (&found.cumulative, found.distances.len());
        if shares.len() != distances {
            return Err((3, format!("has {} shares, but line 2 has {distances} distances", shares.len())));
        }
        // The reference adds rounded shares up.
        let ends = shares.last().is_some_and(|last| (last - 1.0).abs() < 1e-6);
        if !(shares[0] > 0.0 && shares.is_sorted() && ends) {
            return Err((3, "shares must rise from more than 0 to 1".to_owned()));
        }
        Ok(found)
    }

    /// Writes the profile as the reference does.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = String::new();
        line(&mut text, &self.rows);
        line(&mut text, &self.distances);
        line(&mut text, &self.cumulative);
        write_file(path, text.as_bytes())
    }
}

fn line<T: std::fmt::Display>(text: &mut String, numbers: &[T]) {
    for (at, number) in numbers.iter().enumerate() {
        let _ = write!(text, "{}{number}", if at > 0 { ", " } else { "" });
    }
    text.push('\n');
}

impl StackTrace {
    /// A trace with the locality of `profile`; `table` and `seed` decide which.
    #[must_use]
    pub fn new(profile: StackProfile, seed: u64, table: u32) -> Self {
        let rows = profile.rows.len() as u32;
        let mut stack = Stack { tree: vec![0; (2 * rows as usize).max(1 << 10)], next: 0, taken: 0 };
        // The row that appears first lies deepest: it is the next new one.
        for _ in 0..rows {
            stack.push();
        }
        let mut held: Vec<u32> = (0..rows).collect();
        held.resize(stack.tree.len(), 0);
        Self { profile, random: Random::new(seed, Stream::Column(table)), stack, held, accesses: 0, new: 0 }
    }

    /// The row of the next access.
    pub fn next_row(&mut self) -> u64 {
        let distance = self.distance();
        self.accesses += 1;
        self.new += u64::from(distance == 0);
        if self.stack.full() {
            let held = std::mem::take(&mut self.held);
            let order = (0..self.stack.taken).map(|older| held[self.stack.with_older(older) as usize]);
            self.held = order.collect();
            self.stack.renew(1 << 10);
            self.held.resize(self.stack.tree.len(), 0);
        }
        // A new row is the one at the bottom.
        let older = if distance == 0 { 0 } else { self.stack.taken - distance };
        let slot = self.stack.with_older(older);
        let row = self.held[slot as usize];
        self.stack.release(slot);
        let top = self.stack.push();
        self.held[top as usize] = row;
        self.profile.rows[row as usize]
    }

    /// A distance: none is greater than the rows that were seen.
    fn distance(&self) -> u32 {
        let StackProfile { distances, cumulative, .. } = &self.profile;
        let [mut uniform, _] = self.random.uniform_pair(self.accesses);
        if self.new < u64::from(distances[distances.len() - 1]) {
            let seen = distances.partition_point(|&distance| u64::from(distance) <= self.new);
            uniform *= cumulative[seen - 1];
        }
        let at = cumulative.partition_point(|&share| share < uniform);
        distances[at.min(distances.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn profiled(trace: &[u64]) -> (Vec<u32>, StackProfile) {
        let mut counter = StackCounter::default();
        let distances = trace.iter().map(|&row| counter.access(row)).collect();
        (distances, counter.profile().unwrap())
    }

    /// The definition: the stack as a list, its top at the end.
    fn defined(trace: &[u64]) -> Vec<u32> {
        let mut stack: Vec<u64> = Vec::new();
        let distance = |&row: &u64| {
            let found = stack.iter().position(|&held| held == row);
            let distance = found.map_or(0, |at| (stack.len() - at) as u32);
            found.map(|at| stack.remove(at));
            stack.push(row);
            distance
        };
        trace.iter().map(distance).collect()
    }

    /// The definition of drawing: the reference's list.
    fn drawn(profile: &StackProfile, distances: &[u32]) -> Vec<u64> {
        let mut lines = profile.rows.clone();
        let draw = |&distance: &u32| {
            let at = if distance == 0 { 0 } else { lines.len() - distance as usize };
            let row = lines.remove(at);
            lines.push(row);
            row
        };
        distances.iter().map(draw).collect()
    }

    #[test]
    fn distances_count_the_rows_in_between() {
        let (distances, profile) = profiled(&[7, 8, 7, 7, 9, 8]);
        assert_eq!(distances, [0, 0, 2, 1, 0, 3]);
        assert_eq!((&profile.rows[..], &profile.distances[..]), (&[7, 8, 9][..], &[0, 1, 2, 3][..]));
        let shares = profile.cumulative.iter().map(|share| (share * 6.0).round() as u32).collect::<Vec<_>>();
        assert_eq!(shares, [3, 4, 5, 6]);
    }

    proptest! {
        #[test]
        fn the_tree_is_the_list(trace in proptest::collection::vec(0u64..60, 1..5000)) {
            let (distances, profile) = profiled(&trace);
            prop_assert_eq!(&distances, &defined(&trace));
            let mut made = StackTrace::new(profile.clone(), 3, 1);
            let mut taken = Vec::new();
            let rows: Vec<u64> = (0..3000).map(|_| {
                taken.push(made.distance());
                made.next_row()
            }).collect();
            prop_assert_eq!(rows, drawn(&profile, &taken));
            prop_assert!(taken.iter().all(|distance| profile.distances.contains(distance)));
            prop_assert_eq!(taken[0], 0);
        }

        #[test]
        fn no_profile_makes_its_reader_panic(text in "[0-9,. e\\n-]{0,60}") {
            if let Ok(profile) = StackProfile::parse(&text) {
                let mut trace = StackTrace::new(profile, 1, 0);
                let rows = trace.profile.rows.clone();
                (0..50).for_each(|_| assert!(rows.contains(&trace.next_row())));
            }
        }
    }

    #[test]
    fn a_trace_has_the_locality_that_it_was_made_for() {
        // Hot rows beside a long tail.
        let random = Random::new(1, Stream::Column(9));
        let trace: Vec<u64> = (0..40_000)
            .map(|n| random.uniform_pair(n)[0])
            .map(|uniform| (uniform * uniform * uniform * 2000.0) as u64)
            .collect();
        let (_, profile) = profiled(&trace);
        let mut made = StackTrace::new(profile.clone(), 5, 0);
        let rows: Vec<u64> = (0..80_000).map(|_| made.next_row()).collect();
        // At first no distance can be greater than the rows that were seen, so what was drawn then is nearer.
        let (distances, _) = profiled(&rows);
        for most in [1, 10, 100, 400, 1000] {
            let near = |distance: &&u32| (1..=most).contains(*distance);
            let found = distances[40_000..].iter().filter(near).count() as f64 / 40_000.0;
            let at = profile.distances.partition_point(|&known| known <= most);
            let wanted = profile.cumulative[at - 1] - profile.cumulative[0];
            assert!((wanted - found).abs() < 0.02, "{most}: {wanted} {found}");
        }
        assert!(rows.iter().all(|row| profile.rows.contains(row)));
        let mut again = StackTrace::new(profile, 5, 0);
        assert!(rows.iter().all(|&row| row == again.next_row()), "a trace is a function of its seed");
    }

    #[test]
    fn profiles_survive_their_file_and_bad_ones_name_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dist_emb_0.log");
        let (_, profile) = profiled(&[7, 8, 7, 7, 9, 8, 7, 1000]);
        profile.write(&path).unwrap();
        assert_eq!(StackProfile::read(&path).unwrap(), profile);
        for (text, told) in [
            ("", "line 1: row numbers are expected, separated by commas; found \"\""),
            ("1, x\n0\n1", "line 1: row numbers are expected, separated by commas; found \"x\""),
            ("1, 2\n1, 2\n0.5, 1.0", "line 2: stack distances must rise from 0"),
            ("1, 2\n0, 2, 1\n0.2, 0.5, 1.0", "line 2: stack distances must rise from 0"),
            ("1, 2\n0, 3\n0.5, 1.0", "line 2: the distance 3 needs as many rows, but line 1 has 2"),
            ("1, 2\n0, 1\n1.0", "line 3: has 1 shares, but line 2 has 2 distances"),
            ("1, 2\n0, 1\n0.5, 0.9", "line 3: shares must rise from more than 0 to 1"),
            ("1, 2\n0, 1\nNaN, 1.0", "line 3: shares must rise from more than 0 to 1"),
        ] {
            std::fs::write(&path, text).unwrap();
            let found = StackProfile::read(&path).unwrap_err().to_string();
            assert!(found.contains(told), "{found}");
        }
    }
}
