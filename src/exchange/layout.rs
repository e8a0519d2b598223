//! Where each shard's columns lie in the messages of its rank.
//!
//! A message of pooled rows or of their gradients has one row a sample. In it, the owner's shards lie in groups of one
//! width, the widest first, without gaps, so that one look-up serves a group; a row is filled up to whole cache lines.
//! What ids are sent for lies in streams; weights of look-ups go with the ids, and only where a column has weights.

use std::cmp::Reverse;
use std::ops::Range;

use crate::base::{RankId, TableId};
use crate::data::Schema;
use crate::math::Grains;
use crate::shard::scheme::{Kind, Rows, Shard, Sharding, minibatch_slice};

/// Elements of a cache line.
const LINE: usize = 16;

/// Shards of one width, pooled in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Columns of each.
    pub width: usize,
    /// Whether rows are pooled without their look-ups' weights, because the sample's rank multiplies: see
    /// [`Layout::weighs_at_sample`].
    pub plain: bool,
    /// Where the first one's columns begin in a message's row.
    pub first: usize,
    /// Which of the rank's shards.
    pub shards: Range<usize>,
}

/// What ids are sent for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The table.
    pub table: TableId,
    /// Its rows that are meant.
    pub rows: Rows,
    /// Whether the weights of the look-ups follow their ids.
    pub weighted: bool,
}

/// What one rank holds of the tables that are divided, in the order of its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The shards, the widest first, those that are pooled plainly last among their like, then by table and part.
    pub shards: Vec<Shard>,
    /// For each shard, the stream of ids that it looks up.
    pub stream_of: Vec<usize>,
    /// What ids are sent for: shards that have the same rows of a table (slices of its columns) share them.
    pub streams: Vec<Stream>,
    /// Runs of shards of one width that are pooled in one way.
    pub groups: Vec<Group>,
    /// Elements of a message's row.
    pub stride: usize,
}

impl Holding {
    fn new(mut shards: Vec<Shard>, layout: &Layout) -> Self {
        let plain = |shard: &Shard| layout.weighs_at_sample(shard.table);
        shards.sort_by_key(|shard| (Reverse(shard.columns.len()), plain(shard), shard.table, shard.part));
        let mut streams: Vec<Stream> = Vec::new();
        let stream_of = shards.iter().map(|shard| {
            let stream = Stream { table: shard.table, rows: shard.rows, weighted: layout.weighted(shard.table) };
            streams.iter().position(|known| *known == stream).unwrap_or_else(|| {
                streams.push(stream);
                streams.len() - 1
            })
        });
        let stream_of = stream_of.collect();
        let (mut groups, mut next, mut start) = (Vec::new(), 0, 0);
        for run in shards.chunk_by(|a, b| (a.columns.len(), plain(a)) == (b.columns.len(), plain(b))) {
            let (width, plain) = (run[0].columns.len(), plain(&run[0]));
            groups.push(Group { width, plain, first: next, shards: start..start + run.len() });
            next += run.len() * width;
            start += run.len();
        }
        Self { shards, stream_of, streams, groups, stride: next.next_multiple_of(LINE) }
    }

    /// Each shard with the columns of a message's row that are its own.
    pub fn places(&self) -> impl Iterator<Item = (&Shard, Range<usize>)> {
        self.groups.iter().flat_map(|group| {
            self.shards[group.shards.clone()].iter().enumerate().map(|(index, shard)| {
                let first = group.first + index * group.width;
                (shard, first..first + group.width)
            })
        })
    }
}

impl Holding {
    /// The shards of tables whose rows are divided, with their numbers.
    pub(super) fn partial<'a>(&'a self, sharding: &'a Sharding) -> impl Iterator<Item = (usize, &'a Shard)> {
        self.shards.iter().enumerate().filter(|(_, shard)| sharding.partial(shard.table))
    }
}

