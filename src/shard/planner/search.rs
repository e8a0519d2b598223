//! The greedy start and the local search that improves it.
//!
//! Both walk tables in one order (heaviest first, then by number) and keep the first of equals, so a plan is a function
//! of its input. The search accepts only what lowers the score, so it never ends above its start.

use std::rc::Rc;

use super::Options;
use super::candidates::{Candidate, Choice, Shape, arrangements, by_room, candidates, room};
use crate::base::{TableId, interrupt};
use crate::shard::cost::{Model, Score, Tally};
use crate::shard::scheme::{Kind, Rows};
use crate::shard::workload::Load;

/// Divisions that one local search may price.
const BUDGET: usize = 12_000;

/// Prices of two tables' places together that are looked at after each change of one has been tried: few, because there
/// are as many as the square of all choices.
const PAIR_BUDGET: usize = 2_000;

/// The default of small tables is left only for at least this much of the slowest rank's time.
const DEFAULT_LEFT_FOR: f64 = 0.01;

/// What the greedy start prefers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The division after which the slowest rank is fastest.
    Balanced,
    /// As that, but tables in one piece where they fit.
    Whole,
    /// The division after which the fullest memory is emptiest.
    Roomy,
}

/// All starts, in the order in which the first of equally good ones is kept.
pub const STARTS: [Start; 3] = [Start::Whole, Start::Balanced, Start::Roomy];

/// A division of tables that may still change.
#[derive(Debug, Clone)]
pub struct State<'a> {
    model: &'a Model<'a>,
    options: &'a Options,
    candidates: &'a [Vec<Rc<Candidate>>],
    pub tally: Tally,
    pub choices: Vec<Option<Choice>>,
    order: Vec<TableId>,
}

/// The ways of all tables.
pub fn all_candidates(model: &Model<'_>, options: &Options) -> Vec<Vec<Rc<Candidate>>> {
    TableId::all(model.workload.tables.len()).map(|table| candidates(model, table, options)).collect()
}

/// Whether a table is replicated unless there is a reason against it.
pub fn default_is_replicated(model: &Model<'_>, options: &Options, table: TableId) -> bool {
    options.scheme.is_none() && model.ranks() > 1 && model.workload.tables[table.index()].rows < options.replicate_below
}

/// Whether `a` is better than `b` by more than rounding.
fn better(a: Score, b: Score) -> bool {
    let below = |a: f64, b: f64| a < b * (1.0 - 1e-9);
    below(a.slowest_s, b.slowest_s) || (a.slowest_s <= b.slowest_s && below(a.mean_s, b.mean_s))
}

/// Whether `a` is so much better that the default of small tables is left for it.
pub fn clearly_better(a: Score, b: Score) -> bool {
    a.slowest_s < b.slowest_s * (1.0 - DEFAULT_LEFT_FOR)
}

/// The rank that has a table in one piece.
fn whole(choice: &Option<Choice>) -> Option<usize> {
    choice.as_ref().filter(|choice| choice.ranks.len() == 1).map(|choice| choice.ranks[0])
}

