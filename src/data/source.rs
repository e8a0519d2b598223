//! The one interface of all data sets: a source that can be opened at any sample, and a reader that streams from there.
//!
//! Invariant: a reader opened at sample s yields exactly what a reader opened at 0 yields after s samples, so a resumed
//! run sees the samples that an uninterrupted one would have seen.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::schema::{Label, Scales};
use super::{Batch, Description, Growth, Lost, Numbering, Samples, Schema, UnseenValues, Vocabulary};
use crate::base::Result;

/// Which samples.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Those that weights are learned from
    #[default]
    Train,
    /// Those that choices are made by, among the states of a model and among models
    Validation,
    /// Those that the model is judged by
    Test,
}

impl Split {
    /// All of them, in the order of [`Split`]'s numbers.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// This split's entry of `each`, which has one for each of [`Split::ALL`].
    #[must_use]
    pub fn of<T: Copy>(self, each: [T; 3]) -> T {
        each[self as usize]
    }

    /// The adjective of its samples.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Train => "training",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }
}

/// Samples as they are stored: before dense values are transformed, and missing ones become 0.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// The samples.
    pub samples: &'a Samples,
    /// Their columns, with what was learned of them.
    pub description: &'a Description,
    /// The row of a blank field of each categorical column, where that is no other value's; nothing at all of data that
    /// are no text.
    pub blanks: &'a [Option<u32>],
}

/// Whoever takes such samples, some at a time.
pub type TakeStored<'a> = dyn FnMut(Stored<'_>) -> Result<()> + 'a;

/// A data set.
pub trait Source: Send + Sync {
    /// The columns; known once the source exists.
    fn schema(&self) -> &Schema;

    /// How many samples a split has; `None` when it never ends.
    fn samples(&self, split: Split) -> Option<u64>;

    /// The data set that this one is made of, if it is: it answers whatever this one does not itself.
    fn made_of(&self) -> Option<&dyn Source> {
        None
    }

    /// The data set without the columns that a model's wide part adds; `None` where it adds none.
    fn without_wide(&self) -> Option<&dyn Source> {
        None
    }

    /// Whether row numbers were given while this source was opened, by no vocabulary of a model's: a model of other
    /// data cannot read it.
    fn numbers_own_values(&self) -> bool {
        self.made_of().is_some_and(|of| of.numbers_own_values())
    }

    /// Whether its readers hand over fewer samples than they are asked for where no more have come yet: only none at
    /// all is then the end.
    fn pauses(&self) -> bool {
        self.made_of().is_some_and(|of| of.pauses())
    }

    /// Told when nobody wants more samples: a reader that waits for some then comes to its end.
    fn close(&self) {
        self.made_of().into_iter().for_each(|of| of.close());
    }

    /// Whether a sample of the split is reached without reading all before it.
    fn is_seekable(&self, split: Split) -> bool {
        self.made_of().is_none_or(|of| of.is_seekable(split))
    }

    /// A reader whose first sample is number `start` of the split.
    ///
    /// # Errors
    /// When the file cannot be opened or is shorter than `start`.
    fn open(&self, split: Split, start: u64) -> Result<Box<dyn Reader + '_>>;

    /// Hands the samples of this range of a split of the stored data to `take`, as they are stored and in their order;
    /// false where samples are generated or arrive.
    ///
    /// # Errors
    /// When they cannot be read, and whatever `take` finds.
    fn each_stored(&self, split: Split, range: Range<u64>, take: &mut TakeStored<'_>) -> Result<bool> {
        self.made_of().map_or(Ok(false), |of| of.each_stored(split, range, take))
    }

    /// The true click probability of `count` samples from `start`, where somebody planted it; otherwise nothing.
    fn truth(&self, split: Split, start: u64, count: usize) -> Option<Vec<f32>> {
        self.made_of()?.truth(split, start, count)
    }

    /// Malformed rows of the files that are left out; each counts once, however often a file is read.
    fn skipped_rows(&self) -> u64 {
        self.made_of().map_or(0, |of| of.skipped_rows())
    }

    /// Those of the files that hold samples of this split.
    fn skipped_rows_beside(&self, split: Split) -> u64 {
        self.made_of().map_or(0, |of| of.skipped_rows_beside(split))
    }

    /// The first malformed row that is left out: its file, its line, and what is wrong with it.
    fn first_skipped(&self) -> Option<&str> {
        self.made_of()?.first_skipped()
    }

