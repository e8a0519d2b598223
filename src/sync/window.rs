//! A window: a receive buffer in its owner's memory into which one peer writes, with the protocol that hands it over.
//!
//! # Protocol
//! A window has two slots; message n (from 0) uses slot n % 2. Two counters, each on a cache line of its own and
//! written by one side only, say whose a slot is:
//!
//! | slot n % 2 | `filled` | `released` | who may touch its bytes       |
//! |------------|----------|------------|-------------------------------|
//! | free       | <= n     | >= n - 1   | the sender writes message n   |
//! | filled     | > n      | <= n       | the receiver reads message n  |
//! | free       | > n      | > n        | the sender writes message n+2 |
//!
//! * free -> filled: the sender writes lines, with non-temporal stores or plain ones, then fences (`sfence`, because
//!   the processor orders non-temporal stores with nothing else), then stores the number of bytes and n + 1 into
//!   `filled` (release). A receiver that sees n + 1 (acquire) sees the message.
//! * filled -> free: the receiver stores n + 1 into `released` (release) after its last read. A sender that sees it
//!   (acquire) may overwrite the slot. That is the credit: at most two messages are under way, and a sender that is
//!   ahead finds no slot instead of overwriting one.
//!
//! Neither side ever writes the other's counter, and there is no lock and no copy in between. Each side remembers the
//! other's counter and looks again only when it must, so that a line travels once a message. Both ends are movable to
//! the thread that uses them, and need `&mut`: an end has one user at a time.
//!
//! [`Sender::try_open`] and [`Receiver::is_filled`] never wait; waiting, with deadline and abort flag, is
//! [`super::Waiting::turn`]'s.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crossbeam::utils::CachePadded;

use super::lines::Line;
use super::primitive::{Arc, AtomicUsize, Guarded, Ordering};
use crate::memory::Buffer;
use crate::simd::Ordered;

/// Slots of a window.
pub const SLOTS: usize = 2;

/// The sender's line.
struct Filled {
    count: AtomicUsize,
    /// Of the message in each slot.
    bytes: [AtomicUsize; SLOTS],
}

struct Window {
    filled: CachePadded<Filled>,
    released: CachePadded<AtomicUsize>,
    /// Each of `lines` lines, inside `_memory`, and no other window's.
    slots: [NonNull<Line>; SLOTS],
    lines: usize,
    /// One a slot, touched whenever its bytes are: where models see a race.
    marks: [Guarded<()>; SLOTS],
    /// The owner's buffer; nobody looks into it as a whole again.
    _memory: Arc<Buffer<Line>>,
}

// SAFETY: the pointers lead to memory that `_memory` keeps; the protocol above lets one thread at a time write a slot
// and lets nobody read it meanwhile. `Sender` and `Receiver` are its only users.
#[allow(unsafe_code)]
unsafe impl Sync for Window {}

// SAFETY: as above; nothing in it belongs to a thread.
#[allow(unsafe_code)]
unsafe impl Send for Window {}

/// How many lines of memory windows with these slots (in lines) need.
///
/// # Panics
/// When no address space holds them.
#[must_use]
pub fn window_lines(slots: &[usize]) -> usize {
    let all = slots.iter().try_fold(0usize, |all, lines| all.checked_add(lines.checked_mul(SLOTS)?));
    all.expect("the lines of all slots can be counted")
}

