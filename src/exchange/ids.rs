//! Ids of rows, from the ranks that have the samples to those that have the rows; with them, where a column has
//! weights, those of its look-ups.
//!
//! The team puts every look-up into the message of its row's owner, once: tables and stretches of samples are shared
//! out, first to count what each owner gets, then to write. Messages are read where they lie; nothing is unpacked.

use std::sync::atomic::{AtomicU32, Ordering};

use super::layout::{Group, Layout, Stream};
use super::sparse::{Blocks, SparseIds};
use super::stretches::{Stretch, line_up};
use super::words::{Words, find_bags};
use super::{Minibatch, Pass, RankContext, Route};
use crate::base::{Error, RankId, Result, TableId};
use crate::collective::Carrier;
use crate::data::hot::Inputs;
use crate::data::{BagView, Batch};
use crate::embedding::{Lookups, PackedBag};
use crate::memory::{Arena, Buffer, Supply};
use crate::shard::scheme::{Kind, Scheme, Sharding};
use crate::sync::{Each, Line, atomic_words_32};

/// The exchange of ids, with its memory: after a step's [`Ids::exchange`], the look-ups of all ranks in this rank's
/// shards. Of its own, those in divided rows alone: whole tables are looked up as the minibatch says.
#[derive(Debug)]
pub struct Ids {
    rank: RankId,
    words: Words,
    units: Vec<Unit>,
    /// Where there are copies of hot rows: in place of the units, and of what is known of messages.
    sparse: Option<SparseIds>,
    /// By table.
    owners: Vec<Owners>,
    /// All messages of this rank, by receiver.
    out: Buffer<u32>,
    /// Where each begins; one more entry than ranks.
    starts: Vec<usize>,
    /// By sender.
    into: Vec<Vec<u32>>,
    /// Where each stream lies, by receiver.
    sends: Vec<Vec<PackedBag>>,
    /// By sender.
    bags: Vec<Vec<PackedBag>>,
}

/// Who gets the look-ups of a table.
#[derive(Debug)]
pub(super) struct Owners {
    pub split: Split,
    /// For each part the rank that has it, and the number of its stream there. Of whole tables, each rank that has
    /// columns of it.
    pub parts: Vec<(RankId, usize)>,
    pub weighted: bool,
}

#[derive(Debug)]
pub(super) enum Split {
    /// Every part gets all look-ups.
    Whole,
    /// Row r goes to part r % n.
    Cyclic(u32),
    /// The first row of each part.
    Contiguous(Vec<u32>),
}

/// Some samples' look-ups in one table.
#[derive(Debug)]
struct Unit {
    table: usize,
    /// Which stretch of the samples, of how many.
    stretch: [usize; 2],
    /// For each part, first how many of the look-ups are its own, then where the next one goes among them.
    next: Vec<u32>,
}

impl Split {
    /// The part that has a row, and the row's number there.
    #[inline(always)]
    pub fn part(&self, row: u32) -> (usize, u32) {
        match self {
            Self::Whole => (0, row),
            Self::Cyclic(parts) => ((row % parts) as usize, row / parts),
            Self::Contiguous(firsts) => {
                let part = firsts.partition_point(|first| *first <= row) - 1;
                (part, row - firsts[part])
            }
        }
    }
}

impl Owners {
    fn new(layout: &Layout, table: TableId) -> Self {
        let sharding: &Sharding = layout.sharding();
        let weighted = layout.weighted(table);
        if layout.is_replicated(table) {
            return Self { split: Split::Whole, parts: Vec::new(), weighted };
        }
        let shards = sharding.of_table(table);
        let split = match sharding.scheme(table) {
            Scheme::RowCyclic(ranks) => Split::Cyclic(ranks.len() as u32),
            Scheme::RowContiguous(_) => Split::Contiguous(shards.iter().map(|shard| shard.rows.first as u32).collect()),
            Scheme::Table(_) | Scheme::Column(_) | Scheme::Replicated => Split::Whole,
        };
        let mut parts = Vec::new();
        for shard in shards {
            let stream = layout.of(shard.rank).stream(table, shard.rows);
            let part = (shard.rank, stream.expect("a stream for every shard"));
            // Slices of columns on one rank share their ids.
            if sharding.scheme(table).kind() == Kind::Row || !parts.contains(&part) {
                parts.push(part);
            }
        }
        Self { split, parts, weighted }
    }
}

impl Stretch for Unit {
    fn counts(&mut self) -> impl Iterator<Item = &mut u32> {
        self.next.iter_mut()
    }
}

impl Unit {
    /// The samples of this stretch.
    const fn samples(&self, samples: usize) -> std::ops::Range<usize> {
        let [index, count] = self.stretch;
        samples * index / count..samples * (index + 1) / count
    }

