//! Which columns a tab-separated row has: label, integers, hexadecimal categories, in this order.

use crate::data::Labels;

/// The columns of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Integer columns after the label.
    pub dense: usize,
    /// Hexadecimal columns after the integers.
    pub categorical: usize,
    /// Whether the label column may be missing.
    pub labels: Labels,
    /// The longest line that is accepted, in bytes; a row of Criteo has about 250.
    pub max_line: usize,
}

impl Layout {
    /// Criteo's display-advertising logs: 13 integers and 26 categories in lines of at most `max_line` bytes.
    #[must_use]
    pub const fn criteo(labels: Labels, max_line: usize) -> Self {
        Self { dense: 13, categorical: 26, labels, max_line }
    }

    /// Columns of a complete row, the label included.
    #[must_use]
    pub const fn columns(&self) -> usize {
        1 + self.dense + self.categorical
    }
}
