//! The two forms of messages: which bags a message of ids tells of, and where their vectors lie in one of pooled rows
//! or of gradients.

use super::layout::Group;
use crate::base::config::Wire;
use crate::embedding::Slots;
use crate::sync::Line;

/// What owners are told of a rank's bags, and so what they send back of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageForm {
    /// Every bag, even without a look-up: all know how many there are, and messages have a row a sample.
    RowPerSample,
    /// Bags that have look-ups in the owner's rows and are not served by copies of hot rows: a stream says how many
    /// there are, and messages have a vector for each. Bags of hot rows alone travel too where bags are `marked`: a bit
    /// a bag says which these are, and only their pooled rows stay away.
    VectorPerBag { marked: bool },
}

impl MessageForm {
    /// Whether hot bags travel, with marks.
    pub const fn marked(self) -> bool {
        matches!(self, Self::VectorPerBag { marked: true })
    }

    /// Words of a stream before its offsets: how many bags it has, unless that is known.
    pub const fn head(self) -> usize {
        match self {
            Self::RowPerSample => 0,
            Self::VectorPerBag { .. } => 1,
        }
    }

    /// Words of so many bags' marks, which end a stream.
    pub const fn marks(self, bags: usize) -> usize {
        if self.marked() { bags.div_ceil(32) } else { 0 }
    }
}

/// Where the vectors of a message lie.
#[derive(Debug, Clone)]
pub enum Vectors {
    /// Side by side in rows of so many elements, one a sample: see [`Group::in_message`].
    Rows(usize),
    /// Shard after shard, in each one a bag, without gaps: where each shard's begin; one more entry than shards.
    Bags(Vec<usize>),
}

impl Vectors {
    /// In a message whose rows, if it has such, have so many elements.
    pub(super) const fn new(form: MessageForm, row: usize) -> Self {
        match form {
            MessageForm::RowPerSample => Self::Rows(row),
            MessageForm::VectorPerBag { .. } => Self::Bags(Vec::new()),
        }
    }

    /// Places the vectors of a minibatch's bags, of which there are so many in each stream of these groups. Rows stay.
    pub(super) fn place(&mut self, groups: &[Group], bags: impl Fn(usize) -> usize) {
        let Self::Bags(starts) = self else { return };
        starts.clear();
        let mut end = 0;
        for group in groups {
            for stream in &group.streams {
                starts.push(end);
                end += bags(*stream) * group.width;
            }
        }
        starts.push(end);
    }

    /// All elements, where the rank that asks has so many samples.
    #[must_use]
    pub fn elements(&self, samples: usize) -> usize {
        match self {
            Self::Rows(row) => samples * row,
            Self::Bags(starts) => starts.last().copied().unwrap_or(0),
        }
    }

    /// Where the vectors of each shard of a group lie.
    ///
    /// # Panics
    /// When the message has none of them.
    #[must_use]
    pub fn slots<'a>(&'a self, group: &'a Group) -> Slots<'a> {
        match self {
            Self::Rows(row) => Slots::new(*row, &group.in_message).sequences(group.positions, group.width),
            Self::Bags(starts) => Slots::new(group.width, &starts[group.shards.clone()]),
        }
    }

    /// Lines of a message that one thread writes, as it travels: those of a row.
    pub(super) const fn lines_together(&self, wire: Wire) -> usize {
        match self {
            Self::Rows(row) => *row * wire.bytes() / Line::BYTES,
            Self::Bags(_) => 1,
        }
    }
}
