//! Which gradient a look-up feeds to its row: straight from its bag's, or from gradient rows that a backward pass wrote.
//!
//! The gradient of a look-up is `factor * gradient of its bag`, where the factor is the look-up's weight, divided by the
//! bag's length under mean pooling; the product is rounded. Both ways give these same bits.

use super::{Lookups, Slots};
use crate::base::config::Pooling;
use crate::data::BagView;

/// One table's gradients, by look-up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Feed<'a> {
    data: &'a [f32],
    stride: usize,
    first: usize,
    dim: usize,
    bag: BagView<'a>,
    weights: Option<&'a [f32]>,
    kind: Kind,
}

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

impl<'a> Feed<'a> {
    /// From the gradients of the bags.
    pub(super) fn fused(gradient: &'a [f32], slots: Slots<'_>, dim: usize, table: usize, batch: Batch<'a>) -> Self {
        let (bag, weights) = (batch.lookups.bag(table), batch.lookups.weights(table));
        let kind = match (weights, batch.pooling) {
            (Some(_), pooling) => Kind::Weighted(pooling),
            (None, Pooling::Sum) => Kind::Samples,
            (None, Pooling::Mean) => Kind::Means,
        };
        Self { data: gradient, stride: slots.row, first: slots.starts[table], dim, bag, weights, kind }
    }

    /// From gradient rows, one a look-up.
    pub(super) const fn rows(data: &'a [f32], dim: usize, bag: BagView<'a>) -> Self {
        Self { data, stride: dim, first: 0, dim, bag, weights: None, kind: Kind::Rows }
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

    /// What [`Feed::of`] needs to know of a look-up.
    #[inline(always)]
    pub(super) const fn token(&self, sample: usize, position: usize) -> u32 {
        match self.kind {
            Kind::Rows | Kind::Weighted(_) => position as u32,
            Kind::Samples | Kind::Means => sample as u32,
        }
    }

    /// As [`Feed::at`], by token.
    #[inline(always)]
    pub(super) fn of(&self, token: u32) -> (&'a [f32], f32) {
        match self.kind {
            Kind::Rows | Kind::Samples | Kind::Means => self.at(token as usize, token as usize),
            Kind::Weighted(_) => self.at(sample_of(self.bag, token as usize), token as usize),
        }
    }

    #[inline(always)]
    fn vector(&self, index: usize) -> &'a [f32] {
        &self.data[index * self.stride + self.first..][..self.dim]
    }
}

/// The look-ups of a minibatch and how they are pooled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch<'a> {
    pub lookups: Lookups<'a>,
    pub pooling: Pooling,
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
