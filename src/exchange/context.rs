//! Who exchanges, and for what: a rank among others, and its slice of a minibatch.

use std::sync::Arc;

use super::layout::Layout;
use crate::base::{RankId, TableId};
use crate::data::Batch;
use crate::data::hot::Inputs;
use crate::machine::team::Team;

/// What is the same in every stage of a rank: its number, its threads, and who holds what.
pub struct RankContext {
    /// Its number.
    pub rank: RankId,
    /// Its threads.
    pub team: Team,
    /// What each rank holds, and where it lies in messages.
    pub layout: Arc<Layout>,
}

/// A minibatch, as a rank has it.
#[derive(Debug, Clone)]
pub struct Minibatch {
    /// This rank's samples.
    pub slice: Arc<Batch>,
    /// How many samples all ranks have.
    pub whole: usize,
    /// What they look up.
    pub inputs: Inputs,
}

impl RankContext {
    /// How many samples of a minibatch of `whole` this rank has.
    #[must_use]
    pub fn samples(&self, whole: usize) -> usize {
        self.layout.samples(whole, self.rank)
    }

    /// Makes `slice` this rank's slice of a minibatch: alone, and without sequences, the minibatch itself, without a
    /// copy.
    pub fn take_slice(&self, whole: &Arc<Batch>, slice: &mut Arc<Batch>) {
        if self.layout.ranks() == 1 && !self.layout.has_sequences() {
            *slice = whole.clone();
            return;
        }
        let batch = Arc::make_mut(slice);
        batch.clear();
        batch.append_range(whole, self.layout.slice(whole.samples(), self.rank));
        self.spread_sequences(slice);
    }

    /// Gives each look-up of a sequence in a slice a bag of its own.
    pub fn spread_sequences(&self, slice: &mut Arc<Batch>) {
        if self.layout.has_sequences() {
            let Batch { bags, weights, .. } = Arc::make_mut(slice);
            for (table, (bag, weights)) in (0..).map(TableId).zip(bags.iter_mut().zip(weights)) {
                if self.layout.positions(table) > 1 {
                    bag.spread(self.layout.positions(table), weights);
                }
            }
        }
    }
}
