//! Models: compositions of layers and tables, one file each.

mod dlrm;
mod init;
mod parameter;
mod roofline;
mod stage;

pub use dlrm::{Dlrm, Room};
pub use parameter::Parameter;
pub use roofline::Limits;
pub use stage::{Bound, Stage, Work};
