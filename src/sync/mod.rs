//! Where threads meet: fork-join regions with the disjoint pieces of memory that they hand out, and the windows and
//! barriers of ranks.
//!
//! One of the four rooms in which `unsafe` may stand. Every protocol is written down beside its atomics, and every
//! atomic comes through `primitive`, so that loom can explore the interleavings (`RUSTFLAGS="--cfg loom"`).

mod atoms;
mod barrier;
mod claims;
mod grid;
mod job;
mod lines;
mod locked;
mod mailbox;
mod parts;
mod primitive;
mod region;
mod rtm;
mod shares;
mod window;

pub use atoms::{ask, atomic_words, atomic_words_32, mul_add, put};
pub use barrier::{Barrier, barriers};
pub use grid::{Grid, GridPart};
pub use job::{Job, Waiting};
pub use lines::{Line, Stores, copy_part, write_lines};
pub use locked::{LockedRow, LockedRows, Stripes};
pub use parts::{Each, Parts, RowPart, Rows, each_alone};
pub use primitive::{AtomicU32, AtomicU64, Yielding};
pub use region::{Crew, Patience};
pub use rtm::Rtm;
pub use shares::{Band, Lender, Lent, Matrix, Share};
pub use window::{Receiver, SLOTS, Sender, Slot, window_lines, windows};
