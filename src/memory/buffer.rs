//! A fixed-size array of numbers, aligned for vectors, on huge pages when it is large.
//!
//! Random 256-byte gathers run 2 to 3 times faster on 2 MiB pages, because each 4 KiB page needs a translation of its
//! own; so large buffers start at a 2 MiB boundary and ask for huge pages.
//!
//! A buffer comes from the system, zeroed and untouched, or from a rank's arena. What lies in an arena is built twice
//! by the same construction: once to measure, with buffers that have no memory and whose sum is the arena's plan, and
//! once for good, when the arena stands and each buffer is the next region of it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::{Advice, MmapMut, MmapOptions};

use super::arena::{Arena, ArenaSlice};
use super::file::FileMap;
use super::heap::exhausted;
use super::plan::{Alignment, Plan};
use crate::base::Result;

const HUGE_PAGE: usize = 2 << 20;

/// A zero-initialised array of numbers; at least 64-byte aligned.
pub struct Buffer<T>(State<T>);

enum State<T> {
    /// Of a run that measures, with this name: no memory.
    Planned(String),
    /// A region of an arena.
    Region(ArenaSlice<T>),
    /// A mapping of its own: `bytes` from `offset` on.
    Alone { map: MmapMut, offset: usize, bytes: usize },
    /// `bytes` from `offset` on of a file, which are read where they are.
    File { map: Arc<FileMap>, offset: usize, bytes: usize },
    /// Of length 0.
    Empty,
}

/// Where a component's buffers come from.
pub enum Supply<'a> {
    /// Each from the system, at once.
    System,
    /// From nowhere: needs are stated, and the buffers have no memory and must not be used.
    Plan(&'a mut Plan),
    /// Each is the next region of this arena, which was planned for it.
    Arena(&'a mut Arena),
}

impl Supply<'_> {
    /// A buffer of `len` numbers; `name` says what for.
    ///
    /// # Errors
    /// When the plan would exceed the address space.
    ///
    /// # Panics
    /// When a size from the system is beyond the address space; whether there is memory is checked before, by whoever
    /// plans it. And when the arena's next region was planned for another need.
    pub fn buffer<T: Pod>(&mut self, name: &str, len: usize) -> Result<Buffer<T>> {
        let alignment = if len * size_of::<T>() >= HUGE_PAGE { Alignment::HugePage } else { Alignment::Line };
        match self {
            Self::System => Ok(Buffer::zeroed(len)),
            Self::Plan(plan) => {
                plan.need::<T>(name, len, alignment)?;
                Ok(Buffer(State::Planned(name.to_owned())))
            }
            Self::Arena(arena) => Ok(Buffer(State::Region(arena.take(name, len)))),
        }
    }
}

impl<T: Pod> Buffer<T> {
    /// `len` zeros from the system; where it has none to give, the process ends: see [`exhausted`].
    ///
    /// # Panics
    /// When so many numbers fit no address space.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let bytes = len.checked_mul(size_of::<T>()).expect("a buffer's size fits the address space");
        if bytes == 0 {
            return Self(State::Empty);
        }
        let huge = bytes >= HUGE_PAGE;
        let reserve = if huge { bytes + HUGE_PAGE } else { bytes };
        let map = MmapOptions::new().len(reserve).map_anon();
        let map = map.unwrap_or_else(|_| exhausted(bytes));
        let offset = if huge { map.as_ptr().align_offset(HUGE_PAGE) } else { 0 };
        if huge {
            // A hint: a kernel without huge pages serves small ones.
            let _ = map.advise_range(Advice::HugePage, offset, bytes);
        }
        Self(State::Alone { map, offset, bytes })
    }

    /// `len` numbers of a mapped file, from byte `offset` on, to be read only; nothing where they are not aligned, or
    /// the file has fewer. (Unlike other buffers, this one begins where the file has it.)
    #[must_use]
    pub fn of_file(map: &Arc<FileMap>, offset: usize, len: usize) -> Option<Self> {
        let bytes = len.checked_mul(size_of::<T>())?;
        let region = map.get(offset..offset.checked_add(bytes)?)?;
        if region.is_empty() {
            return Some(Self(State::Empty));
        }
        let is_aligned = region.as_ptr().addr().is_multiple_of(align_of::<T>());
        is_aligned.then(|| Self(State::File { map: Arc::clone(map), offset, bytes }))
    }

    /// Makes room for `len` numbers, which are zeros afterwards if there was less: only a need that is larger than was
    /// planned and than all before it takes memory.
    pub fn grow(&mut self, len: usize) {
        if self.len() < len {
            *self = Self::zeroed(len.next_power_of_two());
        }
    }
}

impl<T> Default for Buffer<T> {
    /// Of length 0.
    fn default() -> Self {
        Self(State::Empty)
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.0 {
            State::Region(slice) => slice,
            State::Alone { map, offset, bytes } => bytemuck::cast_slice(&map[*offset..offset + bytes]),
            State::File { map, offset, bytes } => bytemuck::cast_slice(&map[*offset..offset + bytes]),
            State::Empty => &[],
            State::Planned(name) => without_memory(name),
        }
    }
}

