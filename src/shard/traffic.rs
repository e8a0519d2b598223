//! How many bytes every pair of ranks exchanges for one minibatch, exactly.
//!
//! Matrices are `[from][to]`; the diagonal is what stays on a rank. Rank d reads only its slice of the minibatch
//! ([`Slice`], N_d samples) and sends ids to the owners of rows, with weights where a column has them; owners
//! send pooled sums of N_d bags back to rank d; gradients of these go the other way. Replicated tables exchange nothing
//! here: their gradient is dense.

use super::scheme::{Kind, Shard, Sharding};
use crate::base::{RankId, TableId};
use crate::data::Slice;

/// Bytes of an id, of an offset and of a weight on the wire: u32, or f32.
pub const ID_BYTES: u64 = 4;

/// Bytes from each rank (row) to each rank (column).
pub type Matrix = Vec<Vec<u64>>;

fn matrix(sharding: &Sharding) -> Matrix {
    vec![vec![0; sharding.ranks()]; sharding.ranks()]
}

fn slices(sharding: &Sharding, batch: usize) -> Vec<u64> {
    let slice = |rank| Slice::new(rank, sharding.ranks()).of(batch).len() as u64;
    (0..sharding.ranks()).map(slice).collect()
}

/// The shards that ids are sent for: one of those that have the same rows of a table on the same rank, because column
/// slices of one rank share their ids.
pub fn id_streams(sharding: &Sharding) -> impl Iterator<Item = &Shard> {
    (0..sharding.tables() as u32)
        .map(TableId)
        .filter(|table| sharding.scheme(*table).kind() != Kind::Replicated)
        .flat_map(|table| {
            let shards = sharding.of_table(table);
            let first = move |shard: &Shard| {
                shards.iter().position(|other| other.rank == shard.rank && other.rows == shard.rows) == Some(shard.part)
            };
            shards.iter().filter(move |shard| first(shard))
        })
}

/// Pooled sums from the owners of rows to the owners of samples: N_d x columns elements from a shard to rank d.
#[must_use]
pub fn pooled(sharding: &Sharding, batch: usize, element_bytes: u64) -> Matrix {
    let (mut bytes, slices) = (matrix(sharding), slices(sharding, batch));
    for shard in sharding.shards() {
        if sharding.scheme(shard.table).kind() != Kind::Replicated {
            for (to, samples) in slices.iter().enumerate() {
                bytes[shard.rank.index()][to] += samples * shard.columns.len() as u64 * element_bytes;
            }
        }
    }
    bytes
}

/// Gradients of pooled sums, back from the owners of samples to the owners of rows: [`pooled`], transposed.
#[must_use]
pub fn gradients(sharding: &Sharding, batch: usize, element_bytes: u64) -> Matrix {
    let forward = pooled(sharding, batch, element_bytes);
    (0..sharding.ranks()).map(|from| forward.iter().map(|row| row[from]).collect()).collect()
}

/// Ids from the owners of samples to the owners of rows: for each stream of [`id_streams`] N_d + 1 offsets, the row
/// numbers and, where the table's look-ups have them, the weights, of which there are `words(shard, d)` together.
#[must_use]
pub fn ids(sharding: &Sharding, batch: usize, words: impl Fn(&Shard, RankId) -> u64) -> Matrix {
    let (mut bytes, slices) = (matrix(sharding), slices(sharding, batch));
    for shard in id_streams(sharding) {
        for (from, samples) in slices.iter().enumerate() {
            let words = words(shard, RankId(from as u32));
            bytes[from][shard.rank.index()] += (samples + 1 + words) * ID_BYTES;
        }
    }
    bytes
}
