//! Gradients of rows in a list of words, as hot rows and replicated tables send them: part by part, one a table or
//! shard, the number of vectors, the vectors, and what was looked up for each, as a stream of ids has it.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::embedding::{Lookups, PackedBag, Slots, Source};

/// Where a part of a list lies of rows, each once with its gradient, that a team writes there in any order.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowListPart {
    start: usize,
    rows: usize,
    width: usize,
}

impl RowListPart {
    /// For so many rows of so many columns, behind the first `end` words of a list, which are those in use.
    ///
    /// # Panics
    /// When there are 2^32 rows or more.
    #[must_use]
    pub fn behind(list: &mut Vec<u32>, end: usize, [rows, width]: [usize; 2]) -> Self {
        let part = Self { start: end, rows, width };
        // Only what is longer than the list has ever been is written twice.
        if list.len() < part.end() {
            list.resize(part.end(), 0);
        }
        list[part.start] = u32::try_from(rows).expect("fewer than 2^32 rows are met");
        list[part.offsets()] = 0;
        part
    }

    /// Where it ends.
    #[must_use]
    pub const fn end(self) -> usize {
        // Behind one offset more than rows, and the rows.
        self.offsets() + 1 + 2 * self.rows
    }

    const fn offsets(self) -> usize {
        self.start + 1 + self.rows * self.width
    }

    /// Writes one of its rows to the list, which nobody else writes, with the bits of its gradient.
    ///
    /// # Panics
    /// When the list does not have it.
    #[inline(always)]
    pub fn put(self, list: &[AtomicU32], index: usize, row: u32, gradient: impl Iterator<Item = u32>) {
        // Relaxed: every word has one writer, and the region's end hands them over.
        let put = |to: &AtomicU32, word: u32| to.store(word, Ordering::Relaxed);
        let vector = &list[self.start + 1 + index * self.width..][..self.width];
        vector.iter().zip(gradient).for_each(|(to, word)| put(to, word));
        put(&list[self.offsets() + 1 + index], index as u32 + 1);
        put(&list[self.offsets() + 1 + self.rows + index], row);
    }
}

/// Where the parts of a list are.
#[derive(Debug, Clone, Default)]
pub(super) struct RowListParts {
    /// Where the vectors of each begin.
    gradients: Vec<usize>,
    bags: Vec<PackedBag>,
}

impl RowListParts {
    /// Forgets those of the list before.
    pub(super) fn clear(&mut self) {
        self.gradients.clear();
        self.bags.clear();
    }

    /// Finds the next part, from word `start` on, of vectors of `width` columns, with weights of look-ups if it has
    /// such. Returns where it ends.
    ///
    /// # Panics
    /// When the list is shorter than it says.
    pub(super) fn find(&mut self, list: &[u32], start: usize, width: usize, weighted: bool) -> usize {
        let vectors = list[start] as usize;
        let bag = PackedBag::find(list, start + 1 + vectors * width, vectors, weighted);
        let end = bag.weights.end;
        self.gradients.push(start + 1);
        self.bags.push(bag);
        end
    }

    /// What the list has in some parts of one width; nothing where these were not sent.
    pub(super) fn source<'a>(&'a self, list: &'a [u32], parts: Range<usize>, width: usize) -> Option<Source<'a>> {
        let bags = self.bags.get(parts.clone())?;
        let slots = Slots::new(width, &self.gradients[parts]);
        Some(Source { lookups: Lookups::packed(list, bags), gradient: bytemuck::cast_slice(list), slots })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::atomic_words_32;

    #[test]
    fn rows_are_found_where_they_were_put_in_whatever_order() {
        let mut list = vec![9; 3];
        for (vectors, width) in [(0, 4), (3, 2), (1, 0), (5, 1)] {
            // Behind a part without rows; what the list had before is overwritten.
            let first = RowListPart::behind(&mut list, 0, [0, 7]);
            let part = RowListPart::behind(&mut list, first.end(), [vectors, width]);
            let shared = atomic_words_32(&mut list);
            for index in (0..vectors).rev() {
                part.put(shared, index, 7 * index as u32, (0..width).map(|at| (index * width + at) as u32));
            }
            let mut parts = RowListParts::default();
            let list = &list[..part.end()];
            let end = parts.find(list, 0, 7, false);
            assert_eq!((end, parts.find(list, end, width, false)), (first.end(), list.len()));
            let gradients = &list[parts.gradients[1]..][..vectors * width];
            assert!(gradients.iter().copied().eq(0..(vectors * width) as u32), "{gradients:?}");
            let bag = Lookups::packed(list, &parts.bags).bag(1);
            assert!(bag.offsets.iter().copied().eq(0..=vectors as u32), "one look-up a vector");
            assert!(bag.rows.iter().copied().eq((0..vectors as u32).map(|index| 7 * index)));
        }
    }
}
