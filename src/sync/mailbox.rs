//! The cache line between a region's leader and one helper, and what is told in it.
//!
//! Two counters say whose a mailbox is:
//!
//! | state    | `epoch` | `done` | who may touch the order    |
//! |----------|---------|--------|----------------------------|
//! | idle     | e       | e      | the leader                 |
//! | running  | e + 1   | e      | the helper reads it        |
//! | finished | e + 1   | e + 1  | the leader (idle again)    |
//!
//! * idle -> running: the leader, `epoch`'s only writer, writes the order and then the next `epoch` (release). A helper
//!   that sees the new epoch (acquire) therefore sees the order.
//! * running -> finished: the helper, `done`'s only writer, stores the epoch into it (release) after its last access to
//!   the order and to whatever its closure borrows. The leader that has read it (acquire) may free all that.

use std::mem::MaybeUninit;

use super::primitive::{AtomicUsize, Guarded, Ordering};

/// Words of captures that travel in the mailbox: what its cache line has left.
const CARRIED: usize = 5;

/// What a closure has captured, or its address when that is larger.
type Captures = MaybeUninit<[*const (); CARRIED]>;

/// What a helper is told.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// A region's closure, its type and lifetime taken away, valid from idle -> running until joined: what calls it,
    /// and the captures that hold it; nothing else may be handed to that.
    Call(unsafe fn(&Captures, usize), Captures),
    /// To wait at this mailbox from now on, or to end: [`NOWHERE`].
    GoTo(usize),
}

/// The mailbox of a helper whose life ends.
const NOWHERE: usize = usize::MAX;

/// What a helper does after an order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Waits for the next one.
    Stay,
    /// Waits for the next one at another mailbox.
    GoTo(usize),
    /// Ends.
    End,
}

impl Order {
    /// To call this closure.
    pub(super) fn call<F: Fn(usize) + Sync + Copy>(body: &F) -> Self {
        let mut captures = Captures::uninit();
        if const { size_of::<F>() <= size_of::<Captures>() && align_of::<F>() <= align_of::<Captures>() } {
            // SAFETY: F fits, as just checked. It may be copied, and since it is Sync by any thread that has a
            // reference to it; the copy needs no drop.
            #[allow(unsafe_code)]
            unsafe {
                captures.as_mut_ptr().cast::<F>().write(*body);
            }
            Self::Call(call::<F>, captures)
        } else {
            // SAFETY: the first word is there and takes an address.
            #[allow(unsafe_code)]
            unsafe {
                captures.as_mut_ptr().cast::<&F>().write(body);
            }
            Self::Call(call::<&F>, captures)
        }
    }

    /// To end.
    pub(super) const END: Self = Self::GoTo(NOWHERE);

    /// Does what it says, as thread `index`.
    ///
    /// # Safety
    /// What the closure borrows is alive, which it is while the region's `Crew::lead` has neither returned nor unwound.
    #[allow(unsafe_code)]
    pub(super) unsafe fn run(&self, index: usize) -> Next {
        match self {
            Self::Call(call, captures) => {
                // SAFETY: both come from one `Order::call`, the only place that makes an order with a closure.
                unsafe { call(captures, index) };
                Next::Stay
            }
            Self::GoTo(NOWHERE) => Next::End,
            Self::GoTo(mailbox) => Next::GoTo(*mailbox),
        }
    }
}

/// Calls the F that lies in `captures`.
///
/// # Safety
/// [`Order::call`] has written an F there, and what it borrows is alive.
#[allow(unsafe_code)]
unsafe fn call<F: Fn(usize)>(captures: &Captures, index: usize) {
    // SAFETY: the caller's promise; `Order::call` has checked size and alignment.
    let body = unsafe { &*captures.as_ptr().cast::<F>() };
    body(index);
}

/// What the leader and one helper pass to and fro: one cache line.
pub(super) struct Mailbox {
    epoch: AtomicUsize,
    done: AtomicUsize,
    order: Guarded<Order>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Mailbox>() == 64, "a mailbox is one cache line");

// SAFETY: `order` is the only field that is not Sync by itself; the protocol above lets the leader write it only while
// its helper does not read it, and what it holds is a copy of, or a reference to, a Sync closure.
#[allow(unsafe_code)]
unsafe impl Sync for Mailbox {}

// SAFETY: a reference to a Sync closure may move between threads, and so may a copy, which any thread could have made.
#[allow(unsafe_code)]
unsafe impl Send for Mailbox {}

impl Mailbox {
    pub(super) fn new() -> Self {
        Self { epoch: AtomicUsize::new(0), done: AtomicUsize::new(0), order: Guarded::new(Order::END) }
    }

    /// idle -> running; for the leader.
    ///
    /// # Safety
    /// The mailbox is idle ([`Mailbox::is_idle`]), the caller its only leader, and what the order's closure borrows
    /// lives until it is idle again.
    #[allow(unsafe_code)]
    pub(super) unsafe fn post(&self, order: Order) {
        self.order.with_mut(|slot| {
            // SAFETY: idle, so the helper does not read the slot, and nobody else writes.
            unsafe {
                *slot = order;
            }
        });
        // A store is enough, because nobody else writes.
        self.epoch.store(self.last().wrapping_add(1), Ordering::Release);
    }

    /// The number of the last order; for the leader.
    pub(super) fn last(&self) -> usize {
        // Relaxed: the leader reads its own last write.
        self.epoch.load(Ordering::Relaxed)
    }

    /// Whether the `last` order has been completed: then the mailbox is idle; for the leader.
    pub(super) fn is_idle(&self, last: usize) -> bool {
        self.done.load(Ordering::Acquire) == last
    }

    /// The number of the last order that the helper has completed here; for the helper.
    pub(super) fn completed(&self) -> usize {
        // Relaxed: the helper reads its own last write.
        self.done.load(Ordering::Relaxed)
    }

    /// The number of an order that the helper has not `seen`: then the mailbox is running.
    pub(super) fn poll(&self, seen: usize) -> Option<usize> {
        Some(self.epoch.load(Ordering::Acquire)).filter(|epoch| *epoch != seen)
    }

    /// The order; for the helper.
    ///
    /// # Safety
    /// The mailbox is running: [`Mailbox::poll`] has said so, and [`Mailbox::finish`] was not called since.
    #[allow(unsafe_code)]
    pub(super) unsafe fn order(&self) -> Order {
        // SAFETY: running: the acquire of the new epoch ordered the leader's write before this read, and the leader
        // writes again only after this helper's store to `done`.
        self.order.with(|slot| unsafe { *slot })
    }

    /// running -> finished; for the helper.
    pub(super) fn finish(&self, epoch: usize) {
        self.done.store(epoch, Ordering::Release);
    }
}
