//! Who gets the look-ups of a table.

use crate::base::{RankId, TableId};
use crate::exchange::layout::Layout;
use crate::shard::scheme::{Kind, Sharding, Split};

/// Who gets the look-ups of a table.
#[derive(Debug)]
pub(super) struct Owners {
    pub split: Split,
    /// For each part the rank that has it, and the number of its stream there. Of whole tables, each rank that has
    /// columns of it.
    pub parts: Vec<(RankId, usize)>,
    pub weighted: bool,
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
