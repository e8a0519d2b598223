//! The division of a rank's look-ups: those of hot bags in its own copies, all others to the owners of rows.
//!
//! As in [`crate::exchange::Ids`], tables and stretches of samples are shared out, first to count what each owner gets,
//! then to write. A stream is the number of its bags, where each begins and the last one ends, the rows, their weights,
//! and where hot bags travel, too, a bit a bag that says which they are.

use std::ops::Range;

use super::Blocks;
use super::unit::{Given, Sent, Unit};
use crate::base::{RankId, TableId};
use crate::data::hot::Inputs;
use crate::embedding::PackedBag;
use crate::exchange::ids::Owners;
use crate::exchange::layout::{Group, Layout, Stream};
use crate::exchange::stretches::line_up;
use crate::exchange::words::find_bags;
use crate::exchange::{Minibatch, Pass, RankContext, Route};
use crate::memory::Buffer;
use crate::sync::{Each, atomic_words_32};

/// The division, with its memory.
#[derive(Debug)]
pub struct SparseIds {
    rank: RankId,
    /// Whether hot bags travel with marks.
    marked: bool,
    units: Vec<Unit>,
    /// The tables whose hot rows this rank looks up in its own copies, rising.
    served: Vec<usize>,
    /// Of each of them the bags: the slots of hot ones, nothing of others. They lie behind the messages.
    hot: Vec<PackedBag>,
    /// What is sent, by receiver and stream.
    sends: Vec<Vec<Sent>>,
    /// What has come, by sender and stream.
    came: Vec<Came>,
    /// By owner: where the vectors lie of what it pools for this rank, and of their gradients.
    asked: Vec<[Blocks; 2]>,
    /// By asking rank: the same of what this rank pools for it.
    answered: Vec<[Blocks; 2]>,
}

/// Streams that have come from a rank.
#[derive(Debug, Default)]
struct Came {
    all: Vec<PackedBag>,
    marks: Vec<Range<usize>>,
    /// The bags without a mark, where there are marks.
    words: Vec<u32>,
    cold: Vec<PackedBag>,
}

impl SparseIds {
    /// For a rank, where ranks have copies of hot rows, in minibatches of so many samples of this rank; `owners` are
    /// those of all tables.
    pub(in crate::exchange) fn new(context: &RankContext, samples: usize, owners: &[Owners]) -> Option<Self> {
        let (rank, team, layout) = (context.rank, &context.team, &*context.layout);
        layout.hot()?;
        let (ranks, stretches) = (layout.ranks(), team.threads());
        let partial = layout.of(rank).partial_streams().len();
        let streams = |holder: usize| layout.of(RankId(holder as u32)).streams.len();
        let sends = (0..ranks).map(|to| vec![Sent::default(); if to == rank.index() { partial } else { streams(to) }]);
        let unit = |(table, owners): (usize, &Owners), stretch| {
            let look_ups = (samples * layout.lookups(TableId(table as u32))).div_ceil(stretches);
            Unit::new(table, [stretch, stretches], owners.parts.len(), look_ups)
        };
        let divided = owners.iter().enumerate().filter(|(_, owners)| !owners.parts.is_empty());
        let served: Vec<usize> = layout.served(rank).map(|table| table.index()).collect();
        let came = |from: usize| {
            let streams = if from == rank.index() { partial } else { streams(rank.index()) };
            let none = vec![PackedBag::default(); streams];
            Came { all: none.clone(), marks: vec![0..0; streams], words: Vec::new(), cold: none }
        };
        Some(Self {
            rank,
            marked: layout.grains().is_some(),
            units: divided.flat_map(|of| (0..stretches).map(move |stretch| unit(of, stretch))).collect(),
            hot: vec![PackedBag::default(); served.len()],
            served,
            sends: sends.collect(),
            came: (0..ranks).map(came).collect(),
            asked: vec![Default::default(); ranks],
            answered: vec![Default::default(); ranks],
        })
    }

    /// Words that lie behind the messages in minibatches of so many samples of this rank with so many look-ups a table:
    /// slots, and numbers of bags.
    pub(in crate::exchange) fn beside(layout: &Layout, rank: RankId, samples: usize) -> usize {
        if layout.hot().is_none() {
            return 0;
        }
        let slots =
            layout.served(rank).map(|table| samples * (layout.positions(table) + 2 * layout.lookups(table)) + 1);
        let streams = (0..layout.ranks() as u32).flat_map(|to| &layout.of(RankId(to)).streams);
        slots.sum::<usize>() + streams.map(|stream| 3 * samples * stream.positions + 1).sum::<usize>()
    }

