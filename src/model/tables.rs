//! A rank's part of the embedding tables: the shards that it holds alone, and its copies of those that every rank has.
//!
//! What a rank holds whole it pools straight into the features of its own samples, and moves by their gradient where the
//! network has left it; for other ranks' samples it fills and reads messages. Of divided rows it pools terms of a sum.
//! Tables that are replicated are looked up at home; their gradient is summed over all ranks like that of a layer.

use std::collections::HashSet;
use std::ops::Range;

use super::init;
use crate::base::config::{ModelConfig, Pooling, Precision, Update};
use crate::base::units::Bytes;
use crate::base::{Error, RankId, Result, TableId};
use crate::data::{Bag, Batch, Schema};
use crate::embedding::{Choice, LookUp, Lookups, Slots, Spec, Table, Updater};
use crate::exchange::{Ids, Layout, average};
use crate::machine::team::Team;
use crate::memory::{Arena, Buffer, Supply, available_bytes};
use crate::model::stage::{Bound, Work};
use crate::shard::scheme::Shard;

/// What a model has room for, and how it moves embedding rows.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Samples of the largest minibatch.
    pub samples: usize,
    /// Look-ups a table and sample that are expected at most; more are possible, but allocate memory when they come.
    pub lookups: usize,
    /// How embedding rows are moved.
    pub update: Update,
    /// Whether they are moved without gradient rows in between.
    pub update_fused: bool,
    /// What weights are read in and how much of them is kept.
    pub precision: Precision,
}

impl Room {
    /// For minibatches of `samples` with one look-up a table, rows moved as the look-ups suggest.
    #[must_use]
    pub const fn samples(samples: usize) -> Self {
        Self { samples, lookups: 1, update: Update::Auto, update_fused: true, precision: Precision::F32 }
    }
}

/// A rank's part of the tables.
#[derive(Debug)]
pub struct Tables {
    rank: RankId,
    groups: Vec<Group>,
    replicas: Vec<Replica>,
    /// For each replicated table the summed gradients of all ranks.
    sums: Vec<Buffer<f32>>,
    pooling: Pooling,
    precision: Precision,
    /// Elements of a sample's features.
    row: usize,
}

/// Shards of one width, pooled in one way.
#[derive(Debug)]
struct Group {
    tables: Vec<Table>,
    look_up: LookUp,
    updater: Updater,
    /// Look-ups in one of the shards, whose rows travel unpooled.
    single: LookUp,
}

/// A table that every rank has.
#[derive(Debug)]
struct Replica {
    table: TableId,
    /// Its columns of a sample's features.
    columns: Range<usize>,
    weights: [Table; 1],
    look_up: LookUp,
    /// The sum of the rank's gradients, row by row.
    gradient: [Table; 1],
    accumulator: Updater,
    updater: Updater,
    /// A bag of one row for each row.
    identity: [Bag; 1],
}

impl Tables {
    /// The part of `rank`, all weights 0; `room.samples` is that of the whole minibatch.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When a table has 2^32 rows or more.
    pub fn new(
        config: &ModelConfig,
        schema: &Schema,
        layout: &Layout,
        rank: RankId,
        team: &Team,
        room: Room,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let threads = team.threads();
        let spec = |tables: usize, dim: usize, pooling: Pooling, precision: Precision| Spec {
            update: room.update,
            fused: room.update_fused,
            pooling,
            tables,
            dim,
            precision,
            lookups: layout.samples(room.samples, rank).max(1) * room.lookups * tables,
            threads,
        };
        let holding = layout.of(rank);
        let name = |table: TableId| schema.tables[table.index()].name.clone();
        let group = |group: &crate::exchange::Group| {
            let shards = &holding.shards[group.shards.clone()];
            // Whole tables or none of a group are averaged where the sample is.
            let pooling = if layout.averages_at_sample(shards[0].table) { Pooling::Sum } else { config.pooling };
            let mut table = |shard: &Shard| {
                Table::with_precision(name(shard.table), shard.rows.count, group.width, room.precision, supply)
            };
            let tables = shards.iter().map(&mut table).collect::<Result<Vec<_>>>()?;
            Ok(Group {
                look_up: LookUp::new(pooling, tables.len(), threads),
                updater: Updater::new(spec(tables.len(), group.width, pooling, room.precision), supply)?,
                tables,
                single: LookUp::new(Pooling::Sum, 1, threads),
            })
        };
        let groups = holding.groups.iter().map(group).collect::<Result<_>>()?;
        let mut sums = Vec::new();
        let replica = |&table: &TableId| {
            let (rows, dim) = (schema.tables[table.index()].rows, layout.sharding().dim(table));
            let count = u32::try_from(rows).expect("rows are below 2^32");
            let spec = |precision| spec(1, dim, Pooling::Sum, precision);
            sums.push(supply.buffer("summed gradients of a replicated table", rows as usize * dim)?);
            Ok(Replica {
                table,
                columns: layout.columns(table),
                weights: [Table::with_precision(name(table), rows, dim, room.precision, supply)?],
                look_up: LookUp::new(Pooling::Sum, 1, threads),
                gradient: [Table::new(name(table), rows, dim, supply)?],
                accumulator: Updater::new(spec(Precision::F32), supply)?,
                updater: Updater::new(Spec { lookups: rows as usize, ..spec(room.precision) }, supply)?,
                identity: [Bag { offsets: (0..=count).collect(), rows: (0..count).collect() }],
            })
        };
        let replicas = layout.replicated().iter().map(replica).collect::<Result<_>>()?;
        let (pooling, precision, row) = (config.pooling, room.precision, layout.feature_row());
        Ok(Self { rank, groups, replicas, sums, pooling, precision, row })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        for group in &mut self.groups {
            group.tables.iter_mut().for_each(|table| table.settle(arena));
            group.updater.settle(arena);
        }
        for Replica { weights, gradient, accumulator, updater, .. } in &mut self.replicas {
            weights.iter_mut().chain(gradient).for_each(|table| table.settle(arena));
            [accumulator, updater].into_iter().for_each(|updater| updater.settle(arena));
        }
        self.sums.iter_mut().for_each(|sums| sums.settle(arena));
    }

