//! One embedding table: rows x dim numbers, whole or in halves.

use std::borrow::Cow;
use std::ops::Range;

use super::form::{Form, seen_words, with_form, words};
use super::weights::{Learned, RowWeights};
use crate::base::Result;
use crate::base::config::Precision;
use crate::machine::team::Team;
use crate::memory::{Buffer, Supply};
use crate::optim::ParamState;
use crate::sync::{AtomicU32, Matrix, Rows, atomic_words_32};

/// The rows of one categorical column.
#[derive(Debug)]
pub struct Table {
    /// The column's name.
    pub name: String,
    dim: usize,
    precision: Precision,
    /// Moments of each weight.
    moments: usize,
    /// Row-major: a row's weights, of whose words `form` says what they mean, then its moments, one after another.
    words: Buffer<u32>,
    /// A number a row, or none: apart, so that rows begin at cache lines.
    row_moments: Buffer<f32>,
    /// What look-ups multiply each row by, if that is learned.
    row_weights: Option<RowWeights>,
    /// What the first moment begins with.
    initial: f32,
    /// Whether the words are weights as a checkpoint has them, in a mapped file.
    stored: bool,
}

/// One of a table's tensors, as a checkpoint has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableTensor {
    /// The weights, rows x dim.
    Weight,
    /// What the optimizer keeps of each weight, by its place among
    /// [`Optimizer::moments`](crate::optim::Optimizer::moments).
    Moment(usize),
    /// The number that it keeps of each row: [`Optimizer::row_moment`](crate::optim::Optimizer::row_moment).
    RowMoment,
    /// The learned weight of each row.
    RowWeight,
    /// What the optimizer keeps of each learned weight, by its place: of row-wise Adagrad, to which a weight is a row
    /// of its own, the one number.
    RowWeightMoment(usize),
}

impl TableTensor {
    /// Whether it is one number for each row, and not one for each column.
    #[must_use]
    pub const fn is_of_rows(self) -> bool {
        !matches!(self, Self::Weight | Self::Moment(_))
    }
}

/// What a table has of its rows, to be lent side by side.
pub(super) struct Matrices<'a> {
    pub rows: Matrix<'a, u32>,
    /// The number that is kept of each row; without rows where none is.
    pub row_moments: Matrix<'a, f32>,
    /// Learned weights, and what is kept of them, if there are any.
    pub row_weights: Option<Matrix<'a, f32>>,
}

/// What is asked of a table without learned weights.
const UNWEIGHTED: &str = "rows have learned weights";

impl Table {
    /// A table of zeros, which is complete once [`Table::reset_optimizer_state`] has run.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When there are 2^32 rows or more.
    pub fn new(
        name: String,
        rows: u64,
        dim: usize,
        kept: impl Into<ParamState>,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let kept = kept.into();
        let ParamState { precision, optimizer, .. } = kept;
        let moments = optimizer.moments().len();
        let rows = u32::try_from(rows).expect("rows are below 2^32") as usize;
        let words = supply.buffer(&name, rows * (words(precision, dim) + moments * dim))?;
        let row_moments = supply.buffer(&name, if optimizer.row_moment().is_some() { rows } else { 0 })?;
        let row_weights = RowWeights::new(&name, rows, kept, supply)?;
        let initial = optimizer.initial();
        Ok(Self { name, dim, precision, moments, words, row_moments, row_weights, initial, stored: false })
    }

    /// Rows of a checkpoint, `weights` row-major, that are looked up in `precision` and never moved.
    ///
    /// # Panics
    /// When these are no whole rows.
    #[must_use]
    pub fn stored(name: String, dim: usize, precision: Precision, weights: Buffer<u32>) -> Self {
        assert!(weights.len().is_multiple_of(dim), "whole rows of {dim} columns");
        let (moments, row_moments, row_weights, initial) = (0, Buffer::default(), None, 0.0);
        Self { name, dim, precision, moments, words: weights, row_moments, row_weights, initial, stored: true }
    }

