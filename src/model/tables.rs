//! A rank's part of the embedding tables: the shards that it holds alone, and its copies of those that every rank has.
//!
//! What a rank holds whole it pools straight into the features of its own samples, and moves by their gradient where
//! the network has left it; for other ranks' samples it fills and reads messages. Of divided rows it pools terms of a
//! sum. Tables that are replicated are looked up at home, and moved alike on all ranks by the gradients of all. Copies
//! of hot rows are looked up at home, too, and written when their owners have moved them.

mod build;
mod tensors;
mod work;

use std::ops::Range;

use build::Builder;

use super::hot::Copies;
use super::init::{self, Bounds};
use super::table_group::{ReplicatedGroup, TableGroup};
use crate::base::config::{ModelConfig, Pooling};
use crate::base::{RankId, Result, TableId};
use crate::collective::Opened;
use crate::data::{Bag, Batch, Schema};
use crate::embedding::{Choice, LookUp, Lookups, Slots, Source, Target};
use crate::exchange::{self, HotRows, Ids, Layout, Pass, RankContext, Replicas, Route, Vectors, replica_groups};
use crate::machine::team::Team;
use crate::memory::{Supply, recycled};
use crate::model::{StoredTables, TrainSpec, table_param_groups};
use crate::optim::{ByGroup, ParamState, StepSizes};
use crate::sync::{Rows, Stores};

