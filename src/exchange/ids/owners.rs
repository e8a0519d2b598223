//! Who gets the look-ups of a table.

use crate::base::{RankId, TableId};
use crate::exchange::layout::Layout;
use crate::shard::scheme::{Kind, Scheme, Sharding};

/// Who gets the look-ups of a table.
#[derive(Debug)]
pub(super) struct Owners {
    pub split: Split,
    /// For each part the rank that has it, and the number of its stream there. Of whole tables, each rank that has
    /// columns of it.
    pub parts: Vec<(RankId, usize)>,
    pub weighted: bool,
}

/// How a table's rows are divided into parts, which are numbered as its shards are.
#[derive(Debug)]
pub enum Split {
    /// Every part gets all look-ups.
    Whole,
    /// Row r goes to part r % n.
    Cyclic(u32),
    /// The first row of each part.
    Contiguous(Vec<u32>),
}

impl Split {
    /// That of a table.
    #[must_use]
    pub fn new(sharding: &Sharding, table: TableId) -> Self {
        match sharding.scheme(table) {
            Scheme::RowCyclic(ranks) => Self::Cyclic(ranks.len() as u32),
            Scheme::RowContiguous(_) => {
                Self::Contiguous(sharding.of_table(table).iter().map(|shard| shard.rows.first as u32).collect())
            }
            Scheme::Table(_) | Scheme::Column(_) | Scheme::Replicated => Self::Whole,
        }
    }

    /// The part that has a row, and the row's number there.
    #[must_use]
    #[inline(always)]
    pub fn part(&self, row: u32) -> (usize, u32) {
        match self {
            Self::Whole => (0, row),
            Self::Cyclic(parts) => ((row % parts) as usize, row / parts),
            Self::Contiguous(firsts) => {
                let part = firsts.partition_point(|first| *first <= row) - 1;
                (part, row - firsts[part])
            }
        }
    }
}

impl Owners {
    pub fn new(layout: &Layout, table: TableId) -> Self {
        let sharding: &Sharding = layout.sharding();
        let weighted = layout.weighted(table);
        if layout.is_replicated(table) {
            return Self { split: Split::Whole, parts: Vec::new(), weighted };
        }
        let mut parts = Vec::new();
        for shard in sharding.of_table(table) {
            let stream = layout.of(shard.rank).stream(table, shard.rows);
            let part = (shard.rank, stream.expect("a stream for every shard"));
            // Slices of columns on one rank share their ids.
            if sharding.scheme(table).kind() == Kind::Row || !parts.contains(&part) {
                parts.push(part);
            }
        }
        Self { split: Split::new(sharding, table), parts, weighted }
    }
}
