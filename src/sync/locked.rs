//! Rows that several threads move, one thread at a time: rows wider than what one instruction can exchange.
//!
//! A [`Stripes`] is an array of locks, each for many rows. A lock is free (false) or held (true). Whoever turns free to
//! held (acquire) alone may use the rows of that stripe, until it stores free again (release): so all that one holder
//! wrote is seen by the next. Nobody waits for a second lock while it holds one, and a holder only computes, so every
//! wait ends; a waiter yields its core in case the holder lost its own. A panic releases, too.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crossbeam::utils::CachePadded;

use super::primitive::{AtomicBool, Ordering, thread};
use crate::simd::prefetch;

/// Locks: enough that threads rarely meet by chance.
#[cfg(not(loom))]
const STRIPES: usize = 1024;
#[cfg(loom)]
const STRIPES: usize = 1;

/// Tries before a waiter yields its core.
#[cfg(not(loom))]
const SPINS: u32 = 128;
#[cfg(loom)]
const SPINS: u32 = 1;

/// Locks for the rows of any matrix.
#[derive(Debug)]
pub struct Stripes(Vec<CachePadded<AtomicBool>>);

impl Default for Stripes {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| CachePadded::new(AtomicBool::new(false))).collect())
    }
}

impl Stripes {
    /// Lends the rows of `data`, each of `width` elements, under these locks.
    ///
    /// # Panics
    /// When `data` is no whole number of rows.
    pub fn guard<'a, T>(&'a mut self, data: &'a mut [T], width: usize) -> LockedRows<'a, T> {
        assert!(width > 0 && data.len().is_multiple_of(width), "{} elements in rows of {width}", data.len());
        let (start, rows) = (NonNull::from(&mut *data).cast(), data.len() / width);
        LockedRows { start, rows, width, stripes: &self.0, memory: PhantomData }
    }
}

/// A matrix whose rows threads take in turn.
#[derive(Debug)]
pub struct LockedRows<'a, T> {
    start: NonNull<T>,
    rows: usize,
    width: usize,
    stripes: &'a [CachePadded<AtomicBool>],
    memory: PhantomData<&'a mut [T]>,
}

// SAFETY: shared access gives out rows only under their locks, one holder at a time, so it is as for a mutex: T: Send
// suffices.
#[allow(unsafe_code)]
unsafe impl<T: Send> Sync for LockedRows<'_, T> {}

/// A row, while its lock is held, by the thread that waited for it:
///
/// ```compile_fail,E0277
/// # use octorec::sync::Stripes;
/// let (mut stripes, mut data) = (Stripes::default(), [0u32; 6]);
/// let rows = stripes.guard(&mut data, 2);
/// let row = rows.lock(0);
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(row));
/// });
/// ```
#[derive(Debug)]
pub struct LockedRow<'a, T> {
    /// A pointer and no reference: a reference that `drop` is handed counts as in use until `drop` returns, when the
    /// next holder may have the row already (rust-lang/rust#63787).
    row: NonNull<[T]>,
    held: &'a AtomicBool,
    memory: PhantomData<&'a mut [T]>,
}

impl<T> LockedRows<'_, T> {
    /// Asks for the cache lines of a row; a hint.
    #[inline(always)]
    pub fn ask(&self, row: usize) {
        for byte in (0..self.width * size_of::<T>()).step_by(64) {
            prefetch(self.start.as_ptr().cast::<i8>().wrapping_add(row * self.width * size_of::<T>() + byte));
        }
    }

    /// Waits for a row.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub fn lock(&self, row: usize) -> LockedRow<'_, T> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let held = &*self.stripes[row % self.stripes.len()];
        let mut spins = 0;
        while held.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spins += 1;
            if spins % SPINS == 0 { thread::yield_now() } else { std::hint::spin_loop() }
        }
        // SAFETY: row < rows, so the row starts inside the borrowed memory.
        #[allow(unsafe_code)]
        let start = unsafe { self.start.add(row * self.width) };
        LockedRow { row: NonNull::slice_from_raw_parts(start, self.width), held, memory: PhantomData }
    }
}

impl<T> Deref for LockedRow<'_, T> {
    type Target = [T];

    #[inline(always)]
    #[allow(unsafe_code)]
    fn deref(&self) -> &[T] {
        // SAFETY: `width` elements from the row's start lie in the matrix, which is borrowed exclusively for 'a; this
        // thread holds the row's lock until `self` is dropped, and nobody reaches the row without it.
        unsafe { self.row.as_ref() }
    }
}

impl<T> DerefMut for LockedRow<'_, T> {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as `deref`, and `&mut self` is the holder's only access.
        unsafe { self.row.as_mut() }
    }
}

impl<T> Drop for LockedRow<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.held.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{Crew, Patience};

    #[test]
    fn nothing_is_lost_on_contended_rows() {
        let crew = Crew::start(4, Patience::SHARED_CORE, |_| ()).unwrap();
        let mut stripes = Stripes::default();
        let mut data = vec![0u64; 3 * 5];
        let rows = stripes.guard(&mut data, 5);
        crew.run(|thread| {
            for turn in 0..6000 {
                let mut row = rows.lock((turn + thread) % 3);
                let before = row[0];
                row.fill(before + 1);
            }
        });
        assert_eq!(data, [8000; 15]);
    }

    #[test]
    #[should_panic(expected = "row 3 of 3")]
    fn a_row_that_is_not_there_is_refused() {
        let (mut stripes, mut data) = (Stripes::default(), [0u8; 6]);
        let _ = stripes.guard(&mut data, 2).lock(3);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::super::primitive::Arc;
    use super::*;

    /// Two threads add 1 to the same row; loom's cell sees any access without the lock.
    #[test]
    fn a_row_has_one_holder() {
        loom::model(|| {
            let stripes = Arc::new(Stripes::default());
            let cell = Arc::new(loom::cell::UnsafeCell::new(0u32));
            let add = |stripes: &Stripes, cell: &loom::cell::UnsafeCell<u32>| {
                let mut empty = [0u8; 1];
                let rows = LockedRows {
                    start: NonNull::from(&mut empty).cast::<u8>(),
                    rows: 1,
                    width: 1,
                    stripes: &stripes.0,
                    memory: PhantomData,
                };
                let _held = rows.lock(0);
                // SAFETY: the model checks exactly this.
                #[allow(unsafe_code)]
                cell.with_mut(|number| unsafe { *number += 1 });
            };
            let other = {
                let (stripes, cell) = (Arc::clone(&stripes), Arc::clone(&cell));
                thread::spawn(move || add(&stripes, &cell))
            };
            add(&stripes, &cell);
            other.join().unwrap();
            // SAFETY: the other thread has ended.
            #[allow(unsafe_code)]
            let total = cell.with(|number| unsafe { *number });
            assert_eq!(total, 2);
        });
    }
}
