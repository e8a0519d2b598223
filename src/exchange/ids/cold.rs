//! The bags of a message that have no mark: those that an owner pools.

use std::ops::Range;

use crate::embedding::PackedBag;

/// Streams without the bags that have a mark.
#[derive(Debug)]
pub(super) struct Cold {
    pub(super) words: Vec<u32>,
    pub(super) bags: Vec<PackedBag>,
}

impl Cold {
    /// With so many streams.
    pub(super) fn new(streams: usize) -> Self {
        Self { words: Vec::new(), bags: vec![PackedBag::default(); streams] }
    }

    /// Takes those of a message whose streams lie there.
    pub(super) fn take(&mut self, message: &[u32], streams: &[PackedBag]) {
        self.words.clear();
        for (cold, all) in self.bags.iter_mut().zip(streams) {
            *cold = unmarked(message, all, &mut self.words);
        }
    }
}

/// Appends the bags without a mark to `to`, and says where they are.
fn unmarked(message: &[u32], bag: &PackedBag, to: &mut Vec<u32>) -> PackedBag {
    let (offsets, marks) = (&message[bag.offsets.clone()], &message[bag.weights.end..]);
    let cold = || (0..offsets.len() - 1).filter(|number| marks[number / 32] >> (number % 32) & 1 == 0);
    let look_ups = |number: usize| offsets[number] as usize..offsets[number + 1] as usize;
    let start = to.len();
    let mut count = 0;
    to.push(0);
    for number in cold() {
        count += look_ups(number).len();
        to.push(count as u32);
    }
    let offsets = start..to.len();
    let mut copy = |from: &Range<usize>| {
        let start = to.len();
        if !from.is_empty() {
            cold().for_each(|number| to.extend_from_slice(&message[from.clone()][look_ups(number)]));
        }
        start..to.len()
    };
    let rows = copy(&bag.rows);
    PackedBag { offsets, rows, weights: copy(&bag.weights) }
}
