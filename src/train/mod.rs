//! Training: the corridor that one minibatch walks down (`step`, with the stages of hot rows in `hot_step`), and what
//! surrounds it.
//!
//! This floor introduces the data's minibatches to networks, and optimizers to what ranks exchange.

mod best;
mod checkpoint;
mod clock;
mod copies;
mod entries;
mod evaluation;
pub mod export;
mod feed;
mod hot_file;
mod hot_step;
mod loss_trace;
mod machines;
mod metrics;
mod mllog;
mod observe;
mod order;
mod output;
mod profile;
mod rank;
mod ranks;
mod rates;
mod reduction;
mod report;
mod revisions;
mod run;
mod setup;
mod step;
mod summary;
mod tensor_file;
mod tensors;
pub(crate) mod trace;
mod training_loop;
mod verify;
mod vocabulary;

pub use best::{Best, Evaluations};
pub use checkpoint::{Checkpoint, Instead, KnownRows, Origin, Progress, RowsBy, Start, TrainedOn, Writers, save};
pub use clock::{Breakdown, Clock, Span};
pub use evaluation::{GroupBy, Questions, Taker, evaluate, evaluated, predict};
pub use feed::InputStream;
pub use hot_file::{load_hot, save_hot};
pub use loss_trace::LossTrace;
pub use metrics::{
    Bucket, ByValue, EachSample, Evaluation, Grouped, MOST_VALUES, Scores, StandardErrors, ValueScores, paired_errors,
};
pub use mllog::{Benchmark, MlLog, Submission};
pub use observe::unused_plans;
pub use order::{Judged, Shuffled};
pub use output::{
    OutputDir, ROWS_TAKEN, checkpoint_in, has_begun, hot_in, plan_in, resume_in, run_files, run_of, vocabulary_in,
};
pub use profile::{Profile, StageTime, StepWork};
pub use rank::Rank;
pub use ranks::{Ranks, Step};
pub use rates::Rates;
pub use report::Reporter;
pub use revisions::{FindHot, Length, Revised, Revisions, Windows};
pub use run::{Run, RunState};
pub(crate) use setup::MOST_REDUCERS;
pub use setup::{BuildFabric, DEADLINE, Setup};
pub use summary::{Outcome, Summary};
pub use verify::{Region, Verified};
pub use vocabulary::{digest, load_vocabulary, save_vocabulary};
