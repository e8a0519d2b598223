//! Pieces that are claimed while a region runs, so that a thread that is done early helps one that is late.
//!
//! A region ends with its last thread, and cores are never equally fast: another machine's thread on the same core, an
//! interrupt or a colder cache make one a tenth or a quarter slower for milliseconds. [`Crew::each`] waits for it;
//! [`Crew::share`] gives its remaining pieces away.
//!
//! Every thread begins with a share of consecutive pieces of its own, takes them in order and then looks into the
//! shares of the threads after it. A share is a counter of the pieces claimed; a claim adds 1, and what was there
//! before is the piece. So no piece is taken twice, in whatever order threads come. Nothing is published by a claim:
//! what pieces hold is handed over by the region's beginning and end, hence `Relaxed`.
//!
//! Threads that are done ask a mask, in one cache line, which shares are open, instead of every counter in a line of
//! its owner. A bit is set before the region begins if the share has pieces, and is cleared once, by whoever claims the
//! last one. A counter only grows, so what is closed stays closed; who sees that late looks at a counter in vain, and
//! nobody can see it early: the share of an unclaimed piece is open to all.

use std::mem::MaybeUninit;

use crossbeam::utils::CachePadded;

use super::primitive::{AtomicUsize, Ordering};
use super::{Crew, Parts};

/// Most shares: a bit each. More threads than that begin with a share together.
const SHARES: usize = usize::BITS as usize;

/// Which pieces of a region are taken.
struct Claims {
    /// Of each share, its next piece: in a cache line of its own, so that no thread disturbs another by a claim. Behind
    /// those of the shares nothing is written: all lines together would take longer than many a piece.
    counters: [MaybeUninit<CachePadded<AtomicUsize>>; SHARES],
    /// A bit for each share of which a piece may be left. In the line of what everybody reads first.
    open: AtomicUsize,
    pieces: usize,
    shares: usize,
}

impl Claims {
    fn new(pieces: usize, threads: usize) -> Self {
        let shares = threads.min(SHARES);
        assert!(pieces.checked_mul(shares).is_some(), "{pieces} pieces cannot be dealt in {shares} shares");
        // Share s begins with piece `pieces * s / shares`. Counted up: so many divisions would take longer than a
        // piece.
        let (each, rest) = (pieces / shares, pieces % shares);
        let (mut first, mut over, mut open) = (0, 0, 0);
        // Written where they stay: what is moved is copied whole.
        let counters = [const { MaybeUninit::uninit() }; SHARES];
        let mut claims = Self { counters, open: AtomicUsize::new(0), pieces, shares };
        for (share, counter) in claims.counters[..shares].iter_mut().enumerate() {
            counter.write(CachePadded::new(AtomicUsize::new(first)));
            over += rest;
            let own = each + usize::from(over >= shares);
            over -= if over >= shares { shares } else { 0 };
            first += own;
            open |= usize::from(own > 0) << share;
        }
        claims.open = AtomicUsize::new(open);
        claims
    }

    /// The next piece of a share.
    fn counter(&self, share: usize) -> &AtomicUsize {
        // SAFETY: `new`, the only one to make claims, has written the counters of the first `shares` shares.
        #[allow(unsafe_code)]
        unsafe {
            self.counters[..self.shares][share].assume_init_ref()
        }
    }

    /// Calls `body` with pieces until none is left. A call by its address is nothing beside a piece.
    fn take(&self, thread: usize, body: &mut dyn FnMut(usize)) {
        let own = thread % self.shares;
        // The shares that this thread has not passed yet, its own first.
        let mut left = usize::MAX;
        loop {
            left &= self.open.load(Ordering::Relaxed).rotate_right(own as u32);
            if left == 0 {
                return;
            }
            self.take_of((own + left.trailing_zeros() as usize) % SHARES, body);
            left &= left - 1;
        }
    }

    /// The same with those of one share.
    fn take_of(&self, share: usize, body: &mut dyn FnMut(usize)) {
        let (next, end) = (self.counter(share), self.pieces * (share + 1) / self.shares);
        // A look first: only a claim takes the counter's line away from others.
        while next.load(Ordering::Relaxed) < end {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece + 1 == end {
                self.open.fetch_and(!(1 << share), Ordering::Relaxed);
            }
            if piece < end {
                body(piece);
            }
        }
    }
}

impl Crew {
    /// Runs `body(piece)` for every piece, on whichever thread is free; each begins with its share, as [`Crew::each`]
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
                assert_eq!(claims.open.load(Ordering::Relaxed), 0, "{pieces} pieces, {threads} threads");
            }
        }
    }

    #[test]
    fn a_thread_looks_into_open_shares_alone_those_after_its_own_first() {
        for threads in [2, 5, 64, 70] {
            let claims = Claims::new(2 * threads, threads);
            let shares = threads.min(SHARES);
            let mut order = Vec::new();
            claims.take(shares - 1, &mut |piece| {
                let open = claims.open.load(Ordering::Relaxed);
                // A share is closed as soon as its last piece is claimed.
                for share in 0..shares {
                    let claimed = claims.counter(share).load(Ordering::Relaxed);
                    assert_eq!(
                        open >> share & 1 == 1,
                        claimed < 2 * threads * (share + 1) / shares,
                        "{threads} threads"
                    );
                }
                order.push(piece);
            });
            let first = 2 * threads * (shares - 1) / shares;
            assert!(order.into_iter().eq((first..2 * threads).chain(0..first)), "{threads} threads");
        }
        // Fewer pieces than threads: the shares of most are closed from the first.
        let claims = Claims::new(2, 5);
        assert_eq!(claims.open.load(Ordering::Relaxed), 0b1_0100);
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

    /// Interleavings of two threads that share so many pieces, with as many preemptions as LOOM_MAX_PREEMPTIONS allows:
    /// each piece is taken once, and after that no share is open.
    fn every_piece_has_one_owner<const PIECES: usize>() {
        loom::model(|| {
            let shared = Arc::new((Claims::new(PIECES, 2), [(); PIECES].map(|()| Guarded::new(0u32))));
            // Loom's cells notice two threads in one of them that did not wait for each other.
            let take = |shared: &(Claims, [Guarded<u32>; PIECES]), thread: usize| {
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
            assert_eq!(shared.0.open.load(Ordering::Relaxed), 0);
            for cell in &shared.1 {
                // SAFETY: both threads are done.
                #[allow(unsafe_code)]
                cell.with(|cell| assert_eq!(unsafe { *cell }, 1));
            }
        });
    }

    /// A share of one piece and one of two.
    #[test]
    fn a_piece_has_one_owner() {
        every_piece_has_one_owner::<3>();
    }

    /// The share of the first thread is closed from the first.
    #[test]
    fn a_share_without_pieces_is_closed() {
        every_piece_has_one_owner::<1>();
    }
}
