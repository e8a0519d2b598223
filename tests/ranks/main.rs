//! Ranks: their collectives, the division of tables among them, what they send, and training by several of them.

#[path = "../support/alone.rs"]
mod alone;
mod channels;
mod collective;
mod hot;
mod models;
mod network;
#[path = "../support/planned.rs"]
mod planned;
#[path = "../support/requirement.rs"]
mod requirement;
#[path = "../support/sent.rs"]
mod sent;
mod shard;
mod traffic;
mod training;
#[path = "../weighing/mod.rs"]
mod weighing;