/// Cuts `memory` into windows, window i with slots of `slots[i]` lines, and returns both ends of each.
///
/// # Panics
/// When the memory is not [`window_lines`] long.
#[must_use]
pub fn windows(mut memory: Buffer<Line>, slots: &[usize]) -> Vec<(Sender, Receiver)> {
    assert_eq!(memory.len(), window_lines(slots), "memory for all slots");
    let start = NonNull::from(&mut memory[..]).cast::<Line>();
    let memory = Arc::new(memory);
    let mut next = 0;
    let mut slot = |lines: usize| {
        // SAFETY: next + lines <= the buffer's length (their sum is, as asserted, and did not wrap), so this stays
        // inside of it.
        #[allow(unsafe_code)]
        let slot = unsafe { start.add(next) };
        next += lines;
        slot
    };
    let ends = |&lines: &usize| {
        let window = Arc::new(Window {
            filled: CachePadded::new(Filled {
                count: AtomicUsize::new(0),
                bytes: [AtomicUsize::new(0), AtomicUsize::new(0)],
            }),
            released: CachePadded::new(AtomicUsize::new(0)),
            slots: [slot(lines), slot(lines)],
            lines,
            marks: [Guarded::new(()), Guarded::new(())],
            _memory: memory.clone(),
        });
        (Sender { window: window.clone(), sent: 0, released: 0 }, Receiver { window, taken: 0, filled: 0 })
    };
    slots.iter().map(ends).collect()
}

/// The writing end of a window.
///
/// ```
/// # use octorec::{memory::Buffer, sync::{Line, windows, window_lines}};
/// let (mut sender, mut receiver) = windows(Buffer::zeroed(window_lines(&[4])), &[4]).pop().unwrap();
/// let mut slot = sender.try_open().unwrap();
/// slot[1] = Line::from([7; 16]);
/// slot.publish(128);
/// assert!(receiver.is_filled());
/// assert_eq!(receiver.front().unwrap()[1], Line::from([7; 16]));
/// receiver.release();
/// ```
///
/// Two threads cannot share an end:
///
/// ```compile_fail,E0596
/// # use octorec::{memory::Buffer, sync::{windows, window_lines}};
/// let (sender, _receiver) = windows(Buffer::zeroed(window_lines(&[4])), &[4]).pop().unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(|| sender.try_open().unwrap().publish(64));
///     scope.spawn(|| sender.try_open().unwrap().publish(64));
/// });
/// ```
///
/// nor can it be doubled:
///
/// ```compile_fail,E0599
/// # use octorec::{memory::Buffer, sync::{windows, window_lines}};
/// let (sender, _receiver) = windows(Buffer::zeroed(window_lines(&[4])), &[4]).pop().unwrap();
/// let second = sender.clone();
/// ```
pub struct Sender {
    window: Arc<Window>,
    /// Messages published: `filled`, whose only writer this is.
    sent: usize,
    /// What was last seen in `released`.
    released: usize,
}

impl Sender {
    /// The size of a slot in bytes: of the longest message.
    #[must_use]
    pub fn room(&self) -> usize {
        self.window.lines * size_of::<Line>()
    }

    /// The next slot, if it is free.
    #[inline]
    pub fn try_open(&mut self) -> Option<Slot<'_>> {
        if self.sent.wrapping_sub(self.released) >= SLOTS {
            self.released = self.window.released.load(Ordering::Acquire);
            if self.sent.wrapping_sub(self.released) >= SLOTS {
                return None;
            }
        }
        self.window.marks[self.sent % SLOTS].with_mut(|_| ());
        Some(Slot { sender: self })
    }
}

/// A free slot: the sender's until it is published. Dropped without that, it stays free.
///
/// Whoever has published has nothing left to write to:
///
/// ```compile_fail,E0382
/// # use octorec::{memory::Buffer, sync::{Line, windows, window_lines}};
/// let (mut sender, _receiver) = windows(Buffer::zeroed(window_lines(&[4])), &[4]).pop().unwrap();
/// let mut slot = sender.try_open().unwrap();
/// slot.publish(64);
/// slot[0] = Line::from([1; 16]);
/// ```
pub struct Slot<'a> {
    sender: &'a mut Sender,
}

