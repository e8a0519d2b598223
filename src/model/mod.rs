//! Models: what lies between pooled rows and the loss ([`Network`]), one file each, and a rank's tables below it.

mod dlrm;
mod hot;
mod init;
mod names;
mod network;
mod parameter;
mod replica;
mod roofline;
mod room;
mod shape;
mod stage;
mod stored;
mod tables;
mod tbsm;

pub use dlrm::Dlrm;
pub use names::{Project, ROOTS};
pub use network::{Announce, BuildNetwork, CHAINS, Network, NetworkSpec, network};
pub use parameter::{Parameter, Place, STATE};
pub use roofline::Limits;
pub use room::{Room, check_columns, check_tables};
pub use shape::{LayerShape, Shape};
pub use stage::{Bound, Stage, Work};
pub use stored::StoredTables;
pub use tables::Tables;
pub use tbsm::Tbsm;
