//! Sorted runs of scored samples, and their merging into one stream, lowest score first: what every ranking metric
//! reads.
//!
//! A sample is one integer: its score's bits, which rise with the score, and below them whether it was clicked; where
//! samples have groups, the group above both. Each rank keeps those of its own samples, 4 bytes each or 8 with a group,
//! and its threads sort them, each a part. Samples with weights are counted in units, the unit being a share of all
//! weights so small that what is rounded away is lost in that sum; their keys, of 16 bytes, have the weight at the end.
//! So all that counts is integers, whose sums are the same in any order, weights or not. Merging adds up equal scores:
//! what a machine tells the others is how many samples there are at each of its scores, in pieces of [`PIECE`], so that
//! none of them ever holds all, and all get the same stream, whatever was where.

use std::collections::VecDeque;
use std::iter::Flatten;
use std::vec::IntoIter;

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use crate::base::Result;
use crate::machine::team::Team;
use crate::sync::Each;

/// Scores of a machine that another one holds at a time: 1 MiB.
const PIECE: usize = 1 << 15;

/// Samples that a thread brings in order at a time, and counts in 3 MB at most.
const PORTION: usize = 1 << 16;

/// Samples below which sorting is not shared out.
const FEW: usize = 1 << 14;

/// A sample that orders itself: by group, score and label.
pub trait Key: Copy + Ord + Send + Sync {
    /// All but a weight, in one word.
    fn word(self) -> u64;

    /// As how many units of this weight it counts: as one, where it has none.
    fn units(self, _: f64) -> u64 {
        1
    }
}

impl Key for u32 {
    fn word(self) -> u64 {
        u64::from(self)
    }
}

impl Key for u64 {
    fn word(self) -> u64 {
        self
    }
}

impl Key for u128 {
    fn word(self) -> u64 {
        (self >> 32) as u64
    }

    fn units(self, unit: f64) -> u64 {
        (f64::from(f32::from_bits(self as u32)) / unit).round() as u64
    }
}

/// The unit in which weights of this sum are counted, a power of two: all together they are less than 2^63 units, and
/// what is rounded of one is below 2^-62 of the sum.
pub fn unit_of(sum: f64) -> f64 {
    let above = ((sum.to_bits() >> 52) & 0x7ff) as i32 - 1022;
    2f64.powi(above - 62)
}

/// A probability and whether it was clicked, in the order of the probabilities; `None` where it lies outside of [0, 1].
pub fn key(probability: f32, click: bool) -> Option<u32> {
    // + 0 makes one zero of two. The bits of 1 are below 2^30.
    (0.0..=1.0).contains(&probability).then(|| (probability + 0.0).to_bits() << 1 | u32::from(click))
}

/// As [`key`], of a group.
pub fn grouped(group: u32, key: u32) -> u64 {
    u64::from(group) << 32 | u64::from(key)
}

/// A [`key`] or a [`grouped`] one, of a sample of this weight.
pub fn weighed(word: u64, weight: f32) -> u128 {
    // + 0 makes one zero of two.
    u128::from(word) << 32 | u128::from((weight + 0.0).to_bits())
}

/// All samples of one score and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Tied {
    /// Group and score: a key without its label.
    score: u64,
    /// Those that were clicked: how many, or in units of their weights.
    pub clicks: u64,
    /// The others, likewise.
    pub others: u64,
    /// How many samples, whatever their weights.
    pub samples: u64,
}

impl Tied {
    /// The probability, where keys are those of [`key`] or [`grouped`].
    pub fn probability(&self) -> f32 {
        f32::from_bits(self.score as u32 & 0x7fff_ffff)
    }

    /// The group, where keys are those of [`grouped`].
    pub const fn group(&self) -> u32 {
        (self.score >> 31) as u32
    }

    /// As how many all of them count.
    pub const fn units(&self) -> u64 {
        self.clicks + self.others
    }
}

/// A rank's samples, in parts that are sorted each.
#[derive(Debug)]
pub struct Runs<K> {
    keys: Vec<K>,
    /// Keys of a run but the last, once they are sorted.
    length: usize,
}

impl<K> Default for Runs<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), length: 0 }
    }
}

impl<K: Key> Runs<K> {
    pub fn push(&mut self, key: K) {
        self.keys.push(key);
    }

    /// Sorts, each thread a part.
    pub fn sort_by(&mut self, team: &Team) {
        self.length = self.keys.len().div_ceil(team.threads()).max(FEW);
        let mut parts: Vec<&mut [K]> = self.keys.chunks_mut(self.length).collect();
        team.each(Each::new(&mut parts), |part| part.sort_unstable());
    }

