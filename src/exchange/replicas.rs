//! Gradients of replicated tables' rows, from each rank to all.
//!
//! A rank's list has, table by table, only rows that its samples looked up: each once with its summed gradient, or,
//! where the number of ranks shall change no bit, each sample with the gradient of its pooled row and its look-ups as
//! they are. Lists go around a ring until all ranks have all of them; then every rank moves its copy by them, rank
//! after rank in ascending order, so that copies stay the same.

use super::layout::Layout;
use super::row_gradients::{RowListPart, RowListParts};
use crate::base::{RankId, Result, TableId, in_groups};
use crate::collective::{Carrier, ListExchange};
use crate::data::Batch;
use crate::embedding::Source;
use crate::simd::Isa;
use crate::sync::{AtomicU32, atomic_words_32};

/// The exchange, with its memory.
#[derive(Debug)]
pub struct Replicas {
    rank: RankId,
    words: ListExchange,
    tables: Vec<ReplicatedTable>,
    /// By rank; of this rank's own, words behind `end` are of steps before until it is sent.
    lists: Vec<Vec<u32>>,
    end: usize,
    /// By rank and group: a part of its list for each table.
    parts: Vec<Vec<RowListParts>>,
}

/// A replicated table.
#[derive(Debug)]
struct ReplicatedTable {
    table: TableId,
    /// Which of the groups it is in.
    group: usize,
    /// Where its columns begin in a sample's features, and how many a row has.
    start: usize,
    dim: usize,
    /// Bags of a sample, whose vectors lie side by side.
    positions: usize,
    /// Whether its look-ups have weights, and are sent as they are.
    weighted: bool,
}

impl Replicas {
    /// For `rank`.
    #[must_use]
    pub fn new(layout: &Layout, rank: RankId, isa: Isa) -> Self {
        let ranks = layout.ranks();
        let groups = replica_groups(layout);
        let mut group_of = vec![0; layout.replicated().len()];
        for (number, places) in groups.iter().enumerate() {
            places.iter().for_each(|place| group_of[*place] = number);
        }
        let table = |(&table, group): (&TableId, usize)| {
            let (start, dim) = (layout.columns(table).start, layout.sharding().dim(table));
            let weighted = layout.grains().is_some() && layout.weighted(table);
            ReplicatedTable { table, group, start, dim, positions: layout.positions(table), weighted }
        };
        let tables: Vec<_> = layout.replicated().iter().zip(group_of).map(table).collect();
        Self {
            rank,
            words: ListExchange::new(rank, ranks, isa, "exchange of replicated tables' gradients"),
            parts: vec![vec![RowListParts::default(); groups.len()]; ranks],
            lists: vec![Vec::new(); ranks],
            end: 0,
            tables,
        }
    }

    /// Whether there are no replicated tables.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Begins the own list of a step.
    pub const fn clear(&mut self) {
        self.end = 0;
    }

    /// Makes room in the own list for the next table's rows of so many columns, each once, with the sum of its
    /// gradients.
    pub fn room_for_sums(&mut self, sizes: [usize; 2]) -> RowListPart {
        let part = RowListPart::behind(&mut self.lists[self.rank.index()], self.end, sizes);
        self.end = part.end();
        part
    }

    /// The own list, to be written by a team, each row where there is room for it.
    pub fn sums_mut(&mut self) -> &[AtomicU32] {
        atomic_words_32(&mut self.lists[self.rank.index()])
    }

    /// Makes the own list the look-ups of `batch`, this rank's slice, as they are; `gradient` has a row of `width`
    /// features a sample.
    pub fn push_samples(&mut self, batch: &Batch, gradient: &[f32], width: usize) {
        let list = &mut self.lists[self.rank.index()];
        list.clear();
        for ReplicatedTable { table, start, dim, positions, .. } in &self.tables {
            let bag = &batch.bags[table.index()];
            list.push(bag.samples() as u32);
            for row in gradient.chunks_exact(width).take(batch.samples()) {
                list.extend_from_slice(bytemuck::cast_slice(&row[*start..start + positions * dim]));
            }
            list.extend_from_slice(&bag.offsets);
            list.extend_from_slice(&bag.rows);
            list.extend_from_slice(bytemuck::cast_slice(&batch.weights[table.index()]));
        }
        self.end = list.len();
    }

    /// Sends the own list, and takes in those of all ranks.
    ///
    /// # Errors
    /// [`crate::base::Error::Rank`] when the job is in trouble.
    ///
    /// # Panics
    /// When a list has not what it says.
    pub fn exchange(&mut self, carrier: &mut dyn Carrier) -> Result<()> {
        self.lists[self.rank.index()].truncate(self.end);
        self.words.all_gather_v(carrier, &mut self.lists)?;
        self.find();
        Ok(())
    }

