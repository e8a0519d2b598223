//! Rows in halves: of the lower ones all 16 bits are kept, or 8.

use super::{Form, Seen};
use crate::simd::Simd;
use crate::simd::split::{join, shorten, split};

/// Upper halves, then lower halves.
#[derive(Debug, Clone, Copy)]
pub(in crate::embedding) struct Split;

/// Upper halves, then the upper bytes of the lower halves, then what fills a word.
#[derive(Debug, Clone, Copy)]
pub(in crate::embedding) struct Short;

/// Two parts of the same columns.
#[derive(Debug)]
pub(in crate::embedding) struct SplitColumns<'a, L> {
    high: &'a mut [u16],
    low: &'a mut [L],
}

/// The upper halves of some columns of a split row.
#[inline(always)]
fn high(row: &[u32], first: usize, count: usize) -> &[u16] {
    &bytemuck::cast_slice(row)[first..][..count]
}

/// Up to 16 elements, the rest 0.
#[inline(always)]
fn padded(from: &[u16]) -> [u16; 16] {
    let mut whole = [0; 16];
    whole[..from.len()].copy_from_slice(from);
    whole
}

/// Lower bytes where they belong in lower halves.
#[inline(always)]
fn raised(from: &[u8]) -> [u16; 16] {
    let mut low = [0; 16];
    low.iter_mut().zip(from).for_each(|(low, &byte)| *low = u16::from(byte) << 8);
    low
}

/// A form whose rows begin with the upper halves: a look-up reads these alone, however much is kept of the lower ones.
trait UpperFirst: Copy + Send + Sync {}

impl UpperFirst for Split {}

impl UpperFirst for Short {}

impl<F: UpperFirst> Seen for F {
    type Columns<'a> = &'a [u16];

    #[inline(always)]
    fn seen_words(dim: usize) -> usize {
        dim.div_ceil(2)
    }

    #[inline(always)]
    fn seen(self, row: &[u32], _dim: usize, first: usize, count: usize) -> &[u16] {
        high(row, first, count)
    }

    #[inline(always)]
    fn see<S: Simd>(simd: S, from: &[u16], at: usize) -> S::V {
        simd.widen(&from[at..])
    }

    #[inline(always)]
    fn see_partial<S: Simd>(simd: S, from: &[u16]) -> S::V {
        simd.widen(&padded(from))
    }
}

impl Form for Split {
    type All<'a> = SplitColumns<'a, u16>;

    #[inline(always)]
    fn words(dim: usize) -> usize {
        dim
    }

    #[inline(always)]
    fn all(self, row: &mut [u32], dim: usize, first: usize, count: usize) -> SplitColumns<'_, u16> {
        let (high, low) = bytemuck::cast_slice_mut(row).split_at_mut(dim);
        SplitColumns { high: &mut high[first..][..count], low: &mut low[first..][..count] }
    }

    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &SplitColumns<'_, u16>, at: usize) -> S::V {
        simd.join(&from.high[at..], &from.low[at..])
    }

    #[inline(always)]
    fn load_partial<S: Simd>(simd: S, from: &SplitColumns<'_, u16>) -> S::V {
        simd.join(&padded(from.high), &padded(from.low))
    }

    #[inline(always)]
    fn keep<S: Simd>(_simd: S, v: S::V) -> S::V {
        v
    }

    #[inline(always)]
    fn store<S: Simd>(simd: S, v: S::V, to: &mut SplitColumns<'_, u16>, at: usize) {
        simd.split(v, &mut to.high[at..], &mut to.low[at..]);
    }

    #[inline(always)]
    fn store_partial<S: Simd>(simd: S, v: S::V, to: &mut SplitColumns<'_, u16>) {
        let (mut high, mut low) = ([0; 16], [0; 16]);
        simd.split(v, &mut high, &mut low);
        let count = to.high.len();
        to.high.copy_from_slice(&high[..count]);
        to.low.copy_from_slice(&low[..count]);
    }

    fn get(row: &[u32], dim: usize, column: usize) -> f32 {
        let halves: &[u16] = bytemuck::cast_slice(row);
        join(halves[column], halves[dim + column])
    }

    fn set(row: &mut [u32], dim: usize, column: usize, x: f32) {
        let halves: &mut [u16] = bytemuck::cast_slice_mut(row);
        (halves[column], halves[dim + column]) = split(x);
    }
}

impl Form for Short {
    type All<'a> = SplitColumns<'a, u8>;

    #[inline(always)]
    fn words(dim: usize) -> usize {
        (3 * dim).div_ceil(4)
    }

    #[inline(always)]
    fn all(self, row: &mut [u32], dim: usize, first: usize, count: usize) -> SplitColumns<'_, u8> {
        let (high, low) = bytemuck::cast_slice_mut(row).split_at_mut(dim);
        let low: &mut [u8] = bytemuck::cast_slice_mut::<u16, u8>(low);
        SplitColumns { high: &mut high[first..][..count], low: &mut low[first..][..count] }
    }

    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &SplitColumns<'_, u8>, at: usize) -> S::V {
        simd.join(&from.high[at..], &raised(&from.low[at..][..S::LANES]))
    }

    #[inline(always)]
    fn load_partial<S: Simd>(simd: S, from: &SplitColumns<'_, u8>) -> S::V {
        simd.join(&padded(from.high), &raised(from.low))
    }

    #[inline(always)]
    fn keep<S: Simd>(simd: S, v: S::V) -> S::V {
        simd.shorten(v)
    }

    #[inline(always)]
    fn store<S: Simd>(simd: S, v: S::V, to: &mut SplitColumns<'_, u8>, at: usize) {
        let mut low = [0; 16];
        simd.split(v, &mut to.high[at..], &mut low);
        to.low[at..][..S::LANES].iter_mut().zip(low).for_each(|(to, low)| *to = (low >> 8) as u8);
    }

    #[inline(always)]
    fn store_partial<S: Simd>(simd: S, v: S::V, to: &mut SplitColumns<'_, u8>) {
        let (mut high, mut low) = ([0; 16], [0; 16]);
        simd.split(v, &mut high, &mut low);
        to.high.copy_from_slice(&high[..to.high.len()]);
        to.low.iter_mut().zip(low).for_each(|(to, low)| *to = (low >> 8) as u8);
    }

    fn get(row: &[u32], dim: usize, column: usize) -> f32 {
        let (high, low) = bytemuck::cast_slice::<u32, u16>(row).split_at(dim);
        join(high[column], u16::from(bytemuck::cast_slice::<u16, u8>(low)[column]) << 8)
    }

    fn set(row: &mut [u32], dim: usize, column: usize, x: f32) {
        let parts = Self.all(row, dim, column, 1);
        let (high, low) = split(shorten(x));
        (parts.high[0], parts.low[0]) = (high, (low >> 8) as u8);
    }
}
