//! Which gradient a look-up feeds to its row: straight from its bag's, or from gradient rows that a backward pass
//! wrote.
//!
//! The gradient of a look-up is `factor * gradient of its bag`, where the factor is the look-up's weight, divided by
//! the bag's length under mean pooling; the product is rounded. Both ways give these same bits.

use super::{Slots, Source};
use crate::base::config::Pooling;
use crate::data::BagView;

/// One table's gradients of one source, by look-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct GradientSource<'a> {
    data: &'a [f32],
    row: usize,
    first: usize,
    positions: usize,
    step: usize,
    dim: usize,
    bag: BagView<'a>,
    weights: Option<&'a [f32]>,
    kind: Kind,
    /// Tokens of the sources before.
    before: u32,
}

/// One table's gradients of all sources.
#[derive(Debug, Clone, Copy)]
pub(super) struct GradientSources<'a>(pub &'a [GradientSource<'a>]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One gradient a look-up, ready.
    Rows,
    /// One gradient a sample, the factor is 1. A look-up's token is its sample.
    Samples,
    /// One gradient a sample, the factor depends on the sample alone.
    Means,
    /// One gradient a sample, the factor depends on the look-up.
    Weighted(Pooling),
}

impl<'a> GradientSource<'a> {
    /// From the gradients of the bags of a table; `before` says how many tokens the sources before have.
    pub(super) fn fused(source: &Source<'a>, table: usize, [dim, before]: [usize; 2], pooling: Pooling) -> Self {
        let Source { lookups, gradient: data, slots } = *source;
        let (bag, weights) = (lookups.bag(table), lookups.weights(table));
        let kind = match (weights, pooling) {
            (Some(_), pooling) => Kind::Weighted(pooling),
            (None, Pooling::Sum) => Kind::Samples,
            (None, Pooling::Mean) => Kind::Means,
        };
        assert_eq!(bag.look_ups(), bag.rows.len(), "the bags of all samples");
        let before = u32::try_from(before).expect("a minibatch has fewer than 2^32 look-ups");
        let Slots { row, starts, positions, step } = slots;
        Self { data, row, first: starts[table], positions, step, dim, bag, weights, kind, before }
    }

    /// From gradient rows, one a look-up, instead.
    pub(super) const fn of_rows(self, data: &'a [f32], before: u32) -> Self {
        Self { data, row: self.dim, first: 0, positions: 1, weights: None, kind: Kind::Rows, before, ..self }
    }

    /// The look-ups.
    pub(super) const fn bag(&self) -> BagView<'a> {
        self.bag
    }

    /// How many tokens there are.
    pub(super) fn tokens(&self) -> usize {
        match self.kind {
            Kind::Rows | Kind::Weighted(_) => self.bag.rows.len(),
            Kind::Samples | Kind::Means => self.bag.samples(),
        }
    }

    /// The gradient of the look-up at `position`, in the bag of `sample`, and its factor.
    #[inline(always)]
    pub(super) fn at(&self, sample: usize, position: usize) -> (&'a [f32], f32) {
        match self.kind {
            Kind::Rows => (self.vector(position), 1.0),
            Kind::Samples => (self.vector(sample), 1.0),
            Kind::Means => (self.vector(sample), share(self.bag, sample)),
            Kind::Weighted(pooling) => {
                let weight = self.weights.map_or(1.0, |weights| weights[position]);
                let factor = if pooling == Pooling::Mean { weight * share(self.bag, sample) } else { weight };
                (self.vector(sample), factor)
            }
        }
    }

    /// What [`GradientSources::of`] needs to know of a look-up.
    #[inline(always)]
    pub(super) const fn token(&self, sample: usize, position: usize) -> u32 {
        let own = match self.kind {
            Kind::Rows | Kind::Weighted(_) => position,
            Kind::Samples | Kind::Means => sample,
        };
        self.before + own as u32
    }

    /// As [`GradientSource::at`], by what is left of a token without those before.
    #[inline(always)]
    fn of(&self, token: u32) -> (&'a [f32], f32) {
        match self.kind {
            Kind::Rows | Kind::Samples | Kind::Means => self.at(token as usize, token as usize),
            Kind::Weighted(_) => self.at(sample_of(self.bag, token as usize), token as usize),
        }
    }

    #[inline(always)]
    fn vector(&self, index: usize) -> &'a [f32] {
        let start = match self.positions {
            1 => index * self.row,
            positions => index / positions * self.row + index % positions * self.step,
        };
        &self.data[start + self.first..][..self.dim]
    }
}

impl<'a> GradientSources<'a> {
    /// As [`GradientSource::at`], by token.
    #[inline(always)]
    pub(super) fn of(&self, token: u32) -> (&'a [f32], f32) {
        let source = match self.0 {
            [only] => only,
            many => &many[many.partition_point(|source| source.before <= token) - 1],
        };
        source.of(token - source.before)
    }
}

/// A look-up's part of its bag under mean pooling.
#[inline(always)]
pub(super) fn share(bag: BagView<'_>, sample: usize) -> f32 {
    1.0 / (bag.offsets[sample + 1] - bag.offsets[sample]) as f32
}

/// The sample whose bag has the look-up at `position`; the last one for positions behind all.
#[inline]
pub(super) fn sample_of(bag: BagView<'_>, position: usize) -> usize {
    bag.offsets.partition_point(|&offset| offset as usize <= position).min(bag.samples()).saturating_sub(1)
}
