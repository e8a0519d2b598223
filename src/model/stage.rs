//! The stages of a training step: what each is called, and how much arithmetic and memory traffic it must have.
//!
//! The work is what the definition needs, not what an implementation happens to do: it is what measured times are held
//! against. Multiply-adds count two operations; every operand is read once and every result written once.

use super::Dlrm;
use crate::data::Batch;

/// A stage of the step, in the order of the corridor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Look up and pool rows.
    LookUp,
    /// Bottom MLP, forward.
    Bottom,
    /// Interaction, forward.
    Interact,
    /// Top MLP, forward.
    Top,
    /// Loss and its gradient.
    Loss,
    /// Top MLP, backward.
    BackTop,
    /// Interaction, backward.
    BackInteract,
    /// Bottom MLP, backward.
    BackBottom,
    /// Backward and update of the rows.
    UpdateRows,
    /// Update of the dense weights.
    UpdateDense,
}

/// What limits a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Multiply-adds.
    Arithmetic,
    /// Memory, streamed.
    Stream,
    /// Memory, in rows at random places, read.
    Gather,
    /// Memory, in rows at random places, read and written.
    Scatter,
}

/// The work of a stage for one minibatch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// What it should be limited by.
    pub bound: Bound,
    /// Floating-point operations.
    pub operations: f64,
    /// Bytes that have to move.
    pub bytes: f64,
    /// Bytes that are streamed beside them: what goes with rows at random places, but lies in order.
    pub streamed: f64,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Self; 10] = [
        Self::LookUp,
        Self::Bottom,
        Self::Interact,
        Self::Top,
        Self::Loss,
        Self::BackTop,
        Self::BackInteract,
        Self::BackBottom,
        Self::UpdateRows,
        Self::UpdateDense,
    ];

    /// Its name in tables and traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LookUp => "look up rows",
            Self::Bottom => "bottom MLP",
            Self::Interact => "interaction",
            Self::Top => "top MLP",
            Self::Loss => "loss",
            Self::BackTop => "back top MLP",
            Self::BackInteract => "back interaction",
            Self::BackBottom => "back bottom MLP",
            Self::UpdateRows => "update rows",
            Self::UpdateDense => "update MLPs",
        }
    }
}

const FLOAT: f64 = size_of::<f32>() as f64;

impl Dlrm {
    /// The work of `stage` for this minibatch.
    #[must_use]
    pub fn work(&self, stage: Stage, batch: &Batch) -> Work {
        let samples = batch.samples() as f64;
        let weights = |mlp: &crate::layer::Mlp| -> f64 {
            mlp.layers().iter().map(|layer| (layer.inputs() * layer.outputs()) as f64).sum()
        };
        let (bottom, top) = (weights(&self.dense.bottom), weights(&self.dense.top));
        let first = self.dense.bottom.layers().first().map_or(0.0, |layer| (layer.inputs() * layer.outputs()) as f64);
        let tables = self.tables().iter().zip(&batch.bags);
        let columns: f64 = tables.map(|(table, bag)| (bag.rows.len() * table.dim()) as f64).sum();
        // A look-up reads what the precision lets it, an update reads and writes all that is kept.
        let (read_bytes, kept_bytes) = (self.precision.read_bytes() as f64, self.precision.bytes() as f64);
        let (vectors, dim) = self.dense.interaction_shape();
        let pairs = (vectors * (vectors.saturating_sub(1)) / 2 * dim) as f64;
        // An interaction reads the bottom MLP's output and the pooled rows, and writes the top MLP's input; backward it
        // reads both, and writes the gradient of what it read. Its products are too few to hide that.
        let result = self.dense.top.layers().first().map_or(0, |layer| layer.inputs()) as f64;
        let x = self.dense.bottom.layers().last().map_or(0, |layer| layer.outputs()) as f64;
        let features = x + self.tables().iter().map(|table| table.dim() as f64).sum::<f64>();
        let arithmetic = |operations: f64| Work { bound: Bound::Arithmetic, operations, bytes: 0.0, streamed: 0.0 };
        // Look-ups write a pooled row a bag, updates read its gradient.
        let pooled = samples * (features - x) * FLOAT;
        let stream = |operations: f64, elements: f64| Work {
            bound: Bound::Stream,
            operations: samples * operations,
            bytes: samples * elements * FLOAT,
            streamed: 0.0,
        };
        match stage {
            Stage::LookUp => {
                let bytes = columns * read_bytes;
                Work { bound: Bound::Gather, operations: columns, bytes, streamed: pooled }
            }
            Stage::Bottom => arithmetic(2.0 * samples * bottom),
            Stage::Top => arithmetic(2.0 * samples * top),
            Stage::Interact => stream(2.0 * pairs, features + result),
            Stage::Loss => stream(0.0, 4.0),
            // By data and by weights, each as much as forward; nobody needs the dense features' gradient.
            Stage::BackTop => arithmetic(4.0 * samples * top),
            Stage::BackBottom => arithmetic(samples * (4.0 * bottom - 2.0 * first)),
            Stage::BackInteract => stream(4.0 * pairs, 2.0 * features + result),
            Stage::UpdateRows => {
                let bytes = 2.0 * columns * kept_bytes;
                Work { bound: Bound::Scatter, operations: 2.0 * columns, bytes, streamed: pooled }
            }
            Stage::UpdateDense => {
                let parameters = bottom + top;
                let bytes = parameters * (2.0 * kept_bytes + FLOAT);
                Work { bound: Bound::Stream, operations: 2.0 * parameters, bytes, streamed: 0.0 }
            }
        }
    }
}