    /// Finds the parts of all lists, which have them in the order of tables, in whatever groups these are.
    fn find(&mut self) {
        for (list, parts) in self.lists.iter().zip(&mut self.parts) {
            parts.iter_mut().for_each(RowListParts::clear);
            let find = |end, table: &ReplicatedTable| parts[table.group].find(list, end, table.dim, table.weighted);
            let end = self.tables.iter().fold(0, find);
            assert_eq!(end, list.len(), "as many words as the tables' parts take");
        }
    }

    /// What all ranks have sent of the tables of one of [`replica_groups`], in the order of ranks.
    ///
    /// # Panics
    /// When there is no such group.
    pub fn sources(&self, group: usize) -> impl Iterator<Item = Source<'_>> {
        let mut tables = self.tables.iter().filter(move |table| table.group == group);
        let dim = tables.next().expect("a group has tables").dim;
        let count = 1 + tables.count();
        let lists = self.lists.iter().zip(&self.parts);
        let sources = lists.filter_map(move |(list, parts)| parts[group].source(list, 0..count, dim));
        sources.filter(|source| source.lookups.bags().any(|bag| bag.samples() > 0))
    }
}

/// Replicated tables that are looked up, summed and moved together, by their places among [`Layout::replicated`],
/// rising: of one width, and of a wide part or not. One whose rows are a sequence is alone.
#[must_use]
pub fn replica_groups(layout: &Layout) -> Vec<Vec<usize>> {
    let tables = layout.replicated();
    let kind = |place: usize| (layout.sharding().dim(tables[place]), layout.is_wide(tables[place]));
    let pooled = |place: usize| layout.positions(tables[place]) == 1;
    in_groups(0..tables.len(), |a, b| kind(*a) == kind(*b) && pooled(*a) && pooled(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::LayoutSpec;
    use crate::shard::scheme::{Scheme, Sharding};

    #[test]
    fn lists_are_in_the_order_of_tables_and_read_by_groups() {
        // A sequence and a wide part's table lie among others.
        let schemes = [Scheme::Replicated, Scheme::Replicated, Scheme::Table(RankId(1)), Scheme::Replicated];
        let schemes = [&schemes[..], &[Scheme::Replicated]].concat();
        let sharding = Sharding::new(&[9; 5], vec![2; 5], 2, schemes).unwrap();
        let spec = LayoutSpec { deep: Some(4), sequences: &[1, 3, 1, 1, 1], ..LayoutSpec::default() };
        let layout = Layout::new(sharding, &spec);
        assert_eq!(replica_groups(&layout), [vec![0, 2], vec![1], vec![3]]);
        let mut replicas = Replicas::new(&layout, RankId(1), Isa::best());
        // Rank 0 met rows of the second table alone, this one's of others: after a longer list of a step before.
        for counts in [[5; 4], [1, 0, 2, 1]] {
            replicas.clear();
            for (table, rows) in counts.into_iter().enumerate() {
                let part = replicas.room_for_sums([rows, 2]);
                for row in 0..rows {
                    let bits = [table, row].map(|x| (x as f32).to_bits());
                    part.put(replicas.sums_mut(), row, (10 * table + row) as u32, bits.into_iter());
                }
            }
        }
        let end = replicas.end;
        replicas.lists[1].truncate(end);
        let mut end = 0;
        for rows in [0, 1, 0, 0] {
            let part = RowListPart::behind(&mut replicas.lists[0], end, [rows, 2]);
            (0..rows).for_each(|row| part.put(atomic_words_32(&mut replicas.lists[0]), row, 8, [0, 0].into_iter()));
            end = part.end();
        }
        assert_eq!(replicas.lists[1][..2], [1, 0], "the first table has one row");
        assert_eq!(replicas.lists[1][6..8], [0, 0], "the second has none");
        replicas.find();
        let [first, second, third] = [0, 1, 2].map(|group| replicas.sources(group).collect::<Vec<_>>());
        let rows = |source: &Source<'_>| source.lookups.bags().map(|bag| bag.rows.to_vec()).collect::<Vec<_>>();
        assert_eq!(first.iter().map(rows).collect::<Vec<_>>(), [[vec![0], vec![20, 21]]]);
        assert_eq!(second.iter().map(rows).collect::<Vec<_>>(), [[vec![8]]]);
        assert_eq!(third.iter().map(rows).collect::<Vec<_>>(), [[vec![30]]]);
        let Source { gradient, slots, .. } = first[0];
        assert_eq!(gradient[slots.starts[1]..][..4], [2.0, 0.0, 2.0, 1.0]);
    }
}
