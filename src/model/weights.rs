//! The tensors of a model's weights, without ranks that have them: as its configuration and the rows of its tables say.

use super::names::Project;
use super::parameter::{Parameter, TensorSlot};
use super::shape::{Role, Shape};
use super::train_spec::table_param_groups;
use crate::base::config::ModelConfig;
use crate::layer::LayerTensor;
use crate::optim::ParamGroup;

/// A fully connected layer: weights, outputs x inputs, and biases if it has any.
#[derive(Debug)]
pub struct LayerWeights {
    /// The weights.
    pub weight: Parameter,
    /// The biases.
    pub bias: Option<Parameter>,
}

/// The tensors by name and shape.
#[derive(Debug)]
pub struct Weights {
    /// By number; rows x dim, then those of the wide part.
    pub tables: Vec<Parameter>,
    /// Learned weights of their rows, of the first tables or of none.
    pub row_weights: Vec<Parameter>,
    /// Those of the network, in the order in which they are numbered.
    pub layers: Vec<LayerWeights>,
    /// The sizes of the network.
    pub shape: Shape,
}

impl Weights {
    /// Those of a model whose tables have so many rows each.
    #[must_use]
    pub fn of(model: &ModelConfig, rows: &[u64]) -> Self {
        let (project, count) = (Project::of(model), rows.len());
        let (dims, groups) = (model.dims(rows), table_param_groups(model, count));
        let names = project.tables(model, count).into_iter().zip(rows.iter().zip(&dims)).enumerate();
        let table = |(table, (name, (rows, dim))): (usize, (String, (&u64, &usize)))| {
            Parameter::of_table(name, table, [*rows as usize, *dim], groups[table])
        };
        let tables = names.map(table).collect();
        let weights = project.row_weights(model, count).into_iter().zip(rows).enumerate();
        let row_weights =
            weights.map(|(table, (name, rows))| Parameter::of_row_weights(name, table, *rows as usize)).collect();
        // Layers are as wide however many vectors of a sample each table gives.
        let shape = Shape::of(model, &vec![1; count], &dims);
        let layers = shape.layers().enumerate().map(|(index, of)| {
            let [weight, bias] = project.layer(index, &shape);
            let group = if of.role == Role::Wide { ParamGroup::WideDense } else { ParamGroup::Dense };
            let of = of.shape;
            let tensor = |name, shape, tensor| Parameter { name, shape, slot: TensorSlot::Layer(index, tensor), group };
            LayerWeights {
                weight: tensor(weight, vec![of.outputs, of.inputs], LayerTensor::Weight),
                bias: (of.biases > 0).then(|| tensor(bias, vec![of.biases], LayerTensor::Bias)),
            }
        });
        let layers = layers.collect();
        Self { tables, row_weights, layers, shape }
    }

    /// All of them: tables, learned weights of their rows, then layers in their order.
    pub fn tensors(&self) -> impl Iterator<Item = &Parameter> {
        let layers = self.layers.iter().flat_map(|layer| std::iter::once(&layer.weight).chain(&layer.bias));
        self.tables.iter().chain(&self.row_weights).chain(layers)
    }
}
