//! Planners. Those of all-to-alls make a schedule of sizes: those that bring everything straight to its place are in
//! one file ([`Exchange`]), that with relays in another ([`relayed()`]). Those of reductions, which training takes for
//! many tensors, make a [`Reduction`], which makes schedules: a new one is a file and a line in a list
//! ([`reductions()`]).

mod breadth_first;
mod candidates;
mod direct;
mod exchange;
mod halving_doubling;
mod hierarchical;
mod multi_ring;
mod phases;
mod reduction;
mod relayed;
mod ring;
mod trees;
mod two_ring;

use super::parcels::{Parcel, Parcels};
use super::schedule::{Fold, Goal, Hop, Payload, Schedule};
use super::slices::Slices;

pub use breadth_first::breadth_first;
pub use candidates::{ALL_TO_ALLS, Topology, exchange, exchanges, reductions};
pub use direct::direct;
pub use exchange::Exchange;
pub use halving_doubling::halving_doubling;
pub use hierarchical::hierarchical;
pub use multi_ring::{disjoint_rings, multi_ring};
pub use reduction::{Flow, Reduction};
pub use relayed::relayed;
pub use ring::{Ring, ring};
pub use trees::{pipelined_trees, spanning_trees};
pub use two_ring::two_ring;