    /// Draws initial weights: a pure function of seed, table and place, whoever holds what.
    pub fn initialise(&mut self, team: &Team, layout: &Layout, seed: u64) {
        let (sharding, holding) = (layout.sharding(), layout.of(self.rank));
        let tables = self.groups.iter_mut().flat_map(|group| &mut group.tables);
        for (table, shard) in tables.zip(&holding.shards) {
            init::shard(team, table, shard, sharding.rows(shard.table), sharding.dim(shard.table), seed);
        }
        for replica in &mut self.replicas {
            init::table(team, &mut replica.weights[0], replica.table.0, seed);
        }
    }

    /// How rows were last moved, and why so.
    #[must_use]
    pub fn update_choice(&self) -> Option<&Choice> {
        self.groups.iter().find_map(|group| group.updater.choice())
    }

    /// What the user should know about the configured way to move rows.
    #[must_use]
    pub fn update_note(&self) -> Option<String> {
        self.groups.iter().find_map(|group| group.updater.note())
    }

    /// Forward: pools this rank's shards for the samples of another rank, into a message's rows.
    pub fn look_up(&mut self, team: &Team, layout: &Layout, ids: &Ids, to: RankId, message: &mut [f32]) {
        let holding = layout.of(self.rank);
        for (group, place) in self.groups.iter_mut().zip(&holding.groups) {
            let lookups = ids.lookups(to, place);
            let lookups = if place.plain { lookups.unweighted() } else { lookups };
            let slots = Slots { row: holding.stride, starts: &place.in_message };
            group.look_up.run(team, &group.tables, lookups, message, slots);
        }
    }

    /// Forward: pools what this rank holds for its own samples, whole tables into their features, divided rows into rows
    /// of the layout's partial stride.
    pub fn look_up_own(
        &mut self,
        team: &Team,
        layout: &Layout,
        ids: &Ids,
        batch: &Batch,
        features: &mut [f32],
        partial: &mut [f32],
    ) {
        if batch.samples() == 0 {
            return;
        }
        let holding = layout.of(self.rank);
        for (group, place) in self.groups.iter_mut().zip(&holding.groups) {
            if place.partial {
                let lookups = ids.lookups(self.rank, place);
                let lookups = if place.plain { lookups.unweighted() } else { lookups };
                let slots = Slots { row: holding.partial_stride, starts: &place.in_message };
                group.look_up.run(team, &group.tables, lookups, partial, slots);
            } else {
                let slots = Slots { row: self.row, starts: &place.in_features };
                let lookups = Lookups::of(batch).in_tables(&place.tables);
                group.look_up.run(team, &group.tables, lookups, features, slots);
            }
        }
        for Replica { table, columns, weights, look_up, .. } in &mut self.replicas {
            let slots = Slots { row: self.row, starts: &[columns.start] };
            look_up.run(team, weights, Lookups::of(batch).in_tables(&[table.index()]), features, slots);
        }
    }

