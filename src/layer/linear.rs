//! A fully connected layer: Y = act(X W + b), with its two backward passes and its SGD step.
//!
//! Weights lie input-major in panels of 64 outputs, activations in panels of 64 features, so all three passes are
//! batch-reduce GEMMs that read whole cache lines (`math/brgemm`). Passes are named as in SC20, Section III-B.
//!
//! A layer of whole weights computes in 32-bit floats. One of split weights multiplies their upper halves with bfloat16
//! activations and sums in 32 bits (SC20, Section VII); bias and gradients of weights are 32-bit floats in either case.

use super::weight::Weight;
use crate::base::Result;
use crate::base::config::Precision;
use crate::machine::team::Team;
use crate::math::brgemm::{self, After, Panels, Scratch, bf16, bias_gradient};
use crate::memory::{Arena, Buffer, Supply};
use crate::optim::Sgd;

/// Weights, bias and their gradients.
#[derive(Debug)]
pub struct Linear {
    /// Inputs x outputs.
    weight: Weight,
    bias: Buffer<f32>,
    weight_gradient: Panels<f32>,
    bias_gradient: Buffer<f32>,
}

/// What flows between layers, samples x features: in the layers' precision or, at the ends of a chain, in 32 bits.
#[derive(Debug)]
pub(super) enum Flow {
    /// 32-bit floats.
    Whole(Panels<f32>),
    /// bfloat16.
    Half(Panels<u16>),
}

impl Flow {
    pub(super) fn settle(&mut self, arena: &mut Arena) {
        match self {
            Self::Whole(panels) => panels.settle(arena),
            Self::Half(panels) => panels.settle(arena),
        }
    }

    /// What is in 32-bit floats.
    pub(super) fn whole(&self) -> &Panels<f32> {
        let Self::Whole(panels) = self else { unreachable!("the ends of a chain are in 32-bit floats") };
        panels
    }

    /// As [`Flow::whole`], to be overwritten.
    pub(super) fn whole_mut(&mut self) -> &mut Panels<f32> {
        let Self::Whole(panels) = self else { unreachable!("the ends of a chain are in 32-bit floats") };
        panels
    }
}

/// What follows the sums of a forward pass.
const fn after<'a, C>(relu: bool) -> After<'a, C> {
    if relu { After::Relu } else { After::Keep }
}

const MIXED: &str = "a chain's weights and activations have one precision";

impl Linear {
    /// A layer whose weights are 0.
    ///
    /// # Errors
    /// When the supply is exhausted.
    pub fn new(inputs: usize, outputs: usize, precision: Precision, supply: &mut Supply<'_>) -> Result<Self> {
        Ok(Self {
            weight: Weight::new(inputs, outputs, precision, supply)?,
            bias: supply.buffer("bias", outputs)?,
            weight_gradient: Panels::supplied("weight gradient", inputs, outputs, supply)?,
            bias_gradient: supply.buffer("bias gradient", outputs)?,
        })
    }

    /// Takes all planned buffers from the arena.
    pub fn settle(&mut self, arena: &mut Arena) {
        let Self { weight, bias, weight_gradient, bias_gradient } = self;
        weight.settle(arena);
        weight_gradient.settle(arena);
        for buffer in [bias, bias_gradient] {
            buffer.settle(arena);
        }
    }

