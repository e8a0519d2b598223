//! What can be wrong with one row, as facts; whoever reads the file adds its name and the line.

use std::fmt;

use crate::base::Reason;
use crate::data::text::too_long;

/// Why a row cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Too few or too many columns.
    Columns {
        /// Columns of the layout, the label included.
        expected: usize,
        /// Columns of the row.
        found: usize,
        /// Whether one column fewer (no label) would do as well.
        label_optional: bool,
    },
    /// The label is neither 0 nor 1.
    Label {
        /// What stands there.
        found: String,
    },
    /// An integer column holds something else.
    Integer {
        /// Counted from 1.
        column: usize,
        /// What stands there.
        found: String,
    },
    /// An integer does not fit 64 bits.
    IntegerRange {
        /// Counted from 1.
        column: usize,
        /// What stands there.
        found: String,
    },
    /// An integer does not fit 32 bits, as stored data sets have them; -2^31 stands for a missing one there.
    IntegerWide {
        /// Counted from 1.
        column: usize,
        /// What stands there.
        found: String,
    },
    /// A categorical column holds something else than up to 8 hexadecimal digits.
    Hex {
        /// Counted from 1.
        column: usize,
        /// What stands there.
        found: String,
    },
    /// The vocabulary that was given does not know a value and has no row for such.
    Unseen {
        /// Counted from 1.
        column: usize,
        /// The value, after `rows_cap`.
        value: u32,
    },
    /// The line is longer than any row can be.
    TooLong {
        /// The limit.
        limit: usize,
    },
}

impl Fault {
    /// The same in words.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::TooLong { limit } => too_long(*limit),
            Self::Unseen { .. } => Reason::with_remedy(self.to_string()),
            _ => self.to_string().into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Columns { expected, found: 1, .. } => {
                write!(f, "expected {expected} tab-separated columns, found 1: is the file separated by tabs?")
            }
            Self::Columns { expected, found, label_optional: true } => {
                write!(f, "expected {expected} tab-separated columns ({} without a label), found {found}", expected - 1)
            }
            Self::Columns { expected, found, .. } => {
                write!(f, "expected {expected} tab-separated columns, found {found}")
            }
            Self::Label { found } => write!(f, "expected the label 0 or 1 in the first column, found \"{found}\""),
            Self::Integer { column, found } => write!(f, "column I{column}: expected an integer, found \"{found}\""),
            Self::IntegerRange { column, found } => {
                write!(f, "column I{column}: expected an integer of at most 64 bits, found \"{found}\"")
            }
            Self::IntegerWide { column, found } => {
                write!(f, "column I{column}: expected an integer of at most 32 bits, found \"{found}\"")
            }
            Self::Hex { column, found } => {
                write!(f, "column C{column}: expected up to 8 hexadecimal digits, found \"{found}\"")
            }
            Self::Unseen { column, value } => write!(
                f,
                "column C{column}: the value {value:08x} is not in the model's vocabulary, which has no row for unseen \
                 values: leave such rows out with --on-bad-row skip; if new values are to be expected, begin another run with \
                 this one's weights (--init RUN --out NEW), which gives them rows"
            ),
            Self::TooLong { limit } => f.write_str(&too_long(*limit)),
        }
    }
}