/// A rank's part of the tables.
#[derive(Debug)]
pub struct Tables {
    rank: RankId,
    /// The shards, as the layout groups them.
    groups: Vec<TableGroup>,
    /// As [`replica_groups`] has them.
    replicas: Vec<ReplicatedGroup>,
    /// In the order of replicated tables, the group of each, and its place there.
    replica_places: Vec<[usize; 2]>,
    copies: Option<Copies>,
    /// Look-ups in one of the shards, whose rows travel unpooled.
    single: LookUp,
    pooling: Pooling,
    /// What is kept of the rows of each group.
    kept: ByGroup<ParamState>,
    /// Of initial weights, by table.
    bounds: Vec<Bounds>,
    /// Elements of a sample's features.
    row: usize,
    /// Memory that steps use again.
    sources: Vec<Source<'static>>,
    targets: Vec<Target<'static>>,
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
        let (kept, threads) = (spec.param_states(config), team.threads());
        let param_groups = table_param_groups(config, schema.tables.len());
        let (spec, held) = (&spec, layout.of(rank));
        let replicas = replica_groups(layout);
        let mut replica_places = vec![[0; 2]; layout.replicated().len()];
        for (group, places) in replicas.iter().enumerate() {
            places.iter().enumerate().for_each(|(at, place)| replica_places[*place] = [group, at]);
        }
        let mut build = Builder { config, schema, layout, rank, spec, stored, param_groups, kept, threads, supply };
        Ok(Self {
            rank,
            groups: held.groups.iter().map(|group| build.shards(group)).collect::<Result<_>>()?,
            replicas: replicas.iter().map(|places| build.replicas(places)).collect::<Result<_>>()?,
            replica_places,
            copies: None,
            single: LookUp::new(Pooling::Sum, 1, threads),
            pooling: config.pooling,
            kept,
            bounds: Bounds::of(config, schema),
            row: layout.feature_row(),
            sources: Vec::new(),
            targets: Vec::with_capacity(layout.ranks()),
        })
    }

    /// Takes copies of hot rows, and lends those that it had.
    pub const fn replace_copies(&mut self, copies: Option<Copies>) -> Option<Copies> {
        std::mem::replace(&mut self.copies, copies)
    }

    /// Sets what the optimizer keeps of rows, and their learned weights, to what they begin with.
    pub fn reset_optimizer_state(&mut self, team: &Team) {
        let groups = self.groups.iter_mut().chain(self.replicas.iter_mut().map(|replicas| &mut replicas.group));
        groups.flat_map(|group| &mut group.tables).for_each(|table| table.reset_optimizer_state(team));
    }

    /// Draws initial weights: a pure function of seed, table and place, whoever holds what.
    pub fn initialise(&mut self, team: &Team, layout: &Layout, seed: u64) {
        let (sharding, held) = (layout.sharding(), layout.of(self.rank));
        let tables = self.groups.iter_mut().flat_map(|group| &mut group.tables);
        for (table, shard) in tables.zip(&held.shards) {
            init::shard(team, table, shard, self.bounds[shard.table.index()], sharding.dim(shard.table), seed);
        }
        for ReplicatedGroup { ids, group, .. } in &mut self.replicas {
            for (id, table) in ids.iter().zip(&mut group.tables) {
                // Every rank's is the whole table.
                let whole = &sharding.of_table(*id)[0];
                init::shard(team, table, whole, self.bounds[id.index()], sharding.dim(*id), seed);
            }
        }
    }

    /// How rows were last moved, and why so.
    #[must_use]
    pub fn update_choice(&self) -> Option<&Choice> {
        self.groups.iter().find_map(|group| group.updater.as_ref()?.choice())
    }

    /// What the user should know about the configured way to move rows.
    #[must_use]
    pub fn update_note(&self) -> Option<String> {
        self.groups.iter().find_map(|group| group.updater.as_ref()?.note())
    }

    /// Forward: pools this rank's shards for the samples of other ranks, into messages to them.
    pub fn look_up(&mut self, context: &RankContext, ids: &Ids, messages: &mut [Opened<'_>]) {
        let Self { rank, groups, targets: memory, .. } = self;
        for (group, place) in groups.iter_mut().zip(&context.layout.of(*rank).groups) {
            let mut targets: Vec<Target<'_>> = recycled(std::mem::take(memory));
            targets.extend(messages.iter_mut().map(|Opened { to, stores, lines }| {
                let route = Route { owner: *rank, asking: *to };
                target((ids, route), place, bytemuck::cast_slice_mut(lines), *stores)
            }));
            group.look_up.run_all(&context.team, &group.tables, &mut targets);
            *memory = recycled(targets);
        }
    }

    /// Forward: pools what this rank holds of divided rows for its own samples, into rows of the layout's partial
    /// stride or the vectors that `ids` tell of.
    pub fn look_up_divided(&mut self, context: &RankContext, ids: &Ids, partial: &mut [f32]) {
        let route = Route::own(self.rank);
        for (group, place) in self.groups.iter_mut().zip(context.layout.groups(route)) {
            let targets = &mut [target((ids, route), place, partial, Stores::Plain)];
            group.look_up.run_all(&context.team, &group.tables, targets);
        }
    }

    /// Forward: pools what this rank holds whole for some of its own samples, into these samples' features.
    pub fn look_up_own(
        &mut self,
        context: &RankContext,
        (ids, batch): (&Ids, &Batch),
        samples: &Range<usize>,
        features: &mut [f32],
    ) {
        let (team, layout) = (&context.team, &context.layout);
        if samples.is_empty() {
            return;
        }
        // What this rank holds itself follows: some columns of a table may be its own.
        self.copies.iter_mut().for_each(|copies| copies.look_up(team, (ids, samples), features));
        let held = self.groups.iter_mut().zip(&layout.of(self.rank).groups);
        for (group, place) in held.filter(|(_, place)| !place.travels(Route::own(self.rank))) {
            let slots = Slots::new(self.row, &place.in_features).sequences(place.positions, place.step);
            let lookups = ids.lookups(self.rank, place, batch).in_bags(&slots.bags(samples));
            group.look_up.run(team, &group.tables, lookups, features, slots);
        }
        for replicas in &mut self.replicas {
            replicas.look_up(team, (Lookups::of(batch), samples), (&mut *features, self.row));
        }
    }

    /// Forward: the rows of one of this rank's shards, as they are, that these bags, of one look-up each, name.
    ///
    /// # Panics
    /// When this rank has no such shard.
    pub fn look_up_unpooled(&mut self, context: &RankContext, shard: usize, bag: &Bag, rows: &mut [f32]) {
        let (team, layout) = (&context.team, &context.layout);
        let mut groups = self.groups.iter().zip(&layout.of(self.rank).groups);
        let (group, place) =
            groups.find(|(_, place)| place.shards.contains(&shard)).expect("one of this rank's shards");
        let table = std::slice::from_ref(&group.tables[shard - place.shards.start]);
        let slots = Slots::new(place.width, &[0]);
        self.single.run(team, table, Lookups::plain(std::slice::from_ref(bag)), rows, slots);
    }

    /// Divides sums of rows, or their gradients, by the lengths of their bags, as a product with the reciprocal, where
    /// the sample's rank does so and the model pools means; in the features of these samples. Columns of empty bags
    /// stay.
    pub fn divide_by_bag_lengths(
        &self,
        context: &RankContext,
        (batch, samples): (&Batch, &Range<usize>),
        features: &mut [f32],
    ) {
        let (team, layout, row) = (&context.team, &*context.layout, self.row);
        let tables = || (0..).map(TableId).zip(&batch.bags).filter(|(table, _)| layout.averages_at_sample(*table));
        if self.pooling != Pooling::Mean || features.is_empty() || tables().next().is_none() {
            return;
        }
        team.each(Rows::new(features, row, team.threads(), 1), |band| {
            for (table, bag) in tables() {
                let (columns, bag) = (layout.columns(table), bag.view().of_samples(samples));
                for (sample, row) in (band.first..).zip(band.data.chunks_exact_mut(row)) {
                    let count = bag.of(sample).len();
                    // The part that the embedding floor computes too; by 1 nothing changes.
                    let part = 1.0 / count as f32;
                    if count > 1 {
                        row[columns.clone()].iter_mut().for_each(|x| *x *= part);
                    }
                }
            }
        });
    }

    /// Moves the rows of this rank's shards that samples of any rank looked up, each against the message of its pooled
    /// rows' gradients; there is none of its own samples, whose features' gradient is `own` and whose minibatch is
    /// `batch`. With the sums of hot rows' gradients, unless these came with others.
    pub fn update_rows<'m>(
        &mut self,
        context: &RankContext,
        ids: &Ids,
        messages: &'m dyn Fn(RankId) -> Option<&'m [f32]>,
        (batch, own): (&Batch, &[f32]),
        hot: Option<&HotRows>,
        step_sizes: StepSizes,
    ) {
        let (team, layout) = (&context.team, &context.layout);
        let held = layout.of(self.rank);
        for (group, place) in self.groups.iter_mut().zip(&held.groups) {
            let mut sources: Vec<Source<'_>> = recycled(std::mem::take(&mut self.sources));
            for from in RankId::all(layout.ranks()) {
                let route = Route { owner: self.rank, asking: from };
                let (gradient, slots) = match messages(from).filter(|_| place.travels(route)) {
                    Some(message) => (message, ids.vectors(route, Pass::Backward).slots(place)),
                    None => {
                        let slots = Slots::new(self.row, &place.in_features);
                        (own, slots.sequences(place.positions, place.step))
                    }
                };
                if gradient.is_empty() {
                    continue;
                }
                sources.push(Source { lookups: ids.lookups(from, place, batch), gradient, slots });
            }
            let sums = |from| hot.and_then(|hot| hot.sums(RankId(from), place));
            sources.extend((0..layout.ranks() as u32).filter_map(sums));
            group.update(team, &sources, step_sizes);
            self.sources = recycled(sources);
        }
    }

    /// Lists the sums of hot rows' gradients for their owners; `gradient` is that of the features.
    pub fn sum_hot(&mut self, context: &RankContext, ids: &Ids, gradient: &[f32], to: &mut HotRows) {
        self.copies.iter_mut().for_each(|copies| copies.sum(context, ids, gradient, to));
    }

    /// Marks this rank's hot rows that a step has moved, given its look-ups; with the sums of hot rows' gradients, if
    /// these came.
    pub fn mark_hot(&mut self, context: &RankContext, look_ups: (&Ids, &Batch), sums: Option<&HotRows>) {
        self.copies.iter_mut().for_each(|copies| copies.mark(context, look_ups, sums));
    }

    /// Marks all hot rows of this rank.
    pub fn mark_all_hot(&mut self, layout: &Layout) {
        self.copies.iter_mut().for_each(|copies| copies.mark_all(layout, self.rank));
    }

    /// Lists this rank's hot rows that were marked since the last list.
    pub fn list_hot(&mut self, context: &RankContext, to: &mut HotRows) {
        self.copies.iter_mut().for_each(|copies| copies.list(context, &self.groups, to));
    }

    /// Takes the hot rows that all owners have moved into this rank's copies.
    pub fn take_hot(&mut self, context: &RankContext, from: &HotRows) {
        self.copies.iter_mut().for_each(|copies| copies.take(context, from));
    }

    /// Makes the own list of `to` what this rank's samples have for the replicated tables; `gradient` is that of the
    /// features.
    pub fn list_replicas(&mut self, team: &Team, batch: &Batch, gradient: &[f32], to: &mut Replicas) {
        for replicas in &mut self.replicas {
            let Some(sums) = replicas.sum(team, Lookups::of(batch), (gradient, self.row)) else {
                return to.push_samples(batch, gradient, self.row);
            };
            sums.count(team, |_, row| std::iter::once((0, row)));
        }
        to.clear();
        // Whichever tables are summed together, the list has them one by one in their order.
        for [group, table] in &self.replica_places {
            let sums = self.replicas[*group].sums.iter_mut();
            sums.for_each(|sums| sums.make_room(*table, 0, |sizes| to.room_for_sums(sizes)));
        }
        let list = to.sums_mut();
        for sums in self.replicas.iter_mut().filter_map(|replicas| replicas.sums.as_mut()) {
            sums.write(team, |_, row| std::iter::once((0, row)), list);
        }
    }

    /// Moves the replicated tables by what all ranks have for them.
    pub fn update_replicas(&mut self, team: &Team, from: &Replicas, step_sizes: StepSizes) {
        for (number, ReplicatedGroup { group, .. }) in self.replicas.iter_mut().enumerate() {
            let mut sources: Vec<Source<'_>> = recycled(std::mem::take(&mut self.sources));
            sources.extend(from.sources(number));
            group.update(team, &sources, step_sizes);
            self.sources = recycled(sources);
        }
    }
}

/// What is asked for of some shards on a route, and where it goes in a message.
fn target<'a>(
    (ids, route): (&'a Ids, Route),
    place: &'a exchange::Group,
    message: &'a mut [f32],
    stores: Stores,
) -> Target<'a> {
    let lookups = ids.pooled(route.asking, place);
    let lookups = if place.plain { lookups.unweighted() } else { lookups };
    let (vectors, slots) = match ids.vectors(route, Pass::Forward) {
        rows @ Vectors::Rows(_) => (message, Some(rows.slots(place))),
        Vectors::Bags(starts) => (&mut message[starts[place.shards.start]..starts[place.shards.end]], None),
    };
    Target { lookups, vectors, slots, stores }
}
