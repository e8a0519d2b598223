//! One minibatch in memory: dense features, embedding bags and labels of N samples.
//!
//! Invariant: every bag's offsets start at 0, never fall, have N + 1 entries and end at the number of its row ids.
//! A batch is filled, trained on, cleared and filled again; clearing keeps the memory.

use std::ops::Range;

use super::Schema;
use crate::base::{Error, Result};
use crate::math::StridedRows;

/// The look-ups of one table for all samples of a minibatch, in compressed sparse rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bag {
    /// Sample n looks up `rows[offsets[n]..offsets[n + 1]]`; N + 1 entries.
    pub offsets: Vec<u32>,
    /// Row numbers.
    pub rows: Vec<u32>,
}

impl Bag {
    fn new() -> Self {
        Self { offsets: vec![0], rows: Vec::new() }
    }

    /// Ends the current sample's bag: what was pushed to `rows` since the last call belongs to it.
    pub fn close(&mut self) {
        self.offsets.push(u32::try_from(self.rows.len()).expect("a minibatch has fewer than 2^32 look-ups a table"));
    }

    /// Samples whose bags are closed.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Checks the look-ups from number `first` on, whose samples are closed, against the rows that `table` has.
    ///
    /// # Errors
    /// [`Error::RowBeyondTable`] for the first one that it does not have.
    pub(super) fn check_rows(&self, first: usize, table: usize, name: &str, rows: u64) -> Result<()> {
        let of = &self.rows[first..];
        // The maximum first: it vectorises, and almost always it is all that is needed.
        if u64::from(of.iter().copied().max().unwrap_or(0)) < rows {
            return Ok(());
        }
        let Some(wrong) = of.iter().position(|&row| u64::from(row) >= rows).map(|at| first + at) else { return Ok(()) };
        Err(Error::RowBeyondTable {
            table: table as u32,
            name: name.to_owned(),
            row: u64::from(self.rows[wrong]),
            rows,
            sample: self.offsets.partition_point(|&offset| offset as usize <= wrong) - 1,
        })
    }

    /// The rows that sample `n` looks up.
    #[must_use]
    pub fn of(&self, n: usize) -> &[u32] {
        &self.rows[self.offsets[n] as usize..self.offsets[n + 1] as usize]
    }

    /// Whether each of these samples has one look-up.
    #[must_use]
    pub fn is_single(&self, samples: &Range<usize>) -> bool {
        let (offsets, first) = (&self.offsets[samples.start..=samples.end], self.offsets[samples.start]);
        // Nothing ends the search early, so that several are compared at once.
        (first..).zip(offsets).fold(true, |single, (due, offset)| single & (due == *offset))
    }

    /// Makes each sample's bag `positions` bags, each with one of its look-ups, in their order: the last ones if there
    /// are more, none in the first bags if there are fewer. `weights` are those of the look-ups, or empty.
    pub fn spread(&mut self, positions: usize, weights: &mut Vec<f32>) {
        let (samples, mut kept, mut start) = (self.samples(), 0, 0);
        for end in &mut self.offsets[1..] {
            let next = *end as usize;
            let count = (next - start).min(positions);
            self.rows.copy_within(next - count..next, kept);
            if !weights.is_empty() {
                weights.copy_within(next - count..next, kept);
            }
            kept += count;
            (start, *end) = (next, kept as u32);
        }
        self.rows.truncate(kept);
        weights.truncate(kept);
        // From the last one on, so that nothing is overwritten before it is read.
        self.offsets.resize(samples * positions + 1, 0);
        for sample in (0..samples).rev() {
            let (start, end) = (self.offsets[sample], self.offsets[sample + 1]);
            for position in (0..positions).rev() {
                let behind = (positions - 1 - position) as u32;
                self.offsets[sample * positions + position + 1] = end.saturating_sub(behind).max(start);
            }
        }
    }

