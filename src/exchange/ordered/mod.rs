//! What ranks exchange besides or instead, so that the number of ranks and the division of tables change no bit.
//!
//! Three sums depend on who has what. Gradients of weights are summed over samples: [`Nodes`] adds them by grains of the
//! minibatch in a fixed tree ([`crate::math::Sum`]). Bags of a table whose rows are divided are summed over look-ups:
//! their rows travel themselves ([`Rest`]) and are added in the bag's order. Gradients of replicated rows are summed over
//! samples: [`Replicas`] brings all of them to all ranks, which move the rows in the order of samples, as owners do.

mod nodes;
mod replicas;
mod rest;

pub use nodes::Nodes;
pub use replicas::Replicas;
pub(super) use rest::Part;
pub use rest::Rest;

use super::dense::Pieces;
use super::layout::Layout;
use crate::base::units::Bytes;
use crate::base::{RankId, Result};
use crate::machine::team::Team;
use crate::memory::{Arena, Supply};

/// The further exchanges, with their memory.
pub struct Ordered {
    /// Rows of divided tables.
    pub rest: Rest,
    /// Gradients of replicated tables.
    pub replicas: Replicas,
    /// Gradients of the MLPs.
    pub nodes: Nodes,
}

impl Ordered {
    /// For `rank`, whose MLPs have gradients of these `sizes`; nothing where sums are not cut into grains.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(
        layout: &Layout,
        rank: RankId,
        team: &Team,
        sizes: impl Iterator<Item = usize>,
        supply: &mut Supply<'_>,
    ) -> Result<Option<Self>> {
        let Some(grains) = layout.grains() else { return Ok(None) };
        let len = Pieces::len_of(sizes);
        Ok(Some(Self {
            rest: Rest::new(layout, rank, team),
            replicas: Replicas::new(layout, rank, team),
            nodes: Nodes::new(grains, layout.ranks(), rank, len, supply)?,
        }))
    }

    /// Takes its memory from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.nodes.settle(arena);
    }

    /// What it costs in memory and messages, for people.
    #[must_use]
    pub fn cost(&self) -> String {
        let nodes = &self.nodes;
        format!(
            "dense gradients in {} grains: up to {} copies a rank at work, {} of receive buffer; {} sent a rank and step \
             instead of {}",
            nodes.grains().count(),
            nodes.depth(),
            Bytes(nodes.buffer_bytes() as u64),
            Bytes(nodes.sent_bytes() as u64),
            Bytes(nodes.all_reduce_bytes() as u64)
        )
    }
}
