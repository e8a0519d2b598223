//! A time series: each sample becomes as many rows as it has steps, one behind the other.
//!
//! At a step, the vector of a sequence is the row of its look-up there, and that of any other table its pooled row,
//! which is the same at all of them; the step's position in the series is a dense feature before the sample's. A step
//! is there if a sequence has a look-up for it: series that are shorter begin later.

use crate::base::Result;
use crate::machine::team::Team;
use crate::math::brgemm::{Panels, WIDTH};
use crate::math::{Part, StridedRows, StridedRowsMut};
use crate::memory::{Buffer, Supply};
use crate::sync::Rows;

/// Vectors of each step, of the current part of a minibatch; on the way back their gradient takes their place.
#[derive(Debug)]
pub struct Steps {
    tables: Vec<Column>,
    /// Those that are sequences.
    sequences: Vec<usize>,
    steps: usize,
    /// Elements of a sample's features, and of a step's vectors.
    rows: [usize; 2],
    vectors: Buffer<f32>,
    /// 1 where a step is there, else 0.
    there: Buffer<f32>,
}

/// Where a table's vector is.
#[derive(Debug, Clone, Copy)]
struct Column {
    sequence: bool,
    dim: usize,
    /// Where it begins in a sample's features.
    from: usize,
    /// Where it begins in a step's vectors.
    to: usize,
}

impl Steps {
    /// For tables with `dims` columns each, of which a sample's features have `positions` rows each: one, or as many as
    /// there are `steps`. Has room for parts of `samples`.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When a table has another number of rows.
    pub fn new(
        (dims, positions, steps): (&[usize], &[usize], usize),
        samples: usize,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let mut rows = [0; 2];
        let tables = dims.iter().zip(positions).map(|(&dim, &positions)| {
            assert!(positions == 1 || positions == steps, "a row for all of {steps} steps, or one for each");
            let [from, to] = rows;
            rows = [from + positions * dim, to + dim];
            Column { sequence: positions > 1, dim, from, to }
        });
        let tables: Vec<Column> = tables.collect();
        let sequences = tables.iter().enumerate().filter(|(_, table)| table.sequence).map(|(table, _)| table).collect();
        let elements = samples * steps * rows[1];
        Ok(Self {
            tables,
            sequences,
            steps,
            rows,
            vectors: supply.buffer("vectors of steps", elements)?,
            there: supply.buffer("steps that are there", samples * steps)?,
        })
    }

    /// Steps of a sample.
    #[must_use]
    pub const fn steps(&self) -> usize {
        self.steps
    }

    /// Of the steps of the part's samples in turn, 1 where it is there, else 0.
    #[must_use]
    pub fn there(&self) -> &[f32] {
        &self.there
    }

    /// The vectors of each step.
    #[must_use]
    pub fn vectors(&self) -> StridedRows<'_> {
        StridedRows { data: &self.vectors, stride: self.rows[1] }
    }

    /// The same, to be replaced by their gradient.
    pub fn vectors_mut(&mut self) -> StridedRowsMut<'_> {
        StridedRowsMut { data: &mut self.vectors, stride: self.rows[1] }
    }

    /// Notes which steps of a part's samples are there, by where the bags of each table's look-ups begin, a bag a step,
    /// and writes the dense features of each to `inputs`, if they are asked for; `dense` are those of the whole slice.
    pub fn begin<'a>(
        &mut self,
        team: &Team,
        part: &Part<'_>,
        offsets: &(dyn Fn(usize) -> &'a [u32] + Sync),
        dense: StridedRows<'_>,
        inputs: Option<&mut Panels<f32>>,
    ) {
        let (steps, samples, first) = (self.steps, part.samples.len(), part.samples.start);
        if samples == 0 {
            return;
        }
        let Self { sequences, there, .. } = self;
        let sequences = &*sequences;
        team.share(Rows::new(&mut there[..samples * steps], steps, team.pieces(), 1), |band| {
            for (there, at) in band.data.iter_mut().zip((first + band.first) * steps..) {
                let found = sequences.iter().any(|table| offsets(*table)[at] < offsets(*table)[at + 1]);
                *there = f32::from(u8::from(found));
            }
        });
        let Some(inputs) = inputs else { return };
        let columns = inputs.columns();
        team.share(inputs.grid(samples * steps, team.pieces(), steps), |mut grid| {
            for (index, row) in grid.rows().enumerate() {
                let dense = &dense.data[(first + row / steps) * dense.stride..][..columns - 1];
                for (panel, start) in (0..columns).step_by(WIDTH).enumerate() {
                    let mut to = &mut grid.panel(panel)[index][..WIDTH.min(columns - start)];
                    if start == 0 {
                        to[0] = ((row % steps) as f64 / steps as f64) as f32;
                        to = &mut to[1..];
                    }
                    to.copy_from_slice(&dense[start.saturating_sub(1)..][..to.len()]);
                }
            }
        });
    }

    /// Takes the vectors of each step of `samples` samples from their features.
    pub fn take(&mut self, team: &Team, samples: usize, features: &[f32]) {
        let Self { tables, steps, rows: [from_row, to_row], vectors, .. } = self;
        let (steps, from_row, to_row) = (*steps, *from_row, *to_row);
        if samples * to_row == 0 {
            return;
        }
        let (tables, to) = (&*tables, &mut vectors[..samples * steps * to_row]);
        team.share(Rows::new(to, steps * to_row, team.pieces(), 1), |band| {
            let samples =
                band.data.chunks_exact_mut(steps * to_row).zip(features.chunks_exact(from_row).skip(band.first));
            for (to, from) in samples {
                for (step, to) in to.chunks_exact_mut(to_row).enumerate() {
                    for &Column { sequence, dim, from: start, to: at } in tables {
                        let start = start + if sequence { step * dim } else { 0 };
                        to[at..at + dim].copy_from_slice(&from[start..start + dim]);
                    }
                }
            }
        });
    }

    /// Puts the gradients of the vectors of each step of `samples` samples in the place of their features.
    pub fn put(&self, team: &Team, samples: usize, to: &mut [f32]) {
        let Self { tables, steps, rows: [to_row, from_row], vectors, .. } = self;
        let (steps, to_row, from_row) = (*steps, *to_row, *from_row);
        if samples * to_row == 0 {
            return;
        }
        team.share(Rows::new(&mut to[..samples * to_row], to_row, team.pieces(), 1), |band| {
            let samples =
                band.data.chunks_exact_mut(to_row).zip(vectors.chunks_exact(steps * from_row).skip(band.first));
            for (to, from) in samples {
                for (step, from) in from.chunks_exact(from_row).enumerate() {
                    for &Column { sequence, dim, from: start, to: at } in tables {
                        let start = start + if sequence { step * dim } else { 0 };
                        let (to, from) = (&mut to[start..start + dim], &from[at..at + dim]);
                        match sequence || step == 0 {
                            true => to.copy_from_slice(from),
                            false => to.iter_mut().zip(from).for_each(|(to, from)| *to += from),
                        }
                    }
                }
            }
        });
    }
}
