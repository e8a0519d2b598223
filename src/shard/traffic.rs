//! What ranks send each other of tables for one minibatch.
//!
//! Rank d reads only its slice of the minibatch ([`Slice`](crate::data::Slice), N_d samples) and sends ids to the
//! owners of rows, with weights where a column has them; owners send pooled sums of N_d bags back to rank d; gradients
//! of these go the other way. Of replicated tables, which all ranks look up where they are, only lists of the rows that
//! a rank's samples name travel, with their gradients, and these go around a ring.

use super::scheme::{Kind, Shard, Sharding};
use crate::base::named;

/// Bytes of an id, of an offset and of a weight on the wire: u32, or f32.
pub const ID_BYTES: u64 = 4;

/// Bytes of an element of a gradient or a sum, and of a word of a list: f32, or u32.
pub(super) const WORD_BYTES: f64 = 4.0;

named! {
    /// What ranks exchange of tables that are divided, in the order of a step: one all-to-all each.
    pub enum Exchanged {
        /// Ids of rows, to the ranks that own these.
        Ids = "ids",
        /// Pooled rows, to the ranks whose samples look them up.
        PooledRows = "pooled rows",
        /// Gradients of pooled rows, back to the owners.
        Gradients = "gradients",
    }
}

/// The shards that ids are sent for.
pub fn id_streams(sharding: &Sharding) -> impl Iterator<Item = &Shard> {
    sharding.divided().filter(|shard| brings_ids(sharding, shard))
}

/// Whether ids are sent for a shard: for the first of those that have the same rows of a table on the same rank,
/// because column slices of one rank share their ids.
pub(super) fn brings_ids(sharding: &Sharding, shard: &Shard) -> bool {
    // No other parts have the same rows, and of rows there may be many parts.
    if sharding.scheme(shard.table).kind() != Kind::Column {
        return true;
    }
    let before = &sharding.of_table(shard.table)[..shard.part];
    !before.iter().any(|other| other.rank == shard.rank)
}