    /// Writes all messages, which begin at `starts`, and what lies behind them. Of cold inputs all bags go.
    pub(in crate::exchange) fn pack(
        &mut self,
        context: &RankContext,
        minibatch: &Minibatch,
        owners: &[Owners],
        (out, starts): (&mut Buffer<u32>, &mut [usize]),
    ) {
        let (rank, team, layout, batch) = (context.rank, &context.team, &*context.layout, &*minibatch.slice);
        let Self { marked, units, served, hot, sends, .. } = self;
        let (marked, served) = (*marked, &served[..]);
        let number_of = |table: usize| served.binary_search(&table).ok();
        let hot_rows = layout.hot().filter(|_| minibatch.inputs != Inputs::Cold);
        let given = |table: usize| Given {
            owners: &owners[table],
            slots: number_of(table).and(hot_rows).map(|hot| hot.table(table)),
            bag: &batch.bags[table],
            weights: &batch.weights[table],
            marked,
        };
        team.share(Each::new(units), |unit| unit.count(&given(unit.table)));
        // What each stretch has follows that of the stretch before; ranges only count it yet.
        sends.iter_mut().flatten().for_each(|sent| *sent = Sent::default());
        hot.iter_mut().for_each(|bag| bag.rows = 0..0);
        let stretches = units.first().map_or(1, |unit| unit.stretch[1]);
        line_up(team, units, stretches);
        let take = |count: &mut u32| 0..std::mem::take(count) as usize;
        for first in units.iter_mut().step_by(stretches) {
            for ((to, stream), part) in owners[first.table].parts.iter().zip(&mut first.parts) {
                let [look_ups, all, cold] = [&mut part.look_ups, &mut part.bags, &mut part.cold].map(take);
                // Of its own look-ups, a rank sends itself those in divided rows alone.
                if let Some(sent) = sends[to.index()].get_mut(*stream) {
                    (sent.bag.rows, sent.all, sent.cold) = (look_ups, all, cold);
                }
            }
            let look_ups = take(&mut first.hot);
            if let Some(number) = number_of(first.table) {
                hot[number].rows = look_ups;
            }
        }
        let mut end = 0;
        for (to, sends) in (0..).map(RankId).zip(sends.iter_mut()) {
            starts[to.index()] = end;
            for (sent, stream) in sends.iter_mut().zip(&layout.of(to).streams) {
                let (look_ups, bags) = (sent.bag.rows.end, sent.all.end);
                // A word says how many bags there are.
                let offsets = end + 1..end + 1 + bags + 1;
                let rows = offsets.end..offsets.end + look_ups;
                let weights = rows.end..rows.end + if stream.weighted { look_ups } else { 0 };
                sent.marks = weights.end..weights.end + if marked { bags.div_ceil(32) } else { 0 };
                end = sent.marks.end;
                sent.bag = PackedBag { offsets, rows, weights };
            }
        }
        starts[layout.ranks()] = end;
        for (table, bag) in served.iter().zip(&mut *hot) {
            let look_ups = bag.rows.end;
            bag.offsets = end..end + batch.bags[*table].samples() + 1;
            bag.rows = bag.offsets.end..bag.offsets.end + look_ups;
            let weighted = layout.weighted(TableId(*table as u32));
            bag.weights = bag.rows.end..bag.rows.end + if weighted { look_ups } else { 0 };
            end = bag.weights.end;
        }
        for sent in sends.iter_mut().flatten() {
            let (all, cold) = (sent.all.len(), sent.cold.len());
            sent.all = end..end + all;
            // Where nothing is marked the lists are one.
            sent.cold = if marked { sent.all.end..sent.all.end + cold } else { sent.all.clone() };
            end = sent.cold.end;
        }
        out.grow(end);
        for sent in sends.iter().flatten() {
            out[sent.bag.offsets.start - 1] = sent.all.len() as u32;
            out[sent.bag.offsets.start] = 0;
            out[sent.marks.clone()].fill(0);
        }
        hot.iter().for_each(|bag| out[bag.offsets.start] = 0);
        let (words, sends, hot) = (atomic_words_32(out), &*sends, &*hot);
        team.share(Each::new(units), |unit| {
            let own = number_of(unit.table).map(|number| &hot[number]);
            unit.write(&given(unit.table), words, sends, own);
        });
        for (owner, asked) in (0..).map(RankId).zip(&mut self.asked) {
            let groups = groups(layout, owner, rank == owner);
            let sent = &sends[owner.index()];
            asked[0].place(groups, |stream| sent[stream].cold.len());
            asked[1].place(groups, |stream| sent[stream].all.len());
        }
    }

    /// Whether owners are to pool any bag of this rank's.
    pub(in crate::exchange) fn asks(&self) -> bool {
        self.sends.iter().flatten().any(|sent| !sent.cold.is_empty())
    }