/// The messages of all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    sharding: Sharding,
    holdings: Vec<Holding>,
    replicated: Vec<TableId>,
    /// By table.
    weighted: Vec<bool>,
    grains: Option<Grains>,
}

impl Layout {
    /// The messages that a division of tables makes, if no look-up has a weight.
    #[must_use]
    pub fn new(sharding: Sharding) -> Self {
        let replicated = |table: &TableId| sharding.scheme(*table).kind() == Kind::Replicated;
        let replicated = (0..sharding.tables() as u32).map(TableId).filter(replicated).collect();
        let weighted = vec![false; sharding.tables()];
        Self { sharding, holdings: Vec::new(), replicated, weighted, grains: None }.lay_out()
    }

    /// With the weights of the look-ups of this data's weighted columns.
    ///
    /// # Panics
    /// When the schema has other tables than the division.
    #[must_use]
    pub fn with_weights(self, schema: &Schema) -> Self {
        assert_eq!(schema.tables.len(), self.sharding.tables(), "a column a table");
        Self { weighted: schema.tables.iter().map(|column| column.weighted).collect(), ..self }.lay_out()
    }

    /// With minibatches that ranks share by whole grains, and all that is summed over samples or look-ups in an order
    /// that does not depend on the ranks: see [`super::Ordered`].
    #[must_use]
    pub fn with_grains(self, grains: Option<Grains>) -> Self {
        Self { grains, ..self }.lay_out()
    }

    fn lay_out(mut self) -> Self {
        let holding = |rank| {
            let shards = self.sharding.of_rank(RankId(rank));
            Holding::new(shards.filter(|shard| !self.replicated.contains(&shard.table)).cloned().collect(), &self)
        };
        self.holdings = (0..self.sharding.ranks() as u32).map(holding).collect();
        self
    }

    /// Whether the look-ups of a table have weights.
    ///
    /// # Panics
    /// When there is no such table.
    #[must_use]
    pub fn weighted(&self, table: TableId) -> bool {
        self.weighted[table.index()]
    }

    /// Whether the rank of the sample multiplies a table's rows with their look-ups' weights, and not their owner: where
    /// it adds the rows of several owners in the order of the bag, product and addition are one rounding.
    #[must_use]
    pub fn weighs_at_sample(&self, table: TableId) -> bool {
        self.grains.is_some() && self.weighted(table) && self.sharding.partial(table)
    }

    /// What sums over a minibatch are cut into, if they are.
    #[must_use]
    pub const fn grains(&self) -> Option<Grains> {
        self.grains
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
    pub fn of(&self, rank: RankId) -> &Holding {
        &self.holdings[rank.index()]
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
        match self.grains {
            None => minibatch_slice(batch, self.ranks(), rank),
            Some(grains) => grains.samples(batch, &grains.share(self.ranks(), rank.index())),
        }
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
        let layout = Layout::new(Sharding::new(&[9, 8, 7, 6, 5], 20, 3, schemes).unwrap());
        assert_eq!(layout.replicated(), [TableId(3)]);
        let first = layout.of(RankId(0));
        // 20 (tables 0, 2 and 4), 8, 5: 73 elements, 5 lines.
        let places: Vec<_> = first.places().map(|(shard, place)| (shard.table.0, shard.part, place)).collect();
        assert_eq!(places, [(0, 0, 0..20), (2, 1, 20..40), (4, 0, 40..60), (1, 2, 60..68), (1, 0, 68..73)]);
        assert_eq!((first.stride, first.groups.len()), (80, 3));
        // Both slices of table 1's columns look up the same ids.
        assert_eq!((first.streams.len(), first.stream_of[3], first.stream_of[4]), (4, 3, 3));
        assert_eq!(layout.of(RankId(2)).stride, 0);
        assert_eq!((0..3).map(|rank| layout.samples(8, RankId(rank))).collect::<Vec<_>>(), [3, 3, 2]);
    }
}
