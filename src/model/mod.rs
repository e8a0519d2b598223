//! Models: the network between pooled rows and the loss ([`Network`]), whose layers presets name ([`graph`]), and a
//! rank's part of the tables ([`Tables`]).

pub mod graph;
mod hot;
mod init;
mod names;
mod network;
mod parameter;
mod roofline;
mod shape;
mod sparse;
mod stage;
mod stored;
mod table_group;
mod tables;
mod train_spec;
mod weights;

pub use graph::Graph;
pub use hot::Copies;
pub use names::{Project, is_of_model};
pub use network::{Announce, BuildNetwork, Network, NetworkSpec};
pub use parameter::{Parameter, STATE, TensorSlot};
pub use roofline::Limits;
pub use shape::{Layer, LayerShape, Role, Shape};
pub use stage::{Bound, Stage, Work};
pub use stored::StoredTables;
pub use tables::Tables;
pub use train_spec::{TrainSpec, check_columns, check_tables, param_states, table_param_groups};
pub use weights::{LayerWeights, Weights};
