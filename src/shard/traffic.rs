//! What ranks send each other of tables for one minibatch.
//!
//! Rank d reads only its slice of the minibatch ([`Slice`](crate::data::Slice), N_d samples) and sends ids to the
//! owners of rows, with weights where a column has them; owners send pooled sums of N_d bags back to rank d; gradients
//! of these go the other way. Replicated tables exchange nothing here: their gradient is dense.

use super::scheme::{Kind, Shard, Sharding};
use crate::base::TableId;

/// Bytes of an id, of an offset and of a weight on the wire: u32, or f32.
pub const ID_BYTES: u64 = 4;

/// The shards that ids are sent for: one of those that have the same rows of a table on the same rank, because column
/// slices of one rank share their ids.
pub fn id_streams(sharding: &Sharding) -> impl Iterator<Item = &Shard> {
    let divided = TableId::all(sharding.tables()).filter(|table| sharding.scheme(*table).kind() != Kind::Replicated);
    divided.flat_map(|table| {
        let shards = sharding.of_table(table);
        let first = move |shard: &Shard| {
            shards.iter().position(|other| other.rank == shard.rank && other.rows == shard.rows) == Some(shard.part)
        };
        shards.iter().filter(move |shard| first(shard))
    })
}
