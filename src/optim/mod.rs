//! How weights move: optimizers and the learning rate over time.

mod schedule;
mod sgd;
mod split_sgd;

pub use schedule::Schedule;
pub use sgd::{LastTermSgd, Sgd};
pub use split_sgd::{Low, SplitSgd};
