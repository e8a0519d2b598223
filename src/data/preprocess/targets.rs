//! The block files that a data set is to have: which rows are written together, and which of them into a file.

use std::ops::Range;

use super::ShuffleBy;
use super::split::Stretch;
use crate::data::Split;
use crate::data::blocks::EXTENSION;

/// A block file to be written.
pub(super) struct Target {
    pub(super) name: String,
    pub(super) role: Split,
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

/// What is written together: all that follow each other for one purpose, but training rows of each day by themselves
/// where days are shuffled.
pub(super) fn groups(stretches: Vec<Stretch>, shuffle: ShuffleBy) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for stretch in stretches {
        let shuffled = shuffle != ShuffleBy::None && stretch.role == Split::Train;
        match groups.last_mut() {
            Some(last) if last.stretch.role == stretch.role && !(shuffled && shuffle == ShuffleBy::Day) => {
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
    use crate::data::preprocess::SplitBy;

    #[test]
    fn files_are_cut_where_they_are_full() {
        let stretches = [(Split::Train, 0..7), (Split::Test, 7..10)];
        let files = |file_rows: u64| -> Vec<(Split, Range<u64>)> {
            let stretches = stretches.iter().cloned().map(|(role, rows)| Stretch { role, rows });
            let targets = targets(&groups(stretches.collect(), ShuffleBy::None), file_rows);
            targets.into_iter().map(|target| (target.role, target.rows)).collect()
        };
        assert_eq!(files(5), [(Split::Train, 0..5), (Split::Train, 5..7), (Split::Test, 7..10)]);
        assert_eq!(files(u64::MAX), stretches);
    }

    #[test]
    fn days_of_a_row_have_no_file_each_unless_they_are_shuffled() {
        let split = SplitBy::Fraction { validation: 0.0, test: 0.3 };
        let of = |shuffle: ShuffleBy| -> Vec<(Split, Range<u64>, bool)> {
            let groups = groups(split.stretches(&[1; 10]), shuffle);
            groups.into_iter().map(|group| (group.stretch.role, group.stretch.rows, group.shuffled)).collect()
        };
        for (shuffle, shuffled) in [(ShuffleBy::None, false), (ShuffleBy::Total, true)] {
            assert_eq!(of(shuffle), [(Split::Train, 0..7, shuffled), (Split::Test, 7..10, false)]);
        }
        let days = of(ShuffleBy::Day);
        assert_eq!((days.len(), days[6].clone()), (8, (Split::Train, 6..7, true)));
        assert_eq!(days[7], (Split::Test, 7..10, false));
    }
}