    fn count(&mut self, owners: &Owners, batch: &Batch) {
        let bag = &batch.bags[self.table];
        let samples = self.samples(bag.samples());
        let rows = &bag.rows[bag.offsets[samples.start] as usize..bag.offsets[samples.end] as usize];
        if let Split::Whole = owners.split {
            return self.next.fill(rows.len() as u32);
        }
        self.next.fill(0);
        rows.iter().for_each(|row| self.next[owners.split.part(*row).0] += 1);
    }

    /// Writes this stretch's look-ups; `place` says where a part's stream lies among `out`.
    fn write<'a>(
        &mut self,
        owners: &Owners,
        batch: &Batch,
        out: &[AtomicU32],
        place: impl Fn((RankId, usize)) -> Option<&'a PackedBag>,
    ) {
        // Relaxed: every word has one writer, and the region's end hands them over.
        let put = |at: usize, word: u32| out[at].store(word, Ordering::Relaxed);
        let (bag, weights) = (&batch.bags[self.table], &batch.weights[self.table][..]);
        let samples = self.samples(bag.samples());
        let first = bag.offsets[samples.start] as usize;
        if let Split::Whole = owners.split {
            let rows = &bag.rows[first..bag.offsets[samples.end] as usize];
            for PackedBag { offsets, rows: to, weights: to_weights } in
                owners.parts.iter().filter_map(|part| place(*part))
            {
                let ends = samples.clone().map(|sample| (sample + 1, bag.offsets[sample + 1]));
                ends.for_each(|(sample, end)| put(offsets.start + sample, end));
                (to.start + first..).zip(rows).for_each(|(at, row)| put(at, *row));
                if owners.weighted {
                    let own = weights[first..][..rows.len()].iter();
                    (to_weights.start + first..).zip(own).for_each(|(at, weight)| put(at, weight.to_bits()));
                }
            }
            return;
        }
        for sample in samples {
            let first = bag.offsets[sample] as usize;
            for (position, row) in (first..).zip(bag.of(sample)) {
                let (part, row) = owners.split.part(*row);
                let Some(to) = place(owners.parts[part]) else { continue };
                let next = &mut self.next[part];
                put(to.rows.start + *next as usize, row);
                if owners.weighted {
                    put(to.weights.start + *next as usize, weights[position].to_bits());
                }
                *next += 1;
            }
            for (part, next) in owners.parts.iter().zip(&self.next) {
                if let Some(to) = place(*part) {
                    put(to.offsets.start + sample + 1, *next);
                }
            }
        }
    }
}

/// Bytes of a message of ids in minibatches of `batch` samples: the offsets of every stream, and every look-up, in
/// proportion to the rows that the receiver has.
pub(super) fn expected(layout: &Layout, batch: usize, from: RankId, to: RankId) -> usize {
    let samples = layout.samples(batch, from);
    let streams = if from == to { layout.of(to).partial_streams() } else { &layout.of(to).streams[..] };
    let words = |stream: &Stream| {
        let share = stream.rows.count as f64 / layout.sharding().rows(stream.table) as f64;
        let look_ups = ((samples * layout.lookups(stream.table)) as f64 * share).ceil() as usize;
        samples * stream.positions + 1 + look_ups * (1 + usize::from(stream.weighted))
    };
    streams.iter().map(words).sum::<usize>() * size_of::<u32>()
}

