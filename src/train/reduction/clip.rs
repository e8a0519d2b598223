//! Clipping of all layers' gradients together, which needs every one of them, summed over ranks, before the first
//! weight moves.

use crate::layer::TensorSquares;
use crate::machine::team::Team;
use crate::model::Network;
use crate::optim::clip_factor;

/// Gradients of layers are scaled down to this norm where theirs is longer.
#[derive(Debug, Clone, Copy)]
pub(in crate::train) struct Clip {
    most: f64,
}

impl Clip {
    /// To this norm.
    pub(in crate::train) const fn to(most: f64) -> Self {
        Self { most }
    }

    /// What gradients of these squares are multiplied by.
    pub(super) fn factor(self, squares: TensorSquares) -> f32 {
        clip_factor(squares.second(), self.most)
    }

    /// Clips the gradients of a network that has all of them, summed.
    pub(super) fn whole(self, team: &Team, network: &mut dyn Network) {
        let mut sums = TensorSquares::default();
        network.each_layer_mut(&mut |layer| sums.plus(&layer.gradient_squares(team)));
        let factor = self.factor(sums);
        if factor != 1.0 {
            network.each_layer_mut(&mut |layer| layer.scale_gradient(team, factor));
        }
    }
}
