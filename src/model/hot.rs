//! A rank's copies of hot rows of tables that other ranks have a part of.
//!
//! A copy is what look-ups read of the row, its learned weight if it has one included, without what the optimizer
//! keeps. It is written when the owner has moved the row: between steps it is equal to the row, whoever looks, or
//! behind it as long as inputs are cold, which read no copy.

use std::iter::{Repeat, Zip, repeat};
use std::ops::Range;

use super::sparse::{LookupChunk, RowSet, RowUnit, SparseGradients, SumsOf};
use super::table_group::{GroupSpec, ReplicatedGroup, TableGroup};
use crate::base::config::{ModelConfig, Pooling};
use crate::base::{RankId, Result, TableId, in_groups};
use crate::data::hot::HotSlots;
use crate::data::{Batch, Schema};
use crate::embedding::{Copier, Moved, Table, TableTensor};
use crate::exchange::{HotRows, Ids, Layout, MovedRows, RankContext, Route};
use crate::machine::team::Team;
use crate::memory::{Supply, recycled};
use crate::model::TrainSpec;
use crate::optim::{Optimizer, ParamGroup, ParamState};
use crate::shard::scheme::{Shard, Split};
use crate::sync::{Each, Rows};

/// The copies, and which of its own hot rows a step meets.
#[derive(Debug)]
pub struct Copies {
    /// A row a slot.
    groups: Vec<ReplicatedGroup>,
    /// By table: where its copies are.
    places: Vec<Option<CopiesPlace>>,
    /// Whom this rank tells sums of hot rows' gradients, in the order of messages.
    told: Vec<Told>,
    /// By table: whom it tells which rows.
    receivers: Vec<RowReceivers>,
    /// Of each of this rank's shards, in their order, its group and its place there.
    homes: Vec<[usize; 2]>,
    /// Of each of those shards.
    met: Vec<RowSet>,
    /// All rows of these sets.
    units: Vec<RowUnit>,
    /// Of each of those shards, how many rows of a list are its own.
    listed: Vec<usize>,
    /// Takes in the lists of all owners.
    copier: Copier,
    /// Elements of a sample's features.
    row: usize,
    /// Memory that steps use again.
    chunks: Vec<LookupChunk<'static>>,
    moved: Vec<Moved<'static>>,
}

/// Where a table's copies are: in which group, at which place there, and at which among all.
#[derive(Debug, Clone, Copy)]
struct CopiesPlace {
    group: usize,
    at: usize,
    copy: usize,
}

