//! What ranks exchange in place of sums, or beside them, so that the number of ranks and the division of tables change
//! no bit.
//!
//! Three sums depend on who has what. Gradients of weights are summed over samples: [`Nodes`] adds them by grains of
//! the minibatch in a fixed tree ([`crate::math::Sum`]). Bags of a table whose rows are divided are summed over
//! look-ups: their rows travel unpooled ([`Unpooled`]) and are added in the bag's order. Gradients of replicated rows
//! are summed over samples: [`super::Replicas`] brings all of them to all ranks, which move the rows in the order of
//! samples, as owners do.

mod nodes;
mod unpooled;

pub use nodes::Nodes;
pub use unpooled::Unpooled;
