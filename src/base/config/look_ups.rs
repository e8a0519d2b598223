//! How many look-ups a sample makes in each table: the same in all of them, or, as in MLPerf's multi-hot data, each its
//! own.

use serde::{Deserialize, Serialize};

/// Look-ups of a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a number of look-ups, or a list with one for each table, is expected")]
pub enum LookUps {
    /// As many in every table.
    Same(usize),
    /// By table.
    Each(Vec<usize>),
}

impl LookUps {
    /// Those in table number `table`.
    ///
    /// # Panics
    /// When the list is too short.
    #[must_use]
    pub fn of(&self, table: usize) -> usize {
        match self {
            Self::Same(count) => *count,
            Self::Each(counts) => counts[table],
        }
    }

    /// All numbers that there are.
    #[must_use]
    pub fn counts(&self) -> &[usize] {
        match self {
            Self::Same(count) => std::slice::from_ref(count),
            Self::Each(counts) => counts,
        }
    }

    /// The largest of them.
    #[must_use]
    pub fn most(&self) -> usize {
        self.counts().iter().copied().max().unwrap_or(0)
    }
}

impl From<usize> for LookUps {
    fn from(count: usize) -> Self {
        Self::Same(count)
    }
}
