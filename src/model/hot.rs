//! A rank's copies of hot rows of tables that other ranks have a part of.
//!
//! A copy is what look-ups read of the row, its learned weight if it has one included, without what the optimizer
//! keeps. It is written when the owner has moved the row: between steps it is equal to the row, whoever looks, or
//! behind it as long as inputs are cold, which read no copy.

use super::sparse::{RowSet, SparseGradients};
use super::table_group::{GroupSpec, Replicated, TableGroup};
use crate::base::config::{ModelConfig, Pooling};
use crate::base::{RankId, Result, TableId};
use crate::data::hot::TableSlots;
use crate::data::{Batch, Schema};
use crate::embedding::{Lookups, Table};
use crate::exchange::{HotRows, Ids, Layout, RankContext};
use crate::machine::team::Team;
use crate::memory::{Arena, Supply};
use crate::model::TrainSpec;
use crate::optim::{Optimizer, ParamGroup, ParamState};
use crate::shard::scheme::Shard;
use crate::sync::Rows;

/// The copies, and which of its own hot rows a step meets.
#[derive(Debug)]
pub struct Copies {
    /// A row a slot.
    groups: Vec<Replicated>,
    /// By table: the group of its copies, and its place there.
    places: Vec<Option<[usize; 2]>>,
    /// Of each of this rank's shards, in the order of its holding.
    met: Vec<RowSet>,
    /// Elements of a sample's features.
    row: usize,
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
        // Each table with its place among the tables of [`Ids::hot`].
        let mut tables_of = Vec::<Vec<(TableId, usize)>>::new();
        for (table, number) in served.into_iter().zip(0..) {
            match tables_of.iter_mut().find(|group| alike(&group[0].0, &table)) {
                Some(group) => group.push((table, number)),
                None => tables_of.push(vec![(table, number)]),
            }
        }
        let group = |members: Vec<(TableId, usize)>| {
            let (ids, numbers): (Vec<TableId>, Vec<usize>) = members.into_iter().unzip();
            let spec = GroupSpec {
                train: &spec,
                pooling: if layout.averages_at_sample(ids[0]) { Pooling::Sum } else { config.pooling },
                dim: layout.sharding().dim(ids[0]),
                lookups: layout.samples(spec.samples, rank)
                    * ids.iter().map(|table| layout.lookups(*table)).sum::<usize>(),
                threads: team.threads(),
            };
            let name = |table: TableId| format!("hot rows of {}", schema.tables[table.index()].name);
            let copy = |&table: &TableId| {
                let (precision, row_weights) = (spec.train.precision, layout.copies_weights(table));
                let kept = ParamState { precision, optimizer: Optimizer::Sgd, row_weights };
                Table::new(name(table), rows(table) as u64, spec.dim, kept, supply)
            };
            let copies = ids.iter().map(copy).collect::<Result<Vec<_>>>()?;
            let sums = match layout.grains() {
                Some(_) => None,
                None => {
                    let named = ids.iter().map(|&table| (format!("gradients of {}", name(table)), rows(table)));
                    Some(SparseGradients::new(named, &spec, supply)?)
                }
            };
            let group = TableGroup::copies(copies, ParamGroup::Sparse, &spec);
            Ok(Replicated::new((ids, numbers), group, sums, layout))
        };
        let groups = tables_of.into_iter().map(group).collect::<Result<Vec<_>>>()?;
        let mut places = vec![None; layout.sharding().tables()];
        for (number, group) in groups.iter().enumerate() {
            group.ids.iter().enumerate().for_each(|(at, table)| places[table.index()] = Some([number, at]));
        }
        let met = layout.of(rank).shards.iter().map(|shard| RowSet::new(rows(shard.table))).collect();
        Ok(Some(Self { groups, places, met, row: layout.feature_row() }))
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.groups.iter_mut().for_each(|group| group.settle(arena));
    }

    /// Takes over copies of another layout's hot rows, as far as both are of the same rows, and marks those of this
    /// rank's own rows as moved of which there was no copy.
    ///
    /// # Panics
    /// When more differs than which rows are hot.
    pub fn take_over(&mut self, before: &Self, [old, new]: [&Layout; 2], team: &Team, rank: RankId) {
        let (Some(old), Some(all)) = (old.hot(), new.hot()) else { return };
        for (Replicated { ids, group, .. }, from) in self.groups.iter_mut().zip(&before.groups) {
            assert_eq!(*ids, from.ids, "copies of the same tables");
            team.share(Rows::new(&mut group.tables, 1, ids.len(), 1), |band| {
                for ((table, weights), from) in
                    ids[band.first..].iter().zip(band.data).zip(&from.group.tables[band.first..])
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
        for group in &mut self.groups {
            group.look_up(team, ids.hot().1, (&mut *features, self.row));
        }
    }

    /// Lists the sums of the gradients of this rank's hot bags for the owners; `gradient` is that of the features.
    pub(super) fn sum(&mut self, context: &RankContext, ids: &Ids, gradient: &[f32], to: &mut HotRows) {
        let (rank, team, layout) = (context.rank, &context.team, &*context.layout);
        let Some(hot) = layout.hot() else { return };
        for group in &mut self.groups {
            if group.sum(team, ids.hot().1, (gradient, self.row)).is_none() {
                return;
            }
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
        Some(&mut self.groups[group].group.tables[at])
    }

    /// As [`Replicated::work`], of all.
    pub(super) fn work(&self, ids: &Ids) -> [usize; 4] {
        let plus = |sum: [usize; 4], own: [usize; 4]| std::array::from_fn(|at| sum[at] + own[at]);
        self.groups.iter().map(|group| group.work(ids.hot().1)).fold([0; 4], plus)
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
