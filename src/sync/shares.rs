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

/// Matrices on loan, to be dealt to a team: part i is the [`Share`] of thread i.
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
// have no row in common. The loan borrowed all matrices exclusively for its lifetime, and T: Send lets a share's rows be
// used on any thread.
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

/// A range of rows of every matrix.
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
mod tests {
    use super::*;
    use crate::simd::{Isa, Kernel};
    use crate::sync::{Crew, Patience, each_alone};

    #[test]
    fn every_row_is_lent_once() {
        let crew = Crew::start(3, Patience::SHARED_CORE, |_| ()).unwrap();
        let (mut a, mut b) = (vec![0u32; 7 * 2], vec![0u32; 4 * 3]);
        let mut lender = Lender::new(2, 3);
        let mut mark = |lender: &mut Lender<u32>| {
            (a.fill(0), b.fill(0));
            let matrices = [Matrix { data: &mut a[..], width: 2 }, Matrix { data: &mut b[..], width: 3 }];
            crew.deal(lender.matrices(matrices), |mut share| {
                let (own, mark) = (share.matrices(), share.part() as u32 + 1);
                for matrix in 0..2 {
                    let mut band = share.band(matrix);
                    assert!(own.contains(&matrix) || band.rows().is_empty(), "rows of {matrix}, of {own:?}");
                    band.rows().for_each(|row| band.row(row).iter_mut().for_each(|x| *x += mark));
                    band.all().iter_mut().for_each(|x| *x += 10);
                }
            });
            [a.clone(), b.clone()].map(|all| all.into_iter().map(|x| x - 10).collect::<Vec<_>>())
        };
        // In the middle of a matrix, where one ends or begins, and where all end.
        for (cuts, expected) in [
            ([[0, 5], [1, 1]], [[1, 1, 1, 1, 1, 2, 2], [2, 3, 3, 3, 0, 0, 0]]),
            ([[0, 0], [0, 7]], [[2; 7], [3, 3, 3, 3, 0, 0, 0]]),
            ([[1, 0], [2, 0]], [[1; 7], [2, 2, 2, 2, 0, 0, 0]]),
            ([[1, 4], [2, 0]], [[1; 7], [1, 1, 1, 1, 0, 0, 0]]),
        ] {
            lender.reset();
            cuts.into_iter().for_each(|[matrix, row]| lender.cut(matrix, row));
            let each =
                |marks: &[u32], width: usize| marks.iter().flat_map(|mark| vec![*mark; width]).collect::<Vec<_>>();
            assert_eq!(mark(&mut lender), [each(&expected[0], 2), each(&expected[1][..4], 3)], "cut at {cuts:?}");
        }
        lender.cut_each(3);
        assert_eq!(
            mark(&mut lender),
            [[1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3].to_vec(), [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3].to_vec()]
        );
    }

    #[test]
    fn parts_have_as_many_elements_each() {
        let (mut a, mut b, mut none) = (vec![0u8; 30], vec![0u8; 70], Vec::new());
        for parts in [1, 2, 3, 10, 200] {
            let mut lender = Lender::new(3, parts);
            let mut loan = lender.begin();
            loan.matrix(Matrix { data: &mut a, width: 3 });
            loan.matrix(Matrix { data: &mut none, width: 1 });
            loan.matrix(Matrix { data: &mut b, width: 1 });
            loan.cut_evenly(parts);
            let mut lent = Vec::new();
            each_alone(loan.lend(), |mut share| {
                lent.push((0..3).map(|matrix| share.band(matrix).all().len()).sum::<usize>());
            });
            assert_eq!((lent.len(), lent.iter().sum::<usize>()), (parts, 100));
            // No part is longer than its share and a row of the widest matrix.
            assert!(lent.iter().all(|len| *len <= 100usize.div_ceil(parts) + 3), "{lent:?}");
        }
        let mut lender = Lender::<u8>::new(0, 4);
        let mut loan = lender.begin();
        loan.cut_evenly(4);
        assert_eq!(loan.lend().len(), 4);
    }

    #[test]
    fn windows_leave_other_columns_alone() {
        let crew = Crew::start(2, Patience::SHARED_CORE, |_| ()).unwrap();
        let mut data = vec![0u32; 3 * 8];
        let mut lender = Lender::new(2, 2);
        lender.cut(1, 1);
        let mut loan = lender.begin();
        loan.windows(&mut data, 8, &[1, 4], 3);
        crew.deal(loan.lend(), |mut share| {
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
        for (start, width, whole) in [(16, 32, true), (8, 32, false), (16, 24, false)] {
            let mut loan = lender.begin();
            loan.windows(floats, 64, &[start], width);
            let lent = loan.lend();
            // SAFETY: the only part, once.
            #[allow(unsafe_code)]
            let mut share = unsafe { lent.part(0) };
            assert_eq!(share.band(0).has_lines(), whole, "{width} columns from {start} on");
        }
        for isa in Isa::all() {
            floats.fill(0.0);
            let mut loan = lender.begin();
            loan.windows(floats, 64, &[16], 32);
            let lent = loan.lend();
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
        let lent = lender.matrices([Matrix { data: bytemuck::cast_slice_mut(&mut lines), width: 24 }]);
        // SAFETY: the only part, once.
        #[allow(unsafe_code)]
        let mut share = unsafe { lent.part(0) };
        Isa::best().run(Fill(share.band(0)));
    }

    #[test]
    #[should_panic(expected = "boundaries go up")]
    fn overlapping_ranges_are_refused() {
        let mut lender = Lender::new(1, 3);
        lender.cut(0, 3);
        lender.cut(0, 2);
        let _ = lender.matrices([Matrix { data: &mut [0u8; 4], width: 1 }]);
    }

    #[test]
    #[should_panic(expected = "boundaries go up")]
    fn rows_that_a_matrix_does_not_have_are_refused() {
        let mut lender = Lender::new(1, 2);
        lender.cut(0, 5);
        let _ = lender.matrices([4, 9].map(|len| Matrix { data: vec![0u8; len].leak(), width: 1 }));
    }

    #[test]
    #[should_panic(expected = "boundaries go up")]
    fn a_matrix_that_is_not_lent_is_refused() {
        let mut lender = Lender::new(1, 2);
        lender.cut(1, 1);
        let _ = lender.matrices([Matrix { data: &mut [0u8; 4], width: 1 }]);
    }

    #[test]
    #[should_panic(expected = "row 2 of 0..2")]
    fn a_foreign_row_is_refused() {
        let crew = Crew::start(1, Patience::SHARED_CORE, |_| ()).unwrap();
        let mut lender = Lender::new(1, 2);
        lender.cut(0, 2);
        crew.deal(lender.matrices([Matrix { data: &mut [0u8; 4], width: 1 }]), |mut share| {
            let _ = share.band(0).row(2);
        });
    }

    #[test]
    #[should_panic(expected = "boundaries go up")]
    fn shares_that_wrap_are_refused() {
        // Of 4 rows part 2^62 would begin with the first again where products wrap.
        let mut lender = Lender::new(1, 1);
        lender.cut_each(1 << 63);
        let _ = lender.matrices([Matrix { data: &mut [0u8; 4], width: 1 }]);
    }

    #[test]
    #[should_panic(expected = "lie side by side in 8")]
    fn windows_whose_end_wraps_are_refused() {
        Lender::new(2, 1).begin().windows(&mut [0u8; 8], 8, &[0, usize::MAX - 1], 2);
    }
}