    /// As how many units of this weight those count that were clicked, and all.
    pub fn units(&self, unit: f64) -> [u64; 2] {
        self.keys.iter().fold([0, 0], |[clicks, all], key| {
            let own = key.units(unit);
            [clicks + if key.word() & 1 == 1 { own } else { 0 }, all + own]
        })
    }

    fn sorted(&self) -> impl Iterator<Item = &[K]> {
        self.keys.chunks(self.length.max(1))
    }
}

/// The sorted runs of some ranks as one stream.
///
/// Portions of the lowest samples that are left, one for each thread of rayon's pool, are brought in order at the same
/// time.
pub struct Merged<'a, K> {
    /// What is left of each run that has something.
    runs: Vec<&'a [K]>,
    /// Samples of a portion, unless more are equal.
    portion: usize,
    /// The weight that counts as one, where samples have weights.
    unit: f64,
    /// What is in order.
    ready: Flatten<IntoIter<Vec<Tied>>>,
}

impl<'a, K: Key> Merged<'a, K> {
    /// Of ranks whose runs are sorted.
    pub fn new(ranks: impl Iterator<Item = &'a Runs<K>>) -> Self
    where
        K: 'a,
    {
        let (runs, ready) = (ranks.flat_map(Runs::sorted).collect(), Vec::new().into_iter().flatten());
        Self { runs, portion: PORTION, unit: 1.0, ready }
    }

    /// The same, where weights are counted in this unit.
    pub fn in_units(self, unit: f64) -> Self {
        Self { unit, ..self }
    }

    /// Brings the next portions in order; false at the end.
    fn refill(&mut self) -> bool {
        let (runs, unit, left) = (&self.runs, self.unit, self.runs.iter().map(|run| run.len()).sum::<usize>());
        if left == 0 {
            return false;
        }
        let portions = rayon::current_num_threads().min(left.div_ceil(self.portion));
        let together = left.min(portions * self.portion);
        let bounds: Vec<u64> =
            (1..=portions).into_par_iter().map(|portion| bound(runs, together * portion / portions)).collect();
        let from = |portion: usize| if portion == 0 { 0 } else { bounds[portion - 1] };
        let of = |portion: usize| {
            let bounds = [from(portion), bounds[portion]];
            let parts = runs.iter().map(|run| {
                let [start, end] = bounds.map(|bound| below(run, bound));
                &run[start..end]
            });
            in_order(parts, unit)
        };
        let ready: Vec<Vec<Tied>> = (0..portions).into_par_iter().map(of).collect();
        let end = from(portions);
        self.runs.iter_mut().for_each(|run| *run = &run[below(run, end)..]);
        self.runs.retain(|run| !run.is_empty());
        self.ready = ready.into_iter().flatten();
        true
    }
}

impl<K: Key> Iterator for Merged<'_, K> {
    type Item = Tied;

    fn next(&mut self) -> Option<Tied> {
        loop {
            if let Some(tied) = self.ready.next() {
                return Some(tied);
            }
            if !self.refill() {
                return None;
            }
        }
    }
}

/// A sample's score and group: its key without the label.
fn score_of<K: Key>(key: K) -> u64 {
    key.word() >> 1
}

/// How many samples of a run have a lower score.
fn below<K: Key>(run: &[K], score: u64) -> usize {
    run.partition_point(|key| score_of(*key) < score)
}

/// The least score below which so many samples lie, or more where some are equal.
fn bound<K: Key>(runs: &[&[K]], samples: usize) -> u64 {
    let highest = runs.iter().filter_map(|run| run.last()).map(|key| score_of(*key)).max();
    let (mut low, mut high) = (0, highest.map_or(0, |score| score + 1));
    while low < high {
        let middle = u64::midpoint(low, high);
        if runs.iter().map(|run| below(run, middle)).sum::<usize>() < samples {
            low = middle + 1
        } else {
            high = middle
        }
    }
    low
}

