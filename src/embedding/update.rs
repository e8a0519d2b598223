//! Backward pass and SGD update of the embedding bags: SC20, Algorithms 2 to 4.
//!
//! The definition is serial (`owned::MoveSerially`): samples in ascending order, a bag's look-ups in their order, each
//! look-up moving its row by `-rate * gradient` with one fused multiply-add an element. `serial`, `race-free` and
//! `sorted` give its bits for any number of threads; `atomic` and `rtm` only up to the order of a row's sums.
//!
//! Each comes in two forms with the same bits: fused, where a look-up takes its bag's gradient, and separate, where a
//! backward pass writes one gradient row a look-up first, as deep-learning frameworks do.

use std::ops::Range;

use super::atomic::{MoveLocked, MoveShared};
use super::choice::Choice;
use super::feed::{Batch, Feed, sample_of};
use super::form::{Form, precision_of, with_form};
use super::owned::{MoveOwn, MoveSerially, cut_evenly};
use super::row::{Scale, columns};
use super::sorted::Sorter;
use super::{Lookups, Slots, Table};
use crate::base::Result;
use crate::base::config::{Pooling, Precision, Update};
use crate::machine::team::Team;
use crate::memory::{Arena, Buffer, Supply};
use crate::simd::{Kernel, Simd};
use crate::sync::{Lender, Rows, Rtm, Stripes, atomic_floats};

/// Minibatches after which `auto` looks at the look-ups again.
const LOOK_AGAIN: u64 = 256;

/// What an [`Updater`] is built for.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// How rows are moved.
    pub update: Update,
    /// Whether no gradient rows are written.
    pub fused: bool,
    /// How the forward pass pooled.
    pub pooling: Pooling,
    /// Number of tables.
    pub tables: usize,
    /// Columns of a row.
    pub dim: usize,
    /// How the tables keep their numbers.
    pub precision: Precision,
    /// Look-ups of all tables in the largest minibatch that is expected. A larger one works and allocates once.
    pub lookups: usize,
    /// Threads of the team.
    pub threads: usize,
}

/// The backward pass and update of all tables, with its memory.
#[derive(Debug)]
pub struct Updater {
    spec: Spec,
    rtm: std::result::Result<Rtm, &'static str>,
    /// For rows that no instruction exchanges whole.
    stripes: Option<Stripes>,
    lender: Lender<u32>,
    sorter: Sorter,
    /// One gradient a look-up, all tables; empty when fused.
    rows: Buffer<f32>,
    choice: Option<Choice>,
    minibatches: u64,
}

