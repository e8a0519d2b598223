//! The field of numbers on which memory is measured: large, on pages of a chosen size, touched by its team.
//!
//! Every cell holds a small whole number, so that all sums are exact in any order and every pass can be checked.

use serde::Serialize;

use super::stream::Sum;
use crate::base::{NodeId, Result, even_part};
use crate::ffi::linux::{HUGE_PAGE_BYTES, Region, Reservation};
use crate::ffi::numa::NodeMask;
use crate::machine::team::Team;
use crate::memory::{Homes, available_bytes};
use crate::sync::{Each, Line, Rows};

/// The size of memory pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB, as far as the kernel has them to give.
    Huge,
}

impl Pages {
    /// Both sizes.
    pub const ALL: [Self; 2] = [Self::Small, Self::Huge];

    /// As people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "4 KiB",
            Self::Huge => "2 MiB",
        }
    }
}

/// Memory to measure on: cells of f32, each a whole number in 0..=255 after [`Field::new`].
#[derive(Debug)]
pub struct Field {
    region: Region,
    pages: Pages,
}

/// Cells that are summed at a time in f32: 64 running sums of at most 4096 numbers each stay exact (below 2^24).
pub(super) const BLOCK: usize = 256 << 10;

impl Field {
    /// A size in bytes that measures memory and not a cache of `l3_bytes`: the larger of 1 GiB and 4 x L3, but at most
    /// an eighth of what is available; whole huge pages.
    #[must_use]
    pub fn sensible_bytes(l3_bytes: Option<u64>) -> usize {
        let wanted = (4 * l3_bytes.unwrap_or(0)).max(1 << 30);
        let limit = available_bytes().map_or(wanted, |bytes| bytes / 8);
        let bytes = usize::try_from(wanted.min(limit)).unwrap_or(1 << 30);
        bytes.next_multiple_of(HUGE_PAGE_BYTES).max(2 * HUGE_PAGE_BYTES)
    }

    /// Reserves at least `bytes` bytes and fills them, each thread of `team` its own share, which settles the nodes
    /// they lie on.
    ///
    /// # Errors
    /// When the system has no address space to give, or no pages of the wished kind.
    pub fn new(team: &Team, bytes: usize, pages: Pages) -> Result<Self> {
        Self::fill(team, Reservation::new(bytes)?, pages)
    }

    /// As [`Field::new`], on a node of several. A kernel that forbids to bind memory places it by first touch: where
    /// `team` runs.
    ///
    /// # Errors
    /// As [`Field::new`].
    pub fn on(team: &Team, bytes: usize, pages: Pages, node: NodeId) -> Result<Self> {
        let reservation = Reservation::new(bytes)?;
        // Refused or not, `team` is there: what lies elsewhere is told by `Field::strays`.
        let _ = reservation.bind(&NodeMask::of(&[node]));
        Self::fill(team, reservation, pages)
    }

    fn fill(team: &Team, reservation: Reservation, pages: Pages) -> Result<Self> {
        reservation.advise_huge(pages == Pages::Huge)?;
        let mut field = Self { region: reservation.open()?, pages };
        team.each(Rows::new(field.cells_mut(), Line::FLOATS, team.threads(), 1), |band| {
            for (index, cell) in (band.first * Line::FLOATS..).zip(band.data) {
                // The upper bits of a multiplicative hash (Knuth, TAOCP volume 3, 6.4).
                *cell = ((index as u32).wrapping_mul(0x9E37_79B1) >> 24) as f32;
            }
        });
        Ok(field)
    }

    /// The share of its pages that the kernel says are not on `node`; 0 where it does not say.
    #[must_use]
    pub fn strays(&self, node: NodeId) -> f64 {
        let bytes = self.region.bytes();
        let homes = Homes::ask(bytes.as_ptr(), bytes.len(), &[node]);
        homes.map_or(0.0, |homes| homes.elsewhere.values().sum::<usize>() as f64 / homes.pages.max(1) as f64)
    }

    /// Which pages were wished for.
    #[must_use]
    pub const fn pages(&self) -> Pages {
        self.pages
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.region.bytes().len()
    }

    /// All numbers.
    #[must_use]
    pub fn cells(&self) -> &[f32] {
        bytemuck::cast_slice(self.region.bytes())
    }

    pub(super) fn cells_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(self.region.bytes_mut())
    }

    /// The exact sum of all cells.
    #[must_use]
    pub fn sum(&self, team: &Team) -> f64 {
        let (cells, threads, isa) = (self.cells(), team.threads(), team.isa());
        shares(team, |thread| isa.run(Sum { cells: share(cells, Line::FLOATS, thread, threads) }))
    }
}

/// The `thread`-th of `threads` nearly equal shares of `cells`, in whole pieces of `grain` cells.
pub(super) fn share(cells: &[f32], grain: usize, thread: usize, threads: usize) -> &[f32] {
    let pieces = even_part(cells.len() / grain, thread, threads);
    &cells[pieces.start * grain..pieces.end * grain]
}

/// The sum of what `body` returns on each thread.
pub(super) fn shares(team: &Team, body: impl Fn(usize) -> f64 + Sync) -> f64 {
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Slot(usize, f64);
    let mut slots: Vec<Slot> = (0..team.threads()).map(|thread| Slot(thread, 0.0)).collect();
    team.each(Each::new(&mut slots), |slot| slot.1 = body(slot.0));
    slots.iter().map(|slot| slot.1).sum()
}
