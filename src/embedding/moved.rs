//! Copies of rows that were moved elsewhere, written by a team.

use std::ops::Range;

use super::Table;
use super::table::{Matrices, set_seen};
use crate::base::config::Precision;
use crate::machine::team::Team;
use crate::memory::recycled;
use crate::sync::{Lender, Matrix};

/// Rows of a table that were moved.
#[derive(Debug, Clone)]
pub struct Moved<'a> {
    /// Which of the tables has copies of them.
    pub table: usize,
    /// Which of their columns.
    pub columns: Range<usize>,
    /// Their rows there, rising.
    pub slots: &'a [u32],
    /// Of each what look-ups read ([`Table::seen`]), then its learned weight if rows of the table have such.
    pub seen: &'a [u32],
}

/// Writes copies of rows, with its memory.
#[derive(Debug)]
pub struct Copier {
    precision: Precision,
    /// Of each table how many rows it has, and whether these have learned weights.
    tables: Vec<(usize, bool)>,
    lend_rows: Lender<u32>,
    lend_weights: Lender<f32>,
    /// Memory that steps use again.
    weights: Vec<Matrix<'static, f32>>,
}

impl Copier {
    /// For tables of such precision, rows and learned weights or none.
    #[must_use]
    pub fn new(precision: Precision, tables: Vec<(usize, bool)>, threads: usize) -> Self {
        let pieces = threads * Team::PIECES_A_THREAD;
        let (lend_rows, lend_weights) = (Lender::new(tables.len(), pieces), Lender::new(tables.len(), pieces));
        Self { precision, weights: Vec::with_capacity(tables.len()), lend_rows, lend_weights, tables }
    }

    /// Overwrites what look-ups read of all that was moved, of which no two have a column of a row together; orders
    /// them by table.
    ///
    /// # Panics
    /// When the tables are others than was planned, or have no such rows or columns.
    pub fn run<'t>(&mut self, team: &Team, tables: impl Iterator<Item = &'t mut Table>, moved: &mut [Moved<'_>]) {
        let words = moved.iter().map(|moved| moved.seen.len()).sum();
        if words == 0 {
            return;
        }
        let much = team.is_much(words, Team::WORDS_ALONE);
        moved.sort_unstable_by_key(|moved| moved.table);
        self.cut(moved, words, if much { team.pieces() } else { 1 });
        let Self { precision, tables: planned, lend_rows, lend_weights, .. } = self;
        let weighted = planned.iter().any(|(_, weighted)| *weighted);
        let mut weights: Vec<Matrix<'_, f32>> = recycled(std::mem::take(&mut self.weights));
        let rows = lend_rows.matrices(tables.map(|table| {
            let Matrices { rows, row_weights, .. } = table.matrices_mut();
            weights.extend(weighted.then(|| row_weights.unwrap_or(Matrix { data: &mut [], width: 1 })));
            rows
        }));
        let (precision, planned, moved) = (*precision, &planned[..], &*moved);
        let lent_weights = lend_weights.matrices(weights.drain(..));
        team.share_if(much, (rows, lent_weights), |(mut rows, mut weights)| {
            for of_table in moved.chunk_by(|a, b| a.table == b.table) {
                let (table, (_, weighted)) = (of_table[0].table, planned[of_table[0].table]);
                let (mut rows, mut weights) = (rows.band(table), weighted.then(|| weights.band(table)));
                let own = rows.rows();
                // A piece has rows of few tables.
                if own.is_empty() {
                    continue;
                }
                for Moved { columns, slots, seen, .. } in of_table {
                    let [first, end] =
                        [own.start, own.end].map(|row| slots.partition_point(|slot| (*slot as usize) < row));
                    let each = seen.len().checked_div(slots.len()).unwrap_or(0);
                    for (slot, seen) in slots[first..end].iter().zip(seen[first * each..].chunks_exact(each.max(1))) {
                        let (seen, weight) = seen.split_at(each - usize::from(weighted));
                        set_seen(precision, rows.row(*slot as usize), columns.clone(), seen);
                        if let ([weight], Some(weights)) = (weight, &mut weights) {
                            weights.row(*slot as usize)[0] = f32::from_bits(*weight);
                        }
                    }
                }
            }
        });
        self.weights = recycled(weights);
    }

