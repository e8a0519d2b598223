//! A layer's weights: 32-bit floats, or the two halves of them (SC20, Section VII).

use std::ops::Range;

use crate::base::Result;
use crate::base::config::Precision;
use crate::math::brgemm::{Panels, WIDTH};
use crate::memory::Supply;
use crate::optim::Low;

/// A matrix of weights, inputs x outputs.
#[derive(Debug)]
pub(super) enum Weight {
    /// As they are.
    Whole(Panels<f32>),
    /// Upper and lower halves.
    Split(Halves<u32>),
    /// Upper halves and the upper bytes of the lower ones.
    Short(Halves<u16>),
}

/// Weights in parts, each row with two rows of weights.
#[derive(Debug)]
pub(super) struct Halves<L> {
    /// What forward and backward multiply with.
    pub(super) high: Panels<u32>,
    /// What only the update reads.
    pub(super) low: Panels<L>,
    pub(super) inputs: usize,
}

impl<L: Low> Halves<L> {
    fn new(inputs: usize, outputs: usize, supply: &mut Supply<'_>) -> Result<Self> {
        let high = Panels::supplied("weight", inputs.div_ceil(2), outputs, supply)?;
        Ok(Self { high, low: Panels::supplied("weight, lower halves", inputs.div_ceil(2), outputs, supply)?, inputs })
    }

    /// The weight of input `i` and output `k`.
    fn get(&self, i: usize, k: usize) -> f32 {
        let (panel, pair, lane) = (k / WIDTH, i / 2, k % WIDTH);
        self.low.panel(panel)[pair][lane].join(self.high.panel(panel)[pair][lane])[i % 2]
    }

    /// Overwrites the weight of input `i` and output `k` with what can be kept of `x`.
    fn set(&mut self, i: usize, k: usize, x: f32) {
        let (panel, pair, lane) = (k / WIDTH, i / 2, k % WIDTH);
        let (high, low) = (&mut self.high.panel_mut(panel)[pair][lane], &mut self.low.panel_mut(panel)[pair][lane]);
        let mut weights = low.join(*high);
        weights[i % 2] = x;
        (*high, *low) = L::split(weights);
    }
}

impl Weight {
    /// Zeros.
    pub(super) fn new(inputs: usize, outputs: usize, precision: Precision, supply: &mut Supply<'_>) -> Result<Self> {
        Ok(match precision {
            Precision::F32 => Self::Whole(Panels::supplied("weight", inputs, outputs, supply)?),
            Precision::Bf16 => Self::Split(Halves::new(inputs, outputs, supply)?),
            Precision::Bf16Lsb8 => Self::Short(Halves::new(inputs, outputs, supply)?),
        })
    }

    /// The exact weights of some outputs, outputs x inputs, row-major.
    pub(super) fn export(&self, inputs: usize, outputs: Range<usize>) -> Vec<f32> {
        export(inputs, outputs, |i, k| self.get(i, k))
    }

    fn get(&self, i: usize, k: usize) -> f32 {
        match self {
            Self::Whole(weight) => weight.panel(k / WIDTH)[i][k % WIDTH],
            Self::Split(halves) => halves.get(i, k),
            Self::Short(halves) => halves.get(i, k),
        }
    }

    /// The reverse of [`Weight::export`], up to what the precision can hold.
    pub(super) fn import(&mut self, inputs: usize, outputs: Range<usize>, rows: &[f32]) {
        import(inputs, outputs, rows, |i, k, x| match self {
            Self::Whole(weight) => weight.panel_mut(k / WIDTH)[i][k % WIDTH] = x,
            Self::Split(halves) => halves.set(i, k, x),
            Self::Short(halves) => halves.set(i, k, x),
        });
    }

    /// The upper halves in pairs of rows, which a pass on bfloat16 multiplies with.
    ///
    /// # Panics
    /// When the weights are whole.
    pub(super) fn high(&self) -> &Panels<u32> {
        match self {
            Self::Whole(_) => unreachable!("a chain's weights and activations have one precision"),
            Self::Split(halves) => &halves.high,
            Self::Short(halves) => &halves.high,
        }
    }
}

/// A number of each input and some outputs, by input and output; outputs x inputs, row-major.
pub(super) fn export(inputs: usize, outputs: Range<usize>, get: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    outputs.flat_map(|k| (0..inputs).map(move |i| (i, k))).map(|(i, k)| get(i, k)).collect()
}

/// The reverse of [`export`].
pub(super) fn import(inputs: usize, outputs: Range<usize>, rows: &[f32], mut set: impl FnMut(usize, usize, f32)) {
    assert_eq!(rows.len(), inputs * outputs.len(), "outputs x inputs");
    // A layer without inputs has no numbers.
    for (k, row) in outputs.zip(rows.chunks_exact(inputs.max(1))) {
        row.iter().enumerate().for_each(|(i, &x)| set(i, k, x));
    }
}
