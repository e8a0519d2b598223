//! Raw logs become octorec's blocks: one pass over the text, in bounded memory, on all cores, resumable.
//!
//! 1. `gather`: pieces of text are parsed in parallel; each becomes a part, with its distinct values (`part`).
//! 2. `ids`: the distinct values of the parts get ids by order of first appearance, column by column.
//! 3. `shuffle` (optional): training rows are brought into random order.
//! 4. [`blocks`](super::blocks): rows are written with their ids, file by file; then the manifest.
//! 5. [`super::Unfinished`]: what was written beside an older data set takes its place.
//!
//! The result depends on the text and the options alone: not on threads, memory or compression of the input, nor on
//! how often the run was killed. Ids, counts and order are those of facebookresearch/dlrm's `data_utils.py` without
//! `--max-ind-range`, which is applied at load here. Integers stay integers: missing ones stay missing and negative
//! ones negative, and the loader takes both as 0.

mod disk;
mod gather;
mod ids;
mod inputs;
mod journal;
mod known;
mod output;
mod part;
mod pieces;
mod points;
mod progress;
mod recipe;
mod run;
mod shards;
mod shuffle;
mod split;
mod stored;
mod targets;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use super::vocabulary::file::fingerprint;
pub use inputs::input_files;
pub(in crate::data) use inputs::note_left_out;
pub use progress::{Stage, Watch};
pub use recipe::{avazu, taobao, taobao_sequences};
pub use run::{SUMMARY, Summary, preprocess};
pub use split::SplitBy;

use super::blocks::Codec;
use super::formats::csv::TextSchema;
use crate::base::config::{MAX_LINE, OnBadRow};

/// What the input is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recipe {
    /// Criteo's display-advertising log: one file, cut into 7 equal days.
    CriteoKaggle,
    /// Criteo's Terabyte log: a file a day.
    CriteoTerabyte,
    /// A table of text.
    Table(TextSchema),
    /// Taobao's behaviour sequences ([`taobao_sequences`]), of whose users points are made: the columns `user`, `items`
    /// and `categories`.
    Points {
        /// Positive points of a user at most, and as many negative ones; 0: the line itself.
        most: u32,
        /// Items before the one in question.
        history: u32,
    },
}

impl Recipe {
    /// Rows of a categorical column where they do not depend on the data.
    fn fixed_rows(&self, column: usize) -> Option<u64> {
        match self {
            Self::Table(layout) => layout.categorical[column].fixed_rows(),
            Self::CriteoKaggle | Self::CriteoTerabyte | Self::Points { .. } => None,
        }
    }
}

/// Which rows are brought into random order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ShuffleBy {
    /// The order of the log.
    #[default]
    None,
    /// The training rows of each day among themselves.
    Day,
    /// All training rows.
    Total,
}

/// What is wanted; as the journal of a run has it, only what the run's bytes depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// What the input is.
    pub recipe: Recipe,
    /// Text files (plain, gzip or zstd) in order, a day each; a folder stands for its files in the order of their
    /// names, numbers in names compared as numbers.
    #[serde(skip)]
    pub inputs: Vec<PathBuf>,
    /// The folder of the data set; it may hold an unfinished run with the same options.
    #[serde(skip)]
    pub out: PathBuf,
    /// Bytes of memory that may be used.
    #[serde(skip)]
    pub memory: u64,
    /// Threads; 0: one for each core.
    #[serde(skip)]
    pub threads: usize,
    /// Values seen less often share the column's last row, as values that are met later do. 0: every value has a row of
    /// its own, as in the reference, and unseen ones have none.
    pub min_count: u32,
    /// Equal days that all rows are cut into; 0: 7 for [`Recipe::CriteoKaggle`], otherwise a day each file.
    pub days: u64,
    /// How rows are split.
    pub split: SplitBy,
    /// Which rows are shuffled.
    pub shuffle: ShuffleBy,
    /// Of the shuffle.
    pub seed: u64,
    /// A data set whose vocabulary is used as it is, unless it grows.
    #[serde(with = "journal::place")]
    pub vocabulary: Option<PathBuf>,
    /// Whether values that it lacks get rows behind its own.
    pub grow: bool,
    /// What happens to malformed rows: parts of a run with another answer are of use only if there was none in them.
    pub on_bad_row: OnBadRow,
    /// The longest line that is accepted, in bytes; parts of a run that accepted longer ones are of no use.
    pub max_line: usize,
    /// Compression of the blocks.
    pub codec: Codec,
    /// Rows of a block file.
    pub file_rows: u64,
    /// Replaces the data set that is there, once the new one is whole, and an unfinished run with other options.
    #[serde(skip)]
    pub force: bool,
    /// Bytes of text taken at once; 0: as memory and threads allow, which is all that a command has. Others are for
    /// tests.
    #[serde(skip)]
    pub piece_bytes: u64,
}

impl Options {
    /// The defaults: 4 GiB, all cores, every value its own row, no split, no shuffle.
    #[must_use]
    pub fn new(recipe: Recipe, inputs: Vec<PathBuf>, out: PathBuf) -> Self {
        Self {
            recipe,
            inputs,
            out,
            memory: 4 << 30,
            threads: 0,
            min_count: 0,
            days: 0,
            split: SplitBy::None,
            shuffle: ShuffleBy::None,
            seed: 123,
            vocabulary: None,
            grow: false,
            on_bad_row: OnBadRow::Fail,
            max_line: MAX_LINE,
            codec: Codec::Raw,
            file_rows: 1 << 20,
            force: false,
            piece_bytes: 0,
        }
    }
}
