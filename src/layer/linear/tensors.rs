//! A layer's tensors as other programs store them: what a checkpoint has of it.

use std::ops::Range;

use super::super::weight;
use super::Linear;
use crate::math::brgemm::WIDTH;

/// One of a layer's tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerTensor {
    /// The weights, outputs x inputs.
    Weight,
    /// The bias, one element an output.
    Bias,
    /// What the optimizer keeps of each weight, by its place among
    /// [`Optimizer::moments`](crate::optim::Optimizer::moments).
    WeightMoment(usize),
    /// The same of each element of the bias.
    BiasMoment(usize),
}

impl LayerTensor {
    /// Whether the optimizer keeps it.
    #[must_use]
    pub const fn is_moment(self) -> bool {
        matches!(self, Self::WeightMoment(_) | Self::BiasMoment(_))
    }

    /// Whether it has a column for each input.
    #[must_use]
    pub const fn has_inputs(self) -> bool {
        matches!(self, Self::Weight | Self::WeightMoment(_))
    }
}

impl Linear {
    /// The rows of some outputs of a tensor as other programs store them: row-major, exactly.
    ///
    /// # Panics
    /// When the optimizer has no such moment, or the tensor no such rows.
    #[must_use]
    pub fn export(&self, tensor: LayerTensor, outputs: Range<usize>) -> Vec<f32> {
        match tensor {
            LayerTensor::Weight => self.weight.export(self.inputs(), outputs),
            LayerTensor::Bias => self.bias[outputs].to_vec(),
            LayerTensor::WeightMoment(moment) => {
                let panels = &self.moments[moment].weight;
                weight::export(self.inputs(), outputs, |i, k| panels.panel(k / WIDTH)[i][k % WIDTH])
            }
            LayerTensor::BiasMoment(moment) => self.moments[moment].bias[outputs].to_vec(),
        }
    }

    /// The reverse of [`Linear::export`]; `bf16-lsb8` rounds weights.
    ///
    /// # Panics
    /// As there, and when `rows` has another size.
    pub fn import(&mut self, tensor: LayerTensor, outputs: Range<usize>, rows: &[f32]) {
        let inputs = self.inputs();
        match tensor {
            LayerTensor::Weight => self.weight.import(inputs, outputs, rows),
            LayerTensor::Bias => self.bias[outputs].copy_from_slice(rows),
            LayerTensor::WeightMoment(moment) => {
                let panels = &mut self.moments[moment].weight;
                weight::import(inputs, outputs, rows, |i, k, x| panels.panel_mut(k / WIDTH)[i][k % WIDTH] = x);
            }
            LayerTensor::BiasMoment(moment) => self.moments[moment].bias[outputs].copy_from_slice(rows),
        }
    }
}
