//! A rank's parts of tensors that tables hold: for checkpoints, and whoever asks for weights.

use std::ops::Range;

use super::Tables;
use crate::base::TableId;
use crate::embedding::{Table, TableTensor};
use crate::exchange::Layout;

impl Tables {
    /// This rank's part of rows `rows` of one of a table's tensors, exactly: of those shards that it gives of a table
    /// ([`Layout::exported`]), one behind the other.
    #[must_use]
    pub fn export(&self, layout: &Layout, table: TableId, tensor: TableTensor, rows: &Range<usize>) -> Vec<f32> {
        let mut values = Vec::new();
        for (shard, part) in layout.exported(table, self.rank).zip(self.parts_of(layout, table)) {
            values.extend_from_slice(&part.export(tensor, shard.rows.within(rows)));
        }
        values
    }

    /// Whether all that this rank has of a table is where a checkpoint has it.
    #[must_use]
    pub fn is_stored(&self, layout: &Layout, table: TableId) -> bool {
        self.parts_of(layout, table).all(Table::is_stored)
    }

    /// All that this rank has of a table: its shards in the layout's order, or its copy.
    fn parts_of(&self, layout: &Layout, table: TableId) -> impl Iterator<Item = &Table> {
        let tables = self.groups.iter().flat_map(|group| &group.tables);
        let shards = layout.of(self.rank).shards.iter().zip(tables).filter(move |(shard, _)| shard.table == table);
        let copies = self.replicas.iter().filter_map(move |replicas| replicas.table(table));
        shards.map(|(_, part)| part).chain(copies)
    }

    /// Overwrites this rank's part of rows `rows` of one of a table's tensors, given row-major, as
    /// [`Table::import`](crate::embedding::Table::import).
    pub fn import(
        &mut self,
        layout: &Layout,
        table: TableId,
        tensor: TableTensor,
        rows: &Range<usize>,
        values: &[f32],
    ) {
        let of_rows = tensor.is_of_rows();
        let dim = if of_rows { 1 } else { layout.sharding().dim(table) };
        let shards = layout.of(self.rank).shards.iter();
        let parts = shards.zip(self.groups.iter_mut().flat_map(|group| &mut group.tables));
        for (shard, part) in parts.filter(|(shard, _)| shard.table == table) {
            let local = shard.rows.within(rows);
            let columns = if of_rows { 0..1 } else { shard.columns.clone() };
            if (local.len(), columns.len()) == (rows.len(), dim) {
                part.import(tensor, local.start, values);
                continue;
            }
            let mut part_of = Vec::with_capacity(local.len() * columns.len());
            for row in local.clone() {
                let start = (shard.rows.global(row as u64) as usize - rows.start) * dim;
                part_of.extend_from_slice(&values[start + columns.start..start + columns.end]);
            }
            part.import(tensor, local.start, &part_of);
        }
        for copy in self.replicas.iter_mut().filter_map(|replicas| replicas.table_mut(table)) {
            copy.import(tensor, rows.start, values);
        }
    }
}
