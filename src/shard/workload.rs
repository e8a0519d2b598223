//! What a step of training asks of tables, and what a part of one adds to its rank.
//!
//! Loads are whole numbers, so that adding and taking away parts in any order leaves exactly what was there.

use std::ops::{AddAssign, Mul};

use serde::Serialize;

use super::traffic::ID_BYTES;
use crate::collective::{Payload, Reduced};
use crate::data::Slice;
use crate::math::Grains;

/// What one table asks for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableLoad {
    /// The column's name.
    pub name: String,
    /// Rows of the table.
    pub rows: u64,
    /// Its columns.
    pub dim: usize,
    /// Vectors of a sample that reach the network: 1 where rows are pooled, else the steps of a time series.
    pub positions: usize,
    /// Look-ups a sample, on average (the pooling factor).
    pub lookups: f64,
    /// Look-ups of a sample for which there is room, if more: those of the longest bag.
    pub longest: usize,
    /// Zipf exponent of the rows' frequencies; 0: all alike.
    pub skew: f64,
    /// Whether every look-up has a weight, which goes with its row number.
    pub weighted: bool,
    /// Bytes of optimizer state an element; Split-SGD's low halves count here.
    pub state_bytes: usize,
    /// Bytes of a learned weight a row, which a look-up reads, too.
    pub row_weight_bytes: usize,
    /// Bytes of optimizer state a row, and of its learned weight.
    pub row_state_bytes: usize,
    /// Bytes with which each of a minibatch's look-ups is sorted before its row moves.
    pub sorting: usize,
    /// Whether its rows are looked up where a checkpoint has them, as far as a rank's lie there one behind the other.
    pub stored: bool,
}

impl TableLoad {
    /// Bags of a sample, one or as many as a time series has steps, and the mean number of look-ups of each.
    pub(super) fn bags(&self) -> [f64; 2] {
        [self.positions as f64, self.lookups / self.positions as f64]
    }

    /// Words of [`ID_BYTES`] that name a look-up: its row number, and its weight if it has one.
    #[must_use]
    pub const fn words(&self) -> u64 {
        1 + self.weighted as u64
    }

    /// Bytes of a hot row of which a rank has a copy: its weights, its learned one included, and a sum of gradients.
    #[must_use]
    pub const fn copy_bytes(&self) -> u64 {
        (2 * self.dim * size_of::<f32>() + self.row_weight_bytes) as u64
    }

    /// Look-ups of a sample for which there is room.
    pub(super) fn most_lookups(&self) -> f64 {
        self.lookups.max(self.longest as f64)
    }

    /// Bytes that name a look-up.
    pub(super) const fn lookup_bytes(&self) -> f64 {
        (self.words() * ID_BYTES) as f64
    }
}

/// Memory that ranks reserve for steps, besides windows and what layers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Reserve {
    /// Samples of an evaluation's minibatches, which may be more than a step's.
    pub samples: usize,
    /// Whether each look-up has a gradient row of its own.
    pub gradient_rows: bool,
    /// Bytes of a rank's copies of hot rows, at most.
    pub copies: u64,
    /// Bytes of the sum of a chain's gradients of layers, where a slice is longer than one chain.
    pub gradients: u64,
}

/// What one step of training asks for, or of a model that predicts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Workload {
    /// By table.
    pub tables: Vec<TableLoad>,
    /// Samples of a step, over all ranks.
    pub batch: usize,
    /// Bytes of a weight as look-ups read it.
    pub weight_bytes: usize,
    /// Bytes of a pooled element, or its gradient, on the wire.
    pub exchange_bytes: usize,
    /// What gradients of layers travel in.
    pub payload: Payload,
    /// Bytes of each rank's MLPs: weights, gradients and state.
    pub dense_bytes: u64,
    /// Bytes that a sample keeps throughout a step: pooled rows.
    pub sample_bytes: u64,
    /// Bytes that a sample leaves between the layers while its part of a minibatch is worked on.
    pub part_bytes: u64,
    /// The rows in which it does: one, or one for each step of a time series.
    pub part_rows: usize,
    /// Samples of a part, if that is not for each rank to choose.
    pub part: Option<usize>,
    /// The MLPs' layers, whose gradients are all-reduced.
    pub layers: Vec<Reduced>,
    /// The schedule by which they are, if not that of the least price.
    pub collective: Option<&'static str>,
    /// Operations of MLPs and interaction a sample, forward and backward; a multiply-add counts as two.
    pub sample_operations: u64,
    /// Whether these multiply bfloat16.
    pub bf16: bool,
    /// Whether weights move: else there are no gradients, nor what is exchanged of them.
    pub learns: bool,
    /// What minibatches are cut into where the number of ranks shall change no bit: ranks then have whole grains, and
    /// send what their samples' gradients are instead of sums, and rows themselves instead of sums of several
    /// ([`crate::base::config::Determinism::Ranks`]).
    pub grains: Option<Grains>,
    /// What else ranks reserve.
    pub reserve: Reserve,
}

