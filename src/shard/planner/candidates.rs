//! The ways in which one table may be divided, and on which ranks its parts may go.

use std::rc::Rc;

use crate::base::{RankId, TableId};
use crate::shard::cost::{Model, Tally};
use crate::shard::scheme::{Kind, Part, Rows, Scheme, cyclic, even};
use crate::shard::workload::{Load, TableLoad};
use crate::sync::Line;

use super::Options;

/// A way to divide a table, before ranks are chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub shape: Shape,
    /// What each part adds to its rank; of a replicated table, what it adds to all.
    pub loads: Vec<Load>,
}

/// The sizes of the parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    Table,
    Column(Vec<u64>),
    Cyclic(usize),
    Contiguous(Vec<u64>),
    Replicated,
}

/// A candidate with the rank of each part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pub how: Rc<Candidate>,
    pub ranks: Vec<usize>,
}

impl Candidate {
    pub const fn kind(&self) -> Kind {
        match self.shape {
            Shape::Table => Kind::Table,
            Shape::Column(_) => Kind::Column,
            Shape::Cyclic(_) | Shape::Contiguous(_) => Kind::Row,
            Shape::Replicated => Kind::Replicated,
        }
    }

    /// "column in 4", for people.
    pub fn label(&self) -> String {
        match &self.shape {
            Shape::Table => "table".to_owned(),
            Shape::Replicated => "replicated".to_owned(),
            Shape::Column(sizes) => format!("column in {}", sizes.len()),
            Shape::Cyclic(parts) => format!("row in {parts}, cyclic"),
            Shape::Contiguous(sizes) => format!("row in {}, contiguous", sizes.len()),
        }
    }
}

impl Choice {
    pub fn scheme(&self) -> Scheme {
        let rank = |rank: &usize| RankId(*rank as u32);
        let parts = |sizes: &[u64]| {
            self.ranks.iter().zip(sizes).map(|(on, size)| Part { rank: rank(on), size: *size }).collect()
        };
        match &self.how.shape {
            Shape::Table => Scheme::Table(rank(&self.ranks[0])),
            Shape::Column(sizes) => Scheme::Column(parts(sizes)),
            Shape::Contiguous(sizes) => Scheme::RowContiguous(parts(sizes)),
            Shape::Cyclic(_) => Scheme::RowCyclic(self.ranks.iter().map(rank).collect()),
            Shape::Replicated => Scheme::Replicated,
        }
    }

    /// Adds the table to a tally, or takes it away (`times` -1).
    pub fn add(&self, model: &Model<'_>, tally: &mut Tally, table: TableId, times: i64) {
        if self.how.shape == Shape::Replicated {
            return model.add_replica(tally, table, self.how.loads[0], times);
        }
        for (rank, load) in self.ranks.iter().zip(&self.how.loads) {
            model.add(tally, *rank, *load, times);
        }
    }
}

/// How many parts are tried: 2, 3, 4, 6, 8, 12, ... and as many as possible.
fn counts(most: usize) -> impl Iterator<Item = usize> {
    let powers = (1..usize::BITS - 1).flat_map(|power| [1usize << power, (1usize << power) + (1 << (power - 1))]);
    powers.take_while(move |count| *count < most).chain((most > 1).then_some(most))
}

