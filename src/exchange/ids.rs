//! Ids of rows, from the ranks that have the samples to those that have the rows; with them, where a column has
//! weights, those of its look-ups.
//!
//! The team puts every look-up into the message of its row's owner, once ([`Division`]). Messages are copied out of the
//! windows and read there, unless some of their bags are marked: what is to be pooled is copied out of these again.
//!
//! Where ranks have copies of hot rows, a bag whose rows are all hot is pooled from the rank's own copies, in the bag's
//! order, and so to the same bits. A bag with any cold row goes whole to the owners; their hot rows are up to date too.
//! So a stream has the bags that are there, one after another, and a message of pooled rows or of gradients a vector
//! for each: see [`MessageForm`].
//!
//! Where the number of ranks shall change no bit, owners move rows by the gradients of bags in the order of samples.
//! Then hot bags travel too, each with a mark, and so do their gradients; only their pooled rows do not.

mod cold;
mod division;
mod owners;
mod streams;
mod unit;

use cold::Cold;
use division::Division;

use super::layout::{Group, IdStream, Layout};
use super::vectors::{MessageForm, Vectors};
use super::{Minibatch, Pass, RankContext, Route};
use crate::base::{Error, RankId, Result, TableId};
use crate::collective::{Carrier, ListExchange};
use crate::data::hot::Inputs;
use crate::data::{BagView, Batch};
use crate::embedding::{Lookups, PackedBag};
use crate::memory::{Buffer, Supply};
use crate::sync::{Each, Line};

/// The exchange of ids, with its memory: after a step's [`Ids::exchange`], the look-ups of all ranks in this rank's
/// shards. Of its own, those in divided rows alone: whole tables are looked up as the minibatch says.
#[derive(Debug)]
pub struct Ids {
    rank: RankId,
    words: ListExchange,
    division: Division,
    /// All messages of this rank, by receiver, and what the division has behind them.
    out: Buffer<u32>,
    /// By sender.
    into: Vec<Vec<u32>>,
    /// What is found there, by sender.
    found: Vec<Found>,
    /// By owner: where the vectors lie of what it pools for this rank, and of their gradients.
    asked: Vec<[Vectors; 2]>,
    /// Whether the last ones went to the owners.
    asked_owners: bool,
}

/// What a rank has sent.
#[derive(Debug)]
struct Found {
    from: RankId,
    /// Where each stream lies.
    bags: Vec<PackedBag>,
    /// What is to be pooled of it, where some bags are marked.
    cold: Option<Cold>,
    /// Where the vectors lie of what this rank pools for it, and of their gradients.
    vectors: [Vectors; 2],
}

/// Streams of all ranks that the leader finds alone by the time that many threads have begun and ended together.
const FEW: usize = 256;

/// Bytes of a message of ids in minibatches of `batch` samples: the offsets of every stream, and every look-up, in
/// proportion to the rows that the receiver has.
pub(super) fn expected(layout: &Layout, batch: usize, from: RankId, to: RankId) -> usize {
    let samples = layout.samples(batch, from);
    let words = |stream: &IdStream| {
        let share = stream.rows.count as f64 / layout.sharding().rows(stream.table) as f64;
        let look_ups = ((samples * layout.lookups(stream.table)) as f64 * share).ceil() as usize;
        samples * stream.positions + 1 + look_ups * if stream.weighted { 2 } else { 1 }
    };
    layout.streams(Route { owner: to, asking: from }).iter().map(words).sum::<usize>() * size_of::<u32>()
}

