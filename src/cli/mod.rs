//! One file per command: its flags, and the way from them to the rooms that do the work.

pub mod topo;
