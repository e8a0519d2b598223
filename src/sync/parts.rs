//! Disjoint mutable pieces of one piece of memory, handed to the threads of a region by index.
//!
//! A region's closure is shared by all threads, so it cannot capture `&mut`. Instead the caller gives up its `&mut` to
//! a [`Parts`] value, and each thread receives the pieces with its indices. Pieces with different indices never
//! overlap, and a region takes each index once: together these make the hand-out sound.

use std::marker::PhantomData;

use super::Crew;
use crate::base::even_part;

/// Something that falls into `len` pieces which may be used by different threads at the same time.
///
/// # Safety
/// An implementation guarantees that pieces with different indices share no memory, that a piece may be used on any
/// thread and is valid for as long as its type allows, that nobody else reaches the memory while the value or any piece
/// lives, and that `len` never changes.
#[allow(unsafe_code)]
pub unsafe trait Parts: Sync {
    /// One piece.
    type Part;

    /// How many pieces there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Piece number `index`.
    ///
    /// # Safety
    /// `index < self.len()`, and no index is taken twice.
    #[allow(unsafe_code)]
    unsafe fn part(&self, index: usize) -> Self::Part;
}

/// A row-major matrix cut into bands of whole rows.
#[derive(Debug)]
pub struct Rows<'a, T> {
    start: *mut T,
    rows: usize,
    width: usize,
    grain: usize,
    memory: PhantomData<&'a mut [T]>,
}

/// A band of consecutive rows.
#[derive(Debug)]
pub struct RowPart<'a, T> {
    /// The number of the first row.
    pub first: usize,
    /// The number of rows.
    pub rows: usize,
    /// The rows' elements, `rows` x width.
    pub data: &'a mut [T],
}

impl<'a, T> Rows<'a, T> {
    /// Cuts `data` (rows x `width`) into at most `bands` bands of nearly equal height, each a multiple of `grain` rows
    /// but the last.
    ///
    /// # Panics
    /// When `data` is not a whole number of rows, or `width`, `bands` or `grain` is 0.
    pub fn new(data: &'a mut [T], width: usize, bands: usize, grain: usize) -> Self {
        assert!(width > 0 && bands > 0 && grain > 0, "bands need rows");
        assert_eq!(data.len() % width, 0, "{} elements are no whole rows of {width}", data.len());
        let rows = data.len() / width;
        let grain = rows.div_ceil(bands).next_multiple_of(grain).max(1);
        Self { start: data.as_mut_ptr(), rows, width, grain, memory: PhantomData }
    }
}

// SAFETY: a shared Rows only gives out pieces, which are as sendable as `&mut [T]`.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Rows<'_, T> {}

// SAFETY: band i holds rows i * grain .. (i + 1) * grain, cut off at the end: different bands share no row. The
// exclusive borrow `memory` keeps everybody else out, and T: Send lets a band move to another thread.
#[allow(unsafe_code)]
unsafe impl<'a, T: Send> Parts for Rows<'a, T> {
    type Part = RowPart<'a, T>;

    fn len(&self) -> usize {
        self.rows.div_ceil(self.grain)
    }

    unsafe fn part(&self, index: usize) -> RowPart<'a, T> {
        assert!(index < self.len(), "band {index} of {}", self.len());
        let first = index * self.grain;
        let rows = self.grain.min(self.rows - first);
        // SAFETY: first < rows in all, so the offset stays inside the borrowed slice.
        let start = unsafe { self.start.add(first * self.width) };
        // SAFETY: the band ends at row first + rows <= all rows, inside the slice; no other piece overlaps it and its
        // index is taken once (the trait's contract), so the exclusive reference is unique.
        let data = unsafe { std::slice::from_raw_parts_mut(start, rows * self.width) };
        RowPart { first, rows, data }
    }
}

/// The elements of a slice, one by one.
#[derive(Debug)]
pub struct Each<'a, T> {
    start: *mut T,
    len: usize,
    memory: PhantomData<&'a mut [T]>,
}

impl<'a, T> Each<'a, T> {
    /// One piece an element.
    pub fn new(data: &'a mut [T]) -> Self {
        Self { start: data.as_mut_ptr(), len: data.len(), memory: PhantomData }
    }
}

// SAFETY: as for Rows.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for Each<'_, T> {}

