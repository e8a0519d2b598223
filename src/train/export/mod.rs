//! A trained model as other programs take it: an ONNX graph ([`onnx`]), or a state dict with a script of PyTorch's
//! ([`torch`]).
//!
//! Weights are what predictions read: of a model in bfloat16 the upper halves of the layers' and the tables' weights,
//! which are written as bfloat16, in half the bytes; biases stay in 32 bits. They go from the checkpoint's mapped file
//! to the new one piece by piece and are checked on their way. What optimizers keep stays behind.

pub mod onnx;
pub mod torch;

use std::path::Path;

use serde::Serialize;

use super::Checkpoint;
use crate::base::config::{Config, DENSE, ModelConfig, NamedLayer, Precision, SourceKind, Triangle, Vocab, Widths};
use crate::base::{Error, Result};
use crate::data::Numbering;
use crate::data::formats::csv::{self, TextSchema};
use crate::data::schema::Scale;
use crate::embedding::TableTensor;
use crate::layer::LayerTensor;
use crate::model::{LayerWeights, Parameter, Role, TensorSlot, Weights};
use crate::simd::split::{shorten, split};

/// A trained model whose weights are in a checkpoint.
#[derive(Debug)]
pub struct Exported<'a> {
    checkpoint: &'a Checkpoint<'a>,
    config: Config,
    weights: Weights,
    network: Vec<NamedLayer>,
    widths: Widths,
    /// Whether a table's look-ups have weights.
    weighted: Vec<bool>,
    /// Whether they are steps of a time series.
    sequences: Vec<bool>,
    /// Columns that are looked up by quotients and remainders; these tables follow those of all columns.
    composed: Vec<usize>,
    /// How its dense features are made, and which columns its inputs are.
    dense: Vec<DenseColumn>,
    /// What described its data, where they were described text, with the rows of all columns that are hashed.
    schema: Option<TextSchema>,
    /// Which values the rows of its data stood for, where they were stored.
    numbering: Numbering,
}

/// How a dense feature is made of a column.
#[derive(Debug, Serialize)]
struct DenseColumn {
    /// The column.
    name: String,
    /// How its numbers are transformed: `as it is`, `by log` (ln(x + 1)) or `standardised` ((x - mean) / deviation); of
    /// moments after they have become ages, days before `newest`.
    read: String,
    /// What was learned of it, if something was.
    #[serde(flatten)]
    scale: Option<Scale>,
}

/// How a tensor's numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    F32,
    Bf16,
}

impl Number {
    const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
        }
    }
}

impl<'a> Exported<'a> {
    /// The model of a checkpoint. `Ok(None)`: the file has weights, but not how they were trained.
    ///
    /// # Errors
    /// When the file is damaged, and when the configuration that it has is none.
    pub fn of(checkpoint: &'a Checkpoint<'a>) -> Result<Option<Self>> {
        let Some(header) = checkpoint.own_header()? else { return Ok(None) };
        let config = header.config.clone();
        config.validate(&format!("{}: its configuration", checkpoint.path().display()))?;
        let model = &config.model;
        // One that is not there is missed where it is read.
        let rows = checkpoint.rows(&checkpoint.table_names(model)).into_iter().map(|rows| rows.unwrap_or(0) as u64);
        let weights = Weights::of(model, &rows.collect::<Vec<u64>>());
        let columns = Some(&*model.columns).filter(|columns| !columns.is_empty());
        let told = |reason| Error::config("model.layers", reason);
        let (network, widths) = (model.network(), model.widths(columns).map_err(told)?);
        let of_tables = |these: &[usize]| (0..weights.tables.len()).map(|table| these.contains(&table)).collect();
        let weighted = of_tables(header.weighted.as_deref().unwrap_or_default());
        let sequences = of_tables(&header.sequences);
        let composed = model.own_composed();
        let mut scales = header.scales.clone();
        let dense = header.dense.iter().cloned();
        let mut dense: Vec<_> =
            dense.map(|(name, read)| DenseColumn { scale: scales.remove(&name), name, read }).collect();
        if config.data.source == SourceKind::Tsv && dense.is_empty() {
            let criteo = |n| DenseColumn { name: format!("I{n}"), read: "by log".to_owned(), scale: None };
            dense = (1..=config.model.dense()).map(criteo).collect();
        }
        let schema = checkpoint.schema_text()?.map(|text| {
            let (mut schema, _) = TextSchema::kept_or_read(Some(text), Path::new(""))?;
            // A weight of rows is for those that are learned from.
            schema.dense.retain(|column| !column.weighs);
            if config.data.vocab == Vocab::Hash {
                csv::hash(&mut schema, config.data.rows_cap)?;
            }
            Ok(schema)
        });
        let schema = schema.transpose()?;
        let numbering = checkpoint.numbering()?;
        Ok(Some(Self {
            checkpoint,
            config,
            weights,
            network,
            widths,
            weighted,
            sequences,
            composed,
            dense,
            schema,
            numbering,
        }))
    }

