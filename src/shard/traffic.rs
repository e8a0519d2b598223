//! What ranks send each other of tables for one minibatch.
//!
//! Rank d reads only its slice of the minibatch ([`Slice`](crate::data::Slice), N_d samples) and sends ids to the
//! owners of rows, with weights where a column has them; owners send pooled sums of N_d bags back to rank d; gradients
//! of these go the other way. Replicated tables exchange nothing here: their gradient is dense.

use super::scheme::{Shard, Sharding};

/// Bytes of an id, of an offset and of a weight on the wire: u32, or f32.
pub const ID_BYTES: u64 = 4;

/// The shards that ids are sent for.
pub fn id_streams(sharding: &Sharding) -> impl Iterator<Item = &Shard> {
    sharding.divided().filter(|shard| brings_ids(sharding, shard))
}

/// Whether ids are sent for a shard: for the first of those that have the same rows of a table on the same rank,
/// because column slices of one rank share their ids.
pub(super) fn brings_ids(sharding: &Sharding, shard: &Shard) -> bool {
    let before = &sharding.of_table(shard.table)[..shard.part];
    !before.iter().any(|other| other.rank == shard.rank && other.rows == shard.rows)
}
