//! How many bytes go from each rank to each other, as they go over the wire.

use serde::Serialize;

use crate::collective::Links;

/// Bytes from each rank to each other, by what they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Ids of rows, and weights of look-ups that have some.
    pub ids: Links,
    /// Pooled rows.
    pub pooled_rows: Links,
    /// Gradients of pooled rows.
    pub pooled_gradients: Links,
    /// Gradients of the MLPs and of replicated tables.
    pub dense_gradients: Links,
    /// What goes instead or besides, where the number of ranks shall change no bit: see [`super::Unpooled`] and
    /// [`super::Replicas`]; and sums of dense gradients by grains.
    pub ordered: Links,
    /// Sums of the gradients of hot rows, to their owners: see [`super::HotRows`].
    pub hot_gradients: Links,
    /// Hot rows that were moved, to all copies.
    pub hot_rows: Links,
}

impl Traffic {
    /// Its parts, by name.
    #[must_use]
    pub const fn parts(&self) -> [(&'static str, &Links); 7] {
        [
            ("ids", &self.ids),
            ("pooled rows", &self.pooled_rows),
            ("their gradients", &self.pooled_gradients),
            ("dense gradients", &self.dense_gradients),
            ("for determinism", &self.ordered),
            ("hot rows' gradients", &self.hot_gradients),
            ("hot rows", &self.hot_rows),
        ]
    }

    /// From parts in the order of [`Traffic::parts`].
    #[must_use]
    pub fn of(parts: [Links; 7]) -> Self {
        let [ids, pooled_rows, pooled_gradients, dense_gradients, ordered, hot_gradients, hot_rows] = parts;
        Self { ids, pooled_rows, pooled_gradients, dense_gradients, ordered, hot_gradients, hot_rows }
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> Links {
        let none = Links::uniform(self.ids.ranks(), 0);
        self.parts().into_iter().fold(none, |sum, (_, part)| sum.plus(part))
    }
}
