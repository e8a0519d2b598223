//! A rank's part of the embedding tables: the shards that it holds alone, and its copies of those that every rank has.
//!
//! What a rank holds whole it pools straight into the features of its own samples, and moves by their gradient where
//! the network has left it; for other ranks' samples it fills and reads messages. Of divided rows it pools terms of a
//! sum. Tables that are replicated are looked up at home, and moved alike on all ranks by the gradients of all. Copies
//! of hot rows are looked up at home, too, and written when their owners have moved them.

mod tensors;

use std::collections::HashSet;

use super::hot::Copies;
use super::init::{self, Bounds};
use super::replica::Replica;
use super::sparse::SparseGradients;
use crate::base::config::{ModelConfig, Pooling};
use crate::base::{RankId, Result, TableId};
use crate::data::{Bag, Batch, Schema};
use crate::embedding::{Choice, LookUp, Lookups, Slots, Source, Spec, Table, Updater};
use crate::exchange::{self, HotRows, Ids, Layout, Pass, Replicas, Route, average};
use crate::machine::team::Team;
use crate::memory::{Arena, Supply, recycled};
use crate::model::stage::{Bound, Work};
use crate::model::{StoredTables, TrainSpec, table_groups};
use crate::optim::{ByGroup, ParamGroup, ParamState, StepSizes};
use crate::shard::scheme::Shard;

/// A rank's part of the tables.
#[derive(Debug)]
pub struct Tables {
    rank: RankId,
    groups: Vec<Group>,
    replicas: Vec<Replica>,
    copies: Option<Copies>,
    pooling: Pooling,
    /// What is kept of rows.
    kept: ByGroup<ParamState>,
    /// Of initial weights, by table.
    bounds: Vec<Bounds>,
    /// Elements of a sample's features.
    row: usize,
    /// Memory that steps use again.
    sources: Vec<Source<'static>>,
}

/// Shards of one width, pooled in one way and moved by one optimizer.
#[derive(Debug)]
struct Group {
    params: ParamGroup,
    tables: Vec<Table>,
    look_up: LookUp,
    updater: Updater,
    /// Look-ups in one of the shards, whose rows travel unpooled.
    single: LookUp,
}

impl Group {
    /// Pools what is asked for on a route, into a message's rows, which are so far apart, or its vectors.
    fn pool(
        &mut self,
        team: &Team,
        ids: &Ids,
        route: Route,
        place: &exchange::Group,
        message: &mut [f32],
        stride: usize,
    ) {
        let lookups = ids.pooled(route.asking, place);
        let lookups = if place.plain { lookups.unweighted() } else { lookups };
        match ids.blocks(route, Pass::Forward) {
            None => self.look_up.run(team, &self.tables, lookups, message, place.slots(stride)),
            Some(blocks) => {
                self.look_up.run_apart(team, &self.tables, lookups, &mut message[blocks.range(&place.shards)]);
            }
        }
    }
}