/// A shard of which sums are sent.
#[derive(Debug)]
struct Told {
    owner: RankId,
    /// Its number among the owner's shards.
    shard: usize,
    table: TableId,
    /// Its number among those of its table.
    receiver: usize,
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
        let tables_of = in_groups(served.into_iter().zip(0..), |(a, _), (b, _)| alike(a, b));
        let told = told(layout, rank);
        let mut receivers = vec![Vec::new(); layout.sharding().tables()];
        told.iter().for_each(|to| receivers[to.table.index()].push((to.owner, to.shard)));
        let group = |members: Vec<(TableId, usize)>| {
            let (ids, numbers): (Vec<TableId>, Vec<usize>) = members.into_iter().unzip();
            let spec = GroupSpec {
                train: &spec,
                pooling: if layout.averages_at_sample(ids[0]) { Pooling::Sum } else { config.pooling },
                dim: layout.sharding().dim(ids[0]),
                lookups: layout.samples(spec.samples, rank)
                    * ids.iter().map(|table| layout.lookups(*table)).sum::<usize>(),
                threads: team.threads(),
                targets: 1,
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
                    let columns = |(owner, shard): &(RankId, usize)| layout.of(*owner).shards[*shard].columns.clone();
                    let sums = ids.iter().map(|&table| SumsOf {
                        name: format!("gradients of {}", name(table)),
                        rows: rows(table),
                        receivers: receivers[table.index()].iter().map(columns).collect(),
                    });
                    Some(SparseGradients::new(sums, &spec, supply)?)
                }
            };
            let group = TableGroup::copies(copies, ParamGroup::Sparse, &spec);
            Ok(ReplicatedGroup::new((ids, numbers), group, sums, layout))
        };
        let groups = tables_of.into_iter().map(group).collect::<Result<Vec<_>>>()?;
        let numbered = (0..).map(TableId).zip(&receivers);
        let sizes = layout.of(rank).shards.iter().map(|shard| rows(shard.table));
        let copies = groups.iter().flat_map(|group| &group.ids);
        let copies = copies.map(|table| (rows(*table), layout.copies_weights(*table))).collect();
        Ok(Some(Self {
            met: sizes.clone().map(RowSet::new).collect(),
            listed: vec![0; sizes.len()],
            units: RowUnit::all(sizes.map(|rows| [rows, 1]), team.threads()),
            copier: Copier::new(spec.precision, copies, team.threads()),
            row: layout.feature_row(),
            chunks: Vec::with_capacity(chunks(layout, rank, spec.samples)),
            moved: Vec::new(),
            receivers: numbered.map(|(table, receivers)| RowReceivers::new(layout, table, receivers)).collect(),
            homes: homes(layout, rank),
            places: places(layout, &groups),
            told,
            groups,
        }))
    }

    /// Takes over copies of another layout's hot rows, as far as both are of the same rows, and marks those of this
    /// rank's own rows as moved of which there was no copy.
    ///
    /// # Panics
    /// When more differs than which rows are hot.
    pub fn take_over(&mut self, before: &Self, [old, new]: [&Layout; 2], team: &Team, rank: RankId) {
        let (Some(old), Some(all)) = (old.hot(), new.hot()) else { return };
        for (ReplicatedGroup { ids, group, .. }, from) in self.groups.iter_mut().zip(&before.groups) {
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
                            .for_each(|weight| weights.import(TableTensor::RowWeight, slot, &[weight]));
                    }
                }
            });
        }
        for (met, shard) in self.met.iter().zip(&new.of(rank).shards) {
            let [old, new] = [old, all].map(|hot| hot.table(shard.table.index()));
            let entered = |row: &u32| old.slot(*row).is_none() && shard.rows.local(u64::from(*row)).is_some();
            (0..).zip(new.rows()).filter(|(_, row)| entered(row)).for_each(|(slot, _)| met.mark(slot));
        }
    }

    /// Forward: pools the hot bags of some of this rank's samples to their places among the samples' features, and
    /// writes 0 where other bags of these tables will be.
    pub(super) fn look_up(&mut self, team: &Team, (ids, samples): (&Ids, &Range<usize>), features: &mut [f32]) {
        for group in &mut self.groups {
            group.look_up(team, (ids.hot().1, samples), (&mut *features, self.row));
        }
    }

    /// Lists the sums of the gradients of this rank's hot bags for the owners; `gradient` is that of the features.
    pub(super) fn sum(&mut self, context: &RankContext, ids: &Ids, gradient: &[f32], to: &mut HotRows) {
        let (team, layout) = (&context.team, &*context.layout);
        let Some(hot) = layout.hot() else { return };
        let Self { groups, places, told, receivers, .. } = self;
        for group in groups.iter_mut() {
            if group.sum(team, ids.hot().1, (gradient, self.row)).is_none() {
                return;
            }
            let ReplicatedGroup { ids, sums: Some(sums), .. } = group else { return };
            sums.count(team, receivers_of(hot, ids, receivers));
        }
        to.clear_sums();
        for Told { owner, table, receiver, .. } in told {
            let CopiesPlace { group, at, .. } = places[table.index()].expect(COPIED);
            let sums = groups[group].sums.iter_mut();
            sums.for_each(|sums| sums.make_room(at, *receiver, |sizes| to.room_for_sums(*owner, sizes)));
        }
        let list = to.sums_mut();
        for ReplicatedGroup { ids, sums, .. } in groups {
            sums.iter_mut().for_each(|sums| sums.write(team, receivers_of(hot, ids, receivers), list));
        }
    }

    /// Marks all hot rows of this rank's shards as moved.
    pub(super) fn mark_all(&mut self, layout: &Layout, rank: RankId) {
        for (met, shard) in self.met.iter().zip(&layout.of(rank).shards) {
            let slots = layout.hot().map_or(&[][..], |hot| hot.table(shard.table.index()).rows());
            let here = |row: &u32| shard.rows.local(u64::from(*row)).is_some();
            (0..).zip(slots).filter(|(_, row)| here(row)).for_each(|(slot, _)| met.mark(slot));
        }
    }

    /// Marks the hot rows of this rank's shards that a step's look-ups met, which have moved; `sums` has those in bags
    /// that did not come, unless all did.
    pub(super) fn mark(&mut self, context: &RankContext, (ids, batch): (&Ids, &Batch), sums: Option<&HotRows>) {
        let (team, layout) = (&context.team, &*context.layout);
        let Some(hot) = layout.hot() else { return };
        let (held, mut chunks) = (layout.of(context.rank), recycled(std::mem::take(&mut self.chunks)));
        for group in &held.groups {
            for from in RankId::all(layout.ranks()) {
                let lookups = ids.lookups(from, group, batch);
                let sums = sums.and_then(|sums| sums.sums(from, group)).map(|source| source.lookups);
                for lookups in std::iter::once(lookups).chain(sums) {
                    let bags = group.shards.clone().zip(lookups.bags());
                    bags.for_each(|(shard, bag)| LookupChunk::push(&mut chunks, shard, bag.rows));
                }
            }
        }
        LookupChunk::mark(team, &mut chunks, &self.met, |shard| {
            let shard = &held.shards[shard];
            let slots = hot.table(shard.table.index());
            move |row| slots.slot(shard.rows.global(u64::from(row)) as u32)
        });
        self.chunks = recycled(chunks);
    }

    /// Lists what is marked, with the rows of this rank's shards, which are in `groups`, and forgets the marks.
    pub(super) fn list(&mut self, context: &RankContext, groups: &[TableGroup], to: &mut HotRows) {
        let (team, layout) = (&context.team, &*context.layout);
        let Some(hot) = layout.hot() else { return };
        let Self { met, units, listed, homes, .. } = self;
        let (met, held) = (&met[..], layout.of(context.rank));
        listed.fill(0);
        RowUnit::count_marked(team, units, met, |shard, _, rows| listed[shard] = rows);
        let list = to.room_for_rows(context, listed);
        let much = team.is_much(RowUnit::words(units) + list.words(), Team::WORDS_ALONE);
        team.share_if(much, Each::new(units), |unit| {
            let (shard, [group, at]) = (&held.shards[unit.set], homes[unit.set]);
            let (table, slots) = (&groups[group].tables[at], hot.table(shard.table.index()).rows());
            for slot in unit.rows(met) {
                let row = shard.rows.local(u64::from(slots[slot as usize])).expect("one of the shard's rows was met");
                let row = row as usize;
                let seen = table.seen(row).iter().copied().chain(table.row_weight(row).map(f32::to_bits));
                list.put(unit.set, unit.next[0] as usize, slot, seen);
                unit.next[0] += 1;
            }
            unit.clear(met);
        });
    }

    /// Takes the rows of all owners into this rank's copies.
    pub(super) fn take(&mut self, context: &RankContext, from: &HotRows) {
        let (team, layout) = (&context.team, &*context.layout);
        let Self { groups, places, copier, .. } = self;
        let mut moved: Vec<Moved<'_>> = recycled(std::mem::take(&mut self.moved));
        for owner in RankId::all(layout.ranks()) {
            for MovedRows { shard, slots, seen } in from.rows(context, owner) {
                // Of a table that it holds alone a rank has no copies.
                let Some(CopiesPlace { copy, .. }) = places[shard.table.index()] else { continue };
                moved.push(Moved { table: copy, columns: shard.columns.clone(), slots, seen });
            }
        }
        let copies = groups.iter_mut().flat_map(|group| &mut group.group.tables);
        copier.run(team, copies, &mut moved);
        self.moved = recycled(moved);
    }

    /// As [`ReplicatedGroup::work`], of all.
    pub(super) fn work(&self, ids: &Ids) -> [usize; 4] {
        let plus = |sum: [usize; 4], own: [usize; 4]| std::array::from_fn(|at| sum[at] + own[at]);
        self.groups.iter().map(|group| group.work(ids.hot().1)).fold([0; 4], plus)
    }
}

