//! What a training step takes on a machine that is described or measured, and perhaps not there: the stages of the
//! corridor and the messages between ranks as activities that share cores, memories and links
//! ([`crate::machine::fluid`]).
//!
//! The work of a stage is that of [`Shape`](crate::model::Shape) and of the division's [`Load`](crate::shard::Load)s,
//! the messages of dense gradients are those of the schedules that the executor carries out, and all of it is priced by
//! one model: what a planner, a choice of collectives and a simulation say of a machine cannot differ.

mod build;
mod messages;
mod outcome;
mod rates;
mod reduction;
#[cfg(all(test, not(loom)))]
mod tests;

pub use build::{Scene, simulate};
pub use outcome::{MessageKind, Outcome};
pub use rates::Rates;
