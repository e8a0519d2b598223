//! A network's sizes without its weights: what its layers are, and what each stage of a step has to do for them. What is
//! planned or predicted, perhaps for a machine that nobody has, knows networks by this alone.

use super::stage::{Stage, Work};
use crate::base::config::{Interaction, ModelConfig};
use crate::optim::Kept;

/// The sizes of a DLRM (`model::Dlrm`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Inputs and outputs of the bottom MLP's layers.
    pub bottom: Vec<[usize; 2]>,
    /// Those of the top MLP's.
    pub top: Vec<[usize; 2]>,
    /// Elements of a sample's pooled rows.
    pub row: usize,
    /// Multiply-adds of the interaction's dot products, a sample.
    pub products: usize,
}

impl Shape {
    /// Of a model whose samples have `row` elements of pooled rows, in `vectors` vectors.
    #[must_use]
    pub fn dlrm(model: &ModelConfig, vectors: usize, row: usize) -> Self {
        let pairs_of = |widths: &[usize]| widths.windows(2).map(|pair| [pair[0], pair[1]]).collect::<Vec<_>>();
        let bottom = pairs_of(model.bottom_widths());
        let x = *model.bottom_widths().last().expect("a bottom MLP has an end");
        let vectors = vectors + usize::from(x > 0);
        let pairs = vectors * vectors.saturating_sub(1) / 2 + usize::from(model.interaction_itself) * vectors;
        let (interacted, products) = match model.interaction {
            Interaction::Dot => (x + pairs, pairs * model.dim),
            Interaction::Cat => (x + row, 0),
        };
        let widths: Vec<usize> = std::iter::once(interacted).chain(model.top.iter().copied()).collect();
        Self { bottom, top: pairs_of(&widths), row, products }
    }

    /// All layers, in the order in which they are numbered.
    pub fn layers(&self) -> impl Iterator<Item = [usize; 2]> {
        self.bottom.iter().chain(&self.top).copied()
    }

    /// Weights and biases.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.layers().map(|[inputs, outputs]| (inputs + 1) * outputs).sum()
    }

    /// Bytes that a sample leaves between the layers, of activations and their gradients: while its part of a minibatch is
    /// worked on.
    #[must_use]
    pub fn part_bytes(&self) -> usize {
        let ends = |layers: &[[usize; 2]]| {
            layers.first().map_or(0, |layer| layer[0]) + layers.iter().map(|layer| layer[1]).sum::<usize>()
        };
        (ends(&self.bottom) + ends(&self.top)) * 2 * size_of::<f32>()
    }

    /// Bytes that a sample of a whole slice of a minibatch keeps: pooled rows with their gradient, its probability and loss.
    #[must_use]
    pub const fn sample_bytes(&self) -> usize {
        self.row * 2 * size_of::<f32>() + size_of::<f32>() + size_of::<f64>()
    }

    /// Operations of a sample, forward and backward to inputs and weights, of layers and products; a multiply-add counts as
    /// two.
    #[must_use]
    pub fn operations(&self) -> usize {
        6 * (weights(&self.bottom) + weights(&self.top) + self.products)
    }

    /// The work of one of its stages for a minibatch of `samples` samples; none for any other stage.
    #[must_use]
    pub fn work(&self, stage: Stage, samples: usize, kept: Kept) -> Work {
        let [bottom, top] = [weights(&self.bottom), weights(&self.top)].map(|weights| weights as f64);
        let first = self.bottom.first().map_or(0.0, |[inputs, outputs]| (inputs * outputs) as f64);
        // An interaction reads the bottom MLP's output and the pooled rows, and writes the top MLP's input; backward it
        // reads both, and writes the gradient of what it read. Its products are too few to hide that.
        let result = self.top.first().map_or(0, |layer| layer[0]) as f64;
        let features = (self.bottom.last().map_or(0, |layer| layer[1]) + self.row) as f64;
        let (products, samples) = (self.products as f64, samples as f64);
        let stream = |operations: f64, elements: f64| {
            Work::stream(samples * operations, samples * elements * size_of::<f32>() as f64)
        };
        match stage {
            Stage::Bottom => Work::arithmetic(2.0 * samples * bottom),
            Stage::Top => Work::arithmetic(2.0 * samples * top),
            Stage::Interact => stream(2.0 * products, features + result),
            Stage::Loss => stream(0.0, 4.0),
            // By data and by weights, each as much as forward; nobody needs the dense features' gradient.
            Stage::BackTop => Work::arithmetic(4.0 * samples * top),
            Stage::BackBottom => Work::arithmetic(samples * (4.0 * bottom - 2.0 * first)),
            Stage::BackInteract => stream(4.0 * products, 2.0 * features + result),
            Stage::UpdateDense => {
                let parameters = bottom + top;
                // Where norms are needed, directions are written, and read in a second pass with the weights.
                let again =
                    if kept.optimizer.needs_norms() { 2 * size_of::<f32>() + kept.precision.bytes() } else { 0 };
                let bytes = parameters * (2 * kept.bytes() + size_of::<f32>() + again) as f64;
                Work::stream(2.0 * parameters, bytes)
            }
            _ => Work::NONE,
        }
    }
}

fn weights(layers: &[[usize; 2]]) -> usize {
    layers.iter().map(|[inputs, outputs]| inputs * outputs).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::config::{Command, Layers};

    #[test]
    fn parameters_are_those_of_the_papers_table_2() {
        // SC20, Table II: bytes of the all-reduce in MB.
        for (name, mib) in [("small", 9.53), ("large", 1046.8), ("mlperf", 9.04)] {
            let mut layers = Layers::default();
            layers.preset(name).unwrap();
            let model = layers.finish(Command::Plan).unwrap().model;
            let shape = Shape::dlrm(&model, model.rows.len(), model.rows.len() * model.dim);
            let found = shape.parameters() as f64 * 4.0 / f64::from(1 << 20);
            assert!((found / mib - 1.0).abs() < 1e-3, "{name}: {found}");
        }
    }
}
