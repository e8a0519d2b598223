//! How a tensor is divided among ranks: slice r belongs to rank r.

use std::ops::Range;

use crate::base::even_part;

/// One range of elements a rank; they do not overlap, may be empty, and need not touch each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slices(Vec<Range<usize>>);

/// Elements to a cache line of f32: where slices are cut, so that no line has two writers.
pub const GRAIN: usize = 16;

impl Slices {
    /// Slices that lie one after another, slice r with `lengths[r]` elements.
    ///
    /// # Panics
    /// When there is no rank.
    #[must_use]
    pub fn of(lengths: &[usize]) -> Self {
        assert!(!lengths.is_empty(), "slices belong to ranks");
        let ends = lengths.iter().scan(0, |end, length| {
            let start = *end;
            *end += length;
            Some(start..*end)
        });
        Self(ends.collect())
    }

    /// `elements` elements in `ranks` nearly equal slices of whole lines.
    ///
    /// # Panics
    /// When there is no rank.
    #[must_use]
    pub fn even(elements: usize, ranks: usize) -> Self {
        assert!(ranks > 0, "slices belong to ranks");
        Self((0..ranks).map(|rank| share(&(0..elements), rank, ranks)).collect())
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.0.len()
    }

    /// Slice number `rank`.
    #[must_use]
    pub fn slice(&self, rank: usize) -> Range<usize> {
        self.0[rank].clone()
    }

    /// Elements that the tensor must have.
    #[must_use]
    pub fn end(&self) -> usize {
        self.0.iter().map(|slice| slice.end).max().unwrap_or(0)
    }

    /// Part `part` of `parts` of every slice, in whole lines: what goes one of several ways. All parts together are all
    /// of the slices, and no element is in two.
    ///
    /// # Panics
    /// When there is no such part.
    #[must_use]
    pub fn part(&self, part: usize, parts: usize) -> Self {
        assert!(part < parts, "part {part} of {parts}");
        Self(self.0.iter().map(|slice| share(slice, part, parts)).collect())
    }
}

/// Share `index` of `count` nearly equal ones of `range`, cut at whole lines from its start.
fn share(range: &Range<usize>, index: usize, count: usize) -> Range<usize> {
    let lines = even_part(range.len().div_ceil(GRAIN), index, count);
    let at = |line: usize| (range.start + line * GRAIN).min(range.end);
    at(lines.start)..at(lines.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_divide_every_slice() {
        for lengths in [vec![0], vec![100, 0, 1, 16, 333], vec![31, 32, 33]] {
            let slices = Slices::of(&lengths);
            assert_eq!(slices.end(), lengths.iter().sum::<usize>());
            for parts in 1..6 {
                let mut seen = vec![0; slices.end()];
                for part in 0..parts {
                    let part = slices.part(part, parts);
                    for rank in 0..lengths.len() {
                        let (whole, span) = (slices.slice(rank), part.slice(rank));
                        assert!(span.is_empty() || whole.start <= span.start && span.end <= whole.end);
                        assert!(span.is_empty() || (span.start - whole.start).is_multiple_of(GRAIN));
                        span.for_each(|at| seen[at] += 1);
                    }
                }
                assert!(seen.iter().all(|&count| count == 1), "{lengths:?} {parts}");
            }
        }
        // Slices shorter than a line, all of whose lines go to the last part.
        assert!((0..3).all(|rank| Slices::of(&[4, 0, 5]).part(0, 2).slice(rank).is_empty()));
        let even = Slices::even(1000, 7);
        assert!((0..1000).eq((0..7).flat_map(|rank| even.slice(rank))) && even.end() == 1000);
    }
}
