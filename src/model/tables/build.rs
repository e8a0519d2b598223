//! How a rank's part of the tables is built.

use crate::base::config::{ModelConfig, Pooling};
use crate::base::{RankId, Result, TableId};
use crate::data::Schema;
use crate::embedding::Table;
use crate::exchange::{self, Layout};
use crate::memory::Supply;
use crate::model::sparse::{SparseGradients, SumsOf};
use crate::model::table_group::{GroupSpec, ReplicatedGroup, TableGroup};
use crate::model::{StoredTables, TrainSpec};
use crate::optim::{ByGroup, ParamGroup, ParamState};
use crate::shard::scheme::Shard;

/// What the tables of a rank are built from.
pub(super) struct Builder<'a, 's> {
    pub config: &'a ModelConfig,
    pub schema: &'a Schema,
    pub layout: &'a Layout,
    pub rank: RankId,
    pub spec: &'a TrainSpec,
    pub stored: Option<&'a StoredTables>,
    /// The group of each table's rows.
    pub param_groups: Vec<ParamGroup>,
    /// What is kept of the rows of each group.
    pub kept: ByGroup<ParamState>,
    pub threads: usize,
    pub supply: &'a mut Supply<'s>,
}

impl<'a> Builder<'a, '_> {
    /// Shards that this rank holds alone.
    pub(super) fn shards(&mut self, group: &exchange::Group) -> Result<TableGroup> {
        let layout = self.layout;
        let shards = &layout.of(self.rank).shards[group.shards.clone()];
        let first = shards[0].table;
        // Whole tables or none of a group are averaged where the sample is.
        let pooling = if layout.averages_at_sample(first) { Pooling::Sum } else { self.config.pooling };
        let share = |shard: &Shard| shard.rows.count as f64 / layout.sharding().rows(shard.table) as f64;
        let lookups = shards.iter().map(|shard| self.lookups(shard.table, share(shard))).sum();
        let tables = shards.iter().map(|shard| self.table(shard)).collect::<Result<Vec<_>>>()?;
        let spec = self.group_spec(pooling, group.width, lookups);
        TableGroup::new(tables, self.kept_of(first), &spec, self.supply)
    }

    /// This rank's copies of tables that every rank has: those of one group of these.
    pub(super) fn replicas(&mut self, places: &[usize]) -> Result<ReplicatedGroup> {
        let (layout, rank) = (self.layout, self.rank);
        let ids: Vec<TableId> = places.iter().map(|place| layout.replicated()[*place]).collect();
        let dim = layout.sharding().dim(ids[0]);
        let lookups = ids.iter().map(|table| self.lookups(*table, 1.0)).sum();
        let spec = self.group_spec(Pooling::Sum, dim, lookups);
        let sums = match layout.grains() {
            None if spec.train.learns() => {
                // Every row goes to all.
                let sums = |table: &TableId| SumsOf {
                    name: self.name(*table),
                    rows: layout.sharding().rows(*table) as usize,
                    receivers: std::iter::once(0..dim).collect(),
                };
                let sums: Vec<_> = ids.iter().map(sums).collect();
                Some(SparseGradients::new(sums.into_iter(), &spec, self.supply)?)
            }
            _ => None,
        };
        let copy = |table: &TableId| self.table(&layout.sharding().of_table(*table)[rank.index()]);
        let copies = ids.iter().map(copy).collect::<Result<Vec<_>>>()?;
        let group = TableGroup::new(copies, self.kept_of(ids[0]), &spec, self.supply)?;
        let bags = ids.iter().map(|table| table.index()).collect();
        Ok(ReplicatedGroup::new((ids, bags), group, sums, layout))
    }

    /// All weights 0, or where a checkpoint has them.
    fn table(&mut self, shard: &Shard) -> Result<Table> {
        let (name, (_, kept), width) = (self.name(shard.table), self.kept_of(shard.table), shard.columns.len());
        let sharding = self.layout.sharding();
        let sizes = [sharding.rows(shard.table) as usize, sharding.dim(shard.table)];
        match self.stored.and_then(|stored| stored.weights(shard, sizes)) {
            Some(rows) => Table::stored(name, width, self.spec.precision, rows).with_row_weights(kept, self.supply),
            None => Table::new(name, shard.rows.count, width, kept, self.supply),
        }
    }

    fn group_spec(&self, pooling: Pooling, dim: usize, lookups: usize) -> GroupSpec<'a> {
        let targets = self.layout.ranks();
        GroupSpec { train: self.spec, pooling, dim, lookups, threads: self.threads, targets }
    }

    /// Look-ups in this share of a table's rows that move them in the largest minibatch: those of all ranks' samples.
    fn lookups(&self, table: TableId, share: f64) -> usize {
        match self.spec.learns() {
            true => ((self.spec.samples * self.layout.lookups(table)) as f64 * share).ceil() as usize,
            false => 0,
        }
    }

    fn kept_of(&self, table: TableId) -> (ParamGroup, ParamState) {
        let group = self.param_groups[table.index()];
        (group, self.kept[group])
    }

    fn name(&self, table: TableId) -> String {
        self.schema.tables[table.index()].name.clone()
    }
}
