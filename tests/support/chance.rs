//! What is drawn at random: a pure function of the campaign's seed and the case's number.

use std::time::Duration;

/// A generator of one case.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The generator of case `number` of a campaign: a case needs no other to be repeated.
    pub fn new(seed: u64, number: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.rotate_left(32));
        chance.word();
        chance
    }

    /// SplitMix64.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`, which is above 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    /// A number of `from..=to`.
    pub fn between(&mut self, from: usize, to: usize) -> usize {
        from + self.below(to - from + 1)
    }

    /// Whether something that happens once in `times` happens.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// A part of `whole`, any as likely as any other.
    pub fn within(&mut self, whole: Duration) -> Duration {
        whole.mul_f64(self.below(1 << 20) as f64 / f64::from(1 << 20))
    }
}
