//! Which training samples are hot: a bit each, and where the n-th hot or cold one is.

use twox_hash::XxHash3_64;

use super::{HotSet, Inputs, classify};
use crate::base::units::{Bytes, Count};
use crate::base::{Error, Result};
use crate::data::{Source, Split};
use crate::memory::check_host;

/// Words of bits of which it is known how many hot samples lie before them.
const GROUP: usize = 64;

/// Samples of a group.
const SAMPLES: u64 = (GROUP * u64::BITS as usize) as u64;

/// The hot and the cold among the training samples of a data set: its classified inputs (FAE, section 4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tags {
    samples: u64,
    /// A bit a sample, the first one lowest; 0 behind the last.
    words: Vec<u64>,
    /// For each group of words, the hot samples before it.
    before: Vec<u64>,
    hot: u64,
}

impl Tags {
    /// Of so many samples, whose bits these are.
    ///
    /// # Errors
    /// With what is wrong, when these are not the words of so many samples.
    pub fn new(samples: u64, words: Vec<u64>) -> std::result::Result<Self, String> {
        let needed = samples.div_ceil(64);
        if words.len() as u64 != needed {
            return Err(format!("{} words of tags, where {samples} samples take {needed}", words.len()));
        }
        if !samples.is_multiple_of(64) && words.last().is_some_and(|last| last >> (samples % 64) != 0) {
            return Err(format!("tags of samples behind the last of {samples}"));
        }
        let mut hot = 0;
        let count = |group: &[u64]| {
            let before = hot;
            hot += group.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
            before
        };
        let before = words.chunks(GROUP).map(count).collect();
        Ok(Self { samples, words, before, hot })
    }

    /// Checks that this machine has memory for the tags of a source's training samples; `instead` is what else the user
    /// can do ("use --hot exact").
    ///
    /// # Errors
    /// [`Error::Config`] where there are too many.
    pub fn check_memory(source: &dyn Source, instead: &str) -> Result<()> {
        let total = source.samples(Split::Train).unwrap_or(0);
        let bytes = total.div_ceil(64) * 8;
        check_host("what tells hot samples from cold ones", bytes, 1).map_err(|_| {
            let reason = format!(
                "telling {} training samples apart takes a bit of each, {}, and this machine has less free: have fewer \
                 (data.train_samples), or {instead}",
                Count(total),
                Bytes(bytes)
            );
            Error::config("data", reason)
        })
    }

    /// Tells all training samples of a source apart, by so many threads that read; `told` hears how many are done, and
    /// of how many. Whoever calls it has found that there is memory ([`Tags::check_memory`]).
    ///
    /// # Errors
    /// As [`classify()`].
    ///
    /// # Panics
    /// As [`classify()`].
    pub fn of(source: &dyn Source, set: &HotSet, workers: usize, told: &dyn Fn(u64, u64)) -> Result<Self> {
        let total = source.samples(Split::Train).unwrap_or(0);
        let mut words = vec![0u64; total.div_ceil(64) as usize];
        let tally = classify(source, Split::Train, set, workers, |portion| {
            for (sample, _) in (portion.first..).zip(&portion.hot).filter(|(_, hot)| **hot) {
                words[(sample / 64) as usize] |= 1 << (sample % 64);
            }
            told(portion.first + portion.hot.len() as u64, total);
            Ok(())
        })?;
        Ok(Self::new(tally.inputs, words).expect("a bit for each sample"))
    }

    /// How many samples there are.
    #[must_use]
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// How many of them are such inputs.
    #[must_use]
    pub const fn count(&self, inputs: Inputs) -> u64 {
        match inputs {
            Inputs::Mixed => self.samples,
            Inputs::Cold => self.samples - self.hot,
            Inputs::Hot => self.hot,
        }
    }

    /// The bits, a word for each 64 samples.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// What tells these tags from all others: the XXH3 of their bits.
    #[must_use]
    pub fn digest(&self) -> String {
        let bytes = bytemuck::cast_slice(&self.words);
        format!("{:016x}", XxHash3_64::oneshot_with_seed(self.samples, bytes))
    }

