//! One rank's part of a model whose tables are divided: a copy of all that is dense, and its shards of the tables.
//!
//! The stages are those of [`super::Dlrm`], cut where ranks exchange. Tables that are replicated are looked up at home;
//! their gradient is a table of its own, summed over all ranks like those of the MLPs.

use super::{Dense, Room, init};
use crate::base::config::{ModelConfig, Pooling, Precision};
use crate::base::{RankId, Result, TableId};
use crate::data::{Bag, Batch, Schema};
use crate::embedding::{LookUp, Lookups, Slots, Spec, Table, Updater};
use crate::exchange::{Ids, Layout, average};
use crate::machine::team::Team;
use crate::math::Share;
use crate::memory::{Arena, Buffer, Supply};
use crate::shard::scheme::Shard;

/// A rank's part of a model.
#[derive(Debug)]
pub struct Sharded {
    rank: RankId,
    dense: Dense,
    groups: Vec<Group>,
    replicas: Vec<Replica>,
    pooling: Pooling,
    dim: usize,
}

/// Shards of one width.
#[derive(Debug)]
struct Group {
    tables: Vec<Table>,
    look_up: LookUp,
    updater: Updater,
    /// In a message's row.
    slots: Slots,
    /// Look-ups in one of the shards, whose rows are sent themselves.
    single: LookUp,
}

/// A table that every rank has.
#[derive(Debug)]
struct Replica {
    table: TableId,
    weights: [Table; 1],
    look_up: LookUp,
    /// The sum of the minibatch's gradients, row by row.
    gradient: [Table; 1],
    summer: Updater,
    mover: Updater,
    /// Names every row once.
    all: [Bag; 1],
    /// The summed gradients of all ranks.
    sums: Buffer<f32>,
}

impl Sharded {
    /// The part of `rank`, all weights 0; `room.samples` is that of the whole minibatch.
    ///
    /// # Errors
    /// When the supply is exhausted, or the schema's dense features do not match.
    pub fn new(
        config: &ModelConfig,
        schema: &Schema,
        layout: &Layout,
        rank: RankId,
        team: &Team,
        room: Room,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        schema.check_dense(config.bottom[0], "model.bottom")?;
        let own = layout.samples(room.samples, rank).max(1);
        let spec = |tables: usize, dim: usize, samples: usize, precision: Precision| Spec {
            update: room.update,
            fused: room.update_fused,
            pooling: Pooling::Sum,
            tables,
            dim,
            precision,
            lookups: samples * room.lookups * tables,
            threads: team.threads(),
        };
        let holding = layout.of(rank);
        let name = |table: TableId| schema.tables[table.index()].name.clone();
        let group = |group: &crate::exchange::Group| {
            let shards = &holding.shards[group.shards.clone()];
            let mut table = |shard: &Shard| {
                Table::with_precision(name(shard.table), shard.rows.count, group.width, room.precision, supply)
            };
            let tables = shards.iter().map(&mut table).collect::<Result<Vec<_>>>()?;
            Ok(Group {
                look_up: LookUp::new(Pooling::Sum, tables.len(), team.threads()),
                updater: Updater::new(spec(tables.len(), group.width, own, room.precision), supply)?,
                tables,
                slots: Slots { row: holding.stride, first: group.first },
                single: LookUp::new(Pooling::Sum, 1, team.threads()),
            })
        };
        let groups = holding.groups.iter().map(group).collect::<Result<_>>()?;
        let dim = config.dim;
        let replica = |&table: &TableId| {
            let rows = schema.tables[table.index()].rows;
            let count = u32::try_from(rows).expect("rows are below 2^32");
            Ok(Replica {
                table,
                weights: [Table::with_precision(name(table), rows, dim, room.precision, supply)?],
                look_up: LookUp::new(Pooling::Sum, 1, team.threads()),
                gradient: [Table::new(name(table), rows, dim, supply)?],
                summer: Updater::new(spec(1, dim, own, Precision::F32), supply)?,
                mover: Updater::new(Spec { lookups: rows as usize, ..spec(1, dim, own, room.precision) }, supply)?,
                all: [Bag { offsets: (0..=count).collect(), rows: (0..count).collect() }],
                sums: supply.buffer("summed gradients of a replicated table", rows as usize * dim)?,
            })
        };
        let replicas = layout.replicated().iter().map(replica).collect::<Result<_>>()?;
        let mut dense = Dense::new(config, schema.tables.len(), team, own, room.precision, supply)?;
        if let Some(grains) = layout.grains() {
            dense.plan_parts(&Share::new(grains, layout.ranks(), rank.index()), supply)?;
        }
        Ok(Self { rank, dense, groups, replicas, pooling: config.pooling, dim })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.dense.settle(arena);
        for group in &mut self.groups {
            group.tables.iter_mut().for_each(|table| table.settle(arena));
            group.updater.settle(arena);
        }
        for Replica { weights, gradient, summer, mover, sums, .. } in &mut self.replicas {
            weights.iter_mut().chain(gradient).for_each(|table| table.settle(arena));
            [summer, mover].into_iter().for_each(|updater| updater.settle(arena));
            sums.settle(arena);
        }
    }

