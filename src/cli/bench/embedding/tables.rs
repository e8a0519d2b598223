//! Tables on which look-up and update are measured, and held against their definitions.

use super::EmbeddingArgs;
use crate::base::config::{Pooling, Update};
use crate::base::{NodeId, Result};
use crate::data::Batch;
use crate::embedding::{LookUp, Lookups, Slots, Source, Spec, Table, Updater};
use crate::machine::team::Team;
use crate::memory::{Arena, Buffer, Supply};

/// A rate that moves rows and leaves weights near where they were.
const RATE: f32 = 1e-3;

/// One way to update, fused or not.
pub(super) struct Way {
    pub(super) update: Update,
    pub(super) fused: bool,
    pub(super) updater: Updater,
}

/// Tables and everything that look-up and update need.
pub(super) struct Bench {
    pub(super) tables: Vec<Table>,
    pub(super) ways: Vec<Way>,
    pub(super) look_up: LookUp,
    pub(super) features: Buffer<f32>,
    pub(super) gradient: Buffer<f32>,
    /// Elements of a sample's features.
    pub(super) row: usize,
    /// Where each table's begin.
    pub(super) starts: Vec<usize>,
    /// Of the arena.
    pub(super) warnings: Vec<String>,
}

impl Bench {
    /// In one arena on the nodes of `home`.
    pub(super) fn new(team: &Team, args: &EmbeddingArgs, updates: &[Update], home: &[NodeId]) -> Result<Self> {
        let touch = |memory: &mut [u8]| team.touch(memory);
        let build = |supply: &mut Supply<'_>| Self::build(team, args, updates, supply);
        let (mut bench, arena) = Arena::of(home, touch, build)?;
        bench.warnings = arena.warnings().to_vec();
        bench.gradient.iter_mut().enumerate().for_each(|(place, cell)| *cell = value(place) * 1e-2);
        bench.fill(team);
        Ok(bench)
    }

    /// All numbers 0.
    fn build(team: &Team, args: &EmbeddingArgs, updates: &[Update], supply: &mut Supply<'_>) -> Result<Self> {
        let (count, dim, samples) = (args.tables as usize, args.dim as usize, args.batch as usize);
        let (rows, kept, pooling, threads) = (u64::from(args.rows), args.kept(), Pooling::Sum, team.threads());
        let table = |number| Table::new(format!("C{number}"), rows, dim, kept, supply);
        let tables = (1..=count).map(table).collect::<Result<Vec<_>>>()?;
        let way = |(update, fused)| {
            let lookups = count * samples * args.lookups as usize;
            let spec = Spec { update, fused, pooling, tables: count, dim, kept, lookups, threads };
            Ok(Way { update, fused, updater: Updater::new(spec, supply)? })
        };
        let both = updates.iter().flat_map(|&update| [(update, true), (update, false)]);
        let ways = both.map(way).collect::<Result<Vec<_>>>()?;
        // As in a model, whose bottom MLP has the first vector.
        let row = dim + count * dim;
        Ok(Self {
            tables,
            ways,
            look_up: LookUp::new(pooling, count, threads),
            features: supply.buffer("features", samples * row)?,
            gradient: supply.buffer("feature gradients", samples * row)?,
            row,
            starts: (1..=count).map(|table| table * dim).collect(),
            warnings: Vec::new(),
        })
    }

    /// The weights that every run of a check starts from, and nothing kept of rows.
    fn fill(&mut self, team: &Team) {
        for table in &mut self.tables {
            table.forget(team);
            table.fill(team, |first, row| {
                row.iter_mut().zip(first..).for_each(|(weight, place)| *weight = value(place));
            });
        }
    }

    pub(super) fn forward(&mut self, team: &Team, batch: &Batch) {
        let slots = Slots::new(self.row, &self.starts);
        self.look_up.run(team, &self.tables, Lookups::plain(&batch.bags), &mut self.features, slots);
    }

    pub(super) fn update(&mut self, team: &Team, way: usize, batch: &Batch) {
        let Self { tables, ways, gradient, row, starts, .. } = self;
        let slots = Slots::new(*row, starts);
        let source = Source { lookups: Lookups::plain(&batch.bags), gradient, slots };
        ways[way].updater.run(team, tables, &[source], RATE);
    }

    /// Holds some pooled rows of the last look-up against their definition.
    pub(super) fn check_forward(&self, batch: &Batch) {
        for (number, (table, bag)) in self.tables.iter().zip(&batch.bags).enumerate() {
            let (dim, weights) = (table.dim(), table.weights());
            // What a look-up reads of a number in halves.
            let seen = if table.precision().is_split() { 0xffff_0000 } else { u32::MAX };
            for sample in [0, batch.samples() / 2, batch.samples() - 1] {
                let at = sample * self.row + self.starts[number];
                for (column, &found) in self.features[at..][..dim].iter().enumerate() {
                    let weight = |row: &u32| f32::from_bits(weights[*row as usize * dim + column].to_bits() & seen);
                    let expected = bag.of(sample).iter().map(weight).fold(0.0, |sum, weight| sum + weight);
                    assert!(
                        found == expected,
                        "sample {sample}, table {number}, column {column}: {found}, not {expected}"
                    );
                }
            }
        }
    }

    /// Holds the tables after each way's update against those after `serial`'s: the first is that.
    pub(super) fn check_updates(&mut self, team: &Team, batch: &Batch) {
        let mut expected: Vec<Vec<f32>> = Vec::new();
        for way in 0..self.ways.len() {
            self.fill(team);
            self.update(team, way, batch);
            if expected.is_empty() {
                expected = self.tables.iter().map(|table| table.weights().to_vec()).collect();
            }
            let Way { update, fused, .. } = self.ways[way];
            // Sums in an order left to chance differ by half a bit of a weight below 1 for each look-up of its row, in
            // both orders; a look-up that is lost or doubled moves numbers by up to a hundred times as much.
            let each = if matches!(update, Update::Atomic | Update::Rtm) { f32::EPSILON / 2.0 } else { 0.0 };
            for ((table, bag), expected) in self.tables.iter().zip(&batch.bags).zip(&expected) {
                let (found, dim) = (table.weights(), table.dim());
                let mut bounds = vec![0.0; found.len() / dim];
                bag.rows.iter().for_each(|row| bounds[*row as usize] += each);
                let right = |at: usize, bound: f32| (at..at + dim).all(|at| (found[at] - expected[at]).abs() <= bound);
                let right = bounds.iter().enumerate().all(|(row, &bound)| right(row * dim, bound));
                assert!(right, "{update:?} (fused: {fused}) gives the rows of serial");
            }
        }
    }
}

/// A number in [-0.5, 0.5): a multiplicative hash (Knuth, TAOCP volume 3, 6.4) of its place.
fn value(place: usize) -> f32 {
    ((place as u32).wrapping_mul(0x9E37_79B1) >> 8) as f32 / 16_777_216.0 - 0.5
}
