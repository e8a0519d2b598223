//! Looks for the division of tables whose slowest rank is fastest and that every memory can hold.
//!
//! A pure function of workload, site and options. Three greedy starts (largest table first), a local search from each
//! (moves, swaps, other divisions), and the best of the three: never worse than its start. Where copies of small tables
//! take their share of its time, three more, which begin with it but for these tables: they are put anew, none as a
//! copy, and the best of them wins where it is clearly faster. Every choice says why.

mod candidates;
mod scarce;
mod search;

use serde::Serialize;

use self::candidates::{Shape, arrangements, candidates};
pub use self::scarce::plan_by_free;
use self::search::{STARTS, State, all_candidates, clearly_better, default_is_replicated, emptiest};
use super::cost::{Model, Score, Tally};
use super::forecast::Cost;
use super::scheme::{Kind, REPLICATE_BELOW, Rows, Scheme, Sharding};
use crate::base::units::{Bytes, Count, Many};
use crate::base::{Error, Result, TableId, interrupt};

/// What the user wishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Options {
    /// Tables with fewer rows are replicated unless something else is clearly faster.
    pub replicate_below: u64,
    /// Every table is divided in this way; `None`: each as is best.
    pub scheme: Option<Kind>,
}

impl Default for Options {
    fn default() -> Self {
        Self { replicate_below: REPLICATE_BELOW, scheme: None }
    }
}

/// A division with what it costs and why it is so.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Who holds what.
    pub sharding: Sharding,
    /// What that costs.
    pub cost: Cost,
    /// Why, by table.
    pub reasons: Vec<String>,
    /// The best greedy start; equal to the cost's score where the search found nothing better.
    pub start: Score,
    /// Divisions that were priced.
    pub priced: usize,
}

/// One way to divide a table while all others stay as they are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alternative {
    /// "column in 4".
    pub label: String,
    /// The best that it gives; `None` when a memory cannot hold it.
    pub score: Option<Score>,
    /// Whether the plan has it so.
    pub chosen: bool,
}

