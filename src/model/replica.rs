//! A rank's copy of a table that every rank has, and the sums of its own gradients of the table's rows.

use std::ops::Range;

use crate::base::TableId;
use crate::embedding::{LookUp, Source, Table, Updater};
use crate::exchange::Replicas;
use crate::machine::team::Team;

/// A table that every rank has.
#[derive(Debug)]
pub(super) struct Replica {
    pub table: TableId,
    /// Whether it is one of the wide part's.
    pub wide: bool,
    /// Its columns of a sample's features.
    pub columns: Range<usize>,
    pub weights: [Table; 1],
    pub look_up: LookUp,
    pub updater: Updater,
    /// Unless look-ups go to all ranks as they are.
    pub sums: Option<Sums>,
}

/// The sums of a rank's gradients of a replicated table, row by row.
#[derive(Debug)]
pub(super) struct Sums {
    /// 0 between steps.
    pub gradient: [Table; 1],
    pub updater: Updater,
    /// A bit a row: whether it is met in this step.
    pub met: Vec<u64>,
    /// Those that are, ascending.
    pub rows: Vec<u32>,
    /// A row of zeros.
    pub zeros: Vec<f32>,
}

impl Sums {
    /// Adds up the gradients of some look-ups by rows, puts the sums into `to` and forgets them.
    pub fn run(&mut self, team: &Team, source: Source<'_>, to: &mut Replicas) {
        let Self { gradient, updater, met, rows, zeros } = self;
        // An update of zeros at rate -1 adds gradients up.
        updater.run(team, gradient, &[source], -1.0);
        source.lookups.bag(0).rows.iter().for_each(|row| met[*row as usize / 64] |= 1 << (row % 64));
        rows.clear();
        for (word, bits) in met.iter_mut().enumerate() {
            while *bits != 0 {
                rows.push(64 * word as u32 + bits.trailing_zeros());
                *bits &= *bits - 1;
            }
        }
        let of = |row: u32| gradient[0].row(row as usize);
        to.push_rows(rows, of);
        rows.iter().for_each(|row| gradient[0].set_weights(*row as usize, zeros));
    }
}
