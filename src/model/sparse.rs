//! Sparse gradients of a rank: sums by rows, of those rows alone that a step meets.

use super::table_group::GroupSpec;
use crate::base::Result;
use crate::embedding::{Source, Table, Updater};
use crate::machine::team::Team;
use crate::memory::{Arena, Supply};
use crate::optim::ParamState;
use crate::sync::Rows;

/// Rows of a table that a step meets.
#[derive(Debug)]
pub(super) struct RowSet {
    /// A bit a row.
    bits: Vec<u64>,
    /// Those that are listed, rising.
    rows: Vec<u32>,
}

impl RowSet {
    /// With room for all of so many rows.
    pub(super) fn new(rows: usize) -> Self {
        Self { bits: vec![0; rows.div_ceil(64)], rows: Vec::with_capacity(rows) }
    }

    /// Adds a row.
    #[inline(always)]
    pub(super) fn mark(&mut self, row: u32) {
        self.bits[row as usize / 64] |= 1 << (row % 64);
    }

    /// Lists the rows that were marked, rising, and forgets the marks.
    pub(super) fn list(&mut self) -> &[u32] {
        self.rows.clear();
        for (word, bits) in self.bits.iter_mut().enumerate() {
            while *bits != 0 {
                self.rows.push(64 * word as u32 + bits.trailing_zeros());
                *bits &= *bits - 1;
            }
        }
        &self.rows
    }

    /// Those that were listed last.
    pub(super) fn rows(&self) -> &[u32] {
        &self.rows
    }
}

/// Sums of the gradients of some tables' rows.
#[derive(Debug)]
pub(super) struct SparseGradients {
    /// A row a row of each table: 0 between steps.
    sums: Vec<Table>,
    updater: Updater,
    met: Vec<RowSet>,
    zeros: Vec<f32>,
}

impl SparseGradients {
    /// Of tables of these names and rows, which are looked up as `spec` says.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub(super) fn new(
        tables: impl Iterator<Item = (String, usize)>,
        spec: &GroupSpec<'_>,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        // Plain SGD on 32-bit floats adds up.
        let kept = ParamState::default();
        let (mut sums, mut met) = (Vec::new(), Vec::new());
        for (name, rows) in tables {
            sums.push(Table::new(name, rows as u64, spec.dim, kept, supply)?);
            met.push(RowSet::new(rows));
        }
        Ok(Self { updater: spec.updater(sums.len(), kept, supply)?, sums, met, zeros: vec![0.0; spec.dim] })
    }

    /// Takes all planned buffers from the arena.
    pub(super) fn settle(&mut self, arena: &mut Arena) {
        self.sums.iter_mut().for_each(|table| table.settle(arena));
        self.updater.settle(arena);
    }

    /// Adds up the gradients of these look-ups, each table's by rows.
    pub(super) fn sum(&mut self, team: &Team, source: Source<'_>) {
        let Self { sums, updater, met, .. } = self;
        if !source.gradient.is_empty() {
            // An update of zeros at rate -1 adds gradients up.
            updater.run(team, sums, &[source], -1.0);
        }
        let tables = met.len();
        team.share(Rows::new(met, 1, tables, 1), |band| {
            for (at, met) in (band.first..).zip(band.data) {
                source.lookups.bag(at).rows.iter().for_each(|row| met.mark(*row));
                met.list();
            }
        });
    }

    /// The rows of a table that have gradients, rising, with their sums.
    pub(super) fn of(&self, table: usize) -> impl Iterator<Item = (u32, &[f32])> + Clone {
        let sums = &self.sums[table];
        self.met[table].rows().iter().map(|row| (*row, sums.row(*row as usize)))
    }

    /// Makes all sums 0 again.
    pub(super) fn clear(&mut self) {
        for (sums, met) in self.sums.iter_mut().zip(&self.met) {
            met.rows().iter().for_each(|row| sums.set_weights(*row as usize, &self.zeros));
        }
    }
}