impl Workload {
    /// Columns of each table.
    #[must_use]
    pub fn dims(&self) -> Vec<usize> {
        self.tables.iter().map(|table| table.dim).collect()
    }

    /// Vectors of a sample of each table.
    #[must_use]
    pub fn positions(&self) -> Vec<usize> {
        self.tables.iter().map(|table| table.positions).collect()
    }

    /// Samples that each of so many ranks has of a minibatch of `samples`.
    #[must_use]
    pub fn slices(&self, samples: usize, ranks: usize) -> Vec<usize> {
        (0..ranks).map(|rank| Slice::new(rank, ranks).with_grains(self.grains).of(samples).len()).collect()
    }

    /// Columns of the widest table; 0 without tables.
    #[must_use]
    pub fn widest(&self) -> usize {
        self.tables.iter().map(|table| table.dim).max().unwrap_or(0)
    }

    /// Of each table, whether ranks may have copies of its hot rows. Not of a table of one column beside wider ones,
    /// which is a wide part's: a copy of all of it takes little more than what finds hot rows in it.
    #[must_use]
    pub fn copied(&self) -> Vec<bool> {
        let all = self.widest() == 1;
        self.tables.iter().map(|table| table.dim > 1 || all).collect()
    }
}

/// What a part of a table adds to its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Bytes of random rows that look-up reads.
    pub lookup_rows: i64,
    /// Bytes that look-up reads and writes in order: ids and sums.
    pub lookup_stream: i64,
    /// Bytes of random rows that the update reads and writes.
    pub update_rows: i64,
    /// Bytes that the update reads in order.
    pub update_stream: i64,
    /// Bytes of weights and state.
    pub memory: i64,
    /// Columns that every sample gets, of pooled rows and of sequences.
    pub columns: i64,
    /// Streams of ids that it receives from every rank; of a sequence one for each step.
    pub streams: i64,
    /// Row numbers that it receives from all ranks, and weights.
    pub row_ids: i64,
    /// Elements of rows that it sends to all ranks as they are.
    pub unpooled: i64,
    /// Words of row numbers and weights from all ranks for which there is room.
    pub ids_room: i64,
    /// Bytes that its updates reserve.
    pub update_room: i64,
}

impl Load {
    /// Bytes that look-up and update move.
    #[must_use]
    pub const fn moved(&self) -> i64 {
        self.lookup_rows + self.lookup_stream + self.update_rows + self.update_stream
    }

    /// `of(one, other)` of each number.
    fn each(self, other: Self, of: impl Fn(i64, i64) -> i64) -> Self {
        Self {
            lookup_rows: of(self.lookup_rows, other.lookup_rows),
            lookup_stream: of(self.lookup_stream, other.lookup_stream),
            update_rows: of(self.update_rows, other.update_rows),
            update_stream: of(self.update_stream, other.update_stream),
            memory: of(self.memory, other.memory),
            columns: of(self.columns, other.columns),
            streams: of(self.streams, other.streams),
            row_ids: of(self.row_ids, other.row_ids),
            unpooled: of(self.unpooled, other.unpooled),
            ids_room: of(self.ids_room, other.ids_room),
            update_room: of(self.update_room, other.update_room),
        }
    }
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        *self = self.each(other, |one, other| one + other);
    }
}

impl Mul<i64> for Load {
    type Output = Self;
    fn mul(self, times: i64) -> Self {
        self.each(self, |number, _| number * times)
    }
}
