//! Where threads meet: fork-join regions and the disjoint pieces of memory that they hand out.
//!
//! One of the four rooms in which `unsafe` may stand. Every protocol is written down beside its atomics, and every
//! atomic comes through `primitive`, so that loom can explore the interleavings (`RUSTFLAGS="--cfg loom"`).

mod atoms;
mod grid;
mod locked;
mod parts;
mod primitive;
mod region;
mod rtm;
mod shares;

pub use atoms::{ask, atomic_floats, atomic_words, mul_add, put};
pub use grid::{Grid, GridPart};
pub use locked::{LockedRow, LockedRows, Stripes};
pub use parts::{Each, Parts, RowPart, Rows};
pub use primitive::{AtomicU32, AtomicU64};
pub use region::{Crew, Patience};
pub use rtm::Rtm;
pub use shares::{Band, Lender, Lent, Share};
