//! What one rank holds of the tables that are divided, and where it lies in its messages.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use super::{Layout, Route};
use crate::base::TableId;
use crate::shard::scheme::{Rows, Shard};
use crate::sync::Line;

/// Shards of one width, of tables of one width, pooled in one way, of a wide part or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Columns of each.
    pub width: usize,
    /// Rows of a sample that each brings side by side: 1 where rows are pooled, more where they are a sequence; then
    /// the group has one shard.
    pub positions: usize,
    /// Distance of a sequence's rows in a sample's features; in a message they are `width` apart.
    pub step: usize,
    /// Whether they have some of their tables' rows only, so that pooled rows are terms of a sum.
    pub partial: bool,
    /// Whether rows are pooled without their look-ups' weights, because the sample's rank multiplies: see
    /// [`Layout::weighs_at_sample`].
    pub plain: bool,
    /// Which of the rank's shards.
    pub shards: Range<usize>,
    /// The table of each shard.
    pub tables: Vec<usize>,
    /// The stream of ids of each shard.
    pub streams: Vec<usize>,
    /// Where each shard's columns begin in a message's row.
    pub in_message: Vec<usize>,
    /// Where they begin in a sample's features.
    pub in_features: Vec<usize>,
}

impl Group {
    /// Whether ids and vectors of its shards go on a route: from a rank to itself, those of divided rows alone.
    #[must_use]
    pub fn travels(&self, Route { owner, asking }: Route) -> bool {
        self.partial || owner != asking
    }
}

/// What ids are sent for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdStream {
    /// The table.
    pub table: TableId,
    /// The rows that the ids count through.
    pub rows: Rows,
    /// Whether these are some of the table's rows only.
    pub partial: bool,
    /// Whether the weights of the look-ups follow their ids.
    pub weighted: bool,
    /// Bags of a sample.
    pub positions: usize,
}

/// What one rank holds of the tables that are divided, in the order of its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankShards {
    /// The shards: those of divided rows first, then the widest, among their like those of wider tables first, then a
    /// wide part's, those that are pooled plainly last among these, then by table and part.
    pub shards: Vec<Shard>,
    /// What ids are sent for: shards that have the same rows of a table (slices of its columns) share them. Those of
    /// divided rows come first.
    pub streams: Vec<IdStream>,
    /// Runs of shards of one width that are pooled in one way.
    pub groups: Vec<Group>,
    /// The number of the stream of some rows of a table.
    known: HashMap<(TableId, Rows), usize>,
    /// By table and part, the number of a shard's group, and its own there.
    places: HashMap<(TableId, usize), [usize; 2]>,
    /// Elements of a message's row.
    pub stride: usize,
    /// As [`RankShards::stride`], of the shards of divided rows alone: of what a rank pools for its own samples beside
    /// the features.
    pub partial_stride: usize,
}

impl RankShards {
    pub(super) fn new(mut shards: Vec<Shard>, layout: &Layout) -> Self {
        let (partial, plain) = (
            |shard: &Shard| layout.sharding.partial(shard.table),
            |shard: &Shard| layout.weighs_at_sample(shard.table),
        );
        let positions = |shard: &Shard| layout.positions(shard.table);
        let kind = |shard: &Shard| {
            let (table, width) = (shard.table, shard.columns.len());
            // Those of a wide part are moved in a way of their own, however wide others are.
            let wide = layout.is_wide(table);
            (!partial(shard), Reverse(width), Reverse(layout.sharding.dim(table)), wide, plain(shard))
        };
        shards.sort_by_key(|shard| (kind(shard), shard.table, shard.part));
        // Of a table's rows everything else follows. Searched by hash: there may be many thousands of tables.
        let (mut streams, mut known) = (Vec::<IdStream>::new(), HashMap::<(TableId, Rows), usize>::new());
        let mut stream_of = |shard: &Shard| {
            let (table, rows) = (shard.table, shard.rows);
            let (partial, weighted, positions) = (partial(shard), layout.weighted(table), positions(shard));
            *known.entry((table, rows)).or_insert_with(|| {
                streams.push(IdStream { table, rows, partial, weighted, positions });
                streams.len() - 1
            })
        };
        let line = Line::BYTES / layout.wire.bytes();
        let (mut groups, mut next, mut start, mut partial_stride) = (Vec::new(), 0, 0, 0);
        let alike = |a: &Shard, b: &Shard| kind(a) == kind(b) && positions(a) == 1 && positions(b) == 1;
        for run in shards.chunk_by(alike) {
            let (width, positions) = (run[0].columns.len(), positions(&run[0]));
            groups.push(Group {
                width,
                positions,
                step: layout.sharding.dim(run[0].table),
                partial: partial(&run[0]),
                plain: plain(&run[0]),
                shards: start..start + run.len(),
                tables: run.iter().map(|shard| shard.table.index()).collect(),
                streams: run.iter().map(&mut stream_of).collect(),
                in_message: (0..run.len()).map(|index| next + index * width).collect(),
                in_features: run.iter().map(|shard| layout.columns(shard.table).start + shard.columns.start).collect(),
            });
            next += run.len() * width * positions;
            start += run.len();
            if partial(&run[0]) {
                partial_stride = next.next_multiple_of(line);
            }
        }
        let mut places = HashMap::new();
        for (number, group) in groups.iter().enumerate() {
            let own = shards[group.shards.clone()].iter().enumerate();
            places.extend(own.map(|(at, shard)| ((shard.table, shard.part), [number, at])));
        }
        Self { shards, streams, groups, known, places, stride: next.next_multiple_of(line), partial_stride }
    }

    /// The number of the stream of ids for some rows of a table.
    pub(in crate::exchange) fn stream(&self, table: TableId, rows: Rows) -> Option<usize> {
        self.known.get(&(table, rows)).copied()
    }

    /// The number of a shard's group, and its own there.
    ///
    /// # Panics
    /// When this rank has no such shard.
    pub(in crate::exchange) fn find(&self, shard: &Shard) -> [usize; 2] {
        *self.places.get(&(shard.table, shard.part)).expect("a shard is its rank's")
    }

    /// The shards of tables whose rows are divided, with their numbers.
    pub(in crate::exchange) fn partial(&self) -> impl Iterator<Item = (usize, &Shard)> {
        let groups = self.groups.iter().take_while(|group| group.partial);
        let count = groups.map(|group| group.shards.len()).sum();
        self.shards.iter().enumerate().take(count)
    }
}
