//! A model's tensors by name: what checkpoints and other programs' weights go through.
//!
//! Names and shapes are those of a state dict of the model's own project ([`super::Network`] says which). Tensors are
//! read and written in ranges of rows, so that nobody needs a second copy of a large one.

use std::ops::Range;

use crate::layer::Linear;
use crate::optim::{Moment, Optimizer, ParamGroup};

/// What the names of an optimizer's tensors begin with.
pub const STATE: &str = "state.";

/// One tensor of the model or of its optimizer, by its name in a state dict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// E.g. `emb_l.0.weight`, `bot_l.0.weight`, `top_l.2.bias`, `state.top_l.2.bias.momentum_buffer`.
    pub name: String,
    /// Rows and columns, the length of a bias, or nothing of a single number.
    pub shape: Vec<usize>,
    /// Where it is kept.
    pub place: Place,
    /// The group of parameters that it is in, or whose optimizer keeps it.
    pub group: ParamGroup,
    /// Which of the things it is that the optimizer keeps of these weights; `None`: the weights themselves.
    pub moment: Option<Moment>,
}

/// Where a tensor is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The weights of a table, by its number.
    Table(usize),
    /// The learned weights of a table's rows, by which look-ups multiply them.
    RowWeights(usize),
    /// The weights of one of the network's layers, outputs x inputs.
    Weight(usize),
    /// The bias of one of the network's layers.
    Bias(usize),
}

impl Place {
    /// The number of the table that has it, if one has.
    #[must_use]
    pub const fn table(self) -> Option<usize> {
        match self {
            Self::Table(table) | Self::RowWeights(table) => Some(table),
            Self::Weight(_) | Self::Bias(_) => None,
        }
    }

    /// Whether what is here, or this that is kept of it, is one number for each row of a table, and not one for each
    /// column.
    #[must_use]
    pub fn is_of_rows(self, moment: Option<Moment>) -> bool {
        matches!(self, Self::RowWeights(_)) || moment == Some(Moment::OfRow)
    }
}

impl Parameter {
    /// The weights of table `table`, rows x dim.
    #[must_use]
    pub fn of_table(name: String, table: usize, [rows, dim]: [usize; 2], group: ParamGroup) -> Self {
        Self { name, shape: vec![rows, dim], place: Place::Table(table), group, moment: None }
    }

    /// The learned weights of the rows of table `table`.
    #[must_use]
    pub fn of_row_weights(name: String, table: usize, rows: usize) -> Self {
        Self { name, shape: vec![rows], place: Place::RowWeights(table), group: ParamGroup::Sparse, moment: None }
    }

    /// Weights of layer number `index`, and its biases if it has any, by the names of both.
    pub fn of_layer(index: usize, [weight, bias]: [String; 2], layer: &Linear) -> impl Iterator<Item = Self> + use<> {
        let group = layer.group();
        let of = move |name, shape, place| Self { name, shape, place, group, moment: None };
        let weight = of(weight, vec![layer.outputs(), layer.inputs()], Place::Weight(index));
        let bias = (layer.biases() > 0).then(|| of(bias, vec![layer.biases()], Place::Bias(index)));
        std::iter::once(weight).chain(bias)
    }

    /// What this optimizer keeps beside these weights, by the names of PyTorch's optimizer state.
    pub fn moments(&self, optimizer: Optimizer) -> impl Iterator<Item = Self> {
        let of_weights = optimizer.moments().iter().enumerate();
        let of_weights = of_weights.map(|(moment, kind)| (*kind, self.shape.clone(), Moment::OfWeight(moment)));
        let of_rows = optimizer.row_moment().map(|kind| (kind, vec![self.rows()], Moment::OfRow));
        let updates = optimizer.counter().map(|kind| (kind, Vec::new(), Moment::Updates));
        of_weights.chain(of_rows).chain(updates).map(|(kind, shape, moment)| {
            let name = format!("{STATE}{}.{kind}", self.name);
            Self { name, shape, place: self.place, group: self.group, moment: Some(moment) }
        })
    }

    /// The number of the table whose rows these are, or what is kept of them, if they are a table's.
    #[must_use]
    pub const fn table(&self) -> Option<usize> {
        if let Place::Table(table) = self.place { Some(table) } else { None }
    }

    /// Whether it is a table's rows, their learned weights, or what is kept of either.
    #[must_use]
    pub const fn is_of_table(&self) -> bool {
        self.place.table().is_some()
    }

    /// Rows; of a bias, its elements; of a single number 1.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Elements of a row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.shape.iter().skip(1).product()
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
