//! How many bytes every pair of ranks exchanges for one minibatch, exactly, as `octorec::shard::traffic` says.
//!
//! Matrices are `[from][to]`; the diagonal is what stays on a rank.

use octorec::base::RankId;
use octorec::data::Slice;
use octorec::shard::traffic::{ID_BYTES, id_streams};
use octorec::shard::{Kind, Shard, Sharding};

/// Bytes from each rank (row) to each rank (column).
pub type Matrix = Vec<Vec<u64>>;

fn matrix(sharding: &Sharding) -> Matrix {
    vec![vec![0; sharding.ranks()]; sharding.ranks()]
}

fn slices(sharding: &Sharding, batch: usize) -> Vec<u64> {
    let slice = |rank| Slice::new(rank, sharding.ranks()).of(batch).len() as u64;
    (0..sharding.ranks()).map(slice).collect()
}

/// Pooled sums from the owners of rows to the owners of samples: N_d x columns elements from a shard to rank d.
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
pub fn gradients(sharding: &Sharding, batch: usize, element_bytes: u64) -> Matrix {
    let forward = pooled(sharding, batch, element_bytes);
    (0..sharding.ranks()).map(|from| forward.iter().map(|row| row[from]).collect()).collect()
}

/// Ids from the owners of samples to the owners of rows: for each stream of [`id_streams`] N_d + 1 offsets, the row
/// numbers and, where the table's look-ups have them, the weights, of which there are `words(shard, d)` together.
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