    /// Draws initial weights: those that one rank would draw.
    pub fn initialise(&mut self, team: &Team, layout: &Layout, seed: u64) {
        self.dense.initialise(seed);
        let (sharding, holding) = (layout.sharding(), layout.of(self.rank));
        let tables = self.groups.iter_mut().flat_map(|group| &mut group.tables);
        for (table, shard) in tables.zip(&holding.shards) {
            init::shard(team, table, shard, sharding.rows(shard.table), self.dim, seed);
        }
        for replica in &mut self.replicas {
            init::table(team, &mut replica.weights[0], replica.table.0, seed);
        }
    }

    /// What is dense.
    #[must_use]
    pub const fn dense(&self) -> &Dense {
        &self.dense
    }

    /// As [`Sharded::dense`], to be changed.
    pub const fn dense_mut(&mut self) -> &mut Dense {
        &mut self.dense
    }

    /// Forward: pools this rank's shards for the samples of `to`, into a message's rows.
    pub fn look_up(&mut self, team: &Team, layout: &Layout, ids: &Ids, to: RankId, message: &mut [f32]) {
        let holding = layout.of(self.rank);
        if holding.stride == 0 || message.is_empty() {
            return;
        }
        for (group, place) in self.groups.iter_mut().zip(&holding.groups) {
            let lookups = ids.lookups(to, place.shards.clone());
            let lookups = if place.plain { Lookups::plain(lookups.bags) } else { lookups };
            group.look_up.run(team, &group.tables, lookups, message, group.slots);
        }
    }

    /// Forward: the rows of one of this rank's shards, as they are, that these bags, of one look-up each, name.
    ///
    /// # Panics
    /// When this rank has no such shard.
    pub fn look_up_rows(&mut self, team: &Team, layout: &Layout, shard: usize, bag: &Bag, rows: &mut [f32]) {
        let mut groups = self.groups.iter_mut().zip(&layout.of(self.rank).groups);
        let (group, place) =
            groups.find(|(_, place)| place.shards.contains(&shard)).expect("one of this rank's shards");
        let table = std::slice::from_ref(&group.tables[shard - place.shards.start]);
        let slots = Slots { row: place.width, first: 0 };
        group.single.run(team, table, Lookups::plain(std::slice::from_ref(bag)), rows, slots);
    }

    /// Forward: pools the replicated tables for this rank's samples, into the features.
    pub fn look_up_replicas(&mut self, team: &Team, batch: &Batch) {
        let slots = self.dense.slots();
        let features = self.dense.features_mut(batch.samples());
        if features.is_empty() {
            return;
        }
        for Replica { table, weights, look_up, .. } in &mut self.replicas {
            let slots = Slots { first: slots.first + table.index() * self.dim, ..slots };
            look_up.run(team, weights, Lookups::of(batch).of_table(table.index()), features, slots);
        }
    }

    /// Forward, once all features are there: sums become means, where the model pools so.
    pub fn finish_features(&mut self, team: &Team, batch: &Batch) {
        if self.pooling == Pooling::Mean {
            let slots = self.dense.slots();
            let features = self.dense.features_mut(batch.samples());
            for (table, bag) in batch.bags.iter().enumerate() {
                average(team, features, slots, self.dim, table, bag);
            }
        }
    }

    /// Backward, before gradients leave: those of means become those of sums.
    pub fn finish_gradients(&mut self, team: &Team, batch: &Batch) {
        if self.pooling == Pooling::Mean {
            let slots = self.dense.slots();
            let gradient = self.dense.features_gradient_mut(batch.samples());
            for (table, bag) in batch.bags.iter().enumerate() {
                average(team, gradient, slots, self.dim, table, bag);
            }
        }
    }