    /// Columns of X.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.weight_gradient.rows()
    }

    /// Columns of Y.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.weight_gradient.columns()
    }

    /// Bytes of the weights, without what the layout pads them with.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        self.weight.bytes()
    }

    /// The weights as other programs store them: outputs x inputs, row-major, exactly.
    #[must_use]
    pub fn export_weight(&self) -> Vec<f32> {
        self.weight.export(self.inputs(), self.outputs())
    }

    /// Takes weights as other programs store them: outputs x inputs, row-major; `bf16-lsb8` rounds them.
    ///
    /// # Panics
    /// When `rows` has another size.
    pub fn import_weight(&mut self, rows: &[f32]) {
        self.weight.import(self.inputs(), self.outputs(), rows);
    }

    /// The bias, one element an output.
    #[must_use]
    pub fn bias(&self) -> &[f32] {
        &self.bias
    }

    /// The bias, to be overwritten.
    pub fn bias_mut(&mut self) -> &mut [f32] {
        &mut self.bias
    }

    /// The gradients of weights and bias; the first with the padding of its layout.
    pub fn gradients_mut(&mut self) -> [&mut [f32]; 2] {
        [self.weight_gradient.cells_mut().as_flattened_mut(), &mut self.bias_gradient]
    }

    /// Y = act(X W + b) for the first `samples` rows.
    ///
    /// # Panics
    /// When a matrix is too small.
    pub(super) fn forward(&self, team: &Team, samples: usize, x: &Flow, y: &mut Flow, relu: bool) {
        match (&self.weight, x, y) {
            (Weight::Whole(w), Flow::Whole(x), Flow::Whole(y)) => {
                brgemm::forward(team, samples, x, w, &self.bias, y, after(relu));
            }
            (weight, Flow::Half(x), Flow::Half(y)) => {
                bf16::forward(team, samples, x, weight.high(), &self.bias, y, after(relu));
            }
            (weight, Flow::Half(x), Flow::Whole(y)) => {
                bf16::forward(team, samples, x, weight.high(), &self.bias, y, after(relu));
            }
            (_, Flow::Whole(_), _) => unreachable!("{MIXED}"),
        }
    }

    /// dX = dY Wᵀ for the first `samples` rows; `x` is the ReLU's output that X is, if it is one: dX becomes 0 where
    /// it is.
    ///
    /// # Panics
    /// When a matrix is too small.
    pub(super) fn backward_data(
        &self,
        team: &Team,
        samples: usize,
        dy: &Flow,
        dx: &mut Flow,
        x: Option<&Flow>,
        scratch: &mut Scratch,
    ) {
        match (&self.weight, dy, dx, x) {
            (Weight::Whole(w), Flow::Whole(dy), Flow::Whole(dx), None) => {
                brgemm::backward_data(team, samples, dy, w, dx, After::Keep, scratch);
            }
            (Weight::Whole(w), Flow::Whole(dy), Flow::Whole(dx), Some(Flow::Whole(x))) => {
                brgemm::backward_data(team, samples, dy, w, dx, After::Gate(x), scratch);
            }
            (weight, Flow::Half(dy), Flow::Whole(dx), None) => {
                bf16::backward_data(team, samples, dy, weight.high(), dx, After::Keep, scratch);
            }
            (weight, Flow::Half(dy), Flow::Half(dx), Some(Flow::Half(x))) => {
                bf16::backward_data(team, samples, dy, weight.high(), dx, After::Gate(x), scratch);
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// dW = Xᵀ dY and db = the column sums of dY, over the first `samples` rows; `pairs` is room for both operands in
    /// pairs of samples, which passes on bfloat16 need.
    ///
    /// # Panics
    /// When a matrix is too small.
    pub(super) fn backward_weights(
        &mut self,
        team: &Team,
        samples: usize,
        x: &Flow,
        dy: &Flow,
        pairs: Option<&mut [Panels<u32>; 2]>,
    ) {
        match (x, dy, pairs) {
            (Flow::Whole(x), Flow::Whole(dy), _) => {
                brgemm::backward_weights(team, samples, x, dy, &mut self.weight_gradient);
                bias_gradient(team, samples, dy, &mut self.bias_gradient);
            }
            (Flow::Half(x), Flow::Half(dy), Some(pairs)) => {
                bf16::backward_weights(team, samples, x, dy, pairs, &mut self.weight_gradient);
                bias_gradient(team, samples, dy, &mut self.bias_gradient);
            }
            _ => unreachable!("{MIXED}"),
        }
    }

    /// Moves weights and bias against their gradients.
    pub fn update(&mut self, team: &Team, rate: f32) {
        self.weight.update(team, &self.weight_gradient, rate);
        team.isa().run(Sgd { weight: &mut self.bias, gradient: &self.bias_gradient, rate });
    }
}
