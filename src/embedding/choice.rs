//! Which deterministic way to move rows is quickest, from the look-ups of a minibatch; all give the same bits, so the
//! choice may change at any time.
//!
//! A few look-ups of each table are sampled. They show how much of the work the busiest thread would have if rows were
//! shared out evenly (`race-free`), and how hot the hottest row is, which no way can split. Where that does not tell
//! the ways far apart, both are tried on the next minibatches, and the clock decides ([`Contest`]).

use std::fmt;

use super::Table;
use super::gradient_source::GradientSource;
use crate::base::config::Update;
use crate::optim::ParamState;

/// Look-ups of a table that are sampled.
const SAMPLED: usize = 1024;

/// Threads that are told apart; more than that share entries of the count.
const TOLD_APART: usize = 256;

/// Fewer look-ups are moved before other threads have begun.
const FEW: usize = 64;

/// What a look-up costs, in nanoseconds of one thread; only the ratios matter. From `octorec bench embedding` on a Xeon
/// with two threads: the means of uniform and of skewed rows.
const READ_NS: f64 = 0.8;
const SORT_NS: f64 = 9.0;
const MOVE_NS: f64 = 14.0;
const MOVE_NS_PER_COLUMN: f64 = 0.45;

/// A way that is expected to take so many times as long as the other is not tried.
const DOUBT: f64 = 3.0;

/// Minibatches on which each way is tried: the quickest counts, as whatever disturbs makes others slower.
const TRIALS: usize = 4;

/// A way to move rows and why it was chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The way.
    pub update: Update,
    why: Why,
    lookups: usize,
    threads: usize,
    /// The part of all look-ups that the busiest of equal row ranges has.
    busiest: f64,
    /// Estimated nanoseconds.
    race_free_ns: f64,
    sorted_ns: f64,
    /// What both took a look-up, in nanoseconds: race-free and sorted.
    measured: Option<[f64; 2]>,
}

/// Both ways in turn, and what they take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contest {
    /// Nanoseconds a look-up of race-free and of sorted, at best.
    ns: [f64; 2],
    turns: usize,
}

impl Contest {
    const WAYS: [Update; 2] = [Update::RaceFree, Update::Sorted];

    /// Whose turn it is.
    pub(super) const fn turn(&self) -> Update {
        Self::WAYS[self.turns % 2]
    }

    /// The one whose turn it is took so long for so many look-ups; what both took once all turns are over.
    pub(super) fn took(&mut self, seconds: f64, look_ups: usize) -> Option<[f64; 2]> {
        let best = &mut self.ns[self.turns % 2];
        *best = best.min(seconds * 1e9 / look_ups.max(1) as f64);
        self.turns += 1;
        (self.turns == 2 * TRIALS).then_some(self.ns)
    }
}

/// Who has chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Why {
    Auto,
    Configured,
    /// Only one way sums a row's gradients, which the optimizer needs.
    Sums,
    /// The same, and the row's learned weight needs it.
    Weighs,
}

impl Choice {
    /// What the user asked for.
    pub(super) const fn given(update: Update) -> Self {
        let (race_free_ns, sorted_ns, measured) = (0.0, 0.0, None);
        Self { update, why: Why::Configured, lookups: 0, threads: 0, busiest: 0.0, race_free_ns, sorted_ns, measured }
    }

    /// Tries both ways, unless it is plain which one is quicker.
    pub(super) fn contest(&self) -> Option<Contest> {
        let [least, most] = [self.race_free_ns.min(self.sorted_ns), self.race_free_ns.max(self.sorted_ns)];
        let doubtful = self.why == Why::Auto && self.update != Update::Serial && most < DOUBT * least;
        doubtful.then_some(Contest { ns: [f64::INFINITY; 2], turns: 0 })
    }

    /// The quicker one by what both took a look-up.
    pub(super) const fn measured(self, ns: [f64; 2]) -> Self {
        let update = if ns[1] < ns[0] { Update::Sorted } else { Update::RaceFree };
        Self { update, measured: Some(ns), ..self }
    }

    /// What an optimizer with moments needs, or learned weights of rows.
    pub(super) const fn sums(kept: ParamState) -> Self {
        let why = if kept.row_weights { Why::Weighs } else { Why::Sums };
        Self { why, ..Self::given(Update::Sorted) }
    }

