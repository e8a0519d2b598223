//! The machine that octorec runs on: its threads.

pub mod team;
