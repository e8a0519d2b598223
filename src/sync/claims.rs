//! Pieces that are claimed while a region runs, so that a thread that is done early helps one that is late.
//!
//! A region ends with its last thread, and cores are never equally fast: another machine's thread on the same core, an
//! interrupt or a colder cache make one a tenth or a quarter slower for milliseconds. [`Crew::deal`] waits for it;
//! [`Crew::share`] gives its remaining pieces away.
//!
//! Every thread begins with a share of consecutive pieces of its own, takes them in order and then looks into the
//! shares of the threads after it. A share is a counter of the pieces claimed; a claim adds 1, and what was there
//! before is the piece. So no piece is taken twice, in whatever order threads come. Nothing is published by a claim:
//! what pieces hold is handed over by the region's beginning and end, hence `Relaxed`.

use super::primitive::{AtomicUsize, Ordering};
use super::{Crew, Parts};

/// Most shares. More threads than that begin with a share together.
const SHARES: usize = LINE * LINE;

/// Counters of a cache line.
const LINE: usize = 8;

/// Which pieces of a region are taken.
#[repr(align(64))]
struct Claims {
    /// Of each share, its next piece; see [`Claims::next`].
    counters: [AtomicUsize; SHARES],
    pieces: usize,
    shares: usize,
}

impl Claims {
    fn new(pieces: usize, threads: usize) -> Self {
        let shares = threads.min(SHARES);
        assert!(pieces.checked_mul(shares).is_some(), "{pieces} pieces cannot be dealt in {shares} shares");
        let first = |place: usize| pieces * share_at(place).min(shares) / shares;
        Self { counters: std::array::from_fn(|place| AtomicUsize::new(first(place))), pieces, shares }
    }

    /// The counter of a share. The first eight have a cache line each, so that few threads never disturb each other.
    fn next(&self, share: usize) -> &AtomicUsize {
        &self.counters[share % LINE * LINE + share / LINE]
    }

    /// Calls `body` with pieces until none is left. A call by its address is nothing beside a piece.
    fn take(&self, thread: usize, body: &mut dyn FnMut(usize)) {
        for turn in 0..self.shares {
            let share = (thread + turn) % self.shares;
            let (next, end) = (self.next(share), self.pieces * (share + 1) / self.shares);
            // A look first: all threads end by passing all shares, and only a claim takes the counter's line away.
            while next.load(Ordering::Relaxed) < end {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece < end {
                    body(piece);
                }
            }
        }
    }
}

/// The share whose counter is at this place: what [`Claims::next`] says, backwards.
const fn share_at(place: usize) -> usize {
    place % LINE * LINE + place / LINE
}

impl Crew {
    /// Runs `body(piece)` for every piece, on whichever thread is free; each begins with its share, as [`Crew::deal`]
    /// deals them.
    ///
    /// # Panics
    /// As [`Crew::run`], and when the pieces are more than can be dealt.
    pub fn share<P: Parts>(&self, pieces: P, body: impl Fn(P::Part) + Sync) {
        let claims = Claims::new(pieces.len(), self.threads());
        let (claims, pieces, body) = (&claims, &pieces, &body);
        self.run(move |thread| {
            claims.take(thread, &mut |index| {
                // SAFETY: each index below `len` is claimed once.
                #[allow(unsafe_code)]
                let piece = unsafe { pieces.part(index) };
                body(piece);
            });
        });
    }

