//! Models: compositions of layers and tables, one file each.

mod dlrm;
mod init;
mod roofline;
mod stage;

pub use dlrm::{Dlrm, Parameter, Room};
pub use roofline::Limits;
pub use stage::{Bound, Stage, Work};
