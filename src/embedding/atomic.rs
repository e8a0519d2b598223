//! Updates by threads that share rows: each takes an equal part of the look-ups and adds to rows that others may be
//! adding to. Nothing is lost, but the order of a row's sums is left to chance, so the last bits are too.

use std::ops::Range;

use super::feed::{Feed, sample_of};
use crate::data::Bag;
use crate::sync::{AtomicU32, Rtm, ask, mul_add};

/// How many look-ups ahead a row is asked for.
const PREFETCH_DISTANCE: usize = 16;

/// A part of one table's look-ups.
#[derive(Debug, Clone, Copy)]
pub(super) struct MoveShared<'a> {
    pub weights: &'a [AtomicU32],
    pub dim: usize,
    pub bag: &'a Bag,
    pub feed: Feed<'a>,
    pub rate: f32,
    /// Move a row in one transaction where one commits.
    pub rtm: Option<Rtm>,
}

impl MoveShared<'_> {
    /// Moves the rows of the look-ups at `positions`.
    pub(super) fn run(self, positions: Range<usize>) {
        if positions.is_empty() {
            return;
        }
        let Self { weights, dim, bag, feed, rate, rtm } = self;
        let vector = |row: u32| &weights[row as usize * dim..][..dim];
        let mut sample = sample_of(bag, positions.start);
        for position in positions {
            while bag.offsets[sample + 1] as usize <= position {
                sample += 1;
            }
            if let Some(&ahead) = bag.rows.get(position + PREFETCH_DISTANCE) {
                ask(vector(ahead));
            }
            let row = vector(bag.rows[position]);
            let (gradient, factor) = feed.at(sample, position);
            if rtm.is_some_and(|rtm| rtm.mul_add(row, -rate, factor, gradient)) {
                continue;
            }
            row.iter().zip(gradient).for_each(|(float, g)| mul_add(float, -rate, factor * g));
        }
    }
}