    /// The quickest way for minibatches such as this one, of which these are the sources, table by table as many.
    pub(super) fn best(tables: &[Table], sources: &[GradientSource<'_>], threads: usize) -> Self {
        let count = sources.iter().map(|source| source.bag().rows.len()).sum();
        let mut choice = Self { why: Why::Auto, lookups: count, threads, ..Self::given(Update::Serial) };
        if threads == 1 || count < FEW {
            return choice;
        }
        let dim = tables.first().map_or(0, Table::dim);
        let (busiest, hottest) = skew(tables, sources, threads);
        let moving = count as f64 * (MOVE_NS + MOVE_NS_PER_COLUMN * dim as f64);
        choice.busiest = busiest;
        choice.race_free_ns = count as f64 * READ_NS + moving * busiest;
        choice.sorted_ns = count as f64 * SORT_NS / threads as f64 + moving * hottest.max(1.0 / threads as f64);
        choice.update = if choice.sorted_ns < choice.race_free_ns { Update::Sorted } else { Update::RaceFree };
        choice
    }
}

/// The part of all look-ups that the busiest thread has under equal row ranges, and that the hottest row has.
fn skew(tables: &[Table], sources: &[GradientSource<'_>], threads: usize) -> (f64, f64) {
    let mut work = [0.0f64; TOLD_APART];
    let mut sampled = [0u32; SAMPLED];
    let look_ups = |sources: &[GradientSource<'_>]| sources.iter().map(|source| source.bag().rows.len()).sum::<usize>();
    let (total, mut hottest) = (look_ups(sources) as f64, 0.0f64);
    for (table, sources) in tables.iter().zip(sources.chunks(sources.len() / tables.len())) {
        let of_table = look_ups(sources);
        let count = of_table.min(SAMPLED);
        if count == 0 {
            continue;
        }
        let sampled = &mut sampled[..count];
        let each = of_table as f64 / total / count as f64;
        let (mut left, mut before) = (sources.iter().map(|source| source.bag().rows), 0);
        let mut rows: &[u32] = &[];
        for (index, row) in sampled.iter_mut().enumerate() {
            let wanted = index * of_table / count;
            while wanted >= before + rows.len() {
                before += rows.len();
                rows = left.next().expect("the sources have all look-ups");
            }
            *row = rows[wanted - before];
            // The inverse of `Lender::cut_each`, up to rounding.
            work[*row as usize * threads / table.rows() % TOLD_APART] += each;
        }
        sampled.sort_unstable();
        let most = sampled.chunk_by(|a, b| a == b).map(<[u32]>::len).max().unwrap_or(0);
        // One look-up in a sample says nothing about a row's heat.
        hottest = hottest.max(if most > 1 { each * most as f64 } else { 0.0 });
    }
    (work.into_iter().fold(0.0, f64::max), hottest)
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.update {
            Update::Auto => "auto",
            Update::Serial => "serial",
            Update::Atomic => "atomic",
            Update::Rtm => "rtm",
            Update::RaceFree => "race-free",
            Update::Sorted => "sorted",
        };
        let Self { lookups, threads, .. } = self;
        if let Some([race_free, sorted]) = self.measured.map(|ns| ns.map(|ns| ns * *lookups as f64 * 1e-6)) {
            return write!(f, "{name}: {lookups} look-ups took {race_free:.2} ms race-free and {sorted:.2} ms sorted");
        }
        match self.update {
            _ if self.why == Why::Configured => write!(f, "{name}, as configured"),
            _ if self.why == Why::Sums => write!(f, "{name}, because the optimizer moves a row once, by a sum"),
            _ if self.why == Why::Weighs => {
                write!(f, "{name}, because a row and its learned weight move once, by a sum")
            }
            Update::Serial if *threads == 1 => write!(f, "{name}, because there is one thread"),
            Update::Serial => write!(f, "{name}, because a minibatch has only {lookups} look-ups"),
            _ => write!(
                f,
                "{name}: of {lookups} look-ups the busiest of {threads} equal row ranges has {:.0} %, so race-free \
                 takes about {:.2} ms and sorted {:.2} ms",
                self.busiest * 100.0,
                self.race_free_ns * 1e-6,
                self.sorted_ns * 1e-6
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_that_are_expected_to_be_alike_are_tried_and_the_quickest_is_taken() {
        let choice = |race_free_ns, sorted_ns| Choice {
            update: Update::RaceFree,
            why: Why::Auto,
            lookups: 1000,
            threads: 2,
            race_free_ns,
            sorted_ns,
            ..Choice::given(Update::Auto)
        };
        assert!(choice(1.0, 3.5).contest().is_none() && choice(3.5, 1.0).contest().is_none());
        assert!(Choice::given(Update::Sorted).contest().is_none());
        let mut contest = choice(1.0, 2.5).contest().unwrap();
        let mut found = None;
        // Each way once is disturbed; race-free takes 30 ns a look-up at best, sorted 20.
        for turn in 0..2 * TRIALS {
            assert!(found.is_none());
            let ns = match contest.turn() {
                Update::Sorted => 20.0 + 50.0 * f64::from(turn == 1),
                _ => 30.0 + 50.0 * f64::from(turn == 4),
            };
            found = contest.took(ns * 1e-9 * 1000.0, 1000);
        }
        let taken = choice(1.0, 2.5).measured(found.unwrap());
        assert_eq!(taken.update, Update::Sorted);
        assert_eq!(taken.to_string(), "sorted: 1000 look-ups took 0.03 ms race-free and 0.02 ms sorted");
    }
}
