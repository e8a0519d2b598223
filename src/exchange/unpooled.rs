//! Unpooled rows: rows of divided tables, themselves, where a bag has several of one owner.
//!
//! An owner's pooled sum of a bag is one term of the receiver's. If it is that of one look-up it is the row, and can be
//! added in the bag's order. Of bags with more look-ups in one shard, owners send the rows one by one as well. One-hot
//! tables so exchange nothing here. Weights of look-ups are the receiver's: it has them, and multiplies as it adds.

use std::ops::Range;

use super::ids::is_served;
use super::layout::Layout;
use super::vectors::MessageForm;
use super::{Ids, Minibatch, Pass, RankContext, Route};
use crate::base::{RankId, Result, TableId};
use crate::collective::{Carrier, ListExchange};
use crate::data::{Bag, BagView, Batch};
use crate::machine::team::Team;
use crate::shard::scheme::{Shard, Split};
use crate::simd::{Simd, combine};
use crate::sync::Each;

/// Where the row of a look-up is to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowSource {
    /// The part of the table.
    part: u32,
    /// Which of that part's rows that were sent themselves, or of its pooled sums.
    row: u32,
    /// Whether its pooled sum is the row.
    pooled: bool,
}

/// A part of a divided table, as its messages have it.
#[derive(Debug)]
struct PartialSum {
    rank: RankId,
    /// The number of the shard's group there, and of the shard in it.
    place: [usize; 2],
    /// Where its first pooled sum is in a message, and how far the next ones are.
    sums: [usize; 2],
    /// Where its rows begin among those that its rank has sent themselves.
    start: usize,
    /// How many of its rows were sent themselves.
    rows: u32,
    /// How many bags it has pooled for this rank: each sample's, or those with a look-up in it that it was sent.
    bags: u32,
    /// Look-ups of the current bag in it.
    in_bag: u32,
}

/// The exchange, with its memory.
#[derive(Debug)]
pub struct Unpooled {
    rank: RankId,
    words: ListExchange,
    out: Vec<Vec<u32>>,
    into: Vec<Vec<u32>>,
    /// For each divided table its look-ups, in their order.
    sources: Vec<(TableId, Vec<RowSource>)>,
    /// How those tables' rows are divided, and their parts.
    splits: Vec<Split>,
    parts: Vec<Vec<PartialSum>>,
    /// The look-ups that are sent themselves, a bag each.
    bag: Bag,
}

impl Unpooled {
    /// For a rank.
    #[must_use]
    pub fn new(context: &RankContext) -> Self {
        let RankContext { rank, team, layout } = context;
        let (ranks, sharding) = (layout.ranks(), layout.sharding());
        let tables = TableId::all(sharding.tables()).filter(|table| layout.sums_of_ranks(*table));
        let sources: Vec<_> = tables.map(|table| (table, Vec::new())).collect();
        let part = |shard: &Shard| {
            let place = layout.of(shard.rank).find(shard);
            PartialSum { rank: shard.rank, place, sums: [0; 2], start: 0, rows: 0, bags: 0, in_bag: 0 }
        };
        let parts = |(table, _): &(TableId, _)| sharding.of_table(*table).iter().map(part).collect();
        let words = ListExchange::new(*rank, ranks, team.isa(), "exchange of rows");
        Self {
            splits: sources.iter().map(|(table, _)| Split::new(sharding, *table)).collect(),
            parts: sources.iter().map(parts).collect(),
            sources,
            rank: *rank,
            words,
            out: vec![Vec::new(); ranks],
            into: vec![Vec::new(); ranks],
            bag: Bag { offsets: vec![0], rows: Vec::new() },
        }
    }

