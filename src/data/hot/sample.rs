//! A share of a data set's inputs, drawn without replacement: whole stretches of consecutive inputs, streamed in order.
//!
//! Which stretches are drawn is a pure function of (seed, number of inputs, share, stretch). Every input is as likely
//! to be drawn as any other, so that counts of accesses, divided by the share that was drawn, are unbiased whatever the
//! order of the inputs. What stretches cost is variance: where a row's accesses come in bursts (a log in the order of
//! time), a stretch tells less than as many inputs drawn one by one, so at least [`LEAST`] of them are drawn, spread
//! over the whole data set, where that many inputs are asked for. What they give is speed: formats that can seek touch
//! only the stretches, and blocks, which are checked and unpacked as a whole, are read once.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::base::rng::{Random, Stream};
use crate::base::{Error, Result, interrupt};
use crate::data::{Batch, Source, Split};

/// Stretches that are drawn at least, where as many inputs are.
const LEAST: u64 = 128;
/// Inputs of a stretch at most: a minibatch that fits the caches of several cores.
const LONGEST: u64 = 1 << 14;
/// Inputs that are judged at least, where there are as many outside the sample.
const JUDGED: u64 = 1 << 14;
/// Where there are more stretches than so many for each that is drawn, those that are not drawn are not looked at: a
/// window of data without an end may be longer than anybody waits.
const SPARSE: u64 = 64;
/// Numbers that are looked at between looks at whether the user wants no more of it.
const LOOK_EVERY: u64 = 1 << 20;

/// Stretches of inputs, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drawn {
    /// Inputs of every stretch but the last of the data set.
    pub stretch: u64,
    /// Those whose accesses are counted.
    pub counted: Vec<Range<u64>>,
    /// Those that are judged by what was counted: none of the same, unless all were counted.
    pub judged: Vec<Range<u64>>,
}

/// Inputs that are read together at most, where one makes up to `lookups` look-ups a table.
pub(super) fn longest(lookups: usize) -> u64 {
    (LONGEST / (lookups as u64).next_power_of_two()).max(1)
}

/// Inputs of a stretch when `share` of `total` are drawn and an input makes up to `lookups` look-ups a table.
pub(super) fn stretch(total: u64, share: f64, lookups: usize) -> u64 {
    let wanted = (total as f64 * share) as u64 / LEAST;
    let power = if wanted < 2 { 1 } else { 1 << wanted.ilog2() };
    power.min(longest(lookups))
}

impl Drawn {
    /// How many stretches are drawn of `total` inputs: those that are counted, and those that are judged.
    fn wanted(total: u64, share: f64, stretch: u64) -> (u64, u64) {
        let all = total.div_ceil(stretch);
        let counted = ((all as f64 * share).round() as u64).clamp(1, all.max(1)).min(all);
        (counted, (counted / 4).max(JUDGED.div_ceil(stretch)).min(all - counted))
    }

    /// Bytes that drawing takes at most: each stretch, in a list that doubles when it is full, and its number.
    pub(super) fn bytes(total: u64, share: f64, stretch: u64) -> u64 {
        let (counted, judged) = Self::wanted(total, share, stretch);
        (counted + judged).saturating_mul(4 * size_of::<Range<u64>>() as u64)
    }

    /// Draws `share` (0 to 1) of `total` inputs, at least a stretch.
    ///
    /// # Errors
    /// [`Error::Interrupted`] when the user wants no more of it.
    pub(super) fn new(total: u64, share: f64, stretch: u64, seed: u64) -> Result<Self> {
        let all = total.div_ceil(stretch);
        let (mut counted, mut judged) = Self::wanted(total, share, stretch);
        let random = Random::new(seed, Stream::Profile(0, 0));
        let mut drawn = Self { stretch, counted: Vec::new(), judged: Vec::new() };
        picked(all, counted + judged, &random, |number| {
            let inputs = number * stretch..total.min((number + 1) * stretch);
            if random.below(2 * number + 1, counted + judged) < judged {
                judged -= 1;
                drawn.judged.push(inputs);
            } else {
                counted -= 1;
                drawn.counted.push(inputs);
            }
        })?;
        if drawn.judged.is_empty() {
            // All were counted, so no count is of a sample: what is judged may be among them.
            drawn.judged = drawn.counted.iter().step_by(4).cloned().collect();
        }
        Ok(drawn)
    }

    /// The same of inputs that begin with number `first`.
    pub(super) fn from(mut self, first: u64) -> Self {
        for inputs in self.counted.iter_mut().chain(&mut self.judged) {
            *inputs = first + inputs.start..first + inputs.end;
        }
        self
    }
}

