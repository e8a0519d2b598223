//! Training: the corridor that one minibatch walks down (`step`), and what surrounds it.
//!
//! This floor introduces data to models; everything below it is unaware of the others.

mod checkpoint;
mod clock;
mod engine;
mod evaluation;
mod metrics;
mod output;
mod profile;
pub mod ranks;
mod report;
mod run;
mod step;
mod vocabulary;

pub use checkpoint::{Checkpoint, Progress, save, write_whole};
pub use clock::Clock;
pub use engine::{Engine, Feed, Weights};
pub use evaluation::{Predictions, evaluate, predict};
pub use metrics::{Scores, auc};
pub use output::{OutputDir, checkpoint_in, vocabulary_in};
pub use profile::{Profile, StageTime};
pub use report::Reporter;
pub use run::{LossTrace, Outcome, Run, Summary};
pub use step::step;
pub use vocabulary::{load_vocabulary, save_vocabulary};