    /// Cuts the tables' rows into ranges that have nearly as many of the words: those of a table are taken to lie
    /// evenly among its rows.
    fn cut(&mut self, moved: &[Moved<'_>], words: usize, pieces: usize) {
        let Self { tables, lend_rows, lend_weights, .. } = self;
        lend_rows.reset();
        lend_weights.reset();
        let (mut before, mut next) = (0, 1);
        for of_table in moved.chunk_by(|a, b| a.table == b.table) {
            let table = of_table[0].table;
            let (rows, weighted) = tables[table];
            let own: usize = of_table.iter().map(|moved| moved.seen.len()).sum();
            while next < pieces && words * next / pieces < before + own {
                let row = rows * (words * next / pieces - before) / own;
                lend_rows.cut(table, row);
                // Of a table without weights a matrix without rows is lent.
                lend_weights.cut(table, if weighted { row } else { 0 });
                next += 1;
            }
            before += own;
        }
        if !tables.iter().any(|(_, weighted)| *weighted) {
            lend_weights.cut_each(pieces);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedding::{TableTensor, seen_words};
    use crate::memory::Supply;
    use crate::optim::{Optimizer, ParamState};

    /// Copies of three tables' rows, one of which nothing is moved in; columns of the last come from two ranks, and
    /// rows of the first, in turn.
    fn check(precision: Precision, [moving, dim]: [usize; 2], row_weights: bool, threads: usize) {
        let sizes = [2 * moving + 1, 5, moving];
        let kept = ParamState { precision, optimizer: Optimizer::Sgd, row_weights };
        let table = |rows: usize| Table::new("copies".to_owned(), rows as u64, dim, kept, &mut Supply::System).unwrap();
        let [mut found, mut expected] = [(); 2].map(|()| sizes.map(table));
        let every =
            |step: usize, first: usize, rows: usize| (first as u32..rows as u32).step_by(step).collect::<Vec<_>>();
        let from = [
            (0, 0..dim, every(2, 0, sizes[0])),
            (0, 0..dim, every(4, 1, sizes[0])),
            (2, 0..dim / 3, every(1, 0, sizes[2])),
            (2, dim / 3..dim, every(1, 0, sizes[2])),
            (0, 0..dim, Vec::new()),
        ];
        let words = |columns: &Range<usize>| seen_words(precision, columns.len()) + usize::from(row_weights);
        let lists = from.each_ref().map(|(table, columns, slots)| -> Vec<u32> {
            let count = slots.len() * words(columns);
            // A row's weight is the same in all of its parts.
            let word = |at: usize| match (row_weights, (at + 1) % words(columns)) {
                (true, 0) => (slots[at / words(columns)] as f32).to_bits(),
                _ => (1 << 28 | table << 24 | columns.start << 20 | at) as u32,
            };
            (0..count).map(word).collect()
        });
        let mut moved: Vec<_> = std::iter::zip(&from, &lists)
            .map(|((table, columns, slots), seen)| Moved { table: *table, columns: columns.clone(), slots, seen })
            .collect();
        for Moved { table, columns, slots, seen } in &moved {
            for (slot, seen) in slots.iter().zip(seen.chunks_exact(words(columns))) {
                let (seen, weight) = seen.split_at(words(columns) - usize::from(row_weights));
                expected[*table].set_seen(*slot as usize, columns.clone(), seen);
                let (table, slot) = (&mut expected[*table], *slot as usize);
                weight.iter().for_each(|w| table.import(TableTensor::RowWeight, slot, &[f32::from_bits(*w)]));
            }
        }
        let mut copier = Copier::new(precision, sizes.map(|rows| (rows, row_weights)).to_vec(), threads);
        copier.run(&Team::new(threads).unwrap(), found.iter_mut(), &mut moved);
        for (table, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let what = format!("table {table}, {precision:?}, {moving} rows, {threads} threads");
            assert!(found.words() == expected.words(), "{what}");
            let weight = |row| (found.row_weight(row), expected.row_weight(row));
            assert!((0..found.rows()).all(|row| weight(row).0 == weight(row).1), "{what}: weights of rows");
        }
    }

    #[test]
    fn copies_are_the_rows_that_moved_whoever_writes_them() {
        for (precision, row_weights) in [
            (Precision::F32, false),
            (Precision::F32, true),
            (Precision::Bf16, false),
            (Precision::Bf16, true),
            (Precision::Bf16Lsb8, false),
        ] {
            for threads in [1, 2, 3] {
                // From nothing to more than one thread writes alone.
                for moving in [0, 1, 70, Team::WORDS_ALONE / 40, Team::WORDS_ALONE / 2] {
                    check(precision, [moving, 11], row_weights, threads);
                }
            }
        }
    }

    #[test]
    fn ranges_have_as_many_words_each_and_cover_all_rows() {
        let sizes = [(0, false), (400, true), (7, false), (0, false), (300, false), (9, true)];
        let (slots, mut copier) = (vec![0; 100], Copier::new(Precision::F32, sizes.to_vec(), 2));
        let moved = [1, 4, 4].map(|table| Moved { table, columns: 0..1, slots: &slots, seen: &slots });
        for pieces in [1, 2, 5, 16] {
            copier.cut(&moved, 300, pieces);
            for (table, (rows, weighted)) in sizes.into_iter().enumerate() {
                let range = |piece| copier.lend_rows.range(piece, [table, rows], sizes.len());
                assert!((0..pieces).flat_map(range).eq(0..rows), "table {table} in {pieces} pieces");
                let weights =
                    |piece| copier.lend_weights.range(piece, [table, if weighted { rows } else { 0 }], sizes.len());
                assert!((0..pieces).all(|piece| weights(piece) == if weighted { range(piece) } else { 0..0 }));
            }
            for piece in 0..pieces {
                // A word has 4 rows of the first of the two tables, and 1.5 of the other.
                let rows =
                    |table: usize| copier.lend_rows.range(piece, [table, sizes[table].0], sizes.len()).len() as f64;
                let words = rows(1) / 4.0 + rows(4) / 1.5;
                assert!((words - 300.0 / pieces as f64).abs() < 2.0, "{words} words in piece {piece} of {pieces}");
            }
        }
    }
}
