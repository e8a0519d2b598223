//! Models: what lies between pooled rows and the loss ([`Network`]), one file each, and a rank's tables below it.

pub mod graph;
mod hot;
mod init;
mod names;
mod network;
mod parameter;
mod replica;
mod roofline;
mod room;
mod shape;
mod sparse;
mod stage;
mod stored;
mod tables;

pub use graph::Graph;
pub use hot::Copies;
pub use names::{Project, ROOTS};
pub use network::{Announce, BuildNetwork, Network, NetworkSpec};
pub use parameter::{Parameter, Place, STATE};
pub use roofline::Limits;
pub use room::{Room, check_columns, check_tables};
pub use shape::{Layer, LayerShape, Role, Shape};
pub use stage::{Bound, Stage, Work};
pub use stored::StoredTables;
pub use tables::Tables;
