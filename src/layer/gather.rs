//! Vectors from several places, side by side: what a layer reads that has no neighbour of its own to read from.
//!
//! A layer whose only neighbour writes its input, or reads its output, works in place. Where several layers read the
//! same numbers, each has its own copy, and their gradients are added here, in the order of the readers.

use crate::base::Result;
use crate::machine::team::Team;
use crate::math::brgemm::{Panels, Row, WIDTH};
use crate::math::{StridedRows, StridedRowsMut};
use crate::memory::{Buffer, Supply};
use crate::simd::{Kernel, Simd};
use crate::sync::{GridPart, Rows};

/// Numbers of many samples.
#[derive(Debug, Clone, Copy)]
pub enum Numbers<'a> {
    /// From the first of each row on.
    Rows(StridedRows<'a>),
    /// All of each row.
    Panels(&'a Panels<f32>),
}

/// Vectors side by side, of the current part of a minibatch; on the way back their gradient takes their place.
#[derive(Debug)]
pub struct Gather {
    /// Numbers of each.
    widths: Vec<usize>,
    row: usize,
    rows: Buffer<f32>,
}

impl Gather {
    /// Of vectors of these widths, with room for `samples`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(widths: Vec<usize>, samples: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let row = widths.iter().sum();
        Ok(Self { widths, row, rows: supply.buffer("gathered vectors", samples * row)? })
    }

    /// The vectors of each sample, or their gradient.
    #[must_use]
    pub fn rows(&self) -> StridedRows<'_> {
        StridedRows { data: &self.rows, stride: self.row }
    }

    /// The vectors of each sample, to be replaced by their gradient.
    pub fn rows_mut(&mut self) -> StridedRowsMut<'_> {
        StridedRowsMut { data: &mut self.rows, stride: self.row }
    }

    /// Takes the vectors of so many samples from where they are, by their numbers.
    pub fn take<'a>(&mut self, team: &Team, samples: usize, from: impl Fn(usize) -> Numbers<'a> + Sync) {
        let Self { widths, row, rows, .. } = self;
        let (widths, row) = (&*widths, *row);
        if samples * row == 0 {
            return;
        }
        team.share(Rows::new(&mut rows[..samples * row], row, team.pieces(), 1), |band| {
            let mut start = 0;
            for (vector, &width) in widths.iter().enumerate() {
                match from(vector) {
                    Numbers::Panels(panels) => {
                        panels.export(band.first..band.first + band.rows, &mut band.data[start..], row);
                    }
                    Numbers::Rows(numbers) => {
                        for (to, from) in band.data.chunks_exact_mut(row).zip(numbers.rows_from(band.first)) {
                            to[start..start + width].copy_from_slice(&from[..width]);
                        }
                    }
                }
                start += width;
            }
        });
    }
}

/// Writes to the first `samples` rows of `to` the sums of `count` vectors of as many numbers, `from` their first to
/// their last; 0 where a row of `gate`, if there is one, has no number above 0.
///
/// # Panics
/// When a matrix has too few rows.
pub fn sum_rows<'a>(
    team: &Team,
    samples: usize,
    (count, from): (usize, &(dyn Fn(usize) -> StridedRows<'a> + Sync)),
    gate: Option<&Panels<f32>>,
    to: &mut Panels<f32>,
) {
    let (isa, columns) = (team.isa(), to.columns());
    assert!(to.rows() >= samples, "{to:?} takes {samples} rows");
    team.share(to.grid(samples, team.pieces(), 1), |to| {
        isa.run(Sums { count, from, gate, columns, to });
    });
}

struct Sums<'a, 'b> {
    count: usize,
    from: &'a (dyn Fn(usize) -> StridedRows<'b> + Sync),
    gate: Option<&'a Panels<f32>>,
    columns: usize,
    to: GridPart<'a, Row<f32>>,
}

impl Kernel for Sums<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { count, from, gate, columns, mut to } = self;
        let (first, panels) = (to.rows().start, to.panels());
        for vector in 0..count {
            let StridedRows { data, stride } = from(vector);
            for panel in panels.clone() {
                let (start, width) = (panel * WIDTH, WIDTH.min(columns - panel * WIDTH));
                for (row, to) in to.panel(panel).iter_mut().enumerate() {
                    let from = &data[(first + row) * stride + start..][..width];
                    match vector {
                        0 => to[..width].copy_from_slice(from),
                        _ => to[..width].iter_mut().zip(from).for_each(|(to, from)| *to += from),
                    }
                }
            }
        }
        let Some(gate) = gate else { return };
        for panel in panels {
            for (to, gate) in to.panel(panel).iter_mut().zip(&gate.panel(panel)[first..]) {
                for lane in (0..WIDTH).step_by(S::LANES) {
                    // Padding of a gate is 0.
                    let gated = simd.gate(simd.load(&to[lane..]), simd.load(&gate[lane..]));
                    simd.store(gated, &mut to[lane..]);
                }
            }
        }
    }
}

/// A part of a reader's gradient that belongs to a part of what it read.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// The reader's number.
    pub reader: usize,
    /// Where it begins in the reader's rows.
    pub from: usize,
    /// Where it begins in what was read.
    pub to: usize,
    /// Numbers.
    pub width: usize,
    /// Whether no reader before has given any of it.
    pub is_first: bool,
}

/// Writes to the first `samples` rows of `to` the sums of what readers' gradients have of them, in their order.
pub fn sum_readings<'a>(
    team: &Team,
    samples: usize,
    readings: &[Reading],
    gradient: &(dyn Fn(usize) -> StridedRows<'a> + Sync),
    to: StridedRowsMut<'_>,
) {
    let StridedRowsMut { data: to, stride: row } = to;
    if samples * row == 0 {
        return;
    }
    team.share(Rows::new(&mut to[..samples * row], row, team.pieces(), 1), |band| {
        for reading in readings {
            let gradients = gradient(reading.reader).rows_from(band.first);
            for (to, from) in band.data.chunks_exact_mut(row).zip(gradients) {
                let (to, from) = (&mut to[reading.to..][..reading.width], &from[reading.from..][..reading.width]);
                match reading.is_first {
                    true => to.copy_from_slice(from),
                    false => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
                }
            }
        }
    });
}

/// Writes the first `samples` rows of a matrix `count` times side by side, to as many rows.
pub fn spread_rows(team: &Team, samples: usize, count: usize, from: &Panels<f32>, to: StridedRowsMut<'_>) {
    let (StridedRowsMut { data: to, stride: row }, width) = (to, from.columns());
    if samples * row == 0 {
        return;
    }
    team.share(Rows::new(&mut to[..samples * row], row, team.pieces(), 1), |band| {
        for copy in 0..count {
            from.export(band.first..band.first + band.rows, &mut band.data[copy * width..], row);
        }
    });
}
