//! Tables as a checkpoint's file has them, mapped: rows that are looked up where they are, so that a model that
//! predicts starts at once, and only what is asked for is read.

use std::sync::Arc;

use crate::memory::{Buffer, FileMap};
use crate::shard::scheme::Shard;

/// Where in a mapped file the weights of tables are.
#[derive(Debug, Clone)]
pub struct StoredTables {
    map: Arc<FileMap>,
    /// By table, the byte at which its weights begin, and its rows and columns.
    tables: Vec<(usize, [usize; 2])>,
}

impl StoredTables {
    /// Of a file; by table where its weights begin, row-major 32-bit floats, and its rows and columns.
    #[must_use]
    pub fn new(map: Arc<FileMap>, tables: Vec<(usize, [usize; 2])>) -> Self {
        Self { map, tables }
    }

    /// Whether the file has a table of so many rows and columns.
    #[must_use]
    pub fn has(&self, table: usize, sizes: [usize; 2]) -> bool {
        self.tables.get(table).is_some_and(|(_, known)| *known == sizes)
    }

    /// The weights of a shard of a table of `rows` rows and `dim` columns; nothing where they do not lie one behind the
    /// other in the file, or the file has another table.
    pub(super) fn weights(&self, shard: &Shard, [rows, dim]: [usize; 2]) -> Option<Buffer<u32>> {
        let &(start, sizes) = self.tables.get(shard.table.index())?;
        let whole = shard.columns == (0..dim) && (shard.rows.step == 1 || shard.rows.count <= 1);
        if !whole || sizes != [rows, dim] {
            return None;
        }
        let first = usize::try_from(shard.rows.first).ok()?;
        let offset = start + first * dim * size_of::<u32>();
        Buffer::of_file(&self.map, offset, usize::try_from(shard.rows.count).ok()? * dim)
    }
}