/// All ways that `options` allow for a table; never empty.
pub fn candidates(model: &Model<'_>, table: TableId, options: &Options) -> Vec<Rc<Candidate>> {
    let work = model.workload;
    let TableLoad { rows, dim, row_weight_bytes, row_state_bytes, stored, .. } = work.tables[table.index()];
    let ranks = model.ranks();
    let allowed = |kind| options.scheme.is_none_or(|wanted| wanted == kind);
    let mut found = Vec::new();
    if allowed(Kind::Table) {
        let load = model.load(table, &Rows::all(rows), dim, true);
        found.push(Candidate { shape: Shape::Table, loads: vec![load] });
    }
    // What is kept of a row, its learned weight among it, needs all of its columns; who asks for columns alone gets
    // them priced. Columns of a table that is stored by rows would be copied, as would rows that are dealt in turn.
    if allowed(Kind::Column) && !stored && (row_state_bytes + row_weight_bytes == 0 || options.scheme.is_some()) {
        // Slices of whole cache lines, so that no line is read by two ranks; narrower only where asked for.
        let line = Line::BYTES / work.weight_bytes.clamp(1, Line::BYTES);
        let grain = if options.scheme.is_some() && dim / line < 2 { 1 } else { line };
        let most = (dim / grain).clamp(1, ranks);
        // One slice is the whole table: only where nothing but columns is allowed and there is nothing to split.
        let single = (options.scheme.is_some() && most == 1).then_some(1);
        for parts in counts(most).chain(single) {
            let mut widths: Vec<u64> = even((dim / grain) as u64, parts).iter().map(|n| n * grain as u64).collect();
            *widths.last_mut().expect("at least one part") += (dim % grain) as u64;
            let all = Rows::all(rows);
            let loads = widths.iter().map(|width| model.load(table, &all, *width as usize, true)).collect();
            found.push(Candidate { shape: Shape::Column(widths), loads });
        }
    }
    // Nor does a model that predicts need rows in parts for memory: bags of several look-ups are summed as if one rank
    // did it.
    if allowed(Kind::Row) && (!stored || options.scheme.is_some() || work.tables[table.index()].most_lookups() <= 1.0) {
        let most = usize::try_from(rows).unwrap_or(ranks).min(ranks);
        let single = (options.scheme.is_some() && most == 1).then_some(1);
        for parts in counts(most).chain(single) {
            let mut first = 0;
            let sizes = even(rows, parts);
            let part = |part: usize| match stored {
                true => {
                    first += sizes[part];
                    Rows { first: first - sizes[part], step: 1, count: sizes[part] }
                }
                false => cyclic(rows, parts, part),
            };
            let loads = (0..parts).map(part).map(|rows| model.load(table, &rows, dim, true)).collect();
            let shape = if stored { Shape::Contiguous(sizes) } else { Shape::Cyclic(parts) };
            found.push(Candidate { shape, loads });
        }
    }
    let worth = ranks > 1 && rows <= options.replicate_below.max(model.draws(table, &Rows::all(rows)) as u64);
    if options.scheme == Some(Kind::Replicated) || (options.scheme.is_none() && worth) {
        found.push(Candidate { shape: Shape::Replicated, loads: vec![model.replica(table)] });
    }
    found.into_iter().map(Rc::new).collect()
}

/// Free bytes of each rank: its share of what its pool has left.
pub fn room(model: &Model<'_>, tally: &Tally) -> Vec<i64> {
    let site = model.site;
    let of_pool: Vec<i64> = (0..site.pools.len())
        .map(|pool| {
            (site.pools[pool].usable() as i64 - model.wanted(tally, pool)) / site.pools[pool].ranks.len() as i64
        })
        .collect();
    site.ranks.iter().map(|standing| of_pool[standing.pool]).collect()
}

/// A table in one piece is tried on so many ranks with the least work, and on a third as many with the most room.
const TRIED: usize = 12;

