//! Collectives among ranks: planned as a value, carried out by one executor over any carrier.
//!
//! A planner ([`plan`]) turns sizes into a [`Schedule`]: rounds of hops, each with its ranks, spans, fold and bytes;
//! one of reductions by way of a [`plan::Reduction`], which is the same for all sizes, and of which the best is
//! [`priced`] first. A schedule prints itself and knows its traffic; [`Timing`] prices it on a machine, and [`Bound`]
//! says how fast any schedule could be there. An [`Executor`] carries out one rank's part over a [`Carrier`];
//! [`SharedMemory`] is the fabric that gives ranks of one machine theirs. Tests run every planner's schedules on
//! symbols and so prove that they compute what they claim (`tests/ranks/collective/proof.rs`).
//!
//! What has no schedule, because only data say who sends how much, goes straight over a carrier: messages whose lengths
//! both ends know ([`OneSided`]), and lists whose lengths their receivers are told ([`ListExchange`]).
//!
//! A lane is used by one thread at a time. Several threads of a rank, of its compute team or beside it, work at the
//! same time on lanes of their own: on contiguous parts of a tensor, each with [`Slices`] of its own. A compute team
//! may also fill the messages of one lane together ([`OneSided::begin`]).
//!
//! The order in which terms are added is fixed by the schedule alone; no result depends on who was first.

mod bound;
mod carrier;
mod choice;
mod executor;
mod launch;
mod list_exchange;
mod machines;
mod memory;
#[cfg(feature = "mpi")]
mod mpi;
mod one_sided;
mod parcels;
mod pieces;
pub mod plan;
mod price;
mod schedule;
mod shared_memory;
mod slices;
mod world;

pub use bound::Bound;
pub use carrier::{Carrier, Fabric, LaneSpec, Links, Opened, Outgoing};
pub use choice::{MOST_COMPARED, Priced, Reduced, candidates, priced};
pub use executor::Executor;
pub use launch::{Member, launch, spawn_rank};
pub use list_exchange::ListExchange;
pub use machines::Machines;
pub use memory::{Between, Memory, Tensor, narrow, widen};
pub use one_sided::{Incoming, OneSided};
pub use parcels::{Parcel, Parcels};
pub use pieces::{Pieces, PiecesMemory, meeting, met};
pub use price::{Copier, Timing, Works, flow};
pub use schedule::{Fold, Goal, Hop, Payload, Schedule};
pub use shared_memory::{Lane, SharedMemory};
pub use slices::{GRAIN, Slices};
pub use world::{Buffers, Raw, World};