/// Hands so many of the numbers below `all`, each as likely, to `each`, in order.
///
/// # Errors
/// [`Error::Interrupted`] when the user wants no more of it.
fn picked(all: u64, wanted: u64, random: &Random, mut each: impl FnMut(u64)) -> Result<()> {
    let look = |step: u64| match step % LOOK_EVERY == LOOK_EVERY - 1 && interrupt::requested() {
        true => Err(Error::Interrupted),
        false => Ok(()),
    };
    if all / SPARSE > wanted {
        // Floyd (Bentley, Programming Pearls, Communications of the ACM 30, 1987, p. 754): where a number is drawn
        // again, the greatest of those that could be drawn so far is taken.
        let mut numbers = BTreeSet::new();
        for (step, greatest) in (0..).zip(all - wanted..all) {
            look(step)?;
            let number = random.below(2 * greatest, greatest + 1);
            if !numbers.insert(number) {
                numbers.insert(greatest);
            }
        }
        numbers.into_iter().for_each(each);
        return Ok(());
    }
    // Selection sampling (Knuth, The Art of Computer Programming 2, algorithm S): in no memory of its own.
    let mut left = wanted;
    for number in 0..all {
        look(number)?;
        if random.below(2 * number, all - number) < left {
            left -= 1;
            each(number);
        }
    }
    Ok(())
}

/// The number of inputs of some stretches.
pub(super) fn inputs(stretches: &[Range<u64>]) -> u64 {
    stretches.iter().map(|inputs| inputs.end - inputs.start).sum()
}

/// Hands stretches of training samples to `each`, one after the other, while the next one is read: two are in memory.
///
/// # Errors
/// What the source and `each` find, and a row that is none of its table's.
pub(super) fn stream(
    source: &dyn Source,
    stretches: &[Range<u64>],
    mut each: impl FnMut(&Batch) -> Result<()> + Send,
) -> Result<()> {
    let schema = source.schema();
    let [mut now, mut next] = [schema; 2].map(Batch::new);
    let Some((first, others)) = stretches.split_first() else { return Ok(()) };
    let mut reader = source.open(Split::Train, first.start)?;
    let mut at = first.start;
    let mut read = |inputs: &Range<u64>, batch: &mut Batch| {
        batch.clear();
        let (gap, wanted) = (inputs.start - at, (inputs.end - inputs.start) as usize);
        let found = (reader.skip(gap)?, reader.read(batch, wanted)?);
        assert_eq!(found, (gap, wanted), "a source has as many samples as it says");
        at = inputs.end;
        batch.check(schema)
    };
    read(first, &mut now)?;
    for inputs in others {
        let (found, done) = rayon::join(|| read(inputs, &mut next), || each(&now));
        found.and(done)?;
        std::mem::swap(&mut now, &mut next);
    }
    each(&now)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn stretches_are_drawn_without_replacement_and_as_a_function_of_the_seed() {
        /// As many inputs as nobody looks at one after the other; 128 stretches of them.
        const ENDLESS: (u64, f64, u64) = (1 << 62, 128.0 / (1u64 << 52) as f64, 1 << 10);
        for (total, share, stretch) in
            [(1000, 0.05, 1), (1000, 0.3, 7), (5, 0.5, 2), (1, 0.01, 1), (1 << 20, 0.05, 256), ENDLESS]
        {
            let drawn = Drawn::new(total, share, stretch, 1).unwrap();
            assert_eq!(drawn, Drawn::new(total, share, stretch, 1).unwrap());
            let all = total.div_ceil(stretch);
            let wanted = ((all as f64 * share).round() as usize).max(1);
            assert_eq!(drawn.counted.len(), wanted, "of {total}");
            let mut inputs: Vec<u64> = drawn.counted.iter().chain(&drawn.judged).cloned().flatten().collect();
            assert!(drawn.counted.is_sorted_by(|a, b| a.end <= b.start), "in order");
            let count = inputs.len();
            inputs.sort_unstable();
            inputs.dedup();
            assert!(inputs.len() == count || wanted as u64 == all, "no input twice");
            assert!(inputs.iter().all(|&input| input < total));
        }
        assert_ne!(Drawn::new(1000, 0.05, 1, 1).unwrap(), Drawn::new(1000, 0.05, 1, 2).unwrap());
        let all = Drawn::new(1000, 1.0, 8, 1).unwrap();
        assert_eq!((inputs(&all.counted), all.counted.len(), all.judged.len()), (1000, 125, 32));
    }

    #[test]
    fn every_stretch_is_drawn_as_often() {
        // All of few stretches, some, and one of many; binomial, five deviations.
        for (total, share, stretch, seeds, stretches, likely) in [
            (40, 0.25, 2, 4000, 20, 863..1137),
            (96 << 14, 1.0 / 8.0, 1 << 14, 3200, 96, 306..494),
            (192 << 14, 1.0 / 192.0, 1 << 14, 76_800, 192, 300..500),
        ] {
            let mut times = HashMap::new();
            for seed in 0..seeds {
                let drawn = Drawn::new(total, share, stretch, seed).unwrap();
                drawn.counted.into_iter().for_each(|inputs| *times.entry(inputs.start).or_insert(0) += 1);
            }
            assert!(times.len() == stretches && times.values().all(|times| likely.contains(times)), "{times:?}");
        }
    }

    #[test]
    fn stretches_are_long_where_there_are_many_inputs_and_short_where_inputs_are_long() {
        assert_eq!(stretch(1280, 0.05, 1), 1);
        assert_eq!(stretch(100_000, 0.05, 1), 32);
        assert_eq!(stretch(20_000_000, 0.05, 1), 4096);
        assert_eq!(stretch(4_195_197_692, 0.05, 1), 1 << 14);
        assert_eq!(stretch(4_195_197_692, 0.05, 100), 1 << 7);
        assert_eq!(stretch(4_195_197_692, 0.05, 1 << 20), 1);
    }
}