/// Where the parts of `candidates` may go when `tally` is all else: one part on each rank in turn, several parts on the
/// ranks that would end first, and on those with the most room, the heaviest part first.
pub fn arrangements(model: &Model<'_>, tally: &Tally, candidates: &[Rc<Candidate>]) -> Vec<Choice> {
    let (totals, room) = (model.totals(tally), room(model, tally));
    let ranks = 0..model.ranks();
    let mut by_room: Vec<usize> = ranks.clone().collect();
    by_room.sort_by(|a, b| room[*b].cmp(&room[*a]).then(totals[*a].total_cmp(&totals[*b])).then(a.cmp(b)));
    let mut found = Vec::new();
    for how in candidates {
        if how.shape == Shape::Replicated {
            found.push(Choice { how: how.clone(), ranks: Vec::new() });
            continue;
        }
        let parts = how.loads.len();
        let work = |part: usize| how.loads[part].moved();
        let mut heaviest: Vec<usize> = (0..parts).collect();
        heaviest.sort_by_key(|part| std::cmp::Reverse(work(*part)));
        let end = |rank: usize| totals[rank] + model.alone_s(&how.loads[heaviest[0]], rank);
        let mut by_time: Vec<(f64, usize)> = ranks.clone().map(|rank| (end(rank), rank)).collect();
        by_time.sort_by(|a, b| a.0.total_cmp(&b.0).then(room[b.1].cmp(&room[a.1])).then(a.1.cmp(&b.1)));
        let by_time: Vec<usize> = by_time.into_iter().map(|(_, rank)| rank).collect();
        if parts == 1 {
            let (first, rest) = by_time.split_at(TRIED.min(by_time.len()));
            let roomy = by_room.iter().take(TRIED / 3).filter(|rank| rest.contains(rank));
            found.extend(first.iter().chain(roomy).map(|rank| Choice { how: how.clone(), ranks: vec![*rank] }));
            continue;
        }
        for order in [&by_time, &by_room] {
            let mut ranks = vec![0; parts];
            heaviest.iter().zip(order).for_each(|(part, rank)| ranks[*part] = *rank);
            let choice = Choice { how: how.clone(), ranks };
            if found.last() != Some(&choice) {
                found.push(choice);
            }
        }
    }
    found
}

/// Consecutive rows on all ranks with room, as many on each as its room's share; `None` where all room together is too
/// small. The last resort for a table that fits no other way.
pub fn by_room(model: &Model<'_>, tally: &Tally, table: TableId) -> Option<Choice> {
    let TableLoad { rows, dim, .. } = model.workload.tables[table.index()];
    // Rows that are stored take none.
    let row = (model.load(table, &Rows { first: 0, step: 1, count: 1 }, dim, true).memory as u64).max(1);
    // Buffers grow with every rank that holds a part: what is left is known when one row is on each.
    let mut ranks: Vec<usize> = (0..model.ranks()).take(usize::try_from(rows).unwrap_or(usize::MAX)).collect();
    while !ranks.is_empty() {
        let mut trial = tally.clone();
        for (position, rank) in ranks.iter().enumerate() {
            let first = rows * position as u64 / ranks.len() as u64;
            let end = rows * (position as u64 + 1) / ranks.len() as u64;
            let even = model.load(table, &Rows { first, step: 1, count: end - first }, dim, true);
            model.add(&mut trial, *rank, Load { memory: 0, ..even }, 1);
        }
        let room = room(model, &trial);
        let before = ranks.len();
        ranks.retain(|rank| room[*rank] >= row as i64);
        if ranks.len() < before {
            continue;
        }
        let capacity: Vec<u64> = ranks.iter().map(|rank| room[*rank] as u64 / row).collect();
        let all: u64 = capacity.iter().sum();
        if all < rows {
            return None;
        }
        let mut given = 0u64;
        let mut before = 0u64;
        let mut sizes = Vec::new();
        for capacity in &capacity {
            before += capacity;
            let end = (u128::from(rows) * u128::from(before) / u128::from(all)) as u64;
            sizes.push(end - given);
            given = end;
        }
        let (ranks, sizes): (Vec<usize>, Vec<u64>) = ranks.into_iter().zip(sizes).filter(|(_, size)| *size > 0).unzip();
        let mut first = 0;
        let loads = sizes.iter().map(|count| {
            let part = Rows { first, step: 1, count: *count };
            first += count;
            model.load(table, &part, dim, true)
        });
        let loads = loads.collect();
        return Some(Choice { how: Rc::new(Candidate { shape: Shape::Contiguous(sizes), loads }), ranks });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_few_and_end_with_the_most() {
        assert_eq!(counts(1).count(), 0);
        assert_eq!(counts(2).collect::<Vec<_>>(), [2]);
        assert_eq!(counts(7).collect::<Vec<_>>(), [2, 3, 4, 6, 7]);
        assert_eq!(counts(64).collect::<Vec<_>>(), [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
        assert_eq!(even(7, 3), [3, 2, 2]);
    }
}