impl Tables {
    /// The part of `rank`, without copies of hot rows, all weights 0 but those that `stored` has; `spec.samples` is
    /// that of the whole minibatch.
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
        (spec, stored): (TrainSpec, Option<&StoredTables>),
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        let threads = team.threads();
        // Rows are moved for the samples of all ranks, if they are.
        let look_ups = |table: TableId, share: f64| match spec.learns() {
            true => ((spec.samples * layout.lookups(table)) as f64 * share).ceil() as usize,
            false => 0,
        };
        let (params_of, kept) = (table_groups(config, schema.tables.len()), spec.param_states(config));
        let updates = |tables: usize, dim: usize, pooling: Pooling, lookups: usize, params: ParamGroup| Spec {
            update: spec.update,
            fused: spec.update_fused,
            pooling,
            tables,
            dim,
            kept: kept[params],
            lookups,
            threads,
        };
        let holding = layout.of(rank);
        let name = |table: TableId| schema.tables[table.index()].name.clone();
        let group = |group: &exchange::Group| {
            let shards = &holding.shards[group.shards.clone()];
            let params = params_of[shards[0].table.index()];
            // Whole tables or none of a group are averaged where the sample is.
            let pooling = if layout.averages_at_sample(shards[0].table) { Pooling::Sum } else { config.pooling };
            let mut table = |shard: &Shard| {
                let sizes = [layout.sharding().rows(shard.table) as usize, layout.sharding().dim(shard.table)];
                match stored.and_then(|stored| stored.weights(shard, sizes)) {
                    Some(rows) => Table::stored(name(shard.table), group.width, spec.precision, rows)
                        .with_row_weights(kept[params], supply),
                    None => Table::new(name(shard.table), shard.rows.count, group.width, kept[params], supply),
                }
            };
            let tables = shards.iter().map(&mut table).collect::<Result<Vec<_>>>()?;
            let share = |shard: &Shard| shard.rows.count as f64 / layout.sharding().rows(shard.table) as f64;
            let look_ups = shards.iter().map(|shard| look_ups(shard.table, share(shard))).sum();
            Ok(Group {
                params,
                look_up: LookUp::new(pooling, tables.len(), threads),
                updater: Updater::new(updates(tables.len(), group.width, pooling, look_ups, params), supply)?,
                tables,
                single: LookUp::new(Pooling::Sum, 1, threads),
            })
        };
        let groups = holding.groups.iter().map(group).collect::<Result<_>>()?;
        let replica = |&table: &TableId| {
            let (rows, dim) = (schema.tables[table.index()].rows, layout.sharding().dim(table));
            let params = params_of[table.index()];
            let updates = updates(1, dim, Pooling::Sum, look_ups(table, 1.0), params);
            let sums = match layout.grains() {
                Some(_) => None,
                None if !spec.learns() => None,
                None => {
                    let sums = vec![Table::new(name(table), rows, dim, ParamState::default(), supply)?];
                    let updater = Updater::new(Spec { kept: ParamState::default(), ..updates }, supply)?;
                    Some(SparseGradients::new(sums, std::iter::once(rows as usize), updater, dim))
                }
            };
            let own = &layout.sharding().of_table(table)[rank.index()];
            let weights = match stored.and_then(|stored| stored.weights(own, [rows as usize, dim])) {
                Some(rows) => {
                    Table::stored(name(table), dim, spec.precision, rows).with_row_weights(kept[params], supply)?
                }
                None => Table::new(name(table), rows, dim, kept[params], supply)?,
            };
            Ok(Replica {
                table,
                params,
                columns: layout.columns(table),
                weights: [weights],
                look_up: LookUp::new(Pooling::Sum, 1, threads),
                updater: Updater::new(updates, supply)?,
                sums,
            })
        };
        let replicas = layout.replicated().iter().map(replica).collect::<Result<_>>()?;
        let (pooling, row, bounds) = (config.pooling, layout.feature_row(), Bounds::of(config, &schema.rows()));
        Ok(Self { rank, groups, replicas, copies: None, pooling, kept, bounds, row, sources: Vec::new() })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        for group in &mut self.groups {
            group.tables.iter_mut().for_each(|table| table.settle(arena));
            group.updater.settle(arena);
        }
        for Replica { weights, updater, sums, .. } in &mut self.replicas {
            weights[0].settle(arena);
            updater.settle(arena);
            sums.iter_mut().for_each(|sums| sums.settle(arena));
        }
    }

    /// Takes copies of hot rows, and lends those that it had.
    pub const fn replace_copies(&mut self, copies: Option<Copies>) -> Option<Copies> {
        std::mem::replace(&mut self.copies, copies)
    }

    /// Its copies of hot rows.
    #[must_use]
    pub const fn copies(&self) -> Option<&Copies> {
        self.copies.as_ref()
    }

    /// Sets what the optimizer keeps of rows, and their learned weights, to what they begin with.
    pub fn reset_optimizer_state(&mut self, team: &Team) {
        let own = self.groups.iter_mut().flat_map(|group| &mut group.tables);
        own.chain(self.replicas.iter_mut().flat_map(|replica| &mut replica.weights))
            .for_each(|table| table.reset_optimizer_state(team));
    }

    /// Draws initial weights: a pure function of seed, table and place, whoever holds what.
    pub fn initialise(&mut self, team: &Team, layout: &Layout, seed: u64) {
        let (sharding, holding) = (layout.sharding(), layout.of(self.rank));
        let tables = self.groups.iter_mut().flat_map(|group| &mut group.tables);
        for (table, shard) in tables.zip(&holding.shards) {
            init::shard(team, table, shard, self.bounds[shard.table.index()], sharding.dim(shard.table), seed);
        }
        for replica in &mut self.replicas {
            let bounds = self.bounds[replica.table.index()];
            init::table(team, &mut replica.weights[0], bounds, replica.table.0, seed);
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
        let (stride, groups) = (layout.of(self.rank).stride, &layout.of(self.rank).groups);
        for (group, place) in self.groups.iter_mut().zip(groups) {
            group.pool(team, ids, Route { owner: self.rank, asking: to }, place, message, stride);
        }
    }

    /// Forward: pools what this rank holds for its own samples, whole tables into their features, divided rows into
    /// rows of the layout's partial stride.
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
        // What this rank holds itself follows: some columns of a table may be its own.
        self.copies.iter_mut().for_each(|copies| copies.look_up(team, ids, features));
        let holding = layout.of(self.rank);
        for (group, place) in self.groups.iter_mut().zip(&holding.groups) {
            if place.partial {
                group.pool(team, ids, Route::own(self.rank), place, partial, holding.partial_stride);
            } else {
                let slots = Slots::new(self.row, &place.in_features).sequences(place.positions, place.step);
                let lookups = Lookups::of(batch).in_tables(&place.tables);
                group.look_up.run(team, &group.tables, lookups, features, slots);
            }
        }
        for Replica { table, columns, weights, look_up, .. } in &mut self.replicas {
            let (starts, dim) = ([columns.start], weights[0].dim());
            let slots = Slots::new(self.row, &starts).sequences(columns.len() / dim, dim);
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
        let slots = Slots::new(place.width, &[0]);
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

    /// Moves the rows of this rank's shards that samples of any rank looked up, each against the message of its pooled
    /// rows' gradients; there is none of its own samples, whose features' gradient is `own` and whose minibatch is
    /// `batch`. With the sums of hot rows' gradients, unless these came with others.
    pub fn update_rows<'m>(
        &mut self,
        team: &Team,
        (layout, ids): (&Layout, &Ids),
        messages: &'m dyn Fn(RankId) -> Option<&'m [f32]>,
        (batch, own): (&Batch, &[f32]),
        hot: Option<&HotRows>,
        step_sizes: StepSizes,
    ) {
        let holding = layout.of(self.rank);
        for (group, place) in self.groups.iter_mut().zip(&holding.groups) {
            let mut sources: Vec<Source<'_>> = recycled(std::mem::take(&mut self.sources));
            for from in (0..layout.ranks() as u32).map(RankId) {
                let whole_here = from == self.rank && !place.partial;
                let (gradient, slots) = match (
                    messages(from).filter(|_| !whole_here),
                    ids.blocks(Route { owner: self.rank, asking: from }, Pass::Backward),
                ) {
                    (Some(message), Some(blocks)) => (message, Slots::new(place.width, blocks.starts(&place.shards))),
                    (Some(message), None) => (message, place.slots(holding.stride)),
                    (None, _) => {
                        let slots = Slots::new(self.row, &place.in_features);
                        (own, slots.sequences(place.positions, place.step))
                    }
                };
                if gradient.is_empty() {
                    continue;
                }
                let lookups =
                    if whole_here { Lookups::of(batch).in_tables(&place.tables) } else { ids.lookups(from, place) };
                sources.push(Source { lookups, gradient, slots });
            }
            let sums = |from| hot.and_then(|hot| hot.sums(RankId(from), place));
            sources.extend((0..layout.ranks() as u32).filter_map(sums));
            group.updater.run(team, &mut group.tables, &sources, step_sizes[group.params]);
            self.sources = recycled(sources);
        }
    }

    /// Lists the sums of hot rows' gradients for their owners; `gradient` is that of the features.
    pub fn sum_hot(&mut self, team: &Team, layout: &Layout, ids: &Ids, gradient: &[f32], to: &mut HotRows) {
        let rank = self.rank;
        self.copies.iter_mut().for_each(|copies| copies.sum(team, layout, (rank, ids), gradient, to));
    }

    /// Marks this rank's hot rows that a step has moved, given its look-ups; with the sums of hot rows' gradients, if
    /// these came.
    pub fn mark_hot(&mut self, team: &Team, layout: &Layout, (ids, batch): (&Ids, &Batch), sums: Option<&HotRows>) {
        self.copies.iter_mut().for_each(|copies| copies.mark(team, layout, (self.rank, ids), batch, sums));
    }

    /// Marks all hot rows of this rank.
    pub fn mark_all_hot(&mut self, layout: &Layout) {
        self.copies.iter_mut().for_each(|copies| copies.mark_all(layout, self.rank));
    }

    /// Lists this rank's hot rows that were marked since the last list.
    pub fn list_hot(&mut self, layout: &Layout, to: &mut HotRows) {
        let Some(copies) = &mut self.copies else { return };
        let tables = self.groups.iter().flat_map(|group| &group.tables);
        copies.list(layout, self.rank, tables, to.own_mut());
    }

    /// Takes the hot rows that all owners have moved into this rank's copies.
    pub fn take_hot(&mut self, layout: &Layout, from: &HotRows) {
        let Some(copies) = &mut self.copies else { return };
        (0..layout.ranks() as u32).map(RankId).for_each(|owner| copies.take(layout, owner, from.list(owner)));
    }

    /// Makes the own list of `to` what this rank's samples have for the replicated tables; `gradient` is that of the
    /// features.
    pub fn list_replicas(&mut self, team: &Team, batch: &Batch, gradient: &[f32], to: &mut Replicas) {
        to.clear();
        for Replica { table, columns, weights, sums, .. } in &mut self.replicas {
            let Some(sums) = sums else { return to.push_samples(batch, gradient, self.row) };
            let number = [table.index()];
            let lookups = Lookups::of(batch).in_tables(&number);
            let (starts, dim) = ([columns.start], weights[0].dim());
            let slots = Slots::new(self.row, &starts).sequences(columns.len() / dim, dim);
            sums.sum(team, Source { lookups, gradient, slots });
            to.push_sums(sums.of(0));
            sums.clear();
        }
    }

    /// Moves the replicated tables by what all ranks have for them.
    pub fn update_replicas(&mut self, team: &Team, from: &Replicas, step_sizes: StepSizes) {
        for (index, Replica { params, weights, updater, .. }) in self.replicas.iter_mut().enumerate() {
            let mut sources: Vec<Source<'_>> = recycled(std::mem::take(&mut self.sources));
            sources.extend(from.sources(index));
            updater.run(team, weights, &sources, step_sizes[*params]);
            self.sources = recycled(sources);
        }
    }

    /// The work of looking up rows, and of moving them, in a step: of all samples that ask this rank, its own of
    /// `batch`. Every different row is read from memory at least once, however often it is looked up.
    #[must_use]
    pub fn work(&self, layout: &Layout, ids: &Ids, batch: &Batch) -> [Work; 2] {
        let own = Lookups::of(batch);
        // What is kept of so many rows.
        let kept = |params: ParamGroup, rows: usize, width: usize| {
            let kept = self.kept[params];
            rows * (width * kept.bytes() + kept.row_bytes())
        };
        // Elements of look-ups, of different rows, and of pooled rows; bytes that are kept of the rows.
        let copies = self.copies.as_ref().map_or([0; 4], |copies| copies.work(ids));
        let [mut looked_up, mut met, mut pooled, of_copies] = copies;
        let mut moved = kept(ParamGroup::Sparse, of_copies, met.checked_div(of_copies).unwrap_or(0));
        // A learned weight a row.
        let weight = |params: ParamGroup| if self.kept[params].row_weights { size_of::<f32>() } else { 0 };
        let mut weighing = of_copies * weight(ParamGroup::Sparse);
        for Replica { table, params, columns, weights, .. } in &self.replicas {
            let (rows, dim) = (own.bag(table.index()).rows, weights[0].dim());
            looked_up += rows.len() * dim;
            let different = rows.iter().collect::<HashSet<_>>().len();
            met += different * dim;
            moved += kept(*params, different, dim);
            weighing += different * weight(*params);
            pooled += batch.samples() * columns.len();
        }
        for (group, place) in self.groups.iter().zip(&layout.of(self.rank).groups) {
            let mut rows = vec![HashSet::<u32>::new(); place.shards.len()];
            for from in (0..layout.ranks() as u32).map(RankId) {
                let whole_here = from == self.rank && !place.partial;
                let lookups = if whole_here { own.in_tables(&place.tables) } else { ids.lookups(from, place) };
                looked_up += lookups.total() * place.width;
                let bags = lookups.bags().map(|bag| bag.samples()).sum::<usize>();
                pooled += bags * place.width;
                rows.iter_mut().zip(lookups.bags()).for_each(|(rows, bag)| rows.extend(bag.rows));
            }
            let different = rows.iter().map(HashSet::len).sum::<usize>();
            met += different * place.width;
            moved += kept(group.params, different, place.width);
            weighing += different * weight(group.params);
        }
        let [looked_up, met, pooled, moved, weighing] =
            [looked_up, met, pooled, moved, weighing].map(|count| count as f64);
        // A look-up reads what the precision lets it and writes a pooled row a bag; an update reads and writes all that
        // is kept, and reads the pooled row's gradient.
        let read = self.kept[ParamGroup::Sparse].precision.read_bytes() as f64;
        let streamed = pooled * size_of::<f32>() as f64;
        [
            Work { bound: Bound::Gather, operations: looked_up, bytes: met * read + weighing, streamed, sent: 0.0 },
            Work { bound: Bound::Scatter, operations: 2.0 * looked_up, bytes: 2.0 * moved, streamed, sent: 0.0 },
        ]
    }
}
