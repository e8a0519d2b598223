//! Backward pass and SGD update of the embedding bags in one: SC20, Algorithms 2 and 3, without gradient rows in between.
//!
//! The definition is serial: samples in ascending order, a bag's look-ups in their order, each look-up moving its row by
//! `-rate * gradient` with one fused multiply-add an element. Tables are independent, so threads share them out and the
//! bits stay those of the serial definition.

use super::{Slots, Table};
use crate::data::Bag;
use crate::machine::team::Team;
use crate::simd::{Kernel, Simd};
use crate::sync::Each;

/// How many look-ups ahead a row is asked for.
const PREFETCH_DISTANCE: usize = 16;

/// Moves, for every sample and table, each row that the sample's bag names against the sample's gradient: the gradient
/// of the pooled vector is that of every row in it.
///
/// # Panics
/// When `gradient` has fewer rows than a bag has samples, or a bag names a row that the table does not have.
pub fn update(team: &Team, tables: &mut [Table], bags: &[Bag], gradient: &[f32], slots: Slots, rate: f32) {
    let isa = team.isa();
    assert_eq!(tables.len(), bags.len(), "one bag a table");
    let mut numbered: Vec<_> = tables.iter_mut().zip(bags).enumerate().collect();
    team.each(Each::new(&mut numbered), |(index, (table, bag))| {
        let slot = slots.first + *index * table.dim();
        isa.run(Move { table, bag, gradient, row: slots.row, slot, rate });
    });
}

/// One table's rows.
struct Move<'a> {
    table: &'a mut Table,
    bag: &'a Bag,
    gradient: &'a [f32],
    row: usize,
    slot: usize,
    rate: f32,
}

impl Kernel for Move<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Move { table, bag, gradient, row, slot, rate } = self;
        let (dim, rate) = (table.dim(), simd.splat(-rate));
        let weights = table.weights_mut();
        for n in 0..bag.samples() {
            let gradient = &gradient[n * row + slot..][..dim];
            for position in bag.offsets[n] as usize..bag.offsets[n + 1] as usize {
                if let Some(&ahead) = bag.rows.get(position + PREFETCH_DISTANCE) {
                    weights[ahead as usize * dim..][..dim].chunks(16).for_each(|line| simd.prefetch(line));
                }
                let weights = &mut weights[bag.rows[position] as usize * dim..][..dim];
                for (w, g) in weights.chunks_mut(S::LANES).zip(gradient.chunks(S::LANES)) {
                    if g.len() == S::LANES {
                        simd.store(simd.mul_add(rate, simd.load(g), simd.load(w)), w);
                    } else {
                        simd.store_partial(simd.mul_add(rate, simd.load_partial(g), simd.load_partial(w)), w);
                    }
                }
            }
        }
    }
}
