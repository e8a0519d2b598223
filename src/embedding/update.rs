//! Backward pass and update of the embedding bags: SC20, Algorithms 2 to 4.
//!
//! With SGD the definition is serial (`owned::MoveSerially`): samples in ascending order, a bag's look-ups in their
//! order, each look-up moving its row by `-rate * gradient` with one fused multiply-add an element. `serial`,
//! `race-free` and `sorted` give its bits for any number of threads; `atomic` and `rtm` only up to the order of a row's
//! sums.
//!
//! Every other optimizer moves a row once, and so does any optimizer a row that has a learned weight, and SGD in
//! minibatches so large that single steps are lost beside the weight ([`crate::optim::Optimizer::SgdOfSums`]): by the
//! sum of its look-ups' gradients, in the same order, each rounded before it is added. Only sorted look-ups bring them
//! together. What is kept of rows that a step does not meet stays as it is.
//!
//! Each comes in two forms with the same bits: fused, where a look-up takes its bag's gradient, and separate, where a
//! backward pass writes one gradient row a look-up first, as deep-learning frameworks do.

use std::ops::Range;
use std::time::Instant;

use super::atomic::{MoveLocked, MoveShared};
use super::choice::{Choice, Contest};
use super::form::{Form, with_form};
use super::gradient_source::{GradientSource, sample_of};
use super::owned::{MoveOwn, MoveSerially, cut_evenly};
use super::row::{Scale, columns};
use super::sorted::Sorter;
use super::{Source, Table};
use crate::base::Result;
use crate::base::config::{Pooling, Update};
use crate::machine::team::Team;
use crate::memory::{Buffer, Supply, recycled};
use crate::optim::{ParamState, StepSize};
use crate::simd::{Kernel, Simd};
use crate::sync::{Lender, Matrix, Rows, Rtm, Stripes, atomic_words_32};

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
    /// What the tables keep.
    pub kept: ParamState,
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
    /// Where the choice is left to the clock.
    contest: Option<Contest>,
    minibatches: u64,
    /// Memory that steps use again.
    sources: Vec<GradientSource<'static>>,
}