impl<'a> State<'a> {
    pub fn new(model: &'a Model<'a>, options: &'a Options, candidates: &'a [Vec<Rc<Candidate>>]) -> Self {
        let tables = model.workload.tables.len();
        // A table's share of all bytes kept and of all bytes moved; small replicated ones go first, they go everywhere.
        let weigh = |table: TableId| {
            let load = &model.workload.tables[table.index()];
            let whole = model.load(table, &Rows::all(load.rows), load.dim, true);
            (whole.memory as f64, whole.moved() as f64)
        };
        let weights: Vec<(f64, f64)> = TableId::all(tables).map(weigh).collect();
        let sum = weights.iter().fold((1.0, 1.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let key = |table: &TableId| {
            let (memory, work) = weights[table.index()];
            (memory / sum.0).max(work / sum.1) + f64::from(u8::from(default_is_replicated(model, options, *table)))
        };
        let mut order: Vec<TableId> = TableId::all(tables).collect();
        let kept = |table: &TableId| weights[table.index()].0;
        order.sort_by(|a, b| key(b).total_cmp(&key(a)).then(kept(b).total_cmp(&kept(a))).then(a.cmp(b)));
        Self { model, options, candidates, tally: model.empty(), choices: vec![None; tables], order }
    }

    fn put(&mut self, table: TableId, choice: Choice) {
        choice.add(self.model, &mut self.tally, table, 1);
        self.choices[table.index()] = Some(choice);
    }

    fn take(&mut self, table: TableId) -> Choice {
        let choice = self.choices[table.index()].take().expect("the table was put somewhere");
        choice.add(self.model, &mut self.tally, table, -1);
        choice
    }

    /// The score with the table put there.
    fn score_with(&mut self, table: TableId, choice: &Choice) -> Option<Score> {
        choice.add(self.model, &mut self.tally, table, 1);
        let score = self.model.score(&self.tally);
        choice.add(self.model, &mut self.tally, table, -1);
        score
    }

    /// The share of the fullest memory that is taken with the table put there; `None` when it is too little.
    fn fill_with(&mut self, table: TableId, choice: &Choice) -> Option<f64> {
        choice.add(self.model, &mut self.tally, table, 1);
        let pools = 0..self.model.site.pools.len();
        let fill = |pool| self.model.wanted(&self.tally, pool) as f64 / self.model.site.pools[pool].usable() as f64;
        let fits = self.model.overfull(&self.tally).is_none();
        let fullest = fits.then(|| pools.map(fill).fold(0.0, f64::max));
        choice.add(self.model, &mut self.tally, table, -1);
        fullest
    }

    /// Puts every table somewhere that is not yet anywhere.
    ///
    /// # Errors
    /// The table that fits nowhere, with the rest as it was then.
    pub fn greedy(mut self, start: Start) -> Result<Self, Box<(TableId, Tally)>> {
        let missing: Vec<TableId> =
            self.order.iter().copied().filter(|table| self.choices[table.index()].is_none()).collect();
        for table in missing {
            let mut best = None;
            let replicated = default_is_replicated(self.model, self.options, table);
            let candidates = &self.candidates[table.index()];
            // In one piece where that is wanted and fits, then anything.
            for whole_only in [true, false] {
                let chosen: Vec<Rc<Candidate>> = candidates
                    .iter()
                    .filter(|how| match (replicated, how.shape == Shape::Replicated) {
                        (true, is_replica) if whole_only => is_replica,
                        (false, true) => self.options.scheme.is_some(),
                        _ => !whole_only || start == Start::Balanced || how.loads.len() == 1,
                    })
                    .cloned()
                    .collect();
                for choice in arrangements(self.model, &self.tally, &chosen) {
                    let value = match start {
                        Start::Roomy => {
                            self.fill_with(table, &choice).map(|fill| Score { slowest_s: fill, mean_s: 0.0 })
                        }
                        _ => self.score_with(table, &choice),
                    };
                    if let Some(value) = value
                        && best.as_ref().is_none_or(|(known, _)| better(value, *known))
                    {
                        best = Some((value, choice));
                    }
                }
                if best.is_some() {
                    break;
                }
            }
            let rows_allowed = self.options.scheme.is_none_or(|kind| kind == Kind::Row);
            if best.is_none()
                && rows_allowed
                && let Some(choice) = by_room(self.model, &self.tally, table)
            {
                best = self.score_with(table, &choice).map(|score| (score, choice));
            }
            match best {
                Some((_, choice)) => self.put(table, choice),
                None => return Err(Box::new((table, self.tally))),
            }
        }
        Ok(self)
    }

    pub fn score(&self) -> Option<Score> {
        self.model.score(&self.tally)
    }

    /// The same without the tables that are replicated by default, to be put anew as `others` say, which have no such
    /// default; `None` where copies take so little time that there is nothing to gain.
    ///
    /// A local search changes one or two tables at a time: where many copies share the time, none alone is worth a
    /// move.
    pub fn without_copies(&self, others: &'a Options) -> Option<Self> {
        let small = |table: &TableId| default_is_replicated(self.model, self.options, *table);
        let replicated = |choice: &Option<Choice>| choice.as_ref().is_some_and(|at| at.how.shape == Shape::Replicated);
        let small: Vec<TableId> = self.order.iter().copied().filter(small).collect();
        if small.is_empty() {
            return None;
        }
        // Where none has kept its copies, they were left one by one, which may have ended elsewhere.
        if small.iter().any(|table| replicated(&self.choices[table.index()])) {
            let free = Tally { replicas: Load::default(), replicated: 0, ..self.tally.clone() };
            if !clearly_better(self.model.score(&free)?, self.score()?) {
                return None;
            }
        }
        let mut state = Self { options: others, ..self.clone() };
        small.into_iter().for_each(|table| _ = state.take(table));
        Some(state)
    }

    /// Moves, swaps and divides tables anew while that helps, two together where no change of one does; returns how
    /// many divisions were priced.
    pub fn improve(&mut self) -> usize {
        let (mut priced, mut pairs) = (0, 0);
        let Some(mut score) = self.score() else { return 0 };
        while !interrupt::requested()
            && let Some(better) = self.step(score, &mut priced).or_else(|| self.better_pair(score, &mut pairs))
        {
            score = better;
        }
        priced + pairs
    }

    /// The first change that helps: to a table of the slowest rank, where most is to gain, else to any other.
    fn step(&mut self, now: Score, priced: &mut usize) -> Option<Score> {
        let slowest = self.slowest();
        let (mut order, others) = self.by_presence(slowest);
        order.extend(others);
        // Of many thousands of tables few may be on other ranks: they are looked for once, since a step ends with the
        // first change.
        let elsewhere = |table: &TableId| whole(&self.choices[table.index()]).is_some_and(|rank| rank != slowest);
        let swaps: Vec<TableId> = self.order.iter().copied().filter(elsewhere).collect();
        for table in order {
            if *priced >= self.budget(BUDGET) {
                return None;
            }
            let improved = self
                .better_place(table, now, priced)
                .or_else(|| self.better_swap(table, (slowest, &swaps), now, priced));
            if improved.is_some() {
                return improved;
            }
        }
        None
    }

    /// The rank that ends last, the first of equals.
    fn slowest(&self) -> usize {
        let totals = self.model.totals(&self.tally);
        let later = |slowest, rank| if totals[rank] > totals[slowest] { rank } else { slowest };
        (0..totals.len()).fold(0, later)
    }

    /// Tables of which a rank holds a part, and all others.
    fn by_presence(&self, rank: usize) -> (Vec<TableId>, Vec<TableId>) {
        let there = |table: &TableId| self.choices[table.index()].as_ref().is_some_and(|at| at.ranks.contains(&rank));
        self.order.iter().copied().partition(there)
    }

    /// Prices that are looked at: fewer where each is of very many ranks.
    fn budget(&self, most: usize) -> usize {
        const RANKS: usize = 64;
        most * RANKS / self.model.ranks().max(RANKS)
    }

    /// The first pair of tables, one of them on the slowest rank, that are better placed when both change: where memory
    /// or time is short, neither can go first. A table that is replicated stays so.
    fn better_pair(&mut self, now: Score, priced: &mut usize) -> Option<Score> {
        let (mine, _) = self.by_presence(self.slowest());
        for first in mine {
            for second in self.order.clone() {
                let replicated =
                    self.choices[second.index()].as_ref().is_some_and(|at| at.how.shape == Shape::Replicated);
                if second == first || replicated {
                    continue;
                }
                if *priced >= self.budget(PAIR_BUDGET) {
                    return None;
                }
                if let Some(score) = self.better_places(first, second, now, priced) {
                    return Some(score);
                }
            }
        }
        None
    }

    /// Puts two tables where the score is best, if that is better than now.
    fn better_places(&mut self, first: TableId, second: TableId, now: Score, priced: &mut usize) -> Option<Score> {
        let current = (self.take(first), self.take(second));
        let mut best: Option<(Score, Choice, Choice)> = None;
        for one in arrangements(self.model, &self.tally, &self.candidates[first.index()]) {
            one.add(self.model, &mut self.tally, first, 1);
            for other in arrangements(self.model, &self.tally, &self.candidates[second.index()]) {
                *priced += 1;
                let Some(score) = self.score_with(second, &other) else { continue };
                if better(score, best.as_ref().map_or(now, |(known, ..)| *known)) {
                    best = Some((score, one.clone(), other));
                }
            }
            one.add(self.model, &mut self.tally, first, -1);
        }
        let (score, one, other) = match best {
            Some((score, one, other)) => (Some(score), one, other),
            None => (None, current.0, current.1),
        };
        self.put(first, one);
        self.put(second, other);
        score
    }

    /// Puts a table where the score is best, if that is better than now.
    fn better_place(&mut self, table: TableId, now: Score, priced: &mut usize) -> Option<Score> {
        let current = self.take(table);
        let small = default_is_replicated(self.model, self.options, table);
        let mut tried = arrangements(self.model, &self.tally, &self.candidates[table.index()]);
        tried.extend(part_moves(&current, self.model.ranks()));
        let mut best: Option<(Score, Choice)> = None;
        for choice in tried {
            *priced += 1;
            let Some(score) = self.score_with(table, &choice) else { continue };
            let leaves_default =
                small && current.how.shape == Shape::Replicated && choice.how.shape != Shape::Replicated;
            let enough = !leaves_default || clearly_better(score, now);
            if enough && better(score, best.as_ref().map_or(now, |(known, _)| *known)) {
                best = Some((score, choice));
            }
        }
        let (score, choice) = best.map_or((None, current), |(score, choice)| (Some(score), choice));
        self.put(table, choice);
        score
    }

    /// Exchanges a whole table of the slowest rank with one of another rank's whole `tables`.
    fn better_swap(
        &mut self,
        table: TableId,
        (slowest, tables): (usize, &[TableId]),
        now: Score,
        priced: &mut usize,
    ) -> Option<Score> {
        let mine = whole(&self.choices[table.index()]).filter(|rank| *rank == slowest)?;
        for &other in tables {
            let Some(theirs) = whole(&self.choices[other.index()]) else { continue };
            if *priced >= self.budget(BUDGET) {
                return None;
            }
            *priced += 1;
            let (a, b) = (self.take(table), self.take(other));
            let moved = |choice: &Choice, rank| Choice { how: choice.how.clone(), ranks: vec![rank] };
            self.put(table, moved(&a, theirs));
            self.put(other, moved(&b, mine));
            if let Some(score) = self.score().filter(|score| better(*score, now)) {
                return Some(score);
            }
            self.take(table);
            self.take(other);
            self.put(table, a);
            self.put(other, b);
        }
        None
    }

    /// The schemes of all tables, when every one was put somewhere.
    pub fn schemes(&self) -> Vec<crate::shard::Scheme> {
        self.choices.iter().map(|choice| choice.as_ref().expect("every table was put somewhere").scheme()).collect()
    }
}

/// One part of a divided table goes to a rank that has none of it.
fn part_moves(choice: &Choice, ranks: usize) -> Vec<Choice> {
    if choice.ranks.len() < 2 {
        return Vec::new();
    }
    let free: Vec<usize> = (0..ranks).filter(|rank| !choice.ranks.contains(rank)).collect();
    let to = |part: usize, rank: usize| {
        let mut moved = choice.clone();
        moved.ranks[part] = rank;
        moved
    };
    (0..choice.ranks.len()).flat_map(|part| free.iter().map(move |rank| (part, *rank))).map(|(p, r)| to(p, r)).collect()
}

/// The rank with the most free memory, and how much that is.
pub fn emptiest(model: &Model<'_>, tally: &Tally) -> (usize, i64) {
    let room = room(model, tally);
    let most = (0..room.len()).fold(0, |most, rank| if room[rank] > room[most] { rank } else { most });
    (most, room[most])
}
