//! What every other floor may rely on: identities, units, equal parts, errors, randomness and configuration.
//!
//! Nothing here knows about machines, data or models, and nothing here allocates on a hot path.

pub mod config;
pub mod console;
mod deadline;
pub mod error;
mod even;
mod groups;
pub mod ids;
pub mod input;
pub mod interrupt;
mod locks;
mod median;
mod naming;
pub mod panics;
#[cfg(test)]
#[path = "../../tests/support/requirement.rs"]
pub mod requirement;
pub mod rng;
pub mod trouble;
pub mod units;

pub use deadline::{Deadline, Waited};
pub use error::{Error, Reason, Result};
pub use even::even_part;
pub use groups::in_groups;
pub use ids::{NodeId, PuId, RankId, TableId};
pub use locks::Unpoisoned;
pub use median::median;
pub(crate) use naming::named;
pub use trouble::{Place, Trouble};
