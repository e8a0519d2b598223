//! The limits that a training step is held against, measured together.

use super::{Field, Pages, Processor, Rate, bf16_pass_peak, f32_peak, thirds_peak};
use crate::base::Result;
use crate::base::config::Precision;
use crate::machine::team::Team;

/// Memory and team for measuring a machine's limits again and again.
pub struct Ceiling<'a> {
    team: &'a Team,
    field: Field,
    precision: Precision,
    look_up_bytes: usize,
    update_bytes: usize,
}

/// What [`Ceiling::measure`] measures, in its order. The last is the peak of 32-bit floats in thirds on tiles, or the
/// first again where they are not multiplied so.
pub const CEILINGS: [&str; 5] =
    ["peak (GFLOP/s)", "stream (GB/s)", "row gather (GB/s)", "row update (GB/s)", "peak of f32 on tiles (GFLOP/s)"];

impl<'a> Ceiling<'a> {
    /// Reserves and touches the memory; the peak is that of layers of the first precision, and rows are those of tables
    /// of the second, of `dim` columns, rounded up to whole cache lines and at most 16 KiB. A processor without
    /// bfloat16 is held against its peak in 32-bit floats. The memory is of `field_bytes`, or else of
    /// [`Field::sensible_bytes`].
    ///
    /// # Errors
    /// When the hardware cannot be explored or memory is refused.
    pub fn new(
        team: &'a Team,
        dim: usize,
        [precision, of_rows]: [Precision; 2],
        field_bytes: Option<usize>,
    ) -> Result<Self> {
        let processor = Processor::of_this_machine()?;
        let bytes = field_bytes.unwrap_or_else(|| Field::sensible_bytes(processor.l3_bytes));
        let field = Field::new(team, bytes, Pages::Huge)?;
        let row = |bytes: usize| (dim * bytes).clamp(64, 16 << 10).next_multiple_of(64);
        let (look_up_bytes, update_bytes) = (row(of_rows.read_bytes()), row(of_rows.bytes()));
        Ok(Self { team, field, precision, look_up_bytes, update_bytes })
    }

    /// Measures all of [`CEILINGS`].
    pub fn measure(&mut self) -> [Rate; CEILINGS.len()] {
        let team = self.team;
        let peak = if self.precision.is_split() { bf16_pass_peak(team) } else { None };
        let peak = peak.unwrap_or_else(|| f32_peak(team));
        let read = self.field.read(team);
        let gather = self.field.gather(team, self.look_up_bytes).rate;
        let tiles = if self.precision.is_split() { None } else { thirds_peak(team) };
        [peak, read, gather, self.field.update(team, self.update_bytes).rate, tiles.unwrap_or(peak)]
    }
}