    /// The same with a learned weight a row where `kept` says so, each 1 once [`Table::reset_optimizer_state`] has run.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn with_row_weights(mut self, kept: ParamState, supply: &mut Supply<'_>) -> Result<Self> {
        self.row_weights = RowWeights::new(&self.name, self.rows(), kept, supply)?;
        Ok(self)
    }

    /// Whether its rows are a checkpoint's, and stay as they are.
    #[must_use]
    pub const fn is_stored(&self) -> bool {
        self.stored
    }

    /// Sets what the optimizer keeps, and learned weights of rows, to what they begin with, in memory that is new.
    pub fn reset_optimizer_state(&mut self, team: &Team) {
        self.row_weights.iter_mut().for_each(|weights| weights.reset_optimizer_state(team));
        if self.initial != 0.0 {
            self.forget(team);
        }
    }

    /// Sets what the optimizer keeps to what it begins with; each thread its own rows.
    pub fn forget(&mut self, team: &Team) {
        let (width, dim, moments, initial) = (self.width(), self.dim, self.moments * self.dim, self.initial);
        self.row_moments.fill(initial);
        self.row_weights.iter_mut().for_each(|weights| weights.forget(team, initial));
        if moments == 0 {
            return;
        }
        team.each(Rows::new(&mut self.words, width, team.threads(), 1), |band| {
            for row in band.data.chunks_exact_mut(width) {
                let (first, others) = row[width - moments..].split_at_mut(dim);
                first.fill(initial.to_bits());
                others.fill(0);
            }
        });
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.words.len() / self.width()
    }

    /// Columns of a row.
    #[must_use]
    pub const fn dim(&self) -> usize {
        self.dim
    }

    /// How numbers are kept.
    #[must_use]
    pub const fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes of all rows.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let beside = size_of_val(&self.row_moments[..]) + self.row_weights.as_ref().map_or(0, RowWeights::bytes);
        size_of_val(self.words()) + beside
    }

    /// Words of a row.
    pub(super) fn width(&self) -> usize {
        if self.stored { self.dim } else { words(self.precision, self.dim) + self.moments * self.dim }
    }

    /// All rows.
    pub(super) fn matrix_mut(&mut self) -> Matrix<'_, u32> {
        self.matrices_mut().rows
    }

    /// All rows, and what is kept beside them.
    pub(super) fn matrices_mut(&mut self) -> Matrices<'_> {
        let width = self.width();
        Matrices {
            rows: Matrix { data: &mut self.words, width },
            row_moments: Matrix { data: &mut self.row_moments, width: 1 },
            row_weights: self.row_weights.as_mut().map(RowWeights::matrix_mut),
        }
    }

    /// Whether it keeps this of its rows.
    pub(super) fn keeps(&self, kept: ParamState) -> bool {
        let rows = if kept.optimizer.row_moment().is_some() { self.rows() } else { 0 };
        let moments = self.moments == kept.optimizer.moments().len() && self.row_moments.len() == rows;
        let width = self.row_weights.as_ref().map_or(0, RowWeights::width);
        moments && self.precision == kept.precision && width == kept.row_weight_numbers()
    }

    /// What look-ups multiply rows by, if that is learned.
    pub(super) fn row_weights(&self) -> Option<Learned<'_>> {
        self.row_weights.as_ref().map(RowWeights::seen)
    }

    /// All rows.
    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    /// All rows, to be overwritten.
    pub(super) fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    /// Some rows of a tensor exactly, row-major.
    ///
    /// # Panics
    /// When there are no such rows, or no such tensor.
    #[must_use]
    pub fn export(&self, tensor: TableTensor, rows: Range<usize>) -> Cow<'_, [f32]> {
        match tensor {
            TableTensor::Weight => self.weights_of(rows),
            TableTensor::Moment(moment) => {
                let (width, place) = (self.width(), self.moment_in_row(moment));
                let rows = self.words[rows.start * width..rows.end * width].chunks_exact(width);
                rows.flat_map(|row| row[place.clone()].iter().map(|bits| f32::from_bits(*bits))).collect()
            }
            TableTensor::RowMoment => Cow::from(&self.row_moments[rows]),
            TableTensor::RowWeight => self.row_weights.as_ref().expect(UNWEIGHTED).of(0, rows).into(),
            TableTensor::RowWeightMoment(moment) => {
                self.row_weights.as_ref().expect(UNWEIGHTED).of(1 + moment, rows).into()
            }
        }
    }

    /// Overwrites a tensor from row `first` on, given row-major. Rows that are where a checkpoint has them stay: it
    /// gives the same.
    ///
    /// # Panics
    /// As [`Table::export`].
    pub fn import(&mut self, tensor: TableTensor, first: usize, values: &[f32]) {
        match tensor {
            TableTensor::Weight if self.stored => {}
            TableTensor::Weight => self.set_weights(first, values),
            TableTensor::Moment(moment) => self.set_moment(moment, first, values),
            TableTensor::RowMoment => self.row_moments[first..][..values.len()].copy_from_slice(values),
            TableTensor::RowWeight => self.row_weights.as_mut().expect(UNWEIGHTED).set(0, first, values),
            TableTensor::RowWeightMoment(moment) => {
                self.row_weights.as_mut().expect(UNWEIGHTED).set(1 + moment, first, values);
            }
        }
    }

    /// All weights exactly, row-major.
    #[must_use]
    pub fn weights(&self) -> Cow<'_, [f32]> {
        self.weights_of(0..self.rows())
    }

    /// As they lie in memory, or joined from their halves.
    fn weights_of(&self, rows: Range<usize>) -> Cow<'_, [f32]> {
        fn joined<F: Form>(_form: F, dim: usize, width: usize, words: &[u32]) -> Vec<f32> {
            let mut weights = vec![0.0; words.len() / width * dim];
            for (row, weights) in words.chunks_exact(width).zip(weights.chunks_exact_mut(dim)) {
                weights.iter_mut().enumerate().for_each(|(column, weight)| *weight = F::get(row, dim, column));
            }
            weights
        }
        let words = &self.words[rows.start * self.width()..rows.end * self.width()];
        if self.stored || self.precision == Precision::F32 && self.moments == 0 {
            return bytemuck::cast_slice::<u32, f32>(words).into();
        }
        with_form!(self.precision, form => joined(form, self.dim, self.width(), words)).into()
    }

    /// What a look-up reads of a row: so many words as [`seen_words`] says.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn seen(&self, row: usize) -> &[u32] {
        &self.words[row * self.width()..][..seen_words(self.precision, self.dim)]
    }

    /// Overwrites what a look-up reads of some columns of a row by what it reads of a row of so many columns; what else
    /// is kept of them stays.
    ///
    /// # Panics
    /// When there is no such row or column.
    pub fn set_seen(&mut self, row: usize, columns: Range<usize>, seen: &[u32]) {
        let width = self.width();
        set_seen(self.precision, &mut self.words[row * width..][..width], columns, seen);
    }

    /// All rows of a table of whole weights without moments, as words that a team reads and writes.
    ///
    /// # Panics
    /// When the table is another.
    pub fn shared_words(&mut self) -> &[AtomicU32] {
        assert!(self.precision == Precision::F32 && self.moments == 0, "{}: rows are weights", self.name);
        atomic_words_32(&mut self.words)
    }

    /// Overwrites the weights of whole rows from row `first` on, given row-major; `bf16-lsb8` rounds them.
    ///
    /// # Panics
    /// When there are no such rows.
    pub fn set_weights(&mut self, first: usize, weights: &[f32]) {
        fn set<F: Form>(_form: F, dim: usize, width: usize, words: &mut [u32], weights: &[f32]) {
            for (row, values) in words.chunks_exact_mut(width).zip(weights.chunks_exact(dim)) {
                values.iter().enumerate().for_each(|(column, &x)| F::set(row, dim, column, x));
            }
        }
        assert!(weights.len().is_multiple_of(self.dim), "whole rows of {} columns", self.dim);
        let (width, dim) = (self.width(), self.dim);
        let words = &mut self.words[first * width..][..weights.len() / dim * width];
        with_form!(self.precision, form => set(form, dim, width, words, weights));
    }

    fn set_moment(&mut self, moment: usize, first: usize, values: &[f32]) {
        let (width, place) = (self.width(), self.moment_in_row(moment));
        let rows = self.words[first * width..][..values.len() / self.dim * width].chunks_exact_mut(width);
        for (row, values) in rows.zip(values.chunks_exact(self.dim)) {
            row[place.clone()].iter_mut().zip(values).for_each(|(bits, x)| *bits = x.to_bits());
        }
    }

    /// The learned weight of a row; nothing where rows have none.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn row_weight(&self, row: usize) -> Option<f32> {
        self.row_weights().map(|weights| weights.weight(row))
    }

    fn moment_in_row(&self, moment: usize) -> Range<usize> {
        assert!(moment < self.moments, "moment {moment} of {}", self.moments);
        let start = words(self.precision, self.dim) + moment * self.dim;
        start..start + self.dim
    }

    /// Overwrites all rows, each thread its own band: `draw(first, row)` gives the weights of the row that begins with
    /// weight number `first`.
    pub fn fill(&mut self, team: &Team, draw: impl Fn(usize, &mut [f32]) + Sync) {
        fn fill<F: Form>(_form: F, table: &mut Table, team: &Team, draw: impl Fn(usize, &mut [f32]) + Sync) {
            let (dim, width) = (table.dim, table.width());
            team.each(Rows::new(&mut table.words, width, team.threads(), 1), |band| {
                let mut values = vec![0.0; dim];
                for (index, row) in band.data.chunks_exact_mut(width).enumerate() {
                    draw((band.first + index) * dim, &mut values);
                    values.iter().enumerate().for_each(|(column, &x)| F::set(row, dim, column, x));
                }
            });
        }
        with_form!(self.precision, form => fill(form, self, team, draw));
    }
}

/// Overwrites what a look-up reads of some columns of a row, as [`Table::set_seen`].
#[inline(always)]
pub(super) fn set_seen(precision: Precision, row: &mut [u32], columns: Range<usize>, seen: &[u32]) {
    if precision.is_split() {
        let halves: &mut [u16] = bytemuck::cast_slice_mut(row);
        halves[columns.clone()].copy_from_slice(&bytemuck::cast_slice(seen)[..columns.len()]);
    } else {
        row[columns].copy_from_slice(seen);
    }
}