    /// Lets `look_up` write the rows of each of this rank's shards of divided tables that other look-ups of the same
    /// bag hide in the pooled sum: it gets the shard's number, a bag a row, and room for the rows. `ids` have the
    /// look-ups of all ranks. Then sends them, and takes in those that the bags of the minibatch need.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    pub fn exchange(
        &mut self,
        context: &RankContext,
        carrier: &mut dyn Carrier,
        minibatch: &Minibatch,
        ids: &Ids,
        mut look_up: impl FnMut(usize, &Bag, &mut [f32]),
    ) -> Result<()> {
        let layout = &*context.layout;
        if self.sources.is_empty() || !layout.owners_pool(minibatch.inputs) {
            return Ok(());
        }
        let divided = layout.groups(Route::own(self.rank));
        for (to, out) in (0..).map(RankId).zip(&mut self.out) {
            out.clear();
            for group in divided.iter().filter(|group| group.positions == 1) {
                for (shard, stream) in group.shards.clone().zip(&group.streams) {
                    several(ids.bag(to, *stream), &mut self.bag);
                    let start = out.len();
                    out.resize(start + self.bag.rows.len() * group.width, 0);
                    if !self.bag.rows.is_empty() {
                        look_up(shard, &self.bag, bytemuck::cast_slice_mut(&mut out[start..]));
                    }
                }
            }
        }
        let out = &self.out;
        self.words.all_to_all_v(&context.team, carrier, |peer| &out[peer], &mut self.into)?;
        self.find(&context.team, layout, ids, &minibatch.slice);
        Ok(())
    }

    /// Where each look-up of this rank's samples finds its row.
    fn find(&mut self, team: &Team, layout: &Layout, ids: &Ids, batch: &Batch) {
        let own = self.rank;
        let tables = (Each::new(&mut self.sources), (Each::new(&mut self.parts), Each::new(&mut self.splits)));
        team.share(tables, |((table, sources), (parts, split))| {
            sources.clear();
            let (bag, hot) = (&batch.bags[table.index()], ids.hot_bag(*table));
            for part in parts.iter_mut() {
                let ([group, at], route) = (part.place, Route { owner: part.rank, asking: own });
                let slots = ids.vectors(route, Pass::Forward).slots(&layout.of(part.rank).groups[group]);
                (part.rows, part.bags, part.sums) = (0, 0, [slots.starts[at], slots.row]);
            }
            for sample in 0..bag.samples() {
                // What is pooled from copies needs no source.
                if is_served(hot, sample) {
                    sources.extend(bag.of(sample).iter().map(|_| RowSource { part: 0, row: 0, pooled: true }));
                    continue;
                }
                parts.iter_mut().for_each(|part| part.in_bag = 0);
                let first = sources.len();
                for &row in bag.of(sample) {
                    let (number, _) = split.part(row);
                    let part = &mut parts[number];
                    part.in_bag += 1;
                    sources.push(RowSource { part: number as u32, row: part.bags, pooled: true });
                }
                for source in &mut sources[first..] {
                    let part = &mut parts[source.part as usize];
                    if part.in_bag > 1 {
                        (source.row, source.pooled) = (part.rows, false);
                        part.rows += 1;
                    }
                }
                let every = layout.form() == MessageForm::RowPerSample;
                parts.iter_mut().for_each(|part| part.bags += u32::from(every || part.in_bag > 0));
            }
        });
        // A message has its rank's shards in the layout's order.
        for rank in RankId::all(layout.ranks()) {
            let mut end = 0;
            for (_, shard) in layout.of(rank).partial().filter(|(_, shard)| layout.sums_of_ranks(shard.table)) {
                // Sources are in the order of tables.
                let index = self.sources.binary_search_by_key(&shard.table, |(table, _)| *table);
                let part = &mut self.parts[index.expect("the shard's table is divided")][shard.part];
                part.start = end;
                end += part.rows as usize * shard.columns.len();
            }
            let message = if rank == self.rank { &self.out } else { &self.into };
            assert_eq!(message[rank.index()].len(), end, "rows of {rank} are those of this rank's bags");
        }
    }

    /// Adds up the rows of a bag in their order, from 0, each times its weight where `weights`, those of all the
    /// table's look-ups, are not empty; the bag is one of divided table number `index`, which has these `look_ups`.
    /// `message` gives the pooled sums of a rank.
    #[inline(always)]
    pub(in crate::exchange) fn pool<'a, S: Simd>(
        &'a self,
        simd: S,
        index: usize,
        (look_ups, weights): (Range<usize>, &[f32]),
        to: &mut [f32],
        message: impl Fn(RankId) -> &'a [f32],
    ) {
        to.fill(0.0);
        let dim = to.len();
        for position in look_ups {
            let source = self.sources[index].1[position];
            let part = &self.parts[index][source.part as usize];
            let row = if source.pooled {
                let [first, step] = part.sums;
                &message(part.rank)[first + source.row as usize * step..][..dim]
            } else {
                let words = if part.rank == self.rank { &self.out } else { &self.into };
                let start = part.start + source.row as usize * dim;
                bytemuck::cast_slice(&words[part.rank.index()][start..start + dim])
            };
            match weights.get(position) {
                None => combine(simd, to, row, |sum, term| simd.add(sum, term)),
                Some(weight) => {
                    let weight = simd.splat(*weight);
                    combine(simd, to, row, |sum, term| simd.mul_add(weight, term, sum));
                }
            }
        }
    }

    /// The divided tables.
    pub(in crate::exchange) fn tables(&self) -> impl Iterator<Item = (usize, TableId)> {
        self.sources.iter().map(|(table, _)| *table).enumerate()
    }
}

/// The look-ups of bags that have several, each a bag of its own.
fn several(from: BagView<'_>, to: &mut Bag) {
    to.rows.clear();
    for sample in 0..from.samples() {
        if let rows @ [_, _, ..] = from.of(sample) {
            to.rows.extend_from_slice(rows);
        }
    }
    to.offsets.clear();
    to.offsets.extend(0..=to.rows.len() as u32);
}
