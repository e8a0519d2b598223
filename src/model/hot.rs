//! A rank's copies of hot rows of tables that other ranks have a part of.
//!
//! A copy is what look-ups read of the row, its learned weight if it has one included, without what the optimizer
//! keeps. It is written when the owner has moved the row: between steps it is equal to the row, whoever looks, or
//! behind it as long as inputs are cold, which read no copy.

use std::collections::HashSet;

use super::sparse::{RowSet, SparseGradients};
use crate::base::config::{ModelConfig, Pooling};
use crate::base::{RankId, Result, TableId};
use crate::data::hot::TableSlots;
use crate::data::{Batch, Schema};
use crate::embedding::{LookUp, Lookups, Slots, Source, Spec, Table, Updater};
use crate::exchange::{HotRows, Ids, Layout, RankContext};
use crate::machine::team::Team;
use crate::memory::{Arena, Supply};
use crate::model::TrainSpec;
use crate::optim::{Optimizer, ParamState};
use crate::shard::scheme::Shard;
use crate::sync::Rows;

/// The copies, and which of its own hot rows a step meets.
#[derive(Debug)]
pub struct Copies {
    groups: Vec<Group>,
    /// By table: the group of its copies, and its place there.
    places: Vec<Option<[usize; 2]>>,
    /// Of each of this rank's shards, in the order of its holding.
    met: Vec<RowSet>,
    /// Elements of a sample's features.
    row: usize,
}

/// Tables of one width, pooled in one way.
#[derive(Debug)]
struct Group {
    tables: Vec<TableId>,
    /// The place of each among the tables of [`Ids::hot`].
    numbers: Vec<usize>,
    /// Where each one's columns begin in a sample's features.
    starts: Vec<usize>,
    positions: usize,
    dim: usize,
    /// A row a slot.
    weights: Vec<Table>,
    look_up: LookUp,
    /// Unless gradients go to owners bag by bag.
    sums: Option<SparseGradients>,
}

impl Copies {
    /// The copies of `rank`, all 0, and no others; nothing where the layout has no hot rows.
    ///
    /// # Errors
    /// When the supply is exhausted.
    ///
    /// # Panics
    /// When the layout's tables are other than the schema's.
    pub fn new(
        (config, schema): (&ModelConfig, &Schema),
        layout: &Layout,
        rank: RankId,
        team: &Team,
        spec: TrainSpec,
        supply: &mut Supply<'_>,
    ) -> Result<Option<Self>> {
        let Some(hot) = layout.hot() else { return Ok(None) };
        let served: Vec<TableId> = layout.served(rank).collect();
        let rows = |table: TableId| hot.table(table.index()).rows().len();
        let alike = |a: &TableId, b: &TableId| {
            let of = |table: TableId| (layout.sharding().dim(table), layout.averages_at_sample(table));
            of(*a) == of(*b) && layout.positions(*a) == 1 && layout.positions(*b) == 1
        };
        let numbers = served.iter().copied().zip(0..).collect::<Vec<(TableId, usize)>>();
        let mut tables_of = Vec::<Vec<(TableId, usize)>>::new();
        for &(table, number) in &numbers {
            match tables_of.iter_mut().find(|group| alike(&group[0].0, &table)) {
                Some(group) => group.push((table, number)),
                None => tables_of.push(vec![(table, number)]),
            }
        }
        let group = |members: Vec<(TableId, usize)>| {
            let (tables, numbers): (Vec<TableId>, Vec<usize>) = members.into_iter().unzip();
            let (dim, positions) = (layout.sharding().dim(tables[0]), layout.positions(tables[0]));
            let pooling = if layout.averages_at_sample(tables[0]) { Pooling::Sum } else { config.pooling };
            let name = |table: &TableId| format!("hot rows of {}", schema.tables[table.index()].name);
            let mut copies = |kept: &dyn Fn(TableId) -> ParamState, what: &str| {
                let table = |table: &TableId| {
                    Table::new(format!("{what}{}", name(table)), rows(*table) as u64, dim, kept(*table), supply)
                };
                tables.iter().map(table).collect::<Result<Vec<_>>>()
            };
            let (precision, optimizer) = (spec.precision, Optimizer::Sgd);
            let weights =
                copies(&|table| ParamState { precision, optimizer, row_weights: layout.copies_weights(table) }, "")?;
            let updates = Spec {
                update: spec.update,
                fused: spec.update_fused,
                pooling,
                tables: tables.len(),
                dim,
                kept: ParamState::default(),
                lookups: layout.samples(spec.samples, rank)
                    * tables.iter().map(|&table| layout.lookups(table)).sum::<usize>(),
                threads: team.threads(),
            };
            let sums = match layout.grains() {
                Some(_) => None,
                None => {
                    let sums = copies(&|_| ParamState::default(), "gradients of ")?;
                    Some(SparseGradients::new(
                        sums,
                        tables.iter().map(|table| rows(*table)),
                        Updater::new(updates, supply)?,
                        dim,
                    ))
                }
            };
            Ok(Group {
                starts: tables.iter().map(|table| layout.columns(*table).start).collect(),
                look_up: LookUp::new(pooling, tables.len(), team.threads()),
                tables,
                numbers,
                positions,
                dim,
                weights,
                sums,
            })
        };
        let groups = tables_of.into_iter().map(group).collect::<Result<Vec<Group>>>()?;
        let mut places = vec![None; layout.sharding().tables()];
        for (number, group) in groups.iter().enumerate() {
            group.tables.iter().enumerate().for_each(|(at, table)| places[table.index()] = Some([number, at]));
        }
        let met = layout.of(rank).shards.iter().map(|shard| RowSet::new(rows(shard.table))).collect();
        Ok(Some(Self { groups, places, met, row: layout.feature_row() }))
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        for Group { weights, sums, .. } in &mut self.groups {
            weights.iter_mut().for_each(|table| table.settle(arena));
            sums.iter_mut().for_each(|sums| sums.settle(arena));
        }
    }