    /// Finds the streams in what has come from a rank.
    ///
    /// # Panics
    /// When they are not what fills it.
    pub(in crate::exchange) fn find(&mut self, layout: &Layout, from: RankId, message: &[u32]) {
        let Came { all, marks, words, cold } = &mut self.came[from.index()];
        let streams = &layout.of(self.rank).streams[..all.len()];
        let mut end = 0;
        for ((bag, marks), stream) in all.iter_mut().zip(&mut *marks).zip(streams) {
            let bags = message[end] as usize;
            let of = std::iter::once((bags, stream.weighted));
            end = find_bags(message, end + 1, of, std::slice::from_mut(bag));
            *marks = end..end + if self.marked { bags.div_ceil(32) } else { 0 };
            end = marks.end;
        }
        assert_eq!(end, message.len(), "as many words as the streams of {from} take");
        if self.marked {
            words.clear();
            for ((all, marks), cold) in all.iter().zip(marks).zip(&mut *cold) {
                *cold = unmarked(message, all, marks, words);
            }
        }
        let groups = groups(layout, self.rank, from == self.rank);
        let bags = |bags: &[PackedBag], stream: usize| bags[stream].offsets.len() - 1;
        let [pooled, gradients] = &mut self.answered[from.index()];
        pooled.place(groups, |stream| bags(if self.marked { &*cold } else { &*all }, stream));
        gradients.place(groups, |stream| bags(all, stream));
    }

    /// The streams of a rank, whose message this is, as rows are moved by them.
    pub(in crate::exchange) fn all<'a>(&'a self, from: RankId, message: &'a [u32]) -> (&'a [u32], &'a [PackedBag]) {
        (message, &self.came[from.index()].all)
    }

    /// The same, of those bags alone that this rank pools.
    pub(in crate::exchange) fn cold<'a>(&'a self, from: RankId, message: &'a [u32]) -> (&'a [u32], &'a [PackedBag]) {
        let Came { all, words, cold, .. } = &self.came[from.index()];
        if self.marked { (words, cold) } else { (message, all) }
    }

    /// The tables whose hot rows this rank looks up in its own copies, and the bags of each, which lie among all words.
    pub(in crate::exchange) fn hot(&self) -> (&[usize], &[PackedBag]) {
        (&self.served, &self.hot)
    }

    /// The numbers of this rank's bags that an owner pools for it, or whose gradients it gets.
    pub(in crate::exchange) fn list(&self, owner: RankId, stream: usize, pass: Pass) -> Range<usize> {
        let Sent { all, cold, .. } = &self.sends[owner.index()][stream];
        match pass {
            Pass::Forward => cold.clone(),
            Pass::Backward => all.clone(),
        }
    }

    /// Where vectors lie on a route, one end of which is this rank.
    pub(in crate::exchange) fn blocks(&self, Route { owner, asking }: Route, pass: Pass) -> &Blocks {
        let blocks = if asking == self.rank { &self.asked[owner.index()] } else { &self.answered[asking.index()] };
        &blocks[pass as usize]
    }
}

/// The groups of an owner that send vectors: for its own samples those of divided rows.
fn groups(layout: &Layout, owner: RankId, own: bool) -> &[Group] {
    let groups = &layout.of(owner).groups;
    let partial = groups.iter().take_while(|group| group.partial).count();
    if own { &groups[..partial] } else { groups }
}

/// Appends the bags without a mark to `to`, and says where they are.
fn unmarked(message: &[u32], bag: &PackedBag, marks: &Range<usize>, to: &mut Vec<u32>) -> PackedBag {
    let (offsets, marks) = (&message[bag.offsets.clone()], &message[marks.clone()]);
    let cold = || (0..offsets.len() - 1).filter(|number| marks[number / 32] >> (number % 32) & 1 == 0);
    let look_ups = |number: usize| offsets[number] as usize..offsets[number + 1] as usize;
    let start = to.len();
    let mut count = 0;
    to.push(0);
    for number in cold() {
        count += look_ups(number).len();
        to.push(count as u32);
    }
    let offsets = start..to.len();
    let mut copy = |from: &Range<usize>| {
        let start = to.len();
        if !from.is_empty() {
            cold().for_each(|number| to.extend_from_slice(&message[from.clone()][look_ups(number)]));
        }
        start..to.len()
    };
    let rows = copy(&bag.rows);
    PackedBag { offsets, rows, weights: copy(&bag.weights) }
}

/// Words of a stream with so many bags and look-ups.
pub(in crate::exchange) const fn stream_words(stream: &Stream, bags: usize, look_ups: usize, marked: bool) -> usize {
    let words = if stream.weighted { 2 } else { 1 };
    1 + bags + 1 + look_ups * words + if marked { bags.div_ceil(32) } else { 0 }
}