// SAFETY: piece i is element i alone; exclusivity and Send as for Rows.
#[allow(unsafe_code)]
unsafe impl<'a, T: Send> Parts for Each<'a, T> {
    type Part = &'a mut T;

    fn len(&self) -> usize {
        self.len
    }

    unsafe fn part(&self, index: usize) -> &'a mut T {
        assert!(index < self.len, "element {index} of {}", self.len);
        // SAFETY: index < len, so the element lies inside the borrowed slice.
        let element = unsafe { self.start.add(index) };
        // SAFETY: it is initialised memory of the slice, and no one else holds element `index` (the trait's contract).
        unsafe { &mut *element }
    }
}

// SAFETY: pieces of different indices differ in both halves, and each half keeps its own contract.
#[allow(unsafe_code)]
unsafe impl<A: Parts, B: Parts> Parts for (A, B) {
    type Part = (A::Part, B::Part);

    fn len(&self) -> usize {
        assert_eq!(self.0.len(), self.1.len(), "both halves have as many pieces");
        self.0.len()
    }

    unsafe fn part(&self, index: usize) -> Self::Part {
        // SAFETY: passed on: index < len of both, taken once.
        let a = unsafe { self.0.part(index) };
        // SAFETY: as above.
        let b = unsafe { self.1.part(index) };
        (a, b)
    }
}

/// Runs `body(piece)` for every piece on the calling thread, in their order.
pub fn each_alone<P: Parts>(parts: P, mut body: impl FnMut(P::Part)) {
    for index in 0..parts.len() {
        // SAFETY: each index below `len` once, and `parts` is nobody else's.
        #[allow(unsafe_code)]
        let piece = unsafe { parts.part(index) };
        body(piece);
    }
}

impl Crew {
    /// Runs `body(piece)` for every piece, thread t taking the t-th share of consecutive pieces.
    ///
    /// # Panics
    /// As [`Crew::run`], and when the pieces are more than can be dealt.
    pub fn each<P: Parts>(&self, parts: P, body: impl Fn(P::Part) + Sync) {
        let (pieces, threads) = (parts.len(), self.threads());
        assert!(pieces.checked_mul(threads).is_some(), "{pieces} pieces cannot be dealt to {threads} threads");
        let (parts, body) = (&parts, &body);
        self.run(move |thread| {
            for index in even_part(pieces, thread, threads) {
                // SAFETY: the shares of threads 0..T partition 0..pieces (no product wraps: checked above), and a
                // region runs each thread once, so each index is below `len` and taken once.
                #[allow(unsafe_code)]
                let piece = unsafe { parts.part(index) };
                body(piece);
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn bands_cover_all_rows_once() {
        for rows in 0..30 {
            for bands in 1..6 {
                for grain in 1..5 {
                    let mut data = vec![0u32; rows * 3];
                    let parts = Rows::new(&mut data, 3, bands, grain);
                    assert!(parts.len() <= bands);
                    for index in 0..parts.len() {
                        // SAFETY: each index once.
                        let band = unsafe { parts.part(index) };
                        assert_eq!(band.data.len(), band.rows * 3);
                        assert!(band.rows.is_multiple_of(grain) || index + 1 == parts.len());
                        band.data.iter_mut().for_each(|x| *x += 1 + band.first as u32);
                    }
                    assert!(data.iter().all(|&x| x > 0));
                }
            }
        }
    }

    #[test]
    fn one_thread_takes_all_pieces_in_their_order() {
        let (mut data, mut order) = ([0u32; 7], Vec::new());
        each_alone((Rows::new(&mut data, 1, 4, 1), Each::new(&mut [10; 4])), |(band, mark)| {
            order.push(band.first);
            band.data.fill(*mark);
        });
        assert_eq!((order, data), (vec![0, 2, 4, 6], [10; 7]));
    }

    #[test]
    #[should_panic(expected = "cannot be dealt to 2 threads")]
    fn shares_that_wrap_are_refused() {
        let crew = Crew::start(2, crate::sync::Patience::SHARED_CORE, |_| ()).unwrap();
        // Elements without size: a slice may have any number of them.
        crew.each(Each::new(&mut [(); usize::MAX]), |()| panic!("no piece is handed out"));
    }
}
