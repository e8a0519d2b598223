//! The one interface of all data sets: a source that can be opened at any sample, and a reader that streams from there.
//!
//! Invariant: a reader opened at sample s yields exactly what a reader opened at 0 yields after s samples, so a resumed
//! run sees the samples that an uninterrupted one would have seen.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

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

/// Samples of `rows` before the last `fraction` of them: floor(rows x (1 - fraction)), where the product's own rounding
/// does not count.
pub(super) fn first_part(rows: u64, fraction: f64) -> u64 {
    let exact = rows as f64 * (1.0 - fraction);
    let nearest = exact.round();
    // A few units in the last place: 0.71 x 100 is 71, whatever the product says.
    let first = if (exact - nearest).abs() <= 4.0 * f64::EPSILON * exact { nearest } else { exact.floor() };
    (first as u64).min(rows)
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

/// What says how many rows a table of numbers has that are rows as they stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SizedBy {
    /// The greatest of the numbers.
    Greatest,
    /// A file that describes the data.
    File(PathBuf),
}

/// What a data set is known to be once it is open, beside its columns, to which a model may add its own; of generated
/// samples, nothing.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The values behind the row numbers, where numbers were given by first appearance: new data must use the same.
    pub vocabulary: Option<Arc<Vocabulary>>,
    /// Whether row numbers were given while the data were opened, by no vocabulary of a model's: a model of other data
    /// cannot read them.
    pub numbers_own_values: bool,
    /// What the data have added to the vocabulary of the model that training begins with, or that they are compared
    /// with, column by column; nothing where there is none.
    pub growth: Vec<Growth>,
    /// Which values row numbers stand for, as far as files beside the data tell, or by the vocabulary.
    pub numbering: Numbering,
    /// The names of dense columns, in their order, with how numbers are transformed. Nothing where nobody has named
    /// them.
    pub dense_columns: Vec<(String, String)>,
    /// The label, where a column of the files is one as it stands.
    pub label: Option<Label>,
    /// The column of samples' weights, where samples have some.
    pub weight: Option<String>,
    /// The text of the schema that describes the data, where they are described text: new data must be read by the
    /// same.
    pub schema_text: Option<String>,
    /// What says how many rows the tables of numbers have that are rows as they stand; nothing where values get theirs
    /// otherwise, or a trained model has them.
    pub sized_by: Option<SizedBy>,
    /// Whether samples for tests are set apart by the data, and none is taken from those for training.
    pub has_own_tests: bool,
    /// Whether readers hand over fewer samples than they are asked for where no more have come yet: only none at all is
    /// then the end.
    pub pauses: bool,
}

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

    /// What it is known to be.
    fn about(&self) -> &About {
        static NOTHING: LazyLock<About> = LazyLock::new(About::default);
        match self.made_of() {
            Some(of) => of.about(),
            None => &NOTHING,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_split_takes_the_last_part() {
        assert_eq!(first_part(80_000, 0.2), 64_000);
        assert_eq!(first_part(100, 0.29), 71);
        assert_eq!(first_part(10, 0.25), 7);
        assert_eq!(first_part(1, 0.5), 0);
        assert_eq!(first_part(7, 0.0), 7);
        assert_eq!(first_part(4_195_197_692, 0.0), 4_195_197_692);
    }
}
