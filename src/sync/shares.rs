//! Rows of several matrices, lent to the threads of a region in ranges that the caller chooses.
//!
//! [`super::Rows`] cuts one matrix into equal bands. Embedding tables need more: every thread takes a range of rows of
//! each of many matrices, the ranges follow the work instead of the row count, and a matrix may be a window of columns
//! of a wider one. A [`Lender`] keeps the memory for this from step to step, so that lending allocates nothing.
//!
//! Invariant: ranges of one matrix are ascending and cover it, matrices do not overlap, so no row is lent twice.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Line, Parts};
use crate::simd::{Ordered, Simd};

/// A row-major matrix, its rows one behind the other.
#[derive(Debug)]
pub struct Matrix<'a, T> {
    /// All elements.
    pub data: &'a mut [T],
    /// Those of a row.
    pub width: usize,
}

/// One matrix: `rows` rows of `width` elements, `stride` apart.
#[derive(Debug)]
struct View<T> {
    start: *mut T,
    rows: usize,
    stride: usize,
    width: usize,
}

/// Where each part's range begins in each matrix, and the memory for lending.
#[derive(Debug)]
pub struct Lender<T> {
    views: Vec<View<T>>,
    /// `parts + 1` boundaries a matrix.
    cuts: Vec<usize>,
    parts: usize,
}

// SAFETY: between two loans the pointers are never followed: a loan replaces them all first.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Lender<T> {}

// SAFETY: as above; a shared lender gives no access at all.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Lender<T> {}

impl<T> Lender<T> {
    /// Room for `matrices` matrices in `parts` parts.
    ///
    /// # Panics
    /// When `parts` is 0, or so many boundaries cannot be counted.
    #[must_use]
    pub fn new(matrices: usize, parts: usize) -> Self {
        let mut lender = Self { views: Vec::with_capacity(matrices), cuts: Vec::new(), parts };
        lender.reset(matrices, parts);
        lender
    }

    /// Sets all boundaries to 0; allocates only when there are more of them than ever before.
    ///
    /// # Panics
    /// When `parts` is 0, or so many boundaries cannot be counted.
    pub fn reset(&mut self, matrices: usize, parts: usize) {
        assert!(parts > 0, "rows are lent to somebody");
        self.parts = parts;
        self.cuts.clear();
        let cuts = parts.checked_add(1).and_then(|cuts| cuts.checked_mul(matrices));
        self.cuts.resize(cuts.expect("the boundaries can be counted"), 0);
    }

    /// Part `part` of `matrix` begins at `row`, and the part before it ends there; `part` may be the number of parts.
    ///
    /// # Panics
    /// When there is no such matrix or part.
    pub fn cut(&mut self, matrix: usize, part: usize, row: usize) {
        assert!(part <= self.parts, "part {part} of {}", self.parts);
        self.cuts[matrix * (self.parts + 1) + part] = row;
    }

    /// The range of rows of `matrix` that part `part` has.
    #[must_use]
    pub fn range(&self, matrix: usize, part: usize) -> Range<usize> {
        let at = matrix * (self.parts + 1) + part;
        self.cuts[at]..self.cuts[at + 1]
    }

    /// Lends whole matrices.
    ///
    /// # Panics
    /// When the boundaries are not ascending from 0 to each matrix's rows, or their number is wrong.
    pub fn matrices<'a>(&'a mut self, matrices: impl IntoIterator<Item = Matrix<'a, T>>) -> Lent<'a, T>
    where
        T: 'a,
    {
        self.views.clear();
        self.views.extend(matrices.into_iter().map(|Matrix { data, width }| {
            assert!(width > 0 && data.len().is_multiple_of(width), "{} elements in rows of {width}", data.len());
            View { rows: data.len() / width, stride: width, width, start: data.as_mut_ptr() }
        }));
        self.checked()
    }

