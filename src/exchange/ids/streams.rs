//! Where the streams of a rank's messages lie, one message after another, and behind all of them which bags they have.

use std::ops::Range;

use crate::base::RankId;
use crate::embedding::PackedBag;
use crate::exchange::layout::Layout;
use crate::exchange::vectors::MessageForm;
use crate::exchange::{Pass, Route};

/// The streams that are sent, by receiver and number.
#[derive(Debug)]
pub(super) struct Streams {
    form: MessageForm,
    bags: Vec<Vec<PackedBag>>,
    /// Nothing where every bag goes.
    lists: Vec<Vec<Lists>>,
    /// Where each message begins; one more entry than ranks.
    starts: Vec<usize>,
}

/// Where the numbers of a stream's bags are listed.
#[derive(Debug, Clone, Default)]
pub(super) struct Lists {
    pub(super) all: Range<usize>,
    /// The same of those whose pooled rows come back.
    pub(super) cold: Range<usize>,
}

impl Streams {
    /// Those of a rank.
    pub(super) fn new(layout: &Layout, rank: RankId) -> Self {
        let (form, ranks) = (layout.form(), layout.ranks());
        let counts = || RankId::all(ranks).map(|owner| layout.streams(Route { owner, asking: rank }).len());
        let listed = |count| if form == MessageForm::RowPerSample { 0 } else { count };
        Self {
            form,
            bags: counts().map(|count| vec![PackedBag::default(); count]).collect(),
            lists: counts().map(|count| vec![Lists::default(); listed(count)]).collect(),
            starts: vec![0; ranks + 1],
        }
    }

    /// Notes how many look-ups, bags, and bags whose pooled rows come back a stream has: what a part of a table gets.
    pub(super) fn count(&mut self, (rank, stream): (RankId, usize), [look_ups, bags, cold]: [usize; 3]) {
        // Of its own look-ups, a rank sends itself those in divided rows alone.
        let Some(bag) = self.bags[rank.index()].get_mut(stream) else { return };
        (bag.offsets, bag.rows) = (0..bags, 0..look_ups);
        if let Some(lists) = self.lists[rank.index()].get_mut(stream) {
            (lists.all, lists.cold) = (0..bags, 0..cold);
        }
    }

    /// Places all streams, which were counted, one after another. Returns where the last one ends.
    pub(super) fn place(&mut self, layout: &Layout) -> usize {
        let Self { form, bags, starts, .. } = self;
        let mut end = 0;
        for (to, bags) in (0..).map(RankId).zip(bags) {
            starts[to.index()] = end;
            for (bag, stream) in bags.iter_mut().zip(&layout.of(to).streams) {
                let count = bag.offsets.end;
                *bag = PackedBag::at(end + form.head(), count, bag.rows.end, stream.weighted);
                end = bag.weights.end + form.marks(count);
            }
        }
        starts[layout.ranks()] = end;
        end
    }

    /// The same of all lists, from `end` on.
    pub(super) fn place_lists(&mut self, mut end: usize) -> usize {
        for Lists { all, cold } in self.lists.iter_mut().flatten() {
            *all = end..end + all.len();
            // Where nothing is marked the lists are one.
            *cold = if self.form.marked() { all.end..all.end + cold.len() } else { all.clone() };
            end = cold.end;
        }
        end
    }

    /// Writes what stands before each stream's first bag, and that no bag is marked.
    pub(super) fn begin(&self, out: &mut [u32]) {
        for PackedBag { offsets, weights, .. } in self.bags.iter().flatten() {
            let (first, bags) = (offsets.start, offsets.len() - 1);
            out[first - self.form.head()..first].fill(bags as u32);
            out[first] = 0;
            out[weights.end..][..self.form.marks(bags)].fill(0);
        }
    }

    /// Where a stream lies; nothing of those that a rank does not send itself.
    pub(super) fn bag(&self, (rank, stream): (RankId, usize)) -> Option<&PackedBag> {
        self.bags[rank.index()].get(stream)
    }

    /// Where the bags of a stream are listed.
    ///
    /// # Panics
    /// When every bag goes.
    pub(super) fn lists(&self, (rank, stream): (RankId, usize)) -> &Lists {
        &self.lists[rank.index()][stream]
    }

    /// The same of the bags whose vectors a pass exchanges.
    pub(super) fn list(&self, owner: RankId, stream: usize, pass: Pass) -> Range<usize> {
        let Lists { all, cold } = self.lists((owner, stream));
        match pass {
            Pass::Forward => cold.clone(),
            Pass::Backward => all.clone(),
        }
    }

    /// Whether owners are told of any bag that copies do not serve, where there are copies.
    pub(super) fn has_cold(&self) -> bool {
        self.lists.iter().flatten().any(|lists| !lists.cold.is_empty())
    }

    /// The words of a message.
    pub(super) fn message(&self, to: RankId) -> Range<usize> {
        self.starts[to.index()]..self.starts[to.index() + 1]
    }
}
