//! How a data set of files is opened: for training or for predictions, and by what a trained model knows.

use super::schema::{Scales, TrainedColumns};
use super::{Numbering, Vocabulary};

/// Called now and then with the bytes done and the bytes in all.
pub type Progress<'a> = dyn FnMut(u64, u64) + 'a;

/// Whether rows must carry a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Labels {
    /// Every row has one; in Criteo's layout it begins with 0 or 1.
    #[default]
    Required,
    /// A row may lack it, whose label is then NaN; in Criteo's layout the field may be empty or absent.
    Optional,
    /// The same, and what stands in its place in text below a header, or in Parquet, need be no label. For prediction.
    Unused,
}

/// What a value does that the vocabulary of a trained model lacks, if that has no row for such values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnUnseen {
    /// Its row is malformed.
    #[default]
    Reject,
    /// It is left out: its bag is empty, which pools to a vector of zeros. For evaluation and prediction.
    EmptyBag,
}

/// How a data set is opened, beyond its configuration: by what a trained model knows of its own data, and for what.
pub struct Opening<'a> {
    /// The vocabulary of a trained model; without it one is learned, where `data.vocab` asks for one.
    pub known: Option<Vocabulary>,
    /// What a trained model has learned of dense columns; without it, it is learned from the training samples.
    pub scales: Option<Scales>,
    /// The columns that a trained model reads, for files that tell their columns by name.
    pub columns: Option<TrainedColumns>,
    /// The text of a trained model's schema; without it, that of the file that `data.schema` names.
    pub schema: Option<String>,
    /// By which files of values the rows of the model are numbered that training begins with, or that data are compared
    /// with: values that data have more in theirs have rows behind those.
    pub numbering: Numbering,
    /// Whether what `scales` lacks is learned, too, and values of training samples are added to `known`: where training
    /// begins with that model's weights.
    pub begins: bool,
    /// Whether rows need a label.
    pub labels: Labels,
    /// What a value of a training sample does that `known` lacks; one of a test sample is left out in any case.
    pub unseen: OnUnseen,
    /// Whether all rows of a data set are one split for training, in the order of its files, whatever they are for.
    pub whole: bool,
    /// Told now and then how many bytes of how many the opening pass has read.
    pub progress: Box<Progress<'a>>,
}

impl Default for Opening<'_> {
    /// To learn from, with rows that all have labels, and nobody who is told.
    fn default() -> Self {
        Self {
            known: None,
            scales: None,
            columns: None,
            schema: None,
            numbering: Numbering::default(),
            begins: false,
            labels: Labels::default(),
            unseen: OnUnseen::default(),
            whole: false,
            progress: Box::new(|_, _| {}),
        }
    }
}
