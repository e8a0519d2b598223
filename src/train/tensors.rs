//! The model's tensors, wherever ranks hold their parts: by name, and by ranges of rows, so that nobody needs a second
//! copy of a large one.

use std::ops::Range;

use super::Ranks;
use super::rank::Rank;
use crate::base::{RankId, Result, TableId};
use crate::model::Parameter;
use crate::optim::Moment;

impl Ranks {
    /// Every tensor: tables, learned weights of their rows, then layers in their order.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn parameters(&self) -> Result<Vec<Parameter>> {
        let sharding = self.layout().sharding();
        let dense = self.all(|rank: &mut Rank| Ok(rank.network.parameters()))?.swap_remove(0);
        let tables = self.table_names.iter().enumerate().map(|(table, name)| {
            let number = TableId(table as u32);
            let shape = [sharding.rows(number) as usize, sharding.dim(number)];
            Parameter::of_table(name.clone(), table, shape, self.table_groups[table])
        });
        let weights = self.row_weight_names.iter().enumerate().map(|(table, name)| {
            Parameter::of_row_weights(name.clone(), table, sharding.rows(TableId(table as u32)) as usize)
        });
        Ok(tables.chain(weights).chain(dense).collect())
    }

    /// Whether each table's rows are where a checkpoint has them, on all ranks of this machine.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn stored_tables(&self) -> Result<Vec<bool>> {
        let tables = self.layout().sharding().tables() as u32;
        let stored = move |rank: &mut Rank| {
            Ok((0..tables).map(|table| rank.tables.is_stored(&rank.layout, TableId(table))).collect::<Vec<_>>())
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
        of.iter().flat_map(|of| of.moments(self.spec.optimizers[of.group])).collect()
    }

    /// The machine whose ranks have all that a checkpoint holds of a tensor; nothing where several have parts of it.
    pub(super) fn holder(&self, parameter: &Parameter) -> Option<usize> {
        let machines = self.world().machines();
        if parameter.moment == Some(Moment::Updates) {
            return Some(0);
        }
        let Some(table) = parameter.place.table() else {
            return (machines == 1 || parameter.moment.is_none()).then_some(0);
        };
        let has = |rank: usize| self.layout().exported(TableId(table as u32), RankId(rank as u32)).next().is_some();
        let mut holders = (0..machines).filter(|machine| self.ranks_of(*machine).any(has));
        holders.next().filter(|_| holders.next().is_none())
    }

    /// Some rows of one tensor, row-major; of what all ranks have, the first rank's. All machines take part, and the
    /// first one gets the rows: the others only what their own ranks have of them, and 0 elsewhere.
    ///
    /// # Errors
    /// As [`Ranks::all`], and when another machine does not give its part.
    pub fn export_rows(&self, parameter: &Parameter, rows: Range<usize>) -> Result<Vec<f32>> {
        self.rows_of(parameter, rows, false)
    }

    /// The same on the tensor's [`Ranks::holder`] alone: no other machine takes part.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub(super) fn own_rows(&self, parameter: &Parameter, rows: Range<usize>) -> Result<Vec<f32>> {
        self.rows_of(parameter, rows, true)
    }

    fn rows_of(&self, parameter: &Parameter, rows: Range<usize>, alone: bool) -> Result<Vec<f32>> {
        let (columns, first) = (parameter.columns(), rows.start);
        if parameter.moment == Some(Moment::Updates) {
            // Every rank counts the same.
            let of_rows = parameter.is_of_table();
            let counts = self.all(move |rank| Ok(if of_rows { rank.updates.rows } else { rank.updates.layers }))?;
            return Ok(vec![counts[0] as f32]);
        }
        let (place, moment, Some(table)) = (parameter.place, parameter.moment, parameter.place.table()) else {
            let (parameter, is_moment) = (parameter.clone(), parameter.moment.is_some());
            let first = RankId(self.local().start as u32);
            let all = self.all(move |rank| {
                let own = rank.number == first || parameter.moment.is_some();
                Ok(if own { rank.export_layer(&parameter, &rows) } else { Vec::new() })
            })?;
            // Each moment is with one rank, and 0 elsewhere.
            let both = |a: f32, b: f32| f32::from_bits(a.to_bits() | b.to_bits());
            let join = |all: Vec<Vec<f32>>| {
                all.into_iter().fold(Vec::new(), |mut sum: Vec<f32>, own| {
                    sum.iter_mut().zip(&own).for_each(|(sum, own)| *sum = both(*sum, *own));
                    if sum.is_empty() { own } else { sum }
                })
            };
            let own = join(all);
            let parts = is_moment && !alone;
            return Ok(if parts { join(self.gather("gather what optimizers keep", own)?) } else { own });
        };
        let mut parts = self.all({
            let rows = rows.clone();
            move |rank| {
                let mut values = Vec::new();
                rank.export_table(place, moment, &rows, |_, _, part| values.extend_from_slice(part));
                Ok(values)
            }
        })?;
        // What one shard has of all these rows is in their order.
        if alone || self.world().machines() == 1 {
            let exported = |rank: usize| self.layout().exported(TableId(table as u32), RankId(rank as u32));
            let mut shards = self.local().flat_map(exported).filter(|shard| !shard.rows.within(&rows).is_empty());
            if let (Some(_), None) = (shards.next(), shards.next())
                && let Some(whole) = parts.iter().position(|part| part.len() == rows.len() * columns)
            {
                return Ok(parts.swap_remove(whole));
            }
        }
        let machine = self.world().machine();
        let mut machines = if alone {
            (0..self.world().machines())
                .map(|other| if other == machine { parts.concat() } else { Vec::new() })
                .collect()
        } else {
            self.gather("gather rows", parts.concat())?
        };
        let mut whole = vec![0.0; rows.len() * columns];
        for (number, values) in machines.iter_mut().enumerate() {
            let mut values = &values[..];
            if (alone || !self.world().is_first()) && number != machine {
                continue;
            }
            for rank in self.ranks_of(number) {
                for shard in self.layout().exported(TableId(table as u32), RankId(rank as u32)) {
                    let within = if place.is_of_rows(moment) { 0..1 } else { shard.columns.clone() };
                    let (local, width) = (shard.rows.within(&rows), within.len());
                    let (part, rest) = values.split_at(local.len() * width);
                    values = rest;
                    for (local, row) in local.zip(part.chunks_exact(width)) {
                        let start = (shard.rows.global(local as u64) as usize - first) * columns + within.start;
                        whole[start..start + row.len()].copy_from_slice(row);
                    }
                }
            }
        }
        Ok(whole)
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
        let (parameter, values) = (parameter.clone(), values.to_vec());
        self.all(move |rank| {
            rank.import(&parameter, &rows, &values);
            Ok(())
        })
        .map(|_| ())
    }

    /// Overwrites one tensor.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    ///
    /// # Panics
    /// When `values` has another size than the tensor.
    pub fn import(&self, parameter: &Parameter, values: &[f32]) -> Result<()> {
        self.import_rows(parameter, 0..parameter.rows(), values)
    }

    /// A whole table, row-major, stitched from its shards.
    ///
    /// # Errors
    /// As [`Ranks::all`].
    pub fn export_table(&self, table: TableId) -> Result<Vec<f32>> {
        self.export(&self.parameters()?[table.index()])
    }
}