    /// Takes over copies of another layout's hot rows, as far as both are of the same rows, and marks those of this
    /// rank's own rows as moved of which there was no copy.
    ///
    /// # Panics
    /// When more differs than which rows are hot.
    pub fn take_over(&mut self, before: &Self, [old, new]: [&Layout; 2], team: &Team, rank: RankId) {
        let (Some(old), Some(all)) = (old.hot(), new.hot()) else { return };
        for (Group { tables, weights, .. }, from) in self.groups.iter_mut().zip(&before.groups) {
            assert_eq!(*tables, from.tables, "copies of the same tables");
            team.share(Rows::new(weights, 1, tables.len(), 1), |band| {
                for ((table, weights), from) in
                    tables[band.first..].iter().zip(band.data).zip(&from.weights[band.first..])
                {
                    let [old, new] = [old, all].map(|hot| hot.table(table.index()));
                    for (slot, row) in new.rows().iter().enumerate() {
                        let Some(before) = old.slot(*row).map(|before| before as usize) else { continue };
                        weights.set_seen(slot, 0..weights.dim(), from.seen(before));
                        from.row_weight(before)
                            .into_iter()
                            .for_each(|weight| weights.set_row_weights(0, slot, &[weight]));
                    }
                }
            });
        }
        for (met, shard) in self.met.iter_mut().zip(&new.of(rank).shards) {
            let [old, new] = [old, all].map(|hot| hot.table(shard.table.index()));
            let entered = |row: &u32| old.slot(*row).is_none() && shard.rows.local(u64::from(*row)).is_some();
            (0..).zip(new.rows()).filter(|(_, row)| entered(row)).for_each(|(slot, _)| met.mark(slot));
        }
    }

    /// Forward: pools this rank's hot bags to their places among the features, and writes 0 where other bags of these
    /// tables will be.
    pub(super) fn look_up(&mut self, team: &Team, ids: &Ids, features: &mut [f32]) {
        for Group { numbers, starts, positions, dim, weights, look_up, .. } in &mut self.groups {
            let slots = Slots::new(self.row, starts).sequences(*positions, *dim);
            look_up.run(team, weights, ids.hot().1.in_tables(numbers), features, slots);
        }
    }

    /// Lists the sums of the gradients of this rank's hot bags for the owners; `gradient` is that of the features.
    pub(super) fn sum(&mut self, context: &RankContext, ids: &Ids, gradient: &[f32], to: &mut HotRows) {
        let (rank, team, layout) = (context.rank, &context.team, &*context.layout);
        let Some(hot) = layout.hot() else { return };
        for Group { numbers, starts, positions, dim, sums, .. } in &mut self.groups {
            let Some(sums) = sums else { return };
            let lookups = ids.hot().1.in_tables(numbers);
            let slots = Slots::new(self.row, starts).sequences(*positions, *dim);
            sums.sum(team, Source { lookups, gradient, slots });
        }
        to.clear_sums();
        for owner in (0..layout.ranks() as u32).map(RankId) {
            let groups = layout.of(owner).groups.iter().take_while(|group| owner != rank || group.partial);
            for shard in groups.flat_map(|group| &layout.of(owner).shards[group.shards.clone()]) {
                let rows = hot.table(shard.table.index()).rows();
                let here = self.sums_of(shard.table).filter_map(|(slot, sum)| {
                    let row = shard.rows.local(u64::from(rows[slot as usize]))?;
                    Some((row as u32, &sum[shard.columns.clone()]))
                });
                to.push_sums(owner, here);
            }
        }
        self.groups.iter_mut().filter_map(|group| group.sums.as_mut()).for_each(SparseGradients::clear);
    }

    fn sums_of(&self, table: TableId) -> impl Iterator<Item = (u32, &[f32])> + Clone {
        let found = self.places[table.index()].and_then(|[group, at]| Some(self.groups[group].sums.as_ref()?.of(at)));
        found.expect("copies of all tables that another rank has a part of")
    }

