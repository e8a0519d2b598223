//! The model's tensors, wherever ranks hold their parts: by name, and by ranges of rows, so that nobody needs a second
//! copy of a large one.

use std::ops::Range;

use super::Ranks;
use super::rank::Rank;
use crate::base::{RankId, Result, TableId};
use crate::embedding::TableTensor;
use crate::layer::LayerTensor;
use crate::model::{Parameter, Project, TensorSlot, table_param_groups};
use crate::shard::Shard;

/// Which machines take part when rows of a tensor are exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Its [`Ranks::holder`].
    Holder,
    /// All of them.
    Everywhere,
}

impl Ranks {
    /// Every tensor: tables, learned weights of their rows, then layers in their order.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        let sharding = self.layout().sharding();
        let dense = self.all(|rank: &mut Rank| Ok(rank.network.parameters()))?.swap_remove(0);
        let (config, count) = (&self.setup.config, self.setup.schema.tables.len());
        let (project, groups) = (Project::of(config), table_param_groups(config, count));
        let rows = |table: usize| sharding.rows(TableId(table as u32)) as usize;
        let tables = project.tables(config, count).into_iter().enumerate().map(|(table, name)| {
            Parameter::of_table(name, table, [rows(table), sharding.dim(TableId(table as u32))], groups[table])
        });
        let weights = project.row_weights(config, count).into_iter().enumerate();
        let weights = weights.map(|(table, name)| Parameter::of_row_weights(name, table, rows(table)));
        Ok(tables.chain(weights).chain(dense).collect())
    }

    /// Whether each table's rows are where a checkpoint has them, on all ranks of this machine.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn stored_tables(&self) -> Result<Vec<bool>> {
        let tables = self.layout().sharding().tables() as u32;
        let stored = move |rank: &mut Rank| {
            Ok((0..tables).map(|table| rank.tables.is_stored(&rank.context.layout, TableId(table))).collect::<Vec<_>>())
        };
        let all = self.all(stored)?;
        Ok((0..tables as usize).map(|table| all.iter().all(|rank| rank[table])).collect())
    }

    /// Whether a rank of this machine has a part of each table, or a copy of it.
    #[must_use]
    pub fn held_tables(&self) -> Vec<bool> {
        let (sharding, local) = (self.layout().sharding(), self.local());
        let holds =
            |table: u32| sharding.of_table(TableId(table)).iter().any(|shard| local.contains(&shard.rank.index()));
        (0..sharding.tables() as u32).map(holds).collect()
    }

    /// What the optimizers keep beside these tensors, in their order.
    #[must_use]
    pub fn moments(&self, of: &[Parameter]) -> Vec<Parameter> {
        of.iter().flat_map(|of| of.moments(self.setup.spec.optimizers[of.group])).collect()
    }

    /// The machine whose ranks have all that a checkpoint holds of a tensor; nothing where several have parts of it.
    pub(super) fn holder(&self, parameter: &Parameter) -> Option<usize> {
        let machines = self.world().machines();
        match parameter.slot {
            TensorSlot::RowUpdates | TensorSlot::LayerUpdates => Some(0),
            TensorSlot::Layer(_, tensor) => (machines == 1 || !tensor.is_moment()).then_some(0),
            TensorSlot::Table(table, _) => {
                let has = |rank: usize| self.layout().exported(table, RankId(rank as u32)).next().is_some();
                let mut holders = (0..machines).filter(|machine| self.setup.machines.ranks(*machine).any(has));
                holders.next().filter(|_| holders.next().is_none())
            }
        }
    }

    /// Some rows of one tensor, row-major; of what all ranks have, the first rank's. All machines take part, and the
    /// first one gets the rows: the others only what their own ranks have of them, and 0 elsewhere.
    ///
    /// # Errors
    /// As [`Ranks::all`], and when another machine does not give its part.
    pub fn export_rows(&self, parameter: &Parameter, rows: Range<usize>) -> Result<Vec<f32>> {
        self.rows_of(parameter.slot, rows, Scope::Everywhere)
    }

    /// The same on the tensor's [`Ranks::holder`] alone: no other machine takes part.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub(super) fn own_rows(&self, parameter: &Parameter, rows: Range<usize>) -> Result<Vec<f32>> {
        self.rows_of(parameter.slot, rows, Scope::Holder)
    }

    fn rows_of(&self, slot: TensorSlot, rows: Range<usize>, scope: Scope) -> Result<Vec<f32>> {
        match slot {
            TensorSlot::Table(table, tensor) => self.table_rows((table, tensor), rows, scope),
            TensorSlot::Layer(index, tensor) => self.layer_rows((index, tensor), rows, scope),
            // Every rank counts the same.
            TensorSlot::RowUpdates => Ok(vec![self.all(|rank| Ok(rank.updates.rows))?[0] as f32]),
            TensorSlot::LayerUpdates => Ok(vec![self.all(|rank| Ok(rank.updates.layers))?[0] as f32]),
        }
    }

    fn layer_rows(&self, (index, tensor): (usize, LayerTensor), rows: Range<usize>, scope: Scope) -> Result<Vec<f32>> {
        let (first, is_moment) = (RankId(self.local().start as u32), tensor.is_moment());
        let all = self.all(move |rank| {
            let gives = rank.context.rank == first || is_moment;
            Ok(if gives { rank.export_layer(index, tensor, &rows) } else { Vec::new() })
        })?;
        let own = joined(all);
        match scope {
            Scope::Everywhere if is_moment => Ok(joined(self.gather("gather what optimizers keep", own)?)),
            Scope::Everywhere | Scope::Holder => Ok(own),
        }
    }

    fn table_rows(
        &self,
        (table, tensor): (TableId, TableTensor),
        rows: Range<usize>,
        scope: Scope,
    ) -> Result<Vec<f32>> {
        let columns = if tensor.is_of_rows() { 1 } else { self.layout().sharding().dim(table) };
        let mut parts = self.all({
            let rows = rows.clone();
            move |rank| Ok(rank.tables.export(&rank.context.layout, table, tensor, &rows))
        })?;
        // What one shard has of all these rows is in their order.
        if scope == Scope::Holder || self.world().machines() == 1 {
            let mut shards =
                self.exported(table, self.world().machine()).filter(|shard| !shard.rows.within(&rows).is_empty());
            if let (Some(_), None) = (shards.next(), shards.next())
                && let Some(whole) = parts.iter().position(|part| part.len() == rows.len() * columns)
            {
                return Ok(parts.swap_remove(whole));
            }
        }
        let mut whole = vec![0.0; rows.len() * columns];
        let own = parts.concat();
        let mut put = |machine: usize, values: &[f32]| {
            stitch(self.exported(table, machine), tensor, (&rows, columns), values, &mut whole);
        };
        match scope {
            Scope::Holder => put(self.world().machine(), &own),
            Scope::Everywhere => {
                let machines = self.gather("gather rows", own)?;
                let (is_first, here) = (self.world().is_first(), self.world().machine());
                let given = machines.iter().enumerate().filter(|(machine, _)| is_first || *machine == here);
                given.for_each(|(machine, values)| put(machine, values));
            }
        }
        Ok(whole)
    }

    /// The shards of a table that a machine gives, in the order in which it does.
    fn exported(&self, table: TableId, machine: usize) -> impl Iterator<Item = &Shard> {
        self.setup.machines.ranks(machine).flat_map(move |rank| self.layout().exported(table, RankId(rank as u32)))
    }

    /// All of one tensor, row-major.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn export(&self, parameter: &Parameter) -> Result<Vec<f32>> {
        self.export_rows(parameter, 0..parameter.rows())
    }

    /// Overwrites some rows of one tensor on every rank that has a part of them.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    ///
    /// # Panics
    /// When `values` has another size than the rows.
    pub fn import_rows(&self, parameter: &Parameter, rows: Range<usize>, values: &[f32]) -> Result<()> {
        assert_eq!(values.len(), rows.len() * parameter.columns(), "{}: rows {rows:?}", parameter.name);
        let (slot, values) = (parameter.slot, values.to_vec());
        self.each(move |rank| rank.import(slot, &rows, &values))
    }
}

