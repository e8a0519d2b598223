//! A hash map from values to numbers: open addressing, linear probing, at most two thirds full.
//!
//! A slot holds its value beside the number, so that a look-up usually touches one cache line. Values of a column too
//! large for memory are taken in shards, by bits of the hash that the map itself does not use.

use std::fmt::Debug;

use bytemuck::Pod;

use crate::base::rng;

/// A categorical value: 32 bits (Criteo's hashes) or 64 (fingerprints of text).
pub(super) trait Key: Pod + Default + Eq + Ord + Send + Sync + Debug {
    /// The value with its bits spread over the word ([`rng::spread`]).
    fn spread(self) -> u64;

    /// The value as people know it.
    fn shown(self) -> String;

    /// The row that it is, where it is no value but a row already.
    fn row(self) -> u32;
}

impl Key for u32 {
    #[inline]
    fn spread(self) -> u64 {
        rng::spread(u64::from(self))
    }

    fn shown(self) -> String {
        format!("{self:08x}")
    }

    fn row(self) -> u32 {
        self
    }
}

impl Key for u64 {
    #[inline]
    fn spread(self) -> u64 {
        rng::spread(self)
    }

    fn shown(self) -> String {
        format!("with fingerprint {self:016x}")
    }

    fn row(self) -> u32 {
        u32::try_from(self).expect("rows of a column are fewer than 2^32")
    }
}

/// The shard of a value; `shards` is a power of two.
#[inline]
pub(super) fn shard<K: Key>(key: K, shards: u32) -> u32 {
    key.spread() as u32 & (shards - 1)
}

/// Values looked up together: their cache misses then overlap.
pub(super) const TOGETHER: usize = 32;

/// The map.
#[derive(Debug, Clone)]
pub(super) struct KeyMap<K> {
    /// A value, and its number plus one; 0: free.
    slots: Vec<(K, u32)>,
    /// 64 less the logarithm of the number of slots.
    shift: u32,
    filled: usize,
}

const SMALLEST: usize = 64;

impl<K: Key> KeyMap<K> {
    pub(super) fn new() -> Self {
        Self::with_slots(SMALLEST)
    }

    fn with_slots(slots: usize) -> Self {
        Self { slots: vec![(K::default(), 0); slots], shift: 64 - slots.trailing_zeros(), filled: 0 }
    }

    /// Forgets all values; the memory stays, but a small map begins small again, so that clearing is cheap.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.slots.resize(SMALLEST, (K::default(), 0));
        (self.shift, self.filled) = (64 - SMALLEST.trailing_zeros(), 0);
    }

    /// Values in it.
    pub(super) fn len(&self) -> usize {
        self.filled
    }

    #[inline]
    fn slot(&self, key: K) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (key.spread() >> self.shift) as usize & mask;
        while self.slots[at].1 != 0 && self.slots[at].0 != key {
            at = (at + 1) & mask;
        }
        at
    }

    /// The number of a value.
    #[inline]
    pub(super) fn get(&self, key: K) -> Option<u32> {
        self.slots[self.slot(key)].1.checked_sub(1)
    }

    /// The number of a value, which is `number` from now on if it had none.
    #[inline]
    pub(super) fn get_or_insert(&mut self, key: K, number: u32) -> u32 {
        let at = self.slot(key);
        if self.slots[at].1 == 0 {
            self.slots[at] = (key, number + 1);
            self.filled += 1;
            if 3 * self.filled > 2 * self.slots.len() {
                self.grow();
            }
            return number;
        }
        self.slots[at].1 - 1
    }

    /// Brings the slots of some values into the cache. The loads do not depend on each other, so they overlap.
    #[inline]
    pub(super) fn touch(&self, keys: &[K]) {
        let mask = self.slots.len() - 1;
        let seen = keys.iter().fold(0, |all, key| all ^ self.slots[(key.spread() >> self.shift) as usize & mask].1);
        std::hint::black_box(seen);
    }

    /// Bytes at the worst moment of the next growth, when the old slots and the new ones stand side by side.
    pub(super) fn bytes_after_growth(&self) -> u64 {
        3 * (self.slots.len() * size_of::<(K, u32)>()) as u64
    }

    /// Whether `more` values may make it grow.
    pub(super) fn may_grow(&self, more: usize) -> bool {
        3 * (self.filled + more) > 2 * self.slots.len()
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = Self::with_slots(2 * self.slots.len());
        for &(key, number) in self.slots.iter().filter(|slot| slot.1 != 0) {
            let at = larger.slot(key);
            larger.slots[at] = (key, number);
        }
        larger.filled = self.filled;
        *self = larger;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn against_a_map<K: Key + std::hash::Hash>(values: impl Iterator<Item = K>) {
        let (mut found, mut map) = (KeyMap::new(), HashMap::new());
        for value in values {
            let next = map.len() as u32;
            let expected = *map.entry(value).or_insert(next);
            found.touch(&[value]);
            assert_eq!(found.get_or_insert(value, next), expected);
        }
        assert_eq!(found.len(), map.len());
        map.iter().for_each(|(&value, &number)| assert_eq!(found.get(value), Some(number)));
        found.clear();
        assert!(map.keys().all(|&value| found.get(value).is_none()));
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_a_map(values in proptest::collection::vec(0..500u32, 0..3000), stride: u32) {
            against_a_map(values.iter().map(|value| value.wrapping_mul(stride | 1)));
            against_a_map(values.iter().map(|&value| u64::from(value) << 32 | u64::from(value.wrapping_mul(stride))));
        }
    }

    #[test]
    fn shards_are_even_within_any_part_of_the_map() {
        for values in [0..1u32 << 16, 1 << 31..(1 << 31) + (1 << 16)] {
            let mut counts = [0; 8];
            values.for_each(|value| counts[shard(value, 8) as usize] += 1);
            assert!(counts.iter().all(|count| (7800..8600).contains(count)), "{counts:?}");
        }
    }
}