    /// As [`Crew::share`] with something that a thread keeps from piece to piece: `begin` makes it of the thread's part
    /// of `own`, which has one part a thread.
    ///
    /// # Panics
    /// As [`Crew::share`], and when `own` has another number of parts.
    pub fn share_with<W: Parts, P: Parts, M>(
        &self,
        own: W,
        pieces: P,
        begin: impl Fn(W::Part) -> M + Sync,
        body: impl Fn(&mut M, P::Part) + Sync,
    ) {
        assert_eq!(own.len(), self.threads(), "one part a thread");
        let claims = Claims::new(pieces.len(), self.threads());
        let (claims, own, pieces, begin, body) = (&claims, &own, &pieces, &begin, &body);
        self.run(move |thread| {
            // SAFETY: thread < threads = len, and a region runs each thread once.
            #[allow(unsafe_code)]
            let mut mine = begin(unsafe { own.part(thread) });
            claims.take(thread, &mut |index| {
                // SAFETY: each index below `len` is claimed once.
                #[allow(unsafe_code)]
                let piece = unsafe { pieces.part(index) };
                body(&mut mine, piece);
            });
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{Each, Patience, Rows};

    #[test]
    fn every_piece_is_claimed_once() {
        for threads in [1, 2, 5, 70] {
            for pieces in [0, 1, 4, 5, 300] {
                let claims = Claims::new(pieces, threads);
                let mut taken = vec![0; pieces];
                // Threads one after the other: the first takes all, its own share first.
                for thread in (0..threads).rev() {
                    let mut order = Vec::new();
                    claims.take(thread, &mut |piece| order.push(piece));
                    let expected = if thread + 1 == threads { pieces } else { 0 };
                    assert_eq!(order.len(), expected, "thread {thread} takes what no other thread has claimed");
                    let own = order.first().copied().unwrap_or(0);
                    assert!(thread + 1 < threads || threads > SHARES || own >= pieces * thread / threads);
                    order.into_iter().for_each(|piece| taken[piece] += 1);
                }
                assert!(taken.iter().all(|&times| times == 1), "{pieces} pieces, {threads} threads");
            }
        }
    }

    #[test]
    fn a_crew_shares_all_pieces_and_threads_keep_what_is_theirs() {
        for threads in [1, 2, 3] {
            let crew = Crew::start(threads, Patience::SHARED_CORE, |_| ()).unwrap();
            let mut data = vec![0u32; 999];
            crew.share(Rows::new(&mut data, 1, 100, 1), |band| band.data.iter_mut().for_each(|x| *x += 1));
            let mut counts = vec![0; threads];
            let begin = |count| (count, 0);
            crew.share_with(Each::new(&mut counts), Each::new(&mut data), begin, |(count, mine), x| {
                *mine += 1;
                **count = *mine;
                *x += 1;
            });
            assert!(data.iter().all(|&x| x == 2));
            assert_eq!(counts.iter().sum::<usize>(), 999);
        }
    }

    #[test]
    #[should_panic(expected = "cannot be dealt in 2 shares")]
    fn shares_that_wrap_are_refused() {
        let crew = Crew::start(2, Patience::SHARED_CORE, |_| ()).unwrap();
        // Elements without size: a slice may have any number of them.
        crew.share(Each::new(&mut [(); usize::MAX]), |()| panic!("no piece is handed out"));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::super::primitive::{Arc, Guarded};
    use super::*;

    /// All interleavings of two threads that share three pieces.
    #[test]
    fn a_piece_has_one_owner() {
        loom::model(|| {
            let shared = Arc::new((Claims::new(3, 2), [(); 3].map(|()| Guarded::new(0u32))));
            // Loom's cells notice two threads in one of them that did not wait for each other.
            let take = |shared: &(Claims, [Guarded<u32>; 3]), thread: usize| {
                shared.0.take(thread, &mut |piece| {
                    shared.1[piece].with_mut(|cell| {
                        // SAFETY: loom checks that nobody else is here.
                        #[allow(unsafe_code)]
                        unsafe {
                            *cell += 1;
                        }
                    });
                });
            };
            let theirs = shared.clone();
            let other = loom::thread::spawn(move || take(&theirs, 1));
            take(&shared, 0);
            other.join().unwrap();
            for cell in &shared.1 {
                // SAFETY: both threads are done.
                #[allow(unsafe_code)]
                cell.with(|cell| assert_eq!(unsafe { *cell }, 1));
            }
        });
    }
}