impl Updater {
    /// With room for as many look-ups as the spec says.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(spec: Spec, supply: &mut Supply<'_>) -> Result<Self> {
        let sorts =
            spec.kept.sums_gradients() || matches!(spec.update, Update::Auto | Update::Sorted) && spec.threads > 0;
        let locked = spec.kept.precision.is_split() && matches!(spec.update, Update::Atomic | Update::Rtm);
        let rtm = match spec.update {
            Update::Rtm if spec.kept.precision.is_split() => Err("its transactions move whole numbers, not halves"),
            Update::Rtm => Rtm::detect(),
            _ => Err("it is not used"),
        };
        Ok(Self {
            rtm,
            stripes: locked.then(Stripes::default),
            lender: Lender::new(spec.tables, spec.threads),
            sorter: Sorter::new(&spec, if sorts { spec.lookups } else { 0 }, supply)?,
            rows: supply.buffer("gradient rows", if spec.fused { 0 } else { spec.lookups * spec.dim })?,
            spec,
            choice: None,
            contest: None,
            minibatches: 0,
            sources: Vec::new(),
        })
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
    /// that of every row in it. Sources count in their order, each with one bag a table. `step_size` is a [`StepSize`],
    /// or of the first update the learning rate.
    ///
    /// # Panics
    /// When a gradient has fewer rows than a bag has samples, or a bag names a row that the table does not have.
    pub fn run(&mut self, team: &Team, tables: &mut [Table], sources: &[Source<'_>], step_size: impl Into<StepSize>) {
        let step_size = step_size.into();
        let Spec { dim, kept, pooling, .. } = self.spec;
        sources.iter().for_each(|source| source.lookups.check(tables.len()));
        assert!(tables.iter().all(|table| table.dim() == dim), "all tables have {dim} columns");
        assert!(tables.iter().all(|table| table.keeps(kept)), "tables are as was planned");
        if sources.is_empty() {
            return;
        }
        // Table by table, in each source by source.
        let mut gradients: Vec<GradientSource<'_>> = recycled(std::mem::take(&mut self.sources));
        for table in 0..tables.len() {
            let mut before = 0;
            for source in sources {
                let gradient = GradientSource::fused(source, table, [dim, before], pooling);
                before += gradient.tokens();
                gradients.push(gradient);
            }
        }
        self.choose(team, tables, &gradients);
        if self.spec.fused {
            self.apply(team, tables, &gradients, step_size);
            self.sources = recycled(gradients);
        } else {
            let mut rows = std::mem::replace(&mut self.rows, Buffer::zeroed(0));
            let total: usize = gradients.iter().map(|gradient| gradient.bag().rows.len()).sum();
            rows.grow(total * dim);
            backward(team, &gradients, &mut rows[..total * dim], dim);
            let mut left = &rows[..];
            for of_table in gradients.chunks_mut(sources.len()) {
                let mut before = 0;
                for gradient in of_table {
                    let count = gradient.bag().rows.len();
                    let own = left.split_off(..count * dim).expect("a row a look-up");
                    *gradient = gradient.of_rows(own, before);
                    before += count as u32;
                }
            }
            self.apply(team, tables, &gradients, step_size);
            self.sources = recycled(gradients);
            self.rows = rows;
        }
    }

    fn choose(&mut self, team: &Team, tables: &[Table], sources: &[GradientSource<'_>]) {
        let due = self.minibatches.is_multiple_of(LOOK_AGAIN) || self.choice.is_none();
        self.minibatches += 1;
        if due {
            self.choice = Some(match (self.spec.kept.sums_gradients(), self.spec.update) {
                (false, Update::Auto) => Choice::best(tables, sources, team.threads()),
                (false, given) => Choice::given(given),
                (true, _) => Choice::sums(self.spec.kept),
            });
            self.contest = self.choice.and_then(|choice| choice.contest());
        }
    }

    fn apply(&mut self, team: &Team, tables: &mut [Table], sources: &[GradientSource<'_>], step_size: StepSize) {
        let began = Instant::now();
        with_form!(self.spec.kept.precision, form => self.move_rows(form, team, tables, sources, step_size));
        if let (Some(contest), Some(choice)) = (&mut self.contest, &mut self.choice) {
            let look_ups = sources.iter().map(|source| source.bag().rows.len()).sum();
            if let Some(ns) = contest.took(began.elapsed().as_secs_f64(), look_ups) {
                *choice = choice.measured(ns);
                self.contest = None;
            }
        }
    }

    fn move_rows<F: Form>(
        &mut self,
        form: F,
        team: &Team,
        tables: &mut [Table],
        sources: &[GradientSource<'_>],
        step_size: StepSize,
    ) {
        let rate = step_size.rate;
        let (isa, threads, dim) = (team.isa(), team.threads(), self.spec.dim);
        let of_each = sources.len() / tables.len().max(1);
        let of_table = || sources.chunks(of_each.max(1));
        let chosen = self.choice.map_or(Update::Serial, |choice| choice.update);
        match self.contest.as_ref().map_or(chosen, Contest::turn) {
            Update::Serial | Update::Auto => {
                for (table, sources) in tables.iter_mut().zip(of_table()) {
                    sources.iter().for_each(|&source| isa.run(MoveSerially { form, table, source, rate }));
                }
            }
            Update::RaceFree => {
                cut_evenly(&mut self.lender, tables, threads);
                let lent = self.lender.matrices(tables.iter_mut().map(Table::matrix_mut));
                team.each(lent, |mut own| {
                    for (index, sources) in of_table().enumerate() {
                        for &source in sources {
                            isa.run(MoveOwn { form, band: own.band(index), dim, source, rate });
                        }
                    }
                });
            }
            Update::Sorted => self.sorter.run(form, team, tables, sources, step_size),
            Update::Atomic | Update::Rtm => {
                for (table, sources) in tables.iter_mut().zip(of_table()) {
                    for &source in sources {
                        let count = source.bag().rows.len();
                        let part = |thread: usize| count * thread / threads..count * (thread + 1) / threads;
                        if let Some(stripes) = &mut self.stripes {
                            let Matrix { data, width } = table.matrix_mut();
                            let table = &stripes.guard(data, width);
                            team.run(|thread| {
                                isa.run(MoveLocked { form, table, dim, source, rate, positions: part(thread) });
                            });
                        } else {
                            let weights = atomic_words_32(table.words_mut());
                            let shared = MoveShared { weights, dim, source, rate, rtm: self.rtm.ok() };
                            team.run(|thread| shared.run(part(thread)));
                        }
                    }
                }
            }
        }
    }
}

/// Writes each look-up's gradient row (SC20, Algorithm 2), threads sharing out look-ups.
fn backward(team: &Team, sources: &[GradientSource<'_>], rows: &mut [f32], dim: usize) {
    let isa = team.isa();
    team.each(Rows::new(rows, dim, team.threads(), 1), |band| {
        let part = band.first..band.first + band.rows;
        let (mut before, mut to) = (0, band.data);
        for &source in sources {
            let bag = source.bag();
            let positions = meet(&part, before, bag.rows.len());
            before += bag.rows.len();
            let (mine, rest) = to.split_at_mut(positions.len() * dim);
            to = rest;
            if !positions.is_empty() {
                let sample = sample_of(bag, positions.start);
                isa.run(WriteRows { to: mine, dim, sample, positions, source });
            }
        }
    });
}

/// A part of one table's gradient rows.
struct WriteRows<'a> {
    to: &'a mut [f32],
    dim: usize,
    /// The sample of the first look-up.
    sample: usize,
    positions: Range<usize>,
    source: GradientSource<'a>,
}

impl Kernel for WriteRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { to, dim, mut sample, positions, source } = self;
        let offsets = source.bag().offsets;
        for (position, to) in positions.zip(to.chunks_exact_mut(dim)) {
            while offsets[sample + 1] as usize <= position {
                sample += 1;
            }
            let (from, factor) = source.at(sample, position);
            columns(simd, dim, &mut Scale { from, factor, to });
        }
    }
}

/// The look-ups of one of several bags that lie in `part` of all, when `before` lie in the bags before it.
pub(super) fn meet(part: &Range<usize>, before: usize, count: usize) -> Range<usize> {
    part.start.saturating_sub(before).min(count)..part.end.saturating_sub(before).min(count)
}
