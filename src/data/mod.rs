//! Where samples come from: one trait ([`Source`]), one file a format, everything streaming.
//!
//! A source knows its [`Schema`] and hands out [`Reader`]s that start at any sample; a reader appends to a [`Batch`]
//! whose memory is reused. Nothing here knows the model or the machine.

mod alone;
mod batch;
pub mod blocks;
mod criteo;
pub mod dense;
pub mod derived;
mod epoch;
mod fill;
mod fingerprint;
pub mod formats;
pub mod hot;
pub mod incoming;
mod key_map;
mod loader;
pub mod moment;
mod numbering;
mod opening;
mod permuted;
mod planted;
mod portions;
pub mod preprocess;
mod quotients;
mod random;
pub mod samples;
pub mod schema;
mod shuffle;
mod source;
pub mod stack_distance;
pub mod statistics;
pub mod survey;
mod taobao;
mod text;
pub mod tsv;
mod unfinished;
mod unseen;
mod vocabulary;
pub mod wide;
pub mod zipf;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::config::{Config, DataConfig, SourceKind};
use crate::base::{Error, Result};
use crate::memory::{file_id, same_file};

pub use alone::{Alone, Telling};
pub use batch::{Bag, BagView, Batch};
pub use criteo::Criteo;
pub use epoch::Epoch;
pub use fingerprint::may_be_same;
pub use loader::{Loader, Plan, Position, Waited};
pub use numbering::Numbering;
pub use opening::{Labels, OnUnseen, Opening, Progress};
pub use permuted::{Feature, Permuted};
pub use portions::{LoaderMode, Portion, RankLoader, Slice};
pub use random::Random;
pub use samples::Samples;
pub use schema::{Column, Description, Schema};
pub use shuffle::Shuffle;
pub use source::{About, Reader, SizedBy, Source, Split, Stored, TakeStored};
pub use taobao::Taobao;
pub use unfinished::Unfinished;
pub use unseen::{Lost, UnseenValues};
pub use vocabulary::{Growth, Vocabulary};

/// The data set that a configuration names. `opening` matters for files only.
///
/// Generated data takes its shape from the model: as many dense features as `model.bottom` has inputs, and tables of
/// `model.rows`.
///
/// # Errors
/// When the configuration lacks something that the source needs, or its files cannot be used.
pub fn open(config: &Config, opening: Opening<'_>) -> Result<Arc<dyn Source>> {
    let (data, rows) = (&config.data, &config.model.rows[..]);
    let dense = config.model.dense();
    formats::refuse_mixed(data)?;
    refuse_tests_of_training(data)?;
    Ok(match data.source {
        SourceKind::Criteo => Arc::new(Criteo::new(data, rows, dense)?),
        SourceKind::Taobao => Arc::new(Taobao::new(data, rows, dense)?),
        SourceKind::Tsv => Arc::new(formats::Files::open_criteo(data, rows, opening)?),
        SourceKind::Files => Arc::new(formats::Files::open(data, opening)?),
        SourceKind::Random => Arc::new(Random::new(data, rows, dense)?.named(&config.model.columns)),
    })
}

/// Refuses test samples in a file that is one for training, too: the file itself, or one of a folder of described
/// text, which is read all. Of other data sets, [`formats::Files`] knows it once both are open.
fn refuse_tests_of_training(data: &DataConfig) -> Result<()> {
    if !data.is_stored() || data.test_path.is_empty() {
        return Ok(());
    }
    let [train, tests] = [&data.path, &data.test_path].map(Path::new);
    if same_file(train, tests) {
        return Err(tested_on_training(tests, train, "name another file"));
    }
    let all = |path: &Path| match path.is_dir() && !data.schema.is_empty() {
        true => formats::csv::files_at(path),
        false => Ok(vec![path.to_owned()]),
    };
    let files: HashSet<_> = all(train)?.iter().filter_map(|file| file_id(file)).collect();
    let is_read = |tests: &PathBuf| file_id(tests).is_some_and(|file| files.contains(&file));
    match all(tests)?.into_iter().find(is_read) {
        Some(both) => Err(tested_on_training(&both, train, "move it out of the folder")),
        None => Ok(()),
    }
}

/// The error of a file of test samples that is one for training.
fn tested_on_training(both: &Path, train: &Path, remedy: &str) -> Error {
    let reason = format!(
        "{} is among what data.path (--data {}) names for training, so that the model would be tested on samples that it was \
         trained on: {remedy}, or keep a part of the training samples for tests, with data.test_fraction \
         (--test-fraction) and without data.test_path (--set data.test_path=)",
        both.display(),
        train.display()
    );
    Error::config("data.test_path (--test-data)", reason)
}
