//! Where each shard's columns lie in the messages of its rank, and each table's in the features of a sample.
//!
//! A message of pooled rows or of their gradients has one row a sample. In it, the owner's shards lie in groups of one
//! width, first those whose rows are divided, then the widest, without gaps, so that one look-up serves a group; a row
//! is filled up to whole cache lines. What ids are sent for lies in streams; weights of look-ups go with the ids, and
//! only where a column has weights.
//!
//! What a rank holds whole it pools straight into the features of its own samples, without a message.

mod rank_shards;

use std::ops::Range;
use std::sync::Arc;

pub use rank_shards::{Group, IdStream, RankShards};

use super::Route;
use super::vectors::MessageForm;
use crate::base::config::{Precision, Wire};
use crate::base::{RankId, TableId};
use crate::data::hot::{HotSlots, Inputs};
use crate::data::{Column, Slice};
use crate::embedding::seen_words;
use crate::math::Grains;
use crate::shard::scheme::{Shard, Sharding};

/// The messages of all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    sharding: Sharding,
    of_ranks: Vec<RankShards>,
    replicated: Vec<TableId>,
    /// Tables from this one on are a wide part's.
    deep: usize,
    /// By table.
    weighted: Vec<bool>,
    /// By table, look-ups of a sample for which there is room.
    lookups: Vec<usize>,
    /// By table, the rows of a sample that the features have side by side.
    positions: Vec<usize>,
    /// Where each table's columns begin in a sample's features; one more entry than tables.
    starts: Vec<usize>,
    grains: Option<Grains>,
    wire: Wire,
    hot: Option<HotCopies>,
}

/// Which rows all ranks have copies of that do not hold their table alone, and what a copy has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotCopies {
    /// The rows.
    pub slots: Arc<HotSlots>,
    /// What look-ups read of them.
    pub precision: Precision,
    /// Rows of so many tables, the first ones, have a learned weight each.
    pub weighing: usize,
}

/// What a division's messages follow from beside the division.
#[derive(Debug, Clone, Copy, Default)]
pub struct LayoutSpec<'a> {
    /// The column of each table: how many look-ups it has, and whether these have weights. Empty: one, without.
    pub columns: &'a [Column],
    /// Tables from this one on are a wide part's, which another optimizer moves; none by default.
    pub deep: Option<usize>,
    /// Of each table, how many rows of a sample the features have side by side, each by itself, where that is not 1:
    /// minibatches have as many bags (see [`crate::data::Bag::spread`]). Empty: 1 of all.
    pub sequences: &'a [usize],
    /// Minibatches are shared by whole grains, and all that is summed over samples or look-ups is so in an order that
    /// does not depend on the ranks: see [`super::Unpooled`] and [`super::Replicas`].
    pub grains: Option<Grains>,
    /// How rows and gradients travel; what ranks sum by grains travels as it is.
    pub wire: Wire,
}

impl Layout {
    /// The messages that a division of tables makes, without copies of hot rows.
    ///
    /// # Panics
    /// When there are columns or sequences, but not one a table, a sequence is 0, or there are grains and rows do not
    /// travel as they are.
    #[must_use]
    pub fn new(sharding: Sharding, spec: &LayoutSpec<'_>) -> Self {
        let LayoutSpec { columns, deep, sequences, grains, wire } = *spec;
        let tables = sharding.tables();
        assert!(columns.is_empty() || columns.len() == tables, "a column a table");
        assert!(sequences.is_empty() || sequences.len() == tables, "a length a table: {sequences:?}");
        assert!(!sequences.contains(&0), "a length a table: {sequences:?}");
        assert!(wire == Wire::F32 || grains.is_none(), "what is rounded depends on the number of ranks");
        // Alone, a rank holds the one copy as it holds any other table.
        let replicated = |table: &TableId| sharding.ranks() > 1 && sharding.is_replicated(*table);
        let mut layout = Self {
            replicated: TableId::all(tables).filter(replicated).collect(),
            deep: deep.unwrap_or(tables),
            weighted: (0..tables).map(|table| columns.get(table).is_some_and(|column| column.weighted)).collect(),
            lookups: (0..tables).map(|table| columns.get(table).map_or(1, |column| column.lookups)).collect(),
            positions: (0..tables).map(|table| sequences.get(table).copied().unwrap_or(1)).collect(),
            starts: vec![0],
            of_ranks: Vec::new(),
            hot: None,
            sharding,
            grains,
            wire,
        };
        for table in TableId::all(tables) {
            let columns = layout.positions(table) * layout.sharding.dim(table);
            layout.starts.push(layout.starts[table.index()] + columns);
        }
        let shards_of = |rank| {
            let shards = layout.sharding.of_rank(rank);
            RankShards::new(shards.filter(|shard| !layout.is_replicated(shard.table)).cloned().collect(), &layout)
        };
        layout.of_ranks = RankId::all(layout.ranks()).map(shards_of).collect();
        layout
    }