    /// The number, among all samples, of such an input that has `number` others of its kind before it.
    ///
    /// # Panics
    /// When there are not that many.
    #[must_use]
    pub fn place(&self, inputs: Inputs, number: u64) -> u64 {
        assert!(number < self.count(inputs), "sample {number} of {} that are {inputs:?}", self.count(inputs));
        let flip = match inputs {
            Inputs::Mixed => return number,
            Inputs::Cold => u64::MAX,
            Inputs::Hot => 0,
        };
        // Samples of the kind before a group.
        let before = |group: usize| {
            let hot = self.before[group];
            if inputs == Inputs::Hot { hot } else { group as u64 * SAMPLES - hot }
        };
        let (mut low, mut high) = (0, self.before.len());
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if before(middle) <= number { low = middle } else { high = middle }
        }
        let mut left = number - before(low);
        for (at, word) in self.words.iter().enumerate().skip(low * GROUP) {
            let mut word = word ^ flip;
            let count = u64::from(word.count_ones());
            if left < count {
                // All but the bit that is asked for go, from the lowest on.
                (0..left).for_each(|_| word &= word - 1);
                return at as u64 * 64 + u64::from(word.trailing_zeros());
            }
            left -= count;
        }
        unreachable!("there are as many as were counted")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::DataConfig;
    use crate::data::Criteo;

    #[test]
    fn each_sample_has_its_place_among_those_of_its_kind() {
        for (samples, part) in [(0u64, 1), (1, 1), (64, 2), (65, 3), (4096, 1), (20_000, 7), (20_001, 5000), (9000, 1)]
        {
            let is_hot =
                |sample: u64| sample.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0xffff_ffff < (1 << 32) / part;
            let mut words = vec![0u64; samples.div_ceil(64) as usize];
            (0..samples)
                .filter(|sample| is_hot(*sample))
                .for_each(|sample| words[(sample / 64) as usize] |= 1 << (sample % 64));
            let tags = Tags::new(samples, words).unwrap();
            for inputs in [Inputs::Hot, Inputs::Cold, Inputs::Mixed] {
                let places =
                    (0..samples).filter(|sample| inputs == Inputs::Mixed || is_hot(*sample) == (inputs == Inputs::Hot));
                let places: Vec<u64> = places.collect();
                let found: Vec<u64> = (0..tags.count(inputs)).map(|number| tags.place(inputs, number)).collect();
                assert!(found == places, "{inputs:?} of {samples}");
            }
        }
    }

    #[test]
    fn words_are_of_as_many_samples_as_they_say() {
        assert!(Tags::new(65, vec![1]).unwrap_err().contains("1 words of tags, where 65 samples take 2"));
        assert!(Tags::new(65, vec![1, 2]).unwrap_err().contains("behind the last of 65"));
        let tags = Tags::new(65, vec![2, 1]).unwrap();
        assert_eq!([Inputs::Hot, Inputs::Cold, Inputs::Mixed].map(|of| tags.count(of)), [2, 63, 65]);
        assert_ne!(tags.digest(), Tags::new(65, vec![2, 0]).unwrap().digest());
    }

    #[test]
    fn more_samples_than_there_is_memory_for_are_refused() {
        let config = DataConfig { train_samples: u64::MAX >> 1, ..DataConfig::default() };
        let source = Criteo::new(&config, &[9; 2], 1).unwrap();
        let error = Tags::check_memory(&source, "use --hot exact").unwrap_err().to_string();
        for told in ["9,223,372,036,854,775,807 training samples", "(data.train_samples), or use --hot exact"] {
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    #[should_panic(expected = "sample 1 of 1 that are Hot")]
    fn there_is_no_place_behind_the_last() {
        let _ = Tags::new(3, vec![4]).unwrap().place(Inputs::Hot, 1);
    }
}
