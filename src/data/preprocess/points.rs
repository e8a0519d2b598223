//! Time series of a behaviour log, as facebookresearch/tbsm trains on them (`tbsm_data_pytorch.py`): users with all
//! that they have seen become points, each some steps of a history and the item in question.
//!
//! Of a user with H items before the last one, min(N, 0, 1, 3, 6, N, N, ... for H / 10 = 0, 1, 2, ...) points are
//! positive: a stretch of the history whose last item is in question, which ends anywhere from the first place where it
//! is whole. As many are negative: a stretch that is one shorter, and one of the items of others. With N = 0 a user is
//! one point, with the label and the last item of the line, as for test.
//!
//! The reference draws from one sequential generator; here each number is a pure function of (seed, user, point).

use super::recipe::{RowParser, TextParser, sequences};
use crate::base::Result;
use crate::base::config::OnBadRow;
use crate::base::rng::{Random, Stream};
use crate::data::Labels;
use crate::data::formats::csv::row::Row;
use crate::data::formats::csv::{TextCategorical, TextSchema};
use crate::data::text::{BadLine, Columns, Tally};

/// Points of a user by tens of items; of more tens as many as are wanted.
const BY_TENS: [u32; 4] = [0, 1, 3, 6];

/// Points of users.
pub(super) struct Points {
    text: TextParser,
    /// Positive points of a user at most, and as many negative ones.
    most: u32,
    /// Items before the one in question.
    history: usize,
    random: Random,
}

/// The columns of points.
#[must_use]
pub(super) fn columns() -> TextSchema {
    let mut schema = sequences(&["items", "categories"]);
    schema.categorical.insert(0, TextCategorical { column: "user".to_owned(), ..TextCategorical::default() });
    schema
}

impl Points {
    pub(super) fn open(
        paths: &[std::path::PathBuf],
        [most, history]: [u32; 2],
        seed: u64,
        (on_bad_row, max_line): (OnBadRow, usize),
    ) -> Result<Self> {
        let mut raw = sequences(&["items", "categories", "other_items", "other_categories"]);
        raw.categorical.insert(0, columns().categorical.swap_remove(0));
        let text = TextParser::open(&raw, paths, Labels::Required, on_bad_row, max_line)?;
        Ok(Self { text, most, history: history as usize, random: Random::new(seed, Stream::Sample(2)) })
    }

    /// The points of a user; `take` gets the label, the items and their categories of each.
    fn of_user(&self, row: &Row<u64>, mut take: impl FnMut(f32, &[u64], &[u64])) -> std::result::Result<(), String> {
        let [user, items, categories, others, other_categories] = &row.lookups[..] else {
            unreachable!("five columns are read")
        };
        for (items, categories) in [(items, categories), (others, other_categories)] {
            let [items, categories] = [items.rows.len(), categories.rows.len()];
            if items != categories {
                return Err(format!("{items} items have {categories} categories: each has one"));
            }
        }
        let [items, categories] = [&items.rows[..], &categories.rows];
        let (all, steps) = (items.len(), self.history + 1);
        if self.most == 0 {
            let first = all.saturating_sub(steps);
            take(row.label, &items[first..], &categories[first..]);
            return Ok(());
        }
        // The last one is for test.
        let seen = all.saturating_sub(1);
        let (items, categories) = (&items[..seen], &categories[..seen]);
        let count = BY_TENS.get(seen / 10).map_or(self.most, |count| self.most.min(*count));
        let others = others.rows.iter().zip(&other_categories.rows);
        let others: Vec<_> = others.collect();
        let user = user.rows[0];
        let draw = |point: u32, which: u64, bound: usize| {
            self.random.below(user.wrapping_mul(1 << 20).wrapping_add(4 * u64::from(point) + which), bound as u64)
                as usize
        };
        // The first end of a stretch that is whole, if there is one.
        let end = |point: u32, which: u64, length: usize| {
            let first = (length - 1).min(seen - 1);
            first + draw(point, which, seen - first)
        };
        if count > 0 && others.is_empty() {
            return Err("a user has no items of others, of which negative points are made".to_owned());
        }
        let (mut asked, mut of_asked) = (Vec::new(), Vec::new());
        for point in 0..count {
            let last = end(point, 0, steps);
            let first = (last + 1).saturating_sub(steps);
            take(1.0, &items[first..=last], &categories[first..=last]);
            let last = end(point, 1, self.history.max(1));
            let first = (last + 1).saturating_sub(self.history);
            let (other, of_other) = others[draw(point, 2, others.len())];
            asked.clear();
            asked.extend(items[first..=last].iter().chain([other]));
            of_asked.clear();
            of_asked.extend(categories[first..=last].iter().chain([of_other]));
            take(0.0, &asked, &of_asked);
        }
        Ok(())
    }
}

impl RowParser for Points {
    type Key = u64;

    fn widths(&self) -> (usize, usize) {
        (0, 3)
    }

