//! A model's tensors by name: what checkpoints and other programs' weights go through.
//!
//! Names and shapes are those of facebookresearch/dlrm's state dict. Tensors are read and written in ranges of rows, so
//! that nobody needs a second copy of a large one.

use std::ops::Range;

use crate::layer::Linear;

/// One tensor of the model, by its name in a state dict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// E.g. `emb_l.0.weight`, `bot_l.0.weight`, `top_l.2.bias`.
    pub name: String,
    /// Rows and columns, or the length of a bias.
    pub shape: Vec<usize>,
    /// Where it is kept.
    pub place: Place,
}

/// Where a tensor is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The weights of a table, by its number.
    Table(usize),
    /// The weights of one of the network's layers, outputs x inputs.
    Weight(usize),
    /// The bias of one of the network's layers.
    Bias(usize),
}

impl Parameter {
    /// The weights of table `table`, rows x dim.
    #[must_use]
    pub fn of_table(table: usize, rows: usize, dim: usize) -> Self {
        Self { name: format!("emb_l.{table}.weight"), shape: vec![rows, dim], place: Place::Table(table) }
    }

    /// Weights and bias of layer number `index`.
    #[must_use]
    pub fn of_layer(index: usize, name: &str, layer: &Linear) -> [Self; 2] {
        let shape = vec![layer.outputs(), layer.inputs()];
        let weight = Self { name: format!("{name}.weight"), shape, place: Place::Weight(index) };
        let bias = Self { name: format!("{name}.bias"), shape: vec![layer.outputs()], place: Place::Bias(index) };
        [weight, bias]
    }

    /// The number of the table whose weights these are, if they are a table's.
    #[must_use]
    pub const fn table(&self) -> Option<usize> {
        if let Place::Table(table) = self.place { Some(table) } else { None }
    }

    /// Rows; of a bias, its elements.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape[0]
    }

    /// Elements of a row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.shape[1..].iter().product()
    }

    /// Elements of all rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows() * self.columns()
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its rows in ranges of at most `bytes` bytes of 32-bit floats, or one row.
    pub fn ranges(&self, bytes: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (rows, step) = (self.rows(), (bytes / size_of::<f32>() / self.columns().max(1)).max(1));
        (0..rows).step_by(step).map(move |first| first..rows.min(first + step))
    }
}