    /// The same look-ups, borrowed.
    #[must_use]
    pub fn view(&self) -> BagView<'_> {
        BagView { offsets: &self.offsets, rows: &self.rows }
    }
}

/// A [`Bag`] in memory of any kind, in a minibatch or in a message of another rank, or some samples of one: their
/// offsets lead into the rows of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BagView<'a> {
    /// As [`Bag::offsets`].
    pub offsets: &'a [u32],
    /// As [`Bag::rows`].
    pub rows: &'a [u32],
}

impl<'a> BagView<'a> {
    /// How many samples there are.
    #[must_use]
    pub const fn samples(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Those of some of the samples.
    ///
    /// # Panics
    /// When there are not so many.
    #[must_use]
    pub fn of_samples(self, samples: &Range<usize>) -> Self {
        Self { offsets: &self.offsets[samples.start..=samples.end], ..self }
    }

    /// How many look-ups these samples have.
    #[must_use]
    pub const fn look_ups(&self) -> usize {
        (self.offsets[self.samples()] - self.offsets[0]) as usize
    }

    /// The rows that sample `n` looks up.
    #[must_use]
    pub fn of(&self, n: usize) -> &'a [u32] {
        &self.rows[self.offsets[n] as usize..self.offsets[n + 1] as usize]
    }
}

/// A minibatch of N samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Numbers of a sample in `dense`, D: its dense features and, behind them, its weight where it has one.
    pub dense_width: usize,
    /// Whether samples have weights. These stand in the dense matrix, so that whoever cuts, shuffles or sends samples
    /// carries them without a path of their own; layers read as many columns as they have inputs, and the loss and the
    /// scores the last one.
    pub weighted: bool,
    /// Dense features and weights, N x D, row-major.
    pub dense: Vec<f32>,
    /// One entry a table.
    pub bags: Vec<Bag>,
    /// One list a table: what each look-up's row is multiplied by, in the order of `Bag::rows`; without entries where
    /// all count the same.
    pub weights: Vec<Vec<f32>>,
    /// N labels.
    pub labels: Vec<f32>,
}

impl Batch {
    /// An empty minibatch for samples of this schema.
    #[must_use]
    pub fn new(schema: &Schema) -> Self {
        Self {
            dense_width: schema.dense + usize::from(schema.weighted),
            weighted: schema.weighted,
            dense: Vec::new(),
            bags: vec![Bag::new(); schema.tables.len()],
            weights: vec![Vec::new(); schema.tables.len()],
            labels: Vec::new(),
        }
    }