    /// Look-ups of a sample in a table for which there is room: at least its sequence's.
    #[must_use]
    pub fn lookups(&self, table: TableId) -> usize {
        self.lookups[table.index()].max(self.positions(table))
    }

    /// With copies of hot rows; a rank that is alone needs none.
    ///
    /// # Panics
    /// When the rows are of other tables.
    #[must_use]
    pub fn with_hot(self, hot: Option<HotCopies>) -> Self {
        assert!(hot.iter().all(|hot| hot.slots.tables() == self.sharding.tables()), "hot rows of each table");
        let ranks = self.ranks();
        Self { hot: hot.filter(|_| ranks > 1), ..self }
    }

    /// The same with copies of these rows in place of others.
    ///
    /// # Panics
    /// As [`Layout::with_hot`], and when there are no others.
    #[must_use]
    pub fn with_hot_revised(&self, slots: Arc<HotSlots>) -> Self {
        let before = self.hot.clone().expect("copies of hot rows");
        self.clone().with_hot(Some(HotCopies { slots, ..before }))
    }

    /// Whether every rank has a copy of a table.
    pub(super) fn is_replicated(&self, table: TableId) -> bool {
        // They ascend.
        self.replicated.binary_search(&table).is_ok()
    }

    /// Whether a table is a wide part's.
    pub(super) const fn is_wide(&self, table: TableId) -> bool {
        table.index() >= self.deep
    }

    /// The rows that ranks have copies of.
    #[must_use]
    pub fn hot(&self) -> Option<&HotSlots> {
        self.hot.as_ref().map(|hot| &*hot.slots)
    }

    /// What messages of ids, pooled rows and gradients have.
    pub(super) const fn form(&self) -> MessageForm {
        match self.hot {
            None => MessageForm::RowPerSample,
            Some(_) => MessageForm::VectorPerBag { marked: self.grains.is_some() },
        }
    }

    /// What ids go for on a route: from a rank to itself, for divided rows alone.
    pub(super) fn streams(&self, Route { owner, asking }: Route) -> &[IdStream] {
        let streams = &self.of(owner).streams;
        let partial = streams.iter().take_while(|stream| stream.partial).count();
        &streams[..if owner == asking { partial } else { streams.len() }]
    }

    /// Whose vectors go on a route: those of the same shards.
    ///
    /// # Panics
    /// When there is no such owner.
    #[must_use]
    pub fn groups(&self, route: Route) -> &[Group] {
        let groups = &self.of(route.owner).groups;
        // Those of divided rows come first.
        &groups[..groups.iter().take_while(|group| group.travels(route)).count()]
    }

    /// Elements of a row of theirs, where messages have rows.
    pub(super) fn row_of(&self, Route { owner, asking }: Route) -> usize {
        let held = self.of(owner);
        if owner == asking { held.partial_stride } else { held.stride }
    }

    /// Whether look-ups of such inputs, and their gradients, go to the owners of rows: all but those that copies serve,
    /// whose gradients go as sums.
    pub(super) fn asks_owners(&self, inputs: Inputs) -> bool {
        self.owners_pool(inputs) || self.grains.is_some()
    }

    /// Whether owners pool rows for such inputs of other ranks: not where copies serve all.
    pub(super) fn owners_pool(&self, inputs: Inputs) -> bool {
        inputs != Inputs::Hot || self.hot.is_none()
    }

    /// Tables of whose hot rows a rank has copies: all that other ranks have a part of, and all whose rows are divided,
    /// even if this rank has every part.
    pub fn served(&self, rank: RankId) -> impl Iterator<Item = TableId> {
        let others = move |table: TableId| self.sharding.of_table(table).iter().any(|shard| shard.rank != rank);
        let elsewhere = move |table: TableId| self.sharding.partial(table) || others(table);
        let tables = self.hot.iter().flat_map(|_| TableId::all(self.sharding.tables()));
        tables.filter(move |table| !self.is_replicated(*table) && elsewhere(*table))
    }

    /// Words of a shard's row of which copies are kept: what a look-up reads, and the row's learned weight if it has
    /// one.
    #[must_use]
    pub fn hot_words(&self, shard: &Shard) -> usize {
        let words = |hot: &HotCopies| seen_words(hot.precision, shard.columns.len());
        self.hot.as_ref().map_or(0, words) + usize::from(self.copies_weights(shard.table))
    }

    /// Whether copies of a table's rows have learned weights.
    #[must_use]
    pub fn copies_weights(&self, table: TableId) -> bool {
        self.hot.as_ref().is_some_and(|hot| table.index() < hot.weighing)
    }