    /// Lends windows of `width` columns of one matrix of rows of `stride`: window m, which is matrix m, begins at
    /// column `starts[m]`.
    ///
    /// # Panics
    /// As [`Lender::matrices`], and when the windows overlap or do not fit into a row.
    pub fn windows<'a>(&'a mut self, data: &'a mut [T], stride: usize, starts: &[usize], width: usize) -> Lent<'a, T> {
        assert!(width > 0, "windows have columns");
        let apart = starts.windows(2).all(|pair| pair[0].checked_add(width).is_some_and(|end| end <= pair[1]));
        let inside = starts.last().is_none_or(|last| last.checked_add(width).is_some_and(|end| end <= stride));
        assert!(apart && inside, "windows of {width} columns at {starts:?} lie side by side in {stride}");
        assert!(data.len().is_multiple_of(stride), "{} elements in rows of {stride}", data.len());
        let rows = data.len() / stride;
        // Once for all windows: the slice is not borrowed again while pointers into it are alive, which would end them.
        let start = data.as_mut_ptr();
        self.views.clear();
        self.views.extend(starts.iter().map(|first| {
            // Wrapping, because without rows there is nothing to point to.
            View { start: start.wrapping_add(*first), rows, stride, width }
        }));
        self.checked()
    }

    fn checked(&self) -> Lent<'_, T> {
        let cuts = self.views.len().checked_mul(self.parts + 1);
        assert_eq!(Some(self.cuts.len()), cuts, "boundaries of every matrix");
        for (view, cuts) in self.views.iter().zip(self.cuts.chunks_exact(self.parts + 1)) {
            let covers = cuts[0] == 0 && cuts[self.parts] == view.rows;
            assert!(covers && cuts.is_sorted(), "boundaries go up from 0 to {} rows: {cuts:?}", view.rows);
        }
        Lent { views: &self.views, cuts: &self.cuts, parts: self.parts }
    }
}

/// Matrices on loan, to be dealt to a team: part i is the [`Share`] of thread i.
#[derive(Debug)]
pub struct Lent<'a, T> {
    views: &'a [View<T>],
    cuts: &'a [usize],
    parts: usize,
}

// SAFETY: a shared loan only gives out shares, which are as sendable as `&mut [T]`.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Lent<'_, T> {}

// SAFETY: share i has the rows between boundaries i and i + 1 of each matrix; boundaries ascend (checked when lent), so
// different shares have no row in common. The lender borrowed all matrices exclusively for the loan's lifetime, and
// T: Send lets a share's rows be used on any thread.
#[allow(unsafe_code)]
unsafe impl<'a, T: Send> Parts for Lent<'a, T> {
    type Part = Share<'a, T>;

    fn len(&self) -> usize {
        self.parts
    }

    unsafe fn part(&self, index: usize) -> Share<'a, T> {
        assert!(index < self.parts, "part {index} of {}", self.parts);
        Share { views: self.views, cuts: self.cuts, parts: self.parts, part: index }
    }
}

/// A range of rows of every matrix.
#[derive(Debug)]
pub struct Share<'a, T> {
    views: &'a [View<T>],
    cuts: &'a [usize],
    parts: usize,
    part: usize,
}

impl<T> Share<'_, T> {
    /// Which share it is.
    #[must_use]
    pub const fn part(&self) -> usize {
        self.part
    }

    /// The rows of one matrix.
    pub fn band(&mut self, matrix: usize) -> Band<'_, T> {
        let View { start, stride, width, .. } = self.views[matrix];
        let at = matrix * (self.parts + 1) + self.part;
        Band { start, first: self.cuts[at], end: self.cuts[at + 1], stride, width, memory: PhantomData }
    }
}

/// A range of rows of one matrix.
#[derive(Debug)]
pub struct Band<'a, T> {
    /// Row 0 of the matrix, which need not be in the range.
    start: *mut T,
    first: usize,
    end: usize,
    stride: usize,
    width: usize,
    memory: PhantomData<&'a mut [T]>,
}