impl Ids {
    /// For a rank, with room for whole minibatches of `batch` samples; longer bags than [`Layout::lookups`] work, and
    /// allocate once.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(context: &RankContext, batch: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let (rank, team, layout) = (context.rank, &context.team, &*context.layout);
        let ranks = layout.ranks();
        let tables = (0..layout.sharding().tables() as u32).map(TableId);
        let owners: Vec<Owners> = tables.map(|table| Owners::new(layout, table)).collect();
        let stretches = team.threads();
        let unit = |(table, owners): (usize, &Owners), stretch| Unit {
            table,
            stretch: [stretch, stretches],
            next: vec![0; owners.parts.len()],
        };
        let divided = owners.iter().enumerate().filter(|(_, owners)| !owners.parts.is_empty());
        let units = divided.flat_map(|of| (0..stretches).map(move |stretch| unit(of, stretch))).collect();
        let expected = |from, to| expected(layout, batch, from, to) / size_of::<u32>();
        let all = || (0..ranks as u32).map(RankId);
        let places = |streams: usize| vec![PackedBag::default(); streams];
        let partial = layout.of(rank).partial_streams().len();
        let own = |peer: RankId| if peer == rank { partial } else { layout.of(rank).streams.len() };
        let into = |from| if from == rank { Vec::new() } else { Vec::with_capacity(expected(from, rank)) };
        let samples = context.samples(batch);
        let beside = SparseIds::beside(layout, rank, samples);
        Ok(Self {
            rank,
            words: Words::new(rank, ranks, team.isa(), "exchange of ids"),
            units,
            sparse: SparseIds::new(context, samples, &owners),
            owners,
            out: supply.buffer("ids", all().map(|to| expected(rank, to)).sum::<usize>() + beside)?,
            starts: vec![0; ranks + 1],
            into: all().map(into).collect(),
            sends: all().map(|to| places(if to == rank { partial } else { layout.of(to).streams.len() })).collect(),
            bags: all().map(|from| places(own(from))).collect(),
        })
    }

    /// Takes its memory from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.out.settle(arena);
    }

    /// Sends the ids of this rank's samples to their owners and takes in those of all ranks. Where copies serve all
    /// look-ups nothing is sent.
    ///
    /// # Errors
    /// [`Error::Rank`] when the job is in trouble, and when hot inputs look up rows that are not hot.
    ///
    /// # Panics
    /// When the slice has another size than the layout says, or weights for other columns.
    pub fn exchange(&mut self, context: &RankContext, carrier: &mut dyn Carrier, minibatch: &Minibatch) -> Result<()> {
        let layout = &*context.layout;
        let (batch, whole, inputs) = (&*minibatch.slice, minibatch.whole, minibatch.inputs);
        assert_eq!(batch.samples(), context.samples(whole), "this rank's slice of {whole} samples");
        for (table, (bag, weights)) in (0..).map(TableId).zip(batch.bags.iter().zip(&batch.weights)) {
            let due = if layout.weighted(table) { bag.rows.len() } else { 0 };
            assert_eq!(weights.len(), due, "{table}: one weight a look-up, where its column has weights");
        }
        if layout.ranks() == 1 && self.sends[0].is_empty() {
            return Ok(());
        }
        match &mut self.sparse {
            None => self.pack(context, batch),
            Some(sparse) => sparse.pack(context, minibatch, &self.owners, (&mut self.out, &mut self.starts)),
        }
        if inputs == Inputs::Hot && self.sparse.as_ref().is_some_and(SparseIds::asks) {
            let reason =
                "samples that are told to be hot look up rows that are not, as if they were of other data: leave \
                          --hot-set away, or write its file again with `octorec inspect --hot --inputs`"
                    .to_owned();
            return Err(Error::config("train.hot = \"fae\"", reason));
        }
        let (out, starts) = (&self.out, &self.starts);
        if layout.asks_owners(inputs) {
            self.words.swap(&context.team, carrier, |peer| &out[starts[peer]..starts[peer + 1]], &mut self.into)?;
        } else {
            // Every message tells of no bag, as this rank's do: nobody need send it.
            let words = 2 * layout.of(self.rank).streams.len();
            for (_, into) in self.into.iter_mut().enumerate().filter(|(from, _)| *from != self.rank.index()) {
                into.clear();
                into.resize(words, 0);
            }
        }
        for from in (0..layout.ranks() as u32).map(RankId) {
            if let Some(sparse) = &mut self.sparse {
                let own = &self.out[self.starts[from.index()]..self.starts[from.index() + 1]];
                let message = if from == self.rank { own } else { &self.into[from.index()] };
                sparse.find(layout, from, message);
                continue;
            }
            let mut bags = std::mem::take(&mut self.bags[from.index()]);
            let (words, samples) = (self.message(from), layout.samples(whole, from));
            let streams = &layout.of(self.rank).streams[..bags.len()];
            let end = find_bags(
                words,
                0,
                streams.iter().map(|stream| (samples * stream.positions, stream.weighted)),
                &mut bags,
            );
            assert_eq!(end, words.len(), "as many words as the bags of {from} take");
            self.bags[from.index()] = bags;
        }
        Ok(())
    }

    /// Writes all messages.
    fn pack(&mut self, context: &RankContext, batch: &Batch) {
        let (team, layout) = (&context.team, &context.layout);
        let Self { units, owners, sends, starts, out, .. } = self;
        let samples = batch.samples();
        team.share(Each::new(units), |unit| unit.count(&owners[unit.table], batch));
        // Each stretch's look-ups of a stream follow those of the stretch before; `rows` only counts them yet.
        sends.iter_mut().flatten().for_each(|place| place.rows = 0..0);
        let stretches = units.first().map_or(1, |unit| unit.stretch[1]);
        line_up(team, units, stretches);
        for first in units.iter_mut().step_by(stretches) {
            for ((rank, stream), next) in owners[first.table].parts.iter().zip(&mut first.next) {
                let count = std::mem::take(next) as usize;
                // Of its own look-ups, a rank sends itself those in divided rows alone.
                if let Some(place) = sends[rank.index()].get_mut(*stream) {
                    place.rows = 0..count;
                }
            }
        }
        let mut end = 0;
        for (to, places) in (0..).map(RankId).zip(sends.iter_mut()) {
            starts[to.index()] = end;
            for (place, stream) in places.iter_mut().zip(&layout.of(to).streams) {
                let count = place.rows.end;
                place.offsets = end..end + samples * stream.positions + 1;
                place.rows = place.offsets.end..place.offsets.end + count;
                place.weights = place.rows.end..place.rows.end + if stream.weighted { count } else { 0 };
                end = place.weights.end;
            }
        }
        starts[layout.ranks()] = end;
        out.grow(end);
        let words = atomic_words_32(out);
        sends.iter().flatten().for_each(|place| words[place.offsets.start].store(0, Ordering::Relaxed));
        let sends = &*sends;
        let place = |(rank, stream): (RankId, usize)| sends[rank.index()].get(stream);
        team.share(Each::new(units), |unit| unit.write(&owners[unit.table], batch, words, place));
    }

    /// What `from` looks up in the shards of one of this rank's groups, as rows are moved by it: a bag a sample of that
    /// rank, or where there are copies of hot rows those bags that are there.
    ///
    /// # Panics
    /// When there is no such rank, or it is this rank and the group has whole tables.
    #[must_use]
    pub fn lookups<'a>(&'a self, from: RankId, group: &'a Group) -> Lookups<'a> {
        let (words, bags) = match &self.sparse {
            None => (self.message(from), &self.bags[from.index()][..]),
            Some(sparse) => sparse.all(from, self.message(from)),
        };
        Lookups::packed(words, bags).in_tables(&group.streams)
    }

    /// The same, of what this rank pools for `from`: no bags that it pools from copies of hot rows.
    ///
    /// # Panics
    /// As [`Ids::lookups`].
    #[must_use]
    pub fn pooled<'a>(&'a self, from: RankId, group: &'a Group) -> Lookups<'a> {
        self.asked(from).in_tables(&group.streams)
    }

    /// What `from` wants pooled in one of this rank's shards of divided rows.
    ///
    /// # Panics
    /// When there is no such rank or stream.
    #[must_use]
    pub fn bag(&self, from: RankId, stream: usize) -> BagView<'_> {
        self.asked(from).bag(stream)
    }

    fn asked(&self, from: RankId) -> Lookups<'_> {
        let (words, bags) = match &self.sparse {
            None => (self.message(from), &self.bags[from.index()][..]),
            Some(sparse) => sparse.cold(from, self.message(from)),
        };
        Lookups::packed(words, bags)
    }

    /// What this rank looks up in its copies of hot rows: the tables, rising, and of each as many bags as of the
    /// minibatch, with slots for rows, and nothing in bags that other ranks pool.
    #[must_use]
    pub fn hot(&self) -> (&[usize], Lookups<'_>) {
        let (tables, bags) = self.sparse.as_ref().map_or((&[][..], &[][..]), SparseIds::hot);
        (tables, Lookups::packed(&self.out, bags))
    }

    /// Those of one table, where there are copies of its hot rows.
    pub(super) fn hot_bag(&self, table: TableId) -> Option<BagView<'_>> {
        let (tables, lookups) = self.hot();
        Some(lookups.bag(tables.binary_search(&table.index()).ok()?))
    }

    /// The rank whose samples look these ids up.
    #[must_use]
    pub const fn rank(&self) -> RankId {
        self.rank
    }

    /// Where the vectors of a pass lie on a route, one end of which is this rank. Nothing where each sample has a row.
    #[must_use]
    pub fn blocks(&self, route: Route, pass: Pass) -> Option<&Blocks> {
        Some(self.sparse.as_ref()?.blocks(route, pass))
    }

    /// The numbers of this rank's bags in a stream of an owner, rising, whose vectors a pass exchanges: those that it
    /// pools, or all whose gradients it gets.
    ///
    /// # Panics
    /// When each sample has a row.
    pub(super) fn list(&self, owner: RankId, stream: usize, pass: Pass) -> &[u32] {
        let sparse = self.sparse.as_ref().expect("messages have some bags only");
        &self.out[sparse.list(owner, stream, pass)]
    }

    /// Bytes of the last message to a rank, as they go over the wire.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn bytes_to(&self, to: RankId) -> usize {
        let words = self.starts[to.index() + 1] - self.starts[to.index()];
        Line::BYTES + words * size_of::<u32>()
    }

    /// The words from a rank.
    fn message(&self, from: RankId) -> &[u32] {
        if from == self.rank {
            &self.out[self.starts[from.index()]..self.starts[from.index() + 1]]
        } else {
            &self.into[from.index()]
        }
    }
}