impl Ids {
    /// For a rank, with room for whole minibatches of `batch` samples; longer bags than [`Layout::lookups`] work, and
    /// allocate once.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(context: &RankContext, batch: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let (rank, layout) = (context.rank, &*context.layout);
        let (form, ranks, samples) = (layout.form(), layout.ranks(), context.samples(batch));
        let expected = |from, to| expected(layout, batch, from, to) / size_of::<u32>();
        let all = || RankId::all(ranks);
        let into = |from| if from == rank { Vec::new() } else { Vec::with_capacity(expected(from, rank)) };
        let streams = |asking| layout.streams(Route { owner: rank, asking }).len();
        let vectors = |route: Route| [(); 2].map(|()| Vectors::new(form, layout.row_of(route)));
        let found = |from| Found {
            from,
            bags: vec![PackedBag::default(); streams(from)],
            cold: form.marked().then(|| Cold::new(streams(from))),
            vectors: vectors(Route { owner: rank, asking: from }),
        };
        Ok(Self {
            rank,
            words: ListExchange::new(rank, ranks, context.team.isa(), "exchange of ids"),
            division: Division::new(context, samples),
            out: supply.buffer(
                "ids",
                all().map(|to| expected(rank, to)).sum::<usize>() + Division::beside(layout, rank, samples),
            )?,
            into: all().map(into).collect(),
            found: all().map(found).collect(),
            asked: all().map(|owner| vectors(Route { owner, asking: rank })).collect(),
            asked_owners: false,
        })
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
        if layout.ranks() == 1 && self.found[0].bags.is_empty() {
            return Ok(());
        }
        self.division.write(context, minibatch, &mut self.out);
        let sent = self.division.streams();
        if inputs == Inputs::Hot && sent.has_cold() {
            let reason =
                "samples that are told to be hot look up rows that are not, as if they were of other data: leave \
                          --hot-set away, or write its file again with `octorec inspect --hot --inputs`"
                    .to_owned();
            return Err(Error::config("train.hot = \"fae\"", reason));
        }
        for (owner, vectors) in (0..).map(RankId).zip(&mut self.asked) {
            let groups = layout.groups(Route { owner, asking: self.rank });
            for (vectors, pass) in vectors.iter_mut().zip([Pass::Forward, Pass::Backward]) {
                vectors.place(groups, |stream| sent.list(owner, stream, pass).len());
            }
        }
        self.asked_owners = layout.asks_owners(inputs);
        if self.asked_owners {
            let out = &self.out;
            self.words.all_to_all_v(
                &context.team,
                carrier,
                |peer| &out[sent.message(RankId(peer as u32))],
                &mut self.into,
            )?;
        } else {
            // Every message tells of no bag, as this rank's do: nobody need send it.
            let words = 2 * layout.of(self.rank).streams.len();
            for (_, into) in self.into.iter_mut().enumerate().filter(|(from, _)| *from != self.rank.index()) {
                into.clear();
                into.resize(words, 0);
            }
        }
        let Self { rank, division, out, into, found, .. } = self;
        let (rank, streams, out, into) = (*rank, division.streams(), &out[..], &into[..]);
        let all = found.iter().map(|found| found.bags.len()).sum();
        let much = layout.form().marked() || context.team.is_much(all, FEW);
        context.team.share_if(much, Each::new(found), |found| {
            let from = found.from;
            let message = if from == rank { &out[streams.message(from)] } else { &into[from.index()][..] };
            found.find(layout, rank, layout.samples(whole, from), message);
        });
        Ok(())
    }

    /// What `from` looks up in the shards of one of this rank's groups, as rows are moved by it: a bag a sample of that
    /// rank, or where there are copies of hot rows those bags that are there. Its own look-ups in whole tables did not
    /// travel: they are those of `batch`, this rank's slice.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn lookups<'a>(&'a self, from: RankId, group: &'a Group, batch: &'a Batch) -> Lookups<'a> {
        if !group.travels(Route { owner: self.rank, asking: from }) {
            return Lookups::of(batch).in_tables(&group.tables);
        }
        Lookups::packed(self.message(from), &self.found[from.index()].bags).in_tables(&group.streams)
    }

    /// What this rank pools for `from` in the shards of one of its groups: no bags that `from` pools from copies of hot
    /// rows.
    ///
    /// # Panics
    /// When there is no such rank, or it is this rank and the group has whole tables.
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
        let Found { bags, cold, .. } = &self.found[from.index()];
        match cold {
            None => Lookups::packed(self.message(from), bags),
            Some(cold) => Lookups::packed(&cold.words, &cold.bags),
        }
    }

    /// What this rank looks up in its copies of hot rows: the tables, rising, and of each as many bags as of the
    /// minibatch, with slots for rows, and nothing in bags that other ranks pool.
    #[must_use]
    pub fn hot(&self) -> (&[usize], Lookups<'_>) {
        let (tables, bags) = self.division.hot();
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

    /// Where the vectors of a pass lie on a route, one end of which is this rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn vectors(&self, Route { owner, asking }: Route, pass: Pass) -> &Vectors {
        let vectors =
            if asking == self.rank { &self.asked[owner.index()] } else { &self.found[asking.index()].vectors };
        &vectors[pass as usize]
    }

    /// The numbers of this rank's bags in a stream of an owner, rising, whose vectors a pass exchanges: those that it
    /// pools, or all whose gradients it gets.
    ///
    /// # Panics
    /// When each sample has a row.
    pub(super) fn list(&self, owner: RankId, stream: usize, pass: Pass) -> &[u32] {
        &self.out[self.division.streams().list(owner, stream, pass)]
    }

    /// Bytes of the last message to a rank, as they go over the wire: none where copies serve all look-ups.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn bytes_to(&self, to: RankId) -> usize {
        if !self.asked_owners {
            return 0;
        }
        Line::BYTES + self.division.streams().message(to).len() * size_of::<u32>()
    }

    /// The words from a rank.
    fn message(&self, from: RankId) -> &[u32] {
        if from == self.rank { &self.out[self.division.streams().message(from)] } else { &self.into[from.index()] }
    }
}

impl Found {
    /// Finds the streams for `owner` in the rank's message; it has so many samples.
    ///
    /// # Panics
    /// When they are not what fills it.
    fn find(&mut self, layout: &Layout, owner: RankId, samples: usize, message: &[u32]) {
        let Self { from, bags, cold, vectors } = self;
        let (form, route) = (layout.form(), Route { owner, asking: *from });
        let mut end = 0;
        for (bag, stream) in bags.iter_mut().zip(layout.streams(route)) {
            let count = match form {
                MessageForm::RowPerSample => samples * stream.positions,
                MessageForm::VectorPerBag { .. } => message[end] as usize,
            };
            *bag = PackedBag::find(message, end + form.head(), count, stream.weighted);
            end = bag.weights.end + form.marks(count);
        }
        assert_eq!(end, message.len(), "as many words as the streams of {from} take");
        if let Some(cold) = cold {
            cold.take(message, bags);
        }
        let bags = &*bags;
        let pooled = cold.as_ref().map_or(bags, |cold| &cold.bags);
        for (vectors, bags) in vectors.iter_mut().zip([pooled, bags]) {
            vectors.place(layout.groups(route), |stream| bags[stream].offsets.len() - 1);
        }
    }
}

/// Whether a bag is pooled from copies: it has look-ups among theirs.
pub(super) fn is_served(hot: Option<BagView<'_>>, number: usize) -> bool {
    hot.is_some_and(|hot| hot.offsets[number] < hot.offsets[number + 1])
}