impl<T: Pod> DerefMut for Buffer<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            State::Region(slice) => slice,
            State::Alone { map, offset, bytes } => bytemuck::cast_slice_mut(&mut map[*offset..*offset + *bytes]),
            State::Empty => &mut [],
            State::File { .. } => panic!("a file's numbers are only read"),
            State::Planned(name) => without_memory(name),
        }
    }
}

#[cold]
fn without_memory(name: &str) -> ! {
    panic!("a buffer was used before its arena was built, while needs were measured: {name}")
}

impl<T: Pod> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Planned(name) => write!(f, "Buffer({name}, without memory)"),
            _ => write!(f, "Buffer({} bytes)", size_of_val::<[T]>(self)),
        }
    }
}

/// An empty list with the memory of another: elements that differ in nothing but lifetimes are collected in place.
pub fn recycled<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::base::NodeId;
    use crate::memory::plan::SAME;

    #[test]
    fn buffers_are_zero_and_aligned_wherever_they_come_from() {
        let lengths = [0, 1, 1000, (HUGE_PAGE / 4) + 3];
        let build = |supply: &mut Supply<'_>| -> Result<Vec<Buffer<f32>>> {
            lengths.iter().map(|&len| supply.buffer("part", len)).collect()
        };
        let (regions, _) = Arena::of(&[NodeId(0)], |bytes| bytes.fill(0), build).unwrap();
        let alone = build(&mut Supply::System).unwrap();
        for (mut buffer, len) in regions.into_iter().chain(alone).zip(lengths.iter().chain(&lengths)) {
            assert_eq!(buffer.len(), *len);
            assert!(buffer.iter().all(|&x| x == 0.0));
            buffer.fill(1.0);
            let alignment = if len * 4 >= HUGE_PAGE { HUGE_PAGE } else { 64 };
            assert!(*len == 0 || buffer.as_ptr().addr().is_multiple_of(alignment));
        }
    }

    #[test]
    fn numbers_of_a_file_are_read_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        std::fs::write(&path, bytemuck::cast_slice::<u32, u8>(&[1, 2, 3, 4])).unwrap();
        let map = Arc::new(FileMap::open(&path).unwrap());
        let of = |offset, len| Buffer::<u32>::of_file(&map, offset, len);
        assert_eq!(of(4, 2).unwrap()[..], [2, 3]);
        assert_eq!(of(4, 2).unwrap().as_ptr().addr(), map.as_ptr().addr() + 4);
        assert!(
            of(16, 0).unwrap().is_empty() && of(16, 1).is_none() && of(2, 1).is_none() && of(0, usize::MAX).is_none()
        );
    }

    #[test]
    #[should_panic(expected = "a file's numbers are only read")]
    fn numbers_of_a_file_are_not_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0; 8]).unwrap();
        let map = Arc::new(FileMap::open(file.path()).unwrap());
        Buffer::<u32>::of_file(&map, 0, 2).unwrap()[0] = 1;
    }

    #[test]
    #[should_panic(expected = "used before its arena was built")]
    fn a_planned_buffer_has_no_memory_yet() {
        let _ = Plan::of(|supply| Ok(supply.buffer::<f32>("weights", 10)?.len()));
    }

    #[test]
    fn other_needs_than_were_planned_are_refused() {
        type Build = fn(&mut Supply<'_>) -> Result<()>;
        let planned: Build = |supply| {
            supply.buffer::<u8>("own", 8)?;
            supply.buffer::<f32>("rows", 3).map(drop)
        };
        let more: Build = |supply| {
            supply.buffer::<u8>("own", 8)?;
            supply.buffer::<f32>("rows", 3)?;
            supply.buffer::<u8>("more", 1).map(drop)
        };
        let others: [(Build, &str); 5] = [
            (|supply| supply.buffer::<u8>("own", 9).map(drop), "own (9 of u8) asked for instead of own (8 of u8)"),
            (|supply| supply.buffer::<i8>("own", 8).map(drop), "own (8 of i8) asked for instead of own (8 of u8)"),
            (|supply| supply.buffer::<f32>("rows", 3).map(drop), "rows (3 of f32) asked for instead of own (8 of u8)"),
            (|supply| supply.buffer::<u8>("own", 8).map(drop), "rows (3 of f32) planned and not asked for"),
            (more, "more (1 of u8) asked for beyond the plan"),
        ];
        let plan = Plan::of(planned).unwrap();
        for (build, message) in others {
            let mut arena = Arena::build(plan.clone(), &[NodeId(0)], |bytes| bytes.fill(0)).unwrap();
            let panic = catch_unwind(AssertUnwindSafe(|| arena.fill(build))).expect_err(message);
            assert_eq!(*panic.downcast::<String>().unwrap(), format!("{message}: {SAME}"));
        }
    }
}