    /// Forward: the rows of one of this rank's shards, as they are, that these bags, of one look-up each, name.
    ///
    /// # Panics
    /// When this rank has no such shard.
    pub fn look_up_unpooled(&mut self, team: &Team, layout: &Layout, shard: usize, bag: &Bag, rows: &mut [f32]) {
        let mut groups = self.groups.iter_mut().zip(&layout.of(self.rank).groups);
        let (group, place) =
            groups.find(|(_, place)| place.shards.contains(&shard)).expect("one of this rank's shards");
        let table = std::slice::from_ref(&group.tables[shard - place.shards.start]);
        let slots = Slots { row: place.width, starts: &[0] };
        group.single.run(team, table, Lookups::plain(std::slice::from_ref(bag)), rows, slots);
    }

    /// Divides sums of rows, or their gradients, by the lengths of their bags, where the sample's rank does so and the
    /// model pools means.
    pub fn average(&self, team: &Team, layout: &Layout, batch: &Batch, features: &mut [f32]) {
        if self.pooling == Pooling::Mean && !features.is_empty() {
            for (table, bag) in
                (0..).map(TableId).zip(&batch.bags).filter(|(table, _)| layout.averages_at_sample(*table))
            {
                average(team, features, self.row, &layout.columns(table), bag);
            }
        }
    }

    /// Moves the rows of this rank's shards that the samples of `from` looked up, against the message of their gradients;
    /// without one, its own samples', whose features' gradient is `own` and whose minibatch is `batch`.
    pub fn update_rows(
        &mut self,
        team: &Team,
        layout: &Layout,
        ids: &Ids,
        (from, message): (RankId, Option<&[f32]>),
        (batch, own): (&Batch, &[f32]),
        rate: f32,
    ) {
        let holding = layout.of(self.rank);
        if message.unwrap_or(own).is_empty() {
            return;
        }
        for (group, place) in self.groups.iter_mut().zip(&holding.groups) {
            let lookups = match message {
                None if !place.partial => Lookups::of(batch).in_tables(&place.tables),
                _ => ids.lookups(from, place),
            };
            let (gradient, slots) = match message {
                Some(message) => (message, Slots { row: holding.stride, starts: &place.in_message }),
                None => (own, Slots { row: self.row, starts: &place.in_features }),
            };
            group.updater.run(team, &mut group.tables, lookups, gradient, slots, rate);
        }
    }

    /// Sums the gradients of each row of the replicated tables; `gradient` is that of the features.
    pub fn sum_replicas(&mut self, team: &Team, batch: &Batch, gradient: &[f32]) {
        for (replica, sums) in self.replicas.iter_mut().zip(&mut self.sums) {
            let Replica { table, columns, gradient: accumulated, accumulator, .. } = replica;
            accumulated[0].clear(team);
            if !gradient.is_empty() {
                let number = [table.index()];
                let lookups = Lookups::of(batch).in_tables(&number);
                let slots = Slots { row: self.row, starts: &[columns.start] };
                // An update of zeros at rate -1 adds gradients up.
                accumulator.run(team, accumulated, lookups, gradient, slots, -1.0);
            }
            sums.copy_from_slice(&accumulated[0].weights());
        }
    }

    /// Moves the rows of the replicated tables that are looked up against the gradients of their pooled rows: one bag and
    /// one vector a replicated table.
    pub fn update_replicas_by(
        &mut self,
        team: &Team,
        lookups: Lookups<'_>,
        gradient: &[f32],
        slots: Slots<'_>,
        rate: f32,
    ) {
        if gradient.is_empty() {
            return;
        }
        for (index, Replica { weights, updater, .. }) in self.replicas.iter_mut().enumerate() {
            let slots = Slots { row: slots.row, starts: &slots.starts[index..=index] };
            updater.run(team, weights, lookups.in_tables(&[index]), gradient, slots, rate);
        }
    }

    /// Whether there are replicated tables.
    #[must_use]
    pub fn has_replicas(&self) -> bool {
        !self.replicas.is_empty()
    }

    /// The gradients of the replicated tables, which are to be summed over all ranks: always in the same order.
    pub const fn sums_mut(&mut self) -> &mut Vec<Buffer<f32>> {
        &mut self.sums
    }

    /// Moves the replicated tables by their summed gradients.
    pub fn update_replicas(&mut self, team: &Team, rate: f32) {
        for (Replica { weights, updater, identity, .. }, sums) in self.replicas.iter_mut().zip(&self.sums) {
            let slots = Slots { row: weights[0].dim(), starts: &[0] };
            updater.run(team, weights, Lookups::plain(identity), sums, slots, rate);
        }
    }