    /// Categorical values that readers have met so far, and those that the vocabulary does not know, of the columns
    /// that it numbers.
    fn unseen_values(&self) -> Vec<UnseenValues> {
        self.made_of().map_or_else(Vec::new, |of| of.unseen_values())
    }

    /// What the look-ups of samples that readers have handed over do not show, one entry a categorical column of text;
    /// nothing of other data.
    fn lost(&self) -> Vec<Lost> {
        self.made_of().map_or_else(Vec::new, |of| of.lost())
    }

    /// What these data have added to the vocabulary of the model that training begins with, or that they are compared
    /// with, column by column; nothing where there is none.
    fn growth(&self) -> &[Growth] {
        self.made_of().map_or(&[], |of| of.growth())
    }

    /// The values behind the row numbers, where numbers were given by first appearance: new data must use the same.
    fn vocabulary(&self) -> Option<&Vocabulary> {
        self.made_of()?.vocabulary()
    }

    /// Which values row numbers that are stored stand for, as far as files beside them tell.
    fn numbering(&self) -> Option<&Numbering> {
        self.made_of()?.numbering()
    }

    /// The names of dense columns, in their order, with how numbers are transformed. Nothing where nobody
    /// has named them.
    fn dense_columns(&self) -> Vec<(String, String)> {
        self.made_of().map_or_else(Vec::new, |of| of.dense_columns())
    }

    /// The label, where a column of the files is one as it stands.
    fn label(&self) -> Option<&Label> {
        self.made_of()?.label()
    }

    /// The column of samples' weights, where samples have some.
    fn weight(&self) -> Option<&str> {
        self.made_of()?.weight()
    }

    /// The text of the schema that describes them, where they are described text: new data must be read by the same.
    fn schema_text(&self) -> Option<&str> {
        self.made_of()?.schema_text()
    }

    /// Whether samples for tests are set apart by the data, and none is taken from those for training.
    fn has_own_tests(&self) -> bool {
        self.made_of().is_some_and(|of| of.has_own_tests())
    }

    /// What tells the files of a split's samples from others, by a few of their bytes when this is first asked; nothing
    /// where samples are generated or arrive. Beside it their number counts.
    fn fingerprint(&self, split: Split) -> Option<String> {
        self.made_of()?.fingerprint(split)
    }

    /// What was learned of dense columns, now or for an earlier model: new data must be read by the same. Where it is
    /// needed and not known, this reads the training samples, once.
    ///
    /// # Errors
    /// When they cannot be read, or the earlier model knows nothing of a column.
    fn scales(&self) -> Result<Scales> {
        self.made_of().map_or_else(|| Ok(Scales::new()), |of| of.scales())
    }
}

/// A position in a data set.
pub trait Reader: Send {
    /// Appends up to `limit` samples to `batch` and returns how many; fewer than `limit` only at the end, or where the
    /// source pauses.
    ///
    /// # Errors
    /// When the data is malformed or unreadable.
    fn read(&mut self, batch: &mut Batch, limit: usize) -> Result<usize>;

    /// Steps over up to `count` samples and returns how many; fewer only at the end. What is stepped over is not
    /// parsed, and where rows can be found without reading those before them, not touched.
    ///
    /// # Errors
    /// As [`Reader::read`].
    fn skip(&mut self, count: u64) -> Result<u64>;

    /// Appends the samples that lie `picks` samples behind the next one (0: the next one itself) and returns how many
    /// there were; fewer than asked only at the end. The next sample is then the one behind the last pick.
    ///
    /// # Errors
    /// As [`Reader::read`].
    ///
    /// # Panics
    /// When `picks` do not rise.
    fn pick(&mut self, batch: &mut Batch, picks: &[u64]) -> Result<usize> {
        let (mut at, mut found) = (0, 0);
        for run in picks.chunk_by(|a, b| a + 1 == *b) {
            let gap = run[0].checked_sub(at).expect("picks rise");
            if self.skip(gap)? < gap {
                break;
            }
            let read = self.read(batch, run.len())?;
            found += read;
            if read < run.len() {
                break;
            }
            at = run[0] + run.len() as u64;
        }
        Ok(found)
    }

    /// Bytes of files that were read so far, whether from the disk or from the page cache: what was parsed, copied or
    /// checked. Generated samples have none.
    fn bytes_read(&self) -> u64 {
        0
    }
}
