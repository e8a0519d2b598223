//! Training: the corridor that one minibatch walks down (`step`), and what surrounds it.
//!
//! This floor introduces data to models; everything below it is unaware of the others.

mod checkpoint;
mod metrics;
mod output;
mod report;
mod step;

pub use checkpoint::{Checkpoint, Progress};
pub use metrics::{Scores, auc};
pub use output::OutputDir;
pub use report::Reporter;
pub use step::step;