/// The samples of parts of runs, lowest score first.
fn in_order<'a, K: Key + 'a>(parts: impl Iterator<Item = &'a [K]>, unit: f64) -> Vec<Tied> {
    let mut counted: Vec<(K, u64)> = Vec::new();
    for part in parts {
        counted.extend(part.chunk_by(|a, b| a == b).map(|equal| (equal[0], equal.len() as u64)));
    }
    counted.sort_unstable_by_key(|(key, _)| *key);
    let tied = counted.chunk_by(|(a, _), (b, _)| score_of(*a) == score_of(*b)).map(|equal| {
        let mut tied = Tied { score: score_of(equal[0].0), clicks: 0, others: 0, samples: 0 };
        for (key, count) in equal {
            *(if key.word() & 1 == 1 { &mut tied.clicks } else { &mut tied.others }) += count * key.units(unit);
            tied.samples += count;
        }
        tied
    });
    tied.collect()
}

/// Gives `each` the samples of all machines, lowest first: the same on all of them. `exchange` gathers what every
/// machine gives, by machine; this one is number `machine`.
///
/// Each of them gives as much of its stream as fills its queue of `piece` scores, which all keep of all. A queue that
/// runs empty is filled before anything behind its last score is passed on.
///
/// # Errors
/// What `exchange` says.
fn merge(
    mut own: impl Iterator<Item = Tied>,
    (machine, machines, piece): (usize, usize, usize),
    mut exchange: impl FnMut(Vec<Tied>) -> Result<Vec<Vec<Tied>>>,
    mut each: impl FnMut(Tied),
) -> Result<()> {
    let mut queues: Vec<VecDeque<Tied>> = vec![VecDeque::new(); machines];
    let mut ended = vec![false; machines];
    while !ended.iter().all(|ended| *ended) {
        let wanted = piece - queues[machine].len();
        let given = exchange(own.by_ref().take(wanted).collect())?;
        for ((queue, ended), given) in queues.iter_mut().zip(&mut ended).zip(given) {
            *ended |= given.len() < piece - queue.len();
            queue.extend(given);
        }
        let certain =
            |queues: &[VecDeque<Tied>]| queues.iter().zip(&ended).all(|(queue, ended)| *ended || !queue.is_empty());
        while certain(&queues) {
            let Some(lowest) = queues.iter().filter_map(|queue| queue.front()).map(|tied| tied.score).min() else {
                break;
            };
            let mut tied = Tied { score: lowest, clicks: 0, others: 0, samples: 0 };
            for queue in &mut queues {
                if queue.front().is_some_and(|own| own.score == lowest)
                    && let Some(own) = queue.pop_front()
                {
                    tied.clicks += own.clicks;
                    tied.others += own.others;
                    tied.samples += own.samples;
                }
            }
            each(tied);
        }
    }
    Ok(())
}

