//! The machine that octorec runs on: what it is, where ranks stand on it, and the threads of a rank.
//!
//! [`describe`] says what a machine is and [`discover`] finds out, [`links`] which nodes are joined; [`routes`] follows
//! links; [`placement`] chooses nodes and cores for ranks; [`site`] is the machine as ranks see it, [`network`] its
//! links as a graph, and [`fluid`] what shares them; [`draw`] shows all of it; [`team`] runs the threads; [`limits`]
//! measures what they can do, and [`figures`] keeps that for the machine as a whole.

mod cache;
pub mod cluster;
pub mod describe;
pub mod discover;
pub mod draw;
pub mod figures;
pub mod fluid;
pub mod limits;
pub mod links;
pub mod network;
pub mod placement;
pub(crate) mod ranges;
pub mod routes;
pub mod site;
pub mod team;

pub use cache::l2_bytes;
pub use describe::Machine;
pub use placement::{Placement, place};
pub use routes::Routes;
pub use site::Site;
