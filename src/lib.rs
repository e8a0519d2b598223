//! octorec
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod base;
pub mod cli;
pub mod data;
pub mod embedding;
#[allow(unsafe_code)]
pub mod ffi;
pub mod layer;
pub mod machine;
pub mod math;
pub mod memory;
pub mod model;
pub mod optim;
pub mod simd;
pub mod sync;
