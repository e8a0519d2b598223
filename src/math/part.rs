//! Parts of a minibatch: the samples that walk through a network at a time, forward and back.
//!
//! What a part leaves between its layers is small enough to stay in the caches, and all parts use the same memory, so a
//! minibatch of any size takes no more of it than one part. Gradients of weights go on from part to part in the order
//! of samples, in chains that are counted from the first of the slice: they have the bits of the whole minibatch's,
//! however it is parted.

use std::ops::Range;

use super::brgemm::{Onto, TOGETHER};
use super::grains::{Leaf, Share};

/// Bytes of caches that a thread has for what a part leaves between the layers: a core's second level and half of its
/// share of the third, on servers whose third level is large. On two cores of a Zen 4 server that share 32 MiB, steps
/// of time series (`rmc1`, f32, whose layers are narrow, so that memory is all that they wait for) took 9.6 ms in parts
/// of 8 MiB a thread, and 13.0 in parts of 16.
const CACHE_BYTES: usize = 8 << 20;

/// Fewest rows of a part a thread, whatever they leave: smaller products have shorter sums and more meetings of
/// threads. On two cores of a Zen 5 server, steps of 32,768 samples (`kaggle`, bf16) took 282 to 298 ms in parts of
/// 1024 a thread, 301 to 315 in parts of half that, 325 in parts of a quarter, and 293 to 347 whole.
const FEW_ROWS: usize = 1024;

/// Samples whose terms gradients of weights sum in one chain at most; such sums are then added. In longer chains a sum
/// grows so far beyond its terms that much of these is rounded away. A multiple of [`TOGETHER`].
pub const CHAIN: usize = 4096;

/// Samples of a part, of each of which so many bytes lie between the layers, in so many rows, for a team of `threads`.
#[must_use]
pub fn part_for([sample_bytes, rows]: [usize; 2], threads: usize) -> usize {
    threads * (CACHE_BYTES / sample_bytes.max(1)).max(FEW_ROWS / rows.max(1)).next_multiple_of(TOGETHER)
}

/// How a rank's slice of a minibatch is parted.
#[derive(Debug)]
pub struct Parts {
    /// Samples of a part at most, unless a grain has more.
    most: usize,
    /// Where sums are made by grains.
    share: Option<Share>,
    leaves: Vec<Leaf>,
    parts: Vec<Cut>,
}

#[derive(Debug, Clone)]
struct Cut {
    samples: Range<usize>,
    leaves: Range<usize>,
}

/// One part of a rank's slice.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    /// Its samples, counted from the first of the slice.
    pub samples: Range<usize>,
    /// The grains of the whole slice, by which gradients of weights are summed; none: in chains of [`CHAIN`] samples.
    pub leaves: &'a [Leaf],
    /// Those of this part.
    pub own_leaves: Range<usize>,
    /// Whether no other follows.
    pub is_last: bool,
    /// Rows of matrices that a sample has: one, or one for each step of a time series.
    pub rows: usize,
}

/// What one part has of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The rows, among the part's.
    pub rows: Range<usize>,
    /// The number of the chain in the slice.
    pub number: usize,
    /// Whether it begins here, or goes on from the part before.
    pub onto: Onto,
    /// Whether it ends here.
    pub ends: bool,
}

impl Parts {
    /// Of at most `most` samples, in whole blocks of [`TOGETHER`] samples, or of whole grains.
    #[must_use]
    pub fn new(most: usize, share: Option<Share>) -> Self {
        Self { most: most.max(1).next_multiple_of(TOGETHER), share, leaves: Vec::new(), parts: Vec::new() }
    }

    /// Samples that one part has room for when slices have up to `samples`, of minibatches of up to `whole`.
    pub fn room(&mut self, samples: usize, whole: usize) -> usize {
        self.cut(samples, whole);
        let longest = self.parts.iter().map(|part| part.samples.len()).max();
        // Grains of smaller minibatches are smaller, but more of them may fit a part.
        longest.unwrap_or(0).max(self.most.min(samples)).max(1)
    }

    /// Parts a slice of `samples`, of a minibatch of `whole`.
    pub fn cut(&mut self, samples: usize, whole: usize) {
        let Self { most, share, leaves, parts } = self;
        leaves.clear();
        parts.clear();
        if let Some(share) = share {
            leaves.extend(share.leaves(whole));
        }
        if leaves.is_empty() {
            // Parts longer than a chain are whole chains, so that passes over these are of one length.
            let unit = if *most < CHAIN { TOGETHER } else { CHAIN };
            let count = samples.div_ceil(*most / unit * unit).max(1);
            let each = samples.div_ceil(count).next_multiple_of(unit);
            parts.extend((0..count).map(|index| Cut {
                samples: (index * each).min(samples)..((index + 1) * each).min(samples),
                leaves: 0..0,
            }));
            return;
        }
        for (index, leaf) in leaves.iter().enumerate() {
            match parts.last_mut() {
                Some(part) if leaf.samples.end - part.samples.start <= *most => {
                    part.samples.end = leaf.samples.end;
                    part.leaves.end = index + 1;
                }
                _ => parts.push(Cut { samples: leaf.samples.clone(), leaves: index..index + 1 }),
            }
        }
    }