/// One list of several: each number is in one of them, and 0 in the others.
fn joined(all: Vec<Vec<f32>>) -> Vec<f32> {
    let both = |a: f32, b: f32| f32::from_bits(a.to_bits() | b.to_bits());
    all.into_iter().fold(Vec::new(), |mut sum, own| {
        sum.iter_mut().zip(&own).for_each(|(sum, own)| *sum = both(*sum, *own));
        if sum.is_empty() { own } else { sum }
    })
}

/// Puts what these shards have of some rows, one behind the other, to its place in all of `columns` columns of them.
fn stitch<'a>(
    shards: impl Iterator<Item = &'a Shard>,
    tensor: TableTensor,
    (rows, columns): (&Range<usize>, usize),
    values: &[f32],
    whole: &mut [f32],
) {
    let mut values = values;
    for shard in shards {
        let within = if tensor.is_of_rows() { 0..1 } else { shard.columns.clone() };
        let (local, width) = (shard.rows.within(rows), within.len());
        let (part, rest) = values.split_at(local.len() * width);
        values = rest;
        for (local, row) in local.zip(part.chunks_exact(width)) {
            let start = (shard.rows.global(local as u64) as usize - rows.start) * columns + within.start;
            whole[start..start + row.len()].copy_from_slice(row);
        }
    }
}
