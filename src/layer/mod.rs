//! The dense layers of a model, each forward beside its backward.
//!
//! Activations lie in panels (`math/brgemm`), a row a sample; neighbours read them from each other's and write them to
//! each other's panels, so that nothing is repacked in between. A layer knows its own weights and the rank's team, and
//! nothing of the model around it.

mod activation;
mod attention;
mod concat;
mod cross;
mod dot;
mod features;
mod flow;
mod gather;
mod linear;
mod loss;
mod mlp;
mod pieces;
mod steps;
mod vectors;
mod weight;
mod wide;

pub use activation::Activation;
pub use attention::Attention;
pub use concat::Concat;
pub use cross::Cross;
pub use dot::Dot;
pub use features::{Features, FeaturesMut};
pub use gather::{Gather, Numbers, Reading, spread_rows, sum_readings, sum_rows};
pub use linear::{LayerTensor, Linear};
pub use loss::LossLayer;
pub use mlp::{InputGradient, Mlp};
pub use pieces::{Piece, TensorSquares};
pub use steps::Steps;
pub use vectors::FeatureVectors;
pub use wide::Wide;
