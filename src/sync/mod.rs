//! Where threads meet: fork-join regions and the disjoint pieces of memory that they hand out.
//!
//! One of the four rooms in which `unsafe` may stand. Every protocol is written down beside its atomics, and every
//! atomic comes through `primitive`, so that loom can explore the interleavings (`RUSTFLAGS="--cfg loom"`).

mod grid;
mod parts;
mod primitive;
mod region;

pub use grid::{Grid, GridPart};
pub use parts::{Each, Parts, RowPart, Rows};
pub use region::{Crew, Patience};