    /// Whether the look-ups of a table have weights.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn weighted(&self, table: TableId) -> bool {
        self.weighted[table.index()]
    }

    /// How many rows of a table a sample's features have side by side: 1 where rows are pooled.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn positions(&self, table: TableId) -> usize {
        self.positions[table.index()]
    }

    /// Whether there are tables whose rows are not pooled.
    #[must_use]
    pub fn has_sequences(&self) -> bool {
        self.positions.iter().any(|positions| *positions > 1)
    }

    /// Whether bags of a table may have several look-ups in rows of several ranks.
    #[must_use]
    pub fn sums_of_ranks(&self, table: TableId) -> bool {
        self.sharding.partial(table) && self.positions(table) == 1
    }

    /// Whether the rank of the sample multiplies a table's rows with their look-ups' weights, and not their owner:
    /// where it adds the rows of several owners in the order of the bag, product and addition are one rounding.
    #[must_use]
    pub fn weighs_at_sample(&self, table: TableId) -> bool {
        self.grains.is_some() && self.weighted(table) && self.sums_of_ranks(table)
    }

    /// Whether the rank of the sample divides a table's pooled rows by the length of their bag, where the model pools
    /// means: it alone knows the length where rows are divided, and the order of rounding is then the same everywhere.
    /// Else the owner does.
    #[must_use]
    pub fn averages_at_sample(&self, table: TableId) -> bool {
        // A row by itself is its own mean.
        self.positions(table) == 1
            && (self.grains.is_some() || self.is_replicated(table) || self.sharding.partial(table))
    }

    /// Elements of a sample's features: those of all tables, side by side.
    #[must_use]
    pub fn feature_row(&self) -> usize {
        self.starts[self.sharding.tables()]
    }

    /// A table's elements of a sample's features.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn columns(&self, table: TableId) -> Range<usize> {
        self.starts[table.index()]..self.starts[table.index() + 1]
    }

    /// What sums over a minibatch are cut into, if they are.
    #[must_use]
    pub const fn grains(&self) -> Option<Grains> {
        self.grains
    }

    /// What rows and gradients travel in.
    #[must_use]
    pub const fn wire(&self) -> Wire {
        self.wire
    }

    /// The division of tables.
    #[must_use]
    pub const fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.sharding.ranks()
    }

    /// What a rank holds.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn of(&self, rank: RankId) -> &RankShards {
        &self.of_ranks[rank.index()]
    }

    /// What a rank gives of a table that is gathered, in its order: its shards, and of a copy that all have, the first
    /// rank's.
    pub fn exported(&self, table: TableId, rank: RankId) -> impl Iterator<Item = &Shard> {
        let copy = self.is_replicated(table) && rank == RankId(0);
        let copy = copy.then(|| &self.sharding.of_table(table)[rank.index()]);
        self.of(rank).shards.iter().filter(move |shard| shard.table == table).chain(copy)
    }

    /// Tables that every rank has a copy of.
    #[must_use]
    pub fn replicated(&self) -> &[TableId] {
        &self.replicated
    }

    /// The samples of a minibatch of `batch` that a rank has.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn slice(&self, batch: usize, rank: RankId) -> Range<usize> {
        Slice::new(rank.index(), self.ranks()).with_grains(self.grains).of(batch)
    }

    /// How many they are.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn samples(&self, batch: usize, rank: RankId) -> usize {
        self.slice(batch, rank).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::scheme::{Part, Scheme};

    #[test]
    fn every_column_of_every_shard_has_its_own_place() {
        let part = |rank, size| Part { rank: RankId(rank), size };
        let schemes = vec![
            Scheme::Table(RankId(0)),
            Scheme::Column(vec![part(0, 5), part(1, 7), part(0, 8)]),
            Scheme::RowCyclic(vec![RankId(1), RankId(0)]),
            Scheme::Replicated,
            Scheme::Table(RankId(0)),
        ];
        let sharding = Sharding::new(&[9, 8, 7, 6, 5], vec![20; 5], 3, schemes).unwrap();
        let layout = Layout::new(sharding, &LayoutSpec::default());
        assert_eq!(layout.replicated(), [TableId(3)]);
        let first = layout.of(RankId(0));
        // 20 of divided rows (table 2), 20 each (tables 0 and 4), 8, 5: 73 elements, 5 lines.
        let starts = first.groups.iter().flat_map(|group| &group.in_message);
        let place = |(start, shard): (&usize, &Shard)| (shard.table.0, shard.part, *start..start + shard.columns.len());
        let places: Vec<_> = starts.zip(&first.shards).map(place).collect();
        assert_eq!(places, [(2, 1, 0..20), (0, 0, 20..40), (4, 0, 40..60), (1, 2, 60..68), (1, 0, 68..73)]);
        assert_eq!((first.stride, first.partial_stride, first.groups.len()), (80, 32, 4));
        assert_eq!(first.groups[1].in_features, [0, 80]);
        // Both slices of table 1's columns look up the same ids.
        assert_eq!((first.streams.len(), &first.groups[2].streams, &first.groups[3].streams), (4, &vec![3], &vec![3]));
        assert_eq!(layout.of(RankId(2)).stride, 0);
        assert_eq!((0..3).map(|rank| layout.samples(8, RankId(rank))).collect::<Vec<_>>(), [3, 3, 2]);
    }
}
