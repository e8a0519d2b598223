//! Embedding tables: their rows, the look-up that pools them, and the update that moves them.
//!
//! Local rows only: nothing here knows that other ranks exist; an update is given all look-ups that there are of its
//! rows in a step, source by source. A new way to update is one new file, one entry of `base::config::Update` and one
//! line in `update`.

mod atomic;
mod choice;
mod form;
mod gradient_source;
mod lookup;
mod moved;
mod owned;
mod row;
mod sorted;
mod table;
mod update;
mod walk;
mod weights;

pub use choice::Choice;
pub use form::seen_words;
pub use lookup::{LookUp, Target};
pub use moved::{Copier, Moved};
pub use table::{Table, TableTensor};
pub use update::{Spec, Updater};

use std::ops::Range;

use crate::data::{Bag, BagView, Batch};

/// Where the pooled rows of some tables lie in a row-major matrix with a row a sample: the model's features, or a
/// message.
///
/// Sample n's row starts at `n * row`; table t's vector starts `starts[t]` elements into it. Of a table whose rows are
/// not pooled but kept as a sequence, a sample has several bags, one a position, each with a vector of its own.
#[derive(Debug, Clone, Copy)]
pub struct Slots<'a> {
    /// Distance between samples.
    pub row: usize,
    /// Where each table's vector, or its first one, starts; ascending, and vectors do not overlap.
    pub starts: &'a [usize],
    /// Bags of a sample.
    pub positions: usize,
    /// Distance between their vectors.
    pub step: usize,
}

impl<'a> Slots<'a> {
    /// Of pooled rows.
    #[must_use]
    pub const fn new(row: usize, starts: &'a [usize]) -> Self {
        Self { row, starts, positions: 1, step: 0 }
    }

    /// Of sequences of so many positions, whose vectors lie so far from each other.
    #[must_use]
    pub const fn sequences(self, positions: usize, step: usize) -> Self {
        Self { positions, step, ..self }
    }

    /// The bags that these samples have of each table.
    #[must_use]
    pub const fn bags(&self, samples: &Range<usize>) -> Range<usize> {
        samples.start * self.positions..samples.end * self.positions
    }
}

/// Look-ups of some samples, and the gradients of what was pooled of them.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The look-ups.
    pub lookups: Lookups<'a>,
    /// A row a sample.
    pub gradient: &'a [f32],
    /// Where each table's gradients lie in it.
    pub slots: Slots<'a>,
}

/// The look-ups of some samples in some tables, with or without a weight for each.
#[derive(Debug, Clone, Copy)]
pub struct Lookups<'a> {
    bags: Bags<'a>,
    /// For each table, its place among the bags; `None`: in their order.
    tables: Option<&'a [usize]>,
    /// Of each table's bags the first one, and how many there are; `None`: all.
    part: Option<[usize; 2]>,
    weighted: bool,
}

/// Where look-ups are read.
#[derive(Debug, Clone, Copy)]
enum Bags<'a> {
    /// In a minibatch. Lists without entries: all weights are 1.
    Own(&'a [Bag], &'a [Vec<f32>]),
    /// In a message of another rank.
    Packed(&'a [u32], &'a [PackedBag]),
}

/// Where one bag lies in a list of words: its offsets, its rows, and the weights of its look-ups, if they have any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackedBag {
    /// N + 1 words for N samples.
    pub offsets: Range<usize>,
    /// A word a look-up.
    pub rows: Range<usize>,
    /// A 32-bit float a look-up, or nothing.
    pub weights: Range<usize>,
}

impl PackedBag {
    /// That of so many samples in a message of words, from word `start` on: where each sample's look-ups begin and the
    /// last one's end, the rows, and a weight for each, if they have any.
    ///
    /// # Panics
    /// When the message is too short.
    #[must_use]
    pub fn find(words: &[u32], start: usize, samples: usize, weighted: bool) -> Self {
        Self::at(start, samples, words[start + samples] as usize, weighted)
    }

