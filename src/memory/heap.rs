//! The allocator of the command: the system's, except that a process without memory ends with a message and exit code 1
//! where it would be ended by a signal.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::{self, Write};

use crate::base::panics;
use crate::base::units::Bytes;
use crate::ffi::signals::{end_with, tell_aborts_without_memory};

/// To be named with `#[global_allocator]`.
#[derive(Debug)]
pub struct Heap;

// SAFETY: all memory is the system allocator's, under the same promises; a call that it refuses does not return.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise about `layout` is the one that is wanted here.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as `alloc`.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as `alloc`; and `memory` is the system allocator's, as all that this one gives.
        unsafe { System.dealloc(memory, layout) };
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as `dealloc`, and the caller's promise about `size` is the one that is wanted here.
        given(unsafe { System.realloc(memory, layout, size) }, size)
    }
}

#[inline]
fn given(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() {
        exhausted(bytes);
    }
    memory
}

/// Ends the process because the system has not so many bytes more for it: with a message, exit code 1, and nothing that
/// would need memory.
#[cold]
pub fn exhausted(bytes: usize) -> ! {
    let message = last_words(bytes);
    end_with(&message.text[..message.len])
}

fn last_words(bytes: usize) -> Message {
    let mut message = Message { text: [0; 512], len: 0 };
    // It fits.
    let _ = writeln!(
        message,
        "error: out of memory: the system refuses {} more: allow this process more (ulimit -v, the container's limit), or use \
         less: fewer --ranks or --threads, a smaller --batch or train.eval_batch, a smaller --memory for preprocess; what \
         was saved before is whole",
        Bytes(bytes as u64)
    );
    message
}

/// What the standard library says, in a panic, of a thread whose start the system has no room for.
const NO_ROOM_FOR_A_THREAD: &str = "alternative stack";

/// Bytes of such a stack, on which a thread is told that its own has overflowed.
const ALTERNATIVE_STACK: usize = 8 << 10;

/// From now on a thread that gets no memory for its start ends the process as [`exhausted`] does, whether the standard
/// library panics there or the C library aborts.
pub fn watch_starts_of_threads() {
    let message = last_words(ALTERNATIVE_STACK);
    tell_aborts_without_memory(message.text[..message.len].to_vec());
    panics::watch(|words| {
        if words.contains(NO_ROOM_FOR_A_THREAD) {
            exhausted(ALTERNATIVE_STACK);
        }
    });
}

/// Text that needs no memory.
struct Message {
    text: [u8; 512],
    len: usize,
}

impl Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.text[self.len..].len().min(text.len());
        self.text[self.len..][..room].copy_from_slice(&text.as_bytes()[..room]);
        self.len += room;
        Ok(())
    }
}