    /// Moves the rows of this rank's shards that the samples of `from` looked up, against the message of their gradients.
    pub fn update_rows(&mut self, team: &Team, layout: &Layout, ids: &Ids, from: RankId, message: &[f32], rate: f32) {
        if message.is_empty() {
            return;
        }
        for (group, place) in self.groups.iter_mut().zip(&layout.of(self.rank).groups) {
            let lookups = ids.lookups(from, place.shards.clone());
            group.updater.run(team, &mut group.tables, lookups, message, group.slots, rate);
        }
    }

    /// Sums the gradients of each row of the replicated tables.
    pub fn sum_replicas(&mut self, team: &Team, batch: &Batch) {
        let slots = self.dense.slots();
        let gradient = self.dense.features_gradient(batch.samples());
        for Replica { table, gradient: sums, summer, sums: flat, .. } in &mut self.replicas {
            let lookups = Lookups::of(batch).of_table(table.index());
            let slots = Slots { first: slots.first + table.index() * self.dim, ..slots };
            sums[0].fill(team, |_, row| row.fill(0.0));
            if !gradient.is_empty() {
                // Moving zeros against the gradients at rate -1 adds them up.
                summer.run(team, sums, lookups, gradient, slots, -1.0);
            }
            flat.copy_from_slice(&sums[0].weights());
        }
    }

    /// Moves the rows of the replicated tables that are looked up against the gradients of their pooled rows: rows of
    /// `stride` elements with those tables' columns alone.
    pub fn update_replicas_by(
        &mut self,
        team: &Team,
        lookups: Lookups<'_>,
        gradient: &[f32],
        stride: usize,
        rate: f32,
    ) {
        if gradient.is_empty() {
            return;
        }
        for (index, Replica { weights, mover, .. }) in self.replicas.iter_mut().enumerate() {
            let slots = Slots { row: stride, first: index * self.dim };
            mover.run(team, weights, lookups.of_table(index), gradient, slots, rate);
        }
    }

    /// The gradients of the replicated tables, which are to be summed over all ranks: always in the same order.
    pub fn sums_mut(&mut self) -> impl Iterator<Item = &mut Buffer<f32>> {
        self.replicas.iter_mut().map(|replica| &mut replica.sums)
    }

    /// Moves the replicated tables by their summed gradients.
    pub fn update_replicas(&mut self, team: &Team, rate: f32) {
        for Replica { weights, mover, all, sums, .. } in &mut self.replicas {
            mover.run(team, weights, Lookups::plain(all), sums, Slots { row: self.dim, first: 0 }, rate);
        }
    }

    /// This rank's part of a table, exactly: each shard with its weights. All ranks have the same copy of a replicated
    /// table; the first one gives it.
    #[must_use]
    pub fn export_table(&self, layout: &Layout, table: TableId) -> Vec<(Shard, Vec<f32>)> {
        let tables = self.groups.iter().flat_map(|group| &group.tables);
        let shards = layout.of(self.rank).shards.iter().zip(tables).filter(|(shard, _)| shard.table == table);
        let shards = shards.map(|(shard, part)| (shard.clone(), part.weights().into_owned()));
        let mine = |replica: &&Replica| replica.table == table && self.rank == RankId(0);
        let replicas = self.replicas.iter().filter(mine).map(|replica| {
            let shard = &layout.sharding().of_table(table)[self.rank.index()];
            (shard.clone(), replica.weights[0].weights().into_owned())
        });
        shards.chain(replicas).collect()
    }

    /// Overwrites this rank's part of a table; `values` is the whole table, row-major.
    pub fn import_table(&mut self, layout: &Layout, table: TableId, values: &[f32]) {
        let dim = self.dim;
        let tables = self.groups.iter_mut().flat_map(|group| &mut group.tables);
        for (part, shard) in tables.zip(&layout.of(self.rank).shards).filter(|(_, shard)| shard.table == table) {
            let rows = (0..shard.rows.count).map(|local| shard.rows.global(local) as usize * dim);
            let part_of = |row: usize| values[row + shard.columns.start..row + shard.columns.end].iter().copied();
            part.set_weights(&rows.flat_map(part_of).collect::<Vec<_>>());
        }
        for replica in self.replicas.iter_mut().filter(|replica| replica.table == table) {
            replica.weights[0].set_weights(values);
        }
    }
}
