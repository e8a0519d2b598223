//! A rank's copies of hot rows of tables that other ranks have a part of.
//!
//! A copy is what look-ups read of the row, its learned weight if it has one included, without what the optimizer
//! keeps. It is written when the owner has moved the row: between steps it is equal to the row, whoever looks, or
//! behind it as long as inputs are cold, which read no copy.

use std::sync::atomic::Ordering;

use super::sparse::{FEW_WORDS, Looks, RowSet, SparseGradients, SumsOf, Unit};
use super::table_group::{GroupSpec, Replicated, TableGroup};
use crate::base::config::{ModelConfig, Pooling};
use crate::base::{RankId, Result, TableId};
use crate::data::{Batch, Schema};
use crate::embedding::{Copier, Lookups, Moved, Table};
use crate::exchange::{HotRows, Ids, Layout, RankContext, in_groups};
use crate::machine::team::Team;
use crate::memory::{Arena, Supply, recycled};
use crate::model::TrainSpec;
use crate::optim::{Optimizer, ParamGroup, ParamState};
use crate::shard::scheme::Shard;
use crate::sync::{AtomicU32, Each, Rows, atomic_words_32};

/// The copies, and which of its own hot rows a step meets.
#[derive(Debug)]
pub struct Copies {
    /// A row a slot.
    groups: Vec<Replicated>,
    /// By table: the group of its copies, and its place there.
    places: Vec<Option<[usize; 2]>>,
    /// By table: who gets sums of its rows' gradients, by an owner and one of its shards, in the order of messages.
    receivers: Vec<Vec<(RankId, usize)>>,
    /// Of each of this rank's shards, in the order of its holding.
    met: Vec<RowSet>,
    /// All rows of these sets.
    units: Vec<Unit>,
    /// Of each of those shards, where its part of a list of moved rows begins, and how many these are.
    parts: Vec<[usize; 2]>,
    /// Takes in the lists of all owners.
    copier: Copier,
    /// Elements of a sample's features.
    row: usize,
    /// Memory that steps use again.
    looks: Vec<Looks<'static>>,
    moved: Vec<Moved<'static>>,
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
        let receivers = receivers(layout, rank);
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
            Ok(Replicated::new((ids, numbers), group, sums, layout))
        };
        let groups = tables_of.into_iter().map(group).collect::<Result<Vec<_>>>()?;
        let mut places = vec![None; layout.sharding().tables()];
        for (number, group) in groups.iter().enumerate() {
            group.ids.iter().enumerate().for_each(|(at, table)| places[table.index()] = Some([number, at]));
        }
        let sizes = layout.of(rank).shards.iter().map(|shard| rows(shard.table));
        let copies = groups.iter().flat_map(|group| &group.ids);
        let copies = copies.map(|table| (rows(*table), layout.copies_weights(*table))).collect();
        Ok(Some(Self {
            met: sizes.clone().map(RowSet::new).collect(),
            parts: vec![[0; 2]; sizes.len()],
            units: Unit::all(sizes.map(|rows| [rows, 1]), team.threads()),
            copier: Copier::new(spec.precision, copies, team.threads()),
            row: layout.feature_row(),
            looks: Vec::new(),
            moved: Vec::new(),
            receivers,
            groups,
            places,
        }))
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
        for (met, shard) in self.met.iter().zip(&new.of(rank).shards) {
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
        let Self { groups, places, receivers, .. } = self;
        for group in groups.iter_mut() {
            if group.sum(team, ids.hot().1, (gradient, self.row)).is_none() {
                return;
            }
            let Replicated { ids, sums: Some(sums), .. } = group else { return };
            sums.count(team, number_of(layout, ids, receivers));
        }
        to.clear_sums();
        for owner in (0..layout.ranks() as u32).map(RankId) {
            for (number, shard) in told(layout, rank, owner) {
                let receivers = &receivers[shard.table.index()];
                let receiver = receivers.iter().position(|receiver| *receiver == (owner, number));
                let (receiver, [group, at]) = receiver.zip(places[shard.table.index()]).expect(COPIED);
                let sums = groups[group].sums.iter_mut();
                sums.for_each(|sums| sums.make_room(at, receiver, |sizes| to.room_for_sums(owner, sizes)));
            }
        }
        let list = to.sums_mut();
        for Replicated { ids, sums, .. } in groups {
            sums.iter_mut().for_each(|sums| sums.write(team, number_of(layout, ids, receivers), list));
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
        let (rank, team, layout) = (context.rank, &context.team, &*context.layout);
        let Some(hot) = layout.hot() else { return };
        let (holding, mut looks) = (layout.of(rank), recycled(std::mem::take(&mut self.looks)));
        for group in &holding.groups {
            for from in (0..layout.ranks() as u32).map(RankId) {
                let whole_here = from == rank && !group.partial;
                let lookups =
                    if whole_here { Lookups::of(batch).in_tables(&group.tables) } else { ids.lookups(from, group) };
                let sums = sums.and_then(|sums| sums.sums(from, group)).map(|source| source.lookups);
                for lookups in std::iter::once(lookups).chain(sums) {
                    let bags = group.shards.clone().zip(lookups.bags());
                    bags.for_each(|(shard, bag)| Looks::push(&mut looks, shard, bag.rows));
                }
            }
        }
        Looks::mark(team, &mut looks, &self.met, |shard| {
            let shard = &holding.shards[shard];
            let slots = hot.table(shard.table.index());
            move |row| slots.slot(shard.rows.global(u64::from(row)) as u32)
        });
        self.looks = recycled(looks);
    }

    /// Lists what is marked, with the rows of this rank's shards, which are in `groups`, and forgets the marks.
    pub(super) fn list(&mut self, context: &RankContext, groups: &[TableGroup], to: &mut Vec<u32>) {
        let (team, layout) = (&context.team, &*context.layout);
        let Some(hot) = layout.hot() else { return };
        let Self { met, units, parts, .. } = self;
        let (met, holding) = (&met[..], layout.of(context.rank));
        parts.fill([0; 2]);
        Unit::count_marked(team, units, met, |shard, _, rows| parts[shard][1] = rows);
        let mut end = 0;
        for ([start, rows], shard) in parts.iter_mut().zip(&holding.shards) {
            *start = end;
            end += 1 + *rows * (1 + layout.hot_words(shard));
        }
        // Only what is longer than the list before is written twice.
        to.resize(end, 0);
        parts.iter().for_each(|[start, rows]| to[*start] = *rows as u32);
        let (words, parts) = (atomic_words_32(to), &parts[..]);
        // Relaxed: every word has one writer, and the region's end hands them over.
        let put = |to: &AtomicU32, word: u32| to.store(word, Ordering::Relaxed);
        team.share_if(end >= FEW_WORDS, Each::new(units), |unit| {
            let (shard, [start, rows]) = (&holding.shards[unit.set], parts[unit.set]);
            let place = holding.groups.iter().position(|group| group.shards.contains(&unit.set));
            let group = place.expect("a shard is in its rank's holding");
            let table = &groups[group].tables[unit.set - holding.groups[group].shards.start];
            let (slots, width) = (hot.table(shard.table.index()).rows(), layout.hot_words(shard));
            let (listed, seen) = words[start + 1..][..rows * (1 + width)].split_at(rows);
            for slot in unit.rows(met) {
                let next = unit.next[0] as usize;
                let row = shard.rows.local(u64::from(slots[slot as usize])).expect("one of the shard's rows was met");
                let (row, seen) = (row as usize, &seen[next * width..][..width]);
                put(&listed[next], slot);
                let moved = table.seen(row).iter().copied().chain(table.row_weight(row).map(f32::to_bits));
                seen.iter().zip(moved).for_each(|(to, word)| put(to, word));
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
        for owner in (0..layout.ranks() as u32).map(RankId) {
            let mut left = from.list(owner);
            let mut next = |words: usize| left.split_off(..words).expect("as many words as the shards' rows take");
            for shard in &layout.of(owner).shards {
                let count = next(1)[0] as usize;
                let (slots, seen) = (next(count), next(count * layout.hot_words(shard)));
                // Of a table that it holds alone a rank has no copies.
                let Some([group, at]) = places[shard.table.index()] else { continue };
                let before: usize = groups[..group].iter().map(|group| group.ids.len()).sum();
                moved.push(Moved { table: before + at, columns: shard.columns.clone(), slots, seen });
            }
            assert!(left.is_empty(), "as many words as the shards' rows take");
        }
        let copies = groups.iter_mut().flat_map(|group| &mut group.group.tables);
        copier.run(team, copies, &mut moved);
        self.moved = recycled(moved);
    }

    /// As [`Replicated::work`], of all.
    pub(super) fn work(&self, ids: &Ids) -> [usize; 4] {
        let plus = |sum: [usize; 4], own: [usize; 4]| std::array::from_fn(|at| sum[at] + own[at]);
        self.groups.iter().map(|group| group.work(ids.hot().1)).fold([0; 4], plus)
    }
}

/// What is known of tables of which sums are sent.
const COPIED: &str = "copies of all tables that another rank has a part of";

/// The shards of an owner that this rank tells sums of hot rows' gradients, with their numbers: of its own, those of
/// divided rows alone.
fn told(layout: &Layout, rank: RankId, owner: RankId) -> impl Iterator<Item = (usize, &Shard)> {
    let holding = layout.of(owner);
    let groups = holding.groups.iter().take_while(move |group| owner != rank || group.partial);
    groups.flat_map(|group| group.shards.clone()).map(|shard| (shard, &holding.shards[shard]))
}

/// By table, who gets sums of its hot rows' gradients.
fn receivers(layout: &Layout, rank: RankId) -> Vec<Vec<(RankId, usize)>> {
    let mut receivers = vec![Vec::new(); layout.sharding().tables()];
    for owner in (0..layout.ranks() as u32).map(RankId) {
        told(layout, rank, owner).for_each(|(number, shard)| receivers[shard.table.index()].push((owner, number)));
    }
    receivers
}

/// As [`SparseGradients::count`] wants it for copies of these tables' hot rows: by which number the owner of a row
/// knows it.
fn number_of<'a>(
    layout: &'a Layout,
    ids: &'a [TableId],
    receivers: &'a [Vec<(RankId, usize)>],
) -> impl Fn(usize, usize, u32) -> Option<u32> + Sync + 'a {
    let hot = layout.hot();
    move |table, receiver, slot| {
        let table = ids[table].index();
        let (owner, shard) = receivers[table][receiver];
        let row = hot?.table(table).rows()[slot as usize];
        layout.of(owner).shards[shard].rows.local(u64::from(row)).map(|row| row as u32)
    }
}
