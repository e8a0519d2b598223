//! Numbers: gradients, kernels and precisions against definitions, references and themselves.

mod determinism;
mod embedding;
mod gradients;
mod gradients_bf16;
mod kernels;
mod limits;
mod parity;
mod precision;
#[path = "../support/renamed.rs"]
mod renamed;
#[path = "../support/requirement.rs"]
mod requirement;
mod models;
#[path = "../weighing/mod.rs"]
mod weighing;