    fn reads(&self, name: &str) -> bool {
        self.text.reads(name)
    }

    fn parse(&self, text: &[u8], at: (usize, bool), into: &mut Columns<u64>) -> std::result::Result<Tally, BadLine> {
        let each = 2 * self.most.max(1) as usize;
        into.reset(self.text.most_rows(text, at.0) * each, 0, 3);
        self.text.each(text, at, |row| {
            self.of_user(row, |label, items, categories| {
                into.push(label, &[], &[row.lookups[0].rows[0], 0, 0]);
                into.push_list(1, items);
                into.push_list(2, categories);
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::data::preprocess::fingerprint;

    const OTHERS: u32 = 900_000;

    /// A user with so many items before the last one: item k of them is 1000 user + k + 1, of category k / 10.
    fn line(user: u32, history: u32) -> String {
        let list = |of: &dyn Fn(u32) -> u32| {
            let items = (0..200).map(|at: u32| (at + history + 1).checked_sub(200).map_or(0, of));
            items.map(|item| item.to_string()).collect::<Vec<_>>().join(",")
        };
        let (items, categories) = (list(&|k| 1000 * user + k + 1), list(&|k| 10 * user + k / 10 + 1));
        let (others, of_others) = (list(&|k| OTHERS + k), list(&|k| 90_000 + k / 10));
        format!("{user}\t1\t1\t1\t{items}\t{categories}\t{others}\t{of_others}\n")
    }

    #[test]
    fn positive_points_are_stretches_and_negative_ones_end_in_items_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.txt");
        let text: String = (1..200).map(|user| line(user, user)).collect();
        std::fs::write(&path, &text).unwrap();
        let paths = [path];
        let points = Points::open(&paths, [10, 20], 7, (OnBadRow::Fail, 1 << 20)).unwrap();
        let mut columns = Columns::default();
        points.parse(text.as_bytes(), (0, true), &mut columns).unwrap();
        let numbers: HashMap<u64, u32> =
            (1..OTHERS + 200).map(|item| (fingerprint(item.to_string().as_bytes()), item)).collect();
        let list = |column: usize, row: usize| -> Vec<u32> {
            let ends = columns.ends(column).unwrap();
            let first = if row == 0 { 0 } else { ends[row - 1] as usize };
            columns.keys(column)[first..ends[row] as usize].iter().map(|key| numbers[key]).collect()
        };
        let (mut counts, mut last_ends) = (HashMap::<u32, u32>::new(), Vec::new());
        for row in 0..columns.rows() {
            let user = numbers[&columns.keys(0)[row]];
            let (items, categories, positive) = (list(1, row), list(2, row), columns.labels[row] == 1.0);
            *counts.entry(user).or_default() += 1;
            let stretch = if positive { &items[..] } else { &items[..items.len() - 1] };
            assert!(stretch.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{items:?}");
            // The last item, number `user`, is for test.
            let place = |item: u32| item - 1000 * user - 1;
            assert!(place(stretch[0]) < user && place(stretch[stretch.len() - 1]) < user);
            let whole = if positive { 21 } else { 20 };
            assert_eq!(stretch.len() as u32, whole.min(user), "user {user}");
            for (item, category) in stretch.iter().zip(&categories) {
                assert_eq!(*category, 10 * user + place(*item) / 10 + 1);
            }
            if positive {
                last_ends.push(place(items[items.len() - 1]));
            } else {
                let (other, category) = (items[items.len() - 1] - OTHERS, categories[items.len() - 1]);
                assert!(other <= user && category == 90_000 + other / 10, "user {user}: {other} of {category}");
            }
        }
        let expected = |user: u32| 2 * [0, 1, 3, 6].get(user as usize / 10).copied().unwrap_or(10);
        assert!((1..200).all(|user| counts.get(&user).copied().unwrap_or(0) == expected(user)), "{counts:?}");
        assert!(last_ends.iter().any(|end| *end > 180) && last_ends.iter().any(|end| *end < 30), "they end anywhere");
        // A user's points do not depend on the others.
        let mut alone = Columns::default();
        points.parse(line(100, 100).as_bytes(), (0, false), &mut alone).unwrap();
        let first = (0..columns.rows()).find(|&row| numbers[&columns.keys(0)[row]] == 100).unwrap();
        let begin = columns.ends(1).unwrap()[first - 1] as usize;
        assert_eq!(alone.keys(1), &columns.keys(1)[begin..][..alone.keys(1).len()]);
        // For test, the line itself with its last item.
        let points = Points::open(&paths, [0, 20], 7, (OnBadRow::Fail, 1 << 20)).unwrap();
        points.parse(text.as_bytes(), (0, true), &mut columns).unwrap();
        assert_eq!(columns.rows(), 199);
        let all = columns.keys(1);
        assert_eq!(numbers[&all[all.len() - 1]], 1000 * 199 + 200);
    }
}
