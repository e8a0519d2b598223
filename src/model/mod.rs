//! Models: compositions of layers and tables, one file each.

mod dense;
mod dlrm;
mod init;
mod parameter;
mod roofline;
mod sharded;
mod stage;

pub use dense::Dense;
pub use dlrm::{Dlrm, Room};
pub use parameter::Parameter;
pub use roofline::Limits;
pub use sharded::Sharded;
pub use stage::{Bound, Stage, Work};
