//! Forward pass of the embedding bags: SC20, Algorithm 1, for all tables at once.

use super::{Slots, Table};
use crate::data::Bag;
use crate::machine::team::Team;
use crate::simd::{Kernel, Simd};
use crate::sync::Rows;

/// How many look-ups ahead a row is asked for: enough to cover a memory access behind the additions between.
const PREFETCH_DISTANCE: usize = 16;

/// Writes, for every row (sample) of `features` and every table, the sum of the rows that the sample's bag names; an
/// empty bag gives 0. Sums run in the order of the bag.
///
/// # Panics
/// When a bag has fewer samples than `features` or names a row that the table does not have (see `Batch::check`).
pub fn look_up(team: &Team, tables: &[Table], bags: &[Bag], features: &mut [f32], slots: Slots) {
    let isa = team.isa();
    assert_eq!(tables.len(), bags.len(), "one bag a table");
    team.each(Rows::new(features, slots.row, team.threads(), 1), |band| {
        for (index, (table, bag)) in tables.iter().zip(bags).enumerate() {
            let slot = slots.first + index * table.dim();
            isa.run(Pool { table, bag, first: band.first, out: band.data, row: slots.row, slot });
        }
    });
}

/// One table's bags for a band of samples.
struct Pool<'a> {
    table: &'a Table,
    bag: &'a Bag,
    first: usize,
    out: &'a mut [f32],
    row: usize,
    slot: usize,
}

impl Kernel for Pool<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Pool { table, bag, first, out, row, slot } = self;
        let (weights, dim) = (table.weights(), table.dim());
        let vector = |row: u32| &weights[row as usize * dim..][..dim];
        for (n, out) in out.chunks_exact_mut(row).enumerate() {
            let out = &mut out[slot..slot + dim];
            let bounds = bag.offsets[first + n] as usize..bag.offsets[first + n + 1] as usize;
            out.fill(0.0);
            for position in bounds {
                if let Some(&ahead) = bag.rows.get(position + PREFETCH_DISTANCE) {
                    vector(ahead).chunks(16).for_each(|line| simd.prefetch(line));
                }
                add(simd, vector(bag.rows[position]), out);
            }
        }
    }
}

/// `out[e] += from[e]`.
#[inline(always)]
fn add<S: Simd>(simd: S, from: &[f32], out: &mut [f32]) {
    for (out, from) in out.chunks_mut(S::LANES).zip(from.chunks(S::LANES)) {
        if from.len() == S::LANES {
            simd.store(simd.add(simd.load(out), simd.load(from)), out);
        } else {
            simd.store_partial(simd.add(simd.load_partial(out), simd.load_partial(from)), out);
        }
    }
}