/// As [`merge`], in pieces that fit.
///
/// # Errors
/// As [`merge`].
pub fn merge_machines(
    own: impl Iterator<Item = Tied>,
    machine: usize,
    machines: usize,
    exchange: impl FnMut(Vec<Tied>) -> Result<Vec<Vec<Tied>>>,
    each: impl FnMut(Tied),
) -> Result<()> {
    if machines == 1 {
        own.for_each(each);
        return Ok(());
    }
    merge(own, (machine, machines, PIECE), exchange, each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::{Random, Stream};
    use std::sync::{Barrier, Mutex};

    /// Samples with many ties, by rank.
    fn samples(ranks: usize, levels: u64) -> Vec<Vec<u32>> {
        let random = Random::new(5, Stream::Column(levels as u32));
        let mut ranks = vec![Vec::new(); ranks];
        for i in 0..3000u64 {
            let probability = random.below(i, levels) as f32 / levels as f32;
            // Some ranks have no low scores, and one has very few samples.
            let rank = (random.below(10_000 + i, 97) as usize * (1 + i as usize % 2)) % ranks.len();
            let rank = if probability < 0.3 { rank / 2 } else { rank };
            ranks[rank].push(key(probability, random.uniform(20_000 + i) < 0.3).unwrap());
        }
        ranks
    }

    /// The definition: all at once.
    fn counted(ranks: &[Vec<u32>]) -> Vec<Tied> {
        let mut all = ranks.concat();
        all.sort_unstable();
        let tied = all.chunk_by(|a, b| a >> 1 == b >> 1).map(|tied| {
            let clicks = tied.iter().filter(|key| **key & 1 == 1).count() as u64;
            let samples = tied.len() as u64;
            Tied { score: u64::from(tied[0] >> 1), clicks, others: samples - clicks, samples }
        });
        tied.collect()
    }

    fn runs(keys: &[u32], team: &Team) -> Runs<u32> {
        let mut runs = Runs::default();
        keys.iter().for_each(|key| runs.push(*key));
        runs.sort_by(team);
        // As many threads would have it.
        runs.length = runs.length.min(keys.len().div_ceil(3).max(1));
        runs.keys.chunks_mut(runs.length).for_each(<[u32]>::sort_unstable);
        runs
    }

    #[test]
    fn runs_are_merged_into_the_stream_of_all() {
        let team = Team::new(2).unwrap();
        for (ranks, levels) in [(1, 1), (1, 40), (3, 700), (5, 1 << 20)] {
            let keys = samples(ranks, levels);
            let of_ranks: Vec<_> = keys.iter().map(|keys| runs(keys, &team)).collect();
            for portion in [1, 7, 500, PORTION] {
                let merged = Merged { portion, ..Merged::new(of_ranks.iter()) };
                let name = format!("{ranks} ranks, {levels} levels, {portion} at a time");
                assert!(merged.collect::<Vec<_>>() == counted(&keys), "{name}");
            }
        }
        assert_eq!(Merged::new(std::iter::once(&Runs::<u32>::default())).next(), None);
    }

    #[test]
    fn machines_get_the_same_stream_whatever_they_hold_and_however_little_at_a_time() {
        let team = Team::new(1).unwrap();
        for (machines, levels, piece) in [(2, 40, 1), (3, 700, 7), (5, 1 << 20, 64), (4, 9, 1 << 15)] {
            let keys = samples(machines, levels);
            let expected = counted(&keys);
            let (table, barrier) = (Mutex::new(vec![Vec::new(); machines]), Barrier::new(machines));
            let most = Mutex::new(0);
            std::thread::scope(|scope| {
                for machine in 0..machines {
                    let (table, barrier, most, expected, keys, team) =
                        (&table, &barrier, &most, &expected, &keys[machine], &team);
                    let runs = runs(keys, team);
                    scope.spawn(move || {
                        let exchange = |own: Vec<Tied>| {
                            let mut longest = most.lock().unwrap();
                            *longest = own.len().max(*longest);
                            drop(longest);
                            table.lock().unwrap()[machine] = own;
                            barrier.wait();
                            let all = table.lock().unwrap().clone();
                            barrier.wait();
                            Ok(all)
                        };
                        let mut found = Vec::new();
                        let own = Merged::new(std::iter::once(&runs));
                        merge(own, (machine, machines, piece), exchange, |tied| found.push(tied)).unwrap();
                        assert!(found == *expected, "{machines} machines, {levels} levels, {piece} at a time");
                    });
                }
            });
            assert!(*most.lock().unwrap() <= piece, "no more than a piece travels");
        }
    }

    #[test]
    fn weights_count_in_units_and_samples_beside_them() {
        for sum in [1e-30, 0.75, 1.0, 3.0, 1e18] {
            let unit = unit_of(sum);
            assert!(sum / unit < 2f64.powi(62) && sum / unit >= 2f64.powi(61), "{sum}: {unit}");
        }
        let team = Team::new(1).unwrap();
        let mut runs: [Runs<u128>; 2] = Default::default();
        let of = |weight: f32, click| weighed(u64::from(key(0.5, click).unwrap()), weight);
        [of(0.5, true), of(0.0, false), of(3.0, false)].into_iter().for_each(|key| runs[0].push(key));
        [of(0.5, true), of(-0.0, false), of(1.25, false)].into_iter().for_each(|key| runs[1].push(key));
        runs.iter_mut().for_each(|runs| runs.sort_by(&team));
        let tied: Vec<_> = Merged::new(runs.iter()).in_units(0.25).collect();
        assert_eq!(tied.len(), 1);
        assert_eq!((tied[0].clicks, tied[0].others, tied[0].samples, tied[0].probability()), (4, 17, 6, 0.5));
        assert_eq!([runs[0].units(0.25), runs[1].units(0.25)], [[2, 14], [2, 7]]);
    }

    #[test]
    fn keys_keep_what_they_are_of() {
        for probability in [0.0, -0.0, f32::from_bits(1), 0.25, 1.0 - f32::EPSILON, 1.0] {
            let key = key(probability, true).unwrap();
            let mut runs = Runs::default();
            runs.push(grouped(u32::MAX, key));
            runs.sort_by(&Team::new(1).unwrap());
            let tied = Merged::new(std::iter::once(&runs)).next().unwrap();
            assert_eq!((tied.probability(), tied.group(), tied.clicks, tied.others), (probability, u32::MAX, 1, 0));
        }
        assert_eq!([f32::NAN, 1.5, -0.1].map(|probability| key(probability, false)), [None; 3]);
    }
}
