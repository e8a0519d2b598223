//! Models: compositions of layers and tables, one file each.

mod dlrm;
mod init;

pub use dlrm::{Dlrm, Parameter, Room};
