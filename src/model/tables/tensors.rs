//! A rank's parts of tensors that tables hold: for checkpoints, and whoever asks for weights.

use std::ops::Range;

use super::Tables;
use crate::base::{RankId, TableId};
use crate::embedding::Table;
use crate::exchange::Layout;
use crate::model::Place;
use crate::optim::Moment;
use crate::shard::scheme::Shard;

impl Tables {
    /// Lends this rank's part of rows `rows` of a table, what is in this place or what is kept of it, shard by shard,
    /// exactly: the shard, its own numbers of the rows, and the values. All ranks have the same copy of a replicated
    /// table; the first one gives it.
    ///
    /// # Panics
    /// When the place is not of a table.
    pub fn export(
        &self,
        layout: &Layout,
        place: Place,
        moment: Option<Moment>,
        rows: &Range<usize>,
        mut take: impl FnMut(&Shard, Range<usize>, &[f32]),
    ) {
        let table = table_of(place);
        let tables = self.groups.iter().flat_map(|group| &group.tables);
        let shards = layout.of(self.rank).shards.iter().zip(tables).filter(|(shard, _)| shard.table == table);
        let own = self.replicas.iter().filter(|replica| replica.ids[0] == table && self.rank == RankId(0));
        let own = own.map(|replica| (&layout.sharding().of_table(table)[self.rank.index()], &replica.group.tables[0]));
        for (shard, part) in shards.chain(own) {
            let local = shard.rows.within(rows);
            match moment {
                _ if let Some(number) = row_weight(place, moment) => {
                    take(shard, local.clone(), &part.row_weights_of(number, local));
                }
                None => take(shard, local.clone(), &part.weights_of(local)),
                Some(Moment::OfWeight(moment)) => take(shard, local.clone(), &part.moment_of(moment, local)),
                Some(Moment::OfRow) => take(shard, local.clone(), part.row_moment_of(local)),
                Some(Moment::Updates) => unreachable!("a rank counts them, not its tables"),
            }
        }
    }

    /// Whether all that this rank has of a table is where a checkpoint has it.
    #[must_use]
    pub fn is_stored(&self, layout: &Layout, table: TableId) -> bool {
        let tables = self.groups.iter().flat_map(|group| &group.tables);
        let mut own = layout.of(self.rank).shards.iter().zip(tables).filter(|(shard, _)| shard.table == table);
        let mut copies = self.replicas.iter().filter(|replica| replica.ids[0] == table);
        own.all(|(_, part)| part.is_stored()) && copies.all(|replica| replica.group.tables[0].is_stored())
    }

    /// Overwrites this rank's part of rows `rows` of a table, given row-major: what is in this place, or what is kept
    /// of it. Rows that are where a checkpoint has them stay: it gives the same.
    ///
    /// # Panics
    /// When the place is not of a table.
    pub fn import(
        &mut self,
        layout: &Layout,
        place: Place,
        moment: Option<Moment>,
        rows: &Range<usize>,
        values: &[f32],
    ) {
        let table = table_of(place);
        let put = |part: &mut Table, first: usize, values: &[f32]| match moment {
            _ if let Some(number) = row_weight(place, moment) => part.set_row_weights(number, first, values),
            None if part.is_stored() => {}
            None => part.set_weights(first, values),
            Some(Moment::OfWeight(moment)) => part.set_moment(moment, first, values),
            Some(Moment::OfRow) => part.set_row_moment(first, values),
            Some(Moment::Updates) => unreachable!("a rank counts them, not its tables"),
        };
        let of_rows = place.is_of_rows(moment);
        let dim = if of_rows { 1 } else { layout.sharding().dim(table) };
        let shards = layout.of(self.rank).shards.iter();
        let parts = shards.zip(self.groups.iter_mut().flat_map(|group| &mut group.tables));
        for (shard, part) in parts.filter(|(shard, _)| shard.table == table) {
            let local = shard.rows.within(rows);
            let columns = if of_rows { 0..1 } else { shard.columns.clone() };
            if (local.len(), columns.len()) == (rows.len(), dim) {
                put(part, local.start, values);
                continue;
            }
            let mut part_of = Vec::with_capacity(local.len() * columns.len());
            for row in local.clone() {
                let start = (shard.rows.global(row as u64) as usize - rows.start) * dim;
                part_of.extend_from_slice(&values[start + columns.start..start + columns.end]);
            }
            put(part, local.start, &part_of);
        }
        for replica in self.replicas.iter_mut().filter(|replica| replica.ids[0] == table) {
            put(&mut replica.group.tables[0], rows.start, values);
        }
    }
}

/// The table of this place.
fn table_of(place: Place) -> TableId {
    TableId(place.table().expect("a place of a table") as u32)
}

/// Which of the numbers of a row's learned weight is meant, if one is: the weight, or what is kept of it.
fn row_weight(place: Place, moment: Option<Moment>) -> Option<usize> {
    matches!(place, Place::RowWeights(_)).then_some(match moment {
        None => 0,
        Some(Moment::OfWeight(moment)) => 1 + moment,
        // To row-wise Adagrad a weight is a row of its own.
        Some(Moment::OfRow) => 1,
        Some(Moment::Updates) => unreachable!("a rank counts them, not its tables"),
    })
}
