//! Rows of several matrices, lent to the threads of a region in ranges that the caller chooses.
//!
//! [`super::Rows`] cuts one matrix into equal bands. Embedding tables need more: parts go through the rows of many
//! matrices, they follow the work instead of the row count, and a matrix may be a window of columns of a wider one. A
//! [`Lender`] keeps the memory for this from step to step, so that lending allocates nothing.
//!
//! Invariant: parts follow each other and cover all matrices, or in equal shares each of them; matrices do not overlap,
//! so no row is lent twice.

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

/// How rows are cut into parts, and the memory for lending.
#[derive(Debug)]
pub struct Lender<T> {
    views: Vec<View<T>>,
    cuts: Cuts,
}

/// Which rows each part has. However many matrices there are, what is written and checked is a place a part.
#[derive(Debug, Default)]
struct Cuts {
    /// Parts follow each other through one matrix after the other: where each but the first begins, as a matrix and one
    /// of its rows.
    places: Vec<[usize; 2]>,
    /// Instead: so many parts, each of nearly as many rows of every matrix.
    of_each: Option<usize>,
}

impl Cuts {
    const fn parts(&self) -> usize {
        match self.of_each {
            Some(parts) => parts,
            None => self.places.len() + 1,
        }
    }

    /// Where a part begins and ends in the order of matrices, of which there are so many.
    fn ends(&self, part: usize, matrices: usize) -> [[usize; 2]; 2] {
        let first = if part == 0 { [0, 0] } else { self.places[part - 1] };
        [first, self.places.get(part).copied().unwrap_or([matrices, 0])]
    }

    /// The rows that a part has of a matrix of so many, one of so many matrices.
    fn range(&self, part: usize, [matrix, rows]: [usize; 2], matrices: usize) -> Range<usize> {
        if let Some(parts) = self.of_each {
            return rows * part / parts..rows * (part + 1) / parts;
        }
        let [[first, start], [last, end]] = self.ends(part, matrices);
        if matrix < first || matrix > last {
            return 0..0;
        }
        (if matrix == first { start } else { 0 })..(if matrix == last { end } else { rows })
    }

    /// The matrices of which a part may have rows.
    fn matrices(&self, part: usize, matrices: usize) -> Range<usize> {
        if self.of_each.is_some() {
            return 0..matrices;
        }
        let [[first, _], [last, end]] = self.ends(part, matrices);
        first..last + usize::from(end > 0)
    }

    /// Whether no two parts have a row of these matrices in common, and every row is somebody's.
    fn fit<T>(&self, views: &[View<T>]) -> bool {
        match self.of_each {
            Some(parts) => parts > 0 && views.iter().all(|view| view.rows.checked_mul(parts).is_some()),
            None => {
                let rows = |matrix: usize| if matrix == views.len() { Some(0) } else { Some(views.get(matrix)?.rows) };
                let inside = |[matrix, row]: &[usize; 2]| rows(*matrix).is_some_and(|rows| *row <= rows);
                self.places.is_sorted() && self.places.iter().all(inside)
            }
        }
    }
}

// SAFETY: between two loans the pointers are never followed: a loan replaces them all first.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Lender<T> {}

// SAFETY: as above; a shared lender gives no access at all.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Lender<T> {}

impl<T> Lender<T> {
    /// Room for `matrices` matrices in `parts` parts; more are possible, but allocate once.
    #[must_use]
    pub fn new(matrices: usize, parts: usize) -> Self {
        let cuts = Cuts { places: Vec::with_capacity(parts), of_each: None };
        Self { views: Vec::with_capacity(matrices), cuts }
    }

    /// One part, of all rows, until it is cut.
    pub fn reset(&mut self) {
        self.cuts.places.clear();
        self.cuts.of_each = None;
    }

    /// The last part ends before row `row` of `matrix`, and another one begins there.
    pub fn cut(&mut self, matrix: usize, row: usize) {
        self.cuts.places.push([matrix, row]);
    }

    /// So many parts, each of nearly as many rows of every matrix.
    pub fn cut_each(&mut self, parts: usize) {
        self.reset();
        self.cuts.of_each = Some(parts);
    }

    /// The rows that part `part` would have of `matrix`, if that had so many, and it is one of so many matrices.
    #[cfg(test)]
    pub(crate) fn range(&self, part: usize, matrix: [usize; 2], matrices: usize) -> Range<usize> {
        self.cuts.range(part, matrix, matrices)
    }

    /// Lends whole matrices.
    ///
    /// # Panics
    /// As [`Loan::lend`].
    pub fn matrices<'a>(&'a mut self, matrices: impl IntoIterator<Item = Matrix<'a, T>>) -> Lent<'a, T>
    where
        T: 'a,
    {
        let mut loan = self.begin();
        matrices.into_iter().for_each(|matrix| loan.matrix(matrix));
        loan.lend()
    }

    /// Begins a loan, of no matrix yet.
    pub fn begin(&mut self) -> Loan<'_, T> {
        self.views.clear();
        Loan { lender: self, memory: PhantomData }
    }
}

