//! A model's tensors by name: what checkpoints and other programs' weights go through.
//!
//! Names and shapes are those of a state dict of the model's own project ([`super::Network`] says which). Tensors are
//! read and written in ranges of rows, so that nobody needs a second copy of a large one.

use std::ops::Range;

use crate::base::TableId;
use crate::embedding::TableTensor;
use crate::layer::{LayerTensor, Linear};
use crate::optim::{Optimizer, ParamGroup};

/// What the names of an optimizer's tensors begin with.
pub const STATE: &str = "state.";

/// One tensor of the model or of its optimizer, by its name in a state dict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// E.g. `emb_l.0.weight`, `bot_l.0.weight`, `top_l.2.bias`, `state.top_l.2.bias.momentum_buffer`.
    pub name: String,
    /// Rows and columns, the length of a bias, or nothing of a single number.
    pub shape: Vec<usize>,
    /// What it is.
    pub slot: TensorSlot,
    /// The group of parameters that it is in, or whose optimizer keeps it.
    pub group: ParamGroup,
}

/// What a tensor is, and whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorSlot {
    /// One of a table's.
    Table(TableId, TableTensor),
    /// One of those of a layer of the network, by the layer's number.
    Layer(usize, LayerTensor),
    /// How often the rows of tables were updated, which every rank counts: see [`Optimizer::counter`].
    RowUpdates,
    /// The same of layers.
    LayerUpdates,
}

impl TensorSlot {
    /// What an optimizer keeps of each of these weights, by its place among [`Optimizer::moments`]; of what it keeps
    /// itself it keeps nothing.
    fn moment(self, moment: usize) -> Option<Self> {
        match self {
            Self::Table(table, TableTensor::Weight) => Some(Self::Table(table, TableTensor::Moment(moment))),
            Self::Table(table, TableTensor::RowWeight) => {
                Some(Self::Table(table, TableTensor::RowWeightMoment(moment)))
            }
            Self::Layer(index, LayerTensor::Weight) => Some(Self::Layer(index, LayerTensor::WeightMoment(moment))),
            Self::Layer(index, LayerTensor::Bias) => Some(Self::Layer(index, LayerTensor::BiasMoment(moment))),
            Self::Table(..) | Self::Layer(..) | Self::RowUpdates | Self::LayerUpdates => None,
        }
    }

    /// The number that an optimizer keeps of each of these rows, if they are a table's.
    fn row_moment(self) -> Option<Self> {
        match self {
            Self::Table(table, TableTensor::Weight) => Some(Self::Table(table, TableTensor::RowMoment)),
            // A learned weight is a row of its own.
            Self::Table(_, TableTensor::RowWeight) => self.moment(0),
            Self::Table(..) | Self::Layer(..) | Self::RowUpdates | Self::LayerUpdates => None,
        }
    }
}

impl Parameter {
    /// The weights of table `table`, rows x dim.
    #[must_use]
    pub fn of_table(name: String, table: usize, [rows, dim]: [usize; 2], group: ParamGroup) -> Self {
        let slot = TensorSlot::Table(TableId(table as u32), TableTensor::Weight);
        Self { name, shape: vec![rows, dim], slot, group }
    }

    /// The learned weights of the rows of table `table`.
    #[must_use]
    pub fn of_row_weights(name: String, table: usize, rows: usize) -> Self {
        let slot = TensorSlot::Table(TableId(table as u32), TableTensor::RowWeight);
        Self { name, shape: vec![rows], slot, group: ParamGroup::Sparse }
    }

    /// Weights of layer number `index`, and its biases if it has any, by the names of both.
    pub fn of_layer(index: usize, [weight, bias]: [String; 2], layer: &Linear) -> impl Iterator<Item = Self> + use<> {
        let group = layer.group();
        let of = move |name, shape, tensor| Self { name, shape, slot: TensorSlot::Layer(index, tensor), group };
        let weight = of(weight, vec![layer.outputs(), layer.inputs()], LayerTensor::Weight);
        let bias = (layer.biases() > 0).then(|| of(bias, vec![layer.biases()], LayerTensor::Bias));
        std::iter::once(weight).chain(bias)
    }

    /// What this optimizer keeps beside these weights, by the names of PyTorch's optimizer state.
    pub fn moments(&self, optimizer: Optimizer) -> impl Iterator<Item = Self> {
        let of_weights = optimizer.moments().iter().enumerate();
        let of_weights = of_weights.map(|(moment, kind)| (*kind, self.shape.clone(), self.slot.moment(moment)));
        let of_rows = optimizer.row_moment().map(|kind| (kind, vec![self.rows()], self.slot.row_moment()));
        let updates = if self.is_of_table() { TensorSlot::RowUpdates } else { TensorSlot::LayerUpdates };
        let updates = optimizer.counter().map(|kind| (kind, Vec::new(), Some(updates)));
        of_weights.chain(of_rows).chain(updates).map(|(kind, shape, slot)| {
            let name = format!("{STATE}{}.{kind}", self.name);
            Self { name, shape, slot: slot.expect("a slot for what an optimizer keeps"), group: self.group }
        })
    }

    /// The table whose rows these are, if they are a table's.
    #[must_use]
    pub const fn table(&self) -> Option<TableId> {
        if let TensorSlot::Table(table, TableTensor::Weight) = self.slot { Some(table) } else { None }
    }

    /// Whether it is a table's rows, their learned weights, or what is kept or counted of either.
    #[must_use]
    pub const fn is_of_table(&self) -> bool {
        matches!(self.slot, TensorSlot::Table(..) | TensorSlot::RowUpdates)
    }

    /// Whether it counts updates.
    #[must_use]
    pub const fn counts_updates(&self) -> bool {
        matches!(self.slot, TensorSlot::RowUpdates | TensorSlot::LayerUpdates)
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
