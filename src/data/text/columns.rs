//! The rows of a piece of text, column by column: what parsers of whole pieces fill.

use super::lines::without_end;
use crate::base::Reason;

/// The rows of a piece of text, column by column; cleared and filled again. `K` is the type of categorical values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns<K> {
    /// One label a row.
    pub labels: Vec<f32>,
    /// Integers, [`MISSING`](crate::data::samples::MISSING) where there is none; column c begins at c x `stride`.
    pub(in crate::data) integers: Vec<i32>,
    pub(in crate::data) keys: Vec<K>,
    pub(in crate::data) stride: usize,
    /// Columns of several values a row: the values, and where each row's end; empty for the others.
    lists: Vec<(Vec<K>, Vec<u32>)>,
    /// A weight a value, in columns that have weights; empty for the others.
    weights: Vec<Vec<f32>>,
}

/// What was found beside the good rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Lines, good or not.
    pub lines: u64,
    /// Malformed rows that were left out.
    pub skipped: u64,
}

/// A malformed row of a piece of text: its line, counted from 0, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Lines before it.
    pub line: u64,
    /// What was expected and what was found.
    pub reason: Reason,
}

impl<K: Copy + Default> Columns<K> {
    /// Forgets all rows, and makes room for `rows` of `dense` integers and `categorical` values.
    pub fn reset(&mut self, rows: usize, dense: usize, categorical: usize) {
        // Columns that lie a multiple of 4096 bytes apart would all fall into the same sets of the first-level cache.
        self.stride = rows.next_multiple_of(16) + 16 * usize::from(rows.next_multiple_of(16).is_multiple_of(512));
        self.labels.clear();
        self.labels.reserve(rows);
        self.integers.resize((dense * self.stride).max(self.integers.len()), 0);
        self.keys.resize((categorical * self.stride).max(self.keys.len()), K::default());
        self.lists.resize_with(categorical, Default::default);
        for (keys, ends) in &mut self.lists {
            keys.clear();
            ends.clear();
        }
        self.weights.resize_with(categorical, Vec::new);
        self.weights.iter_mut().for_each(Vec::clear);
    }

    /// Good rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// An integer column.
    #[must_use]
    pub fn integers(&self, column: usize) -> &[i32] {
        &self.integers[column * self.stride..][..self.rows()]
    }

    /// Where each row's values end, in a column of several values a row.
    #[must_use]
    pub fn ends(&self, column: usize) -> Option<&[u32]> {
        self.lists.get(column).map(|(_, ends)| &ends[..]).filter(|ends| !ends.is_empty())
    }

    /// A categorical column.
    #[must_use]
    pub fn keys(&self, column: usize) -> &[K] {
        if self.ends(column).is_some() {
            return &self.lists[column].0;
        }
        &self.keys[column * self.stride..][..self.rows()]
    }

    /// A weight a value, in a categorical column that has weights.
    #[must_use]
    pub fn weights(&self, column: usize) -> Option<&[f32]> {
        self.weights.get(column).map(|weights| &weights[..]).filter(|weights| !weights.is_empty())
    }

    /// Appends a row; there must be room.
    pub fn push(&mut self, label: f32, integers: &[i32], keys: &[K]) {
        let row = self.labels.len();
        for (column, &value) in integers.iter().enumerate() {
            self.integers[column * self.stride + row] = value;
        }
        for (column, &value) in keys.iter().enumerate() {
            self.keys[column * self.stride + row] = value;
        }
        self.labels.push(label);
    }

    /// Appends the values of the row that was pushed last, in a column of several values a row.
    pub fn push_list(&mut self, column: usize, values: &[K]) {
        let (keys, ends) = &mut self.lists[column];
        keys.extend_from_slice(values);
        ends.push(u32::try_from(keys.len()).expect("a piece of text has fewer values than bytes"));
        debug_assert_eq!(ends.len(), self.labels.len());
    }

    /// Appends the weights of the row that was pushed last.
    pub fn push_weights(&mut self, column: usize, weights: &[f32]) {
        self.weights[column].extend_from_slice(weights);
    }
}

/// Line ends in a text.
#[must_use]
pub fn line_ends(text: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', text).count()
}

/// For how many rows a text needs room that have so many bytes at least with their line ends: wherever a line begins
/// there is room for one more row than there are before it. Blank lines, of which there may be many more, need none.
#[must_use]
pub fn most_rows(text: &[u8], least: usize) -> usize {
    line_ends(text).min(text.len() / least.max(1)) + 1
}

/// The place behind the line that begins at `at`, and the line without its end: see [`without_end`].
#[must_use]
pub fn line_at(text: &[u8], at: usize) -> (usize, &[u8]) {
    let rest = &text[at..];
    let (length, next) = memchr::memchr(b'\n', rest).map_or((rest.len(), text.len()), |end| (end, at + end + 1));
    let line = &rest[..length];
    (next, without_end(line))
}
