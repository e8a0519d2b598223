//! A model's tensors by name: what checkpoints and other programs' weights go through.
//!
//! Names and shapes are those of facebookresearch/dlrm's state dict.

use super::Dlrm;
use crate::layer::Mlp;

/// One tensor of the model, by the name that facebookresearch/dlrm's state dict gives it.
#[derive(Debug)]
pub struct Parameter {
    /// E.g. `emb_l.0.weight`, `bot_l.0.weight`, `top_l.2.bias`.
    pub name: String,
    /// Rows and columns, or the length of a bias.
    pub shape: Vec<usize>,
    /// Where it is kept.
    place: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Table(usize),
    Weight(Which, usize),
    Bias(Which, usize),
}

#[derive(Debug, Clone, Copy)]
enum Which {
    Bottom,
    Top,
}

impl Dlrm {
    /// Every tensor, in the order of the reference's state dict.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let tables = self.tables.iter().enumerate().map(|(t, table)| Parameter {
            name: format!("emb_l.{t}.weight"),
            shape: vec![table.rows(), table.dim()],
            place: Place::Table(t),
        });
        let mlps = [(Which::Bottom, "bot_l", &self.dense.bottom), (Which::Top, "top_l", &self.dense.top)];
        let layers = mlps.into_iter().flat_map(|(which, prefix, mlp)| {
            mlp.layers().iter().enumerate().flat_map(move |(l, layer)| {
                // Every second module of the reference's Sequential is an activation.
                let name = |kind: &str| format!("{prefix}.{}.{kind}", 2 * l);
                let weight = Parameter {
                    name: name("weight"),
                    shape: vec![layer.outputs(), layer.inputs()],
                    place: Place::Weight(which, l),
                };
                let bias = Parameter { name: name("bias"), shape: vec![layer.outputs()], place: Place::Bias(which, l) };
                [weight, bias]
            })
        });
        tables.chain(layers).collect()
    }

    /// The numbers of one tensor, row-major.
    #[must_use]
    pub fn export(&self, parameter: &Parameter) -> std::borrow::Cow<'_, [f32]> {
        match parameter.place {
            Place::Table(t) => self.tables[t].weights(),
            Place::Weight(which, l) => self.mlp(which).layers()[l].export_weight().into(),
            Place::Bias(which, l) => self.mlp(which).layers()[l].bias().into(),
        }
    }

    /// Overwrites one tensor.
    ///
    /// # Panics
    /// When `values` has another size than the parameter's shape.
    pub fn import(&mut self, parameter: &Parameter, values: &[f32]) {
        match parameter.place {
            Place::Table(t) => self.tables[t].set_weights(values),
            Place::Weight(which, l) => self.mlp_mut(which).layers_mut()[l].import_weight(values),
            Place::Bias(which, l) => self.mlp_mut(which).layers_mut()[l].bias_mut().copy_from_slice(values),
        }
    }

    const fn mlp(&self, which: Which) -> &Mlp {
        match which {
            Which::Bottom => &self.dense.bottom,
            Which::Top => &self.dense.top,
        }
    }

    const fn mlp_mut(&mut self, which: Which) -> &mut Mlp {
        match which {
            Which::Bottom => &mut self.dense.bottom,
            Which::Top => &mut self.dense.top,
        }
    }
}
