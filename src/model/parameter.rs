//! A model's tensors by name: what checkpoints and other programs' weights go through.
//!
//! Names and shapes are those of facebookresearch/dlrm's state dict.

use std::borrow::Cow;

use super::{Dense, Dlrm};
use crate::layer::Mlp;

/// One tensor of the model, by the name that facebookresearch/dlrm's state dict gives it.
#[derive(Debug, Clone)]
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

impl Parameter {
    /// The weights of table `table`, rows x dim.
    #[must_use]
    pub fn of_table(table: usize, rows: usize, dim: usize) -> Self {
        Self { name: format!("emb_l.{table}.weight"), shape: vec![rows, dim], place: Place::Table(table) }
    }

    /// The number of the table whose weights these are, if they are a table's.
    #[must_use]
    pub const fn table(&self) -> Option<usize> {
        if let Place::Table(table) = self.place { Some(table) } else { None }
    }
}

impl Dlrm {
    /// Every tensor, in the order of the reference's state dict.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let tables = self.tables.iter().enumerate();
        let tables = tables.map(|(number, table)| Parameter::of_table(number, table.rows(), table.dim()));
        tables.chain(self.dense.parameters()).collect()
    }

    /// The numbers of one tensor, row-major.
    #[must_use]
    pub fn export(&self, parameter: &Parameter) -> Cow<'_, [f32]> {
        parameter.table().map_or_else(|| self.dense.export(parameter), |table| self.tables[table].weights())
    }

    /// Overwrites one tensor.
    ///
    /// # Panics
    /// When `values` has another size than the parameter's shape.
    pub fn import(&mut self, parameter: &Parameter, values: &[f32]) {
        match parameter.table() {
            Some(table) => self.tables[table].set_weights(values),
            None => self.dense.import(parameter, values),
        }
    }
}

const DENSE: &str = "a table's weights are not in the MLPs";

impl Dense {
    /// The tensors of both MLPs, in the order of the reference's state dict.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let mlps = [(Which::Bottom, "bot_l", &self.bottom), (Which::Top, "top_l", &self.top)];
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
        layers.collect()
    }

    /// The numbers of one of [`Dense::parameters`], row-major.
    ///
    /// # Panics
    /// When it is none of them.
    #[must_use]
    pub fn export(&self, parameter: &Parameter) -> Cow<'_, [f32]> {
        match parameter.place {
            Place::Table(_) => panic!("{DENSE}"),
            Place::Weight(which, l) => self.mlp(which).layers()[l].export_weight().into(),
            Place::Bias(which, l) => self.mlp(which).layers()[l].bias().into(),
        }
    }

    /// Overwrites one of [`Dense::parameters`].
    ///
    /// # Panics
    /// When it is none of them, or `values` has another size than its shape.
    pub fn import(&mut self, parameter: &Parameter, values: &[f32]) {
        match parameter.place {
            Place::Table(_) => panic!("{DENSE}"),
            Place::Weight(which, l) => self.mlp_mut(which).layers_mut()[l].import_weight(values),
            Place::Bias(which, l) => self.mlp_mut(which).layers_mut()[l].bias_mut().copy_from_slice(values),
        }
    }

    const fn mlp(&self, which: Which) -> &Mlp {
        match which {
            Which::Bottom => &self.bottom,
            Which::Top => &self.top,
        }
    }

    const fn mlp_mut(&mut self, which: Which) -> &mut Mlp {
        match which {
            Which::Bottom => &mut self.bottom,
            Which::Top => &mut self.top,
        }
    }
}
