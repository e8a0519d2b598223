//! How weights move: optimizers and the learning rate over time.

mod schedule;
mod sgd;

pub use schedule::Schedule;
pub use sgd::Sgd;