impl Slot<'_> {
    /// free -> filled, with a message of `bytes` bytes.
    ///
    /// # Panics
    /// When the slot is shorter.
    #[inline]
    pub fn publish(self, bytes: usize) {
        let Sender { window, sent, .. } = &mut *self.sender;
        assert!(bytes <= window.lines * size_of::<Line>(), "a message of {bytes} bytes in {} lines", window.lines);
        window.marks[*sent % SLOTS].with_mut(|_| ());
        // Behind the lines, which may have gone past the caches.
        drop(Ordered);
        // Relaxed: published by `count`.
        window.filled.bytes[*sent % SLOTS].store(bytes, Ordering::Relaxed);
        *sent = sent.wrapping_add(1);
        window.filled.count.store(*sent, Ordering::Release);
    }
}

impl Deref for Slot<'_> {
    type Target = [Line];

    #[inline]
    #[allow(unsafe_code)]
    fn deref(&self) -> &[Line] {
        let Sender { window, sent, .. } = &*self.sender;
        // SAFETY: state free (`try_open` saw it, and only this sender can end it): nobody else touches the slot, which
        // is `lines` lines of live memory that was initialised as zeros.
        unsafe { std::slice::from_raw_parts(window.slots[*sent % SLOTS].as_ptr(), window.lines) }
    }
}

impl DerefMut for Slot<'_> {
    #[inline]
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [Line] {
        let Sender { window, sent, .. } = &*self.sender;
        // SAFETY: as `deref`, and `&mut self` is this side's only access.
        unsafe { std::slice::from_raw_parts_mut(window.slots[*sent % SLOTS].as_ptr(), window.lines) }
    }
}

/// The reading end of a window.
///
/// Nothing of a message can be kept when its slot is given back:
///
/// ```compile_fail,E0502
/// # use octorec::{memory::Buffer, sync::{windows, window_lines}};
/// let (mut sender, mut receiver) = windows(Buffer::zeroed(window_lines(&[4])), &[4]).pop().unwrap();
/// sender.try_open().unwrap().publish(64);
/// assert!(receiver.is_filled());
/// let line = &receiver.front().unwrap()[0];
/// receiver.release();
/// println!("{line:?}");
/// ```
pub struct Receiver {
    window: Arc<Window>,
    /// Messages released: `released`, whose only writer this is.
    taken: usize,
    /// What was last seen in `filled`.
    filled: usize,
}

impl Receiver {
    /// The size of a slot in bytes: of the longest message.
    #[must_use]
    pub fn room(&self) -> usize {
        self.window.lines * size_of::<Line>()
    }

    /// Whether a message has come that is not released.
    #[inline]
    pub fn is_filled(&mut self) -> bool {
        if self.filled == self.taken {
            self.filled = self.window.filled.count.load(Ordering::Acquire);
        }
        self.filled != self.taken
    }

