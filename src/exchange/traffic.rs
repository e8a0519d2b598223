//! How many bytes go from each rank to each other, as they go over the wire.

use serde::Serialize;

use crate::collective::Links;

/// Bytes from each rank to each other, by what they are; or one of something for each kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Traffic<T = Links> {
    /// Ids of rows, and weights of look-ups that have some.
    pub ids: T,
    /// Pooled rows.
    pub pooled_rows: T,
    /// Gradients of pooled rows.
    pub pooled_gradients: T,
    /// Gradients of the MLPs and of replicated tables.
    pub dense_gradients: T,
    /// What goes instead or besides, where the number of ranks shall change no bit: see [`super::Unpooled`] and
    /// [`super::Replicas`]; and sums of dense gradients by grains.
    pub ordered: T,
    /// Sums of the gradients of hot rows, to their owners: see [`super::HotRows`].
    pub hot_gradients: T,
    /// Hot rows that were moved, to all copies.
    pub hot_rows: T,
}

impl<T> Traffic<T> {
    /// Its parts, by name.
    #[must_use]
    pub const fn parts(&self) -> [(&'static str, &T); 7] {
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

    /// The same kinds, with what each part becomes: one after the other, in the order of [`Traffic::parts`].
    pub fn map<U>(self, mut each: impl FnMut(T) -> U) -> Traffic<U> {
        Traffic {
            ids: each(self.ids),
            pooled_rows: each(self.pooled_rows),
            pooled_gradients: each(self.pooled_gradients),
            dense_gradients: each(self.dense_gradients),
            ordered: each(self.ordered),
            hot_gradients: each(self.hot_gradients),
            hot_rows: each(self.hot_rows),
        }
    }
}

impl Traffic {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Links {
        let none = Links::uniform(self.ids.ranks(), 0);
        self.parts().into_iter().fold(none, |sum, (_, part)| sum.plus(part))
    }
}