    /// How many parts the slice has: at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.parts.len()
    }

    /// Part number `index`.
    ///
    /// # Panics
    /// When there is no such part.
    #[must_use]
    pub fn part(&self, index: usize) -> Part<'_> {
        let Cut { samples, leaves } = self.parts[index].clone();
        Part { samples, leaves: &self.leaves, own_leaves: leaves, is_last: index + 1 == self.parts.len(), rows: 1 }
    }
}

impl Part<'_> {
    /// A whole slice of `samples`, summed without grains.
    #[must_use]
    pub const fn whole(samples: usize) -> Part<'static> {
        Part { samples: 0..samples, leaves: &[], own_leaves: 0..0, is_last: true, rows: 1 }
    }

    /// The same samples, each with so many rows.
    #[must_use]
    pub fn with_rows(&self, rows: usize) -> Self {
        Self { rows, ..self.clone() }
    }

    /// The chains in which it is summed where there are no grains: at least one.
    pub fn chains(&self) -> impl Iterator<Item = Chain> {
        let (Range { start, end }, rows, is_last) = (self.samples.clone(), self.rows, self.is_last);
        (start / CHAIN..end.div_ceil(CHAIN).max(start / CHAIN + 1)).map(move |number| {
            let (first, next) = (number * CHAIN, (number + 1) * CHAIN);
            let (from, to) = (start.max(first), end.min(next));
            let onto = if from == first { Onto::Zero } else { Onto::Result };
            Chain { rows: (from - start) * rows..(to - start) * rows, number, onto, ends: is_last || to == next }
        })
    }

    /// How many rows of matrices it has: as many as samples, unless each has several.
    #[must_use]
    pub fn len(&self) -> usize {
        self.samples.len() * self.rows
    }

    /// Whether it has no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::Grains;

    fn list(parts: &Parts) -> Vec<Part<'_>> {
        (0..parts.count()).map(|index| parts.part(index)).collect()
    }

    fn check(parts: &Parts, samples: usize, room: usize) {
        let all = list(parts);
        let (mut next, mut leaf) = (0, 0);
        for (index, part) in all.iter().enumerate() {
            assert_eq!((part.samples.start, part.own_leaves.start), (next, leaf), "{all:?}");
            assert_eq!(part.is_last, index + 1 == all.len());
            assert!(part.len() <= room, "room for {room}: {all:?}");
            assert!(part.own_leaves.clone().all(|leaf| {
                let leaf = &part.leaves[leaf].samples;
                part.samples.start <= leaf.start && leaf.end <= part.samples.end
            }));
            (next, leaf) = (part.samples.end, part.own_leaves.end);
        }
        assert_eq!((next, leaf), (samples, all[0].leaves.len()), "{all:?}");
    }

    #[test]
    fn parts_are_equal_blocks_of_the_slice() {
        for most in [1, 64, 100, 512, 5000] {
            let mut parts = Parts::new(most, None);
            let room = parts.room(1500, 3000);
            assert!(room <= most.next_multiple_of(TOGETHER));
            for samples in [0, 1, 63, 64, 65, 700, 1025, 1500] {
                parts.cut(samples, 2 * samples);
                check(&parts, samples, room);
                let (last, others) =
                    list(&parts).split_last().map(|(last, others)| (last.len(), others.to_vec())).unwrap();
                assert!(others.iter().all(|part| part.len().is_multiple_of(TOGETHER) && part.len() >= last));
            }
        }
        let mut parts = Parts::new(1024, None);
        parts.cut(1025, 1025);
        assert_eq!(list(&parts).iter().map(Part::len).collect::<Vec<_>>(), [576, 449], "no tail of one sample");
    }

    #[test]
    fn chains_do_not_depend_on_parts() {
        for most in [64, 4096, 4160, 9000, 20_000] {
            let mut parts = Parts::new(most, None);
            parts.cut(10_000, 10_000);
            let mut found = Vec::<Range<usize>>::new();
            for part in list(&parts) {
                assert!(most < CHAIN || part.samples.start.is_multiple_of(CHAIN), "parts of {most} are whole chains");
                for Chain { rows, number, onto, ends } in part.with_rows(3).chains() {
                    let samples = part.samples.start + rows.start / 3..part.samples.start + rows.end / 3;
                    match onto {
                        Onto::Zero => found.push(samples),
                        Onto::Result => found[number].end = samples.end,
                    }
                    assert_eq!(number + 1, found.len(), "parts of {most}");
                    assert_eq!(ends, [4096, 8192, 10_000].contains(&found[number].end), "parts of {most}");
                }
            }
            assert_eq!(found, [0..4096, 4096..8192, 8192..10_000], "parts of {most}");
        }
        let empty = Chain { rows: 0..0, number: 0, onto: Onto::Zero, ends: true };
        assert_eq!(Part::whole(0).chains().collect::<Vec<_>>(), [empty], "whose sums are 0");
    }

    #[test]
    fn grains_are_never_parted() {
        for (ranks, rank, most) in [(1, 0, 64), (1, 0, 5000), (3, 1, 128), (3, 2, 1), (40, 1, 64), (40, 3, 64)] {
            let whole = 3000;
            let grains = Grains::of(whole);
            let samples = |whole| grains.samples(whole, &grains.share(ranks, rank)).len();
            let mut parts = Parts::new(most, Some(Share::new(grains, ranks, rank)));
            let room = parts.room(samples(whole), whole);
            for whole in [0, 1, 31, 500, 1999, 2048, 2999, 3000] {
                parts.cut(samples(whole), whole);
                check(&parts, samples(whole), room);
            }
        }
    }
}