/// What is known of tables of which sums are sent.
const COPIED: &str = "copies of all tables that another rank has a part of";

/// Where each table's copies are.
fn places(layout: &Layout, groups: &[ReplicatedGroup]) -> Vec<Option<CopiesPlace>> {
    let mut places = vec![None; layout.sharding().tables()];
    let all = groups.iter().enumerate().flat_map(|(group, of)| of.ids.iter().enumerate().map(move |of| (group, of)));
    for (copy, (group, (at, table))) in all.enumerate() {
        places[table.index()] = Some(CopiesPlace { group, at, copy });
    }
    places
}

/// Of each of a rank's shards its group and its place there.
fn homes(layout: &Layout, rank: RankId) -> Vec<[usize; 2]> {
    let held = layout.of(rank);
    let mut homes = vec![[0; 2]; held.shards.len()];
    for (number, group) in held.groups.iter().enumerate() {
        group.shards.clone().enumerate().for_each(|(at, shard)| homes[shard] = [number, at]);
    }
    homes
}

/// In how many chunks a rank marks the look-ups of a minibatch at most: for each shard and each rank, those that came
/// and those of which sums came.
fn chunks(layout: &Layout, rank: RankId, batch: usize) -> usize {
    let (shards, ranks) = (&layout.of(rank).shards, layout.ranks());
    let samples: usize = (0..ranks as u32).map(|from| layout.samples(batch, RankId(from))).sum();
    let look_ups: usize = shards.iter().map(|shard| samples * layout.lookups(shard.table)).sum();
    LookupChunk::most(2 * shards.len() * ranks, 2 * look_ups)
}

