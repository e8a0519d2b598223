//! The division of a rank's look-ups: those of hot bags in its own copies, all others to the owners of rows.
//!
//! Tables and chunks of samples are shared out, first to count what each owner gets, then to write. A stream is
//! where each bag begins and the last one ends, the rows, and their weights. Where not every bag goes, the number of
//! bags stands before; where hot bags travel, too, a bit a bag follows, which says which they are.

use super::owners::Owners;
use super::streams::Streams;
use super::unit::{BagUnit, Given};
use crate::base::{RankId, TableId};
use crate::data::hot::Inputs;
use crate::embedding::PackedBag;
use crate::exchange::layout::Layout;
use crate::exchange::scan::exclusive_scan;
use crate::exchange::vectors::MessageForm;
use crate::exchange::{Minibatch, RankContext};
use crate::memory::Buffer;
use crate::sync::{Each, atomic_words_32};

/// The division, with its memory.
#[derive(Debug)]
pub(super) struct Division {
    units: Vec<BagUnit>,
    /// By table.
    owners: Vec<Owners>,
    streams: Streams,
    /// The tables whose hot rows this rank looks up in its own copies, rising.
    served: Vec<usize>,
    /// Of each of them the bags: the slots of hot ones, nothing of others. They lie behind the messages.
    hot: Vec<PackedBag>,
}

impl Division {
    /// For a rank, in minibatches of so many samples of this rank.
    pub(super) fn new(context: &RankContext, samples: usize) -> Self {
        let (rank, team, layout) = (context.rank, &context.team, &*context.layout);
        let tables = TableId::all(layout.sharding().tables());
        let owners: Vec<Owners> = tables.map(|table| Owners::new(layout, table)).collect();
        let divided = || owners.iter().enumerate().filter(|(_, owners)| !owners.parts.is_empty());
        // Enough units for all threads to end together, whichever table has most of the look-ups, and no more: of
        // thousands of tables that are alike each is one.
        let look_ups = || divided().map(|(table, _)| layout.lookups(TableId(table as u32)));
        let (heaviest, all) = (look_ups().max().unwrap_or(0), look_ups().sum::<usize>().max(1));
        let chunks = (team.pieces() * heaviest).div_ceil(all).clamp(1, team.threads());
        let form = layout.form();
        let unit = |(table, owners): (usize, &Owners), chunk| {
            let look_ups = (samples * layout.lookups(TableId(table as u32))).div_ceil(chunks);
            BagUnit::new(table, [chunk, chunks], owners.parts.len(), look_ups, form)
        };
        let units = divided().flat_map(|of| (0..chunks).map(move |chunk| unit(of, chunk))).collect();
        let served: Vec<usize> = layout.served(rank).map(|table| table.index()).collect();
        Self {
            units,
            owners,
            streams: Streams::new(layout, rank),
            hot: vec![PackedBag::default(); served.len()],
            served,
        }
    }

    /// Words that lie behind the messages in minibatches of so many samples of this rank, and that messages have beside
    /// offsets and look-ups.
    pub(super) fn beside(layout: &Layout, rank: RankId, samples: usize) -> usize {
        if layout.form() == MessageForm::RowPerSample {
            return 0;
        }
        let slots =
            layout.served(rank).map(|table| samples * (layout.positions(table) + 2 * layout.lookups(table)) + 1);
        let streams = RankId::all(layout.ranks()).flat_map(|to| &layout.of(to).streams);
        slots.sum::<usize>() + streams.map(|stream| 3 * samples * stream.positions + 1).sum::<usize>()
    }

    /// Writes all messages, and what lies behind them. Of cold inputs all bags go.
    pub(super) fn write(&mut self, context: &RankContext, minibatch: &Minibatch, out: &mut Buffer<u32>) {
        let (team, layout, batch) = (&context.team, &*context.layout, &*minibatch.slice);
        let Self { units, owners, streams, served, hot } = self;
        let (form, served) = (layout.form(), &served[..]);
        let number_of = |table: usize| served.binary_search(&table).ok();
        let hot_rows = layout.hot().filter(|_| minibatch.inputs != Inputs::Cold);
        let given = |table: usize| Given {
            owners: &owners[table],
            slots: number_of(table).and(hot_rows).map(|hot| hot.table(table)),
            bag: &batch.bags[table],
            weights: &batch.weights[table],
            form,
        };
        team.share(Each::new(units), |unit| unit.count(&given(unit.table)));
        // What each chunk has follows that of the chunk before; ranges only count it yet.
        let chunks = units.first().map_or(1, |unit| unit.chunk[1]);
        exclusive_scan(team, units, chunks);
        for first in units.iter_mut().step_by(chunks) {
            let bags = batch.bags[first.table].samples();
            for (part, to) in owners[first.table].parts.iter().enumerate() {
                streams.count(*to, first.take(part, bags));
            }
            if let Some(number) = number_of(first.table) {
                hot[number].rows = 0..first.take_hot();
            }
        }
        let mut end = streams.place(layout);
        for (table, bag) in served.iter().zip(&mut *hot) {
            let (bags, weighted) = (batch.bags[*table].samples(), layout.weighted(TableId(*table as u32)));
            *bag = PackedBag::at(end, bags, bag.rows.end, weighted);
            end = bag.weights.end;
        }
        end = streams.place_lists(end);
        out.grow(end);
        streams.begin(out);
        hot.iter().for_each(|bag| out[bag.offsets.start] = 0);
        let (words, streams, hot) = (atomic_words_32(out), &*streams, &*hot);
        team.share(Each::new(units), |unit| {
            let own = number_of(unit.table).map(|number| &hot[number]);
            unit.write(&given(unit.table), words, streams, own);
        });
    }

    /// Where messages and what they tell of lie.
    pub(super) const fn streams(&self) -> &Streams {
        &self.streams
    }

    /// The tables whose hot rows this rank looks up in its own copies, and the bags of each, which lie behind the
    /// messages.
    pub(super) fn hot(&self) -> (&[usize], &[PackedBag]) {
        (&self.served, &self.hot)
    }
}
