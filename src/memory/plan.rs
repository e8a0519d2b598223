//! What a rank's stages need, laid out before any memory is taken.
//!
//! A construction that runs to measure states its needs; their sum is the size of the rank's arena, so whether
//! everything fits its node is known before the first page is touched. Invariants: regions do not overlap, each starts
//! at a multiple of its alignment, and padding between two regions is less than the second one's alignment.

use std::any::type_name;
use std::fmt;

use bytemuck::Pod;

use super::buffer::Supply;
use crate::base::units::Bytes;
use crate::base::{Error, Result};
use crate::ffi::linux::HUGE_PAGE_BYTES;

/// Where a region may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alignment {
    /// At a cache line: 64 bytes.
    Line,
    /// At a huge page: 2 MiB, for what is gathered from at random or written by one thread a page.
    HugePage,
}

impl Alignment {
    const fn bytes(self) -> usize {
        match self {
            Self::Line => 64,
            Self::HugePage => HUGE_PAGE_BYTES,
        }
    }
}

/// One region of a plan.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) name: String,
    /// How many elements of which type it is for.
    pub(super) elements: (usize, &'static str),
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

/// The regions of a plan, which are taken in their order.
pub(super) struct Regions {
    pub(super) plan: Plan,
    /// How many of them are.
    taken: usize,
}

/// What whoever builds something in an arena must hold.
pub(super) const SAME: &str = "a construction states the same needs, in the same order, whenever it runs";

impl Regions {
    pub(super) const fn of(plan: Plan) -> Self {
        Self { plan, taken: 0 }
    }

    /// The next one: each comes once.
    ///
    /// # Panics
    /// When another need was planned for it, or there is none.
    pub(super) fn take<T>(&mut self, name: &str, len: usize) -> &Planned {
        let asked = (name, (len, type_name::<T>()));
        let Some(region) = self.plan.regions.get(self.taken) else {
            panic!("{} asked for beyond the plan: {SAME}", need(asked))
        };
        let planned = (&*region.name, region.elements);
        assert!(asked == planned, "{} asked for instead of {}: {SAME}", need(asked), need(planned));
        self.taken += 1;
        region
    }

    /// # Panics
    /// When one is left.
    pub(super) fn check_all_taken(&self) {
        if let Some(Planned { name, elements, .. }) = self.plan.regions.get(self.taken) {
            panic!("{} planned and not asked for: {SAME}", need((name, *elements)));
        }
    }
}

/// A name and a number of elements of a type, for messages.
fn need((name, (len, kind)): (&str, (usize, &str))) -> String {
    format!("{name} ({len} of {kind})")
}

/// The regions of one arena.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    regions: Vec<Planned>,
    bytes: usize,
}

impl Plan {
    /// An empty plan.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What `build` needs, which runs with buffers that have no memory; what it builds is dropped.
    ///
    /// # Errors
    /// Those of `build`, and [`Error::Placement`] when the plan would exceed the address space.
    pub fn of<T>(build: impl FnOnce(&mut Supply<'_>) -> Result<T>) -> Result<Self> {
        let mut plan = Self::new();
        build(&mut Supply::Plan(&mut plan))?;
        Ok(plan)
    }

    /// States the need for `len` zeros of type `T`; `name` says for what.
    ///
    /// # Errors
    /// [`Error::Placement`] when the plan would exceed the address space.
    pub(super) fn need<T: Pod>(&mut self, name: &str, len: usize, alignment: Alignment) -> Result<()> {
        const { assert!(align_of::<T>() <= Alignment::Line.bytes(), "a line's alignment serves every number") };
        let place = || {
            let bytes = len.checked_mul(size_of::<T>())?;
            let offset = self.bytes.checked_next_multiple_of(alignment.bytes())?;
            let end = offset.checked_add(bytes).filter(|end| *end <= isize::MAX as usize)?;
            Some((offset, bytes, end))
        };
        let Some((offset, bytes, end)) = place() else {
            let reason = format!("{name}: {len} elements of {} bytes exceed the address space", size_of::<T>());
            return Err(Error::Placement { reason });
        };
        self.regions.push(Planned { name: name.to_owned(), elements: (len, type_name::<T>()), offset, bytes });
        self.bytes = end;
        Ok(())
    }

    /// The size of an arena for this plan: whole huge pages, at least one.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        if self.bytes == 0 { HUGE_PAGE_BYTES } else { self.bytes.next_multiple_of(HUGE_PAGE_BYTES) }
    }

    pub(super) fn regions(&self) -> &[Planned] {
        &self.regions
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arena of {}", Bytes(self.bytes() as u64))?;
        for region in &self.regions {
            write!(f, "\n  {:#012x} {:>10} {}", region.offset, Bytes(region.bytes as u64).to_string(), region.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_aligned_and_do_not_overlap() {
        let mut plan = Plan::new();
        assert_eq!(plan.bytes(), HUGE_PAGE_BYTES);
        plan.need::<f32>("bias", 17, Alignment::Line).unwrap();
        plan.need::<u64>("rows", 3, Alignment::HugePage).unwrap();
        plan.need::<f64>("nothing", 0, Alignment::Line).unwrap();
        plan.need::<u8>("flags", 5, Alignment::Line).unwrap();
        let regions: Vec<_> = plan.regions().iter().map(|region| (region.offset, region.bytes)).collect();
        let second = HUGE_PAGE_BYTES + 64;
        assert_eq!(regions, [(0, 68), (HUGE_PAGE_BYTES, 24), (second, 0), (second, 5)]);
        assert_eq!(plan.bytes(), 2 * HUGE_PAGE_BYTES);
        let text = plan.to_string();
        assert!(text.starts_with("arena of 4.0 MiB\n") && text.contains("0x0000200000       24 B rows"), "{text}");
    }

    #[test]
    fn absurd_needs_are_errors_and_leave_the_plan_alone() {
        let mut plan = Plan::new();
        for len in [usize::MAX, usize::MAX / 4, isize::MAX as usize / 4 + 1] {
            let message = plan.need::<f32>("table 7", len, Alignment::Line).unwrap_err().to_string();
            assert!(message.contains("table 7") && message.contains("address space"), "{message}");
        }
        assert!(plan.regions().is_empty() && plan.bytes() == HUGE_PAGE_BYTES);
    }
}
