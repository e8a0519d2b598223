//! The block files that a data set is to have: which rows are written together, and which of them into a file.

use std::ops::Range;

use super::ShuffleBy;
use super::split::Stretch;
use crate::data::blocks::{EXTENSION, Role};

/// A block file to be written.
pub(super) struct Target {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) group: usize,
    /// Rows of its group: numbers of the log, or places in the random order.
    pub(super) rows: Range<u64>,
}

/// Consecutive rows that are written together, in order or shuffled.
pub(super) struct Group {
    pub(super) stretch: Stretch,
    pub(super) shuffled: bool,
}

impl Group {
    /// How many rows it has.
    pub(super) fn rows(&self) -> u64 {
        self.stretch.rows.end - self.stretch.rows.start
    }
}

/// What is written together: with a total shuffle, all training rows.
pub(super) fn groups(stretches: Vec<Stretch>, shuffle: ShuffleBy) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for stretch in stretches {
        let shuffled = shuffle != ShuffleBy::None && stretch.role == Role::Train;
        match groups.last_mut() {
            Some(last) if shuffle == ShuffleBy::Total && shuffled && last.shuffled => {
                last.stretch.rows.end = stretch.rows.end;
            }
            _ => groups.push(Group { stretch, shuffled }),
        }
    }
    groups
}

/// The block files of these groups, each of at most so many rows.
pub(super) fn targets(groups: &[Group], file_rows: u64) -> Vec<Target> {
    let mut targets = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let Range { start, end } = group.stretch.rows;
        let (mut from, end) = if group.shuffled { (0, end - start) } else { (start, end) };
        while from < end {
            let to = end.min(from.saturating_add(file_rows));
            let name = format!("part-{:05}.{EXTENSION}", targets.len());
            targets.push(Target { name, role: group.stretch.role, group: at, rows: from..to });
            from = to;
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_cut_where_they_are_full() {
        let stretches = [(Role::Train, 0..7), (Role::Test, 7..10)];
        let files = |file_rows: u64| -> Vec<(Role, Range<u64>)> {
            let stretches = stretches.iter().cloned().map(|(role, rows)| Stretch { role, rows });
            let targets = targets(&groups(stretches.collect(), ShuffleBy::None), file_rows);
            targets.into_iter().map(|target| (target.role, target.rows)).collect()
        };
        assert_eq!(files(5), [(Role::Train, 0..5), (Role::Train, 5..7), (Role::Test, 7..10)]);
        assert_eq!(files(u64::MAX), stretches);
    }
}
