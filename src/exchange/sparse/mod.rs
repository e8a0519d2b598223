//! What travels where every rank has copies of hot rows: bags, and their vectors, that need an owner, and no others.
//!
//! A bag whose rows are all hot is pooled from the rank's own copies, in the bag's order, and so to the same bits. Any
//! other bag goes to the owners of its rows as a whole, whose hot rows are as good. So a stream has the bags that are
//! there, one after another, and a message of pooled rows or of gradients a vector for each: [`Blocks`].
//!
//! Where the number of ranks shall change no bit, owners move rows by the gradients of bags in the order of samples.
//! Then hot bags travel too, each with a mark, and so do their gradients; only their pooled rows do not.

mod division;
mod join;
mod pack;
mod unit;

pub(super) use division::{SparseIds, stream_words};
pub(super) use join::{JoinBlocks, is_served};
pub(super) use pack::pack;

use std::ops::Range;

use super::layout::Group;

/// Where the vectors of a message lie: shard after shard, in each one a bag, without gaps.
#[derive(Debug, Clone, Default)]
pub struct Blocks {
    /// Where each shard's vectors begin; one more entry than shards.
    starts: Vec<usize>,
}

impl Blocks {
    /// Of the shards of these groups, of whose streams there are so many bags.
    fn place(&mut self, groups: &[Group], bags: impl Fn(usize) -> usize) {
        self.starts.clear();
        let mut end = 0;
        for group in groups {
            for stream in &group.streams {
                self.starts.push(end);
                end += bags(*stream) * group.width;
            }
        }
        self.starts.push(end);
    }

    /// How many shards there are.
    fn shards(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// Where the vectors of some shards begin.
    #[must_use]
    pub fn starts(&self, shards: &Range<usize>) -> &[usize] {
        &self.starts[shards.clone()]
    }

    /// The elements of some shards, which follow each other.
    #[must_use]
    pub fn range(&self, shards: &Range<usize>) -> Range<usize> {
        self.starts[shards.start]..self.starts[shards.end]
    }

    /// All elements.
    #[must_use]
    pub fn floats(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }
}
