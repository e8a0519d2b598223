//! Random orders that need the memory of one window.
//!
//! The samples of a split are cut into windows of W; the samples of a window are permuted by a function of (seed,
//! epoch, window) alone.

use crate::base::rng::{Random, Stream};

/// Which random order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shuffle {
    /// Decides all orders.
    pub seed: u64,
    /// Samples that are permuted among themselves, at least 1 and less than 2^32.
    pub window: usize,
}

/// Fills `order` with the permutation of a window.
pub(super) fn permute(order: &mut Vec<u32>, samples: usize, shuffle: Shuffle, epoch: u64, window: u64) {
    // The stream has 24 bits for the epoch and 32 for the window; beyond, orders would repeat.
    let random = Random::new(shuffle.seed, Stream::Shuffle(epoch as u32 & 0xFF_FFFF, window as u32));
    order.clear();
    order.extend(0..samples as u32);
    for last in (1..samples).rev() {
        order.swap(last, random.below(last as u64, last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(samples: usize, seed: u64, epoch: u64, window: u64) -> Vec<u32> {
        let mut order = Vec::new();
        permute(&mut order, samples, Shuffle { seed, window: samples }, epoch, window);
        order
    }

    #[test]
    fn every_order_is_a_permutation_of_its_own() {
        for samples in [0, 1, 2, 3, 100, 4097] {
            let mut sorted = order(samples, 1, 2, 3);
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..samples as u32));
        }
        let base = order(100, 1, 2, 3);
        assert_eq!(base, order(100, 1, 2, 3));
        for other in [order(100, 2, 2, 3), order(100, 1, 3, 3), order(100, 1, 2, 4), (0..100).collect()] {
            assert_ne!(base, other);
        }
    }

    #[test]
    fn all_permutations_of_three_are_equally_likely() {
        let mut counts = std::collections::HashMap::new();
        (0..6000).for_each(|window| *counts.entry(order(3, 5, 0, window)).or_insert(0u32) += 1);
        assert!(counts.len() == 6 && counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