    /// The number of samples, N.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.labels.len()
    }

    /// The dense features of the samples from number `first` on: no row where samples have none.
    #[must_use]
    pub fn features(&self, first: usize) -> StridedRows<'_> {
        match self.dense_width - usize::from(self.weighted) {
            0 => StridedRows { data: &[], stride: 0 },
            _ => StridedRows { data: &self.dense[first * self.dense_width..], stride: self.dense_width },
        }
    }

    /// The weights of the samples from number `first` on, each the first number of its row; nothing where all samples
    /// count the same.
    #[must_use]
    pub fn sample_weights(&self, first: usize) -> Option<StridedRows<'_>> {
        let rows = StridedRows { data: self.dense.get(first * self.dense_width..)?, stride: self.dense_width };
        self.weighted.then(|| rows.columns_from(self.dense_width - 1))
    }

    /// The weight of each sample, 1 where all count the same.
    pub fn each_sample_weight(&self) -> impl Iterator<Item = f32> {
        let own = self.sample_weights(0).into_iter().flat_map(|rows| rows.rows_from(0));
        // The last row ends behind its weight.
        own.map(|row| row[0]).chain(std::iter::repeat(1.0)).take(self.samples())
    }

    /// Forgets all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.dense.clear();
        self.labels.clear();
        for bag in &mut self.bags {
            bag.offsets.truncate(1);
            bag.rows.clear();
        }
        self.weights.iter_mut().for_each(Vec::clear);
    }

    /// Appends sample `n` of `from`.
    pub fn push_from(&mut self, from: &Self, n: usize) {
        debug_assert_eq!(self.dense_width, from.dense_width);
        self.dense.extend_from_slice(&from.dense[n * from.dense_width..(n + 1) * from.dense_width]);
        self.labels.push(from.labels[n]);
        for (bag, source) in self.bags.iter_mut().zip(&from.bags) {
            bag.rows.extend_from_slice(source.of(n));
            bag.close();
        }
        self.append_weights(from, n..n + 1);
    }

    /// Appends the samples `range` of `from`.
    ///
    /// # Panics
    /// When `from` has fewer samples.
    pub fn append_range(&mut self, from: &Self, range: std::ops::Range<usize>) {
        debug_assert_eq!(self.dense_width, from.dense_width);
        let width = from.dense_width;
        self.dense.extend_from_slice(&from.dense[range.start * width..range.end * width]);
        self.labels.extend_from_slice(&from.labels[range.clone()]);
        for (bag, source) in self.bags.iter_mut().zip(&from.bags) {
            let (first, end) = (source.offsets[range.start], source.offsets[range.end]);
            let before = bag.rows.len();
            bag.rows.extend_from_slice(&source.rows[first as usize..end as usize]);
            assert!(u32::try_from(bag.rows.len()).is_ok(), "a minibatch has fewer than 2^32 look-ups a table");
            bag.offsets.extend(source.offsets[range.start + 1..=range.end].iter().map(|at| at - first + before as u32));
        }
        self.append_weights(from, range);
    }

    /// Appends the weights of the samples `range` of `from`.
    fn append_weights(&mut self, from: &Self, range: std::ops::Range<usize>) {
        for ((to, weights), bag) in self.weights.iter_mut().zip(&from.weights).zip(&from.bags) {
            // Mostly there are none.
            if !weights.is_empty() {
                to.extend_from_slice(&weights[bag.offsets[range.start] as usize..bag.offsets[range.end] as usize]);
            }
        }
    }

    /// Checks every shape and every row number against the schema.
    ///
    /// # Errors
    /// [`Error::RowBeyondTable`] for the first look-up that the schema's tables do not have.
    ///
    /// # Panics
    /// When the shapes contradict each other: that is a defect of the source, not of the data.
    pub fn check(&self, schema: &Schema) -> Result<()> {
        let samples = self.samples();
        assert_eq!(self.dense.len(), samples * self.dense_width, "dense features are N x D");
        assert_eq!(self.bags.len(), schema.tables.len(), "one bag a table");
        assert_eq!(self.weights.len(), schema.tables.len(), "one list of weights a table");
        for ((weights, bag), column) in self.weights.iter().zip(&self.bags).zip(&schema.tables) {
            let due = if column.weighted { bag.rows.len() } else { 0 };
            assert_eq!(weights.len(), due, "one weight a look-up of a weighted column");
        }
        for (number, (bag, column)) in self.bags.iter().zip(&schema.tables).enumerate() {
            assert_eq!(bag.samples(), samples, "one closed bag a sample");
            assert_eq!(bag.offsets[samples] as usize, bag.rows.len(), "offsets end at the last row");
            assert!(bag.offsets.is_sorted(), "offsets never fall");
            bag.check_rows(0, number, &column.name, column.rows)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bag_spread_over_positions_keeps_its_last_look_ups_in_order() {
        let bag = Bag { offsets: vec![0, 1, 1, 5, 7], rows: vec![9, 1, 2, 3, 4, 8, 8] };
        for weighted in [false, true] {
            let (mut spread, mut weights) = (bag.clone(), Vec::new());
            if weighted {
                weights = vec![0.5, 1.0, 2.0, 3.0, 4.0, 7.0, 8.0];
            }
            spread.spread(3, &mut weights);
            let of = |sample: usize| [0, 1, 2].map(|position| spread.of(3 * sample + position).to_vec());
            assert_eq!(of(0), [vec![], vec![], vec![9]]);
            assert_eq!(of(1), [const { Vec::<u32>::new() }; 3]);
            assert_eq!(of(2), [vec![2], vec![3], vec![4]]);
            assert_eq!(of(3), [vec![], vec![8], vec![8]]);
            assert_eq!(weights, if weighted { vec![0.5, 2.0, 3.0, 4.0, 7.0, 8.0] } else { Vec::new() });
        }
        let (mut one, mut empty) = (bag.clone(), Bag { offsets: vec![0], rows: Vec::new() });
        one.spread(1, &mut Vec::new());
        empty.spread(4, &mut Vec::new());
        assert_eq!((one.offsets, one.rows, empty.offsets), (vec![0, 1, 1, 2, 3], vec![9, 4, 8], vec![0]));
    }
    use crate::data::Column;

    fn schema() -> Schema {
        let weighted = Column { weighted: true, ..Column::new("C2", 10) };
        Schema { dense: 2, weighted: false, tables: vec![Column::new("C1", 3), weighted] }
    }

    fn two_samples() -> Batch {
        let mut batch = Batch::new(&schema());
        for n in 0..2u32 {
            batch.dense.extend([n as f32, 1.0]);
            batch.labels.push(n as f32);
            batch.bags[0].rows.push(n);
            batch.bags[1].rows.extend([n + 4, n + 5]);
            batch.weights[1].extend([n as f32, 0.5]);
            batch.bags.iter_mut().for_each(Bag::close);
        }
        batch
    }

    #[test]
    fn a_row_beyond_its_table_is_named() {
        let mut batch = two_samples();
        batch.check(&schema()).unwrap();
        batch.bags[1].rows[3] = 10;
        let message = batch.check(&schema()).unwrap_err().to_string();
        assert!(message.contains("table 1 (C2): row 10 is beyond its 10 rows (sample 1"), "{message}");
    }

    #[test]
    fn a_weight_stands_behind_the_features_of_its_sample_wherever_that_goes() {
        let schema = Schema { weighted: true, ..schema() };
        let mut from = Batch { dense_width: 3, weighted: true, ..two_samples() };
        from.dense = vec![0.0, 1.0, 0.5, 1.0, 1.0, 7.0];
        let mut batch = Batch::new(&schema);
        batch.push_from(&from, 1);
        batch.append_range(&from, 0..2);
        batch.check(&schema).unwrap();
        let weights = |first| batch.sample_weights(first).unwrap().rows_from(0).map(|row| row[0]).collect::<Vec<_>>();
        assert_eq!((weights(0), weights(1)), (vec![7.0, 0.5, 7.0], vec![0.5, 7.0]));
        assert_eq!((batch.features(1).data[..2].to_vec(), batch.features(1).stride), (vec![0.0, 1.0], 3));
        // Without features, layers meet no row.
        let alone = Batch::new(&Schema { dense: 0, ..schema });
        assert_eq!((alone.dense_width, alone.features(0).stride), (1, 0));
        assert!(two_samples().sample_weights(0).is_none());
    }

    #[test]
    fn clearing_and_copying_keep_the_invariant() {
        let from = two_samples();
        let mut batch = Batch::new(&schema());
        batch.push_from(&from, 1);
        batch.push_from(&from, 0);
        batch.check(&schema()).unwrap();
        assert_eq!(batch.labels, [1.0, 0.0]);
        assert_eq!((batch.bags[1].of(0), &batch.weights), (&[5, 6][..], &vec![vec![], vec![1.0, 0.5, 0.0, 0.5]]));
        batch.append_range(&from, 1..2);
        assert_eq!(batch.weights[1][4..], [1.0, 0.5]);
        batch.clear();
        assert_eq!(batch.samples(), 0);
        batch.check(&schema()).unwrap();
    }
}