    /// Of so many samples and look-ups, from a word on.
    #[must_use]
    pub const fn at(start: usize, samples: usize, look_ups: usize, weighted: bool) -> Self {
        let offsets = start..start + samples + 1;
        let rows = offsets.end..offsets.end + look_ups;
        let weights = rows.end..rows.end + if weighted { look_ups } else { 0 };
        Self { offsets, rows, weights }
    }
}

impl<'a> Lookups<'a> {
    /// Look-ups that all count the same.
    #[must_use]
    pub const fn plain(bags: &'a [Bag]) -> Self {
        Self { bags: Bags::Own(bags, &[]), tables: None, part: None, weighted: false }
    }

    /// Look-ups with a list of weights a table, in the order of the bag's rows; lists without entries: all weights are
    /// 1.
    #[must_use]
    pub const fn new(bags: &'a [Bag], weights: &'a [Vec<f32>]) -> Self {
        Self { bags: Bags::Own(bags, weights), tables: None, part: None, weighted: true }
    }

    /// Those of a minibatch, in all of its tables.
    #[must_use]
    pub fn of(batch: &'a Batch) -> Self {
        Self::new(&batch.bags, &batch.weights)
    }

    /// Those in a list of words.
    #[must_use]
    pub const fn packed(words: &'a [u32], bags: &'a [PackedBag]) -> Self {
        Self { bags: Bags::Packed(words, bags), tables: None, part: None, weighted: true }
    }

    /// With the bag of table t at `tables[t]`.
    #[must_use]
    pub const fn in_tables(self, tables: &'a [usize]) -> Self {
        Self { tables: Some(tables), ..self }
    }

    /// Of each table's bags these alone.
    #[must_use]
    pub const fn in_bags(self, bags: &Range<usize>) -> Self {
        Self { part: Some([bags.start, bags.end - bags.start]), ..self }
    }

    /// Without weights.
    #[must_use]
    pub const fn unweighted(self) -> Self {
        Self { weighted: false, ..self }
    }

    /// How many tables there are.
    #[must_use]
    pub const fn tables(&self) -> usize {
        match (self.tables, self.bags) {
            (Some(tables), _) => tables.len(),
            (None, Bags::Own(bags, _)) => bags.len(),
            (None, Bags::Packed(_, bags)) => bags.len(),
        }
    }

    /// The look-ups in one table.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn bag(&self, table: usize) -> BagView<'a> {
        let place = self.place(table);
        let bag = match self.bags {
            Bags::Own(bags, _) => bags[place].view(),
            Bags::Packed(words, bags) => {
                let PackedBag { offsets, rows, .. } = &bags[place];
                BagView { offsets: &words[offsets.clone()], rows: &words[rows.clone()] }
            }
        };
        self.part.map_or(bag, |[first, count]| bag.of_samples(&(first..first + count)))
    }

    /// The look-ups in all tables.
    pub fn bags(self) -> impl Iterator<Item = BagView<'a>> {
        (0..self.tables()).map(move |table| self.bag(table))
    }

    /// What each look-up's row in one table is multiplied by, in the order of the bag's rows; `None`: by 1.
    fn weights(&self, table: usize) -> Option<&'a [f32]> {
        let place = self.place(table);
        let weights = match self.bags {
            _ if !self.weighted => &[],
            Bags::Own(_, weights) => &weights[place][..],
            Bags::Packed(words, bags) => bytemuck::cast_slice(&words[bags[place].weights.clone()]),
        };
        Some(weights).filter(|weights| !weights.is_empty())
    }

    fn place(&self, table: usize) -> usize {
        self.tables.map_or(table, |tables| tables[table])
    }

    /// Checks that there is one bag a table, and one weight a look-up.
    fn check(&self, tables: usize) {
        assert_eq!(self.tables(), tables, "one bag a table");
        let mut tables = (0..tables).map(|table| (self.weights(table), self.bag(table).rows.len()));
        let fits = tables.all(|(weights, rows)| weights.is_none_or(|weights| weights.len() == rows));
        assert!(fits, "one weight a look-up, or none");
    }

    /// Look-ups of all tables.
    #[must_use]
    pub fn total(&self) -> usize {
        self.bags().map(|bag| bag.look_ups()).sum()
    }
}