impl Updater {
    /// Plans its memory.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(spec: Spec, supply: &mut Supply<'_>) -> Result<Self> {
        let sorts = matches!(spec.update, Update::Auto | Update::Sorted) && spec.threads > 0;
        let locked = spec.precision.is_split() && matches!(spec.update, Update::Atomic | Update::Rtm);
        let rtm = match spec.update {
            Update::Rtm if spec.precision.is_split() => Err("its transactions move whole numbers, not halves"),
            Update::Rtm => Rtm::detect(),
            _ => Err("it is not used"),
        };
        Ok(Self {
            rtm,
            stripes: locked.then(Stripes::default),
            lender: Lender::new(spec.tables, spec.threads),
            sorter: Sorter::new(spec.tables, if sorts { spec.lookups } else { 0 }, spec.threads, supply)?,
            rows: supply.buffer("gradient rows", if spec.fused { 0 } else { spec.lookups * spec.dim })?,
            spec,
            choice: None,
            minibatches: 0,
        })
    }

    /// Takes its memory from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        self.sorter.settle(arena);
        self.rows.settle(arena);
    }

    /// How rows were last moved, and why so.
    #[must_use]
    pub const fn choice(&self) -> Option<&Choice> {
        self.choice.as_ref()
    }

    /// What the user should know: that the configured way is not possible here.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let reason = self.rtm.err().filter(|_| self.spec.update == Update::Rtm)?;
        Some(format!("train.update = \"rtm\" works as \"atomic\": {reason}"))
    }

    /// Moves, for every sample and table, each row that the sample's bag names against the sample's gradient: the
    /// gradient of the pooled vector, times the look-up's weight and divided by the bag's length under mean pooling, is
    /// that of every row in it.
    ///
    /// # Panics
    /// When `gradient` has fewer rows than a bag has samples, or a bag names a row that the table does not have.
    pub fn run(
        &mut self,
        team: &Team,
        tables: &mut [Table],
        lookups: Lookups<'_>,
        gradient: &[f32],
        slots: Slots<'_>,
        rate: f32,
    ) {
        lookups.check(tables.len());
        let dim = self.spec.dim;
        assert!(tables.iter().all(|table| table.dim() == dim), "all tables have {dim} columns");
        assert!(tables.is_empty() || precision_of(tables) == self.spec.precision, "tables are as was planned");
        self.choose(team, tables, lookups);
        let batch = Batch { lookups, pooling: self.spec.pooling };
        let fused = |table| Feed::fused(gradient, slots, dim, table, batch);
        if self.spec.fused {
            return self.apply(team, tables, lookups, fused, rate);
        }
        let mut rows = std::mem::replace(&mut self.rows, Buffer::zeroed(0));
        let before = |table: usize| lookups.bags().take(table).map(|bag| bag.rows.len()).sum::<usize>();
        rows.grow(lookups.total() * dim);
        backward(team, lookups, &mut rows[..lookups.total() * dim], dim, fused);
        let separate = |table| Feed::rows(&rows[before(table) * dim..], dim, lookups.bag(table));
        self.apply(team, tables, lookups, separate, rate);
        self.rows = rows;
    }

    fn choose(&mut self, team: &Team, tables: &[Table], lookups: Lookups<'_>) {
        let due = self.minibatches.is_multiple_of(LOOK_AGAIN) || self.choice.is_none();
        self.minibatches += 1;
        if due {
            self.choice = Some(match self.spec.update {
                Update::Auto => Choice::best(tables, lookups, team.threads()),
                given => Choice::given(given),
            });
        }
    }

    fn apply<'f>(
        &mut self,
        team: &Team,
        tables: &mut [Table],
        lookups: Lookups<'f>,
        feed: impl Fn(usize) -> Feed<'f> + Sync,
        rate: f32,
    ) {
        with_form!(self.spec.precision, form => self.move_rows(form, team, tables, lookups, feed, rate));
    }

    fn move_rows<'f, F: Form>(
        &mut self,
        form: F,
        team: &Team,
        tables: &mut [Table],
        lookups: Lookups<'f>,
        feed: impl Fn(usize) -> Feed<'f> + Sync,
        rate: f32,
    ) {
        let (isa, threads, dim) = (team.isa(), team.threads(), self.spec.dim);
        let numbered = |tables: &'_ mut [Table]| 0..tables.len();
        match self.choice.map_or(Update::Serial, |choice| choice.update) {
            Update::Serial | Update::Auto => {
                for index in numbered(tables) {
                    let (table, bag) = (&mut tables[index], lookups.bag(index));
                    isa.run(MoveSerially { form, table, bag, feed: feed(index), rate });
                }
            }
            Update::RaceFree => {
                cut_evenly(&mut self.lender, tables, threads);
                let lent = self.lender.matrices(tables.iter_mut().map(|table| (table.words_mut(), F::words(dim))));
                team.each(lent, |mut own| {
                    for (index, bag) in lookups.bags().enumerate() {
                        isa.run(MoveOwn { form, band: own.band(index), dim, bag, feed: feed(index), rate });
                    }
                });
            }
            Update::Sorted => self.sorter.run(form, team, tables, lookups, feed, rate),
            Update::Atomic | Update::Rtm => {
                for (index, (table, bag)) in tables.iter_mut().zip(lookups.bags()).enumerate() {
                    let count = bag.rows.len();
                    let part = |thread: usize| count * thread / threads..count * (thread + 1) / threads;
                    if let Some(stripes) = &mut self.stripes {
                        let table = &stripes.guard(table.words_mut(), F::words(dim));
                        team.run(|thread| {
                            let (feed, positions) = (feed(index), part(thread));
                            isa.run(MoveLocked { form, table, dim, bag, feed, rate, positions });
                        });
                    } else {
                        let weights = atomic_floats(bytemuck::cast_slice_mut(table.words_mut()));
                        let shared = MoveShared { weights, dim, bag, feed: feed(index), rate, rtm: self.rtm.ok() };
                        team.run(|thread| shared.run(part(thread)));
                    }
                }
            }
        }
    }
}

/// Writes each look-up's gradient row (SC20, Algorithm 2), threads sharing out look-ups.
fn backward<'f>(
    team: &Team,
    lookups: Lookups<'f>,
    rows: &mut [f32],
    dim: usize,
    feed: impl Fn(usize) -> Feed<'f> + Sync,
) {
    let isa = team.isa();
    team.each(Rows::new(rows, dim, team.threads(), 1), |band| {
        let part = band.first..band.first + band.rows;
        let (mut before, mut to) = (0, band.data);
        for (index, bag) in lookups.bags().enumerate() {
            let positions = meet(&part, before, bag.rows.len());
            before += bag.rows.len();
            let (mine, rest) = to.split_at_mut(positions.len() * dim);
            to = rest;
            if !positions.is_empty() {
                let sample = sample_of(bag, positions.start);
                isa.run(WriteRows { to: mine, dim, offsets: bag.offsets, sample, positions, feed: feed(index) });
            }
        }
    });
}

/// A part of one table's gradient rows.
struct WriteRows<'a> {
    to: &'a mut [f32],
    dim: usize,
    offsets: &'a [u32],
    /// The sample of the first look-up.
    sample: usize,
    positions: Range<usize>,
    feed: Feed<'a>,
}

impl Kernel for WriteRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { to, dim, offsets, mut sample, positions, feed } = self;
        for (position, to) in positions.zip(to.chunks_exact_mut(dim)) {
            while offsets[sample + 1] as usize <= position {
                sample += 1;
            }
            let (from, factor) = feed.at(sample, position);
            columns(simd, dim, &mut Scale { from, factor, to });
        }
    }
}

/// The look-ups of one table that lie in `part` of all, when `before` lie in the tables before it.
pub(super) fn meet(part: &Range<usize>, before: usize, count: usize) -> Range<usize> {
    part.start.saturating_sub(before).min(count)..part.end.saturating_sub(before).min(count)
}
