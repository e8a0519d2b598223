//! Items that are alike, put together.

/// Groups equivalent items, in order of first appearance.
#[must_use]
pub fn in_groups<T>(all: impl Iterator<Item = T>, alike: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    let mut groups = Vec::<Vec<T>>::new();
    for one in all {
        match groups.iter_mut().find(|group| alike(&group[0], &one)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}
