//! A matrix in panels of columns, cut in both directions: the pieces of a two-dimensional decomposition.

use std::marker::PhantomData;
use std::ops::Range;

use super::Parts;
use crate::base::even_part;

/// Panels that lie one after another, each `stride` rows apart, cut into `across` ranges of panels times `down` ranges
/// of rows.
#[derive(Debug)]
pub struct Grid<'a, T> {
    start: *mut T,
    stride: usize,
    panels: usize,
    rows: usize,
    across: usize,
    down: usize,
    grain: usize,
    /// Ranges of panels and of rows that each of those pieces falls into.
    finer: [usize; 2],
    memory: PhantomData<&'a mut [T]>,
}

/// A range of rows of a range of panels; either may be empty.
///
/// Both ranges are read only, because they say which memory is the piece's own:
///
/// ```compile_fail,E0616
/// # use octorec::sync::{Crew, Grid, Patience};
/// # let crew = Crew::start(2, Patience::SHARED_CORE, |_| ()).unwrap();
/// let mut data = vec![0u32; 4 * 8];
/// crew.each(Grid::new(&mut data, [4, 8, 8], [2, 1], 1), |mut part| {
///     part.panels = 0..4;
///     part.panel(0).fill(1);
/// });
/// ```
#[derive(Debug)]
pub struct GridPart<'a, T> {
    panels: Range<usize>,
    rows: Range<usize>,
    start: *mut T,
    stride: usize,
    memory: PhantomData<&'a mut [T]>,
}

/// Share number `index` of `shares` nearly equal parts of a range.
fn within(range: &Range<usize>, shares: usize, index: usize) -> Range<usize> {
    let share = even_part(range.len(), index, shares);
    range.start + share.start..range.start + share.end
}

impl<'a, T> Grid<'a, T> {
    /// Cuts `panels` panels of `rows` rows; ranges of rows begin at multiples of `grain`.
    ///
    /// # Panics
    /// When `data` is too small for the panels, one of `across`, `down` and `grain` is 0, or the pieces are more than
    /// can be counted.
    pub fn new(
        data: &'a mut [T],
        [panels, rows, stride]: [usize; 3],
        [across, down]: [usize; 2],
        grain: usize,
    ) -> Self {
        assert!(across > 0 && down > 0 && grain > 0, "a grid has pieces");
        assert!(rows <= stride, "panels do not overlap");
        let end = panels.checked_sub(1).map_or(Some(0), |last| last.checked_mul(stride)?.checked_add(rows));
        assert!(end.is_some_and(|end| end <= data.len()), "the panels lie in data");
        let (start, finer) = (data.as_mut_ptr(), [1; 2]);
        Self { start, stride, panels, rows, across, down, grain, finer, memory: PhantomData }.counted()
    }

    /// The same, each piece cut into `across` ranges of panels times `down` ranges of rows, which follow one another:
    /// all rows of the first panels first.
    ///
    /// # Panics
    /// When one of them is 0, or the pieces are more than can be counted.
    #[must_use]
    pub fn split(self, [across, down]: [usize; 2]) -> Self {
        assert!(across > 0 && down > 0, "a piece has pieces");
        Self { finer: [across, down], ..self }.counted()
    }

    /// Refuses so many pieces that [`even_part`] or their number would wrap: wrapped ranges overlap.
    fn counted(self) -> Self {
        let product = |factors: [usize; 3]| factors.into_iter().try_fold(1, usize::checked_mul);
        let [across, down] = self.finer;
        let pieces = product([self.across, self.down, across]).and_then(|pieces| pieces.checked_mul(down));
        let shares = [product([self.panels, self.across, across]), product([self.rows, self.down, down])];
        assert!(pieces.is_some() && shares.iter().all(Option::is_some), "the pieces of a grid can be counted");
        self
    }
}

// SAFETY: a shared Grid only gives out pieces, which are as sendable as `&mut [T]`.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Grid<'_, T> {}

