//! Numbers: gradients, kernels and precisions against definitions, references and themselves.

#[path = "../support/alone.rs"]
mod alone;
mod determinism;
mod embedding;
mod gradients;
mod gradients_bf16;
mod kernels;
mod layers;
mod limits;
mod models;
mod parity;
mod precision;
#[path = "../support/renamed.rs"]
mod renamed;
#[path = "../support/requirement.rs"]
mod requirement;
#[path = "../weighing/mod.rs"]
mod weighing;
mod weighted_pooling;
