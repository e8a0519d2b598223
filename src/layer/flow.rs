//! What flows between layers, forward and backward, in the precision of their weights.

use crate::base::Result;
use crate::math::brgemm::{After, Panels};
use crate::memory::Supply;

/// Why other combinations cannot be.
pub(super) const MIXED: &str = "a chain's weights and activations have one precision";

/// What flows between layers, samples x features: in the layers' precision or, at the ends of a chain, in 32 bits.
#[derive(Debug)]
pub(super) enum Flow {
    /// 32-bit floats.
    Whole(Panels<f32>),
    /// bfloat16.
    Half(Panels<u16>),
}

impl Flow {
    /// Zeros from a supply; `name` says what for, `half` whether in bfloat16.
    pub(super) fn supplied(
        name: &str,
        samples: usize,
        width: usize,
        half: bool,
        supply: &mut Supply<'_>,
    ) -> Result<Self> {
        Ok(match half {
            true => Self::Half(Panels::supplied(name, samples, width, supply)?),
            false => Self::Whole(Panels::supplied(name, samples, width, supply)?),
        })
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

/// What becomes of the gradient with respect to a layer's input.
#[derive(Debug, Clone, Copy)]
pub(super) enum Backward<'a> {
    /// It stays as it is.
    Keep,
    /// The input is this output of a ReLU, and the gradient goes through it: 0 where it is.
    Gate(&'a Flow),
    /// This is added: the gradient that went round the layer.
    Add(&'a Panels<f32>),
}

impl<'a> Backward<'a> {
    pub(super) fn whole(self) -> After<'a, f32> {
        match self {
            Self::Keep => After::Keep,
            Self::Gate(Flow::Whole(gate)) => After::Gate(gate),
            Self::Gate(Flow::Half(_)) => unreachable!("{MIXED}"),
            Self::Add(term) => After::Add(term),
        }
    }

    pub(super) fn half(self) -> After<'a, u16> {
        match self {
            Self::Keep => After::Keep,
            Self::Gate(Flow::Half(gate)) => After::Gate(gate),
            Self::Gate(Flow::Whole(_)) | Self::Add(_) => unreachable!("{MIXED}"),
        }
    }
}