    /// The work of looking up rows, and of moving them, in a step: of all samples that ask this rank, its own of `batch`.
    /// Every different row is read from memory at least once, however often it is looked up.
    #[must_use]
    pub fn work(&self, layout: &Layout, ids: &Ids, batch: &Batch, whole: usize) -> [Work; 2] {
        let own = Lookups::of(batch);
        // Elements of look-ups, of different rows, and of pooled rows.
        let (mut looked_up, mut met, mut pooled) = (0, 0, 0);
        for Replica { table, columns, .. } in &self.replicas {
            let rows = own.bag(table.index()).rows;
            looked_up += rows.len() * columns.len();
            met += rows.iter().collect::<HashSet<_>>().len() * columns.len();
            pooled += batch.samples() * columns.len();
        }
        for place in &layout.of(self.rank).groups {
            let mut rows = vec![HashSet::<u32>::new(); place.shards.len()];
            for from in (0..layout.ranks() as u32).map(RankId) {
                let whole_here = from == self.rank && !place.partial;
                let lookups = if whole_here { own.in_tables(&place.tables) } else { ids.lookups(from, place) };
                looked_up += lookups.total() * place.width;
                pooled += layout.samples(whole, from) * place.shards.len() * place.width;
                rows.iter_mut().zip(lookups.bags()).for_each(|(rows, bag)| rows.extend(bag.rows));
            }
            met += rows.iter().map(HashSet::len).sum::<usize>() * place.width;
        }
        let [looked_up, met, pooled] = [looked_up, met, pooled].map(|elements| elements as f64);
        // A look-up reads what the precision lets it and writes a pooled row a bag; an update reads and writes all that is
        // kept, and reads the pooled row's gradient.
        let [read, kept] = [self.precision.read_bytes(), self.precision.bytes()].map(|bytes| bytes as f64);
        let streamed = pooled * size_of::<f32>() as f64;
        [
            Work { bound: Bound::Gather, operations: looked_up, bytes: met * read, streamed },
            Work { bound: Bound::Scatter, operations: 2.0 * looked_up, bytes: 2.0 * met * kept, streamed },
        ]
    }

    /// Lends this rank's part of rows `rows` of a table, shard by shard, exactly: the shard, its own numbers of the rows,
    /// and the values. All ranks have the same copy of a replicated table; the first one gives it.
    pub fn export(
        &self,
        layout: &Layout,
        table: TableId,
        rows: &Range<usize>,
        mut take: impl FnMut(&Shard, Range<usize>, &[f32]),
    ) {
        let tables = self.groups.iter().flat_map(|group| &group.tables);
        let shards = layout.of(self.rank).shards.iter().zip(tables).filter(|(shard, _)| shard.table == table);
        let own = self.replicas.iter().filter(|replica| replica.table == table && self.rank == RankId(0));
        let own = own.map(|replica| (&layout.sharding().of_table(table)[self.rank.index()], &replica.weights[0]));
        for (shard, part) in shards.chain(own) {
            let local = shard.rows.within(rows);
            take(shard, local.clone(), &part.weights_of(local));
        }
    }

    /// Overwrites this rank's part of rows `rows` of a table, given row-major.
    pub fn import(&mut self, layout: &Layout, table: TableId, rows: &Range<usize>, values: &[f32]) {
        let dim = layout.sharding().dim(table);
        let shards = layout.of(self.rank).shards.iter();
        let parts = shards.zip(self.groups.iter_mut().flat_map(|group| &mut group.tables));
        for (shard, part) in parts.filter(|(shard, _)| shard.table == table) {
            let local = shard.rows.within(rows);
            let mut part_of = Vec::with_capacity(local.len() * shard.columns.len());
            for row in local.clone() {
                let start = (shard.rows.global(row as u64) as usize - rows.start) * dim;
                part_of.extend_from_slice(&values[start + shard.columns.start..start + shard.columns.end]);
            }
            part.set_weights(local.start, &part_of);
        }
        for replica in self.replicas.iter_mut().filter(|replica| replica.table == table) {
            replica.weights[0].set_weights(rows.start, values);
        }
    }
}

/// Refuses tables that the machine cannot hold, before the first page is touched.
///
/// # Errors
/// [`Error::TableTooBig`], which names the largest.
pub fn check_tables(schema: &Schema, dim: usize, precision: Precision) -> Result<()> {
    let bytes = |rows: u64| rows.saturating_mul((dim * precision.bytes()) as u64);
    let need = schema.tables.iter().fold(0u64, |sum, column| sum.saturating_add(bytes(column.rows)));
    let Some(free) = available_bytes() else { return Ok(()) };
    let largest = schema.tables.iter().enumerate().max_by_key(|(_, column)| column.rows);
    match largest {
        Some((table, column)) if need > free => Err(Error::TableTooBig {
            table: table as u32,
            name: column.name.clone(),
            rows: column.rows,
            dim,
            table_need: Bytes(bytes(column.rows)),
            need: Bytes(need),
            free: Bytes(free),
        }),
        _ => Ok(()),
    }
}
