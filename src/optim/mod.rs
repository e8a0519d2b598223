//! How weights move: optimizers and the learning rate over time.
//!
//! An optimizer is a [`Rule`]: what one weight becomes by its gradient and the moments that belong to it. Who owns weights
//! applies the rule to all of them: layers to whole blocks ([`Move`], and [`MoveSplit`] where weights are in halves),
//! embedding tables to each row that a step looked up. Moments lie beside the weights: they are allocated, divided and
//! saved with them. Two move weights as SGD does, at a rate that follows from what they keep: row-wise Adagrad, with
//! a number a row, and LAMB, which needs norms of whole tensors and so passes over them twice ([`Direct`]).
//!
//! A new optimizer is one new file with its rule, one variant of [`Optimizer`] and of [`StepRule`].

mod adagrad;
mod adam;
mod clip;
mod decay;
mod halves;
mod lamb;
mod momentum;
mod optimizer;
mod schedule;
mod sgd;
mod whole;

pub use adagrad::{Adagrad, rowwise_rate};
pub use adam::{Adam, Averages};
pub use clip::{Scale, SquareRows, clip_factor};
pub use decay::Decayed;
pub use halves::{Low, MoveSplit};
pub use lamb::{Direct, LONGEST, Lamb, ROW, Squares, trust};
pub use momentum::Momentum;
pub(crate) use optimizer::with_rule;
pub use optimizer::{Kept, Moment, Optimizer, Pace, StepRule};
pub use schedule::Schedule;
pub use sgd::Sgd;
pub use whole::Move;

/// Moments that a weight has at most.
pub const MOMENTS: usize = 2;

/// How one weight moves.
pub trait Rule: Copy + Send + Sync {
    /// Numbers that are kept beside each weight, at most [`MOMENTS`].
    const MOMENTS: usize;

    /// The weight afterwards; moves the moments, of which only the first [`Rule::MOMENTS`] mean something.
    fn step(self, weight: f32, gradient: f32, moments: &mut [f32; MOMENTS]) -> f32;
}