/// The shards of which this rank tells their owners sums of hot rows' gradients, owner by owner: of its own, those of
/// divided rows alone.
fn told(layout: &Layout, rank: RankId) -> Vec<Told> {
    let (mut told, mut receivers) = (Vec::new(), vec![0; layout.sharding().tables()]);
    for owner in RankId::all(layout.ranks()) {
        let groups = layout.groups(Route { owner, asking: rank });
        for shard in groups.iter().flat_map(|group| group.shards.clone()) {
            let table = layout.of(owner).shards[shard].table;
            told.push(Told { owner, shard, table, receiver: receivers[table.index()] });
            receivers[table.index()] += 1;
        }
    }
    told
}

/// Who gets sums of a table's hot rows' gradients.
#[derive(Debug)]
struct RowReceivers {
    split: Split,
    /// Of each part of the table, by their numbers.
    parts: Vec<Range<usize>>,
}

impl RowReceivers {
    /// Of those that are told of a table, by an owner and one of its shards.
    fn new(layout: &Layout, table: TableId, told: &[(RankId, usize)]) -> Self {
        let (sharding, split) = (layout.sharding(), Split::new(layout.sharding(), table));
        let of_part = |part: &Shard| {
            let is_its = |(owner, shard): &(RankId, usize)| {
                *owner == part.rank && layout.of(*owner).shards[*shard].rows == part.rows
            };
            told.iter().position(is_its).map_or(0..0, |at| at..at + 1)
        };
        let parts = match split {
            Split::Whole => std::iter::once(0..told.len()).collect(),
            Split::Cyclic(_) | Split::Contiguous(_) => sharding.of_table(table).iter().map(of_part).collect(),
        };
        Self { split, parts }
    }
}

/// As [`SparseGradients::count`] wants it for copies of these tables' hot rows: who gets a row, and by which number it
/// is known there.
fn receivers_of<'a>(
    hot: &'a HotSlots,
    ids: &'a [TableId],
    receivers: &'a [RowReceivers],
) -> impl Fn(usize, u32) -> Zip<Range<usize>, Repeat<u32>> + Sync + 'a {
    move |table, slot| {
        let table = ids[table].index();
        let RowReceivers { split, parts } = &receivers[table];
        let (part, number) = split.part(hot.table(table).rows()[slot as usize]);
        parts[part].clone().zip(repeat(number))
    }
}