/// Plans.
///
/// # Errors
/// [`Error::ShardTooBig`] for a table that fits nowhere, however it is divided; [`Error::NodeFull`] when a memory
/// cannot even hold what every rank has.
///
/// # Panics
/// When the workload has no tables.
pub fn plan(model: &Model<'_>, options: &Options) -> Result<Plan> {
    assert!(!model.workload.tables.is_empty(), "a model has tables");
    let empty = model.empty();
    if let Some((pool, wanted)) = model.overfull(&empty) {
        let pool = &model.site.pools[pool];
        let whose = if pool.ranks.len() == 1 { "a rank's".to_owned() } else { format!("{} ranks'", pool.ranks.len()) };
        let hot = if model.workload.reserve.copies > 0 { ", and copies of hot rows (--hot-budget)" } else { "" };
        let place = format!("{} before any table, for {whose} MLPs and activations{hot}", pool.name());
        let (need, free, reserve) = (Bytes(wanted as u64), Bytes(pool.bytes), Bytes(pool.reserve));
        return Err(Error::NodeFull { place, need, free, reserve });
    }
    let candidates = all_candidates(model, options);
    let without_default = Options { replicate_below: 0, ..*options };
    let (mut best, mut first, mut priced, mut refusal): (Option<(Score, State<'_>)>, Option<Score>, _, _) =
        (None, None, 0, None);
    for start in STARTS {
        if interrupt::requested() {
            return Err(Error::Interrupted);
        }
        match State::new(model, options, &candidates).greedy(start) {
            Err(stuck) => refusal = Some(stuck),
            Ok(mut state) => {
                let lower = |a: Score, b: Score| a.partial_cmp(&b) == Some(std::cmp::Ordering::Less);
                let begun = state.score().expect("every table was put where it fits");
                if first.is_none_or(|known| lower(begun, known)) {
                    first = Some(begun);
                }
                priced += state.improve();
                let score = state.score().expect("only what fits was accepted");
                if best.as_ref().is_none_or(|(known, _)| lower(score, *known)) {
                    best = Some((score, state));
                }
            }
        }
    }
    let (Some(mut best), Some(start)) = (best, first) else {
        let stuck = refusal.expect("every start ended in a division or a refusal");
        return Err(too_big(model, options, stuck.0, &stuck.1));
    };
    if let Some(rest) = best.1.without_copies(&without_default) {
        let mut others = Vec::new();
        for start in STARTS {
            if interrupt::requested() {
                return Err(Error::Interrupted);
            }
            // Where memory is short, copies stay.
            let Ok(mut state) = rest.clone().greedy(start) else { continue };
            priced += state.improve();
            others.push((state.score().expect("only what fits was accepted"), state));
        }
        let least = others.into_iter().reduce(|a, b| if b.0 < a.0 { b } else { a });
        if let Some(other) = least.filter(|other| clearly_better(other.0, best.0)) {
            best = other;
        }
    }
    let state = best.1;
    let rows: Vec<u64> = model.workload.tables.iter().map(|table| table.rows).collect();
    let sharding = Sharding::new(&rows, model.workload.dims(), model.ranks(), state.schemes())
        .unwrap_or_else(|flaw| panic!("{}: {}", flaw.table, flaw.reason));
    let cost = model.cost(&sharding);
    let reasons =
        TableId::all(rows.len()).map(|table| reason(model, options, &sharding, &state.tally, table)).collect();
    Ok(Plan { sharding, cost, reasons, start, priced })
}

/// A plan that the user made: the cost of a given division.
///
/// # Errors
/// [`Error::ShardTooBig`] for the largest table on the first memory that cannot hold its share.
///
/// # Panics
/// When the division is not one of this model's tables and ranks.
pub fn price(model: &Model<'_>, sharding: Sharding) -> Result<Plan> {
    assert_eq!((sharding.ranks(), sharding.tables()), (model.ranks(), model.workload.tables.len()));
    let tally = model.tally(&sharding);
    if let Some((pool, wanted)) = model.overfull(&tally) {
        return Err(pool_full(model, &sharding, pool, wanted));
    }
    let cost = model.cost(&sharding);
    let reasons = vec!["as the plan's file says".to_owned(); sharding.tables()];
    Ok(Plan { sharding, start: cost.score, cost, reasons, priced: 1 })
}

/// What every other way to divide one table would give while the others stay.
#[must_use]
pub fn alternatives(model: &Model<'_>, options: &Options, sharding: &Sharding, table: TableId) -> Vec<Alternative> {
    let rest = without(model, sharding, &model.tally(sharding), table);
    let scheme = sharding.scheme(table);
    let mut found: Vec<Alternative> = Vec::new();
    for how in candidates(model, table, options) {
        let mut best: Option<Score> = None;
        for choice in arrangements(model, &rest, std::slice::from_ref(&how)) {
            let mut tally = rest.clone();
            choice.add(model, &mut tally, table, 1);
            if let Some(score) = model.score(&tally) {
                best = Some(best.map_or(score, |known| if score < known { score } else { known }));
            }
        }
        let same = how.kind() == scheme.kind() && how.loads.len() == scheme.ranks().len().max(1);
        let contiguous = matches!(scheme, Scheme::RowContiguous(_));
        let chosen = same && contiguous == matches!(how.shape, Shape::Contiguous(_));
        if chosen {
            best = model.score(&model.tally(sharding));
        }
        found.push(Alternative { label: how.label(), score: best, chosen });
    }
    if !found.iter().any(|way| way.chosen) {
        let parts = scheme.ranks().len();
        let label = format!("{} in {parts}, as planned", scheme.kind());
        found.push(Alternative { label, score: model.score(&model.tally(sharding)), chosen: true });
    }
    found
}

/// All but one table.
fn without(model: &Model<'_>, sharding: &Sharding, all: &Tally, table: TableId) -> Tally {
    let mut rest = all.clone();
    model.add_table(&mut rest, sharding, table, -1);
    rest
}

/// Why a table is divided as it is.
fn reason(model: &Model<'_>, options: &Options, sharding: &Sharding, all: &Tally, table: TableId) -> String {
    let scheme = sharding.scheme(table);
    if let Some(kind) = options.scheme {
        return format!("--scheme {kind}");
    }
    if model.ranks() == 1 {
        return "there is one rank".to_owned();
    }
    let (small, below) = (default_is_replicated(model, options, table), Count(options.replicate_below));
    if scheme.kind() == Kind::Replicated {
        return match small {
            true => format!("below {below} rows"),
            false => "its gradients are cheaper to bring to all ranks than its rows to exchange".to_owned(),
        };
    }
    let note = if small { format!("below {below} rows, but a copy on each rank is slower; ") } else { String::new() };
    let rest = without(model, sharding, all, table);
    let whole = model.load(table, &Rows::all(sharding.rows(table)), sharding.dim(table), true);
    if scheme.kind() == Kind::Table {
        return format!("{note}fits one rank, no faster in parts");
    }
    let mut best: Option<Score> = None;
    for rank in 0..model.ranks() {
        let mut tally = rest.clone();
        model.add(&mut tally, rank, whole, 1);
        if let Some(score) = model.score(&tally) {
            best = Some(best.map_or(score, |known| if score < known { score } else { known }));
        }
    }
    match best {
        None => {
            let need = of_emptiest(model, &rest, table).1;
            format!("{note}{} fit no rank's memory in one piece", Bytes(need.unsigned_abs()))
        }
        Some(score) => format!("{note}in one piece the slowest rank would take {:.3} ms", score.slowest_s * 1e3),
    }
}

/// The emptiest memory, the bytes that a table in one piece would take of it, and those that it has left.
fn of_emptiest(model: &Model<'_>, tally: &Tally, table: TableId) -> (usize, i64, i64) {
    let load = &model.workload.tables[table.index()];
    let (rank, free) = emptiest(model, tally);
    let at = model.site.ranks[rank].pool;
    let mut with = tally.clone();
    model.add(&mut with, rank, model.load(table, &Rows::all(load.rows), load.dim, true), 1);
    (at, model.wanted(&with, at) - model.wanted(tally, at), free)
}

fn too_big(model: &Model<'_>, options: &Options, table: TableId, tally: &Tally) -> Error {
    let load = &model.workload.tables[table.index()];
    let (at, need, free) = of_emptiest(model, tally, table);
    let pool = &model.site.pools[at];
    let advice = match options.scheme {
        Some(kind) if kind != Kind::Row => {
            format!(
                "divided by {kind} it does not fit: allow --scheme auto, use more nodes, or lower --rows-cap, model.dim, --batch \
                 or train.eval_batch"
            )
        }
        _ => format!(
            "divided over all ranks it does not fit either: use more nodes, or lower --rows-cap, model.dim, --batch or \
             train.eval_batch, for whose every sample room is kept for {} of it",
            Many(load.most_lookups().ceil() as u64, "look-up")
        ),
    };
    Error::ShardTooBig {
        table,
        name: load.name.clone(),
        need: Bytes(need.unsigned_abs()),
        place: format!("{}, the emptiest memory,", pool.name()),
        free: Bytes(free.max(0).unsigned_abs()),
        advice,
    }
}

fn pool_full(model: &Model<'_>, sharding: &Sharding, pool: usize, wanted: i64) -> Error {
    let site = &model.site.pools[pool];
    let here = sharding.shards().iter().filter(|shard| site.ranks.contains(&shard.rank));
    // What the memory would not have to hold without the table, the room of its look-ups included.
    let all = model.tally(sharding);
    let bytes = |table: TableId| wanted - model.wanted(&without(model, sharding, &all, table), pool);
    let mut tables: Vec<TableId> = here.map(|shard| shard.table).collect();
    tables.dedup();
    let largest = tables.into_iter().fold(None, |best: Option<(i64, TableId)>, table| {
        let bytes = bytes(table);
        if best.is_none_or(|(most, _)| bytes > most) { Some((bytes, table)) } else { best }
    });
    let Some((need, table)) = largest else {
        let (need, free, reserve) = (Bytes(wanted.unsigned_abs()), Bytes(site.bytes), Bytes(site.reserve));
        return Error::NodeFull { place: site.name(), need, free, reserve };
    };
    Error::ShardTooBig {
        table,
        name: model.workload.tables[table.index()].name.clone(),
        need: Bytes(need.unsigned_abs()),
        place: format!("{}, where the plan puts that much of it,", site.name()),
        free: Bytes((site.usable() as i64 - wanted + need).max(0).unsigned_abs()),
        advice: format!(
            "give it to other ranks or divide it further, leave --plan out, or lower --batch or train.eval_batch, for whose \
             every sample room is kept for {} of it",
            Many(model.workload.tables[table.index()].most_lookups().ceil() as u64, "look-up")
        ),
    }
}