    /// The length in bytes of the message that [`Receiver::is_filled`] has seen.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> Option<usize> {
        // Relaxed: published by `count`, and not written again before this message is released.
        (self.filled != self.taken).then(|| self.window.filled.bytes[self.taken % SLOTS].load(Ordering::Relaxed))
    }

    /// The message that [`Receiver::is_filled`] has seen, for as long as it is not released.
    #[must_use]
    #[inline]
    #[allow(unsafe_code)]
    pub fn front(&self) -> Option<&[Line]> {
        let lines = Line::hold(self.bytes()?);
        let slot = self.taken % SLOTS;
        self.window.marks[slot].with(|_| ());
        // SAFETY: state filled (`bytes` checked it, and only `release` ends it, which needs `&mut self`): the sender
        // does not touch the slot; `publish` checked that the message is no longer than the slot.
        Some(unsafe { std::slice::from_raw_parts(self.window.slots[slot].as_ptr(), lines) })
    }

    /// filled -> free: gives the slot of the message back that [`Receiver::is_filled`] has seen.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub fn release(&mut self) {
        assert!(self.filled != self.taken, "only what has come can be released");
        self.window.marks[self.taken % SLOTS].with(|_| ());
        self.taken = self.taken.wrapping_add(1);
        self.window.released.store(self.taken, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn window(lines: usize) -> (Sender, Receiver) {
        windows(Buffer::zeroed(window_lines(&[lines])), &[lines]).pop().unwrap()
    }

    #[test]
    fn a_sender_is_at_most_two_messages_ahead() {
        let (mut sender, mut receiver) = window(1);
        assert!(!receiver.is_filled() && receiver.front().is_none());
        for round in 0..5u32 {
            for half in 0..2 {
                let mut slot = sender.try_open().unwrap();
                slot[0] = Line::from([round * 2 + half; 16]);
                slot.publish(4 + half as usize);
            }
            assert!(sender.try_open().is_none());
            for half in 0..2 {
                assert!(receiver.is_filled());
                let found = (receiver.front().unwrap()[0], receiver.bytes());
                assert_eq!(found, (Line::from([round * 2 + half; 16]), Some(4 + half as usize)));
                receiver.release();
                // A slot that is opened and dropped is still free, and unseen by the receiver.
                assert!(sender.try_open().is_some());
            }
            assert!(!receiver.is_filled());
        }
        assert_eq!((sender.sent, receiver.taken), (10, 10));
    }

    #[test]
    fn windows_do_not_overlap() {
        let sizes = [3, 0, 1, 5];
        let mut ends = windows(Buffer::zeroed(window_lines(&sizes)), &sizes);
        for message in 0..2u32 {
            for (mark, (sender, _)) in ends.iter_mut().enumerate() {
                let mut slot = sender.try_open().unwrap();
                assert!(slot.iter().all(|line| *line == Line::from([0; 16])), "untouched by the others");
                slot.fill(Line::from([mark as u32 * 2 + message + 1; 16]));
                let bytes = slot.len() * 64;
                slot.publish(bytes);
            }
        }
        for message in 0..2u32 {
            for (mark, (_, receiver)) in ends.iter_mut().enumerate() {
                assert!(receiver.is_filled());
                let front = receiver.front().unwrap();
                assert_eq!(front.len(), sizes[mark]);
                assert!(front.iter().all(|line| *line == Line::from([mark as u32 * 2 + message + 1; 16])));
                receiver.release();
            }
        }
    }

    #[test]
    #[should_panic(expected = "a message of 65 bytes in 1 lines")]
    fn a_message_fits_its_slot() {
        window(1).0.try_open().unwrap().publish(65);
    }

    #[test]
    #[should_panic(expected = "can be counted")]
    fn slots_whose_size_wraps_are_refused() {
        // Twice 2^63 lines are none where products wrap, for which an empty buffer would do.
        let _ = windows(Buffer::zeroed(0), &[1 << 63]);
    }

    #[test]
    #[should_panic(expected = "can be counted")]
    fn slots_whose_sum_wraps_are_refused() {
        let _ = windows(Buffer::zeroed(0), &[1 << 62, 1 << 62]);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::super::primitive::thread;
    use super::*;

    /// Interleavings of three messages through two slots, with as many preemptions as LOOM_MAX_PREEMPTIONS allows: each
    /// is read whole, in order, and never while it is written.
    #[test]
    fn messages_arrive_whole_and_slots_are_not_overwritten() {
        loom::model(|| {
            let (mut sender, mut receiver) = windows(Buffer::zeroed(window_lines(&[1])), &[1]).pop().unwrap();
            let writer = thread::spawn(move || {
                for number in 1..=3u32 {
                    loop {
                        if let Some(mut slot) = sender.try_open() {
                            slot[0] = Line::from([number; 16]);
                            slot.publish(number as usize);
                            break;
                        }
                        thread::yield_now();
                    }
                }
            });
            for number in 1..=3u32 {
                while !receiver.is_filled() {
                    thread::yield_now();
                }
                let found = (receiver.front().unwrap()[0], receiver.bytes());
                assert_eq!(found, (Line::from([number; 16]), Some(number as usize)));
                receiver.release();
            }
            writer.join().unwrap();
        });
    }
}