// SAFETY: two pieces differ in their range of panels or in their range of rows, and such ranges are disjoint; panels do
// not overlap because rows <= stride. The exclusive borrow `memory` keeps everybody else out, and T: Send lets a piece
// move to another thread.
#[allow(unsafe_code)]
unsafe impl<'a, T: Send> Parts for Grid<'a, T> {
    type Part = GridPart<'a, T>;

    fn len(&self) -> usize {
        self.across * self.down * self.finer[0] * self.finer[1]
    }

    unsafe fn part(&self, index: usize) -> GridPart<'a, T> {
        assert!(index < self.len(), "piece {index} of {}", self.len());
        let [across, down] = self.finer;
        let (index, fine) = (index / (across * down), index % (across * down));
        let panels = within(&even_part(self.panels, index / self.down, self.across), across, fine / down);
        let grains = even_part(self.rows.div_ceil(self.grain), index % self.down, self.down);
        let grains = within(&grains, down, fine % down);
        let rows = (grains.start * self.grain).min(self.rows)..(grains.end * self.grain).min(self.rows);
        GridPart { panels, rows, start: self.start, stride: self.stride, memory: PhantomData }
    }
}

impl<T> GridPart<'_, T> {
    /// The panels.
    #[must_use]
    #[inline]
    pub fn panels(&self) -> Range<usize> {
        self.panels.clone()
    }

    /// The rows of each of them.
    #[must_use]
    #[inline]
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The piece's rows of one of its panels.
    ///
    /// # Panics
    /// When the panel is not of this piece.
    #[inline]
    pub fn panel(&mut self, panel: usize) -> &mut [T] {
        assert!(self.panels.contains(&panel), "panel {panel} of {:?}", self.panels);
        // SAFETY: the panel is one of the grid's and `rows` lies in 0..rows of it, so this is inside the slice that
        // the grid borrows (checked in `new`).
        #[allow(unsafe_code)]
        let start = unsafe { self.start.add(panel * self.stride + self.rows.start) };
        // SAFETY: as above for the end. The piece owns these rows alone (the trait's contract), and `&mut self` lends
        // them to one at a time.
        #[allow(unsafe_code)]
        let rows = unsafe { std::slice::from_raw_parts_mut(start, self.rows.len()) };
        rows
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_rows_of_all_panels_once() {
        for [panels, rows, stride] in [[0, 0, 0], [1, 1, 1], [3, 7, 9], [5, 64, 64], [2, 33, 40]] {
            for across in 1..5 {
                for down in 1..5 {
                    for (grain, finer) in [(1, [1, 1]), (1, [2, 3]), (2, [1, 2]), (16, [3, 1]), (16, [1, 1])] {
                        let mut data = vec![0; panels * stride];
                        let grid = Grid::new(&mut data, [panels, rows, stride], [across, down], grain).split(finer);
                        assert_eq!(grid.len(), across * down * finer[0] * finer[1]);
                        for index in 0..grid.len() {
                            // SAFETY: each index once.
                            #[allow(unsafe_code)]
                            let mut part = unsafe { grid.part(index) };
                            assert!(part.rows.is_empty() || part.rows.start.is_multiple_of(grain));
                            for panel in part.panels() {
                                part.panel(panel).iter_mut().for_each(|x| *x += 1);
                            }
                        }
                        let inside = |index: &usize| index % stride < rows;
                        assert!(data.iter().enumerate().all(|(i, &count)| count == i32::from(inside(&i))));
                    }
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "the panels lie in data")]
    fn panels_whose_end_wraps_are_refused() {
        // The last panel begins at element 2^64, which is 0 where products wrap.
        let _ = Grid::new(&mut [0u8; 8], [(1 << 32) + 1, 8, 1 << 32], [1, 1], 1);
    }

    #[test]
    #[should_panic(expected = "can be counted")]
    fn pieces_whose_number_wraps_are_refused() {
        let _ = Grid::new(&mut [0u8; 8], [1, 8, 8], [1 << 32, 1 << 31], 1).split([2, 1]);
    }

    #[test]
    #[should_panic(expected = "can be counted")]
    fn shares_that_wrap_are_refused() {
        let _ = Grid::new(&mut [0u8; 8], [8, 1, 1], [1 << 62, 1], 1);
    }
}
