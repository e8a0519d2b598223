//! What an all-to-all moves: parcels, each from its owner to a rank, and where they lie before and after.
//!
//! A source is whatever its owner produces as a whole: an embedding table (its pooled rows for the samples of every
//! rank), a slice of one, a rank's ids. Its owner sends one parcel of it to every rank, itself included; sizes may
//! differ and be zero.
//!
//! In the owner's send buffer parcels lie by destination, then by source; in a rank's receive buffer by owner, then by
//! source. All that goes from one rank to another is therefore contiguous in both.

use std::ops::Range;

use crate::base::RankId;

/// One parcel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// Whose it is.
    pub from: RankId,
    /// Where it goes.
    pub to: RankId,
    /// Where it lies in its owner's send buffer, in elements.
    pub send: Range<usize>,
    /// Where it will lie in the other's receive buffer.
    pub receive: Range<usize>,
}

/// Sources with their owners and the sizes of their parcels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcels {
    owners: Vec<RankId>,
    ranks: usize,
    /// Of each source, one a rank.
    parcels: Vec<Vec<Parcel>>,
}

impl Parcels {
    /// Source i belongs to `sources[i].0` and has `sources[i].1[r]` elements for rank r.
    ///
    /// # Panics
    /// When there is no rank, an owner is none, or the sizes are not one a rank.
    #[must_use]
    pub fn new(ranks: usize, sources: &[(RankId, Vec<usize>)]) -> Self {
        assert!(ranks > 0, "parcels go to ranks");
        let mut parcels: Vec<Vec<Parcel>> = Vec::with_capacity(sources.len());
        for (owner, sizes) in sources {
            assert!(owner.index() < ranks, "{owner} of {ranks}");
            assert_eq!(sizes.len(), ranks, "one size a rank");
            let parcel = |(to, &len): (usize, &usize)| Parcel {
                from: *owner,
                to: RankId(to as u32),
                send: 0..len,
                receive: 0..len,
            };
            parcels.push(sizes.iter().enumerate().map(parcel).collect());
        }
        let (mut sent, mut received) = (vec![0; ranks], vec![0; ranks]);
        for rank in 0..ranks {
            let to_rank = parcels.iter_mut().map(|parcels| &mut parcels[rank]);
            to_rank.for_each(|parcel| place(&mut parcel.send, &mut sent[parcel.from.index()]));
            let of_rank = parcels.iter_mut().filter(|parcels| parcels[0].from.index() == rank).flatten();
            of_rank.for_each(|parcel| place(&mut parcel.receive, &mut received[parcel.to.index()]));
        }
        Self { owners: sources.iter().map(|(owner, _)| *owner).collect(), ranks, parcels }
    }

    /// `bytes` elements from every rank to every rank: one source a rank.
    #[must_use]
    pub fn uniform(ranks: usize, elements: usize) -> Self {
        let source = |rank| (RankId(rank as u32), vec![elements; ranks]);
        Self::new(ranks, &(0..ranks).map(source).collect::<Vec<_>>())
    }

    /// How many ranks there are.
    #[must_use]
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// How many sources there are.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.owners.len()
    }

    /// The parcels of one source, one a rank.
    #[must_use]
    pub fn of(&self, source: usize) -> &[Parcel] {
        &self.parcels[source]
    }

    /// All parcels.
    pub fn iter(&self) -> impl Iterator<Item = &Parcel> {
        self.parcels.iter().flatten()
    }

    /// The parcels from one rank to another, by source.
    pub fn between(&self, from: RankId, to: RankId) -> impl Iterator<Item = &Parcel> {
        self.iter().filter(move |parcel| parcel.from == from && parcel.to == to)
    }

    /// Elements of a rank's send buffer.
    #[must_use]
    pub fn send_len(&self, rank: RankId) -> usize {
        self.iter().filter(|parcel| parcel.from == rank).map(|parcel| parcel.send.end).max().unwrap_or(0)
    }

    /// Elements of a rank's receive buffer.
    #[must_use]
    pub fn receive_len(&self, rank: RankId) -> usize {
        self.iter().filter(|parcel| parcel.to == rank).map(|parcel| parcel.receive.end).max().unwrap_or(0)
    }

    /// Where a rank's transit buffer begins among the sources of hops, and where among their targets: behind its send
    /// buffer, and behind its receive buffer ([`super::Goal::AllToAll`]).
    #[must_use]
    pub fn transit_starts(&self, rank: RankId) -> [usize; 2] {
        [self.send_len(rank), self.receive_len(rank)]
    }
}

/// Puts a range of known length at `end`.
fn place(range: &mut Range<usize>, end: &mut usize) {
    *range = *end..*end + range.len();
    *end = range.end;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_lie_by_rank_and_then_by_source() {
        let sources = [(RankId(1), vec![2, 3]), (RankId(0), vec![1, 4]), (RankId(1), vec![5, 0])];
        let parcels = Parcels::new(2, &sources);
        let [first, second, third] = [0, 1, 2].map(|source| parcels.of(source));
        assert_eq!(
            (&first[0].send, &third[0].send, &first[1].send, &third[1].send),
            (&(0..2), &(2..7), &(7..10), &(10..10))
        );
        assert_eq!((&second[0].receive, &first[0].receive, &third[0].receive), (&(0..1), &(1..3), &(3..8)));
        assert_eq!([0, 1].map(|rank| parcels.send_len(RankId(rank))), [5, 10]);
        assert_eq!([0, 1].map(|rank| parcels.receive_len(RankId(rank))), [8, 7]);
    }
}
