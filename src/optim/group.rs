//! Parameter groups, in PyTorch's sense: parameters that one optimizer moves, at one learning rate.
//!
//! A model's builder says which group each layer and each table is in. Everything else carries the group of what it
//! works on, and looks up by it what differs between groups.

use std::ops::{Index, IndexMut};

/// A group of parameters that one optimizer moves; both groups of a wide part have one learning rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ParamGroup {
    /// The network's layers.
    #[default]
    Dense,
    /// The tables' rows, whose gradients are sparse.
    Sparse,
    /// The layer of a wide part.
    WideDense,
    /// The rows of a wide part's tables.
    WideSparse,
}

impl ParamGroup {
    /// All groups.
    pub const ALL: [Self; 4] = [Self::Dense, Self::Sparse, Self::WideDense, Self::WideSparse];
}

/// One of something for each parameter group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByGroup<T>([T; ParamGroup::ALL.len()]);

impl<T> ByGroup<T> {
    /// What `of` gives for each group.
    #[must_use]
    pub fn new(of: impl FnMut(ParamGroup) -> T) -> Self {
        Self(ParamGroup::ALL.map(of))
    }
}

impl<T: Copy> ByGroup<T> {
    /// The same for all groups.
    #[must_use]
    pub const fn all(of: T) -> Self {
        Self([of; ParamGroup::ALL.len()])
    }

    /// One for the groups of layers and one for those of rows, whether of a wide part or not.
    #[must_use]
    pub const fn of_kinds(dense: T, sparse: T) -> Self {
        Self([dense, sparse, dense, sparse])
    }
}

impl<T> Index<ParamGroup> for ByGroup<T> {
    type Output = T;

    fn index(&self, group: ParamGroup) -> &T {
        &self.0[group as usize]
    }
}

impl<T> IndexMut<ParamGroup> for ByGroup<T> {
    fn index_mut(&mut self, group: ParamGroup) -> &mut T {
        &mut self.0[group as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_finds_its_own() {
        let own = ByGroup::new(|group| group);
        assert!(ParamGroup::ALL.into_iter().all(|group| own[group] == group));
        let kinds = ByGroup::of_kinds("layers", "rows");
        assert_eq!([kinds[ParamGroup::WideDense], kinds[ParamGroup::WideSparse]], ["layers", "rows"]);
    }
}