impl<T> Band<'_, T> {
    /// Which rows of the matrix are here.
    #[must_use]
    pub const fn rows(&self) -> Range<usize> {
        self.first..self.end
    }

    /// Elements of a row.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Row `row` of the matrix.
    ///
    /// # Panics
    /// When it is not in the range.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(self.first <= row && row < self.end, "row {row} of {}..{}", self.first, self.end);
        // SAFETY: row < end <= rows (checked when lent), so the row starts inside the borrowed memory.
        let start = unsafe { self.start.add(row * self.stride) };
        // SAFETY: `width` elements from there lie in the matrix; the row is in this share only, and `&mut self` keeps
        // this share's other references out.
        unsafe { std::slice::from_raw_parts_mut(start, self.width) }
    }

    /// All rows at once.
    ///
    /// # Panics
    /// When the matrix is a window.
    #[allow(unsafe_code)]
    pub fn all(&mut self) -> &mut [T] {
        assert_eq!(self.stride, self.width, "rows follow each other");
        // SAFETY: first <= rows, so this is in the borrowed memory or one past it.
        let start = unsafe { self.start.add(self.first * self.stride) };
        // SAFETY: rows first..end lie in the matrix without gaps and in this share only; `&mut self` as above.
        unsafe { std::slice::from_raw_parts_mut(start, (self.end - self.first) * self.width) }
    }
}