/// Matrices that are about to be lent, in the order in which they are added.
#[derive(Debug)]
pub struct Loan<'a, T> {
    lender: &'a mut Lender<T>,
    memory: PhantomData<&'a mut [T]>,
}

impl<'a, T> Loan<'a, T> {
    /// Adds a whole matrix.
    ///
    /// # Panics
    /// When it has no columns, or no whole number of rows.
    pub fn matrix(&mut self, Matrix { data, width }: Matrix<'a, T>) {
        assert!(width > 0 && data.len().is_multiple_of(width), "{} elements in rows of {width}", data.len());
        let view = View { rows: data.len() / width, stride: width, width, start: data.as_mut_ptr() };
        self.lender.views.push(view);
    }

    /// Adds windows of `width` columns of one matrix of rows of `stride`: one beginning at each of these columns.
    ///
    /// # Panics
    /// When they have no columns, overlap or do not fit into a row, or the matrix has no whole number of rows.
    pub fn windows(&mut self, data: &'a mut [T], stride: usize, starts: &[usize], width: usize) {
        assert!(width > 0, "windows have columns");
        let apart = starts.windows(2).all(|pair| pair[0].checked_add(width).is_some_and(|end| end <= pair[1]));
        let inside = starts.last().is_none_or(|last| last.checked_add(width).is_some_and(|end| end <= stride));
        assert!(apart && inside, "windows of {width} columns at {starts:?} lie side by side in {stride}");
        assert!(data.len().is_multiple_of(stride), "{} elements in rows of {stride}", data.len());
        let rows = data.len() / stride;
        // Once for all windows: the slice is not borrowed again while pointers into it are alive, which would end them.
        let start = data.as_mut_ptr();
        self.lender.views.extend(starts.iter().map(|first| {
            // Wrapping, because without rows there is nothing to point to.
            View { start: start.wrapping_add(*first), rows, stride, width }
        }));
    }

    /// Cuts the rows into so many parts that have nearly as many elements each, one behind the other.
    ///
    /// # Panics
    /// When `parts` is 0.
    pub fn cut_evenly(&mut self, parts: usize) {
        assert!(parts > 0, "rows are lent to somebody");
        self.lender.reset();
        let Lender { views, cuts } = &mut *self.lender;
        let all: usize = views.iter().map(|view| view.rows * view.width).sum();
        let (mut before, mut next) = (0, 1);
        for (matrix, View { rows, width, .. }) in views.iter().enumerate() {
            let end = before + rows * width;
            while next < parts && all * next / parts < end {
                cuts.places.push([matrix, (all * next / parts - before).div_ceil(*width)]);
                next += 1;
            }
            before = end;
        }
        // Where there is nothing, all parts are empty.
        cuts.places.resize(parts - 1, [views.len(), 0]);
    }

    /// Lends them, cut as the lender was told.
    ///
    /// # Panics
    /// When parts overlap, or there are no such rows.
    #[must_use]
    pub fn lend(self) -> Lent<'a, T> {
        let Lender { views, cuts } = self.lender;
        assert!(cuts.fit(views), "boundaries go up through {} matrices: {cuts:?}", views.len());
        Lent { views, cuts }
    }
}

/// Matrices on loan, to be dealt to a team: part i is a [`Share`] of rows, those of one matrix after another.
#[derive(Debug)]
pub struct Lent<'a, T> {
    views: &'a [View<T>],
    cuts: &'a Cuts,
}

// SAFETY: a shared loan only gives out shares, which are as sendable as `&mut [T]`.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Lent<'_, T> {}

// SAFETY: share i has the rows of each matrix between the i-th boundary and the next, in the order of matrices and then
// of rows, or between i and i + 1 equal parts of the matrix; boundaries ascend (checked when lent), so different shares
// have no row in common. The loan borrowed all matrices exclusively for its lifetime, and T: Send lets a share's rows
// be used on any thread.
#[allow(unsafe_code)]
unsafe impl<'a, T: Send> Parts for Lent<'a, T> {
    type Part = Share<'a, T>;

    fn len(&self) -> usize {
        self.cuts.parts()
    }

    unsafe fn part(&self, index: usize) -> Share<'a, T> {
        assert!(index < self.len(), "part {index} of {}", self.len());
        Share { views: self.views, cuts: self.cuts, part: index }
    }
}

/// Rows of one matrix after another.
#[derive(Debug)]
pub struct Share<'a, T> {
    views: &'a [View<T>],
    cuts: &'a Cuts,
    part: usize,
}

impl<T> Share<'_, T> {
    /// Which share it is.
    #[must_use]
    pub const fn part(&self) -> usize {
        self.part
    }

    /// The matrices of which it may have rows: there are none of others.
    #[must_use]
    pub fn matrices(&self) -> Range<usize> {
        self.cuts.matrices(self.part, self.views.len())
    }

    /// The rows of one matrix.
    ///
    /// # Panics
    /// When there is no such matrix.
    pub fn band(&mut self, matrix: usize) -> Band<'_, T> {
        let View { start, rows, stride, width } = self.views[matrix];
        let Range { start: first, end } = self.cuts.range(self.part, [matrix, rows], self.views.len());
        Band { start, first, end, stride, width, memory: PhantomData }
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
mod tests;
