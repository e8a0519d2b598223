//! The three passes of a fully connected layer as batch-reduce GEMM over blocked matrices, on a team of threads.
//!
//! Source: SC20, Section III-B, Algorithm 5. With N samples, C inputs and K outputs,
//!
//! | pass                  | computes           | sums over | left operand  | right operand |
//! |-----------------------|--------------------|-----------|---------------|---------------|
//! | [`forward`]           | Y = act(X W + b)   | C         | X by row      | W             |
//! | [`backward_data`]     | dX = gate(dY Wᵀ)   | K         | dY by row     | Wᵀ, a piece at a time |
//! | [`backward_weights`]  | dW = Xᵀ dY         | N         | X by column   | dY            |
//!
//! X, Y, W and their gradients are [`Panels`]. Threads begin with rectangles of the result, cut by a [`Plan`], and take
//! pieces of each other's when they are done. Every sum is one chain in ascending order, so results do not depend on
//! threads, tiles or vector width: those of the f32 passes are of fused multiply-adds.
//!
//! A team whose instruction set is AMX multiplies all but narrow layers on tiles, in three parts a number: those sums
//! are as close to the true ones, but have other bits.
//!
//! The passes in [`bf16`] take bfloat16 and sum in f32, two products a step, with the arithmetic of
//! [`crate::simd::bf16`]; a team whose instruction set is AMX-BF16 runs them on tiles, whose sums have other bits.

pub mod bf16;
mod convert;
mod operands;
mod panels;
mod passes;
mod plan;
mod right;
mod sweep;
mod terms;
mod thirds;
mod tile;
mod tiled;
mod transposed;
mod tuned;
mod widened;

pub use convert::{export_rows, import_rows, narrow_panels};
pub use panels::{Panels, Row, WIDTH};
pub use passes::{
    After, Onto, TOGETHER, backward_data, backward_weights, bias_gradient, forward, forward_shape, weights_shape,
};
pub use plan::{Plan, Shape};
pub use thirds::thirds_for;
pub use tile::Cell;
pub use tuned::{install, unmatched};

#[cfg(test)]
mod tests;
