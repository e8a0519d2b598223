//! Identities that must not be mixed up: a table number is no rank number and no count.
//!
//! Each is a transparent integer with a `Display` in the words that error messages use.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $word:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in a list that holds one item for each of these.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }
    };
}

id!(
    /// An embedding table, counted from 0 in the order of the categorical columns.
    TableId,
    "table"
);

/// Identities without gaps.
macro_rules! counted {
    ($($name:ident),*) => {$(
        impl $name {
            /// The first so many, rising.
            pub fn all(count: usize) -> impl Iterator<Item = Self> + Clone {
                (0..count as u32).map(Self)
            }
        }
    )*};
}

counted!(TableId, RankId);

id!(
    /// A NUMA node by the operating system's number; numbers may have gaps.
    NodeId,
    "node"
);

id!(
    /// A rank: one place of the distributed computation, counted from 0 without gaps.
    RankId,
    "rank"
);

id!(
    /// A processing unit (hardware thread) by the operating system's number, as `taskset` counts them.
    PuId,
    "cpu"
);
