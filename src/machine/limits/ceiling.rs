//! The four limits that a training step is held against, measured together.

use super::{Field, Pages, Processor, Rate, f32_peak};
use crate::base::Result;
use crate::machine::team::Team;

/// Memory and team for measuring a machine's limits again and again.
pub struct Ceiling<'a> {
    team: &'a Team,
    field: Field,
    row_bytes: usize,
}

/// What [`Ceiling::measure`] measures, in its order.
pub const CEILINGS: [&str; 4] = ["f32 peak (GFLOP/s)", "stream (GB/s)", "row gather (GB/s)", "row update (GB/s)"];

impl<'a> Ceiling<'a> {
    /// Reserves and touches the memory; rows have `row_bytes` bytes, rounded up to whole cache lines and at most
    /// 16 KiB.
    ///
    /// # Errors
    /// When the hardware cannot be explored or memory is refused.
    pub fn new(team: &'a Team, row_bytes: usize) -> Result<Self> {
        let processor = Processor::of_this_machine()?;
        let field = Field::new(team, Field::sensible_bytes(processor.l3_bytes), Pages::Huge)?;
        Ok(Self { team, field, row_bytes: row_bytes.clamp(64, 16 << 10).next_multiple_of(64) })
    }

    /// Measures all of [`CEILINGS`].
    pub fn measure(&mut self) -> [Rate; CEILINGS.len()] {
        let (team, row_bytes) = (self.team, self.row_bytes);
        let read = self.field.read(team);
        let gather = self.field.gather(team, row_bytes).rate;
        [f32_peak(team), read, gather, self.field.update(team, row_bytes).rate]
    }
}