    /// How it was trained.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Weights and biases.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.weights.tensors().map(|of| of.len() as u64).sum()
    }

    /// Whether weights of rows are bfloat16.
    #[must_use]
    pub const fn is_bf16(&self) -> bool {
        self.config.train.precision.is_split()
    }

    /// Whether layers multiply bfloat16: what they take is rounded to it.
    const fn rounds(&self) -> bool {
        self.config.model.layer_precision(self.config.train.precision).is_split()
    }

    const fn model(&self) -> &ModelConfig {
        &self.config.model
    }

    /// The layers between the features and the logit.
    fn network(&self) -> &[NamedLayer] {
        &self.network
    }

    /// Their order, and which is the logit.
    const fn widths(&self) -> &Widths {
        &self.widths
    }

    /// How many numbers a sample has of a layer, of the dense features or of a column.
    fn numbers(&self, name: &str) -> usize {
        match self.network.iter().position(|layer| layer.name == name) {
            Some(at) => self.widths.of[at].numbers.unwrap_or(0),
            None if name == DENSE => self.model().bottom[0],
            None => self.model().dim,
        }
    }

    /// The names of its columns, in the order in which their look-ups are given.
    fn columns(&self) -> Vec<String> {
        self.model().column_names(self.model().vectors(self.weights.tables.len()))
    }

    /// The number of the column of that name.
    fn column(&self, name: &str) -> Option<usize> {
        self.columns().iter().position(|column| column == name)
    }

    /// Those with such a role, in their order.
    fn with_role(&self, is: impl Fn(Role<'_>) -> bool) -> Vec<&LayerWeights> {
        let roles = self.weights.shape.layers().zip(&self.weights.layers);
        roles.filter(|(layer, _)| is(layer.role)).map(|(_, layer)| layer).collect()
    }

    /// The layers that one of the network's is made of.
    fn layers_of(&self, name: &str) -> Vec<&LayerWeights> {
        self.with_role(|role| match role {
            Role::Cross(of, _) | Role::Attention(of, _) => of == name,
            Role::Chain(layer) => layer.of == name,
            Role::Wide | Role::Projection(_) => false,
        })
    }

    /// The wide part's, over the dense features, if there is one.
    fn wide(&self) -> Option<&LayerWeights> {
        self.with_role(|role| role == Role::Wide).pop()
    }

    /// The matrix that makes a table's vectors as wide as all, if it is narrower.
    fn projection(&self, table: usize) -> Option<&LayerWeights> {
        self.with_role(|role| role == Role::Projection(table)).pop()
    }

    /// How many values the column of this table has.
    fn values(&self, table: usize) -> u64 {
        if self.composed.contains(&table) { self.model().rows[table] } else { self.weights.tables[table].rows() as u64 }
    }

    /// The table of a column's remainders, if it has one.
    fn remainders(&self, column: usize) -> Option<usize> {
        let at = self.composed.iter().position(|composed| *composed == column)?;
        Some(self.model().vectors(self.weights.tables.len()) + at)
    }

    /// How the numbers of a tensor are written.
    fn number(&self, of: &Parameter) -> Number {
        let halves = match of.slot {
            TensorSlot::Table(_, TableTensor::Weight) => self.is_bf16(),
            // Matrices of narrow tables stay whole.
            TensorSlot::Layer(layer, LayerTensor::Weight) => {
                let is_narrow = |layer: crate::model::Layer<'_>| matches!(layer.role, Role::Projection(_));
                self.rounds() && !self.weights.shape.layers().nth(layer).is_some_and(is_narrow)
            }
            // So do biases and learned weights of rows; what optimizers keep is not exported.
            TensorSlot::Table(..) | TensorSlot::Layer(..) | TensorSlot::RowUpdates | TensorSlot::LayerUpdates => false,
        };
        if halves { Number::Bf16 } else { Number::F32 }
    }

    /// Bytes of a tensor.
    fn bytes(&self, of: &Parameter) -> usize {
        of.len() * self.number(of).bytes()
    }

    /// Gives `each` all bytes of a tensor, little-endian and row-major, piece by piece in their order.
    ///
    /// # Errors
    /// When the checkpoint lacks it or has another one by that name, when it is damaged, and those of `each`.
    fn pieces(&self, of: &Parameter, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (number, short) = (self.number(of), self.config.train.precision == Precision::Bf16Lsb8);
        let mut halves: Vec<u16> = Vec::new();
        self.checkpoint.read(of, &mut |values| match number {
            Number::F32 => each(bytemuck::cast_slice(values)),
            Number::Bf16 => {
                halves.clear();
                // As a table or a layer takes them: some of the lower bits count before they are cut off.
                halves.extend(values.iter().map(|&x| split(if short { shorten(x) } else { x }).0));
                each(bytemuck::cast_slice(&halves))
            }
        })
    }

    /// The places in the matrix of all products of `vectors` vectors, row-major, of those that `dot` gives, in its
    /// order.
    fn products(&self, vectors: usize, itself: bool) -> Vec<usize> {
        let itself = usize::from(itself);
        let row = |i: usize| match self.model().triangle {
            Triangle::Lower => 0..i + itself,
            Triangle::Upper => i + 1 - itself..vectors,
        };
        (0..vectors).flat_map(|i| row(i).map(move |j| i * vectors + j)).collect()
    }
}