    /// Marks all hot rows of this rank's shards as moved.
    pub(super) fn mark_all(&mut self, layout: &Layout, rank: RankId) {
        for (met, shard) in self.met.iter_mut().zip(&layout.of(rank).shards) {
            let slots = layout.hot().map_or(&[][..], |hot| hot.table(shard.table.index()).rows());
            let here = |row: &u32| shard.rows.local(u64::from(*row)).is_some();
            (0..).zip(slots).filter(|(_, row)| here(row)).for_each(|(slot, _)| met.mark(slot));
        }
    }

    /// Marks the hot rows of this rank's shards that a step's look-ups met, which have moved; `sums` has those in bags
    /// that did not come, unless all did.
    pub(super) fn mark(&mut self, context: &RankContext, (ids, batch): (&Ids, &Batch), sums: Option<&HotRows>) {
        let (rank, team, layout) = (context.rank, &context.team, &*context.layout);
        let Some(all) = layout.hot() else { return };
        let holding = layout.of(rank);
        for group in &holding.groups {
            let met = &mut self.met[group.shards.clone()];
            team.share(Rows::new(met, 1, group.shards.len(), 1), |band| {
                let (at, met) = (band.first, &mut band.data[0]);
                let shard = &holding.shards[group.shards.start + at];
                let slots = all.table(shard.table.index());
                for from in (0..layout.ranks() as u32).map(RankId) {
                    let whole_here = from == rank && !group.partial;
                    let lookups =
                        if whole_here { Lookups::of(batch).in_tables(&group.tables) } else { ids.lookups(from, group) };
                    mark(met, shard, slots, lookups.bag(at).rows);
                    if let Some(source) = sums.and_then(|sums| sums.sums(from, group)) {
                        mark(met, shard, slots, source.lookups.bag(at).rows);
                    }
                }
            });
        }
    }

    /// Lists what is marked, with the rows of this rank's shards, and forgets the marks.
    pub(super) fn list<'a>(
        &mut self,
        layout: &Layout,
        rank: RankId,
        shards: impl Iterator<Item = &'a Table>,
        to: &mut Vec<u32>,
    ) {
        let Some(hot) = layout.hot() else { return };
        to.clear();
        for ((met, shard), table) in self.met.iter_mut().zip(&layout.of(rank).shards).zip(shards) {
            let slots = met.list();
            to.push(slots.len() as u32);
            to.extend_from_slice(slots);
            let rows = hot.table(shard.table.index()).rows();
            for slot in slots {
                let row = shard.rows.local(u64::from(rows[*slot as usize])).expect("one of the shard's rows was met");
                to.extend_from_slice(table.seen(row as usize));
                to.extend(table.row_weight(row as usize).map(f32::to_bits));
            }
        }
    }

    /// Takes an owner's rows into this rank's copies.
    pub(super) fn take(&mut self, layout: &Layout, owner: RankId, list: &[u32]) {
        let mut left = list;
        let mut next = |words: usize| {
            let (now, later) = left.split_at(words);
            left = later;
            now
        };
        for shard in &layout.of(owner).shards {
            let slots = next(1)[0] as usize;
            let slots = next(slots);
            let words = layout.hot_words(shard);
            let rows = next(slots.len() * words);
            // Of a table that it holds alone a rank has no copies.
            let Some(copies) = self.copies_of(shard.table) else { continue };
            for (slot, seen) in slots.iter().zip(rows.chunks_exact(words)) {
                let (seen, weight) = seen.split_at(words - usize::from(layout.copies_weights(shard.table)));
                copies.set_seen(*slot as usize, shard.columns.clone(), seen);
                if let [weight] = weight {
                    copies.set_row_weights(0, *slot as usize, &[f32::from_bits(*weight)]);
                }
            }
        }
        assert!(left.is_empty(), "as many words as the shards' rows take");
    }

    fn copies_of(&mut self, table: TableId) -> Option<&mut Table> {
        let [group, at] = self.places[table.index()]?;
        Some(&mut self.groups[group].weights[at])
    }

    /// What is looked up in them: elements of look-ups, of different rows, and of pooled rows; and those rows.
    pub(super) fn work(&self, ids: &Ids) -> [usize; 4] {
        let mut work = [0; 4];
        for Group { numbers, dim, .. } in &self.groups {
            for bag in ids.hot().1.in_tables(numbers).bags() {
                let different = bag.rows.iter().collect::<HashSet<_>>().len();
                let own = [bag.rows.len() * dim, different * dim, bag.samples() * dim, different];
                work.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            }
        }
        work
    }
}

/// Marks those of a shard's rows that are hot.
fn mark(met: &mut RowSet, shard: &Shard, slots: &TableSlots, rows: &[u32]) {
    for row in rows {
        if let Some(slot) = slots.slot(shard.rows.global(u64::from(*row)) as u32) {
            met.mark(slot);
        }
    }
}
