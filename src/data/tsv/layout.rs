//! Which columns a tab-separated row has: label, integers, hexadecimal categories, in this order.

use std::path::Path;

use crate::data::Labels;
use crate::data::text::Shown;

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

    /// What a line shows of how the lines of the text at `path` are written.
    pub(super) fn shown(&self, path: &Path, line: &[u8]) -> Shown {
        let (all, found) = (self.columns(), columns(line));
        let fits = found == all || self.labels != Labels::Required && found == all - 1;
        Shown::by(path, Some(line), fits, [line])
    }
}

/// Tab-separated columns of a line.
pub(super) fn columns(line: &[u8]) -> usize {
    1 + line.iter().filter(|&&byte| byte == b'\t').count()
}