impl Band<'_, f32> {
    /// Whether its rows are whole aligned cache lines, as [`Band::stream`] wants them.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        let whole = [self.stride, self.width].into_iter().all(|elements| elements.is_multiple_of(Line::FLOATS));
        whole && self.start.addr().is_multiple_of(Line::BYTES)
    }

    /// Copies `from` to the elements from number `first` on, which are counted through all rows of the matrix, past the
    /// caches; on return all stores are in order with other memory accesses.
    ///
    /// # Panics
    /// When rows are not in the range, or rows or what is copied start or end within a line.
    #[inline(always)]
    pub fn stream<S: Simd>(&mut self, simd: S, first: usize, mut from: &[f32]) {
        let whole = [first, from.len()].into_iter().all(|elements| elements.is_multiple_of(Line::FLOATS));
        assert!(whole && self.has_lines(), "whole lines are streamed");
        let _fence = Ordered;
        let (mut row, mut column) = (first / self.width, first % self.width);
        while !from.is_empty() {
            let (part, rest) = from.split_at(from.len().min(self.width - column));
            let to = &mut self.row(row)[column..][..part.len()];
            // SAFETY: the fence is dropped while this band is still borrowed, without which nobody reads its rows.
            #[allow(unsafe_code)]
            unsafe {
                simd.stream_unordered(to, |index| simd.load(&part[index * S::LANES..]));
            }
            (row, column, from) = (row + 1, 0, rest);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::simd::{Isa, Kernel};
    use crate::sync::{Crew, Patience};

    #[test]
    fn every_row_is_lent_once() {
        let crew = Crew::start(3, Patience::SHARED_CORE, |_| ()).unwrap();
        let (mut a, mut b) = (vec![0u32; 7 * 2], vec![0u32; 4 * 3]);
        let mut lender = Lender::new(2, 3);
        for (matrix, cuts) in [[0, 0, 5, 7], [0, 1, 1, 4]].iter().enumerate() {
            cuts.iter().enumerate().for_each(|(part, &row)| lender.cut(matrix, part, row));
        }
        assert_eq!(lender.range(0, 1), 0..5);
        let matrices = [Matrix { data: &mut a[..], width: 2 }, Matrix { data: &mut b[..], width: 3 }];
        crew.deal(lender.matrices(matrices), |mut share| {
            for matrix in 0..2 {
                let mark = share.part() as u32 + 1;
                let mut band = share.band(matrix);
                band.rows().for_each(|row| band.row(row).iter_mut().for_each(|x| *x += mark));
                band.all().iter_mut().for_each(|x| *x += 10);
            }
        });
        assert_eq!(a, [12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 13, 13, 13, 13]);
        assert_eq!(b, [11, 11, 11, 13, 13, 13, 13, 13, 13, 13, 13, 13]);
    }

    #[test]
    fn windows_leave_other_columns_alone() {
        let crew = Crew::start(2, Patience::SHARED_CORE, |_| ()).unwrap();
        let mut data = vec![0u32; 3 * 8];
        let mut lender = Lender::new(2, 2);
        for window in 0..2 {
            lender.cut(window, 1, 1 + window);
            lender.cut(window, 2, 3);
        }
        crew.deal(lender.windows(&mut data, 8, &[1, 4], 3), |mut share| {
            for window in 0..2 {
                let mut band = share.band(window);
                band.rows().for_each(|row| band.row(row).fill(window as u32 + 1));
            }
        });
        assert!(data.chunks(8).all(|row| row == [0, 1, 1, 1, 2, 2, 2, 0]), "{data:?}");
    }

    /// Streams 1, 2, 3 … into all rows, in parts that end within rows.
    struct Fill<'a>(Band<'a, f32>);

    impl Kernel for Fill<'_> {
        type Out = ();

        #[inline(always)]
        fn run<S: Simd>(mut self, simd: S) {
            let from: Vec<f32> = (1..=self.0.rows().len() * self.0.width()).map(|x| x as f32).collect();
            let first = self.0.rows().start * self.0.width();
            from.chunks(48).enumerate().for_each(|(part, from)| self.0.stream(simd, first + part * 48, from));
        }
    }

    #[test]
    fn rows_of_whole_lines_are_streamed() {
        let mut lines = vec![Line::default(); 3 * 4];
        let floats: &mut [f32] = bytemuck::cast_slice_mut(&mut lines);
        let mut lender = Lender::new(1, 1);
        lender.cut(0, 1, 3);
        for (start, width, whole) in [(16, 32, true), (8, 32, false), (16, 24, false)] {
            let lent = lender.windows(floats, 64, &[start], width);
            // SAFETY: the only part, once.
            #[allow(unsafe_code)]
            let mut share = unsafe { lent.part(0) };
            assert_eq!(share.band(0).has_lines(), whole, "{width} columns from {start} on");
        }
        for isa in Isa::all() {
            floats.fill(0.0);
            let lent = lender.windows(floats, 64, &[16], 32);
            // SAFETY: as above.
            #[allow(unsafe_code)]
            let mut share = unsafe { lent.part(0) };
            isa.run(Fill(share.band(0)));
            for (row, floats) in floats.chunks(64).enumerate() {
                let expected = |at: usize| if (16..48).contains(&at) { (row * 32 + at - 15) as f32 } else { 0.0 };
                assert!((0..64).all(|at| floats[at] == expected(at)), "{isa:?} row {row}: {floats:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "whole lines are streamed")]
    fn rows_that_end_within_a_line_are_not_streamed() {
        let mut lines = vec![Line::default(); 3];
        let mut lender = Lender::new(1, 1);
        lender.cut(0, 1, 2);
        let lent = lender.matrices([Matrix { data: bytemuck::cast_slice_mut(&mut lines), width: 24 }]);
        // SAFETY: the only part, once.
        #[allow(unsafe_code)]
        let mut share = unsafe { lent.part(0) };
        Isa::best().run(Fill(share.band(0)));
    }

    #[test]
    #[should_panic(expected = "boundaries go up")]
    fn overlapping_ranges_are_refused() {
        let mut lender = Lender::new(1, 2);
        lender.cut(0, 1, 5);
        lender.cut(0, 2, 4);
        let _ = lender.matrices([Matrix { data: &mut [0u8; 4], width: 1 }]);
    }

    #[test]
    #[should_panic(expected = "row 2 of 0..2")]
    fn a_foreign_row_is_refused() {
        let crew = Crew::start(1, Patience::SHARED_CORE, |_| ()).unwrap();
        let mut lender = Lender::new(1, 2);
        lender.cut(0, 1, 2);
        lender.cut(0, 2, 4);
        crew.deal(lender.matrices([Matrix { data: &mut [0u8; 4], width: 1 }]), |mut share| {
            let _ = share.band(0).row(2);
        });
    }

    #[test]
    #[should_panic(expected = "the boundaries can be counted")]
    fn boundaries_whose_number_wraps_are_refused() {
        // Twice 2^63 + 1 boundaries are 2 where products wrap, none of which would be checked.
        let _ = Lender::<u8>::new(2, 1 << 63);
    }

    #[test]
    #[should_panic(expected = "lie side by side in 8")]
    fn windows_whose_end_wraps_are_refused() {
        let _ = Lender::new(2, 1).windows(&mut [0u8; 8], 8, &[0, usize::MAX - 1], 2);
    }
}
