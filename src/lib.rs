//! octorec
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod base;
pub mod data;
